# SPDX-License-Identifier: Apache-2.0
"""recpsd --disk-tier: a server that is larger than its memory limit."""
import pathlib
import subprocess

import pytest

import programs
import saves
import wire

numpy = pytest.importorskip("numpy")

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

DIM = 64
KEYS = 60000  # 30 MB with their accumulators
LIMIT = "16MiB"
TIER = ("--memory-limit", LIMIT, "--disk-tier")


def push(connection, table, step, keys, gradients):
    reply = connection.call(wire.PUSH, [
        wire.section(wire.KEYS, keys.astype("<u8").tobytes(), table_id=table,
                     count=len(keys)),
        wire.section(wire.ROWS, gradients.astype("<f4").tobytes(),
                     table_id=table, value=wire.F32, dim=DIM,
                     count=len(keys))],
        number=step)
    assert reply.status == wire.OK, reply.text


def train(server):
    """The same pushes whatever the server: all keys, then some again."""
    rng = numpy.random.default_rng(3)
    with server.connect() as connection:
        table = connection.table("emb", dim=DIM, optimizer="adagrad")
        step = 0
        for keys in [range(i, i + 500) for i in range(0, KEYS, 500)] + [
                rng.integers(0, KEYS, 500) for _ in range(40)]:
            keys = numpy.unique(numpy.asarray(keys, dtype="u8"))
            step += 1
            push(connection, table, step, keys,
                 rng.normal(0, 1, (len(keys), DIM)).astype("f4"))


def table_of(server, digests=False):
    with server.connect() as connection:
        reply = connection.call(
            wire.STAT, [wire.text({"digests": True} if digests else {})])
    return reply.json["tables"][0]


@pytest.fixture(scope="module")
def in_memory():
    with programs.Recpsd() as server:
        train(server)
        return table_of(server, digests=True)


def test_a_server_beyond_its_memory_is_the_server_that_it_would_be(
        in_memory, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    flags = (*TIER, str(scratch), "--checkpoint-dir", str(tmp_path / "saved"))
    with programs.Recpsd(*flags, admin="127.0.0.1:0") as server:
        train(server)
        table = table_of(server, digests=True)
        assert table["digest"] == in_memory["digest"]
        assert table["rows"] == KEYS
        assert table["disk_rows"] > KEYS // 4
        assert table["evicted_full"] == 0
        metrics = server.get("/metrics")[1]
        assert 'recps_disk_rows{table="emb"}' in metrics
        stats = subprocess.run(
            [str(programs.RECPS), "stats", "--ps-hosts",
             f"127.0.0.1:{server.port}"], env=programs.environment(),
            capture_output=True, text=True, timeout=60, check=True).stdout
        assert "disk" in stats and "memory" in stats
        saves.save(server, 7)
        server.process.kill()
        server.wait()
    assert not list(pathlib.Path(scratch).iterdir())  # nothing is left behind
    with programs.Recpsd(*flags, "--start-from", "newest") as server:
        table = table_of(server, digests=True)
        assert table["digest"] == in_memory["digest"]
        assert table["disk_rows"] > KEYS // 4
        # again, while the old tables still have all the memory
        with server.connect() as connection:
            reply = connection.call(wire.RESTORE, [wire.text(
                {"epoch": 1, "step": 7})])
        assert reply.status == wire.OK, reply.text
        table = table_of(server, digests=True)
        assert table["digest"] == in_memory["digest"]
        assert table["rows"] == KEYS


def test_a_disk_tier_that_cannot_be_is_said(tmp_path):
    run = subprocess.run(
        [str(programs.RECPSD), "--bind", "127.0.0.1:0", "--port-file",
         str(tmp_path / "port"), "--admin", "off", "--disk-tier",
         str(tmp_path / "not-there")],
        env=programs.environment(), capture_output=True, text=True, timeout=30,
        check=False)
    assert run.returncode == 64
    assert "--disk-tier" in run.stderr and "No such file" in run.stderr
