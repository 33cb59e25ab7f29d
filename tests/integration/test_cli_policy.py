# SPDX-License-Identifier: Apache-2.0
"""recps alter, erase, evict, hot, scan, drop: a table's life, by hand."""
import json
import struct

import pytest

import programs
import wire
from test_cli import Cluster, recps

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")

NUMBERS = list(range(60)) + [2**64 - 1 - i for i in range(40)]


@pytest.fixture
def cluster():
    with Cluster() as servers:
        yield servers


def push(connection, table, numbers, step=0, gradient=1.0):
    """Push them one by one; those that another server owns are left out."""
    owned = []
    for number in numbers:
        reply = connection.call(wire.PUSH, [
            wire.section(wire.KEYS, struct.pack("<Q", number),
                         table_id=table, count=1),
            wire.section(wire.ROWS, struct.pack("<2f", gradient, gradient),
                         table_id=table, dim=2, count=1,
                         learning_rate=1.0)], step=step)
        assert reply.status in (wire.OK, -6), reply.text
        if reply.status == wire.OK:
            owned.append(number)
    return owned


def fill(cluster, name="emb", numbers=None, step=0, **spec):
    """The keys at each server."""
    owned = []
    for index in range(2):
        with cluster.connect(index) as connection:
            table = connection.table(name, 2, initializer="zeros", **spec)
            owned.append(push(connection, table, numbers or NUMBERS, step))
    return owned


