# SPDX-License-Identifier: Apache-2.0
"""Each optimizer against a model in double and against PyTorch.

The bounds come with the models (optimizer_models.py) and are checked for
tightness, too: a bound that lets everything pass would prove nothing.
"""
import numpy
import pytest

import optimizer_models
import replay

if not replay.PROGRAM.is_file():
    pytest.skip(f"{replay.PROGRAM} is not built", allow_module_level=True)

STEPS = 200
KEYS = numpy.array([0, 1, 2, 3, 2**63, 2**63 - 1, 2**64 - 1, 2**64 - 2,
                    77, 78, 79, 80], numpy.uint64)

ADAM = {"optimizer": "adam", "learning_rate": 0.001}
CASES = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05},
    "sgd_decay": {"optimizer": "sgd", "learning_rate": 0.05,
                  "weight_decay": 0.01},
    "momentum": {"optimizer": "momentum", "learning_rate": 0.01,
                 "momentum": 0.9},
    "momentum_decay": {"optimizer": "momentum", "learning_rate": 0.01,
                       "momentum": 0.8, "weight_decay": 0.01},
    "nesterov": {"optimizer": "momentum", "learning_rate": 0.01,
                 "momentum": 0.9, "nesterov": 1},
    "adagrad": {"optimizer": "adagrad", "learning_rate": 0.05},
    "adagrad_decay": {"optimizer": "adagrad", "learning_rate": 0.05,
                      "weight_decay": 0.02},
    "rowwise_adagrad": {"optimizer": "rowwise_adagrad",
                        "learning_rate": 0.05},
    "adam": ADAM,
    "adam_decay": {**ADAM, "weight_decay": 0.01},
    "adam_betas": {**ADAM, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.001,
              "weight_decay": 0.01},
    "adam_catchup": {**ADAM, "optimizer": "adam_catchup"},
    "adamw_catchup": {**ADAM, "optimizer": "adamw_catchup",
                      "weight_decay": 0.01},
    "ftrl": {"optimizer": "ftrl", "learning_rate": 0.1, "l1": 0.2,
             "l2": 0.05},
    "ftrl_shrinkage": {"optimizer": "ftrl", "learning_rate": 0.1,
                       "l2_shrinkage": 0.01},
    "ftrl_power": {"optimizer": "ftrl", "learning_rate": 0.1, "l1": 0.1,
                   "learning_rate_power": -0.7},
    "rmsprop": {"optimizer": "rmsprop", "learning_rate": 0.002},
    "rmsprop_momentum": {"optimizer": "rmsprop", "learning_rate": 0.002,
                         "momentum": 0.9},
    "rmsprop_decay": {"optimizer": "rmsprop", "learning_rate": 0.002,
                      "weight_decay": 0.01},
    "rmsprop_start": {"optimizer": "rmsprop", "learning_rate": 0.002,
                      "initial_accumulator": 1.0, "rho": 0.95,
                      "epsilon": 1e-3},
}
CLIPS = [{}, {"clip_value": 0.5}, {"clip_norm": 0.7},
         {"clip_value": 0.6, "clip_norm": 1.1}]


def spec_of(case, dim, **more):
    return {"dimension": dim, "seed": "7", **CASES[case], **more}


def gradients(random, n, dim):
    """Of many sizes, as a batch's are: 2^-12 to 1."""
    sizes = 2.0 ** random.uniform(-12, 0, (n, 1))
    return (random.standard_normal((n, dim)) * sizes).astype(numpy.float32)


def batch(random, dim):
    """Contributions of 0 to 3 replicas, each with duplicates inside."""
    parts = []
    for _ in range(random.integers(1, 4)):
        n = int(random.integers(0, 14))
        parts.append((random.choice(KEYS, n), gradients(random, n, dim)))
    return parts


