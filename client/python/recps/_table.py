# SPDX-License-Identifier: Apache-2.0
"""A table: looked up, pushed to, read and kept."""
from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import typing

import numpy

from recps import _library as c
from recps._arrays import (Array, ArrayLike, Floats, Keys, apart, as_keys,
                           as_offsets, as_padding, as_rows, result_array)
from recps._client import Client
from recps._ticket import Ticket, settle
from recps.errors import NotFoundError, warn_user
from recps.tables import finite, index_of, whole

__all__ = ["EmbeddingTable", "Eviction", "Hot", "Lookup", "Push", "RowBatch",
           "lookup_tables", "push_tables"]


@dataclasses.dataclass(frozen=True)
class Hot:
    """A key that is pushed often; ``count`` may be too large by ``error``."""

    key: int
    count: int
    error: int


class Eviction(typing.NamedTuple):
    """What a pass of eviction did, over all servers."""

    examined: int
    cold: int
    full: int
    bytes_before: int
    bytes_after: int


class RowBatch(typing.NamedTuple):
    """Rows as a scan of a table finds them."""

    keys: Keys
    rows: Floats
    slots: Floats
    meta: Array


@dataclasses.dataclass
class Lookup:
    """One table's part of a fused lookup: see :func:`lookup_tables`.

    With ``offsets`` ([bags + 1], from 0 to the number of ids) the rows of a
    bag become one by ``pooling`` (sum, mean, sqrtn). ``padding`` is a key
    that reads zeros and counts for nothing.
    """

    table: EmbeddingTable
    ids: ArrayLike
    out: Floats | None = None
    offsets: ArrayLike | None = None
    pooling: str | None = None  # sum
    read_only: bool = False
    padding: int | None = None
    pool_on_server: bool = False
    wire: str = "float32"


@dataclasses.dataclass
class Push:
    """One table's part of a fused push: see :func:`push_tables`."""

    table: EmbeddingTable
    ids: ArrayLike
    gradients: ArrayLike
    lr: float | None = None
    offsets: ArrayLike | None = None
    pooling: str | None = None  # sum
    padding: int | None = None
    pool_on_server: bool = False
    wire: str = "float32"


