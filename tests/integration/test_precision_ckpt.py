# SPDX-License-Identifier: Apache-2.0
"""recps precision ckpt: what it says of two checkpoints, and what NumPy says.

The checkpoints are NumPy's (deltas.py).
"""
import copy
import csv
import json
import shutil
import xml.etree.ElementTree as tree

import numpy
import pytest

import deltas
import programs
import trainer

if not programs.RECPS.is_file():
    pytest.skip(f"{programs.RECPS} is not built", allow_module_level=True)


def recps(*arguments, code=0):
    return trainer.run([programs.RECPS, "precision", "ckpt", *arguments],
                       code=code)


def answer(*arguments, code=0):
    return json.loads(recps(*arguments, "--json", code=code).stdout)


def random_of(number):
    return numpy.random.default_rng(number)


def floats(table, row, slot=None):
    """The row's values, or one of its slots, as float64."""
    if slot is not None:
        return row.slots[slot].astype("f8")
    if table.spec["value_dtype"] == "bfloat16":
        return (row.value.astype("<u4") << 16).view("<f4").astype("f8")
    return row.value.astype("f8")


def other_folder(job, folder):
    """The same state, to be changed and saved elsewhere."""
    other = copy.deepcopy(job)
    other.folder = folder
    return other


def drift(job, random, amounts):
    """Rows move by so much of their own size, a table each."""
    for (name, table), amount in zip(job.tables.items(), amounts):
        for key in list(table.rows):
            row = copy.deepcopy(table.rows[key])
            if table.spec["value_dtype"] != "bfloat16":
                noise = random.normal(size=row.value.shape) * amount
                row.value = (row.value + noise).astype(row.value.dtype)
            for slot, value in row.slots.items():
                row.slots[slot] = (value * (
                    1 + random.normal(size=value.shape) * amount)).astype("<f4")
            table.put(key, row)
        del name


def cosine(left, right):
    """As the guide's script has it, in float64, zero norms defined."""
    norms = numpy.linalg.norm(left), numpy.linalg.norm(right)
    if 0 in norms:
        return float(norms[0] == norms[1])
    return numpy.dot(left, right) / (norms[0] * norms[1])


def expect_variable(said, a, b, slot):
    both = sorted(a.rows.keys() & b.rows.keys())
    left = {k: floats(a, a.rows[k], slot) for k in both}
    right = {k: floats(b, b.rows[k], slot) for k in both}
    assert said["both"] == len(both)
    assert said["only_a"] == len(a.rows.keys() - b.rows.keys())
    assert said["only_b"] == len(b.rows.keys() - a.rows.keys())
    assert said["rows_a"] == len(a.rows) and said["rows_b"] == len(b.rows)
    whole = [numpy.concatenate([side[k] for k in both]).reshape(-1)
             for side in (left, right)]
    assert said["one_minus_cosine"] == pytest.approx(
        1 - cosine(*whole), rel=2e-9, abs=1e-13)
    assert said["norm_a"] == pytest.approx(numpy.linalg.norm(whole[0]), 1e-8)
    assert said["norm_b"] == pytest.approx(numpy.linalg.norm(whole[1]), 1e-8)
    changed = [k for k in both if left[k].tobytes() != right[k].tobytes()]
    assert said["changed"] == len(changed)
    if not changed:
        assert said["worst"] is None and said["cosine"] == 1
        return
    cosines = {k: cosine(left[k], right[k]) for k in changed}
    assert said["worst"]["cosine"] == pytest.approx(min(cosines.values()))
    assert cosines[int(said["worst"]["key"])] == pytest.approx(
        min(cosines.values()), abs=1e-12)
    moved = {k: abs(left[k] - right[k]).max() for k in changed}
    assert said["largest"]["change"] == pytest.approx(max(moved.values()))
    assert moved[int(said["largest"]["key"])] == max(moved.values())
    assert said["rows_below"] == sum(c < 0.98 for c in cosines.values())


@pytest.mark.parametrize("flags, seed", [((), 0), (("--memory", "4k"), 0),
                                         (("--memory", "4k"), 7)])
