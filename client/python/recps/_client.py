# SPDX-License-Identifier: Apache-2.0
"""A connection to a job's parameter servers, or the service in this process.

librecps wants a handle to be used by one thread at a time. Here a lock sees to
that, so a Client may be shared; one that waits lets others in every 50 ms at
the latest. Threads that are to overlap have a Client each.

Rules that keep memory safe, whatever is collected, interrupted or forked:

- Arrays of a lookup or push are in ``_borrowed`` before librecps hears of
  them, and leave it only after it has said that it is done with them, or the
  ticket was canceled.
- What garbage collection finds is only noted (``_dropped``); the next call
  under the lock cancels it.
- After a fork the child's lock is a new one, and librecps refuses its calls.
"""
from __future__ import annotations

import _thread
import collections
import ctypes
import itertools
import json
import os
import threading
import time
import typing
import weakref

from recps import _library as c
from recps._connect import (ClusterLike, Options, open_client, raise_pending,
                            refuse_in_report)
from recps.errors import (ClosedError, Error, InvalidError, RolledBackError,
                          Rollback, error_of)
from recps.tables import (Initializer, Optimizer, Uniform, c_name, index_of,
                          make_spec, real, whole)

if typing.TYPE_CHECKING:
    from recps._table import EmbeddingTable

__all__ = ["Client", "Decision", "Saved", "Started", "Traffic", "connect"]

CLOSE_S = 1.0  # how long closing waits for a call that was interrupted
SLICE_MS = 50  # a wait looks for Ctrl-C and other threads as often
YIELD_S = 0.0005

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class Traffic(typing.NamedTuple):
    """What went over the wire since the client was opened."""

    requests: int
    sent_bytes: int
    received_bytes: int
    round_trips: int


class Saved(typing.NamedTuple):
    """A checkpoint that is complete."""

    step: int
    is_delta: bool
    parent_step: int
    rows: int
    erased: int
    bytes: int
    pause_seconds: float
    seconds: float


class Started(typing.NamedTuple):
    """Where a job begins, or begins again."""

    epoch: int
    step: int
    mode: str
    replicas: int
    data_position: typing.Any
    reason: str


class Decision(typing.NamedTuple):
    """How a step ended: in sync the same for every replica."""

    step: int
    loss: float
    counted: int
    included: bool
    save_step: int
    save: bool
    stop: bool
    leave: bool


class _Job:
    """A call that waits in C, so that the main thread can hear Ctrl-C. No
    threading.Thread: the end of one runs a callback of Python's, which would
    swallow a KeyboardInterrupt."""

    def __init__(self, call: typing.Callable[[], typing.Any]) -> None:
        self.call = call
        self.result: typing.Any = None
        self.error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:  # handed to the caller
            self.error = error
        finally:
            self.over.set()


def interruptible(call: typing.Callable[[], typing.Any],
                  waits: bool) -> typing.Any:
    """What call() answers. One that may wait for a server runs beside the
    main thread; Ctrl-C leaves it to end by itself."""
    if not waits or threading.get_ident() != threading.main_thread().ident:
        return call()
    job = _Job(call)
    _thread.start_new_thread(job.run, ())
    while not job.over.wait(SLICE_MS / 1000):
        pass
    if job.error is not None:
        raise job.error
    return job.result


def last_words() -> str:
    """This thread's last failure in librecps."""
    words: bytes = c.lib.rps_client_error(None)
    return words.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raise what is not OK, with librecps's words."""
    if status != c.OK:
        raise error_of(status, last_words())


def _close_handle(handle: ctypes.c_void_p, pid: int,
                  lock: threading.RLock) -> None:
    """Once: at close(), at the client's collection or at exit. A child has
    nothing of its own to close; what another thread is in stays open."""
    if not handle.value or pid != os.getpid():
        return
    if lock.acquire(timeout=CLOSE_S):
        try:
            c.lib.rps_client_close(handle)
            handle.value = None
        finally:
            lock.release()


