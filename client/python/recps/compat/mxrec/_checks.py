# SPDX-License-Identifier: Apache-2.0
"""Arguments: TypeError says which type, ValueError what is allowed; both say
what was given."""
from __future__ import annotations

import math
import numbers
import os
import typing


def whole(name: str, value: typing.Any, least: int, most: int) -> int:
    """An int of least to most (NumPy's, too; a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name}: must be int, got {type(value).__name__} ({value!r})")
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{name}: must be {least} to {most}, got {number}")
    return number


def _plain(number: float) -> str:
    """Digits of a whole number, whatever its size."""
    return str(int(number)) if number == int(number) else repr(number)


def real(name: str, value: typing.Any, most: float,
         most_is_out: bool = False) -> float:
    """A float of 0 to most; ``most_is_out``: below it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"{name}: must be float, got {type(value).__name__} ({value!r})")
    number = float(value)
    if (math.isnan(number) or not 0 <= number <= most
            or (most_is_out and number == most)):
        raise ValueError(f"{name}: must be in [0, {_plain(most)}"
                         f"{')' if most_is_out else ']'}, got {value}")
    return number


def text(name: str, value: typing.Any, most: int) -> str:
    """A str of 1 to most characters."""
    if not isinstance(value, str):
        raise TypeError(
            f"{name}: must be str, got {type(value).__name__} ({value!r})")
    if not 1 <= len(value) <= most:
        raise ValueError(f"{name}: must have 1 to {most} characters, got "
                         f"{len(value)}")
    return value


def path(name: str, value: typing.Any) -> str:
    """A path of 1 to 1024 characters, made absolute."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return os.path.abspath(text(name, value, 1024))


def one_of(name: str, value: typing.Any, allowed: typing.Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}: must be one of {', '.join(allowed)}, got "
                         f"{value!r}")
    return value
