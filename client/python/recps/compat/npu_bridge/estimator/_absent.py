# SPDX-License-Identifier: Apache-2.0
"""The Estimator's classes, which are not here: who asks is told what is."""
from __future__ import annotations

import typing

NAMES = ("NPUEstimator", "NPUEstimatorSpec", "NPURunConfig")


def _error(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name}: Estimators are not supported; train in a "
        "tf.compat.v1.Session, with the NpuOptimizer options in its "
        "ConfigProto (docs/MIGRATION.md)")


def refuse(module: str, name: str) -> typing.Any:
    """A module's ``__getattr__``."""
    if name in NAMES:
        raise _error(name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class _Absent:
    """Of a star import, which must not fail for a class that a script may
    never use: its call does."""

    def __new__(cls, *_args: typing.Any, **_kwargs: typing.Any
                ) -> typing.NoReturn:
        raise _error(cls.__name__)


class NPUEstimator(_Absent):
    """Absent: its call names the session way."""


class NPUEstimatorSpec(_Absent):
    """Absent: its call names the session way."""


class NPURunConfig(_Absent):
    """Absent: its call names the session way."""
