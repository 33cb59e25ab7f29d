# SPDX-License-Identifier: Apache-2.0
"""Sessions that ask for NpuOptimizer: TensorFlow passes over a rewriter that it
does not know. What is left to do is to warn, and to take the options that mean
something to tables."""
from __future__ import annotations

import functools
import logging
import typing

from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.client.session import BaseSession

from recps.compat import _options

log = logging.getLogger("npu_bridge")

_OFF = {"remapping": (RewriterConfig.OFF,),
        # a toggle's OFF is what the guide writes; the type's own is NO_MEM_OPT
        "memory_optimization": (RewriterConfig.OFF,
                                RewriterConfig.NO_MEM_OPT)}
_FIELDS = {"deterministic": ("i", "b"), "precision_mode_v2": ("s",),
           "op_select_implmode": ("s",)}
_warned: set[str] = set()


def _npu_optimizers(config: typing.Any) -> list[typing.Any]:
    """Those of a ConfigProto, or of None."""
    if config is None:
        return []
    custom = config.graph_options.rewrite_options.custom_optimizers
    return [each for each in custom if each.name == "NpuOptimizer"]


def _warn(config: typing.Any) -> None:
    """Once, of what the guide turns off and this config does not."""
    options = config.graph_options.rewrite_options
    left_on = [name for name, off in _OFF.items()
               if getattr(options, name) not in off and name not in _warned]
    if left_on:
        _warned.update(_OFF)
        log.warning("NpuOptimizer: %s should be RewriterConfig.OFF, as on an "
                    "NPU they are in its way", " and ".join(left_on))


def _options_of(custom: typing.Any) -> dict[str, typing.Any]:
    """Of one NpuOptimizer, those that take effect."""
    found = {}
    for name, fields in _FIELDS.items():
        if name not in custom.parameter_map:
            continue
        value = custom.parameter_map[name]
        field = value.WhichOneof("value")
        if field not in fields:
            raise ValueError(f"NpuOptimizer: parameter_map[{name!r}].{field}: "
                             f"must be .{fields[0]}")
        found[name] = getattr(value, field)
    return found


def look_at(config: typing.Any) -> typing.Any:
    """Warn, take the options; the config that the session is to have.

    :raises ValueError: an option's value, with what is allowed.
    """
    custom = _npu_optimizers(config)
    if not custom:
        return config
    _warn(config)
    given: dict[str, typing.Any] = {}
    for each in custom:
        given.update(_options_of(each))
    try:
        _options.take(given)
    except ValueError as error:
        raise ValueError(f"NpuOptimizer: {error}") from None
    return _in_order(config) if given.get("deterministic") else config


def _in_order(config: typing.Any) -> typing.Any:
    """Operations one at a time, so lookups and pushes in one order; sums in
    one order, too."""
    ordered = type(config)()
    ordered.CopyFrom(config)
    ordered.use_per_session_threads = True
    del ordered.session_inter_op_thread_pool[:]
    ordered.inter_op_parallelism_threads = 1
    ordered.intra_op_parallelism_threads = 1
    return ordered


def install() -> None:
    """Look at the config of every session to come."""
    first = BaseSession.__init__
    if getattr(first, "_recps_looks", False):
        return

    @functools.wraps(first)
    def looks(self: typing.Any, target: typing.Any = "",
              graph: typing.Any = None, config: typing.Any = None) -> None:
        self._session = None  # where it is refused, __del__ looks for it
        first(self, target, graph, look_at(config))

    setattr(looks, "_recps_looks", True)
    BaseSession.__init__ = looks
