# SPDX-License-Identifier: Apache-2.0
"""Ranks, broadcast and allreduce: librecps-collective (recps/collective.h).

A process alone is rank 0 of 1, and needs no library. Under mpirun the group is
joined when it is first used. All its calls are made by one thread, as MPI asks
for it; before each the ranks compare which call it is, so that ranks that run
different ones get an error instead of each other's numbers.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import queue
import sys
import threading
import typing

import numpy
from numpy import typing as npt

import recps
from recps.errors import MismatchError, UnsupportedError, error_of

Array = npt.NDArray[typing.Any]
_SIZE_OF_OPTIONS = 256  # librecps fills what it knows


class _Tensor(ctypes.Structure):
    """rps_tensor."""

    _fields_ = [("values", ctypes.c_void_p), ("count", ctypes.c_size_t)]


def _library() -> typing.Any:
    name = os.environ.get("RPS_COLLECTIVE_LIBRARY",
                          "librecps-collective.so.0")
    try:  # Open MPI's plugins look for its symbols among the global ones
        lib = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UnsupportedError(
            f"several ranks need librecps-collective: {error}; install it "
            "(it is built where Open MPI is), or set RPS_COLLECTIVE_LIBRARY "
            "to its file") from None
    lib.rps_collective_error.restype = ctypes.c_char_p
    lib.rps_collective_error.argtypes = [ctypes.c_void_p]
    for call in "rank", "size", "local_rank":
        function = getattr(lib, f"rps_collective_{call}")
        function.restype = ctypes.c_uint32
        function.argtypes = [ctypes.c_void_p]
    lib.rps_collective_shutdown.argtypes = [ctypes.c_void_p]
    lib.rps_collective_abort.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.rps_collective_broadcast.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
    lib.rps_collective_allreduce_many.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return lib


class _Thread:
    """Runs one call after another, all in the same thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[typing.Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True,
                         name="recps-collective").start()

    def _run(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                answer.put((call(), None))
            except BaseException as error:  # handed to the caller
                answer.put((None, error))

    def __call__(self, call: typing.Callable[[], typing.Any]) -> typing.Any:
        answer: queue.SimpleQueue[typing.Any] = queue.SimpleQueue()
        self._calls.put((call, answer))
        result, error = answer.get()
        if error is not None:
            raise error
        return result


class _Group:
    """The ranks that mpirun started."""

    def __init__(self) -> None:
        self._lib = _library()
        self._handle = ctypes.c_void_p()
        self._in_thread = _Thread()
        self._in_thread(self._initialize)
        self.rank: int = self._lib.rps_collective_rank(self._handle)
        self.size: int = self._lib.rps_collective_size(self._handle)
        self.local_rank: int = self._lib.rps_collective_local_rank(
            self._handle)
        self._before = sys.excepthook
        sys.excepthook = self._abort
        atexit.register(self.shutdown)

    def _initialize(self) -> None:
        options = ctypes.create_string_buffer(_SIZE_OF_OPTIONS)
        self._lib.rps_collective_options_init(options)
        self._check(self._lib.rps_collective_initialize(
            ctypes.byref(self._handle), options))

    def _check(self, status: int) -> None:
        if status != 0:
            words = self._lib.rps_collective_error(None) or b""
            raise error_of(status, words.decode("utf-8", "replace"))

    def _abort(self, kind: typing.Any, error: typing.Any,
               trace: typing.Any) -> None:
        """An exception that nobody caught: the others would wait for ever."""
        self._before(kind, error, trace)
        sys.stderr.flush()
        if self._handle.value:
            self._lib.rps_collective_abort(self._handle, 1)

    def shutdown(self) -> None:
        """Wait for all ranks, and leave."""
        if self._handle.value:
            handle = ctypes.c_void_p(self._handle.value)
            self._handle.value = None
            self._check(self._in_thread(
                lambda: self._lib.rps_collective_shutdown(handle)))

    def _agree(self, call: str) -> None:
        """In the thread: do all ranks make this call?"""
        mine = numpy.frombuffer(call.encode().ljust(96)[:96], numpy.uint8)
        theirs = mine.copy()
        self._check(self._lib.rps_collective_broadcast(
            self._handle, theirs.ctypes.data, theirs.size, 0))
        same = numpy.array([float((mine == theirs).all())], numpy.float32)
        self._reduce([same])
        if same[0] != self.size:
            first = theirs.tobytes().decode().strip()
            other = "another rank elsewhere" if self.rank == 0 else (
                f"rank 0 at {first!r}")
            raise MismatchError(
                f"rank {self.rank} is at {call!r}, {other}: ranks must run "
                "the same collective operations in the same order; order "
                "several of one session.run() by tf.control_dependencies()")

    def _reduce(self, arrays: list[Array], mean: bool = False) -> None:
        tensors = (_Tensor * len(arrays))(*[
            _Tensor(each.ctypes.data, each.size) for each in arrays])
        self._check(self._lib.rps_collective_allreduce_many(
            self._handle, tensors, len(arrays), int(mean)))

    def run(self, call: str, work: typing.Callable[[], None]) -> None:
        """One collective call, that all ranks agree on."""

        def both() -> None:
            if not self._handle.value:
                raise MismatchError("the ranks were shut down")
            self._agree(call)
            work()

        self._in_thread(both)

    def broadcast(self, arrays: list[Array], root: int,
                  number: int) -> None:
        """In place."""

        def work() -> None:
            for each in arrays:
                self._check(self._lib.rps_collective_broadcast(
                    self._handle, each.ctypes.data, each.nbytes, root))

        shapes = sum(each.nbytes for each in arrays)
        self.run(f"operation {number}: broadcast of {shapes} bytes", work)

    def allreduce(self, arrays: list[Array], mean: bool, number: int) -> None:
        """In place, float32."""
        count = sum(each.size for each in arrays)
        self.run(f"operation {number}: allreduce of {count} floats",
                 lambda: self._reduce(arrays, mean))


_lock = threading.Lock()  # _group
_group: _Group | None = None


def _world() -> int:
    """Ranks that mpirun started; 0: it did not."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "0"))


def initialize() -> None:
    """Join the ranks; nothing to do for a process alone."""
    global _group
    with _lock:
        if _group is None and _world() > 1:
            _group = _Group()


def shutdown() -> None:
    """Leave them: waits for all."""
    if _group is not None:
        _group.shutdown()


def rank() -> int:
    """Of this process: MPI's, else TF_CONFIG's, else 0."""
    if _world() > 0:
        return int(os.environ["OMPI_COMM_WORLD_RANK"])
    return recps.role().rank


def size() -> int:
    """How many ranks there are."""
    return _world() or max(1, recps.role().replicas)


def local_rank() -> int:
    """This process among those of its host."""
    if _world() > 0:
        return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))
    mine = recps.role()
    cluster = recps.cluster_from_flags([]).get("cluster", {})
    workers = cluster.get("worker", [])
    listed = (list(workers.values()) if isinstance(workers, dict)
              else list(workers))
    hosts = [address.rpartition(":")[0]
             for address in [*cluster.get("chief", []), *listed]]
    if not mine.trains or mine.rank >= len(hosts):
        return 0
    return hosts[:mine.rank].count(hosts[mine.rank])


def _joined() -> _Group | None:
    """The group; None: alone."""
    if size() == 1:
        return None
    if _world() < 2:
        raise UnsupportedError(
            f"{size()} replicas of TF_CONFIG, but no mpirun started them: "
            "broadcast and allreduce need it (recps launch --mpi, mpirun); "
            "gradients of tables go through the servers without it")
    initialize()
    return _group


def broadcast(arrays: typing.Sequence[Array], root: int,
              number: int) -> list[Array]:
    """Rank root's arrays, of the same shapes.

    :param number: of the operation: ranks compare it.
    """
    if not 0 <= root < size():
        raise ValueError(f"root_rank: must be 0 to {size() - 1}, got {root}")
    copies = [numpy.array(each, order="C") for each in arrays]
    group = _joined()
    if group is not None:
        group.broadcast(copies, root, number)
    return copies


def allreduce(arrays: typing.Sequence[Array], mean: bool,
              number: int) -> list[Array]:
    """Sum or mean over ranks; the same bits on each.

    :param number: of the operation: ranks compare it.
    """
    copies = [numpy.array(each, numpy.float32, order="C") for each in arrays]
    group = _joined()
    if group is not None:
        group.allreduce(copies, mean, number)
    return copies
