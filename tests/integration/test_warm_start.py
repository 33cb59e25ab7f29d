# SPDX-License-Identifier: Apache-2.0
"""recps-train --warm-start, --restore-tables, --restore-weights-only: a job
that begins from another one's checkpoint, or from some of its own."""
import json
import os
import shutil

import numpy
import pytest

import programs
import trainer
import wire

pytestmark = trainer.needs_programs

BASE = ["--data", "synthetic:rows=600,keys=300,seed=3", "--batch-size", 100,
        "--emb-dim", 4, "--bottom-mlp", "4", "--top-mlp", "4,1"]


def rows_of(folder, table):
    """{key: row}, {key: accumulator} of a checkpoint, by NumPy alone."""
    found, slots = {}, {}
    n = len(json.loads((folder / "manifest.json").read_text())["parts"])
    for i in range(n):
        stem = folder / f"table-{table}/{i}-of-{n}"
        keys = numpy.load(f"{stem}.keys.npy")
        found.update(zip(keys.tolist(), numpy.load(f"{stem}.rows.npy")))
        slot = f"{stem}.slot-accumulator.npy"  # adagrad's
        if os.path.exists(slot):
            slots.update(zip(keys.tolist(), numpy.load(slot)))
    return found, slots


def newest(folder):
    return max(folder.glob("ckpt-*"))


def tables_of(folder):
    return json.loads((folder / "manifest.json").read_text())["tables"]


@pytest.fixture(name="old", scope="module")
def fixture_old(tmp_path_factory):
    """The folder of a job of two servers that has ended, and its tables."""
    if not trainer.TRAIN.is_file():
        pytest.skip("recps-train is not built")
    folder = tmp_path_factory.mktemp("old")
    trainer.launch(*BASE, ps=2, options=["--checkpoint-dir", folder])
    return folder


def first_table(folder):
    """A sparse one."""
    return next(name for name, entry in tables_of(newest(folder)).items()
                if not entry["spec"].get("dense_elements"))


def begin(folder, *flags, code=0, **how):
    """A new embedded job of one step at a rate of nothing: what it saves is
    what it began with."""
    return trainer.train(*BASE, "--steps", 1, "--sparse-lr", 1e-30,
                         "--dense-lr", 1e-30, "--checkpoint-dir", folder,
                         *flags, code=code, **how)


def test_a_job_begins_with_the_rows_of_another(old, tmp_path):
    done = begin(tmp_path / "new", "--warm-start", old)
    was, now = newest(old), newest(tmp_path / "new")
    assert now.name == "ckpt-000000000001"
    assert f"warm start: step {int(was.name[5:])} of {old}" in done.stdout
    assert tables_of(was).keys() == tables_of(now).keys()
    for table in tables_of(was):
        rows, slots = rows_of(was, table)
        new_rows, new_slots = rows_of(now, table)
        for key, row in rows.items():
            numpy.testing.assert_allclose(new_rows[key], row, atol=1e-6)
        for key, slot in slots.items():
            assert numpy.all(new_slots[key] >= slot * 0.99)


@pytest.mark.parametrize("given", [
    "relative", "relative/", "relative:6", "relative/ckpt-000000000006",
    "relative/ckpt-000000000006/"])
def test_without_a_cluster_the_folder_may_be_relative_or_one_step(
        old, tmp_path, given):
    (tmp_path / "relative").symlink_to(old)
    done = begin(tmp_path / "new", "--warm-start", given, cwd=tmp_path)
    step = 6 if "6" in given else int(newest(old).name[5:])
    assert f"warm start: step {step} of {tmp_path / 'relative'}" in done.stdout


def test_in_the_folder_itself_its_name_will_do(old, tmp_path):
    done = begin(tmp_path / "new", "--warm-start", newest(old).name, cwd=old)
    assert f"warm start: step {int(newest(old).name[5:])} of " in done.stdout


def test_a_job_takes_the_folder_of_one_step(old, tmp_path):
    done = trainer.launch(*BASE, "--steps", 1, "--warm-start",
                          old / "ckpt-000000000006",
                          options=["--warm-start-dirs", old])
    assert f"warm start: step 6 of {old}, " in done.stdout


def test_another_optimizer_begins_with_fresh_slots_and_says_so(old, tmp_path):
    table = first_table(old)
    done = begin(tmp_path / "new", "--warm-start", f"{old}:6",
                 "--sparse-optimizer", "adam", "--restore-tables", table)
    assert f"table {table} has fresh optimizer slots" in done.stdout
    rows, _ = rows_of(newest(old), table)
    new_rows, _ = rows_of(newest(tmp_path / "new"), table)
    for key, row in rows.items():
        numpy.testing.assert_allclose(new_rows[key], row, atol=1e-6)


