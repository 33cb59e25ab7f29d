# SPDX-License-Identifier: Apache-2.0
"""recps precision replay against NumPy and PyTorch: every operator type."""
import json
import subprocess

import numpy as np
import pytest

import placed_dumps as dumps
import programs

F = np.float32
ROWS, IN, OUT = 70, 37, 19


def replay(path, code=0):
    done = subprocess.run(
        [str(programs.RECPS), "precision", "replay", str(path), "--json"],
        capture_output=True, text=True, timeout=60, check=False,
        env=programs.environment())
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def random(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(F)


def bf16(x):
    """To nearest, ties to even, of finite numbers."""
    bits = np.ascontiguousarray(x, F).view(np.uint32)
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & np.uint32(0xffff0000)
    return bits.astype(np.uint32).view(F)


def relu(x):
    return np.maximum(x, F(0))


def gelu(x):
    x = x.astype(np.float64)
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)
    return (0.5 * x * (1 + np.tanh(u))).astype(F)


def gelu_slope(x):
    x = x.astype(np.float64)
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x + 0.044715 * x ** 3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 0.134145 * x * x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def products(dump, mixed):
    """Layers, fused and in parts, as f32 computes them."""
    rng = np.random.default_rng(7)
    factor = bf16 if mixed else lambda x: x
    x, w, b = random(rng, ROWS, IN), random(rng, OUT, IN), random(rng, OUT)
    dy, old = random(rng, ROWS, OUT), random(rng, OUT)
    t = dump.tensor
    product = factor(x) @ factor(w).T
    dump.op("linear", "a", {"x": t(x), "weight": t(w), "bias": t(b)},
            {"y": t(product + b)}, holds="linear + bias")
    dump.op("linear_relu", "b", {"x": t(x), "weight": t(w), "bias": t(b)},
            {"y": t(relu(product + b))}, holds="linear + bias + relu")
    dump.op("linear_relu", "constant", {"bias": t(b)},
            {"y": t(relu(0 * product + b))}, holds="bias + relu")
    dump.op("linear_gelu", "c", {"x": t(x), "weight": t(w), "bias": t(b)},
            {"z": t(product + b), "y": t(gelu(product + b))},
            holds="linear + bias + gelu", activation="gelu")
    y = np.tile(b, (ROWS, 1))
    place = t(y)
    dump.op("bias", "d", {"bias": t(b)}, {"y": place})
    dump.op("linear", "d", {"x": t(x), "weight": t(w), "z": place},
            {"y": dumps.Tensor(product + b, place.place)})
    for kind, slope in (("relu", lambda z: z > 0), ("gelu", gelu_slope)):
        kept = random(rng, ROWS, OUT)
        dz = (dy * slope(kept)).astype(F)
        back = {"dbias": t(dz.sum(0, dtype=F) + old),
                "dweight": t(factor(dz).T @ factor(x)),
                "dx": t(factor(dz) @ factor(w))}
        dump.op("linear_backward", kind,
                {"dy": t(dy), "kept": t(kept), "x": t(x), "weight": t(w),
                 "dbias": t(old)}, back, activation=kind,
                holds=f"{kind}_backward + dbias + dweight + dx")
        dump.op(f"{kind}_backward", kind, {"dy": t(dy), "kept": t(kept)},
                {"dz": t(dz)})
    dump.op("linear_dbias", "e", {"dy": t(dy)}, {"dbias": t(dy.sum(0))})
    dump.op("linear_dweight", "e", {"dy": t(dy), "x": t(x)},
            {"dweight": t(factor(dy).T @ factor(x))})
    dump.op("linear_dx", "e", {"dy": t(dy), "weight": t(w)},
            {"dx": t(factor(dy) @ factor(w))})
    v = random(rng, 5, 6, 8)
    i, j = np.tril_indices(6, -1)
    rounded = factor(v)
    pairs = np.einsum("rnk,rmk->rnm", rounded, rounded)[:, i, j]
    dump.op("dots", "f", {"v": t(v)},
            {"y": t(np.concatenate([v[:, 0], pairs], 1))}, first=True)
    dump.op("dots", "g", {"v": t(v)}, {"y": t(pairs)}, first=False)
    dy = random(rng, 5, 8 + 15)
    full = np.zeros((5, 6, 6), F)
    full[:, i, j] = factor(dy[:, 8:])
    dv = np.einsum("rnm,rmk->rnk", full + full.transpose(0, 2, 1), rounded)
    dv[:, 0] += dy[:, :8]
    dump.op("dots_backward", "f", {"v": t(v), "dy": t(dy)}, {"dv": t(dv)},
            first=True)


