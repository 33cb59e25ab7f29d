# SPDX-License-Identifier: Apache-2.0
"""How the tables of recps.tensorflow and recps.compat compute: what options of
a session say (compat/_session.py), of the whole process."""
from __future__ import annotations

import dataclasses

__all__ = ["Modes", "modes"]


@dataclasses.dataclass
class Modes:
    """Set before a step, read in it."""

    lookup_wire: str = "float32"
    """As what rows travel from the servers."""
    push_wire: str = "float32"
    """As what gradients travel to them."""
    pools_on_server: bool = True
    """Servers may sum what they have of a bag: how many there are is seen in
    the last bits."""
    deterministic: bool = False
    """Bits of a run are those of the next."""


#: Of this process.
modes = Modes()
