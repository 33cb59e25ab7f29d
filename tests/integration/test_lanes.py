# SPDX-License-Identifier: Apache-2.0
"""Each push is applied once, whatever happens to its connection.

tests/tools/pusher is a client; a row counts the pushes that were applied.
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import numpy
import pytest

import programs
import saves
import wire
from exposition import Metrics
from proxy_cut import DOWN, UP, CuttingProxy

PUSHER = programs.TESTS_BUILD / "tests/tools/pusher"

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file() or not PUSHER.is_file(),
    reason="recpsd or tests/tools/pusher is not built")


class Pusher:
    thread = False  # of the client: RPS_CLIENT_THREAD

    def __init__(self, port, reconnect_ms=60000, token=None):
        self.process = subprocess.Popen(
            [str(PUSHER), port if isinstance(port, str) else
             f"127.0.0.1:{port}", str(reconnect_ms),
             *([str(token)] if token else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=programs.environment(
                **({"RECPS_TEST_THREAD": "1"} if self.thread else {})))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        words = self.process.stderr.read()
        self.process.stderr.close()
        try:
            code = self.process.wait(30)
        finally:
            self.process.kill()
        assert code == 0, words

    def begin(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def __call__(self, *words):
        self.begin(*words)
        return self.end()

    def good(self, *words):
        answer = self(*words)
        assert answer["status"] == "RPS_OK", answer
        return answer

    def value(self, key):
        return self.good("lookup", key)["value"]


@pytest.fixture(params=[False, True], ids=["calls", "thread"])
def threaded(request, monkeypatch):
    monkeypatch.setattr(Pusher, "thread", request.param)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)],
                ids=["calls", "thread"])
def threaded_when_long(request, monkeypatch):
    monkeypatch.setattr(Pusher, "thread", request.param)


@pytest.fixture
def proxied(recpsd):
    with CuttingProxy(recpsd.port) as proxy:
        yield recpsd, proxy


@pytest.mark.usefixtures("threaded_when_long")
# ---- cut at every byte ----

@pytest.mark.parametrize("way", [UP, DOWN])
@pytest.mark.parametrize("reset", [False, True])
def test_a_push_cut_at_any_byte_is_applied_once(proxied, way, reset):
    server, proxy = proxied
    with Pusher(proxy.own_port) as pusher:
        pusher.good("push", 5, 1)
        size = proxy.sizes[way, wire.PUSH]
        assert 64 <= size < 1000
        for byte in range(size + 1):
            proxy.cut(way, wire.PUSH, byte, reset)
            assert pusher.good("push", 5, 1)["done"] == 1
        programs.until(lambda: proxy.cuts == size + 1)
        assert pusher.value(5) == size + 2
    server.assert_serves()


@pytest.mark.usefixtures("threaded_when_long")
@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_greeting_cut_at_any_byte_is_said_again(proxied, way):
    server, proxy = proxied
    with Pusher(proxy.own_port) as pusher:
        pusher.good("push", 5, 1)
        size = proxy.sizes[way, wire.HELLO]
        # the back-off grows where nothing is heard: a cut costs 25 to 50 ms
        for count, byte in enumerate(range(0, size + 1, 17)):
            proxy.cut(way, wire.HELLO, byte, reset=count % 2 == 0)
            proxy.cut_all()
            pusher.good("push", 5, 1)
        assert proxy.armed is None
        assert pusher.value(5) == count + 2
    server.assert_serves()


def test_a_proof_is_made_anew_for_each_connection(tmp_path):
    if not programs.has_openssl():
        pytest.skip("built without OpenSSL")
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    with programs.Recpsd("--token-file", str(token)) as server, \
            CuttingProxy(server.port) as proxy:
        with Pusher(proxy.own_port, token=token) as pusher:
            for opcode in (wire.AUTH, wire.HELLO, wire.PUSH):
                for way in (UP, DOWN):
                    for byte in (0, 40, 100):
                        proxy.cut(way, opcode, byte)
                        if opcode != wire.PUSH:
                            proxy.cut_all()
                        pusher.good("push", 5, 1)
            programs.until(lambda: proxy.armed is None)
            assert pusher.value(5) == 18


@pytest.mark.parametrize("way, byte", [(UP, 70), (DOWN, 10)])
def test_a_thread_sends_again_what_was_cut_though_nobody_calls(
        proxied, monkeypatch, way, byte):
    server, proxy = proxied
    monkeypatch.setattr(Pusher, "thread", True)
    with Pusher(proxy.own_port) as pusher:
        pusher.good("push", 5, 1)
        proxy.cut(way, wire.PUSH, byte)
        pusher.good("start", 5, 1)
        programs.until(lambda: server.stat()["tables"][0]["pushes"] == 2)
        pusher.good("wait")
        assert proxy.cuts == 1
        assert pusher.value(5) == 2


@pytest.mark.usefixtures("threaded_when_long")
@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_loop_of_ones_own_is_woken_where_it_must_be(proxied, way):
    server, proxy = proxied
    with Pusher(proxy.own_port) as pusher:
        for byte in (0, 10, 64, 72):
            proxy.cut(way, wire.PUSH, byte)
            pusher.good("polled", 5, 3)
        programs.until(lambda: proxy.cuts == 4)
        programs.stop(server.process)
        proxy.cut_all()  # HELLO has no answer for a while
        pusher.begin("polled", 5, 3)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGCONT)
        assert pusher.end()["done"] == 3
        assert pusher.value(5) == 15


@pytest.mark.usefixtures("threaded_when_long")
def test_a_push_of_many_frames_is_applied_once(proxied):
    server, proxy = proxied
    rows = 650_000  # 24 bytes each: two frames
    with Pusher(proxy.own_port) as pusher:
        for way, byte, skip in [(UP, 9_000_000, 0), (UP, 500_000, 1),
                                (DOWN, 0, 1)]:
            proxy.cut(way, wire.PUSH, byte, skip=skip)
            pusher.good("big", 0, rows)
        assert proxy.cuts == 3
        assert pusher.value(0) == pusher.value(rows - 1) == 3
    server.assert_serves()


@pytest.mark.usefixtures("threaded_when_long")
@pytest.mark.parametrize("command", [
    ("alter", 0.5), ("erase", 5), ("drop",), ("open",)], ids=lambda c: c[0])
def test_other_changes_are_carried_out_once(proxied, command):
    """Their answers have words that a kept verdict has not."""
    server, proxy = proxied
    opcode = {"alter": wire.ALTER_TABLE, "erase": wire.ERASE,
              "drop": wire.DROP, "open": wire.GET_TABLE}[command[0]]
    with Pusher(proxy.own_port) as pusher:
        for way, byte in [(UP, 70), (DOWN, 0), (DOWN, 70)]:
            if command[0] == "drop":
                pusher.good("open")
            pusher.good("push", 5, 1)
            proxy.cut(way, opcode, byte)
            pusher.good(*command)
        assert proxy.cuts == 3
        table = {t["name"]: t for t in server.stat()["tables"]}.get("emb")
        if command[0] == "alter":
            assert table["spec"]["learning_rate"] == 0.5
            pusher.good("push", 9, 1)  # the handle's spec has followed
            assert pusher.value(9) == 0.5
        elif command[0] == "erase":
            assert table["rows"] == 0 and table["erased"] == 3
        elif command[0] == "drop":
            assert table is None
        else:
            assert pusher.value(5) == 3


def storm(server, proxy, clients, ms, depth=40):
    pushers = [Pusher(proxy.own_port) for _ in range(clients)]
    try:
        for key, pusher in enumerate(pushers):
            pusher.begin("storm", key, depth, ms)
        answers = [pusher.end() for pusher in pushers]
        proxy.chance = 0
        for key, (pusher, answer) in enumerate(zip(pushers, answers)):
            assert answer["status"] == "RPS_OK", answer
            assert answer["told"] == answer["void"] == 0
            assert pusher.value(key) == answer["acknowledged"] > 0
    finally:
        for pusher in pushers:
            pusher.__exit__()
    server.assert_serves()


@pytest.mark.usefixtures("threaded")
def test_pushes_in_flight_survive_cuts_anywhere(proxied):
    server, proxy = proxied
    proxy.chance = 0.02
    storm(server, proxy, clients=3, ms=1500)
    assert proxy.cuts > 10


@pytest.mark.long
@pytest.mark.parametrize("chance", [0.002, 0.05, 0.3])
def test_a_long_storm_of_cuts(proxied, chance):
    server, proxy = proxied
    proxy.chance = chance
    storm(server, proxy, clients=6, ms=30000, depth=200)


# ---- a server that loses its memory ----

class Home:
    """A server that is killed and started again at the same place."""

    def __init__(self, folder):
        self.flags = ("--checkpoint-dir", str(folder), "--start-from",
                      "newest")
        self.server = programs.Recpsd(*self.flags).start()

    def restart(self):
        port = self.server.port
        self.server.process.send_signal(signal.SIGKILL)
        self.server.wait()
        self.server.__exit__()
        self.server = programs.Recpsd(
            *self.flags, bind=f"127.0.0.1:{port}").start()

    def save(self, step):
        saves.save(self.server, step, keep=3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.__exit__()


@pytest.fixture
def home(tmp_path):
    with Home(tmp_path) as place:
        yield place


def test_what_was_acknowledged_and_lost_is_told(home):
    with Pusher(home.server.port) as pusher:
        pusher.good("push", 5, 10)
        home.save(1)
        pusher.good("push", 5, 7)
        home.restart()
        answer = pusher("push", 5, 1)
        assert answer["status"] == "RPS_E_ROLLED_BACK"
        assert "with 7 acknowledged pushes" in answer["words"]
        # until it is asked what is lost
        assert pusher("lookup", 5)["status"] == "RPS_E_ROLLED_BACK"
        lost = pusher.good("rolled_back")
        # number 1 opened the table
        assert (lost["first"], lost["last"], lost["pushes"]) == (12, 18, 7)
        assert pusher.value(5) == 10
        pusher.good("push", 5, 3)
        assert pusher.value(5) == 13
        assert pusher.good("rolled_back")["pushes"] == 0


def test_a_restart_that_loses_nothing_is_no_news(home):
    with Pusher(home.server.port) as pusher:
        pusher.good("push", 5, 10)
        home.save(1)
        home.restart()
        pusher.good("push", 5, 1)
        assert pusher.value(5) == 11


def test_a_server_that_begins_empty_has_lost_all(recpsd):
    with Pusher(recpsd.port) as pusher:
        pusher.good("push", 5, 4)
        recpsd.process.kill()
        recpsd.wait()
        with programs.Recpsd(bind=f"127.0.0.1:{recpsd.port}"):
            assert pusher("lookup", 5)["status"] == "RPS_E_ROLLED_BACK"
            lost = pusher.good("rolled_back")
            assert (lost["first"], lost["last"], lost["pushes"]) == (1, 5, 4)
            answer = pusher("push", 5, 1)
            assert answer["status"] == "RPS_E_NOT_FOUND"
            assert "open it again" in answer["words"]
            pusher.good("open")
            pusher.good("push", 5, 2)
            assert pusher.value(5) == 2


def kill_under_storm(home, clients, kills, between, depth):
    pushers = [Pusher(home.server.port) for _ in range(clients)]
    try:
        ms = int(between * 1000 * (2 * kills + 2))
        for key, pusher in enumerate(pushers):
            pusher.begin("storm", key, depth, ms)
        for step in range(1, kills + 1):
            time.sleep(between)
            home.save(step)
            time.sleep(between)
            home.restart()
        answers = [pusher.end() for pusher in pushers]
        for key, (pusher, answer) in enumerate(zip(pushers, answers)):
            assert answer["status"] == "RPS_OK", answer
            if pusher("lookup", key)["status"] == "RPS_E_ROLLED_BACK":
                # the last kill came when its storm was over
                answer["told"] += pusher.good("rolled_back")["pushes"]
            applied = pusher.value(key)
            assert applied == answer["acknowledged"] - answer["told"], answer
            assert applied > 0
        assert sum(a["told"] for a in answers) > 0
        assert all(a["rollbacks"] <= kills for a in answers)
    finally:
        for pusher in pushers:
            pusher.__exit__()


@pytest.mark.usefixtures("threaded")
def test_applied_is_acknowledged_but_told_after_a_kill(home):
    kill_under_storm(home, clients=3, kills=2, between=0.3, depth=20)


@pytest.mark.long
def test_many_kills_under_a_storm(home):
    kill_under_storm(home, clients=6, kills=15, between=0.7, depth=63)


# ---- a server that does not come back ----

def test_a_server_that_stays_away_is_given_up(recpsd):
    with Pusher(recpsd.port, reconnect_ms=700) as pusher:
        pusher.good("push", 5, 1)
        recpsd.process.kill()
        recpsd.wait()
        answer = pusher("push", 5, 1)
        assert answer["status"] == "RPS_E_UNREACHABLE"
        assert "not reached again in 0." in answer["words"]
        assert "refused" in answer["words"]
        answer = pusher("lookup", 5)
        assert answer["status"] == "RPS_E_UNREACHABLE"
        assert "stays failed" in answer["words"]


def test_a_deadline_ends_while_the_server_is_away(recpsd):
    with Pusher(recpsd.port) as pusher:
        pusher.good("push", 5, 1)
        programs.stop(recpsd.process)
        try:
            # sent, and whether it was done nobody knows
            answer = pusher("timed", 5, 200)
            assert answer["status"] == "RPS_E_TIMEOUT", answer
        finally:
            recpsd.process.send_signal(signal.SIGCONT)
        recpsd.process.kill()
        recpsd.wait()
        assert pusher("timed", 5, 100)["status"] in (
            "RPS_E_DEADLINE", "RPS_E_TIMEOUT")
        answer = pusher("timed", 5, 100)
        assert answer["status"] == "RPS_E_DEADLINE", answer
        assert "nothing was done" in answer["words"]


@pytest.mark.parametrize("way, byte", [(UP, 30), (UP, 72), (DOWN, 0),
                                       (DOWN, 50)])
def test_a_server_that_is_told_to_end_and_is_gone_has_ended(way, byte):
    with programs.Recpsd() as server, CuttingProxy(server.port) as proxy:
        with Pusher(proxy.own_port) as pusher:
            proxy.cut(way, wire.SHUTDOWN, byte)
            pusher.good("shutdown")
            assert server.wait() == 0 and proxy.cuts == 1


def test_a_full_server_is_tried_again():
    with programs.Recpsd("--connections-max", "1") as server:
        with server.connect() as first:
            timer = threading.Timer(0.5, first.close)
            timer.start()
            with Pusher(server.port) as pusher:
                pusher.good("push", 5, 1)


# ---- lanes at the server ----

def counted(connection, table, number, epoch=0):
    """A push that adds 1 to row 5."""
    keys = wire.section(wire.KEYS, (5).to_bytes(8, "little"),
                        table_id=table, count=1)
    rows = wire.section(wire.ROWS, numpy.full(4, -1, "<f4").tobytes(),
                        table_id=table, dim=4, count=1, learning_rate=1.0)
    return connection.call(wire.PUSH, [keys, rows], number=number,
                           epoch=epoch)


def test_a_lane_that_comes_again_closes_its_older_connection(recpsd):
    client = os.urandom(8).hex()
    with recpsd.connect(client=client) as old:
        table = old.table()
        assert counted(old, table, 1).status == wire.OK
        with wire.Connection(recpsd.port) as new:
            hello = new.hello(client=client)
            assert hello.json["last_number"] == "1"
            assert hello.json["verdicts"] == [["1", 0]]
            assert old.closed()
            assert counted(new, table, 1).status == wire.OK  # as before
            assert counted(new, table, 2).status == wire.OK
            stat = new.call(wire.STAT, [wire.text({})]).json
            assert stat["tables"][0]["applied"] == 2


def test_a_restore_is_carried_out_once(recpsd):
    client = os.urandom(8).hex()
    words = wire.text({"epoch": 1, "step": 0})
    with recpsd.connect(client=client) as first:
        assert first.call(wire.RESTORE, [words]).status == wire.OK
        reply = first.call(wire.GET_TABLE, [wire.text(
            {"name": "emb", "dimension": 4, "optimizer": "sgd"})],
            number=1, epoch=1)
        table = int(reply.json["table_id"], 16)
        assert counted(first, table, 2, epoch=1).status == wire.OK
    with recpsd.connect(client=client) as again:
        reply = again.call(wire.RESTORE, [words])  # its answer was lost
        assert reply.status == wire.OK and reply.json["step"] == 0
        stat = again.call(wire.STAT, [wire.text({})]).json
        assert stat["tables"][0]["rows"] == 1
    with recpsd.connect() as other:
        reply = other.call(wire.RESTORE, [words])
        assert reply.status == wire.INVAL and "must exceed" in reply.text


def test_another_lane_or_client_closes_nobody(recpsd):
    client = os.urandom(8).hex()
    with recpsd.connect(client=client) as first, \
            recpsd.connect(client=client, lane=1), recpsd.connect():
        assert first.call(wire.PING).status == wire.OK


def test_a_client_that_stays_away_is_forgotten():
    client = os.urandom(8).hex()
    with programs.Recpsd("--client-ttl", "1", admin="127.0.0.1:0") as server:
        with server.connect(client=client) as connection:
            assert counted(connection, connection.table(), 1).status == wire.OK
            time.sleep(1.3)  # not while it is connected
            with wire.Connection(server.port) as again:
                assert again.hello(client=client).json["last_number"] == "1"
        time.sleep(1.3)
        with wire.Connection(server.port) as later:
            assert later.hello(client=client).json["last_number"] == "0"


def test_reconnects_and_repeats_are_counted():
    with programs.Recpsd(admin="127.0.0.1:0") as server, \
            CuttingProxy(server.port) as proxy:
        with Pusher(proxy.own_port) as pusher:
            pusher.good("push", 5, 1)
            for _ in range(3):
                proxy.cut(DOWN, wire.PUSH, 0)
                pusher.good("push", 5, 1)
        found = Metrics(server.get("/metrics")[1])
        assert found("recps_reconnects_total") == 3
        assert found("recps_repeated_requests_total") == 3
        assert found("recps_clients") == 1


# ---- servers that lie, or have forgotten ----

class Liar:
    """Answers HELLO, tables and pushes; then what `on_push` does. Its HELLOs
    differ by `hellos`: (incarnation, last number), one a connection."""

    def __init__(self, hellos, on_push):
        xxhash = pytest.importorskip("xxhash")
        self.table = xxhash.xxh3_64_hexdigest(b"emb")
        self.hellos, self.on_push = iter(hellos), on_push
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def run(self):
        for incarnation, last in self.hellos:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError, EOFError):
                self.serve(sock, incarnation, last)

    @staticmethod
    def read(sock, n):
        data = b""
        while len(data) < n:
            part = sock.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def serve(self, sock, incarnation, last):
        while True:
            head = wire.HEADER.unpack(self.read(sock, 64))
            opcode, request_id, number = head[2], head[5], head[6]
            if opcode == wire.PUSH and self.on_push(sock, head):
                return
            self.read(sock, head[4])
            words = {wire.HELLO: {
                "version": 1, "epoch": 0, "ps_count": 1, "ps_index": 0,
                "route_version": 1, "last_number": str(last),
                "incarnation": incarnation},
                wire.GET_TABLE: {"table_id": self.table, "rows": 0}}
            sections = [wire.text(words[opcode])] if opcode in words else []
            sock.sendall(wire.frame(opcode, sections, request_id,
                                    flags=wire.REPLY, number=number))


def test_a_reply_before_its_request_was_sent_is_not_believed():
    """The request's bytes are still on their way out."""
    def early(sock, head):
        sock.sendall(wire.frame(wire.PUSH, [], head[5], flags=wire.REPLY,
                                number=head[6]))
        time.sleep(0.5)
        return True

    with Liar([("aa", 0)], early) as liar, Pusher(liar.port) as pusher:
        answer = pusher("big", 0, 500_000)
        assert answer["status"] == "RPS_E_CORRUPT", answer
        assert "not sent yet" in answer["words"]


@pytest.mark.parametrize("hello, status, words", [
    (("aa", 0), "RPS_E_UNREACHABLE", "forgotten this client"),
    (("bb", 99), "RPS_E_ROLLED_BACK", "of another past"),
    (("aa", 99), "RPS_E_ROLLED_BACK", "of another past")])
def test_numbers_that_cannot_be_end_the_client(hello, status, words):
    pushes = []

    def hang_up(sock, head):
        pushes.append(head)
        return len(pushes) == 2

    with Liar([("aa", 0), hello], hang_up) as liar, \
            Pusher(liar.port) as pusher:
        pusher.good("push", 5, 1)
        for _ in range(2):
            answer = pusher("push", 5, 1)
            assert answer["status"] in (status, "RPS_E_UNREACHABLE"), answer
            assert words in answer["words"]
