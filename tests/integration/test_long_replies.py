# SPDX-License-Identifier: Apache-2.0
"""Long replies are sent while they are made; who reads them late, or goes
away in the middle, gets what he asked for and stops nobody."""
import contextlib
import time

import numpy
import pytest

import programs
import wire
from exposition import Metrics

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

DIM = 64
ROWS = 4000  # that were pushed
ASKED = 60000  # 15 MiB of them: more than a socket takes at once


@pytest.fixture(scope="module", params=["tcp", "unix"])
def dial(request, tmp_path_factory):
    """A server, and how it is reached."""
    folder = tmp_path_factory.mktemp("near", numbered=True)
    folder.chmod(0o700)
    with programs.Recpsd("--loops", "1", "--unix-dir", str(folder),
                         admin="127.0.0.1:0") as running:
        def connect():
            if request.param == "tcp":
                return running.connect()
            path, = folder.glob("ps-0-*.sock")
            connection = wire.Connection(path)
            reply = connection.hello()
            assert reply.status == wire.OK, reply.text
            return connection
        connect.server = running
        yield connect
        assert running.stop() == 143, running.log()


def keys_of(table, keys, value=wire.F32):
    return wire.section(wire.KEYS, keys.astype("<u8").tobytes(),
                        table_id=table, value=value, count=len(keys))


def pattern(keys):
    """What a key holds: multiples of 1/64, small enough for bf16's 8 bits."""
    steps = (keys[:, None] * 7 + numpy.arange(DIM)) % 128
    return (steps / 64).astype("<f4") * (keys[:, None] < ROWS)


def fill(connection):
    table = connection.table("emb", dim=DIM, learning_rate=1.0,
                             initializer="zeros")
    keys = numpy.arange(ROWS)
    held = rows_of(connection.call(wire.LOOKUP, [keys_of(table, keys)]))
    gradients = held - pattern(keys)
    reply = connection.call(
        wire.PUSH, [keys_of(table, keys), wire.section(
            wire.ROWS, gradients.astype("<f4").tobytes(), table_id=table,
            dim=DIM, count=ROWS)], number=1)
    assert reply.status == wire.OK, reply.text
    return table


def rows_of(reply, value=wire.F32):
    assert reply.status == wire.OK, reply.text
    data = reply.find(wire.ROWS)
    if value == wire.F32:
        rows = numpy.frombuffer(data, "<f4")
    else:  # bf16: the upper half of a float
        halves = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        rows = halves.view("<f4")
    return rows.reshape(-1, DIM)


def drawn(seed):
    return numpy.random.default_rng(seed).integers(0, ROWS + 100, ASKED)


def unsent(server):
    return Metrics(server.get("/metrics")[1])("recps_unsent_bytes")


@pytest.mark.parametrize("value", [wire.F32, wire.BF16])
def test_who_reads_late_gets_every_row(dial, value):
    with dial() as connection:
        table = fill(connection)
        batches = [drawn(seed) for seed in range(3)]
        for keys in batches:
            connection.send_frame(
                wire.LOOKUP, [keys_of(table, keys, value)])
        time.sleep(0.3)
        assert unsent(dial.server) > 0  # the socket is full, the rest is kept
        for keys in batches:
            numpy.testing.assert_array_equal(
                rows_of(connection.receive(), value), pattern(keys))
        reply = connection.call(wire.LOOKUP, [keys_of(table, keys[:10])])
        numpy.testing.assert_array_equal(rows_of(reply), pattern(keys[:10]))


def test_who_goes_away_in_the_middle_stops_nobody(dial):
    with dial() as stays:
        table = fill(stays)
        for seed in range(3):
            goes = dial()
            keys = drawn(seed)
            for _ in range(3):
                goes.send_frame(wire.LOOKUP, [keys_of(table, keys)])
            goes._exactly(1 << 20)
            goes.close()
        keys = drawn(9)
        reply = stays.call(wire.LOOKUP, [keys_of(table, keys)])
        numpy.testing.assert_array_equal(rows_of(reply), pattern(keys))
    end = time.monotonic() + 20
    while unsent(dial.server) > 0 and time.monotonic() < end:
        time.sleep(0.05)
    assert unsent(dial.server) == 0


def test_while_one_does_not_read_others_are_served(dial):
    with contextlib.ExitStack() as stack:
        lazy, other = (stack.enter_context(dial()) for _ in range(2))
        table = fill(other)
        lazy.table("emb", dim=DIM, learning_rate=1.0, initializer="zeros")
        keys = drawn(1)
        lazy.send_frame(wire.LOOKUP, [keys_of(table, keys)])
        for _ in range(20):
            few = keys[:3000]
            numpy.testing.assert_array_equal(
                rows_of(other.call(wire.LOOKUP, [keys_of(table, few)])),
                pattern(few))
        numpy.testing.assert_array_equal(rows_of(lazy.receive()),
                                         pattern(keys))
