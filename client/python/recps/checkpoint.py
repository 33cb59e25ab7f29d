# SPDX-License-Identifier: Apache-2.0
"""Checkpoints read with NumPy alone, as docs/CHECKPOINT.md describes them.

Arrays of a part are views of its .npy files, mapped: what is not touched is
not read. librecps is not needed, and not loaded by what stands here.

    >>> saved = checkpoint.open_newest("checkpoints")
    >>> user = saved.table("user")
    >>> user.parts[0].rows          # (rows, dim), the file's own bytes
    >>> user.rows_of([7, 42])       # float32, in this order

Sums of files are not computed here: ``recps verify`` does that.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re
import typing

import numpy
from numpy import typing as npt

from recps._arrays import Array, ArrayLike, Floats, Keys, as_keys
from recps.errors import warn_user

__all__ = ["Checkpoint", "CheckpointError", "CheckpointWarning", "Part",
           "Table", "open_newest", "slots_of", "steps_of"]

Path = typing.Union[str, "os.PathLike[str]"]

_STORED = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.]{0,127}\Z")
_FOLDER = re.compile(r"ckpt-(\d{12})\Z")
_CHAIN_MAX = 17  # a full one, and 16 deltas


class CheckpointError(Exception):
    """A checkpoint that is not whole, or not of a format read here."""


class CheckpointWarning(UserWarning):
    """A ``ckpt-<step>`` that was left out: what of it is missing or damaged."""


def _read_json(path: pathlib.Path) -> dict[str, typing.Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: no JSON object")
    return value


def _column(path: pathlib.Path, dtype: str, shape: tuple[int, ...]) -> Array:
    try:
        # an empty file has nothing to map
        array: Array = numpy.load(path, mmap_mode="r" if 0 not in shape
                                  else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    if array.dtype.str != dtype or array.shape != shape:
        raise CheckpointError(
            f"{path}: {array.dtype.str} {array.shape}, must be {dtype} "
            f"{shape}, as the part file says")
    return array


def as_float32(stored: Array) -> Floats:
    """Rows as float32; <u2 is bfloat16. float32 is not copied."""
    if stored.dtype.str == "<u2":
        return (stored.astype("<u4") << 16).view("<f4")
    return stored.astype("<f4", copy=False)


def slots_of(keys: Keys, seed: int = 0) -> npt.NDArray[numpy.uint16]:
    """Slot, 0 to 4095, of each key: the top bits of its XXH3_64."""
    word, mask = numpy.uint64, 2**64 - 1
    # XXH3's secret, bytes 8 to 23, as two words
    secret = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE
    low = seed & 0xFFFFFFFF
    seed ^= int.from_bytes(low.to_bytes(4, "little"), "big") << 32
    keyed = word((secret - seed) & mask)
    flip, prime = word(32), word(0x9FB21C651E98DF25)
    x = numpy.asarray(keys, "<u8")
    x = ((x >> flip) | (x << flip)) ^ keyed  # the halves change places
    x = x ^ (x << word(49) | x >> word(15)) ^ (x << word(24) | x >> word(40))
    x = x * prime
    x = x ^ ((x >> word(35)) + word(8))
    x = x * prime
    x = x ^ (x >> word(28))
    slots: npt.NDArray[numpy.uint16] = (x >> word(52)).astype(numpy.uint16)
    return slots


@dataclasses.dataclass(frozen=True)
class Part:
    """What one server had of a table. Entry k of every array is one row."""

    folder: pathlib.Path
    index: int
    count: int
    entry: dict[str, typing.Any]
    spec: dict[str, typing.Any]

    def _path(self, column: str) -> pathlib.Path:
        return self.folder / f"{self.index}-of-{self.count}.{column}.npy"

    def __len__(self) -> int:
        return int(self.entry["rows"])

    @functools.cached_property
    def keys(self) -> Keys:
        """uint64 [rows]; signed ids: ``.view("<i8")``."""
        return _column(self._path("keys"), "<u8", (len(self),))

    @functools.cached_property
    def rows(self) -> Array:
        """[rows, dim] as stored: float32, float16, or bfloat16's bits."""
        return _column(self._path("rows"), _STORED[self.spec["value_dtype"]],
                       (len(self), int(self.spec["dimension"])))

    @functools.cached_property
    def uses(self) -> Array:
        """uint8 [rows]: a logarithmic counter of pushes."""
        return _column(self._path("uses"), "|u1", (len(self),))

    @functools.cached_property
    def last(self) -> Array:
        """uint32 [rows]: tick of the last push."""
        return _column(self._path("last"), "<u4", (len(self),))

    def slot(self, name: str) -> Floats:
        """Optimizer state of this name: float32 [rows, width]."""
        dim = int(self.spec["dimension"])
        width = 1 if self.spec["optimizer"] == "rowwise_adagrad" else dim
        return _column(self._path(f"slot-{name}"), "<f4", (len(self), width))

    @functools.cached_property
    def erased(self) -> Keys:
        """uint64: keys that were erased since the parent, in a delta."""
        count = int(self.entry.get("erased", 0))
        if count == 0:
            return numpy.empty(0, numpy.uint64)
        return _column(self._path("erased"), "<u8", (count,))


