# SPDX-License-Identifier: Apache-2.0
"""Rows as an operation of TensorFlow, whose gradient is a push; the engine of
recps.tensorflow and of recps.compat.mxrec.

Rows are no variables. What TensorFlow sees is an anchor, a trainable scalar
that stays 0: its gradient is always 0, and working it out is the push.
"""
from __future__ import annotations

import threading
import typing
import weakref

import numpy
import tensorflow as tf

from recps._modes import modes
from recps._rates import Rates
from recps._table import EmbeddingTable as Table
from recps._table import Push
from recps._ticket import Ticket, settle
from recps.errors import ReadOnlyError

__all__ = ["Ids", "Origin", "Rows", "TensorLike", "as_ids", "joined_pushes",
           "origin_of"]

#: A tensor, or what becomes one; TensorFlow has no types that mypy reads.
TensorLike = typing.Any

PUSHES = ("backward", "step", "apply")
COMBINERS = ("sum", "mean", "sqrtn")
_ZERO = numpy.float32(0)


def as_ids(ids: TensorLike) -> TensorLike:
    """Ids as a tensor of integers: a float holds no id."""
    if not tf.is_tensor(ids) and not isinstance(ids, tf.Variable):
        ids = numpy.asarray(ids)  # of Python's ints: 64 bits
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise TypeError(f"ids: {ids.dtype.name}, must be integers")
    return ids


class Ids(typing.NamedTuple):
    """What is looked up: ids of any shape, a row each; or flat ids in bags,
    a row a bag."""

    keys: TensorLike
    offsets: TensorLike = None
    """[bags + 1], from 0 to the number of ids; None: no bags."""
    pooling: str = "sum"

    @property
    def bag_pooling(self) -> str | None:
        """As a table's calls take it: None without bags."""
        return None if self.offsets is None else self.pooling

    @property
    def tensors(self) -> list[TensorLike]:
        """What an operation is given of it."""
        return ([self.keys] if self.offsets is None
                else [self.keys, self.offsets])

    def of(self, given: typing.Sequence[typing.Any]) -> Ids:
        """The same as the operation has it."""
        return Ids(given[0], given[1] if len(given) > 1 else None,
                   self.pooling)

    @property
    def result(self) -> typing.Any:
        """Shape of the rows, without their dimension."""
        if self.offsets is None:
            return self.keys.shape
        bound = self.offsets.shape[0]
        return tf.TensorShape([None if bound is None else bound - 1])


Reader = typing.Callable[[Ids, typing.Optional[int]], typing.Any]


class Origin(typing.NamedTuple):
    """Of which lookup a tensor is the answer."""

    rows: Rows
    ids: Ids


def origin_of(rows: TensorLike) -> Origin | None:
    """Which lookup a tensor is the answer of; None: it is none."""
    return getattr(rows, "_recps_lookup", None)


