# SPDX-License-Identifier: Apache-2.0
"""recps-bench checkpoint: what it prints, what it refuses. Speeds are not
tested."""
import functools
import pathlib
import tempfile

import pytest

import benches
from benches import assert_positive

SMALL = ["--rows", "3000", "--rounds", "2", "--seconds", "0.05"]
FIGURES = [
    "save_bytes", "save_seconds", "save_bytes_per_second",
    "disk_write_bytes_per_second", "save_ratio", "restore_seconds",
    "restore_bytes_per_second", "disk_read_bytes_per_second", "restore_ratio",
    "cached_read_bytes_per_second", "verify_seconds",
    "verify_bytes_per_second", "delta_rows", "delta_bytes", "delta_seconds",
    "delta_bytes_per_second", "delta_restore_seconds"]
TRAFFIC = [
    "push_peak_per_second", "cut_pause_us"] + [
        f"{what}_{which}_us" for what in ("push", "lookup")
        for which in ("p50_idle", "p99_idle", "p50_saving", "p99_saving")] + [
            "push_p99_ratio", "lookup_p99_ratio"]

pytestmark = benches.is_built

checkpoint = functools.partial(benches.bench, "checkpoint")
figures = functools.partial(benches.figures, "checkpoint")


@pytest.fixture(name="disk")
def fixture_disk():
    """A folder on a disk, which the tests' own may not be: in memory a save is
    over before a push. The test is skipped where it has no O_DIRECT."""
    with tempfile.TemporaryDirectory(prefix="recps-disk-",
                                     dir="/var/tmp") as folder:
        result = checkpoint("--rows", 1, "--rounds", 1, "--seconds", 0, "--dir",
                            folder)
        if "no O_DIRECT" in result.stderr:
            pytest.skip("no O_DIRECT below /var/tmp")
        yield pathlib.Path(folder)


def test_json_is_one_object_with_every_figure(disk):
    result = figures(*SMALL, "--dim", 8, "--optimizer", "adam", "--dir", disk)
    assert_positive(result, FIGURES + TRAFFIC)
    assert (result["rows"], result["dim"]) == (3000, 8)
    assert (result["optimizer"], result["value_type"]) == ("adam", "f32")
    # key, row, two slots, uses, last: the files, their headers and checksums
    assert 0 <= result["save_bytes"] - 3000 * (8 + 3 * 32 + 1 + 4) < 4096
    assert result["checked_restores"] == 3
    assert 300 <= result["delta_rows"] <= 3000
    assert result["extra_rss_bytes"] >= 0
    assert result["saving_extra_rss_bytes"] >= 0
    for name in ("cpu", "isa", "huge_pages", "version"):
        assert isinstance(result[name], str) and result[name], name
    assert not list(disk.iterdir())


@pytest.mark.parametrize("flags", (
    ["--value-type", "f16", "--optimizer", "sgd"],
    ["--rows", "1"]))
def test_other_tables(disk, flags):
    assert_positive(figures(*SMALL, "--dir", disk, *flags), FIGURES)


def test_without_seconds_there_is_no_traffic(disk):
    result = figures("--rows", 100, "--rounds", 1, "--seconds", 0, "--dir",
                     disk)
    for name in TRAFFIC:
        assert result[name] is None, name


def test_people_get_lines(disk):
    result = checkpoint(*SMALL, "--dir", disk)
    assert result.returncode == 0, result.stderr
    assert "save / disk" in result.stdout


@pytest.mark.parametrize("flags, words", (
    (["--rows", "0"], "--rows"), (["--dim", "9000"], "--dim"),
    (["--optimizer", "x"], "--optimizer"), (["--rounds", "100"], "--rounds"),
    (["--seconds", "-1"], "--seconds"), (["more"], "argument")))
def test_bad_usage_is_64(flags, words):
    result = checkpoint(*flags)
    assert result.returncode == 64
    assert words in result.stderr
    assert result.stdout == ""


def test_a_folder_that_is_not_there_is_told(tmp_path):
    result = checkpoint("--rows", 1, "--dir", tmp_path / "absent")
    assert result.returncode == 1
    assert "absent" in result.stderr
