# SPDX-License-Identifier: Apache-2.0
"""recps-bench table: what it prints, what it refuses. Speeds are not tested."""
import functools
import subprocess

import numpy
import pytest

import benches
import programs
from benches import BENCH, assert_positive

SMALL = ["--rows", "20000", "--batch", "1024", "--seconds", "0.05"]
FIGURES = [
    "lookup_ns", "push_ns", "insert_ns", "index_gather_ns", "row_gather_ns",
    "lookup_over_limit", "push_over_lookup", "overhead_bytes_per_row",
    "insert_batch_p50_us", "insert_batch_p9999_us", "insert_batch_max_us",
    "insert_batch_p50_wall_us", "insert_batch_max_wall_us", "index_bytes",
    "table_bytes", "checked_answers"]
SCALING = ["lookup_scaling", "gather_scaling"]
PEERS = ["lookup_vs_absl", "lookup_vs_libcuckoo", "absl_ns", "libcuckoo_ns"]

pytestmark = benches.is_built

table = functools.partial(benches.bench, "table")
figures = functools.partial(benches.figures, "table")


def test_json_is_one_object_with_every_figure():
    result = figures(*SMALL, "--dim", 16, "--peers", "off")
    assert_positive(result, FIGURES)
    assert result["rows"] == 20000
    assert (result["dim"], result["batch"], result["threads"]) == (16, 1024, 1)
    assert (result["value_type"], result["optimizer"]) == ("f32", "adagrad")
    for name in PEERS + SCALING + ["absl", "libcuckoo", "hot_push_ratio"]:
        assert result[name] is None, name
    for name in ("cpu", "isa", "huge_pages", "version"):
        assert isinstance(result[name], str) and result[name], name


def test_peers_are_measured_where_they_were_built():
    result = figures(*SMALL, "--dim", 8)
    if result["absl"] is None:
        pytest.skip("built without the peers")
    assert_positive(result, PEERS)
    assert result["absl"].startswith("absl::flat_hash_map")
    assert result["libcuckoo"].startswith("libcuckoo::")


def test_two_threads_with_a_hot_key():
    result = figures(*SMALL, "--threads", 2, "--dist", "hot:50", "--peers",
                     "off")
    assert_positive(result, FIGURES + SCALING +
                    ["hot_lookup_ratio", "hot_push_ratio"])


@pytest.mark.parametrize("flags", (
    ["--rows", "10", "--batch", "10", "--seconds", "0.01"],
    ["--rows", "1", "--batch", "1", "--seconds", "0.01"],
    ["--rows", "300", "--batch", "50", "--threads", "2", "--dist", "hot:50",
     "--seconds", "0.01"],
    ["--rows", "100", "--batch", "20", "--threads", "2", "--mix",
     "lookup:5,push:5", "--seconds", "0.01"]))
def test_few_rows_with_many_pushes_come_to_an_end(flags):
    result = figures(*flags, "--peers", "off")
    assert result["checked_answers"] > 0


@pytest.mark.parametrize("threads, dist", [(1, "hot:50"), (2, "zipf:1.1"),
                                           (2, "seq")])
def test_a_mix_has_the_times_of_its_parts(threads, dist):
    # long enough for each part to come by, also on a machine that is busy
    result = figures(*SMALL, "--threads", threads, "--dist", dist, "--mix",
                     "lookup:60,push:30,insert:10", "--seconds", 0.3)
    assert_positive(result, ["lookup_ns", "push_ns", "insert_ns",
                             "mix_keys_per_second"])
    assert result["lookup_over_limit"] is None


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_optimizer_is_checked(optimizer):
    assert_positive(figures(*SMALL, "--optimizer", optimizer, "--dim", 7,
                            "--peers", "off"), FIGURES)


def test_a_trace_gives_the_keys(tmp_path):
    keys = numpy.random.default_rng(1).zipf(1.3, 5000).astype("<u8")
    numpy.save(tmp_path / "keys.npy", keys)
    (tmp_path / "keys.txt").write_text("".join(f"{k}\n" for k in keys))
    for name in ("keys.npy", "keys.txt"):
        result = figures("--rows", 100, "--batch", 100, "--seconds", 0.01,
                         "--dist", f"trace:{tmp_path / name}")
        assert result["rows"] == len(numpy.unique(keys))
        assert_positive(result, FIGURES)


