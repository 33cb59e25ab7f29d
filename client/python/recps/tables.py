# SPDX-License-Identifier: Apache-2.0
"""What a table is made of: optimizers, initializers, and its spec.

A field of an optimizer that is None has librecps's default, which
docs/TABLE.md lists.
"""
from __future__ import annotations

import ctypes
import dataclasses
import math
import typing

import numpy

from recps import _library as c
from recps.errors import InvalidError, error_of

__all__ = [
    "SGD", "Adagrad", "Adam", "AdamW", "Constant", "Ftrl", "Initializer",
    "Momentum", "Normal", "Optimizer", "RMSprop", "RowwiseAdagrad",
    "TruncatedNormal", "Uniform", "VarianceScaling", "Zeros"]

_MAYBE = typing.Optional[float]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How a server applies a gradient; one of its subclasses.

    ``clip_value`` bounds each element of a gradient, ``clip_norm`` a row's
    2-norm; 0 is off.
    """

    learning_rate: _MAYBE = None
    clip_value: float = dataclasses.field(default=0.0, kw_only=True)
    clip_norm: float = dataclasses.field(default=0.0, kw_only=True)

    _kind: typing.ClassVar[str] = ""

    def _name(self) -> str:
        return self._kind

    def _fields(self) -> dict[str, float]:
        """Fields of the spec that are given."""
        return {field.name: getattr(self, field.name)
                for field in dataclasses.fields(self)
                if field.name != "catchup"
                and getattr(self, field.name) is not None}


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """w -= lr g."""

    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "sgd"


@dataclasses.dataclass(frozen=True)
class Momentum(Optimizer):
    """SGD with a velocity a row, also Nesterov's."""

    momentum: _MAYBE = None
    nesterov: bool = False
    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "momentum"


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    """An accumulator of squares an element, 0.1 at first."""

    initial_accumulator: _MAYBE = None
    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "adagrad"


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad(Optimizer):
    """One accumulator a row: the mean of its squares."""

    initial_accumulator: _MAYBE = None
    epsilon: _MAYBE = None
    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "rowwise_adagrad"


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Lazy Adam: only rows in the push move.

    With ``catchup`` a row makes up for the steps without it, as dense Adam
    with zero gradients would have done.
    """

    beta1: _MAYBE = None
    beta2: _MAYBE = None
    epsilon: _MAYBE = None
    catchup: bool = False
    _kind: typing.ClassVar[str] = "adam"

    def _name(self) -> str:
        return self._kind + ("_catchup" if self.catchup else "")


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (0.004 unless given)."""

    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "adamw"


@dataclasses.dataclass(frozen=True)
class Ftrl(Optimizer):
    """Follow the regularized leader."""

    initial_accumulator: _MAYBE = None
    l1: _MAYBE = None
    l2: _MAYBE = None
    l2_shrinkage: _MAYBE = None
    learning_rate_power: _MAYBE = None
    _kind: typing.ClassVar[str] = "ftrl"


@dataclasses.dataclass(frozen=True)
class RMSprop(Optimizer):
    """A decaying mean of squares, with momentum by choice."""

    rho: _MAYBE = None
    momentum: _MAYBE = None
    epsilon: _MAYBE = None
    initial_accumulator: _MAYBE = None
    weight_decay: _MAYBE = None
    _kind: typing.ClassVar[str] = "rmsprop"


@dataclasses.dataclass(frozen=True)
class Initializer:
    """First value of a new row; one of its subclasses.

    It depends on the table's seed and name, the key and the column alone.
    """

    _kind: typing.ClassVar[str] = ""

    def _range(self) -> tuple[float, float]:
        return 0.0, 0.0


@dataclasses.dataclass(frozen=True)
class Zeros(Initializer):
    """Zeros."""

    _kind: typing.ClassVar[str] = "zeros"


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """The same number in every column."""

    value: float = 0.0
    _kind: typing.ClassVar[str] = "constant"

    def _range(self) -> tuple[float, float]:
        return self.value, 0.0


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform in [low, high)."""

    low: float = -0.05
    high: float = 0.05
    _kind: typing.ClassVar[str] = "uniform"

    def _range(self) -> tuple[float, float]:
        return self.low, self.high


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Normal."""

    mean: float = 0.0
    stddev: float = 0.05
    _kind: typing.ClassVar[str] = "normal"

    def _range(self) -> tuple[float, float]:
        return self.mean, self.stddev


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Normal within two deviations of the mean."""

    _kind: typing.ClassVar[str] = "truncated_normal"


@dataclasses.dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Deviation sqrt(scale / fan), of dimension and vocabulary.

    ``mode`` is fan_in (the vocabulary's size), fan_out (the dimension) or
    fan_avg; ``distribution`` truncated_normal, normal or uniform.
    """

    scale: float = 1.0
    mode: str = "fan_in"
    distribution: str = "truncated_normal"


_OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(), "momentum": Momentum(), "adagrad": Adagrad(),
    "rowwise_adagrad": RowwiseAdagrad(), "adam": Adam(), "adamw": AdamW(),
    "adam_catchup": Adam(catchup=True), "adamw_catchup": AdamW(catchup=True),
    "ftrl": Ftrl(), "rmsprop": RMSprop()}
_INITIALIZERS: dict[str, Initializer] = {
    "zeros": Zeros(), "uniform": Uniform(), "normal": Normal(),
    "truncated_normal": TruncatedNormal(),
    "variance_scaling": VarianceScaling()}

