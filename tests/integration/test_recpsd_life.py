# SPDX-License-Identifier: Apache-2.0
"""recpsd's start and end: options, addresses, signals, exit codes."""
import signal
import socket
import subprocess
import time

import pytest

import programs
import wire
from test_recpsd import keys, rows

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")]


def run_recpsd(*flags, env=None, timeout=30):
    """Start it where it must not serve: returns (exit code, its words)."""
    run = subprocess.run([str(programs.RECPSD), *flags],
                         env=programs.environment(**(env or {})),
                         capture_output=True, text=True, errors="replace", timeout=timeout,
                         check=False)
    return run.returncode, run.stderr


# ---- signals and exit codes ----

@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143),
                                          (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_its_own_code(recpsd, number, code):
    with recpsd.connect() as connection:
        table = connection.table(dim=2)
        assert connection.call(
            wire.PUSH,
            [keys(1, table_id=table),
             rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)],
            number=1).status == wire.OK
        assert recpsd.stop(number) == code
        assert connection.closed()
    assert "unsaved" in recpsd.log()


def test_a_second_signal_ends_it_at_once():
    with programs.Recpsd("--drain-timeout", "20") as server:
        connection = server.connect(role="worker", rank=0, replicas=2)
        connection.send_frame(
            wire.STEP_END, [wire.text({"rank": 0, "loss": None, "wishes": []})])
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(5) == 143
        connection.close()


@pytest.mark.hostile
def test_a_signal_behind_shutdown_is_the_first_one():
    """A peer that does not read its replies holds the drain for two seconds."""
    with programs.Recpsd("--loops", "1") as server:
        slow, other = server.connect(), server.connect()
        wanted = wire.section(wire.KEYS, bytes(8 * 4000),
                              table_id=slow.table(dim=64), count=4000)
        slow.send(b"".join(wire.frame(wire.LOOKUP, [wanted], i + 1)
                           for i in range(40)))
        time.sleep(0.3)
        assert other.call(wire.SHUTDOWN, [wire.text(
            {"action": "now"})]).status == wire.OK
        server.wait_for_log("info stopping: SHUTDOWN")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("info stopping: SIGTERM: it stops already")
        assert server.wait(10) == 0
        assert "again: stopping at once" not in server.log()
        slow.close()
        other.close()


def test_signals_that_are_one_do_not_cut_off_the_orphan_part(tmp_path):
    """They come while it is written, after the last request."""
    with programs.Recpsd("--checkpoint-dir", tmp_path) as server:
        with server.connect() as connection:
            table = connection.table(dim=2)
            assert connection.call(
                wire.PUSH,
                [keys(1, table_id=table),
                 rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)],
                number=1).status == wire.OK
        for _ in range(20):
            server.process.send_signal(signal.SIGTERM)
            if server.process.poll() is not None:
                break
            time.sleep(0.005)
        assert server.wait() == 143
        assert "warn orphan_written" in server.log(), server.log()
    assert len(list(tmp_path.glob("orphan-*/0-of-1/orphan.json"))) == 1


def test_two_signals_at_once_are_one():
    """A terminal tells the whole group, and a launcher its children, too."""
    with programs.Recpsd("--drain-delay", "0.5") as server:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        server.assert_serves()
        assert server.wait(10) == 143
        assert "again" not in server.log()


def test_a_step_that_waits_for_others_does_not_hold_the_end(recpsd):
    with recpsd.connect(role="worker", rank=0, replicas=2) as connection:
        connection.send_frame(
            wire.STEP_END, [wire.text({"rank": 0, "loss": None, "wishes": []})])
        time.sleep(0.2)
        assert recpsd.stop() == 143


def test_a_waiting_step_does_not_hold_later_requests(recpsd):
    with recpsd.connect(role="worker", rank=0, replicas=2) as connection:
        connection.send_frame(
            wire.STEP_END, [wire.text({"rank": 0, "loss": None, "wishes": []})])
        assert connection.call(wire.PING).status == wire.OK


def test_shutdown_ends_it_with_0(recpsd):
    with recpsd.connect() as connection:
        reply = connection.call(wire.SHUTDOWN, [wire.text({"action": "now"})])
        assert reply.status == wire.OK, reply.text
        assert recpsd.wait(10) == 0
    assert "stopping" in recpsd.log()


def test_a_peer_that_does_not_read_does_not_hold_the_end(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=64)
        wanted = keys(*range(4000), table_id=table)
        connection.send(b"".join(wire.frame(wire.LOOKUP, [wanted], i + 1)
                                 for i in range(40)))
        time.sleep(0.3)
        assert recpsd.stop() == 143


