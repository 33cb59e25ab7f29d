# SPDX-License-Identifier: Apache-2.0
"""One script for all roles of a job: which task this process is, and the
server that it becomes where that is ps."""
from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import typing

from recps import _library as c
from recps._connect import ClusterLike, notes_of, resolve, text_of
from recps.errors import FileError, NotFoundError

__all__ = ["Role", "cluster_flags", "cluster_from_flags", "role", "serve"]

_FLAGS = {
    "job_name": "this process: ps, worker, chief or evaluator",
    "task_index": "its index in its role",
    "ps_hosts": "parameter servers, host:port,host:port",
    "worker_hosts": "workers, in the order of their index",
    "chief_hosts": "the chief; without one worker 0 is it",
    "evaluator_hosts": "the evaluator"}

_REPLICAS = ("local", "chief", "worker")


@dataclasses.dataclass(frozen=True)
class Role:
    """Which task of which cluster a process is."""

    name: str
    """local, chief, worker, ps, evaluator, or none: a tool."""
    index: int
    is_chief: bool
    """The chief, or worker 0 where none is listed; a local process, too."""
    rank: int
    """Of a replica: chief 0, then workers; 0 of others."""
    replicas: int
    """Who train: workers, and a chief that is listed; 0: not known."""
    servers: tuple[str, ...]
    """Addresses of the parameter servers; none: tables are in the process."""
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    """What TF_CONFIG's reader ignored, replaced or read under another name."""

    @property
    def trains(self) -> bool:
        """Is it a replica: chief, worker, or alone?"""
        return self.name in _REPLICAS

    def __str__(self) -> str:
        return f"{self.name}:{self.index}"


def role(cluster: ClusterLike = None) -> Role:
    """Which task this process is, by TF_CONFIG or by what is given: all that
    :func:`recps.connect` takes.

    :raises InvalidError: a cluster that is refused, with the reason.
    """
    resolved = resolve(cluster)
    try:
        return _role_of(resolved)
    finally:
        c.lib.rps_cluster_finish(ctypes.byref(resolved))


def _role_of(resolved: c.Cluster) -> Role:
    name = c.ROLES[resolved.role]
    replicas = 1 if name == "local" else resolved.replica_count
    return Role(name, resolved.index,
                name == "local" or bool(resolved.is_chief),
                resolved.rank if name in _REPLICAS else 0, replicas,
                tuple(_text(resolved.ps[i].address)
                      for i in range(resolved.ps_count)),
                notes_of(resolved))


def _text(address: bytes | None) -> str:
    return (address or b"").decode()


# --- flags ------------------------------------------------------------------


