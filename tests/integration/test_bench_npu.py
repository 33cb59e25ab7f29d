# SPDX-License-Identifier: Apache-2.0
"""recps-bench npu: what it prints, counts and refuses. Speeds are not
tested."""
import functools
import json
import math

import pytest

import benches
from benches import assert_positive

SMALL = ["--batch", 32, "--width", 16, "--rounds", 1, "--jitter-scale", 1,
         "--launch-latency", 20, "--device", 7]
FIGURES = [
    "launch_us", "own_step_us", "ahead_step_us", "offload_step_us",
    "bare_own_step_us", "bare_ahead_step_us", "bare_offload_step_us",
    "bare_gain", "jitter_step_us", "offload_constant", "offload_jitter",
    "own_constant", "own_jitter"]
# what one time is beyond another: of some steps on a busy machine, anything
DIFFERENCES = ["copy_us", "saved_step_us", "model_step_us"]

pytestmark = benches.is_built

npu = functools.partial(benches.bench, "npu")
figures = functools.partial(benches.figures, "npu")


@pytest.mark.parametrize("steps, loop, launches", [
    (100, 30, 4), (32, 32, 1), (7, 1, 7)])
def test_launches_copies_and_queue_are_counted(steps, loop, launches):
    result = figures(*SMALL, "--steps", steps, "--loop", loop)
    assert_positive(result, FIGURES)
    assert all(math.isfinite(result[name]) for name in DIFFERENCES)
    assert result["offload_launches"] == launches
    assert result["queue_copies"] == steps
    assert 1 <= result["queue_depth_max"] <= loop
    assert result["own_launches"] == 2 * steps
    # three ways in two rounds (one warms up) of three parts, and four runs
    # with preprocessing
    assert result["checked_runs"] == 3 * 3 * 2 + 4


def test_a_link_may_be_as_fast_as_the_machine():
    result = figures(*SMALL, "--steps", 4, "--loop", 2, "--link-bandwidth", 0)
    assert result["offload_launches"] == 2


def test_each_way_has_a_trace(tmp_path):
    figures(*SMALL, "--steps", 8, "--loop", 4, "--trace", tmp_path)
    for way in ("own", "ahead", "offload"):
        trace = json.loads((tmp_path / way / "rank0/trace.json").read_text())
        names = [event.get("name", "") for event in trace["traceEvents"]]
        assert sum("linear" in name for name in names) >= 8, way


@pytest.mark.parametrize("flags, words", [
    (["--steps", "0"], '--steps: "0"'),
    (["--loop", "x"], '--loop: "x"'),
    (["--device", "64"], '--device: "64"'),
    (["more"], "none is taken")])
def test_bad_options_are_refused(flags, words):
    result = npu(*flags)
    assert result.returncode == 64
    assert words in result.stderr
