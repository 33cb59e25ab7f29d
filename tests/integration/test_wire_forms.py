# SPDX-License-Identifier: Apache-2.0
"""What travels, byte by byte, held to NumPy: value types of rows, sums and
gradients of bags, checksums, and requests that are taken back."""
import struct

import numpy
import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

DIM = 7  # odd: an i8 row has padding
TYPES = ["f32", "f16", "bf16", "i8"]


# ---- the types, from proto/PROTOCOL.md ----

def bf16(rows):
    """To nearest, ties to even, by integers."""
    bits = numpy.asarray(rows, "<f4").view("<u4").astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def i8(rows):
    """A scale a row, then the steps, then zeros."""
    coded = b""
    for row in numpy.asarray(rows, "<f4"):
        scale = numpy.float32(numpy.abs(row).max() / numpy.float32(127))
        steps = numpy.rint(row / scale) if scale > 0 else row * 0
        coded += struct.pack("<f", scale) + steps.astype("i1").tobytes()
        coded += bytes(-len(row) % 4)
    return coded


def encode(kind, rows):
    rows = numpy.asarray(rows, "<f4")
    return {"f32": rows.tobytes, "f16": rows.astype("<f2").tobytes,
            "bf16": bf16(rows).tobytes, "i8": lambda: i8(rows)}[kind]()


def decode(kind, data, dim=DIM):
    if kind == "f32":
        return numpy.frombuffer(data, "<f4").reshape(-1, dim)
    if kind == "f16":
        return numpy.frombuffer(data, "<f2").astype("<f4").reshape(-1, dim)
    if kind == "bf16":
        wide = numpy.frombuffer(data, "<u2").astype("<u4") << numpy.uint32(16)
        return wide.view("<f4").reshape(-1, dim)
    row = 4 + (dim + 3) // 4 * 4
    parts = [data[i:i + row] for i in range(0, len(data), row)]
    return numpy.array([numpy.frombuffer(p[4:4 + dim], "i1").astype("<f4") *
                        numpy.frombuffer(p[:4], "<f4") for p in parts], "<f4")


# ---- sections ----

def numbers(kind, code, values, table, **fields):
    return wire.section(kind, numpy.asarray(values, code).tobytes(),
                        table_id=table, count=len(values), **fields)


def keys_of(values, table, kind="f32"):
    return numbers(wire.KEYS, "<u8", values, table, value=TYPES.index(kind))


def rows_of(kind, rows, table, rate=1.0, count=None):
    rows = numpy.asarray(rows, "<f4")
    return wire.section(
        wire.ROWS, encode(kind, rows), table_id=table, dim=rows.shape[1],
        value=TYPES.index(kind), learning_rate=rate,
        count=len(rows) if count is None else count)


def bags_of(index, offsets, table):
    return [numbers(wire.INDEX, "<u4", index, table),
            numbers(wire.OFFSETS, "<u4", offsets, table)]


KEYS = numpy.array([5, 0, 2**64 - 1, 2**63, 77, 1 << 40], "u8")
INDEX = [0, 3, 3, 1, 5, 4, 2, 0, 0]
OFFSETS = [0, 3, 3, 4, 9, 9]


@pytest.fixture
def world(recpsd):
    """A connection, a table of zeros at rate 1, and rows in it."""
    with recpsd.connect() as connection:
        table = connection.table(dim=DIM, initializer="zeros")
        draw = numpy.random.default_rng(5)
        rows = draw.normal(0, 3, (len(KEYS), DIM)).astype("<f4")
        rows[1] *= numpy.float32(1e-6)  # subnormal as f16
        push = connection.call(
            wire.PUSH, [keys_of(KEYS, table), rows_of("f32", -rows, table)])
        assert push.status == wire.OK, push.text
        yield connection, table, rows


def look(connection, table, keys=KEYS):
    reply = connection.call(wire.LOOKUP, [keys_of(keys, table)])
    assert reply.status == wire.OK, reply.text
    return decode("f32", reply.find(wire.ROWS))


def sums_of(rows):
    """In float32, in the order of the occurrences."""
    sums = numpy.zeros((len(OFFSETS) - 1, rows.shape[1]), "<f4")
    for bag in range(len(sums)):
        for at in range(OFFSETS[bag], OFFSETS[bag + 1]):
            sums[bag] += rows[INDEX[at]]
    return sums