def test_a_port_in_use_is_named_and_given_up(recpsd):
    code, words = run_recpsd("--bind", f"127.0.0.1:{recpsd.port}")
    assert code == 138
    assert f"127.0.0.1:{recpsd.port}" in words
    assert "Address already in use" in words
    recpsd.assert_serves()


def test_a_port_that_gets_free_is_taken(recpsd):
    second = subprocess.Popen(
        [str(programs.RECPSD), "--bind", f"127.0.0.1:{recpsd.port}"],
        env=programs.environment(), stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(0.7)
        recpsd.stop()
        for line in second.stderr:
            if "listening" in line:
                break
        with wire.Connection(recpsd.port) as connection:
            assert connection.hello().status == wire.OK
    finally:
        second.kill()
        second.wait()


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0"])
def test_an_open_address_is_refused(tmp_path, bind):
    code, words = run_recpsd("--bind", bind, "--port-file", tmp_path / "port")
    assert code == 77
    assert "--auth=none" in words
    assert not (tmp_path / "port").exists()


def test_an_open_address_is_served_when_it_was_asked_for():
    server = programs.Recpsd("--auth=none", bind="0.0.0.0:0")
    with server:
        server.assert_serves()


def test_an_entry_that_is_no_loopback_address_is_refused():
    config = '{"cluster":{"ps":["10.1.2.3:2222"]},"task":{"type":"ps","index":0}}'
    code, words = run_recpsd(env={"TF_CONFIG": config})
    assert code == 77
    assert "--auth=none" in words


@pytest.mark.skipif(programs.has_openssl(), reason="built with OpenSSL")
@pytest.mark.parametrize("flags, what", [
    (["--token-file", "/dev/null"], "tokens"),
    (["--tls-cert", "/dev/null", "--tls-key", "/dev/null"], "TLS")])
def test_a_build_without_openssl_refuses_what_it_cannot(flags, what):
    code, words = run_recpsd(*flags)
    assert code == 77
    assert "without OpenSSL" in words and f"no {what}" in words


def test_a_role_that_is_no_server_is_refused():
    config = ('{"cluster":{"ps":["127.0.0.1:2222"],"worker":["127.0.0.1:2223"]},'
              '"task":{"type":"worker","index":0}}')
    code, words = run_recpsd(env={"TF_CONFIG": config})
    assert code == 78
    assert "worker 0" in words


@pytest.mark.parametrize("flags, code", [
    (["--no-such-flag"], 64),
    (["--bind", "127.0.0.1"], 64),
    (["--bind", "127.0.0.1:99999"], 64),
    (["--bind", "127.0.0.1:0"], 64),
    (["--tf-config", "{"], 78),
    (["--admin", ""], 64),
    (["--drain-delay", "10", "--drain-timeout", "9"], 64),
    (["--disk-limit", "4m"], 64),
    (["--job-id", "a\nb"], 64),
    (["--job-id", "a\udcff"], 64),
    (["--bind", "no-such-host.invalid:2222"], 138),
    (["--admin", "no-such-host.invalid:2222"], 138),
    (["--admin", "127.0.0.1:7", "--bind", "127.0.0.1:7"], 64),
    (["--admin", "0.0.0.0:7", "--bind", "127.0.0.1:7"], 64),
])
def test_bad_options_have_their_codes(flags, code):
    got, words = run_recpsd(*flags, env={"RECPS_ADMIN": None})
    assert got == code, words
    for flag in flags[::2]:
        assert flag in words or code == 78
    assert len(words.splitlines()) == 1


def test_a_checkpoint_folder_that_cannot_be_written_is_refused(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    code, words = run_recpsd("--checkpoint-dir", str(blocker / "below"),
                             "--bind", "127.0.0.1:0",
                             "--port-file", tmp_path / "port")
    assert code == 74
    assert str(blocker) in words


def test_the_start_line_says_who_and_where(tmp_path):
    port = free_port()
    config = ('{"cluster":{"ps":["localhost:%d","127.0.0.1:%d"],'
              '"worker":["127.0.0.1:1"]},"task":{"type":"ps","index":0}}'
              % (port, port + 1))
    server = programs.Recpsd("--job-id", "job7", "--checkpoint-dir",
                             str(tmp_path), bind=None,
                             env={"TF_CONFIG": config})
    with server:
        assert server.port == port
        server.wait_for_log("listening")
        line = next(l for l in server.log().splitlines() if "listening" in l)
        for part in ["role=ps", "index=0", "n_ps=2", "chief=worker:0",
                     f"127.0.0.1:{port}", "job_id=job7",
                     f"checkpoint_dir={tmp_path}", "fingerprint="]:
            assert part in line, (part, line)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
