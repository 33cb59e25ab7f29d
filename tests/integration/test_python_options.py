# SPDX-License-Identifier: Apache-2.0
"""Options of NpuOptimizer and of npu_device that take effect on tables:
deterministic, precision_mode_v2, op_select_implmode."""
import itertools
import json
import logging
import os
import time

import pytest

import package

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import recps.tensorflow  # noqa: E402
import mxrec  # noqa: E402
import npu_device  # noqa: E402
from recps.compat import _options, _session  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

v1 = tf.compat.v1
DIM = 4


@pytest.fixture(autouse=True)
def at_first(monkeypatch):
    """Options and tables of a process that has none."""
    _tables.forget()
    monkeypatch.setattr(npu_device, "_device", None)
    monkeypatch.setattr(npu_device, "_global_options",
                        npu_device.GlobalOptions())
    yield
    _tables.forget()


def config_of(**options):
    config = v1.ConfigProto()
    rewriters = config.graph_options.rewrite_options
    rewriters.remapping = rewriters.memory_optimization = 2  # OFF
    custom_op = rewriters.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    for name, value in options.items():
        if isinstance(value, bytes):
            custom_op.parameter_map[name].s = value
        else:
            custom_op.parameter_map[name].i = value
    return config


def say(how, **options):
    """As a session's config, or as npu_device's global options."""
    if how == "session":
        with tf.Graph().as_default(), v1.Session(config=config_of(**options)):
            return
    for name, value in options.items():
        setattr(npu_device.global_options(), name, value)
    npu_device.open().as_default()


HOW = pytest.mark.parametrize("how", ["session", "device"])
#: float16 has 11 bits and ends at 65504, bfloat16 has 8.
EXACT = numpy.array([[1 + 2**-12, 1 + 2**-9, 1 + 2**-5, 70000]], "f4")
HALF = [[1, 1 + 2**-9, 1 + 2**-5, numpy.inf]]
BRAIN = [[1, 1, 1 + 2**-5, 70144]]


def travelled():
    """Rows as a lookup has them, and the gradient as a server had it."""
    with recps.connect("embedded") as client:
        mine = recps.tensorflow.EmbeddingTable(
            "t", DIM, client=client, optimizer=recps.SGD(1.0),
            initializer="zeros")
        mine.assign([1], EXACT)
        rows = mine([1]).numpy()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(mine([2]) * (EXACT - [[0, 0, 0, 10000]]))
        tape.gradient(loss, [])
        mine.wait()
        return rows, -mine.table.lookup([2])


@HOW
@pytest.mark.parametrize("options, rows, gradient", [
    ({}, EXACT, 0),
    ({"precision_mode_v2": b"origin"}, EXACT, 0),
    ({"precision_mode_v2": b"cube_fp16in_fp32out"}, EXACT, 0),
    ({"precision_mode_v2": b"fp16"}, HALF, 2**-11),
    ({"precision_mode_v2": b"mixed_float16"}, HALF, 0),
    ({"precision_mode_v2": b"mixed_bfloat16"}, BRAIN, 2**-8),
    ({"precision_mode_v2": b"fp16",
      "op_select_implmode": b"high_performance"}, HALF, 2**-11),
    ({"precision_mode_v2": b"fp16",
      "op_select_implmode": b"high_precision"}, EXACT, 0),
    ({"op_select_implmode": b"high_precision_for_all",
      "precision_mode_v2": b"mixed_bfloat16"}, EXACT, 0)])
def test_rows_and_gradients_travel_as_the_options_say(how, options, rows,
                                                      gradient):
    say(how, **options)
    found, pushed = travelled()
    numpy.testing.assert_array_equal(found, rows)
    exact = EXACT[0] - [0, 0, 0, 10000]
    if gradient == 0:
        numpy.testing.assert_array_equal(pushed[0], exact)
    else:
        assert (pushed[0] != exact).any()
        numpy.testing.assert_allclose(pushed[0], exact, rtol=gradient)


def test_what_is_said_later_replaces_what_was_said():
    say("session", precision_mode_v2=b"fp16")
    say("session", deterministic=0)  # says nothing of precision
    with v1.Session(graph=tf.Graph()), v1.Session(
            graph=tf.Graph(), config=v1.ConfigProto()):
        pass
    assert travelled()[0].tolist() == HALF
    say("session", precision_mode_v2=b"origin")
    assert travelled()[0].tolist() == EXACT.tolist()