def test_every_variable_has_numpys_cosine(tmp_path, flags, seed):
    """Deltas against a full one, of other numbers of servers, rows of one side
    alone, all value types; several passes; another job seed."""
    job = deltas.chain(tmp_path / "a", random_of(3))
    other = other_folder(job, tmp_path / "b")
    other.seed = seed
    drift(other, random_of(4), (1e-4, 0, 0.5, 0.3, 0, 3))
    for table in other.tables.values():
        for key in list(table.rows)[::7]:
            table.erase(key)
        if table.rows:
            table.put(12345678901234567890, next(iter(table.rows.values())))
    other.save(40, 3)
    said = answer(tmp_path / "a", tmp_path / "b", "--slots", *flags, code=1)
    found = {v["name"]: v for v in said["variables"]}
    names = [n for n in job.tables if n != "empty"]
    for name in names:
        a, b = job.tables[name], other.tables[name]
        for slot in (None, *a.widths):
            expect_variable(found[name if slot is None else f"{name}/{slot}"],
                            a, b, slot)
    assert found["empty"]["both"] == 0 and found["empty"]["cosine"] == 1
    assert len(found) == sum(1 + len(t.widths) for t in job.tables.values())
    order = [-v["one_minus_cosine"] for v in said["variables"]]
    assert order == sorted(order)
    assert said["below"] == sum(v["below"] for v in found.values()) > 0
    assert said["problems"] == 0 and said["first"] is not None


def small(folder, values, slots=None, **settings):
    """One table `t` of these rows, by key from 5 on."""
    job = deltas.Job(folder, **settings)
    table = job.make("t", len(values[0]))
    for key, value in enumerate(values, 5):
        value = numpy.array(value, "<f4")
        table.put(key, deltas.Row(
            value, {"accumulator": numpy.ones_like(value)
                    if slots is None else slots}, 1, 1))
    job.save(1)
    return folder


def only(said):
    (variable,) = said["variables"]
    return variable


def test_zero_norms_have_a_cosine(tmp_path):
    zero = small(tmp_path / "zero", [[0, 0], [0, -0.0]])
    also = small(tmp_path / "also", [[0, 0], [0, 0]])
    some = small(tmp_path / "some", [[0, 0], [1, 2]])
    said = only(answer(zero, also))
    assert said["cosine"] == 1 and said["changed"] == 1
    said = only(answer(some, zero, code=1))
    assert said["cosine"] == 0 and said["below"]
    assert said["worst"] == {"cosine": 0, "key": "6"}


def test_what_is_not_finite_comes_first(tmp_path):
    nan, inf = float("nan"), float("inf")
    good = small(tmp_path / "good", [[1, 2], [3, 4], [5, 6]])
    bad = small(tmp_path / "bad", [[1, 2], [3, nan], [inf, -6]])
    said = only(answer(bad, good, code=1))
    assert said["cosine"] is None and said["below"]
    assert said["not_finite_a"] == 2 and said["not_finite_b"] == 0
    assert said["worst"] == {"cosine": None, "key": "6"}
    assert said["largest"]["change"] is None
    assert "the first is t: cosine nan" in recps(bad, good, code=1).stdout
    said = only(answer(bad, bad))
    assert said["cosine"] == 1 and said["not_finite_a"] == 2


def test_one_stale_row_of_many_is_told(tmp_path):
    """It does not show in the cosine of its table."""
    values = random_of(5).normal(size=(4000, 4))
    good = small(tmp_path / "good", values)
    values[1234] = values[1235]
    bad = small(tmp_path / "bad", values)
    said = answer(bad, good, code=1)
    assert said["below"] == 0 and said["first"]["variable"] == "t"
    assert only(said)["rows_below"] == 1 and only(said)["cosine"] > 0.98
    assert only(said)["worst"]["key"] == str(1234 + 5)
    text = recps(bad, good, code=1).stdout
    assert "no variable is below 0.98" in text
    assert "1 of its 4000 rows are: the worst is key 1239" in text
    assert answer(bad, good, "--cos", "-1")["below"] == 0