class Rows(Rates):
    """A table as TensorFlow sees it, whatever holds it.

    :param open_table: called once, when rows are first asked for.
    :param trains: asked at each lookup; where it says no, the rows have no
        gradient.
    :param on_lookup: told of every tensor of rows that may be trained.
    :param before_read: called before every lookup.
    :param before_push: called before every push that backward makes, with the
        name; may raise.
    """

    def __init__(self, name: str, dimension: int,
                 open_table: typing.Callable[[], Table], *,
                 push: str = "backward",
                 learning_rate: float | None = None,
                 padding_id: int | None = None,
                 gradient_scale: float = 1.0,
                 pool_on_server: bool = False,
                 trains: typing.Callable[[], bool] = lambda: True,
                 on_lookup: typing.Callable[[TensorLike], None] | None = None,
                 before_read: typing.Callable[[], None] | None = None,
                 before_push: typing.Callable[[str], None] | None = None
                 ) -> None:
        if push not in PUSHES:
            raise ValueError(f"push: {push!r}, must be one of "
                             f"{', '.join(PUSHES)}")
        self.name = name
        self.dimension = dimension
        self.push_when = push
        self.learning_rate = learning_rate
        self.padding_id = padding_id
        self.gradient_scale = gradient_scale
        self.pool_on_server = pool_on_server
        #: reads instead of the table, which is not trained then
        self.reader: Reader | None = None
        self._trains = trains
        self._on_lookup = on_lookup
        self._before_read = before_read
        self._before_push = before_push
        self._open_table = open_table
        self._table: Table | None = None
        self._lock = threading.RLock()  # _table, _kept, _open, the anchors
        self._waiting = threading.Lock()  # lookups of a step run side by side
        self._kept: list[Part] = []
        self._open: list[Ticket[None]] = []  # pushes on their way
        self._anchors: typing.Any = weakref.WeakKeyDictionary()
        self._eager_anchor: typing.Any = None

    @property
    def table(self) -> Table:
        """The table; the first who asks opens it."""
        with self._lock:
            if self._table is None:
                self._table = self._open_table()
            return self._table

    @property
    def is_open(self) -> bool:
        """Was it opened?"""
        return self._table is not None

    def anchor(self) -> TensorLike:
        """The variable of this graph, or of eager execution."""
        with self._lock, tf.init_scope():  # out of a tf.function
            if tf.executing_eagerly():
                if self._eager_anchor is None:
                    self._eager_anchor = self._new_anchor()
                return self._eager_anchor
            graph = tf.compat.v1.get_default_graph()
            if graph not in self._anchors:
                self._anchors[graph] = self._new_anchor()
            return self._anchors[graph]

    def _new_anchor(self) -> TensorLike:
        return tf.Variable(0.0, trainable=True, dtype=tf.float32,
                           name=f"recps/{self.name}/anchor")

    # --- in a graph, or eager ---------------------------------------------

    def look_up(self, ids: Ids, read_only: TensorLike = False) -> TensorLike:
        """Rows of ids, whose gradient is pushed (or kept)."""
        if read_only is True or not self._trains():
            return self._read_op(ids, read_only)

        @tf.custom_gradient
        def rows_of(anchor: TensorLike, *given: TensorLike) -> TensorLike:
            del anchor  # what makes TensorFlow ask for the gradient
            inside = ids.of(given)

            def gradient(upstream: TensorLike) -> TensorLike:
                nothing = [None] * len(given)
                return (self._take_op(inside, upstream), *nothing)

            return self._read_op(inside, read_only), gradient

        rows = rows_of(self.anchor(), *ids.tensors)
        rows._recps_lookup = Origin(self, ids)
        if self._on_lookup is not None:
            self._on_lookup(rows)
        return rows

    def _read_op(self, ids: Ids, read_only: TensorLike) -> TensorLike:
        def read(only: typing.Any, *given: typing.Any) -> typing.Any:
            return self._read(bool(only), ids.of(given))

        rows = tf.numpy_function(
            read, [tf.cast(read_only, tf.bool), *ids.tensors], tf.float32)
        rows.set_shape(ids.result.concatenate([self.dimension]))
        return rows

    def _take_op(self, ids: Ids, upstream: TensorLike) -> TensorLike:
        def take(gradient: typing.Any, *given: typing.Any) -> typing.Any:
            self._take(Part(ids.of(given), gradient))
            return _ZERO

        gradient = tf.cast(tf.convert_to_tensor(upstream), tf.float32)
        done = tf.numpy_function(take, [gradient, *ids.tensors], tf.float32)
        done.set_shape([])
        return done

    # --- when it runs -----------------------------------------------------

    def _read(self, read_only: bool, ids: Ids) -> typing.Any:
        if self.reader is not None:
            return self.reader(ids, self.padding_id)
        if self._before_read is not None:
            self._before_read()
        self.wait()  # a lookup sees the pushes before it
        return self.table.lookup(
            ids.keys, offsets=ids.offsets, pooling=ids.bag_pooling,
            pool_on_server=self._pools_there(ids.offsets),
            read_only=read_only, padding=self.padding_id,
            wire=modes.lookup_wire)

    def _pools_there(self, offsets: typing.Any) -> bool:
        return (self.pool_on_server and offsets is not None
                and modes.pools_on_server)

    def _take(self, part: Part) -> None:
        """A gradient that TensorFlow has worked out."""
        if self.push_when == "apply":
            return
        self._must_train()
        if self._before_push is not None:
            self._before_push(self.name)
        part = part.scaled(self.gradient_scale)
        with self._lock:
            if self.push_when == "step":
                self._kept.append(part)
                return
        ticket = self.table.push_async(
            part.ids.keys, part.gradient, self.learning_rate,
            offsets=part.ids.offsets, pooling=part.ids.bag_pooling,
            pool_on_server=self._pools_there(part.ids.offsets),
            padding=self.padding_id, wire=modes.push_wire)
        with self._lock:
            self._open.append(ticket)

    def _must_train(self) -> None:
        if self.reader is not None:
            raise ReadOnlyError(f"the table {self.name!r} is evaluated here: "
                                "an evaluator pushes no gradients")

    def wait(self) -> None:
        """Until the servers have taken every push; raises what one raised."""
        with self._waiting:  # nobody passes a push that another waits for
            while True:
                with self._lock:
                    if not self._open:
                        return
                    ticket = self._open.pop(0)
                settle(ticket)

    def forget(self) -> None:
        """Drop gradients that are kept for push_gradients()."""
        with self._lock:
            self._kept.clear()

    def take_kept(self) -> Push:
        """What was kept, as one push: the sum is the servers' work."""
        with self._lock:
            kept, self._kept = self._kept, []
        return self.joined(kept, self.learning_rate)

    def joined(self, parts: typing.Sequence[Part],
               learning_rate: float | None) -> Push:
        """Ids and gradients of several lookups as one push."""
        self._must_train()
        flat = [part.spread(self.dimension, self.padding_id)
                for part in parts]
        keys = [each[0] for each in flat] or [numpy.empty(0, numpy.int64)]
        rows = [each[1] for each in flat] or [
            numpy.empty((0, self.dimension), numpy.float32)]
        return Push(self.table, numpy.concatenate(keys),
                    numpy.concatenate(rows), learning_rate,
                    padding=self.padding_id, wire=modes.push_wire)


