# SPDX-License-Identifier: Apache-2.0
"""The guide's cluster, task by task: who begins, saves, writes and ends."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

import programs
import trainer

pytestmark = trainer.needs_programs


class Cluster:
    """The guide's example: two hosts, here two loopback addresses, each with
    a parameter server at 2222 and its half of the workers from 2223 on; the
    evaluator is on the first, at 2231."""

    def __init__(self, folder, how="TF_CONFIG", workers=16, chief=False):
        pid = os.getpid()
        net = f"127.{100 + pid // 250 % 150}.{pid % 250 + 1}"
        hosts = [f"{net}.100", f"{net}.200"]
        half = (workers + 1) // 2
        self.folder, self.how = folder, how
        self.members = {
            "ps": [f"{host}:2222" for host in hosts],
            "worker": [f"{hosts[i // half]}:{2223 + i % half}"
                       for i in range(workers)],
            "evaluator": [f"{hosts[0]}:2231"]}
        if chief:
            self.members["chief"] = [f"{hosts[0]}:2232"]
        self.chief = ("chief", 0) if chief else ("worker", 0)
        self.running = {}

    def tasks(self):
        return [(role, index) for role, hosts in self.members.items()
                for index in range(len(hosts))]

    def replicas(self):
        return [task for task in self.tasks() if task[0] in (
            "chief", "worker")]

    def log(self, task):
        return (self.folder / f"{task[0]}-{task[1]}.log").read_text()

    def start(self, task, *flags):
        role, index = task
        env, where = {}, []
        if self.how == "TF_CONFIG":
            env["TF_CONFIG"] = json.dumps({
                "cluster": self.members,
                "task": {"type": role, "index": index}})
        else:
            where = [f"--{name}_hosts={','.join(hosts)}"
                     for name, hosts in self.members.items()]
            where += [f"--job_name={role}", f"--task_index={index}"]
        program = programs.RECPSD if role == "ps" else trainer.TRAIN
        if role in ("ps", "evaluator"):
            where += ["--checkpoint-dir", self.folder / "ck"]
        if role == "evaluator":  # how long a server that ended is looked for
            where += ["--reconnect-timeout", 0.5]
        with open(self.folder / f"{role}-{index}.log", "wb") as log:
            self.running[task] = subprocess.Popen(
                [str(word) for word in (program, *where, *flags)],
                stdout=log, stderr=log, env=programs.environment(**env))

    def start_servers(self):
        for index in range(2):
            self.start(("ps", index))
            self.until(("ps", index), "listening")

    def ends(self, task, code=0, timeout=60):
        got = self.running[task].wait(timeout)
        assert got == code, f"{task} exits {got}:\n{self.log(task)}"

    def runs(self, task):
        return self.running[task].poll() is None

    def until(self, task, words):
        programs.until(lambda: words in self.log(task) or
                       not self.runs(task), timeout=60)
        assert words in self.log(task), self.log(task)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.kill()
            process.wait()


def flags_for(cluster, steps, batch=8):
    rows = steps * batch * len(cluster.replicas())
    return ["--data", f"synthetic:rows={rows + 100},keys=30", "--train-rows",
            rows, "--batch-size", batch, "--save-steps", steps // 2]


def run_all(cluster, steps):
    """Every task starts, in an order that nobody waits for, and ends with 0;
    the evaluator has met the last checkpoint."""
    flags = flags_for(cluster, steps)
    tasks = cluster.tasks()
    for task in sorted(tasks, key=lambda task: (task[1], task[0])):
        cluster.start(task, *(flags if task[0] != "ps" else []))
    for task in tasks:
        cluster.ends(task, timeout=300)
    said = cluster.log(cluster.chief)
    done = re.search(r"done steps (\d+) auc ([0-9.]+)", said)
    assert int(done.group(1)) == steps, said
    last = re.findall(r"evaluator: step (\d+) auc ([0-9.]+)",
                      cluster.log(("evaluator", 0)))[-1]
    assert int(last[0]) == steps
    assert float(last[1]) == pytest.approx(float(done.group(2)), abs=2e-6)
    for task in cluster.replicas():
        if task != cluster.chief:
            assert "step " not in cluster.log(task)


@pytest.mark.parametrize("how, chief", [("TF_CONFIG", False), ("flags", True)])
def test_a_small_form_of_the_guides_cluster(tmp_path, how, chief):
    with Cluster(tmp_path, how, workers=3, chief=chief) as cluster:
        run_all(cluster, steps=6)


@pytest.mark.long
@pytest.mark.parametrize("how", ["TF_CONFIG", "flags"])
@pytest.mark.parametrize("chief, tasks", [(False, 19), (True, 20)])
def test_every_task_of_the_guides_cluster(tmp_path, how, chief, tasks):
    with Cluster(tmp_path, how, chief=chief) as cluster:
        assert len(cluster.tasks()) == tasks
        run_all(cluster, steps=50)


def test_workers_wait_for_the_chief_who_begins_restores_and_ends(tmp_path):
    with Cluster(tmp_path, workers=2, chief=True) as cluster:
        flags = flags_for(cluster, steps=8)
        for more in (["--steps", 4], ["--restore"]):
            cluster.start_servers()
            for index in range(2):
                cluster.start(("worker", index), *flags, *more)
            time.sleep(0.5)  # nothing happens meanwhile, and nothing may
            assert all(cluster.runs(("worker", i)) for i in range(2))
            assert "job_begun" not in cluster.log(("ps", 0))
            cluster.start(("chief", 0), *flags, *more)
            # the evaluator is listed, and never comes
            for task in [*cluster.replicas(), ("ps", 0), ("ps", 1)]:
                cluster.ends(task)
        said = cluster.log(("chief", 0))
        assert said.startswith("step 5 ") and "done steps 8 " in said


def test_the_chief_alone_writes(tmp_path):
    with Cluster(tmp_path, workers=3) as cluster:
        cluster.start_servers()
        for task in cluster.replicas():
            own = tmp_path / f"{task[0]}-{task[1]}"
            cluster.start(task, *flags_for(cluster, steps=4),
                          "--json-log", f"{own}.json",
                          "--summary-dir", f"{own}.events")
        for task in [*cluster.replicas(), ("ps", 0), ("ps", 1)]:
            cluster.ends(task)
        wrote = {path.stem for path in tmp_path.iterdir()
                 if path.suffix in (".json", ".events")}
        assert wrote == {"worker-0"}
        assert "saved step 4" in cluster.log(("worker", 0))
        assert cluster.log(("worker", 1)) == cluster.log(("worker", 2)) == ""


def test_an_evaluator_that_stands_still_is_not_waited_for(tmp_path):
    chief, evaluator = ("worker", 0), ("evaluator", 0)
    with Cluster(tmp_path, workers=2) as cluster:
        flags = ["--data", "synthetic:rows=1000000,keys=30", "--train-rows",
                 999900, "--batch-size", 8, "--save-steps", 20]
        cluster.start_servers()
        for task in (evaluator, *cluster.replicas()):
            cluster.start(task, *flags)
        cluster.until(evaluator, "evaluator: step ")
        cluster.running[evaluator].send_signal(signal.SIGSTOP)
        saved = cluster.log(chief).count("saved step")
        programs.until(lambda: cluster.log(chief).count("saved step") >
                       saved + 2)
        cluster.running[chief].terminate()
        cluster.ends(chief, 143)
        for task in (("worker", 1), ("ps", 0), ("ps", 1)):
            cluster.ends(task)
        assert cluster.runs(evaluator)
        cluster.running[evaluator].send_signal(signal.SIGCONT)
        cluster.ends(evaluator)
        last = re.findall(r"saved step (\d+)", cluster.log(chief))[-1]
        assert f"evaluator: step {last} auc" in cluster.log(evaluator)


def test_servers_end_with_0_only_when_the_chief_ends_the_job(tmp_path):
    with Cluster(tmp_path, workers=3) as cluster:
        flags = ["--data", "synthetic:rows=1000000,keys=30",
                 "--batch-size", 8, "--step-timeout", 1]
        cluster.start_servers()
        for task in cluster.replicas():
            cluster.start(task, *flags)
        cluster.until(("worker", 0), "step 3 ")
        cluster.running["worker", 2].terminate()  # leaves; the others go on
        cluster.ends(("worker", 2), 143)
        steps = len(cluster.log(("worker", 0)).splitlines())
        programs.until(lambda: len(
            cluster.log(("worker", 0)).splitlines()) > steps + 3)
        cluster.running["worker", 0].kill()
        cluster.ends(("worker", 0), -signal.SIGKILL)
        cluster.ends(("worker", 1), 69)
        assert "rank 0" in cluster.log(("worker", 1))
        for task in (("ps", 0), ("ps", 1)):
            assert cluster.runs(task)
            cluster.running[task].terminate()
        for task in (("ps", 0), ("ps", 1)):
            cluster.ends(task, 143)
