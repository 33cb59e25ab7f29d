# SPDX-License-Identifier: Apache-2.0
"""DLRM in TensorFlow with a variable for its rows, in a compat.v1 session and
eager: what is there before a migration. test_python_tensorflow_dlrm.py runs it
as it is, and with the guide's two lines changed."""
import numpy
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 128


class Adam(v1.train.Optimizer):
    """As PyTorch has it: epsilon beside the root of the corrected moment, and
    corrections in double precision."""

    def __init__(self, rate):
        super().__init__(use_locking=False, name="Adam")
        self.rate = rate

    def _create_slots(self, var_list):
        for var in var_list:
            for name in "m", "v":
                self._zeros_slot(var, name, name)
        self._create_non_slot_variable(
            numpy.float64(1), "t", min(var_list, key=lambda each: each.name))

    def _t(self):
        graph = None if tf.executing_eagerly() else v1.get_default_graph()
        return self._get_non_slot_variable("t", graph)

    def _resource_apply_dense(self, grad, var):
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        first, second = (
            tf.cast(1 - tf.pow(tf.constant(beta, tf.float64), self._t()),
                    tf.float32) for beta in (0.9, 0.999))
        m_now = m.assign(0.9 * m + 0.1 * grad)
        v_now = v.assign(0.999 * v + 0.001 * grad * grad)
        root = tf.sqrt(v_now / second) + 1e-8
        return var.assign_sub(self.rate * m_now / first / root,
                              read_value=False)

    def _finish(self, update_ops, name_scope):
        done = [each for each in update_ops if each is not None]
        with tf.control_dependencies(done):
            counted = self._t().assign_add(1, read_value=False)
        return tf.group(*done, counted, name=name_scope)


class Model:
    """start: values of the weights by PyTorch's names."""

    def __init__(self, start):
        self.table = tf.Variable(start["emb.weight"], name="emb")
        self.dim = start["emb.weight"].shape[1]
        self.weights = {
            name: tf.Variable(value.T, name=name.replace(".", "_"))
            for name, value in start.items() if not name.startswith("emb")}
        self.adam = Adam(0.001)
        self.adagrad = v1.train.AdagradOptimizer(
            0.02, initial_accumulator_value=0.1)

    def layer(self, name, x):
        return (x @ self.weights[f"{name}.weight"]
                + self.weights[f"{name}.bias"])

    def logits(self, dense, ids):
        rows = tf.nn.embedding_lookup(self.table, ids)
        b = tf.nn.relu(self.layer("bot.2", tf.nn.relu(
            self.layer("bot.0", dense))))
        vectors = tf.concat([b[:, None], rows], 1)
        dots = tf.matmul(vectors, vectors, transpose_b=True)
        count = vectors.shape[1]
        low = [i * count + j for i in range(count) for j in range(i)]
        flat = tf.reshape(dots, [-1, count * count])
        z = tf.concat([b, tf.gather(flat, low, axis=1)], 1)
        return self.layer("top.2", tf.nn.relu(self.layer("top.0", z)))[:, 0]

    def loss(self, dense, ids, labels):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
            labels, self.logits(dense, ids)))

    def apply(self, pairs):
        """Adam for what is dense, Adagrad for rows."""
        sparse = [pair for pair in pairs
                  if isinstance(pair[0], tf.IndexedSlices)]
        dense = [pair for pair in pairs
                 if not isinstance(pair[0], tf.IndexedSlices)]
        done = [self.adam.apply_gradients(dense)]
        if sparse:
            done.append(self.adagrad.apply_gradients(sparse))
        return done


def parts_of(count):
    return [slice(at, at + BATCH)
            for at in range(0, count - BATCH + 1, BATCH)]


def train_eager(model, train, test, epochs):
    """Losses, and scores of the test rows."""
    losses = []
    for _ in range(epochs):
        for part in parts_of(len(train[0])):
            with tf.GradientTape() as tape:
                loss = model.loss(*(each[part] for each in train))
            variables = tape.watched_variables()
            model.apply(list(zip(tape.gradient(loss, variables), variables)))
            losses.append(float(loss))
    return losses, tf.sigmoid(model.logits(*test)).numpy()


def train_session(model, train, test, epochs):
    """The same in a graph."""
    dense = v1.placeholder(tf.float32, [None, train[0].shape[1]])
    ids = v1.placeholder(tf.int64, [None, train[1].shape[1]])
    labels = v1.placeholder(tf.float32, [None])
    loss = model.loss(dense, ids, labels)
    step = model.apply(model.adam.compute_gradients(loss))
    scores = tf.sigmoid(model.logits(dense, ids))
    losses = []
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(epochs):
            for part in parts_of(len(train[0])):
                given = dict(zip((dense, ids, labels),
                                 (each[part] for each in train)))
                losses.append(session.run([loss, step], given)[0])
        return losses, session.run(scores, dict(zip((dense, ids), test)))
