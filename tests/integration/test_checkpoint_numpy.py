# SPDX-License-Identifier: Apache-2.0
"""A checkpoint read without recps: docs/CHECKPOINT.md's code, NumPy, xxhash.

The test is the chief: it makes the manifest from the answers of PREPARE, so
every digest here is computed a second time, by other code.
"""
import json
import pathlib
import re
import subprocess

import numpy
import pytest

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRITER = (programs.TESTS_BUILD /
          "tests/unit/embedding/checkpoint/checkpoint_writer")
PARTS = 3
STEP = 42

if not WRITER.exists():
    pytest.skip(f"{WRITER} is not built", allow_module_level=True)
xxhash = pytest.importorskip("xxhash")


def writer(*arguments, text=None):
    run = subprocess.run([str(WRITER), *map(str, arguments)], input=text,
                         capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def chief(answers):
    """The manifest that PROTOCOL.md describes."""
    tables = {}
    for answer in answers:
        for name, table in answer["part"]["tables"].items():
            sum_ = tables.setdefault(
                name, {"spec": table["spec"], "rows": 0, "digest": 0})
            sum_["rows"] += table["rows"]
            sum_["digest"] += int(table["digest"], 16)
    whole = xxhash.xxh3_128()
    for name, table in sorted(tables.items()):
        digest = table["digest"] % 2**128
        table["digest"] = f"{digest:032x}"
        spec = canonical(table["spec"])
        whole.update(name.encode() + b"\0" + spec.encode() + b"\0")
        whole.update(digest.to_bytes(16, "little"))
    manifest = {
        "format": 1, "kind": "full", "parent": None, "step": STEP, "epoch": 1,
        "job_id": "recps", "seed": "0",
        "parts": [{k: a[k] for k in ("file", "bytes", "xxh3")} for a in answers],
        "tables": tables, "data_position": {"epoch": 0, "row": 5376},
        "digest": f"{whole.intdigest():032x}"}
    return json.dumps(manifest, indent=1, sort_keys=True)


def canonical(spec):
    """Keys sorted, no blanks; floats: %.9g, "1.0" for 1, "1e-8" for 1e-08."""
    def text(value):
        if not isinstance(value, float):
            return json.dumps(value)
        digits = re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.9g}")
        return digits if re.search(r"[.e]", digits) else digits + ".0"
    return "{" + ",".join(
        f'"{k}":{text(v)}' for k, v in sorted(spec.items())) + "}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("checkpoints")
    answers = [json.loads(writer("prepare", where, STEP, part, PARTS))
               for part in range(PARTS)]
    manifest = chief(answers)
    for part in range(PARTS):
        writer("commit", where, STEP, part, PARTS, text=manifest)
    return where / f"ckpt-{STEP:012d}"


