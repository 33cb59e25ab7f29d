# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around the Python package ends in an exception: Ctrl-C,
fork, threads, garbage collection, a server that stops answering."""
import os
import signal
import threading
import time

import pytest

import package
import programs

recps = package.load()
import numpy  # noqa: E402

DIM = 4
TRANSPORTS = ["tcp", pytest.param("shm", marks=pytest.mark.long)]


def connect(server, transport="tcp", **more):
    return recps.connect(package.cluster_of(server), connect_timeout=10,
                         transport=transport,
                         unix_dir=programs.unix_folder(), **more)


def table_of(client, name="t"):
    return client.get_embedding_table(name, DIM, optimizer=recps.SGD(1.0),
                                      initializer="zeros")


class Stopped:
    """The server answers nothing meanwhile."""

    def __init__(self, server):
        self.process = server.process

    def __enter__(self):
        programs.stop(self.process)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)


# A child that a test stops the server of: it says what it is about to do.
CHILD = """
import sys, time
import numpy, recps
client = recps.connect({"ps": ["127.0.0.1:" + sys.argv[1]]},
                       transport=sys.argv[2], unix_dir=sys.argv[3])
table = client.get_embedding_table("t", 4, optimizer="sgd")
ticket = None
print("ready")
sys.stdin.readline()
begin = time.monotonic()
try:
    {call}
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted" if not client._borrowed else "still borrowed")
client.close()
print("closed" if client.closed else "open")
"""
CALLS = {"lookup": "table.lookup(numpy.arange(1000))",
         "push": "table.push([1], numpy.ones((1, 4), numpy.float32))",
         "wait": "ticket = table.lookup_async([1]); ticket.wait()\n"
                 "except KeyboardInterrupt:\n    ticket.cancel(); "
                 "print('interrupted')\nexcept ZeroDivisionError:\n    pass\n"
                 "try:\n    pass",
         "stats": "client.stats()",
         "table": "client.get_embedding_table('u', 4)"}


def test_an_interrupt_is_not_lost_in_a_ticket_that_ended():
    """Python swallows what is raised in __del__: such a ticket has none."""
    with recps.connect("embedded") as own:
        table = own.get_embedding_table("rough", 4)
        ticket = table.lookup_async([1, 2])
        assert hasattr(type(ticket), "__del__")
        ticket.wait()
        assert type(ticket) is recps.Ticket
        assert not hasattr(type(ticket), "__del__")
        ticket.cancel()
        assert ticket.done() and ticket.wait().shape == (2, 4)


def test_a_client_s_request_timeout_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RECPS_REQUEST_TIMEOUT", "2.5")
    with recps.connect("embedded") as own:
        assert own._request_timeout == 2.5
    with recps.connect("embedded", request_timeout=7) as own:
        assert own._request_timeout == 7
    monkeypatch.setenv("RECPS_REQUEST_TIMEOUT", "soon")
    with pytest.raises(recps.InvalidError, match="request_timeout: 'soon'"):
        recps.connect("embedded")


@pytest.mark.parametrize("call, transport", [
    ("lookup", "tcp"), ("lookup", "shm"), ("stats", "tcp"),
    *(pytest.param(call, "tcp", marks=pytest.mark.long)
      for call in ("push", "wait", "table"))])
def test_ctrl_c_ends_a_call_that_waits(recpsd, call, transport):
    child = package.start(CHILD.replace("{call}", CALLS[call]), recpsd.port,
                          transport, programs.unix_folder())
    try:
        assert child.stdout.readline() == "ready\n"
        with Stopped(recpsd):
            child.stdin.write("\n")
            child.stdin.flush()
            time.sleep(0.3)
            child.send_signal(signal.SIGINT)
            said, _ = child.communicate(timeout=20)
    finally:
        child.kill()
    assert said.splitlines()[:1] == ["interrupted"], said
    assert said.splitlines()[-1] == "closed", said
    assert child.returncode == 0, said


def test_a_signals_handler_may_close_the_client_that_waits(recpsd):
    client = connect(recpsd)
    table, before = table_of(client), signal.getsignal(signal.SIGALRM)
    with Stopped(recpsd):
        signal.signal(signal.SIGALRM, lambda *_: client.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(recps.CanceledError, match="closed"):
                table.lookup([1])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert client.closed


def test_closing_in_the_middle_of_a_call_closes_at_its_end():
    """As a signal's handler may: the call still has its table in hand."""
    client = recps.connect("embedded")
    table = table_of(client)

    def call(handle):
        client.close()
        assert client.closed and client._handle.value
        with pytest.raises(recps.ClosedError):
            client.stats()
        assert client._handle.value and table._handle.value
        return 0

    client._ask(call)
    assert client.closed and not client._handle.value
    with pytest.raises(recps.ClosedError):
        table.refresh([1], numpy.zeros((1, DIM), numpy.float32), 0)


