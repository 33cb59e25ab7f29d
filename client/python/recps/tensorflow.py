# SPDX-License-Identifier: Apache-2.0
"""Tables as TensorFlow layers: a call looks up, the gradient pushes.

    >>> user = recps.tensorflow.EmbeddingTable("user", 16, optimizer="adagrad")
    >>> with tf.GradientTape() as tape:
    ...     loss = loss_of(model(user(ids)), labels)
    >>> grads = tape.gradient(loss, model.trainable_variables)
    >>> # the servers have taken user's step; apply grads to the dense part

The same lines work in a compat.v1 graph: what minimizes the loss over the
trainable variables pushes, too. docs/PYTHON.md, TensorFlow.
"""
from __future__ import annotations

import functools
import typing

import numpy
import tensorflow as tf

import recps
from recps import _tensorflow_bags as bags
from recps._client import Client
from recps._table import EmbeddingTable as Table
from recps._table import Push, push_tables, warn_of_catchup
from recps._tensorflow_rows import (Origin, Rows, TensorLike, joined_pushes,
                                    origin_of)

__all__ = ["EmbeddingTable", "apply_gradients", "embedding_lookup_sparse",
           "push_gradients"]

_ZERO = numpy.float32(0)

_own_client: list[Client] = []


def _default_client() -> Client:
    """One client for layers that are given none: connect()'s."""
    if not _own_client or _own_client[0].closed or not _own_client[0].is_ours:
        _own_client[:] = [recps.connect()]
    return _own_client[0]


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
    :param combiner: ``sum``, ``mean`` or ``sqrtn``: ids come in bags, a row
        each; None: a row an id.
    :param pool_on_server: each server sums what it has of a bag.
    :param spec: what else ``Client.get_embedding_table`` takes: ``optimizer``,
        ``initializer``, ``value_dtype``, ``min_used_times``, ...

    With ``layer.trainable = False`` nothing is pushed; a model that was
    compiled has to be compiled again then, as for any layer.

    Called with ``training=False`` an id without a row answers the table's
    default (zeros), and nothing is pushed.
    """

    def __init__(self, name: str, dimension: int, *,
                 client: Client | None = None,
                 learning_rate: float | None = None,
                 padding_id: int | None = None, push: str = "backward",
                 gradient_scale: float = 1.0, combiner: str | None = None,
                 pool_on_server: bool = False, **spec: typing.Any) -> None:
        self._rows: Rows | None = None
        if combiner is not None:
            bags.check_combiner(combiner)
        super().__init__(dtype="float32")
        self.combiner = combiner
        self.client = client if client is not None else _default_client()
        #: the table that it reads
        self.table: Table = self.client.get_embedding_table(
            name, dimension, **spec)
        warn_of_catchup(self.table, push)
        self._rows = Rows(name, dimension, lambda: self.table, push=push,
                          learning_rate=learning_rate, padding_id=padding_id,
                          gradient_scale=gradient_scale,
                          pool_on_server=pool_on_server,
                          trains=lambda: bool(self.trainable))
        self.anchor = self._rows.anchor()  # Keras has it as a weight

    @property
    def learning_rate(self) -> float | None:
        """Of the pushes to come; None: the optimizer's."""
        return self._mine.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float | None) -> None:
        self._mine.learning_rate = value

    @property
    def gradient_scale(self) -> float:
        """What gradients are multiplied by, as they are pushed or kept."""
        return self._mine.gradient_scale

    @gradient_scale.setter
    def gradient_scale(self, value: float) -> None:
        self._mine.gradient_scale = value

    @property
    def _mine(self) -> Rows:
        assert self._rows is not None
        return self._rows

    def call(self, ids: TensorLike, training: TensorLike = None) -> TensorLike:
        """Rows of ids, float32.

        Without a combiner of ids of any shape, ``ids.shape + (dimension,)``;
        of a RaggedTensor a ragged one. With it the last axis is a bag: of a
        tensor, a RaggedTensor or a SparseTensor, ``ids.shape[:-1] +
        (dimension,)``; an empty bag is zeros.
        """
        return bags.look_up(self._mine, ids, self.combiner,
                            _read_only(training))

    def compute_output_shape(self, input_shape: typing.Any) -> typing.Any:
        """Of rows of ids of this shape."""
        shape = tf.TensorShape(input_shape)
        if self.combiner is not None:
            shape = shape[:-1]
        return shape.concatenate([self.table.dimension])

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


