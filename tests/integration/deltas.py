# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, full and delta, written by NumPy, and a model of their state.

Nothing here is recps's: what docs/CHECKPOINT.md says, a second time.
"""
import copy
import json
import pathlib

import numpy
import pytest

from test_checkpoint_numpy import canonical

xxhash = pytest.importorskip("xxhash")

SPECS = json.loads((pathlib.Path(__file__).resolve().parents[1] /
                    "data/checkpoint-1/ckpt-000000000042/manifest.json"
                    ).read_text())["tables"]
SLOTS = {"sgd": {}, "momentum": {"momentum": 0}, "adagrad": {"accumulator": 0},
         "rowwise_adagrad": {"accumulator": 1}, "adam": {"m": 0, "v": 0}}
DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


def spec(name, dim, optimizer="adagrad", value_dtype="float32", **fields):
    base = copy.deepcopy(SPECS["empty"]["spec"])
    base.update(name=name, dimension=dim, optimizer=optimizer,
                value_dtype=value_dtype, **fields)
    if optimizer == "momentum":
        base["momentum"] = 0.899999976
    return base


def key_hash(key, seed=0):
    return xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little"), seed)


def slot_of(key, seed=0):
    return key_hash(key, seed) >> 52


class Row:
    """Value (as stored), slots by name, uses, last."""

    def __init__(self, value, slots, uses, last):
        self.value, self.slots, self.uses, self.last = value, slots, uses, last

    def digest(self, key):
        parts = [int(key).to_bytes(8, "little"), self.value.tobytes()]
        parts += [s.tobytes() for s in self.slots.values()]
        parts += [bytes([self.uses]), int(self.last).to_bytes(4, "little")]
        return xxhash.xxh3_128_intdigest(b"".join(parts))

    def __eq__(self, other):
        return self.digest(0) == other.digest(0)


class Table:
    """The state of a table, and what changed since the last save."""

    def __init__(self, definition):
        self.spec = definition
        self.rows = {}
        self.counts = {}
        self.pushes = 0
        self.changed, self.erased = set(), set()
        self.is_new = True

    @property
    def widths(self):
        return {s: w or self.spec["dimension"]
                for s, w in SLOTS[self.spec["optimizer"]].items()}

    def random_row(self, random, step):
        dim, dtype = self.spec["dimension"], DTYPES[self.spec["value_dtype"]]
        value = random.normal(size=dim).astype("<f4")
        if dtype == "<u2":
            value = (value.view("<u4") >> 16).astype("<u2")
        return Row(value.astype(dtype),
                   {s: random.random(w).astype("<f4")
                    for s, w in self.widths.items()},
                   int(random.integers(1, 256)), step)

    def put(self, key, row):
        self.rows[key] = row
        self.changed.add(key)

    def erase(self, key):
        self.rows.pop(key, None)
        self.changed.discard(key)
        self.erased.add(key)

    def digest(self):
        return sum(r.digest(k) for k, r in self.rows.items()) % 2**128


class Job:
    """Tables whose state is saved to a folder, one checkpoint after another."""

    def __init__(self, folder, seed=0, epoch=1):
        self.folder, self.seed, self.epoch = pathlib.Path(folder), seed, epoch
        self.tables = {}
        self.parent = None  # (name, digest) of the last save
        self.lanes = [[17, 1, 5, 0], [2**64 - 1, 2, 6, 2**64 - 4]]

    def make(self, name, *arguments, **fields):
        self.tables[name] = Table(spec(name, *arguments, **fields))
        return self.tables[name]

    def digest(self):
        """Of the content, whatever the files."""
        return checkpoint_digest({n: (t.spec, t.digest())
                                  for n, t in self.tables.items()})

    def storm(self, random, step, keys=60):
        """Some rows are made, changed, erased, erased and made again."""
        for name, table in self.tables.items():
            if name == "empty":
                continue
            for key in random.integers(0, 150, size=keys):
                key = int(key) if key < 120 else 2**64 - 1 - int(key)
                what = random.random()
                if what < 0.25:
                    table.erase(key)
                if what > 0.15:
                    table.put(key, table.random_row(random, step))
            table.pushes += keys

    def save(self, step, parts=1, kind="full", whole=(), like=None):
        """`whole`: (table, part) that a delta has whole."""
        name = f"ckpt-{step:012d}"
        path = (like or self.folder) / name
        manifest = {"format": 1, "kind": kind, "parent": None, "step": step,
                    "epoch": self.epoch, "job_id": "numpy",
                    "seed": str(self.seed), "parts": [], "tables": {},
                    "data_position": {"row": step}}
        if kind == "delta":
            manifest["parent"] = dict(zip(("name", "digest"), self.parent))
        for part in range(parts):
            self._write_part(path, step, part, parts, kind, whole, manifest)
        manifest["digest"] = checkpoint_digest(
            {n: (t["spec"], int(t["digest"], 16))
             for n, t in manifest["tables"].items()})
        text = json.dumps(manifest, indent=1, sort_keys=True).encode()
        (path / "manifest.json").write_bytes(text)
        (path / "manifest.json.xxh3").write_bytes(
            xxhash.xxh3_64_intdigest(text).to_bytes(8, "little"))
        self.parent = (name, manifest["digest"])
        for table in self.tables.values():
            table.changed, table.erased, table.is_new = set(), set(), False
        return path

    def _write_part(self, path, step, part, parts, kind, whole, manifest):
        first = -(-part * 4096 // parts)
        last = -(-(part + 1) * 4096 // parts) - 1
        mine = lambda keys: [k for k in keys  # noqa: E731
                             if first <= slot_of(k, self.seed) <= last]
        files = Files(path)
        content = {"format": 1, "part": part, "parts": parts, "step": step,
                   "epoch": self.epoch, "slots": [first, last], "tables": {}}
        if kind == "delta":
            content["kind"] = "delta"
        for name, table in self.tables.items():
            is_whole = kind == "full" or table.is_new or (name, part) in whole
            keys = mine(table.rows if is_whole else table.changed)
            erased = [] if is_whole else mine(table.erased)
            self._write_table(files, f"table-{name}/{part}-of-{parts}.", table,
                              keys, erased, mine(table.counts))
            digest = sum(table.rows[k].digest(k) for k in keys)
            digest += sum(xxhash.xxh3_128_intdigest(
                k.to_bytes(8, "little"), 1) for k in erased)
            entry = {"spec": table.spec, "rows": len(keys),
                     "digest": f"{digest % 2**128:032x}"}
            total = manifest["tables"].setdefault(
                name, {"spec": table.spec, "rows": 0, "digest": "0"})
            total["rows"] += len(keys)
            total["digest"] = (
                f"{(int(total['digest'], 16) + digest) % 2**128:032x}")
            if erased:
                entry["erased"] = len(erased)
                total["erased"] = total.get("erased", 0) + len(erased)
            entry["pushes"] = str(table.pushes + part)
            if mine(table.counts):
                entry["admission"] = len(mine(table.counts))
            if kind == "delta" and is_whole:
                entry["whole"] = True
            content["tables"][name] = entry
        files.put(f"lanes-{part}-of-{parts}.npy",
                  numpy.array(self.lanes, "<u8").reshape(-1, 4))
        content["files"] = files.listed
        text = json.dumps(content, indent=1, sort_keys=True).encode()
        (path / f"part-{part}-of-{parts}.json").write_bytes(text)
        manifest["parts"].append(
            {"file": f"part-{part}-of-{parts}.json", "bytes": len(text),
             "xxh3": xxhash.xxh3_64_hexdigest(text)})

    @staticmethod
    def _write_table(files, prefix, table, keys, erased, counted):
        rows = [table.rows[k] for k in keys]
        dim, n = table.spec["dimension"], len(keys)
        files.put(prefix + "keys.npy", numpy.array(keys, "<u8"))
        files.put(prefix + "rows.npy", numpy.array(
            [r.value for r in rows],
            DTYPES[table.spec["value_dtype"]]).reshape(n, dim))
        for slot, width in table.widths.items():
            files.put(f"{prefix}slot-{slot}.npy", numpy.array(
                [r.slots[slot] for r in rows], "<f4").reshape(n, width))
        files.put(prefix + "uses.npy", numpy.array([r.uses for r in rows], "u1"))
        files.put(prefix + "last.npy", numpy.array([r.last for r in rows], "<u4"))
        if counted:
            files.put(prefix + "admission.npy", numpy.array(
                [[k, table.counts[k]] for k in counted], "<u8"))
        if erased:
            files.put(prefix + "erased.npy", numpy.array(erased, "<u8"))


class Files:
    """The files of a part, each with its checksums beside it."""

    def __init__(self, path):
        self.path, self.listed = path, {}

    def put(self, name, array):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        numpy.save(file, array)
        data = file.read_bytes()
        self._list(name, data)
        sums = b"".join(
            xxhash.xxh3_64_intdigest(data[at:at + (1 << 20)]).to_bytes(8, "little")
            for at in range(0, len(data), 1 << 20))
        (self.path / f"{name}.xxh3").write_bytes(sums)
        self._list(f"{name}.xxh3", sums)

    def _list(self, name, data):
        self.listed[name] = {"bytes": len(data),
                             "xxh3": xxhash.xxh3_64_hexdigest(data)}


def checkpoint_digest(tables):
    """{name: (spec, digest)}."""
    whole = xxhash.xxh3_128()
    for name, (definition, digest) in sorted(tables.items()):
        whole.update(name.encode() + b"\0" + canonical(definition).encode()
                     + b"\0" + digest.to_bytes(16, "little"))
    return f"{whole.intdigest():032x}"


def read(folder, table):
    """{key: Row} of a full checkpoint."""
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["kind"] == "full"
    n, rows = len(manifest["parts"]), {}
    names = SLOTS[manifest["tables"][table]["spec"]["optimizer"]]
    for part in range(n):
        load = lambda c, i=part: numpy.load(  # noqa: E731
            folder / f"table-{table}/{i}-of-{n}.{c}.npy")
        slots = {s: load(f"slot-{s}") for s in names}
        for i, (key, value, uses, last) in enumerate(zip(
                load("keys"), load("rows"), load("uses"), load("last"))):
            assert int(key) not in rows
            assert slot_of(int(key), int(manifest["seed"])) * n // 4096 == part
            rows[int(key)] = Row(value, {s: slots[s][i] for s in names},
                                 int(uses), int(last))
    return rows


def standard_job(folder, **settings):
    """A table of each kind."""
    job = Job(folder, **settings)
    job.make("emb", 3)
    job.make("lazy", 2, "adam")
    job.make("half", 5, "momentum", "float16")
    job.make("brain", 7, "rowwise_adagrad", "bfloat16")
    job.make("plain", 1, "sgd")
    job.tables["emb"].counts = {10000 + i: 1 + i for i in range(50)}
    return job


def chain(folder, random, deltas=3, parts=(2, 1, 3, 2), **settings):
    """A full checkpoint at step 10 and deltas at 20, 30, …"""
    job = standard_job(folder, **settings)
    job.storm(random, 10)
    job.make("empty", 4, "adam")
    job.save(10, parts[0])
    for i in range(deltas):
        step = 20 + 10 * i
        job.storm(random, step, keys=25)
        if i == 1:
            del job.tables["plain"]
            job.make("late", 2)
            job.storm(random, step, keys=5)
        if i == 2:
            job.make("plain", 2, "adam")  # another of the name
            job.storm(random, step, keys=7)
        whole = [("lazy", 0)] if i == 1 else []
        job.save(step, parts[(i + 1) % len(parts)], "delta", whole)
    return job