def test_a_table_that_the_checkpoint_has_not_is_named(old, tmp_path):
    table = first_table(old)
    done = begin(tmp_path / "new", "--warm-start", old, "--restore-tables",
                 f"{table}=absent", code=66)
    assert 'no table "absent"' in done.stderr + done.stdout
    done = begin(tmp_path / "new", "--warm-start", old, "--restore-tables",
                 f"{table},unknown", code=64)
    assert "--restore-tables" in done.stderr + done.stdout


def test_weights_alone(old, tmp_path):
    done = begin(tmp_path / "new", "--warm-start", old,
                 "--restore-weights-only")
    table = first_table(old)
    assert f"table {table} has fresh optimizer slots" in done.stdout
    _, slots = rows_of(newest(tmp_path / "new"), table)
    pushed = [slot for slot in slots.values() if numpy.any(slot != slot[0])]
    assert all(numpy.all(slot >= numpy.float32(0.1)) for slot in slots.values())
    assert len(pushed) <= len(slots)


def test_a_restore_may_take_some_tables(old, tmp_path):
    """Its own job's: the step goes on, the others begin fresh."""
    folder = tmp_path / "copy"
    shutil.copytree(old, folder)
    table = first_table(folder)
    step = int(newest(folder).name[5:])
    done = trainer.launch(*BASE, "--restore", "--restore-tables", table,
                          "--epochs", 2, "--steps", step + 1, ps=3,
                          options=["--checkpoint-dir", folder])
    assert f"warm start: step {step} of checkpoint_dir, 1 tables" in done.stdout
    assert int(newest(folder).name[5:]) == step + 1


@pytest.mark.parametrize("flags, words", (
    (["--ps_hosts", "127.0.0.1:1", "--worker_hosts", "127.0.0.1:2",
      "--job_name", "worker", "--task_index", 0,
      "--warm-start", "relative"], "from / on"),
    (["--warm-start", "/x", "--restore"], "--restore"),
    (["--warm-start", "/x:0"], "from 1 on"),
    (["--warm-start", "/x", "--init-from", "/y"], "--init-from"),
    (["--restore-tables", "a"], "--restore or --warm-start"),
    (["--restore-weights-only"], "--restore or --warm-start")))
def test_flags_that_do_not_go_together_are_64(tmp_path, flags, words):
    done = trainer.train(*BASE, *flags, code=64)
    assert words in done.stderr


def test_a_folder_without_a_checkpoint_is_told(tmp_path):
    done = begin(tmp_path / "new", "--warm-start", tmp_path, code=66)
    assert "no complete checkpoint" in done.stderr + done.stdout


def restore(server, **fields):
    with server.connect() as connection:
        return connection.call(wire.RESTORE, [wire.text(
            {"epoch": 9, "step": 0, **fields})])


def test_a_server_reads_no_folder_that_it_was_not_given(old, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(old)
    with programs.Recpsd("--checkpoint-dir", str(tmp_path / "own"),
                         "--warm-start-dirs", str(tmp_path)) as server:
        for folder in (old, link, tmp_path / ".." / old.name, "/nowhere"):
            reply = restore(server, **{"from": {"dir": str(folder)}})
            assert reply.status == wire.INVAL, folder
            assert "--warm-start-dirs" in reply.text


def test_an_operator_allows_a_folder_and_what_is_below_it(old, tmp_path):
    table = first_table(old)
    with programs.Recpsd("--checkpoint-dir", str(tmp_path / "own"),
                         "--warm-start-dirs",
                         f"/nowhere,{old.parent}") as server:
        reply = restore(server, tables=[{"name": "copy", "from": table},
                                        {"name": "gone", "optional": True}],
                        weights_only=True, **{"from": {"dir": str(old)}})
        assert reply.status == wire.OK, reply.text
        assert reply.json["tables"] == ["copy"]
        assert reply.json["data_position"] is None
        assert reply.json["step"] == 0
        assert reply.json["warm_start"] == {
            "step": int(newest(old).name[5:]), "fresh_slots": ["copy"],
            "absent": ["gone"]}


@pytest.mark.parametrize("fields, words", (
    ({"from": {"dir": "relative"}}, "from"),
    ({"from": {"dir": "/x"}, "step": 3}, "step"),
    ({"tables": [{"name": "x"}]}, "step"),
    ({"from": {"dir": "/x"}, "tables": []}, "tables"),
    ({"from": {"dir": "/x"}, "tables": [{}]}, "tables"),
    ({"from": {"dir": "/x", "step": -1}}, "step")))
def test_a_bad_restore_is_refused_and_named(fields, words):
    with programs.Recpsd() as server:
        reply = restore(server, **fields)
        assert reply.status == wire.INVAL
        assert words in reply.text
