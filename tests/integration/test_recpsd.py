# SPDX-License-Identifier: Apache-2.0
"""recpsd from outside: honest peers, hostile bytes, signals, exit codes."""
import os
import random
import signal
import socket
import struct
import subprocess
import time

import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")


def run_recpsd(*flags, env=None, timeout=30):
    """Start it where it must not serve: returns (exit code, its words)."""
    run = subprocess.run([str(programs.RECPSD), *flags],
                         env=programs.environment(**(env or {})),
                         capture_output=True, text=True, timeout=timeout,
                         check=False)
    return run.returncode, run.stderr


def keys(*values, table_id):
    return wire.section(wire.KEYS, struct.pack(f"<{len(values)}Q", *values),
                        table_id=table_id, count=len(values))


def rows(values, dim, *, table_id, learning_rate):
    return wire.section(wire.ROWS, struct.pack(f"<{len(values)}f", *values),
                        table_id=table_id, dim=dim, count=len(values) // dim,
                        learning_rate=learning_rate)


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


# ---- the helpers themselves ----

def test_the_helper_computes_xxh32():
    # values of the XXH32 specification's reference implementation
    assert wire.xxh32(b"") == 0x02CC5D05
    assert wire.xxh32(b"a") == 0x550D7456
    assert wire.xxh32(b"abc") == 0x32D153FF
    assert wire.xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


# ---- honest peers ----

def test_hello_and_ping_are_answered(recpsd):
    with recpsd.connect(greet=False) as connection:
        hello = connection.hello()
        assert hello.status == wire.OK, hello.text
        assert hello.json["version"] == 1
        assert hello.json["ps_count"] == 1
        assert hello.json["mode"] == "async"
        ping = connection.call(wire.PING)
        assert ping.status == wire.OK
        assert ping.json["epoch"] == 0