@pytest.mark.parametrize("kind", TYPES)
def test_rows_travel_as_numpy_rounds_them(world, kind):
    connection, table, rows = world
    reply = connection.call(wire.LOOKUP, [keys_of(KEYS, table, kind)])
    assert reply.status == wire.OK, reply.text
    assert reply.sections[0]["value"] == TYPES.index(kind)
    assert reply.find(wire.ROWS) == encode(kind, rows)


@pytest.mark.parametrize("kind", TYPES)
def test_sums_of_bags_travel_as_numpy_rounds_them(world, kind):
    connection, table, rows = world
    reply = connection.call(
        wire.LOOKUP,
        [keys_of(KEYS, table, kind), *bags_of(INDEX, OFFSETS, table)])
    assert reply.status == wire.OK, reply.text
    assert reply.find(wire.ROWS) == encode(kind, sums_of(rows))


@pytest.mark.parametrize("kind", TYPES)
def test_gradients_count_as_they_were_rounded(world, kind):
    connection, table, rows = world
    gradients = numpy.random.default_rng(6).normal(0, 1, rows.shape)
    push = connection.call(wire.PUSH, [
        keys_of(KEYS, table), rows_of(kind, gradients, table)])
    assert push.status == wire.OK, push.text
    expected = rows - decode(kind, encode(kind, gradients))
    numpy.testing.assert_array_equal(look(connection, table), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_a_bags_gradient_goes_to_each_of_its_keys(world, kind):
    connection, table, rows = world
    gradients = numpy.random.default_rng(7).normal(0, 1, (5, DIM))
    read = decode(kind, encode(kind, gradients))
    sums = numpy.zeros_like(rows)
    for bag in range(5):
        for at in range(OFFSETS[bag], OFFSETS[bag + 1]):
            sums[INDEX[at]] += read[bag]
    push = connection.call(wire.PUSH, [
        keys_of(KEYS, table), *bags_of(INDEX, OFFSETS, table),
        rows_of(kind, gradients, table)])
    assert push.status == wire.OK, push.text
    numpy.testing.assert_array_equal(look(connection, table), rows - sums)


def test_a_bag_may_hold_more_uses_than_a_frame_has_keys(world):
    """A million occurrences of one key: 4 bytes each."""
    connection, table, rows = world
    n = 1 << 20
    reply = connection.call(wire.LOOKUP, [
        keys_of([5], table), *bags_of(numpy.zeros(n, "<u4"), [0, n], table)])
    assert reply.status == wire.OK, reply.text
    total = decode("f32", reply.find(wire.ROWS))[0].astype(float)
    numpy.testing.assert_allclose(total, rows[0].astype(float) * n, rtol=1e-2)


# ---- wrong forms ----

def wrong_bags(table):
    rows = numpy.ones((5, DIM))
    good = bags_of(INDEX, OFFSETS, table)
    yield "descending", bags_of(INDEX, [0, 3, 2, 4, 9, 9], table), rows
    yield "beyond", bags_of(INDEX, [0, 3, 3, 4, 9, 10], table), rows
    yield "not all", bags_of(INDEX, [0, 3, 3, 4, 8, 8], table), rows
    yield "no start", bags_of(INDEX, [1, 3, 3, 4, 9, 9], table), rows
    yield "index", bags_of([0, 3, 3, 1, 6, 4, 2, 0, 0], OFFSETS, table), rows
    yield "twice", good + good[1:], rows
    yield "fewer rows", good, rows[:4]
    yield "more rows", good, numpy.ones((6, DIM))


@pytest.mark.parametrize("which", range(8))
def test_wrong_bags_are_refused_and_change_nothing(world, which):
    connection, table, rows = world
    _, sections, gradients = list(wrong_bags(table))[which]
    push = connection.call(wire.PUSH, [
        keys_of(KEYS, table), *sections, rows_of("f32", gradients, table)])
    assert push.status == wire.INVAL, push.text
    numpy.testing.assert_array_equal(look(connection, table), rows)


def test_a_wrong_scale_refuses_the_push_and_nan_its_row(world):
    connection, table, rows = world
    for scale, status in ((-1.0, wire.INVAL), (float("inf"), wire.INVAL),
                          (float("nan"), wire.OK)):
        row = struct.pack("<f", scale) + b"\x01" * 8
        push = connection.call(wire.PUSH, [
            keys_of([5], table),
            wire.section(wire.ROWS, row, table_id=table, dim=DIM, value=3,
                         count=1, learning_rate=1.0)])
        assert push.status == status, push.text
    numpy.testing.assert_array_equal(look(connection, table), rows)
    stat = connection.call(wire.STAT, [wire.text({})]).json["tables"][0]
    assert (stat["nonfinite"], stat["pushes"]) == (1, 2)


@pytest.mark.hostile
def test_rows_that_are_not_count_times_their_type_cost_the_connection(recpsd):
    for value, size in ((1, 13), (2, 28), (3, 11), (4, 28)):
        with recpsd.connect() as connection:
            table = connection.table(dim=DIM, initializer="zeros")
            connection.send_frame(wire.PUSH, [
                keys_of([5], table),
                wire.section(wire.ROWS, bytes(size), table_id=table, dim=DIM,
                             value=value, count=1, learning_rate=1.0)])
            assert connection.closed()
    recpsd.assert_serves()
    assert recpsd.stat()["tables"][0]["pushes"] == 0


# ---- checksums ----

def test_a_checksum_is_answered_in_kind(world):
    xxhash = pytest.importorskip("xxhash")
    connection, table, rows = world
    body = wire.frame(wire.LOOKUP, [keys_of(KEYS, table)])[64:]
    connection.send(wire.header(
        wire.LOOKUP, len(body), 9, flags=wire.BODY_XXH3,
        body_xxh3=xxhash.xxh3_64_intdigest(body)) + body)
    reply = connection.receive()
    assert reply.status == wire.OK, reply.text
    assert reply.flags & wire.BODY_XXH3
    assert reply.body_xxh3 == xxhash.xxh3_64_intdigest(reply.body)
    numpy.testing.assert_array_equal(
        decode("f32", reply.find(wire.ROWS)), rows)
    # who does not ask gets none
    plain = connection.call(wire.PING)
    assert not plain.flags & wire.BODY_XXH3 and plain.body_xxh3 == 0


@pytest.mark.hostile
def test_a_wrong_checksum_costs_the_connection_and_changes_nothing(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=DIM, initializer="zeros")
        body = wire.frame(wire.PUSH, [
            keys_of(KEYS, table),
            rows_of("f32", numpy.ones((len(KEYS), DIM)), table)])[64:]
        connection.send(wire.header(wire.PUSH, len(body), 9,
                                    flags=wire.BODY_XXH3, body_xxh3=1) + body)
        assert connection.closed()
    recpsd.assert_serves()
    assert recpsd.wait_for_log("fails its checksum")
    assert recpsd.stat()["tables"][0]["pushes"] == 0


# ---- taken back ----

def test_a_step_end_that_waits_is_canceled_by_its_connection(recpsd):
    with recpsd.connect(role="chief", rank=0, replicas=2) as chief:
        begun = chief.call(wire.RESTORE, [wire.text({
            "epoch": 1, "step": 0, "mode": "sync", "combine": "sum",
            "replicas": 2})])
        assert begun.status == wire.OK, begun.text
        waits = chief.send_frame(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": None, "wishes": []})])
        chief.send_frame(wire.CANCEL, [wire.text({"requests": [str(waits)]})])
        first, second = chief.receive(), chief.receive()
        assert (first.request_id, first.status) == (waits, wire.CANCELED)
        assert (second.opcode, second.json) == (wire.CANCEL, {"canceled": 1})
    recpsd.assert_serves()


def test_half_a_push_is_taken_back_by_its_number(world):
    connection, table, rows = world
    parts = [keys_of(KEYS, table), rows_of("f32", rows, table)]
    half = connection.call(wire.PUSH, parts, number=1, flags=wire.MORE)
    assert half.status == wire.OK, half.text
    assert connection.call(wire.CANCEL, number=1).status == wire.CANCELED
    # what still comes of it gets the verdict; the lane goes on
    late = connection.call(wire.PUSH, parts, number=1)
    assert late.status == wire.CANCELED
    numpy.testing.assert_array_equal(look(connection, table), rows)
    done = connection.call(wire.PUSH, parts, number=2)
    assert done.status == wire.OK, done.text
    # too late: the verdict says that it was done
    assert connection.call(wire.CANCEL, number=2).status == wire.OK
    numpy.testing.assert_array_equal(look(connection, table), rows * 0)
