# SPDX-License-Identifier: Apache-2.0
"""Where recps precision writes files: what is there stays what it is, and the
verdict is said whatever becomes of them."""
import json
import os
import pathlib
import stat
import subprocess

import pytest

import numpy_dumps as dumps
import programs
from test_precision_compare import make_step
from test_precision_guide import (NPU, RESULTS, TF, here, lines_of, noisy,
                                  recps, tables, write_pair)

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")
assert here  # a fixture


@pytest.fixture
def differing(here):
    left = make_step()
    write_pair(left, noisy(left, {"top.0/linear_relu": 9}))
    # links: were one replaced, the machine would have no /dev/null
    for name in ("full", "null", "stdout"):
        os.symlink(f"/dev/{name}", name)
    log = here / "log.json"
    log.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    return log


def commands(log):
    """Those with a file beside the answer; what the answer has in it."""
    return {
        "compare -o": (["compare", NPU, TF, "-o"], [], "linear_relu"),
        "compare --html": (["compare", NPU, TF, "--html"], [], "linear_relu"),
        "runs -o": (["runs", str(log), "-o"], ["--", str(log)], "loss"),
        "check -o": (["check-deterministic", "-o"],
                     ["--", "cp", str(log), "{log}"], "equal"),
    }


@pytest.mark.parametrize("which", ["compare -o", "compare --html", "runs -o",
                                   "check -o"])
def test_the_verdict_comes_first_and_then_74(differing, which):
    before, after, words = commands(differing)[which]
    (pathlib.Path("folder")).mkdir()
    for path, why in (("full", "No space left on device"),
                      ("no/such.csv", "No such file"),
                      ("folder", "it is a folder")):
        run = recps(*before, path, *after, code=74)
        assert words in run.stdout
        assert why in run.stderr and path in run.stderr
        run = recps(*before, path, "--json", *after, code=74)
        assert "exit" not in json.loads(run.stdout)
    assert stat.S_ISCHR(os.stat("full").st_mode)
    run = recps(*before, "-", *after, code=64)
    assert "standard output has the answer" in run.stderr
    assert not pathlib.Path("-").exists() and not list(pathlib.Path().glob("*.tmp"))


def test_links_devices_and_pipes_stay(differing):
    target = pathlib.Path("kept.csv")
    target.write_text("old")
    os.symlink("kept.csv", "link.csv")
    recps("compare", NPU, TF, "-o", "link.csv", code=1)
    assert os.path.islink("link.csv") and len(lines_of(target)) == 4
    recps("compare", NPU, TF, "-o", "null", code=1)
    assert stat.S_ISCHR(os.stat("null").st_mode)
    run = recps("compare", NPU, TF, "-o", "stdout", code=1)
    assert target.read_text() in run.stdout and "linear_relu" in run.stdout
    with open("all.txt", "w", encoding="utf8") as out:
        subprocess.run([str(programs.RECPS), "precision", "compare", NPU, TF,
                        "-o", "stdout"], stdout=out, check=False,
                       env=programs.environment(), timeout=60)
    assert pathlib.Path("all.txt").read_text() == run.stdout


def test_tables_and_pictures_that_cannot_be_written_are_74(differing):
    pathlib.Path(RESULTS).parent.mkdir(parents=True)
    pathlib.Path(RESULTS).write_text("")
    pathlib.Path(RESULTS).parent.joinpath("graph").write_text("")
    run = recps("ac", "-c", code=74)
    assert "linear_relu" in run.stdout and "The table" not in run.stdout
    assert "the table: " in run.stderr
    run = recps("ni", "linear_relu", "-s", "1", code=74)
    assert "Op linear_relu" in run.stdout and "Neighbours" not in run.stdout
    assert "--save: " in run.stderr


def test_many_at_once_have_tables_of_their_own(differing):
    runs = [subprocess.Popen([str(programs.RECPS), "precision", "ac", "-c"],
                             stdout=subprocess.PIPE, text=True,
                             env=programs.environment()) for _ in range(8)]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert {run.returncode for run in runs} == {1}
    assert len({one.rsplit("The table: ", 1)[1] for one in said}) == 8
    assert len(tables()) == 8
    assert {table.read_text() for table in tables()} == {tables()[0].read_text()}
    assert not list(pathlib.Path(RESULTS).glob("*.tmp"))