def test_a_push_moves_the_row_by_the_learning_rate(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        push = connection.call(
            wire.PUSH,
            [keys(2**64 - 1, table_id=table),
             rows([1.0, -2.0], 2, table_id=table, learning_rate=0.5)],
            number=1)
        assert push.status == wire.OK, push.text
        reply = connection.call(wire.LOOKUP, [keys(2**64 - 1, table_id=table)])
        assert reply.status == wire.OK, reply.text
        assert floats(reply.find(wire.ROWS)) == [-0.5, 1.0]


def test_pipelined_requests_are_all_answered(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=3)
        data = b""
        for i in range(300):
            wanted = keys(*range(i, i + 40), table_id=table)
            data += wire.frame(wire.LOOKUP, [wanted], 1000 + i)
        connection.send(data)
        replies = [connection.receive() for _ in range(300)]
        assert {r.request_id for r in replies} == set(range(1000, 1300))
        assert all(r.status == wire.OK for r in replies)
        assert all(len(r.find(wire.ROWS)) == 40 * 3 * 4 for r in replies)


def test_a_frame_may_come_byte_by_byte(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2)
        data = wire.frame(wire.LOOKUP, [keys(7, 8, table_id=table)], 77)
        for byte in data:
            connection.send(bytes([byte]))
        reply = connection.receive()
        assert (reply.request_id, reply.status) == (77, wire.OK)


def test_frames_may_be_split_anywhere(recpsd):
    draw = random.Random(5)
    with recpsd.connect() as connection:
        table = connection.table(dim=2)
        data = b"".join(
            wire.frame(wire.LOOKUP, [keys(*range(i + 1), table_id=table)], i)
            for i in range(1, 60))
        at = 0
        while at < len(data):
            n = draw.choice([1, 3, 63, 64, 65, 500])
            connection.send(data[at:at + n])
            at += n
        assert {connection.receive().request_id
                for _ in range(59)} == set(range(1, 60))


def test_a_peer_that_reads_late_gets_everything(recpsd):
    """Replies of 600 MB are not made before somebody takes them."""
    count, dim = 1200, 64
    with recpsd.connect() as connection:
        table = connection.table(dim=dim)
        wanted = keys(*range(2000), table_id=table)
        connection.sock.settimeout(60)

        def send_all():
            for i in range(count):
                connection.send(wire.frame(wire.LOOKUP, [wanted], i + 1))

        pid = os.fork()
        if pid == 0:  # a second process sends while this one waits
            send_all()
            os._exit(0)
        time.sleep(1)
        peak = status_bytes(recpsd.process.pid, "VmHWM")
        seen = {connection.receive().request_id for _ in range(count)}
        os.waitpid(pid, 0)
        assert seen == set(range(1, count + 1))
        # 64 MiB of replies, the one in hand, the process itself, and what a
        # sanitizer adds: far from all of it
        assert peak < 320 << 20
    recpsd.assert_serves()


def status_bytes(pid, field):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    raise AssertionError(field)


def test_200_connections_are_served(recpsd):
    connections = [recpsd.connect() for _ in range(200)]
    for connection in connections:
        connection.send_frame(wire.PING)
    for connection in connections:
        assert connection.receive().status == wire.OK
    assert recpsd.stat()["connections"] >= 200
    for connection in connections:
        connection.close()
    recpsd.assert_serves()


def test_a_connection_above_the_limit_is_told_so():
    with programs.Recpsd("--connections-max", "2") as server:
        first, second = server.connect(), server.connect()
        with server.connect(greet=False) as third:
            reply = third.hello()
            assert reply.status == wire.LIMIT
            assert "connections_max" in reply.text
            assert third.closed()
        assert first.call(wire.PING).status == wire.OK
        first.close()
        second.close()
        end = time.monotonic() + 10
        while True:
            with server.connect(greet=False) as again:
                status = again.hello().status
            if status == wire.OK or time.monotonic() > end:
                break
            time.sleep(0.05)
        assert status == wire.OK


# ---- hostile bytes ----

def hostile_frames():
    good = wire.frame(wire.PING, [], 9)
    draw = random.Random(11)
    yield "garbage", bytes(draw.randrange(256) for _ in range(4096))
    yield "zeros", bytes(4096)
    yield "ones", b"\xff" * 4096
    yield "http", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b" " * 64
    yield "wrong magic", wire.header(wire.PING, 8, magic=0x31535051) + bytes(8)
    yield "wrong checksum", wire.header(wire.PING, 8, checksum=1) + bytes(8)
    yield "body over 16 MiB", wire.header(wire.PING, wire.BODY_MAX + 1)
    yield "body of 4 GiB", wire.header(wire.PING, 2**32 - 1)
    yield "flipped bit", bytes([good[0]]) + bytes([good[1] ^ 4]) + good[2:]
    body = struct.pack("<II", 2**32 - 1, 0)
    yield "too many sections", wire.header(wire.PING, len(body)) + body
    table = wire.SECTION.pack(1, wire.KEYS, 0, 0, 2**61, 128, 64, 0, 0.0)
    body = struct.pack("<II", 1, 0) + table + bytes(72)
    yield "count that overflows", wire.header(wire.LOOKUP, len(body)) + body
    table = wire.SECTION.pack(1, wire.KEYS, 0, 0, 8, 2**63, 64, 0, 0.0)
    body = struct.pack("<II", 1, 0) + table + bytes(72)
    yield "offset outside", wire.header(wire.LOOKUP, len(body)) + body
    table = wire.SECTION.pack(1, wire.KEYS, 0, 0, 1, 64, 8, 0, 0.0)
    body = struct.pack("<II", 1, 0) + table + bytes(72)
    yield "array on its own table", wire.header(wire.LOOKUP, len(body)) + body


@pytest.mark.parametrize("data", [pytest.param(d, id=n)
                                  for n, d in hostile_frames()])
@pytest.mark.parametrize("greeted", [False, True])
def test_a_bad_frame_costs_its_sender_the_connection(recpsd, data, greeted):
    with recpsd.connect() as bystander:
        with recpsd.connect(greet=greeted) as connection:
            connection.send(data)
            assert connection.closed()
        assert bystander.call(wire.PING).status == wire.OK
    recpsd.wait_for_log("bad_frame")
    recpsd.assert_serves()


def test_random_bytes_after_a_good_header_change_nothing(recpsd):
    draw = random.Random(3)
    for _ in range(60):
        body = bytes(draw.randrange(256) for _ in range(draw.randrange(8, 700)))
        opcode = draw.randrange(1, 22)
        with recpsd.connect() as connection:
            connection.send(wire.header(opcode, len(body)) + body)
            connection.sock.shutdown(socket.SHUT_WR)
            assert connection.closed()
    recpsd.assert_serves()
    assert recpsd.stat()["tables"] == []


def test_texts_that_are_no_requests_are_refused_in_words(recpsd):
    hostile = ["", "{", "[]", "null", "\0", "{}", '{"name":7}', '{"name":""}',
               '{"name":"..","dimension":4}', '{"name":"a/b","dim":4}',
               '{"name":"%s","dimension":4}' % ("x" * 129), '{"name":"t","dimension":0}',
               '{"name":"t","dimension":1e9}', '{"name":"t","dim":-1}', "[" * 10000]
    with recpsd.connect() as connection:
        for words in hostile:
            reply = connection.call(wire.GET_TABLE, [wire.text(words)])
            assert reply.status < 0, words
            assert reply.text
        assert connection.call(wire.PING).status == wire.OK
    assert recpsd.stat()["tables"] == []


def test_unknown_opcodes_and_flags_are_unsupported(recpsd):
    with recpsd.connect() as connection:
        for opcode, flags in [(3, 0), (10, 0), (22, 0), (999, 0), (65535, 0),
                              (wire.PING, 1 << 20)]:
            reply = connection.call(opcode, [], flags=flags)
            assert reply.status == wire.UNSUPPORTED, (opcode, flags)
            assert reply.text
        assert connection.call(wire.PING).status == wire.OK


def test_a_request_whose_deadline_passed_is_not_done(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        data = wire.frame(wire.PUSH, [
            keys(5, table_id=table),
            rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)], 9,
            number=1, deadline_us=1000)
        connection.send(data[:100])
        time.sleep(0.1)
        connection.send(data[100:])
        reply = connection.receive()
        assert (reply.request_id, reply.status) == (9, -9)
        assert "deadline" in reply.text
        assert connection.call(wire.PING, deadline_us=10**6).status == wire.OK
        assert recpsd.stat()["tables"][0]["rows"] == 0
        # the refusal used number 1 up: the next one is no gap
        reply = connection.call(wire.PUSH, [
            keys(5, table_id=table),
            rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)], number=2)
        assert reply.status == wire.OK, reply.text


