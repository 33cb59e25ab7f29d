# SPDX-License-Identifier: Apache-2.0
"""recps export and import: tables go out as arrays and come in from them."""
import json
import re
import struct

import numpy
import pytest

import deltas
import programs
from test_checkpoint_tools import answer, random_of, recps

NAMES = {"<f4": "F32", "<f2": "F16", "<i8": "I64", "<u8": "U64", "<u4": "U32",
         "|u1": "U8", "<f8": "F64"}
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "U8": "u1",
         "U32": "<u4"}


def write_safetensors(path, tensors):
    """The format by its description: u64, JSON, data."""
    header, data = {}, b""
    for name, array in tensors.items():
        array = numpy.ascontiguousarray(array)
        end = len(data) + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype.str],
                        "shape": list(array.shape),
                        "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    blob = path.read_bytes()
    length, = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + length])
    assert header.pop("__metadata__")["format"] == "pt"
    found = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        array = numpy.frombuffer(blob[8 + length:][first:end],
                                 TYPES[entry["dtype"]])
        found[name] = array.reshape(entry["shape"])
    return found, {n: e["dtype"] for n, e in header.items()}


@pytest.fixture(name="job", scope="module")
def make_job(tmp_path_factory):
    return deltas.chain(tmp_path_factory.mktemp("ckpt"), random_of(31))


def columns_of(table):
    """The arrays of a table in the order of its keys."""
    keys = sorted(table.rows)
    rows = [table.rows[k] for k in keys]
    columns = {"keys": numpy.array(keys, "<u8"),
               "rows": numpy.array([r.value for r in rows]),
               "uses": numpy.array([r.uses for r in rows], "u1"),
               "last": numpy.array([r.last for r in rows], "<u4")}
    for slot in table.widths:
        columns[f"slot-{slot}"] = numpy.array([r.slots[slot] for r in rows])
    return columns


def widened(bits):
    return (bits.astype("<u4") << 16).view("<f4")


@pytest.mark.parametrize("name", ["emb", "lazy", "half", "brain", "late"])
def test_a_table_goes_out_as_npy_and_comes_back(job, tmp_path, name):
    out, table = tmp_path / "out", job.tables[name]
    said = answer("export", job.folder, name, "--out", out)
    assert said["rows"] == len(table.rows)
    wanted = columns_of(table)
    assert {p.stem for p in out.iterdir()} == wanted.keys()
    order = numpy.argsort(numpy.load(out / "keys.npy"))
    for column, array in wanted.items():
        if column == "rows" and name == "brain":
            array = widened(array)
        numpy.testing.assert_array_equal(
            numpy.load(out / f"{column}.npy")[order], array)
    back(job, tmp_path, name, out)


@pytest.mark.parametrize("name", ["emb", "half", "brain"])
def test_a_table_goes_out_as_safetensors_and_comes_back(job, tmp_path, name):
    out, table = tmp_path / "out.safetensors", job.tables[name]
    recps("export", job.folder, name, "--out", out)
    found, types = read_safetensors(out)
    wanted = columns_of(table)
    assert found.keys() == wanted.keys() and types["keys"] == "I64"
    order = numpy.argsort(found["keys"].view("<u8"))
    for column, array in wanted.items():
        numpy.testing.assert_array_equal(
            found[column][order].astype(array.dtype), array)
    back(job, tmp_path, name, out)


def back(job, tmp_path, name, path):
    """What was exported, imported again, is the same table bit for bit."""
    table = job.tables[name]
    recps("import", name, path, f"optimizer={table.spec['optimizer']}",
          f"value_dtype={table.spec['value_dtype']}",
          "--checkpoint", tmp_path / "new", "--parts", 3, "--step", 5)
    folder = tmp_path / "new/ckpt-000000000005"
    assert deltas.read(folder, name) == table.rows
    answer("verify", folder)


