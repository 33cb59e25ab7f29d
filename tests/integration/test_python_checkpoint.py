# SPDX-License-Identifier: Apache-2.0
"""recps.checkpoint against the tables that were saved, and the manual's code."""
import json
import re
import shutil

import pytest

import package
import programs

recps = package.load()
import numpy  # noqa: E402
from recps import checkpoint  # noqa: E402

DIM = 3


def rows_of(table):
    """What the table holds now: {key: (row, slots, meta)}."""
    return {int(k): (row, slots, int(meta)) for batch in table.read()
            for k, row, slots, meta in zip(*batch)}


def assert_same(saved, table):
    """A checkpoint's table is what a scan of the live one said."""
    live = rows_of(table)
    keys = numpy.array(sorted(live), numpy.uint64)
    numpy.testing.assert_array_equal(saved.keys, keys)
    assert len(saved) == len(live)
    rows = [live[int(k)][0] for k in keys]
    numpy.testing.assert_array_equal(
        saved.rows_of(), numpy.reshape(rows, (len(keys), DIM)))
    slots = numpy.concatenate(
        [saved.slots_of(name) for name in saved.slot_names], axis=1)
    numpy.testing.assert_array_equal(
        slots, numpy.reshape([live[int(k)][1] for k in keys],
                             (len(keys), slots.shape[1])))
    meta = numpy.array([live[int(k)][2] for k in keys], numpy.uint32)
    numpy.testing.assert_array_equal(
        saved.last_of() | saved.uses_of().astype("u4") << 24, meta)


