# SPDX-License-Identifier: Apache-2.0
"""recps.tensorflow and recps.compat against tf.Variable, by TensorFlow."""
import contextlib
import inspect
import json
import logging
import os
import re
import signal
import subprocess
import sys
import types
import warnings

import pytest

import package
import programs

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import recps.tensorflow  # noqa: E402
import mxrec  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

v1 = tf.compat.v1
DIM, KEYS, FIELDS = 8, 200, 5
counter = iter(range(10**6))


@pytest.fixture(scope="module")
def servers():
    with package.two_servers() as task:
        yield task


@pytest.fixture(params=["embedded", "two servers"])
def client(request):
    if request.param == "embedded":
        made = recps.connect("embedded")
    else:
        made = recps.connect(request.getfixturevalue("servers"),
                             connect_timeout=20)
    with made:
        yield made


@pytest.fixture
def rec():
    """mxrec of a process that has no table yet; in this process."""
    _tables.forget()
    yield mxrec
    _tables.forget()


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        v1.set_random_seed(1)
        yield made


def layer(client, dim=DIM, **more):
    more.setdefault("optimizer", recps.SGD(0.5))
    return recps.tensorflow.EmbeddingTable(f"t{next(counter)}", dim,
                                           client=client, **more)


def first_rows():
    return numpy.random.default_rng(5).uniform(
        -0.05, 0.05, (KEYS, DIM)).astype("f4")


def batches(steps=30, size=32, seed=4):
    draw = numpy.random.default_rng(seed)
    taste = draw.normal(size=KEYS)
    for _ in range(steps):
        ids = numpy.minimum(draw.zipf(1.3, (size, FIELDS)), KEYS) - 1
        yield ids, (taste[ids].sum(1) > 0).astype("f4")


class Top:
    """What is dense of the models below, from the same start."""

    def __init__(self, variable=tf.Variable):
        draw = numpy.random.default_rng(6)
        self.weights = [
            variable(draw.normal(0, 0.3, (FIELDS * DIM, 8)).astype("f4")),
            variable(draw.normal(0, 0.3, (8, 1)).astype("f4"))]

    def loss(self, rows, labels):
        flat = tf.reshape(rows, [-1, FIELDS * DIM])
        hidden = tf.nn.relu(flat @ self.weights[0])
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
            labels, (hidden @ self.weights[1])[:, 0]))


# --- eager ------------------------------------------------------------------


def eager_losses(look_up, more=(), after=lambda: None, compiled=False):
    """Of SGD over the dense part, and more variables."""
    top, losses = Top(), []

    def step(ids, labels):
        with tf.GradientTape() as tape:
            loss = top.loss(look_up(ids), labels)
        variables = [*top.weights, *more]
        for gradient, variable in zip(tape.gradient(loss, variables),
                                      variables):
            variable.assign_sub(0.5 * tf.convert_to_tensor(gradient))
        return loss

    run = tf.function(step) if compiled else step
    for ids, labels in batches():
        losses.append(float(run(tf.constant(ids), tf.constant(labels))))
        after()
    return losses


@pytest.fixture(scope="module")
def wanted():
    """By a variable that holds the rows."""
    table = tf.Variable(first_rows())
    losses = eager_losses(lambda ids: tf.nn.embedding_lookup(table, ids),
                          [table])
    assert losses[-1] < losses[0]
    return losses, table.numpy()


@pytest.mark.parametrize("push", ["backward", "step"])
@pytest.mark.parametrize("compiled", [False, True])
def test_eager_trains_as_with_a_variable(client, wanted, push, compiled):
    mine = layer(client, push=push)
    mine.assign(numpy.arange(KEYS), first_rows())
    found = eager_losses(mine, compiled=compiled, after=lambda: (
        recps.tensorflow.push_gradients([mine])))
    numpy.testing.assert_allclose(found, wanted[0], atol=1e-5)
    mine.wait()
    numpy.testing.assert_allclose(mine.table.lookup(numpy.arange(KEYS)),
                                  wanted[1], atol=1e-5)