class EmbeddingTable:
    """Made by :meth:`Client.get_embedding_table`; lives as long as it."""

    def __init__(self, client: Client, name: str,
                 handle: ctypes.c_void_p) -> None:
        self._client = client
        self._name = name
        self._handle = ctypes.c_void_p()
        self._spec = c.TableSpec()
        self._take(handle)

    def _take(self, handle: ctypes.c_void_p) -> None:
        spec = c.lib.rps_embedding_table_spec(handle)
        ctypes.memmove(ctypes.byref(self._spec), spec,
                       ctypes.sizeof(self._spec))
        self._handle.value = handle.value
        self._dim = int(self._spec.dim)
        self._narrow = self._spec.key_dtype == 1

    # --- what it is -------------------------------------------------------

    @property
    def client(self) -> Client:
        """Its client."""
        return self._client

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def dimension(self) -> int:
        """Floats of a row."""
        return self._dim

    @property
    def optimizer(self) -> str:
        """Name of its optimizer."""
        return c.OPTIMIZERS[self._spec.optimizer]

    @property
    def value_dtype(self) -> str:
        """As what rows are kept."""
        return c.VALUES[self._spec.value_dtype]

    @property
    def key_dtype(self) -> str:
        """Of ids: int64 or int32."""
        return c.KEY_DTYPES[self._spec.key_dtype]

    @property
    def learning_rate(self) -> float:
        """Used where a push names none."""
        return float(self._spec.learning_rate)

    @property
    def slot_floats(self) -> int:
        """Floats of optimizer state a row."""
        widths = {"sgd": 0, "momentum": 1, "adagrad": 1, "rowwise_adagrad": 0}
        kind = self.optimizer
        return widths.get(kind, 2) * self._dim + (kind == "rowwise_adagrad")

    def __repr__(self) -> str:
        return (f"<recps.EmbeddingTable {self._name!r} "
                f"dim {self._dim} {self.optimizer}>")

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a recps table cannot be pickled: open it in the "
                        "process that uses it")

    # --- lookups ----------------------------------------------------------

    def lookup(self, ids: ArrayLike, out: Floats | None = None, *,
               offsets: ArrayLike | None = None,
               pooling: str | None = None,
               read_only: bool = False, padding: int | None = None,
               pool_on_server: bool = False,
               wire: str = "float32") -> Floats:
        """Rows of ids of any shape: ``ids.shape + (dimension,)`` float32.

        An id without a row answers its first value; with ``read_only``, the
        table's default. With ``offsets`` ids are flat and the result is
        ``(bags, dimension)``.

        :param ids: integers; native 64-bit ones are read where they lie.
        :param out: where to write: no other memory is touched, and it is what
            is returned. float32, contiguous, or of contiguous rows that are
            equally far apart (a slice of the last axis of another array).
        :param offsets: [bags + 1], from 0 to the number of ids.
        :param pooling: of bags: ``sum`` (None), ``mean`` or ``sqrtn``.
        :param read_only: for evaluation.
        :param padding: an id that reads zeros and is never sent.
        :param pool_on_server: servers sum what they have of a bag.
        :param wire: what travels: float32, float16, bfloat16 or int8.
        :raises TypeError: ids that are no integers, an ``out`` that is not
            float32.
        :raises ValueError: a shape that does not fit.
        """
        return settle(self.lookup_async(
            ids, out, offsets=offsets, pooling=pooling, read_only=read_only,
            padding=padding, pool_on_server=pool_on_server, wire=wire))

    def lookup_async(self, ids: ArrayLike, out: Floats | None = None, *,
                     offsets: ArrayLike | None = None,
                     pooling: str | None = None,
                     read_only: bool = False, padding: int | None = None,
                     pool_on_server: bool = False,
                     wire: str = "float32") -> Ticket[Floats]:
        """:meth:`lookup`, begun: ``ticket.wait()`` answers the rows."""
        request, held, rows = _lookup_part(Lookup(
            self, ids, out, offsets, pooling, read_only, padding,
            pool_on_server, wire))
        return Ticket(self._client, lambda handle, ticket: int(
            c.lib.rps_lookup_start(handle, None, ctypes.byref(request), 1,
                                   ticket)), (held, rows), rows)

    # --- pushes -----------------------------------------------------------

    def push(self, ids: ArrayLike, grads: ArrayLike,
             lr: float | None = None, *, step: int = 0,
             offsets: ArrayLike | None = None,
             pooling: str | None = None,
             padding: int | None = None, pool_on_server: bool = False,
             wire: str = "float32") -> None:
        """Gradients of ids, ``ids.shape + (dimension,)`` float32: one step of
        the table's optimizer for each distinct id, of their sum.

        With ``offsets`` (as in :meth:`lookup`) there is a gradient a bag.

        :param lr: the learning rate; None: the table's.
        :param step: of a job; 0 outside one. In a sync job one call carries a
            step's tables: :func:`push_tables`.
        """
        settle(self.push_async(
            ids, grads, lr, step=step, offsets=offsets, pooling=pooling,
            padding=padding, pool_on_server=pool_on_server, wire=wire))

    def push_async(self, ids: ArrayLike, grads: ArrayLike,
                   lr: float | None = None, *, step: int = 0,
                   offsets: ArrayLike | None = None,
                   pooling: str | None = None,
                   padding: int | None = None, pool_on_server: bool = False,
                   wire: str = "float32") -> Ticket[None]:
        """:meth:`push`, begun."""
        return push_tables_async([Push(
            self, ids, grads, lr, offsets, pooling, padding, pool_on_server,
            wire)], step=step)

    # --- rows -------------------------------------------------------------

    def assign(self, ids: ArrayLike, rows: ArrayLike,
               slots: ArrayLike | None = None,
               meta: ArrayLike | None = None) -> None:
        """Write rows as they are, making those that are absent.

        :param slots: optimizer state, ``(n, slot_floats)``; None: fresh.
        :param meta: last tick | uses << 24, uint32; None: 0.
        """
        keys, shape = as_keys(ids, self._narrow)
        values, stride = as_rows(rows, shape, self._dim, "rows")
        if stride:
            values = numpy.ascontiguousarray(values)
        state = None
        if slots is not None:
            state, stride = as_rows(slots, (keys.size,), self.slot_floats,
                                    "slots")
            state = numpy.ascontiguousarray(state)
        marks = None
        if meta is not None:
            marks = numpy.ascontiguousarray(meta, numpy.uint32)
            if marks.shape != (keys.size,):
                raise ValueError(
                    f"meta: shape {marks.shape}, must be ({keys.size},)")
        assign = c.Assign(self._handle, keys.ctypes.data, keys.size,
                          values.ctypes.data,
                          None if state is None else state.ctypes.data,
                          None if marks is None else marks.ctypes.data)
        held = (keys, values, state, marks)

        def call(handle: ctypes.c_void_p, _held: typing.Any = held) -> int:
            return int(c.lib.rps_assign_rows(handle, ctypes.byref(assign)))

        self._client._ask_tables(call)

    def refresh(self, ids: ArrayLike, rows: Floats, since: int) -> int:
        """Bring rows that were looked up at step ``since`` up to date, in
        place; how many changed. See :attr:`Client.lookup_step`."""
        keys, shape = as_keys(ids, self._narrow)
        values, stride = result_array(rows, shape, self._dim)
        if stride:
            raise ValueError("rows: must be contiguous")
        changed = ctypes.c_size_t()
        step = whole("since", since, 2**64 - 1)

        def call(_handle: ctypes.c_void_p,
                 held: typing.Any = (keys, values)) -> int:
            return int(c.lib.rps_refresh(
                self._handle, keys.size, held[0].ctypes.data, step,
                held[1].ctypes.data, ctypes.byref(changed)))

        self._client._ask_tables(call)
        return changed.value

    def read(self, batch: int = 65536) -> typing.Iterator[RowBatch]:
        """Every row that the table has, a batch at a time.

        What comes or goes meanwhile is seen once or never.
        """
        size = whole("batch", batch, 2**32 - 1)
        scan, count = c.Scan(), ctypes.c_size_t()
        while not scan.done:
            found = RowBatch(
                numpy.empty(size, numpy.uint64),
                numpy.empty((size, self._dim), numpy.float32),
                numpy.empty((size, self.slot_floats), numpy.float32),
                numpy.empty(size, numpy.uint32))
            room = c.Rows(found.keys.ctypes.data, found.rows.ctypes.data,
                          found.slots.ctypes.data, found.meta.ctypes.data)

            def call(handle: ctypes.c_void_p,
                     held: tuple[c.Rows, RowBatch] = (room, found)) -> int:
                return int(c.lib.rps_read_rows(
                    handle, self._handle, ctypes.byref(scan), size,
                    ctypes.byref(held[0]), ctypes.byref(count)))

            self._client._ask_tables(call)
            if count.value:
                n = count.value
                yield RowBatch(found.keys[:n], found.rows[:n],
                               found.slots[:n], found.meta[:n])

    def erase(self, ids: ArrayLike) -> int:
        """Erase rows, and what was counted of their ids; how many there
        were."""
        keys, _ = as_keys(ids, self._narrow)
        erased = ctypes.c_uint64()

        def call(handle: ctypes.c_void_p, held: Keys = keys) -> int:
            return int(c.lib.rps_erase_rows(
                handle, self._name.encode(), held.size, held.ctypes.data,
                ctypes.byref(erased)))

        self._client._ask_tables(call)
        return erased.value

    # --- its life ---------------------------------------------------------

    def alter(self, **fields: typing.Any) -> None:
        """Change policy fields: ``alter(learning_rate=0.01)``.

        Any field of rps_table_spec that is no identity: hyper-parameters,
        clipping, admission, max_cold_*, keep_min_rows, memory_limit, on_full.
        """
        text = json.dumps(fields).encode()
        self._client._ask_tables(lambda handle: int(c.lib.rps_alter_table(
            handle, self._name.encode(), text)))
        with self._client._turn:
            self._client._enter()
            self._take(self._handle)

    def evict(self) -> Eviction:
        """One pass of eviction now, at all servers."""
        done = c.Eviction()
        self._client._ask_tables(lambda handle: int(c.lib.rps_evict_rows(
            handle, self._name.encode(), ctypes.byref(done), None)))
        return Eviction(done.examined, done.cold, done.full,
                        done.bytes_before, done.bytes_after)

    def drop(self) -> int:
        """Drop the table everywhere; how many rows it had. This object is
        dead then."""
        rows = ctypes.c_uint64()
        self._client._ask_tables(lambda handle: int(c.lib.rps_drop_table(
            handle, self._name.encode(), ctypes.byref(rows))))
        return rows.value

    def hot_keys(self, most: int = 100) -> list[Hot]:
        """The ids that are pushed most, the first most; from a sample."""
        size = whole("most", most, 512)
        found = (c.Hot * max(size, 1))()
        count = ctypes.c_size_t()
        self._client._ask_tables(lambda handle: int(c.lib.rps_hot_keys(
            handle, self._name.encode(), size, ctypes.byref(found),
            ctypes.byref(count))))
        return [Hot(found[i].key, found[i].count, found[i].error)
                for i in range(count.value)]

    def stats(self) -> dict[str, typing.Any]:
        """What the servers say of this table: numbers are summed."""
        total: dict[str, typing.Any] = {}
        for server in self._client.stats():
            tables = server.get("tables", {})
            mine = (tables.get(self._name) if isinstance(tables, dict) else
                    next((t for t in tables if t["name"] == self._name), None))
            for field, value in (mine or {}).items():
                if type(value) in (int, float) and field in total:
                    total[field] += value
                else:
                    total.setdefault(field, value)
        return total

    def __len__(self) -> int:
        """Rows that it has, over all servers."""
        stats = self.stats()
        if "rows" not in stats:
            raise NotFoundError(f"the table {self._name!r} was dropped")
        return int(stats["rows"])