def elements(dump):
    rng = np.random.default_rng(8)
    t = dump.tensor
    x, dy = random(rng, 9, 11, scale=3), random(rng, 9, 11)
    functions = {"relu": (relu, lambda y: y > 0), "gelu": (gelu, gelu_slope),
                 "tanh": (np.tanh, lambda y: 1 - y.astype(float) ** 2),
                 "sigmoid": (lambda x: sigmoid(x).astype(F),
                             lambda y: y.astype(float) * (1 - y))}
    for name, (function, slope) in functions.items():
        y = function(x)
        dump.op(name, "h", {"x": t(x)}, {"y": t(y)})
        kept = x if name == "gelu" else y
        dump.op(f"{name}_backward", "h", {"kept": t(kept), "dy": t(dy)},
                {"dx": t((slope(kept) * dy).astype(F))})
    dump.op("add", "h", {"a": t(x), "b": t(dy)}, {"y": t(x + dy)})
    dump.op("scale", "h", {"x": t(x), "device_factor": t(np.array([0.3]))},
            {"y": t(x * F(0.6))}, factor=2.0)
    dump.op("fill", "h", {}, {"y": t(np.full((3, 4), 0.1, F))}, value=0.1)
    dump.op("copy", "h", {"x": t(x)}, {"y": t(x)})
    dump.op("contiguous", "h", {"x": t(x)},
            {"y": t(x)})
    dump.op("cast", "h", {"x": t(x)}, {"y": t(bf16(x), "bf16")})
    dump.op("concat", "h", {"x0": t(x), "x1": t(dy)},
            {"y": t(np.concatenate([x, dy], 1))})
    dump.op("split", "h", {"x": t(x)}, {"y0": t(x[:, :4]), "y1": t(x[:, 4:])})


def rows(dump):
    rng = np.random.default_rng(9)
    t = dump.tensor
    starts = np.array([0, 3, 3, 4, 9], np.int32)
    slots = np.array([5, 0, 5, 2, 1, 1, 7, 99, 3], np.int32)
    table = random(rng, 8, 6)
    counts = np.diff(starts)
    tokens = np.where((slots < 8)[:, None], table[np.minimum(slots, 7)], 0)
    sums = np.array([tokens[a:b].sum(0) for a, b in
                     zip(starts[:-1], starts[1:])], F)
    by = {"sum": np.ones(4), "mean": np.maximum(counts, 1),
          "sqrtn": np.sqrt(np.maximum(counts, 1))}
    dpooled, old = random(rng, 4, 6), random(rng, 11, 6)
    for pooling, divisor in by.items():
        divisor = divisor.astype(F)[:, None]
        dump.op("pooling", pooling,
                {"rows": t(table), "slots": t(slots), "starts": t(starts)},
                {"pooled": t(sums / divisor)}, pooling=pooling)
        dtokens = old.copy()
        dtokens[:9] = np.repeat(dpooled / divisor, counts, 0)
        dump.op("pooling_backward", pooling,
                {"starts": t(starts), "dpooled": t(dpooled),
                 "dtokens": t(old)}, {"dtokens": t(dtokens)}, pooling=pooling)
    packed = random(rng, 40)
    places = np.array([2, 9, 0, -1, 4], np.int32)
    y = table.copy()
    for i, place in enumerate(places[:4]):
        if 0 <= place < 8:
            y[place] = packed[3 + 6 * i:9 + 6 * i]
    dump.op("scatter", "s", {
        "packed": t(packed), "header": t(np.array([3, 4], np.int32)),
        "places": t(places), "y": t(table)}, {"y": t(y)})


