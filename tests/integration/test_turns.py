# SPDX-License-Identifier: Apache-2.0
"""Connections of one loop take turns, however large their requests are."""
import os
import pathlib
import signal
import struct
import tempfile

import pytest

import programs
import wire

REQUESTS, KEYS, DIM = 12, 1024, 512  # of 2 MiB each


@pytest.fixture
def server():
    if not programs.RECPSD.is_file():
        pytest.skip(f"{programs.RECPSD} is not built")
    with tempfile.TemporaryDirectory(prefix="recps-near-") as path:
        os.chmod(path, 0o700)
        with programs.Recpsd("--loops=1", "--shm-ring=1MiB",
                             f"--unix-dir={path}") as running:
            running.unix_dir = pathlib.Path(path)
            yield running
            assert running.stop() == 143, running.log()


def ring(server):
    path, = server.unix_dir.glob("ps-*.sock")
    connection = wire.Connection(path)
    assert connection.hello().status == wire.OK
    return wire.Ring(connection)


@pytest.mark.parametrize("stream", [programs.Recpsd.connect, ring])
def test_a_small_request_does_not_wait_for_all_of_a_stream(server, stream):
    with stream(server) as large, server.connect() as small:
        table = large.table(dim=DIM)
        keys = wire.section(wire.KEYS, struct.pack(f"<{KEYS}Q", *range(KEYS)),
                            table_id=table, count=KEYS)
        programs.stop(server.process)  # both are there when it goes on
        for _ in range(REQUESTS):
            large.send_frame(wire.LOOKUP, [keys])
        small.send_frame(wire.STAT, [wire.text({})])
        server.process.send_signal(signal.SIGCONT)
        seen = small.receive().json["tables"][0]["lookups"]
        assert seen < REQUESTS * KEYS
        for _ in range(REQUESTS):
            assert large.receive().status == wire.OK
    assert server.stat()["tables"][0]["lookups"] == REQUESTS * KEYS