_Kind = typing.TypeVar("_Kind")


def _one_of(name: str, value: typing.Any, allowed: typing.Sequence[str]) -> int:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidError(
            f"{name}: {value!r}, must be one of {', '.join(allowed)}")
    return allowed.index(value)


def index_of(name: str, value: typing.Any,
             allowed: typing.Sequence[str]) -> int:
    """Number of a word among those allowed; InvalidError names them."""
    return _one_of(name, value, allowed)


def _named(name: str, value: typing.Any, kind: type[_Kind],
           by_name: dict[str, _Kind]) -> _Kind:
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r}, must be a recps.{kind.__name__} "
                        "or its name")
    _one_of(name, value, list(by_name))
    return by_name[value]


def _dtype_name(value: typing.Any) -> typing.Any:
    if value is None or isinstance(value, str):
        return value  # NumPy takes None as float64
    try:
        return numpy.dtype(value).name
    except TypeError:
        return value


def _whole(name: str, value: typing.Any, most: int, least: int = 0) -> int:
    """A whole number that fits, or what is wrong with it."""
    if isinstance(value, (bool, numpy.bool_)) or not hasattr(
            value, "__index__"):
        raise TypeError(f"{name}: {value!r}, must be a whole number")
    number = int(value.__index__())
    if not least <= number <= most:
        raise InvalidError(f"{name}: {value!r}, must be {least} to {most}")
    return number


def whole(name: str, value: typing.Any, most: int) -> int:
    """value as an int of 0 to most, or an exception that names it."""
    return _whole(name, value, most)


def real(name: str, value: typing.Any) -> float:
    """value as a float that is a number, or an exception that names it."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: {value!r}, must be a number")
    number = float(value)
    if math.isnan(number):
        raise InvalidError(f"{name}: NaN, must be a number")
    return number


def finite(name: str, value: typing.Any, least: float = -math.inf) -> float:
    """value as a finite float of ``least`` or more, or an exception."""
    number = real(name, value)
    if math.isinf(number) or number < least:
        raise InvalidError(f"{name}: {value!r}, must be a finite number"
                           + ("" if math.isinf(least) else " of 0 or more"))
    return number


#: Policy fields and the most that each holds.
_COUNTS = {"min_used_times": 2**64 - 1, "max_cold_secs": 2**64 - 1,
           "max_cold_steps": 2**64 - 1, "keep_min_rows": 2**64 - 1,
           "memory_limit": 2**64 - 1, "seed": 2**64 - 1,
           "device_vocabulary_size": 2**64 - 1, "dense_elements": 2**64 - 1}


def c_name(name: str) -> bytes:
    """A table's name as C has it, or an exception."""
    if not isinstance(name, str):
        raise TypeError(f"name: {name!r}, must be text")
    if "\0" in name:  # which would end it in C
        raise InvalidError(f"name: {name!r}, must have no NUL")
    return name.encode("utf-8", "surrogateescape")


def make_spec(name: str, dimension: int, optimizer: Optimizer | str,
              initializer: Initializer | str,
              **more: typing.Any) -> c.TableSpec:
    """rps_table_spec of what get_embedding_table() was given."""
    text = c_name(name)
    step = _named("optimizer", optimizer, Optimizer, _OPTIMIZERS)
    first = _named("initializer", initializer, Initializer, _INITIALIZERS)
    kind = _one_of("optimizer", step._name(), c.OPTIMIZERS)
    spec = c.TableSpec()
    c.lib.rps_table_spec_init(
        ctypes.byref(spec), text,
        _whole("dimension", dimension, c.DIM_MAX, 1), kind)
    for field, value in step._fields().items():
        setattr(spec, field, value if field == "nesterov"
                else real(f"optimizer.{field}", value))
    for field, most in _COUNTS.items():
        setattr(spec, field, _whole(field, more[field], most))
    spec.value_dtype = _one_of("value_dtype", _dtype_name(more["value_dtype"]),
                               c.VALUES[:3])
    spec.key_dtype = _one_of("key_dtype", _dtype_name(more["key_dtype"]),
                             c.KEY_DTYPES)
    spec.default_value = real("default_value", more["default_value"])
    spec.stochastic_rounding = int(bool(more["stochastic_rounding"]))
    spec.admission = _one_of("admission", more["admission"], c.ADMISSIONS)
    spec.on_full = _one_of("on_full", more["on_full"], c.ON_FULL)
    _initialize(spec, first)
    why = ctypes.create_string_buffer(512)
    status = c.lib.rps_table_spec_check(ctypes.byref(spec), why, 512)
    if status != c.OK:
        raise error_of(status, why.value.decode("utf-8", "replace"))
    return spec


def _initialize(spec: c.TableSpec, first: Initializer) -> None:
    if isinstance(first, VarianceScaling):
        status = c.lib.rps_table_spec_variance_scaling(
            ctypes.byref(spec), real("initializer.scale", first.scale),
            _one_of("initializer.mode", first.mode, c.FANS),
            _one_of("initializer.distribution", first.distribution,
                    c.DISTRIBUTIONS))
        if status != c.OK:
            raise error_of(
                status, f"initializer: {first!r}, scale must be above 0 and "
                "at most 1e30, the dimension above 0")
        return
    spec.initializer = c.INITIALIZERS.index(first._kind)
    low, high = first._range()
    spec.initializer_low = real("initializer", low)
    spec.initializer_high = real("initializer", high)