def test_a_program_may_end_with_requests_in_flight(recpsd):
    """Also when they are part of a cycle that only the end collects."""
    child = package.start("""
import os, signal, sys, threading
import numpy, recps
client = recps.connect({"ps": ["127.0.0.1:" + sys.argv[1]]},
                       client_thread=sys.argv[3] == "True")
table = client.get_embedding_table("t", 4, optimizer="sgd")
os.kill(int(sys.argv[2]), signal.SIGSTOP)
ids, ones = numpy.arange(1000), numpy.ones((1000, 4), numpy.float32)
kept = [table.lookup_async(ids), table.push_async(ids, ones), client]
kept.append(kept)
threading.Thread(target=table.lookup, args=(ids,), daemon=True).start()
threading.Thread(target=client.stats, daemon=True).start()
print("bye")
""", recpsd.port, recpsd.process.pid, True)
    try:
        assert child.communicate(timeout=20)[0] == "bye\n"
    finally:
        recpsd.process.send_signal(signal.SIGCONT)
        child.kill()
    assert child.returncode == 0


def test_a_wait_has_a_limit_and_may_go_on(recpsd):
    with connect(recpsd) as client:
        table = table_of(client)
        with Stopped(recpsd):
            ticket = table.lookup_async([1, 2])
            assert not ticket.done()
            with pytest.raises(recps.TimedOutError, match="0.1 s"):
                ticket.wait(timeout=0.1)
            assert issubclass(recps.TimedOutError, TimeoutError)
        assert ticket.wait(timeout=20).shape == (2, DIM)


def test_the_gil_is_free_while_a_call_waits(recpsd):
    with connect(recpsd) as client:
        table = table_of(client)
        with Stopped(recpsd):
            waiter = threading.Thread(target=lambda: table.lookup([1]))
            waiter.start()
            steps = 0
            for _ in range(10):  # each would be a slice if it were held
                begin = time.thread_time()
                while time.thread_time() - begin < 0.001:
                    steps += 1
            assert waiter.is_alive() and steps > 0
        waiter.join(20)
        assert not waiter.is_alive()


