# SPDX-License-Identifier: Apache-2.0
"""Memory of connections stays within --buffers-max, and others are served."""
import contextlib
import os
import socket
import struct
import threading
import time

import numpy
import pytest

import programs
import wire
from exposition import Metrics

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")]

MIB = 1 << 20
LIMIT = 64 * MIB
LOOPS = 2
DIM = 256
# a loop may go on with one frame and its reply, and be in one more reply
BEYOND = LOOPS * 3 * 16 * MIB
# ASan keeps 256 MiB of what was freed, to find its late users
KEEP_LITTLE = {"ASAN_OPTIONS": ":".join(filter(None, [
    os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=16"]))}


@pytest.fixture
def server():
    with programs.Recpsd("--buffers-max", str(LIMIT), "--loops", str(LOOPS),
                         admin="127.0.0.1:0", env=KEEP_LITTLE) as running:
        yield running
        assert running.stop() == 143, running.log()


def metrics(server):
    status, text, _ = server.get("/metrics")
    assert status == 200
    return Metrics(text)


def rss(server):
    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def keys(table, values):
    return wire.section(wire.KEYS, numpy.asarray(values, "<u8").tobytes(),
                        table_id=table, count=len(values))


def rows(table, values):
    values = numpy.asarray(values, "<f4")
    return wire.section(wire.ROWS, values.tobytes(), table_id=table,
                        dim=values.shape[1], count=len(values))


class Watch:
    """Looks at the server's own count, and at what the kernel says."""

    def __init__(self, server):
        self.server, self.over = server, False
        self.held = self.rss = self.waiting = 0
        self.start = rss(server)
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over:
            seen = metrics(self.server)
            self.held = max(self.held, seen("recps_buffer_bytes"))
            self.waiting = max(self.waiting, seen("recps_connections_waiting"))
            self.rss = max(self.rss, rss(self.server))
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()

    def assert_bounded(self):
        assert self.held <= LIMIT + BEYOND, f"{self.held / MIB} MiB"
        # an allocator keeps some of what was freed
        assert self.rss - self.start <= 2 * (LIMIT + BEYOND) + 64 * MIB, \
            f"{(self.rss - self.start) / MIB} MiB"


def serve_honestly(server, seconds):
    """Small and large requests of one who reads; the slowest of them."""
    slowest = 0
    end = time.monotonic() + seconds
    number = 0
    with server.connect() as connection:
        connection.sock.settimeout(60)
        table = connection.table("own", dim=DIM)
        while time.monotonic() < end:
            for n in (10, 4000):  # 10 KiB and 4 MiB
                began = time.monotonic()
                number += 1
                reply = connection.call(
                    wire.PUSH, [keys(table, range(n)),
                                rows(table, numpy.ones((n, DIM)))],
                    number=number)
                assert reply.status == wire.OK, reply.text
                reply = connection.call(wire.LOOKUP, [keys(table, range(n))])
                assert reply.status == wire.OK
                assert len(reply.find(wire.ROWS)) == n * DIM * 4
                slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.02)
    return slowest


def test_readers_that_do_not_read_are_bounded(server):
    """Each of 24 asks for 48 MiB and takes none of it."""
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(server))
        for i in range(24):
            slow = stack.enter_context(server.connect())
            table = slow.table("slow", dim=DIM)
            frame = wire.frame(wire.LOOKUP, [keys(table, range(8000))], 9)
            slow.sock.setblocking(False)
            for _ in range(6):
                with contextlib.suppress(BlockingIOError):
                    slow.sock.send(frame)
        serve_honestly(server, seconds=1)
        watch.over = True
        programs.until(lambda: metrics(server)(
            "recps_connections_refused_total", reason="stalled") > 0)
    watch.assert_bounded()
    assert watch.held > LIMIT / 4
    programs.until(lambda: metrics(server)("recps_buffer_bytes") < 5 * MIB)
    server.assert_serves()


def test_frames_that_do_not_come_whole_are_bounded(server):
    """Each of 60 claims 16 MiB, sends 2 of them and nothing more."""
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(server))
        for i in range(60):
            slow = stack.enter_context(server.connect())
            slow.sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                slow.sock.send(wire.header(wire.PUSH, 16 * MIB, 2))
                for _ in range(32):
                    slow.sock.send(bytes(1 << 16))
                    time.sleep(0.0005)
        serve_honestly(server, seconds=1)
    watch.assert_bounded()
    server.assert_serves()


def test_pushes_that_are_never_whole_are_bounded(server):
    """Frames of a push are kept until its last one: those count, too."""
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(server))
        for i in range(12):
            slow = stack.enter_context(server.connect())
            table = slow.table("slow", dim=DIM)
            frame = wire.frame(
                wire.PUSH, [keys(table, range(8000)),
                            rows(table, numpy.ones((8000, DIM)))],
                3, number=1, flags=wire.MORE)
            slow.sock.settimeout(0.2)
            for _ in range(2):
                with contextlib.suppress(OSError):
                    slow.sock.sendall(frame)
        serve_honestly(server, seconds=1)
    watch.assert_bounded()
    server.assert_serves()


