# SPDX-License-Identifier: Apache-2.0
"""Ids as TensorFlow's users have them (tensors, RaggedTensor, SparseTensor) as
librecps takes them: flat, with offsets where they come in bags."""
from __future__ import annotations

import typing

import tensorflow as tf

from recps._tensorflow_rows import (COMBINERS, Ids, Rows, TensorLike, as_ids,
                                    origin_of)

__all__ = ["check_combiner", "look_up"]


def check_combiner(combiner: typing.Any) -> str:
    """One of three words."""
    if combiner not in COMBINERS:
        raise ValueError(f"combiner: {combiner!r}, must be one of "
                         f"{', '.join(COMBINERS)}")
    return str(combiner)


class Bags(typing.NamedTuple):
    """Flat ids in bags, and how a row a bag becomes the answer."""

    keys: TensorLike
    offsets: TensorLike
    shaped: typing.Callable[[TensorLike], TensorLike]


def look_up(rows: Rows, ids: TensorLike, combiner: str | None,
            read_only: TensorLike, weights: TensorLike = None,
            max_norm: float | None = None) -> TensorLike:
    """Rows of ids of each kind; with a combiner, of each bag."""
    if combiner is None:
        return _of_each_id(rows, ids, read_only)
    bags = _bags_of(ids)
    if weights is None and max_norm is None:
        pooled = rows.look_up(Ids(bags.keys, bags.offsets, combiner),
                              read_only)
        shaped = bags.shaped(pooled)
        if not isinstance(shaped, tf.RaggedTensor):  # of the same lookup
            shaped._recps_lookup = origin_of(pooled)
        return shaped
    each = rows.look_up(Ids(bags.keys), read_only)
    if max_norm is not None:
        each = tf.clip_by_norm(each, max_norm, axes=[1])
    by = (tf.ones_like(bags.keys, tf.float32) if weights is None
          else _weights_of(weights, ids))
    if rows.padding_id is not None:  # it counts for nothing
        by = tf.where(tf.equal(bags.keys, tf.cast(
            rows.padding_id, bags.keys.dtype)), 0.0, by)
    return bags.shaped(_combine(each, bags.offsets, combiner, by))


def _of_each_id(rows: Rows, ids: TensorLike,
                read_only: TensorLike) -> TensorLike:
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(_of_each_id(
            rows, ids.flat_values, read_only))
    if isinstance(ids, tf.SparseTensor):
        raise TypeError(
            "ids: a SparseTensor's rows are not those of a tensor; give the "
            f"layer a combiner ({', '.join(COMBINERS)}), or "
            "tf.sparse.to_dense(ids, default_value=padding_id)")
    return rows.look_up(Ids(as_ids(ids)), read_only)


def _bags_of(ids: TensorLike) -> Bags:
    """The last axis of ids, whichever kind they are."""
    if isinstance(ids, tf.SparseTensor):
        return _bags_of_sparse(ids)
    if isinstance(ids, tf.RaggedTensor):
        return _bags_of_ragged(ids)
    keys = as_ids(ids)
    if keys.shape.rank is None or keys.shape.rank < 2:
        raise ValueError(f"ids: shape {keys.shape}, must be [bags, each] or "
                         "have more axes: the last one is a bag")
    shape = tf.shape(keys, tf.int64)
    bags = tf.reduce_prod(shape[:-1])
    return Bags(tf.reshape(keys, [-1]), tf.range(bags + 1) * shape[-1],
                _as_tensor(shape[:-1], keys.shape[:-1]))


def _as_tensor(outer: TensorLike, known: typing.Any
               ) -> typing.Callable[[TensorLike], TensorLike]:
    """Rows of all bags as a tensor of the outer shape."""
    if known.rank == 1:
        def one(pooled: TensorLike) -> TensorLike:
            pooled.set_shape(known.concatenate([pooled.shape[-1]]))
            return pooled

        return one

    def more(pooled: TensorLike) -> TensorLike:
        width = pooled.shape[-1]
        shaped = tf.reshape(pooled, tf.concat(
            [outer, tf.constant([width], outer.dtype)], 0))
        shaped.set_shape(known.concatenate([width]))
        return shaped

    return more


def _bags_of_ragged(ids: TensorLike) -> Bags:
    keys = as_ids(ids.flat_values)
    if keys.shape.rank != 1:
        raise ValueError(f"ids: the values of a RaggedTensor have shape "
                         f"{keys.shape}, must be flat: its last axis is a bag")
    outer = ids.nested_row_splits[:-1]
    splits = tf.cast(ids.nested_row_splits[-1], tf.int64)
    return Bags(keys, splits, lambda pooled: (
        tf.RaggedTensor.from_nested_row_splits(pooled, outer)
        if outer else pooled))


def _bags_of_sparse(ids: TensorLike) -> Bags:
    if ids.shape.rank is None or ids.shape.rank < 2:
        raise ValueError(f"ids: shape {ids.shape}, must be [bags, most] or "
                         "have more axes: the last one is a bag")
    ids = tf.sparse.reorder(ids)
    outer = ids.dense_shape[:-1]
    strides = tf.math.cumprod(outer, exclusive=True, reverse=True)
    bag = tf.reduce_sum(ids.indices[:, :-1] * strides, 1)
    edges = tf.range(tf.reduce_prod(outer) + 1)
    return Bags(as_ids(ids.values),
                tf.searchsorted(bag, edges, out_type=tf.int64),
                _as_tensor(outer, ids.shape[:-1]))


def _weights_of(weights: TensorLike, ids: TensorLike) -> TensorLike:
    """Flat, in the order of the flat ids."""
    if type(weights) is not type(ids):
        raise TypeError(f"sp_weights: {type(weights).__name__}, must be a "
                        f"{type(ids).__name__} as the ids are")
    flat = (tf.sparse.reorder(weights).values
            if isinstance(weights, tf.SparseTensor) else weights.flat_values)
    if not flat.dtype.is_floating:
        raise TypeError(f"sp_weights: {flat.dtype.name}, must be floats")
    return tf.cast(flat, tf.float32)


def _combine(each: TensorLike, offsets: TensorLike, combiner: str,
             weights: TensorLike) -> TensorLike:
    """A row a bag, of rows and weights of its ids."""
    ragged = tf.RaggedTensor.from_row_splits(each, offsets, validate=False)
    bag, bags = ragged.value_rowids(), ragged.nrows()
    total = tf.math.unsorted_segment_sum(each * weights[:, None], bag, bags)
    if combiner == "sum":
        return total
    by = tf.math.unsorted_segment_sum(
        weights if combiner == "mean" else weights * weights, bag, bags)
    return tf.math.divide_no_nan(
        total, (by if combiner == "mean" else tf.sqrt(by))[:, None])
