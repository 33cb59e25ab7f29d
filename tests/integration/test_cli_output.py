# SPDX-License-Identifier: Apache-2.0
"""recps: an answer that cannot be written, and words of what is refused."""
import json
import os
import re
import subprocess

import pytest

import programs
from test_cli import Cluster, fill, recps

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")


@pytest.fixture(scope="module")
def cluster():
    """Two servers with a table emb of dimension 4."""
    with Cluster() as servers:
        for index in range(2):
            fill(servers, index, range(5))
        yield servers


def into(stdout, *arguments):
    return subprocess.run([str(programs.RECPS), *map(str, arguments)],
                          env=programs.environment(), stdout=stdout,
                          stderr=subprocess.PIPE, text=True, timeout=60,
                          check=False)


# ---- an answer that is lost ----

ANSWERS = [
    ["tables"], ["stats"], ["ping"], ["hot", "emb"], ["digest"], ["evict"],
    ["log-level"], ["top", "--once", "--interval", "0.1"], ["lookup", "emb", "1"],
    ["scan", "emb"], ["erase", "emb", "900"],
    ["assign", "emb", "901", "1", "2", "3", "4"],
    ["alter", "emb", "keep_min_rows=1"],
]


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", ANSWERS, ids=lambda c: c[0])
def test_a_full_disk_is_said(cluster, command, more):
    with open("/dev/full", "w", encoding="ascii") as full:
        run = into(full, *command, *more, "--ps-hosts", cluster.hosts)
    assert run.stderr == ("recps: cannot write the answer: No space left on "
                          "device\n")
    assert run.returncode == 74


@pytest.mark.parametrize("flags", [["--help"], ["--version"],
                                   ["tables", "--help"]])
def test_help_on_a_full_disk_is_said_too(flags):
    with open("/dev/full", "w", encoding="ascii") as full:
        run = into(full, *flags)
    assert run.returncode == 74
    assert run.stderr.startswith("recps: cannot write the answer")


def test_an_answer_longer_than_the_buffer_is_lost_as_loudly(cluster, tmp_path):
    (tmp_path / "keys").write_text("\n".join(map(str, range(20000))))
    with open("/dev/full", "w", encoding="ascii") as full:
        run = into(full, "lookup", "emb", "--file", tmp_path / "keys",
                   "--ps-hosts", cluster.hosts)
    assert (run.returncode, run.stderr) == (
        74, "recps: cannot write the answer: No space left on device\n")


def test_a_closed_pipe_is_quiet(cluster):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="ascii") as pipe:
        run = into(pipe, "tables", "--ps-hosts", cluster.hosts)
    assert run.returncode != 0 and run.stderr == ""


# ---- words ----

@pytest.mark.parametrize("command", ["lookup", "erase"])
def test_a_bad_key_is_named_with_its_file_and_line(cluster, tmp_path, command):
    (tmp_path / "keys").write_text("1 2\n\n3\t4x\n")
    run = recps(command, "emb", "--file", tmp_path / "keys", "--ps-hosts",
                cluster.hosts)
    assert run.returncode == 64
    assert run.stderr == (
        f'recps {command}: {tmp_path}/keys:3: "4x" is no key: a 64-bit number, '
        "decimal or 0x hex\n")


@pytest.mark.parametrize("table", ["nope", "no/pe"])
def test_top_once_of_a_table_that_is_not_there_fails(cluster, table):
    run = recps("top", "--once", "--interval", "0.1", "--table", table, "--json",
                "--ps-hosts", cluster.hosts)
    assert run.returncode == 70 and run.stderr.startswith("recps top: ")
    answer = json.loads(run.stdout)
    assert answer["exit"] == 70 and answer["error"] in run.stderr


def test_measurements_have_nine_digits(cluster):
    for command in (["ping"], ["stats"], ["top", "--once", "--interval", "0.1"]):
        text = recps(*command, "--json", "--ps-hosts", cluster.hosts).stdout
        for digits in re.findall(r":(\d+\.\d+)(?:e|[,}\]])", text):
            assert len(digits.lstrip("0.").replace(".", "")) <= 9, digits


def test_an_opcode_is_said_once(cluster):
    with cluster.connect(0, role="chief", rank=0) as chief:
        assert chief
        run = recps("shutdown", "--now", "--ps-hosts", cluster.hosts)
    assert run.returncode == 70
    assert "SHUTDOWN: a chief is connected" in run.stderr
    assert "SHUTDOWN: SHUTDOWN" not in run.stderr
