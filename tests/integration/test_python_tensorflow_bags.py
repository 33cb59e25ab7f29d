# SPDX-License-Identifier: Apache-2.0
"""Bags of recps.tensorflow against tf.nn.safe_embedding_lookup_sparse over a
variable: rows, and what a step makes of their gradient."""
import os

import pytest

import package

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import recps.tensorflow  # noqa: E402
import mxrec  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

v1 = tf.compat.v1
DIM, KEYS, RATE = 4, 30, 0.5
COMBINERS = ["sum", "mean", "sqrtn"]
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


def start_rows():
    return numpy.random.default_rng(3).normal(size=(KEYS, DIM)).astype("f4")


def layer(client, **more):
    made = recps.tensorflow.EmbeddingTable(
        f"bags{next(counter)}", DIM, client=client,
        optimizer=recps.SGD(RATE), **more)
    made.assign(numpy.arange(KEYS), start_rows())
    return made


#: Rows of bags: an empty one first, amid and last, an id twice in one.
BAGS = [[], [3, 5, 3], [7], [], [29, 0, 3, 11], []]


def sparse(dtype="i8", bags=None):
    bags = BAGS if bags is None else bags
    places = [(b, i) for b, bag in enumerate(bags) for i in range(len(bag))]
    ids = numpy.array([each for bag in bags for each in bag], dtype)
    return tf.SparseTensor(numpy.array(places, "i8").reshape(-1, 2), ids,
                           [len(bags), 5])


def weights_like(ids):
    made = numpy.random.default_rng(4).uniform(
        0.2, 2, ids.values.shape[0]).astype("f4")
    return tf.SparseTensor(ids.indices, made, ids.dense_shape)


def expected(ids, weights, combiner, max_norm=None):
    """By TensorFlow: rows, the variable after a step of SGD, and the gradient
    of the weights."""
    table = tf.Variable(start_rows())
    with tf.GradientTape() as tape:
        if weights is not None:
            tape.watch(weights.values)
        rows = tf.nn.safe_embedding_lookup_sparse(
            table, ids, weights, combiner=combiner, max_norm=max_norm)
        loss = loss_of(rows)
    of = [table] + ([] if weights is None else [weights.values])
    grads = [tf.convert_to_tensor(each) for each in tape.gradient(loss, of)]
    return (rows.numpy(), (table - RATE * grads[0]).numpy(),
            [each.numpy() for each in grads[1:]])


def loss_of(rows):
    by = numpy.random.default_rng(5).normal(size=(10, DIM)).astype("f4")
    return tf.reduce_sum(tf.square(rows) * by[:rows.shape[0]])


def rows_now(mine):
    mine.wait()
    return mine.table.lookup(numpy.arange(KEYS))


def close(found, wanted):
    numpy.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("push", ["backward", "step", "apply"])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ["sparse", "ragged", "tensor"])
def test_bags_and_their_gradients_are_tensorflow_s(client, kind, combiner,
                                                   push):
    bags = BAGS if kind != "tensor" else [[3, 5, 3], [7, 29, 0], [3, 3, 11]]
    ids = {"sparse": sparse(bags=bags), "ragged": tf.ragged.constant(
        bags, tf.int64), "tensor": tf.constant(bags, tf.int64)}[kind]
    wanted = expected(sparse(bags=bags), None, combiner)
    mine = layer(client, combiner=combiner, push=push,
                 pool_on_server=push == "backward")
    with tf.GradientTape() as tape:
        rows = mine(ids)
        loss = loss_of(rows)
    assert rows.shape == (len(bags), DIM)
    close(rows, wanted[0])
    if push == "apply":
        with tf.GradientTape() as tape:
            rows = mine(ids)
            tape.watch(rows)
            loss = loss_of(rows)
        recps.tensorflow.apply_gradients([(tape.gradient(loss, rows), rows)])
    else:
        tape.gradient(loss, [])
        recps.tensorflow.push_gradients([mine])
    close(rows_now(mine), wanted[1])


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("max_norm", [None, 1.5])
def test_weighted_bags_are_tensorflow_s(client, combiner, compiled, max_norm):
    ids = sparse("i4")
    weights = weights_like(ids)
    wanted = expected(ids, weights, combiner, max_norm)
    mine = layer(client)

    def step(ids, weights):
        with tf.GradientTape() as tape:
            tape.watch(weights.values)
            rows = recps.tensorflow.embedding_lookup_sparse(
                mine, ids, weights, combiner, max_norm)
            loss = loss_of(rows)
        return rows, tape.gradient(loss, weights.values)

    rows, gradient = (tf.function(step) if compiled else step)(ids, weights)
    close(rows, wanted[0])
    close(gradient, wanted[2][0])
    close(rows_now(mine), wanted[1])
    ragged = recps.tensorflow.embedding_lookup_sparse(
        layer(client), tf.RaggedTensor.from_sparse(ids),
        tf.RaggedTensor.from_sparse(weights), combiner, max_norm)
    close(ragged, wanted[0])


