# SPDX-License-Identifier: Apache-2.0
"""What an evaluator reads: the files of the checkpoint that was loaded last. It
asks no server for rows, and changes nothing anywhere."""
from __future__ import annotations

import os
import typing

import numpy

import recps
from recps import checkpoint
from recps._tensorflow_rows import Ids


def is_evaluator() -> bool:
    """Is this process's task that?"""
    return recps.role().name == "evaluator"


class Reader:
    """Rows of a table, for lookups that train nothing."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._file: checkpoint.Table | None = None

    def load(self, folder: str) -> None:
        """Read a checkpoint's files from here on."""
        self._file = checkpoint.Checkpoint(folder).table(self._name)

    @property
    def file(self) -> checkpoint.Table:
        """The table of the checkpoint.

        :raises InvalidError: none was loaded.
        """
        if self._file is None:
            raise recps.InvalidError(
                f"the table {self._name!r}: an evaluator reads checkpoints: "
                "EmbeddingTableSaver.load() comes first")
        return self._file

    def __call__(self, ids: Ids, padding: int | None) -> typing.Any:
        """Rows of ids, or of bags; one that is not there is the default."""
        rows = self.file.rows_of(ids.keys)
        keys = numpy.asarray(ids.keys)
        if padding is not None:
            rows[keys == padding] = 0
        return rows if ids.offsets is None else _pooled(
            rows, keys != padding if padding is not None
            else numpy.ones(keys.shape, bool), ids)


def _pooled(rows: typing.Any, counts: typing.Any, ids: Ids) -> typing.Any:
    """A row a bag."""
    lengths = numpy.diff(ids.offsets)
    bag = numpy.repeat(numpy.arange(lengths.size), lengths)
    total = numpy.zeros((lengths.size, rows.shape[1]), numpy.float32)
    numpy.add.at(total, bag, rows)
    sizes = numpy.maximum(1, numpy.bincount(bag, counts, lengths.size))
    power = {"sum": 0.0, "mean": 1.0, "sqrtn": 0.5}[ids.pooling]
    return (total / sizes[:, None]**power).astype(numpy.float32)


def folder_of(note: dict[str, typing.Any], name: str) -> str:
    """Where the servers keep a checkpoint that this process can read.

    :param note: what a saver wrote where it was told to save.
    """
    held = note.get("checkpoint_dir")
    folder = os.path.join(str(held), name)
    if not held or not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{folder}: an evaluator reads the servers' checkpoints: it needs "
            "the folder that they write to (checkpoint_dir), under the same "
            "name")
    return folder
