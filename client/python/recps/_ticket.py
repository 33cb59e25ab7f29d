# SPDX-License-Identifier: Apache-2.0
"""A lookup or push on its way."""
from __future__ import annotations

import ctypes
import math
import os
import time
import typing

from recps import _library as c
from recps._client import SLICE_MS, Client, last_words, let_others_in
from recps._connect import raise_pending
from recps.errors import CanceledError, Error, TimedOutError, error_of
from recps.tables import real

__all__ = ["Ticket"]

T = typing.TypeVar("T")

Start = typing.Callable[[ctypes.c_void_p, typing.Any], int]


class Ticket(typing.Generic[T]):
    """What ``lookup_async`` and ``push_async`` answer.

    The arrays of the call stay alive, and must stay as they are, until it is
    done or canceled. A ticket that is dropped is canceled: a lookup's answer
    is forgotten, a push is carried out and nobody hears how it ended.
    """

    __slots__ = ("_client", "_error", "_over", "_raw", "_result", "_token",
                 "__weakref__")

    def __new__(cls, *arguments: typing.Any) -> Ticket[T]:
        """As long as it is not over, it is one that is canceled if dropped."""
        ticket: Ticket[T] = object.__new__(_Open)
        ticket._over = True  # __del__ may see what is half built
        return ticket

    def __init__(self, client: Client, start: Start,
                 borrowed: typing.Any, result: T) -> None:
        self._client = client
        self._error: Error | None = None
        self._result = result
        self._raw = c.CTicket()
        self._token = next(client._next)
        # before librecps hears of it: see the rules of _client.py
        client._borrowed[self._token] = borrowed
        self._over = False
        with client._turn:
            try:
                status = start(client._enter_tables(), ctypes.byref(self._raw))
            except BaseException:
                if not self._raw.id:
                    self._end()
                raise
            if status != c.OK:
                error = client._failed(status, last_words())
                self._end()
                raise error

    def _end(self, error: Error | None = None) -> None:
        """Under the lock: librecps has let go of the arrays."""
        self._error = error
        self._over = True
        self._client._borrowed.pop(self._token, None)
        object.__setattr__(self, "__class__", Ticket)

    def _finish(self, status: int) -> None:
        if status == c.OK:
            self._end()
        elif self._client.closed:  # meanwhile, by a signal's handler
            self._end(CanceledError("the client was closed"))
        else:
            self._end(self._client._failed(status, last_words()))

    def _move(self, milliseconds: int) -> bool:
        """One slice under the lock; 0 only looks. Is it over?"""
        if self._over:
            return True
        client = self._client
        handle = client._enter() if not client.closed else None
        if handle is None:
            self._end(CanceledError("the client was closed"))
            return True
        if milliseconds > 0:
            status = int(c.lib.rps_wait(handle, self._raw, milliseconds))
            raise_pending()
            if status != c.E_TIMEOUT:
                self._check_fork(status)
                self._finish(status)
                return True
        words = last_words()
        done = ctypes.c_int()
        status = int(c.lib.rps_poll(handle, self._raw, ctypes.byref(done)))
        if done.value:
            self._finish(status)
        elif status == c.E_NOT_FOUND and milliseconds > 0:
            # it was the request's own deadline, which ended the ticket
            self._end(error_of(c.E_TIMEOUT, words))
        elif status != c.OK:
            self._check_fork(status)
            self._finish(status)
        return self._over

    def _check_fork(self, status: int) -> None:
        """The parent's ticket stays the parent's."""
        if self._client._pid != os.getpid():
            raise error_of(status, last_words())

    def done(self) -> bool:
        """Is it over? Does not wait; moves every ticket of the client."""
        with self._client._turn:
            return self._move(0)

    def wait(self, timeout: float | None = None) -> T:
        """The result, when it is there: the rows of a lookup.

        :param timeout: seconds; None: no limit.
        :raises TimedOutError: not yet; wait again, or :meth:`cancel`.
        :raises Error: how the request ended.
        """
        end = _end_of(timeout)
        while True:
            left = None if end is None else end - time.monotonic()
            with self._client._turn:
                if self._move(_slice(left)):
                    break
            if left is not None and left <= 0:
                raise TimedOutError(f"not done after {timeout} s")
            let_others_in()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._result

    def cancel(self) -> None:
        """Forget it: its arrays are the caller's again. A push that has begun
        is carried out."""
        client = self._client
        with client._turn:
            if self._over:
                return
            if not client.closed:
                c.lib.rps_cancel(client._enter(), self._raw)
            if client._pid == os.getpid():
                self._end(CanceledError("this ticket was canceled"))

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a recps ticket cannot be copied or pickled: it is "
                        "one request of this process")

    def __repr__(self) -> str:
        state = ("open" if not self._over else
                 "done" if self._error is None else str(self._error))
        return f"<recps.Ticket {state}>"


class _Open(Ticket[T]):
    """A ticket that is not over. Others have no __del__: Python swallows a
    KeyboardInterrupt there."""

    __slots__ = ()

    def __del__(self) -> None:
        if not self._over:
            self._client._dropped.append((self._token, self._raw))


def _end_of(timeout: float | None) -> float | None:
    """When a wait is over, by time.monotonic(); None: never."""
    if timeout is None:
        return None
    seconds = real("timeout", timeout)
    return None if seconds == math.inf else time.monotonic() + seconds


def _slice(left: float | None) -> int:
    """Milliseconds to wait in C; 0 only looks."""
    if left is None:
        return SLICE_MS
    return max(0, round(min(left * 1000 + 0.5, SLICE_MS))) if left > 0 else 0


def settle(ticket: Ticket[T]) -> T:
    """The blocking form: whatever ends the wait, nothing stays on its way."""
    timeout = ticket._client._request_timeout or None
    try:
        return ticket.wait(timeout)
    except TimedOutError:
        if ticket._over:  # so it ended by itself
            raise
        ticket.cancel()
        raise TimedOutError(
            f"no answer within {timeout:g} s (request_timeout); if it is a "
            "push, whether it was carried out is not known") from None
    except BaseException:
        ticket.cancel()
        raise
