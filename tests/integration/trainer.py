# SPDX-License-Identifier: Apache-2.0
"""recps-train as a test starts it, and what it leaves behind."""
import json
import os
import pathlib
import re
import subprocess

import numpy
import pytest

import programs

TRAIN = programs.BUILD / "client/worker/recps-train"
SHARED = programs.ROOT.parent / "shared"
DATA = pathlib.Path(os.environ.get("RECPS_TEST_DATA", SHARED / "data"))

needs_programs = pytest.mark.skipif(
    not (TRAIN.is_file() and programs.RECPS.is_file()),
    reason=f"{TRAIN} is not built")


def data(name):
    """A real data file, or a skip that says what is missing."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here (RECPS_TEST_DATA names its folder)")
    return path


def run(command, timeout=120, code=0, env=None, cwd=None):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True,
        env=programs.environment(**(env or {})), timeout=timeout, check=False,
        cwd=cwd)
    assert done.returncode == code, (
        f"exit {done.returncode}, not {code}:\n{done.stdout}\n{done.stderr}")
    return done


def train(*flags, **how):
    """Embedded: no cluster."""
    return run([TRAIN, *flags], **how)


def launch(*flags, ps=2, workers=1, options=(), **how):
    """Under `recps launch`."""
    return run([programs.RECPS, "launch", "--ps", ps, "--workers", workers,
                *options, "--", TRAIN, *flags], **how)


def log_of(path):
    """(losses by step, the done line); the file must be clean."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["event"] == "done"
    steps = [line for line in lines[:-1] if "loss" in line]
    losses = {line["step"]: line["loss"] for line in steps}
    assert len(losses) == len(steps)
    return losses, lines[-1]


def auc_of(output):
    return float(re.search(r"\bauc ([0-9.]+)", output).group(1))


def checkpoint(folder, step):
    return folder / f"ckpt-{step:012d}"


def digest(folder):
    out = run([programs.RECPS, "digest", folder]).stdout
    return re.search(r"digest ([0-9a-f]{32})", out).group(1)


def table(folder, name, part="rows"):
    """One table of a checkpoint: its keys and rows, over all parts."""
    files = sorted(folder.glob(f"table-{name}/*.keys.npy"))
    keys = numpy.concatenate([numpy.load(f) for f in files])
    rows = numpy.concatenate(
        [numpy.load(str(f).replace(".keys.", f".{part}.")) for f in files])
    return keys, rows


def criteo_file(path, rows, seed=3, tokens=40):
    """A small file in Criteo's form, with a signal. Returns its rows."""
    draw = numpy.random.default_rng(seed)
    weight = draw.normal(size=(26, tokens))
    made = []
    with open(path, "w", encoding="ascii") as file:
        for _ in range(rows):
            dense = [None if draw.random() < 0.2 else int(v)
                     for v in draw.integers(-2, 60, 13)]
            token = [None if draw.random() < 0.1 else int(v)
                     for v in draw.integers(0, tokens, 26)]
            odds = sum(weight[i, v] for i, v in enumerate(token)
                       if v is not None) / 3
            label = int(draw.random() < 1 / (1 + numpy.exp(-odds)))
            made.append((label, dense, token))
            file.write("\t".join(
                [str(label)] + ["" if v is None else str(v) for v in dense] +
                ["" if v is None else f"{v * 2654435761 % 2**32:08x}"
                 for v in token]) + "\n")
    return made
