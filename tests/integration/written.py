# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, full ones and deltas, written with NumPy as docs/CHECKPOINT.md
has them: what a server reads then owes nothing to its own writer."""
import json
import os

import numpy
import pytest

xxhash = pytest.importorskip("xxhash")
canonical = pytest.importorskip("test_checkpoint_numpy").canonical

SPEC = {
    "beta1": 0.899999976, "beta2": 0.999000013, "clip_norm": 0.0,
    "clip_value": 0.0, "default_value": 0.0, "dense_elements": 0,
    "device_vocabulary_size": 1, "epsilon": 9.99999994e-09,
    "initial_accumulator": 0.100000001, "initializer": "uniform",
    "initializer_high": 0.0500000007, "initializer_low": -0.0500000007,
    "keep_min_rows": 0, "key_dtype": "int64", "l1": 0.0, "l2": 0.0,
    "l2_shrinkage": 0.0, "learning_rate": 0.00100000005,
    "learning_rate_power": -0.5, "max_cold_secs": 0, "max_cold_steps": 0,
    "memory_limit": 0, "min_used_times": 0, "momentum": 0.0, "nesterov": 0,
    "on_full": "refuse", "optimizer": "adagrad", "rho": 0.899999976,
    "seed": "0", "value_dtype": "float32", "weight_decay": 0.0}


def spec(name, dim, **fields):
    return {**SPEC, "name": name, "dimension": dim, **fields}


def slot_of(key):
    """With job seed 0."""
    return xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little")) >> 52


class Table:
    """What one link holds of a table: rows {key: vector}, keys erased."""

    def __init__(self, spec, rows, erased=(), whole=False):
        self.spec, self.rows = spec, rows
        self.erased, self.whole = list(erased), whole


class Checkpoint:
    def __init__(self, folder, step, tables, *, parent=None, parts=1, epoch=1):
        self.folder = folder / f"ckpt-{step:012d}"
        self.step, self.epoch, self.parts = step, epoch, parts
        self.parent = parent
        self.tables = {table.spec["name"]: table for table in tables}
        hidden = folder / f".tmp-ckpt-{step:012d}-{epoch}"
        os.makedirs(hidden)
        self.path = hidden
        self.sums = {name: [0, 0, 0] for name in self.tables}
        listed = [self.write_part(i) for i in range(parts)]
        self.write_manifest(listed)
        os.rename(hidden, self.folder)

    def write(self, name, data, files=None):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        blocks = b"".join(
            xxhash.xxh3_64_intdigest(data[at:at + (1 << 20)]).to_bytes(
                8, "little") for at in range(0, len(data), 1 << 20))
        (self.path / f"{name}.xxh3").write_bytes(blocks)
        for each, bytes_ in ((name, data), (f"{name}.xxh3", blocks)):
            if files is not None:
                files[each] = {"bytes": len(bytes_),
                               "xxh3": xxhash.xxh3_64_hexdigest(bytes_)}

    def write_array(self, name, array, files):
        header = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (
            array.dtype.str, repr(array.shape)))
        header = b"\x93NUMPY\x01\x00v\x00" + header.encode().ljust(117) + b"\n"
        assert len(header) == 128
        self.write(name, header + array.tobytes(), files)

    def write_table(self, i, table, files):
        first, last = self.slots(i)
        name, dim = table.spec["name"], table.spec["dimension"]
        keys = [k for k in table.rows if first <= slot_of(k) <= last]
        erased = [k for k in table.erased if first <= slot_of(k) <= last]
        rows = numpy.array([table.rows[k] for k in keys], "<f4").reshape(
            len(keys), dim)
        columns = {
            "keys": numpy.array(keys, "<u8"), "rows": rows,
            "slot-accumulator": numpy.full(rows.shape, 0.5, "<f4"),
            "uses": numpy.full(len(keys), 1, "|u1"),
            "last": numpy.full(len(keys), self.step, "<u4")}
        if table.spec["optimizer"] == "sgd":
            del columns["slot-accumulator"]
        for column, array in columns.items():
            self.write_array(
                f"table-{name}/{i}-of-{self.parts}.{column}.npy", array, files)
        digest = sum(xxhash.xxh3_128_intdigest(b"".join(
            array[k].tobytes() for array in columns.values()))
            for k in range(len(keys)))
        entry = {"spec": table.spec, "rows": len(keys), "pushes": "1"}
        if self.parent is not None and table.whole:
            entry["whole"] = True
        if erased:
            self.write_array(
                f"table-{name}/{i}-of-{self.parts}.erased.npy",
                numpy.array(erased, "<u8"), files)
            entry["erased"] = len(erased)
            digest += sum(xxhash.xxh3_128_intdigest(
                int(k).to_bytes(8, "little"), seed=1) for k in erased)
        digest %= 2**128
        entry["digest"] = f"{digest:032x}"
        for at, more in enumerate((len(keys), len(erased), digest)):
            self.sums[name][at] += more
        return entry

    def slots(self, i):
        first = -(-i * 4096 // self.parts)
        return first, -(-(i + 1) * 4096 // self.parts) - 1

    def write_part(self, i):
        files = {}
        self.write_array(f"lanes-{i}-of-{self.parts}.npy",
                         numpy.zeros((0, 4), "<u8"), files)
        part = {"format": 1, "part": i, "parts": self.parts, "step": self.step,
                "epoch": self.epoch, "slots": self.slots(i),
                "tables": {name: self.write_table(i, table, files)
                           for name, table in self.tables.items()},
                "files": files}
        if self.parent is not None:
            part["kind"] = "delta"
        data = json.dumps(part, indent=1, sort_keys=True).encode()
        name = f"part-{i}-of-{self.parts}.json"
        (self.path / name).write_bytes(data)
        return {"file": name, "bytes": len(data),
                "xxh3": xxhash.xxh3_64_hexdigest(data)}

    def write_manifest(self, listed):
        whole = xxhash.xxh3_128()
        tables = {}
        for name in sorted(self.tables):
            rows, erased, digest = self.sums[name]
            digest %= 2**128
            spec_ = self.tables[name].spec
            whole.update(name.encode() + b"\0" + canonical(spec_).encode() +
                         b"\0" + digest.to_bytes(16, "little"))
            tables[name] = {"spec": spec_, "rows": rows,
                            "digest": f"{digest:032x}"}
            if erased:
                tables[name]["erased"] = erased
        self.digest = f"{whole.intdigest():032x}"
        parent = self.parent and {
            "name": self.parent.folder.name, "digest": self.parent.digest}
        self.write("manifest.json", json.dumps({
            "format": 1, "kind": "delta" if parent else "full",
            "parent": parent, "step": self.step, "epoch": self.epoch,
            "job_id": "recps", "seed": "0", "parts": listed,
            "tables": tables, "data_position": None,
            "digest": self.digest}, indent=1, sort_keys=True).encode())


def read_rows(folder, name, table):
    """{key: row} of a checkpoint and its parents, all parts of each."""
    path = folder / name
    manifest = json.loads((path / "manifest.json").read_text())
    before = {} if manifest["parent"] is None else read_rows(
        folder, manifest["parent"]["name"], table)
    parts = [json.loads((path / part["file"]).read_text())
             for part in manifest["parts"]]
    for i, part in enumerate(parts):
        entry = part["tables"].get(table, {})
        stem = path / f"table-{table}" / f"{i}-of-{len(parts)}"
        first, last = part["slots"]
        if entry.get("whole"):
            before = {key: row for key, row in before.items()
                      if not first <= slot_of(key) <= last}
        if entry.get("erased"):
            for key in numpy.load(f"{stem}.erased.npy").tolist():
                before.pop(key, None)
        if entry:
            before.update(zip(numpy.load(f"{stem}.keys.npy").tolist(),
                              numpy.load(f"{stem}.rows.npy")))
    return before
