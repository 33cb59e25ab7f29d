# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules and loss scale of recps-train."""
import json
import subprocess

import numpy
import pytest

import programs
import trainer

RATES = programs.TESTS_BUILD / "tests/tools/schedule_rates"

pytestmark = [
    trainer.needs_programs,
    pytest.mark.skipif(not RATES.is_file(), reason=f"{RATES} is not built")]

STEPS = 3000
BASE = 0.05


def rates(schedule, base=BASE, steps=STEPS):
    """What the trainer's own code says, a double a step."""
    done = subprocess.run([str(RATES), schedule, repr(base), str(steps)],
                          capture_output=True, text=True, timeout=60,
                          check=True)
    return numpy.array(done.stdout.split(), dtype=numpy.float64)


def polynomial(step, steps, end, power, cycle=False):
    """tf.compat.v1.train.polynomial_decay, as its documentation has it."""
    if cycle:
        steps = steps * numpy.maximum(numpy.ceil(step / steps), 1)
    else:
        step = numpy.minimum(step, steps)
    return (BASE - end) * (1 - step / steps) ** power + end


def warm(rate, steps):
    t = numpy.arange(STEPS)
    return rate * numpy.minimum((t + 1) / steps, 1)


def after(begin):
    """Steps of the decay at each step."""
    return numpy.maximum(numpy.arange(STEPS) - begin, 0).astype(numpy.float64)


def pieces(bounds):
    t = numpy.arange(STEPS)
    return numpy.select([t >= at for at, _ in bounds[::-1]],
                        [rate for _, rate in bounds[::-1]], BASE)


FORMULAS = {
    "constant": numpy.full(STEPS, BASE),
    "constant:warmup=250": warm(BASE, 250),
    "polynomial:steps=1000": polynomial(after(0), 1000, 0, 1),
    "polynomial:steps=1000,end=1e-4,power=2.5":
        polynomial(after(0), 1000, 1e-4, 2.5),
    "polynomial:steps=700,end=0.01,power=0.5,cycle=true":
        polynomial(after(0), 700, 0.01, 0.5, True),
    "polynomial:steps=700,end=0.1": polynomial(after(0), 700, 0.1, 1),
    "polynomial:steps=1000,end=1e-4,power=2,warmup=100":
        warm(polynomial(after(100), 1000, 1e-4, 2), 100),
    "polynomial:steps=1000,begin=0,warmup=100":
        warm(polynomial(after(0), 1000, 0, 1), 100),
    "polynomial:begin=500,steps=1000,power=2,warmup=30":
        warm(polynomial(after(500), 1000, 0, 2), 30),
    "exponential:steps=400,rate=0.96": BASE * 0.96 ** (after(0) / 400),
    "exponential:steps=400,rate=0.5,staircase=true":
        BASE * 0.5 ** numpy.floor(after(0) / 400),
    "exponential:steps=1,rate=0.999,warmup=10":
        warm(BASE * 0.999 ** after(10), 10),
    "piecewise:1000=0.01,2500=0": pieces([(1000, 0.01), (2500, 0)]),
    "piecewise:0=0.5,7=0.25,warmup=20":
        warm(pieces([(0, 0.5), (7, 0.25)]), 20),
}


@pytest.mark.parametrize("schedule", FORMULAS)
def test_every_step_has_the_rate_of_the_formula(schedule):
    numpy.testing.assert_allclose(
        rates(schedule), FORMULAS[schedule], rtol=1e-14, atol=1e-16)


def torch_rates(make):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    got = []
    for _ in range(STEPS):
        got.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return numpy.array(got)