def test_max_norm_alone_cuts_rows_as_tensorflow_does(client):
    ids = sparse()
    wanted = expected(ids, None, "mean", 1.0)
    mine = layer(client)
    with tf.GradientTape() as tape:
        rows = recps.tensorflow.embedding_lookup_sparse(
            mine, ids, max_norm=1.0)
        loss = loss_of(rows)
    tape.gradient(loss, [])
    close(rows, wanted[0])
    close(rows_now(mine), wanted[1])


def test_more_axes_and_entries_in_any_order(client):
    mine = layer(client, combiner="mean")
    made = start_rows()
    deep = tf.SparseTensor([[1, 0, 2], [0, 1, 0], [1, 0, 0]], [5, 7, 3],
                           [2, 2, 4])
    rows = mine(deep)
    assert rows.shape == (2, 2, DIM)
    wanted = numpy.zeros((2, 2, DIM), "f4")
    wanted[1, 0], wanted[0, 1] = (made[5] + made[3]) / 2, made[7]
    close(rows, wanted)
    nested = tf.ragged.constant([[[3, 5], []], [[7]], []], dtype=tf.int64)
    rows = mine(nested)
    assert rows.shape.as_list() == [3, None, DIM]
    close(rows.to_tensor(), [[(made[5] + made[3]) / 2, made[0] * 0],
                             [made[7], made[0] * 0],
                             [made[0] * 0, made[0] * 0]])
    close(mine(tf.constant([[[3, 5]], [[7, 7]]])),
          [[(made[5] + made[3]) / 2], [made[7]]])
    assert mine(tf.zeros([0, 3], tf.int64)).shape == (0, DIM)
    none = tf.SparseTensor(numpy.empty([0, 2], "i8"),
                           numpy.empty([0], "i8"), [3, 4])
    close(mine(none), numpy.zeros((3, DIM)))
    assert len(mine.table) == KEYS


def test_ragged_ids_without_a_combiner_are_ragged_rows(client):
    mine = layer(client)
    ids = tf.ragged.constant(BAGS, tf.int64)
    with tf.GradientTape() as tape:
        rows = mine(ids)
        loss = tf.reduce_sum(tf.reduce_mean(rows, 1)[1:3])
    close(rows.flat_values, start_rows()[ids.flat_values.numpy()])
    assert rows.row_lengths().numpy().tolist() == [0, 3, 1, 0, 4, 0]
    tape.gradient(loss, [])
    wanted = start_rows()
    wanted[3] -= RATE * 2 / 3
    wanted[5] -= RATE / 3
    wanted[7] -= RATE
    close(rows_now(mine), wanted)


@pytest.mark.parametrize("weighted", [False, True])
def test_padding_counts_for_nothing_in_a_bag(client, weighted):
    mine = layer(client, padding_id=3)
    ids = sparse()
    ones = ids.with_values(tf.ones_like(ids.values, tf.float32))
    with tf.GradientTape() as tape:
        rows = recps.tensorflow.embedding_lookup_sparse(
            mine, ids, ones if weighted else None)
        loss = tf.reduce_sum(rows)
    made = start_rows()
    close(rows[1], made[5])
    close(rows[4], (made[29] + made[0] + made[11]) / 3)
    tape.gradient(loss, [])
    made[[5, 7]] -= RATE
    made[[29, 0, 11]] -= RATE / 3
    made[3] = rows_now(mine)[3]
    close(rows_now(mine), made)
    close(mine.table.lookup([3]), start_rows()[[3]])


def test_evaluation_of_bags_makes_no_rows_and_reads_zeros(client):
    mine = layer(client, combiner="mean", initializer=recps.Constant(9.0))
    rows = mine(tf.constant([[3, 1000], [1000, 1001]]), training=False)
    close(rows, [start_rows()[3] / 2, numpy.zeros(DIM)])
    rows = recps.tensorflow.embedding_lookup_sparse(
        mine, sparse(bags=[[1000], [3]]), training=False)
    close(rows, [numpy.zeros(DIM), start_rows()[3]])
    assert len(mine.table) == KEYS


