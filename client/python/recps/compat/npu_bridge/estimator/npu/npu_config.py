# SPDX-License-Identifier: Apache-2.0
"""Of the Estimator's classes, which are absent."""
from __future__ import annotations

import typing

from recps.compat.npu_bridge.estimator._absent import refuse


def __getattr__(name: str) -> typing.Any:
    return refuse(__name__, name)