def answer(*arguments):
    run = recps(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 1
    return json.loads(run.stdout)


def failure(code, status, *arguments):
    run = recps(*arguments, "--json")
    assert run.returncode == code, (run.stdout, run.stderr)
    words = json.loads(run.stdout)
    assert words["exit"] == code
    assert words.get("status") == status
    assert words["error"] in run.stderr
    return words["error"]


def rows_of(cluster):
    said = answer("tables", "--ps-hosts", cluster.hosts)["tables"]
    return {table["name"]: table["rows"] for table in said}


# ---- alter ----

def test_alter_changes_every_server(cluster):
    fill(cluster)
    said = answer("alter", "emb", "learning_rate=0.5", "keep_min_rows=7",
                  "on_full=evict-lru", "memory_limit=64m",
                  "--ps-hosts", cluster.hosts)
    assert said == {"table": "emb", "set": {
        "learning_rate": 0.5, "keep_min_rows": 7, "on_full": "evict-lru",
        "memory_limit": 64 << 20}}
    stats = answer("stats", "--ps-hosts", cluster.hosts)["ps"]
    for stat in stats:
        spec = stat["tables"][0]["spec"]
        assert spec["learning_rate"] == 0.5
        assert spec["keep_min_rows"] == 7
        assert spec["on_full"] == "evict-lru"
        assert spec["memory_limit"] == 64 << 20
        assert spec["initializer"] == "zeros"
        assert stat["requests"]["ALTER_TABLE"] == {"count": 1, "errors": 0}


def test_alter_names_what_it_cannot_do(cluster):
    fill(cluster)
    hosts = ["--ps-hosts", cluster.hosts]
    assert "dimension is part of what the table is" in failure(
        70, "RPS_E_MISMATCH", "alter", "emb", "dimension=4", *hosts)
    assert 'did you mean \\"clip_norm\\"' in json.dumps(failure(
        70, "RPS_E_INVAL", "alter", "emb", "clipnorm=4", *hosts))
    assert "no table other" in failure(
        70, "RPS_E_NOT_FOUND", "alter", "other", "clip_norm=4", *hosts)
    assert "not FIELD=VALUE" in failure(
        64, None, "alter", "emb", "clip_norm", *hosts)
    assert "given twice" in failure(
        64, None, "alter", "emb", "rho=1", "rho=2", *hosts)
    assert "at least one" in failure(64, None, "alter", "emb", *hosts)


def test_a_part_that_failed_is_told_with_the_part_that_did_not(cluster):
    fill(cluster)
    with cluster.connect(1) as connection:
        reply = connection.call(wire.DROP, [wire.text({"table": "emb"})])
        assert reply.status == wire.OK, reply.text
    words = failure(70, "RPS_E_NOT_FOUND", "alter", "emb", "clip_norm=4",
                    "--ps-hosts", cluster.hosts)
    assert "PS 1 (127.0.0.1" in words and "done at PS 0" in words


# ---- erase ----

def test_erase_takes_keys_in_every_form(cluster):
    fill(cluster)
    said = answer("erase", "emb", "3", "-1", "0x10", "3", "12345",
                  "--ps-hosts", cluster.hosts)
    assert said == {"table": "emb", "keys": 5, "erased": 3}
    left = {int(row[0]) for row in
            answer("scan", "emb", "--ps-hosts", cluster.hosts)["rows"]}
    assert left == set(NUMBERS) - {3, 2**64 - 1, 16}


def test_erase_takes_keys_from_a_file(cluster, tmp_path):
    fill(cluster)
    path = tmp_path / "keys.txt"
    path.write_text("1 2\n-2\n0xA\n\n")
    said = answer("erase", "emb", "--file", str(path),
                  "--ps-hosts", cluster.hosts)
    assert (said["keys"], said["erased"]) == (4, 4)
    path.write_text("1\n2x\n")
    assert '"2x" is no key' in failure(
        64, None, "erase", "emb", "--file", str(path),
        "--ps-hosts", cluster.hosts)
    assert "nowhere" in failure(
        66, None, "erase", "emb", "--file", str(tmp_path / "nowhere"),
        "--ps-hosts", cluster.hosts)


def test_erase_refuses_what_is_no_key(cluster):
    hosts = ["--ps-hosts", cluster.hosts]
    for word in ("18446744073709551616", "0x10000000000000000", "-", "1.5"):
        run = recps("erase", "emb", word, *hosts)
        assert run.returncode == 64, (word, run.stderr)
    assert recps("erase", "emb", *hosts).returncode == 64
    assert "there is no table emb at PS" in failure(
        70, "RPS_E_NOT_FOUND", "erase", "emb", "1", *hosts)


# ---- evict ----

def test_evict_shows_what_each_server_did(cluster):
    owned = fill(cluster)
    answer("alter", "emb", "max_cold_steps=1000", "--ps-hosts", cluster.hosts)
    said = answer("evict", "--ps-hosts", cluster.hosts)
    assert said["table"] is None
    assert [ps["examined"] for ps in said["ps"]] == list(map(len, owned))
    assert said["sum"]["examined"] == len(NUMBERS)
    assert said["sum"]["cold"] == said["sum"]["full"] == 0
    run = recps("evict", "emb", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].split() == ["ps", "address", "examined", "cold", "full",
                                "before", "after"]
    assert len(lines) == 4 and lines[3].split()[0] == "all"
    failure(70, "RPS_E_NOT_FOUND", "evict", "other",
            "--ps-hosts", cluster.hosts)


def test_cold_rows_go(cluster):
    fill(cluster, step=1)
    # Before the alter: the background would take a row that is cold and not
    # pushed yet, and count it.
    kept = fill(cluster, numbers=range(12), step=50)
    assert min(map(len, kept)) > 0  # a server's step is that of its pushes
    answer("alter", "emb", "max_cold_steps=10", "--ps-hosts", cluster.hosts)
    answer("evict", "emb", "--ps-hosts", cluster.hosts)
    assert rows_of(cluster) == {"emb": 12}
    table = answer("tables", "--ps-hosts", cluster.hosts)["tables"][0]
    assert table["evicted_cold"] == len(NUMBERS) - 12


# ---- hot, scan ----

def test_scan_lists_every_row(cluster):
    fill(cluster, step=5)
    said = answer("scan", "emb", "--ps-hosts", cluster.hosts)
    assert said["table"] == "emb" and said["whole"] is True
    assert sorted(int(key) for key, _, _ in said["rows"]) == sorted(NUMBERS)
    assert all(uses == 1 and last == 5 for _, uses, last in said["rows"])
    run = recps("scan", "emb", "--limit", "7", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    assert len(lines) == 7 and all(len(line) == 3 for line in lines)
    failure(70, "RPS_E_NOT_FOUND", "scan", "other",
            "--ps-hosts", cluster.hosts)
    failure(64, None, "scan", "--ps-hosts", cluster.hosts)


def test_hot_ranks_the_keys_of_all_servers(cluster):
    for index in range(2):
        with cluster.connect(index) as connection:
            table = connection.table("emb", 2, initializer="zeros")
            for number in (7, 8, 9):
                if not push(connection, table, [number]):
                    continue
                for _ in range(40 * number):
                    counts = wire.section(
                        wire.COUNTS, struct.pack("<I", 64), table_id=table,
                        count=1)
                    reply = connection.call(wire.PUSH, [
                        wire.section(wire.KEYS, struct.pack("<Q", number),
                                     table_id=table, count=1), counts,
                        wire.section(wire.ROWS, struct.pack("<2f", 1, 1),
                                     table_id=table, dim=2, count=1)])
                    assert reply.status == wire.OK, reply.text
    said = answer("hot", "emb", "--max", "3", "--ps-hosts", cluster.hosts)
    assert {row["key"] for row in said["keys"]} <= {"7", "8", "9"}
    assert said["keys"], said
    counts = [row["count"] for row in said["keys"]]
    assert counts == sorted(counts, reverse=True)
    for word in ("0", "513", "x"):
        failure(64, None, "hot", "emb", "--max", word,
                "--ps-hosts", cluster.hosts)


# ---- drop ----

def test_drop_takes_a_table_from_every_server(cluster):
    fill(cluster)
    fill(cluster, "other")
    said = answer("drop", "emb", "--ps-hosts", cluster.hosts)
    assert said == {"table": "emb", "rows": len(NUMBERS)}
    assert rows_of(cluster) == {"other": len(NUMBERS)}
    failure(70, "RPS_E_NOT_FOUND", "drop", "emb", "--ps-hosts", cluster.hosts)
    fill(cluster, numbers=[1, 2])
    assert rows_of(cluster)["emb"] == 2


# ---- hostile texts ----

@pytest.mark.parametrize("opcode", [
    wire.ALTER_TABLE, wire.EVICT, wire.DROP, wire.HOT_KEYS, wire.SCAN])
@pytest.mark.parametrize("words", [
    "", "{", "[]", "null", '{"table":7}', '{"table":""}',
    '{"table":"' + "a" * 100000 + '"}', '{"table":"emb","max":-1}',
    '{"table":"emb","max":1e99,"place":{},"set":[]}', "\xff\xfe",
    '{"table":"e\\u0000mb"}', '{"table":"emb","table":"emb"}'])
def test_hostile_texts_are_refused_in_words(recpsd, opcode, words):
    with recpsd.connect() as connection:
        connection.table("emb", 2)
        reply = connection.call(opcode, [
            wire.section(wire.TEXT, words.encode("latin1"))])
        if reply.status == wire.OK:  # a field that this request ignores
            assert opcode == wire.DROP or opcode == wire.EVICT
        else:
            assert reply.text
    recpsd.assert_serves()


# ---- limits and places of memory ----

def test_a_server_refuses_what_exceeds_its_memory():
    flags = ["--memory-limit", "10m", "--numa", "interleave"]
    with programs.Recpsd(*flags) as server, server.connect() as connection:
        table = connection.table("wide", 1024, initializer="zeros")
        gradients = struct.pack("<1024f", *[1.0] * 1024)
        statuses = []
        while len(statuses) < 4096 and wire.LIMIT not in statuses:
            reply = connection.call(wire.PUSH, [
                wire.section(wire.KEYS, struct.pack("<Q", len(statuses)),
                             table_id=table, count=1),
                wire.section(wire.ROWS, gradients, table_id=table, dim=1024,
                             count=1)])
            statuses.append(reply.status)
        assert statuses[-1] == wire.LIMIT and len(statuses) > 100
        assert "table wide has no room" in reply.text
        assert "the server's memory limit" in reply.text
        stat = server.stat()
        assert stat["tables"][0]["dropped"] == 1
        assert stat["memory_limit"] == 10 << 20
        assert 0 < stat["memory_used"] <= 10 << 20
        # where it is served, also with a table that is full
        reply = connection.call(wire.LOOKUP, [
            wire.section(wire.KEYS, struct.pack("<Q", 0), table_id=table,
                         count=1)])
        assert reply.status == wire.OK
        assert server.stop() == 143


def test_the_limit_of_memory_is_checked():
    for flags, word in ((["--memory-limit", "lots"], "memory"),
                        (["--memory-limit", "1k"], "8MiB"),
                        (["--memory-limit", "8191k"], "8MiB"),
                        (["--numa", "everywhere"], "off|interleave|bind")):
        server = programs.Recpsd(*flags)
        with pytest.raises(RuntimeError, match="did not start") as error:
            server.start()
        assert word in str(error.value)
        server.__exit__()


# ---- on the wire ----

def test_a_repeated_erase_is_not_done_again(recpsd):
    with recpsd.connect() as connection:
        table = connection.table("emb", 2, initializer="zeros")
        key = wire.section(wire.KEYS, struct.pack("<Q", 7), table_id=table,
                           count=1)
        row = wire.section(wire.ROWS, struct.pack("<2f", 1, 1),
                           table_id=table, dim=2, count=1, learning_rate=1.0)
        assert connection.call(wire.PUSH, [key, row], number=1).status == 0
        erased = connection.call(wire.ERASE, [key], number=2)
        assert erased.json == {"tables": [{"name": "emb", "erased": 1}]}
        assert connection.call(wire.PUSH, [key, row], number=3).status == 0
        again = connection.call(wire.ERASE, [key], number=2)
        assert again.status == wire.OK and not again.text
        # a gap in the lane: nothing is done
        gap = connection.call(wire.ERASE, [key], number=9)
        assert gap.status == wire.INVAL
        stat = recpsd.stat()
        assert stat["tables"][0]["rows"] == 1
        assert stat["tables"][0]["erased"] == 1
        assert stat["requests"]["ERASE"] == {"count": 3, "errors": 1}


def test_sections_that_have_no_place_are_refused(recpsd):
    with recpsd.connect() as connection:
        table = connection.table("emb", 2)
        key = wire.section(wire.KEYS, struct.pack("<Q", 7), table_id=table,
                           count=1)
        row = wire.section(wire.ROWS, struct.pack("<2f", 1, 1),
                           table_id=table, dim=2, count=1)
        for sections in ([key, row], [key, key], [row]):
            reply = connection.call(wire.ERASE, sections)
            assert reply.status == wire.INVAL, reply.text
        nothing = connection.call(wire.ERASE, [])
        assert nothing.json == {"tables": []}
        for opcode in (wire.SCAN, wire.HOT_KEYS, wire.DROP, wire.EVICT,
                       wire.ALTER_TABLE):
            reply = connection.call(opcode, [key])
            assert reply.status == wire.INVAL, reply.text
            assert "text section" in reply.text
    recpsd.assert_serves()
