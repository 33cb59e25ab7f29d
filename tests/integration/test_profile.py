# SPDX-License-Identifier: Apache-2.0
"""recps-train --profile: its files, against what the run did."""
import re

import pytest

import programs
import trainer
import traces

pytestmark = trainer.needs_programs

DATA = "synthetic:rows=2000,seed=3"
SMALL = ["--data", DATA, "--batch-size", 100]
STAGES = {"lookup", "lookup_wait", "push", "push_wait", "step_end_wait"}


def refused(*flags, code=64):
    done = trainer.train(*flags, code=code)
    assert done.stdout == ""
    return done.stderr


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """(what was printed, trace) of a run of 20 steps, 5 to 8 profiled."""
    folder = tmp_path_factory.mktemp("profile") / "out"
    done = trainer.train(*SMALL, "--profile", folder, "--profile-steps", "5:8")
    return done.stdout, traces.Trace(folder / "rank0")


def test_the_steps_asked_for_are_in_the_trace(profiled):
    output, trace = profiled
    assert trace.steps() == [5, 6, 7, 8]
    spans = sum(e["ph"] != "M" for e in trace.events) - 4
    assert re.search(rf"profile of 4 steps: \S+/rank0 \({spans} spans\)", output)
    assert trace.all["otherData"]["dropped"] == 0


def test_every_stage_of_each_step_is_a_span_in_it(profiled):
    trace = profiled[1]
    for step in trace.spans("step"):
        inside = [e for e in trace.events if e["ph"] == "X" and
                  e["cat"] != "step" and trace.tracks[e["tid"]] == "loop" and
                  step["ts"] <= e["ts"] and
                  e["ts"] + e["dur"] <= step["ts"] + step["dur"] + 0.001]
        assert {e["name"] for e in inside if e["cat"] == "communication"} == STAGES
        assert {"read", "compute", "rows"} <= {
            e["name"] for e in inside if e["cat"] == "scheduling"}
        assert all(e["args"]["step"] == step["args"]["step"] for e in inside)


def test_communication_has_its_bytes(profiled):
    trace = profiled[1]
    for name in ("push", "lookup_wait"):
        spans = trace.spans("communication", name)
        assert len(spans) == 4 and all(e["args"]["bytes"] > 1000 for e in spans)
    rows = {row["name"]: row for row in trace.table("communication")}
    assert int(rows["push"]["bytes"]) == sum(
        e["args"]["bytes"] for e in trace.spans("communication", "push"))


def test_the_models_parts_are_operators(profiled):
    """A batch of 100 rows is two tiles of 64: each part runs 8 times."""
    trace = profiled[1]
    rows = {row["name"]: row for row in trace.table("operators")}
    parts = [f"{layer}/linear_backward"
             for layer in ("bot.0", "bot.2", "top.0", "top.2")]
    parts += ["bot.0/linear_relu", "bot.2/linear_relu", "top.0/linear_relu",
              "top.2/linear", "interaction/dots", "interaction/dots_backward",
              "loss/bce"]
    assert set(rows) == set(parts)
    assert all(row["count"] == "8" for row in rows.values())
    # 2 m n k of 64 rows, 64 outputs, 13 dense features
    assert int(rows["bot.0/linear_relu"]["flops"]) == 8 * 2 * 64 * 64 * 13
    assert rows["bot.0/linear_relu"]["holds"] == "linear + bias + relu"
    assert rows["top.2/linear"]["holds"] == "linear + bias"
    assert rows["bot.0/linear_relu"]["shapes"] == "[64,13] [64,13]"


def test_times_of_the_tables_are_the_traces(profiled):
    trace = profiled[1]
    for name, category in (("operators", "operator"),
                           ("scheduling", "scheduling")):
        for row in trace.table(name):
            spans = [e["dur"] for e in trace.spans(category, row["name"])
                     if trace.tracks[e["tid"]] == row["track"]]
            assert int(row["count"]) == len(spans)
            assert float(row["total_us"]) == pytest.approx(sum(spans))
            assert float(row["max_us"]) == pytest.approx(max(spans))
            assert float(row["self_us"]) <= float(row["total_us"])


def test_what_operators_take_is_not_their_stages_own_time(profiled):
    trace = profiled[1]
    operators = sum(e["dur"] for e in trace.spans("operator"))
    compute = next(r for r in trace.table("scheduling") if r["name"] == "compute")
    assert float(compute["self_us"]) == pytest.approx(
        float(compute["total_us"]) - operators, abs=0.01)


def test_memory_is_told_from_time_to_time(profiled):
    rows = profiled[1].table("memory")
    assert rows[0]["step"] == "5"
    assert {row["step"] for row in rows} <= {"5", "6", "7", "8"}
    assert {row["name"] for row in rows} == {"host resident"}
    assert all(float(row["value"]) > 1 << 20 for row in rows)


def test_pooling_and_joining_are_operators_of_little_demo(tmp_path):
    data = tmp_path / "data.txt"
    trainer.criteo_file(data, 600)
    config = programs.ROOT / "conf/examples/dlrm_tables.json"
    trainer.train("--data", f"criteo:{data}", "--model-config", config,
                  "--batch-size", 64, "--profile", tmp_path / "out",
                  "--profile-steps", "2:3")
    trace = traces.Trace(tmp_path / "out/rank0")
    types = {row["type"] for row in trace.table("operators")}
    assert any(re.fullmatch("(sum|mean|sqrtn)_pooling", t) for t in types)
    assert any(re.fullmatch("(sum|mean|sqrtn)_pooling_backward", t)
               for t in types)


