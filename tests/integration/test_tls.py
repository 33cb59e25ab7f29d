# SPDX-License-Identifier: Apache-2.0
"""TLS and certificates: docs/SECURITY.md, held to.

Certificates are made by the openssl program; Python's ssl is the second
implementation at the other end of the wire.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

import exposition
import programs
import wire
from proxy import Proxy

pytestmark = [
    pytest.mark.skipif(
        not programs.has_openssl(),
        reason=f"{programs.RECPSD} is not built, or without OpenSSL"),
    pytest.mark.skipif(shutil.which("openssl") is None,
                       reason="the openssl program is not installed")]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True,
                   capture_output=True, timeout=60)


class Pki:
    """CAs and certificates in a folder: NAME.pem and NAME.key."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.make_ca("ca")
        self.make_ca("other-ca")
        both = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"
        self.make("member", "ca", both)
        self.make("client", "ca", "extendedKeyUsage=clientAuth")
        self.make("server", "ca", both + "\nextendedKeyUsage=serverAuth")
        self.make("stranger", "other-ca", both)
        self.make("elsewhere", "ca", "subjectAltName=DNS:ps.example")
        self.make("expired", "ca", both, days=-1)

    def path(self, name, kind="pem"):
        return str(self.folder / f"{name}.{kind}")

    def make_key(self, name):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out",
                self.path(name, "key"))
        os.chmod(self.path(name, "key"), 0o600)

    def make_ca(self, name):
        self.make_key(name)
        openssl("req", "-x509", "-new", "-key", self.path(name, "key"),
                "-subj", f"/CN={name}", "-days", "2", "-out", self.path(name))

    def make(self, name, ca, extensions, days=2):
        self.make_key(name)
        openssl("req", "-new", "-key", self.path(name, "key"), "-subj",
                f"/CN={name}", "-out", self.path(name, "csr"))
        (self.folder / "ext").write_text(extensions + "\n")
        openssl("x509", "-req", "-in", self.path(name, "csr"), "-CA",
                self.path(ca), "-CAkey", self.path(ca, "key"),
                "-CAcreateserial", "-days", days, "-extfile",
                self.folder / "ext", "-out", self.path(name))

    def own(self, name):
        return ["--tls-cert", self.path(name), "--tls-key",
                self.path(name, "key")]

    def flags(self, name, ca="ca"):
        return self.own(name) + ["--tls-ca", self.path(ca)]

    def context(self, name=None, check=True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.path("ca"))
        if not check:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if name is not None:
            context.load_cert_chain(self.path(name), self.path(name, "key"))
        return context


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def mutual(pki):
    """A server that wants certificates, and must end well."""
    with programs.Recpsd(*pki.flags("member")) as server:
        yield server
        if server.process.poll() is None:
            assert_serves(server, pki)
            assert server.stop() == 143, server.log()


def connect(server, pki, name="client"):
    connection = wire.Connection(server.port, tls=pki.context(name))
    assert connection.hello().status == wire.OK
    return connection


def assert_serves(server, pki):
    assert server.process.poll() is None, server.log()
    with connect(server, pki) as connection:
        assert connection.call(wire.PING).status == wire.OK


def recps(*arguments, timeout=60):
    return subprocess.run([str(programs.RECPS), *arguments],
                          env=programs.environment(), capture_output=True,
                          text=True, timeout=timeout, check=False)


def ping(port, *flags, host="127.0.0.1"):
    return recps("ping", "--ps-hosts", f"{host}:{port}", "--json",
                 "--connect-timeout", "10", *flags)


def refused(run, *parts):
    """It failed for what the certificates are, and did not wait for long."""
    assert run.returncode == 77, run.stderr
    assert json.loads(run.stdout)["status"] == "RPS_E_AUTH"
    for part in parts:
        assert part in run.stderr


# ---- who has the right certificates is served ----

def test_members_with_certificates_of_one_ca_work_together(pki, mutual):
    for name in ["member", "client"]:
        run = ping(mutual.port, *pki.flags(name))
        assert run.returncode == 0, run.stderr
    run = ping(mutual.port, *pki.flags("client"), host="localhost")
    assert run.returncode == 0, run.stderr
    mutual.wait_for_log("auth=mtls")


def test_another_implementation_speaks_with_the_server(pki, mutual):
    with connect(mutual, pki) as connection:
        assert connection.sock.version() == "TLSv1.3"
        table = connection.table(dim=2)
        assert table != 0


