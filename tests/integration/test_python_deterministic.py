# SPDX-License-Identifier: Apache-2.0
"""deterministic=1 in a job of several workers of mxrec: bits, sums, loads."""
import contextlib
import json
import os

import pytest

import package
import programs

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402

DIM, KEYS = 4, 60

#: Rows of two tables, which two optimizers train; a worker has every second
#: sample. A line a step: the loss, in bits.
SCRIPT = """
import sys
import recps.compat
import mxrec, numpy, tensorflow
tf = tensorflow.compat.v1
tf.disable_eager_execution()
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["deterministic"].i = 1
ids = tf.placeholder(tf.int64, [None, 3])
tables = [mxrec.get_embedding_table(name, 4, 60, tf.random_normal_initializer(
    stddev=0.3, seed=3)) for name in ("user", "item")]
embs = [mxrec.embedding_lookup(tables[0], ids),
        mxrec.embedding_lookup(tables[1], ids),
        mxrec.embedding_lookup(tables[0], ids[:, :2] + 1)]
wanted = tf.sin(tf.cast(ids[:, 0], tf.float32))
x = tf.reduce_sum(embs[0] * embs[1], [1, 2]) + tf.reduce_sum(embs[2], [1, 2])
loss = tf.reduce_sum(tf.square(x - wanted)) / 32
adamw = [mxrec.AdamWOptimizer(0.05, name=each) for each in "ab"]
grads = tf.gradients(loss, embs)
train = [adamw[0].apply_gradients([(grads[0], embs[0]), (grads[2], embs[2])]),
         adamw[1].apply_gradients([(grads[1], embs[1])])]
saver = mxrec.EmbeddingTableSaver(tables)
with tf.Session(config=config) as session:
    client = recps.compat.client()
    def steps(first, last):
        for step in range(first, last):
            batch = numpy.random.default_rng(step).integers(0, 60, (32, 3))
            mine = batch[client.rank::client.replicas]
            value = session.run([loss, *train[::-1 if step % 2 else 1]],
                                {ids: mine})[0]
            print("loss", float(value).hex(), flush=True)
    steps(0, 10)
    saver.save(session, sys.argv[1], 3)
    steps(10, 20)
    for table in tables:
        print("rows", table.table.lookup(range(60)).tobytes().hex())
    if not client.embedded:
        saver.load(session, sys.argv[1], 3)
        print("again")
        steps(10, 20)
    print("size", tables[0].size(), flush=True)
    recps.compat.leave()
    if client.is_chief and not client.embedded:
        client.shutdown_servers()
"""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def run_job(folder, servers, workers=2, script=SCRIPT, code=0):
    """What each worker says, all of it."""
    cluster = {"ps": package.free_addresses(servers),
               "worker": [f"localhost:{i + 1}" for i in range(workers)]}

    def task(kind, index):
        return {"TF_CONFIG": json.dumps({
            "cluster": cluster, "task": {"type": kind, "index": index}})}

    with contextlib.ExitStack() as stack:
        for index in range(servers):
            stack.enter_context(programs.Recpsd(
                "--checkpoint-dir", str(folder / "ck"), bind=None,
                env=task("ps", index)))
        jobs = [package.start(script, folder / "saved", **QUIET,
                              **task("worker", index))
                for index in range(workers)]
        for job in jobs:
            stack.callback(job.kill)
        said = [job.communicate(timeout=240)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [code] * workers, (
        "\n".join(said))
    return said


def told(said):
    """The script's own lines, of each worker."""
    return [[line for line in text.splitlines() if line.split(" ")[0] in
             ("loss", "rows", "again", "size")] for text in said]


def rows_in(lines):
    return [numpy.frombuffer(bytes.fromhex(line.split()[1]), "f4")
            for line in lines if line.startswith("rows")]


def losses_in(lines):
    return numpy.array([float.fromhex(line.split()[1]) for line in lines
                        if line.startswith("loss")])


def test_workers_of_a_deterministic_job_have_one_set_of_bits(tmp_path):
    for name in "two", "one":
        (tmp_path / name).mkdir()
    two = told(run_job(tmp_path / "two", 2))
    one = told(run_job(tmp_path / "one", 1))
    assert two == one  # losses and rows, whatever the number of servers
    first, second = two
    assert rows_in(first)[0].tolist() == rows_in(second)[0].tolist()
    for lines in two:
        assert len(lines) == 20 + 2 + 1 + 10 + 1
        # from a checkpoint the steps are what they were
        assert lines[23:33] == lines[10:20]
    # as one worker that has the whole batch
    alone = package.run(SCRIPT, tmp_path / "alone", timeout=120,
                        **QUIET).splitlines()
    numpy.testing.assert_allclose(
        (losses_in(first) + losses_in(second))[:20], losses_in(alone),
        rtol=1e-4, atol=1e-5)
    for theirs, ours in zip(rows_in(alone), rows_in(first)):
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_a_table_without_the_sparse_optimizer_is_refused(tmp_path):
    script = SCRIPT.replace(
        "stddev=0.3, seed=3))", "stddev=0.3, seed=3), optimizer='sgd')").split(
            "adamw =")[0] + """
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    session.run(train, {ids: [[1, 2, 3]]})
"""
    for text in run_job(tmp_path, 1, script=script, code=1):
        assert "an AdamWOptimizer trains every table" in text


@pytest.mark.long
def test_workers_that_run_other_optimizers_are_told(tmp_path):
    script = SCRIPT.replace("*train[::-1 if step % 2 else 1]",
                            "train[client.rank if step == 5 else 0]")
    assert script != SCRIPT
    for text in run_job(tmp_path, 1, script=script, code=1):
        assert "step 6: workers are at different optimizers" in text
