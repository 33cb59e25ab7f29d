# SPDX-License-Identifier: Apache-2.0
"""The pipeline of recps-train: whatever its depth, the servers, their loops
and the transport, a sync run has one set of bits."""
import itertools
import json
import re

import pytest

import trainer
from test_train_words import outputs, start_worker

pytestmark = trainer.needs_programs

# Few keys, so that most rows of a batch are changed by the steps before it.
SPARSE = "synthetic:rows=3000,keys=4000,zipf=1.01,seed=3"
DENSE = "synthetic:rows=3000,keys=60,seed=3"
STAGES = ["read", "lookup", "lookup_wait", "rows", "compute", "allreduce",
          "push", "push_wait", "step_end_wait", "save", "other"]


def lines_of(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def bits_of(log):
    return [line["loss_bits"] for line in lines_of(log)[:-1]]


def result(folder, *flags, steps, options=(), **how):
    """(losses' bits, content digest) of a run with --deterministic."""
    folder.mkdir()
    log, saved = folder / "log.json", folder / "ck"
    trainer.launch("--deterministic", "--steps", steps, "--json-log", log,
                   *flags, options=["--checkpoint-dir", saved, *options],
                   **how)
    bits = bits_of(log)
    assert len(bits) == steps
    return tuple(bits), trainer.digest(trainer.checkpoint(saved, steps))


def over_all(folder, runs, steps, *flags):
    """The results of all runs: (repetition, ps, loops, transport, depth)."""
    found = set()
    for number, (_, ps, loops, transport, depth) in enumerate(runs):
        found.add(result(
            folder / str(number), *flags, "--pipeline-depth", depth,
            steps=steps, ps=ps, workers=2,
            options=["--loops", loops, "--transport", transport]))
    return found


def test_deterministic_runs_have_one_set_of_bits(tmp_path):
    runs = [(0, 1, 1, "tcp", 1), (0, 3, 2, "shm", 4), (0, 3, 1, "tcp", 3),
            (0, 1, 2, "shm", 2)]
    flags = ["--data", SPARSE, "--batch-size", 30]
    found = over_all(tmp_path, runs, 20, *flags)
    found.add(result(tmp_path / "thread", *flags, "--client-thread", steps=20,
                     ps=3, workers=2, options=["--transport", "shm"]))
    assert len(found) == 1


@pytest.mark.long
def test_100_steps_five_times_have_one_set_of_bits(tmp_path):
    runs = [(*run, 1 + run[0]) for run in itertools.product(
        range(5), (1, 3), (1, 2), ("tcp", "shm"))]
    found = over_all(tmp_path, runs, 100, "--data", SPARSE, "--batch-size", 30,
                     "--epochs", 3, "--shuffle", 500)
    assert len(found) == 1


@pytest.mark.parametrize("flags", [
    ["--data", DENSE, "--shuffle", 300, "--save-steps", 7],
    ["--data", "synthetic:rows=3000,keys=700,seed=2", "--model",
     "little_demo"],
    ["--data", SPARSE, "--sparse-optimizer", "adam", "--combine", "mean"],
], ids=["hot", "bags", "mean"])
def test_depth_changes_no_bit(tmp_path, flags):
    found = {depth: result(
        tmp_path / str(depth), *flags, "--batch-size", 25, "--epochs", 2,
        "--pipeline-depth", depth, steps=24, ps=2, workers=2)
        for depth in (1, 4)}
    assert found[1] == found[4]


def model_file(folder, **policy):
    """Two tables of several fields a bag; the first one has a policy."""
    path = folder / "model.json"
    path.write_text(json.dumps({
        "model": "dlrm", "bottom_mlp": [8, 4], "top_mlp": [8, 1],
        "dense": {"optimizer": "adam"},
        "tables": [
            {"name": "some", "fields": [["0-3"], ["4-5"]], "pooling": "mean",
             "dimension": 4, "optimizer": "adagrad", "learning_rate": 0.05,
             **policy},
            {"name": "other", "dimension": 6, "optimizer": "adam_catchup",
             "learning_rate": 0.01}]}))
    return path


@pytest.mark.parametrize("admission", ["exact", "sketch"])
def test_depth_changes_no_bit_where_keys_are_admitted(tmp_path, admission):
    """An unadmitted key's row is the default one until its count is there:
    the count of a key, too, is only what the step before has left."""
    model = model_file(tmp_path, min_used_times=5, default_value=0.25,
                       admission=admission)
    found = {depth: result(
        tmp_path / str(depth), "--data", SPARSE, "--model-config", model,
        "--batch-size", 25, "--pipeline-depth", depth, steps=24, ps=2,
        workers=2) for depth in (1, 4)}
    assert found[1] == found[4]


@pytest.mark.parametrize("mode", ["async", "bounded:2"])
def test_depth_changes_no_bit_of_one_replica(tmp_path, mode):
    """Nobody else pushes: what it looked up ahead has its own pushes."""
    logs = []
    for depth in (1, 5):
        log = tmp_path / f"{depth}.json"
        trainer.launch("--data", DENSE, "--batch-size", 50, "--mode", mode,
                       "--steps", 20, "--pipeline-depth", depth,
                       "--json-log", log)
        logs.append(trainer.log_of(log)[0])
    assert logs[0] == logs[1]


def test_a_run_that_is_stopped_between_goes_on_with_the_same_bits(tmp_path):
    """The data position is that of the step, not of what is read ahead."""
    flags = ["--deterministic", "--data", SPARSE, "--batch-size", 40,
             "--epochs", 2, "--shuffle", 100]
    logs = [tmp_path / f"{name}.json" for name in ("whole", "first", "rest")]
    folders = [tmp_path / "a", tmp_path / "b"]
    for log, more, folder in ((logs[0], ["--steps", 90], folders[0]),
                              (logs[1], ["--steps", 71], folders[1]),
                              (logs[2], ["--steps", 90, "--restore"],
                               folders[1])):
        trainer.launch(*flags, *more, "--json-log", log, ps=1,
                       options=["--checkpoint-dir", folder])
    assert bits_of(logs[1]) + bits_of(logs[2]) == bits_of(logs[0])
    assert trainer.digest(trainer.checkpoint(folders[0], 90)) == \
        trainer.digest(trainer.checkpoint(folders[1], 90))


@pytest.mark.parametrize("ps, depth", [(1, 1), (3, 4)])
def test_a_step_takes_three_round_trips_and_its_stages_are_shown(
        tmp_path, ps, depth):
    log = tmp_path / "log.json"
    out = trainer.launch("--data", SPARSE, "--batch-size", 50, "--steps", 12,
                         "--pipeline-depth", depth, "--json-log", log,
                         ps=ps).stdout
    *steps, done = lines_of(log)
    assert [step["round_trips"] for step in steps] == [3] * 12
    assert done["round_trips_per_step"] == 3
    assert done["pipeline_depth"] == depth
    assert list(done["stages"]) == STAGES
    assert abs(sum(done["stages"].values()) - 1) < 0.01
    assert (sum(done["reader"].values()) > 0) == (depth > 1)
    assert re.search(rf"pipeline depth {depth} round trips a step 3: .*"
                     r"\bcompute [0-9.]+ %", out)


REFUSED = {
    "async": (["--mode", "async"], "--mode sync"),
    "bounded": (["--mode", "bounded:0"], "--mode sync"),
    "blas": (["--blas-threads", 2], "--blas-threads=2"),
}


EVICTING = {"seconds": {"max_cold_secs": 60}, "steps": {"max_cold_steps": 9},
            "budget": {"on_full": "evict-lru", "memory_limit": 67108864}}


@pytest.mark.parametrize("policy", EVICTING.values(), ids=EVICTING)
def test_deterministic_refuses_tables_that_evict(tmp_path, policy):
    done = trainer.train("--deterministic", "--data", SPARSE, "--model-config",
                         model_file(tmp_path, **policy), code=64)
    assert "--deterministic: table some" in done.stderr
    assert re.search("max_cold_secs 60|max_cold_steps 9|on_full", done.stderr)


@pytest.mark.parametrize("flags, words", REFUSED.values(), ids=REFUSED)
def test_deterministic_refuses_what_it_cannot_promise(flags, words):
    done = trainer.train("--deterministic", "--data", SPARSE, *flags, code=64)
    assert "--deterministic" in done.stderr and words in done.stderr


def test_a_replica_refuses_a_chief_that_is_not_deterministic(recpsd):
    flags = ["--data", SPARSE, "--steps", 3]
    chief = start_worker(recpsd, 0, *flags, "--mode", "async",
                         "--step-timeout", 0.5)
    other = start_worker(recpsd, 1, *flags, "--deterministic")
    _, said = outputs(chief, other)
    assert other.returncode == 64
    assert "--deterministic needs --mode sync" in said


@pytest.mark.long
def test_depth_4_is_compared_with_depth_1(tmp_path, capsys):
    """Prints the ratio of samples/s; nothing is asserted of it."""
    flags = ["--data", "criteo:" + str(trainer.data("criteo.tsv")),
             "--batch-size", 1024, "--epochs", 12, "--log-every", 1000]
    rates = {1: [], 4: []}
    for number in range(10):
        depth = (1, 4)[number % 2]
        out = trainer.launch(*flags, "--pipeline-depth", depth, ps=1).stdout
        rates[depth].append(int(re.search(r"samples/s (\d+)", out).group(1)))
    one, four = (sorted(rates[depth])[2] for depth in (1, 4))
    with capsys.disabled():
        print(f"\npipeline depth 4: {four} samples/s, depth 1: {one}, "
              f"ratio {four / one:.2f}")
