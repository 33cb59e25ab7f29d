# SPDX-License-Identifier: Apache-2.0
"""recps-bench net: what it prints, refuses and finds. Speeds are not tested."""
import contextlib
import functools
import json
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading

import numpy
import pytest

import benches
import programs
from benches import BENCH, assert_positive

SMALL = ["--rows", 2000, "--dim", 16, "--batch", 256, "--seconds", 0.02]
OURS = ["rows_per_second", "bytes_per_second", "p50_us", "p99_us", "p999_us",
        "p999_over_p50", "client_cpu_seconds_per_million", "request_bytes",
        "reply_bytes", "bytes_saved", "checked_answers"]
STREAM = ["stream_bytes_per_second", "stream_ratio"]
GATHER = ["gather_bytes_per_second", "gather_ratio"]
LOCAL = ["local_rows_per_second", "over_local"]
NOT_ASKED = ["beside_rows_per_second", "ping_p50_us", "p50_over_ping",
             "f32_rows_per_second", "over_f32", "lookup_rows_per_second",
             "over_lookup", "redis_rows_per_second", "versus_redis",
             "memcached_rows_per_second", "versus_memcached"]
LOOKUP, PUSH = 4, 6  # opcodes

pytestmark = benches.is_built

net = functools.partial(benches.bench, "net")
figures = functools.partial(benches.figures, "net")


def assert_null(result, names):
    for name in names:
        assert result[name] is None, name


@pytest.mark.parametrize("transport", ["tcp", "unix", "shm", "local"])
def test_json_is_one_object_with_every_figure(transport):
    result = figures(*SMALL, "--transport", transport)
    assert_positive(result, OURS + STREAM + GATHER + LOCAL[:1])
    assert_null(result, NOT_ASKED)
    assert result["transport"] == transport
    assert (result["rows"], result["dim"], result["batch"]) == (2000, 16, 256)
    assert (result["depth"], result["connections"]) == (4, 1)
    assert result["request_bytes"] >= 64 + 8 * 256 * 0.9
    assert (result["over_local"] is None) == (transport == "local")
    near = transport in ("unix", "shm")
    assert (result["over_tcp"] is not None) == near
    server = result["server_cpu_seconds_per_million"]
    assert (server is None) == (transport == "local")
    for name in ("cpu", "isa", "huge_pages", "version"):
        assert isinstance(result[name], str) and result[name], name


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_request_at_a_time_stands_beside_a_ping_pong(transport):
    result = figures(*SMALL, "--batch", 8, "--depth", 1, "--connections", 4,
                     "--beside", 512, "--transport", transport)
    assert_positive(result, OURS + ["ping_p50_us", "p50_over_ping",
                                    "beside_rows_per_second"])


def children_of(process):
    path = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [pathlib.Path(f"/proc/{pid}") for pid in path.read_text().split()]


@pytest.mark.parametrize("number, rows", [
    (signal.SIGINT, 2000), (signal.SIGTERM, 2000),
    (signal.SIGINT, 50_000_000)], ids=["int", "term", "while-it-fills"])
