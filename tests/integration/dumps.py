# SPDX-License-Identifier: Apache-2.0
"""Dumps as NumPy writes them: the folders, names and manifests of
client/precision/dump.h and read.h, independent of the programs."""
import json
import pathlib
import re

import numpy as np

TIME = "20261130173500"
DTYPES = {"float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32",
          "int64": "i64", "uint64": "u64"}


def clean(name):
    return re.sub(r"[./\\ ]", "_", name)


class Tensor:
    """An array with a label, and the place where it lay."""

    def __init__(self, array, label=None, place=0):
        self.array = np.ascontiguousarray(array)
        self.label = label
        self.place = place


def tensor(value):
    return value if isinstance(value, Tensor) else Tensor(value)


def operator(type, part, inputs, outputs, holds=None, attributes=None):
    """inputs and outputs: arrays or Tensors; part: "top.2"."""
    return {"type": type, "name": f"{part}/{type}" if part else type,
            "holds": holds, "attributes": attributes or {},
            "inputs": [tensor(t) for t in inputs],
            "outputs": [tensor(t) for t in outputs]}


def lookup(table, keys, rows):
    keys = np.asarray(keys, np.uint64)
    return {"type": "lookup", "name": table, "holds": None, "attributes": {},
            "inputs": [Tensor(keys, "keys")], "outputs": [Tensor(rows, "rows")]}


def push(table, keys, gradients):
    keys = np.asarray(keys, np.uint64)
    return {"type": "push", "name": table, "holds": None, "attributes": {},
            "inputs": [Tensor(keys, "keys"), Tensor(gradients, "gradients")],
            "outputs": []}


def step_folder(path, step, device="0", model="little_demo", time=TIME):
    return pathlib.Path(path) / "dump" / time / device / model / "1" / str(step)


def write_step(path, step, operators, run=None, manifest=True, index=None):
    """Returns the step's folder. index: of its folder, where not the step."""
    folder = step_folder(path, step if index is None else index)
    folder.mkdir(parents=True)
    clock = 1_700_000_000_000_000 + 1_000_000 * step
    listed = []
    for task, op in enumerate(operators):
        entry = {key: op[key] for key in ("type", "name", "attributes")}
        if op["holds"]:
            entry["holds"] = op["holds"]
        entry |= {"task": task, "stream": 0, "inputs": [], "outputs": []}
        for way in ("input", "output"):
            for number, one in enumerate(op[f"{way}s"]):
                clock += 1
                file = (f"{clean(op['type'])}.{clean(op['name'])}.{task}.0."
                        f"{clock}.{way}.{number}.npy")
                if one.array.size:
                    np.save(folder / file, one.array)
                said = {"file": file if one.array.size else None,
                        "dtype": DTYPES[str(one.array.dtype)],
                        "shape": list(one.array.shape)}
                if one.label:
                    said["label"] = one.label
                if one.place:
                    said["place"] = hex(one.place)
                    said["strides"] = [
                        s // one.array.itemsize for s in one.array.strides]
                entry[f"{way}s"].append(said)
        listed.append(entry)
    if manifest:
        said = {"recps_dump": 1, "step": step, "complete": True,
                "run": run or {}, "operators": listed}
        folder.with_suffix(".json").write_text(json.dumps(said))
    return folder


def files_of(folder, name, way=None):
    """Files of an operator, in order of time."""
    found = [f for f in pathlib.Path(folder).glob("*.npy")
             if f.name.split(".")[1] == clean(name) and
             (way is None or f.name.split(".")[5] == way)]
    return sorted(found, key=lambda f: int(f.name.split(".")[4]))