def run_both(spec, seed, steps=STEPS, shard_log2=6, poison=False,
             skip=None):
    """The table's last dump beside the model of the same pushes. skip: in
    how many of the steps there is no push."""
    random = numpy.random.default_rng(seed)
    dim = spec["dimension"]
    model = optimizer_models.Model(
        spec, KEYS, replay.first_values(spec, KEYS))
    table = replay.Replay(spec, shard_log2=shard_log2)
    for step in range(1, steps + 1):
        parts = batch(random, dim)
        if skip and step < steps and random.random() < skip:
            continue
        if poison:
            for _, g in parts:
                bad = random.random(len(g)) < 0.1
                g[bad, random.integers(dim)] = random.choice(
                    [numpy.nan, numpy.inf, -numpy.inf])
        lr = spec["learning_rate"] * random.uniform(0.5, 1.5)
        scale = 1.0 if step % 3 else 0.5
        table.push(step, *parts, lr=lr, scale=scale)
        model.push(parts, lr, step, scale)
        if step in (steps // 3, steps // 2):
            table.reload()
    table.dump()
    results = table.run()
    assert all(result.status == 0 for result in results)
    return results, model


@pytest.mark.parametrize("dim", [1, 3, 8, 17, 64])
@pytest.mark.parametrize("case", CASES)
def test_200_steps_stay_within_the_error_bound_of_the_model(case, dim):
    results, model = run_both(spec_of(case, dim), seed=dim)
    model.assert_close(results[-1])


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_a_small_part_of_the_movement(case):
    """What the test above proves: its bound is a small part of what was
    learned, so that a wrong formula cannot hide below it."""
    spec = spec_of(case, 8)
    start = replay.first_values(spec, KEYS)
    _, model = run_both(spec, seed=8)
    moved = numpy.abs(model.w.value - start)[model.touched].max()
    # catching up may be off by 0.31 % of what it moves
    share = 1e-2 if "catchup" in case else 1e-3
    assert (optimizer_models.SLACK * model.w.bound).max() < share * moved


@pytest.mark.parametrize("clip", CLIPS[1:], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_clipped_sum_takes_the_step(case, clip):
    results, model = run_both(spec_of(case, 5, **clip), seed=3)
    model.assert_close(results[-1])


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_that_is_not_finite_is_left_out(case):
    results, model = run_both(spec_of(case, 4), seed=11, poison=True)
    model.assert_close(results[-1])
    assert model.refused > 100
    assert sum(r.nonfinite for r in results if hasattr(r, "nonfinite")) \
        == model.refused


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_shards_changes_no_bit(case):
    spec = spec_of(case, 7)
    one, three, many = (run_both(spec, seed=5, steps=40, shard_log2=n)[0][-1]
                        for n in (0, 3, 12))
    for other in (three, many):
        assert (one.keys == other.keys).all()
        assert one.rows.tobytes() == other.rows.tobytes()
        assert one.slots.tobytes() == other.slots.tobytes()
        assert (one.meta == other.meta).all()


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.99), (0.5, 0.999),
                                   (0.99, 0.9999), (0.0, 0.9)], ids=str)
@pytest.mark.parametrize("case", ["adam_catchup", "adamw_catchup"])
def test_catching_up_over_long_gaps_is_dense_adam(case, betas):
    """Gaps of some hundred steps; the model does the steps one by one."""
    spec = spec_of(case, 8, beta1=betas[0], beta2=betas[1])
    results, model = run_both(spec, seed=17, steps=1500, skip=0.99)
    model.assert_close(results[-1])


@pytest.mark.parametrize("lazy, catchup", [
    ("adam", "adam_catchup"), ("adamw", "adamw_catchup")])
def test_lazy_and_catching_up_differ_and_say_so(lazy, catchup):
    """TensorFlow 23668 and 6460: lazy Adam forgets the skipped steps, and
    training does not reach its target. Each has its own name here."""
    ends = []
    for case in (lazy, catchup):
        spec = spec_of(case, 4)
        results, model = run_both(spec, seed=2, steps=600, skip=0.97)
        model.assert_close(results[-1])
        ends.append(results[-1].rows)
    assert abs(ends[0] - ends[1]).max() > 1e-3