def test_a_second_table_joins_the_first(job, tmp_path):
    recps("export", job.folder, "emb", "--out", tmp_path / "emb")
    recps("export", job.folder, "lazy", "--out", tmp_path / "lazy")
    new = tmp_path / "new"
    recps("import", "emb", tmp_path / "emb", "optimizer=adagrad",
          "--checkpoint", new, "--parts", 2)
    recps("import", "lazy", tmp_path / "lazy", "optimizer=adam",
          "--checkpoint", new)
    folder = new / "ckpt-000000000001"
    for name in ("emb", "lazy"):
        assert deltas.read(folder, name) == job.tables[name].rows
    assert len(json.loads((folder / "manifest.json").read_text())["parts"]) == 2
    run = recps("launch", "--ps", 3, "--workers", 1, "--checkpoint-dir", new,
                "--start-from", "newest", "--", "sh", "-c",
                "recps digest --json && recps shutdown --now")
    said = json.loads(re.search(r"\{.*\}", run.stdout).group())
    assert {t["name"]: int(t["digest"], 16) for t in said["tables"]} == {
        n: job.tables[n].digest() for n in ("emb", "lazy")}
    said = answer("import", "emb", tmp_path / "emb", "optimizer=adagrad",
                  "--checkpoint", new, code=70)
    assert "already" in said["error"]
    assert deltas.read(folder, "emb") == job.tables["emb"].rows


def test_rows_alone_begin_with_fresh_slots(tmp_path):
    random = random_of(5)
    rows = random.normal(size=(40, 3)).astype("<f4")
    keys = random.permutation(40).astype("<i4") - 20
    numpy.save(tmp_path / "k.npy", keys)
    numpy.save(tmp_path / "r.npy", rows)
    recps("import", "t", "optimizer=adagrad", "initial_accumulator=0.25",
          "--keys", tmp_path / "k.npy", "--rows", tmp_path / "r.npy",
          "--checkpoint", tmp_path / "new")
    found = deltas.read(tmp_path / "new/ckpt-000000000001", "t")
    assert found.keys() == {int(k) % 2**64 for k in keys}
    for key, row in zip(keys, rows):
        one = found[int(key) % 2**64]
        numpy.testing.assert_array_equal(one.value, row)
        assert (one.slots["accumulator"] == 0.25).all()
        assert (one.uses, one.last) == (0, 0)


def test_a_matrix_without_keys_is_numbered(tmp_path):
    rows = random_of(6).normal(size=(7, 2)).astype("<f4")
    write_safetensors(tmp_path / "model.safetensors",
                      {"user.weight": rows, "other": numpy.zeros(3, "<f4")})
    said = answer("import", "user", tmp_path / "model.safetensors",
                  "--checkpoint", tmp_path / "new", code=70)
    assert "user.weight, other" in said["error"]
    recps("import", "user", tmp_path / "model.safetensors", "--keys", "range",
          "--rows", "user.weight", "--checkpoint", tmp_path / "new")
    found = deltas.read(tmp_path / "new/ckpt-000000000001", "user")
    assert sorted(found) == list(range(7))
    numpy.testing.assert_array_equal(found[3].value, rows[3])


def arrays(n=6, dim=2):
    return {"keys": numpy.arange(n, dtype="<u8"),
            "rows": numpy.ones((n, dim), "<f4")}


def with_value(name, at, value):
    changed = arrays()
    changed[name][at] = value
    return changed


