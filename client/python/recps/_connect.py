# SPDX-License-Identifier: Apache-2.0
"""Which servers, and how to reach them: what connect() was given, else the
environment, else the "recps" object of the cluster's JSON."""
from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import typing

from recps import _library as c
from recps.errors import (ClusterWarning, InvalidError, error_of, warn_user)
from recps.tables import index_of, whole

__all__ = ["ClusterLike", "Options", "notes_of", "open_client",
           "raise_pending", "refuse_in_report", "resolve", "text_of"]

ClusterLike = typing.Union[None, str, "os.PathLike[str]",
                           typing.Mapping[str, typing.Any]]

_TOP = ("cluster", "task", "recps", "environment", "sparseCluster",
        "rpc_layer")
_ROLES = ("ps", "worker", "chief", "master", "evaluator")

#: Notes that warn nobody, as recpsd logs them for who looks.
_FOR_WHO_LOOKS = ("ignored: ", "task index ")

_NAME_SERVERS = ("name the servers' addresses, or connect(\"embedded\") for "
                 "tables in this process")

#: Options of the client that all programs of a job know by these names.
_TEXTS = ("job_id", "checkpoint_dir", "token_file", "tls_ca", "tls_cert",
          "tls_key", "unix_dir", "transport")
_SECONDS = {"connect_timeout": 300.0, "reconnect_timeout": 60.0,
            "request_timeout": 0.0}


def _refuse_no_servers(given: typing.Any) -> None:
    hosts = given.get("cluster") if isinstance(given, typing.Mapping) else None
    if isinstance(hosts, typing.Mapping) and "ps" in hosts and (
            not hosts["ps"]):
        raise ValueError("cluster: ps is empty; " + _NAME_SERVERS)


def _with_servers(text: str) -> str:
    """The same; what is no JSON is librecps's to refuse."""
    try:
        _refuse_no_servers(json.loads(text))
    except json.JSONDecodeError:
        pass
    return text


def text_of(cluster: ClusterLike) -> str | None:
    """TF_CONFIG's text ("@FILE" too); None: the environment's."""
    if cluster is None:
        return None
    if isinstance(cluster, str):
        return "{}" if cluster == "embedded" else _with_servers(cluster)
    if isinstance(cluster, os.PathLike):
        return f"@{os.fspath(cluster)}"
    if isinstance(cluster, typing.Mapping):
        whole_thing = dict(cluster)
        if whole_thing and all(key in _ROLES for key in whole_thing):
            whole_thing = {"cluster": whole_thing}
        _refuse_no_servers(whole_thing)
        try:
            return json.dumps(whole_thing)
        except (TypeError, ValueError) as error:
            raise TypeError(f"cluster: {error}") from None
    raise TypeError(f"cluster: {type(cluster).__name__}, must be None, a "
                    'dict, JSON text, a path or "embedded"')


def resolve(cluster: ClusterLike, **flags: typing.Any) -> c.Cluster:
    """What TF_CONFIG's reader makes of it, which rps_cluster_finish releases.

    ``flags``: job_name, task_index, ps_hosts, ...; None: not given.
    """
    resolved, error = c.Cluster(), c.ClusterError()
    options = c.ClusterOptions()
    c.lib.rps_cluster_options_init(ctypes.byref(options))
    text = text_of(cluster)
    if text is not None:
        options.tf_config = text.encode("utf-8", "surrogateescape")
        options.tf_config_file = options.tf_config_env = None
        options.task_optional = 1
    for name, value in flags.items():
        if value is not None:
            setattr(options, name, os.fsencode(str(value)))
    status = c.lib.rps_cluster_resolve(
        ctypes.byref(resolved), ctypes.byref(options), ctypes.byref(error))
    if status != c.OK:
        words = (error.message or b"").decode("utf-8", "replace")
        c.lib.rps_cluster_error_finish(ctypes.byref(error))
        raise error_of(status, words)
    for note in notes_of(resolved):
        if not note.startswith(_FOR_WHO_LOOKS):
            warn_user(f"TF_CONFIG: {note}", ClusterWarning)
    return resolved


def notes_of(resolved: c.Cluster) -> tuple[str, ...]:
    """What the reader had to say of a cluster that it took."""
    text: bytes = resolved.notes or b""
    return tuple(text.decode("utf-8", "replace").splitlines())


def _number(text: typing.Any, name: str) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise InvalidError(f"{name}: {text!r}, must be a number") from None


