# SPDX-License-Identifier: Apache-2.0
"""Running recps-bench and reading its figures."""
import json
import subprocess

import pytest

import programs

BENCH = programs.BUILD / "bench/recps-bench"

# and it hangs
SECONDS = {"allreduce": 60, "checkpoint": 120, "net": 120, "npu": 120,
           "table": 300}

is_built = pytest.mark.skipif(not BENCH.is_file(),
                              reason=f"{BENCH} is not built")


def bench(word, *flags):
    return subprocess.run([BENCH, word, *map(str, flags)], check=False,
                          capture_output=True, text=True, timeout=SECONDS[word],
                          env=programs.environment())


def figures(word, *flags):
    run = bench(word, *flags, "--json")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    return json.loads(run.stdout)


def assert_positive(result, names):
    for name in names:
        assert isinstance(result[name], (int, float)), name
        assert result[name] > 0, name
