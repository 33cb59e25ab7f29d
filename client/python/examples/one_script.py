# SPDX-License-Identifier: Apache-2.0
"""One script for every process of a job: servers, chief, workers, evaluator.

    H="--ps_hosts=h1:2222,h2:2222 --chief_hosts=h1:2223"
    H="$H --worker_hosts=h2:2223 --evaluator_hosts=h1:2231"
    python one_script.py $H --job_name=ps --task_index=0
    python one_script.py $H --job_name=ps --task_index=1
    python one_script.py $H --job_name=chief --task_index=0
    python one_script.py $H --job_name=worker --task_index=0
    python one_script.py $H --job_name=evaluator --task_index=0

TF_CONFIG says the same; with neither it trains alone, tables in the process.
The model is a logistic regression of clicks: a weight a word, all of them in
one table, whose optimizer runs on the servers.
"""
from __future__ import annotations

import argparse
import pathlib

import numpy
from numpy import typing as npt

import recps
from recps import checkpoint

Floats = npt.NDArray[numpy.float64]
Ids = npt.NDArray[numpy.int64]

WORDS, WORDS_EACH = 300, 5
RATE = 20.0


def batch_of(step: int, size: int) -> tuple[Ids, Floats]:
    """Words of each sample, clicks: the same in every process. Step 0 is what
    is evaluated and never trained on."""
    truth = numpy.random.default_rng(0).normal(size=WORDS)
    draw = numpy.random.default_rng([1, step])
    words = draw.integers(0, WORDS, (size, WORDS_EACH))
    chance = 1 / (1 + numpy.exp(-truth[words].sum(1)))
    return words, (draw.random(size) < chance).astype(float)


def loss_of(logits: Floats, clicks: Floats) -> float:
    """Mean log loss."""
    return float(numpy.mean(numpy.logaddexp(0, logits) - clicks * logits))


def train(client: recps.Client, given: argparse.Namespace) -> None:
    """Chief and workers: each takes its samples of every batch, the servers
    add their gradients up, and a step is a step of the whole batch."""
    if client.is_chief:
        client.begin(mode="sync", combine="sum")
    started = client.join()
    weights = client.get_embedding_table(
        "weights", 1, device_vocabulary_size=WORDS, initializer="zeros",
        optimizer=recps.SGD(RATE))
    for step in range(started.step + 1, given.steps + 1):
        words, clicks = batch_of(step, given.batch)
        words = words[client.rank::client.replicas]
        clicks = clicks[client.rank::client.replicas]

        logits = weights.lookup(words).astype(float).sum((1, 2))
        errors = (1 / (1 + numpy.exp(-logits)) - clicks) / given.batch
        gradients = numpy.repeat(errors, WORDS_EACH).astype(numpy.float32)
        weights.push(words, gradients.reshape(*words.shape, 1), step=step)

        client.step_end(step, loss_of(logits, clicks))
        if client.is_chief and (step % given.save_steps == 0
                                or step == given.steps):
            client.apply()  # this step is in what is saved
            client.save(step)
    if client.is_chief:
        client.shutdown_servers()  # the job's end: servers exit with 0
    print(f"{client.role} {client.rank}: done", flush=True)


def evaluate_newest(folder: pathlib.Path, done: int, samples: int) -> int:
    """The newest checkpoint, if it is another than ``done``; its step."""
    steps = checkpoint.steps_of(folder) if folder.is_dir() else []
    if not steps or steps[-1] <= done:
        return done
    saved = checkpoint.open_newest(folder)
    words, clicks = batch_of(0, samples)
    logits = saved.table("weights").rows_of(words).astype(float).sum((1, 2))
    print(f"step {saved.step}: log loss {loss_of(logits, clicks):.6f}",
          flush=True)
    return saved.step


def evaluate(client: recps.Client, given: argparse.Namespace) -> None:
    """Evaluator: every checkpoint that it meets, the last one certainly."""
    done, ended = 0, False
    while not ended:
        ended = client.await_end(timeout=0.1)
        done = evaluate_newest(given.checkpoint_dir, done, 4 * given.batch)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(parents=[recps.cluster_flags()])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--save_steps", type=int, default=30)
    parser.add_argument("--checkpoint_dir", type=pathlib.Path,
                        default=pathlib.Path("one-script-checkpoints"),
                        help="a folder that servers and evaluator share")
    given = parser.parse_args()

    cluster = recps.cluster_from_flags(given)
    role = recps.serve(cluster, checkpoint_dir=given.checkpoint_dir)
    # a server does not come here: it is recpsd now
    with recps.connect(cluster, checkpoint_dir=given.checkpoint_dir) as client:
        if role.name == "evaluator":
            evaluate(client, given)
        else:
            train(client, given)
            if client.embedded:
                evaluate_newest(given.checkpoint_dir, 0, 4 * given.batch)


if __name__ == "__main__":
    main()
