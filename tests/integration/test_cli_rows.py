# SPDX-License-Identifier: Apache-2.0
"""recps lookup, assign and log-level."""
import json
import re
import struct

import pytest

import programs
import wire
from test_cli import Cluster, fill, recps

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")

FLOATS = [0.1, -1.5e-30, 3.4e38, 16777217.0]


@pytest.fixture(scope="module")
def cluster():
    """Two servers with a table emb of dimension 4."""
    with Cluster() as servers:
        for index in range(2):
            fill(servers, index, range(5))
        yield servers


def single(value):
    """The float of 32 bits that is nearest."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def ask(cluster, *arguments, code=0, **more):
    run = recps(*arguments, "--ps-hosts", cluster.hosts, **more)
    assert run.returncode == code, run.stderr
    return run


def rows_of(cluster, *keys):
    answer = json.loads(ask(cluster, "lookup", "emb", "--json", *keys).stdout)
    assert answer["whole"] and answer["dim"] == 4
    return {row["key"]: row["row"] for row in answer["rows"]}


def counters(cluster):
    """What no lookup of an operator may change."""
    answer = json.loads(ask(cluster, "tables", "--json").stdout)
    (table,) = answer["tables"]
    return {name: table[name] for name in (
        "rows", "pushes", "inserted", "admission_keys", "erased")}


# ---- rows ----

def test_a_row_is_read_back_as_it_was_written(cluster):
    before = counters(cluster)
    run = ask(cluster, "assign", "emb", "-7", *FLOATS)
    assert run.stdout == "table emb: 1 row written\n"
    rows = rows_of(cluster, "-7", str(2**64 - 7), "0xfffffffffffffff9")
    assert [list(map(single, row)) for row in rows.values()] == [
        list(map(single, FLOATS))]
    assert counters(cluster)["rows"] == before["rows"] + 1
    ask(cluster, "erase", "emb", "-7")


def test_what_lookup_prints_is_what_assign_reads(cluster, tmp_path):
    keys = [str(k * 2654435761 % 2**64) for k in range(1, 200)]
    lines = [f"{k},{i}.5, -{i} 1e-3\t{i}e10" for i, k in enumerate(keys)]
    (tmp_path / "rows").write_text("\n".join(lines) + "\n\n")
    run = ask(cluster, "assign", "emb", "--json", "--file", tmp_path / "rows")
    assert json.loads(run.stdout) == {"table": "emb", "rows": len(keys)}
    (tmp_path / "keys").write_text("\n".join(keys))
    printed = ask(cluster, "lookup", "emb", "--file", tmp_path / "keys").stdout
    assert [line.split()[0] for line in printed.splitlines()] == keys
    (tmp_path / "rows").write_text(printed)
    ask(cluster, "erase", "emb", "--file", tmp_path / "keys")
    ask(cluster, "assign", "emb", "--file", tmp_path / "rows")
    assert ask(cluster, "lookup", "emb", "--file",
               tmp_path / "keys").stdout == printed
    ask(cluster, "erase", "emb", "--file", tmp_path / "keys")


def test_a_lookup_makes_and_counts_nothing(cluster):
    before = counters(cluster)
    assert rows_of(cluster, "123456789") == {"123456789": [0, 0, 0, 0]}
    assert counters(cluster) == before


@pytest.mark.parametrize("arguments, code, words", [
    (["lookup", "emb"], 64, "keys or --file"),
    (["lookup"], 64, "give the table"),
    (["lookup", "emb", "1x"], 64, '"1x" is no key'),
    (["lookup", "emb", "1", "--file", "x"], 64, "either keys or --file"),
    (["lookup", "emb", "--file", "/no/such"], 66, "/no/such"),
    (["lookup", "embb", "1"], 70, "no table embb at PS 0"),
    (["lookup", "e/b", "1"], 70, "no such name can be"),
    (["assign", "emb", "1"], 64, "a key with its values or --file"),
    (["assign", "emb", "1", "2", "3"], 64, "has 2 values; a row of table emb has 4"),
    (["assign", "emb", "1", "2", "3", "4", "5", "6"], 64, "has 5 values"),
    (["assign", "emb", "1", "2", "3", "4", "nan"], 64, '"nan" is no value'),
    (["assign", "emb", "1", "2", "3", "4", "1e39"], 64, '"1e39" is no value'),
    (["assign", "emb", "k", "2", "3", "4", "5"], 64, '"k" is no key'),
    (["assign", "embb", "1", "2", "3", "4", "5"], 70, "no table embb"),
])
def test_what_cannot_be_done_is_said(cluster, arguments, code, words):
    run = ask(cluster, arguments[0], "--json", *arguments[1:], code=code)
    answer = json.loads(run.stdout)
    assert words in answer["error"] and answer["exit"] == code
    assert words in run.stderr


def test_a_bad_line_is_named_and_nothing_is_written(cluster, tmp_path):
    before = counters(cluster)
    (tmp_path / "rows").write_text("901 1 2 3 4\n\n902 1 2 3\n")
    run = ask(cluster, "assign", "emb", "--file", tmp_path / "rows", code=64)
    assert f"{tmp_path}/rows:3: key 902 has 3 values" in run.stderr
    assert counters(cluster) == before


def test_a_table_that_one_server_lacks_is_not_found(cluster):
    with cluster.connect(0) as connection:
        connection.table("half", 2)
    run = ask(cluster, "lookup", "half", "1", code=70)
    assert "no table half at PS 1" in run.stderr
    with cluster.connect(0) as connection:
        connection.call(wire.DROP, [wire.text({"table": "half"})])


# ---- the log's level ----

def levels(cluster, *arguments):
    answer = json.loads(ask(cluster, "log-level", "--json", *arguments).stdout)
    return [(ps["index"], ps["was"], ps["level"]) for ps in answer["ps"]]


def test_the_level_of_one_or_of_all_servers_is_set(cluster):
    assert levels(cluster) == [(0, "info", "info"), (1, "info", "info")]
    assert levels(cluster, "warn", "--ps", "1") == [(1, "info", "warn")]
    assert levels(cluster, "debug") == [(0, "info", "debug"),
                                        (1, "warn", "debug")]
    assert re.search(r"log_level=warn, it was info; asked by (unix:|127\.)",
                     cluster.servers[1].log())
    run = ask(cluster, "log-level", "info")
    assert run.stdout.splitlines()[1].split() == [
        "0", cluster.hosts.split(",")[0], "info", "debug"]
    assert ask(cluster, "log-level").stdout.split()[:3] == [
        "ps", "address", "level"]


@pytest.mark.parametrize("arguments, words", [
    (["deb"], '"deb" is no level: debug, info, warn or error'),
    (["info", "--ps", "2"], "0 to 1 is allowed"),
    (["info", "extra"], "extra"),
])
def test_a_level_that_is_none_is_64(cluster, arguments, words):
    assert words in ask(cluster, "log-level", *arguments, code=64).stderr


def test_the_server_takes_no_other_level(recpsd):
    with recpsd.connect() as connection:
        for text in ({"level": "loud"}, {"level": 3}):
            reply = connection.call(wire.LOG_LEVEL, [wire.text(text)])
            assert reply.status == wire.INVAL and "level" in reply.text
        reply = connection.call(wire.LOG_LEVEL, [wire.text({})])
        assert reply.json == {"level": "info", "was": "info"}


def test_a_stranger_may_not_ask(recpsd):
    with recpsd.connect(greet=False) as connection:
        reply = connection.call(wire.LOG_LEVEL, [wire.text({"level": "error"})])
        assert reply.status == wire.INVAL and "HELLO" in reply.text


def test_an_unreachable_server_is_69():
    port = programs.free_ports(1)[0]
    run = recps("log-level", "--json", "--ps-hosts", f"127.0.0.1:{port}",
                "--connect-timeout", "0.3")
    assert run.returncode == 69
    assert json.loads(run.stdout)["status"] == "RPS_E_UNREACHABLE"
