# SPDX-License-Identifier: Apache-2.0
"""``npu_device`` of the guide: the device of eager TensorFlow, and the loop
size.

    >>> import npu_device as npu
    >>> npu.global_options().deterministic = 1
    >>> npu.open().as_default()

Here a step is not offloaded: TensorFlow on the CPU runs a loop in a
tf.function by itself, as many steps as it is told. The size is checked and
kept, so that a script that sets it runs, and it may be asked.
"""
from __future__ import annotations

import importlib
import os
import types
import typing

from recps.compat import _options

__all__ = ["GlobalOptions", "NpuDevice", "get_npu_loop_size",
           "global_options", "open", "set_npu_loop_size"]

_MOST = 2**31 - 1
_CPU = "/device:CPU:0"
_size = 1


# --- the device -------------------------------------------------------------


class GlobalOptions:
    """What :func:`open` takes; any name may be set. ``deterministic``,
    ``precision_mode_v2`` and ``op_select_implmode`` are those of a session's
    NpuOptimizer; the others have no effect."""

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if name in _options.NAMES:
            value = _options.check(name, value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> typing.Any:
        """What is not set: a group of options (``dump_config.dump_path``)."""
        if name.startswith("_") or name in _options.NAMES:
            raise AttributeError(f"the option {name} is not set")
        made = types.SimpleNamespace()
        super().__setattr__(name, made)
        return made


class NpuDevice:
    """What :func:`open` answered: TensorFlow's CPU, by the device's number."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id

    def name(self) -> str:
        """For ``tf.device()``."""
        return _CPU

    def scope(self) -> typing.Any:
        """``with device.scope():`` operations are placed on it."""
        return importlib.import_module("tensorflow").device(_CPU)

    def as_default(self) -> NpuDevice:
        """Operations are placed on it from here on; ``with`` is taken, too."""
        return self

    def __enter__(self) -> NpuDevice:
        return self

    def __exit__(self, *_: object) -> None:
        """The CPU was the default before, and stays so."""

    def __repr__(self) -> str:
        return f"<npu_device {self.device_id}: {_CPU}>"


_global_options = GlobalOptions()
_device: NpuDevice | None = None


def global_options() -> GlobalOptions:
    """The options that :func:`open` takes."""
    return _global_options


def open(device_id: int | None = None) -> NpuDevice:
    """The device of this process; a process has one.

    :param device_id: None: ASCEND_DEVICE_ID, else 0.
    :raises TypeError: it is no whole number.
    :raises ValueError: it is negative, or the process has another open; an
        option, with what is allowed.
    """
    global _device
    number = _device_id(device_id)
    if _device is not None and _device.device_id != number:
        raise ValueError(
            f"device_id: this process has device {_device.device_id} open, "
            f"got {number}: one device a process")
    _options.take({name: value
                   for name, value in vars(_global_options).items()})
    if _device is None:
        _device = NpuDevice(number)
    return _device


def _device_id(given: int | None) -> int:
    if given is None:
        if _device is not None:
            return _device.device_id
        text = os.environ.get("ASCEND_DEVICE_ID", "").strip() or "0"
        if not text.isdecimal():
            raise ValueError("ASCEND_DEVICE_ID: must be 0 or more, got "
                             f"{text!r}")
        return int(text)
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError("device_id: must be int, got "
                        f"{type(given).__name__} ({given!r})")
    if given < 0:
        raise ValueError(f"device_id: must be 0 or more, got {given}")
    return given


# --- the loop size ----------------------------------------------------------


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
