# SPDX-License-Identifier: Apache-2.0
"""The admin port of a running recpsd: probes, metrics, configuration."""
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

import exposition
import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

LOOPBACK = "127.0.0.1:0"


@pytest.fixture
def server():
    with programs.Recpsd("--loops", "2", admin=LOOPBACK) as it:
        yield it
        if it.process.poll() is None:
            assert it.stop() == 143, it.log()


def metrics(server):
    status, text, headers = server.get("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return exposition.Metrics(text)


def keys(*values, table_id):
    return wire.section(wire.KEYS, struct.pack(f"<{len(values)}Q", *values),
                        table_id=table_id, count=len(values))


def ones(n, dim, *, table_id):
    return wire.section(wire.ROWS, struct.pack(f"<{n * dim}f", *[1.0] * n * dim),
                        table_id=table_id, dim=dim, count=n, learning_rate=0.5)


# ---- probes ----

@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
def test_a_server_that_serves_is_live_ready_and_started(server, path):
    status, text, headers = server.get(path)
    assert (status, text) == (200, "ok\n")
    assert headers["Cache-Control"] == "no-store"


def test_verbose_names_each_check(server):
    lines = server.get("/livez?verbose")[1].splitlines()
    assert [l[:11] for l in lines] == ["[+] loop 0:", "[+] loop 1:", "ok"]
    text = server.get("/readyz?verbose=1")[1]
    assert f"[+] listening: 127.0.0.1:{server.port}\n" in text
    assert text.endswith("\nok\n")
    assert server.get("/readyz?terse&verbose")[1] == text


def test_a_loop_that_stands_still_is_not_live_until_it_goes_on():
    """Its log line goes into a pipe that is full and that nobody reads."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    server = programs.Recpsd("--loops", "2", "--live-timeout", "0.5",
                             admin=LOOPBACK)
    server.process = subprocess.Popen(server.flags, stderr=writer,
                                      env=server.env)
    try:
        programs.until(server.port_file.exists)
        server.port = int(server.port_file.read_text())
        assert server.get("/livez")[0] == 200
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        with server.connect(greet=False) as connection:
            connection.send(b"y" * 64)
            status, text, _ = programs.until(
                lambda: (lambda a: a if a[0] != 200 else None)(
                    server.get("/livez")))
            assert status == 500
            assert "live_timeout 0.5 s" in text
            text = server.get("/livez?verbose")[1]
            assert text.count("[-] loop") == 1 and text.count("[+] loop") == 1
            assert text.endswith("failed\n")
            lags = metrics(server).families["recps_event_loop_lag_seconds"]
            assert max(lags.samples.values()) > 0.2
            os.set_blocking(reader, False)
            while server.get("/livez")[0] != 200:
                try:
                    os.read(reader, 65536)
                except BlockingIOError:
                    time.sleep(0.02)
    finally:
        server.process.kill()
        server.process.wait()
        os.close(reader)
        os.close(writer)
        server.folder.cleanup()


def test_a_server_that_waits_for_its_port_is_live_and_not_started():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        server = programs.Recpsd(bind=f"127.0.0.1:{port}", admin=LOOPBACK)
        with open(server.log_path, "wb") as log:
            server.process = subprocess.Popen(server.flags, stderr=log,
                                              env=server.env)
        programs.until(server.admin_file.exists)
        assert server.get("/livez")[0] == 200
        assert server.get("/startupz")[0] == 503
        status, text, _ = server.get("/readyz")
        assert (status, text) == (503, "listening: waiting for the port\n")
        assert metrics(server)("recps_ready") == 0
    programs.until(server.port_file.exists)
    programs.until(lambda: server.get("/readyz")[0] == 200)
    assert server.get("/startupz")[0] == 200
    assert server.stop() == 143
    server.folder.cleanup()


# ---- metrics ----

def test_the_metrics_are_in_prometheus_form(server):
    with server.connect() as connection:
        table = connection.table("emb.user_id", dim=2)
        connection.call(wire.LOOKUP, [keys(1, 2, table_id=table)])
    found = metrics(server)
    assert found("recps_ready") == 1
    assert found("recps_rows", table="emb.user_id") == 0
    names = set(found.families)
    assert {"recps_build_info", "recps_request_duration_seconds",
            "recps_event_loop_lag_seconds", "process_cpu_seconds_total",
            "recps_checkpoint_last_success_timestamp_seconds"} <= names
    assert all(n.startswith(("recps_", "process_")) for n in names)


def test_times_have_four_buckets_an_octave(server):
    with server.connect() as connection:
        connection.call(wire.PING)
    bounds = [float(le) for le in re.findall(
        r'duration_seconds_bucket\{op="PING",le="([0-9.e-]+)"\}',
        server.get("/metrics")[1])]
    assert bounds[0] == 1.024e-6 and bounds[-1] > 60
    ratios = {round(b / a, 4) for a, b in zip(bounds, bounds[1:])}
    assert ratios == {1.25, 1.2, 1.1667, 1.1429}


@pytest.mark.skipif(shutil.which("promtool") is None,
                    reason="no promtool (Debian package prometheus)")
def test_promtool_finds_nothing_to_complain_of(server):
    with server.connect() as connection:
        table = connection.table(dim=2)
        connection.call(wire.LOOKUP, [keys(1, 2, table_id=table)])
    run = subprocess.run(["promtool", "check", "metrics"], text=True,
                         input=server.get("/metrics")[1], capture_output=True,
                         timeout=30, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_requests_keys_and_rows_are_counted(server):
    with server.connect() as connection:
        table = connection.table(dim=4, initializer="zeros")
        for i in range(5):
            reply = connection.call(
                wire.PUSH, [keys(*range(10), table_id=table),
                            ones(10, 4, table_id=table)], number=i + 1)
            assert reply.status == wire.OK
        for _ in range(3):
            connection.call(wire.LOOKUP, [keys(*range(16), table_id=table)])
        connection.call(wire.LOOKUP, [keys(1, table_id=table + 1)])
        connection.call(wire.ERASE, [keys(9, table_id=table)], number=6)
        found = metrics(server)
    op = {"op": "EMBEDDING_LOOKUP"}
    assert found("recps_requests_total", code="OK", **op) == 3
    assert found("recps_requests_total", code="NOT_FOUND", **op) == 1
    assert found("recps_requests_total", op="PUSH_GRADIENTS", code="OK") == 5
    assert found("recps_request_duration_seconds_count", **op) == 4
    assert found("recps_request_keys_count", **op) == 4
    assert found("recps_request_keys_sum", **op) == 3 * 16 + 1
    assert found("recps_request_keys_bucket", le="1", **op) == 1
    assert found("recps_request_keys_bucket", le="4", **op) == 1
    assert found("recps_request_keys_bucket", le="16", **op) == 4
    assert found("recps_keys_looked_up_total", table="emb") == 48
    assert found("recps_keys_missing_total", table="emb") == 18
    assert found("recps_pushes_applied_total", table="emb") == 5
    assert found("recps_gradients_applied_total", table="emb") == 50
    assert found("recps_rows_inserted_total", table="emb") == 10
    assert found("recps_rows_erased_total", table="emb") == 1
    assert found("recps_rows", table="emb") == 9
    assert found("recps_table_bytes", table="emb") > 9 * 16
    stat = server.stat()["tables"][0]
    assert stat["bytes"] == found("recps_table_bytes", table="emb")


def test_bytes_are_those_of_the_wire(server):
    with server.connect() as connection:
        table = connection.table(dim=8)
        # a reply is counted just after it was sent: the table's too
        programs.until(lambda: metrics(server)("recps_unsent_bytes") == 0)
        before = metrics(server)
        sent = received = 0
        for n in (1, 100, 3000):
            data = wire.frame(wire.LOOKUP, [keys(*range(n), table_id=table)], n)
            connection.send(data)
            sent += len(data)
            raw = connection._exactly(64)
            body = connection._exactly(wire.HEADER.unpack(raw)[4])
            received += len(raw) + len(body)
        programs.until(lambda: metrics(server)("recps_sent_bytes_total")
                       - before("recps_sent_bytes_total") >= received)
        after = metrics(server)
    for name, wanted in (("recps_received_bytes_total", sent),
                         ("recps_sent_bytes_total", received)):
        assert after(name) - before(name) == wanted


def test_a_request_that_waits_is_seen_and_its_time_is_counted(server):
    """STEP_END waits for the other replica; it is no time on a loop."""
    op = {"op": "STEP_END"}
    first = server.connect(role="worker", rank=0, replicas=2)
    second = server.connect(role="worker", rank=1, replicas=2)
    words = {"loss": None, "wishes": []}
    first.send_frame(wire.STEP_END, [wire.text({"rank": 0, **words})])
    programs.until(
        lambda: metrics(server)("recps_queue_depth", queue="parked") == 1)
    assert metrics(server)("recps_queue_depth", queue="requests") == 1
    second.send_frame(wire.STEP_END, [wire.text({"rank": 1, **words})])
    programs.until(
        lambda: metrics(server)("recps_queue_depth", queue="parked") == 2)
    time.sleep(0.3)
    with server.connect() as chief:  # the job begins: both are answered
        begun = chief.call(wire.RESTORE, [wire.text(
            {"epoch": 1, "step": 0, "replicas": 2, "mode": "sync"})])
        assert begun.status == wire.OK, begun.text
    assert first.receive().status == wire.OK
    assert second.receive().status == wire.OK
    found = metrics(server)
    assert found("recps_queue_depth", queue="parked") == 0
    assert found("recps_request_duration_seconds_count", **op) == 2
    assert found("recps_request_duration_seconds_sum", **op) >= 0.6
    assert found("recps_request_duration_seconds_bucket",
                 le="0.268435456", **op) == 0
    first.send_frame(wire.STEP_END, [wire.text({"rank": 0, **words})],
                     step=1, epoch=1)
    programs.until(
        lambda: metrics(server)("recps_queue_depth", queue="parked") == 1)
    first.close()
    second.close()
    programs.until(lambda: metrics(server)("recps_queue_depth", queue="requests") == 0)
    assert metrics(server)("recps_queue_depth", queue="parked") == 0


def test_connections_and_why_they_were_refused_are_counted():
    with programs.Recpsd("--connections-max", "2", "--loops", "1",
                         admin=LOOPBACK) as server:
        first, second = server.connect(), server.connect()
        with server.connect(greet=False) as third:
            assert third.hello().status == wire.LIMIT
            assert third.closed()
        found = metrics(server)
        assert found("recps_connections") in (2, 3)
        assert found("recps_connections_limit") == 2
        assert found("recps_connections_refused_total", reason="limit") == 1
        first.send(b"z" * 64)
        assert first.closed()
        found = metrics(server)
        assert found("recps_connections_refused_total", reason="bad_frame") == 1
        second.close()
        programs.until(lambda: metrics(server)("recps_connections") == 0)
        silent = server.connect(greet=False)
        assert silent.closed()
        found = metrics(server)
        assert found("recps_connections_refused_total", reason="no_hello") == 1
        assert found("recps_connections_accepted_total") == 4
        assert server.stop() == 143


def test_saves_and_restores_are_counted(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path),
                         admin=LOOPBACK) as server:
        assert metrics(server)(
            "recps_checkpoint_last_success_timestamp_seconds") == 0
        with server.connect() as connection:
            refused = connection.call(
                wire.RESTORE, [wire.text({"epoch": 1, "step": 7})])
            assert refused.status < 0
            reply = connection.call(
                wire.RESTORE, [wire.text({"epoch": 1, "step": 0})])
            assert reply.status == wire.OK, reply.text
        found = metrics(server)
        assert found("recps_restores_total") == 1
        assert found("recps_restore_failures_total") == 1
        assert found("recps_epoch") == 1
        assert found("recps_job_info", mode="async") == 1
        assert found("recps_replicas", state="here") == 1
        assert found("recps_replicas", state="given_up") == 0
        assert found("recps_replicas_behind_steps") == 0
        assert server.stop() == 143


# ---- configuration ----

def test_configz_has_every_option_and_where_it_came_from(server):
    status, text, headers = server.get("/configz")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    config = json.loads(text)
    assert config["listening"] == f"127.0.0.1:{server.port}"
    assert config["cluster"]["role"] == "local"
    options = config["options"]
    assert options["loops"] == {"value": 2, "from": "flag"}
    assert options["connections_max"] == {"value": 4096, "from": "default"}
    help_text = subprocess.run(
        [str(programs.RECPSD), "--help"], env=programs.environment(),
        capture_output=True, text=True, check=True).stdout
    of_server = help_text.split("Options of recpsd")[1]
    flags = {w[2:].split("=")[0] for w in of_server.split()
             if w.startswith("--") and len(w) > 2}
    assert {n.replace("_", "-") for n in options} == flags


def test_configz_names_variables_and_the_recps_object():
    config = ('{"cluster":{"ps":["127.0.0.1:2222"]},'
              '"task":{"type":"ps","index":0},"recps":{"job_id":"j7"}}')
    with programs.Recpsd(admin=LOOPBACK, env={
            "TF_CONFIG": config, "RECPS_STEP_TIMEOUT": "61"}) as server:
        found = json.loads(server.get("/configz")[1])
        assert found["options"]["job_id"] == {"value": "j7", "from": "recps"}
        assert found["options"]["step_timeout"] == {
            "value": 61, "from": "variable"}
        assert found["cluster"]["ps"] == ["127.0.0.1:2222"]
        assert found["cluster"]["index"] == 0
        assert server.stop() == 143


# ---- HTTP ----

def test_other_pages_and_methods_are_refused_in_words(server):
    status, text, _ = server.get("/nothing")
    assert status == 404 and "/metrics" in text
    for method in ("POST", "PUT", "DELETE"):
        status, text, headers = server.get("/livez", method=method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert server.get("/livez", method="HEAD")[:2] == (200, "")


@pytest.mark.hostile
def test_what_is_no_http_harms_nobody(server):
    hostile = [b"\0" * 4096, b"\xff" * 70000, b"GET " + b"a" * 100000,
               b"GET /livez HTTP/9.9\r\n\r\n", b"GET /%00%zz HTTP/1.1\r\n\r\n",
               b"GET /livez HTTP/1.1\r\n" + b"x: y\r\n" * 20000 + b"\r\n",
               b"POST /livez HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n",
               b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
               b"GET http://[::1/livez HTTP/1.1\r\n\r\n", wire.frame(wire.PING, [])]
    port = int(server.admin_file.read_text())
    for data in hostile:
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except OSError:
                pass
        assert server.get("/livez")[0] == 200
    server.assert_serves()


@pytest.mark.hostile
def test_a_flood_of_silent_connections_is_bounded_and_waited_out(server):
    port = int(server.admin_file.read_text())
    folder = f"/proc/{server.process.pid}/fd"
    before = len(os.listdir(folder))
    silent = [socket.create_connection(("127.0.0.1", port), 20)
              for _ in range(100)]
    time.sleep(0.3)
    # what came in one turn of the accepting socket may exceed the 64
    assert len(os.listdir(folder)) - before < 64 + 64
    server.assert_serves()
    assert server.get("/livez", timeout=60)[0] == 200
    for sock in silent:
        sock.close()
    programs.until(lambda: len(os.listdir(folder)) <= before + 2)


def test_connections_that_drip_are_cut_when_others_wait(server):
    port = int(server.admin_file.read_text())
    slow = [socket.create_connection(("127.0.0.1", port), 20)
            for _ in range(64)]
    end = time.monotonic() + 60
    waiting = socket.create_connection(("127.0.0.1", port), 60)
    waiting.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
    waiting.setblocking(False)
    data = b""
    while not data and time.monotonic() < end:
        for sock in slow:
            try:
                sock.send(b"G")
            except OSError:
                pass
        try:
            data = waiting.recv(4096)
        except BlockingIOError:
            time.sleep(1)
    assert b"200 OK" in data
    for sock in slow + [waiting]:
        sock.close()


def test_strangers_who_come_back_do_not_keep_probes_out(server):
    port = int(server.admin_file.read_text())
    stop = threading.Event()

    def hold():
        socks = []
        while not stop.is_set():
            socks = [sock for sock in socks if not closed(sock)]
            while len(socks) < 64:
                socks.append(socket.create_connection(("127.0.0.1", port), 20))
            time.sleep(0.02)
        for sock in socks:
            sock.close()

    def closed(sock):
        sock.setblocking(False)
        try:
            return sock.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        time.sleep(0.5)
        for _ in range(5):
            # not as long as an idle connection may last
            assert server.get("/livez", timeout=4)[0] == 200
    finally:
        stop.set()
        holder.join()


# ---- where it listens ----

def test_off_means_off():
    with programs.Recpsd("--admin", "off") as server:
        assert "admin=off" in server.log()
        assert server.stop() == 143


def test_an_address_that_was_asked_for_must_be_free(server):
    port = server.admin_file.read_text().strip()
    other = subprocess.run(
        [str(programs.RECPSD), "--bind", LOOPBACK, "--port-file", "/dev/null",
         "--admin", f"127.0.0.1:{port}"], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert other.returncode == 138
    assert f"127.0.0.1:{port}" in other.stderr


@pytest.mark.parametrize("address", ["9464", "127.0.0.1", "127.0.0.1:x", "on"])
def test_what_is_no_address_is_refused(address):
    run = subprocess.run([str(programs.RECPSD), "--admin", address],
                         env=programs.environment(), capture_output=True,
                         text=True, timeout=30, check=False)
    assert run.returncode == 64
    assert "--admin" in run.stderr and "host:port" in run.stderr


def test_the_default_gives_way_to_another_server_and_is_taken_after_it():
    try:
        holder = socket.create_server(("127.0.0.1", 9464))
    except OSError:
        holder = None # somebody has it: as good
    server = programs.Recpsd("--admin-port-file", "")
    del server.env["RECPS_ADMIN"]
    server.flags[-1] = str(server.admin_file)
    server.flags[-2] = "--admin-port-file"
    server.flags += ["--bind", LOOPBACK]
    with server:
        server.wait_for_log("admin_off: .*127.0.0.1:9464")
        server.assert_serves()
        if holder is not None:
            holder.close()
            server.wait_for_log("info admin_on: admin=127.0.0.1:9464")
            programs.until(server.admin_file.exists)
            assert server.get("/readyz")[0] == 200
        assert server.stop() == 143


def test_the_default_gives_way_to_the_main_port():
    server = programs.Recpsd(bind="127.0.0.1:9464")
    del server.env["RECPS_ADMIN"]
    try:
        server.start()
    except RuntimeError:
        assert "in use" in server.log() # by somebody else
        return
    with server.connect() as connection:
        assert connection.call(wire.PING).status == wire.OK
    assert "admin_off: 127.0.0.1:9464 is the port that --bind asks for" in (
        server.log())
    assert server.stop() == 143
    server.folder.cleanup()
