# SPDX-License-Identifier: Apache-2.0
"""Tokens and what strangers can do: docs/SECURITY.md, held to.

Proofs are made and checked with Python's hmac (wire.py), so that both ends
of the program are held to a second implementation.
"""
import json
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import exposition
import programs
import wire
from proxy import Proxy

pytestmark = pytest.mark.skipif(
    not programs.has_openssl(),
    reason=f"{programs.RECPSD} is not built, or without OpenSSL")

TOKEN = b"0123456789abcdef-0123456789abcdef"
WORDS = {"versions": [1, 1], "job_id": "recps", "job_seed": "0", "ps_count": 1,
         "ps_index": 0, "role": "none", "client": "77", "lane": 0,
         "program": "pytest", "route_version": 1}


def write_token(path, data=TOKEN + b"\n", mode=0o600):
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def token_file(tmp_path):
    return write_token(tmp_path / "token")


@pytest.fixture
def guarded(token_file):
    """A server that asks for TOKEN, and tells everything it may."""
    with programs.Recpsd("--token-file", token_file, "--log-level",
                         "debug") as server:
        yield server
        if server.process.poll() is None:
            with server.connect(token=TOKEN) as connection:
                assert connection.call(wire.PING).status == wire.OK
            assert server.stop() == 143, server.log()
        assert TOKEN.decode() not in server.log()


def recps(*arguments, timeout=60, **env):
    return subprocess.run(
        [str(programs.RECPS), *arguments], env=programs.environment(**env),
        capture_output=True, text=True, timeout=timeout, check=False)


def ping(port, *flags):
    return recps("ping", "--ps-hosts", f"127.0.0.1:{port}", "--json", *flags)


def start_refused(*flags, bind="127.0.0.1:0", tmp_path=None, env=None):
    """Exit code and words of a recpsd that must not serve."""
    run = subprocess.run(
        [str(programs.RECPSD), "--bind", bind, "--port-file",
         str(tmp_path / "no-port"), *flags],
        env=programs.environment(**(env or {})), capture_output=True,
        text=True, timeout=30, check=False)
    assert not (tmp_path / "no-port").exists()
    return run.returncode, run.stderr


# ---- who has the token is served ----

def test_both_ends_prove_the_token(guarded):
    with guarded.connect(token=TOKEN) as connection:
        assert connection.call(wire.PING).status == wire.OK
        table = connection.table(dim=2)
        assert table != 0


def test_the_program_and_the_server_prove_the_token(guarded, token_file):
    run = ping(guarded.port, "--token-file", token_file)
    assert run.returncode == 0, run.stderr


def test_every_way_to_give_a_token_works(guarded, token_file):
    address = f"127.0.0.1:{guarded.port}"
    config = {"cluster": {"ps": [address]}, "recps": {"token_file": token_file}}
    for flags, env in [
            (["--ps-hosts", address], {"RECPS_TOKEN_FILE": token_file}),
            ([], {"TF_CONFIG": json.dumps(config)})]:
        run = recps("ping", *flags, **env)
        assert run.returncode == 0, run.stderr


def test_line_ends_do_not_belong_to_the_token(guarded, tmp_path):
    other = write_token(tmp_path / "other", TOKEN + b"\r\n\n")
    assert ping(guarded.port, "--token-file", other).returncode == 0


def test_a_whole_job_runs_with_a_token(token_file, tmp_path):
    run = recps("launch", "--ps", "2", "--workers", "2", "--token-file",
                token_file, "--checkpoint-dir", str(tmp_path / "ckpt"), "--",
                str(programs.RECPS_TRAIN), "--data",
                "synthetic:rows=512,keys=100", "--log-every", "100")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "auth=token" in run.stderr
    assert TOKEN.decode() not in run.stdout + run.stderr


# ---- who has it not ----