@pytest.mark.parametrize("schedule, make", [
    ("constant:warmup=250", lambda kinds, optimizer: kinds.LinearLR(
        optimizer, start_factor=1 / 250, total_iters=249)),
    ("polynomial:steps=1000,power=2", lambda kinds, optimizer:
     kinds.PolynomialLR(optimizer, total_iters=1000, power=2)),
    ("exponential:steps=400,rate=0.5,staircase=true", lambda kinds, optimizer:
     kinds.StepLR(optimizer, step_size=400, gamma=0.5)),
    ("exponential:steps=1,rate=0.999", lambda kinds, optimizer:
     kinds.ExponentialLR(optimizer, gamma=0.999)),
    ("piecewise:1000=0.005,2500=0.0005", lambda kinds, optimizer:
     kinds.MultiStepLR(optimizer, milestones=[1000, 2500], gamma=0.1)),
])
def test_every_step_has_pytorchs_rate(schedule, make):
    """PyTorch goes from step to step, so that its own rounding adds up."""
    numpy.testing.assert_allclose(
        rates(schedule), torch_rates(make), rtol=1e-9, atol=1e-15)


# What a run does with them.

DATA = "synthetic:rows=6000,keys=300,seed=3"
FLAGS = ["--data", DATA, "--batch-size", 100]


def steps_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()][:-1]


def column(path, name):
    return [step[name] for step in steps_of(path)]


SPARSE = "polynomial:steps=25,end=0.001,power=2,warmup=5"
DENSE = "exponential:steps=10,rate=0.5,staircase=true"
SCHEDULES = ["--sparse-schedule", SPARSE, "--dense-schedule", DENSE,
             "--sparse-lr", BASE, "--dense-lr", 0.004]


def test_a_restored_run_goes_on_with_the_schedule(tmp_path):
    straight, first, rest = (tmp_path / n for n in ("straight", "first", "rest"))
    trainer.train(*FLAGS, *SCHEDULES, "--steps", 40, "--json-log", straight,
                  "--checkpoint-dir", tmp_path / "a")
    there = ["--checkpoint-dir", tmp_path / "b"]
    trainer.train(*FLAGS, *SCHEDULES, "--steps", 17, "--json-log", first,
                  *there)
    trainer.train(*FLAGS, *SCHEDULES, "--steps", 40, "--json-log", rest,
                  *there, "--restore")
    both = steps_of(first) + steps_of(rest)
    for step in [*both, *steps_of(straight)]:
        assert step["epoch"] == (2 if step in steps_of(rest) else 1)
    assert [{**step, "epoch": 1} for step in both] == steps_of(straight)
    numpy.testing.assert_allclose(column(straight, "sparse_lr"),
                                  rates(SPARSE)[:40], rtol=1e-8)
    numpy.testing.assert_allclose(column(straight, "dense_lr"),
                                  rates(DENSE, 0.004)[:40], rtol=1e-8)
    assert trainer.digest(trainer.checkpoint(tmp_path / "a", 40)) == \
        trainer.digest(trainer.checkpoint(tmp_path / "b", 40))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_worker_counts_its_own_steps(tmp_path, mode):
    log = tmp_path / "log"
    trainer.launch(*FLAGS, *SCHEDULES, "--steps", 20, "--json-log", log,
                   "--mode", mode, ps=2, workers=2)
    numpy.testing.assert_allclose(column(log, "sparse_lr"),
                                  rates(SPARSE)[:len(column(log, "sparse_lr"))],
                                  rtol=1e-8)


def test_the_rate_moves_the_rows(tmp_path):
    """SGD with a rate of 0 from step 5 on: what is held stays."""
    flags = [*FLAGS, "--sparse-optimizer", "sgd", "--dense-optimizer", "sgd",
             "--sparse-schedule", "piecewise:5=0",
             "--dense-schedule", "piecewise:5=0"]
    for name, steps in (("a", 5), ("b", 30)):
        trainer.train(*flags, "--steps", steps,
                      "--checkpoint-dir", tmp_path / name)
    five, thirty = (trainer.checkpoint(tmp_path / n, s)
                    for n, s in (("a", 5), ("b", 30)))
    for table in ("bot.0.weight", "top.2.weight"):
        assert numpy.array_equal(trainer.table(five, table)[1],
                                 trainer.table(thirty, table)[1])
    now = dict(zip(*trainer.table(thirty, "emb")))
    keys, rows = trainer.table(five, "emb")
    assert all(numpy.array_equal(now[key], row) for key, row in zip(keys, rows))


