# SPDX-License-Identifier: Apache-2.0
"""The built programs, and a recpsd that a test starts and stops."""
import atexit
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import wire

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_folder():
    if "RECPS_BUILD" in os.environ:
        return pathlib.Path(os.environ["RECPS_BUILD"])
    for name in ("build/release", "build/dev", "build"):
        if (ROOT / name / "server/daemon/recpsd").is_file():
            return ROOT / name
    return ROOT / "build/release"


def tests_build_folder():
    """Where the tests' own programs are: the release preset leaves them."""
    for folder in (build_folder(), ROOT / "build/dev", ROOT / "build/asan"):
        if (folder / "tests/tools/table_replay").is_file():
            return folder
    return ROOT / "build/dev"


BUILD = build_folder()
TESTS_BUILD = tests_build_folder()
RECPSD = BUILD / "server/daemon/recpsd"
RECPS = BUILD / "client/cli/recps"
RECPS_TRAIN = BUILD / "client/worker/recps-train"


def has_openssl():
    """Was this recpsd built with tokens and TLS?"""
    if not RECPSD.is_file():
        return False
    run = subprocess.run([str(RECPSD), "--token-file", "/dev/null"],
                         env=environment(), capture_output=True, text=True,
                         timeout=30, check=False)
    return "without OpenSSL" not in run.stderr


def has_mpi():
    """Was this built with librecps-collective, and can it be run?"""
    library = BUILD / "client/collective/librecps-collective.so"
    return library.exists() and shutil.which("mpirun") is not None


def free_ports(count):
    """Of the loopback, a moment ago: for servers that a cluster names."""
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def unix_folder():
    """Where the sockets of this run's servers lie: killed ones leave theirs."""
    if not hasattr(unix_folder, "made"):
        unix_folder.made = tempfile.mkdtemp(prefix="recps-unix-")
        atexit.register(shutil.rmtree, unix_folder.made, ignore_errors=True)
    return unix_folder.made


def environment(**more):
    """Ours, without what would change what a program does.

    Servers have no admin port unless they are told to: several run at once.
    """
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TF_CONFIG", "RECPS_", "RPS_NPU_", "NPU_"))}
    env["RECPS_ADMIN"] = "off"
    env["RECPS_UNIX_DIR"] = unix_folder()
    env["RPS_NPU_HOST"] = f"test-{os.getpid()}"  # devices of our own
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


class Recpsd:
    """A server on a port that was free, with its log in a file."""

    def __init__(self, *flags, bind="127.0.0.1:0", admin=None, env=None):
        self.folder = tempfile.TemporaryDirectory(prefix="recpsd-")
        self.port_file = pathlib.Path(self.folder.name) / "port"
        self.log_path = pathlib.Path(self.folder.name) / "log"
        self.flags = [str(RECPSD), "--port-file", str(self.port_file), *flags]
        if bind is not None:
            self.flags += ["--bind", bind]
        self.admin_file = pathlib.Path(self.folder.name) / "admin-port"
        if admin is not None:
            self.flags += ["--admin", admin, "--admin-port-file",
                           str(self.admin_file)]
        self.env = environment(**(env or {}))
        self.process = None
        self.port = None

    def start(self, timeout=20):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.flags, stderr=log, stdout=log, env=self.env)
        end = time.monotonic() + timeout
        while not self.port_file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"recpsd did not start:\n{self.log()}")
            time.sleep(0.01)
        self.port = int(self.port_file.read_text())
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, pattern, timeout=10):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if re.search(pattern, self.log()):
                return True
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{self.log()}")

    def stop(self, number=signal.SIGTERM, timeout=30):
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout=30):
        return self.process.wait(timeout)

    def connect(self, greet=True, **hello):
        connection = wire.Connection(self.port)
        if greet:
            reply = connection.hello(**hello)
            assert reply.status == wire.OK, reply.text
        return connection

    def get(self, path, method="GET", timeout=20, host="127.0.0.1"):
        """A page of the admin port: (status, text, headers)."""
        connection = http.client.HTTPConnection(
            host, int(self.admin_file.read_text()), timeout=timeout)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def stat(self):
        with self.connect() as connection:
            return connection.call(wire.STAT, [wire.text({})]).json

    def assert_serves(self):
        """Whatever happened before: a new connection is served."""
        assert self.process.poll() is None, self.log()
        with self.connect() as connection:
            assert connection.call(wire.PING).status == wire.OK


def stop(process):
    """Until SIGCONT. Each of its threads stops when it sees it, and one of
    them might answer before: when this returns, all have."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def until(condition, timeout=20):
    """What condition() answers once that is true."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("did not come true")