def test_high_precision_and_determinism_pool_at_the_client(monkeypatch):
    asked = []
    real = recps.EmbeddingTable.lookup

    def lookup(self, *ids, **more):
        asked.append(more["pool_on_server"])
        return real(self, *ids, **more)

    monkeypatch.setattr(recps.EmbeddingTable, "lookup", lookup)
    with recps.connect("embedded") as client:
        mine = recps.tensorflow.EmbeddingTable(
            "t", DIM, client=client, combiner="sum", pool_on_server=True)
        for options in ({}, {"deterministic": 1}, {"deterministic": 0},
                        {"op_select_implmode": b"high_precision"},
                        {"op_select_implmode": b"high_performance"}):
            say("session", **options)
            mine([[1, 2]])
    assert asked == [True, False, True, False, True]


@pytest.mark.parametrize("options, words", [
    ({"precision_mode_v2": b"fp8"}, "precision_mode_v2: must be one of "
     "origin, cube_fp16in_fp32out, fp16, mixed_float16, mixed_bfloat16, got "
     "'fp8'"),
    ({"op_select_implmode": b"precise"}, "op_select_implmode: must be one of "
     "high_performance, high_performance_for_all, high_precision, "
     "high_precision_for_all, got 'precise'"),
    ({"deterministic": 2}, "deterministic: must be 0 or 1, got 2")])
@HOW
def test_other_values_are_refused_with_those_that_are_there(how, options,
                                                            words):
    with pytest.raises(ValueError) as error:
        say(how, **{"precision_mode_v2": b"fp16", **options})
    assert words in str(error.value)
    # all or none
    assert travelled()[0].tolist() == EXACT.tolist()


def test_a_value_of_another_field_is_refused():
    config = config_of()
    custom_op = config.graph_options.rewrite_options.custom_optimizers[0]
    custom_op.parameter_map["deterministic"].s = b"1"
    with pytest.raises(ValueError, match=r"\['deterministic'\].s: must be .i"):
        v1.Session(graph=tf.Graph(), config=config)


def test_every_other_key_is_accepted_and_rewriters_are_warned_of(
        caplog, monkeypatch):
    monkeypatch.setattr(_session, "_warned", set())
    config = config_of(iterations_per_loop=10, hcom_parallel=1,
                       precision_mode=b"allow_mix_precision",
                       enable_dump=1, dump_path=b"/tmp", dump_step=b"0|5|10",
                       enable_data_pre_proc=1, mix_compile_mode=0)
    options = config.graph_options.rewrite_options
    options.remapping, options.memory_optimization = 1, 0  # on, the default
    with caplog.at_level(logging.WARNING, "npu_bridge"):
        for _ in range(2):
            with tf.Graph().as_default(), v1.Session(config=config) as sess:
                assert sess.run(tf.constant(1) + 1) == 2
    assert caplog.text.count("remapping and memory_optimization should") == 1
    assert travelled()[0].tolist() == EXACT.tolist()


# --- deterministic ------------------------------------------------------------


def orders_of_lookups(config, monkeypatch, count=6, steps=4):
    """In which order the lookups and pushes of each step ran, where each takes
    another time in each step."""
    ran, naps = [], itertools.cycle([0.03, 0.0, 0.02, 0.01, 0.0])
    rows = recps._tensorflow_rows.Rows
    reads, takes = rows._read, rows._take

    def slowly(what, real):
        def call(self, *arguments):
            time.sleep(next(naps))
            ran.append((what, self.name))
            return real(self, *arguments)

        return call

    with monkeypatch.context() as patch, tf.Graph().as_default():
        patch.setattr(rows, "_read", slowly("read", reads))
        patch.setattr(rows, "_take", slowly("push", takes))
        tables = [mxrec.get_embedding_table(f"t{i}", DIM, 9, optimizer="sgd")
                  for i in range(count)]
        loss = tf.add_n([tf.reduce_sum(tf.square(mxrec.embedding_lookup(
            table, [1, 2]))) for table in tables])
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        found = set()
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                ran.clear()
                session.run(train)
                found.add(tuple(ran))
    return found


def test_a_deterministic_session_has_one_order(monkeypatch):
    if (os.cpu_count() or 1) > 1:  # else TensorFlow has one anyway
        assert len(orders_of_lookups(config_of(), monkeypatch)) > 1
    _tables.forget()
    assert len(orders_of_lookups(config_of(deterministic=1),
                                 monkeypatch)) == 1