# --- fused calls -------------------------------------------------------------


def _common(part: Lookup | Push, request: typing.Any, keys: Keys,
            shape: tuple[int, ...]) -> tuple[tuple[int, ...], typing.Any]:
    """Fields that lookups and pushes share: the rows' shape, what to hold."""
    offsets = None
    request.table = part.table._handle
    request.keys = keys.ctypes.data
    request.key_count = keys.size
    request.wire = index_of("wire", part.wire, c.VALUES)
    if part.padding is not None:
        request.padding_key = as_padding(part.padding, part.table._narrow)
        request.flags |= c.PADDED
    if part.offsets is not None:
        if len(shape) != 1:
            raise ValueError(f"ids: shape {shape}, must be flat with offsets")
        offsets = as_offsets(part.offsets)
        if offsets[-1] != keys.size:
            raise ValueError(
                f"offsets: the last is {offsets[-1]}, must be the number of "
                f"ids, {keys.size}")
        request.offsets = offsets.ctypes.data
        request.bag_count = offsets.size - 1
        request.pooling = index_of(
            "pooling", "sum" if part.pooling is None else part.pooling,
            c.POOLINGS)
        request.flags |= c.POOL_ON_SERVER if part.pool_on_server else 0
        shape = (offsets.size - 1,)
    elif part.pooling is not None:
        raise ValueError(f"pooling: {part.pooling!r}, needs offsets: without "
                         "them there are no bags")
    return shape, (keys, offsets)


