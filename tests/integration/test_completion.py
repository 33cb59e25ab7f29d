# SPDX-License-Identifier: Apache-2.0
"""The shells' completion, as it is installed: what it offers is what --help has."""
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import programs
from test_cli import recps

FOLDER = programs.BUILD / "client/cli/completion"
BENCH = programs.BUILD / "bench/completion"

pytestmark = pytest.mark.skipif(
    not (FOLDER / "recps").is_file(), reason="completion is not built")


def complete(*words, file=FOLDER / "recps", function="_recps_complete"):
    """What bash offers for the last of these words."""
    script = (f'source "{file}"; COMP_WORDS=("$@"); '
              f"COMP_CWORD=$(($# - 1)); {function}; "
              'printf "%s\\n" "${COMPREPLY[@]-}"')
    run = subprocess.run(["bash", "-uc", script, "bash", *words],
                         capture_output=True, text=True, timeout=30,
                         cwd=programs.ROOT, check=False)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    return run.stdout.split()


def flags_of(text):
    """Flags that a --help names at the beginning of a line."""
    return set(re.findall(r"^  (--[a-z0-9-]+)", text, re.M))


def commands():
    text = recps("--help").stdout
    return re.findall(r"^  ([a-z-]+) +\S", text, re.M)


def test_every_command_is_offered():
    assert len(commands()) >= 33
    assert complete("recps", "") == commands()
    assert sorted(complete("recps", "--ps-hosts", "=", "a:1", "lo")) == [
        "log-level", "lookup"]
    assert complete("recps", "--ps-hosts", "a:1", "ta") == ["tables"]


@pytest.mark.parametrize("command", commands()
                         if programs.RECPS.is_file() else [])
def test_every_flag_of_a_commands_help_is_offered(command):
    offered = {flag.rstrip("=") for flag in complete("recps", command, "--")}
    assert offered == flags_of(recps(command, "--help").stdout)


def precision_words():
    return re.findall(r"^  ([a-z][a-z-]*) +\S", recps("precision", "--help").stdout,
                      re.M)


def test_every_word_of_precision_is_offered():
    assert "compare" in precision_words()
    assert complete("recps", "precision", "") == precision_words()


@pytest.mark.parametrize("word", precision_words()
                         if programs.RECPS.is_file() else [])
def test_every_flag_of_a_words_help_is_offered(word):
    offered = {flag.rstrip("=") for flag in
               complete("recps", "precision", word, "--")}
    assert offered == flags_of(recps("precision", word, "--help").stdout)


@pytest.mark.parametrize("path", [programs.RECPSD, programs.RECPS_TRAIN])
def test_every_flag_of_a_programs_help_is_offered(path):
    text = subprocess.run([str(path), "--help"], capture_output=True, text=True,
                          env=programs.environment(), timeout=30,
                          check=True).stdout
    offered = {flag.rstrip("=") for flag in complete(path.name, "--")}
    assert offered == flags_of(text)


@pytest.mark.parametrize("words, offered", [
    (["recps", "top", "--onc"], ["--once"]),
    (["recps", "log-level", "wa"], ["warn"]),
    (["recps", "log-level", "--ps", "1", ""], ["debug", "info", "warn", "error"]),
    (["recps", "tables", "--log-format", ""], ["text", "json"]),
    (["recps", "tables", "--log-format", "=", "j"], ["json"]),
    (["recps", "tables", "--log-format", "="], ["text", "json"]),
    (["recps", "tables", "--log_format", "j"], ["json"]),
    (["recps", "lookup", "emb", ""], []),
    (["recps", "erase", "emb", "--file", "READ"], ["README.md"]),
    (["recps", "verify", "embed"], ["embedding"]),
    (["recps", "npu", ""], ["memory"]),
    (["recps", "npu", "memory", "READ"], ["README.md"]),
    (["recps", "precision", "comp"], ["compare"]),
    (["recps", "precision", "compare", "embed"], ["embedding"]),
    (["recps", "precision", "compare", "-o", "READ"], ["README.md"]),
    (["recps", "launch", "--ps", ""], []),
    (["recpsd", "--numa", "i"], ["interleave"]),
    (["recpsd", "--checkpoint-dir", "embed"], ["embedding"]),
    (["recps-train", "--sparse-optimizer=", "rm"], []),
    (["recps-train", "--sparse-optimizer", "rm"], ["rmsprop"]),
    (["/usr/bin/recpsd", "--auth", ""], ["none"]),
])
def test_values_are_offered(words, offered):
    assert complete(*words) == offered


# ---- recps-bench ----

has_bench = pytest.mark.skipif(not (BENCH / "recps-bench").is_file(),
                               reason="recps-bench is not built")


def complete_bench(*words):
    return complete("recps-bench", *words, file=BENCH / "recps-bench",
                    function="_recps_bench_complete")


@has_bench
@pytest.mark.parametrize("word", ["net", "table", "checkpoint", "allreduce", "npu"])
def test_every_flag_of_a_benchmarks_help_is_offered(word):
    text = subprocess.run(
        [str(programs.BUILD / "bench/recps-bench"), word, "--help"],
        capture_output=True, text=True, timeout=30, check=True).stdout
    offered = {flag.rstrip("=") for flag in complete_bench(word, "--")}
    assert offered == flags_of(text)


@has_bench
@pytest.mark.parametrize("words, offered", [
    ([""], ["net", "table", "checkpoint", "allreduce", "npu", "--help",
             "--version"]),
    (["ta"], ["table"]),
    (["net", "--transport", ""], ["tcp", "unix", "shm", "local"]),
    (["net", "--wire-type", "=", "i"], ["i8"]),
    (["net", "--rows", ""], []),
    (["table", "--peers", "o"], ["off"]),
    (["allreduce", "--mpirun", "READ"], ["README.md"]),
])
def test_words_and_values_of_benchmarks_are_offered(words, offered):
    assert complete_bench(*words) == offered


def type_into_zsh(line, timeout=20):
    """The screen of a zsh that this line was typed to."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir("/")
        os.execvpe("zsh", ["zsh", "-f", "-i"], {
            "TERM": "dumb", "PATH": os.environ["PATH"], "HOME": "/nonexistent",
            "LC_ALL": "C"})
    seen = b""

    def until(pattern):
        nonlocal seen
        end = time.monotonic() + timeout
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            if select.select([fd], [], [], 0.1)[0]:
                seen += os.read(fd, 65536)

    try:
        until(rb"[%#] ")
        os.write(fd, f"PS1='rea'dy; fpath=({FOLDER} {BENCH} $fpath); autoload -Uz "
                 "compinit; compinit -u -D\n".encode())
        until(rb"ready")
        seen = b""
        os.write(fd, line.encode() + b"\t")
        time.sleep(0.3)
        os.write(fd, b"\x15echo do'ne'\n")
        until(rb"\ndone")
        return seen.decode(errors="replace")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("line, words", [
    ("recps lo", ["lookup", "log-level"]),
    ("recps top --onc", ["--once"]),
    ("recps log-level wa", ["warn"]),
    ("recps --ps-hosts a:1 tables --log-fo", ["--log-format="]),
    ("recpsd --numa=inter", ["interleave"]),
    ("recps-train --mod", ["--mode"]),
    ("recps precision comp", ["compare"]),
    ("recps precision compare --thr", ["--threshold="]),
    ("recps-bench ta", ["table"]),
    ("recps-bench net --transport=sh", ["shm"]),
    ("recps-bench table --thr", ["--threads="]),
])
def test_zsh_offers_the_same(line, words):
    screen = type_into_zsh(line)
    for word in words:
        assert word in screen