_SLOTS = {"sgd": (), "momentum": ("momentum",), "adagrad": ("accumulator",),
          "rowwise_adagrad": ("accumulator",), "adam": ("m", "v"),
          "adamw": ("m", "v"), "adam_catchup": ("m", "v"),
          "adamw_catchup": ("m", "v"), "ftrl": ("accum", "linear"),
          "rmsprop": ("ms", "mom")}


class Table:
    """A table of a checkpoint: of a delta, with all that it stands on."""

    def __init__(self, name: str, links: list[Checkpoint]) -> None:
        self.name = name
        self._links = links
        #: Its definition, as the manifest has it.
        self.spec: dict[str, typing.Any] = links[-1]._spec_of(name)
        #: What each server wrote; of a delta, what changed.
        self.parts: list[Part] = links[-1]._parts_of(name)

    @property
    def dimension(self) -> int:
        """Floats of a row."""
        return int(self.spec["dimension"])

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Names of its optimizer's state."""
        return _SLOTS.get(str(self.spec["optimizer"]), ())

    @functools.cached_property
    def _place(self) -> tuple[Keys, npt.NDArray[numpy.int64],
                              npt.NDArray[numpy.int64], list[Part]]:
        """Keys in ascending order, and for each: part, row."""
        parts: list[Part] = []
        keys = numpy.empty(0, numpy.uint64)
        part = numpy.empty(0, numpy.int64)
        row = numpy.empty(0, numpy.int64)
        for link in self._links:
            keys, part, row = _replay(link, self.name, parts, keys, part, row)
        return keys, part, row, parts

    @property
    def keys(self) -> Keys:
        """Every key, in ascending order (as uint64)."""
        return self._place[0]

    def __len__(self) -> int:
        return int(self.keys.size)

    def __contains__(self, key: int) -> bool:
        return bool(self.find(key).item() >= 0)

    def find(self, ids: ArrayLike) -> npt.NDArray[numpy.int64]:
        """Position of each id in :attr:`keys`; -1: it has no row."""
        wanted, shape = as_keys(ids)
        keys = self.keys
        if keys.size == 0:
            return numpy.full(shape, -1, numpy.int64)
        at = numpy.minimum(numpy.searchsorted(keys, wanted), keys.size - 1)
        return numpy.where(keys[at] == wanted, at, -1).reshape(shape)

    def _gather(self, at: npt.NDArray[numpy.int64], out: Array,
                column: _Column) -> Array:
        _, part, row, parts = self._place
        for number, each in enumerate(parts):
            mine = numpy.flatnonzero((part[at] == number) & (at >= 0))
            if mine.size:
                out[mine] = column(each)[row[at[mine]]]
        return out

    def _aligned(self, ids: ArrayLike | None, width: tuple[int, ...],
                 dtype: typing.Any, absent: float,
                 column: _Column) -> Array:
        at = (numpy.arange(len(self)) if ids is None
              else self.find(ids)).astype(numpy.int64)
        flat = at.reshape(-1)
        out = numpy.full((flat.size, *width), absent, dtype)
        if len(self):
            self._gather(flat, out, column)
        return out.reshape(at.shape + width)

    def rows_of(self, ids: ArrayLike | None = None, *,
                absent: float | None = None) -> Floats:
        """Rows as float32, aligned with ``ids`` of any shape.

        :param ids: None: all, aligned with :attr:`keys`.
        :param absent: value of a row that is not there; None: the table's.
        """
        default = float(self.spec.get("default_value", 0.0))
        return self._aligned(
            ids, (self.dimension,), numpy.float32,
            default if absent is None else absent,
            _Float32Rows)

    def slots_of(self, name: str, ids: ArrayLike | None = None) -> Floats:
        """Optimizer state ``name``, aligned as :meth:`rows_of`; absent: 0."""
        if name not in self.slot_names:
            raise KeyError(f"{self.name} has no slot {name!r}: "
                           f"{', '.join(self.slot_names) or 'none'}")
        width = (1 if self.spec["optimizer"] == "rowwise_adagrad"
                 else self.dimension)
        return self._aligned(ids, (width,), numpy.float32, 0.0,
                             lambda part: part.slot(name))

    def uses_of(self, ids: ArrayLike | None = None) -> Array:
        """Counters of pushes, aligned as :meth:`rows_of`."""
        return self._aligned(ids, (), numpy.uint8, 0, lambda part: part.uses)

    def last_of(self, ids: ArrayLike | None = None) -> Array:
        """Ticks of the last push, aligned as :meth:`rows_of`."""
        return self._aligned(ids, (), numpy.uint32, 0, lambda part: part.last)


