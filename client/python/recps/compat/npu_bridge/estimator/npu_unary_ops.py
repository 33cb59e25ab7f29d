# SPDX-License-Identifier: Apache-2.0
"""Activations."""
from __future__ import annotations

import typing

import tensorflow as tf

__all__ = ["gelu"]


def gelu(x: typing.Any) -> typing.Any:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    return tf.nn.gelu(x, approximate=True)
