# SPDX-License-Identifier: Apache-2.0
"""Dumps that a test writes with NumPy alone, and the guide's find_nan.py."""
import itertools
import json
import subprocess
import sys

import numpy as np

from numpy_dumps import DTYPES, clean

# The script of the precision guide, its print indented.
FIND_NAN = '''
import glob
import numpy as np

files = glob.glob("dump_data_npy/*")
files.sort(key = lambda x : int(x.split(".")[4]))
for i in files:
    f = np.load(i)
    if np.isnan(f).any():
        print(i)
        break
'''

PLACE = 0x7f0000000000


def find_nan(folder, tmp_path):
    """The name of the file that the guide's script prints; None: none."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "find_nan.py").write_text(FIND_NAN, "utf8")
    link = tmp_path / "dump_data_npy"
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    done = subprocess.run([sys.executable, "find_nan.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60,
                          check=True)
    return done.stdout.strip().rpartition("/")[2] or None


class Tensor:
    """Numbers, and where they lie: views of one array share its place."""

    def __init__(self, array, place, dtype=None):
        self.array = array
        self.place = place
        self.dtype = dtype or DTYPES[str(array.dtype)]

    def __getitem__(self, index):
        view = self.array[index]
        offset = (view.__array_interface__["data"][0]
                  - self.array.__array_interface__["data"][0])
        return Tensor(view, self.place + offset, self.dtype)

    def entry(self, label, file):
        entry = {"label": label, "dtype": self.dtype,
                 "shape": list(self.array.shape),
                 "place": hex(self.place),
                 "strides": [s // self.array.itemsize
                             for s in self.array.strides]}
        return entry | ({"file": file} if file else {})


class Dump:
    """One step. Operators are written as they are added."""

    def __init__(self, path, step=0, manifest=True, **run):
        self.path = path
        self.step = step
        self.run = run
        self.folder = path / f"dump/20260101000000/0/model/1/{step}"
        self.folder.mkdir(parents=True)
        self.manifest = manifest
        self.operators = []
        self.places = itertools.count(PLACE, 0x10000000)
        self.times = itertools.count(1_700_000_000_000_000 + step * 10 ** 9, 7)

    def tensor(self, array, dtype=None):
        """Somewhere in memory."""
        return Tensor(np.asarray(array), next(self.places), dtype)

    def _save(self, stem, side, index, tensor):
        if tensor.array.size == 0:
            return None
        name = f"{stem}.{next(self.times)}.{side}.{index}.npy"
        np.save(self.folder / name, np.ascontiguousarray(tensor.array))
        return name

    def op(self, kind, name, inputs, outputs, holds=None, stream=0,
           read=None, **attributes):
        """inputs, outputs: {label: tensor}; read: what other numbers an input
        had when it was read."""
        task = len(self.operators)
        stem = f"{clean(kind)}.{clean(name)}.{task}.{stream}"
        entry = {"type": kind, "name": name, "holds": holds, "task": task,
                 "stream": stream, "attributes": attributes,
                 "inputs": [], "outputs": []}
        if holds is None:
            del entry["holds"]
        for i, (label, tensor) in enumerate(inputs.items()):
            seen = Tensor((read or {}).get(label, tensor.array), tensor.place,
                          tensor.dtype)
            file = self._save(stem, "input", i, seen)
            entry["inputs"].append(tensor.entry(label, file))
        for i, (label, tensor) in enumerate(outputs.items()):
            file = self._save(stem, "output", i, tensor)
            entry["outputs"].append(tensor.entry(label, file))
        self.operators.append(entry)
        return entry

    def end(self):
        if self.manifest:
            text = json.dumps({"recps_dump": 1, "step": self.step,
                               "complete": True, "run": self.run,
                               "operators": self.operators})
            path = self.folder.parent / f"{self.step}.json"
            path.write_text(text, "utf8")
        return self.path
