# SPDX-License-Identifier: Apache-2.0
"""recps.compat's npu_bridge: one rank by TensorFlow's own, two under mpirun."""
import inspect
import json
import os
import re
import subprocess
import sys
import types

import pytest

import package
import programs

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
from npu_bridge import npu_init as npu  # noqa: E402
import npu_bridge.estimator.npu_ops  # noqa: E402

v1 = tf.compat.v1
COLLECTIVE = programs.BUILD / "client/collective/librecps-collective.so.0"


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        v1.set_random_seed(1)
        yield made


def npu_config():
    """As the guide has it."""
    config = v1.ConfigProto(allow_soft_placement=True)
    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    custom_op.parameter_map["deterministic"].i = 1
    custom_op.parameter_map["precision_mode_v2"].s = b"origin"
    custom_op.parameter_map["op_select_implmode"].s = b"high_precision"
    config.graph_options.rewrite_options.remapping = npu.RewriterConfig.OFF
    config.graph_options.rewrite_options.memory_optimization = (
        npu.RewriterConfig.OFF)
    return config


def test_a_star_exports_what_the_guide_uses():
    from recps.compat.npu_bridge.estimator import npu_ops
    assert npu.npu_ops is npu_ops and sys.modules[
        "npu_bridge.estimator.npu_ops"] is npu_ops
    scope = {}
    exec("from npu_bridge.npu_init import *", scope)
    for name in ("get_rank_id", "get_rank_size", "get_local_rank_id",
                 "npu_distributed_optimizer_wrapper", "npu_allreduce",
                 "NPUDistributedOptimizer", "NPUBroadcastGlobalVariablesHook",
                 "hccl_ops", "npu_ops", "npu_unary_ops", "RewriterConfig",
                 "NPULossScaleOptimizer", "FixedLossScaleManager",
                 "ExponentialUpdateLossScaleManager"):
        assert name in scope, name
    assert scope["RewriterConfig"].OFF == 2
    assert (npu.get_rank_id(), npu.get_rank_size(),
            npu.get_local_rank_id()) == (0, 1, 0)
    with pytest.raises(NotImplementedError, match="NPUEstimator.*Session"):
        from npu_bridge.estimator import NPUEstimator  # noqa: F401
    for name in ("NPUEstimator", "NPUEstimatorSpec", "NPURunConfig"):
        with pytest.raises(NotImplementedError, match=f"{name}.*Session"):
            scope[name](op_select_implmode="high_precision")
    with pytest.raises(NotImplementedError, match="NPUEstimator.*Session"):
        from npu_bridge.estimator.npu.npu_estimator import (  # noqa: F401
            NPUEstimator)
    with pytest.raises(NotImplementedError, match="NPURunConfig.*Session"):
        from npu_bridge.estimator.npu.npu_config import (  # noqa: F401
            NPURunConfig)


@pytest.mark.parametrize("task, wanted", [
    ({"type": "chief", "index": 0}, (0, 4, 0)),
    ({"type": "worker", "index": 1}, (2, 4, 1)),
    ({"type": "worker", "index": 2}, (3, 4, 1))])
def test_ranks_are_tf_config_s(monkeypatch, task, wanted):
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": {"chief": ["a:1"], "ps": ["a:2"],
                    "worker": ["b:1", "b:2", "a:3"]}, "task": task}))
    assert (npu.get_rank_id(), npu.get_rank_size(),
            npu.get_local_rank_id()) == wanted
    with pytest.raises(recps.UnsupportedError, match="mpirun"):
        npu.npu_allreduce(tf.ones(2))


def test_gelu_and_dropout_are_their_formulas():
    x = numpy.linspace(-4, 4, 33).astype("f4")
    cdf = 0.5 * (1 + numpy.tanh(
        numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))
    numpy.testing.assert_allclose(npu.npu_unary_ops.gelu(x), x * cdf,
                                  atol=1e-6)
    ones = npu.npu_ops.dropout(tf.ones([10000]), 0.8, seed=3).numpy()
    assert set(numpy.unique(ones)) == {0.0, numpy.float32(1.25)}
    assert 0.77 < (ones > 0).mean() < 0.83
    assert (npu.npu_ops.dropout(tf.ones([9]), 1.0).numpy() == 1).all()
    with pytest.raises(ValueError, match="keep_prob"):
        npu.npu_ops.dropout(x, 0.0)
    for bad in (None, "0.5"):
        with pytest.raises(TypeError, match="keep_prob: must be a number"):
            npu.npu_ops.dropout(x, bad)


