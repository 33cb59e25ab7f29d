# SPDX-License-Identifier: Apache-2.0
"""What recps-train --dump wrote, as NumPy reads it."""
import json

import numpy


class Operator:
    """One entry of a manifest; tensors by label, or by index."""

    def __init__(self, folder, entry, occurrence):
        self.type, self.name = entry["type"], entry["name"]
        self.holds = entry.get("holds")
        self.attributes = entry["attributes"]
        self.occurrence = occurrence
        self.entries = {way: entry[way] for way in ("inputs", "outputs")}
        self.folder = folder

    def tensor(self, way, which):
        tensors = self.entries[way]
        if isinstance(which, str):
            which = [t["label"] for t in tensors].index(which)
        if tensors[which]["file"] is None:  # it has no elements
            return numpy.zeros(tensors[which]["shape"])
        return numpy.load(self.folder / tensors[which]["file"])

    def input(self, which=0):
        return self.tensor("inputs", which)

    def output(self, which=0):
        return self.tensor("outputs", which)

    def form(self):
        """All that does not depend on values."""
        return (self.type, self.name, self.holds, self.occurrence) + tuple(
            (way, t["label"], t["dtype"], tuple(t["shape"]))
            for way in ("inputs", "outputs") for t in self.entries[way])


class Step:
    """A step of a dump: `path` is PATH of --dump-path."""

    def __init__(self, path, step):
        file, = path.glob(f"dump/*/*/*/*/{step}.json")
        self.folder = file.parent / str(step)
        self.manifest = json.loads(file.read_text("utf8"))
        assert self.manifest["complete"] and self.manifest["step"] == step
        count = {}
        self.operators = []
        for entry in self.manifest["operators"]:
            key = entry["type"], entry["name"]
            count[key] = count.get(key, -1) + 1
            self.operators.append(Operator(self.folder, entry, count[key]))

    def operator(self, kind, name, occurrence=0):
        found, = [o for o in self.operators
                  if (o.type, o.name, o.occurrence) == (kind, name, occurrence)]
        return found

    def named(self, kind):
        return {o.name: o for o in self.operators if o.type == kind}

    def files(self):
        """Names in the order of the manifest."""
        return [t["file"] for o in self.operators
                for way in ("inputs", "outputs") for t in o.entries[way]]

    def forms(self):
        return sorted(o.form() for o in self.operators)


def time_of(file):
    return int(file.split(".")[4])


def equal(left, right):
    """Every tensor of two steps, bit for bit."""
    assert left.forms() == right.forms()
    for a in left.operators:
        b = right.operator(a.type, a.name, a.occurrence)
        for way in ("inputs", "outputs"):
            for i in range(len(a.entries[way])):
                x, y = a.tensor(way, i), b.tensor(way, i)
                assert x.tobytes() == y.tobytes(), (a.type, a.name, way, i)