def test_each_table_has_its_own_schedule(tmp_path):
    log = tmp_path / "log"
    own = "polynomial:steps=8,end=0.001"
    trainer.train("--model", "little_demo", "--data",
                  "synthetic:rows=1600,keys=300", "--batch-size", 100,
                  "--sparse-schedule", f"constant:warmup=4;item_table={own}",
                  "--json-log", log)
    table = column(log, "table_lr")
    numpy.testing.assert_allclose([t["user_table"] for t in table],
                                  rates("constant:warmup=4")[:16], rtol=1e-8)
    numpy.testing.assert_allclose([t["item_table"] for t in table],
                                  rates(own)[:16], rtol=1e-8)
    assert column(log, "sparse_lr") == [t["user_table"] for t in table]


@pytest.mark.parametrize("flags, words", [
    (["--sparse-schedule", "cosine:steps=5"], "must be constant, polynomial"),
    (["--sparse-schedule", "polynomial"], "steps=N is missing"),
    (["--sparse-schedule", "exponential:steps=5"], "rate=R is missing"),
    (["--sparse-schedule", "piecewise:warmup=5"], "STEPS=RATE is missing"),
    (["--sparse-schedule", "user_table=constant"],
     'no table "user_table"; it has emb'),
    (["--sparse-schedule", "emb=constant;emb=constant"],
     "emb has two schedules"),
    (["--sparse-schedule", "constant;constant"], "second schedule without"),
    (["--sparse-schedule", "constant;"], '"" is the second schedule'),
    (["--sparse-schedule", ""], "is too short"),
    (["--dense-schedule", "emb=constant"], "must be constant"),
    (["--dense-schedule", "constant:warmup"], "KEY=VALUE"),
    (["--dense-schedule", "constant:warmup=-1"], "warmup=-1: must be from 0"),
    (["--dense-schedule", "constant:steps=1"], "constant has warmup alone"),
    (["--dense-schedule", "polynomial:steps=0"], "must be from 1"),
    (["--dense-schedule", "polynomial:steps=5,steps=6"], "steps=6: this key"),
    (["--sparse-schedule", "exponential:rate=0.5,steps=5,rate=0.5"],
     "rate=0.5: this key stands twice"),
    (["--dense-schedule", "polynomial:steps=5,end=nan"], "end=nan: must be"),
    (["--dense-schedule", "polynomial:steps=5,end=-1"], "end=-1: must be"),
    (["--dense-schedule", "polynomial:steps=5,power=1e9"], "power=1e9: must"),
    (["--dense-schedule", "polynomial:steps=5,cycle=yes"], "true or false"),
    (["--dense-schedule", "polynomial:steps=5,rate=1"], "polynomial has steps"),
    (["--dense-schedule", "exponential:steps=5,rate=2"], "must be from 0 to 1"),
    (["--dense-schedule", "exponential:steps=5,rate=1,end=0"], "exponential has"),
    (["--dense-schedule", "piecewise:5=0.1,5=0.2"], "ascending"),
    (["--dense-schedule", "piecewise:x=0.1"], "must be STEPS=RATE"),
    (["--dense-schedule", "piecewise:" + ",".join(
        f"{n}=1" for n in range(33))], "at most 32 pieces"),
    (["--loss-scale", "1000"], "must be a power of two"),
    (["--loss-scale", "0"], "must be a power of two"),
    (["--loss-scale", "2^128"], "must be a power of two"),
    (["--loss-scale", "dynamic:3"], "must be a power of two"),
    (["--loss-scale", "dynamics"], "must be a power of two"),
    (["--loss-scale-growth", "5"], "goes with --loss-scale=dynamic alone"),
])
def test_what_is_wrong_is_named(flags, words):
    assert words in trainer.train(*FLAGS, *flags, code=64).stderr