def draws(seed, site, step, n):
    """splitmix64's, as docs/NPU_OPERATORS.md has it."""
    mask = 2 ** 64 - 1

    def mix(x):
        x = (x + 0x9e3779b97f4a7c15) & mask
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & mask
        x = (x ^ x >> 27) * 0x94d049bb133111eb & mask
        return x ^ x >> 31

    start = mix(mix(mix(seed) ^ mix(site)) ^ mix(step))
    return np.array([mix(start + e // 2 * 0x9e3779b97f4a7c15 & mask)
                     >> e % 2 * 32 & 0xffffffff for e in range(n)])


def training(dump):
    rng = np.random.default_rng(10)
    t = dump.tensor
    x, y = random(rng, 66, 2, scale=4), rng.integers(0, 2, (66, 2)).astype(F)
    weights = np.ones(66, F)
    weights[[3, 65]] = 0
    scale = np.array([1 / 64, 128 / 64])
    x64 = x.astype(float)
    terms = np.maximum(x64, 0) - x64 * y + np.log1p(np.exp(-abs(x64)))
    loss = np.array([scale[0] * (terms * weights[:, None]).sum()])
    dx = (scale[1] * weights[:, None] * (sigmoid(x) - y)).astype(F)
    inputs = {"logits": t(x), "labels": t(y), "weights": t(weights),
              "scale": t(scale)}
    dump.op("bce", "l", inputs, {"loss": t(loss), "dlogits": t(dx)},
            accumulate=False, holds="loss + gradient")
    dump.op("bce_loss", "l", inputs | {"loss": t(np.array([2.5]))},
            {"loss": t(loss + 2.5)}, accumulate=True)
    dump.op("bce_gradient", "l", inputs, {"dlogits": t(dx)})
    x = random(rng, 5, 8)
    kept = draws(11, 3, 6, 45)[5:] >= int(0.4 * 2 ** 32)
    dump.op("dropout", "d", {"x": t(x), "step": t(np.array([6.0]))},
            {"y": t(np.where(kept.reshape(5, 8), x * F(1 / 0.6), F(0)))},
            rate=0.4, seed=11, site=3, first=5)
    one, zero = np.array([1], np.int32), np.array([0], np.int32)
    bad = x.copy()
    bad[2, 2] = np.inf
    for kind, given, old, new in (("unscale", x, one, one),
                                  ("unscale", x, zero, zero),
                                  ("unscale", bad, one, zero)):
        dump.op(kind, "u", {"x": t(given), "factor": t(np.array([0.125])),
                            "finite": t(old)},
                {"x": t(given * F(0.125)), "finite": t(new)}, accumulate=True)
    dump.op("finite", "u", {"x": t(x)}, {"x": t(x), "finite": t(one)},
            accumulate=False)
    dump.op("count", "c", {"counter": t(np.array([4.0])), "finite": t(one)},
            {"counter": t(np.array([5.0]))})
    dump.op("count", "c", {"counter": t(np.array([4.0])), "finite": t(zero)},
            {"counter": t(np.array([4.0]))})


def optimizers(dump):
    torch = pytest.importorskip("torch")
    t = dump.tensor
    classes = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam,
               "adamw": torch.optim.AdamW}
    for kind, optimizer in classes.items():
        torch.manual_seed(3)
        w = torch.randn(7, 5, requires_grad=True)
        options = {"lr": 0.02, "weight_decay": 0.03}
        if kind != "sgd":
            options |= {"betas": (0.8, 0.99), "eps": 1e-6}
        made = optimizer([w], **options)
        for step in range(1, 4):
            w.grad = torch.randn(7, 5)
            state = made.state[w]
            old = [w.detach().numpy().copy()]
            if kind != "sgd":
                old += [state[k].numpy().copy() if k in state
                        else np.zeros((7, 5), F)
                        for k in ("exp_avg", "exp_avg_sq")]
            made.step()
            new = [w.detach().numpy().copy()]
            if kind != "sgd":
                new += [state[k].numpy().copy()
                        for k in ("exp_avg", "exp_avg_sq")]
            names = ["weight", "m", "v"]
            attributes = {"weight_decay": 0.03}
            inputs = {"gradient": t(w.grad.numpy().copy()),
                      "learning_rate": t(np.array([0.02]))}
            if kind != "sgd":
                inputs["step"] = t(np.array([float(step)]))
                attributes |= {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6}
            dump.op(kind, "o", inputs | dict(zip(names, map(t, old))),
                    dict(zip(names, map(t, new))), **attributes)
            idle = inputs | {"finite": t(np.array([0], np.int32))}
            dump.op(kind, "idle", idle | dict(zip(names, map(t, old))),
                    dict(zip(names, map(t, old))), **attributes)


