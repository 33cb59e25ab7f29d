# SPDX-License-Identifier: Apache-2.0
"""A table driven from Python: tests/tools/table_replay and its files."""
import json
import subprocess
import tempfile
import types

import numpy

import programs

PROGRAM = programs.TESTS_BUILD / "tests/tools/table_replay"


class Replay:
    """Operations are written down in order, then run() carries them out."""

    def __init__(self, spec, shard_log2=6, job_seed=0):
        self.spec = {"name": "emb", **spec}
        scaling = self.spec.pop("variance_scaling", None)
        self.head = {"spec": self.spec, "shard_log2": shard_log2,
                     "job_seed": job_seed}
        if scaling:
            self.head["variance_scaling"] = scaling
        self.operations = []
        self.pools = {"u8": [], "f4": [], "u4": []}
        self.sizes = dict.fromkeys(self.pools, 0)

    def _place(self, pool, array):
        flat = numpy.ascontiguousarray(
            array, {"u8": "<u8", "f4": "<f4", "u4": "<u4"}[pool]).ravel()
        at = self.sizes[pool]
        self.pools[pool].append(flat)
        self.sizes[pool] += len(flat)
        return at

    def _add(self, what, **fields):
        self.operations.append({"do": what, **fields})
        return len(self.operations) - 1

    def _part(self, keys, gradients, counts=None):
        assert numpy.size(gradients) == len(keys) * self.spec["dimension"]
        part = {"n": len(keys), "keys": self._place("u8", keys),
                "gradients": self._place("f4", gradients)}
        if counts is not None:
            part["counts"] = self._place("u4", counts)
        return part

    def push(self, step, *parts, t=None, lr=None, scale=1.0):
        """parts: (keys, gradients) or (keys, gradients, counts)."""
        fields = {"step": step, "t": step if t is None else t,
                  "scale": float(scale),
                  "parts": [self._part(*part) for part in parts]}
        if lr is not None:
            fields["lr"] = float(lr)
        return self._add("push", **fields)

    def assign(self, keys, rows, slots=None, meta=None):
        fields = {"n": len(keys), "keys": self._place("u8", keys),
                  "rows": self._place("f4", rows)}
        if slots is not None:
            fields["slots"] = self._place("f4", slots)
        if meta is not None:
            fields["meta"] = self._place("u4", meta)
        return self._add("assign", **fields)

    def lookup(self, keys, read_only=False):
        return self._add("lookup", n=len(keys), read_only=read_only,
                         keys=self._place("u8", keys))

    def dump(self):
        return self._add("dump")

    def reload(self):
        return self._add("reload")

    def policy(self, step=0, **changes):
        self.spec = {**self.spec, **changes}
        return self._add("policy", spec=self.spec, step=step)

    def run(self):
        """What each operation gave, in order."""
        with tempfile.TemporaryDirectory(prefix="replay-") as folder:
            for name, parts in self.pools.items():
                numpy.save(f"{folder}/{name}.npy", numpy.concatenate(
                    [numpy.zeros(0, "<" + name[0] + name[1]), *parts]))
            with open(f"{folder}/replay.json", "w") as file:
                json.dump({**self.head, "operations": self.operations}, file)
            done = subprocess.run(
                [str(PROGRAM), folder], capture_output=True, text=True,
                env=programs.environment())
            assert done.returncode == 0, done.stderr
            with open(f"{folder}/out.json") as file:
                results = json.load(file)
            return [self._result(folder, i, result)
                    for i, result in enumerate(results)]

    def _result(self, folder, index, result):
        names = {"dump": ("keys", "rows", "slots", "meta"),
                 "lookup": ("rows",)}
        for name in names.get(self.operations[index]["do"], ()):
            result[name] = numpy.load(f"{folder}/{index}.{name}.npy")
        if self.operations[index]["do"] == "push":
            result["nonfinite_key"] = int(result["nonfinite_key"])
        return types.SimpleNamespace(**result)


def first_values(spec, keys, **shards):
    """What absent keys answer."""
    replay = Replay(spec, **shards)
    replay.lookup(keys)
    return replay.run()[0].rows


def refusal(spec):
    """The message with which a spec is refused; None if it is taken."""
    replay = Replay(spec)
    try:
        replay.run()
    except AssertionError as error:
        return str(error)
    return None


def bf16_to_f32(bits):
    return (numpy.asarray(bits, "<u4") << numpy.uint32(16)).view("<f4")
