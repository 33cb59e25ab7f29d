# SPDX-License-Identifier: Apache-2.0
"""Tables and lookups."""
from __future__ import annotations

import dataclasses
import functools
import re
import threading
import typing

import tensorflow as tf

import recps
from recps._modes import modes
from recps._tensorflow_rows import Ids, Rows, TensorLike, as_ids
from recps.compat import _options
from recps.compat.mxrec import _checks, _config, _evaluator, _sync
from recps.errors import warn_user

_NAME = re.compile(r"[0-9A-Za-z_.]+")
_INT31 = 2**31 - 1
_USES_MOST = 2**16 - 1  # what a server holds
_SECONDS_MOST = 2**32 - 1

#: AdamWOptimizer's defaults: of a table that no optimizer was given to.
DEFAULT_OPTIMIZER = recps.AdamW(0.01, beta1=0.9, beta2=0.999, epsilon=1e-8,
                                weight_decay=0.004)

_lock = threading.Lock()  # _tables
_tables: dict[str, EmbeddingTable] = {}
_LOOKUPS = "recps_lookups"  # a collection of each graph
_has_sparse_optimizer = False


def _adamw_of(name: str) -> recps.AdamW:
    """As the servers' table has it."""
    spec = _config.client().find_embedding_table(name)._spec
    return recps.AdamW(**{
        field.name: getattr(spec, field.name)
        for field in dataclasses.fields(recps.AdamW)
        if field.name != "catchup"})


class EmbeddingTable:
    """Made by :func:`get_embedding_table`; opened at the servers when rows
    are first asked for, with the optimizer that it has by then."""

    def __init__(self, fields: dict[str, typing.Any],
                 optimizer: recps.Optimizer | str | None) -> None:
        self._fields = fields
        self._given = optimizer
        self._bound: recps.AdamW | None = None
        self._optimizers: dict[str, typing.Any] = {}
        self.table_id = len(_tables)
        self.rows = Rows(
            fields["name"], fields["dimension"], self._open,
            push="apply" if _has_sparse_optimizer and optimizer is None
            else "backward", on_lookup=_list_lookup,
            before_read=_sync.flush, before_push=_sync.refuse_lone)
        self.reader: _evaluator.Reader | None = None
        if _evaluator.is_evaluator():
            self.rows.reader = self.reader = _evaluator.Reader(
                fields["name"])

    def _open(self) -> recps.EmbeddingTable:
        first = self._given or self._bound
        open_it = functools.partial(_config.client().get_embedding_table,
                                    **self._fields)
        try:
            return open_it(optimizer=first or DEFAULT_OPTIMIZER)
        except recps.MismatchError:
            if first is not None:
                raise
        # eager: another worker has the optimizer already that comes to this
        # one after its first lookup
        return open_it(optimizer=_adamw_of(self.name))

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._fields["name"])

    @property
    def dim(self) -> int:
        """Floats of a row."""
        return int(self._fields["dimension"])

    @property
    def dev_vocab_size(self) -> int:
        """How many rows were announced."""
        return int(self._fields["device_vocabulary_size"])

    @property
    def table(self) -> recps.EmbeddingTable:
        """The recps table, opened if it is not."""
        _sync.flush()
        return self.rows.table

    def size(self) -> int:
        """Rows that it has."""
        self.rows.wait()
        _sync.settle()
        return (len(self.table) if self.reader is None
                else len(self.reader.file))

    def capacity(self) -> int:
        """Rows that were announced; it grows beyond them."""
        return self.dev_vocab_size

    def bind(self, name: str, owner: typing.Any, wanted: recps.AdamW) -> None:
        """Train it by an optimizer's apply_gradients() from now on."""
        known = self._optimizers.get(name)
        if known is not None and known is not owner:
            raise EnvironmentError(
                f"an AdamWOptimizer of the name {name!r} has exists for the "
                f"table {self.name!r}: give the second another name")
        if self._given is not None:
            raise EnvironmentError(
                f"the table {self.name!r} was made with optimizer="
                f"{self._given!r}, which trains it: leave one of both out")
        self._optimizers[name] = owner
        self.rows.push_when = "apply"
        if wanted == self._bound:
            return
        self._bound = wanted
        if self.rows.is_open:  # eager: looked up before
            self.table.alter(**wanted._fields())

    def __repr__(self) -> str:
        return f"<mxrec table {self.name!r} dim {self.dim}>"


def sparse_optimizer_is_there() -> None:
    """From now on tables without an optimizer of their own are trained by
    apply_gradients() alone."""
    global _has_sparse_optimizer
    with _lock:
        _has_sparse_optimizer = True
        for table in _tables.values():
            if table._given is None:
                table.rows.push_when = "apply"


