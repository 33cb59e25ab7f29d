# SPDX-License-Identifier: Apache-2.0
"""recpsd as a service: systemd's protocol, signals, the end, the log."""
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

import exposition
import programs
import trainer
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

LOOPBACK = "127.0.0.1:0"


def push(connection, table, number, step=0):
    return connection.call(wire.PUSH, [
        wire.section(wire.KEYS, struct.pack("<Q", 7), table_id=table, count=1),
        wire.section(wire.ROWS, struct.pack("<2f", 1, 1), table_id=table,
                     dim=2, count=1, learning_rate=0.5)],
        number=number, step=step)


# ---- systemd ----

class Manager:
    """systemd's side of the socket."""

    def __init__(self, folder, abstract):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.name = f"@recps-{os.urandom(6).hex()}" if abstract else str(
            folder / "notify")
        self.sock.bind(self.name.replace("@", "\0"))
        self.sock.settimeout(20)

    def next(self):
        """One message: {name: value}."""
        lines = self.sock.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, name):
        while True:
            message = self.next()
            if name in message:
                return message


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_of_the_start_and_of_the_end(tmp_path, abstract):
    manager = Manager(tmp_path, abstract)
    with programs.Recpsd(env={"NOTIFY_SOCKET": manager.name}) as server:
        ready = manager.next()
        assert ready["READY"] == "1"
        assert ready["STATUS"] == f"serving 127.0.0.1:{server.port}"
        assert server.stop() == 143
        end = manager.next()
        assert end["STOPPING"] == "1" and "SIGTERM" in end["STATUS"]
        assert int(end["EXTEND_TIMEOUT_USEC"]) > 25_000_000


def test_the_watchdog_hears_of_a_server_that_turns(tmp_path):
    manager = Manager(tmp_path, False)
    with programs.Recpsd(env={"NOTIFY_SOCKET": manager.name,
                              "WATCHDOG_USEC": "200000"}) as server:
        for _ in range(3):
            assert manager.until("WATCHDOG")["WATCHDOG"] == "1"
        assert server.stop() == 143


def test_a_watchdog_that_asks_another_process_hears_nothing(tmp_path):
    manager = Manager(tmp_path, False)
    with programs.Recpsd(env={"NOTIFY_SOCKET": manager.name,
                              "WATCHDOG_USEC": "100000",
                              "WATCHDOG_PID": "1"}) as server:
        assert "READY" in manager.next()
        time.sleep(0.5)
        assert server.stop() == 143
        assert "STOPPING" in manager.next()


@pytest.mark.parametrize("name", ["", "relative", "/no/such/socket", "@",
                                  "/" + "x" * 200])
def test_a_manager_that_is_not_there_is_no_trouble(name):
    with programs.Recpsd(env={"NOTIFY_SOCKET": name}) as server:
        server.assert_serves()
        assert server.stop() == 143


# ---- signals ----

@pytest.mark.hostile
def test_hup_takes_the_log_level_and_names_what_it_cannot_take(tmp_path):
    manager = Manager(tmp_path, False)
    config = {"cluster": {"ps": ["127.0.0.1:2222"]},
              "task": {"type": "ps", "index": 0},
              "recps": {"log_level": "warn"}}
    file = tmp_path / "tf_config.json"
    file.write_text(json.dumps(config))
    server = programs.Recpsd(env={"TF_CONFIG_FILE": str(file),
                                  "NOTIFY_SOCKET": manager.name})
    with server:
        manager.until("READY")
        assert server.log() == ""
        config["recps"] = {"log_level": "info", "connections_max": 7}
        file.write_text(json.dumps(config))
        server.process.send_signal(signal.SIGHUP)
        begun = int(manager.until("RELOADING")["MONOTONIC_USEC"])
        assert abs(begun / 1e6 - time.clock_gettime(time.CLOCK_MONOTONIC)) < 20
        manager.until("READY")
        server.wait_for_log("info reload: log_level=info")
        assert "connections_max has changed" in server.log()
        config["cluster"] = {"ps": ["127.0.0.1:2222", "127.0.0.1:2223"]}
        file.write_text(json.dumps(config))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("warn reload: the cluster has changed.*ps 0 of 1 at "
                            "127.0.0.1:2222.*now ps 0 of 2")
        file.write_text("{")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("error reload: the options are refused")
        server.assert_serves()
        assert server.stop() == 143