def dense(job, name, values):
    table = job.make(name, 1024, "adam", dense_elements=len(values),
                     initializer="zeros")
    rows = -(-len(values) // 1024)
    padded = numpy.zeros(rows * 1024, "<f4")
    padded[:len(values)] = values
    for key, row in enumerate(padded.reshape(rows, 1024)):
        table.put(key, deltas.Row(row, {
            "m": numpy.zeros(1024, "<f4"), "v": numpy.zeros(1024, "<f4")}, 1, 1))


@pytest.fixture(name="pair", scope="module")
def make_pair(tmp_path_factory):
    """A model of which one weight went astray between steps 5 and 10."""
    folder = tmp_path_factory.mktemp("pair")
    weight = random_of(6).normal(size=1500).astype("<f4")
    jobs = {side: deltas.Job(folder / side) for side in "ab"}
    for side, job in jobs.items():
        job.make("user", 4)
        for name in ("top.2.weight", "top.2.bias", "other"):
            dense(job, name, weight)
        job.tables["user"].put(7, job.tables["user"].random_row(
            random_of(8), 1))
        job.save(5, 2)
        if side == "a":
            table = job.tables["top.2.weight"]
            table.put(1, deltas.Row(-table.rows[1].value, table.rows[1].slots,
                                    1, 9))
        job.save(10, 1, "delta")
        job.save(15, 3)
    return folder / "a", folder / "b"


def test_the_operator_that_outputs_the_variable_is_named(pair):
    said = answer(*pair, code=1)
    assert said["steps"] == [15, 15] and said["step_before"] == 10
    assert said["first"] == {
        "variable": "top.2.weight", "kind": "dense", "optimizer": "adam",
        "operator": "top.2/linear_backward", "unfused": "top.2/linear_dweight"}
    assert said["variables"][0]["largest"]["column"] < 1500 - 1024
    text = recps(*pair, code=1).stdout
    assert "top.2/linear_backward makes its gradient" in text
    assert "with --fusion off it is top.2/linear_dweight" in text
    assert text.index("top.2.weight") < text.index("other")


def test_first_goes_through_the_steps_of_both(pair):
    said = answer(*pair, "--first", code=1)
    assert said["steps"] == [10, 10] and said["step_before"] == 5
    assert said["compared"] == 2
    text = recps(*pair, "--first", code=1).stdout
    assert "step 10 is the first that shows something" in text
    assert "--restore=5 --steps 10" in text and "--dump-step '5-9'" in text
    assert "--dump-and-save" in text and "of a copy" in text
    said = answer(pair[0], pair[0], "--first")
    assert said["compared"] == 3 and said["first"] is None


def test_csv_and_page_have_every_variable(pair, tmp_path):
    table, page = tmp_path / "v.csv", tmp_path / "v.html"
    said = answer(*pair, "-o", table, "--html", page, "--slots", code=1)
    with open(table, encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["variable"] for line in lines] == [
        v["name"] for v in said["variables"]]
    assert float(lines[0]["cosine"]) == pytest.approx(
        said["variables"][0]["cosine"])
    assert lines[0]["kind"] == "dense" and lines[0]["worst_key"] == "1"
    text = page.read_text("utf8")
    assert "<script" not in text and "http" not in text
    root = tree.fromstring(text[text.index("<svg"):text.index("</svg>") + 6])
    bars = root.findall("rect")
    assert len(bars) == len(lines)
    assert [bar.get("class") for bar in bars] == [
        "bad" if v["below"] else "good" for v in said["variables"]]
    for variable in said["variables"]:
        assert f"<td>{variable['name']}</td>" in text


def test_what_cannot_be_compared_is_told(tmp_path):
    jobs = [deltas.Job(tmp_path / side) for side in "ab"]
    for job in jobs:
        job.make("same", 3)
        job.make("kinds", 3, "adam" if job is jobs[0] else "sgd")
        job.make("widths", 3 if job is jobs[0] else 4)
    jobs[0].make("alone", 2)
    for job in jobs:
        job.storm(random_of(9), 1, keys=4)
        job.save(1)
    said = answer(tmp_path / "a", tmp_path / "b", "--slots", code=1)
    found = {v["name"]: v for v in said["variables"]}
    assert found["alone"]["problem"] == "only in A"
    assert found["alone/accumulator"]["problem"] == "only in A"
    assert found["widths"]["problem"] == "rows of 3 columns in A, of 4 in B"
    assert found["kinds/m"]["problem"] == "slots of adam in A, of sgd in B"
    assert found["kinds"]["problem"] is None
    assert found["widths"]["rows_a"] == len(jobs[0].tables["widths"].rows)
    assert said["problems"] == 6
    assert [v["problem"] is None for v in said["variables"]] == (
        [True] * (len(found) - 6) + [False] * 6)
    text = recps(tmp_path / "a", tmp_path / "b", code=1).stdout
    assert "widths: rows of 3 columns in A, of 4 in B" in text


def test_damage_and_slips_have_their_words(pair, tmp_path):
    good = pair[1]
    bad = tmp_path / "bad"
    job = deltas.Job(bad)
    job.make("user", 4)
    job.storm(random_of(1), 1)
    path = job.save(15)
    rows = path / "table-user/0-of-1.rows.npy"
    data = bytearray(rows.read_bytes())
    data[-1] ^= 1
    rows.write_bytes(data)
    assert "rows.npy" in recps(bad, good, code=65).stderr
    assert "nowhere" in answer("nowhere", good, code=66)["error"]
    assert "two" in answer(good, code=64)["error"]
    assert "--cos" in answer(good, good, "--cos", 2, code=64)["error"]
    assert "nothing" in answer(good, good, "--table", "nothing",
                               code=70)["error"]
    assert only(answer(good, good, "--table", "user"))["name"] == "user"
    (tmp_path / "none").mkdir()
    assert "in common" in answer(tmp_path / "none", good, "--first",
                                 code=66)["error"]
    text = recps(good / f"ckpt-{5:012d}", pair[0], code=1).stdout
    assert "compare checkpoints of one step" in text
    text = recps(good / f"ckpt-{5:012d}", good / f"ckpt-{10:012d}").stdout
    assert "A is of step 5, B of step 10" in text


def hurt(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_what_cannot_be_read_is_named_and_the_rest_compared(pair, tmp_path):
    """A damaged file of one table, a missing one of another; both sides."""
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, given in zip((a, b), pair):
        shutil.copytree(given / f"ckpt-{15:012d}", folder)
    hurt(a / "table-user/0-of-3.rows.npy")
    hurt(b / "table-user/1-of-3.keys.npy")
    (b / "table-other/2-of-3.rows.npy").unlink()
    said = answer(a, b, "--slots", code=65)
    found = {v["name"]: v for v in said["variables"]}
    assert said["unread"] == said["problems"] == 5
    assert "0-of-3.rows.npy" in found["user"]["problem"]
    assert "1-of-3.keys.npy" in found["user"]["problem"]
    assert "2-of-3.rows.npy" in found["other/m"]["problem"]
    assert found["other"]["both"] == found["user"]["rows_a"] == 0
    assert said["first"]["variable"] == "top.2.weight"
    assert found["top.2.bias"]["cosine"] == 1
    done = recps(a, b, "-o", tmp_path / "v.csv", code=65)
    assert done.stderr.count("0-of-3.rows.npy") == 1
    assert "2-of-3.rows.npy" in done.stderr
    assert "the first is top.2.weight" in done.stdout
    assert "of 2 of them a file cannot be read" in done.stdout
    for folder in (a, b):
        hurt(folder / "part-1-of-3.json")
    words = recps(a, b, code=65).stderr
    assert f"{a}/part-1-of-3.json" in words and f"{b}/part-1-" in words


def test_first_goes_on_behind_a_damaged_step(pair, tmp_path):
    for folder, given in zip("ab", pair):
        shutil.copytree(given, tmp_path / folder)
    (tmp_path / f"b/ckpt-{5:012d}/manifest.json").unlink()
    (tmp_path / f"a/ckpt-{15:012d}/table-user/0-of-3.rows.npy").unlink()
    done = recps("--first", tmp_path / "a", tmp_path / "b", code=65)
    assert f"ckpt-{5:012d}" in done.stderr
    assert "step 15 is the first that shows something" in done.stdout
    assert "0-of-3.rows.npy" in done.stderr


def test_layers_of_other_sizes_are_not_compared(tmp_path):
    """1024 elements a row are padded: a smaller one is no shorter row."""
    for side, width in (("a", 8), ("b", 16)):
        job = deltas.Job(tmp_path / side)
        dense(job, "bot.2.bias", random_of(2).normal(size=width))
        dense(job, "bot.0.bias", random_of(3).normal(size=64))
        job.save(1)
    said = answer(tmp_path / "a", tmp_path / "b", code=1)
    found = {v["name"]: v for v in said["variables"]}
    assert found["bot.2.bias"]["problem"] == "8 elements in A, 16 in B"
    assert said["first"] is None and found["bot.0.bias"]["cosine"] == 1
    text = recps(tmp_path / "a", tmp_path / "b", code=1).stdout
    assert "layers of A and B are of other sizes" in text


@trainer.needs_programs
def test_runs_of_other_numbers_of_servers_are_equal(tmp_path):
    flags = ["--data", "synthetic:rows=600", "--deterministic", "--steps", 4,
             "--batch-size", 32]
    trainer.train(*flags, "--checkpoint-dir", tmp_path / "a")
    trainer.launch(*flags, "--save-steps", 2, "--save-deltas", 3, ps=3,
                   options=["--checkpoint-dir", tmp_path / "b"])
    said = answer(tmp_path / "a", tmp_path / "b", "--slots", "--cos", 1)
    assert said["steps"] == [4, 4] and said["below"] == 0
    for variable in said["variables"]:
        assert variable["changed"] == 0 and variable["cosine"] == 1
        assert variable["both"] == variable["rows_a"] == variable["rows_b"] > 0
