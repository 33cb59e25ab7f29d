# SPDX-License-Identifier: Apache-2.0
"""A click model that trains in a minute, tables in this process.

``python -m recps.demo``: users and items have a row each, which say by their
product whether a user clicks. The data is made from hidden tastes, so there is
something to learn; the loss falls, and AUC is measured on clicks that were not
trained on. Then the tables are saved, restored and read with NumPy.

With TF_CONFIG, ``recps launch`` or the flags ``--ps_hosts``, ``--worker_hosts``,
``--job_name`` and ``--task_index`` it trains through servers; as a ps it is one.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import typing

import numpy
from numpy import typing as npt

import recps
from recps import checkpoint

__all__ = ["main", "train"]

Floats = npt.NDArray[numpy.float64]
Ids = npt.NDArray[numpy.int64]

USERS, ITEMS, TASTES = 2000, 1000, 4
DIM = 8
BATCH = 512


class Clicks:
    """Who saw what, and clicked: by hidden tastes, with noise."""

    def __init__(self, seed: int) -> None:
        self._draw = numpy.random.default_rng(seed)
        self._users = self._draw.normal(size=(USERS, TASTES))
        self._items = self._draw.normal(size=(ITEMS, TASTES))

    def batch(self, size: int) -> tuple[Ids, Ids, Floats]:
        """Users, items (ids as other systems give them: large), clicks."""
        user = self._draw.integers(0, USERS, size)
        item = self._draw.integers(0, ITEMS, size)
        logits = 2 * (self._users[user] * self._items[item]).sum(1)
        clicks = self._draw.random(size) < 1 / (1 + numpy.exp(-logits))
        return user * 2654435761, item * 40503 - 7, clicks.astype(float)


def auc_of(labels: Floats, scores: Floats) -> float:
    """Area under the ROC curve; ties count half."""
    _, place, counts = numpy.unique(scores, return_inverse=True,
                                    return_counts=True)
    ranks = (numpy.cumsum(counts) - (counts - 1) / 2)[place]
    ones = labels.sum()
    zeros = labels.size - ones
    rank_sum = float(ranks[labels == 1].sum())
    return float((rank_sum - ones * (ones + 1) / 2) / (ones * zeros))


def _loss_of(labels: Floats, logits: Floats) -> float:
    return float(numpy.mean(numpy.logaddexp(0, logits) - labels * logits))


def train(client: recps.Client, steps: int,
          say: typing.Callable[[str], None]) -> tuple[float, float, float]:
    """First loss, last loss (means of 20 steps), AUC on new clicks."""
    users = client.get_embedding_table(
        "demo_user", DIM, device_vocabulary_size=USERS,
        optimizer=recps.Adagrad(0.1), initializer=recps.Normal(0, 0.2))
    items = client.get_embedding_table(
        "demo_item", DIM, device_vocabulary_size=ITEMS,
        optimizer=recps.Adagrad(0.1), initializer=recps.Normal(0, 0.2))
    clicks = Clicks(seed=1)
    losses = []
    for step in range(1, steps + 1):
        user, item, labels = clicks.batch(BATCH)
        u, v = recps.lookup_tables(
            [recps.Lookup(users, user), recps.Lookup(items, item)])
        logits = numpy.einsum("ij,ij->i", u, v).astype(float)
        # d(loss)/d(logit) of each click, then to each side of the product
        errors = (1 / (1 + numpy.exp(-logits)) - labels)[:, None]
        recps.push_tables([
            recps.Push(users, user, (errors * v).astype(numpy.float32)),
            recps.Push(items, item, (errors * u).astype(numpy.float32))])
        losses.append(_loss_of(labels, logits))
        if step == 1 or step % max(1, steps // 10) == 0:
            say(f"step {step}: loss {numpy.mean(losses[-20:]):.4f}")
    user, item, labels = clicks.batch(20 * BATCH)
    scores = numpy.einsum("ij,ij->i", users.lookup(user, read_only=True),
                          items.lookup(item, read_only=True)).astype(float)
    return (float(numpy.mean(losses[:20])), float(numpy.mean(losses[-20:])),
            auc_of(labels, scores))


def _keep(client: recps.Client, steps: int, folder: str,
          say: typing.Callable[[str], None]) -> None:
    saved = client.save(steps)
    say(f"saved step {saved.step}: {saved.rows} rows, {saved.bytes} bytes")
    client.restore()
    table = checkpoint.open_newest(folder).table("demo_user")
    say(f"read with NumPy: {len(table)} rows of {table.dimension} users, "
        f"{table.parts[0].rows.dtype}, mapped from the file")


def main(arguments: list[str] | None = None) -> int:
    """The program; 0: the loss fell."""
    parser = argparse.ArgumentParser(
        prog="python -m recps.demo", description="train a small click model",
        parents=[recps.cluster_flags()])
    parser.add_argument("--steps", type=int, default=1500)
    given = parser.parse_args(arguments)
    cluster = recps.cluster_from_flags(given)
    role = recps.serve(cluster)  # a ps stays there
    with tempfile.TemporaryDirectory(prefix="recps-demo-") as folder:
        with recps.connect(cluster, checkpoint_dir=folder) as client:
            print(f"{client!r}, librecps from {recps.library_path}")
            first, last, auc = train(client, max(1, given.steps), print)
            if client.embedded:
                _keep(client, given.steps, folder, print)
            elif role.is_chief and role.replicas == 1:
                client.shutdown_servers()  # nobody else asks them
    print(f"loss {first:.4f} -> {last:.4f}, AUC {auc:.4f}")
    return 0 if last < first else 1


if __name__ == "__main__":
    sys.exit(main())