ALL = {"linear", "linear_relu", "linear_gelu", "bias", "linear_backward",
       "linear_dbias", "linear_dweight", "linear_dx", "relu", "gelu", "tanh",
       "sigmoid", "relu_backward", "gelu_backward", "tanh_backward",
       "sigmoid_backward", "add", "scale", "fill", "cast", "copy",
       "contiguous", "concat", "split", "dots", "dots_backward", "pooling",
       "pooling_backward", "scatter", "bce", "bce_loss", "bce_gradient",
       "dropout", "unscale", "finite", "count", "sgd", "adam", "adamw"}


def everything(path, **run):
    dump = dumps.Dump(path, **run)
    products(dump, run.get("precision_mode") == "mixed")
    elements(dump)
    rows(dump)
    training(dump)
    optimizers(dump)
    return dump


@pytest.mark.parametrize("mode", ["origin", "mixed"])
def test_every_type_agrees_with_numpy_and_pytorch(tmp_path, mode):
    dump = everything(tmp_path, precision_mode=mode)
    dump.end()
    said = replay(tmp_path)
    assert said["not_agreeing"] == []
    assert set(said["types"]) == ALL
    assert said["agree"] == said["operators"] == len(dump.operators)
    assert all(t["of_tolerance"] <= 1 for t in said["types"].values())


def damage(path):
    """One element, by a part in a thousand of the largest one."""
    array = np.load(path)
    flat = array.reshape(-1)
    at = flat.size // 2
    if array.dtype.kind == "f":
        flat[at] += max(1e-3 * np.abs(flat[np.isfinite(flat)]).max(), 1e-6)
    else:
        flat[at] ^= 1
    np.save(path, array)


def test_an_output_that_is_wrong_differs_whatever_its_type(tmp_path):
    dump = everything(tmp_path)
    for entry in dump.operators:
        damage(dump.folder / entry["outputs"][0]["file"])
    dump.end()
    said = replay(tmp_path, code=1)
    assert said["differ"] == said["operators"], said["not_agreeing"]


def test_a_bf16_rounding_is_seen_where_none_should_be(tmp_path):
    dump = dumps.Dump(tmp_path)
    products(dump, mixed=True)
    dump.end()
    said = replay(tmp_path, code=1)
    for kind in ("linear", "linear_dweight", "linear_dx", "dots",
                 "dots_backward"):
        assert said["types"][kind]["differ"] > 0, kind


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_agrees_where_the_law_gives_it(tmp_path, bad):
    dump = dumps.Dump(tmp_path)
    rng = np.random.default_rng(5)
    t = dump.tensor
    x, w = random(rng, 4, 6), random(rng, 3, 6)
    x[1, 2] = bad
    with np.errstate(invalid="ignore"):
        y = x @ w.T
        dump.op("linear", "a", {"x": t(x), "weight": t(w)}, {"y": t(y)})
        dump.op("relu", "a", {"x": t(y)}, {"y": t(np.where(y <= 0, 0, y))})
        clean = y.copy()
        clean[1] = 1
    dump.op("linear", "b", {"x": t(x), "weight": t(w)}, {"y": t(clean)})
    dump.end()
    said = replay(tmp_path, code=1)
    assert [(e["type"], e["name"]) for e in said["not_agreeing"]] == [
        ("linear", "b")]


def test_what_overflows_on_the_way_may_be_anything(tmp_path):
    dump = dumps.Dump(tmp_path)
    t = dump.tensor
    x = np.full((1, 4), 1e38, F)
    w = np.array([[3, 3, -3, -3]], F)
    for name, y in (("a", np.nan), ("b", np.inf), ("c", 0)):
        dump.op("linear", name, {"x": t(x), "weight": t(w)},
                {"y": t(np.array([[y]], F))})
    w = np.array([[0.1, 0.1, -0.1, -0.1]], F)
    dump.op("linear", "d", {"x": t(x), "weight": t(w)},
            {"y": t(np.array([[np.inf]], F))})
    dump.end()
    assert replay(tmp_path, code=1)["not_agreeing"][0]["name"] == "d"


