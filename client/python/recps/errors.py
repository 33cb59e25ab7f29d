# SPDX-License-Identifier: Apache-2.0
"""One exception a status of librecps; each carries the library's own words.

``except recps.Error`` catches all of them. Where Python has an exception of
the same meaning (ValueError, TimeoutError, ...), it is a base class, too.
"""
from __future__ import annotations

import sys
import typing
import warnings

__all__ = [
    "AuthError", "CanceledError", "ClosedError", "ClusterWarning",
    "CorruptError",
    "DeadlineError", "Error", "FileError", "ForkedError", "InvalidError",
    "LimitError", "MismatchError", "NoMemoryError", "NonFiniteError",
    "NotFoundError", "ReadOnlyError", "RetryLaterError", "Rollback",
    "RolledBackError", "TimedOutError", "UnreachableError", "UnsupportedError",
    "WrongRouteError"]


class Error(Exception):
    """What librecps answered other than OK.

    ``status`` is its number (``recps/status.h``), ``str()`` its words: what,
    which field, what to do.
    """

    status = 0


class ClusterWarning(UserWarning):
    """What TF_CONFIG's reader replaced, or read under another name. All of its
    notes, also of what it ignored, are ``recps.role().notes``."""


def warn_user(message: str, category: type[Warning]) -> None:
    """A warning at the line outside the package that asked."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(
            frame.f_globals.get("__name__")).split(".", 1)[0] == "recps":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class InvalidError(Error, ValueError):
    """The request breaks a documented rule."""

    status = -1


class ClosedError(InvalidError):
    """The client was closed."""


class NoMemoryError(Error, MemoryError):
    """An allocation failed; nothing was changed."""

    status = -2


class LimitError(Error):
    """A configured bound is reached."""

    status = -3


class MismatchError(Error, ValueError):
    """Both sides know it, with other values."""

    status = -4


class NotFoundError(Error, LookupError):
    """No such table, checkpoint or member."""

    status = -5


class WrongRouteError(Error):
    """This server does not own the key."""

    status = -6


class Rollback(typing.NamedTuple):
    """What a server that began anew has lost of this client.

    Changing requests to a server are numbered 1, 2, 3 ...: those from
    ``first`` to ``last`` were answered and are lost (0: none), with ``pushes``
    pushes among them, the last ones that it had acknowledged. Since the
    client was opened it has acknowledged ``acknowledged`` pushes, lost ones
    too; ``unanswered`` ones it may have carried out or not.
    """

    server: int
    first: int
    last: int
    pushes: int
    acknowledged: int
    unanswered: int


class RolledBackError(Error):
    """A server began anew, or another epoch did: what was held is void.

    ``lost`` says of each server that lost something what that is. Until
    :meth:`recps.Client.rolled_back` is called, every call that reads or
    changes tables is this error. Empty: the job has begun again without this
    replica, which opens a new client and joins.
    """

    status = -7
    lost: tuple[Rollback, ...] = ()


class RetryLaterError(Error):
    """Not now; the same request may work later."""

    status = -8


class DeadlineError(Error, TimeoutError):
    """The deadline passed; nothing was done."""

    status = -9


class TimedOutError(Error, TimeoutError):
    """Time passed; the outcome is unknown."""

    status = -10


class CanceledError(Error):
    """The caller took the request back, or the job has ended."""

    status = -11


class UnsupportedError(Error, NotImplementedError):
    """This build does not know or do it."""

    status = -12


class ReadOnlyError(Error):
    """The service refuses changes."""

    status = -13


class NonFiniteError(Error, ValueError):
    """NaN or infinity where none may be."""

    status = -14


class AuthError(Error, PermissionError):
    """Not authenticated, or not allowed."""

    status = -15


class CorruptError(Error):
    """Bytes that fail their checksum or form."""

    status = -16


class FileError(Error, OSError):
    """A file operation failed."""

    status = -17


class UnreachableError(Error, ConnectionError):
    """The server is gone or was never there."""

    status = -18


class ForkedError(Error):
    """The client belongs to the parent process: open one after the fork."""

    status = -19


_BY_STATUS: dict[int, type[Error]] = {
    each.status: each
    for each in (
        InvalidError, NoMemoryError, LimitError, MismatchError, NotFoundError,
        WrongRouteError, RolledBackError, RetryLaterError, DeadlineError,
        TimedOutError, CanceledError, UnsupportedError, ReadOnlyError,
        NonFiniteError, AuthError, CorruptError, FileError, UnreachableError,
        ForkedError)}


def error_of(status: int, words: str) -> Error:
    """The exception of a status that is not OK."""
    error = _BY_STATUS.get(status, Error)(words or f"status {status}")
    error.status = status
    return error