@pytest.mark.parametrize("where", ["embedded", "thread", *TRANSPORTS])
def test_threads_may_share_a_client(recpsd, where):
    with (recps.connect("embedded") if where == "embedded"
          else connect(recpsd, client_thread=True) if where == "thread"
          else connect(recpsd, where)) as client:
        table = table_of(client)
        ones = numpy.full((3, DIM), -1, numpy.float32)
        failures = []

        def work(number):
            try:
                for i in range(50):
                    ids = [0, number, 1000 + i]
                    ticket = table.push_async(ids, ones)
                    if i % 3 == 0:
                        assert table.lookup(ids).shape == (3, DIM)
                    ticket.wait()
            except BaseException as error:  # told by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,))
                   for n in range(1, 5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert not failures and not any(t.is_alive() for t in threads)
        assert (table.lookup(0) == 200).all()
        assert (table.lookup([1, 2, 3, 4]) == 50).all()
        assert not client._borrowed


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_arrays_and_tickets_may_be_collected_while_a_call_is_open(
        recpsd, transport):
    said = package.run("""
import gc, os, signal, sys, weakref
import numpy, recps
client = recps.connect({"ps": ["127.0.0.1:" + sys.argv[1]]},
                       transport=sys.argv[2], unix_dir=sys.argv[3])
table = client.get_embedding_table("t", 4, optimizer=recps.SGD(1.0),
                                   initializer="zeros")
os.kill(int(sys.argv[4]), signal.SIGSTOP)
kept = []
for n in range(50):
    ids = numpy.arange(n, n + 1000)
    out = numpy.empty((1000, 4), numpy.float32)
    ticket = table.lookup_async(ids, out=out)
    if n % 2:
        kept.append((n, ticket))
    if n == 4:
        lost = weakref.ref(out)
    del ids, out, ticket
    push = table.push_async(numpy.arange(1000),
                            numpy.full((1000, 4), -1, numpy.float32))
    del push
    gc.collect()
garbage = [numpy.full(10000, 77.0) for _ in range(200)]
os.kill(int(sys.argv[4]), signal.SIGCONT)
for n, ticket in kept:
    rows = ticket.wait()
    assert rows.shape == (1000, 4) and (rows == rows.round()).all()
assert all((each == 77).all() for each in garbage)
assert lost() is None, "a dropped lookup's array stays"
assert not client._borrowed
for _ in range(100):
    if (table.lookup(numpy.arange(1000)) == 50).all():
        print("each push was carried out")
        break
client.close()
# the client itself, with tickets open
client = recps.connect({"ps": ["127.0.0.1:" + sys.argv[1]]})
ticket = client.get_embedding_table("u", 4).lookup_async([1])
gone = weakref.ref(client)
client.me = client
del client
gc.collect()
assert gone() is not None
assert ticket.wait().shape == (1, 4)
del ticket
gc.collect()
assert gone() is None
""", recpsd.port, transport, programs.unix_folder(), recpsd.process.pid)
    assert said == "each push was carried out\n"


@pytest.mark.parametrize("where", [
    pytest.param("embedded", marks=pytest.mark.long), *TRANSPORTS])
def test_a_child_of_a_fork_is_refused_and_harms_nobody(recpsd, where):
    said = package.run("""
import os, sys, threading, time
import numpy, recps
cluster = {"ps": ["127.0.0.1:" + sys.argv[1]]}
if sys.argv[2] == "embedded":
    client = recps.connect("embedded")
else:
    client = recps.connect(cluster, transport=sys.argv[2],
                           unix_dir=sys.argv[3])
table = client.get_embedding_table("t", 4, optimizer=recps.SGD(1.0),
                                   initializer="zeros")
table.push([1], numpy.ones((1, 4), numpy.float32))
ticket = table.lookup_async([1])
halt = threading.Event()
def busy():
    while not halt.is_set():
        table.lookup([1, 2, 3])
thread = threading.Thread(target=busy)
thread.start()
for _ in range(5):  # the lock may be another thread's at that moment
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: table.lookup([1]), client.stats, ticket.wait,
                     ticket.done, lambda: len(table)):
            try:
                call()
            except recps.ForkedError as error:
                assert "fork" in str(error)
                refused += 1
        ticket.cancel()
        client.close()
        del ticket, table, client
        with recps.connect("embedded") as own:
            own.get_embedding_table("t", 4).lookup([1])
        os._exit(0 if refused == 5 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
halt.set()
thread.join()
assert (ticket.wait() == -1).all() and (table.lookup([1]) == -1).all()
client.close()
print("whole")
""", recpsd.port, where, programs.unix_folder())
    assert said == "whole\n"


def test_a_client_that_nobody_closed_is_closed_at_exit(recpsd):
    said = package.run("""
import sys, threading
import recps
client = recps.connect({"ps": ["127.0.0.1:" + sys.argv[1]]})
table = client.get_embedding_table("t", 4)
def busy():
    while True:
        table.lookup([1, 2, 3])
threading.Thread(target=busy, daemon=True).start()
ticket = table.lookup_async([1])
print("bye")
""", recpsd.port)
    assert said == "bye\n"


def test_a_server_that_dies_ends_its_calls():
    with programs.Recpsd() as server:
        with recps.connect(package.cluster_of(server), connect_timeout=10,
                           reconnect_timeout=0.2) as client:
            table = table_of(client)
            with Stopped(server):
                ticket = table.lookup_async([1])
                server.process.kill()
                server.process.wait()
            with pytest.raises(recps.UnreachableError, match="127.0.0.1"):
                ticket.wait(timeout=20)
            assert issubclass(recps.UnreachableError, ConnectionError)
            with pytest.raises(recps.UnreachableError, match="new one"):
                table.lookup([1])


def test_ctrl_c_ends_a_connect_that_waits():
    child = package.start("""
import recps
print("ready")
try:
    recps.connect({"ps": ["127.0.0.1:1"]})
except KeyboardInterrupt:
    print("interrupted")
""")
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=20)
    finally:
        child.kill()
    assert said == "interrupted\n" and child.returncode == 0


