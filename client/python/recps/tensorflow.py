# SPDX-License-Identifier: Apache-2.0
"""Tables as TensorFlow layers: a call looks up, the gradient pushes.

    >>> user = recps.tensorflow.EmbeddingTable("user", 16, optimizer="adagrad")
    >>> with tf.GradientTape() as tape:
    ...     loss = loss_of(model(user(ids)), labels)
    >>> grads = tape.gradient(loss, model.trainable_variables)
    >>> # the servers have taken user's step; apply grads to the dense part

The same lines work in a compat.v1 graph: what minimizes the loss over the
trainable variables pushes, too. docs/PYTHON.md, TensorFlow.

Rows are no variables. What TensorFlow sees is an anchor, a trainable scalar
that stays 0: its gradient is always 0, and working it out is the push.
"""
from __future__ import annotations

import threading
import typing
import weakref

import numpy
import tensorflow as tf

import recps
from recps._client import Client
from recps._table import EmbeddingTable as Table
from recps._table import Push, push_tables
from recps._ticket import Ticket

__all__ = ["EmbeddingTable", "apply_gradients", "push_gradients"]

#: A tensor, or what becomes one; TensorFlow has no types that mypy reads.
TensorLike = typing.Any

PUSHES = ("backward", "step", "apply")
_ZERO = numpy.float32(0)

_own_client: list[Client] = []


def _default_client() -> Client:
    """One client for layers that are given none: connect()'s."""
    if not _own_client or _own_client[0].closed or not _own_client[0].is_ours:
        _own_client[:] = [recps.connect()]
    return _own_client[0]


def _as_ids(ids: TensorLike) -> TensorLike:
    """Ids as a tensor of integers: a float holds no id."""
    if not tf.is_tensor(ids) and not isinstance(ids, tf.Variable):
        ids = numpy.asarray(ids)  # of Python's ints: 64 bits
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise TypeError(f"ids: {ids.dtype.name}, must be integers")
    return ids


class Rows:
    """A table as TensorFlow sees it, whatever holds it; internal.

    :param open_table: called once, when rows are first asked for.
    """

    def __init__(self, name: str, dimension: int,
                 open_table: typing.Callable[[], Table], *,
                 push: str = "backward",
                 learning_rate: float | None = None,
                 padding_id: int | None = None,
                 gradient_scale: float = 1.0) -> None:
        if push not in PUSHES:
            raise ValueError(f"push: {push!r}, must be one of "
                             f"{', '.join(PUSHES)}")
        self.name = name
        self.dimension = dimension
        self.push_when = push
        self.learning_rate = learning_rate
        self.padding_id = padding_id
        self.gradient_scale = gradient_scale
        self._open_table = open_table
        self._table: Table | None = None
        self._lock = threading.RLock()  # _table, _kept, _open, the anchors
        self._waiting = threading.Lock()  # lookups of a step run side by side
        self._kept: list[Push] = []
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

    def look_up(self, ids: TensorLike,
                read_only: TensorLike = False) -> TensorLike:
        """Rows of ids, whose gradient is pushed (or kept)."""
        keys = _as_ids(ids)
        if read_only is True:
            return self._read_op(keys, True)

        @tf.custom_gradient
        def rows_of(anchor: TensorLike, keys: TensorLike) -> TensorLike:
            del anchor  # what makes TensorFlow ask for the gradient

            def gradient(upstream: TensorLike) -> TensorLike:
                return self._take_op(keys, upstream), None

            return self._read_op(keys, read_only), gradient

        rows = rows_of(self.anchor(), keys)
        rows._recps_lookup = (self, keys)
        return rows

    def _read_op(self, keys: TensorLike, read_only: TensorLike) -> TensorLike:
        rows = tf.numpy_function(
            self._read, [keys, tf.cast(read_only, tf.bool)], tf.float32)
        rows.set_shape(keys.shape.concatenate([self.dimension]))
        return rows

    def _take_op(self, keys: TensorLike, upstream: TensorLike) -> TensorLike:
        gradient = tf.cast(tf.convert_to_tensor(upstream), tf.float32)
        done = tf.numpy_function(self._take, [keys, gradient], tf.float32)
        done.set_shape([])
        return done

    # --- when it runs -----------------------------------------------------

    def _read(self, keys: typing.Any, read_only: typing.Any) -> typing.Any:
        self.wait()  # a lookup sees the pushes before it
        return self.table.lookup(keys, read_only=bool(read_only),
                                 padding=self.padding_id)

    def _take(self, keys: typing.Any, gradient: typing.Any) -> typing.Any:
        """A gradient that TensorFlow has worked out."""
        if self.push_when == "apply":
            return _ZERO
        if self.gradient_scale != 1.0:
            gradient = gradient * numpy.float32(self.gradient_scale)
        push = Push(self.table, keys, gradient, self.learning_rate,
                    padding=self.padding_id)
        if self.push_when == "step":
            with self._lock:
                self._kept.append(push)
            return _ZERO
        ticket = self.table.push_async(push.ids, push.gradients, push.lr,
                                       padding=push.padding)
        with self._lock:
            self._open.append(ticket)
        return _ZERO

    def wait(self) -> None:
        """Until the servers have taken every push; raises what one raised."""
        with self._waiting:  # nobody passes a push that another waits for
            while True:
                with self._lock:
                    if not self._open:
                        return
                    ticket = self._open.pop(0)
                ticket.wait()

    def forget(self) -> None:
        """Drop gradients that are kept for push_gradients()."""
        with self._lock:
            self._kept.clear()

    def take_kept(self) -> Push:
        """What was kept, as one push: the sum is the servers' work."""
        with self._lock:
            kept, self._kept = self._kept, []
        return joined(self.table, [(each.ids, each.gradients)
                                   for each in kept],
                      self.learning_rate, self.padding_id)


