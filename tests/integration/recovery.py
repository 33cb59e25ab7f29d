# SPDX-License-Identifier: Apache-2.0
"""A job under `recps launch --restart` whose processes a test kills."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import programs
import trainer

# Each step is a decision of both replicas; a save each ten of them.
FLAGS = ["--train-rows", 2000, "--batch-size", 16, "--save-steps", 10,
         "--deterministic"]


def task_of(pid):
    """"ps:1" of a process that launch started; None: it is none, or gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            state = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None, 0
    for variable in variables:
        if variable.startswith(b"TF_CONFIG="):
            task = json.loads(variable.split(b"=", 1)[1]).get("task")
            if task is not None and state[0] != "Z":
                return f"{task['type']}:{task['index']}", int(state[1])
    return None, 0


def children(process):
    """Those of a process, by number."""
    path = f"/proc/{process}/task/{process}/children"
    with open(path, encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def counted(log):
    """The bits of the losses of all steps that count, by step."""
    losses = {}
    for line in map(json.loads, log.read_text().splitlines()):
        if line.get("event") == "rolled_back":
            losses = {step: bits for step, bits in losses.items()
                      if step <= line["to"]}
        elif "loss_bits" in line:
            losses[line["step"]] = line["loss_bits"]
    return losses


class Job:
    """Runs from here on; its output is read as it comes."""

    def __init__(self, folder, *flags, ps=2, workers=2, options=(),
                 data=None, env=None):
        self.checkpoints = folder / "ck"
        self.log = folder / "log.json"
        data = data or f"criteo:{trainer.data('criteo.tsv')}"
        self.process = subprocess.Popen(
            [str(word) for word in (
                programs.RECPS, "launch", "--ps", ps, "--workers", workers,
                "--checkpoint-dir", self.checkpoints, *options, "--",
                trainer.TRAIN, "--data", data, "--json-log", self.log,
                *flags)],
            env=programs.environment(**(env or {})), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines = []
        self.seen = 0
        self.came = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()

    def _read(self):
        for line in self.process.stdout:
            with self.came:
                self.lines.append(line)
                self.came.notify_all()
        with self.came:
            self.lines.append("")
            self.came.notify_all()

    def output(self):
        return "".join(self.lines)

    def wait_for(self, pattern, timeout=60):
        """The next line that has it, behind the last one that was waited for."""
        end = time.monotonic() + timeout
        with self.came:
            while True:
                while self.seen < len(self.lines):
                    line = self.lines[self.seen]
                    self.seen += 1
                    found = re.search(pattern, line)
                    if found:
                        return found
                    assert line != "", f"no {pattern!r} in:\n{self.output()}"
                left = end - time.monotonic()
                assert left > 0, f"no {pattern!r} in:\n{self.output()}"
                self.came.wait(left)

    def wait_for_step(self, step):
        """The chief has reported it, or a later one."""
        while int(self.wait_for(r"\| step (\d+) loss ")[1]) < step:
            pass

    def tasks(self):
        """{"ps:1": its process} of those that run now."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            task, parent = task_of(pid)
            if task is not None and parent == self.process.pid:
                found[task] = int(pid)
        return found

    def signal(self, task, number=signal.SIGKILL):
        """Once it runs (again)."""
        pid = programs.until(lambda: self.tasks().get(task))
        os.kill(pid, number)
        return pid

    def end(self, timeout=90):
        code = self.process.wait(timeout)
        self.reader.join()
        return code

    def newest(self):
        return max(self.checkpoints.glob("ckpt-*"))

    def result(self):
        """What must not depend on what was lost meanwhile."""
        assert self.end() == 0, self.output()
        return counted(self.log), self.newest().name, trainer.digest(
            self.newest())
