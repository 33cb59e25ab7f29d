# SPDX-License-Identifier: Apache-2.0
"""recps-train --device-cache: rows that stay in the NPU's memory. Staleness 0
has the bits of no cache; more is what a model in Python says, which has lists
and dicts and NumPy; hit rate and bytes against an ideal LRU's."""
import collections
import json
import signal

import numpy
import pytest

import exposition
import recovery
import trainer

pytestmark = trainer.needs_programs

# after the marks: it may skip
from test_lost import wait_for_step
from test_model_config import BATCH, ROWS, SEED, feasign_file, make
from test_schedule import DYNAMIC, huge
from test_train import start_worker
from test_worker_admin import Trainer

DLRM = ["--data", "synthetic:rows=1100,keys=400,zipf=1.05,seed=3",
        "--batch-size", 25, "--train-rows", 1000, "--device", "npu",
        "--deterministic"]


def start(folder, *flags, ps=0, workers=1):
    """(bits of the losses, digest, the done line)"""
    folder.mkdir()
    log, saved = folder / "log.json", folder / "ck"
    flags = [*flags, "--json-log", log]
    if ps:
        trainer.launch(*flags, ps=ps, workers=workers,
                       options=["--checkpoint-dir", saved])
    else:
        trainer.train(*flags, "--checkpoint-dir", saved)
    *steps, done = [json.loads(line) for line in log.read_text().splitlines()]
    bits = [line["loss_bits"] for line in steps if "loss_bits" in line]
    return bits, trainer.digest(max(saved.glob("ckpt-*"))), done


# --- staleness 0 -----------------------------------------------------------

@pytest.mark.parametrize("ps, workers", [(0, 1), (2, 2)])
def test_staleness_0_has_the_bits_of_no_cache(tmp_path, ps, workers):
    flags = [*DLRM, "--steps", 15, "--npu-loop-size", 4]
    plain = start(tmp_path / "plain", *flags, ps=ps, workers=workers)
    assert "cache" not in plain[2]["npu"]
    for number, (rows, depth) in enumerate(
            ((9, 3),) if ps else ((1, 1), (1000, 1))):
        cached = start(tmp_path / str(number), *flags, "--device-cache", rows,
                       "--pipeline-depth", depth, ps=ps, workers=workers)
        assert cached[:2] == plain[:2]
        assert cached[2]["auc"] == plain[2]["auc"]
        cache = cached[2]["npu"]["cache"]
        assert cache["capacity"] == rows
        assert cache["fresh"] == cache["unchanged"] == 0
        # each was fetched as without a cache; depths differ in frames alone
        assert cache["moved"] == cache["asked"]
        assert (cached[2]["received_bytes_per_step"] == pytest.approx(
            plain[2]["received_bytes_per_step"], rel=0.01))


def test_rows_of_steps_that_pushed_nothing_are_asked_for(tmp_path):
    # steps that overflow leave their rows as they are
    huge(tmp_path / "data", 600)
    flags = ["--data", f"criteo:{tmp_path / 'data'}", "--batch-size", 20,
             *DYNAMIC, "--device", "npu", "--deterministic"]
    plain = start(tmp_path / "plain", *flags, ps=2)
    cached = start(tmp_path / "cached", *flags, "--device-cache", 3000, ps=2)
    assert cached[:2] == plain[:2]
    cache = cached[2]["npu"]["cache"]
    assert cache["unchanged"] > 50 and cache["fresh"] == 0, cache
    assert cache["moved"] + cache["unchanged"] == cache["asked"]
    assert (cached[2]["received_bytes_per_step"] <
            plain[2]["received_bytes_per_step"])


# --- staleness above 0 -----------------------------------------------------

