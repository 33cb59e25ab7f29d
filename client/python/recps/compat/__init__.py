# SPDX-License-Identifier: Apache-2.0
"""Names of the guide (TensorFlow with Rec SDK, on NPUs) that run here.

``import recps.compat`` once, before them; then

    >>> import mxrec                            # embedding tables
    >>> import npu_device as npu                # the loop size
    >>> from npu_bridge.npu_init import *       # ranks, broadcast, options

find what stands in this package. An installed Rec SDK or CANN is never
shadowed: these are found only where nothing else has the name. TensorFlow 2 on
the CPU is enough, eager or compat.v1 sessions. docs/MIGRATION.md says what each
name does here, and what is not there.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import typing

if typing.TYPE_CHECKING:
    from recps._client import Client

__all__ = ["NAMES", "client", "leave", "provided"]

#: Top-level modules that are put in place.
NAMES = ("mxrec", "npu_bridge", "npu_device")


class _Loader(importlib.abc.Loader):
    """A module of this package under its other name: the same object."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec
                      ) -> types.ModuleType:
        """Import it by its own name."""
        module = importlib.import_module(self._own)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """It ran already; importlib has changed its spec."""
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of this package by the guide's names."""

    def __init__(self, inner: bool) -> None:
        self.inner = inner

    def find_spec(self, fullname: str,
                  path: typing.Sequence[str] | None,
                  target: types.ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        """Asked last for a name that nobody else has; asked first (``inner``)
        for what is in one that is ours, or its files were loaded twice."""
        top, _, rest = fullname.partition(".")
        if top not in NAMES or self.inner != bool(rest):
            return None
        own = f"{__name__}.{fullname}"
        if rest and not _is_ours(sys.modules.get(top)):
            return None  # an installed one's
        if importlib.util.find_spec(own) is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(own))
        spec.submodule_search_locations = []
        return spec


def _is_ours(module: types.ModuleType | None) -> bool:
    return module is not None and module.__name__.startswith(f"{__name__}.")


def client() -> Client:
    """The client of mxrec's tables: ``begin``, ``join``, ``step_end``,
    ``await_end``, ``shutdown_servers`` and the rest of a job. It is opened, if
    it was not."""
    config = importlib.import_module(f"{__name__}.mxrec._config")
    opened: Client = config.client()
    return opened


def leave() -> None:
    """The end of this worker's part of a job that it joined, or that is
    deterministic: the chief waits until all others have come here, and may
    then end the servers. A process alone has nothing to wait for."""
    mine = client()
    if not mine.embedded:
        importlib.import_module(f"{__name__}.mxrec._together").leave(mine)


def provided() -> dict[str, bool]:
    """Of each name: is it this package's (True), or an installed one? Imports
    none of them."""
    found = {}
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        found[name] = spec is not None and (
            isinstance(spec.loader, _Loader)
            or spec.name.startswith(f"{__name__}."))
    return found


if not any(isinstance(each, _Finder) for each in sys.meta_path):
    sys.meta_path.insert(0, _Finder(inner=True))
    sys.meta_path.append(_Finder(inner=False))