def test_reports_reach_python():
    lines = []
    with pytest.raises(recps.UnreachableError):
        recps.connect({"ps": ["127.0.0.1:1"]}, connect_timeout=0.1,
                      report=lines.append)


def test_a_report_may_not_use_the_client_that_calls_it(capsys):
    """Closing it there would take it from under librecps's feet."""
    calls = [lambda: client.close(), lambda: client.stats(),
             lambda: table.lookup([1]), lambda: client.traffic()]
    client = recps.connect("embedded", report=lambda line: calls[0]())
    table = table_of(client)
    while calls:
        client._options.reporter(None, b"a line")  # as librecps does
        assert "middle of a call" in capsys.readouterr().err
        calls.pop(0)
    assert table.lookup([1]).shape == (1, DIM)
    client.close()


@pytest.mark.long  # librecps has its say after 10 s
def test_a_report_that_closes_while_a_call_waits_harms_nobody(recpsd):
    said = []

    def report(line):
        said.append(line)
        client.close()

    client = connect(recpsd, report=report)
    with Stopped(recpsd):
        go_on = threading.Timer(11, recpsd.process.send_signal,
                                [signal.SIGCONT])
        go_on.start()
        assert len(client.stats()) == 1
        go_on.join()
    assert "waiting since 10 s" in said[0] and not client.closed
    client.close()


def test_ctrl_c_in_a_report_is_raised_by_the_call():
    def report(_line):
        raise KeyboardInterrupt

    with recps.connect("embedded", report=report) as client:
        table = table_of(client)
        ticket = table.lookup_async([1])
        client._options.reporter(None, b"a line")
        with pytest.raises(KeyboardInterrupt):
            client.stats()
        client._options.reporter(None, b"a line")
        with pytest.raises(KeyboardInterrupt):
            table.lookup([1])
        assert ticket.wait().shape == (1, DIM)
        assert not client._borrowed


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_request_timeout_ends_calls_to_a_server_that_stops(recpsd, transport):
    with connect(recpsd, transport, request_timeout=1) as client:
        table = table_of(client)
        ids = numpy.arange(100)
        table.lookup(ids)
        with Stopped(recpsd):
            for call in (lambda: table.lookup(ids),
                         lambda: recps.lookup_tables(
                             [recps.Lookup(table, ids)]),
                         lambda: table.push(ids, numpy.ones((100, DIM),
                                                            "f4")),
                         client.stats):
                with pytest.raises(recps.TimedOutError):
                    call()
        assert numpy.isfinite(table.lookup(ids)).all()


def test_a_lookup_within_request_timeout_answers(recpsd):
    with connect(recpsd, request_timeout=100) as client:
        assert table_of(client).lookup([1, 2]).shape == (2, DIM)