def joined(table: Table, parts: typing.Sequence[tuple[typing.Any, typing.Any]],
           learning_rate: float | None, padding: int | None) -> Push:
    """Ids and gradients of several lookups of a table as one push."""
    ids = [numpy.asarray(keys).reshape(-1).astype(numpy.int64)
           for keys, _ in parts]
    rows = [numpy.asarray(gradient).reshape(-1, table.dimension)
            for _, gradient in parts]
    if not parts:
        ids = [numpy.empty(0, numpy.int64)]
        rows = [numpy.empty((0, table.dimension), numpy.float32)]
    return Push(table, numpy.concatenate(ids), numpy.concatenate(rows),
                learning_rate, padding=padding)


class EmbeddingTable(tf.keras.layers.Layer):
    """A Keras layer whose rows are on parameter servers.

    :param name: of the table; ``dimension`` is that of its rows.
    :param client: None: one of ``recps.connect()``, shared by layers.
    :param learning_rate: of pushes; None: the optimizer's. May be set between
        steps (``layer.learning_rate``), as a schedule does.
    :param padding_id: an id that reads zeros and is never trained.
    :param push: ``backward`` pushes where the gradient is worked out, each
        lookup a step of its own; ``step`` keeps the gradients for
        :func:`push_gradients`, which sums a step's lookups, and which jobs in
        sync mode need; ``apply`` leaves it to :func:`apply_gradients`.
    :param gradient_scale: gradients are multiplied by it, as they are pushed
        or kept.
    :param spec: what else ``Client.get_embedding_table`` takes: ``optimizer``,
        ``initializer``, ``value_dtype``, ``min_used_times``, ...

    Called with ``training=False`` an id without a row answers the table's
    default (zeros), and nothing is pushed.
    """

    def __init__(self, name: str, dimension: int, *,
                 client: Client | None = None,
                 learning_rate: float | None = None,
                 padding_id: int | None = None, push: str = "backward",
                 gradient_scale: float = 1.0, **spec: typing.Any) -> None:
        self._rows: Rows | None = None
        super().__init__(dtype="float32")
        self.client = client if client is not None else _default_client()
        #: the table that it reads
        self.table: Table = self.client.get_embedding_table(
            name, dimension, **spec)
        self._rows = Rows(name, dimension, lambda: self.table, push=push,
                          learning_rate=learning_rate, padding_id=padding_id,
                          gradient_scale=gradient_scale)
        self.anchor = self._rows.anchor()  # Keras has it as a weight

    @property
    def learning_rate(self) -> float | None:
        """Of the pushes to come; None: the optimizer's."""
        return self._mine.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float | None) -> None:
        self._mine.learning_rate = value

    @property
    def _mine(self) -> Rows:
        assert self._rows is not None
        return self._rows

    def call(self, ids: TensorLike, training: TensorLike = None) -> TensorLike:
        """Rows of ids of any shape: ``ids.shape + (dimension,)`` float32."""
        if training is None:
            return self._mine.look_up(ids)
        if isinstance(training, (bool, int)):
            return self._mine.look_up(ids, not training)
        return self._mine.look_up(ids, tf.logical_not(
            tf.cast(training, tf.bool)))

    def compute_output_shape(self, input_shape: typing.Any) -> typing.Any:
        """Of rows of ids of this shape."""
        return tf.TensorShape(input_shape).concatenate([self.table.dimension])

    def wait(self) -> None:
        """Until the servers have taken every push of this layer."""
        self._mine.wait()

    def forget_gradients(self) -> None:
        """Forget gradients that are kept for :func:`push_gradients`."""
        self._mine.forget()

    def assign(self, ids: TensorLike, rows: TensorLike) -> None:
        """Write rows as they are: start values. Not in a graph."""
        self.wait()
        self.table.assign(numpy.asarray(ids),
                          numpy.asarray(rows, numpy.float32))