def test_quit_writes_the_state_to_the_log_and_goes_on():
    with programs.Recpsd("--loops", "2") as server:
        with server.connect() as connection:
            connection.table("emb.a", dim=2)
            server.process.send_signal(signal.SIGQUIT)
            server.wait_for_log("info state_table: table=emb.a dim=2 rows=0")
        log = server.log()
        assert re.search(r'info state: live="yes" ready="yes" epoch=0 step=0 '
                         r"connections=1 writer=nothing", log)
        assert log.count("info state_loop: loop=") == 2
        server.assert_serves()
        assert server.stop() == 143


def test_quit_writes_the_state_whatever_the_level_is():
    with programs.Recpsd("--log-level", "error") as server:
        assert server.log() == ""
        server.process.send_signal(signal.SIGQUIT)
        server.wait_for_log("info state_loop: loop=")
        assert server.stop() == 143


def test_usr1_without_a_chief_says_that_nothing_is_saved(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for_log("warn checkpoint_wished: .*no chief")
        server.assert_serves()
        assert server.stop() == 143
    with programs.Recpsd() as server:
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for_log("warn checkpoint_wished: .*no checkpoint_dir")
        assert server.stop() == 143


def of_two(index, folder):
    """A server of a job with two."""
    config = {"cluster": {"ps": ["127.0.0.1:2222", "127.0.0.1:2223"],
                          "worker": ["127.0.0.1:1"]},
              "task": {"type": "ps", "index": index},
              "recps": {"checkpoint_dir": str(folder)}}
    return programs.Recpsd(env={"TF_CONFIG": json.dumps(config)})


@pytest.mark.parametrize("index", [0, 1])
def test_usr1_is_a_wish_that_the_chief_sees_at_any_server(tmp_path, index):
    with of_two(index, tmp_path) as server:
        with server.connect(role="worker", rank=0, replicas=1, ps_count=2,
                            ps_index=index) as chief:
            assert not chief.call(wire.PING).flags & wire.WISH
            server.process.send_signal(signal.SIGUSR1)
            server.wait_for_log("info checkpoint_wished: SIGUSR1")
            with server.connect(ps_count=2, ps_index=index) as tool:
                ping = tool.call(wire.PING)  # looking does not end a wish
                assert ping.json["wishes"] == ["save"]
            assert chief.call(wire.STAT).flags & wire.WISH
            assert chief.call(wire.PING).json["wishes"] == ["save"]
            # PS 0 waits for the chief's STEP_END; another has told it
            again = chief.call(wire.PING)
            assert again.json["wishes"] == (["save"] if index == 0 else [])
        assert server.stop() == 143


# ---- the end ----

def test_a_server_that_is_told_to_stop_serves_on_for_a_while():
    with programs.Recpsd("--drain-delay", "1.5", admin=LOOPBACK) as server:
        old = server.connect()
        server.process.send_signal(signal.SIGTERM)
        status, text, _ = programs.until(
            lambda: (lambda a: a if a[0] != 200 else None)(
                server.get("/readyz")))
        assert (status, text) == (503, "draining: SIGTERM\n")
        assert server.get("/livez")[0] == 200
        assert server.get("/startupz")[0] == 200
        found = exposition.Metrics(server.get("/metrics")[1])
        assert found("recps_ready") == 0
        server.assert_serves()  # a new connection
        assert old.call(wire.PING).status == wire.OK
        assert server.wait() == 143
        old.close()


def test_on_the_loopback_there_is_no_delay_unless_it_is_asked_for():
    with programs.Recpsd() as server:
        start = time.monotonic()
        assert server.stop() == 143
        assert time.monotonic() - start < 1.9
    with programs.Recpsd("--auth=none", bind="0.0.0.0:0") as server:
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.assert_serves()
        assert server.wait() == 143
        assert time.monotonic() - start >= 2


@pytest.mark.hostile
def test_requests_that_come_while_it_drains_are_told_to_retry():
    """A peer that does not read its replies holds the drain for two seconds."""
    with programs.Recpsd("--loops", "1") as server:
        slow, other = server.connect(), server.connect()
        table = slow.table(dim=64)
        wanted = wire.section(wire.KEYS, struct.pack("<4000Q", *range(4000)),
                              table_id=table, count=4000)
        slow.send(b"".join(wire.frame(wire.LOOKUP, [wanted], i + 1)
                           for i in range(40)))
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("stopping")
        reply = programs.until(lambda: (lambda r: r if r.status != wire.OK else None)(
            other.call(wire.PING)))
        assert reply.status == wire.RETRY_LATER
        assert "stopping (SIGTERM)" in reply.text
        pushed = push(other, table, 1)
        assert pushed.status == wire.RETRY_LATER
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), 5)
        assert server.wait() == 143
        slow.close()
        other.close()


