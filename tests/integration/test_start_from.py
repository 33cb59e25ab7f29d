# SPDX-License-Identifier: Apache-2.0
"""recpsd --start-from newest where checkpoints are damaged."""
import subprocess

import pytest

import programs
import saves

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

STEPS = (10, 20, 30)


def recps(server, *arguments):
    run = subprocess.run(
        [str(programs.RECPS), *map(str, arguments), "--ps-hosts",
         f"127.0.0.1:{server.port}"], env=programs.environment(),
        capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def started(folder):
    return programs.Recpsd("--checkpoint-dir", str(folder), "--start-from",
                           "newest")


@pytest.fixture
def kept(tmp_path):
    """Three checkpoints; row 7 of both tables is their step."""
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        with server.connect() as connection:
            connection.table("a", dim=2)
            connection.table("b", dim=2)
        for step in STEPS:
            for table in "ab":
                recps(server, "assign", table, 7, step, step)
            saves.save(server, step)
    return tmp_path


def checkpoint(folder, step):
    return folder / f"ckpt-{step:012d}"


def damage_rows(folder, step):
    path = checkpoint(folder, step) / "table-b/0-of-1.rows.npy"
    data = bytearray(path.read_bytes())
    data[-2:] = b"\xaa\x55"
    path.write_bytes(data)


def damage_manifest(folder, step):
    (checkpoint(folder, step) / "manifest.json").write_text("{")


def remove_manifest(folder, step):
    (checkpoint(folder, step) / "manifest.json").unlink()


def cut_part(folder, step):
    path = checkpoint(folder, step) / "part-0-of-1.json"
    path.write_text(path.read_text()[:100])


DAMAGES = [damage_rows, damage_manifest, remove_manifest, cut_part]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_line(kept, damage):
    damage(kept, 30)
    with started(kept) as server:
        server.wait_for_log(
            "error checkpoint_passed_over: ckpt-000000000030 is damaged, an "
            "older one is tried: .*ckpt-000000000030")
        server.wait_for_log("info started_from: ckpt-000000000020 in .*: 2 tab")
        assert server.log().count("checkpoint_passed_over") == 1
        for table in "ab":
            assert recps(server, "lookup", table, 7) == "7\t20 20\n"


def test_each_one_passed_over_has_its_line_newest_first(kept):
    damage_rows(kept, 30)
    damage_manifest(kept, 20)
    with started(kept) as server:
        log = server.log()
        assert (log.index("passed_over: ckpt-000000000030") <
                log.index("passed_over: ckpt-000000000020") <
                log.index("started_from: ckpt-000000000010"))
        assert recps(server, "lookup", "a", 7) == "7\t10 10\n"


def test_an_old_damaged_one_is_not_in_the_way(kept):
    damage_rows(kept, 10)
    damage_manifest(kept, 20)
    with started(kept) as server:
        server.wait_for_log("started_from: ckpt-000000000030")
        assert "passed_over" not in server.log()


@pytest.mark.parametrize("damage", DAMAGES)
def test_none_that_is_usable_ends_with_65(kept, damage):
    for step in STEPS:
        damage(kept, step)
    server = started(kept)
    with pytest.raises(RuntimeError):
        server.start()
    assert server.wait() == 65
    assert server.log().count("checkpoint_passed_over") == 3
    assert "3 checkpoints, and none of them is usable" in server.log()
    server.__exit__()


def test_another_seed_is_no_damage(kept):
    server = programs.Recpsd("--checkpoint-dir", str(kept), "--start-from",
                             "newest", "--job-seed", "7")
    with pytest.raises(RuntimeError):
        server.start()
    assert server.wait() == 74
    assert "passed_over" not in server.log()
    assert "job seed" in server.log()
    server.__exit__()


def test_no_checkpoint_begins_empty(tmp_path):
    with started(tmp_path) as server:
        server.assert_serves()
        assert "passed_over" not in server.log()
