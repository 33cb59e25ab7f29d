# SPDX-License-Identifier: Apache-2.0
"""Replicas that are killed, hang, come back late or are slow."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

import programs
import trainer
from test_train import children, start_worker

pytestmark = trainer.needs_programs

DATA = ["--data", "synthetic:rows=6000,keys=300,seed=3", "--batch-size", 20]
ENDLESS = [*DATA, "--epochs", 100000, "--steps", 20000]  # or some 100 s


STEP = re.compile(r"\bstep (\d+) loss ")


def wait_for_step(process, step):
    """Read until the chief has ended this step."""
    for line in process.stdout:
        found = STEP.search(line)
        if found and int(found.group(1)) >= step:
            return int(found.group(1))
    raise AssertionError(f"ended before step {step}")


def lines_with(process, *words):
    """Read until each is in a line, in any order; those lines."""
    found = {}
    for line in process.stdout:
        found.update({word: line for word in words if word in line})
        if len(found) == len(words):
            return [found[word] for word in words]
    raise AssertionError(f"ended without {set(words) - set(found)}")


def end(*processes):
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def run_with_an_early_leaver(tmp_path, rank, left_after, steps):
    """The same job, in which a worker leaves of its own accord."""
    log, folder = tmp_path / "oracle.json", tmp_path / "oracle"
    train = " ".join(map(str, (trainer.TRAIN, *ENDLESS, "--json-log", log)))
    place = f'"type":"worker","index":{rank}'
    trainer.run([programs.RECPS, "launch", "--ps", 2, "--workers", 3,
                 "--checkpoint-dir", folder, "--", "sh", "-c",
                 f"case $TF_CONFIG in *'{place}'*) steps={left_after};; "
                 f"*) steps={steps};; esac; exec {train} --steps $steps"])
    return log, folder


def test_leave_equals_a_run_without_the_later_batches(tmp_path):
    log, folder = tmp_path / "log.json", tmp_path / "ck"
    process = subprocess.Popen(
        [str(word) for word in (
            programs.RECPS, "launch", "--ps", 2, "--workers", 3,
            "--checkpoint-dir", folder, "--step-timeout", 1, "--on-lost",
            "leave", "--", trainer.TRAIN, *ENDLESS, "--json-log", log)],
        env=programs.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_step(process, 10)
        workers = children(process, "recps-train")
        os.kill(workers[2], signal.SIGKILL)
        launcher, server, chief = lines_with(
            process, "worker:2 was ended by signal 9", "replica_given_up",
            "goes on without rank 2")
        assert "the others go on without rank 2" in launcher
        assert "rank 2 (" in server and "go on without it" in server
        left_after = int(server.split("after step ")[1].split(";")[0])
        assert f"step {left_after + 1} " in chief
        assert "it counts 2 of 3 replicas" in chief
        wait_for_step(process, left_after + 20)
        os.kill(workers[0], signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 143, rest
    finally:
        end(process)
    losses, done = trainer.log_of(log)
    steps = done["steps"]
    lines = [json.loads(line) for line in log.read_text().splitlines()[:-1]]
    assert [line["counted"] for line in lines] == (
        [3] * left_after + [2] * (steps - left_after))
    log, again = run_with_an_early_leaver(tmp_path, 2, left_after, steps)
    assert trainer.log_of(log)[0] == losses
    assert (trainer.digest(trainer.checkpoint(folder, steps)) ==
            trainer.digest(trainer.checkpoint(again, steps)))


def test_with_leave_a_silent_chief_ends_the_launch():
    process = subprocess.Popen(
        [str(word) for word in (
            programs.RECPS, "launch", "--ps", 1, "--workers", 2,
            "--step-timeout", 1, "--on-lost", "leave", "--", trainer.TRAIN,
            *ENDLESS)], env=programs.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_step(process, 10)
        os.kill(children(process, "recps-train")[0], signal.SIGSTOP)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 69, rest
        assert re.search(r"worker:1 ended with code 69; the job has stopped "
                         r"\(step \d+ waits since .* for rank 0, .*\); "
                         "stopping all", rest), rest
    finally:
        end(process)


def test_a_stopped_chief_of_which_nobody_waits_ends_the_launch():
    process = subprocess.Popen(
        [str(word) for word in (
            programs.RECPS, "launch", "--ps", 1, "--workers", 2,
            "--step-timeout", 1, "--", trainer.TRAIN, *DATA, "--mode", "async",
            "--epochs", 100, "--steps", 2000)],
        env=programs.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_step(process, 10)
        os.kill(children(process, "recps-train")[0], signal.SIGSTOP)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 69, rest
        assert re.search(r"worker:0 has been stopped for 1\.\d s, and the other "
                         r"replicas have ended \(--step-timeout is 1.0 s\); "
                         "stopping all", rest), rest
    finally:
        end(process)


UNLIKE = {
    "data": (["--data", "synthetic:rows=6000,keys=300,seed=4"], "--data"),
    "rows": (["--data", "synthetic:rows=6001,keys=300,seed=3"], "--data"),
    "batch": (["--batch-size", 10], "--batch-size"),
    "shuffle": (["--shuffle", 100], "--shuffle"),
    "model": (["--top-mlp", "8,1"], "model"),
    "rate": (["--sparse-lr", 0.5], "learning rate"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_a_replica_that_trains_something_else_is_refused(recpsd, case):
    flags, field = UNLIKE[case]
    chief = start_worker(recpsd, 0, *ENDLESS)
    other = start_worker(recpsd, 1, *ENDLESS, *flags)
    try:
        for process in (chief, other):
            rest, _ = process.communicate(timeout=60)
            assert process.returncode == 65, rest
            assert re.search(rf"rank 1 \(.*\) has another {field} than the "
                             "chief: .*, not .*; give all replicas", rest), rest
    finally:
        end(chief, other)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_stop_names_the_killed_rank_and_ends_the_others(recpsd, mode):
    flags = [*ENDLESS, "--mode", mode, "--step-timeout", 1]
    chief = start_worker(recpsd, 0, *flags)
    other = start_worker(recpsd, 1, *flags)
    try:
        wait_for_step(chief, 10)
        other.kill()
        rest, _ = chief.communicate(timeout=60)
        assert chief.returncode == 69, rest
        assert "rank 1 (" in rest and "has been gone for 1." in rest, rest
        assert "--step-timeout is 1.0 s" in rest
    finally:
        end(chief, other)


def test_stop_names_the_rank_that_hangs_and_tells_it(recpsd):
    flags = [*ENDLESS, "--mode", "bounded:1", "--step-timeout", 1]
    chief = start_worker(recpsd, 0, *flags)
    other = start_worker(recpsd, 1, *flags)
    try:
        wait_for_step(chief, 10)
        other.send_signal(signal.SIGSTOP)
        rest, _ = chief.communicate(timeout=60)
        assert chief.returncode == 69, rest
        assert "for rank 1, which did not end it" in rest, rest
        other.send_signal(signal.SIGCONT)
        rest, _ = other.communicate(timeout=60)
        assert other.returncode == 69, rest
        assert "for rank 1, which did not end it" in rest, rest
    finally:
        end(chief, other)


@pytest.mark.parametrize("mode", ["sync", "bounded:1"])
def test_one_that_wakes_after_it_was_left_behind_is_told(recpsd, mode):
    flags = [*ENDLESS, "--mode", mode, "--step-timeout", 1, "--on-lost",
             "leave"]
    chief = start_worker(recpsd, 0, *flags)
    other = start_worker(recpsd, 1, *flags)
    try:
        wait_for_step(chief, 10)
        other.send_signal(signal.SIGSTOP)
        step = wait_for_step(chief, 15)
        wait_for_step(chief, step + 20)
        other.send_signal(signal.SIGCONT)
        rest, _ = other.communicate(timeout=60)
        assert other.returncode == 69, rest
        assert "this replica, rank 1, ended no further step within" in rest
        assert "the others go on without it" in rest
        chief.send_signal(signal.SIGTERM)
        rest, _ = chief.communicate(timeout=60)
        assert chief.returncode == 143, rest
        assert recpsd.wait() == 0
    finally:
        end(chief, other)


def test_a_backup_worker_that_was_held_up_catches_up(recpsd):
    flags = [*ENDLESS, "--backup-workers", 1]
    workers = [start_worker(recpsd, index, *flags, workers=3)
               for index in range(3)]
    chief, _, slow = workers
    try:
        step = wait_for_step(chief, 10)
        slow.send_signal(signal.SIGSTOP)
        step = wait_for_step(chief, step + 30)
        slow.send_signal(signal.SIGCONT)
        wait_for_step(chief, step + 30)
        stat = json.loads(trainer.run(
            [programs.RECPS, "stats", "--json", "--ps-hosts",
             f"127.0.0.1:{recpsd.port}"]).stdout)
        chief.send_signal(signal.SIGTERM)
        assert chief.wait(60) == 143
        for worker in workers[1:]:
            rest, _ = worker.communicate(timeout=60)
            assert worker.returncode == 0, rest
        missed = re.search(r"(\d+) of this replica's steps were not", rest)
        assert int(missed[1]) >= 30, rest # it was stopped for so many
        assert recpsd.wait() == 0
    finally:
        end(*workers)
    server = stat["ps"][0]
    member = server["members"][2]
    assert member["step"] > step - 30 and not member["given_up"]
    assert server["late"] + server["dropped"] > 0


@pytest.mark.parametrize("device", [[], ["--device", "npu", "--npu-loop-size",
                                         50]], ids=["cpu", "npu"])
@pytest.mark.parametrize("recover", [[], ["--recover"]])
def test_a_signal_ends_the_wait_for_a_server_that_is_lost(recpsd, device,
                                                         recover):
    """Also where it is a device's stream that waits."""
    worker = start_worker(recpsd, 0, *ENDLESS, *device, *recover,
                          "--reconnect-timeout", 600, "--connect-timeout",
                          600, workers=1)
    try:
        wait_for_step(worker, 20)
        recpsd.process.kill()
        recpsd.process.wait()
        time.sleep(4)  # its tries are far between by now
        begun = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=60)
        assert worker.returncode in (69, 143), rest
        assert time.monotonic() - begun < 1, rest
    finally:
        end(worker)
