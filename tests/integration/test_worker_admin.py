# SPDX-License-Identifier: Apache-2.0
"""recps-train --admin: what a worker says of itself, to Prometheus and to
recps top."""
import http.client
import json
import math
import shutil
import socket
import subprocess
import time

import pytest

import exposition
import programs
import trainer

pytestmark = trainer.needs_programs

# trains until it is told to stop
LONG = ["--data", "synthetic:rows=100000,seed=3", "--batch-size", 100,
        "--epochs", 100000, "--log-every", 1000]
STAGES = {"read", "lookup", "lookup_wait", "rows", "compute", "allreduce",
          "push", "push_wait", "step_end_wait", "save", "other"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Trainer:
    """A run in the background; its admin port, once it is open."""

    def __init__(self, folder, *flags, admin="127.0.0.1:0"):
        self.file = folder / "admin-port"
        self.log = open(folder / "log", "w+", encoding="utf8")
        words = [trainer.TRAIN, *LONG, "--admin", admin, "--admin-port-file",
                 self.file, *flags]
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=self.log, stderr=self.log,
            env=programs.environment())

    def __enter__(self):
        end = time.monotonic() + 30
        while not self.file.exists():
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        self.port = int(self.file.read_text())
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def get(self, path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stat(self):
        return json.loads(self.get("/statz")[1])

    def until(self, condition, timeout=30):
        end = time.monotonic() + timeout
        while not condition(self.stat()):
            assert time.monotonic() < end, self.stat()
            time.sleep(0.02)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with Trainer(tmp_path_factory.mktemp("run")) as run:
        # rates are over a second at least: not those of its start
        run.until(lambda stat: stat["step"] > 10 and stat["cpu_usage"] > 0 and
                  stat["samples_per_second"] > 0)
        yield run


def test_metrics_are_what_the_run_does(running):
    before = running.stat()["step"]
    families = exposition.parse(running.get("/metrics")[1])

    def value(name, **labels):
        return families[name].samples[name, frozenset(labels.items())]

    assert value("recps_worker_step") >= before
    assert value("recps_worker_samples_total") == 100 * value("recps_worker_step")
    assert 0 < value("recps_worker_loss") < 10
    assert value("recps_worker_samples_per_second") > 0
    for name in ("cpu", "mem"):
        assert 0 < value(f"recps_worker_{name}_usage_ratio") <= 1
    for name in ("read", "write"):
        family = families[f"recps_worker_disk_{name}_bytes_total"]
        assert family.type == "counter"
    shares = families["recps_worker_stage_share_ratio"].samples
    assert {dict(labels)["stage"] for _, labels in shares} == STAGES
    assert sum(shares.values()) == pytest.approx(1)
    assert value("recps_worker_stage_seconds_total", stage="compute") > 0
    assert not any("gpu" in name for name in families)
    # --device cpu has no device to speak of
    for name in ("recps_worker_npu_util_ratio",
                 "recps_worker_npu_mem_usage_ratio"):
        assert not families[name].samples


def test_promtool_finds_nothing(running):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool (Debian: prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=running.get("/metrics")[1],
        text=True, capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout + done.stderr == ""


def test_statz_has_the_guides_names(running):
    stat = running.stat()
    assert stat["role"] == "local" and stat["rank"] == 0
    assert 0 < stat["cpu_usage"] <= 1 and 0 < stat["mem_usage"] <= 1
    assert "npu_util" not in stat and "gpu_util" not in stat
    assert set(stat["stages"]) == STAGES
    assert sum(stat["stages"].values()) == pytest.approx(1)
    assert math.isfinite(stat["loss"])
    io = dict(line.split(": ") for line in open(
        f"/proc/{running.process.pid}/io", encoding="ascii").read().splitlines())
    if "read_bytes" in io:
        assert stat["disk_read_rate"] >= 0 and stat["disk_write_rate"] >= 0


def test_it_answers_as_recpsd_does(running):
    assert running.get("/livez") == (200, "ok\n")
    assert running.get("/metrics", "HEAD") == (200, "")
    assert running.get("/statz", "POST")[0] == 405
    status, text = running.get("/nothing")
    assert status == 404 and "/metrics\n" in text


def test_the_port_goes_with_the_run(tmp_path):
    with Trainer(tmp_path, "--steps", 5) as run:
        assert run.process.wait(30) == 0
        assert not run.file.exists()
        assert "admin_on: admin=127.0.0.1:" in (tmp_path / "log").read_text()


def refused(*flags, env=None, code=64):
    return trainer.train("--data", "synthetic:rows=100", "--admin", *flags,
                         env=env, code=code).stderr


def test_bad_addresses_are_refused():
    assert "--admin nowhere" in refused("nowhere")
    assert "no entry in the cluster" in refused("entry")


@pytest.mark.long
def test_a_port_in_use_is_told(running):
    told = refused(f"127.0.0.1:{running.port}", code=69)
    assert "cannot listen on" in told and "Address already in use" in told


def test_the_servers_admin_address_is_not_a_workers(running):
    """The variable and the recps object are for recpsd."""
    where = f"127.0.0.1:{running.port}"
    flags = ["--data", "synthetic:rows=200", "--steps", 1]
    trainer.train(*flags, env={"RECPS_ADMIN": where})
    trainer.train(*flags, env={"TF_CONFIG": json.dumps({"recps": {"admin": where}})})
    trainer.train(*flags, "--admin", "off")


def top(*flags, code=0):
    done = trainer.run([programs.RECPS, "top", "--once", "--interval", 0.1,
                        *flags], code=code)
    return done.stdout


def test_top_shows_workers_at_their_entries(tmp_path):
    """A worker's port in the cluster is its own: nothing else listens there."""
    entry = f"127.0.0.1:{free_port()}"
    with programs.Recpsd() as server:
        hosts = ["--ps-hosts", f"127.0.0.1:{server.port}",
                 "--worker-hosts", entry]
        with Trainer(tmp_path, *hosts, "--job-name", "worker", "--task-index",
                     0, admin="entry") as run:
            assert f"127.0.0.1:{run.port}" == entry
            run.until(lambda stat: stat["step"] > 3)
            worker, = json.loads(top(*hosts, "--workers", "entry",
                                     "--json"))["workers"]
            assert worker["address"] == entry and worker["reached"]
            assert worker["role"] == "worker" and worker["step"] > 3
            text = top(*hosts, "--workers", entry)
            assert "worker:0" in text and "samples/s" in text
            # a second one that is not there
            text = top(*hosts, "--workers", f"{entry},127.0.0.1:1", code=69)
            assert "! worker at 127.0.0.1:1: Connection refused" in text


@pytest.mark.parametrize("where, words", [
    ("entry", "the cluster lists no worker"), ("here", "must be entry, or"),
    ("", "must be entry, or")])
def test_top_refuses_what_names_no_worker(where, words):
    done = trainer.run([programs.RECPS, "top", "--once", "--ps-hosts",
                        "127.0.0.1:1", "--workers", where], code=64)
    assert words in done.stderr


@pytest.mark.parametrize("answer, words", [
    (b"", "is no HTTP"), (b"hello\r\n\r\n", "is no HTTP"),
    (b"HTTP/1.0 500 no\r\n\r\n", 'it answers "500"'),
    (b"HTTP/1.0 200 OK\r\n\r\n[1]", "is no JSON object"),
    (b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 300000, "more than 262144 bytes"),
    (None, "no answer in time"),
], ids=["nothing", "words", "error", "array", "flood", "silence"])
@pytest.mark.hostile
def test_top_takes_any_answer(answer, words):
    with programs.Recpsd() as server, socket.create_server(
            ("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with subprocess.Popen(
                [programs.RECPS, "top", "--once", "--json", "--interval", "0.1",
                 "--ps-hosts", f"127.0.0.1:{server.port}", "--workers", address],
                env=programs.environment(), stdout=subprocess.PIPE,
                text=True) as process:
            held = []
            for _ in range(2):
                peer, _ = stranger.accept()
                held.append(peer)
                if answer is not None:
                    peer.recv(4096)
                    try:
                        peer.sendall(answer)
                    except OSError:
                        pass
                    peer.close()
            out, _ = process.communicate(timeout=30)
            for peer in held:
                peer.close()
        assert process.returncode == 69
        worker, = json.loads(out)["workers"]
        assert not worker["reached"] and words in worker["error"]
