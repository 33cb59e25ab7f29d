# SPDX-License-Identifier: Apache-2.0
"""Options of NpuOptimizer (sessions) and npu_device.global_options() that mean
something to tables: deterministic, precision_mode_v2, op_select_implmode. What
is said last holds for the process; what is left out stays as it was."""
from __future__ import annotations

import typing

import recps
from recps._modes import modes

__all__ = ["NAMES", "check", "clear", "on_deterministic",
           "on_replicas", "take"]

#: As what rows and gradients travel.
_PRECISION = {
    "origin": ("float32", "float32"),
    "cube_fp16in_fp32out": ("float32", "float32"),  # products alone
    "fp16": ("float16", "float16"),
    # small gradients are zeros in float16
    "mixed_float16": ("float16", "float32"),
    "mixed_bfloat16": ("bfloat16", "bfloat16")}

#: Is precision before bytes?
_IMPLMODE = {"high_performance": False, "high_performance_for_all": False,
             "high_precision": True, "high_precision_for_all": True}

_ALLOWED = {"precision_mode_v2": tuple(_PRECISION),
            "op_select_implmode": tuple(_IMPLMODE)}
_DETERMINISTIC = (0, 1)
NAMES = ("deterministic", "precision_mode_v2", "op_select_implmode")

_said: dict[str, typing.Any] = {}
_checks: list[typing.Callable[[], None]] = []
_joins: list[typing.Callable[[], None]] = []


def on_deterministic(check_it: typing.Callable[[], None]) -> None:
    """Called where bits are to be the same in every run: raises what stands
    against it."""
    _checks.append(check_it)


def on_replicas(begin: typing.Callable[[], None]) -> None:
    """Called in every one of several workers, which begin together."""
    _joins.append(begin)


def check(name: str, value: typing.Any) -> typing.Any:
    """A value as it is kept.

    :raises ValueError: what is allowed, and what was given.
    """
    if name == "deterministic":
        if (not isinstance(value, (int, bool))
                or value not in _DETERMINISTIC):
            raise ValueError(f"deterministic: must be 0 or 1, got {value!r}")
        return int(value)
    allowed = _ALLOWED[name]
    text = value.decode("utf-8", "replace") if isinstance(
        value, bytes) else value
    if not isinstance(text, str) or text not in allowed:
        raise ValueError(
            f"{name}: must be one of {', '.join(allowed)}, got {text!r}")
    return text


def take(given: typing.Mapping[str, typing.Any]) -> None:
    """Options that were checked take effect, all or none."""
    after = {**_said, **{name: check(name, value)
                         for name, value in given.items() if name in NAMES}}
    together = bool(after.get("deterministic")) and _has_replicas()
    if after.get("deterministic"):
        for each in _checks:
            each()
    _said.update(after)
    lookups, pushes = _PRECISION[after.get("precision_mode_v2", "origin")]
    if _IMPLMODE[after.get("op_select_implmode", "high_performance")]:
        lookups = pushes = "float32"
    modes.lookup_wire, modes.push_wire = lookups, pushes
    modes.pools_on_server = not (
        after.get("deterministic")
        or _IMPLMODE[after.get("op_select_implmode", "high_performance")])
    modes.deterministic = bool(after.get("deterministic"))
    if together:
        for each in _joins:
            each()


def _has_replicas() -> bool:
    """Several workers: someone must keep their steps together."""
    mine = recps.role()
    if not mine.trains or mine.replicas == 1 or not mine.servers:
        return False
    if mine.replicas == 0 or not _joins:
        raise ValueError(
            f"deterministic: {mine.replicas or 'an unknown number of'} "
            "workers push in whatever order they come, so no two runs have "
            "the same bits: import mxrec before it, or take steps of a sync "
            "job (docs/PYTHON.md, One script for all roles)")
    return True


def clear() -> None:
    """As at the start of the process."""
    _said.clear()
    take({})