def test_a_sweep_has_a_point_a_size_and_dim():
    result = figures("--size-sweep", "1000:16000:5", "--dim", "1,8")
    assert [(p["dim"], p["rows"]) for p in result["sizes"]] == [
        (dim, 1000 * 2**i) for dim in (1, 8) for i in range(5)]
    each = [p["overhead_bytes_per_row"] for p in result["sizes"]]
    assert result["overhead_mean"] == pytest.approx(sum(each) / len(each))
    assert result["overhead_max"] == pytest.approx(max(each))


def test_memory_says_what_eviction_gives_back():
    result = figures("--memory", "--rows", 5000, "--batch", 100)
    assert_positive(result, ["evict_rss_ratio", "evict_reuse_ratio"])
    assert result["checked_answers"] == 5000
    assert isinstance(result["drop_rss_growth_bytes"], float)


@pytest.mark.parametrize("flags, batch", (
    (["--memory", "--rows", "1000"], 1000),
    (["--rows", "1000", "--threads", "2", "--mix", "lookup:1"], 500),
    (["--rows", "1000", "--dist", "hot:50", "--mix", "lookup:1"], 492),
    (["--rows", "20000", "--mix", "lookup:1"], 4096)))
def test_the_default_batch_fits_the_rows(flags, batch):
    result = figures(*flags, "--seconds", 0.01, "--peers", "off")
    assert result["batch"] == batch


@pytest.mark.parametrize("flags", (
    ["table", "--memory", "--rows", "100", "--json"],
    ["table", "--memory", "--rows", "100"]))
def test_output_that_cannot_be_written_is_said(flags):
    with open("/dev/full", "w", encoding="ascii") as full:
        run = subprocess.run(
            [BENCH, *flags],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=300, env=programs.environment())
    assert run.returncode == 1
    assert "writing to stdout: No space left on device" in run.stderr


def test_people_get_a_table_and_progress_apart():
    run = table(*SMALL, "--peers", "off")
    assert run.returncode == 0
    assert "lookup / (line + row gather)" in run.stdout
    assert "filling 20000 rows" in run.stderr


@pytest.mark.parametrize("flags, words", [
    (["--rows", "0"], ["--rows", '"0"', "from 1 to"]),
    (["--dim", "0"], ["--dim", "from 1 to 8192"]),
    (["--dim", "8193"], ["--dim", "from 1 to 8192"]),
    (["--dim", "1,2"], ["--dim", "--size-sweep"]),
    (["--batch", "0"], ["--batch", "from 1 to"]),
    (["--rows", "9", "--batch", "10"], ["--batch", "--rows"]),
    (["--dist", "zipf:-1"], ["--dist", "zipf:S", "seq"]),
    (["--dist", "hot:200"], ["--dist", "hot:P"]),
    (["--dist", "trace:/nowhere"], ["/nowhere"]),
    (["--mix", "lookup"], ["--mix", "NAME:WEIGHT"]),
    (["--mix", "lookup:0"], ["--mix", "not all 0"]),
    (["--mix", "lookup:1", "--dist", "hot:9", "--threads", "2"], ["--mix"]),
    (["--threads", "0"], ["--threads", "from 1 to 256"]),
    (["--value-type", "i8"], ["--value-type", "f32, f16 or bf16"]),
    (["--optimizer", "sdg"], ["--optimizer", "adagrad", "rmsprop"]),
    (["--seconds", "0"], ["--seconds", "above 0"]),
    (["--seed", "-1"], ["--seed"]),
    (["--peers", "on"], ["--peers", "auto or off"]),
    (["--size-sweep", "9:1:1"], ["--size-sweep", "FROM:TO:COUNT"]),
    (["--memory", "--mix", "lookup:1"], ["one at a time"]),
    (["lookup"], ["lookup", "none is taken"]),
    (["--bogus"], ["--bogus", "--help"]),
])
def test_bad_input_is_64_and_says_what_is_allowed(flags, words):
    run = table(*flags)
    assert run.returncode == 64
    assert run.stdout == ""
    for word in words:
        assert word in run.stderr


def test_help_names_every_option():
    run = table("--help")
    assert run.returncode == 0
    for option in ("rows", "dim", "batch", "dist", "mix", "threads",
                   "value-type", "optimizer", "seconds", "seed", "peers",
                   "size-sweep", "memory", "json"):
        assert f"--{option}" in run.stdout
