# SPDX-License-Identifier: Apache-2.0
"""How a loss scale moves."""
from __future__ import annotations

import typing

import tensorflow as tf

__all__ = ["ExponentialUpdateLossScaleManager", "FixedLossScaleManager"]

TensorLike = typing.Any


class FixedLossScaleManager:
    """One that stays.

    :param loss_scale: 1 or more.
    :param enable_overflow_check: skip steps whose gradients are not finite.
    """

    def __init__(self, loss_scale: float,
                 enable_overflow_check: bool = True) -> None:
        if loss_scale < 1:
            raise ValueError(f"loss_scale: must be at least 1, got "
                             f"{loss_scale}")
        self._loss_scale = float(loss_scale)
        self._checks = bool(enable_overflow_check)

    def get_loss_scale(self) -> TensorLike:
        """The scale now, float32."""
        return tf.constant(self._loss_scale, tf.float32)

    def get_enable_overflow_check(self) -> bool:
        """Are steps skipped?"""
        return self._checks

    def update_loss_scale(self, finite_grads: TensorLike) -> TensorLike:
        """After a step: an operation that does nothing."""
        del finite_grads
        return tf.no_op()


class ExponentialUpdateLossScaleManager:
    """One that grows after finite steps in a row, and shrinks after others.

    :param init_loss_scale: the first, 1 or more.
    :param incr_every_n_steps: finite steps in a row until it grows by
        ``incr_ratio``, unless that were infinite.
    :param decr_every_n_nan_or_inf: steps that are not finite until it shrinks
        by ``decr_ratio``, to 1 at least; finite ones in between count not.
    """

    def __init__(self, init_loss_scale: float, incr_every_n_steps: int,
                 decr_every_n_nan_or_inf: int = 2, incr_ratio: float = 2,
                 decr_ratio: float = 0.8) -> None:
        if init_loss_scale < 1:
            raise ValueError("init_loss_scale: must be at least 1, got "
                             f"{init_loss_scale}")
        self._every = incr_every_n_steps, decr_every_n_nan_or_inf
        self._ratios = float(incr_ratio), float(decr_ratio)

        def counter(name: str, first: typing.Any) -> TensorLike:
            return tf.Variable(first, trainable=False, name=name)

        self._loss_scale = counter("loss_scale", float(init_loss_scale))
        self._good_steps = counter("good_steps", 0)
        self._bad_steps = counter("bad_steps", 0)

    def get_loss_scale(self) -> TensorLike:
        """The scale now, float32."""
        return tf.convert_to_tensor(self._loss_scale)

    def get_enable_overflow_check(self) -> bool:
        """Steps are skipped."""
        return True

    def update_loss_scale(self, finite_grads: TensorLike) -> TensorLike:
        """After a step: was it finite? An operation to run."""
        scale = tf.convert_to_tensor(self._loss_scale)
        good = tf.where(finite_grads, self._good_steps + 1, 0)
        bad = self._bad_steps + tf.where(finite_grads, 0, 1)
        grows = tf.logical_and(finite_grads, good >= self._every[0])
        shrinks = tf.logical_and(tf.logical_not(finite_grads),
                                 bad >= self._every[1])
        larger = scale * self._ratios[0]
        larger = tf.where(tf.math.is_finite(larger), larger, scale)
        smaller = tf.maximum(1.0, scale * self._ratios[1])
        moves = tf.logical_or(grows, shrinks)
        after = (tf.where(grows, larger, tf.where(shrinks, smaller, scale)),
                 tf.where(moves, 0, good), tf.where(moves, 0, bad))
        variables = self._loss_scale, self._good_steps, self._bad_steps
        with tf.control_dependencies(after):  # all are read before one moves
            return tf.group(*[
                tf.compat.v1.assign(variable, value)
                for variable, value in zip(variables, after)])
