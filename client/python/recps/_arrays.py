# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as librecps takes them: what fits goes as it is, by address.

Ids that are native int64 or uint64 and contiguous are not copied, nor are
float32 gradients, nor is any result. What would change a value silently is
refused instead (TypeError: the kind, ValueError: the shape).
"""
from __future__ import annotations

import sys
import typing

import numpy
from numpy import typing as npt

__all__ = ["Array", "ArrayLike", "Keys"]

Array = npt.NDArray[typing.Any]
ArrayLike = npt.ArrayLike
Keys = npt.NDArray[numpy.uint64]
Floats = npt.NDArray[numpy.float32]

_F32 = numpy.dtype(numpy.float32)
_I64 = numpy.dtype(numpy.int64)
_U64 = numpy.dtype(numpy.uint64)


def _refuse_mask(values: typing.Any, name: str) -> None:
    if isinstance(values, numpy.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, must be plain: what is "
                        "masked would count, too (of ids, see padding)")


def _of_python(ids: ArrayLike, name: str) -> Array:
    """Lists and scalars: NumPy makes float64 of what fits no integer."""
    _refuse_mask(ids, name)
    if isinstance(ids, numpy.ndarray):
        return ids
    array = numpy.asarray(ids)
    if array.size == 0 and array.dtype == numpy.float64:
        return array.astype(numpy.int64)  # []
    if array.dtype.kind == "f" and not _has_floats(ids):
        raise TypeError(
            f"{name}: negative ids beside ids of 2^63 and more; give an array "
            "of int64 or of uint64")
    return array


def _has_floats(ids: typing.Any) -> bool:
    if isinstance(ids, (list, tuple)):
        return any(_has_floats(each) for each in ids)
    return not isinstance(ids, (int, numpy.integer))


def as_keys(ids: ArrayLike, narrow: bool = False,
            name: str = "ids") -> tuple[Keys, tuple[int, ...]]:
    """Ids of any shape as flat 64-bit keys, and their shape.

    ``narrow``: the table's keys are int32, which are widened with their sign.
    """
    array = _of_python(ids, name)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{name}: {array.dtype}, must be integers of 64 bits or less (a "
            "float holds no id, and NaN is none)")
    if narrow and (array.dtype.itemsize > 4 or array.dtype == numpy.uint32):
        if isinstance(ids, numpy.ndarray):
            raise TypeError(f"{name}: {array.dtype}, but the table's keys are "
                            "int32")
        if array.size and not -2**31 <= array.min() <= array.max() < 2**31:
            raise ValueError(f"{name}: not all are int32, as the table's keys")
    shape = array.shape
    if array.dtype == _U64:
        keys = numpy.ascontiguousarray(array).reshape(-1)
    else:
        signed = numpy.ascontiguousarray(array, dtype=_I64)
        keys = signed.reshape(-1).view(_U64)
    return keys, shape


def as_padding(padding: ArrayLike, narrow: bool) -> int:
    """The one id that is none, as a key."""
    keys, shape = as_keys(padding, narrow, "padding")
    if shape:
        raise ValueError(f"padding: shape {shape}, must be one id")
    return int(keys[0])


def apart(held: Array, written: Array) -> Array:
    """held as it is; a copy where what is written would change it."""
    return held.copy() if numpy.may_share_memory(held, written) else held


def as_offsets(offsets: ArrayLike) -> npt.NDArray[numpy.uint32]:
    """[bags + 1] positions; librecps checks that they fit the ids."""
    array = _of_python(offsets, "offsets")
    if array.dtype.kind not in "iu":
        raise TypeError(f"offsets: {array.dtype}, must be integers")
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"offsets: shape {array.shape}, must be [bags + 1]: the first is "
            "0, the last the number of ids")
    if array.min() < 0 or array.max() > 2**32 - 1:
        raise ValueError("offsets: must be 0 to 2^32 - 1")
    return numpy.ascontiguousarray(array, dtype=numpy.uint32)


def row_stride(array: Array, dim: int) -> int | None:
    """Bytes from row to row of [..., dim]; None: they have several.

    0 is contiguous, as librecps says it.
    """
    if array.flags.c_contiguous:
        return 0
    if not array.flags.aligned or (dim > 1 and array.strides[-1] != 4):
        return None
    stride: int | None = None
    span = 0  # of what is walked, the innermost axis first
    for size, step in zip(array.shape[-2::-1], array.strides[-2::-1]):
        if size == 1:
            continue
        if stride is None:
            stride = step
        elif step != span:
            return None
        span = size * step
    return stride if stride is not None and stride >= 4 * dim else None


def result_array(out: Floats | None, shape: tuple[int, ...],
                 dim: int) -> tuple[Floats, int]:
    """The array that rows are written to, and its stride."""
    whole = (*shape, dim)
    if out is None:
        return numpy.empty(whole, _F32), 0
    if not isinstance(out, numpy.ndarray):
        raise TypeError(f"out: {type(out).__name__}, must be a NumPy array")
    if out.dtype != _F32 or not out.dtype.isnative:
        raise TypeError(f"out: {out.dtype}, must be float32")
    if out.shape != whole:
        raise ValueError(f"out: shape {out.shape}, must be {whole}")
    if not out.flags.writeable:
        raise ValueError("out: is read-only")
    stride = row_stride(out, dim)
    if stride is None:
        raise ValueError(
            "out: must be contiguous, or of contiguous rows that are equally "
            "far apart")
    return out, stride


def as_rows(values: ArrayLike, shape: tuple[int, ...], dim: int,
            name: str) -> tuple[Floats, int]:
    """float32 of shape + [dim], and the stride; copied only where the layout
    does not fit."""
    _refuse_mask(values, name)
    if isinstance(values, numpy.ndarray):
        array = values
        if array.dtype != _F32:
            raise TypeError(f"{name}: {array.dtype}, must be float32")
    else:
        array = numpy.asarray(values, dtype=_F32)
    whole = (*shape, dim)
    if array.shape != whole:
        raise ValueError(f"{name}: shape {array.shape}, must be {whole}")
    if not array.dtype.isnative:
        array = array.astype(_F32)
    stride = row_stride(array, dim)
    if stride is None:
        return numpy.ascontiguousarray(array), 0
    return array, stride


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("recps: only little-endian machines are supported")