def test_high_precision_is_held_to_one_rounding(tmp_path):
    dump = dumps.Dump(tmp_path, implmode="high_precision")
    rng = np.random.default_rng(6)
    t = dump.tensor
    x, w = random(rng, 64, 512), random(rng, 8, 512)
    y = (x.astype(float) @ w.T.astype(float)).astype(F)
    sloppy = np.zeros_like(y)
    for k in range(512):
        sloppy += x[:, k:k + 1] * w[:, k]
    for name, out in (("a", y), ("b", sloppy)):
        dump.op("linear", name, {"x": t(x), "weight": t(w)}, {"y": t(out)})
    dump.end()
    assert [e["name"] for e in replay(tmp_path, code=1)["not_agreeing"]] == [
        "b"]


def test_it_reads_as_words(tmp_path):
    path = tmp_path / "precision_data/npu/debug_0"
    dump = dumps.Dump(path)
    t = dump.tensor
    x = np.ones((2, 3), F)
    dump.op("relu", "a", {"x": t(x)}, {"y": t(x)})
    dump.op("relu", "b", {"x": t(x)}, {"y": t(2 * x)})
    dump.op("tanh", "c", {"x": t(x)}, {"y": t(np.tanh(x))})
    y = t(x)
    dump.op("copy", "d", {"x": t(x)}, {"y": y})
    dump.op("copy", "e", {"x": y}, {"y": t(3 * x)}, read={"x": 3 * x})
    dump.end()
    done = subprocess.run(
        [str(programs.RECPS), "precision", "replay",
         "precision_data/npu/debug_0"], cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False, env=programs.environment())
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "step 0, operator 2, relu b, differs: output 0 (y): 6 of 6 elements "
        "are not what its inputs give; the first one, 0, is 2 and should be 1 "
        "within 0")
    assert lines[1] == (
        "step 0, operator 5, copy e, overwritten: input 0: 6 elements are not "
        "what copy d wrote; element 0 was 1 and is 3")
    assert lines[2].split()[:4] == ["type", "operators", "agree", "differ"]
    assert lines[-1] == ("4 of 5 operators agree with their inputs, 1 differ, "
                         "0 are not replayed; 1 of 5 inputs were overwritten")


def test_what_is_missing_is_said(tmp_path):
    dump = dumps.Dump(tmp_path)
    t = dump.tensor
    x = np.ones((2, 3), F)
    dump.op("scale", "a", {"x": t(x)}, {"y": t(x)})
    dump.op("linear", "b", {"x": t(x)}, {"y": t(x)})
    dump.op("convolution", "c", {"x": t(x)}, {"y": t(x)})
    dump.op("lookup", "table", {"keys": t(np.arange(2, dtype=np.uint64))},
            {"rows": t(x)})
    dump.op("tanh", "d", {"x": t(x)}, {"y": t(np.tanh(x))})
    (dump.folder / dump.operators[-1]["inputs"][0]["file"]).unlink()
    dump.end()
    said = replay(tmp_path, code=65)
    words = {e["name"]: e["words"] for e in said["not_agreeing"]}
    assert '"factor" is not in the dump' in words["a"]
    assert "input weight is not in the dump" in words["b"]
    assert 'no reference for operators of type "convolution"' in words["c"]
    assert ".npy" in words["d"] and said["operators"] == 4


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    dump = dumps.Dump(tmp_path)
    t = dump.tensor
    x, y = np.ones((2, 3), F), np.ones((4, 5), F)
    one = np.ones(1, np.int32)
    dump.op("linear", "a", {"x": t(x), "weight": t(y)}, {"y": t(y)})
    dump.op("linear", "b", {"x": t(x), "weight": t(x)}, {"y": t(y[:, :2])})
    dump.op("linear_backward", "c", {"dy": t(x), "x": t(y)},
            {"dweight": t(x), "dbias": t(y)})
    dump.op("pooling", "d", {"rows": t(x), "starts": t(one)},
            {"pooled": t(y)}, pooling="sum")
    dump.op("dots", "e", {"v": t(x)}, {"y": t(y)})
    dump.op("dots", "f", {"v": t(x[None])}, {"y": t(y)})
    dump.op("scatter", "g", {"packed": t(x), "header": t(one),
                             "places": t(one), "y": t(y)}, {"y": t(x)})
    dump.op("concat", "h", {"x": t(y)}, {"y": t(x)})
    dump.op("split", "i", {"x": t(x)}, {"y": t(y)})
    dump.op("bce", "j", {"logits": t(x), "labels": t(y)}, {"loss": t(y)})
    dump.op("add", "k", {"a": t(x), "b": t(y)}, {"y": t(x)})
    dump.op("adam", "l", {"weight": t(x), "gradient": t(y)}, {"weight": t(x)})
    dump.end()
    said = replay(tmp_path)
    assert said["not_replayed"] == said["operators"] == 12, said