@pytest.mark.parametrize("scale", ["1024", "2^40", "dynamic"])
def test_a_loss_scale_changes_no_bit(tmp_path, scale):
    plain, scaled = tmp_path / "plain", tmp_path / "scaled"
    for log, value in ((plain, "1"), (scaled, scale)):
        trainer.train(*FLAGS, "--loss-scale", value, "--json-log", log,
                      "--checkpoint-dir", tmp_path / f"{log.name}-ck")
    assert column(plain, "loss") == column(scaled, "loss")
    assert trainer.digest(trainer.checkpoint(tmp_path / "plain-ck", 60)) == \
        trainer.digest(trainer.checkpoint(tmp_path / "scaled-ck", 60))
    assert "loss_scale" not in steps_of(plain)[0]
    assert {step["skipped_steps"] for step in steps_of(scaled)} == {0}


def huge(path, rows):
    """Rows whose dense features, with LARGE rows of the table, make gradients
    beyond a float at 2^127."""
    made = trainer.criteo_file(path, rows)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    for line in lines:
        line[1:14] = [str(2**62)] * 13
    path.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    return len(made)


LARGE = ["--sparse-init", "uniform:-4,4"]
DYNAMIC = [*LARGE, "--loss-scale", "dynamic:2^127", "--loss-scale-growth", 4]


def test_an_overflow_skips_the_step_and_halves(tmp_path):
    data, log = tmp_path / "data.tsv", tmp_path / "log"
    rows = huge(data, 600)
    out = trainer.train("--data", f"criteo:{data}", "--batch-size", 20,
                        *DYNAMIC, "--json-log", log).stdout
    steps = steps_of(log)
    scale, clean, skipped = 2.0**127, 0, 0
    for step in steps:
        assert step["loss_scale"] == scale
        skipped += step["skipped"]
        assert step["skipped_steps"] == skipped
        clean = 0 if step["skipped"] else clean + 1
        if step["skipped"]:
            said = (f"step {step['step']}: a gradient is not finite at loss "
                    f"scale {scale:.17g}; nothing is pushed, the loss scale is "
                    f"now {scale / 2:.17g}")
            assert said in out
            scale /= 2
        elif clean == 4:
            scale, clean = min(scale * 2, 2.0**127), 0
    assert len(steps) == rows // 20
    assert steps[0]["skipped"] and not steps[-1]["skipped"]
    # it grew again after four clean steps
    values = [step["loss_scale"] for step in steps]
    assert any(b == 2 * a for a, b in zip(values, values[1:]))


def test_a_skipped_step_leaves_no_trace(tmp_path):
    """The same as a run without those rows. (Adam's t is the step.)"""
    adagrad = ["--batch-size", 20, "--dense-optimizer", "adagrad"]
    data, rest = tmp_path / "data.tsv", tmp_path / "rest.tsv"
    log, want = tmp_path / "log", tmp_path / "want"
    huge(data, 600)
    trainer.train("--data", f"criteo:{data}", *adagrad, *DYNAMIC,
                  "--json-log", log, "--checkpoint-dir", tmp_path / "a")
    lines = data.read_text().splitlines()
    kept = [step["step"] for step in steps_of(log) if not step["skipped"]]
    assert 0 < len(kept) < 30
    rest.write_text("".join(f"{line}\n" for step in kept
                            for line in lines[20 * (step - 1):20 * step]))
    trainer.train("--data", f"criteo:{rest}", *adagrad, *LARGE,
                  "--json-log", want, "--checkpoint-dir", tmp_path / "b")
    assert [step["loss"] for step in steps_of(log) if not step["skipped"]] == \
        column(want, "loss")
    for table in ("bot.0.weight", "top.0.bias"):
        assert numpy.array_equal(
            trainer.table(trainer.checkpoint(tmp_path / "a", 30), table)[1],
            trainer.table(trainer.checkpoint(tmp_path / "b", len(kept)),
                          table)[1])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_skipped_step_ends_with_the_others(tmp_path, mode):
    data, log = tmp_path / "data.tsv", tmp_path / "log"
    huge(data, 800)
    out = trainer.launch("--data", f"criteo:{data}", "--batch-size", 20,
                         *DYNAMIC, "--mode", mode, "--json-log", log,
                         ps=2, workers=2).stdout
    steps = steps_of(log)
    assert steps[-1]["step"] == 20 and steps[0]["skipped"]
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | step 1: a gradient is not finite" in out
