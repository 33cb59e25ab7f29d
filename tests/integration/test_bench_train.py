# SPDX-License-Identifier: Apache-2.0
"""bench/train.py: what it prints, refuses and finds. Speeds are not tested."""
import json
import subprocess
import sys

import pytest

import programs
import trainer

pytestmark = trainer.needs_programs
SCRIPT = programs.ROOT / "bench/train.py"


def bench(*flags, code=0):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--build", programs.BUILD,
         *map(str, flags)], capture_output=True, text=True, timeout=300,
        env=programs.environment(), check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("flags, words", [
    (["--batch", "0"], "numbers from 1 on"),
    (["--batch", "8000"], "--batch is at most 7000"),
    (["--epochs", 1], "--epochs 2 at least"),
    (["--floor", "2"], "THREADS=RATIO"),
    (["--rownds", 3], "--rownds")])
def test_bad_usage_is_64_and_said(flags, words):
    assert words in bench(*flags, code=64).stderr


@pytest.mark.long
def test_both_train_the_same_model_and_a_floor_is_held():
    pytest.importorskip("torch")
    flags = ["--rounds", 1, "--epochs", 2, "--batch", "500,1000",
             "--threads", 1, "--json"]
    done = bench(*flags, "--floor", "1=1000000", code=1)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["batch"] for line in lines] == [500, 1000]
    for line in lines:
        assert line["over_torch_1"] == pytest.approx(
            line["recps_samples_per_second"] /
            line["torch_1_samples_per_second"])
    assert "below 1000000" in done.stderr
    done = bench(*flags, "--train-flags", "--seed 1 --dense-optimizer sgd",
                 code=1)
    assert "PyTorch's is" in done.stderr