def push_gradients(layers: typing.Iterable[typing.Any], *,
                   step: int = 0) -> None:
    """Push what layers made with ``push="step"`` have kept, in one request:
    duplicates are summed over a step's lookups. In a sync job it is the step's
    push, which every replica makes, also an empty one. Call it after the
    gradient was worked out: eager, or between two runs of a session.

    :param layers: tables, or layers and models that hold some.
    :param step: of a job; 0 outside one.
    """
    tables: dict[int, EmbeddingTable] = {}
    for layer in layers:
        parts = (layer._flatten_layers() if hasattr(layer, "_flatten_layers")
                 else [layer])
        for part in parts:
            if isinstance(part, EmbeddingTable):
                tables[id(part)] = part
    pushes = [layer._mine.take_kept() for layer in tables.values()
              if layer._mine.push_when == "step"]
    if pushes:
        push_tables(pushes, step=step)


def origin_of(rows: TensorLike) -> tuple[Rows, TensorLike] | None:
    """Which lookup a tensor is the answer of; None: it is none."""
    return getattr(rows, "_recps_lookup", None)


def apply_gradients(grads_and_rows: typing.Iterable[tuple[
                        TensorLike, TensorLike]], *,
                    learning_rate: TensorLike = None,
                    step: int = 0) -> TensorLike:
    """Push gradients of what lookups returned, as an optimizer applies those
    of variables: one request, and one step of a table's optimizer for each
    distinct id, however many lookups it was in. For layers made with
    ``push="apply"``; others push by themselves.

    :param grads_and_rows: ``zip(tape.gradient(loss, rows), rows)``; pairs
        whose gradient is None are left out.
    :param learning_rate: a number or a scalar tensor; None: the layer's.
    :param step: of a job; 0 outside one.
    :returns: in a graph an operation to run, else None.
    """
    pairs = [(gradient, rows) for gradient, rows in grads_and_rows
             if gradient is not None]
    if not pairs:
        raise ValueError("apply_gradients: there is no gradient: does the "
                         "loss depend on these rows?")
    inputs: list[TensorLike] = [tf.constant(numpy.nan, tf.float32)
                                if learning_rate is None
                                else tf.cast(learning_rate, tf.float32)]
    origins: list[Rows] = []
    for gradient, rows in pairs:
        origin = origin_of(rows)
        if origin is None:
            raise TypeError(f"apply_gradients: {rows!r} is not what the lookup "
                            "of a recps table returned")
        origins.append(origin[0])
        inputs += [origin[1],
                   tf.cast(tf.convert_to_tensor(gradient), tf.float32)]

    def push(rate: typing.Any, *flat: typing.Any) -> typing.Any:
        _push_all(origins, None if numpy.isnan(rate) else float(rate), flat,
                  step)
        return _ZERO

    done = tf.numpy_function(push, inputs, tf.float32)
    return None if tf.executing_eagerly() else done.op


def _push_all(origins: list[Rows], rate: float | None,
              flat: typing.Sequence[typing.Any], step: int) -> None:
    """A table stands once in a push: its lookups joined."""
    parts: dict[int, list[tuple[typing.Any, typing.Any]]] = {}
    holders: dict[int, Rows] = {}
    for place, rows in enumerate(origins):
        gradient = flat[2 * place + 1]
        if rows.gradient_scale != 1.0:
            gradient = gradient * numpy.float32(rows.gradient_scale)
        holders[id(rows)] = rows
        parts.setdefault(id(rows), []).append((flat[2 * place], gradient))
    push_tables([joined(rows.table, parts[key],
                        rows.learning_rate if rate is None else rate,
                        rows.padding_id)
                 for key, rows in holders.items()], step=step)
