# SPDX-License-Identifier: Apache-2.0
"""Broadcast and allreduce of tensors."""
from __future__ import annotations

import itertools
import typing
import weakref

import tensorflow as tf

from recps.compat import _collective

__all__ = ["allreduce", "broadcast"]

TensorLike = typing.Any
_WORLD = "hccl_world_group"

#: Collective operations in the order in which this process makes them.
_numbers = itertools.count(1)

#: Of each graph its last broadcast: they follow each other, on every rank in
#: the order in which they were made.
_last: typing.Any = weakref.WeakKeyDictionary()


def check_group(group: str) -> None:
    """All ranks are one group."""
    if group != _WORLD:
        raise ValueError(f"group: must be {_WORLD}, got {group!r}")


def _call(work: typing.Callable[..., typing.Any],
          tensors: list[TensorLike]) -> list[TensorLike]:
    """A Python function of tensors, of their types and shapes."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(each)
                for each in work(*[each.numpy() for each in tensors])]
    results = tf.numpy_function(work, tensors, [each.dtype
                                                for each in tensors])
    for result, tensor in zip(results, tensors):
        result.set_shape(tensor.shape)
    return list(results)


def broadcast(tensor: TensorLike, root_rank: int, fusion: int = 2,
              fusion_id: int = 0, group: str = _WORLD) -> list[TensorLike]:
    """What rank ``root_rank`` has of these tensors.

    A variable takes the value, too. Broadcasts of a graph run one after the
    other, in the order in which they were made.

    :param tensor: a list of tensors or variables.
    :param fusion: they travel together in any case.
    """
    del fusion, fusion_id
    check_group(group)
    if not isinstance(tensor, (list, tuple)):
        raise TypeError("tensor: must be a list of tensors, got "
                        f"{type(tensor).__name__}")
    if not tensor:
        return []
    values = [tf.convert_to_tensor(each) for each in tensor]
    graph = (None if tf.executing_eagerly()
             else tf.compat.v1.get_default_graph())
    last = _last.get(graph) if graph is not None else None
    before = last() if last is not None else None
    number = next(_numbers)
    with tf.control_dependencies([] if before is None else [before]):
        results = _call(lambda *arrays: _collective.broadcast(
            arrays, root_rank, number), values)
    if graph is not None:
        _last[graph] = weakref.ref(results[0].op)
    outputs = []
    for each, result in zip(tensor, results):
        if isinstance(each, tf.Variable):
            result = _assigned(each, result)
        outputs.append(result)
    return outputs


def _assigned(variable: TensorLike, value: TensorLike) -> TensorLike:
    """The value, once the variable has it."""
    done = tf.compat.v1.assign(variable, value)
    with tf.control_dependencies([done]):
        return tf.identity(value)


def allreduce(tensor: TensorLike, reduction: str = "sum", fusion: int = 1,
              fusion_id: int = -1, group: str = _WORLD) -> TensorLike:
    """The sum or mean over all ranks of a float tensor."""
    del fusion, fusion_id
    check_group(group)
    return reduced([tf.convert_to_tensor(tensor)], reduction)[0]


def reduced(tensors: list[TensorLike], reduction: str) -> list[TensorLike]:
    """The same of several, which travel together."""
    if reduction not in ("sum", "mean"):
        raise ValueError(
            f"reduction: must be sum or mean, got {reduction!r}")
    for each in tensors:
        if not each.dtype.is_floating:
            raise TypeError(f"tensor: must be of floats, got "
                            f"{each.dtype.name}")
    if not tensors:
        return []
    wide = [tf.cast(each, tf.float32) for each in tensors]
    number = next(_numbers)
    results = _call(lambda *arrays: _collective.allreduce(
        arrays, reduction == "mean", number), wide)
    return [tf.cast(result, each.dtype)
            for result, each in zip(results, tensors)]