def push(table, draw, n):
    ids = draw.integers(-2**63, 2**63 - 1, n)
    ids[: n // 2] = draw.integers(0, 50, n // 2)
    table.push(ids, draw.normal(size=(n, DIM)).astype("f4"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A full checkpoint, and three deltas on it, of one process."""
    where = tmp_path_factory.mktemp("checkpoints")
    states = {}
    draw = numpy.random.default_rng(5)
    with recps.connect("embedded", checkpoint_dir=where) as client:
        tables = {kind: client.get_embedding_table(
            f"t_{kind}", DIM, value_dtype=kind, optimizer="adam")
            for kind in ("float32", "float16", "bfloat16")}
        for step in (1, 2, 3, 4):
            for kind, table in tables.items():
                push(table, draw, 200)
                if step > 2:
                    table.erase(numpy.arange(10 * step, 10 * step + 5))
                states[step, kind] = rows_of(table)
            saved = client.save(step, deltas_max=3, keep=9,
                                data_position={"at": step})
            assert saved.is_delta == (step > 1)
        for table in tables.values():
            table.drop()
    return where, states


class Scanned:
    """What rows_of() found, in place of the table."""

    def __init__(self, state):
        self.state = state

    def read(self):
        keys = list(self.state)
        yield (keys, *([self.state[k][i] for k in keys] for i in range(3)))


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_checkpoint_is_what_was_saved(folder, step, kind):
    where, states = folder
    saved = checkpoint.Checkpoint(where / f"ckpt-{step:012d}")
    assert (saved.step, saved.is_delta, saved.data_position, len(saved.chain)
            ) == (step, step > 1, {"at": step}, step)
    assert saved.tables == ("t_bfloat16", "t_float16", "t_float32")
    assert_same(saved.table(f"t_{kind}"), Scanned(states[step, kind]))


def test_parts_are_views_of_the_mapped_files(folder):
    part = checkpoint.Checkpoint(
        folder[0] / "ckpt-000000000001").table("t_float32").parts[0]
    for column in (part.keys, part.rows, part.slot("m"), part.uses):
        assert isinstance(column, numpy.memmap)
        assert not column.flags.writeable
    wanted = numpy.load(part.folder / "0-of-1.rows.npy")
    numpy.testing.assert_array_equal(part.rows, wanted)


def test_rows_are_aligned_with_ids_of_any_shape(folder):
    table = checkpoint.open_newest(folder[0]).table("t_float32")
    state = folder[1][4, "float32"]
    present = [k for k in state if k < 2**63][:4]
    ids = numpy.array([present, [*present[:3], 77777]])
    found = table.rows_of(ids, absent=9)
    assert found.shape == (2, 4, DIM)
    numpy.testing.assert_array_equal(found[0, 1], state[present[1]][0])
    assert (found[1, 3] == 9).all() and (table.rows_of(77777) == 0).all()
    assert table.find(77777) == -1 and present[0] in table
    assert 77777 not in table
    assert table.slots_of("v", ids).shape == (2, 4, DIM)
    with pytest.raises(KeyError, match="m, v"):
        table.slots_of("accumulator")


def test_what_a_server_and_an_older_version_saved_is_read(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as first:
        with recps.connect(package.cluster_of(first, chief=True),
                           connect_timeout=10) as client:
            table = client.get_embedding_table("t", DIM, optimizer="adagrad")
            push(table, numpy.random.default_rng(6), 300)
            client.save(7)
            assert_same(checkpoint.open_newest(tmp_path).table("t"), table)
    data = programs.ROOT / "tests/data/checkpoint-1"
    for path in sorted(data.glob("**/manifest.json")):
        saved = checkpoint.Checkpoint(path.parent)
        for name in saved.tables:
            read = saved.table(name)
            assert len(read) == saved.manifest["tables"][name]["rows"]
            base = (read.keys % numpy.uint64(1000)).astype("f4")[:, None]
            quarters = numpy.arange(read.dimension, dtype="f4") / 4
            numpy.testing.assert_array_equal(read.rows_of(), base + quarters)
            for number, slot in enumerate(read.slot_names):
                more = number * read.dimension / 4 + 0.5
                numpy.testing.assert_array_equal(
                    read.slots_of(slot), base + quarters + numpy.float32(more))


def test_the_slot_of_a_key_is_xxhashs():
    xxhash = pytest.importorskip("xxhash")
    keys = numpy.random.default_rng(1).integers(
        0, 2**64 - 1, 300, dtype=numpy.uint64)
    for seed in (0, 1, 2**31 + 7, 12345678901234567890, 2**64 - 1):
        wanted = [xxhash.xxh3_64_intdigest(int(k).to_bytes(8, "little"), seed)
                  >> 52 for k in keys]
        assert checkpoint.slots_of(keys, seed).tolist() == wanted


def test_what_is_not_whole_is_named(folder, tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="no complete"):
        checkpoint.open_newest(tmp_path)
    shutil.copytree(folder[0], tmp_path / "all")
    where = tmp_path / "all"
    last = where / "ckpt-000000000004"
    rows = last / "table-t_float32/0-of-1.rows.npy"
    rows.write_bytes(rows.read_bytes()[:-4])
    with pytest.raises(checkpoint.CheckpointError, match="rows.npy"):
        checkpoint.Checkpoint(last).table("t_float32").rows_of()
    keys = last / "table-t_float16/0-of-1.keys.npy"
    numpy.save(keys, numpy.load(keys).astype("<i4"))
    with pytest.raises(checkpoint.CheckpointError, match="keys.npy: <i4"):
        len(checkpoint.Checkpoint(last).table("t_float16"))
    numpy.save(keys, numpy.array([print], object), allow_pickle=True)
    with pytest.raises(checkpoint.CheckpointError, match="keys.npy"):
        len(checkpoint.Checkpoint(last).table("t_float16"))
    shutil.rmtree(where / "ckpt-000000000002")
    with pytest.raises(checkpoint.CheckpointError, match="000002"):
        checkpoint.Checkpoint(last).table("t_bfloat16")
    with pytest.raises(KeyError, match="t_float32"):
        checkpoint.Checkpoint(where / "ckpt-000000000001").table("nobody")
    manifest = where / "ckpt-000000000003/manifest.json"
    value = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**value, "format": 2}))
    with pytest.raises(checkpoint.CheckpointError, match="format 2"):
        checkpoint.Checkpoint(manifest.parent)
    evil = {**value, "parent": {"name": "../x", "digest": ""}}
    manifest.write_text(json.dumps(evil))
    with pytest.raises(checkpoint.CheckpointError, match=re.escape("../x")):
        checkpoint.Checkpoint(manifest.parent).table("t_float32")
    manifest.write_text("[")
    with pytest.raises(checkpoint.CheckpointError, match="no JSON"):
        checkpoint.Checkpoint(manifest.parent)
    (where / "ckpt-000000000001/part-0-of-1.json").unlink()
    with pytest.warns(checkpoint.CheckpointWarning) as said:
        assert checkpoint.steps_of(where) == [4]
    words = sorted(str(each.message) for each in said)
    assert len(words) == 2 and {each.filename for each in said} == {__file__}
    assert "000001/part-0-of-1.json: No such file" in words[0]
    assert "000003/manifest.json: no JSON" in words[1]
    (last / "manifest.json").unlink()
    with pytest.warns(checkpoint.CheckpointWarning, match="000004/manifest"):
        with pytest.raises(checkpoint.CheckpointError, match="no complete"):
            checkpoint.open_newest(where)
