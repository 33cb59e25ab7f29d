# SPDX-License-Identifier: Apache-2.0
"""A checkpoint read without recps: docs/CHECKPOINT.md's code, NumPy, xxhash.

The test is the chief: it makes the manifest from the answers of PREPARE, so
every digest here is computed a second time, by other code.
"""
import json
import os
import pathlib
import re
import subprocess

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RECPS_BUILD", ROOT / "build/release"))
WRITER = BUILD / "tests/unit/embedding/checkpoint/checkpoint_writer"
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


def test_the_documented_code_reads_the_rows(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    scope = {}
    exec(documented_code()[0], scope)  # pylint: disable=exec-used
    keys, rows = scope["keys"], scope["rows"]
    wanted_keys, wanted_rows = expected()
    order, wanted_order = numpy.argsort(keys), numpy.argsort(wanted_keys)
    assert keys.dtype == "<u8" and rows.dtype == "<f4"
    numpy.testing.assert_array_equal(keys[order], wanted_keys[wanted_order])
    numpy.testing.assert_array_equal(rows[order], wanted_rows[wanted_order])
    column = scope["read_column"]
    numpy.testing.assert_array_equal(
        column(folder, "emb", "slot-accumulator"), rows + numpy.float32(0.5))
    numpy.testing.assert_array_equal(
        column(folder, "emb", "uses"), (keys % numpy.uint64(256)).astype("u1"))
    numpy.testing.assert_array_equal(
        column(folder, "emb", "last"), (keys % numpy.uint64(2**24)).astype("u4"))
    assert column(folder, "empty", "rows").shape == (0, 3)
    assert column(folder, "empty", "slot-m").shape == (0, 3)


def test_the_documented_code_finds_a_damaged_block(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    scope = {}
    exec(documented_code()[1], scope)  # pylint: disable=exec-used
    files = sorted(folder.rglob("*.npy")) + [folder / "manifest.json"]
    assert len(files) == PARTS * (5 + 6 + 1) + 1
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


def test_the_digest_follows_from_the_files(folder):
    """Row by row, as base/digest.h and the docs say."""
    manifest = json.loads((folder / "manifest.json").read_text())
    total = 0
    for part in range(PARTS):
        load = lambda s, i=part: numpy.load(  # noqa: E731
            folder / f"table-emb/{i}-of-{PARTS}.{s}.npy")
        columns = zip(load("keys"), load("rows"), load("slot-accumulator"),
                      load("uses"), load("last"))
        for row in columns:
            total += xxhash.xxh3_128_intdigest(b"".join(x.tobytes() for x in row))
    assert f"{total % 2**128:032x}" == manifest["tables"]["emb"]["digest"]
    assert int(manifest["tables"]["empty"]["digest"], 16) == 0
    assert writer("verify", folder).strip() == manifest["digest"]
    assert writer("verify", folder.parent).strip() == manifest["digest"]


def test_lanes_are_an_array(folder):
    lanes = numpy.load(folder / f"lanes-0-of-{PARTS}.npy")
    assert lanes.dtype == "<u8"
    assert lanes.tolist()[0] == [17, 1, 5, 0]
    assert lanes[1].tolist()[:3] == [2**64 - 1, 2, 6]
    assert lanes.view("<i8")[1, 3] == -4
