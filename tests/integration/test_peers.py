# SPDX-License-Identifier: Apache-2.0
"""What went wrong in systems that do the same job, at the daemon: the right
behaviour. tests/README.md has the whole list and where each one stands."""
import glob
import random
import struct
import threading
import time

import numpy
import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

DIM = 4


def keys(table, values):
    return wire.section(wire.KEYS, numpy.asarray(values, "<u8").tobytes(),
                        table_id=table, count=len(values))


def gradients(table, values, lr=float("nan")):
    values = numpy.asarray(values, "<f4")
    return wire.section(wire.ROWS, values.tobytes(), table_id=table,
                        dim=values.shape[1], count=len(values),
                        learning_rate=lr)


@pytest.fixture
def saving(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        yield server, tmp_path
        assert server.stop() == 143, server.log()


class Storm:
    """Pushes of new and of old keys, until it is told to end."""

    def __init__(self, server):
        self.server, self.over, self.failed = server, False, []
        self.threads = [threading.Thread(target=self.guard, args=(i,))
                        for i in range(3)]

    def guard(self, number):
        try:
            self.push(number)
        except Exception as error:  # told in the test's thread
            self.failed.append(error)

    def push(self, number):
        drawn = numpy.random.default_rng(number)
        with self.server.connect() as connection:
            table = connection.table(dim=DIM, optimizer="adam")
            step = 0
            while not self.over:
                step += 1
                new = (number << 40) + step * 64 + numpy.arange(64)
                old = drawn.integers(0, 500, 64)
                g = drawn.standard_normal((128, DIM))
                reply = connection.call(
                    wire.PUSH, [keys(table, numpy.concatenate([new, old])),
                                gradients(table, g)], number=step)
                assert reply.status == wire.OK, reply.text

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for thread in self.threads:
            thread.join()
        assert not self.failed, self.failed


def test_a_save_under_a_push_storm_has_whole_rows(saving):
    """DeepRec 1023: weights, m and v are saved one after the other while
    workers insert; each has other keys, and what is restored has optimizer
    state of 9e37."""
    server, folder = saving
    with Storm(server), server.connect() as connection:
        while not any(t["rows"] > 2000 for t in server.stat()["tables"]):
            time.sleep(0.01)
        for step in range(1, 5):
            reply = connection.call(
                wire.SAVE, [wire.text({"action": "prepare"})], step=step,
                number=2 * step - 1)
            assert reply.status == wire.OK, reply.text
            parts = {name: numpy.load(path) for path in glob.glob(
                f"{folder}/.tmp-ckpt-{step:012d}*/table-emb/*.npy")
                for name in [path.rsplit("/", 1)[1].split(".", 1)[1]]}
            check_parts(parts, reply.json["part"]["tables"]["emb"]["rows"])
            connection.call(wire.SAVE, [wire.text({"action": "abort"})],
                            step=step, number=2 * step)


def check_parts(parts, rows):
    assert {"keys.npy", "rows.npy", "slot-m.npy", "slot-v.npy", "uses.npy",
            "last.npy"} <= set(parts), sorted(parts)
    for name, array in parts.items():
        if not name.startswith("admission"):
            assert len(array) == rows, name
    assert len(numpy.unique(parts["keys.npy"])) == rows
    assert (parts["uses.npy"] > 0).all()
    values, m, v = (parts[n + ".npy"] for n in ("rows", "slot-m", "slot-v"))
    for array in (values, m, v):
        assert numpy.isfinite(array).all() and numpy.abs(array).max() < 100
    assert (v >= 0).all()
    # a pushed row has moments in every column: gradients are never 0
    assert (v > 0).all() and (m != 0).all()


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_bad_requests_beside_good_ones_never_end_the_server(recpsd):
    """tensornet: the push of an unseen key aborts the server; a row is copied
    after its lock is gone."""
    noise = random.Random(3)
    with Storm(recpsd), recpsd.connect() as connection:
        table = connection.table(dim=DIM, optimizer="adam")
        for number in range(1, 300):
            kind = noise.randrange(5)
            unseen = [noise.randrange(2**64) for _ in range(8)]
            sections = [keys(table, unseen),
                        gradients(table, numpy.zeros((8, DIM)))]
            if kind == 1:
                sections[1]["dim"] = noise.randrange(2**32)
            elif kind == 2:
                sections[0]["count"] = noise.randrange(2**64)
            elif kind == 3:
                sections[1]["table_id"] = noise.randrange(2**64)
            elif kind == 4:
                sections[1]["data"] = struct.pack(
                    "<32f", *[float("nan")] * 32)
            try:
                reply = connection.call(wire.PUSH, sections, number=number)
                assert kind not in (1, 3) or reply.status < 0
            except (EOFError, ConnectionResetError):
                break
    recpsd.assert_serves()


@pytest.mark.skipif(
    programs.RECPSD.is_file() and b"__asan_init" in programs.RECPSD.read_bytes(),
    reason="the sanitizer keeps what is freed")
def test_making_and_emptying_tables_leaves_the_server_flat(recpsd):
    """DeepRec 252: memory grows with each reload of the model. RESTORE of
    step 0 takes every table away."""
    sizes = []
    with recpsd.connect() as connection:
        number = 0
        values = numpy.arange(20000) * 7919
        for turn in range(12):
            reply = connection.call(wire.GET_TABLE, [wire.text({
                "name": f"emb{turn}", "dimension": 32, "optimizer": "sgd"})],
                epoch=turn)
            assert reply.status == wire.OK, reply.text
            table = int(reply.json["table_id"], 16)
            for start in range(0, len(values), 4000):
                number += 1
                part = values[start:start + 4000] + turn
                reply = connection.call(
                    wire.PUSH, [keys(table, part), gradients(
                        table, numpy.ones((len(part), 32)))], number=number,
                    epoch=turn)
                assert reply.status == wire.OK, reply.text
            reply = connection.call(wire.RESTORE, [wire.text({
                "epoch": turn + 1, "step": 0, "mode": "async",
                "combine": "sum", "replicas": 1, "step_timeout_ms": 60000,
                "step_bytes_max": 1 << 20})], epoch=turn + 1)
            assert reply.status == wire.OK, reply.text
            sizes.append(resident(recpsd))
    assert recpsd.stat()["tables"] == []
    assert sizes[-1] < sizes[3] + (8 << 20), sizes