def test_a_chief_that_does_not_save_is_waited_for_half_of_the_time(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path),
                         "--drain-timeout", "2") as server:
        chief = server.connect(role="worker", rank=0, replicas=1)
        assert push(chief, chief.table(dim=2), 1).status == wire.OK
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("checkpoint_wished")
        assert chief.call(wire.PING).json["wishes"] == ["save"]
        assert server.wait() == 143
        assert 1 <= time.monotonic() - start
        assert "did not save within 1.0 s" in server.log()
        assert "warn unsaved: " in server.log()
        chief.close()


def test_a_chief_that_leaves_is_not_waited_for(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path),
                         "--drain-timeout", "60") as server:
        chief = server.connect(role="worker", rank=0, replicas=1)
        assert push(chief, chief.table(dim=2), 1).status == wire.OK
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("checkpoint_wished")
        chief.close()
        assert server.wait(20) == 143
        assert "the chief left before it saved" in server.log()


class Job:
    """Two servers and a recps-train that would go on for hours."""

    def __init__(self, folder, mode, *flags):
        ports = programs.free_ports(2)
        self.folder = folder / "checkpoints"
        self.servers = []
        self.cluster = {"ps": [f"127.0.0.1:{p}" for p in ports],
                        "worker": ["127.0.0.1:1"]}
        for index in range(2):
            server = programs.Recpsd(bind=None, admin=LOOPBACK, env={
                "TF_CONFIG": self.config("ps", index)})
            self.servers.append(server.start())
        self.log = open(folder / "train.log", "wb")
        self.trainer = subprocess.Popen(
            [str(trainer.TRAIN), "--data", "synthetic:rows=2000,keys=500",
             "--epochs", "100000", "--log-every", "1000", "--mode", mode,
             *flags],
            stdout=self.log, stderr=self.log,
            env=programs.environment(TF_CONFIG=self.config("worker", 0)))

    def config(self, role, index):
        return json.dumps({"cluster": self.cluster,
                           "task": {"type": role, "index": index},
                           "recps": {"checkpoint_dir": str(self.folder)}})

    def metrics(self, index):
        return exposition.Metrics(self.servers[index].get("/metrics")[1])

    def __enter__(self):
        programs.until(lambda: self.metrics(1)("recps_step") > 3)
        return self

    def __exit__(self, *_):
        self.trainer.kill()
        self.trainer.wait()
        self.log.close()
        for server in self.servers:
            server.__exit__()


@trainer.needs_programs
@pytest.mark.parametrize("mode, index", [("sync", 0), ("sync", 1),
                                         ("async", 1)])
