# SPDX-License-Identifier: Apache-2.0
"""Two servers, of which one begins anew: each says what it has applied."""
import collections
import pathlib
import signal

import pytest

import programs
import wire
from proxy_cut import DOWN, UP, CuttingProxy
from test_cli import Cluster
from test_lanes import Pusher, pytestmark  # noqa: F401

ROWS = 16  # of a push: both servers have some


def freeze(server):
    """Every thread of it stands still."""
    programs.stop(server.process)
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
    programs.until(lambda: all(
        (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        for task in tasks.iterdir()))


def restart_empty(server):
    """Killed, and started again at its place."""
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    server.port_file.unlink()
    server.start()


def rows_of(cluster, index):
    with cluster.connect(index) as connection:
        tables = connection.call(wire.STAT, [
            wire.text({})]).json["tables"]
    return sum(table["rows"] for table in tables)


def assert_rows_are(cluster, pusher, applied):
    """How many rows have which value: applied[i] is server i's."""
    rows = [rows_of(cluster, index) for index in range(2)]
    expected = collections.Counter()
    for count, value in zip(rows, applied):
        expected[value] += count
    expected[0] += ROWS - sum(rows)  # of a server that began empty
    values = collections.Counter(
        int(pusher.value(key)) for key in range(ROWS))
    assert values == +expected


@pytest.fixture
def pair():
    with Cluster() as servers:
        yield servers


def test_each_server_tells_what_it_has_applied(pair):
    with Pusher(pair.hosts) as pusher:
        for _ in range(10):
            pusher.good("big", 0, ROWS)
        kept = rows_of(pair, 0)
        assert 0 < kept < ROWS
        freeze(pair.servers[1])
        pusher.good("start", 0, ROWS)
        restart_empty(pair.servers[1])
        answer = pusher("wait")
        assert answer["status"] == "RPS_E_ROLLED_BACK"
        assert "other servers may have" in answer["words"]
        told = [pusher.good("rolled_back", ps) for ps in range(2)]
        assert [t["pushes"] for t in told] == [0, 10]
        assert [t["acknowledged"] for t in told] == [11, 10]
        assert [t["unanswered"] for t in told] == [0, 0]
        pusher.good("open")
        assert_rows_are(pair, pusher, [11, 0])
        for _ in range(3):
            pusher.good("big", 0, ROWS)
        told = [pusher.good("rolled_back", ps) for ps in range(2)]
        assert [t["pushes"] for t in told] == [0, 0]
        assert [t["acknowledged"] for t in told] == [14, 13]
        assert_rows_are(pair, pusher, [14, 3])


def test_what_was_cut_off_is_counted_though_nobody_waits(pair):
    """The other server's answer comes after the ticket has ended."""
    with Pusher(pair.hosts) as pusher:
        for _ in range(10):
            pusher.good("big", 0, ROWS)
        for server in pair.servers:
            freeze(server)
        pusher.good("start", 0, ROWS)
        restart_empty(pair.servers[1])
        answer = pusher("wait")
        assert answer["status"] == "RPS_E_ROLLED_BACK"
        pair.servers[0].process.send_signal(signal.SIGCONT)
        told = [pusher.good("rolled_back", ps) for ps in range(2)]
        assert [t["pushes"] for t in told] == [0, 10]
        assert [t["acknowledged"] for t in told] == [11, 10]
        pusher.good("open")
        assert_rows_are(pair, pusher, [11, 0])


@pytest.mark.parametrize("way, byte, counted", [(DOWN, 0, 1), (DOWN, 60, 1),
                                                (UP, 60, 0)])
def test_a_canceled_push_is_counted_where_it_was_done(
        recpsd, way, byte, counted):
    with CuttingProxy(recpsd.port) as proxy:
        with Pusher(proxy.own_port) as pusher:
            pusher.good("push", 5, 2)
            proxy.cut(way, wire.PUSH, byte)
            pusher.good("start", 5, 1)
            programs.until(lambda: proxy.cuts == 1)
            pusher.good("cancel")
            told = pusher.good("rolled_back", 0)
            assert (told["acknowledged"], told["unanswered"]) == (2 + counted, 0)
            assert pusher.value(5) == told["acknowledged"]
