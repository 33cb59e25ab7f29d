# SPDX-License-Identifier: Apache-2.0
"""Unix sockets and shared memory: who may come, and what a peer can do."""
import fcntl
import json
import os
import pathlib
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile

import pytest

import programs
import wire
from programs import Recpsd, until

SEALS = 0x2 | 0x4 | 0x1  # shrink, grow, seal
F_GET_SEALS = 1034


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="recps-near-") as path:
        os.chmod(path, 0o700)
        yield pathlib.Path(path)


@pytest.fixture
def near(folder):
    if not programs.RECPSD.is_file():
        pytest.skip(f"{programs.RECPSD} is not built")
    with Recpsd("--unix-dir", str(folder), "--shm-ring=64KiB", admin="127.0.0.1:0",
                env={"RECPS_LOOPS": "1"}) as server:
        yield server
        if server.process.poll() is None:
            assert server.stop() == 143, server.log()


def path_of(server, folder, ps=0):
    paths = list(folder.glob(f"ps-{ps}-{server.port}-*.sock"))
    assert len(paths) == 1, list(folder.iterdir())
    return paths[0]


def connect(server, folder, greet=True, **hello):
    connection = wire.Connection(path_of(server, folder))
    if greet:
        reply = connection.hello(**hello)
        assert reply.status == wire.OK, reply.text
    return connection


def attach(server, folder):
    return wire.Ring(connect(server, folder))