def cluster_flags() -> argparse.ArgumentParser:
    """The flags of :func:`cluster_from_flags`, for a script's own parser:
    ``argparse.ArgumentParser(parents=[recps.cluster_flags()])``."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("cluster")
    for name, words in _FLAGS.items():
        group.add_argument(f"--{name}", f"--{name.replace('_', '-')}",
                           metavar=name.split("_")[1].upper(), help=words)
    return parser


def cluster_from_flags(
        arguments: typing.Sequence[str] | argparse.Namespace | None = None
) -> dict[str, typing.Any]:
    """TF_CONFIG as a dict, made of the guide's flags: ``--ps_hosts``,
    ``--worker_hosts``, ``--chief_hosts``, ``--evaluator_hosts`` (each
    host:port,host:port), ``--job_name``, ``--task_index``; with dashes, too.

    One host flag, and nothing of the cluster in the variable TF_CONFIG is
    left; the task's flags replace its task. Without any of both: ``{}``, this
    process alone. Give it to :func:`serve`, :func:`role` and
    :func:`recps.connect`.

    :param arguments: None: this program's, of which other flags are left
        alone; a list of them; or what a parser with :func:`cluster_flags`
        answered.
    :raises InvalidError: refused as TF_CONFIG is, with the flag's name.
    """
    if isinstance(arguments, argparse.Namespace):
        given = arguments
    else:
        given, _ = cluster_flags().parse_known_args(arguments)
    resolved = resolve(None, **{name: getattr(given, name, None)
                                for name in _FLAGS})
    try:
        return _dict_of(resolved)
    finally:
        c.lib.rps_cluster_finish(ctypes.byref(resolved))


def _dict_of(resolved: c.Cluster) -> dict[str, typing.Any]:
    """What resolves to the same again."""
    whole: dict[str, typing.Any] = {}
    if resolved.recps_json:
        whole["recps"] = json.loads(resolved.recps_json)
    name = c.ROLES[resolved.role]
    if name == "local":
        return whole
    cluster: dict[str, typing.Any] = {}
    if resolved.ps_count:
        cluster["ps"] = [_text(resolved.ps[i].address)
                         for i in range(resolved.ps_count)]
    if resolved.workers_listed:
        listed = {str(resolved.workers[i].index):
                  _text(resolved.workers[i].address)
                  for i in range(resolved.workers_listed)}
        cluster["worker"] = (list(listed.values())
                             if resolved.worker_count_known else listed)
    elif not resolved.worker_count_known:
        cluster["worker"] = {}
    for key, address in (("chief", resolved.chief_address),
                         ("evaluator", resolved.evaluator_address)):
        if address:
            cluster[key] = [_text(address)]
    return {"cluster": cluster, "task": {"type": name,
                                         "index": resolved.index}, **whole}


# --- the server -------------------------------------------------------------


def _is_program(path: pathlib.Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _find_recpsd(task: str) -> str:
    """$RECPS_RECPSD, beside the package, in PATH."""
    given = os.environ.get("RECPS_RECPSD")
    if given:
        if not _is_program(pathlib.Path(given)):
            raise NotFoundError(
                f"RECPS_RECPSD: {given} is no program; set it to recpsd's "
                "path")
        return given
    beside = pathlib.Path(__file__).with_name("recpsd")
    if _is_program(beside):
        return str(beside)
    found = shutil.which("recpsd")
    if found is None:
        raise NotFoundError(
            f"this task is {task}, and there is no recpsd to serve it: not "
            f"beside {beside.parent}, not in PATH. The wheel carries one; "
            "the source tree alone does not: install the wheel (pip wheel .), "
            "or set RECPS_RECPSD to recpsd's path")
    return found


def _flags_of(options: dict[str, typing.Any]) -> list[str]:
    """recpsd's flags; None is not given."""
    flags = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            value = "true" if value else "false"
        if value is not None:
            flags.append(f"{flag}={value}")
    return flags


def _environment(cluster: ClusterLike) -> dict[str, str]:
    """Ours, with TF_CONFIG as it was given."""
    found = {name: value for name, value in os.environ.items()
             if name != "RECPS_RECPSD"}
    text = text_of(cluster)
    if text is not None:
        found.pop("TF_CONFIG_FILE", None)
        found.pop("TF_CONFIG", None)
        if text.startswith("@"):
            found["TF_CONFIG_FILE"] = text[1:]
        else:
            found["TF_CONFIG"] = text
    return found


def _exec(program: str, arguments: list[str],
          environment: dict[str, str]) -> typing.NoReturn:
    """Become the program; what Python ignores for itself, it does not."""
    try:
        ignored = [(number, signal.signal(number, signal.SIG_DFL))
                   for number in (signal.SIGPIPE, signal.SIGXFSZ)]
    except ValueError:  # not the main thread: recpsd sees to its own
        ignored = []
    try:
        os.execve(program, [program, *arguments], environment)
    except OSError as error:
        for number, before in ignored:
            signal.signal(number, before)
        raise FileError(
            f"{program} cannot be started: {error.strerror}") from None


def serve(cluster: ClusterLike = None, **options: typing.Any) -> Role:
    """Where this task is a parameter server, become it, and do not return:
    the process is recpsd from here on, with its process id and its exit code
    (0 when the chief has ended the job). Any other task returns at once, its
    role in hand.

    Call it first: what comes after it in the script only chief, workers and
    evaluator run; ``finally`` and ``atexit`` are not for servers. recpsd is
    ``$RECPS_RECPSD``, else beside the package, else in PATH.

    :param cluster: as :func:`recps.connect` takes it; None: TF_CONFIG.
    :param options: recpsd's, as its flags are named, underscores for dashes:
        ``checkpoint_dir="ckpt"``, ``job_id="x"``. Others take no notice.
    :raises NotFoundError: this task is a server, and there is no recpsd.
    :raises InvalidError: a cluster that is refused, with the reason.
    """
    mine = role(cluster)
    if mine.name != "ps":
        return mine
    program = _find_recpsd(str(mine))
    environment = _environment(cluster)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _exec(program, _flags_of(options), environment)
