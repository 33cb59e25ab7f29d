# SPDX-License-Identifier: Apache-2.0
"""Begin and end of the ranks, and dropout."""
from __future__ import annotations

import numbers
import typing

import numpy
import tensorflow as tf

from recps.compat import _collective

__all__ = ["dropout", "initialize_system", "shutdown_system"]

TensorLike = typing.Any


def _operation(work: typing.Callable[[], None]) -> TensorLike:
    def call() -> typing.Any:
        work()
        return numpy.float32(0)

    done = tf.numpy_function(call, [], tf.float32)
    return None if tf.executing_eagerly() else done.op


def initialize_system(name: str | None = None) -> TensorLike:
    """Join the ranks; in a graph an operation to run. The first collective
    operation joins, too."""
    del name
    return _operation(_collective.initialize)


def shutdown_system(name: str | None = None) -> TensorLike:
    """Leave the ranks, when all are here; in a graph an operation to run."""
    del name
    return _operation(_collective.shutdown)


def dropout(x: TensorLike, keep_prob: TensorLike,
            noise_shape: TensorLike = None, seed: int | None = None,
            name: str | None = None) -> TensorLike:
    """Elements stay with probability ``keep_prob``, divided by it; the others
    are 0.

    :raises TypeError: keep_prob is neither a number nor a tensor.
    :raises ValueError: keep_prob is not in (0, 1].
    """
    if not (isinstance(keep_prob, (numbers.Real, numpy.ndarray, tf.Variable))
            or tf.is_tensor(keep_prob)):
        raise TypeError("keep_prob: must be a number or a tensor, got "
                        f"{type(keep_prob).__name__} ({keep_prob!r})")
    if isinstance(keep_prob, (int, float)) and not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob: must be in (0, 1], got {keep_prob}")
    return tf.nn.dropout(x, rate=1 - keep_prob, noise_shape=noise_shape,
                         seed=seed, name=name)