def test_a_server_that_is_stopped_has_the_job_save_first(tmp_path, mode, index):
    with Job(tmp_path, mode) as job:
        server = job.servers[index]
        assert server.stop() == 143
        log = server.log()
        assert "checkpoint_saved: ckpt-" in log, log
        assert "not_saved" not in log
        saved = re.search(r"checkpoint_saved: (ckpt-\d+) ", log).group(1)
        run = subprocess.run([str(programs.RECPS), "verify",
                              str(job.folder / saved)],
                             env=programs.environment(), capture_output=True,
                             text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr


@trainer.needs_programs
def test_a_job_that_a_server_ends_does_not_wait_for_an_evaluation(tmp_path):
    with Job(tmp_path, "sync", "--train-rows", "1500") as job:
        assert job.servers[1].stop() == 143
        assert job.servers[0].wait() == 0  # SHUTDOWN
        assert job.trainer.wait(20) == 0
        assert "unsaved: nothing unsaved" in job.servers[1].log()
    said = (tmp_path / "train.log").read_text()
    assert "PS 1 is being stopped: no evaluation" in said


@trainer.needs_programs
def test_usr1_saves_once_and_the_job_goes_on(tmp_path):
    with Job(tmp_path, "sync") as job:
        server = job.servers[1]
        server.process.send_signal(signal.SIGUSR1)
        programs.until(lambda: job.metrics(1)("recps_checkpoints_total") == 1)
        server.wait_for_log("stop_time: a stop that saves takes about")
        step = job.metrics(1)("recps_step")
        programs.until(lambda: job.metrics(1)("recps_step") > step + 20)
        found = job.metrics(1)
        assert found("recps_checkpoints_total") == 1
        assert found("recps_checkpoint_bytes") > 1000
        assert found("recps_checkpoint_duration_seconds") > 0
        age = time.time() - found(
            "recps_checkpoint_last_success_timestamp_seconds")
        assert -1 <= age < 120
        files = job.folder.glob("ckpt-*/table-*/1-of-2.*.npy")
        assert sum(f.stat().st_size for f in files) <= found(
            "recps_checkpoint_bytes")


@trainer.needs_programs
def test_a_restore_counts_the_rows_that_it_reads(tmp_path):
    trainer.launch("--data", "synthetic:rows=2000,keys=500", ps=1,
                   options=["--checkpoint-dir", tmp_path])
    step = int(max(tmp_path.glob("ckpt-*")).name[5:])
    part = json.loads((tmp_path / f"ckpt-{step:012}" /
                       "part-0-of-1.json").read_text())
    rows = sum(table["rows"] for table in part["tables"].values())
    assert rows > 100
    with programs.Recpsd("--checkpoint-dir", str(tmp_path),
                         admin=LOOPBACK) as server:
        with server.connect() as connection:
            reply = connection.call(wire.RESTORE, [wire.text(
                {"epoch": 99, "step": step, "replicas": 1})])
            assert reply.status == wire.OK, reply.text
        found = exposition.Metrics(server.get("/metrics")[1])
        assert found("recps_restore_rows_read") == rows
        assert found("recps_restore_rows_expected") == rows
        assert found("recps_restore_duration_seconds") > 0
        assert sum(found.families["recps_rows"].samples.values()) == rows
        assert server.stop() == 143


class Stuck:
    """A server of which one loop stands in a push: its log line goes into a
    pipe that is full. It holds the locks of a push meanwhile."""

    def __init__(self, *flags):
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        self.server = programs.Recpsd("--loops", "2", *flags, admin=LOOPBACK)

    def __enter__(self):
        self.server.process = subprocess.Popen(
            self.server.flags, stderr=self.writer, env=self.server.env)
        programs.until(self.server.port_file.exists)
        self.server.port = int(self.server.port_file.read_text())
        self.pusher = self.server.connect()
        self.other = self.server.connect()  # on the second loop
        table = self.pusher.table(dim=2)
        os.set_blocking(self.writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(self.writer, b"x")
        os.set_blocking(self.writer, True)  # the server's end, too
        self.pusher.send_frame(wire.PUSH, [
            wire.section(wire.KEYS, struct.pack("<Q", 7), table_id=table,
                         count=1),
            wire.section(wire.ROWS, struct.pack("<2f", float("nan"), 1),
                         table_id=table, dim=2, count=1, learning_rate=0.5)])
        os.set_blocking(self.reader, False)
        programs.until(lambda: self.metrics()("recps_queue_depth", queue="requests"))
        return self

    def metrics(self):
        return exposition.Metrics(self.server.get("/metrics")[1])

    def go_on(self, condition):
        """Read the pipe until it is so."""
        def drained():
            try:
                while os.read(self.reader, 65536):
                    pass
            except BlockingIOError:
                pass
            return condition()
        return programs.until(drained)

    def __exit__(self, *_):
        self.pusher.close()
        self.other.close()
        self.server.process.terminate()
        try:
            code = self.go_on(lambda: self.server.process.poll() is not None
                              and self.server.process.returncode)
            assert code == 143
        finally:
            self.server.process.kill()
            self.server.process.wait()
            os.close(self.reader)
            os.close(self.writer)
            self.server.folder.cleanup()


def test_while_it_restores_a_server_is_live_and_not_ready():
    with Stuck() as stuck:
        server = stuck.server
        before = stuck.metrics()("recps_table_bytes", table="emb")
        assert server.get("/startupz")[0] == server.get("/readyz")[0] == 200
        stuck.other.send_frame(wire.RESTORE, [wire.text(
            {"epoch": 1, "step": 0, "replicas": 1})])
        programs.until(lambda: server.get("/startupz")[0] == 503)
        status, text, _ = server.get("/readyz")
        assert status == 503
        assert re.fullmatch(r"restore: a checkpoint is being restored since "
                            r"\d+\.\d s: 0 of 0 rows \(0 %\)\n", text)
        assert server.get("/livez")[0] == 200
        # the tables cannot be looked at: they are those of before
        found = stuck.metrics()
        assert found("recps_checkpoint_in_progress", what="restore") == 1
        assert found("recps_table_bytes", table="emb") == before
        assert found("recps_queue_depth", queue="parked") == 1
        stuck.go_on(lambda: server.get("/readyz")[0] == 200)
        assert stuck.other.receive().status == wire.OK
        assert stuck.pusher.receive().status == wire.OK
        found = stuck.metrics()
        assert found("recps_checkpoint_in_progress", what="restore") == 0
        assert found("recps_restores_total") == 1
        assert found("recps_table_bytes", table="emb", default=0) == 0
        assert found("recps_requests_total", op="RESTORE", code="OK") == 1


def test_a_loop_that_waits_while_a_checkpoint_is_written_is_live(tmp_path):
    with Stuck("--checkpoint-dir", str(tmp_path),
               "--live-timeout", "0.5") as stuck:
        server = stuck.server
        programs.until(lambda: server.get("/livez")[0] == 500)
        stuck.other.send_frame(wire.SAVE, [wire.text({"action": "prepare"})])
        programs.until(lambda: server.get("/livez")[0] == 200)
        text = server.get("/livez?verbose")[1]
        assert "; a checkpoint is being written since" in text
        assert stuck.metrics()("recps_checkpoint_in_progress", what="save") == 1
        assert server.get("/readyz")[0] == 200
        stuck.go_on(lambda: stuck.metrics()(
            "recps_checkpoint_in_progress", what="save") == 0)
        assert stuck.other.receive().status == wire.OK
        stuck.go_on(lambda: server.get("/livez")[0] == 200)


# ---- the log ----

@pytest.mark.parametrize("path, shown", [
    (b"/nope/\xff\xc3", "/nope/??"),
    ("/nope/x".encode() + "é".encode() * 1500, "/nope/xé"),
    ("/nope/".encode() + "é".encode() * 1500, "/nope/é"),
])
def test_a_json_line_takes_any_bytes(path, shown):
    run = subprocess.run(
        [programs.RECPSD, "--log-format", "json", "--admin", "off",
         "--port-file", os.devnull, b"--token-file", path],
        env=programs.environment(), capture_output=True, timeout=20,
        check=False)
    assert run.returncode == 77
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert any(shown in line["msg"] for line in lines), run.stderr


def test_json_lines_say_who_wrote_them():
    with programs.Recpsd("--log-format", "json", "--job-id", "job7") as server:
        stat = None
        with server.connect(job_id="job7") as connection:
            stat = connection.call(wire.STAT, [wire.text({})]).json
            connection.send(b"y" * 64)
            assert connection.closed()
        server.wait_for_log("bad_frame")
        assert server.stop() == 143
        lines = [json.loads(line) for line in server.log().splitlines()]
    assert {"listening", "bad_frame", "stopping", "stopped"} <= {
        line["event"] for line in lines}
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
        assert line["level"] in ("debug", "info", "warn", "error")
        assert (line["job"], line["role"], line["index"]) == ("job7", "ps", 0)
        assert line["incarnation"] == stat["incarnation"]
        assert line["msg"]


def events(server, event):
    return [line for line in map(json.loads, server.log().splitlines())
            if line["event"] == event]


def test_json_lines_say_what_they_are_about(tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"x" * 32)
    token.chmod(0o600)
    with programs.Recpsd("--log-format", "json", "--token-file",
                         str(token)) as server:
        with server.connect(greet=False) as stranger:
            assert stranger.hello().status == wire.NO_AUTH
        with server.connect(token=b"x" * 32) as connection:
            table = connection.table("emb", dim=2)
            reply = connection.call(wire.PUSH, [
                wire.section(wire.KEYS, struct.pack("<Q", 7), table_id=table,
                             count=1),
                wire.section(wire.ROWS, struct.pack("<2f", float("nan"), 1),
                             table_id=table, dim=2, count=1,
                             learning_rate=0.5)], step=9)
            assert reply.status == wire.OK, reply.text
            connection.call(wire.ALTER_TABLE, [wire.text(
                {"table": "emb", "set": {"learning_rate": 0.5}})])
            connection.send(b"y" * 64)
            assert connection.closed()
        server.wait_for_log("bad_frame")
        token.chmod(0o644)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("nothing is changed")
        assert server.stop() == 143
        (failed,) = events(server, "auth_failed")
        (bad,) = events(server, "bad_frame")
        (altered,) = events(server, "table_altered")
        (nonfinite,) = events(server, "nonfinite_gradient")
        files = events(server, "access_files")[-1]
    for line in (failed, bad, altered, nonfinite):
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line["peer"]), line
    assert altered["table"] == nonfinite["table"] == "emb"
    assert nonfinite["step"] == 9
    assert files["err"] == "RPS_E_AUTH" and "peer" not in files


def test_a_checkpoint_folder_that_is_a_file_is_said_to_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    run = subprocess.run(
        [str(programs.RECPSD), "--bind", LOOPBACK, "--port-file", "p",
         "--checkpoint-dir", str(tmp_path / "file"), "--log-format", "json"],
        capture_output=True, text=True, env=programs.environment(), timeout=20,
        cwd=tmp_path, check=False)
    (line,) = json_lines(run.stderr)
    assert run.returncode == 74 and line["err"] == "RPS_E_IO"
    assert line["msg"] == f"--checkpoint-dir: {tmp_path}/file is no folder"


def json_lines(text):
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines and all(line["msg"] and line["event"] for line in lines)
    return lines


@pytest.mark.parametrize("flags, env, part", [
    (["--loops", "x"], {}, "--loops"),
    (["--no-such"], {}, "--no-such"),
    (["--tf-config", "{"], {}, "TF_CONFIG"),
    (["--drain-delay", "9", "--drain-timeout", "3"], {}, "--drain-delay"),
    (["--bind", "127.0.0.1:x"], {"RECPS_NO_SUCH": "1"}, "RECPS_NO_SUCH"),
    ([], {"RECPS_LOOPS": "x"}, "RECPS_LOOPS"),
    ([], {"TF_CONFIG": '{"recps": {"log_format": "json", "loops": "x"}}'},
     "recps.loops"),
])
@pytest.mark.parametrize("how", [["--log-format", "json"],
                                 ["--log_format=json"], {}])
def test_what_is_refused_is_json_too(flags, env, part, how):
    variables = {"RECPS_LOG_FORMAT": "json"} if how == {} else {}
    run = subprocess.run(
        [str(programs.RECPSD), *flags, *how], capture_output=True, text=True,
        env=programs.environment(**env, **variables), timeout=20, check=False)
    assert run.returncode in (64, 78)
    assert any(part in line["msg"] for line in json_lines(run.stderr))


def test_a_reload_that_is_refused_leaves_the_log_json(tmp_path):
    file = tmp_path / "tf_config.json"
    file.write_text('{"recps": {"log_format": "json"}}')
    with programs.Recpsd(env={"TF_CONFIG_FILE": str(file)}) as server:
        file.write_text('{"recps": {"loops": "x"}}')
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("the options are refused.*recps.loops")
        assert server.stop() == 143
        json_lines(server.log())


def test_a_line_of_text_stays_one_line():
    with programs.Recpsd() as server:
        with server.connect(greet=False) as connection:
            reply = connection.hello(job_id="a\n2026-01-01 error forged: \x1b[2J")
            assert reply.status == wire.MISMATCH
        assert server.stop() == 143
        assert "forged" not in server.log() or not re.search(
            r"^2026-01-01", server.log(), re.M)
        assert "\x1b" not in server.log()


# ---- port files ----

def test_port_files_go_with_their_server(tmp_path):
    with programs.Recpsd(admin=LOOPBACK) as server:
        assert server.admin_file.read_text().strip().isdigit()
        assert server.stop() == 143
        assert not server.port_file.exists()
        assert not server.admin_file.exists()


def test_a_port_file_of_a_server_that_was_killed_is_forgotten(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        server = programs.Recpsd(bind=f"127.0.0.1:{port}")
        server.port_file.write_text("1\n")
        with open(server.log_path, "wb") as log:
            server.process = subprocess.Popen(server.flags, stderr=log,
                                              env=server.env)
        server.wait_for_log("port_in_use")
        assert not server.port_file.exists()
    programs.until(server.port_file.exists)
    assert server.port_file.read_text() == f"{port}\n"
    server.port_file.write_text("4711\n")  # its successor's
    assert server.stop() == 143
    assert server.port_file.read_text() == "4711\n"
    server.folder.cleanup()


def test_a_port_file_may_be_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "port")
    process = subprocess.Popen(
        [str(programs.RECPSD), "--bind", LOOPBACK, "--port-file",
         str(tmp_path / "port")], env=programs.environment(),
        stderr=subprocess.DEVNULL)
    try:
        with open(tmp_path / "port", encoding="ascii") as pipe:
            assert int(pipe.read()) > 0
        process.terminate()
        assert process.wait(20) == 143
        assert (tmp_path / "port").is_fifo()
    finally:
        process.kill()


@pytest.mark.parametrize("own", [True, False])
def test_the_journal_gets_priorities(tmp_path, own):
    with open(tmp_path / "log", "wb") as log:
        status = os.fstat(log.fileno())
        inode = status.st_ino if own else status.st_ino + 1
        process = subprocess.Popen(
            [str(programs.RECPSD), "--bind", LOOPBACK, "--port-file",
             str(tmp_path / "port")], stderr=log, env=programs.environment(
                 JOURNAL_STREAM=f"{status.st_dev}:{inode}"))
        programs.until((tmp_path / "port").exists)
        process.terminate()
        assert process.wait(20) == 143
    lines = (tmp_path / "log").read_text().splitlines()
    prefix = "<6>2" if own else "2"
    assert lines and all(line.startswith((prefix, "<4>2" if own else "2"))
                         for line in lines)


# ---- the unit file ----

UNITS = ("recpsd@.service", "recpsd-serve@.service", "recps-train@.service")


def unit_file(name=UNITS[0]):
    file = programs.BUILD / "conf" / name
    if not file.is_file():
        pytest.skip(f"{file} is not built")
    return file.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None,
                    reason="no systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit_file(tmp_path, name):
    program = (programs.RECPS_TRAIN if name.startswith("recps-train")
               else programs.RECPSD)
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}",
                  unit_file(name))
    (tmp_path / name).write_text(text)
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True, text=True, timeout=60, check=False)
    own = [l for l in run.stderr.splitlines() if "recps" in l]
    assert (run.returncode, own) == (0, [])