def test_keras_fits_a_model_that_has_one(client):
    tf.keras.utils.set_random_seed(1)
    mine = layer(client, optimizer=recps.Adagrad(0.1))
    model = tf.keras.Sequential([
        tf.keras.Input((FIELDS,), dtype=tf.int64), mine,
        tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
    ids, labels = (numpy.concatenate(part) for part in zip(*batches()))
    model.compile("adam", tf.keras.losses.BinaryCrossentropy(True))
    history = model.fit(ids, labels, 64, epochs=10, verbose=0).history["loss"]
    assert history[-1] < 0.8 * history[0]
    mine.wait()
    assert len(mine.table) == numpy.unique(ids).size
    assert mine.anchor.numpy() == 0
    model.predict(ids[:1] + 10**9, verbose=0)
    assert len(mine.table) == numpy.unique(ids).size


def test_lookups_of_a_step_are_summed_or_pushed_each(client):
    for push, rows in ("backward", -3.0), ("step", -3.0), ("apply", 0.0):
        mine = layer(client, push=push, optimizer=recps.SGD(1.0),
                     initializer="zeros")
        with tf.GradientTape() as tape:
            first, second = mine([1, 2]), mine([[2]])
            loss = tf.reduce_sum(first) + 2 * tf.reduce_sum(second)
        tape.gradient(loss, mine.trainable_weights)
        if push == "step":
            mine.wait()
            assert (mine([1, 2]).numpy() == 0).all()
            recps.tensorflow.push_gradients([mine])
        assert mine([2]).numpy().tolist() == [[rows] * DIM]
    # Adagrad tells one step of a sum from two
    mine = layer(client, push="apply", initializer="zeros",
                 optimizer=recps.Adagrad(1.0, initial_accumulator=0.1))
    with tf.GradientTape() as tape:
        both = [mine([1, 2]), mine([[2]])]
        loss = tf.reduce_sum(both[0]) + 2 * tf.reduce_sum(both[1])
    grads = tape.gradient(loss, both)
    assert recps.tensorflow.apply_gradients(zip(grads, both)) is None
    numpy.testing.assert_allclose(mine([2])[0], -3 / 9.1**0.5, rtol=1e-6)
    recps.tensorflow.apply_gradients(zip(grads, both), learning_rate=0.0)
    numpy.testing.assert_allclose(mine([2])[0], -3 / 9.1**0.5, rtol=1e-6)


def test_what_is_watched_is_pushed_once_a_gradient(client):
    mine = layer(client, optimizer=recps.SGD(1.0), initializer="zeros")
    for watch, times, wanted in (
            (None, 1, 0.0), (mine.anchor, 1, -1.0), (mine.anchor, 2, -3.0)):
        with tf.GradientTape(times > 1, False) as tape:
            if watch is not None:
                tape.watch(watch)
            loss = tf.reduce_sum(mine([1]))
        for _ in range(times):
            tape.gradient(loss, [])
        assert mine([1]).numpy().tolist() == [[wanted] * DIM]


def test_padding_evaluation_rates_and_scale(client):
    mine = layer(client, padding_id=0, initializer=recps.Constant(0.5),
                 optimizer=recps.SGD(1.0), gradient_scale=0.5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(mine([0, 7]))
    tape.gradient(loss, [mine.anchor])
    assert mine([0, 7]).numpy().tolist() == [[0.0] * DIM, [0.0] * DIM]
    assert mine([7, 8], training=False).numpy().sum() == 0
    mine.learning_rate = 0.25
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(mine(numpy.array([7])))
    tape.gradient(loss, [])
    assert mine([7]).numpy().tolist() == [[-0.125] * DIM]
    assert len(mine.table) == 1


def test_request_timeout_ends_a_step_on_a_server_that_stops(recpsd):
    with recps.connect(package.cluster_of(recpsd), connect_timeout=20,
                       request_timeout=1) as client:
        mine = layer(client, optimizer=recps.SGD(1.0), initializer="zeros")
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(mine([5]))
        programs.stop(recpsd.process)
        try:
            with pytest.raises(recps.TimedOutError, match="request_timeout"):
                mine([5])
            tape.gradient(loss, [mine.anchor])
            with pytest.raises(recps.TimedOutError):
                mine.wait()
        finally:
            recpsd.process.send_signal(signal.SIGCONT)
        # the push had been sent
        assert mine([5]).numpy().tolist() == [[-1.0] * DIM]


def test_a_session_s_run_ends_on_a_server_that_stops(recpsd, rec, graph,
                                                     monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(
        package.cluster_of(recpsd, chief=True)))
    monkeypatch.setenv("RECPS_REQUEST_TIMEOUT", "1")
    table = rec.get_embedding_table("stops", 4, 10, optimizer="sgd",
                                    initializer=tf.zeros_initializer)
    rows = rec.embedding_lookup(table, tf.constant([1]))
    ready = rec.get_init_hashtable_op()
    with v1.Session(graph=graph) as session:
        session.run(ready)
        session.run(rows)
        programs.stop(recpsd.process)
        try:
            with pytest.raises(tf.errors.OpError, match="request_timeout"):
                session.run(rows)
        finally:
            recpsd.process.send_signal(signal.SIGCONT)
        assert session.run(rows).tolist() == [[0.0] * 4]


def test_gradients_of_one_layer_are_pushed(client):
    mine = layer(client, push="step", initializer="zeros",
                 optimizer=recps.SGD(1.0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(mine([4]))
    tape.gradient(loss, [mine.anchor])
    recps.tensorflow.push_gradients(mine)
    assert (mine([4]).numpy() == -1).all()


@pytest.mark.parametrize("combiner", [None, "sum"])
@pytest.mark.parametrize("push", ["backward", "step"])
def test_a_frozen_layer_is_not_pushed_to(client, push, combiner):
    mine = layer(client, push=push, combiner=combiner)
    weight = tf.Variable(tf.ones([DIM]))
    model = tf.keras.Sequential([mine, tf.keras.layers.Dense(1)])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(mine([[4, 5]]) * weight)
        assert tape.gradient(loss, weight) is not None
        recps.tensorflow.push_gradients(model)

    model([[4, 5]])
    model.trainable = False
    step()
    model.compile("sgd", "mse")
    model.fit(numpy.array([[4, 5]]), numpy.zeros((1, 1)), verbose=0)
    mine.wait()
    assert len(mine.table) == 0
    model.trainable = True
    step()
    mine.wait()
    assert len(mine.table) == 2


def test_numbers_of_a_layer_are_checked_when_they_are_set(client):
    mine = layer(client)
    for bad in (-1, float("nan"), float("inf"), "x", tf.Variable(0.1)):
        with pytest.raises((TypeError, ValueError), match="learning_rate"):
            mine.learning_rate = bad
    for bad in (float("nan"), float("-inf"), "x"):
        with pytest.raises((TypeError, ValueError), match="gradient_scale"):
            layer(client, gradient_scale=bad)
        with pytest.raises((TypeError, ValueError), match="gradient_scale"):
            mine.gradient_scale = bad
    assert mine.learning_rate is None and mine.gradient_scale == 1.0


def test_a_catchup_that_counts_no_steps_is_said(client):
    with pytest.warns(UserWarning, match="adamw_catchup.*step=s"):
        layer(client, optimizer=recps.AdamW(catchup=True))


def test_what_is_wrong_is_said(client):
    mine = layer(client)
    with pytest.raises(TypeError, match="float32"):
        mine(tf.constant([1.0]))
    with pytest.raises(ValueError, match="backward, step, apply"):
        layer(client, push="never")
    with pytest.raises(ValueError, match="no gradient"):
        recps.tensorflow.apply_gradients([(None, mine([1]))])
    with pytest.raises(TypeError, match="lookup"):
        recps.tensorflow.apply_gradients([(tf.ones(1), tf.ones(1))])
    client.close()
    with pytest.raises(recps.ClosedError):
        mine([1])


# --- sessions ---------------------------------------------------------------


def session_losses(make_rows, optimizer=None):
    """make_rows is called in the graph; minimize() is all that trains."""
    ids = v1.placeholder(tf.int64, [None, FIELDS])
    labels = v1.placeholder(tf.float32, [None])
    loss = Top(lambda first: v1.get_variable(
        f"w{first.shape[1]}", initializer=first)).loss(make_rows(ids), labels)
    train = (optimizer or v1.train.GradientDescentOptimizer(0.5)).minimize(
        loss)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        v1.get_default_graph().finalize()
        return [session.run([loss, train], {ids: i, labels: l})[0]
                for i, l in batches()]


def test_a_session_trains_as_with_a_variable(client, graph, wanted):
    mine = layer(client)
    mine.assign(numpy.arange(KEYS), first_rows())
    numpy.testing.assert_allclose(session_losses(mine), wanted[0], atol=1e-5)
    mine.wait()
    numpy.testing.assert_allclose(mine.table.lookup(numpy.arange(KEYS)),
                                  wanted[1], atol=1e-5)


def test_a_failure_in_a_session_carries_the_words(client, graph):
    mine = layer(client)
    rows = mine(v1.placeholder_with_default([1], [None]))
    client.close()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.OpError, match="client is closed"):
            session.run(rows)


# --- mxrec ------------------------------------------------------------------


def test_two_lines_of_the_guide_are_all_that_a_model_needs(rec, wanted):
    def rows_of_a_variable(ids):
        table = v1.get_variable("user", initializer=first_rows())
        return tf.nn.embedding_lookup(table, ids)

    def rows_of_mxrec(ids):
        table = rec.get_embedding_table("user", DIM, KEYS,
                                        optimizer=recps.SGD(0.5))
        table.table.assign(numpy.arange(KEYS), first_rows())
        return rec.embedding_lookup(table, ids)

    with tf.Graph().as_default():
        theirs = session_losses(rows_of_a_variable)
    with tf.Graph().as_default():
        ours = session_losses(rows_of_mxrec)
    numpy.testing.assert_allclose(ours, theirs, atol=1e-5)
    numpy.testing.assert_allclose(
        ours, eager_losses(mxrec_again(rec)), atol=1e-5)


def mxrec_again(rec):
    table = rec.get_embedding_table("user2", DIM, KEYS,
                                    optimizer=recps.SGD(0.5))
    table.table.assign(numpy.arange(KEYS), first_rows())
    return lambda ids: rec.embedding_lookup(table, ids)


class AdamW:
    """Of one row, in float64, as docs/TABLE.md has it."""

    def __init__(self, row, lr, decay, b1, b2, eps):
        self.w, self.m, self.v, self.t = row.astype(float), 0.0, 0.0, 0
        self.by = lr, decay, b1, b2, eps

    def step(self, g):
        lr, decay, b1, b2, eps = self.by
        self.t += 1
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g * g
        m, v = self.m / (1 - b1**self.t), self.v / (1 - b2**self.t)
        self.w = self.w * (1 - lr * decay) - lr * m / (v**0.5 + eps)


@pytest.mark.parametrize("eager", [True, False])
def test_the_sparse_optimizer_takes_one_step_a_key(rec, eager):
    table = rec.get_embedding_table("user", DIM, KEYS)
    other = rec.get_embedding_table("item", DIM, KEYS)
    adamw = rec.AdamWOptimizer(learning_rate=0.1, weight_decay=0.1,
                               beta_1=0.8, beta_2=0.9, epsilon=1e-3)
    weights = numpy.arange(1, DIM + 1, dtype="f4")

    def loss_of(embs):
        return (tf.reduce_sum(embs[0] * weights) +
                2 * tf.reduce_sum(embs[1] * weights) +
                tf.reduce_sum(embs[2]))

    def lookups():
        return [rec.embedding_lookup(table, numpy.array([3, 3])),
                rec.embedding_lookup(table, numpy.array([[3]])),
                rec.embedding_lookup(other, numpy.array([3]))]

    if eager:
        first = [rows.numpy() for rows in lookups()]
        for _ in range(5):
            with tf.GradientTape() as tape:
                embs = lookups()
                for rows in embs:
                    tape.watch(rows)
                loss = loss_of(embs)
            adamw.apply_gradients(zip(tape.gradient(loss, embs), embs))
        last = [rows.numpy() for rows in lookups()]
    else:
        with tf.Graph().as_default(), v1.Session() as session:
            embs = lookups()
            assert [e.ref() for e in rec.get_sparse_embedding()] == [
                e.ref() for e in embs]
            loss = loss_of(embs)
            step = v1.train.create_global_step()
            train = adamw.apply_gradients(
                zip(tf.gradients(loss, embs), embs), global_step=step)
            dense = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            session.run(rec.get_init_hashtable_op())
            session.run(v1.global_variables_initializer())
            first = session.run(embs)
            for _ in range(5):
                session.run([train, dense])  # the anchors' is no second push
            assert session.run(step) == 5
            last = session.run(embs)
    assert table.table.optimizer == "adamw"
    for place, gradient in (0, 4 * weights), (2, numpy.ones(DIM)):
        model = AdamW(first[place].reshape(-1, DIM)[0], 0.1, 0.1, 0.8, 0.9,
                      1e-3)
        for _ in range(5):
            model.step(gradient)
        numpy.testing.assert_allclose(last[place].reshape(-1, DIM)[0],
                                      model.w, rtol=1e-4, atol=1e-5)
    assert table.size() == 1 and table.capacity() == KEYS


#: The guide's cluster of flags: each has its help, and is defined first. Every
#: role is this script.
FLAGS_SCRIPT = """
import json, os
import recps, recps.compat
import mxrec, numpy
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_string("ps_hosts", "192.168.1.100:2222,192.168.1.200:2222",
                    "parameter servers")
flags.DEFINE_string("worker_hosts", "192.168.1.100:2223", "workers")
flags.DEFINE_string("job_name", "", "One of ps, worker, evaluator, chief")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")

def train():
    import tensorflow as tf
    from npu_bridge.npu_init import get_rank_id, get_rank_size
    ids = numpy.arange(40)[get_rank_id()::get_rank_size()]
    table = mxrec.get_embedding_table("user", 4, 100)
    adamw = mxrec.AdamWOptimizer(0.05)
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        emb = mxrec.embedding_lookup(table, ids)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(emb, 1) - 1))
        embs = mxrec.get_sparse_embedding()
        train_op = adamw.apply_gradients(zip(tf.gradients(loss, embs), embs))
        sess.run(tf.compat.v1.global_variables_initializer())
        losses = [sess.run([loss, train_op])[0] for _ in range(60)]
    print("worker", get_rank_id(), "of", get_rank_size(),
          losses[-1] < 0.2 * losses[0], table.size() >= 20, flush=True)

def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": worker_hosts, "ps": ps_hosts},
        "task": {"type": FLAGS.job_name, "index": FLAGS.task_index}})
    recps.serve()  # a ps goes no further
    train()

app.run(main)
"""


@pytest.mark.long
def test_a_cluster_starts_from_the_guide_s_flags(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(FLAGS_SCRIPT)
    hosts = package.free_addresses(2), ["localhost:1", "localhost:2"]
    jobs = {}
    try:
        for job, index in (("ps", 0), ("ps", 1), ("worker", 0),
                           ("worker", 1)):
            jobs[job, index] = subprocess.Popen(
                [sys.executable, script, f"--ps_hosts={','.join(hosts[0])}",
                 f"--worker_hosts={','.join(hosts[1])}", f"--job_name={job}",
                 f"--task_index={index}"],
                env=package.environment(RECPS_RECPSD=str(programs.RECPSD),
                                        OMP_NUM_THREADS="1"),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for index in range(2):
            said, _ = jobs["worker", index].communicate(timeout=120)
            assert said == f"worker {index} of 2 True True\n"
        assert jobs["ps", 0].poll() is None
    finally:
        for process in jobs.values():
            process.kill()
            process.communicate()


def wrong(kind, words, call, *arguments, **more):
    with pytest.raises(kind, match=words):
        call(*arguments, **more)


def test_arguments_have_rec_sdk_s_ranges(rec, tmp_path):
    def get(**more):
        return rec.get_embedding_table(**{
            "name": "t", "dimension": 8, "device_vocabulary_size": 9, **more})

    wrong(TypeError, r"name: must be str, got int \(3\)", get, name=3)
    wrong(ValueError, "name: must have 1 to 128 characters, got 129", get,
          name="n" * 129)
    wrong(ValueError, "name.*got 'a b'", get, name="a b")
    wrong(ValueError, "dimension: must be 1 to 512, got 513", get,
          dimension=513)
    wrong(ValueError, "dimension: must be 1 to 512, got 0", get, dimension=0)
    wrong(TypeError, "dimension: must be int, got bool", get, dimension=True)
    wrong(TypeError, "dimension: must be int, got float", get, dimension=8.0)
    wrong(ValueError, "0 to 1000000000, got -1", get,
          device_vocabulary_size=-1)
    wrong(ValueError, "1 to 1000000000, got 0", get, device_vocabulary_size=0)
    wrong(ValueError, "1000000001", get, device_vocabulary_size=10**9 + 1)
    wrong(ValueError, "min_used_times: must be 0 to 2147483647", get,
          min_used_times=2**31)
    wrong(TypeError, "min_used_times", get, min_used_times=1.5)
    wrong(ValueError, "max_cold_secs: must be 0 to 18446744073709551615", get,
          max_cold_secs=2**64)
    wrong(ValueError, "max_cold_secs", get, max_cold_secs=-1)
    wrong(ValueError, "initializer", get, initializer=3)
    wrong(ValueError, "initializer", get,
          initializer=tf.keras.initializers.Orthogonal())
    wrong(ValueError, "key_dtype.*int64.*int32", get, key_dtype=tf.int32)
    wrong(ValueError, "value_dtype.*float32.*float16", get,
          value_dtype=tf.float16)
    wrong(ValueError, "MP, got 'DP'", get, distribution_strategy="DP")
    # the order in which they are checked
    wrong(ValueError, "min_used_times", get, device_vocabulary_size=0,
          min_used_times=-1)
    wrong(TypeError, "name", get, name=None, dimension=0)
    assert rec.get_existing_tables() == []
    get(dimension=512, name="n" * 128, min_used_times=0, max_cold_secs=0)
    wrong(TypeError, "emb_table", rec.embedding_lookup, "t", [1])
    wrong(TypeError, "integers", rec.embedding_lookup, get(), [1.0])
    wrong(RuntimeError, "eager", rec.get_sparse_embedding)

    adamw = rec.AdamWOptimizer
    for field, out in ("learning_rate", 10.1), ("weight_decay", -1), (
            "beta_1", 1.0), ("beta_2", 1), ("epsilon", 1.0):
        wrong(ValueError, rf"{field}: must be in \[0, .*got {out}", adamw,
              **{field: out})
        wrong(TypeError, f"{field}: must be float, got str", adamw,
              **{field: "1"})
    wrong(ValueError, "name: must have 1 to 128", adamw, name="")
    assert inspect.signature(adamw).parameters["epsilon"].default == 1e-8

    saver = rec.EmbeddingTableSaver
    wrong(TypeError, "emb_tables: must be list, got tuple", saver, (get(),))
    wrong(ValueError, "emb_tables.*none", saver, [])
    wrong(TypeError, "got str", saver, ["t"])
    saver = saver([get()])
    wrong(TypeError, "sess", saver.save, "session", str(tmp_path), 1)
    wrong(TypeError, "global_step: must be int", saver.save, None,
          str(tmp_path), 1.0)
    wrong(ValueError, "0 to 4294967295, got -1", saver.load, None,
          str(tmp_path), -1)
    wrong(ValueError, "save_path: must have 1 to 1024", saver.load, None,
          "p" * 1025, 1)


def test_what_a_server_cannot_hold_is_said_when_a_table_is_named(rec):
    with pytest.warns(UserWarning, match="2147483647 is taken as 65535"):
        table = rec.get_embedding_table("mu", 4, 10,
                                        min_used_times=2**31 - 1)
    with pytest.warns(UserWarning, match="4294967296 is taken as 4294967295"):
        other = rec.get_embedding_table("mc", 4, 10, max_cold_secs=2**32)
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        assert rec.get_embedding_table(
            "mu", 4, 10, min_used_times=2**31 - 1) is table
    wrong(ValueError, "name: must not start with a dot", rec
          .get_embedding_table, ".a", 4, 10)
    for each in (table, other):
        assert rec.embedding_lookup(each, tf.constant([1])).shape == (1, 4)


@pytest.mark.parametrize("first", ["lookup", "operation"])
def test_a_graph_that_looks_up_alone_needs_no_other_initializer(rec, graph,
                                                                first):
    table = rec.get_embedding_table("alone", 4, 10, optimizer="sgd",
                                    initializer=tf.zeros_initializer)
    if first == "operation":
        ready = rec.get_init_hashtable_op()
    rows = rec.embedding_lookup(table, tf.constant([1]))
    if first == "lookup":
        ready = rec.get_init_hashtable_op()
    with v1.Session(graph=graph) as session:
        session.run(ready)
        assert session.run(rows).tolist() == [[0.0] * 4]


def test_optimizers_and_tables_that_do_not_fit_are_refused(rec, caplog):
    table = rec.get_embedding_table("user", 4, 10)
    rows = rec.embedding_lookup(table, [1])
    first, second = rec.AdamWOptimizer(), rec.AdamWOptimizer()
    first.apply_gradients([(tf.ones_like(rows), rows)])
    wrong(EnvironmentError, "has exists", second.apply_gradients,
          [(tf.ones_like(rows), rows)])
    dense = tf.Variable([1.0])
    wrong(NotImplementedError, "sparse optimizer", first.apply_gradients,
          [(dense, dense)])
    with caplog.at_level(logging.WARNING, "mxrec"):
        assert rec.get_embedding_table("user", 8, 10) is table
    assert "another dimension" in caplog.text
    own = rec.get_embedding_table("own", 4, 10, optimizer="sgd")
    rows = rec.embedding_lookup(own, [1])
    wrong(EnvironmentError, "optimizer=", first.apply_gradients,
          [(tf.ones_like(rows), rows)])


def test_initializers_of_tensorflow_are_ours():
    of = _tables.initializer_of
    assert of(v1.random_normal_initializer) == (recps.Normal(0.0, 1.0), 0)
    assert of(v1.truncated_normal_initializer(-0.01, 0.01, 128)) == (
        recps.TruncatedNormal(-0.01, 0.01), 128)
    assert of(tf.random_uniform_initializer())[0] == recps.Uniform()
    assert of(v1.random_uniform_initializer())[0] == recps.Uniform(0.0, 1.0)
    assert of(tf.ones_initializer())[0] == recps.Constant(1.0)
    assert of(tf.zeros_initializer)[0] == recps.Zeros()
    assert of(tf.constant_initializer(2))[0] == recps.Constant(2.0)
    assert of(tf.keras.initializers.GlorotUniform())[0] == (
        recps.VarianceScaling(1.0, "fan_avg", "uniform"))
    assert of(v1.variance_scaling_initializer(
        2.0, "fan_avg", "untruncated_normal"))[0] == (
            recps.VarianceScaling(2.0, "fan_avg", "normal"))


def test_init_reads_the_toml(rec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "demo.toml"
    good = '[mxrec]\nlog_level = "INFO"\nuse_ranktable = false\n' \
           '[mxrec.cm-node-info]\ncm_chief_ip = "1.2.3.4"\n' \
           'cm_chief_port = 60001\n[model]\nmode = "predict"\n'
    file.write_text(good)
    rec.init("demo.toml")
    assert logging.getLogger("mxrec").level == logging.INFO
    for words, old, new in (
            ("section \\[mxrec\\]", "[mxrec]", "[other]"),
            ("log_level.*CRITICAL, got 'LOUD'", "INFO", "LOUD"),
            ("true or false, got 3", "false", "3"),
            ("cm_chief_port: must be 0 to 65535", "60001", "65536"),
            ("demo.toml", '"predict"', "predict")):
        file.write_text(good.replace(old, new, 1).replace(
            "[mxrec.cm", "[other.cm" if new == "[other]" else "[mxrec.cm"))
        wrong(ValueError, words, rec.init, str(file))
    wrong(FileNotFoundError, "none.toml", rec.init, "none.toml")
    wrong(ValueError, "1 to 1024", rec.init, "")
    wrong(TypeError, "toml_path", rec.init, 3)


# --- names ------------------------------------------------------------------


def test_names_are_put_in_place_and_shadow_nothing(tmp_path):
    assert recps.compat.provided()["mxrec"]
    assert sys.modules["mxrec"] is sys.modules["recps.compat.mxrec"]
    assert mxrec.__spec__.name == "recps.compat.mxrec"
    (tmp_path / "npu_device").mkdir()
    (tmp_path / "npu_device/__init__.py").write_text("there = True\n")
    said = package.run("""
import sys
sys.path.insert(0, sys.argv[1])
try:
    import npu_device
    print(npu_device.there)
    sys.path.pop(0)
    import recps.compat
    import npu_device
    print(npu_device.there)
    print(recps.compat.provided())
    try:
        import npu_device.compat
    except ModuleNotFoundError as error:
        print(error)
    try:
        import npu_other
    except ModuleNotFoundError as error:
        print(error)
finally:
    print("tensorflow" in sys.modules)
""", tmp_path)
    assert said == ("True\nTrue\n{'mxrec': True, 'npu_bridge': True, "
                    "'npu_device': False}\n"
                    "No module named 'npu_device.compat'\n"
                    "No module named 'npu_other'\nFalse\n")


def test_the_loop_size_is_the_environment_s_or_what_is_set():
    script = ("import recps.compat, npu_device as npu\n"
              "print(npu.get_npu_loop_size())\n")
    assert package.run(script) == "1\n"
    assert package.run(script, NPU_LOOP_SIZE="32") == "32\n"
    said = package.run("import recps.compat\ntry:\n    import npu_device\n"
                       "except ValueError as e:\n    print(e)\n",
                       NPU_LOOP_SIZE="many")
    assert said == "NPU_LOOP_SIZE: must be 1 to 2147483647, got 'many'\n"
    import npu_device as npu
    wrong(ValueError, "1 to 2147483647, got 0", npu.set_npu_loop_size, 0)
    wrong(TypeError, "loop_size: must be int", npu.set_npu_loop_size, 2.0)


def test_a_hundred_steps_by_thirty_are_three_loops_and_ten():
    import npu_device as npu
    data = tf.data.Dataset.range(1000).batch(2, drop_remainder=True)
    train_iterator = iter(data)
    taken = tf.Variable(0)

    def train_step(batch):
        taken.assign_add(tf.shape(batch)[0])

    @tf.function
    def loop_train(iterator, steps):
        for _ in tf.range(steps):
            train_step(next(iterator))

    loops = []
    remaining_steps = 100
    base_loop_size = 30
    npu.set_npu_loop_size(base_loop_size)
    while remaining_steps >= base_loop_size:
        loop_train(train_iterator, tf.constant(base_loop_size))
        loops.append(npu.get_npu_loop_size())
        remaining_steps -= base_loop_size
    if remaining_steps > 0:
        npu.set_npu_loop_size(remaining_steps)
        loop_train(train_iterator, tf.constant(remaining_steps))
        loops.append(npu.get_npu_loop_size())
    assert loops == [30, 30, 30, 10] and taken.numpy() == 200


# --- manuals ----------------------------------------------------------------


def test_the_manual_is_right(tmp_path, monkeypatch, rec):
    monkeypatch.chdir(tmp_path)
    tf.random.set_seed(2)
    blocks = []
    for name in "PYTHON.md", "MIGRATION.md":
        text = (programs.ROOT / "docs" / name).read_text("utf8")
        blocks += [code for code in re.findall(r"```python\n(.*?)```", text,
                                               re.S) if "tensorflow" in code]
    assert len(blocks) >= 2
    for code in blocks:
        _tables.forget()
        with tf.Graph().as_default() if "v1.Session" in code else (
                contextlib.nullcontext()):
            scope = {"recps": recps}
            exec(code, scope)  # pylint: disable=exec-used
        if "client" in scope:
            scope["client"].close()


def public_things():
    import npu_device
    for module in recps.tensorflow, recps.compat, mxrec, npu_device:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def test_what_is_public_is_documented_and_typed():
    for name, thing in public_things():
        if not callable(thing):
            continue
        assert inspect.getdoc(thing), name
        own = vars(thing).items() if inspect.isclass(thing) else (
            [(name, thing)] if isinstance(thing, types.FunctionType) else ())
        for key, value in own:
            call = getattr(value, "fget", value)
            if not key.startswith("_") and inspect.isfunction(call):
                assert inspect.getdoc(call), f"{name}.{key} has no words"
                assert inspect.signature(call).return_annotation is not (
                    inspect.Signature.empty), f"{name}.{key}"