def forget() -> None:
    """Forget every table of this process, and close its client."""
    global _has_sparse_optimizer
    with _lock:
        _has_sparse_optimizer = False
        _tables.clear()
    _options.clear()
    _sync.forget()
    _config.close()


def initializer_of(given: typing.Any) -> tuple[recps.Initializer, int]:
    """What an initializer of TensorFlow is here, and its seed."""
    if isinstance(given, type) and not isinstance(given, recps.Initializer):
        given = given()  # a class stands for its defaults
    if isinstance(given, recps.Initializer):
        return given, 0
    kinds = {kind.__name__ for kind in type(given).__mro__}
    config = given.get_config() if hasattr(given, "get_config") else {}
    seed = int(config.get("seed") or 0) & (2**64 - 1)
    if "Zeros" in kinds:
        return recps.Zeros(), seed
    if "Ones" in kinds:
        return recps.Constant(1.0), seed
    if "Constant" in kinds and isinstance(config.get("value"), (int, float)):
        return recps.Constant(float(config["value"])), seed
    if "RandomUniform" in kinds:
        high = config["maxval"]
        return recps.Uniform(float(config["minval"]),
                             1.0 if high is None else float(high)), seed
    if "TruncatedNormal" in kinds:
        return recps.TruncatedNormal(float(config["mean"]),
                                     float(config["stddev"])), seed
    if "RandomNormal" in kinds:
        return recps.Normal(float(config["mean"]),
                            float(config["stddev"])), seed
    if "VarianceScaling" in kinds:
        return _variance_scaling(given), seed
    raise ValueError(
        "initializer: must be a zeros, ones, constant (of one number), "
        "random_uniform, random_normal, truncated_normal or variance_scaling "
        f"initializer of TensorFlow, got {given!r}")


def _variance_scaling(given: typing.Any) -> recps.Initializer:
    """Its attributes: get_config() of glorot and he leaves them out."""
    kind = str(given.distribution)
    return recps.VarianceScaling(
        float(given.scale), str(given.mode),
        {"untruncated_normal": "normal", "normal": "truncated_normal"}.get(
            kind, kind))


def _held(table: str, name: str, value: int, most: int) -> int:
    """What a server holds of it; said once a table."""
    if value > most and table not in _tables:
        warn_user(f"{name}: {value} is taken as {most}, the most that a "
                  "recps server holds", UserWarning)
    return min(value, most)


def _checked(name: typing.Any, dimension: typing.Any, vocabulary: typing.Any,
             min_used_times: typing.Any,
             max_cold_secs: typing.Any) -> dict[str, typing.Any]:
    """Fields in the order in which they are checked."""
    _checks.text("name", name, 128)
    if not _NAME.fullmatch(name):
        raise ValueError("name: must have characters of [0-9A-Za-z_.] alone, "
                         f"got {name!r}")
    if name.startswith("."):  # it is a folder's name in a checkpoint
        raise ValueError("name: must not start with a dot, got "
                         f"{name!r}")
    dimension = _checks.whole("dimension", dimension, 1, 512)
    vocabulary = _checks.whole("device_vocabulary_size", vocabulary, 0, 10**9)
    if min_used_times:  # 0 is None
        min_used_times = _checks.whole("min_used_times", min_used_times, 0,
                                       _INT31)
    if max_cold_secs:
        max_cold_secs = _checks.whole("max_cold_secs", max_cold_secs, 0,
                                      2**64 - 1)
    if vocabulary == 0:
        raise ValueError("device_vocabulary_size: must be 1 to 1000000000, "
                         "got 0")
    return {"name": name, "dimension": dimension,
            "device_vocabulary_size": vocabulary,
            "min_used_times": _held(name, "min_used_times", min_used_times or 0,
                                    _USES_MOST),
            "max_cold_secs": _held(name, "max_cold_secs", max_cold_secs or 0,
                                   _SECONDS_MOST)}


def _refuse_clock(fields: dict[str, typing.Any]) -> None:
    if fields["max_cold_secs"]:
        raise ValueError(
            f"deterministic: the table {fields['name']!r} has max_cold_secs="
            f"{fields['max_cold_secs']}: which rows leave is the clock's "
            "choice, so no two runs have the same bits; leave one of both out")


def _refuse_clocks() -> None:
    for table in get_existing_tables():
        _refuse_clock(table._fields)


