# SPDX-License-Identifier: Apache-2.0
"""The operator's tools beside a job that really trains, and on what it saved."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import programs

pytestmark = pytest.mark.skipif(
    not programs.RECPS_TRAIN.is_file(),
    reason=f"{programs.RECPS_TRAIN} is not built")

DATA = "synthetic:rows=4000,dense=3,fields=4,keys=500"
LONG = "synthetic:rows=400000,dense=3,fields=4,keys=500"


def recps(*arguments, timeout=60):
    return subprocess.run([str(programs.RECPS), *map(str, arguments)],
                          env=programs.environment(), capture_output=True,
                          text=True, timeout=timeout, check=False)


class Job:
    """A job that would train for minutes, in the background."""

    def __init__(self, tmp_path, *flags, train=()):
        self.out = tmp_path / "out"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                [str(programs.RECPS), "launch", "--ps", "2", "--workers", "2",
                 *flags, "--", "recps-train", "--data", LONG, "--epochs", "100",
                 "--log-every", "20", *train],
                stdout=out, stderr=out, env=programs.environment())
        self.wait_for(r"step 20 ")
        self.hosts = ",".join(
            re.search(rf"ps:{i} .*address=(\S+)", self.log()).group(1)
            for i in range(2))

    def log(self):
        return self.out.read_text(errors="replace")

    def wait_for(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while not re.search(pattern, self.log()):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def servers(self):
        """Process ids by index of the server."""
        return self.tasks("recpsd", "ps")

    def tasks(self, program, role):
        """Process ids by index."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                    name = file.read().strip()
                if name == program and parent == self.process.pid:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        index = re.search(rf'"{role}","index":(\d+)'.encode(),
                                          file.read())
                    if index is not None:
                        found[int(index.group(1))] = int(pid)
            except OSError:
                pass
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "ckpt"
    run = recps("launch", "--ps", 2, "--workers", 2, "--checkpoint-dir", folder,
                "--", "recps-train", "--data", DATA, "--train-rows", 3000)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def test_a_saved_checkpoint_verifies(trained):
    run = recps("verify", "--json", trained)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["matches"] and all(t["matches"] for t in report["tables"])
    assert report["step"] == 11  # 3000 rows, two replicas of 128
    assert recps("digest", trained).stdout.startswith(f"step {report['step']}")


@pytest.mark.parametrize("name", [
    "manifest.json", "part-1-of-2.json", "table-emb/0-of-2.keys.npy",
    "table-emb/1-of-2.rows.npy", "table-emb/0-of-2.slot-accumulator.npy"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_and_named(trained, tmp_path, name, damage):
    copy = tmp_path / "ckpt"
    shutil.copytree(trained, copy)
    path = next(copy.glob("ckpt-*")) / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-5])
    else:
        path.unlink()
    run = recps("verify", path.parents[name.count("/")])
    assert run.returncode in (65, 70), run.stdout
    if damage != "remove":
        assert run.returncode == 65
    assert name.rsplit("/", 1)[-1] in run.stderr, run.stderr


def test_save_makes_a_checkpoint_while_the_job_runs(tmp_path):
    with Job(tmp_path, "--checkpoint-dir", str(tmp_path / "ckpt")) as job:
        run = recps("save", "--ps-hosts", job.hosts)
        assert run.returncode == 0, run.stderr
        job.wait_for("checkpoint_saved")
        run = recps("verify", "--json", tmp_path / "ckpt")
        assert run.returncode == 0, run.stderr
        run = recps("tables", "--json", "--ps-hosts", job.hosts)
        assert "emb" in {t["name"] for t in json.loads(run.stdout)["tables"]}
        run = recps("stats", "--json", "--ps-hosts", job.hosts)
        members = json.loads(run.stdout)["ps"][0]["members"]
        assert [m["connected"] for m in members] == [True, True]


def test_usr1_is_a_wish_for_a_checkpoint_whoever_gets_it(tmp_path):
    with Job(tmp_path, "--evaluator", "--checkpoint-dir",
             str(tmp_path / "ckpt"), train=["--train-rows", "399000"]) as job:
        trainers = job.tasks("recps-train", "worker")
        evaluator = programs.until(
            lambda: job.tasks("recps-train", "evaluator"))[0]
        for saves, pid in enumerate([job.process.pid, trainers[0], trainers[1],
                                     job.servers()[1]], 1):
            os.kill(pid, signal.SIGUSR1)
            programs.until(
                lambda n=saves: job.log().count("worker:0    | saved step") == n)
        os.kill(evaluator, signal.SIGUSR1)
        job.wait_for(r"evaluator:0 \| recps-train: SIGUSR1: nothing is saved")
        job.wait_for(r"SIGUSR1: ps:0 is asked for a checkpoint")
        assert job.process.poll() is None


def test_usr1_without_a_folder_is_refused_in_words(tmp_path):
    with Job(tmp_path) as job:
        for pid in job.tasks("recps-train", "worker").values():
            os.kill(pid, signal.SIGUSR1)
        for index in range(2):
            job.wait_for(rf"worker:{index} \| SIGUSR1: nothing is saved: "
                         "there is no checkpoint_dir")
        assert job.process.poll() is None


def test_usr1_saves_where_the_trainer_has_the_tables(tmp_path):
    with open(tmp_path / "out", "wb") as out, subprocess.Popen(
            [str(programs.RECPS_TRAIN), "--data", LONG, "--epochs", "100",
             "--checkpoint-dir", str(tmp_path / "ckpt")], stdout=out,
            stderr=out, env=programs.environment()) as process:
        try:
            said = (tmp_path / "out").read_text
            programs.until(lambda: "step " in said())
            process.send_signal(signal.SIGUSR1)
            programs.until(lambda: "saved step" in said())
        finally:
            process.kill()


def test_shutdown_saves_and_ends_the_job(tmp_path):
    with Job(tmp_path, "--checkpoint-dir", str(tmp_path / "ckpt")) as job:
        run = recps("shutdown", "--ps-hosts", job.hosts)
        assert run.returncode == 0, run.stderr
        assert job.process.wait(60) == 0, job.log()
    assert recps("verify", tmp_path / "ckpt").returncode == 0


@pytest.mark.parametrize("index", [0, 1])
def test_a_server_that_dies_ends_the_job_with_words(tmp_path, index):
    with Job(tmp_path) as job:
        os.kill(job.servers()[index], signal.SIGKILL)
        assert job.process.wait(30) == 137, job.log()
        assert f"ps:{index} was ended by signal 9" in job.log()
        assert f"PS {index}" in job.log()


@pytest.mark.parametrize("index", [0, 1])
def test_a_terminated_server_has_the_job_saved_and_ended(tmp_path, index):
    """Nothing is lost of a job that cannot go on without it."""
    folder = tmp_path / "ckpt"
    with Job(tmp_path, "--checkpoint-dir", str(folder)) as job:
        os.kill(job.servers()[index], signal.SIGTERM)
        assert job.process.wait(30) == 143, job.log()
    assert f"ps:{index} ended with code 143" in job.log()
    assert job.log().count("unsaved: nothing unsaved") == 2, job.log()
    assert re.search(r"worker:0 \| done steps", job.log())
    assert [path.name[:5] for path in folder.iterdir()
            if path.name[0] != "."] == ["ckpt-"]
    assert recps("verify", folder).returncode == 0


def test_a_terminated_server_says_what_is_not_saved(tmp_path):
    with Job(tmp_path) as job:
        os.kill(job.servers()[1], signal.SIGTERM)
        assert job.process.wait(30) == 143, job.log()
        assert re.search(r"ps:1 .*unsaved: table", job.log())