def test_without_a_token_the_server_tells_nothing(guarded):
    with guarded.connect(token=TOKEN) as connection:
        epoch = {"epoch": 5, "step": 0, "mode": "async", "combine": "sum",
                 "replicas": 1, "step_timeout_ms": 60000,
                 "step_bytes_max": 1 << 20}
        assert connection.call(wire.RESTORE, [wire.text(epoch)]).status == 0
    with guarded.connect(greet=False) as connection:
        reply = connection.hello(job_id="another", ps_count=3)
        assert reply.status == wire.NO_AUTH
        assert "--token-file" in reply.text
        assert "recps\"" not in reply.text  # not what the job is called
        assert (reply.epoch, reply.step) == (0, 0)
        assert connection.closed()
    guarded.wait_for_log("auth_failed")


@pytest.mark.parametrize("opcode", [wire.GET_TABLE, wire.LOOKUP, wire.PUSH,
                                    wire.STAT, wire.SHUTDOWN, wire.RESTORE,
                                    wire.SAVE, wire.PING])
def test_without_a_proof_no_request_is_served(guarded, opcode):
    with guarded.connect(greet=False) as connection:
        connection.challenge()
        reply = connection.call(opcode, [wire.text({})])
        assert reply.status < 0
        assert "HELLO" in reply.text
    assert guarded.process.poll() is None


def test_a_wrong_token_is_refused(guarded):
    for wrong in [TOKEN[:-1] + b"x", TOKEN + b"x", TOKEN[:-1], bytes(32)]:
        with guarded.connect(greet=False) as connection:
            reply = connection.hello(token=wrong)
            assert reply.status == wire.NO_AUTH
            assert reply.find(wire.PROOF) is None
            assert connection.closed()
    guarded.wait_for_log("auth_failed")


def test_the_client_says_that_the_token_is_wrong(guarded, tmp_path):
    wrong = write_token(tmp_path / "wrong", secrets.token_bytes(32))
    run = ping(guarded.port, "--token-file", wrong)
    assert run.returncode == 77
    assert json.loads(run.stdout)["status"] == "RPS_E_AUTH"
    assert "different tokens" in run.stderr
    run = ping(guarded.port)
    assert run.returncode == 77
    assert "asks for a token" in run.stderr and "--token-file" in run.stderr


def test_a_client_with_a_token_trusts_no_server_without(recpsd, token_file):
    run = ping(recpsd.port, "--token-file", token_file)
    assert run.returncode == 77
    assert json.loads(run.stdout)["status"] == "RPS_E_AUTH"
    assert "cannot prove who it is" in run.stderr


@pytest.mark.hostile
def test_every_changed_byte_of_hello_is_noticed(guarded):
    sections = [wire.text(WORDS), wire.section(wire.PROOF, bytes(32))]
    length = len(wire.frame(wire.HELLO, sections, 2))
    refused = 0
    for at in [8, 17, 25, 33, 50, 53, 57] + list(range(64, length, 29)):
        with guarded.connect(greet=False) as connection:
            nonces = connection.challenge()
            data = bytearray(wire.prove(
                TOKEN, nonces, wire.frame(wire.HELLO, sections, 2)))
            data[at] ^= 1
            data[60:64] = struct.pack("<I", wire.xxh32(bytes(data[:60])))
            connection.send(bytes(data))
            try:
                reply = connection.receive()
            except (EOFError, ConnectionResetError):
                continue  # it was no frame any more
            assert reply.status < 0, at
            refused += reply.status == wire.NO_AUTH
    assert refused > 5


def test_a_recorded_hello_is_worth_nothing(guarded):
    nonce = os.urandom(32)
    auth = wire.frame(wire.AUTH, [wire.section(wire.PROOF, nonce)], 1)
    hello = wire.frame(wire.HELLO, [wire.text(WORDS),
                                    wire.section(wire.PROOF, bytes(32))], 2)
    with guarded.connect(greet=False) as connection:
        connection.send(auth)
        nonces = nonce + connection.receive().find(wire.PROOF)
        recorded = wire.prove(TOKEN, nonces, hello)
        connection.send(recorded)
        assert connection.receive().status == wire.OK
    with guarded.connect(greet=False) as connection:
        connection.send(auth + recorded)
        challenge = connection.receive()
        assert challenge.status == wire.OK
        assert challenge.find(wire.PROOF) != nonces[32:]
        assert connection.receive().status == wire.NO_AUTH
        assert connection.closed()


