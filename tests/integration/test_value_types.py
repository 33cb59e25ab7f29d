# SPDX-License-Identifier: Apache-2.0
"""Rows of float16 and bfloat16: each single step against the model.

Over many steps a rounding that falls the other way sends two runs apart, so
that no tolerance at the end would mean much. Here the model starts each step
from what the table has, and says in which interval the unrounded weight is
(optimizer_models.py); rounding is monotonous, so the stored weight must lie
between the ends of that interval, rounded. Slots are float32 as always.
"""
import math

import numpy
import pytest

import optimizer_models
import replay
from optimizer_models import Near, SLACK
from test_optimizers import CASES, KEYS, batch, spec_of

if not replay.PROGRAM.is_file():
    pytest.skip(f"{replay.PROGRAM} is not built", allow_module_level=True)

STEPS = 60  # each is checked by itself
TYPES = {"float16": 11, "bfloat16": 8}  # bits of a significand


def rounded(x, bits, how=numpy.rint):
    """To so many bits: rint is to the nearest, ties to even."""
    significand, exponent = numpy.frexp(x)
    least = -14 if bits == 11 else -126  # below it the spacing stays
    exponent = numpy.maximum(exponent, least + 1)
    significand = numpy.ldexp(x, bits - exponent)
    return numpy.ldexp(how(significand), exponent - bits)


def test_the_helper_rounds_as_numpys_float16():
    x = numpy.random.default_rng(0).standard_normal(10000) * 2.0 ** \
        numpy.random.default_rng(1).integers(-26, 10, 10000)
    assert (rounded(x, 11) == x.astype(numpy.float16)).all()


def widened(rows):
    if rows.dtype == numpy.uint16:
        return replay.bf16_to_f32(rows).astype(float)
    return rows.astype(float)


def in_table_order(model, dump):
    """Put what the table has into the model."""
    at = [model.at[int(key)] for key in dump.keys]
    model.w.put(at, Near(widened(dump.rows)))
    start = 0
    for slot in model.slots:
        width = slot.value.shape[1]
        slot.put(at, Near(dump.slots[:, start:start + width]))
        start += width
    return at


def assert_one_step(model, dump, bits, how):
    at = [model.at[int(key)] for key in dump.keys]
    assert sorted(at) == list(numpy.flatnonzero(model.touched))
    value, off = model.w.value[at], SLACK * model.w.bound[at]
    got = widened(dump.rows)
    low, high = how
    assert (rounded(value - off, bits, low) <= got).all()
    assert (got <= rounded(value + off, bits, high)).all()
    start = 0
    for slot in model.slots:
        width = slot.value.shape[1]
        off = numpy.abs(dump.slots[:, start:start + width] - slot.value[at])
        assert (off <= SLACK * slot.bound[at]).all()
        start += width


@pytest.mark.parametrize("stochastic", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_each_step_rounds_what_the_model_says(case, kind, stochastic):
    spec = spec_of(case, 5, value_dtype=kind, stochastic_rounding=stochastic)
    how = (numpy.floor, numpy.ceil) if stochastic else (numpy.rint, numpy.rint)
    bits = TYPES[kind]
    random = numpy.random.default_rng(4)
    table = replay.Replay(spec)
    pushes = []
    for step in range(1, STEPS + 1):
        pushes.append(batch(random, 5))
        table.push(step, *pushes[-1])
        if step == STEPS // 2:
            table.reload()
        table.dump()
    dumps = [r for r in table.run() if hasattr(r, "keys")]
    first = rounded(replay.first_values(spec, KEYS).astype(float), bits)
    model = optimizer_models.Model(spec, KEYS, first)
    for step, (parts, dump) in enumerate(zip(pushes, dumps), 1):
        model.push(parts, spec["learning_rate"], step)
        assert_one_step(model, dump, bits, how)
        in_table_order(model, dump)
    assert model.touched.all()


@pytest.mark.parametrize("kind", TYPES)
def test_a_pushed_row_starts_from_what_the_absent_key_answered(kind):
    spec = spec_of("sgd", 6, value_dtype=kind)
    answered = replay.first_values(spec, KEYS)
    table = replay.Replay(spec)
    table.push(1, (KEYS, numpy.zeros((len(KEYS), 6))))
    table.lookup(KEYS)
    assert (table.run()[-1].rows == answered).all()


def drift(kind, shard_log2=6, name="emb", steps=1):
    """One row a key from 1.0, pushed by a small part of its spacing."""
    bits = TYPES[kind]
    keys = numpy.arange(3000, dtype=numpy.uint64)
    spec = {"dimension": 4, "optimizer": "sgd", "value_dtype": kind,
            "initializer": "constant", "initializer_low": 1.0,
            "stochastic_rounding": 1, "name": name}
    move = numpy.float32(2.0 ** -bits * 0.3)
    table = replay.Replay(spec, shard_log2=shard_log2)
    for step in range(1, steps + 1):
        table.push(step, (keys, numpy.full((3000, 4), -move)), lr=1.0)
    table.dump()
    return widened(table.run()[-1].rows) - 1.0, 2.0 ** (1 - bits), float(move)


@pytest.mark.parametrize("kind", TYPES)
def test_stochastic_rounding_is_right_on_average(kind):
    """Of 12,000 weights the part move / spacing goes up, the rest stay; to
    the nearest all would stay. 5 standard deviations of a binomial."""
    moved, spacing, move = drift(kind)
    assert set(numpy.unique(moved)) == {0.0, spacing}
    odds = move / spacing
    deviation = math.sqrt(odds * (1 - odds) / moved.size)
    assert abs((moved > 0).mean() - odds) < 5 * deviation


@pytest.mark.parametrize("kind", TYPES)
def test_twenty_small_steps_are_not_lost(kind):
    moved, spacing, move = drift(kind, steps=20)
    deviation = spacing * math.sqrt(20 * 0.25 / moved.size)
    assert abs(moved.mean() - 20 * move) < 5 * deviation


def test_the_draws_know_the_table_and_no_shard():
    one, *_ = drift("bfloat16", shard_log2=0)
    same, *_ = drift("bfloat16", shard_log2=12)
    other, *_ = drift("bfloat16", name="other")
    assert (one == same).all()
    agree = (one == other).mean()
    assert 0.6 < agree < 0.85  # 0.745 where the two are independent


def test_no_column_goes_the_way_of_its_neighbour():
    moved, *_ = drift("bfloat16")
    up = (moved > 0).astype(float)
    for a, b in ((up[:, 1:], up[:, :-1]), (up[1:], up[:-1])):
        assert abs(numpy.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("kind, most", [("float16", 65504.0)])
def test_what_would_be_stored_as_an_infinity_is_refused(kind, most):
    spec = {"dimension": 2, "optimizer": "sgd", "value_dtype": kind,
            "initializer": "constant", "initializer_low": 60000.0}
    table = replay.Replay(spec)
    table.push(1, ([1, 2], [[-5000.0, 0.0], [-6000.0, 0.0]]), lr=1.0)
    table.dump()
    push, dump = table.run()
    assert (push.applied, push.nonfinite, push.nonfinite_key) == (1, 1, 2)
    assert widened(dump.rows[:1]).tolist() == [[rounded(65000.0, 11), 60000.0]]
    assert (widened(dump.rows) <= most).all()
