# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tables."""
from __future__ import annotations

import json
import os
import shutil
import typing

import tensorflow as tf

import recps
from recps.compat.mxrec import (_checks, _config, _evaluator, _sync,
                                 _together)
from recps.compat.mxrec._tables import EmbeddingTable

_MOST_STEP = 2**32 - 1


def _folder_name(step: int) -> str:
    return f"ckpt-{step:012d}"


def _own_step(global_step: int) -> int:
    """recps begins with empty tables at 0: that step has another number."""
    return global_step or _MOST_STEP + 1


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _put(source: str, target: str) -> None:
    """A checkpoint at another place, whole or not at all."""
    fresh, old = f"{target}.new", f"{target}.old"
    for each in (fresh, old):
        shutil.rmtree(each, ignore_errors=True)
    shutil.copytree(source, fresh, copy_function=_link)
    if os.path.isdir(target):
        os.rename(target, old)
    os.rename(fresh, target)
    shutil.rmtree(old, ignore_errors=True)


class EmbeddingTableSaver:
    """Saves and loads tables: rows, optimizer slots, admission counts.

    A checkpoint has every table of the process's client, those of the list
    and others. With tables in this process ``save_path`` holds it, as
    docs/CHECKPOINT.md says; with servers these write it to their own
    checkpoint_dir, and ``save_path`` a note of it.

    :param emb_tables: a list of tables, get_existing_tables().
    """

    def __init__(self, emb_tables: list[EmbeddingTable]) -> None:
        if not isinstance(emb_tables, list):
            raise TypeError("emb_tables: must be list, got "
                            f"{type(emb_tables).__name__}")
        if not emb_tables:
            raise ValueError("emb_tables: must have a table, got none")
        for table in emb_tables:
            if not isinstance(table, EmbeddingTable):
                raise TypeError(
                    "emb_tables: must be of what get_embedding_table() "
                    f"returned, got {type(table).__name__}")
        self._tables = emb_tables

    def save(self, sess: typing.Any, save_path: str,
             global_step: int) -> None:
        """Save the tables; the chief, other workers do nothing.

        :param sess: a session; None in eager execution.
        :param save_path: a folder, made if it is absent.
        :param global_step: 0 to 2^32-1.
        """
        path, step = self._check(sess, save_path, global_step)
        if _evaluator.is_evaluator():
            return
        client = _config.client()
        for table in self._tables:
            table.rows.wait()
            table.table  # opened, if it was not
        _sync.settle()
        if not client.is_chief:
            return
        os.makedirs(path, mode=0o750, exist_ok=True)
        if not client.embedded:
            steps = _sync.active()
            client.save(step if steps is None else steps.step)
            _write_note(path, global_step, {
                **client.where(),
                "checkpoint_dir": client.stats()[0]["checkpoint_dir"]})
            return
        client.save(step, keep=1)
        held = str(client.where()["checkpoint_dir"])
        _put(os.path.join(held, _folder_name(step)),
             os.path.join(path, _folder_name(step)))

    def load(self, sess: typing.Any, save_path: str,
             global_step: int) -> None:
        """Load the tables of a step; what was trained since is gone.

        In a job of several workers every one of them calls it: the chief
        restores when all are here, and all go on from there. An evaluator
        reads its checkpoint's files instead, and leaves the servers alone.

        :raises FileNotFoundError: there is no such step; which there are.
        :raises TimedOutError: a worker has not come, which it names.
        """
        path, step = self._check(sess, save_path, global_step)
        if _evaluator.is_evaluator():
            note = _note_of(path, global_step)
            _must_be_there(note, path, global_step)
            self._evaluate(note)
            return
        client = _config.client()
        for table in self._tables:
            table.rows.wait()
        if client.embedded:
            held = str(client.where()["checkpoint_dir"])
            found = os.path.join(path, _folder_name(step))
            _must_be_there(found, path, global_step)
            os.makedirs(held, exist_ok=True)
            _put(found, os.path.join(held, _folder_name(step)))
            client.restore(step)
            return
        if client.is_chief or os.path.isdir(path):
            note = _note_of(path, global_step)
            _must_be_there(note, path, global_step)
            step = int(_read_note(note)["checkpoint_step"])
        if client.is_chief or _sync.active() is None:
            _servers_must_have(client, step, global_step)
        if client.replicas == 1:
            client.restore(step)
        else:
            _together.restore(client, step)

    def _evaluate(self, note: str) -> None:
        said = _read_note(note)
        folder = _evaluator.folder_of(
            said, _folder_name(said["checkpoint_step"]))
        for table in self._tables:
            if table.reader is not None:
                table.reader.load(folder)

    def _check(self, sess: typing.Any, save_path: typing.Any,
               global_step: typing.Any) -> tuple[str, int]:
        sessions = (tf.compat.v1.Session, tf.compat.v1.InteractiveSession,
                    tf.compat.v1.train.MonitoredSession)
        if not (isinstance(sess, sessions)
                or (sess is None and tf.executing_eagerly())):
            raise TypeError("sess: must be tf.compat.v1.Session, got "
                            f"{type(sess).__name__}")
        path = _checks.path("save_path", save_path)
        return path, _own_step(_checks.whole("global_step", global_step, 0,
                                             _MOST_STEP))


def _must_be_there(found: str, path: str, global_step: int) -> None:
    if not os.path.exists(found):
        there = sorted(os.listdir(path)) if os.path.isdir(path) else []
        raise FileNotFoundError(
            f"{path}: there is no checkpoint of step {global_step} "
            f"({os.path.basename(found)}); there is "
            f"{', '.join(there) or 'nothing'}")


def _servers_must_have(client: recps.Client, step: int,
                       global_step: int) -> None:
    """Every worker finds the same, before anybody waits."""
    for server, stat in enumerate(client.stats()):
        if step not in stat["checkpoints"]:
            there = [0 if each == _own_step(0) else each
                     for each in stat["checkpoints"]]
            raise FileNotFoundError(
                f"PS {server}: there is no checkpoint of step {global_step} "
                f"in its checkpoint_dir {stat['checkpoint_dir']}; there is "
                f"{', '.join(map(str, there)) or 'none'}")


def _note_of(path: str, global_step: int) -> str:
    return os.path.join(path, f"recps-{global_step}.json")


def _read_note(name: str) -> dict[str, typing.Any]:
    """What _write_note() wrote.

    :raises ValueError: it is no such note.
    """
    with open(name, encoding="utf-8") as file:
        try:
            said = json.load(file)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not isinstance(said, dict) or not isinstance(
            said.get("checkpoint_step"), int):
        raise ValueError(f'{name}: has no whole number "checkpoint_step"')
    return said


def _write_note(path: str, global_step: int,
                where: dict[str, typing.Any]) -> None:
    name = _note_of(path, global_step)
    with open(f"{name}.new", "w", encoding="utf-8") as note:
        json.dump(where, note, indent=1)
    os.replace(f"{name}.new", name)