def test_a_signal_takes_children_and_folder_with_it(number, rows):
    process = subprocess.Popen(
        [str(BENCH), "net", "--rows", str(rows), "--dim", "16", "--seconds",
         "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=programs.environment())

    def folders():
        words = b"".join((child / "cmdline").read_bytes()
                         for child in children_of(process))
        return re.findall(rb"--unix-dir=(/tmp/recps-bench-\w+)", words)
    try:
        programs.until(folders)
        folder = pathlib.Path(folders()[0].decode())
        programs.until((folder / "port").is_file)
        children = children_of(process)
        assert len(children) == 3  # recpsd, the two bare streams
        process.send_signal(number)
        out, words = process.communicate(timeout=30)
        assert (process.returncode, out) == (-number, b""), words
        assert not folder.exists()
        assert not any(child.exists() for child in children)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("flags", (
    ["--mix", "push:1"],
    ["--mix", "lookup:5,push:4,insert:1", "--connections", 3, "--transport",
     "shm", "--value-type", "bf16", "--wire-type", "f16", "--optimizer", "sgd"],
    ["--mix", "push:3,insert:1", "--dist", "zipf:1.1", "--beside", 64],
    ["--mix", "lookup:1,push:1", "--transport", "local"]))
def test_pushes_are_counted_exactly(flags):
    result = figures(*SMALL, *flags)
    assert_positive(result, OURS + ["lookup_rows_per_second", "over_lookup"])
    assert_null(result, GATHER)
    assert result["checked_answers"] >= 2000  # every row


@pytest.mark.parametrize("wire, least", [("f16", 1.3), ("bf16", 1.3),
                                         ("i8", 1.8)])
def test_narrow_rows_are_fewer_bytes(wire, least):
    result = figures(*SMALL, "--wire-type", wire)
    wide = figures(*SMALL, "--alone")
    assert wide["reply_bytes"] / result["reply_bytes"] > least
    assert_positive(result, ["f32_rows_per_second", "over_f32"])
    assert_positive(result, GATHER)  # of rows as short as these
    assert_null(wide, STREAM + GATHER + LOCAL)


def test_reused_ids_travel_once(tmp_path):
    (tmp_path / "reuse.tsv").write_text("# above up_to rows lookups\n"
                                        "15\t16\t1.0\t1.0\n")
    numpy.save(tmp_path / "keys.npy", numpy.arange(16, dtype="<u8"))
    for dist in ("reuse:" + str(tmp_path / "reuse.tsv"),
                 "trace:" + str(tmp_path / "keys.npy")):
        result = figures(*SMALL, "--dist", dist, "--dim", 64, "--alone")
        assert 8 < result["bytes_saved"] < 17


@pytest.mark.parametrize("whom, program", [("redis", "redis-server"),
                                           ("memcached", "memcached")])
@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_others_are_measured_where_they_are(whom, program, transport):
    run = net(*SMALL, "--versus", whom, "--alone", "--json", "--transport",
              transport)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    names = [f"{whom}_rows_per_second", f"versus_{whom}", f"{whom}_depth"]
    if f"built without the client of {whom}" in run.stderr:
        assert_null(result, names)
        pytest.skip("built without it")
    if shutil.which(program) is None:
        assert f"{whom} is not installed" in run.stderr
        assert_null(result, names)
    else:
        assert_positive(result, names)


def test_who_is_not_installed_is_null(tmp_path):
    environment = programs.environment(PATH=str(tmp_path))
    run = subprocess.run(
        [BENCH, "net", *map(str, SMALL), "--versus", "redis,memcached",
         "--alone", "--json"], check=False, capture_output=True, text=True,
        timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
    assert_null(json.loads(run.stdout), ["versus_redis", "versus_memcached"])
    assert "not measured: " in run.stderr


def test_another_server_is_asked_and_left_as_it_was():
    with programs.Recpsd() as server:
        address = f"127.0.0.1:{server.port}"
        result = figures(*SMALL, "--address", address)
        assert_positive(result, OURS + STREAM + GATHER + LOCAL)
        assert result["server_cpu_seconds_per_million"] is None
        tables = subprocess.run(
            [programs.RECPS, "tables", "--ps-hosts", address, "--json"],
            check=True, capture_output=True, text=True, timeout=60,
            env=programs.environment())
        assert "recps_bench_net" not in tables.stdout


class Spoiler:
    """Passes bytes on between a client and a server; one in the middle of
    the body of each frame of this opcode is another one."""

    def __init__(self, port, opcode):
        self.port, self.opcode = port, opcode
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=pair,
                                     daemon=True).start()

    def copy(self, source, sink):
        with contextlib.suppress(OSError), source.makefile("rb") as frames:
            while len(head := frames.read(64)) == 64:
                opcode, flags, size = struct.unpack_from("<6xHII", head)
                body = bytearray(frames.read(size))
                bulk = bool(flags & 1) == (self.opcode == LOOKUP)
                if opcode == self.opcode and bulk and size > 4096:
                    body[size // 2 // 4 * 4 + 2] ^= 0x40
                sink.sendall(head + body)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("opcode, mix", [(LOOKUP, "lookup:1"),
                                         (PUSH, "push:1")])
def test_a_wrong_bit_on_the_way_is_found(opcode, mix):
    with programs.Recpsd() as server:
        spoiler = Spoiler(server.port, opcode)
        run = net(*SMALL, "--alone", "--mix", mix, "--address",
                  spoiler.address, "--json")
        spoiler.listener.close()
    assert run.returncode == 1
    assert "wrong answer: key" in run.stderr
    assert run.stdout == ""


def test_nothing_is_left_behind():
    before = set(pathlib.Path("/tmp").glob("recps-bench-*"))
    run = net(*SMALL, "--dist", "trace:/dev/null", "--versus", "redis")
    assert run.returncode == 64
    assert set(pathlib.Path("/tmp").glob("recps-bench-*")) <= before


def test_output_that_cannot_be_written_is_said():
    with open("/dev/full", "w", encoding="ascii") as full:
        run = subprocess.run(
            [BENCH, "net", *map(str, SMALL), "--alone", "--json"],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, env=programs.environment())
    assert run.returncode == 1
    assert "writing to stdout: No space left on device" in run.stderr


def test_people_get_a_table_and_progress_apart():
    run = net(*SMALL)
    assert run.returncode == 0
    assert "bytes/s / the bare stream's" in run.stdout
    assert "filling 2000 rows of dim 16" in run.stderr


@pytest.mark.parametrize("flags, words", [
    (["--transport", "auto"], ["--transport", "tcp, unix, shm or local"]),
    (["--rows", "0"], ["--rows", '"0"', "from 1 to"]),
    (["--dim", "8193"], ["--dim", "from 1 to 8192"]),
    (["--batch", "0"], ["--batch", "from 1 to"]),
    (["--depth", "65"], ["--depth", "from 1 to 64"]),
    (["--connections", "0"], ["--connections", "from 1 to 256"]),
    (["--beside", "x"], ["--beside", "from 1 to"]),
    (["--value-type", "i8"], ["--value-type", "f32, f16 or bf16"]),
    (["--wire-type", "f8"], ["--wire-type", "f32, f16, bf16 or i8"]),
    (["--optimizer", "sdg"], ["--optimizer", "adagrad", "rmsprop"]),
    (["--mix", "lookup:0"], ["--mix", "not all 0"]),
    (["--mix", "push:1", "--dist", "hot:9"], ["--dist", "lookups alone"]),
    (["--mix", "push:1", "--optimizer", "adam"], ["--optimizer", "order"]),
    (["--mix", "push:1", "--wire-type", "i8"], ["--wire-type", "rounds"]),
    (["--mix", "push:1", "--rows", "9", "--batch", "10"],
     ["--batch", "--rows / --connections"]),
    (["--dist", "zipf:-1"], ["--dist", "zipf:S", "reuse:FILE"]),
    (["--dist", "reuse:/nowhere"], ["/nowhere"]),
    (["--seconds", "0"], ["--seconds", "above 0"]),
    (["--seed", "-1"], ["--seed"]),
    (["--address", "here"], ["--address", "HOST:PORT"]),
    (["--versus", "etcd"], ["--versus", "redis, memcached"]),
    (["--transport", "local", "--connections", "2"], ["local", "--connections"]),
    (["lookup"], ["lookup", "none is taken"]),
    (["--bogus"], ["--bogus", "--help"]),
])
def test_bad_input_is_64_and_says_what_is_allowed(flags, words):
    run = net(*flags)
    assert run.returncode == 64
    assert run.stdout == ""
    for word in words:
        assert word in run.stderr


def test_help_names_every_option():
    run = net("--help")
    assert run.returncode == 0
    for option in ("transport", "rows", "dim", "batch", "depth", "connections",
                   "beside", "value-type", "wire-type", "optimizer", "mix",
                   "dist", "seconds", "address", "versus", "alone", "seed",
                   "json"):
        assert f"--{option}" in run.stdout


@pytest.mark.parametrize("words", [[], ["lookup"], ["--bogus"]])
def test_one_word_says_which_benchmark(words):
    run = subprocess.run([BENCH, *words], check=False, capture_output=True,
                         text=True, timeout=30, env=programs.environment())
    assert run.returncode == 64
    assert "recps-bench --help" in run.stderr
