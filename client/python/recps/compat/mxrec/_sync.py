# SPDX-License-Identifier: Apache-2.0
"""deterministic=1 in a job of several workers: a sync job. What the optimizers
of a step push is kept until the next lookup, and goes out as one step of the
job, which every worker makes: gradients are added up in the order of ranks,
then each row takes one step.
"""
from __future__ import annotations

import threading
import typing

import recps
from recps._table import Push, push_tables
from recps.compat.mxrec import _config

_lock = threading.RLock()  # _steps, and what it has
_steps: Steps | None = None


class Steps:
    """The steps of this process, in a job that its chief has begun."""

    def __init__(self, client: recps.Client) -> None:
        self.client = client
        self._kept: dict[int, list[Push]] = {}  # by optimizer
        if client.is_chief:
            client.begin(mode="sync", combine="sum")
        self.step = client.join().step
        client._reopen()

    def keep(self, number: int, pushes: list[Push]) -> None:
        """Of an optimizer; its second push is of the next step."""
        with _lock:
            if number in self._kept:
                self.flush()
            self._kept[number] = pushes

    def flush(self) -> None:
        """End the step, if there is one: waits for all workers."""
        with _lock:
            if not self._kept:
                return
            kept, self._kept = self._kept, {}
            self.step += 1
            push_tables([push for number in sorted(kept)
                         for push in kept[number]], step=self.step)
            # losses are added up: they tell whether all are at the same place
            mark = float(sum(1 << number % 40 for number in kept))
            decision = self.client.step_end(self.step, mark)
            if decision.loss != mark * decision.counted:
                raise recps.MismatchError(
                    f"step {self.step}: workers are at different optimizers: "
                    "in a deterministic job all of them run the same "
                    "apply_gradients() as often")


def active() -> Steps | None:
    """The steps, if this job is deterministic."""
    return _steps


def begin() -> None:
    """Every worker comes here (a session with deterministic=1); all go on
    together, the tables are empty."""
    global _steps
    with _lock:
        client = _config.client()
        if _steps is None or _steps.client is not client:
            _steps = Steps(client)


def flush() -> None:
    """Before a lookup: it sees the steps before it."""
    if _steps is not None:
        _steps.flush()


def refuse_lone(name: str) -> None:
    """Of a gradient that is pushed as it is worked out: of no step."""
    if _steps is not None:
        raise recps.InvalidError(
            f"the table {name!r} pushes where its gradient is worked out: in a "
            "deterministic job of several workers an AdamWOptimizer trains "
            "every table (no optimizer=)")


def settle() -> None:
    """What was pushed is applied: before rows are saved or counted."""
    if _steps is not None and not _steps.client.closed:
        _steps.flush()
        _steps.client.apply()


def restored(step: int) -> None:
    """The job began again, at a checkpoint."""
    if _steps is not None:
        _steps.step = step


def forget() -> None:
    """Of a client that is closed."""
    global _steps
    _steps = None
