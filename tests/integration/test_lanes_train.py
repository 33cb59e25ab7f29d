# SPDX-License-Identifier: Apache-2.0
"""Training over connections that are cut: the same bits, and a clear end."""
import json
import re
import signal
import subprocess

import pytest

import programs
import trainer
from proxy_cut import CuttingProxy

pytestmark = [trainer.needs_programs, pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason="recpsd is not built")]

FLAGS = ["--data", "synthetic:rows=6000,keys=300", "--batch-size", 50,
         "--steps", 60, "--log-every", 1, "--save-steps", 25]


def start(ports, index, workers, *flags):
    config = {"cluster": {"ps": [f"127.0.0.1:{port}" for port in ports],
                          "worker": [f"127.0.0.1:{port + 1}"
                                     for port in range(workers)]},
              "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        [str(word) for word in (trainer.TRAIN, *flags)],
        env=programs.environment(TF_CONFIG=json.dumps(config)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Servers:
    """Two servers of a job, each of which knows both places."""

    def __init__(self, folder):
        config = {"cluster": {"ps": ["127.0.0.1:1", "127.0.0.1:2"],
                              "worker": ["127.0.0.1:3", "127.0.0.1:4"]}}
        self.all = []
        for index in range(2):
            config["task"] = {"type": "ps", "index": index}
            self.all.append(programs.Recpsd(
                "--checkpoint-dir", str(folder),
                env={"TF_CONFIG": json.dumps(config)}).start())
        self.ports = [server.port for server in self.all]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.all:
            server.__exit__()


def run_job(folder, chance):
    """Losses of a sync job of two replicas, and its last checkpoint."""
    log = folder / "log"
    with Servers(folder) as servers, \
            CuttingProxy(servers.ports[0]) as first, \
            CuttingProxy(servers.ports[1]) as second:
        first.chance = second.chance = chance
        ports = [first.own_port, second.own_port]
        flags = [*FLAGS, "--checkpoint-dir", folder]
        chief = start(ports, 0, 2, *flags, "--json-log", log)
        other = start(ports, 1, 2, *flags)
        try:
            out, _ = chief.communicate(timeout=100)
            rest, _ = other.communicate(timeout=100)
        finally:
            for process in (chief, other):
                process.kill()
        assert chief.returncode == 0, out
        assert other.returncode == 0, rest
        for server in servers.all:
            assert server.wait() == 0, server.log()
        cuts = first.cuts + second.cuts
    return trainer.log_of(log)[0], trainer.digest(folder), cuts


def test_cut_connections_change_no_bit_of_a_sync_job(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    losses, digest, none = run_job(tmp_path / "whole", 0)
    assert len(losses) == 60 and none == 0
    cut_losses, cut_digest, cuts = run_job(tmp_path / "cut", 0.02)
    assert cuts > 10
    assert cut_losses == losses
    assert cut_digest == digest


def wait_for_step(process):
    for line in process.stdout:
        if re.search(r"step \d+0 ", line):
            return
    raise AssertionError("ended early")


LONG = ["--data", "synthetic:rows=20000", "--epochs", 100000, "--log-every",
        10]


def test_a_server_that_stays_away_ends_the_worker(recpsd):
    worker = start([recpsd.port], 0, 1, *LONG, "--reconnect-timeout", 1)
    try:
        wait_for_step(worker)
        recpsd.process.kill()
        rest, _ = worker.communicate(timeout=30)
        assert worker.returncode == 69, rest
        assert "RPS_E_UNREACHABLE" in rest and "not reached again" in rest
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_that_waits_for_a_lost_server_may_be_stopped(recpsd):
    worker = start([recpsd.port], 0, 1, *LONG)
    try:
        wait_for_step(worker)
        recpsd.process.kill()
        recpsd.wait()
        with pytest.raises(subprocess.TimeoutExpired):
            worker.communicate(timeout=0.7)
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=10)
        assert worker.returncode == 69 and "RPS_E_UNREACHABLE" in rest
    finally:
        worker.kill()
        worker.wait()


def test_a_server_that_began_anew_ends_the_worker(recpsd):
    """Its recovery is the chief's: but nobody trains on empty tables."""
    worker = start([recpsd.port], 0, 1, *LONG)
    try:
        wait_for_step(worker)
        recpsd.process.kill()
        recpsd.wait()
        with programs.Recpsd(bind=f"127.0.0.1:{recpsd.port}"):
            rest, _ = worker.communicate(timeout=30)
        assert worker.returncode != 0
        assert "RPS_E_ROLLED_BACK" in rest and "began anew" in rest, rest
    finally:
        worker.kill()
        worker.wait()