class Client:
    """A client; made by :func:`connect`, closed by :meth:`close` or ``with``.

    Safe to share between threads; calls take turns.
    """

    def __init__(self, handle: ctypes.c_void_p, options: Options) -> None:
        self._handle = handle
        self._options = options
        # of the blocking forms of tickets; the other calls have it in C
        self._request_timeout = options.request_timeout
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._borrowed: dict[int, typing.Any] = {}
        self._next = itertools.count(1)
        self._dropped: collections.deque[tuple[int, c.CTicket]] = (
            collections.deque())
        self._tables: dict[str, EmbeddingTable] = {}
        self._kept_step = 0
        self._joined: Started | None = None  # what join() answered last
        self._begun = False
        self._calling = 0  # the thread that is in _ask(), under the lock
        self._lost: dict[int, Rollback] = {}  # until rolled_back()
        self._lost_words = ""
        self._forsaken = False  # closed while an interrupted call goes on
        self._close = weakref.finalize(self, _close_handle, handle, self._pid,
                                       self._lock)
        _clients.add(self)

    # --- what every call begins with --------------------------------------

    def _enter(self) -> ctypes.c_void_p:
        """Under the lock: the handle; what was dropped is canceled first."""
        refuse_in_report()
        if self.closed:
            raise ClosedError("this client is closed")
        while self._dropped and self._pid == os.getpid():
            token, ticket = self._dropped.popleft()
            c.lib.rps_cancel(self._handle, ticket)
            self._borrowed.pop(token, None)
        return self._handle

    def _enter_tables(self) -> ctypes.c_void_p:
        """The same of what reads or changes tables: not before a loss that
        was told has been taken note of."""
        handle = self._enter()
        if self._lost:
            error = RolledBackError(self._lost_words)
            error.lost = self._losses()
            raise error
        return handle

    def _failed(self, status: int, words: str) -> Error:
        """Under the lock: the exception of a status. librecps tells a loss
        once; it is kept here until rolled_back()."""
        error = error_of(status, words)
        if isinstance(error, RolledBackError) and self.is_ours:
            self._hear()
            self._lost_words = words
            error.lost = self._losses()
        return error

    def _hear(self) -> list[Rollback]:
        """Under the lock: every server's figures; losses are added up."""
        figures = []
        for server in range(c.lib.rps_server_count(self._handle)):
            raw = c.CRollback()
            check(c.lib.rps_client_rolled_back(
                self._handle, server, ctypes.byref(raw)))
            now = Rollback(server, raw.first, raw.last, raw.pushes,
                           raw.acknowledged, raw.unanswered)
            before = self._lost.get(server)
            if before is not None:
                now = now._replace(
                    first=min(before.first, now.first or before.first),
                    last=max(before.last, now.last),
                    pushes=before.pushes + now.pushes)
            if now.last:
                self._lost[server] = now
            figures.append(now)
        return figures

    def _losses(self) -> tuple[Rollback, ...]:
        return tuple(self._lost[server] for server in sorted(self._lost))

    def _ask_tables(self,
                    call: typing.Callable[[ctypes.c_void_p], int]) -> None:
        """:meth:`_ask` of what reads or changes tables."""
        self._ask(call, enter=self._enter_tables)

    def _ask(self, call: typing.Callable[[ctypes.c_void_p], int],
             waits: bool = True,
             enter: typing.Callable[[], ctypes.c_void_p] | None = None
             ) -> None:
        """A blocking call: under the lock, its status as an exception."""

        refuse_in_report()

        def run() -> None:
            with self._turn:
                outer, self._calling = self._calling, threading.get_ident()
                try:
                    status = call((enter or self._enter)())
                    raise_pending()
                    if status != c.OK:
                        raise self._failed(status, last_words())
                finally:
                    self._calling = outer
                    if self._forsaken and not outer:
                        self._release()

        # the child of a fork is only refused
        interruptible(run, waits and not self._options.embedded
                      and self._pid == os.getpid())

    @property
    def _turn(self) -> threading.RLock:
        """The lock as it is: `with` takes it in one bytecode, between which
        and the body no signal is heard."""
        return self._lock

    # --- life -------------------------------------------------------------

    def close(self) -> None:
        """Close; unfinished tickets are canceled. Again is no error."""
        refuse_in_report()
        if self._pid != os.getpid():
            self._handle.value = None
        elif self._calling == threading.get_ident():
            self._forsaken = True  # a signal's handler: the call's end closes
        elif not self.closed:
            if self._lock.acquire(timeout=CLOSE_S):
                try:
                    self._release()
                finally:
                    self._lock.release()
            else:  # Ctrl-C left a call behind: its end closes
                self._forsaken = True

    def _release(self) -> None:
        """Under the lock."""
        self._dropped.clear()
        self._close()  # tickets are canceled: nothing is borrowed then
        self._handle.value = None
        self._borrowed.clear()
        self._tables.clear()

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return self._forsaken or not self._handle.value

    def __enter__(self) -> Client:
        if self.closed:
            raise ClosedError("the client was closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a recps client cannot be pickled: call "
                        "recps.connect() in the process that uses it")

    def __repr__(self) -> str:
        where = ("closed" if self.closed else "embedded"
                 if self._options.embedded
                 else f"{self._options.ps_count} servers")
        return f"<recps.Client {self._options.role} {where}>"

    @property
    def embedded(self) -> bool:
        """Are the tables in this process?"""
        return self._options.embedded

    @property
    def is_ours(self) -> bool:
        """Was it opened by this process, not by one that forked it?"""
        return self._pid == os.getpid()

    def where(self) -> dict[str, typing.Any]:
        """Where rows are: ``servers`` (addresses; none: in this process),
        ``checkpoint_dir`` (of the embedded mode) and ``checkpoint_step``, the
        last that this client saved or restored; 0: none."""
        return {"servers": list(self._options.addresses),
                "checkpoint_dir": self._options.checkpoint_dir,
                "checkpoint_step": self._kept_step}

    @property
    def role(self) -> str:
        """local, chief, worker, evaluator or none (a tool)."""
        return self._options.role

    @property
    def is_chief(self) -> bool:
        """May it save and restore? True in the embedded mode."""
        return self._options.embedded or self._options.is_chief

    @property
    def rank(self) -> int:
        """Of a replica: chief 0, then workers."""
        return self._options.rank

    @property
    def replicas(self) -> int:
        """Replicas that train; 1 in the embedded mode, 0 is unknown."""
        return 1 if self._options.embedded else self._options.replica_count

    @property
    def servers(self) -> int:
        """Parameter servers that are asked; 1 in the embedded mode."""
        with self._turn:
            return int(c.lib.rps_server_count(self._enter()))

    def transport(self, server: int = 0) -> str:
        """How a server is reached: tcp, unix, shm or local."""
        most = self.servers - 1
        with self._turn:
            return c.TRANSPORTS[c.lib.rps_server_transport(
                self._enter(), whole("server", server, most))]

    def fileno(self) -> int:
        """A descriptor that is readable when tickets have work; -1: none."""
        with self._turn:
            return int(c.lib.rps_client_fd(self._enter()))

    # --- tables -----------------------------------------------------------

    def get_embedding_table(
            self, name: str, dimension: int,
            device_vocabulary_size: int = 1,
            key_dtype: typing.Any = "int64",
            value_dtype: typing.Any = "float32",
            initializer: Initializer | str = Uniform(),
            optimizer: Optimizer | str = "adagrad",
            min_used_times: int = 0,
            max_cold_secs: int = 0,
            *,
            max_cold_steps: int = 0,
            keep_min_rows: int = 0,
            memory_limit: int = 0,
            on_full: str = "refuse",
            admission: str = "exact",
            default_value: float = 0.0,
            seed: int = 0,
            stochastic_rounding: bool = False) -> EmbeddingTable:
        """Open a table on every server, making it where it is not there yet.

        :param name: 1 to 128 of ``[0-9A-Za-z_.]``.
        :param dimension: floats of a row, 1 to 8192.
        :param device_vocabulary_size: how many rows to expect; a hint.
        :param key_dtype: of ids, ``int64`` or ``int32``.
        :param value_dtype: of rows in memory: ``float32``, ``float16`` or
            ``bfloat16``; arrays here are float32 in any case.
        :param initializer: first value of a row: an object of
            :mod:`recps.tables`, or a name.
        :param optimizer: what a push does: the same.
        :param min_used_times: pushes until a key gets a row.
        :param max_cold_secs: rows idle for longer leave; 0: never.
        :param max_cold_steps: the same in steps; one of the two.
        :param keep_min_rows: never fewer because of eviction.
        :param memory_limit: bytes on each server; 0: none.
        :param on_full: ``refuse``, ``evict-lru`` or ``evict-lfu``.
        :param admission: ``exact`` or ``sketch``.
        :param default_value: each column of a row that is not there.
        :param seed: of first values.
        :param stochastic_rounding: of float16 and bfloat16 rows.
        :raises MismatchError: the table exists with another field, which
            the words name.
        """
        spec = make_spec(
            name, dimension, optimizer, initializer,
            device_vocabulary_size=device_vocabulary_size,
            key_dtype=key_dtype, value_dtype=value_dtype,
            min_used_times=min_used_times, max_cold_secs=max_cold_secs,
            max_cold_steps=max_cold_steps, keep_min_rows=keep_min_rows,
            memory_limit=memory_limit, on_full=on_full, admission=admission,
            default_value=default_value, seed=seed, dense_elements=0,
            stochastic_rounding=stochastic_rounding)
        return self._open_table(
            name, lambda handle, out: int(c.lib.rps_get_embedding_table(
                handle, ctypes.byref(spec), out)))

    def find_embedding_table(self, name: str) -> EmbeddingTable:
        """Open a table that exists, by its name alone.

        :raises NotFoundError: a server has no such table.
        """
        text = c_name(name)
        return self._open_table(
            name, lambda handle, out: int(c.lib.rps_find_embedding_table(
                handle, text, out)))

    def _open_table(
            self, name: str,
            call: typing.Callable[[ctypes.c_void_p, typing.Any], int]
    ) -> EmbeddingTable:
        from recps._table import EmbeddingTable

        out = ctypes.c_void_p()
        self._ask_tables(lambda handle: call(handle, ctypes.byref(out)))
        with self._turn:
            self._enter()
            table = self._tables.get(name)
            if table is None or table._handle.value != out.value:
                table = EmbeddingTable(self, name, out)
                self._tables[name] = table
            return table

    # --- checkpoints ------------------------------------------------------

    def save(self, step: int, *,
             data_position: dict[str, typing.Any] | None = None,
             keep: int = 5, deltas_max: int = 0) -> Saved:
        """Write checkpoint ``step`` on every server (the chief, or embedded).

        :param data_position: where the input stands; a dict for JSON.
        :param keep: complete checkpoints that stay.
        :param deltas_max: how many deltas may follow a full one, at most 16.
        :raises InvalidError: there is no checkpoint_dir; not the chief.
        """
        position = (None if data_position is None
                    else json.dumps(data_position).encode())
        plan = c.SavePlan(
            step=whole("step", step, 2**63 - 1), data_position=position,
            keep=whole("keep", keep, 2**32 - 1),
            deltas_max=whole("deltas_max", deltas_max, 2**32 - 1))
        saved = c.CSaved()

        def call(handle: ctypes.c_void_p) -> int:
            status = int(c.lib.rps_save_begin(handle, ctypes.byref(plan)))
            return status if status != c.OK else int(c.lib.rps_save_wait(
                handle, 0, ctypes.byref(saved)))

        self._ask(call)
        self._kept_step = saved.step
        return Saved(saved.step, bool(saved.delta), saved.parent_step,
                     saved.rows, saved.erased, saved.bytes,
                     saved.pause_us / 1e6, saved.ms / 1e3)

    def newest_checkpoint(self) -> int:
        """Newest step of which every server has a complete one; 0: none."""
        step = ctypes.c_uint64()
        self._ask(lambda handle: int(
            c.lib.rps_newest_checkpoint(handle, ctypes.byref(step))))
        return step.value

    def restore(self, step: int | None = None, *, mode: str = "async",
                replicas: int | None = None) -> Started:
        """Bring the tables of checkpoint ``step`` back (the chief, embedded).

        None is the newest. Tables that this client has open stay so; what was
        pushed since is gone. For a job of one replica; others join
        (:meth:`begin`, :meth:`join`).

        :raises NotFoundError: there is no such checkpoint.
        """
        if step is None:
            step = self.newest_checkpoint()
            if step == 0:
                raise error_of(c.E_NOT_FOUND,
                               "there is no complete checkpoint to restore")
        started = self.begin(whole("step", step, 2**63 - 1), mode=mode,
                             replicas=replicas)
        self._reopen()
        self._kept_step = started.step
        return started

    def _reopen(self) -> None:
        """Tables are the checkpoint's now: find them again by name."""
        with self._turn:
            tables = list(self._tables.values())
        for table in tables:
            try:
                out = ctypes.c_void_p()
                text = table.name.encode()
                self._ask(lambda handle: int(c.lib.rps_find_embedding_table(
                    handle, text, ctypes.byref(out))))
            except LookupError:  # not in the checkpoint: made again
                spec = table._spec
                self._ask(lambda handle: int(c.lib.rps_get_embedding_table(
                    handle, ctypes.byref(spec), ctypes.byref(out))))
            table._take(out)

    # --- a job ------------------------------------------------------------

    def begin(self, step: int = 0, *, mode: str = "async",
              combine: str = "sum", replicas: int | None = None,
              staleness: int = 0, step_timeout: float = 60.0) -> Started:
        """The chief: begin the job on every server; 0 empties the tables.

        :param mode: ``async``, ``sync`` or ``bounded`` (with ``staleness``).
        :param combine: of replicas' gradients: ``sum`` or ``mean``.
        :param replicas: None: as many as the cluster has.
        :param step_timeout: seconds that a step waits for a replica.
        """
        count = self.replicas if replicas is None else replicas
        if self.embedded and count != 1:
            raise InvalidError(f"replicas: {count!r}, but tables in this "
                               "process have this one alone")
        terms = c.Terms(
            mode=index_of("mode", mode, c.MODES),
            combine=index_of("combine", combine, c.COMBINES),
            replica_count=whole("replicas", count, 2**32 - 1),
            staleness=whole("staleness", staleness, 2**32 - 1),
            step_timeout_ms=_ms("step_timeout", step_timeout))
        start = c.Start()
        self._ask(lambda handle: int(c.lib.rps_job_begin(
            handle, whole("step", step, 2**63 - 1), ctypes.byref(terms),
            ctypes.byref(start))))
        self._lost.clear()  # of an epoch that is over
        self._begun = True
        return _started(start)

    def join(self) -> Started:
        """Every replica: wait until all are here, and learn where to begin."""
        if self.embedded and not self._begun:
            raise InvalidError("no job has begun in this process, and nobody "
                               "else could begin one: begin() comes first")
        start = c.Start()
        self._ask(lambda handle: int(
            c.lib.rps_job_join(handle, ctypes.byref(start))))
        self._lost.clear()
        self._joined = _started(start)
        return self._joined

    def await_end(self, timeout: float | None = None) -> bool:
        """An evaluator: has the job ended (its chief's shutdown)? Waits for
        it, ``timeout`` seconds at most; None: no limit.

        :raises InvalidError: this is no evaluator; a replica that is done
            leaves, and :meth:`join` tells it of the end.
        :raises UnreachableError: the servers are gone, and it had not ended.
        """
        end = None if timeout is None else (
            time.monotonic() + real("timeout", timeout))
        while True:
            with self._turn:
                status = int(c.lib.rps_job_await_end(self._enter(), SLICE_MS))
                words = last_words()
                if status not in (c.OK, c.E_TIMEOUT):
                    raise self._failed(status, words)
            if status == c.OK:
                return True
            if end is not None and time.monotonic() >= end:
                return False
            let_others_in()

    def rolled_back(self) -> tuple[Rollback, ...]:
        """After a :class:`RolledBackError` outside a job: what each server
        has lost since this was called last. Tables are opened again (those
        that are gone are made again, empty), and calls go on.

        What a server lost are the last pushes that it had acknowledged: push
        them again, or go on from the older rows. For each server pushes
        applied = ``acknowledged`` - the sum of all ``pushes`` told, once
        ``unanswered`` is 0 (:meth:`ping` the server until it is).
        """
        with self._turn:
            self._enter()
            figures = self._hear()
        if self._lost:
            self._reopen()
            with self._turn:
                self._lost.clear()
        return tuple(figures)

    def step_end(self, step: int, loss: float = float("nan"), *,
                 save: bool = False, stop: bool = False,
                 leave: bool = False) -> Decision:
        """End a step of a job: waits as its mode asks, answers the decision.

        :param loss: this replica's; NaN: none.
        :param save: a wish, as are ``stop`` and ``leave`` (no more steps).
        """
        decision = c.Decision()
        wishes = save * 1 | stop * 2 | leave * 4
        self._ask(lambda handle: int(c.lib.rps_step_end(
            handle, whole("step", step, 2**63 - 1), float(loss), wishes,
            ctypes.byref(decision))))
        return Decision(
            decision.step, decision.loss, decision.counted,
            bool(decision.included), decision.save_step,
            bool(decision.wishes & 1), bool(decision.wishes & 2),
            bool(decision.wishes & 4))

    def apply(self) -> None:
        """Carry the last decision to every server that has not had it yet."""
        self._ask(lambda handle: int(c.lib.rps_apply(handle)))

    @property
    def lookup_step(self) -> int:
        """Step that the last finished lookup was answered from."""
        with self._turn:
            return int(c.lib.rps_lookup_step(self._enter()))

    # --- looking ----------------------------------------------------------

    def stats(self, *, digests: bool = False,
              times: bool = False) -> list[dict[str, typing.Any]]:
        """What each server says of itself (STAT of PROTOCOL.md).

        :param digests: with each table's content digest: reads every row.
        :param times: with how long requests took.
        """
        if digests and times:
            raise ValueError("stats: digests or times, not both")
        name = ("rps_stat_digests" if digests else
                "rps_stat_times" if times else "rps_stat")
        return [json.loads(self._text_of(name, server))
                for server in range(self.servers)]

    def ping(self, server: int = 0) -> dict[str, typing.Any]:
        """A round trip to one server."""
        answer = json.loads(self._text_of("rps_ping", server) or "{}")
        return dict(answer)

    def _text_of(self, name: str, server: int) -> str:
        out = ctypes.c_void_p()
        call = getattr(c.lib, name)
        number = whole("server", server, 2**32 - 1)
        self._ask(lambda handle: int(
            call(handle, number, ctypes.byref(out))))
        return c.take_text(out)

    def traffic(self) -> Traffic:
        """What went over the wire so far; subtract two to measure."""
        traffic = c.Traffic()
        with self._turn:
            c.lib.rps_client_traffic(self._enter(), ctypes.byref(traffic))
        return Traffic(traffic.requests, traffic.sent_bytes,
                       traffic.received_bytes, traffic.round_trips)

    def shutdown_servers(self) -> None:
        """End the servers: each finishes what it has in hand and exits 0."""
        self._ask(lambda handle: int(c.lib.rps_shutdown(handle)))