def test_a_profile_changes_no_bit(tmp_path):
    def bits(*flags):
        log = tmp_path / "log.json"
        trainer.train(*SMALL, "--deterministic", "--json-log", log, *flags)
        return re.findall(r'"loss_bits": "(\w+)"', log.read_text())

    found = bits("--profile", tmp_path / "out", "--profile-steps", "1:20")
    assert len(found) == 20 and found == bits()
    # the last step of the profile was the run's last
    assert traces.Trace(tmp_path / "out/rank0").steps() == list(range(1, 21))


def test_each_rank_has_a_folder(tmp_path):
    trainer.launch(*SMALL, "--profile", tmp_path / "out", "--profile-steps",
                   "3:4", ps=1, workers=2)
    for rank in (0, 1):
        trace = traces.Trace(tmp_path / f"out/rank{rank}")
        assert trace.steps() == [3, 4]
        assert trace.all["otherData"]["rank"] == rank


@pytest.mark.parametrize("steps, words", [
    ("20:11", "the first step is behind the last"),
    ("0:3", "from 1 on, as in 11:20"),
    ("7", "with a colon between"),
    ("a:b", "as in 11:20"),
    ("-1:3", "as in 11:20"),
    ("1:2:3", "as in 11:20"),
    ("1:200000", "at most 100000"),
    ("21:22", "the run ends with step 20"),
])
def test_bad_steps_are_refused(tmp_path, steps, words):
    told = refused(*SMALL, "--profile", tmp_path / "out",
                   f"--profile-steps={steps}")
    assert f"--profile-steps={steps}" in told and words in told
    assert not (tmp_path / "out").exists()


def test_what_does_not_go_together_is_refused(tmp_path):
    assert "give --profile FOLDER, too" in refused(*SMALL, "--profile-steps=1:2")
    assert "--evaluate" in refused(*SMALL, "--profile", tmp_path, "--evaluate")
    assert "empty value" in refused(*SMALL, "--profile=")


def test_another_profile_is_not_overwritten(tmp_path):
    flags = [*SMALL, "--profile", tmp_path, "--profile-steps", "1:2"]
    trainer.train(*flags)
    before = (tmp_path / "rank0/trace.json").read_bytes()
    assert "rank0 is there and has files" in refused(*flags)
    assert (tmp_path / "rank0/trace.json").read_bytes() == before
    # a process that is started again by recps launch
    trainer.train(*flags, env={"RECPS_RESTART_COUNT": "2"})
    assert traces.Trace(tmp_path / "rank0.restart2").steps() == [1, 2]


def test_a_folder_that_cannot_be_written_is_told_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    told = refused(*SMALL, "--profile", tmp_path / "file/out",
                   "--profile-steps", "1:2", code=74)
    assert "file is no folder" in told


def test_a_run_that_goes_on_behind_the_steps_says_so(tmp_path):
    saved = tmp_path / "ck"
    trainer.train(*SMALL, "--checkpoint-dir", saved, "--steps", 10)
    done = trainer.train(
        *SMALL, "--checkpoint-dir", saved, "--restore", "--profile",
        tmp_path / "out", "--profile-steps", "2:3")
    assert "profile: nothing: the run goes on behind step 10" in done.stdout
    assert not (tmp_path / "out/rank0/trace.json").exists()


NPU = ["--device", "npu", "--device-id", 2, "--npu-loop-size", 4]


@pytest.fixture(scope="module")
def on_device(tmp_path_factory):
    """Steps 5 to 12 of 20, four a launch."""
    folder = tmp_path_factory.mktemp("device") / "out"
    trainer.train(*SMALL, *NPU, "--profile", folder, "--profile-steps", "5:12")
    return traces.Trace(folder / "rank0")


def test_kernels_and_copies_of_a_device_are_spans(on_device):
    trace = on_device
    assert trace.steps() == list(range(5, 13))
    operators = trace.spans("operator")
    streams = {trace.tracks[e["tid"]] for e in operators}
    assert any("compute" in name for name in streams)
    assert not any(trace.tracks[e["tid"]] == "loop" and
                   e["args"]["type"] == "linear" for e in operators)
    names = [e["name"] for e in operators]
    # once a step each, whatever the loop
    for name in set(names):
        assert names.count(name) % 8 == 0, name
    copies = trace.spans("copy")
    assert copies and all(e["args"]["bytes"] > 0 for e in copies)
    assert {"lookup_wait", "push"} <= {
        e["name"] for e in trace.spans("communication")}


def test_a_devices_memory_is_constant_over_steps(on_device):
    rows = on_device.table("memory")
    for name in ("npu2 allocated", "npu2 active", "npu2 reserved"):
        values = {row["value"] for row in rows if row["name"] == name}
        assert len(values) == 1 and float(values.pop()) > 0
    # one set of names, whoever writes them down
    assert not any(row["name"].startswith("npu ") for row in rows)


def test_both_devices_can_be_compared(on_device, profiled):
    done = trainer.run([programs.RECPS, "profile", "compare",
                        profiled[1].folder, on_device.folder])
    assert "a step, end to end" in done.stdout
