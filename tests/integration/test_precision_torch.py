# SPDX-License-Identifier: Apache-2.0
"""Operators of recps-train against PyTorch's: 20 steps of the reference model,
from the same weights and data (docs/PRECISION_TORCH.md keeps the report)."""
import json
import pathlib
import subprocess
import sys

import pytest

import programs
import trainer

pytestmark = trainer.needs_programs
torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

STEPS = 20
DUMPER = programs.ROOT / "tests/tools/torch_dump.py"
MAP = programs.ROOT / "tests/data/torch_map.json"
OPERATORS = {
    "bot.0/linear_relu", "bot.2/linear_relu", "emb/pooling",
    "interaction/dots", "top.0/linear_relu", "top.2/linear", "loss/bce",
    "top.2/linear_backward", "top.0/linear_backward",
    "interaction/dots_backward", "bot.2/linear_backward",
    "bot.0/linear_backward", "emb/cast"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """(PyTorch's dump, its start weights, the data)."""
    script = pathlib.Path(trainer.SHARED / "reference/dlrm_torch.py")
    if not script.is_file():
        pytest.skip(f"{script} is not here")
    data = trainer.data("criteo.tsv")
    folder = tmp_path_factory.mktemp("torch")
    subprocess.run(
        [sys.executable, DUMPER, folder / "dump", str(STEPS), script, "criteo",
         data, "--init-out", folder / "start"],
        check=True, env=programs.environment(OMP_NUM_THREADS="1"),
        stdout=subprocess.DEVNULL, timeout=300)
    return folder / "dump", folder / "start", data


def compared(reference, dump, device):
    """The steps of recps-train's dump beside PyTorch's."""
    torch_dump, start, data = reference
    trainer.train("--data", f"criteo:{data}", "--train-rows", 7000,
                  "--batch-size", 128, "--steps", STEPS, "--init-from", start,
                  "--device", device, "--dump-step", f"0-{STEPS - 1}",
                  "--dump-path", dump)
    done = subprocess.run(
        [str(programs.RECPS), "precision", "compare", str(dump),
         str(torch_dump), "--map", str(MAP), "--threshold", "0.999999",
         "--json"],
        capture_output=True, text=True, timeout=120, check=False,
        env=programs.environment())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout)["steps"]


def test_every_operator_of_20_steps_is_pytorchs(reference, tmp_path):
    for device in ("cpu", "npu"):
        steps = compared(reference, tmp_path / device, device)
        assert len(steps) == STEPS
        for step in steps:
            both = [o for o in step["operators"] if o["left"] and o["right"]]
            assert {o["left"] for o in both} == OPERATORS
            for operator in both:
                cosines = [t["cosine"] for t in
                           operator["inputs"] + operator["outputs"]
                           if "cosine" in t]
                assert cosines and min(cosines) > 0.999999