def test_dropout_layers_are_converted_by_an_import(monkeypatch):
    from npu_bridge.estimator import npu_ops
    layers = tf.keras.layers
    monkeypatch.setattr(layers.Dropout, "call", layers.Dropout.call)
    from npu_bridge.estimator.npu import npu_convert_dropout  # noqa: F401
    real, calls = npu_ops.dropout, []

    def dropout(x, keep_prob, **more):
        calls.append(round(keep_prob, 3))
        return real(x, keep_prob, **more)

    monkeypatch.setattr(npu_ops, "dropout", dropout)
    x = tf.ones([2, 3, 4])
    for each in layers.Dropout(0.5), layers.SpatialDropout1D(0.25):
        assert (each(x, training=False).numpy() == 1).all()
        y = each(x, training=True).numpy()
    assert (y == y[:, :1]).all()  # whole columns are dropped
    with pytest.raises(ValueError, match="rate: must be in .0, 1.*got 1"):
        layers.Dropout(1.0).call(x, training=True)
    assert (layers.Dropout(1.0)(x, training=False).numpy() == 1).all()
    layers.SpatialDropout2D(0.1)(tf.ones([1, 2, 2, 3]), training=True)
    layers.SpatialDropout3D(0.2)(tf.ones([1, 2, 2, 2, 3]), training=True)
    v1.layers.dropout(x, 0.3, training=True)
    v1.layers.Dropout(0.4)(x, training=True)
    with tf.Graph().as_default(), v1.Session() as session:
        on = v1.placeholder(tf.bool)
        y = v1.layers.dropout(tf.ones([100]), 0.5, training=on)
        assert set(session.run(y, {on: True})) == {0.0, 2.0}
        assert set(session.run(y, {on: False})) == {1.0}
    assert calls == [0.5, 0.75, 0.9, 0.8, 0.7, 0.6, 0.5]


def test_rewriters_that_are_left_on_are_warned_of_once(caplog, monkeypatch):
    from recps.compat import _session
    monkeypatch.setattr(_session, "_warned", set())

    def sessions(config):
        caplog.clear()
        for _ in range(2):
            with tf.Graph().as_default(), v1.Session(config=config) as sess:
                assert sess.run(tf.constant(3) + 4) == 7
        return caplog.text

    off = npu.RewriterConfig.OFF
    assert not sessions(None) and not sessions(v1.ConfigProto())
    config = npu_config()
    options = config.graph_options.rewrite_options
    for name in ("function_optimization", "constant_folding",
                 "shape_optimization", "arithmetic_optimization",
                 "loop_optimization", "dependency_optimization",
                 "layout_optimizer"):
        setattr(options, name, npu.RewriterConfig.ON)
    options.disable_model_pruning = False
    assert not sessions(config)
    options.memory_optimization = npu.RewriterConfig.NO_MEM_OPT
    assert not sessions(config)
    options.remapping = npu.RewriterConfig.ON
    said = sessions(config)
    assert said.count("remapping should be RewriterConfig.OFF") == 1
    assert "memory" not in said and not sessions(config)
    options.remapping = off
    assert not sessions(config)


# --- one rank ---------------------------------------------------------------


def broadcast_global_variables(root_rank, index):
    """The guide's; other variables than floats are left out."""
    op_list = []
    for var in v1.trainable_variables():
        outputs = None
        if "float" in var.dtype.name:
            inputs = [var]
            outputs = npu.hccl_ops.broadcast(tensor=inputs,
                                             root_rank=root_rank)
        if outputs is not None:
            op_list.append(outputs[0].op)
            op_list.append(v1.assign(var, outputs[0]))
    return tf.group(op_list)


