# SPDX-License-Identifier: Apache-2.0
"""recps top: in a terminal (a pty), in a pipe, as JSON."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import programs
import wire
from test_cli import Cluster, fill, recps

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")

BEGIN, END = b"\033[?1049h", b"\033[?1049l"


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as servers:
        for index in range(2):
            fill(servers, index, range(40))
        yield servers


class Terminal:
    """recps top in a terminal of its own."""

    def __init__(self, cluster, *flags, columns=120, lines=30, **env):
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.bytes = b""  # since the last frame
        self.all = b""
        self.process = subprocess.Popen(
            [str(programs.RECPS), "top", "--ps-hosts", cluster.hosts,
             "--interval", "0.1", *flags],
            stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=programs.environment(**{"TERM": "xterm", **env}),
            start_new_session=True, preexec_fn=self.own)

    def own(self):
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ,
                    struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, wait=0.1):
        while select.select([self.master], [], [], wait)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.bytes += data
            self.all += data
            wait = 0

    def until(self, pattern, timeout=20):
        end = time.monotonic() + timeout
        while not re.search(pattern, self.bytes):
            assert time.monotonic() < end, self.bytes[-3000:]
            self.read()
        return self.bytes

    def frame(self):
        """The lines of the next whole frame."""
        self.bytes = b""
        self.until(rb"(?s)\033\[H.*\033\[J")
        text = re.search(rb"(?s)\033\[H(.*?)\033\[J", self.bytes).group(1)
        plain = re.sub(rb"\033\[[?0-9;]*[a-zA-Z]", b"", text).decode()
        return [line.rstrip("\r") for line in plain.split("\n")]

    def type(self, keys):
        os.write(self.master, keys)

    def wait(self):
        end = time.monotonic() + 20
        while self.process.poll() is None:
            assert time.monotonic() < end
            self.read()
        self.read()
        return self.process.returncode

    def assert_given_back(self):
        """As it was: settings, cursor, wrapping, the other screen."""
        assert termios.tcgetattr(self.slave) == self.before
        tail = self.all[self.all.rindex(BEGIN):]
        for sequence in (END, b"\033[?25h", b"\033[?7h"):
            assert sequence in tail


# ---- in a terminal ----

def test_a_frame_shows_every_server_and_table(cluster):
    with Terminal(cluster) as terminal:
        terminal.until(re.escape(BEGIN))
        assert not termios.tcgetattr(terminal.slave)[3] & termios.ECHO
        frame = terminal.frame()
        assert frame[0].startswith("recps top") and "2 servers" in frame[0]
        for index, address in enumerate(cluster.hosts.split(",")):
            assert any(line.split()[:2] == [str(index), address]
                       for line in frame), frame
        assert any(line.startswith("emb ") for line in frame)
        terminal.type(b"q")
        assert terminal.wait() == 0
        terminal.assert_given_back()


def test_it_follows_the_size_of_its_window(cluster):
    with Terminal(cluster, "--interval", "0.3") as terminal:
        assert max(map(len, terminal.frame())) > 100
        for columns, lines in ((60, 12), (30, 6), (140, 40)):
            terminal.resize(columns, lines)
            programs.until(lambda: max(map(len, terminal.frame())) <= columns)
            assert len(terminal.frame()) <= lines
        terminal.type(b"q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("number", [
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGABRT, signal.SIGSEGV])
def test_whatever_ends_it_the_terminal_is_given_back(cluster, number):
    with Terminal(cluster) as terminal:
        terminal.frame()
        terminal.process.send_signal(number)
        assert terminal.wait() == -number
        terminal.assert_given_back()


def test_the_interrupt_key_ends_it_at_once(cluster):
    with Terminal(cluster, "--interval", "60") as terminal:
        terminal.frame()
        terminal.type(b"\x03")
        assert terminal.wait() == -signal.SIGINT
        terminal.assert_given_back()


def test_it_gives_the_terminal_back_while_it_is_stopped(cluster):
    with Terminal(cluster) as terminal:
        terminal.frame()
        # where nobody could let it go on (as here) it does so by itself
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(re.escape(END))
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(rb"(?s)" + re.escape(END) + rb".*" + re.escape(BEGIN)
                       + rb".*recps top")
        terminal.type(b"q")
        assert terminal.wait() == 0
        terminal.assert_given_back()


def test_a_dumb_terminal_gets_text(cluster):
    with Terminal(cluster, "--count", "1", TERM="dumb") as terminal:
        assert terminal.wait() == 0
        assert b"\033" not in terminal.bytes
        assert b"recps top" in terminal.bytes


def test_a_server_that_goes_and_comes_back_is_told():
    with Cluster() as cluster, Terminal(cluster) as terminal:
        terminal.frame()
        gone = cluster.servers[1]
        gone.process.kill()
        gone.process.wait()
        programs.until(lambda: any(
            line.startswith("! ps 1, silent for") for line in terminal.frame()))
        gone.port_file.unlink()
        gone.start()
        programs.until(lambda: not any(
            line.startswith("! ps 1") for line in terminal.frame()))
        terminal.type(b"q")
        assert terminal.wait() == 0


# ---- for scripts ----

def test_once_has_rates_and_is_one_object(cluster):
    run = recps("top", "--once", "--json", "--interval", "0.2", "--table",
                "emb", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    frame = json.loads(line)
    assert 0.2 <= frame["seconds"] < 20
    assert [ps["address"] for ps in frame["ps"]] == cluster.hosts.split(",")
    for ps in frame["ps"]:
        assert ps["reached"] and ps["requests_per_second"] > 0
        assert ps["ping_ms"] > 0 and ps["lookup_p99_ms"] is None
    (table,) = [t for t in frame["tables"] if t["name"] == "emb"]
    assert (table["rows"], table["dim"]) == (40, 4)
    assert table["lookups_per_second"] == 0
    assert frame["hot"]["table"] == "emb"


def test_json_is_an_object_a_line(cluster):
    run = recps("top", "--json", "--count", "3", "--interval", "0.1",
                "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    frames = [json.loads(line) for line in run.stdout.splitlines()]
    assert [f["seconds"] is None for f in frames] == [True, False, False]


def test_rates_are_what_came_between_two_looks(cluster):
    process = subprocess.Popen(
        [str(programs.RECPS), "top", "--json", "--interval", "0.3",
         "--ps-hosts", cluster.hosts],
        stdout=subprocess.PIPE, env=programs.environment(), text=True)
    try:
        process.stdout.readline()
        with cluster.connect(0) as connection:
            table = connection.table("emb", 4)
            for _ in range(200):
                assert connection.call(wire.LOOKUP, [wire.section(
                    wire.KEYS, b"", table_id=table)]).status == wire.OK
        seen = 0
        while seen < 199.5:
            frame = json.loads(process.stdout.readline())
            ps = frame["ps"][0]
            if ps["lookup_p50_ms"] is not None:
                assert 0 < ps["lookup_p50_ms"] <= ps["lookup_p99_ms"]
                assert ps["received_bytes_per_second"] > 0
            # PING, STAT, HOT_KEYS of this look and GET of the table beside
            seen += max(0, ps["requests_per_second"] * frame["seconds"] - 5)
        assert seen < 215
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_pipe_gets_frames_as_text(cluster):
    run = recps("top", "--count", "2", "--interval", "0.1",
                "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("recps top") == 2 and "\033" not in run.stdout


def test_a_reader_that_leaves_ends_it(cluster):
    run = subprocess.run(
        ["sh", "-c", f"'{programs.RECPS}' top --interval 0.1 --ps-hosts "
         f"{cluster.hosts} | head -n 1"], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert run.stdout.startswith("recps top") and run.stderr == ""


@pytest.mark.parametrize("flags, words", [
    (["--interval", "0"], "0.1 to 3600"),
    (["--interval", "x"], "0.1 to 3600"),
    (["--count", "x"], "a number of frames"),
    (["--once", "--count", "2"], "leave one of them out"),
])
def test_bad_flags_are_64(cluster, flags, words):
    run = recps("top", "--json", *flags, "--ps-hosts", cluster.hosts)
    assert run.returncode == 64 and words in json.loads(run.stdout)["error"]


def test_who_is_not_there_at_the_start_is_69():
    run = recps("top", "--once", "--json", "--ps-hosts", "127.0.0.1:1",
                "--connect-timeout", "0.3")
    assert run.returncode == 69
    assert json.loads(run.stdout)["exit"] == 69
