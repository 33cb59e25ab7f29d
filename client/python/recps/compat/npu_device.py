# SPDX-License-Identifier: Apache-2.0
"""``npu_device`` of the guide: the loop size.

Here a step is not offloaded: TensorFlow on the CPU runs a loop in a
tf.function by itself, as many steps as it is told. The size is checked and
kept, so that a script that sets it runs, and it may be asked.
"""
from __future__ import annotations

import os

__all__ = ["get_npu_loop_size", "set_npu_loop_size"]

_MOST = 2**31 - 1
_size = 1


def set_npu_loop_size(loop_size: int) -> None:
    """Steps of a loop that comes next: 1 to 2147483647.

    :raises TypeError: it is no whole number.
    :raises ValueError: it is out of range.
    """
    global _size
    if isinstance(loop_size, bool) or not isinstance(loop_size, int):
        raise TypeError("loop_size: must be int, got "
                        f"{type(loop_size).__name__} ({loop_size!r})")
    if not 1 <= loop_size <= _MOST:
        raise ValueError(
            f"loop_size: must be 1 to {_MOST}, got {loop_size}")
    _size = loop_size


def get_npu_loop_size() -> int:
    """What was set last; 1 where nothing was."""
    return _size


def _from_environment() -> None:
    """NPU_LOOP_SIZE, read when this module is imported."""
    text = os.environ.get("NPU_LOOP_SIZE", "").strip()
    if not text:
        return
    try:
        set_npu_loop_size(int(text))
    except ValueError:
        raise ValueError(f"NPU_LOOP_SIZE: must be 1 to {_MOST}, got "
                         f"{text!r}") from None


_from_environment()