def let_others_in() -> None:
    """Between two slices of a wait, without the lock, which is not fair."""
    time.sleep(YIELD_S)


def _ms(name: str, seconds: float) -> int:
    number = real(name, seconds)
    if not 0 <= number <= 4294967:
        raise ValueError(f"{name}: {seconds!r}, must be 0 to 4294967 seconds")
    return round(number * 1000)


def _started(start: c.Start) -> Started:
    text = c.take_text(ctypes.c_void_p(start.data_position))
    start.data_position = None
    return Started(start.epoch, start.step, c.MODES[start.terms.mode],
                   start.terms.replica_count,
                   json.loads(text) if text else None,
                   start.reason.decode("utf-8", "replace"))


def connect(cluster: ClusterLike = None, *, job_name: str | None = None,
            task_index: int | None = None, job_id: str | None = None,
            job_seed: int | None = None,
            checkpoint_dir: str | os.PathLike[str] | None = None,
            connect_timeout: float | None = None,
            request_timeout: float | None = None,
            reconnect_timeout: float | None = None,
            transport: str | None = None, unix_dir: str | None = None,
            token_file: str | os.PathLike[str] | None = None,
            tls_ca: str | os.PathLike[str] | None = None,
            tls_cert: str | os.PathLike[str] | None = None,
            tls_key: str | os.PathLike[str] | None = None,
            body_checksum: bool = False, known_epoch: int = 0,
            client_thread: bool = False,
            report: typing.Callable[[str], None] | None = None) -> Client:
    """Connect to every server of the cluster, or serve it in this process.

    :param cluster: None: what TF_CONFIG and TF_CONFIG_FILE say, and without
        them ``"embedded"``, the tables in this process; a dict as TF_CONFIG
        has it, or only its ``cluster`` part; JSON text; a file
        (``pathlib.Path``, or text that begins with ``@``).
    :param job_name: replaces the task's type, ``task_index`` its index.
    :param job_id: must equal the servers'; so must ``job_seed``.
    :param checkpoint_dir: of the embedded mode; servers have their own.
    :param connect_timeout: seconds to wait for all servers (300).
    :param request_timeout: seconds of a blocking call, but not ``begin``,
        ``join``, ``step_end``, ``save``, nor a ticket's own ``wait``; 0, as
        without ``RECPS_REQUEST_TIMEOUT``: no limit.
    :param reconnect_timeout: seconds that a lost server is dialled (60).
    :param transport: auto, tcp, unix, shm or local.
    :param unix_dir: folder of the servers' Unix sockets.
    :param token_file: file with the servers' token.
    :param tls_ca: PEM files of TLS, with ``tls_cert`` and ``tls_key``.
    :param body_checksum: a checksum on every body.
    :param known_epoch: of a member that comes back.
    :param client_thread: a thread of librecps's own moves tickets while the
        program computes.
    :param report: called with a line of text while a call waits; it must not
        use a client.

    What is None is taken from the environment (``RECPS_JOB_ID``, ...), then
    from the ``recps`` object of the cluster's JSON, as the programs do.

    :raises InvalidError: a cluster that is refused, with the reason.
    :raises UnreachableError: each missing server and its cause.
    """
    return _connect(cluster, {
        "job_name": job_name, "task_index": task_index, "job_id": job_id,
        "job_seed": job_seed, "checkpoint_dir": checkpoint_dir,
        "connect_timeout": connect_timeout,
        "request_timeout": request_timeout,
        "reconnect_timeout": reconnect_timeout, "transport": transport,
        "unix_dir": unix_dir, "token_file": token_file, "tls_ca": tls_ca,
        "tls_cert": tls_cert, "tls_key": tls_key,
        "body_checksum": body_checksum, "known_epoch": known_epoch,
        "client_thread": client_thread,
        "report": report})


def _connect(cluster: ClusterLike, given: dict[str, typing.Any]) -> Client:
    options = Options(cluster, given)
    abandoned = threading.Event()

    def run() -> ctypes.c_void_p:
        handle = open_client(options, check)
        if abandoned.is_set():  # Ctrl-C was faster
            c.lib.rps_client_close(handle)
            raise Error("nobody waits for this connection any more")
        return handle

    try:
        handle = interruptible(run, not options.embedded)
    except BaseException:
        abandoned.set()
        raise
    return Client(handle, options)
