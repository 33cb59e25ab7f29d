# SPDX-License-Identifier: Apache-2.0
"""First values: docs/TABLE.md's law in NumPy, bit for bit, and statistics."""
import math

import numpy
import pytest
import xxhash

import replay

if not replay.PROGRAM.is_file():
    pytest.skip(f"{replay.PROGRAM} is not built", allow_module_level=True)

EXTREMES = [0, 1, 2**64 - 1, 2**64 - 2, 2**64 - 3, 2**63, 2**63 - 1]
KEYS = numpy.array(EXTREMES + [k * 2654435761 % 2**64 for k in range(200)],
                   numpy.uint64)
MANY = numpy.arange(20000, dtype=numpy.uint64) * numpy.uint64(7)


def mix(x):
    """splitmix64's output in state x."""
    x = numpy.asarray(x, numpy.uint64)
    with numpy.errstate(over="ignore"):
        x = x + numpy.uint64(0x9e3779b97f4a7c15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return x ^ (x >> numpy.uint64(31))


def draws(seed, name, keys, dim):
    stream = mix(mix(seed) ^ numpy.uint64(xxhash.xxh3_64_intdigest(name)))
    start = mix(stream ^ mix(keys))
    with numpy.errstate(over="ignore"):
        steps = numpy.arange(dim, dtype=numpy.uint64) * numpy.uint64(
            0x9e3779b97f4a7c15)
        return mix(start[:, None] + steps)


def uniform(low, high, drawn):
    low, high = numpy.float32(low), numpy.float32(high)
    u = (drawn >> numpy.uint64(40)).astype(float) / 2.0 ** 24
    values = (float(low) + (float(high) - float(low)) * u).astype(
        numpy.float32)
    return numpy.where(values == high, numpy.nextafter(high, low), values)


@pytest.mark.parametrize("low, high", [
    (-0.05, 0.05), (0.0, 1.0), (1.0, 1.0000001), (-3e38, 3e38),
    (16777215.0, 16777217.0), (-1e-45, 1e-45)])
def test_uniform_is_the_documented_law_bit_for_bit(low, high):
    spec = {"dimension": 17, "optimizer": "sgd", "seed": "9876543210987654321",
            "name": "user.id", "initializer": "uniform",
            "initializer_low": float(numpy.float32(low)),
            "initializer_high": float(numpy.float32(high))}
    want = uniform(low, high, draws(9876543210987654321, "user.id", KEYS, 17))
    got = replay.first_values(spec, KEYS)
    assert got.tobytes() == want.tobytes()


def test_constant_and_zeros_are_what_they_say():
    spec = {"dimension": 3, "optimizer": "sgd", "initializer": "constant",
            "initializer_low": 0.1}
    assert (replay.first_values(spec, KEYS) == numpy.float32(0.1)).all()
    spec["initializer"] = "zeros"
    assert (replay.first_values(spec, KEYS) == 0.0).all()


INITIALIZERS = {
    "uniform": {"initializer_low": -0.05, "initializer_high": 0.05},
    "normal": {"initializer_low": 0.5, "initializer_high": 0.25},
    "truncated_normal": {"initializer_low": -0.5, "initializer_high": 0.25},
    "variance_scaling": {"initializer": "zeros", "variance_scaling": {
        "scale": 2.0, "fan": 1, "distribution": 0}},
}


def spec_of(kind, dim=8, **more):
    return {"dimension": dim, "optimizer": "sgd", "seed": "42",
            "initializer": kind, **INITIALIZERS[kind], **more}


IN, OUT, AVERAGE = 0, 1, 2
TRUNCATED, NORMAL, UNIFORM = 0, 1, 2


@pytest.mark.parametrize("kind", INITIALIZERS)
def test_a_first_value_knows_no_shard_order_or_job(kind):
    want = replay.first_values(spec_of(kind), KEYS)
    turned = replay.first_values(spec_of(kind), KEYS[::-1], shard_log2=0)
    assert turned[::-1].tobytes() == want.tobytes()
    other = replay.first_values(spec_of(kind), KEYS, shard_log2=12,
                                job_seed=99)
    assert other.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal"])
def test_a_column_knows_nothing_of_the_dimension(kind):
    want = replay.first_values(spec_of(kind, dim=33), KEYS)
    for dim in (1, 5, 8, 32):
        got = replay.first_values(spec_of(kind, dim=dim), KEYS)
        assert (got == want[:, :dim]).all()


@pytest.mark.parametrize("kind", INITIALIZERS)
def test_a_pushed_row_starts_from_the_first_value(kind):
    spec = spec_of(kind, learning_rate=1.0)
    want = replay.first_values(spec, KEYS)
    table = replay.Replay(spec)
    table.push(1, (KEYS, numpy.zeros((len(KEYS), 8))))
    table.lookup(KEYS)
    assert table.run()[-1].rows.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", INITIALIZERS)
@pytest.mark.parametrize("change", [
    {"name": "emc"}, {"seed": "43"}, {"seed": str(2**63 + 42)}], ids=str)
def test_another_name_or_seed_gives_other_values(kind, change):
    mine = replay.first_values(spec_of(kind), KEYS)
    other = replay.first_values(spec_of(kind, **change), KEYS)
    assert (mine != other).mean() > 0.99
    both = numpy.corrcoef(mine.ravel(), other.ravel())[0, 1]
    assert abs(both) < 5 / math.sqrt(mine.size)


def normal_cdf(x):
    return 0.5 * (1.0 + numpy.vectorize(math.erf)(x / math.sqrt(2.0)))


def kolmogorov(values, cdf):
    """sup |empirical - cdf| sqrt(n): above 2.2 once in 10^4 samples."""
    x = numpy.sort(numpy.asarray(values, float).ravel())
    n = len(x)
    at = cdf(x)
    off = max((numpy.arange(1, n + 1) / n - at).max(),
              (at - numpy.arange(n) / n).max())
    return off * math.sqrt(n)


def standardised(kind):
    """Values of many keys, mean and deviation taken out."""
    spec = spec_of(kind)
    values = replay.first_values(spec, MANY).astype(float)
    assert numpy.isfinite(values).all()
    return (values - spec["initializer_low"]) / spec["initializer_high"]


def assert_columns_and_keys_are_independent(values):
    """Neither a neighbouring key nor a neighbouring column tells anything."""
    limit = 5 / math.sqrt(values.size)
    for a, b in ((values[1:], values[:-1]), (values[:, 1:], values[:, :-1])):
        assert abs(numpy.corrcoef(a.ravel(), b.ravel())[0, 1]) < limit


def test_uniform_values_are_uniform():
    values = replay.first_values(spec_of("uniform"), MANY)
    assert kolmogorov(values, lambda x: (x + 0.05) / 0.1) < 2.2
    assert_columns_and_keys_are_independent(values)


def test_normal_values_are_normal():
    z = standardised("normal")
    assert kolmogorov(z, normal_cdf) < 2.2
    assert abs(z).max() > 4.0  # the tails are there: 160,000 draws
    assert_columns_and_keys_are_independent(z)


def test_truncated_normal_values_are_normal_within_two_deviations():
    z = standardised("truncated_normal")
    edge = normal_cdf(numpy.array(-2.0))
    assert abs(z).max() <= 2.0 + 1e-6
    assert kolmogorov(z, lambda x: (normal_cdf(x) - edge) / (1 - 2 * edge)) \
        < 2.2
    assert_columns_and_keys_are_independent(z)


@pytest.mark.parametrize("fan, vocabulary, dim, n", [
    (IN, 50, 8, 50), (OUT, 50, 8, 8), (AVERAGE, 50, 8, 29), (IN, 1, 4, 1)])
@pytest.mark.parametrize("distribution", [TRUNCATED, NORMAL, UNIFORM])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_variance_scaling_has_the_variance_of_its_fan(
        fan, vocabulary, dim, n, distribution, scale):
    """TensorFlow's VarianceScaling: variance scale / n, whatever it is drawn
    from. The variance of a sample is off by less than 5 of its deviations."""
    spec = {"dimension": dim, "optimizer": "sgd", "seed": "5",
            "initializer": "zeros", "device_vocabulary_size": vocabulary,
            "variance_scaling": {"scale": scale, "fan": fan,
                                 "distribution": distribution}}
    values = replay.first_values(spec, MANY).astype(float)
    want = scale / n
    fourth = {TRUNCATED: 2.37, NORMAL: 3.0, UNIFORM: 1.8}[distribution]
    off = 5 * math.sqrt((fourth - 1) / values.size)
    assert abs(values.var() / want - 1) < off
    assert abs(values.mean()) < 5 * math.sqrt(want / values.size)
    edge = {TRUNCATED: 2 / 0.87962566103423978, NORMAL: 6,
            UNIFORM: math.sqrt(3)}[distribution] * math.sqrt(want)
    assert 0.95 * edge * (distribution != NORMAL) < abs(values).max() \
        <= edge * (1 + 1e-6)


def quantile(p):
    """The normal quantile by bisection of the distribution function: slow,
    and owes nothing to the rational approximation."""
    low, high = numpy.full(p.shape, -9.0), numpy.full(p.shape, 9.0)
    small = p < 0.5
    tail = numpy.where(small, p, 1.0 - p)
    lower = numpy.vectorize(
        lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)))
    for _ in range(70):
        middle = (low + high) / 2
        above = lower(middle) > tail
        high, low = (numpy.where(above, middle, high),
                     numpy.where(above, low, middle))
    return numpy.where(small, low, -low)


def test_normal_is_the_documented_law():
    """The same double to 1e-13, so the same float but for ties."""
    keys = KEYS[:60]
    spec = {"dimension": 9, "optimizer": "sgd", "seed": "42",
            "initializer": "normal", "initializer_low": 0.25,
            "initializer_high": 0.5}
    drawn = draws(42, "emb", keys, 9)
    p = ((drawn >> numpy.uint64(12)).astype(float) + 0.5) / 2.0 ** 52
    want = 0.25 + 0.5 * quantile(p)
    got = replay.first_values(spec, keys)
    assert (got == want.astype(numpy.float32)).mean() > 0.999
    assert numpy.abs(got - want).max() < 2.0 ** -23