def test_a_challenge_is_good_for_one_hello(guarded):
    with guarded.connect(greet=False) as connection:
        nonces = connection.challenge()
        hello = wire.frame(wire.HELLO, [
            wire.text(WORDS), wire.section(wire.PROOF, bytes(32))], 2)
        # both lie in the server's buffer before it answers the first
        connection.send(hello + wire.prove(TOKEN, nonces, hello))
        assert connection.receive().status == wire.NO_AUTH
        assert connection.closed()


def test_the_servers_own_proof_opens_nothing(guarded):
    """The two proofs are of different kinds: none can be sent back."""
    with guarded.connect(greet=False) as connection:
        nonces = connection.challenge()
        hello = wire.frame(wire.HELLO, [
            wire.text(WORDS), wire.section(wire.PROOF, bytes(32))], 2)
        at = wire.section_offset(hello, wire.PROOF)
        proof = wire.proof_of(TOKEN, "recps/1 server", nonces, hello, at)
        connection.send(hello[:at] + proof + hello[at + 32:])
        assert connection.receive().status == wire.NO_AUTH


@pytest.mark.hostile
@pytest.mark.parametrize("sections", [
    pytest.param([], id="nothing"),
    pytest.param([wire.section(wire.PROOF, bytes(31))], id="31 bytes"),
    pytest.param([wire.section(wire.PROOF, bytes(33))], id="33 bytes"),
    pytest.param([wire.section(wire.PROOF, bytes(32))] * 2, id="two of them"),
    pytest.param([wire.section(wire.TEXT, bytes(32))], id="a text")])
@pytest.mark.parametrize("opcode", [wire.AUTH, wire.HELLO])
def test_a_nonce_or_proof_of_another_shape_is_refused(guarded, opcode, sections):
    with guarded.connect(greet=False) as connection:
        if opcode == wire.HELLO:
            connection.challenge()
        reply = connection.call(opcode, sections)
        assert reply.status in (wire.INVAL, wire.NO_AUTH)
        assert connection.closed()


@pytest.mark.hostile
def test_auth_comes_once_and_before_hello(guarded):
    with guarded.connect(greet=False) as connection:
        connection.challenge()
        reply = connection.call(wire.AUTH, [wire.section(wire.PROOF, bytes(32))])
        assert reply.status == wire.INVAL
        assert connection.closed()
    with guarded.connect(token=TOKEN) as connection:
        reply = connection.call(wire.AUTH, [wire.section(wire.PROOF, bytes(32))])
        assert reply.status == wire.INVAL


# ---- somebody between the two ----

def test_an_honest_proxy_changes_nothing(guarded, token_file):
    with Proxy(guarded.port) as proxy:
        run = ping(proxy.own_port, "--token-file", token_file)
    assert run.returncode == 0, run.stderr


def test_who_changes_hello_on_its_way_is_noticed_by_the_server(
        guarded, token_file):
    with Proxy(guarded.port, upward=lambda data: data.replace(
            b'"role":"none"', b'"role":"chef"')) as proxy:
        run = ping(proxy.own_port, "--token-file", token_file)
        assert proxy.changed == 1
    assert run.returncode == 77
    assert json.loads(run.stdout)["status"] == "RPS_E_AUTH"
    guarded.wait_for_log("somebody between them changed HELLO")


@pytest.mark.parametrize("old, new", [
    (b'"epoch":0', b'"epoch":7'), (b'"mode":"async"', b'"mode":"asynk"'),
    (b'"last_number":"0"', b'"last_number":"9"')])
