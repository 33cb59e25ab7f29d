# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that all workers of a job load: the chief restores it when
everybody is here, for whoever still trained would be of an epoch that is over.

Who is here is seen at PS 0: a worker that has not joined a job waits for one
(its join), and one that has ends a step of it.
"""
from __future__ import annotations

import json
import time
import typing

import recps
from recps.compat.mxrec import _sync
from recps.compat.mxrec._config import log

POLL_S = 0.05
REPORT_S = 10.0


def restore(client: recps.Client, step: int) -> None:
    """Bring checkpoint ``step`` back at the servers; every worker calls it,
    and all go on from it.

    :raises TimedOutError: not all have come in the client's connect timeout.
    """
    joined = client._joined
    if _sync.active() is not None and joined is not None:
        _restore_in_step(client, step, joined)
        return
    if joined is not None and joined.mode != "async":
        raise recps.InvalidError(
            f"load: this job is in mode {joined.mode}: its chief calls "
            "client.begin(step), and every worker client.join()")
    if client.replicas == 0:
        raise recps.InvalidError(
            "load: TF_CONFIG does not say how many workers there are")
    if client.is_chief:
        _await_others(client, joined)
        client.restore(step, replicas=client.replicas)
        client.join()  # the others are let go
    else:
        _await_chief(client, joined)
        client._reopen()


def _restore_in_step(client: recps.Client, step: int,
                     joined: recps.Started) -> None:
    """A deterministic job: its next step is when all are here."""
    _sync.flush()
    client.step_end(_own_step(client) + 1)
    if client.is_chief:
        client.restore(step, mode="sync", replicas=client.replicas)
        began = client.join()
    else:
        began = _next_epoch(client, joined)
        client._reopen()
    _sync.restored(began.step)


def leave(client: recps.Client) -> None:
    """The end of this worker's part; the chief waits for all others."""
    _sync.settle()
    if client._joined is not None:
        client.step_end(_own_step(client) + 1, leave=True)
        client._joined = None


def _own_step(client: recps.Client) -> int:
    """The last that this worker has ended."""
    members, _ = _state_of(client)
    return int(members[client.rank]["step"])


def _next_epoch(client: recps.Client,
                joined: recps.Started) -> recps.Started:
    """The chief begins the job again."""
    patience = _Patience(client)
    while True:
        began = client.join()
        if began.epoch != joined.epoch:
            return began
        patience.wait("the chief")


def _state_of(client: recps.Client) -> tuple[list[typing.Any], bool]:
    """Members as PS 0 has them, and has a job started there?"""
    stat = json.loads(client._text_of("rps_stat", 0))
    return stat["members"], bool(stat["job"]["started"])


def _missing(client: recps.Client, joined: recps.Started | None
             ) -> list[int]:
    """Ranks that have not come."""
    members, started = _state_of(client)

    def is_here(rank: int) -> bool:
        if rank >= len(members):
            return False
        member = members[rank]
        if not started:
            return bool(member["joined"])
        return bool(member["restarting"]) or (
            joined is not None and member["step"] > joined.step)

    return [rank for rank in range(1, client.replicas) if not is_here(rank)]


class _Patience:
    """A wait that says for whom, and ends."""

    def __init__(self, client: recps.Client) -> None:
        self._limit = client._options.milliseconds(
            "connect_timeout", 300.0) / 1000
        self._since = time.monotonic()
        self._told = self._since

    def wait(self, for_whom: str) -> None:
        now = time.monotonic()
        if now - self._since > self._limit:
            raise recps.TimedOutError(
                f"load: waited {self._limit:.0f} s for {for_whom}; every "
                "worker of the job calls load() (connect_timeout is the "
                "limit)")
        if now - self._told >= REPORT_S:
            self._told = now
            log.warning("load: waits for %s", for_whom)
        time.sleep(POLL_S)


def _await_others(client: recps.Client,
                  joined: recps.Started | None) -> None:
    patience = _Patience(client)
    while True:
        missing = _missing(client, joined)
        if not missing:
            return
        ranks = ", ".join(map(str, missing))
        patience.wait(f"rank {ranks} of {client.replicas}")


def _await_chief(client: recps.Client,
                 joined: recps.Started | None) -> None:
    if joined is None:
        client.join()
        return
    client.step_end(_own_step(client) + 1)  # it is seen there
    _next_epoch(client, joined)
