# SPDX-License-Identifier: Apache-2.0
"""mxrec and TensorFlow sessions: one script for every process of a job.

    H="--ps_hosts=h1:2222,h2:2222 --worker_hosts=h1:2223,h2:2223"
    H="$H --evaluator_hosts=h1:2231"
    python mxrec_script.py $H --job_name=ps --task_index=0
    python mxrec_script.py $H --job_name=ps --task_index=1
    python mxrec_script.py $H --job_name=worker --task_index=1
    python mxrec_script.py $H --job_name=evaluator --task_index=0
    python mxrec_script.py $H --job_name=worker --task_index=0   # the chief

TF_CONFIG says the same; with neither it trains alone. The model is a logistic
regression of clicks: a weight a word, all of them in one table.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import typing

import numpy

import recps
import recps.compat

WORDS, WORDS_EACH = 300, 5


def batch_of(step: int, size: int) -> tuple[typing.Any, typing.Any]:
    """Words of each sample, clicks: the same in every process. Step 0 is what
    is evaluated and never trained on."""
    truth = numpy.random.default_rng(0).normal(size=WORDS)
    draw = numpy.random.default_rng([1, step])
    words = draw.integers(0, WORDS, (size, WORDS_EACH))
    chance = 1 / (1 + numpy.exp(-truth[words].sum(1)))
    return words, (draw.random(size) < chance).astype("f4")


class Model:
    """Of every role: its graph, its table, its saver."""

    def __init__(self) -> None:
        import mxrec
        import tensorflow as tf
        self.words = tf.compat.v1.placeholder(tf.int64, [None, WORDS_EACH])
        self.clicks = tf.compat.v1.placeholder(tf.float32, [None])
        self.table = mxrec.get_embedding_table(
            "weights", 1, WORDS, tf.compat.v1.zeros_initializer)
        rows = mxrec.embedding_lookup(self.table, self.words)
        self.loss = tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(
                self.clicks, tf.reduce_sum(rows, [1, 2])))
        embs = mxrec.get_sparse_embedding()
        adamw = mxrec.AdamWOptimizer(0.02, weight_decay=0.0)
        self.train = adamw.apply_gradients(
            zip(tf.gradients(self.loss, embs), embs))
        self.saver = mxrec.EmbeddingTableSaver([self.table])
        self.session = tf.compat.v1.Session()
        self.session.run(tf.compat.v1.global_variables_initializer())

    def run(self, what: typing.Any, step: int, size: int, first: int = 0,
            each: int = 1) -> typing.Any:
        """One batch, or every each-th sample of it."""
        words, clicks = batch_of(step, size)
        return self.session.run(what, {self.words: words[first::each],
                                       self.clicks: clicks[first::each]})


def train(model: Model, given: argparse.Namespace) -> None:
    """Chief and workers: each takes its samples of every batch."""
    client = recps.compat.client()
    if not client.embedded:
        if client.is_chief:
            client.begin()
        client.join()  # waits for all of them
    for step in range(1, given.steps + 1):
        model.run([model.loss, model.train], step, given.batch, client.rank,
                  client.replicas)
        if step % given.save_steps == 0:
            model.saver.save(model.session, given.save_path, step)  # chief
    recps.compat.leave()  # the chief waits for all of them
    model.saver.save(model.session, given.save_path, given.steps + 1)
    if client.is_chief and not client.embedded:
        client.shutdown_servers()
    print(f"{client.role} {client.rank}: done", flush=True)


def newest_step(folder: pathlib.Path) -> int:
    """Of what a saver has left in its save_path; 0: nothing."""
    names = os.listdir(folder) if folder.is_dir() else []
    found = [re.fullmatch(r"recps-(\d+)\.json", name) for name in names]
    return max((int(each[1]) for each in found if each), default=0)


def evaluate(model: Model, given: argparse.Namespace) -> None:
    """Evaluator: each checkpoint that it meets, the last one certainly."""
    client, done, ended = recps.compat.client(), 0, False
    while not ended:
        ended = client.await_end(timeout=0.1)
        step = newest_step(given.save_path)
        if step > done:
            done = step
            model.saver.load(model.session, given.save_path, step)
            loss = model.run(model.loss, 0, 4 * given.batch)
            print(f"step {step}: log loss {loss:.6f}, {model.table.size()} "
                  "rows", flush=True)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(parents=[recps.cluster_flags()])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--save_steps", type=int, default=50)
    parser.add_argument("--save_path", type=pathlib.Path,
                        default=pathlib.Path("mxrec-saved"),
                        help="a folder that chief and evaluator share")
    parser.add_argument("--checkpoint_dir", type=pathlib.Path,
                        default=pathlib.Path("mxrec-checkpoints"),
                        help="the servers' own; the evaluator reads it")
    given = parser.parse_args()

    cluster = recps.cluster_from_flags(given)
    if cluster:
        os.environ["TF_CONFIG"] = json.dumps(cluster)
    role = recps.serve(checkpoint_dir=given.checkpoint_dir.absolute())
    # a server does not come here: it is recpsd now
    model = Model()
    if role.name == "evaluator":
        evaluate(model, given)
    else:
        train(model, given)


if __name__ == "__main__":
    import tensorflow
    tensorflow.compat.v1.disable_eager_execution()
    main()
