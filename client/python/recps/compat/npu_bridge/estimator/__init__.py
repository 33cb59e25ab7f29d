# SPDX-License-Identifier: Apache-2.0
"""Operators; the Estimator's classes are absent."""
from __future__ import annotations

import typing

_ESTIMATOR = ("NPUEstimator", "NPUEstimatorSpec", "NPURunConfig")


def __getattr__(name: str) -> typing.Any:
    if name in _ESTIMATOR:
        raise NotImplementedError(
            f"{name}: Estimators are not supported; train in a "
            "tf.compat.v1.Session, with the NpuOptimizer options in its "
            "ConfigProto (docs/MIGRATION.md)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
