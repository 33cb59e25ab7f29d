# SPDX-License-Identifier: Apache-2.0
"""Numbers of a module's or a layer's pushes."""
from __future__ import annotations

from recps.tables import finite

__all__ = ["Rates"]


class Rates:
    """What may be set between steps, and is checked when it is."""

    _learning_rate: float | None
    _gradient_scale: float

    @property
    def learning_rate(self) -> float | None:
        """Of pushes; None: the optimizer's."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float | None) -> None:
        if hasattr(value, "assign_add"):  # its later values would be lost
            raise TypeError(f"learning_rate: a {type(value).__name__}, must be "
                            "a number: set it again between steps")
        self._learning_rate = (
            None if value is None else finite("learning_rate", value, 0.0))

    @property
    def gradient_scale(self) -> float:
        """What gradients are multiplied by."""
        return self._gradient_scale

    @gradient_scale.setter
    def gradient_scale(self, value: float) -> None:
        self._gradient_scale = finite("gradient_scale", value)