class _Float32Rows:
    """A part's rows, widened only where they are taken."""

    def __init__(self, part: Part) -> None:
        self._rows = part.rows

    def __getitem__(self, index: Array) -> Floats:
        return as_float32(self._rows[index])


_Column = typing.Callable[[Part], "Array | _Float32Rows"]


def _replay(link: Checkpoint, name: str, parts: list[Part], keys: Keys,
            part: npt.NDArray[numpy.int64], row: npt.NDArray[numpy.int64]
            ) -> tuple[Keys, npt.NDArray[numpy.int64],
                       npt.NDArray[numpy.int64]]:
    """One link onto the state: what it drops, then what it has."""
    none = numpy.empty(0, numpy.int64)
    if name not in link.manifest["tables"]:
        return numpy.empty(0, numpy.uint64), none, none
    stays = numpy.ones(keys.size, bool)
    slot = slots_of(keys, link.seed)
    found: list[tuple[Keys, int]] = []
    for file in link.part_files:
        entry = file["tables"].get(name)
        if entry is None or entry.get("whole") or file.get("kind") != "delta":
            first, last = file["slots"]
            stays &= (slot < first) | (slot > last)
    for each in link._parts_of(name):
        stays &= ~numpy.isin(keys, each.erased)
        stays &= ~numpy.isin(keys, each.keys)
        found.append((each.keys, len(parts)))
        parts.append(each)
    keys = numpy.concatenate([keys[stays]] + [k for k, _ in found])
    part = numpy.concatenate([part[stays]] + [
        numpy.full(k.size, n, numpy.int64) for k, n in found])
    row = numpy.concatenate([row[stays]] + [
        numpy.arange(k.size, dtype=numpy.int64) for k, _ in found])
    order = numpy.argsort(keys, kind="stable")
    keys = keys[order]
    if keys.size and (keys[1:] == keys[:-1]).any():
        raise CheckpointError(
            f"{link.path}: a key of table {name} stands in two rows")
    return keys, part[order], row[order]


