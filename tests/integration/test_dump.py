# SPDX-License-Identifier: Apache-2.0
"""A dump as NumPy reads it, and as the guide's find_nan.py walks it."""
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from placed_dumps import FIND_NAN
import programs

SAMPLE = programs.TESTS_BUILD / "tests/tools/dump_sample"

pytestmark = pytest.mark.skipif(not SAMPLE.is_file(),
                                reason="dump_sample is not built")


def dump(path, steps, *limit, code=0, **more):
    done = subprocess.run(
        [str(SAMPLE), str(path), steps, *map(str, limit)],
        capture_output=True, text=True, timeout=60, check=False, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def folder_of(done):
    return Path(done.stdout.splitlines()[0]) / "3/dlrm_v1_5/6"


def manifest(done, step):
    return json.loads((folder_of(done) / f"{step}.json").read_text("utf8"))


def load(done, step, tensor):
    return np.load(folder_of(done) / str(step) / tensor["file"])


def test_folders_are_named_as_the_guide_says(tmp_path):
    done = dump(tmp_path / "debug_0", "0|2")
    top, = (tmp_path / "debug_0/dump").iterdir()
    assert re.fullmatch(r"\d{14}", top.name)
    assert sorted(p.name for p in folder_of(done).iterdir()) == [
        "0", "0.json", "2", "2.json"]
    steps, files, size = map(int, done.stdout.splitlines()[1].split())
    found = [p for p in top.rglob("*") if p.is_file()]
    assert (steps, files) == (2, 12)
    assert size == sum(p.stat().st_size for p in found)


def test_numpy_reads_every_tensor_as_the_manifest_says(tmp_path):
    done = dump(tmp_path / "debug_0", "2")
    value = manifest(done, 2)
    assert value["recps_dump"] == 1 and value["complete"]
    assert value["run"] == {"device": "none", "seed": 7}
    lookup, relu, linear = value["operators"]
    rows = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    keys = load(done, 2, lookup["inputs"][0])
    assert keys.dtype == np.uint64
    assert keys.ravel().tolist() == [1, 2**64 - 1, 2**63, 42]
    assert np.array_equal(load(done, 2, lookup["outputs"][0]), rows)
    turned = load(done, 2, relu["inputs"][0])
    assert turned.flags.c_contiguous and np.array_equal(turned, rows.T)
    assert relu["inputs"][0]["strides"] == [1, 4]
    assert "place" not in relu["inputs"][0]
    halves = load(done, 2, linear["inputs"][0])
    want = np.array([[1, -2], [np.inf, 2.0**-133], [-0.0, 3.140625]],
                    np.float32)
    assert halves.dtype == np.float32
    assert np.array_equal(halves.view(np.uint32), want.view(np.uint32))
    assert linear["name"] == "a b\\c"
    assert linear["inputs"][0]["file"].startswith("linear.a_b_c.2.1.")
    assert linear["attributes"] == {"factor": 2.5}
    for op in value["operators"]:
        for tensor in op["inputs"] + op["outputs"]:
            assert list(load(done, 2, tensor).shape) == tensor["shape"]


def test_the_fifth_field_orders_the_files(tmp_path):
    done = dump(tmp_path / "debug_0", "all")
    stamps = []
    for step in range(3):
        for op in manifest(done, step)["operators"]:
            for tensor in op["inputs"] + op["outputs"]:
                stamps.append(int(tensor["file"].split(".")[4]))
    assert stamps == sorted(set(stamps))
    assert len(stamps) == 18


def test_the_guides_script_finds_the_first_nan(tmp_path):
    done = dump(tmp_path / "debug_0", "1")
    (tmp_path / "dump_data_npy").symlink_to(folder_of(done) / "1")
    found = subprocess.run([sys.executable, "-c", FIND_NAN], cwd=tmp_path,
                           capture_output=True, text=True, timeout=60,
                           check=True).stdout.strip()
    relu = manifest(done, 1)["operators"][1]
    assert found == "dump_data_npy/" + relu["outputs"][0]["file"]


def test_a_limit_is_kept_and_told(tmp_path):
    done = dump(tmp_path / "debug_0", "all", 4000, code=1)
    assert "--dump-limit" in done.stderr and "step" in done.stderr
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert 0 < sum(p.stat().st_size for p in files) <= 4000
    for path in files:
        if path.suffix == ".npy":
            np.load(path)


def test_a_file_that_cannot_be_written_whole_is_none(tmp_path):
    done = dump(tmp_path / "debug_0", "all", code=1, restore_signals=False,
                preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_FSIZE, (150, 150)))
    assert "File too large" in done.stderr and "keys" not in done.stderr
    assert ".input.0.npy" in done.stderr
    assert not list(tmp_path.rglob("*.npy"))
