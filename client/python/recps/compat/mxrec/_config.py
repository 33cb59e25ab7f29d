# SPDX-License-Identifier: Apache-2.0
"""init(): the TOML file, and the client that tables are opened with."""
from __future__ import annotations

import atexit
import importlib
import logging
import os
import shutil
import tempfile
import threading
import typing

import recps
from recps.compat.mxrec import _checks

log = logging.getLogger("mxrec")

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_lock = threading.Lock()  # of _client and _scratch
_client: recps.Client | None = None
_scratch: str | None = None


def init(toml_path: str) -> None:
    """Read the configuration and connect: to the servers of TF_CONFIG, or
    without one to tables in this process.

    A program that calls it calls it first; one that does not is connected when
    its first table is asked for.

    :param toml_path: its section ``[mxrec]`` has ``log_level`` (DEBUG, INFO,
        WARNING, ERROR, CRITICAL) and ``use_ranktable``; other sections are
        the program's own.
    :raises ValueError: what is allowed, and what it is.
    """
    file = _checks.path("toml_path", toml_path)
    section = _read(file).get("mxrec")
    if not isinstance(section, dict):
        raise ValueError(f"{file}: must have a section [mxrec]")
    if "log_level" in section:
        level = _checks.one_of(f"{file}: log_level", section["log_level"],
                               _LEVELS)
        log.setLevel(level)
    ranktable = section.get("use_ranktable", False)
    if not isinstance(ranktable, bool):
        raise ValueError(f"{file}: use_ranktable: must be true or false, got "
                         f"{ranktable!r}")
    _check_node_info(file, section.get("cm-node-info", {}))
    client()


def _check_node_info(file: str, info: typing.Any) -> None:
    """Where ranks would meet on NPUs: no part in it here, but checked."""
    if not isinstance(info, dict):
        raise ValueError(f"{file}: [mxrec.cm-node-info] must be a section")
    most = {"cm_chief_port": 65535, "cm_chief_device": 2**31 - 1,
            "cm_worker_size": 2**31 - 1}
    for field, limit in most.items():
        if field in info:
            _checks.whole(f"{file}: {field}", info[field], 0, limit)


def _read(file: str) -> dict[str, typing.Any]:
    try:
        toml: typing.Any = importlib.import_module("tomllib")
    except ImportError:  # Python 3.10
        toml = importlib.import_module("tomli")
    with open(file, "rb") as opened:
        try:
            return dict(toml.load(opened))
        except toml.TOMLDecodeError as error:
            raise ValueError(f"{file}: {error}") from None


def client() -> recps.Client:
    """The process's own, opened when it is first asked for."""
    global _client
    with _lock:
        if _client is None or _client.closed or not _client.is_ours:
            _client = recps.connect(checkpoint_dir=_folder())
        return _client


def _folder() -> str | None:
    """For checkpoints of tables in this process, before a saver puts them
    where it was told; servers have their own."""
    global _scratch
    if os.environ.get("RECPS_CHECKPOINT_DIR"):
        return None  # connect() reads it
    if _scratch is None or not os.path.isdir(_scratch):
        _scratch = tempfile.mkdtemp(prefix="recps-mxrec-")
        atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    return _scratch


def close() -> None:
    """Close the client; the next who asks gets another."""
    global _client
    with _lock:
        if _client is not None:
            _client.close()
            _client = None
