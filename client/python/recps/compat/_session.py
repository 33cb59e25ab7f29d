# SPDX-License-Identifier: Apache-2.0
"""Sessions that ask for NpuOptimizer: TensorFlow passes over a rewriter that it
does not know, so what is left to do is to warn."""
from __future__ import annotations

import functools
import logging
import typing

from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.client.session import BaseSession

log = logging.getLogger("npu_bridge")

_OFF = {"remapping": (RewriterConfig.OFF,),
        # a toggle's OFF is what the guide writes; the type's own is NO_MEM_OPT
        "memory_optimization": (RewriterConfig.OFF,
                                RewriterConfig.NO_MEM_OPT)}
_warned: set[str] = set()


def asks_for_npu(config: typing.Any) -> bool:
    """Is NpuOptimizer among the custom optimizers of a ConfigProto?"""
    if config is None:
        return False
    custom = config.graph_options.rewrite_options.custom_optimizers
    return any(each.name == "NpuOptimizer" for each in custom)


def look_at(config: typing.Any) -> None:
    """Warn once of what the guide turns off and this config does not."""
    if not asks_for_npu(config):
        return
    options = config.graph_options.rewrite_options
    left_on = [name for name, off in _OFF.items()
               if getattr(options, name) not in off and name not in _warned]
    if left_on:
        _warned.update(_OFF)
        log.warning("NpuOptimizer: %s should be RewriterConfig.OFF, as on an "
                    "NPU they are in its way", " and ".join(left_on))


def install() -> None:
    """Look at the config of every session to come."""
    first = BaseSession.__init__
    if getattr(first, "_recps_looks", False):
        return

    @functools.wraps(first)
    def looks(self: typing.Any, target: typing.Any = "",
              graph: typing.Any = None, config: typing.Any = None) -> None:
        look_at(config)
        first(self, target, graph, config)

    setattr(looks, "_recps_looks", True)
    BaseSession.__init__ = looks
