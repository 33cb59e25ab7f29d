# SPDX-License-Identifier: Apache-2.0
"""recps-train: what it writes beside the report, and what it says."""
import json
import subprocess
import sys

import numpy
import pytest

import programs
import trainer

sys.path.insert(0, str(programs.ROOT / "tests/unit/worker"))
import check_events  # noqa: E402  pylint: disable=wrong-import-position

pytestmark = trainer.needs_programs

SYNTHETIC = "synthetic:rows=6000,keys=300,seed=3"
BASE = ["--data", SYNTHETIC, "--train-rows", 5000, "--batch-size", 100]


def scalars(folder):
    (path,) = folder.glob("events.out.tfevents.*")
    return check_events.scalars(path)


def test_summaries_hold_auc_and_log_loss_of_the_evaluation(tmp_path):
    log, first, second = (tmp_path / n for n in ("log.json", "a", "b"))
    folder = ["--checkpoint-dir", tmp_path / "ck"]
    trainer.train(*BASE, *folder, "--json-log", log, "--summary-dir", first)
    _, done = trainer.log_of(log)
    trainer.train(*BASE, *folder, "--evaluate", "--summary-dir", second)
    for seen in (scalars(first), scalars(second)):
        assert abs(seen[50, "auc"] - done["auc"]) < 1e-6
        assert abs(seen[50, "log_loss"] - done["log_loss"]) < 1e-6