class Options:
    """The resolved cluster, and every option of the client."""

    def __init__(self, cluster: ClusterLike,
                 given: dict[str, typing.Any]) -> None:
        self._given = given
        self.reporter: typing.Any = None  # as long as the client
        self.cluster = resolve(
            cluster, job_name=given["job_name"],
            task_index=given["task_index"])
        text = self.cluster.recps_json
        self._object: dict[str, typing.Any] = json.loads(text) if text else {}
        self.role: str = c.ROLES[self.cluster.role]
        self.ps_count: int = self.cluster.ps_count
        self.embedded: bool = self.role == "local" or self.ps_count == 0
        self.is_chief = bool(self.cluster.is_chief)
        self.rank: int = self.cluster.rank
        self.replica_count: int = self.cluster.replica_count
        self.addresses: list[str] = [
            (self.cluster.ps[i].address or b"").decode()
            for i in range(0 if self.embedded else self.ps_count)]
        folder = self.text("checkpoint_dir") if self.embedded else None
        self.checkpoint_dir: str | None = (
            os.path.abspath(os.fsdecode(folder)) if folder else None)
        if self.ps_count == 0 and self.role != "local" and (
                self.replica_count != 1):
            c.lib.rps_cluster_finish(ctypes.byref(self.cluster))
            raise InvalidError(
                "cluster: it has no ps, and each of its processes would have "
                "tables of its own; " + _NAME_SERVERS)
        if self.role == "ps":
            c.lib.rps_cluster_finish(ctypes.byref(self.cluster))
            raise InvalidError(
                "the task of this process is ps: recps.serve() makes it that "
                "server (recpsd), which is not a client")

    def _find(self, name: str) -> typing.Any:
        """Given, else the variable, else the JSON; None: nowhere."""
        value = self._given.get(name)
        if value is None:
            value = os.environ.get(f"RECPS_{name.upper()}")
        return value if value is not None else self._object.get(name)

    def text(self, name: str) -> bytes | None:
        """A text; None: not given, or empty."""
        value = self._find(name)
        if value is None or value == "":
            return None
        if not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"{name}: {value!r}, must be text")
        return os.fsencode(value)

    @property
    def request_timeout(self) -> float:
        """Seconds of a blocking call; 0: no limit."""
        name = "request_timeout"
        return self.milliseconds(name, _SECONDS[name]) / 1000

    def milliseconds(self, name: str, default: float) -> int:
        """Seconds, as whole milliseconds."""
        value = self._find(name)
        seconds = _number(default if value is None else value, name)
        if not 0 <= seconds <= 86400:
            raise InvalidError(f"{name}: {value!r}, must be 0 to 86400 s")
        return round(seconds * 1000)


def _make(options: Options) -> c.ClientOptions:
    raw = c.ClientOptions()
    c.lib.rps_client_options_init(ctypes.byref(raw))
    raw.cluster = ctypes.pointer(options.cluster)
    for name in _TEXTS[:-1]:
        text = options.text(name)
        if text is not None:
            setattr(raw, name, text)
    transport = options.text("transport")
    if transport is not None:
        raw.transport = index_of("transport", os.fsdecode(transport),
                                 c.TRANSPORTS)
    if options.embedded and options._given["transport"] is None:
        raw.transport = 0  # the job's word is for its servers
    seed = options._find("job_seed")
    if seed is not None:
        raw.job_seed = whole("job_seed", int(_whole_text(seed)), 2**64 - 1)
    for name, default in _SECONDS.items():
        setattr(raw, f"{name}_ms", options.milliseconds(name, default))
    raw.body_checksum = int(bool(options._given["body_checksum"]))
    raw.flags = c.CLIENT_THREAD if options._given["client_thread"] else 0
    raw.known_epoch = whole("known_epoch", options._given["known_epoch"],
                            2**32 - 1)
    return raw


def _whole_text(value: typing.Any) -> typing.Any:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise InvalidError(
                f"job_seed: {value!r}, must be a whole number") from None
    return value


class _Reports(threading.local):
    """What this thread's report is up to: librecps calls it in a call."""

    inside = False
    #: What C cannot carry out of it: KeyboardInterrupt, SystemExit.
    pending: BaseException | None = None


_reports = _Reports()


def refuse_in_report() -> None:
    """librecps has a client in hand, which must not be used, nor closed."""
    if _reports.inside:
        raise InvalidError("a report is called in the middle of a call: no "
                           "client can be used in it")


def raise_pending() -> None:
    """What a report has raised, when the call that it was made in is over."""
    pending, _reports.pending = _reports.pending, None
    if pending is not None:
        raise pending


def _reporter(report: typing.Callable[[str], None]) -> typing.Any:
    def tell(_context: int | None, line: bytes) -> None:
        _reports.inside = True
        try:
            report(line.decode("utf-8", "replace"))
        except Exception as error:  # C cannot take it
            print(f"recps: report: {error}", file=sys.stderr)
        except BaseException as error:  # Ctrl-C
            _reports.pending = error
        finally:
            _reports.inside = False

    return c.REPORT(tell)


def open_client(options: Options,
                check: typing.Callable[[int], None]) -> ctypes.c_void_p:
    """The handle of a client, which is the caller's to close."""
    handle = ctypes.c_void_p()
    try:
        raw = _make(options)
        if options._given["report"] is not None:
            options.reporter = _reporter(options._given["report"])
            raw.report = options.reporter
        check(c.lib.rps_client_open(ctypes.byref(handle), ctypes.byref(raw)))
        if _reports.pending is not None:
            c.lib.rps_client_close(handle)
        raise_pending()
    finally:
        c.lib.rps_cluster_finish(ctypes.byref(options.cluster))
    return handle