@pytest.mark.parametrize("final", [False, True])
def test_the_guide_s_broadcast_runs(graph, final):
    first = v1.get_variable("first", initializer=[1.0, 2.0])
    v1.get_variable("second", initializer=3.0)
    v1.get_variable("third", initializer=4)
    bcast_op = broadcast_global_variables(0, npu.get_rank_id())
    init = v1.global_variables_initializer()
    if final:
        graph.finalize()
    with v1.Session(config=npu_config()) as sess:
        sess.run(init)
        if final:
            sess.graph._unsafe_unfinalize()
        sess.run(bcast_op)
        assert sess.run(first).tolist() == [1, 2]


def test_the_guide_s_gradients_are_reduced(graph):
    a, b = tf.constant(0.0), tf.constant(2.0)
    grads = npu.npu_allreduce(tf.gradients(a + b, [a, b],
                                           stop_gradients=[a, b]))
    with v1.Session() as sess:
        assert sess.run(grads) == [1.0, 1.0]
    assert npu.npu_allreduce([None, a])[0] is None


def wrong(kind, words, call, *arguments, **more):
    with pytest.raises(kind, match=words):
        call(*arguments, **more)


def test_what_is_wrong_is_said():
    wrong(TypeError, "list", npu.hccl_ops.broadcast, tf.ones(1), 0)
    wrong(ValueError, "root_rank: must be 0 to 0, got 1",
          npu.hccl_ops.broadcast, [tf.ones(1)], 1)
    wrong(ValueError, "hccl_world_group, got 'g'", npu.npu_allreduce,
          tf.ones(1), group="g")
    wrong(ValueError, "sum or mean", npu.npu_allreduce, tf.ones(1), "max")
    wrong(TypeError, "floats, got int32", npu.npu_allreduce, tf.constant(1))
    wrong(TypeError, "optimizer", npu.npu_distributed_optimizer_wrapper, 3)
    manager = npu.FixedLossScaleManager(1.0)
    wrong(TypeError, "loss_scale_manager: the class FixedLossScaleManager, "
          "must be an object", npu.NPULossScaleOptimizer,
          v1.train.GradientDescentOptimizer(1.0), npu.FixedLossScaleManager)
    wrong(TypeError, r"opt: int \(5\), has no compute_gradients",
          npu.NPULossScaleOptimizer, 5, manager)
    wrong(TypeError, r"loss_scale_manager: int \(6\), has no get_loss_scale",
          npu.NPULossScaleOptimizer,
          tf.compat.v1.train.GradientDescentOptimizer(1.0), 6)
    wrong(ValueError, "at least 1, got 0.5", npu.FixedLossScaleManager, 0.5)


@pytest.mark.parametrize("closes", [True, False])
def test_the_guide_s_session_loop_runs(graph, closes):
    """Iterator, drop_remainder, NpuOptimizer, both ways to end a session."""
    draw = numpy.random.default_rng(1)
    features = draw.normal(size=(70, 3)).astype("f4")
    labels = (features @ [1.0, -2.0, 0.5]).astype("f4")[:, None]
    batch_size = 16
    train_dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    train_dataset = train_dataset.batch(batch_size, drop_remainder=True)
    iterator = v1.data.Iterator.from_structure(
        v1.data.get_output_types(train_dataset),
        v1.data.get_output_shapes(train_dataset))
    next_batch = iterator.get_next()
    training_init_op = iterator.make_initializer(train_dataset)
    x = v1.placeholder(tf.float32, [batch_size, 3])
    y_ = v1.placeholder(tf.float32, [batch_size, 1])
    is_training = v1.placeholder(tf.bool)
    hidden = v1.layers.dropout(x @ v1.get_variable("w", [3, 8]), 0.0,
                               training=is_training)
    out = npu.npu_unary_ops.gelu(hidden) @ v1.get_variable("v", [8, 1])
    loss = tf.reduce_mean(tf.square(out - y_))
    train_op = v1.train.AdamOptimizer(0.05).minimize(loss)
    init = v1.global_variables_initializer()
    train_batches_per_epoch = int(numpy.floor(70 / batch_size))
    losses = []

    def train(sess):
        sess.run(init)
        for _ in range(8):
            sess.run(training_init_op)
            for _ in range(train_batches_per_epoch):
                img_batch, label_batch = sess.run(next_batch)
                _, train_loss = sess.run(
                    [train_op, loss], feed_dict={
                        x: img_batch, y_: label_batch, is_training: True})
                losses.append(train_loss)
            with pytest.raises(tf.errors.OutOfRangeError):
                sess.run(next_batch)

    if closes:
        sess = v1.Session(config=npu_config())
        train(sess)
        sess.close()
    else:
        with v1.Session(config=npu_config()) as sess:
            train(sess)
    assert len(losses) == 8 * 4 and losses[-1] < 0.3 * losses[0]