def test_the_unit_files_command_is_understood_and_its_codes_are_documented():
    text = unit_file()
    command = re.search(r"(?m)^ExecStart=\S+ (.*)", text).group(1)
    flags = command.replace("%i", "1").split()
    run = subprocess.run(
        [str(programs.RECPSD), "--check-config", *flags], timeout=30,
        env=programs.environment(
            TF_CONFIG='{"cluster":{"ps":["a:1","b:1"],"worker":["c:1"]}}'),
        capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "index: 1" in run.stdout
    page = (programs.ROOT / "docs/OPERATIONS.md").read_text("utf8")
    table = page.split("## Exit codes")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| ([\d, ]+) \|.*\| (yes|no|perhaps) \|$", table)
    again = {int(c): word for cell, word in rows for c in cell.split(",")}
    never = re.search(r"RestartPreventExitStatus=(.*)", text).group(1).split()
    assert {c for c, w in again.items() if w == "no"} - {0} == {
        int(c) for c in never}
    clean = re.search(r"SuccessExitStatus=(.*)", text).group(1).split()
    assert sorted(map(int, clean)) == [130, 143]


# ---- the alerts ----

RULES = programs.ROOT / "conf/prometheus/recps.rules.yml"


@pytest.mark.skipif(shutil.which("promtool") is None,
                    reason="no promtool (Debian package prometheus)")
def test_prometheus_takes_the_alerts():
    run = subprocess.run(["promtool", "check", "rules", str(RULES)], timeout=30,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_alerts_and_the_page_name_metrics_that_there_are():
    with programs.Recpsd(admin=LOOPBACK) as server:
        there = set(exposition.Metrics(server.get("/metrics")[1]).families)
        assert server.stop() == 143
    used = set(re.findall(r"\b((?:recps|process)_\w+)", RULES.read_text("utf8")))
    assert used and used <= there
    page = (programs.ROOT / "docs/OPERATIONS.md").read_text("utf8")
    table = page.split("### Metrics")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(recps_(?!worker_)\w+)`", table))
    assert documented == {name for name in there if name.startswith("recps_")}