def test_who_changes_its_answer_is_noticed_by_the_client(
        guarded, token_file, old, new):
    with Proxy(guarded.port,
               downward=lambda data: data.replace(old, new)) as proxy:
        run = ping(proxy.own_port, "--token-file", token_file)
        assert proxy.changed == 1
    assert run.returncode == 77
    assert "does not prove that it has our token" in run.stderr


def test_who_cuts_the_proof_out_of_the_answer_is_noticed(guarded, token_file):
    """A HELLO answer without a proof, as a server without a token gives it."""

    def forge(data):
        if len(data) < 64 or data[6] != wire.HELLO:
            return data
        reply = wire.Reply(data[:64], data[64:])
        return wire.frame(wire.HELLO, [wire.text(reply.text)],
                          reply.request_id, flags=wire.REPLY)

    with Proxy(guarded.port, downward=forge) as proxy:
        run = ping(proxy.own_port, "--token-file", token_file)
        assert proxy.changed == 1
    assert run.returncode == 77
    assert "does not prove that it has our token" in run.stderr


def test_another_servers_challenge_is_no_way_in(guarded, tmp_path):
    """A thief with a server of its own lets the client sign its nonce."""
    other = write_token(tmp_path / "other", secrets.token_bytes(40))
    with programs.Recpsd("--token-file", other) as thief:
        with thief.connect(greet=False) as a, \
                guarded.connect(greet=False) as b:
            nonces = a.challenge()
            b.challenge()
            hello = wire.frame(wire.HELLO, [
                wire.text(WORDS), wire.section(wire.PROOF, bytes(32))], 2)
            b.send(wire.prove(TOKEN, nonces, hello))
            assert b.receive().status == wire.NO_AUTH


# ---- the file ----

def test_a_short_token_is_refused(tmp_path, recpsd):
    short = write_token(tmp_path / "short", b"s3cret-s3cret-s3cret-s3cret-123\n")
    code, words = start_refused("--token-file", short, tmp_path=tmp_path)
    assert code == 77
    assert "31 bytes" in words and "32" in words
    assert "openssl rand" in words and "s3cret" not in words
    run = ping(recpsd.port, "--token-file", short)
    assert run.returncode == 77
    assert "31 bytes" in run.stderr and "s3cret" not in run.stderr
    exact = write_token(tmp_path / "exact", b"x" * 32)
    with programs.Recpsd("--token-file", exact) as server:
        with server.connect(token=b"x" * 32) as connection:
            assert connection.call(wire.PING).status == wire.OK


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o660, 0o620, 0o700,
                                  0o500, 0o777])
def test_a_token_that_others_can_read_or_write_is_refused(tmp_path, mode):
    path = write_token(tmp_path / "token", mode=mode)
    code, words = start_refused("--token-file", path, tmp_path=tmp_path)
    assert code == 77
    assert path in words and f"mode 0{mode:o}" in words and "chmod" in words


@pytest.mark.parametrize("mode", [0o400, 0o600] + (
    [0o440, 0o640] if os.geteuid() == 0 else []))
def test_a_token_for_its_owner_is_taken_of_root_for_a_group(tmp_path, mode):
    path = write_token(tmp_path / "token", mode=mode)
    with programs.Recpsd("--token-file", path) as server:
        with server.connect(token=TOKEN) as connection:
            assert connection.call(wire.PING).status == wire.OK


def test_a_link_to_a_token_is_followed_to_the_file(tmp_path):
    """Kubernetes mounts a Secret as a link; its target's mode counts."""
    target = tmp_path / "target"
    link = tmp_path / "link"
    link.symlink_to(target)
    write_token(target, mode=0o644)
    code, words = start_refused("--token-file", str(link), tmp_path=tmp_path)
    assert code == 77 and "mode 0644" in words
    write_token(target, mode=0o600)
    with programs.Recpsd("--token-file", str(link)) as server:
        with server.connect(token=TOKEN) as connection:
            assert connection.call(wire.PING).status == wire.OK