class Held:
    """What the device has of a table: key -> (version, row), the least
    recently used one first."""

    def __init__(self, capacity, staleness):
        self.capacity, self.staleness = capacity, staleness
        self.here = collections.OrderedDict()
        self.told = collections.Counter()

    def read(self, keys, step, current):
        """The batch's rows as the device has them; keys in order."""
        rows, distinct = {}, dict.fromkeys(keys)
        found = [key for key in distinct if key in self.here]
        self.told.update(asked=len(distinct), held=len(found))
        for key in found:
            version, row = self.here[key]
            if step - 1 - version <= self.staleness:
                self.told["fresh"] += 1
            else:
                version, row = step - 1, current(key)
            self.here[key], rows[key] = (version, row), row
        for key in distinct:
            if key not in rows:
                rows[key] = current(key)
                self.place(key, (step - 1, rows[key]), distinct)
        for key in keys:
            if key in self.here:
                self.here.move_to_end(key)
        return rows

    def place(self, key, entry, distinct):
        if len(self.here) == self.capacity:
            old = next((k for k in self.here if k not in distinct), None)
            if old is None:
                self.told["extra"] += 1
                return
            del self.here[old]
            self.told["evicted"] += 1
        self.here[key] = entry


def hold(table, capacity, staleness):
    """The oracle's table reads its rows as the device does."""
    held, steps = Held(capacity, staleness), iter(range(1, 10**6))

    def pool(bags):
        rows = held.read(
            [key for bag in bags for key in bag], next(steps),
            lambda key: table.model.w.value[table.model.at[key]].copy())
        out = numpy.zeros((len(bags), table.spec["dimension"]))
        for i, keys in enumerate(bags):
            for key in keys:
                out[i] += rows[key]
            if keys:
                out[i] /= table.divisor(len(keys))
        return out

    table.pool = pool
    return held


@pytest.mark.parametrize("capacity, staleness, ps, depth", [
    pytest.param(5, 2, 0, 1, marks=pytest.mark.long), (14, 3, 2, 4),
    pytest.param(40, 1000, 1, 1, marks=pytest.mark.long)])
def test_stale_rows_are_those_of_the_oracle(
        tmp_path, capacity, staleness, ps, depth):
    data, model = tmp_path / "data.txt", tmp_path / "model.json"
    rows, labels = feasign_file(data)
    oracle = make(model, "sum", {"optimizer": "adam", "learning_rate": 0.002},
                  rows)
    held = [hold(table, capacity, staleness) for table in oracle.tables]
    flags = ["--data", f"feasign:{data}", "--model-config", model,
             "--batch-size", BATCH, "--seed", SEED, "--epochs", 3,
             "--device", "npu", "--npu-loop-size", 5, "--device-cache",
             capacity, "--cache-staleness", staleness, "--pipeline-depth",
             depth, "--json-log", tmp_path / "log"]
    if ps:
        trainer.launch(*flags, ps=ps)
    else:
        trainer.train(*flags)
    losses, done = trainer.log_of(tmp_path / "log")
    assert len(losses) == 3 * ROWS // BATCH
    for step, loss in losses.items():
        at = (step - 1) * BATCH % ROWS
        want = oracle.step(rows[at:at + BATCH], labels[at:at + BATCH], step)
        assert abs(loss - want) < 2e-6 + 2e-5 * want, step
    cache, told = done["npu"]["cache"], collections.Counter()
    for one in held:
        told.update(one.told)
    assert {name: cache[name] for name in told} == dict(told)
    assert told["fresh"] > 100
    assert cache["moved"] == cache["asked"] - cache["fresh"]


def test_no_bit_depends_on_depth_or_loop_size(tmp_path):
    flags = [*DLRM, "--steps", 20, "--device-cache", 300, "--cache-staleness",
             2]
    one = start(tmp_path / "one", *flags, "--pipeline-depth", 1, ps=1)
    many = start(tmp_path / "many", *flags, "--pipeline-depth", 5,
                 "--npu-loop-size", 7, ps=3)
    assert one[:2] == many[:2]
    assert one[2]["npu"]["cache"] == many[2]["npu"]["cache"]


# --- steps that do not happen ----------------------------------------------