def test_a_loss_scale_is_divided_out_and_moves(graph):
    scale = npu.ExponentialUpdateLossScaleManager(
        8.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=2, decr_ratio=0.5)
    w = v1.get_variable("w", initializer=1.0)
    x = v1.placeholder(tf.float32, [])
    opt = npu.NPULossScaleOptimizer(v1.train.MomentumOptimizer(0.5, 0.0),
                                    scale)
    step = v1.train.create_global_step()
    train = opt.minimize(w * x, global_step=step)
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        seen = []
        for value in 1.0, 1.0, numpy.inf, 1.0, numpy.nan, numpy.inf, 1.0:
            sess.run(train, {x: value})
            seen.append(float(sess.run(scale.get_loss_scale())))
        assert seen == [8, 16, 16, 16, 8, 8, 8]
        assert sess.run(w) == 1 - 0.5 * 4 and sess.run(step) == 4


def test_a_fixed_loss_scale_stays(graph):
    w = v1.get_variable("w", initializer=1.0)
    opt = npu.NPULossScaleOptimizer(
        v1.train.GradientDescentOptimizer(0.5),
        npu.FixedLossScaleManager(1024, enable_overflow_check=False))
    train = opt.minimize(3 * w)
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(train)
        assert sess.run(w) == 1 - 1.5


# --- several ranks ----------------------------------------------------------

#: The guide's migrated Horovod script, with a model.
HOROVOD = """
import sys
import recps.compat
import tensorflow
tf = tensorflow.compat.v1
tf.disable_eager_execution()
from npu_bridge.npu_init import *

npu_int = npu_ops.initialize_system()
npu_shutdown = npu_ops.shutdown_system()
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
config.graph_options.rewrite_options.memory_optimization = RewriterConfig.OFF
init_sess = tf.Session(config=config)
init_sess.run(npu_int)
config.gpu_options.visible_device_list = str(get_local_rank_id())

import numpy
x = numpy.arange(8, dtype="f4").reshape(4, 2)
if get_rank_size() > 1:
    x = x[get_rank_id()::get_rank_size()]
w = tf.get_variable("w", initializer=tf.constant(
    [[1.0 + get_rank_id()], [2.0]]))
v = tf.get_variable("v", initializer=tf.constant(0.5 * (1 + get_rank_id())))
loss = tf.reduce_mean(tf.square(tf.matmul(tf.constant(x), w) + v - 1))
opt = tf.train.AdagradOptimizer(0.01 * 2)
opt = npu_distributed_optimizer_wrapper(opt)
hooks = [NPUBroadcastGlobalVariablesHook(0)]
input = tf.trainable_variables()
bcast_global_variables_op = hccl_ops.broadcast(input, 0)
global_step = tf.train.get_or_create_global_step()
train_op = opt.minimize(loss, global_step=global_step)
hooks.append(tf.train.StopAtStepHook(last_step=5))
checkpoint_dir = sys.argv[1] if get_rank_id() == 0 else None
with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir,
                                       config=config,
                                       hooks=hooks) as mon_sess:
    mon_sess.run(bcast_global_variables_op)
    while not mon_sess.should_stop():
        mon_sess.run(train_op)
        if not mon_sess.should_stop():
            end = mon_sess.run([w, v])
print("rank", get_rank_id(), "of", get_rank_size(), end[0].tolist(), end[1],
      flush=True)
init_sess.run(npu_shutdown)
init_sess.close()
"""