def test_numbers_of_a_hostile_manifest_break_nothing(tmp_path):
    dump = dumps.Dump(tmp_path)
    t = dump.tensor
    x = np.array([[1, np.nan, -5], [2, 1e30, 0]], F)
    wild = t(np.array([np.nan, 1e30, -1e30, 7], F), "f32")
    dump.op("fill", "a", {}, {"y": t(x)}, value="nan")
    dump.op("concat", "b", {"x": t(x)}, {"y": t(x)}, column=2 ** 62)
    dump.op("split", "c", {"x": t(x)}, {"y": t(x)}, column="18446744073709551")
    dump.op("pooling", "d", {"rows": t(x), "slots": wild,
                             "starts": t(np.array([-3, 9, 2], F), "f32")},
            {"pooled": t(x)}, pooling="mean")
    dump.op("scatter", "e", {"packed": t(x), "header": wild[:2],
                             "places": wild, "y": t(x)}, {"y": t(x)})
    dump.op("dropout", "f", {"x": t(x), "step": t(np.array([np.nan]))},
            {"y": t(x)}, rate=2.0, seed=1, site=2, first="18446744073709551615")
    dump.op("sgd", "g", {"gradient": t(x), "weight": t(x),
                         "learning_rate": t(np.array([np.inf]))},
            {"weight": t(x)}, weight_decay="inf")
    dump.op("linear", "h", {"x": t(x), "weight": t(x)}, {"y": t(x[:, :2])})
    huge = dump.op("relu", "i", {"x": t(x)}, {"y": t(x)})
    huge["outputs"][0] |= {"shape": [2 ** 40, 2 ** 20], "strides": [0, 0]}
    far = dump.op("copy", "j", {"x": t(x)}, {"y": t(x)})
    far["inputs"][0] |= {"strides": [2 ** 62, 2 ** 62],
                         "place": hex(2 ** 64 - 4)}
    same = dump.op("copy", "k", {"x": t(x)}, {"y": t(x)})
    same["outputs"][0] |= {"strides": [0, 0]}
    dump.op("copy", "l", {"x": dumps.Tensor(
        x, int(same["outputs"][0]["place"], 16) + 1)}, {"y": t(x)})
    dump.end()
    said = replay(tmp_path, code=65)
    assert said["operators"] == 12
    assert {e["name"] for e in said["not_agreeing"]} >= set("bcfi")


def test_a_foreign_dump_replays_what_needs_no_manifest(tmp_path):
    dump = dumps.Dump(tmp_path, manifest=False)
    rng = np.random.default_rng(4)
    t = dump.tensor
    x, w, b = random(rng, 5, 6), random(rng, 3, 6), random(rng, 3)
    dump.op("linear", "0", {"x": t(x), "weight": t(w), "bias": t(b)},
            {"y": t(x @ w.T + b)})
    dump.op("relu", "1", {"x": t(x)}, {"y": t(relu(x))})
    dump.op("pooling", "2", {"rows": t(x)}, {"y": t(x)})
    said = replay(dump.folder)
    assert said["agree"] == 2 and said["not_replayed"] == 1
