# SPDX-License-Identifier: Apache-2.0
"""A loss that is scaled, so that small gradients stay above zero."""
from __future__ import annotations

import typing

import tensorflow as tf

from recps.compat.npu_bridge.estimator.npu.npu_optimizer import npu_allreduce

__all__ = ["NPULossScaleOptimizer"]

TensorLike = typing.Any


class NPULossScaleOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer around another: gradients are of the scaled loss, divided
    by the scale; a step whose gradients are not all finite is skipped.

    A table's rows are trained where their gradient is worked out, which is
    scaled then: give those to AdamWOptimizer, divided.

    :param opt: the other, of tf.compat.v1.train.
    :param loss_scale_manager: fixed, or with exponential updates.
    :param is_distributed: a step is skipped where one rank's is not finite.
    """

    def __init__(self, opt: TensorLike, loss_scale_manager: typing.Any,
                 is_distributed: bool = False) -> None:
        _must_have("opt", opt, "compute_gradients", "apply_gradients")
        _must_have("loss_scale_manager", loss_scale_manager,
                   "get_loss_scale", "get_enable_overflow_check",
                   "update_loss_scale")
        self._opt = opt
        self._manager = loss_scale_manager
        self._is_distributed = is_distributed
        super().__init__(name=f"NPULossScaleOptimizer{type(opt).__name__}",
                         use_locking=False)

    def compute_gradients(self, loss: TensorLike,
                          var_list: TensorLike = None,
                          *arguments: typing.Any, **more: typing.Any
                          ) -> list[tuple[TensorLike, TensorLike]]:
        """Of the loss as it was given."""
        scale = self._manager.get_loss_scale()
        scaled = ((lambda: loss() * tf.cast(scale, tf.float32))
                  if callable(loss) else loss * tf.cast(scale, loss.dtype))
        pairs = self._opt.compute_gradients(scaled, var_list, *arguments,
                                            **more)
        return [(_times(gradient, 1 / scale), variable)
                for gradient, variable in pairs]

    def apply_gradients(self, grads_and_vars: typing.Iterable[typing.Any],
                        global_step: TensorLike = None,
                        name: str | None = None) -> TensorLike:
        """The other's, where they are finite."""
        pairs = list(grads_and_vars)
        if not self._manager.get_enable_overflow_check():
            return self._opt.apply_gradients(pairs, global_step, name)
        finite = tf.reduce_all([
            tf.reduce_all(tf.math.is_finite(_values(gradient)))
            for gradient, _ in pairs if gradient is not None])
        if self._is_distributed:
            finite = npu_allreduce(tf.cast(finite, tf.float32)) >= 1.0

        def step() -> TensorLike:
            done = self._opt.apply_gradients(pairs, global_step, name)
            with tf.control_dependencies([] if done is None else [done]):
                return tf.constant(True)

        applied = tf.cond(finite, step, lambda: tf.constant(False))
        with tf.control_dependencies([applied]):
            return tf.group(self._manager.update_loss_scale(finite))


def _must_have(name: str, value: typing.Any, *methods: str) -> None:
    if isinstance(value, type):
        raise TypeError(f"{name}: the class {value.__name__}, must be an "
                        "object of it")
    missing = [each for each in methods
               if not callable(getattr(value, each, None))]
    if missing:
        raise TypeError(f"{name}: {type(value).__name__} ({value!r}), has no "
                        f"{missing[0]}()")


def _values(gradient: TensorLike) -> TensorLike:
    return (gradient.values if isinstance(gradient, tf.IndexedSlices)
            else gradient)


def _times(gradient: TensorLike, factor: TensorLike) -> TensorLike:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_times(gradient.values, factor),
                                gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