BITS = """
import os, sys
import recps.compat
import mxrec, numpy, tensorflow
from npu_bridge.npu_init import *
tf = tensorflow.compat.v1
tf.disable_eager_execution()
tf.set_random_seed(1)
table = mxrec.get_embedding_table("user", 8, 1000,
                                  tf.random_normal_initializer(seed=3))
other = mxrec.get_embedding_table("item", 4, 1000)
draw = numpy.random.default_rng(1)
ids = tf.placeholder(tf.int64, [256, 5])
embs = [mxrec.embedding_lookup(table, ids),
        mxrec.embedding_lookup(table, ids[:, ::-1] + 1),
        mxrec.embedding_lookup(other, ids)]
x = tf.reshape(tf.concat(embs, 2), [256, 100])
for width in 64, 1:
    x = tf.nn.relu(x) @ tf.get_variable(
        f"w{width}", [x.shape[1], width],
        initializer=tf.glorot_uniform_initializer(seed=7))
loss = tf.reduce_mean(tf.square(x[:, 0] - tf.sin(tf.to_float(ids[:, 0]))))
adamw = [mxrec.AdamWOptimizer(0.02, name=n) for n in "ab"]
grads = tf.gradients(loss, embs)
train = [adamw[0].apply_gradients(list(zip(grads, embs))[:2]),
         adamw[1].apply_gradients(list(zip(grads, embs))[2:]),
         tf.train.AdamOptimizer(0.01).minimize(loss)]
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["deterministic"].i = 1
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for step in range(40):
        given = numpy.minimum(draw.zipf(1.3, (256, 5)), 500)
        value = session.run([loss, *train], {ids: given})[0]
        print(float(value).hex())
print(table.table.lookup(range(40)).tobytes().hex())
"""


@pytest.mark.long
def test_losses_of_two_deterministic_runs_have_the_same_bits():
    first, second = (package.run(BITS, TF_CPP_MIN_LOG_LEVEL="3",
                                 timeout=120) for _ in range(2))
    assert first == second and first.count("0x") == 40


def test_what_has_no_fixed_order_is_refused(monkeypatch):
    table = mxrec.get_embedding_table("cold", DIM, 9, max_cold_secs=60)
    with pytest.raises(ValueError, match="'cold' has max_cold_secs=60"):
        say("session", deterministic=1)
    assert table is mxrec.get_existing_tables()[0]
    _tables.forget()
    say("session", deterministic=1)
    with pytest.raises(ValueError, match="'colder' has max_cold_secs=9"):
        mxrec.get_embedding_table("colder", DIM, 9, max_cold_secs=9)
    _tables.forget()
    monkeypatch.setattr(_options, "_joins", [])  # as without mxrec
    task = {"cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]},
            "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    with pytest.raises(ValueError, match="2 workers push.*import mxrec"):
        say("session", deterministic=1)
    task["cluster"]["worker"] = ["b:1"]
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    say("session", deterministic=1)


# --- npu_device ---------------------------------------------------------------


def test_a_device_is_opened_once_and_is_the_default(monkeypatch):
    device = npu_device.open()
    assert device is npu_device.open() is npu_device.open(0)
    assert device.as_default() is device and device.device_id == 0
    with device.scope():
        x = tf.constant(2.0) * 3
    with npu_device.open().as_default():
        y = tf.function(lambda: tf.constant(2.0) * 3)()
    with tf.device(device.name()):
        z = tf.constant(6.0)
    assert x.numpy() == y.numpy() == z.numpy() == 6
    with pytest.raises(ValueError, match="device 0 open, got 1"):
        npu_device.open(1)
    with pytest.raises(TypeError, match="device_id: must be int, got str"):
        npu_device.open("0")
    with pytest.raises(ValueError, match="0 or more, got -1"):
        npu_device.open(-1)
    monkeypatch.setattr(npu_device, "_device", None)
    monkeypatch.setenv("ASCEND_DEVICE_ID", "3")
    assert npu_device.open().device_id == 3
    monkeypatch.setattr(npu_device, "_device", None)
    monkeypatch.setenv("ASCEND_DEVICE_ID", "all")
    with pytest.raises(ValueError, match="ASCEND_DEVICE_ID.*'all'"):
        npu_device.open()


def test_global_options_take_any_name():
    options = npu_device.global_options()
    options.precision_mode = "allow_mix_precision"
    options.dump_config.enable_dump = True
    options.dump_config.dump_path = "/tmp"
    assert options.dump_config.enable_dump
    assert not hasattr(options, "deterministic")
    options.deterministic = 1
    assert npu_device.global_options().deterministic == 1
    assert not _options.modes.deterministic  # open() takes it
    npu_device.open().as_default()
    assert _options.modes.deterministic