@pytest.mark.long
def test_rows_are_right_behind_steps_that_a_held_up_replica_missed(
        recpsd, tmp_path):
    """Nothing changes at these rates, so a step that counts all three has the
    loss of a run without a cache and without a pause, whatever rows stay."""
    log = tmp_path / "log"
    flags = [*DLRM[:4], "--device", "npu", "--epochs", 100000, "--sparse-lr",
             1e-30, "--dense-lr", 1e-30]
    plain = tmp_path / "plain"
    trainer.launch(*flags, "--steps", 600, "--json-log", plain, workers=3)
    want = {line["step"]: line["loss"] for line in map(
        json.loads, plain.read_text().splitlines()) if "loss" in line}
    cached = [*flags, "--backup-workers", 1, "--device-cache", 200,
              "--cache-staleness", 50, "--npu-loop-size", 20]
    workers = [start_worker(recpsd, index, *cached, *(
        ["--json-log", log] if index == 0 else []), workers=3)
        for index in range(3)]
    chief, _, slow = workers
    try:
        step = wait_for_step(chief, 10)
        for _ in range(3):
            slow.send_signal(signal.SIGSTOP)
            step = wait_for_step(chief, step + 30)
            slow.send_signal(signal.SIGCONT)
            step = wait_for_step(chief, step + 100)
        chief.send_signal(signal.SIGTERM)
        assert chief.wait(60) == 143
        rest = [worker.communicate(timeout=60)[0] for worker in workers[1:]]
        assert "of this replica's steps were not" in rest[1], rest[1]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    whole = {line["step"]: line["loss"] for line in lines
             if line.get("counted") == 3 and line["step"] in want}
    assert len(whole) > 30 and max(whole) > 200
    for step, loss in whole.items():
        assert loss == pytest.approx(want[step], rel=1e-7), step


@pytest.mark.long
def test_a_job_that_comes_back_begins_with_no_row(tmp_path):
    flags = [*DLRM[:4], "--recover", "--deterministic", "--save-steps", 10,
             "--device", "npu", "--npu-loop-size", 20, "--device-cache", 500]
    (tmp_path / "lost").mkdir()
    with recovery.Job(tmp_path / "lost", *flags, data=DLRM[1], workers=1,
                      options=["--restart", "on-failure"]) as job:
        job.wait_for_step(25)
        job.signal("ps:1")
        job.wait_for("rolled back from step")
        lost = job.result()
    (tmp_path / "straight").mkdir()
    with recovery.Job(tmp_path / "straight", *flags[:-2], data=DLRM[1],
                      workers=1) as job:
        assert job.result() == lost


# --- figures ---------------------------------------------------------------

def zipf_file(path, rows, keys, tokens):
    """Keys of each row of one slot, the r-th as often as r^-1.05."""
    draw = numpy.random.default_rng(9)
    chance = numpy.arange(1, keys + 1) ** -1.05
    ends = numpy.cumsum(chance / chance.sum())
    drawn = numpy.searchsorted(ends, draw.random((rows, tokens))) + 1
    labels = draw.integers(0, 2, rows)
    with open(path, "w", encoding="ascii") as file:
        for label, row in zip(labels, drawn):
            words = " ".join(f"{key}:0" for key in row)
            file.write(f"{label}:1 {words}\n")
    return drawn


def ideal_lru(batches, capacity):
    """(rows asked for, hits) of a cache that sees one key after the other,
    each batch's keys once, in the order of their last tokens."""
    here, asked, hits = collections.OrderedDict(), 0, 0
    for batch in batches:
        flat = [int(key) for key in batch.reshape(-1)]
        for key in reversed(dict.fromkeys(reversed(flat))):
            asked += 1
            hits += key in here
            here[key] = None
            here.move_to_end(key)
            if len(here) > capacity:
                here.popitem(last=False)
    return asked, hits


@pytest.mark.parametrize("rows, keys, batch, bounds", [
    (8000, 20000, 256, (0, 4)), pytest.param(
        400000, 200000, 1024, (0, 1, 4, 16), marks=pytest.mark.long)])