def test_a_byte_a_moment_holds_nobody_up(server):
    """Slow-loris before and after HELLO."""
    over = threading.Event()
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(server))
        slow = []
        for i in range(60):
            connection = stack.enter_context(server.connect(greet=i % 2 == 0))
            opcode = wire.HELLO if i % 2 else wire.PUSH
            slow.append((connection.sock, wire.frame(
                opcode, [wire.text("x" * 4000)], 2)))

        def trickle():
            at = 0
            while not over.wait(0.1):
                for sock, frame in slow:
                    with contextlib.suppress(OSError):
                        sock.send(frame[at:at + 1])
                at += 1

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert serve_honestly(server, seconds=5.5) < 20
        finally:
            over.set()
            thread.join()
        refused = metrics(server)
        assert refused("recps_connections_refused_total",
                       reason="no_hello") == 30
        assert refused("recps_connections_refused_total",
                       reason="stalled") == 0
    watch.assert_bounded()


def test_a_flood_of_connections_is_bounded(server):
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watch(server))
        for i in range(700):
            sock = socket.create_connection(("127.0.0.1", server.port))
            stack.callback(sock.close)
            sock.send(wire.header(wire.HELLO, 60000))
        assert serve_honestly(server, seconds=1) < 20
    watch.assert_bounded()
    server.assert_serves()


def test_waiting_is_in_turn_and_everybody_gets_one(server):
    """8 large pushes at once through a bound of four."""
    finished = []

    def push(number):
        with server.connect() as connection:
            connection.sock.settimeout(60)
            table = connection.table("own", dim=DIM)
            reply = connection.call(
                wire.PUSH, [keys(table, range(15000)),
                            rows(table, numpy.ones((15000, DIM)))], number=1)
            finished.append(reply.status)

    threads = [threading.Thread(target=push, args=(i,)) for i in range(8)]
    with Watch(server) as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert finished == [wire.OK] * 8
    watch.assert_bounded()
    with server.connect() as connection:
        table = connection.table("own", dim=DIM)
        reply = connection.call(wire.LOOKUP, [keys(table, [0])])
        one, start = reply.find(wire.ROWS)[:4], struct.pack("<f", 0)
        assert one != start
    found = metrics(server)
    assert found("recps_connections_refused_total", reason="stalled") == 0
    assert found("recps_buffer_limit_bytes") == LIMIT


def test_a_request_that_was_not_read_in_time_is_not_done(server):
    """Its connection is not read from, for nobody takes the replies."""
    with server.connect() as connection:
        table = connection.table("slow", dim=4096)
        lookup = [keys(table, range(1000))]  # 16 MB of reply
        frames = [wire.frame(wire.LOOKUP, lookup, i) for i in range(10, 13)]
        push = wire.frame(
            wire.PUSH, [keys(table, [1]), rows(table, numpy.ones((1, 4096)))],
            99, number=1, deadline_us=100_000)
        connection.send(b"".join(frames) + push)
        time.sleep(0.5)
        statuses = [connection.receive().status for _ in range(4)]
        assert statuses == [wire.OK] * 3 + [wire.DEADLINE]
        table_now = {t["name"]: t for t in server.stat()["tables"]}["slow"]
        assert table_now["rows"] == 0


def test_memory_of_connections_counts_in_the_memory_limit(server):
    with server.connect() as connection:
        connection.table("slow", dim=DIM)
        before = metrics(server)("recps_memory_used_bytes")
        connection.send(wire.header(wire.PUSH, 16 * MIB, 2) + bytes(8 * MIB))
        programs.until(lambda: metrics(server)("recps_memory_used_bytes")
                       >= before + 7 * MIB)
    programs.until(
        lambda: metrics(server)("recps_memory_used_bytes") == before)
