# SPDX-License-Identifier: Apache-2.0
"""Importing it makes Keras's and tf.layers' Dropout, SpatialDropout1D to 3D
and tf.layers.dropout use :func:`npu_ops.dropout`. Not with Keras 3."""
from __future__ import annotations

import typing

import tensorflow as tf

from recps.compat.npu_bridge.estimator import npu_ops


def _call(self: typing.Any, inputs: typing.Any,
          training: typing.Any = None) -> typing.Any:
    """Of a Dropout layer."""
    if training is None:
        training = tf.keras.backend.learning_phase()
    if self.rate == 0:
        return tf.identity(inputs)

    def dropped() -> typing.Any:
        if self.rate == 1:
            raise ValueError("rate: must be in [0, 1), got 1: nothing would "
                             "stay")
        return npu_ops.dropout(inputs, 1 - self.rate,
                               noise_shape=self._get_noise_shape(inputs),
                               seed=self.seed)

    if isinstance(training, (bool, int)):
        return dropped() if training else tf.identity(inputs)
    return tf.cond(tf.cast(training, tf.bool), dropped,
                   lambda: tf.identity(inputs))


tf.keras.layers.Dropout.call = _call