def test_a_whole_job_runs_over_tls(pki, tmp_path):
    run = recps("launch", "--ps", "2", "--workers", "2", *pki.flags("member"),
                "--checkpoint-dir", str(tmp_path / "ckpt"), "--",
                str(programs.RECPS_TRAIN), "--data",
                "synthetic:rows=512,keys=100", "--log-every", "100")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr.count("auth=mtls") == 2


def test_a_whole_job_runs_with_certificates_of_the_servers_alone(pki):
    run = recps("launch", "--ps", "2", "--workers", "1", "--tls-clients", "any",
                *pki.flags("member"), "--", str(programs.RECPS_TRAIN), "--data",
                "synthetic:rows=500,keys=50", "--log-every", "100")
    assert run.returncode == 0, run.stderr
    assert "auth=tls " in run.stderr


def test_a_token_over_tls_needs_no_client_certificates(pki, tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"x" * 32)
    token.chmod(0o600)
    flags = [*pki.own("server"), "--token-file", str(token)]
    with programs.Recpsd(*flags, bind="0.0.0.0:0") as server:
        server.wait_for_log(r"auth=token\+tls")
        run = ping(server.port, "--tls-ca", pki.path("ca"), "--token-file",
                   str(token))
        assert run.returncode == 0, run.stderr
        refused(ping(server.port, "--tls-ca", pki.path("ca")), "--token-file")
        assert server.stop() == 143


def test_one_set_of_options_may_be_tls_of_the_servers_alone(pki):
    with programs.Recpsd(*pki.flags("member"), "--tls-clients",
                         "any") as server:
        server.wait_for_log(r"auth=tls ")
        assert ping(server.port, "--tls-ca", pki.path("ca")).returncode == 0
        assert ping(server.port, *pki.flags("member")).returncode == 0
        refused(ping(server.port, "--transport", "tcp"), "speaks TLS")


def test_nothing_is_readable_on_the_way(pki, mutual):
    seen = []

    def note(data):
        seen.append(data)
        return data

    with Proxy(mutual.port, upward=note, downward=note) as proxy:
        run = recps("tables", "--ps-hosts", f"127.0.0.1:{proxy.own_port}",
                    *pki.flags("client"))
    assert run.returncode == 0, run.stderr
    everything = b"".join(seen)
    assert len(everything) > 1000
    for secret in [b"job_id", b"RPS1", b"recps\"", b"versions"]:
        assert secret not in everything


@pytest.mark.hostile
def test_many_bytes_come_whole_and_in_order(pki, mutual):
    """Frames over many records, records with many frames, and a late reader."""
    count, dim = 60, 64
    with connect(mutual, pki) as connection:
        table = connection.table(dim=dim)
        wanted = struct.pack("<2000Q", *range(2000))
        keys = wire.section(wire.KEYS, wanted, table_id=table, count=2000)
        first = connection.call(wire.LOOKUP, [keys]).find(wire.ROWS)
        assert len(first) == 2000 * dim * 4
        data = b"".join(wire.frame(wire.LOOKUP, [keys], 100 + i)
                        for i in range(count))
        data += b"".join(wire.frame(wire.PING, [], 1000 + i)
                         for i in range(400))
        sender = threading.Thread(target=connection.send, args=(data,))
        sender.start()
        time.sleep(0.5)
        for i in range(count):
            reply = connection.receive()
            assert (reply.request_id, reply.status) == (100 + i, wire.OK)
            assert reply.find(wire.ROWS) == first
        assert [connection.receive().request_id
                for _ in range(400)] == list(range(1000, 1400))
        sender.join()


def test_a_frame_may_come_byte_by_byte_over_tls(pki, mutual):
    with connect(mutual, pki) as connection:
        for byte in wire.frame(wire.PING, [wire.text({})], 7):
            connection.send(bytes([byte]))
        assert connection.receive().request_id == 7


# ---- who has not is refused, in words and at once ----

def test_without_a_certificate_nobody_is_served(pki, mutual):
    refused(ping(mutual.port, "--tls-ca", pki.path("ca")),
            "certificate required", "give --tls-cert and --tls-key")
    mutual.wait_for_log("tls_failed.*did not return a certificate")


def test_a_certificate_of_another_ca_is_refused(pki, mutual):
    refused(ping(mutual.port, *pki.flags("stranger")), "unknown ca",
            "its CA must stand in the peer's --tls-ca")
    mutual.wait_for_log("tls_failed.*certificate is refused")


