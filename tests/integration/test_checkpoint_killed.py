# SPDX-License-Identifier: Apache-2.0
"""A tool that is stopped at any moment, or that finds the disk full.

What stands in the folder afterwards is what was there before or what the tool
was to make, never a mixture; the next tool takes away what was left.
"""
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import deltas
import programs
from test_checkpoint_tools import answer, random_of, recps

MOMENTS = 20
SEED = 20261130


@pytest.fixture(name="memory", scope="module")
def make_memory():
    """A folder in memory, where there is one: a tool syncs each of its files,
    and it is not a power cut that this is about."""
    there = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(
            dir=there if there.is_dir() else None, prefix="recps-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(name="job", scope="module")
def make_job(memory):
    job = deltas.chain(memory / "ckpt", random_of(51), deltas=2)
    recps("export", job.folder, "emb", "--out", job.folder / "emb.safetensors")
    return job


# {tool: (its arguments in the folder, whether the digest changes)}
TOOLS = {
    "compact": (("compact", "."), False),
    "reshard": (("reshard", ".", "--parts", 5), False),
    "prune": (("prune", "--keep", 1, "."), False),
    "import": (("import", "more", "emb.safetensors", "optimizer=adagrad",
                "--checkpoint", ".", "--step", 30), True),
}


def start(folder, tool, **settings):
    return subprocess.Popen(
        [str(programs.RECPS), *map(str, TOOLS[tool][0])], cwd=folder,
        env=programs.environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, **settings)


def expect_whole(job, folder, tool):
    """One of the two states, by its digest, which reads every byte."""
    said = answer("digest", folder)
    assert said["step"] == 30
    names = {t["name"] for t in said["tables"]}
    if "more" in names:
        assert TOOLS[tool][1] and names == job.tables.keys() | {"more"}
        assert int({t["name"]: t["digest"] for t in said["tables"]}["more"], 16
                   ) == job.tables["emb"].digest()
    else:
        assert said["digest"] == job.digest()


def kill_at(job, memory, tool, after):
    folder = memory / "killed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(job.folder, folder)
    process = start(folder, tool)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    expect_whole(job, folder, tool)
    return folder, process.returncode


def duration(job, memory, tool):
    folder = memory / "whole"
    shutil.copytree(job.folder, folder)
    begun = time.monotonic()
    process = start(folder, tool)
    _, words = process.communicate()
    assert process.returncode == 0, words
    took = time.monotonic() - begun
    shutil.rmtree(folder)
    return took


def check_moments(job, memory, moments):
    draw = random.Random(SEED)
    took = {tool: duration(job, memory, tool) for tool in TOOLS}
    killed = 0
    for i in range(moments):
        tool = list(TOOLS)[i % len(TOOLS)]
        folder, code = kill_at(job, memory, tool,
                               draw.random() * took[tool])
        killed += code == -signal.SIGKILL
    assert killed > 0
    recps("reshard", folder, "--parts", 7)  # takes away what was left
    assert [p.name for p in folder.iterdir() if p.name.startswith(".new")] == []


def test_a_tool_that_is_killed_leaves_a_whole_state(job, memory):
    check_moments(job, memory, MOMENTS)


@pytest.mark.long
def test_200_moments_leave_a_whole_state(job, memory):
    check_moments(job, memory, 200)


@pytest.mark.parametrize("tool", ["compact", "reshard", "import"])
@pytest.mark.parametrize("room", [0, 700, 2000])
def test_a_full_disk_is_an_error_and_leaves_what_was_there(
        job, memory, tool, room):
    """No file may grow beyond the room, which is what a full disk is like."""
    folder = memory / "copy"
    shutil.copytree(job.folder, folder)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    process = start(folder, tool, preexec_fn=limit)
    _, words = process.communicate()
    assert process.returncode == 70, words
    assert b".npy" in words or b".json" in words
    assert answer("digest", folder)["digest"] == job.digest()
    there = {p.relative_to(folder) for p in folder.rglob("*")}
    assert there == {p.relative_to(job.folder) for p in job.folder.rglob("*")}
    shutil.rmtree(folder)


def test_two_tools_at_once_do_not_meet(job, memory):
    folder = memory / "copy"
    shutil.copytree(job.folder, folder)
    processes = [start(folder, tool) for tool in ("compact", "reshard") * 3]
    for process in processes:
        _, words = process.communicate()
        # 65: another has swapped what this one was about to read
        assert process.returncode in (0, 65, 70), words
        if process.returncode != 0:
            assert b"another recps" in words or b"missing" in words, words
    assert answer("digest", folder)["digest"] == job.digest()
    shutil.rmtree(folder)


# ---- servers, not tools ----

def is_used(folder):
    """By a process that was given it, as an option or a variable."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for what in ("cmdline", "environ"):
            try:
                if os.fsencode(folder) in (process / what).read_bytes():
                    return True
            except OSError:
                pass  # it is gone, or another user's
    return False


def train_until_killed(folder, after):
    """Saves follow each other at once, four of five of them deltas."""
    process = subprocess.Popen(
        [str(programs.RECPS), "launch", "--ps", "2", "--workers", "1",
         "--checkpoint-dir", str(folder), "--", str(programs.RECPS_TRAIN),
         "--data", "synthetic:rows=40000,keys=300", "--batch-size", "64",
         "--save-steps", "3", "--save-deltas", "4", "--keep", "3"],
        env=programs.environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE)
    end = time.monotonic() + 30
    while time.monotonic() < end and len(list(folder.glob("ckpt-*"))) < 2:
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)  # its processes end with it
    process.communicate()
    programs.until(lambda: not is_used(folder))


def check_saves(memory, moments):
    draw = random.Random(SEED)
    kinds = set()
    for i in range(moments):
        folder = memory / f"saved-{i}"
        train_until_killed(folder, draw.random())
        said = answer("verify", folder)
        assert said["matches"] is True
        kinds |= {link["kind"] for link in said["links"]}
        recps("compact", folder)
        assert answer("digest", folder)["digest"] == said["digest"]
        shutil.rmtree(folder)
    assert kinds == {"full", "delta"} or moments < 3


def test_servers_that_are_killed_leave_whole_checkpoints(memory):
    check_saves(memory, 2)


@pytest.mark.long
def test_40_moments_of_saves_leave_whole_checkpoints(memory):
    check_saves(memory, 40)
