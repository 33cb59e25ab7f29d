# SPDX-License-Identifier: Apache-2.0
"""recps precision replay and nan on dumps of real trainings: every operator of
both models agrees with its reference, on host and device, in every mode."""
import json
import pathlib
import subprocess

import pytest

import placed_dumps
import programs
import trainer

pytestmark = trainer.needs_programs

DATA = ["--data", "synthetic:rows=300", "--batch-size", 100, "--steps", 2]
NPU = ["--device", "npu"]
DLRM = [
    [],
    [*NPU, "--micro-batch", 4],
    [*NPU, "--fusion", "off", "--dropout", 0.2],
    [*NPU, "--precision-mode", "mixed", "--loss-scale", "dynamic"],
    [*NPU, "--precision-mode", "mixed", "--implmode", "high_precision",
     "--fusion", "off"],
    [*NPU, "--device-cache", 500],
]
DEMO = [
    [*NPU, "--deterministic"],
    [*NPU, "--precision-mode", "mixed", "--fusion", "off"],
    [*NPU, "--implmode", "high_precision"],
]


def cases():
    for model, modes in (("dlrm", DLRM), ("little_demo", DEMO)):
        for i, mode in enumerate(modes):
            quick = (model, i) in {("dlrm", 2), ("dlrm", 3),
                                   ("little_demo", 1)}
            yield pytest.param(
                model, mode, id=" ".join([model, *map(str, mode)]),
                marks=[] if quick else pytest.mark.long)


def precision(word, path, code):
    done = subprocess.run(
        [str(programs.RECPS), "precision", word, str(path), "--json"],
        capture_output=True, text=True, timeout=120, check=False,
        env=programs.environment())
    assert done.returncode == code, done.stdout[-3000:] + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("model, mode", cases())
def test_every_operator_of_a_training_agrees(tmp_path, model, mode):
    trainer.train("--model", model, *DATA, *mode, "--dump-step", "1",
                  "--dump-path", tmp_path / "dump")
    said = precision("replay", tmp_path / "dump", 0)
    assert said["not_agreeing"] == [] and said["overwritten"] == 0
    assert said["agree"] == said["operators"] > 10
    clean = precision("nan", tmp_path / "dump", 0)
    assert clean["ending"] == "clean"


def test_a_training_that_runs_away_is_arithmetic(tmp_path):
    trainer.train("--data", "synthetic:rows=600", "--batch-size", 100,
                  "--steps", 4, "--dense-optimizer", "sgd", "--dense-lr", 1e6,
                  "--sparse-lr", 1e6, *NPU, "--dump-step", "all",
                  "--dump-path", tmp_path / "dump", code=70)
    said = precision("nan", tmp_path / "dump", 1)
    assert (said["ending"], said["step"]) == ("arithmetic", 2)
    assert said["first"]["side"] == "output"
    file = pathlib.Path(said["nan_file"])
    assert placed_dumps.find_nan(file.parent, tmp_path / "guide") == file.name
    assert "no f32 any more" in said["words"][0]