def test_hit_rate_is_the_ideal_lrus_and_bytes_fall(
        tmp_path, capsys, rows, keys, batch, bounds):
    path, model = tmp_path / "rows", tmp_path / "model.json"
    drawn = zipf_file(path, rows, keys, 4)
    capacity = keys // 10
    model.write_text(json.dumps({
        "model": "dlrm", "bottom_mlp": [16], "top_mlp": [8, 1],
        "dense": {"optimizer": "adam"}, "tables": [
            {"name": "emb", "dimension": 16, "fields": [0], "pooling": "sum",
             "optimizer": "adagrad", "device_vocabulary_size": capacity}]}))
    asked, hits = ideal_lru(numpy.split(
        drawn[:rows // batch * batch], rows // batch), capacity)
    flags = ["--data", f"feasign:{path}", "--model-config", model,
             "--batch-size", batch, "--device", "npu", "--npu-loop-size", 32]
    plain = start(tmp_path / "plain", *flags, "--deterministic", ps=1)
    lines = [f"{keys} keys, zipf 1.05, batches of {4 * batch} tokens, "
             f"{capacity} places; ideal LRU: hit rate {hits / asked:.4f}"]

    def line(name, done):
        lines.append(
            f"{name}: {done['sent_bytes_per_step']:.0f} B sent, "
            f"{done['received_bytes_per_step']:.0f} B received a step")

    line("no cache", plain[2])
    got = plain[2]["received_bytes_per_step"]
    for staleness in bounds:
        bits, digest, done = start(
            tmp_path / str(staleness), *flags, "--deterministic",
            "--device-cache", "on", "--cache-staleness", staleness, ps=1)
        cache = done["npu"]["cache"]
        fresh = cache["fresh"] / cache["asked"]
        line(f"staleness {staleness}: hit rate {cache['hit_rate']:.4f}, "
             f"{fresh:.4f} not fetched, last loss {done['final_loss']:.5f}",
             done)
        assert cache["asked"] == asked and cache["capacity"] == capacity
        # one batch's keys do not put each other out: never below the ideal
        assert 0 <= cache["held"] - hits <= 0.02 * asked
        assert ((bits, digest) == plain[:2]) == (staleness == 0)
        # 64 bytes a row that is not fetched
        saved = got - done["received_bytes_per_step"]
        assert saved == pytest.approx(
            64 * cache["fresh"] / done["steps"], rel=0.05, abs=64)
    if len(bounds) > 2:
        with capsys.disabled():
            print("", *lines, sep="\n")


def test_metrics_have_the_hits(tmp_path):
    with Trainer(tmp_path, "--device", "npu", "--device-cache", 500,
                 "--cache-staleness", 3) as run:
        run.until(lambda stat: stat.get("cache_hit_rate", 0) > 0)
        families = exposition.parse(run.get("/metrics")[1])
    asked, held, current = (
        families[name].samples[name, frozenset()] for name in (
            f"recps_worker_cache_{what}_rows_total"
            for what in ("asked", "held", "current")))
    assert asked >= held >= current > 0


# --- what is refused -------------------------------------------------------

@pytest.mark.parametrize("flags, words", [
    (["--device-cache", 9], "--device-cache goes with --device npu only"),
    (["--device", "npu", "--device-cache", "most"], "--device-cache=most: "),
    (["--device", "npu", "--device-cache", 0], "--device-cache=0: "),
    (["--device", "npu", "--cache-staleness", 1], "give --device-cache, too"),
    (["--device", "npu", "--device-cache", "on"],
     "has a device_vocabulary_size of 1"),
    (["--device", "npu", "--device-cache", 9, "--evaluate"],
     "goes with training")])
def test_what_makes_no_sense_is_refused(flags, words):
    done = trainer.train("--data", "synthetic:rows=100", *flags, code=64)
    assert words in done.stderr


def test_a_cache_that_the_device_cannot_hold_is_told(tmp_path):
    done = trainer.train(*DLRM, "--steps", 2, "--device-memory", "4MiB",
                         "--device-cache", 100000, code=78)
    assert "the pool has" in done.stderr