def _lookup_part(part: Lookup) -> tuple[c.CLookup, typing.Any, Floats]:
    """The request, what must stay alive beside it, and its rows."""
    request = c.CLookup()
    request.flags = c.READ_ONLY if part.read_only else 0
    keys, shape = as_keys(part.ids, part.table._narrow)
    shape, (keys, offsets) = _common(part, request, keys, shape)
    rows, request.row_stride = result_array(part.out, shape, part.table._dim)
    request.rows = rows.ctypes.data
    if part.out is not None:
        keys = apart(keys, rows)
        request.keys = keys.ctypes.data
        if offsets is not None:
            offsets = apart(offsets, rows)
            request.offsets = offsets.ctypes.data
    held = keys, offsets
    return request, held, rows


def _push_part(part: Push) -> tuple[c.CPush, typing.Any]:
    request = c.CPush()
    keys, shape = as_keys(part.ids, part.table._narrow)
    shape, held = _common(part, request, keys, shape)
    grads, request.gradient_stride = as_rows(
        part.gradients, shape, part.table._dim, "grads")
    request.gradients = grads.ctypes.data
    request.learning_rate = (
        math.nan if part.lr is None else finite("lr", part.lr, 0.0))
    return request, (held, grads)


def warn_of_catchup(table: EmbeddingTable, push: str) -> None:
    """Pushes of ``backward`` have no step that catchup could count."""
    if table.optimizer.endswith("_catchup") and push == "backward":
        warn_user(f"table {table.name!r}: {table.optimizer} counts the steps "
                  'of pushes, and those of push="backward" have none: it is '
                  'as without catchup; use push="step" and push_gradients('
                  "..., step=s)", UserWarning)


def _client_of(parts: typing.Sequence[Lookup] | typing.Sequence[Push]
               ) -> Client:
    if not parts:
        raise ValueError("no table is named")
    client = parts[0].table._client
    if any(part.table._client is not client for part in parts):
        raise ValueError("the tables are of several clients")
    return client


def lookup_tables(lookups: typing.Sequence[Lookup]) -> list[Floats]:
    """Lookups of several tables in one call, fused on the wire."""
    return settle(lookup_tables_async(lookups))


def lookup_tables_async(
        lookups: typing.Sequence[Lookup]) -> Ticket[list[Floats]]:
    """:func:`lookup_tables`, begun."""
    client = _client_of(lookups)
    made = [_lookup_part(part) for part in lookups]
    requests = (c.CLookup * len(made))(*(each[0] for each in made))
    return Ticket(client, lambda handle, ticket: int(c.lib.rps_lookup_start(
        handle, None, ctypes.byref(requests), len(made), ticket)), made,
        [each[2] for each in made])


def push_tables(pushes: typing.Sequence[Push], *, step: int = 0) -> None:
    """Pushes of several tables in one call; in a sync job, a step's whole."""
    settle(push_tables_async(pushes, step=step))


def push_tables_async(pushes: typing.Sequence[Push], *,
                      step: int = 0) -> Ticket[None]:
    """:func:`push_tables`, begun."""
    client = _client_of(pushes)
    made = [_push_part(part) for part in pushes]
    requests = (c.CPush * len(made))(*(each[0] for each in made))
    call = c.Call(step=whole("step", step, 2**63 - 1))
    return Ticket(client, lambda handle, ticket: int(c.lib.rps_push_start(
        handle, ctypes.byref(call), ctypes.byref(requests), len(made),
        ticket)), made, None)