def test_a_late_frame_refuses_the_rest_of_its_push(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        parts = [keys(5, table_id=table),
                 rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)]
        late = wire.frame(wire.PUSH, parts, 9, number=1, deadline_us=1000,
                          flags=wire.MORE)
        connection.send(late[:100])
        time.sleep(0.1)
        connection.send(late[100:])
        assert connection.receive().status == -9
        reply = connection.call(wire.PUSH, parts, number=1)
        assert reply.status == -9, reply.text
    assert recpsd.stat()["tables"][0]["rows"] == 0


def test_half_a_frame_and_a_hang_up_change_nothing(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
    data = wire.frame(wire.PUSH, [
        keys(5, table_id=table),
        rows([1.0, 1.0], 2, table_id=table, learning_rate=1.0)], 2, number=1)
    for cut in range(1, len(data), 37):
        with recpsd.connect() as connection:
            connection.send(data[:cut])
    for _ in range(5):  # the same with a reset in place of a goodbye
        connection = recpsd.connect()
        connection.send(data[:100])
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                   struct.pack("ii", 1, 0))
        connection.close()
    recpsd.assert_serves()
    assert recpsd.stat()["tables"][0]["rows"] == 0


def test_a_promise_of_16_mib_takes_no_memory(recpsd):
    before = status_bytes(recpsd.process.pid, "VmRSS")
    connections = [recpsd.connect() for _ in range(50)]
    for connection in connections:
        connection.send(wire.header(wire.LOOKUP, wire.BODY_MAX) + bytes(100))
    time.sleep(0.3)
    assert status_bytes(recpsd.process.pid, "VmRSS") - before < 64 << 20
    for connection in connections:
        connection.close()
    recpsd.assert_serves()


# ---- before HELLO ----

def test_before_hello_a_frame_has_64_kib_at_most(recpsd):
    with recpsd.connect(greet=False) as connection:
        connection.send(wire.header(wire.HELLO, 65536))
        assert connection.closed()
    recpsd.wait_for_log("before HELLO")
    recpsd.assert_serves()


def test_before_hello_nothing_is_served(recpsd):
    with recpsd.connect(greet=False) as connection:
        connection.send_frame(wire.GET_TABLE,
                              [wire.text({"name": "t", "dimension": 4})])
        try:
            assert connection.receive().status < 0
        except EOFError:
            pass
    assert recpsd.stat()["tables"] == []


def test_a_peer_that_never_says_hello_is_closed_after_5_s(recpsd):
    with recpsd.connect(greet=False) as silent:
        with recpsd.connect(greet=False) as slow:
            slow.send(wire.header(wire.HELLO, 500))
            assert silent.closed()
            assert slow.closed()
    recpsd.assert_serves()


def test_a_greeted_connection_may_be_silent(recpsd):
    with recpsd.connect() as connection:
        time.sleep(6)
        assert connection.call(wire.PING).status == wire.OK


def test_another_job_is_refused_with_both_names(recpsd):
    with recpsd.connect(greet=False) as connection:
        reply = connection.hello(job_id="other-job")
        assert reply.status == wire.MISMATCH
        assert "other-job" in reply.text and "recps" in reply.text
        assert connection.closed()
    recpsd.assert_serves()


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
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(5) == 143
        connection.close()


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
])
def test_bad_options_have_their_codes(flags, code):
    got, words = run_recpsd(*flags)
    assert got == code
    assert words


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


def test_many_clients_at_once_see_their_own_pushes(recpsd):
    """Eight connections in eight processes, one table, keys of their own."""
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
    children = []
    for child in range(8):
        pid = os.fork()
        if pid == 0:
            os._exit(push_and_check(recpsd.port, table, child))
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in children]
    assert codes == [0] * 8
    assert recpsd.stat()["tables"][0]["rows"] == 8 * 50


def push_and_check(port, table, child):
    with wire.Connection(port) as connection:
        connection.hello()
        for i in range(50):
            key = keys(child * 1000 + i, table_id=table)
            connection.call(
                wire.PUSH, [key, rows([1.0, float(child)], 2, table_id=table,
                                      learning_rate=1.0)], number=i + 1)
            got = connection.call(wire.LOOKUP, [key])
            if floats(got.find(wire.ROWS)) != [-1.0, -float(child)]:
                return 1
    return 0