def test_an_expired_certificate_is_refused_by_the_server(pki, mutual):
    with pytest.raises(ssl.SSLError, match="expired"):
        with wire.Connection(mutual.port,
                             tls=pki.context("expired")) as connection:
            connection.hello()
    mutual.wait_for_log("certificate has expired")
    # the program does not even try it
    refused(ping(mutual.port, *pki.flags("expired")), "has expired",
            pki.path("expired"))


def test_a_servers_certificate_is_none_of_a_client(pki, mutual):
    refused(ping(mutual.port, *pki.flags("server")))
    mutual.wait_for_log("unsuitable certificate purpose|unsupported")


def test_the_client_refuses_a_server_of_another_ca(pki):
    with programs.Recpsd(*pki.own("stranger")) as server:
        refused(ping(server.port, "--tls-ca", pki.path("ca")),
                "the peer's certificate is refused: the CA in our --tls-ca did "
                "not sign it")


def test_the_client_refuses_a_certificate_of_another_host(pki):
    with programs.Recpsd(*pki.own("elsewhere")) as server:
        refused(ping(server.port, "--tls-ca", pki.path("ca")),
                "IP address mismatch", "subjectAltName")
        refused(ping(server.port, "--tls-ca", pki.path("ca"),
                     host="localhost"), "hostname mismatch")


def test_the_client_refuses_a_clients_certificate_as_a_servers(pki):
    with programs.Recpsd(*pki.own("client")) as server:
        refused(ping(server.port, "--tls-ca", pki.path("ca")),
                "the peer's certificate is refused: it is not for a server")