class Part(typing.NamedTuple):
    """Ids of a lookup as arrays, and the gradient of what it returned."""

    ids: Ids
    gradient: typing.Any

    def scaled(self, by: float) -> Part:
        """Its gradient times a number."""
        if by == 1.0:
            return self
        return self._replace(gradient=self.gradient * numpy.float32(by))

    def spread(self, dimension: int, padding: int | None
               ) -> tuple[typing.Any, typing.Any]:
        """Flat ids, and a gradient for each: a bag's, divided as it was
        pooled. The padding id counts for nothing in its bag."""
        keys = numpy.asarray(self.ids.keys).reshape(-1).astype(numpy.int64)
        rows = numpy.asarray(self.gradient).reshape(-1, dimension)
        if self.ids.offsets is None:
            return keys, rows
        counts = numpy.diff(self.ids.offsets)
        bag = numpy.repeat(numpy.arange(counts.size), counts)
        real = numpy.ones(keys.size) if padding is None else (
            (keys != padding).astype(float))
        sizes = numpy.bincount(bag, real, minlength=counts.size)
        power = {"sum": 0.0, "mean": 1.0, "sqrtn": 0.5}[
            self.ids.pooling]
        scale = (1 / numpy.maximum(sizes, 1)**power).astype(numpy.float32)
        return keys, rows[bag] * scale[bag, None]


def joined_pushes(origins: typing.Sequence[Origin], rate: float | None,
                  flat: typing.Sequence[typing.Any]) -> list[Push]:
    """Gradients of lookups as pushes, of which each table has one.

    :param flat: of each origin its gradient, then what its ids are made of.
    """
    parts: dict[int, list[Part]] = {}
    holders: dict[int, Rows] = {}
    left = iter(flat)
    for rows, ids in origins:
        gradient = next(left)
        part = Part(ids.of([next(left) for _ in ids.tensors]), gradient)
        holders[id(rows)] = rows
        parts.setdefault(id(rows), []).append(part.scaled(
            rows.gradient_scale))
    return [rows.joined(parts[key],
                        rows.learning_rate if rate is None else rate)
            for key, rows in holders.items()]