def documented_code():
    text = (ROOT / "docs/CHECKPOINT.md").read_text(encoding="utf8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def expected():
    keys = numpy.concatenate([
        numpy.arange(1000, dtype="<u8"),
        numpy.uint64(2**64 - 1) - numpy.arange(1000, dtype="<u8")])
    rows = ((keys % numpy.uint64(1000)).astype("<f4")[:, None]
            + numpy.arange(4, dtype="<f4") / 4)
    return keys, rows


def documented_scope(folder, monkeypatch):
    """Every block of the page, run one after the other beside the folder."""
    monkeypatch.chdir(folder.parent)
    scope = {}
    for code in documented_code():
        exec(code, scope)  # pylint: disable=exec-used
    return scope


def bfloat16(values):
    """The nearest bfloat16's bits; of two, the even one."""
    bits = numpy.asarray(values, "<f4").view("<u4")
    even = (bits >> 16) & 1
    return ((bits + 0x7fff + even) >> 16).astype("<u2")


def check_columns(scope, folder, table, stored):
    """Every column of a table in key order; `stored`: rows to stored items."""
    column = lambda s: scope["read_column"](folder, table, s)  # noqa: E731
    keys, rows = column("keys"), column("rows")
    base = (keys % numpy.uint64(1000)).astype("<f4")[:, None]
    wanted_keys, _ = expected()
    assert keys.dtype == "<u8" and rows.dtype == stored(base).dtype
    numpy.testing.assert_array_equal(numpy.sort(keys), numpy.sort(wanted_keys))
    quarters = numpy.arange(rows.shape[1], dtype="<f4") / 4
    numpy.testing.assert_array_equal(rows, stored(base + quarters))
    numpy.testing.assert_array_equal(
        column("uses"), (keys % numpy.uint64(256)).astype("u1"))
    numpy.testing.assert_array_equal(
        column("last"), (keys % numpy.uint64(2**24)).astype("u4"))
    return base


def test_the_documented_code_reads_the_rows(folder, monkeypatch):
    scope = documented_scope(folder, monkeypatch)
    keys, rows = scope["keys"], scope["rows"]
    wanted_keys, wanted_rows = expected()
    order, wanted_order = numpy.argsort(keys), numpy.argsort(wanted_keys)
    assert keys.dtype == "<u8" and rows.dtype == "<f4"
    numpy.testing.assert_array_equal(keys[order], wanted_keys[wanted_order])
    numpy.testing.assert_array_equal(rows[order], wanted_rows[wanted_order])
    column = scope["read_column"]
    numpy.testing.assert_array_equal(
        column(folder, "emb", "slot-accumulator"), rows + numpy.float32(0.5))
    check_columns(scope, folder, "emb", lambda x: x)
    assert column(folder, "empty", "rows").shape == (0, 3)
    assert column(folder, "empty", "slot-m").shape == (0, 3)


def test_a_float16_table_is_numpys_float16(folder, monkeypatch):
    scope = documented_scope(folder, monkeypatch)
    base = check_columns(scope, folder, "half", lambda x: x.astype("<f2"))
    numpy.testing.assert_array_equal(
        scope["read_column"](folder, "half", "slot-momentum"),
        base + numpy.arange(3, dtype="<f4") / 4 + numpy.float32(0.5))
    _, rows = scope["read_rows"](folder, "half")
    assert rows.dtype == "<f4" and abs(rows - base).max() < 1


def test_a_bfloat16_table_is_its_bits(folder, monkeypatch):
    scope = documented_scope(folder, monkeypatch)
    base = check_columns(scope, folder, "brain", bfloat16)
    slot = scope["read_column"](folder, "brain", "slot-accumulator")
    assert slot.shape == (2000, 1)  # one a row
    numpy.testing.assert_array_equal(slot, base + numpy.float32(0.5))
    keys, rows = scope["read_rows"](folder, "brain")
    assert rows.dtype == "<f4" and len(keys) == 2000
    wanted = base + numpy.arange(5, dtype="<f4") / 4
    assert (abs(rows - wanted) <= wanted / 256).all()


def test_counts_of_keys_without_a_row_are_read(folder, monkeypatch):
    scope = documented_scope(folder, monkeypatch)
    wanted = {10000 + i: 1 + i for i in range(100)}
    assert scope["read_counts"](folder, "emb") == wanted
    assert scope["read_counts"](folder, "counted") == wanted
    assert scope["read_counts"](folder, "sketched") == {
        331777 * i: 1 + i for i in range(100)}
    assert scope["read_counts"](folder, "half") == {}
    for part in range(PARTS):
        cells = numpy.load(folder / f"table-sketched/{part}-of-{PARTS}.admission.npy")
        assert (cells[:, 0] // numpy.uint64(8192) * PARTS // 4096 == part).all()


def test_the_documented_code_finds_a_damaged_block(folder, monkeypatch):
    scope = documented_scope(folder, monkeypatch)
    files = sorted(folder.rglob("*.npy")) + [folder / "manifest.json"]
    # emb, half, brain: 5 each; empty: 6; counted, sketched: 4 each; lanes
    counts = sum(1 for file in files if "admission" in file.name)
    assert len(files) == PARTS * (3 * 5 + 6 + 2 * 4 + 1) + counts + 1
    assert counts == PARTS * 3
    for file in files:
        assert scope["damaged_blocks"](file) == [], file
    kept = files[0].read_bytes()
    files[0].write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert scope["damaged_blocks"](files[0]) == [0]
    files[0].write_bytes(kept)


def test_every_file_is_listed_with_its_checksum(folder):
    listed = {"manifest.json", "manifest.json.xxh3"}
    manifest = json.loads((folder / "manifest.json").read_text())
    for part in manifest["parts"]:
        text = (folder / part["file"]).read_bytes()
        assert (len(text), xxhash.xxh3_64_hexdigest(text)) == (
            part["bytes"], part["xxh3"])
        listed.add(part["file"])
        for name, entry in json.loads(text)["files"].items():
            data = (folder / name).read_bytes()
            assert len(data) == entry["bytes"], name
            assert xxhash.xxh3_64_hexdigest(data) == entry["xxh3"], name
            listed.add(name)
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there == listed


def table_digest(folder, parts, table, slots):
    """Row by row, as base/digest.h and the docs say."""
    total = 0
    for part in range(parts):
        load = lambda s, i=part: numpy.load(  # noqa: E731
            folder / f"table-{table}/{i}-of-{parts}.{s}.npy")
        columns = zip(load("keys"), load("rows"),
                      *(load(f"slot-{slot}") for slot in slots),
                      load("uses"), load("last"))
        for row in columns:
            total += xxhash.xxh3_128_intdigest(b"".join(x.tobytes() for x in row))
    return f"{total % 2**128:032x}"


@pytest.mark.parametrize("table, slots", [
    ("emb", ["accumulator"]), ("half", ["momentum"]), ("brain", ["accumulator"]),
    ("empty", ["m", "v"]), ("counted", [])])
def test_the_digest_follows_from_the_files(folder, table, slots):
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = table_digest(folder, PARTS, table, slots)
    assert digest == manifest["tables"][table]["digest"]
    assert int(manifest["tables"]["counted"]["digest"], 16) == 0


def test_verify_gives_the_manifests_digest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert writer("verify", folder).strip() == manifest["digest"]
    assert writer("verify", folder.parent).strip() == manifest["digest"]


def test_lanes_are_an_array(folder):
    lanes = numpy.load(folder / f"lanes-0-of-{PARTS}.npy")
    assert lanes.dtype == "<u8"
    assert lanes.tolist()[0] == [17, 1, 5, 0]
    assert lanes[1].tolist()[:3] == [2**64 - 1, 2, 6]
    assert lanes.view("<i8")[1, 3] == -4


# tests/data/README.md says what the first version wrote.
OLD = ROOT / "tests/data/checkpoint-1/ckpt-000000000042"
OLD_DIGEST = "ad0efbf34d875aa2a4dca5997580c3a5"


def test_an_old_checkpoint_has_its_digest():
    manifest = json.loads((OLD / "manifest.json").read_text())
    assert "admission" not in manifest["tables"]["emb"]["spec"]
    whole = xxhash.xxh3_128()
    for table, slots in (("emb", ["accumulator"]), ("empty", ["m", "v"]),
                         ("lazy", ["m", "v"]), ("plain", [])):
        entry = manifest["tables"][table]
        assert table_digest(OLD, 2, table, slots) == entry["digest"]
        whole.update(table.encode() + b"\0"
                     + canonical(entry["spec"]).encode() + b"\0"
                     + int(entry["digest"], 16).to_bytes(16, "little"))
    assert f"{whole.intdigest():032x}" == manifest["digest"] == OLD_DIGEST
    assert writer("verify", OLD).strip() == OLD_DIGEST


def test_the_documented_code_reads_an_old_checkpoint(monkeypatch):
    scope = documented_scope(OLD, monkeypatch)
    keys, rows = scope["read_rows"](OLD, "lazy")
    base = (keys % numpy.uint64(1000)).astype("<f4")[:, None]
    numpy.testing.assert_array_equal(rows, base + numpy.arange(3, dtype="<f4") / 4)
    for slot, first in (("slot-m", 0), ("slot-v", 3)):
        numpy.testing.assert_array_equal(
            scope["read_column"](OLD, "lazy", slot),
            base + 0.5 + numpy.arange(first, first + 3, dtype="<f4") / 4)
    assert scope["read_counts"](OLD, "lazy") == {}
    assert numpy.load(OLD / "lanes-1-of-2.npy").tolist()[0] == [17, 1, 5, 0]
