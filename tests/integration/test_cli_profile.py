# SPDX-License-Identifier: Apache-2.0
"""recps profile: its sums against an own addition of the trace, and against a
trace that PyTorch's profiler wrote."""
import collections
import json
import subprocess

import pytest

import programs
import trainer
import traces

pytestmark = trainer.needs_programs

SMALL = ["--data", "synthetic:rows=2000,seed=3", "--batch-size", 100]
CLASSES = ["operator", "copy", "communication", "scheduling"]

TORCH = """
import sys
try:
    import torch
except ImportError:
    sys.exit(77)
from torch.profiler import ProfilerActivity, profile, schedule
model = torch.nn.Sequential(
    torch.nn.Linear(13, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
step = torch.optim.SGD(model.parameters(), 0.1)
with profile(activities=[ProfilerActivity.CPU],
             schedule=schedule(wait=1, warmup=1, active=3)) as profiler:
    for _ in range(5):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(torch.randn(64, 13)), torch.rand(64, 1))
        step.zero_grad()
        loss.backward()
        step.step()
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
"""


def recps(*words, code=0):
    return trainer.run([programs.RECPS, "profile", *words], code=code)


def answer(*words):
    return json.loads(recps(*words, "--json").stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of two profiles: of one rank, and of two."""
    folder = tmp_path_factory.mktemp("profiles")
    trainer.train(*SMALL, "--profile", folder / "one", "--profile-steps", "5:8")
    trainer.launch(*SMALL, "--profile", folder / "two", "--profile-steps",
                   "3:4", ps=1, workers=2)
    return folder / "one", folder / "two"


def self_times(events):
    """{(class, name): (count, total, self)} in us: spans of a thread are a
    stack, and an inner one's time is not the outer one's own."""
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0])
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] != "step":
            threads[event["tid"]].append(event)
    for spans in threads.values():
        spans.sort(key=lambda e: (e["ts"], -e["dur"]))
        stack = []
        for span in spans:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= span["ts"] + 1e-4:
                stack.pop()
            if stack:
                sums[stack[-1]["cat"], stack[-1]["name"]][2] -= span["dur"]
            stack.append(span)
            entry = sums[span["cat"], span["name"]]
            entry[0] += 1
            entry[1] += span["dur"]
            entry[2] += span["dur"]
    return sums


def test_a_summary_adds_the_trace_up(runs):
    trace = traces.Trace(runs[0] / "rank0")
    told = answer("summary", runs[0])
    expected = self_times(trace.events)
    steps = [e["dur"] for e in trace.spans("step")]
    assert told["steps"]["count"] == len(steps) == 4
    assert told["steps"]["mean_us"] == pytest.approx(sum(steps) / 4)
    assert told["kind"] == "recps" and told["dropped"] == 0
    found = {}
    for name, part in told["classes"].items():
        assert part["names"] == len(part["top"]) <= 20
        selfs = [row["self_us"] for row in part["top"]]
        assert selfs == sorted(selfs, reverse=True)
        assert part["self_us"] == pytest.approx(sum(selfs))
        assert part["share"] == pytest.approx(sum(selfs) / sum(steps))
        for row in part["top"]:
            found[name, row["name"]] = row
    assert set(found) == set(expected)
    for key, (count, total, own) in expected.items():
        assert found[key]["count"] == count
        assert found[key]["total_us"] == pytest.approx(total)
        assert found[key]["self_us"] == pytest.approx(own, abs=0.01)


def test_ranks_are_added_up_and_told_apart(runs):
    told = answer("summary", runs[1])
    alone = [answer("summary", runs[1] / f"rank{rank}") for rank in (0, 1)]
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1]
    assert told["steps"]["count"] == 4
    assert told["spans"] == sum(one["spans"] for one in alone)
    for name in CLASSES:
        assert told["classes"][name]["self_us"] == pytest.approx(
            sum(one["classes"][name]["self_us"] for one in alone))
    text = recps("summary", runs[1]).stdout
    assert "2 ranks, 4 steps of" in text and "slowest: rank" in text


def test_a_summary_is_a_table_for_people(runs):
    text = recps("summary", runs[0], "--top", 3).stdout
    assert "1 rank, 4 steps of" in text
    for name in CLASSES:
        assert f"\n{name} " in text
    assert "8 more: --top 11" in text
    assert "(linear + bias + relu)" in recps("summary", runs[0]).stdout


def test_a_comparison_is_by_step_then_class_then_part(runs):
    told = answer("compare", runs[0], runs[1])
    a, b = answer("summary", runs[0]), answer("summary", runs[1])
    assert not told["families"]
    assert told["step"]["a_us"] == pytest.approx(a["steps"]["mean_us"])
    assert told["step"]["ratio"] == pytest.approx(
        b["steps"]["mean_us"] / a["steps"]["mean_us"])
    for name in CLASSES:
        part = told["classes"][name]
        assert part["a_us"] == pytest.approx(a["classes"][name]["step_us"])
        assert part["b_us"] == pytest.approx(b["classes"][name]["step_us"])
        rows = part["parts"]
        differences = [abs(row["difference_us"]) for row in rows]
        assert differences == sorted(differences, reverse=True)
        assert sum(row["b_us"] for row in rows) == pytest.approx(part["b_us"])
    names = {row["name"] for row in told["classes"]["operator"]["parts"]}
    assert "top.0/linear_relu" in names
    text = recps("compare", runs[0], runs[1]).stdout
    assert "a step, end to end" in text


def test_a_profile_is_like_itself(runs):
    told = answer("compare", runs[0], runs[0] / "rank0/trace.json")
    assert told["step"]["ratio"] == 1
    assert all(row["difference_us"] == 0 for part in told["classes"].values()
               for row in part["parts"])


@pytest.mark.long
def test_one_side_may_be_pytorchs(runs, tmp_path):
    """The forms of other versions are in tests/unit/profile/test_read.c."""
    python, path = "/usr/bin/python3", tmp_path / "torch.json"
    made = subprocess.run([python, "-c", TORCH, path], check=False, timeout=120)
    if made.returncode == 77:
        pytest.skip(f"{python} has no torch (Debian: python3-torch)")
    assert made.returncode == 0
    alone = answer("summary", path)
    assert alone["kind"] == "pytorch" and alone["steps"]["count"] == 3
    told = answer("compare", runs[0], path)
    assert told["families"] and told["b"]["kind"] == "pytorch"
    parts = {row["name"]: row for row in told["classes"]["operator"]["parts"]}
    # two layers: forward each, backward of weights, and of the second's input
    assert parts["linear"]["b_calls"] >= 5 and parts["linear"]["b_us"] > 0
    assert parts["loss"]["a_us"] > 0 and parts["loss"]["b_us"] > 0
    assert parts["activation"]["b_us"] > 0
    # the other way round
    turned = answer("compare", path, runs[0])
    assert turned["step"]["a_us"] == pytest.approx(told["step"]["b_us"])


def test_a_trace_without_steps_counts_as_one(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([
        {"ph": "X", "name": "aten::mm", "ts": 100, "dur": 20, "tid": 1, "pid": 1},
        {"ph": "X", "name": "aten::mm", "ts": 150, "dur": 50, "tid": 1, "pid": 1},
    ]))
    told = answer("summary", path)
    assert not told["has_steps"]
    assert told["steps"] == {"count": 1, "mean_us": 100.0, "min_us": 100.0,
                             "max_us": 100.0}
    assert "it has no steps" in recps("summary", path).stdout


def test_what_was_dropped_is_told(runs, tmp_path):
    text = (runs[0] / "rank0/trace.json").read_text()
    path = tmp_path / "t.json"
    path.write_text(text.replace('"dropped": 0', '"dropped": 12'))
    assert "12 spans are missing" in recps("summary", path).stdout


@pytest.mark.parametrize("words, code, told", [
    (["summary"], 64, "takes one folder"),
    (["compare", "x"], 64, "takes two folders"),
    ([], 64, "say what to do"),
    (["show", "x"], 64, "say what to do"),
    (["summary", "x", "--top", "0"], 64, "from 1 to"),
    (["summary", "nowhere"], 66, "cannot open nowhere"),
    (["summary", "."], 66, "has neither trace.json nor rank0/trace.json"),
    (["summary", "bad.json"], 65, "bad.json: line 2, byte "),
    (["summary", "none.json"], 65, "has no spans"),
    (["compare", "bad.json", "none.json"], 65, "bad.json"),
])
def test_what_is_wrong_is_said(tmp_path, words, code, told):
    (tmp_path / "bad.json").write_text('[{"ph": "M"},\n{"ph": "X", }]')
    (tmp_path / "none.json").write_text('{"traceEvents": []}')
    for flags in ([], ["--json"]):
        done = subprocess.run(
            [programs.RECPS, "profile", *words, *flags], cwd=tmp_path,
            env=programs.environment(), capture_output=True, text=True,
            timeout=60, check=False)
        assert done.returncode == code and told in done.stderr
        if flags:
            assert json.loads(done.stdout)["exit"] == code
        else:
            assert done.stdout == ""
