# SPDX-License-Identifier: Apache-2.0
"""recps gather, archive and unarchive: checkpoints that move."""
import io
import json
import shutil
import tarfile

import numpy
import pytest

import deltas
import programs
from test_checkpoint_tools import answer, expect_content, random_of, recps


@pytest.fixture(name="job")
def make_job(tmp_path):
    return deltas.chain(tmp_path / "ckpt", random_of(41), parts=(2, 3, 1, 2))


# ---- gather ----

def split(job, tmp_path, servers):
    """A folder a server: manifests, and of each checkpoint its own part."""
    folders = [tmp_path / f"disk-{i}" for i in range(servers)]
    for path in job.folder.glob("ckpt-*"):
        parts = len(json.loads((path / "manifest.json").read_text())["parts"])
        for i, folder in enumerate(folders):
            to = folder / path.name
            to.mkdir(parents=True)
            for name in ("manifest.json", "manifest.json.xxh3"):
                shutil.copy(path / name, to / name)
            for file in path.rglob(f"*{i}-of-{parts}.*"):
                (to / file.relative_to(path)).parent.mkdir(exist_ok=True)
                shutil.copy(file, to / file.relative_to(path))
    return folders


def test_parts_of_own_disks_are_joined(job, tmp_path):
    folders = split(job, tmp_path, 3)
    said = answer("gather", *folders, "--out", tmp_path / "whole")
    assert (said["step"], said["links"], said["copied"]) == (40, 4, 4)
    assert answer("digest", tmp_path / "whole")["digest"] == job.digest()
    for file in (p for p in job.folder.rglob("*") if p.is_file()):
        copy = tmp_path / "whole" / file.relative_to(job.folder)
        assert copy.read_bytes() == file.read_bytes(), file
    again = answer("gather", *folders, "--out", tmp_path / "whole")
    assert again["copied"] == 0
    for tool in ("inspect", "verify", "digest"):
        for path in (folders[0] / "ckpt-000000000040", folders[0]):
            said = answer(tool, path, code=65)
            assert "part-" in said["error"] and "gather" in said["error"], said


def test_a_part_that_nobody_has_is_named(job, tmp_path):
    folders = split(job, tmp_path, 3)
    said = answer("gather", folders[0], folders[2], "--out", tmp_path / "whole",
                  code=65)
    assert "part-1-of-2.json of ckpt-000000000010" in said["error"]
    assert not (tmp_path / "whole").exists()


def test_damage_is_found_while_parts_are_joined(job, tmp_path):
    folders = split(job, tmp_path, 3)
    file = folders[1] / "ckpt-000000000020/table-emb/1-of-3.rows.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    said = answer("gather", *folders, "--out", tmp_path / "whole", code=65)
    assert str(file) in said["error"]
    assert [p.name for p in (tmp_path / "whole").iterdir()] == [
        "ckpt-000000000010"]


def test_folders_of_two_jobs_are_refused(job, tmp_path):
    folders = split(job, tmp_path, 2)
    other = deltas.chain(tmp_path / "other", random_of(42), parts=(2, 3, 1, 2))
    assert other.digest() != job.digest()
    said = answer("gather", folders[0], other.folder, "--out",
                  tmp_path / "whole", code=65)
    assert "another manifest" in said["error"]


# ---- archives ----

def test_an_archive_is_a_checkpoint_again(job, tmp_path):
    said = answer("archive", job.folder, "--out", tmp_path / "a.tar.zst")
    assert said["digest"] == job.digest() and said["step"] == 40
    back = answer("unarchive", tmp_path / "a.tar.zst", "--out", tmp_path / "b")
    assert back["digest"] == job.digest()
    expect_content(tmp_path / "b/ckpt-000000000040", job)
    assert answer("verify", tmp_path / "b")["digest"] == job.digest()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.zst", "b", "ckpt"]
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["ckpt-000000000040"]