def test_what_is_no_token_file_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    long = write_token(tmp_path / "long", b"x" * 5000)
    for path, part in [(tmp_path / "none", "No such file"),
                       (tmp_path, "not a file"), (tmp_path / "fifo", "file"),
                       (long, "4096")]:
        code, words = start_refused("--token-file", str(path),
                                    tmp_path=tmp_path)
        assert code == 77, words
        assert str(path) in words and part in words


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_token_of_somebody_else_is_refused(tmp_path):
    path = write_token(tmp_path / "token")
    os.chown(path, 12345, -1)
    code, words = start_refused("--token-file", path, tmp_path=tmp_path)
    assert code == 77
    assert "belongs to user 12345" in words


# ---- where it listens ----

@pytest.mark.parametrize("bind, host", [("0.0.0.0:0", "127.0.0.1"),
                                        ("[::]:0", "::1")])
def test_an_open_address_needs_a_token_and_the_words_say_so(
        tmp_path, token_file, bind, host):
    code, words = start_refused(bind=bind, tmp_path=tmp_path)
    assert code == 77
    assert bind in words
    for part in ["--token-file", "--auth=none", "openssl rand -hex 32"]:
        assert part in words
    with programs.Recpsd("--token-file", token_file, bind=bind) as server:
        with wire.Connection(server.port, host=host) as connection:
            assert connection.hello(token=TOKEN).status == wire.OK
            assert connection.call(wire.PING).status == wire.OK
        server.wait_for_log("auth=token")


def test_an_own_entry_beyond_the_loopback_is_served_with_a_token(
        tmp_path, token_file):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {"cluster": {"ps": [f"ps-0.recps.example:{port}"]},
              "task": {"type": "ps", "index": 0}}
    env = {"TF_CONFIG": json.dumps(config)}
    run = subprocess.run([str(programs.RECPSD)], env=programs.environment(**env),
                         capture_output=True, text=True, timeout=30,
                         check=False)
    assert run.returncode == 77
    assert f"0.0.0.0:{port}" in run.stderr
    with programs.Recpsd("--token-file", token_file, bind=None,
                         env=env) as server:
        assert server.port == port
        with server.connect(token=TOKEN, ps_count=1) as connection:
            assert connection.call(wire.PING).status == wire.OK


def test_no_authentication_beside_a_token_is_a_slip(tmp_path, token_file):
    code, words = start_refused("--auth=none", "--token-file", token_file,
                                tmp_path=tmp_path)
    assert code == 64
    assert "contradict" in words


# ---- what strangers may take ----

def test_a_stranger_has_eight_frames(guarded):
    with guarded.connect(greet=False) as connection:
        for _ in range(8):
            assert connection.call(wire.PING).status < 0
        connection.send_frame(wire.PING)
        assert connection.closed()
    guarded.wait_for_log("9 frames and no HELLO")


@pytest.mark.hostile
def test_a_stranger_has_64_kib_in_all(guarded):
    with guarded.connect(greet=False) as connection:
        for _ in range(3):
            assert connection.call(wire.PING, [
                wire.section(wire.TEXT, bytes(20000))]).status < 0
        connection.send(wire.header(wire.HELLO, 20000))
        assert connection.closed()
    guarded.wait_for_log("bytes before HELLO")