def test_the_client_refuses_an_expired_server(pki):
    """A server of ours would not start with it: Python's serves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.path("expired"), pki.path("expired", "key"))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            while True:
                sock, _ = listener.accept()
                with sock, context.wrap_socket(sock, server_side=True) as tls:
                    tls.recv(1)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    refused(ping(listener.getsockname()[1], "--tls-ca", pki.path("ca")),
            "certificate has expired")
    listener.close()


def test_older_versions_of_tls_are_refused(pki, mutual):
    context = pki.context("client")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        wire.Connection(mutual.port, tls=context)
    mutual.wait_for_log("tls_failed")


def test_a_plain_client_is_told_that_the_server_speaks_tls(pki, mutual):
    refused(ping(mutual.port, "--transport", "tcp"), "speaks TLS", "--tls-ca")
    mutual.wait_for_log("tls_failed")


def test_a_plain_server_is_told_from_one_that_speaks_tls(pki, recpsd):
    run = recps("ping", "--ps-hosts", f"127.0.0.1:{recpsd.port}",
                "--connect-timeout", "1", "--tls-ca", pki.path("ca"))
    assert run.returncode in (69, 77)
    assert "TLS" in run.stderr
    recpsd.assert_serves()


# ---- somebody between the two ----

@pytest.mark.hostile
@pytest.mark.parametrize("up", [True, False], ids=["request", "answer"])
def test_a_changed_byte_ends_the_connection(pki, mutual, up):
    armed = threading.Event()

    def change(data):
        if not armed.is_set():
            return data
        return data[:-1] + bytes([data[-1] ^ 1])

    way = {"upward": change} if up else {"downward": change}
    with Proxy(mutual.port, **way) as proxy:
        with wire.Connection(proxy.own_port,
                             tls=pki.context("client")) as connection:
            assert connection.hello().status == wire.OK
            armed.set()
            with pytest.raises((ssl.SSLError, EOFError, OSError)):
                connection.call(wire.PING)
        assert proxy.changed
    if up:
        mutual.wait_for_log("tls_failed")


@pytest.mark.hostile
def test_records_cannot_be_replayed(pki, mutual):
    """What a client sent is sent again on another connection."""
    recorded = []

    def record(data):
        recorded.append(data)
        return data

    with Proxy(mutual.port, upward=record) as proxy:
        with wire.Connection(proxy.own_port,
                             tls=pki.context("client")) as connection:
            assert connection.hello().status == wire.OK
    with socket.create_connection(("127.0.0.1", mutual.port), 20) as thief:
        thief.sendall(b"".join(recorded))
        answer = b""
        while part := thief.recv(65536):
            answer += part
        assert b"RPS1" not in answer
    mutual.wait_for_log("tls_failed")


# ---- strangers ----

@pytest.mark.hostile
@pytest.mark.parametrize("data", [
    pytest.param(b"\0" * 4096, id="zeros"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
    pytest.param(wire.frame(wire.HELLO, [wire.text({})], 1), id="plain hello"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" +
                 os.urandom(600), id="random client hello"),
    pytest.param(b"\x16\x03\x03\xff\xff" + b"x" * 70000, id="huge record")])
def test_garbage_in_place_of_a_handshake_harms_nobody(pki, mutual, data):
    with connect(mutual, pki) as bystander:
        with socket.create_connection(("127.0.0.1", mutual.port), 20) as sock:
            try:
                sock.sendall(data)
                while sock.recv(65536):
                    pass
            except ConnectionError:
                pass
        assert bystander.call(wire.PING).status == wire.OK
    mutual.wait_for_log("tls_failed")


def test_a_handshake_has_five_seconds(pki, mutual):
    """Who says nothing, half a handshake, or all of it and no HELLO."""
    begin = time.monotonic()
    silent = socket.create_connection(("127.0.0.1", mutual.port), 20)
    half = socket.create_connection(("127.0.0.1", mutual.port), 20)
    half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    whole = wire.Connection(mutual.port, tls=pki.context("client"))
    for sock in [silent, half, whole.sock]:
        with sock:
            try:
                while sock.recv(65536):
                    pass
            except (ssl.SSLError, ConnectionError):
                pass
    assert 4 < time.monotonic() - begin < 15
    mutual.wait_for_log("no_hello")


def test_a_flood_of_handshakes_lets_members_in(pki):
    with programs.Recpsd(*pki.flags("member"), "--handshakes-max", "8",
                         "--loops", "1") as server:
        with connect(server, pki) as friend:
            strangers = []
            for i in range(60):
                strangers.append(socket.create_connection(
                    ("127.0.0.1", server.port), 20))
                strangers[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
                if i % 10 == 0:
                    assert friend.call(wire.PING).status == wire.OK
            run = ping(server.port, *pki.flags("client"))
            assert run.returncode == 0, run.stderr
            for sock in strangers:
                sock.close()
        server.wait_for_log("handshakes_max")
        assert server.stop() == 143, server.log()


# ---- what the operator sees ----

def test_over_tls_the_metrics_count_the_bytes_of_frames(pki):
    with programs.Recpsd(*pki.flags("member"), admin="127.0.0.1:0") as server:
        def found(name, **labels):
            text = server.get("/metrics")[1]
            return exposition.Metrics(text)(name, **labels)

        with connect(server, pki) as connection:
            table = connection.table(dim=64)
            before = [found("recps_received_bytes_total"),
                      found("recps_sent_bytes_total")]
            wanted = wire.section(
                wire.KEYS, struct.pack("<3000Q", *range(3000)),
                table_id=table, count=3000)
            data = wire.frame(wire.LOOKUP, [wanted], 1)
            for _ in range(3):
                connection.send(data)
            answers = 0
            for _ in range(3):
                raw = connection._exactly(64)
                body = connection._exactly(wire.HEADER.unpack(raw)[4])
                answers += len(raw) + len(body)
            # a reply is counted just after it was sent
            end = time.monotonic() + 20
            while found("recps_unsent_bytes") and time.monotonic() < end:
                time.sleep(0.05)
            assert found("recps_unsent_bytes") == 0
            after = [found("recps_received_bytes_total"),
                     found("recps_sent_bytes_total")]
            assert after[0] - before[0] == 3 * len(data)
            assert after[1] - before[1] == answers
        assert found("recps_connections_refused_total",
                     reason="tls_failed") == 0
        refused(ping(server.port, "--transport", "tcp"), "speaks TLS")
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            sock.sendall(b"\0" * 64)
            while sock.recv(4096):
                pass
        assert found("recps_connections_refused_total",
                     reason="tls_failed") == 2
        assert found("recps_connections_refused_total", reason="memory") == 0
        config = json.loads(server.get("/configz")[1])["options"]
        assert config["tls_key"]["value"] == pki.path("member", "key")
        assert "PRIVATE KEY" not in json.dumps(config)
        assert server.stop() == 143, server.log()


# ---- the files, and where it listens ----

def start_refused(*flags, tmp_path, bind="127.0.0.1:0"):
    run = subprocess.run(
        [str(programs.RECPSD), "--bind", bind, "--port-file",
         str(tmp_path / "no-port"), *flags], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert not (tmp_path / "no-port").exists()
    return run.returncode, run.stderr


def test_certificates_of_clients_open_the_loopback(pki, tmp_path):
    code, words = start_refused(*pki.own("member"), bind="0.0.0.0:0",
                                tmp_path=tmp_path)
    assert code == 77
    assert "--tls-ca" in words
    with programs.Recpsd(*pki.flags("member"), bind="0.0.0.0:0") as server:
        assert_serves(server, pki)


def test_files_that_do_not_fit_are_refused_by_name(pki, tmp_path):
    (tmp_path / "words").write_text("no certificate\n")
    (tmp_path / "open.key").write_bytes(
        pathlib.Path(pki.path("member", "key")).read_bytes())
    (tmp_path / "open.key").chmod(0o644)
    openssl("ec", "-in", pki.path("member", "key"), "-aes128", "-passout",
            "pass:secret", "-out", tmp_path / "locked.key")
    (tmp_path / "locked.key").chmod(0o600)
    cert, key = pki.path("member"), pki.path("member", "key")
    for flags, part in [
            (["--tls-cert", cert], "--tls-key is missing"),
            (["--tls-key", key], "--tls-cert is missing"),
            (["--tls-ca", pki.path("ca")], "--tls-cert and"),
            (["--tls-cert", str(tmp_path / "none"), "--tls-key", key], "none"),
            (["--tls-cert", cert, "--tls-key", str(tmp_path / "none")], "none"),
            (["--tls-cert", str(tmp_path / "words"), "--tls-key", key],
             "nothing in PEM form"),
            (["--tls-cert", cert, "--tls-key", pki.path("client", "key")],
             "the key of another certificate"),
            (["--tls-cert", cert, "--tls-key", str(tmp_path / "open.key")],
             "chmod 600"),
            (["--tls-cert", cert, "--tls-key", str(tmp_path / "locked.key")],
             "without a password"),
            (pki.own("member") + ["--tls-ca", str(tmp_path / "words")],
             "--tls-ca"),
            (pki.own("expired"), "has expired"),
            (pki.flags("member") + ["--auth=none"], "contradict")]:
        code, words = start_refused(*flags, tmp_path=tmp_path)
        usage = part in ("--tls-key is missing", "--tls-cert is missing",
                         "--tls-cert and", "contradict")
        assert code == (64 if usage else 77), (flags, words)
        assert part in words, (flags, words)


@pytest.mark.parametrize("flag, missing", [
    ("--tls-cert", "--tls-key"), ("--tls-key", "--tls-cert")])
def test_a_certificate_and_its_key_go_together(pki, mutual, flag, missing):
    run = ping(mutual.port, flag, pki.path("client"))
    answer = json.loads(run.stdout)
    assert run.returncode == answer["exit"] == 64
    assert f"{missing} is missing" in answer["error"]
    assert "status" not in answer


def test_a_client_needs_a_ca_to_know_the_server_by(pki, mutual):
    run = ping(mutual.port, *pki.own("client"))
    assert run.returncode == 64
    assert "--tls-ca" in run.stderr


# ---- new files ----

@pytest.mark.hostile
def test_hup_reads_certificates_and_token_again(pki, tmp_path):
    files = {n: str(tmp_path / n) for n in ["cert", "key", "token"]}

    def install(name, token):
        shutil.copy(pki.path(name), files["cert"])
        shutil.copy(pki.path(name, "key"), files["key"])
        pathlib.Path(files["token"]).write_bytes(token)
        os.chmod(files["token"], 0o600)

    def serial(server):
        context = pki.context(check=False)
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            with context.wrap_socket(sock) as tls:
                return tls.getpeercert(binary_form=True)

    install("member", b"a" * 32)
    with programs.Recpsd("--tls-cert", files["cert"], "--tls-key",
                         files["key"], "--token-file",
                         files["token"]) as server:
        old = wire.Connection(server.port, tls=pki.context())
        assert old.hello(token=b"a" * 32).status == wire.OK
        before = serial(server)
        install("server", b"b" * 40)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("read again")
        assert serial(server) != before
        with wire.Connection(server.port, tls=pki.context()) as fresh:
            assert fresh.hello(token=b"b" * 40).status == wire.OK
        with wire.Connection(server.port, tls=pki.context()) as late:
            assert late.hello(token=b"a" * 32).status == wire.NO_AUTH
        assert old.call(wire.PING).status == wire.OK  # as it was
        # what cannot be read changes nothing
        now = serial(server)
        pathlib.Path(files["token"]).write_bytes(b"short")
        shutil.copy(pki.path("member"), files["cert"])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("nothing is changed")
        assert serial(server) == now
        with wire.Connection(server.port, tls=pki.context()) as fresh:
            assert fresh.hello(token=b"b" * 40).status == wire.OK
        old.close()
        assert server.stop() == 143, server.log()
