# SPDX-License-Identifier: Apache-2.0
"""recpsd from outside: honest peers, hostile bytes."""
import os
import random
import re
import socket
import struct
import subprocess
import time

import pytest

import programs
import wire

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")]


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
        for opcode, flags in [(18, 0), (19, 0), (200, 0), (999, 0), (65535, 0),
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


def test_a_flood_of_bad_frames_is_counted_in_the_log(recpsd):
    for _ in range(60):
        with recpsd.connect(greet=False) as connection:
            connection.send(b"x" * 64)
            assert connection.closed()
    recpsd.assert_serves()
    assert recpsd.stop() == 143
    lines = [l for l in recpsd.log().splitlines() if "bad_frame" in l]
    more = [int(l.split("bad_frame: ")[1].split()[0]) for l in lines
            if re.search(r"bad_frame: \d+ more in the last \d+ s$", l)]
    single = len(lines) - len(more)
    # nothing is lost; a slow machine may need more than one window
    assert single + sum(more) == 60
    assert single <= 10 * max(len(more), 1)


def test_the_count_of_a_flood_comes_by_itself(recpsd):
    for _ in range(15):
        with recpsd.connect(greet=False) as connection:
            connection.send(b"x" * 64)
            assert connection.closed()
    recpsd.wait_for_log(r"bad_frame: 5 more in the last 1\d s", timeout=20)


def raw_sections(opcode, rows_of_table, arrays=b"", count=None, **fields):
    """A frame whose section table says what it likes."""
    entries = b"".join(wire.SECTION.pack(*row) for row in rows_of_table)
    body = struct.pack("<II", len(rows_of_table) if count is None else count,
                       0) + entries
    body += bytes(-(64 + len(body)) % 64) + arrays
    return wire.header(opcode, len(body), 7, **fields) + body


def forged_sections():
    """(name, opcode, (kind, table?, dim, count, offset, bytes) …).

    Table 0 stands for the real one, offsets are relative to the arrays: two
    keys at 0, four floats at 64.
    """
    key = (wire.KEYS, 0, 0, 2, 0, 16)
    row = (wire.ROWS, 0, 2, 2, 64, 16)
    lookup, push = wire.LOOKUP, wire.PUSH
    yield "unknown table", lookup, [(wire.KEYS, 99, 0, 2, 0, 16)]
    yield "count above bytes", lookup, [(wire.KEYS, 0, 0, 3, 0, 16)]
    yield "count below bytes", lookup, [(wire.KEYS, 0, 0, 1, 0, 16)]
    yield "count of 2^63", lookup, [(wire.KEYS, 0, 0, 2**63, 0, 16)]
    yield "count that wraps", lookup, [(wire.KEYS, 0, 0, 2**61 + 2, 0, 16)]
    yield "bytes of 2^64-8", lookup, [(wire.KEYS, 0, 0, 2, 0, 2**64 - 8)]
    yield "bytes past the end", lookup, [(wire.KEYS, 0, 0, 40, 0, 320)]
    yield "bytes not of keys", lookup, [(wire.KEYS, 0, 0, 1, 0, 9)]
    yield "offset past the end", lookup, [(wire.KEYS, 0, 0, 2, 1 << 20, 16)]
    yield "offset that wraps", lookup, [(wire.KEYS, 0, 0, 2, 2**64 - 64, 16)]
    yield "offset not aligned", lookup, [(wire.KEYS, 0, 0, 1, 8, 8)]
    yield "a kind of no meaning", lookup, [(77, 0, 0, 2, 0, 16)]
    yield "kind 0", lookup, [(0, 0, 0, 2, 0, 16)]
    yield "kind 65535", lookup, [(65535, 0, 0, 2, 0, 16)]
    yield "rows where keys belong", lookup, [row]
    yield "keys of one table twice", push, [key, key, row]
    yield "keys without rows", push, [key]
    yield "rows without keys", push, [row]
    yield "rows twice", push, [key, row, row]
    yield "rows of another table", push, [key, (wire.ROWS, 99, 2, 2, 64, 16)]
    yield "another dim", push, [key, (wire.ROWS, 0, 4, 1, 64, 16)]
    yield "dim 0", push, [key, (wire.ROWS, 0, 0, 2, 64, 16)]
    yield "dim 2^32-1", push, [key, (wire.ROWS, 0, 2**32 - 1, 2, 64, 16)]
    yield "fewer rows than keys", push, [key, (wire.ROWS, 0, 2, 1, 64, 8)]
    yield "more rows than bytes", push, [key, (wire.ROWS, 0, 2, 9, 64, 16)]
    yield "text of no table", wire.GET_TABLE, [(wire.KEYS, 0, 0, 2, 0, 16)]
    yield "two texts", wire.GET_TABLE, [(wire.TEXT, 0, 0, 2, 0, 2)] * 2
    yield "a text of keys", wire.STEP_END, [(wire.TEXT, 0, 0, 16, 0, 16)]


@pytest.mark.parametrize("opcode, sections", [
    pytest.param(o, s, id=n) for n, o, s in forged_sections()])
def test_forged_sections_are_refused_or_cost_the_connection(
        recpsd, opcode, sections):
    arrays = struct.pack("<2Q", 5, 6) + bytes(48) + struct.pack("<4f", *[1] * 4)
    start = 64 + 8 + 48 * len(sections)
    start += -start % 64
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        entries = [(table if t == 0 else t, kind, 0, dim, count,
                    (start + offset) % 2**64, size, 0, 1.0)
                   for kind, t, dim, count, offset, size in sections]
        connection.send(raw_sections(opcode, entries, arrays, number=1))
        try:
            reply = connection.receive()
            statuses = [reply.status] + [s["status"] for s in reply.sections]
            assert min(statuses) < 0, reply.sections
            assert connection.call(wire.PING).status == wire.OK
        except (EOFError, ConnectionResetError):
            recpsd.wait_for_log("bad_frame")
    recpsd.assert_serves()
    assert recpsd.stat()["tables"][0]["rows"] == 0


@pytest.mark.parametrize("opcode", [wire.LOOKUP, wire.PUSH])
@pytest.mark.parametrize("sections", [[], [wire.text("words")]])
def test_a_request_without_keys_does_nothing(recpsd, opcode, sections):
    with recpsd.connect() as connection:
        connection.table(dim=2, initializer="zeros")
        reply = connection.call(opcode, sections, number=1)
        assert reply.find(wire.ROWS) is None
        assert connection.call(wire.PING).status == wire.OK
    assert recpsd.stat()["tables"][0]["rows"] == 0


@pytest.mark.parametrize("count", [1, 3, 1000, 2**32 - 1])
def test_a_wrong_number_of_sections_is_refused(recpsd, count):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        rows_of_table = [(table, wire.KEYS, 0, 0, 1, 192, 8, 0, 1.0),
                         (table, wire.ROWS, 0, 2, 1, 256, 8, 0, 1.0)]
        connection.send(raw_sections(wire.PUSH, rows_of_table, bytes(72),
                                     count=count, number=1))
        try:
            assert connection.receive().status < 0
        except (EOFError, ConnectionResetError):
            pass
    recpsd.assert_serves()
    assert recpsd.stat()["tables"][0]["rows"] == 0


def test_a_frame_that_drips_is_served(recpsd):
    """A byte every 50 ms, until 3 s are over; nobody else waits for it."""
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        data = wire.frame(wire.LOOKUP, [keys(7, table_id=table)], 77)
        for i in range(60):
            connection.send(data[i:i + 1])
            time.sleep(0.05)
            if i % 20 == 0:
                recpsd.assert_serves()
        connection.send(data[60:])
        reply = connection.receive()
        assert (reply.request_id, reply.status) == (77, wire.OK)


def test_a_hello_that_drips_is_closed_after_5_s(recpsd):
    start = time.monotonic()
    with recpsd.connect(greet=False) as connection:
        data = wire.frame(wire.HELLO, [wire.text("{}" + " " * 300)], 1)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for i in range(len(data)):
                connection.send(data[i:i + 1])
                time.sleep(0.05)
    assert time.monotonic() - start < 15
    recpsd.wait_for_log("no_hello")
    recpsd.assert_serves()


def test_many_more_connections_than_allowed_are_told_or_closed():
    with programs.Recpsd("--connections-max", "8") as server:
        served = [server.connect() for _ in range(8)]
        surplus = []
        for _ in range(200):
            connection = server.connect(greet=False)
            surplus.append(connection)
            try:
                connection.send_frame(wire.HELLO, [wire.text({})])
            except OSError:
                pass
        told = 0
        for connection in surplus:
            try:
                reply = connection.receive()
                assert reply.status == wire.LIMIT
                told += 1
            except (EOFError, ConnectionResetError):
                pass
            connection.close()
        assert told > 0
        for connection in served:
            assert connection.call(wire.PING).status == wire.OK
            connection.close()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with server.connect(greet=False) as again:
                if again.hello().status == wire.OK:
                    break
            time.sleep(0.05)
        server.assert_serves()
        assert server.stop() == 143


# ---- IPv6 ----

def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no ::1 on this machine")


@needs_ipv6
def test_it_serves_on_an_ipv6_address():
    with programs.Recpsd(bind="[::1]:0") as server:
        server.wait_for_log(r"address=\[::1\]:\d+")
        with wire.Connection(server.port, host="::1") as connection:
            assert connection.hello().status == wire.OK
            assert connection.call(wire.PING).status == wire.OK
            connection.send(b"y" * 64)
            assert connection.closed()
        server.wait_for_log(r"bad_frame: \[::1\]:\d+")
        assert server.stop() == 143


@needs_ipv6
@pytest.mark.skipif(not programs.RECPS.is_file(),
                    reason=f"{programs.RECPS} is not built")
def test_a_client_reaches_an_ipv6_server():
    with socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        port = sock.getsockname()[1]
    config = ('{"cluster":{"ps":["[::1]:%d"],"worker":["[::1]:1"]},'
              '"task":{"type":"ps","index":0}}' % port)
    with programs.Recpsd(bind=None, env={"TF_CONFIG": config}) as server:
        assert server.port == port
        run = subprocess.run(
            [str(programs.RECPS), "ping", "--json", "--ps-hosts",
             f"[0:0::1]:{port}"], env=programs.environment(),
            capture_output=True, text=True, timeout=30, check=False)
        assert run.returncode == 0, run.stderr
        assert f'"address":"[::1]:{port}"' in run.stdout


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
