# SPDX-License-Identifier: Apache-2.0
"""Two dumps that NumPy wrote, and recps precision compare of them."""
import copy
import json

import numpy as np

import numpy_dumps as dumps
import programs
import trainer

B, IN, OUT, DIM = 32, 12, 8, 4


def recps(*words, code=0):
    return trainer.run([programs.RECPS, "precision", "compare", *words],
                       code=code)


def answer(*words, code=0):
    return json.loads(recps(*words, "--json", code=code).stdout)


def relu(x):
    return np.maximum(x, 0)


def make_step(seed=1, fused=True):
    """A forward, a backward and a push, with places, as a device has them."""
    rng = np.random.default_rng(seed)
    f32 = np.float32
    keys = rng.permutation(1000)[:B].astype(np.uint64) + (1 << 60)
    rows = rng.normal(size=(B, DIM)).astype(f32)
    x = rng.normal(size=(B, IN)).astype(f32)
    w = rng.normal(size=(OUT, IN)).astype(f32)
    b = rng.normal(size=OUT).astype(f32)
    z = (x @ w.T + b).astype(f32)
    y = relu(z)
    dy = rng.normal(size=(B, OUT)).astype(f32)
    dz = dy * (y > 0)
    dw, db = (dz.T @ x).astype(f32), dz.sum(0).astype(f32)
    tensor = dumps.Tensor
    tx, tw = tensor(x, place=0x1000), tensor(w, place=0x8000)
    tb, ty = tensor(b, place=0x10000), tensor(y, place=0x11000)
    tdy, tdz = tensor(dy, place=0x12000), tensor(dz, place=0x13000)
    tdw, tdb = tensor(dw, place=0x14000), tensor(db, place=0x15000)
    ops = [dumps.lookup("emb", keys, rows)]
    if fused:
        ops.append(dumps.operator("linear_relu", "top.0", [tx, tw, tb], [ty],
                                  holds="linear + bias + relu"))
        ops.append(dumps.operator(
            "linear_backward", "top.0", [tdy, ty, tx], [tdb, tdw],
            holds="relu_backward + dbias + dweight"))
    else:
        bias = tensor(np.broadcast_to(b, (B, OUT)), place=0x11000)
        tz = tensor(z, place=0x11000)
        ops += [
            dumps.operator("bias", "top.0", [tb], [bias]),
            dumps.operator("linear", "top.0", [tx, tw, bias], [tz]),
            dumps.operator("relu", "top.0", [tz], [ty]),
            dumps.operator("relu_backward", "top.0", [tdy, ty], [tdz]),
            dumps.operator("linear_dbias", "top.0", [tdz], [tdb]),
            dumps.operator("linear_dweight", "top.0", [tdz, tx], [tdw])]
    ops.append(dumps.push("emb", keys, rows * f32(0.5)))
    return ops


def named(ops, name):
    return next(op for op in ops if op["name"] == name)


def write_two(path, left, right, **options):
    dumps.write_step(path / "a", 6, left, **options)
    dumps.write_step(path / "b", 6, right, **options)
    return path / "a", path / "b"


def change(ops, name, way, number, law):
    """A copy with one tensor changed, as this operator alone has it."""
    ops = copy.deepcopy(ops)
    tensors = named(ops, name)[way]
    one = copy.copy(tensors[number])
    one.array = np.ascontiguousarray(law(one.array.copy()))
    tensors[number] = one
    return ops


def set_at(place, value):
    def law(array):
        array[place] = value
        return array
    return law