@pytest.mark.parametrize("ragged", [True, False])
def test_keras_models_take_sparse_and_ragged_inputs(client, ragged):
    tf.keras.utils.set_random_seed(1)
    mine = layer(client, combiner="mean")
    given = tf.keras.Input((None,), dtype=tf.int64, ragged=ragged,
                           sparse=not ragged)
    model = tf.keras.Model(given, tf.keras.layers.Dense(1)(mine(given)))
    assert model.output_shape == (None, 1)
    bags = [[i % KEYS] * (1 + i % 3) for i in range(60)]
    ids = tf.ragged.constant(bags, tf.int64)
    labels = numpy.array([[float(i % KEYS < 9)] for i in range(60)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices(
        (ids if ragged else ids.to_sparse(), labels)).batch(20)
    history = model.fit(data, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize("sync", [False, True])
def test_a_session_feeds_sparse_ids(client, sync):
    """Adagrad tells one step of a sum from two."""
    with tf.Graph().as_default():
        mine = recps.tensorflow.EmbeddingTable(
            f"bags{next(counter)}", DIM, client=client, initializer="zeros",
            optimizer=recps.Adagrad(1.0, initial_accumulator=0.1),
            push="step" if sync else "backward")
        ids = v1.sparse_placeholder(tf.int64, [None, None])
        rows = recps.tensorflow.embedding_lookup_sparse(mine, ids,
                                                        combiner="sum")
        assert rows.shape.as_list() == [None, DIM]
        train = v1.train.GradientDescentOptimizer(0.1).minimize(
            tf.reduce_sum(rows))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train, {ids: v1.SparseTensorValue(
                [[0, 0], [0, 1], [2, 0]], [7, 8, 7], [3, 2])})
    recps.tensorflow.push_gradients([mine])
    mine.wait()
    close(mine.table.lookup([7, 8])[:, 0],
          [-2 / (0.1 + 4)**0.5, -1 / (0.1 + 1)**0.5])


@pytest.mark.parametrize("eager", [True, False])
def test_mxrec_tables_take_bags_and_list_their_lookups(eager):
    _tables.forget()
    table = mxrec.get_embedding_table("bags", DIM, KEYS, tf.zeros_initializer)
    adamw = mxrec.AdamWOptimizer(0.1, weight_decay=0.0, epsilon=1e-6)

    def lookups():
        by = recps.tensorflow.embedding_lookup_sparse
        return [by(table, sparse()), mxrec.embedding_lookup(table, [1, 3]),
                by(table, sparse(), weights_like(sparse()), "sum")]

    try:
        if eager:
            with tf.GradientTape() as tape:
                first, second, _ = lookups()
                tape.watch([first, second])
                loss = tf.reduce_sum(first) + tf.reduce_sum(second)
            grads = tape.gradient(loss, [first, second])
            adamw.apply_gradients(zip(grads, [first, second]))
        else:
            with tf.Graph().as_default(), v1.Session() as session:
                first, second, third = lookups()
                embs = mxrec.get_sparse_embedding()
                assert len(embs) == 3 and embs[0] is first
                assert embs[2] is not third  # a row an id: its gradient's
                grads = tf.gradients(tf.reduce_sum(first) + tf.reduce_sum(
                    second) + 0 * tf.reduce_sum(third), embs)
                train = adamw.apply_gradients(zip(grads, embs))
                session.run(v1.global_variables_initializer())
                session.run(train)
        # the first step of Adam is the rate, whatever the gradient's size
        pushed = sorted({each for bag in BAGS for each in bag} | {1})
        close(table.table.lookup(pushed), numpy.full((len(pushed), DIM),
                                                     -0.1))
        assert table.size() == len(pushed)
        with pytest.raises(TypeError, match="embedding_lookup_sparse"):
            mxrec.embedding_lookup(table, sparse())
    finally:
        _tables.forget()


def test_what_is_wrong_is_said(client):
    by = recps.tensorflow.embedding_lookup_sparse
    mine, ids = layer(client), sparse()
    for words, call in (
            ("sum, mean, sqrtn", lambda: layer(client, combiner="max")),
            ("combiner: 'max'", lambda: by(mine, ids, combiner="max")),
            ("[bags, each]", lambda: layer(client, combiner="sum")([1, 2])),
            ("the last one is a bag", lambda: by(
                mine, tf.SparseTensor([[0]], [1], [1])))):
        with pytest.raises(ValueError) as error:
            call()
        assert words in str(error.value)
    for words, call in (
            ("combiner", lambda: mine(ids)),
            ("got EagerTensor", lambda: by(mine, tf.constant([[1]]))),
            ("table: must be", lambda: by("user", ids)),
            ("float32, must be integers", lambda: by(
                mine, ids.with_values(tf.ones(8)))),
            ("sp_weights: int64", lambda: by(mine, ids, ids)),
            ("sp_weights: EagerTensor", lambda: by(mine, ids, tf.ones(8)))):
        with pytest.raises(TypeError) as error:
            call()
        assert words in str(error.value), str(error.value)