def get_embedding_table(
        name: str, dimension: int, device_vocabulary_size: int,
        initializer: typing.Any = tf.compat.v1.random_normal_initializer,
        key_dtype: typing.Any = tf.int64,
        value_dtype: typing.Any = tf.float32,
        distribution_strategy: str = "MP",
        min_used_times: int | None = None,
        max_cold_secs: int | None = None, *,
        optimizer: recps.Optimizer | str | None = None) -> EmbeddingTable:
    """A sparse table.

    :param name: 1 to 128 of ``[0-9A-Za-z_.]``; a name that is there answers
        its table, with a warning where other arguments differ.
    :param dimension: floats of a row, 1 to 512 (recps itself: 8192).
    :param device_vocabulary_size: rows to expect, 1 to 10^9; it may grow
        beyond.
    :param initializer: first value of a row: an initializer of TensorFlow (or
        of recps); random_normal is mean 0, deviation 1.
    :param key_dtype: tf.int64.
    :param value_dtype: tf.float32.
    :param distribution_strategy: "MP": rows are spread over the servers.
    :param min_used_times: 0 to 2^31-1 pushes until a key gets a row.
    :param max_cold_secs: 0 to 2^64-1; rows idle for longer leave.
    :param optimizer: recps's own: trains the table where its gradient is
        worked out, as the two-line change needs it; None: AdamWOptimizer.
    :raises TypeError: of another type, which it names.
    :raises ValueError: what is allowed, and what was given.
    """
    fields = _checked(name, dimension, device_vocabulary_size, min_used_times,
                      max_cold_secs)
    first, seed = initializer_of(initializer)
    if key_dtype != tf.int64:
        raise ValueError(f"key_dtype: must be tf.int64, got {key_dtype!r}")
    if value_dtype != tf.float32:
        raise ValueError(
            f"value_dtype: must be tf.float32, got {value_dtype!r}")
    _checks.one_of("distribution_strategy", distribution_strategy, ("MP",))
    if modes.deterministic:
        _refuse_clock(fields)
    fields.update(initializer=first, seed=seed)
    with _lock:
        known = _tables.get(name)
        if known is None:
            _tables[name] = known = EmbeddingTable(fields, optimizer)
            return known
    differing = [field for field, value in fields.items()
                 if known._fields[field] != value]
    if differing:
        _config.log.warning(
            "the table %s is there already, with another %s: it stays as it "
            "is", name, ", ".join(differing))
    return known


def embedding_lookup(emb_table: EmbeddingTable, ids: TensorLike) -> TensorLike:
    """Rows of ids: float32, ``ids.shape + [dimension]``.

    Their gradient goes to the table: through ``AdamWOptimizer``, or, where the
    program has none, by itself as it is worked out.

    :raises TypeError: no table of :func:`get_embedding_table`, ids that are no
        integers.
    """
    if not isinstance(emb_table, EmbeddingTable):
        raise TypeError("emb_table: must be what get_embedding_table() "
                        f"returned, got {type(emb_table).__name__}")
    if isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(
            f"ids: {type(ids).__name__}, must be a tensor, as in Rec SDK: "
            "ids.to_tensor() or tf.sparse.to_dense(), or for bags of them "
            "recps.tensorflow.embedding_lookup_sparse(emb_table, ids)")
    return emb_table.rows.look_up(Ids(as_ids(ids)))


def _list_lookup(rows: TensorLike) -> None:
    """For get_sparse_embedding() of the graph."""
    if not tf.executing_eagerly():
        tf.compat.v1.add_to_collection(_LOOKUPS, rows)


def get_sparse_embedding() -> list[TensorLike]:
    """What each embedding_lookup() of this graph returned, in order.

    :raises RuntimeError: without a graph: keep what they returned.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "get_sparse_embedding: lists the lookups of a graph; in eager "
            "execution keep what embedding_lookup() returned")
    return list(tf.compat.v1.get_collection(_LOOKUPS))


def get_init_hashtable_op() -> TensorLike:
    """An operation that opens every table of :func:`get_existing_tables`. To
    run before the first step; tables are opened by a lookup, too. It
    initializes what stands for these tables in the graph, also for lookups to
    come: a graph that looks up alone needs no other initializer. None in eager
    execution, where it has opened them."""
    names = list(_tables)

    def open_all() -> typing.Any:
        for name in names:
            if _tables[name].reader is None:
                _tables[name].rows.table  # opens it
        return [True]

    done = tf.numpy_function(open_all, [], tf.bool)
    if tf.executing_eagerly():
        return None
    if tf.inside_function():  # of eager execution: nothing to initialize
        return done.op
    return tf.group(done.op, *(_tables[name].rows.anchor().initializer
                               for name in names))


def get_existing_tables() -> list[EmbeddingTable]:
    """The tables of this process, as they were made."""
    return list(_tables.values())


_options.on_deterministic(_refuse_clocks)
_options.on_replicas(_sync.begin)