BAD = {
    "nan": (with_value("rows", (3, 1), numpy.nan), "key 3: column 1"),
    "infinity": (with_value("rows", (2, 0), numpy.inf), "key 2: column 0"),
    "twice": (with_value("keys", 4, 1), "key 1 is there twice"),
    "shape": ({**arrays(), "keys": numpy.arange(5, dtype="<u8")}, "shape (6)"),
    "flat": ({**arrays(), "rows": numpy.ones(6, "<f4")}, "(rows, dim)"),
    "double": ({**arrays(), "rows": numpy.ones((6, 2))}, "astype"),
    "floats": ({**arrays(), "keys": numpy.arange(6, dtype="<f4")}, "<u8 <i8"),
    "slot": ({**arrays(), "slot-accumulator": numpy.ones((6, 3), "<f4")},
             "slots have 2 dimensions (6, 3)"),
    "slots, too many": ({**arrays(), "slot-accumulator":
                         numpy.ones((6, 2), "<f4"), "slot-m":
                         numpy.ones((6, 2), "<f4")}, "--weights-only"),
    "slot of another": ({**arrays(), "slot-m": numpy.ones((6, 2), "<f4")},
                        "slot-accumulator of adagrad is not there"),
    "slot nan": ({**arrays(), "slot-accumulator":
                  numpy.full((6, 2), numpy.nan, "<f4")}, "a slot is not finite"),
    "last": ({**arrays(), "last": numpy.full(6, 2**24, "<u4")}, "2^24"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_bad_rows_are_refused_with_words(tmp_path, case, kind):
    bad, words = BAD[case]
    if kind == "npy":
        path = tmp_path / "bad"
        path.mkdir()
        for name, array in bad.items():
            numpy.save(path / f"{name}.npy", array)
    elif case == "floats":
        pytest.skip("the same check")
    else:
        path = tmp_path / "bad.safetensors"
        write_safetensors(path, bad)
    said = answer("import", "t", path, "optimizer=adagrad",
                  "--checkpoint", tmp_path / "new", code=70)
    assert words in said["error"], said
    assert not (tmp_path / "new").exists() or not any(
        (tmp_path / "new").iterdir())


def test_a_table_that_cannot_be_is_refused(tmp_path):
    write_safetensors(tmp_path / "t.safetensors", arrays())
    said = answer("import", "t", tmp_path / "t.safetensors", "--step", 0,
                  "--checkpoint", tmp_path / "new", code=64)
    assert "before any row" in said["error"]
    for words, wanted in (("optimizer=nothing", "optimizer"),
                          ("no_such_field=1", "no_such_field"),
                          ("learning_rate=-1", "learning_rate")):
        said = answer("import", "t", tmp_path / "t.safetensors", words,
                      "--checkpoint", tmp_path / "new", code=64)
        assert wanted in said["error"]
    assert answer("import", "t", tmp_path / "nowhere.safetensors",
                  "--checkpoint", tmp_path / "new", code=66)["exit"] == 66
    for blob in (b"", b"x" * 100, struct.pack("<Q", 2**40) + b"{}",
                 struct.pack("<Q", 2) + b"[]",
                 struct.pack("<Q", 60) + b'{"keys":{"dtype":"I64","shape":[9],'
                 b'"data_offsets":[0,72]}}   '):
        (tmp_path / "bad").write_bytes(blob)
        answer("import", "t", tmp_path / "bad", "--checkpoint",
               tmp_path / "new", code=65)


def test_export_replaces_nothing(job, tmp_path):
    (tmp_path / "there").mkdir()
    said = answer("export", job.folder, "emb", "--out", tmp_path / "there",
                  code=70)
    assert "already" in said["error"]
    said = answer("export", job.folder, "nothing", "--out", tmp_path / "x",
                  code=70)
    assert "nothing" in said["error"]
    assert [p.name for p in tmp_path.iterdir()] == ["there"]


def test_rows_go_into_a_running_table(recpsd, job, tmp_path):
    hosts = f"127.0.0.1:{recpsd.port}"
    recps("export", job.folder, "lazy", "--out", tmp_path / "lazy")
    said = answer("import", "lazy", tmp_path / "lazy", "--ps-hosts", hosts,
                  code=70)
    assert "lazy" in said["error"]
    said = answer("import", "lazy", tmp_path / "lazy", "optimizer=adam",
                  "--ps-hosts", hosts)
    assert said["rows"] == len(job.tables["lazy"].rows)
    running = answer("digest", "--ps-hosts", hosts)["tables"]
    assert [(t["name"], t["rows"], int(t["digest"], 16)) for t in running] == [
        ("lazy", len(job.tables["lazy"].rows), job.tables["lazy"].digest())]
    write_safetensors(tmp_path / "bad.safetensors", arrays(dim=3))
    said = answer("import", "lazy", tmp_path / "bad.safetensors",
                  "--ps-hosts", hosts, code=70)
    assert "dim 2" in said["error"]


assert programs.RECPS.is_file()