def rows(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def keys_of(table, keys):
    return wire.section(wire.KEYS, struct.pack(f"<{len(keys)}Q", *keys),
                        table_id=table, count=len(keys))


def gradients_of(table, values, dim):
    return wire.section(wire.ROWS, struct.pack(f"<{len(values)}f", *values),
                        table_id=table, dim=dim, count=len(values) // dim,
                        learning_rate=1.0)


# ---- the socket -----------------------------------------------------------

def test_the_socket_is_for_its_owner_and_goes_at_the_end(near, folder):
    path = path_of(near, folder)
    mode = os.lstat(path).st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    with connect(near, folder) as connection:
        assert connection.call(wire.PING).status == wire.OK
        stats = connection.call(wire.STAT, [wire.text({})]).json
        assert stats["transports"] == {"tcp": 0, "unix": 1, "shm": 0, "local": 0}
    assert near.stop() == 143
    assert list(folder.iterdir()) == []


def test_a_default_folder_is_made_for_the_owner_alone(folder):
    with Recpsd(env={"RECPS_UNIX_DIR": None,
                     "XDG_RUNTIME_DIR": str(folder)}) as server:
        made = folder / "recps"
        assert stat.S_IMODE(os.lstat(made).st_mode) == 0o700
        with connect(server, made):
            pass
        assert server.stop() == 143


def test_what_a_killed_server_left_is_taken_over(near, folder):
    path = path_of(near, folder)
    near.process.kill()
    near.wait()
    assert path.exists()
    with Recpsd("--unix-dir", str(folder),
                bind=f"127.0.0.1:{near.port}") as server:
        assert path_of(server, folder) == path
        with connect(server, folder):
            pass
        assert server.stop() == 143
    assert not path.exists()


def test_a_living_servers_socket_stays_its_own(near, folder):
    path = path_of(near, folder)
    run = subprocess.run(
        [str(programs.RECPSD), "--unix-dir", str(folder), "--bind",
         f"127.0.0.3:{near.port}"], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 138
    assert f"a server listens on {path}" in run.stderr
    with connect(near, folder) as connection:
        assert connection.call(wire.PING).status == wire.OK


def test_other_jobs_and_indices_have_other_sockets(near, folder):
    hosts = f"127.0.0.3:1,127.0.0.4:{near.port}"
    with Recpsd("--unix-dir", str(folder), "--ps-hosts", hosts, "--job-name",
                "ps", "--task-index", "1", bind=f"127.0.0.4:{near.port}"), \
            Recpsd("--unix-dir", str(folder), "--job-id", "other",
                   bind=f"127.0.0.5:{near.port}"):
        assert len(list(folder.iterdir())) == 3


def refused_start(folder, *words):
    run = subprocess.run(
        [str(programs.RECPSD), "--unix-dir", str(folder), "--bind",
         "127.0.0.1:0", "--port-file", os.devnull], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 64, run.stderr
    for word in words:
        assert word in run.stderr, run.stderr


def test_a_folder_that_is_not_ours_alone_is_refused(folder):
    open_one = folder / "open"
    open_one.mkdir(mode=0o755)
    os.chmod(open_one, 0o755)
    refused_start(open_one, "open to others", "chmod 700")
    link = folder / "link"
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    link.symlink_to(closed)
    refused_start(link, "is not a folder")
    refused_start(folder / "no" / "such", "No such file")
    refused_start(folder / ("x" * 120), "path")
    if os.geteuid() == 0:
        os.chown(closed, 65534, 65534)
        refused_start(closed, "belongs to user 65534")


def test_a_file_in_the_way_is_left_alone(near, folder):
    path = path_of(near, folder)
    near.process.kill()
    near.wait()
    path.unlink()
    path.write_text("mine")
    run = subprocess.run(
        [str(programs.RECPSD), "--unix-dir", str(folder), "--bind",
         f"127.0.0.1:{near.port}"], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 64 and "no socket: remove it" in run.stderr
    assert path.read_text() == "mine"


def test_off_means_no_socket(folder):
    with Recpsd("--unix-dir=off", env={"XDG_RUNTIME_DIR": str(folder)}) as server:
        assert "unix=off" in server.log()
        assert list(folder.iterdir()) == []


OTHER_USER = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
os.setgid(65534)
os.setuid(65534)
s.connect(sys.argv[1])
sys.exit(0 if s.recv(1) == b"" else 1)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_is_closed_at_once(near, folder):
    path = path_of(near, folder)
    os.chmod(folder, 0o755)  # after the start: the kernel lets him in
    os.chmod(path, 0o666)
    run = subprocess.run([sys.executable, "-c", OTHER_USER, str(path)],
                         timeout=30, check=False)
    assert run.returncode == 0
    assert near.wait_for_log("user 65534 is neither ours nor root's")
    near.assert_serves()


def test_a_token_is_asked_for_here_too(folder):
    if not programs.has_openssl():
        pytest.skip("built without OpenSSL")
    token = folder / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    with Recpsd("--unix-dir", str(folder), "--token-file", str(token)) as server:
        with connect(server, folder, greet=False) as connection:
            assert connection.hello().status == wire.NO_AUTH
        with connect(server, folder, token=token.read_bytes()) as connection:
            ring = wire.Ring(connection)
            assert ring.call(wire.PING).status == wire.OK
            ring.close()


# ---- shared memory --------------------------------------------------------

def test_rows_go_through_the_ring(near, folder):
    with attach(near, folder) as ring:
        assert ring.size == 65536
        table = ring.table(dim=4, initializer="zeros")
        push = [keys_of(table, [5, 6]), gradients_of(table, range(8), 4)]
        assert ring.call(wire.PUSH, push, step=1).status == wire.OK
        reply = ring.call(wire.LOOKUP, [keys_of(table, [6, 5, 7])])
        assert rows(reply.find(wire.ROWS)) == (
            -4, -5, -6, -7, 0, -1, -2, -3, 0, 0, 0, 0)
        stats = ring.call(wire.STAT, [wire.text({})]).json
        assert stats["transports"]["shm"] == 1
        assert stats["memory_rings"] == wire.CONTROL + 2 * ring.size
        _, page, _ = near.get("/metrics")
        assert 'recps_transport_connections{transport="shm"} 1' in page
        assert f"recps_shm_bytes {wire.CONTROL + 2 * ring.size}" in page
    until(lambda: near.stat()["memory_rings"] == 0)


def test_frames_larger_than_the_ring_come_in_pieces(near, folder):
    n, dim = 5000, 16  # 320 kB each way, in 64 KiB
    with attach(near, folder) as ring:
        table = ring.table(dim=dim, initializer="zeros")
        keys = keys_of(table, list(range(n)))
        values = [float(i % 1000) for i in range(n * dim)]
        push = [keys, gradients_of(table, values, dim)]
        assert ring.call(wire.PUSH, push, step=1).status == wire.OK
        for _ in range(3):  # what is sent before the answers are read
            ring.send_frame(wire.LOOKUP, [keys_of(table, list(range(n)))])
        for _ in range(3):
            back = rows(ring.receive().find(wire.ROWS))
            assert back == tuple(-v for v in values)


def test_the_memory_can_neither_shrink_nor_grow(near, folder):
    with attach(near, folder) as ring:
        assert fcntl.fcntl(ring.memory_fd, F_GET_SEALS) & SEALS == SEALS
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(ring.memory_fd, size)


def test_shared_memory_is_for_who_came_by_the_socket(near, folder):
    with near.connect() as connection:
        reply = connection.call(wire.SHM_ATTACH)
        assert reply.status == wire.UNSUPPORTED and "Unix socket" in reply.text
    with connect(near, folder, greet=False) as connection:
        assert connection.call(wire.SHM_ATTACH).status < 0  # no HELLO yet
    with attach(near, folder) as ring:
        reply = ring.call(wire.SHM_ATTACH)
        assert reply.status == wire.INVAL and "has a ring" in reply.text
        assert ring.call(wire.PING).status == wire.OK


def test_a_ring_fits_a_small_memory_limit_or_is_refused(folder):
    with Recpsd("--unix-dir", str(folder), "--memory-limit=64MiB") as server:
        with attach(server, folder) as ring:
            assert ring.size == 256 << 10  # 4 MiB would be too much of it
    with Recpsd("--unix-dir", str(folder), "--memory-limit=8MiB") as server:
        with connect(server, folder) as connection:
            reply = connection.call(wire.SHM_ATTACH)
            assert reply.status == wire.LIMIT and "memory limit" in reply.text
            assert connection.call(wire.PING).status == wire.OK
        run = subprocess.run(
            [str(programs.RECPS), "ping", "--json", "--ps-hosts",
             f"127.0.0.1:{server.port}", "--unix-dir", str(folder)],
            env=programs.environment(), capture_output=True, text=True,
            timeout=60, check=True)
        assert json.loads(run.stdout)["ps"][0]["transport"] == "tcp"
        assert run.stderr.count("reached by tcp: ") == 1


# ---- hostile peers --------------------------------------------------------

def is_lost(ring):
    while select.select([ring.pipe_fd], [], [], 20)[0]:
        if not os.read(ring.pipe_fd, 4096):
            return ring.sock.recv(1) == b""
    return False


SPOILS = {
    "tail is no multiple": lambda r: r.word("client", "tail", 63),
    "tail too far": lambda r: r.word("client", "tail", r.written + r.size + 64),
    "tail goes back": lambda r: r.word("client", "tail", r.written - 64),
    "tail is the largest": lambda r: r.word("client", "tail", 2**64 - 1),
    "a frame that is none": lambda r: r.send(bytes(range(256))),
    "a body too large": lambda r: r.send(
        wire.header(wire.PING, wire.BODY_MAX + 1)),
    "bytes on the socket": lambda r: r.send_over_socket(b"x"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("spoil", SPOILS)
def test_rubbish_costs_its_own_connection_only(near, folder, spoil):
    with near.connect() as other, attach(near, folder) as ring:
        assert ring.call(wire.PING).status == wire.OK
        SPOILS[spoil](ring)
        ring.ring_bell()
        assert is_lost(ring)
        assert near.wait_for_log("unix:[0-9]+: .*connection closed")
        assert other.call(wire.PING).status == wire.OK
    near.assert_serves()


@pytest.mark.hostile
def test_a_head_that_cannot_be_is_no_room(near, folder):
    with attach(near, folder) as ring:
        table = ring.table(dim=4)
        ring.word("client", "head", 2**63)
        ring.send_frame(wire.LOOKUP, [keys_of(table, [1])])
        assert is_lost(ring)
    near.assert_serves()


@pytest.mark.hostile
def test_who_never_reads_fills_his_ring_and_no_more(near, folder):
    with near.connect() as other, attach(near, folder) as ring:
        table = ring.table(dim=256)
        for _ in range(40):  # 40 answers of 100 kB into 64 KiB
            ring.send_frame(wire.LOOKUP, [keys_of(table, list(range(100)))])
            # he says that he sleeps, and never wakes: bells fill his pipe
            ring.word("client", "sleeps", wire.FOR_DATA | wire.FOR_ROOM)
        for _ in range(2000):
            ring.word("client", "sleeps", wire.FOR_DATA | wire.FOR_ROOM)
            ring.ring_bell()
        assert other.call(wire.PING).status == wire.OK
        for _ in range(40):  # and it is all there when he does
            assert len(ring.receive().find(wire.ROWS)) == 100 * 1024
    near.assert_serves()


@pytest.mark.hostile
def test_a_bell_cannot_hold_the_server(near, folder):
    """Its own is never written to, the client's never waited for."""
    with near.connect() as other, attach(near, folder) as ring:
        flags = fcntl.fcntl(ring.bell_fd, fcntl.F_GETFL)
        fcntl.fcntl(ring.bell_fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
        os.set_blocking(ring.pipe_fd, True)
        ring.word("client", "sleeps", wire.FOR_DATA | wire.FOR_ROOM)
        ring.copy_in(wire.frame(wire.PING, [], 9))
        ring.word("client", "tail", ring.written + 128)  # 72 bytes
        os.write(ring.bell_fd, struct.pack("<Q", 2**64 - 2))
        assert other.call(wire.PING).status == wire.OK
        assert ring.receive().status == wire.OK  # it was not blocked, either
    near.assert_serves()


@pytest.mark.hostile
def test_half_a_frame_and_gone(near, folder):
    for cut in (64, 128):
        ring = attach(near, folder)
        data = wire.frame(wire.STAT, [wire.text({"digests": False})], 9)
        ring.copy_in(data[:cut])
        ring.publish(cut)
        ring.close()
    until(lambda: near.stat()["connections"] == 1)
    near.assert_serves()


def test_what_was_sent_before_the_end_is_done(near, folder):
    ring = attach(near, folder)
    table = ring.table(dim=2, initializer="zeros")
    os.kill(near.process.pid, signal.SIGSTOP)
    ring.send_frame(wire.PUSH, [keys_of(table, [1]),
                                gradients_of(table, [1.0, 2.0], 2)], step=1)
    ring.close()
    os.kill(near.process.pid, signal.SIGCONT)
    with near.connect() as other:
        def pushed():
            reply = other.call(wire.LOOKUP, [keys_of(table, [1])])
            return rows(reply.find(wire.ROWS)) == (-1.0, -2.0)
        until(pushed)


def test_a_folder_that_is_too_long_is_not_made_nor_blamed_on_bind(tmp_path):
    folder = tmp_path / ("x" * 120)
    run = subprocess.run(
        [str(programs.RECPSD), "--unix-dir", str(folder), "--bind",
         "127.0.0.1:0", "--port-file", str(tmp_path / "port"), "--admin=off"],
        env=programs.environment(), capture_output=True, text=True, timeout=30,
        check=False)
    assert run.returncode == 64
    assert f"listen_failed: {folder}" in run.stderr
    assert "give a shorter unix_dir" in run.stderr
    assert "--bind" not in run.stderr and not folder.exists()