#: Ranks that run other operations: an error on each, no hang.
UNLIKE = """
import recps.compat, tensorflow as tf
from npu_bridge.npu_init import *
try:
    npu_allreduce(tf.ones(2 + get_rank_id()))
except Exception as error:
    print("rank", get_rank_id(), type(error).__name__, error, flush=True)
print("rank", get_rank_id(), npu_allreduce(tf.fill([2], 1.0 + get_rank_id()),
      "sum").numpy().tolist(), flush=True)
"""

#: A rank that fails ends the others, which wait for it.
FAILS = """
import recps.compat, tensorflow as tf
from npu_bridge.npu_init import *
npu_allreduce(tf.ones(1))
if get_rank_id() == 1:
    raise SystemError("enough")
npu_allreduce(tf.ones(1))
print("never")
"""


def mpirun(script, *arguments, ranks=2):
    if not programs.has_mpi():
        pytest.skip("there is no Open MPI, or no librecps-collective")
    return subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
         str(ranks), "--mca", "btl", "self,vader,tcp", sys.executable, "-c",
         script, *map(str, arguments)],
        env=package.environment(
            RPS_COLLECTIVE_LIBRARY=str(COLLECTIVE), TF_CPP_MIN_LOG_LEVEL="3",
            PATH=os.environ["PATH"], OMP_NUM_THREADS="1"),
        timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, start_new_session=True)


def ends_of(said):
    """(rank, of, w, v) of each rank; mpirun may join their lines."""
    number = r"-?[\d.]+(?:e-?\d+)?"
    found = re.findall(rf"rank (\d) of (\d) \[\[({number})\], "
                       rf"\[({number})\]\] ({number})", said)
    return sorted((int(rank), int(of), *map(float, values))
                  for rank, of, *values in found)


@pytest.mark.long
def test_the_guide_s_horovod_migration_trains_alike_on_two_ranks(tmp_path):
    two = mpirun(HOROVOD, tmp_path / "two")
    assert two.returncode == 0, two.stdout
    ends = ends_of(two.stdout)
    assert [end[:2] for end in ends] == [(0, 2), (1, 2)], two.stdout
    assert ends[0][2:] == ends[1][2:]
    alone = ends_of(package.run(HOROVOD, tmp_path / "one",
                                TF_CPP_MIN_LOG_LEVEL="3"))
    numpy.testing.assert_allclose(ends[0][2:], alone[0][2:], rtol=1e-5)
    assert list((tmp_path / "two").glob("model.ckpt-5*"))


@pytest.mark.long
def test_ranks_that_part_get_an_error_and_go_on():
    done = mpirun(UNLIKE)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("MismatchError") == 2, done.stdout
    assert done.stdout.count("same collective operations") == 2
    assert done.stdout.count("[3.0, 3.0]") == 2, done.stdout


@pytest.mark.long
def test_a_rank_that_fails_ends_the_others():
    done = mpirun(FAILS)
    assert done.returncode != 0
    assert "SystemError: enough" in done.stdout
    assert "never" not in done.stdout


def public_things():
    from npu_bridge.estimator import npu_ops, npu_unary_ops
    from npu_bridge.hccl import hccl_ops
    for module in npu, npu_ops, npu_unary_ops, hccl_ops:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def test_what_is_public_is_documented_and_typed():
    for name, thing in public_things():
        if not callable(thing) or name.endswith("RewriterConfig"):
            continue
        assert inspect.getdoc(thing), name
        own = vars(thing).items() if inspect.isclass(thing) else (
            [(name, thing)] if isinstance(thing, types.FunctionType) else ())
        for key, value in own:
            if not key.startswith("_") and inspect.isfunction(value):
                assert inspect.getdoc(value), f"{name}.{key} has no words"
                assert inspect.signature(value).return_annotation is not (
                    inspect.Signature.empty), f"{name}.{key}"