@pytest.mark.hostile
@pytest.mark.parametrize("data", [
    pytest.param(os.urandom(4096), id="garbage"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" + b" " * 64, id="http"),
    pytest.param(wire.header(wire.AUTH, 2**32 - 1), id="4 GiB"),
    pytest.param(wire.header(wire.AUTH, 56) + struct.pack("<II", 1, 0) +
                 wire.SECTION.pack(0, wire.PROOF, 0, 0, 32, 2**63, 32, 0, 0.0),
                 id="a nonce outside")])
def test_garbage_before_the_proof_harms_nobody(guarded, data):
    with guarded.connect(token=TOKEN) as bystander:
        with guarded.connect(greet=False) as connection:
            connection.send(data)
            assert connection.closed()
        with guarded.connect(greet=False) as connection:
            connection.challenge()
            connection.send(data)
            assert connection.closed()
        assert bystander.call(wire.PING).status == wire.OK
    guarded.wait_for_log("bad_frame")


def test_a_challenge_buys_no_time(guarded):
    """The 5 s run from the connection's first moment to HELLO's answer."""
    with guarded.connect(greet=False) as waits, \
            guarded.connect(greet=False) as trickles:
        begin = time.monotonic()
        trickles.challenge()
        waits.challenge()
        trickles.send(wire.header(wire.HELLO, 4000))
        trickles.sock.setblocking(False)
        closed = False
        while not closed and time.monotonic() - begin < 20:
            try:
                trickles.sock.send(b"x")
                time.sleep(0.1)
                closed = trickles.sock.recv(1) == b""
            except BlockingIOError:
                pass
            except OSError:
                closed = True
        assert closed
        assert waits.closed()
        assert time.monotonic() - begin > 4
    guarded.wait_for_log("no_hello")


@pytest.mark.hostile
def test_a_flood_of_strangers_disturbs_nobody(token_file):
    with programs.Recpsd("--token-file", token_file, "--handshakes-max", "16",
                         "--loops", "2") as server:
        with server.connect(token=TOKEN) as friend:
            strangers = []
            for i in range(200):
                strangers.append(wire.Connection(server.port))
                if i % 10 == 0:
                    assert friend.call(wire.PING).status == wire.OK
            # the oldest were closed, the newest are there
            assert strangers[0].closed()
            time.sleep(0.2)
            open_now = server_connections(server)
            assert open_now <= 16 + 3
            # a second friend gets in beside them
            with server.connect(token=TOKEN) as second:
                assert second.call(wire.PING).status == wire.OK
            assert friend.call(wire.PING).status == wire.OK
            for stranger in strangers:
                stranger.close()
        server.wait_for_log("handshakes_max")
        assert server.stop() == 143, server.log()


def test_a_job_that_connects_at_once_is_no_flood():
    """What a connection has sent is read before it is closed as the oldest."""
    with programs.Recpsd("--handshakes-max", "4", "--loops", "1") as server:
        programs.stop(server.process)
        members = []
        for i in range(100):
            member = wire.Connection(server.port)
            member.send(wire.frame(wire.HELLO, [wire.text(
                dict(WORDS, client=f"{i + 1:x}"))], 1))
            members.append(member)
        server.process.send_signal(signal.SIGCONT)
        for member in members:
            assert member.receive().status == wire.OK
            member.close()
        assert "handshakes_max" not in server.log()
        assert server.stop() == 143, server.log()


def server_connections(server):
    with server.connect(token=TOKEN) as connection:
        return connection.call(wire.STAT, [wire.text({})]).json["connections"]


def test_a_flood_that_never_stops_lets_friends_in(token_file):
    """While a thread opens connections as fast as it can."""
    stop = threading.Event()

    def flood(port):
        kept = []
        while not stop.is_set():
            try:
                kept.append(socket.create_connection(("127.0.0.1", port), 5))
                kept[-1].send(b"RPS1")
            except OSError:
                pass
            if len(kept) > 64:
                kept.pop(0).close()

    with programs.Recpsd("--token-file", token_file, "--handshakes-max",
                         "64") as server:
        thread = threading.Thread(target=flood, args=(server.port,))
        thread.start()
        try:
            served = 0
            end = time.monotonic() + 20
            while served < 10 and time.monotonic() < end:
                try:
                    with server.connect(token=TOKEN) as connection:
                        assert connection.call(wire.PING).status == wire.OK
                        served += 1
                except (EOFError, OSError):
                    pass  # was the oldest: tries again, as the client does
            assert served == 10
        finally:
            stop.set()
            thread.join()
        assert server.stop(signal.SIGTERM) == 143, server.log()


def test_what_strangers_cause_is_counted_in_the_log(guarded):
    for _ in range(40):
        with guarded.connect(greet=False) as connection:
            connection.hello()
    with guarded.connect(token=TOKEN) as connection:
        assert connection.call(wire.PING).status == wire.OK
    assert guarded.stop() == 143
    lines = [l for l in guarded.log().splitlines() if "auth_failed" in l]
    more = [int(m.group(1)) for l in lines
            if (m := re.search(r"auth_failed: (\d+) more in the last", l))]
    assert len(lines) - len(more) + sum(more) == 40
    assert len(lines) < 40


# ---- what the operator sees ----

def test_refused_strangers_are_counted_in_the_metrics(token_file):
    with programs.Recpsd("--token-file", token_file, "--handshakes-max", "4",
                         "--loops", "1", admin="127.0.0.1:0") as server:
        for hello in [{}, {"token": b"x" * 40}, {"token": TOKEN}]:
            with server.connect(greet=False) as connection:
                status = connection.hello(**hello).status
                assert (status == wire.OK) == (hello == {"token": TOKEN})
        strangers = [wire.Connection(server.port) for _ in range(10)]
        assert strangers[5].closed()
        found = exposition.Metrics(server.get("/metrics")[1])
        assert found("recps_auth_failures_total") == 2
        refused = {reason: found("recps_connections_refused_total",
                                 reason=reason)
                   for reason in ["handshakes_max", "tls_failed", "memory"]}
        assert refused == {"handshakes_max": 6, "tls_failed": 0, "memory": 0}
        for stranger in strangers:
            stranger.close()
        assert server.stop() == 143, server.log()


def test_the_admin_port_and_the_log_name_a_token_file_and_never_the_token(
        token_file):
    with programs.Recpsd("--token-file", token_file, "--log-level", "debug",
                         admin="127.0.0.1:0") as server:
        config = json.loads(server.get("/configz")[1])
        assert config["options"]["token_file"] == {"value": token_file,
                                                   "from": "flag"}
        with server.connect(token=TOKEN) as connection:
            assert connection.call(wire.PING).status == wire.OK
        server.process.send_signal(signal.SIGQUIT)
        server.wait_for_log("info state: ")
        pages = [server.get(page)[1] for page in [
            "/configz", "/metrics", "/livez?verbose", "/readyz?verbose",
            "/startupz?verbose", "/" + TOKEN.decode()[:8]]]
        assert TOKEN.decode() not in "".join(pages) + server.log()
        assert server.stop() == 143, server.log()


def test_hup_reads_the_token_again_where_the_options_are_refused(
        token_file, tmp_path):
    """Who changes the token is not who made the slip in the options."""
    file = tmp_path / "tf_config.json"
    config = {"cluster": {"ps": ["127.0.0.1:2222"]},
              "task": {"type": "ps", "index": 0},
              "recps": {"token_file": token_file}}
    file.write_text(json.dumps(config))
    with programs.Recpsd(env={"TF_CONFIG_FILE": str(file)}) as server:
        file.write_text("{")
        write_token(tmp_path / "token", TOKEN[::-1])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("error reload: the options are refused")
        server.wait_for_log("access_files: read again: auth=token")
        with server.connect(token=TOKEN[::-1]) as connection:
            assert connection.call(wire.PING).status == wire.OK
        # another path is an option, and takes a restart
        config["recps"]["token_file"] = write_token(tmp_path / "other")
        file.write_text(json.dumps(config))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("warn reload: token_file has changed")
        with server.connect(token=TOKEN[::-1]) as connection:
            assert connection.call(wire.PING).status == wire.OK
        assert server.stop() == 143, server.log()