def test_an_uncompressed_archive_is_a_tar_file(job, tmp_path):
    file = tmp_path / "a.tar"
    recps("archive", job.folder / "ckpt-000000000010", "--level", 0,
          "--out", file)
    with tarfile.open(file) as tar:
        assert tar.getnames()[0] == "ckpt-000000000010/manifest.json"
        tar.extractall(tmp_path / "out")
    there = {p.relative_to(job.folder): p.read_bytes()
             for p in (job.folder / "ckpt-000000000010").rglob("*")
             if p.is_file()}
    assert there == {p.relative_to(tmp_path / "out"): p.read_bytes()
                     for p in (tmp_path / "out").rglob("*") if p.is_file()}
    again = io.BytesIO()  # and what Python's tar writes is read
    with tarfile.open(fileobj=again, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(tmp_path / "out/ckpt-000000000010", "ckpt-000000000010")
    file.write_bytes(again.getvalue())
    recps("unarchive", file, "--out", tmp_path / "back")
    recps("verify", tmp_path / "back")


def rounded(values):
    """The nearest bfloat16, as float32; of two, the even one."""
    bits = values.view("<u4").astype("<u8")
    return (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) << 16).astype(
        "<u4").view("<f4")


def test_bf16_rounds_rows_and_nothing_else(job, tmp_path):
    recps("archive", job.folder, "--bf16", "--out", tmp_path / "a")
    recps("unarchive", tmp_path / "a", "--out", tmp_path / "b")
    recps("unarchive", tmp_path / "a", "--keep-bf16", "--out", tmp_path / "c")
    for name, table in job.tables.items():
        back = deltas.read(tmp_path / "b/ckpt-000000000040", name)
        assert back.keys() == table.rows.keys()
        wide = table.spec["value_dtype"] == "float32"
        for key, row in table.rows.items():
            wanted = rounded(row.value) if wide else row.value
            numpy.testing.assert_array_equal(back[key].value, wanted)
            for slot, values in row.slots.items():
                numpy.testing.assert_array_equal(back[key].slots[slot], values)
            assert (back[key].uses, back[key].last) == (row.uses, row.last)
    kept = json.loads(
        (tmp_path / "c/ckpt-000000000040/manifest.json").read_text())
    assert kept["tables"]["emb"]["spec"]["value_dtype"] == "bfloat16"
    assert kept["tables"]["half"]["spec"]["value_dtype"] == "float16"
    assert "archived" not in json.loads(
        (tmp_path / "b/ckpt-000000000040/manifest.json").read_text())
    for folder in "bc":
        recps("verify", tmp_path / folder)


def tar_with(name, data=b"x"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("blob", [
    b"", b"x", b"x" * 2000, bytes(1024), tar_with("../../etc/x"),
    tar_with("/etc/x"), tar_with("ckpt-000000000001/../x"),
    tar_with("ckpt-000000000001/table-a/../../x"),
    tar_with("ckpt-000000000001/manifest.json", b"{}"), tar_with("x/y"),
    b"\x28\xb5\x2f\xfd" + b"x" * 100])
def test_an_archive_that_is_none_leaves_nothing(tmp_path, blob):
    (tmp_path / "bad").write_bytes(blob)
    said = answer("unarchive", tmp_path / "bad", "--out", tmp_path / "out",
                  code=65)
    assert said["error"]
    assert str(tmp_path / "bad") in said["error"]
    assert ".new-ckpt" not in said["error"]
    assert not (tmp_path / "out").exists()


def test_a_damaged_archive_leaves_nothing(job, tmp_path):
    for level in (0, 3):
        file = tmp_path / f"a-{level}"
        recps("archive", job.folder, "--level", level, "--out", file)
        data, random = file.read_bytes(), random_of(level)
        for _ in range(6):
            at = int(random.integers(len(data) - 2000))
            file.write_bytes(data[:at] + bytes([data[at] ^ 0x55])
                             + data[at + 1:])
            run = recps("unarchive", file, "--out", tmp_path / "out",
                        code=harmless(level, data, at))
            if run.returncode == 0:
                shutil.rmtree(tmp_path / "out")
            else:
                assert run.stderr.startswith(f"recps unarchive: {file}"), run
                assert ".new-ckpt" not in run.stderr
        file.write_bytes(data[:len(data) // 2])
        recps("unarchive", file, "--out", tmp_path / "out", code=65)
        assert not (tmp_path / "out").exists()


def harmless(level, data, at):
    """Of an uncompressed tar: zeros between its files are nobody's."""
    if level != 0:
        return 65
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for one in tar.getmembers():
            end = one.offset_data + one.size
            if end <= at < -(-end // 512) * 512:
                return 0
    return 65


assert programs.RECPS.is_file()
