# SPDX-License-Identifier: Apache-2.0
"""Gradients that are averaged over the ranks, and equal starts."""
from __future__ import annotations

import typing

import tensorflow as tf

from recps.compat.npu_bridge.hccl import hccl_ops

__all__ = ["NPUBroadcastGlobalVariablesHook", "NPUDistributedOptimizer",
           "npu_allreduce", "npu_distributed_optimizer_wrapper"]

TensorLike = typing.Any
_WORLD = "hccl_world_group"


def npu_allreduce(values: TensorLike, reduction: str = "mean",
                  fusion: int = 1, fusion_id: int = -1,
                  group: str = _WORLD) -> TensorLike:
    """Mean (or sum) over the ranks: of a tensor, or of a list of them, which
    travel together; None stays None.

    IndexedSlices become dense: rows of tables go through the servers.
    """
    del fusion, fusion_id
    hccl_ops.check_group(group)
    if not isinstance(values, (list, tuple)):
        return npu_allreduce([values], reduction)[0]
    dense = [tf.convert_to_tensor(each) for each in values
             if each is not None]
    done = iter(hccl_ops.reduced(dense, reduction))
    return [None if each is None else next(done) for each in values]


def _averaged(pairs: typing.Iterable[tuple[TensorLike, TensorLike]]
              ) -> list[tuple[TensorLike, TensorLike]]:
    grads, variables = zip(*pairs)
    return list(zip(npu_allreduce(list(grads)), variables))


def npu_distributed_optimizer_wrapper(optimizer: TensorLike) -> TensorLike:
    """The same optimizer, whose gradients are the mean over the ranks.

    Of tf.compat.v1.train (``compute_gradients``), or of Keras
    (``apply_gradients``).
    """
    if hasattr(optimizer, "compute_gradients"):
        compute = optimizer.compute_gradients

        def compute_gradients(*arguments: typing.Any, **more: typing.Any
                              ) -> list[tuple[TensorLike, TensorLike]]:
            return _averaged(compute(*arguments, **more))

        optimizer.compute_gradients = compute_gradients
        return optimizer
    if not hasattr(optimizer, "apply_gradients"):
        raise TypeError("optimizer: must be one of TensorFlow's, got "
                        f"{type(optimizer).__name__}")
    apply = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: typing.Iterable[typing.Any],
                        *arguments: typing.Any, **more: typing.Any
                        ) -> TensorLike:
        return apply(_averaged(grads_and_vars), *arguments, **more)

    optimizer.apply_gradients = apply_gradients
    return optimizer


class NPUDistributedOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer around another, whose gradients are the mean."""

    def __init__(self, optimizer: TensorLike,
                 name: str | None = None) -> None:
        self._optimizer = optimizer
        super().__init__(
            name=name or f"Distributed{type(optimizer).__name__}",
            use_locking=False)

    def compute_gradients(self, *args: typing.Any, **kwargs: typing.Any
                          ) -> list[tuple[TensorLike, TensorLike]]:
        """The mean of each."""
        return _averaged(self._optimizer.compute_gradients(*args, **kwargs))

    def apply_gradients(self, *args: typing.Any,
                        **kwargs: typing.Any) -> TensorLike:
        """The other's."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: typing.Any, **kwargs: typing.Any) -> TensorLike:
        """The other's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: typing.Any,
                       **kwargs: typing.Any) -> TensorLike:
        """The other's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: typing.Any, **kwargs: typing.Any) -> TensorLike:
        """The other's."""
        return self._optimizer.variables(*args, **kwargs)


class NPUBroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives every rank the global variables of one, after they are
    initialized or restored."""

    def __init__(self, root_rank: int = 0, index: int | None = None) -> None:
        del index  # a rank knows its own
        super().__init__()
        self._root_rank = root_rank
        self._broadcast: TensorLike = None

    def begin(self) -> None:
        """Before the graph is finalized."""
        graph = tf.compat.v1.get_default_graph()
        if self._broadcast is None or self._broadcast.graph is not graph:
            self._broadcast = tf.group(hccl_ops.broadcast(
                tf.compat.v1.global_variables(), self._root_rank))

    def after_create_session(self, session: TensorLike,
                             coord: TensorLike) -> None:
        """Where a session begins, or begins again."""
        del coord
        session.run(self._broadcast)