def push_gradients(layers: typing.Any, *, step: int = 0) -> None:
    """Push what layers made with ``push="step"`` have kept, in one request:
    duplicates are summed over a step's lookups. In a sync job it is the step's
    push, which every replica makes, also an empty one. Call it after the
    gradient was worked out: eager, or between two runs of a session.

    :param layers: tables, or layers and models that hold some; one, or
        several.
    :param step: of a job; 0 outside one.
    """
    tables: dict[int, EmbeddingTable] = {}
    for layer in [layers] if isinstance(layers, tf.Module) else layers:
        parts = (layer._flatten_layers() if hasattr(layer, "_flatten_layers")
                 else [layer])
        for part in parts:
            if isinstance(part, EmbeddingTable):
                tables[id(part)] = part
    pushes = [layer._mine.take_kept() for layer in tables.values()
              if layer._mine.push_when == "step"]
    if pushes:
        push_tables(pushes, step=step)


def _read_only(training: TensorLike) -> TensorLike:
    """What ``training`` says of a lookup."""
    if training is None:
        return False
    if isinstance(training, (bool, int)):
        return not training
    return tf.logical_not(tf.cast(training, tf.bool))


def embedding_lookup_sparse(table: typing.Any, sp_ids: TensorLike,
                            sp_weights: TensorLike = None,
                            combiner: str = "mean",
                            max_norm: float | None = None, *,
                            training: TensorLike = None) -> TensorLike:
    """``tf.nn.embedding_lookup_sparse`` of a recps table: a row a bag of ids,
    and a gradient for each id.

    There is a row for every bag of ``sp_ids``'s shape; one that is empty, also
    at the end, is zeros (as ``tf.nn.safe_embedding_lookup_sparse`` has it).

    :param table: an :class:`EmbeddingTable`, or one of ``mxrec``.
    :param sp_ids: a SparseTensor or a RaggedTensor; its last axis is a bag.
    :param sp_weights: of each id, of the same kind; None: 1 each. mean divides
        by their sum, sqrtn by the root of the sum of their squares.
    :param combiner: ``sum``, ``mean`` or ``sqrtn``.
    :param max_norm: longer rows are cut to it before they are combined.
    :param training: as of a layer's call.
    """
    rows = getattr(table, "_rows", None) or getattr(table, "rows", None)
    if not isinstance(rows, Rows):
        raise TypeError("table: must be an EmbeddingTable of recps.tensorflow "
                        f"or of mxrec, got {type(table).__name__}")
    if not isinstance(sp_ids, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError("sp_ids: must be a SparseTensor or a RaggedTensor, "
                        f"got {type(sp_ids).__name__}")
    return bags.look_up(rows, sp_ids, bags.check_combiner(combiner),
                        _read_only(training), sp_weights, max_norm)


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
    return apply_by(functools.partial(push_tables, step=step),
                    grads_and_rows, learning_rate)


def apply_by(push_them: typing.Callable[[list[Push]], None],
             grads_and_rows: typing.Iterable[tuple[TensorLike, TensorLike]],
             learning_rate: TensorLike) -> TensorLike:
    """:func:`apply_gradients` by another push; internal."""
    pairs = [(gradient, rows) for gradient, rows in grads_and_rows
             if gradient is not None]
    if not pairs:
        raise ValueError("apply_gradients: there is no gradient: does the "
                         "loss depend on these rows?")
    inputs: list[TensorLike] = [tf.constant(numpy.nan, tf.float32)
                                if learning_rate is None
                                else tf.cast(learning_rate, tf.float32)]
    origins: list[Origin] = []
    for gradient, rows in pairs:
        origin = origin_of(rows)
        if origin is None:
            raise TypeError(f"apply_gradients: {rows!r} is not what the lookup "
                            "of a recps table returned")
        origins.append(origin)
        inputs += [tf.cast(tf.convert_to_tensor(gradient), tf.float32),
                   *origin.ids.tensors]

    def push(rate: typing.Any, *flat: typing.Any) -> typing.Any:
        push_them(joined_pushes(
            origins, None if numpy.isnan(rate) else float(rate), flat))
        return _ZERO

    done = tf.numpy_function(push, inputs, tf.float32)
    return None if tf.executing_eagerly() else done.op