class Checkpoint:
    """``ckpt-<step>``: a full one, or a delta with what it stands on."""

    def __init__(self, path: Path) -> None:
        self.path = pathlib.Path(path)
        self.manifest = _read_json(self.path / "manifest.json")
        if self.manifest.get("format") != 1:
            raise CheckpointError(
                f"{self.path}: format {self.manifest.get('format')!r}, only 1 "
                "is read")

    @property
    def step(self) -> int:
        """The state after this step."""
        return int(self.manifest["step"])

    @property
    def epoch(self) -> int:
        """Of the job that saved it."""
        return int(self.manifest["epoch"])

    @property
    def seed(self) -> int:
        """The job's, which places rows."""
        return int(self.manifest["seed"])

    @property
    def is_delta(self) -> bool:
        """Has it only what changed?"""
        return bool(self.manifest["kind"] == "delta")

    @property
    def data_position(self) -> typing.Any:
        """Where the input stood."""
        return self.manifest.get("data_position")

    @property
    def digest(self) -> str:
        """Two full checkpoints of the same digest hold the same model."""
        return str(self.manifest["digest"])

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(sorted(self.manifest["tables"]))

    @functools.cached_property
    def part_files(self) -> list[dict[str, typing.Any]]:
        """What each server wrote: its part file."""
        n = len(self.manifest["parts"])
        return [_read_json(self.path / f"part-{i}-of-{n}.json")
                for i in range(n)]

    def _spec_of(self, name: str) -> dict[str, typing.Any]:
        tables = self.manifest["tables"]
        if name not in tables:
            raise KeyError(f"{self.path} has no table {name!r}: "
                           f"{', '.join(self.tables) or 'none'}")
        return dict(tables[name]["spec"])

    def _parts_of(self, name: str) -> list[Part]:
        if not _NAME.match(name):
            raise CheckpointError(f"{self.path}: no such table name can be")
        spec, n = self._spec_of(name), len(self.part_files)
        return [Part(self.path / f"table-{name}", i, n, file["tables"][name],
                     spec)
                for i, file in enumerate(self.part_files)
                if file["tables"].get(name, {}).get("rows", 0) > 0
                or file["tables"].get(name, {}).get("erased", 0) > 0]

    @functools.cached_property
    def chain(self) -> list[Checkpoint]:
        """From the full one to this, oldest first."""
        chain: list[Checkpoint] = [self]
        while chain[0].is_delta:
            parent = chain[0].manifest["parent"]
            name = str(parent["name"])
            if not _FOLDER.match(name) or len(chain) >= _CHAIN_MAX:
                raise CheckpointError(f"{chain[0].path}: its parent {name!r} "
                                      "cannot be")
            link = Checkpoint(chain[0].path.parent / name)
            if parent["digest"] not in (link.manifest["digest"],
                                        link.manifest.get("folded")):
                raise CheckpointError(f"{link.path} is not what "
                                      f"{chain[0].path} was made on")
            chain.insert(0, link)
        return chain

    def table(self, name: str) -> Table:
        """One table; KeyError: there is none of this name."""
        self._spec_of(name)
        return Table(name, self.chain)

    def __repr__(self) -> str:
        return (f"<recps.checkpoint.Checkpoint {self.path} "
                f"{self.manifest['kind']} {', '.join(self.tables)}>")


def steps_of(folder: Path) -> list[int]:
    """Steps that stand in a checkpoint folder, ascending: with a manifest
    and every part file. What is left out is a :class:`CheckpointWarning`."""
    steps = []
    for path in pathlib.Path(folder).glob("ckpt-*"):
        match = _FOLDER.match(path.name)
        try:
            if match and Checkpoint(path).part_files is not None:
                steps.append(int(match.group(1)))
        except CheckpointError as error:  # half of one is none
            warn_user(f"left out: {error}", CheckpointWarning)
    return sorted(steps)


def open_newest(folder: Path) -> Checkpoint:
    """The newest of a checkpoint folder; of newer ones that are not whole a
    :class:`CheckpointWarning` tells.

    :raises CheckpointError: there is none.
    """
    steps = steps_of(folder)
    if not steps:
        raise CheckpointError(f"{folder}: no complete checkpoint")
    return Checkpoint(pathlib.Path(folder) / f"ckpt-{steps[-1]:012d}")
