# SPDX-License-Identifier: Apache-2.0
"""recps precision check-deterministic and runs."""
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import numpy
import pytest

import programs
import trainer

pytestmark = trainer.needs_programs

TRAIN = ["--data", "synthetic:rows=400", "--batch-size", 20, "--steps", 8,
         "--train-rows", 320]


def precision(*arguments, code=0, **how):
    return trainer.run([programs.RECPS, "precision", *arguments], code=code,
                       **how)


def check(*arguments, code=0, **how):
    return json.loads(precision("check-deterministic", "--json", *arguments,
                                code=code, **how).stdout)


def writer(folder, *logs):
    """A program of another framework: run i writes log i, a list of losses."""
    for number, losses in enumerate(logs, 1):
        (folder / f"made-{number}").write_text("".join(
            json.dumps({"step": step, "loss": loss}) + "\n"
            for step, loss in enumerate(losses, 1)))
    return ["--", "sh", "-c", f"cp {folder}/made-{{run}} {{log}}"]


# ---- check-deterministic ----

def test_a_training_with_a_seed_is_deterministic(tmp_path):
    said = check("--times", 2, "--", trainer.TRAIN, *TRAIN, "--deterministic",
                 "--shuffle", 50, "--checkpoint-dir", f"{tmp_path}/{{run}}")
    assert said["verdict"] == "equal" and said["fixed"] and said["exact"]
    assert said["steps"] == 8 and len(said["runs"]) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2"]


def test_under_launch_the_chief_logs():
    run = precision("check-deterministic", "--", "recps", "launch", "--ps", 2,
                    "--workers", 2, "--", "recps-train", *TRAIN)
    assert "all steps are exactly equal" in run.stdout
    assert "run 2 of 2: steps 1 to 8" in run.stderr


def test_the_documents_commands_save_each_run_in_its_folder(tmp_path):
    page = (programs.ROOT / "docs/PRECISION.md").read_text("utf8")
    block = re.search(r"```sh\n(recps precision check-deterministic.*?)```",
                      page, re.DOTALL).group(1)
    path = ":".join(str(p.parent) for p in (
        programs.RECPS, programs.RECPSD, trainer.TRAIN))
    trainer.run(["sh", "-ec", block], cwd=tmp_path, env={
        "PATH": f"{path}:{os.environ['PATH']}"})
    for number in "12":
        assert (tmp_path / f"run-{number}/ckpt-{5:012d}").is_dir()


def test_another_seed_each_time_is_found(tmp_path):
    table, kept = tmp_path / "losses.csv", tmp_path / "kept"
    said = check("-o", table, "--keep", kept, "--", trainer.TRAIN, *TRAIN,
                 "--seed", "{run}", code=1)
    logs = [trainer.log_of(pathlib.Path(run["log"]))[0]
            for run in said["runs"]]
    assert said["verdict"] == "differ" and not said["fixed"]
    assert said["first"]["step"] == 1 and said["first"]["run"] == 2
    assert said["first"]["losses"] == pytest.approx([l[1] for l in logs])
    step = max(logs[0], key=lambda s: abs(logs[0][s] - logs[1][s]))
    assert said["largest"]["step"] == step
    assert said["largest"]["by"] == pytest.approx(
        abs(logs[0][step] - logs[1][step]), rel=1e-6)
    with open(table, encoding="ascii", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["run 2"]) for line in lines] == list(logs[1].values())
    assert sorted(p.name for p in kept.iterdir()) == [
        "run-1.json", "run-1.out", "run-2.json", "run-2.out"]


def test_verdicts_of_the_guide(tmp_path):
    same = [0.7, 0.6, 0.5]
    close = writer(tmp_path, same, [0.7, 0.6, 0.5009])
    said = check(*close)
    assert said["verdict"] == "close" and said["fixed"]
    assert said["first"]["step"] == 3
    assert not check("--exact", *close, code=1)["fixed"]
    assert not check("--tolerance", 0.0005, *close, code=1)["fixed"]
    text = precision("check-deterministic", *close).stdout
    assert "step 3 is the first that differs: loss 0.5 in run 1, 0.5009" in text
    assert "the randomness is fixed, the order of sums is not" in text
    for other, first in (([0.7, 0.6, 0.5011], 3), ([0.7001, 0.6, 0.5], 1)):
        run = writer(tmp_path, same, other)
        said = check(*run, code=1)
        assert said["verdict"] == "differ" and said["first"]["step"] == first


def test_deterministic_runs_must_be_equal(tmp_path):
    """They log all bits, of which nine digits are not all."""
    for number, last in enumerate("ab", 1):
        (tmp_path / f"bits-{number}").write_text("".join(
            f'{{"step": {step}, "loss": 0.5, "loss_bits": "{bits}"}}\n'
            for step, bits in ((1, "3fe0000000000000"),
                               (2, "3fe000000000000" + last))))
    said = check("--", "sh", "-c", f"cp {tmp_path}/bits-{{run}} {{log}}",
                 code=1)
    assert said["verdict"] == "close" and said["exact"] and not said["fixed"]
    assert said["first"]["bits"] == ["3fe000000000000a", "3fe000000000000b"]
    assert 0 < said["largest"]["by"] < 1e-15


def test_a_run_that_goes_on_is_told(tmp_path):
    """It begins where the one before ended."""
    run = precision("check-deterministic", "--", trainer.TRAIN, *TRAIN,
                    "--checkpoint-dir", tmp_path, "--restore=auto", code=70)
    assert "run 2 trained no step" in run.stderr
    assert "--checkpoint-dir DIR/{run}" in run.stderr
    log = tmp_path / "made-2"
    run = writer(tmp_path, [0.7, 0.6])
    log.write_text('{"step": 3, "loss": 0.5}\n')
    text = precision("check-deterministic", *run, code=1).stdout
    assert "run 1 begins with step 1, run 2 with step 3" in text
    run = writer(tmp_path, [0.7, 0.6, 0.5], [0.7, 0.6])
    said = check(*run, code=1)
    assert said["verdict"] == "uneven" and said["steps"] == 2
    text = precision("check-deterministic", *run, code=1).stdout
    assert "run 2 ends, and run 1 goes on to step 3" in text


def test_losses_that_are_not_finite_are_told(tmp_path):
    nan = float("nan")
    said = check(*writer(tmp_path, [0.7, nan], [0.7, nan]))
    assert said["verdict"] == "equal"
    assert said["not_finite"] == {"step": 2, "run": 1}
    said = check(*writer(tmp_path, [0.7, 0.6], [0.7, nan]), code=1)
    assert said["verdict"] == "differ" and said["largest"]["by"] is None


@pytest.mark.parametrize("words, code, told", [
    (["sh", "-c", "echo no such thing; exit 3"], 70, "ended with code 3"),
    (["nowhere/recps-train"], 127, "No such file or directory"),
    (["true"], 70, "logged no losses: recps-train writes them"),
    (["true", "--json-log", "x"], 70, "leave its --json-log out"),
    (["sh", "-c", "echo step 1 > {log}"], 65, "line 1: is no JSON object"),
    ([], 64, "give the training behind"),
])
def test_a_command_that_fails_is_told(words, code, told):
    run = precision("check-deterministic", "--", *words, code=code)
    assert told in run.stderr
    assert ("no such thing" in run.stderr) == ("exit 3" in str(words))


def test_slips_are_refused(tmp_path):
    for flags, told in ((["--times", 1], "from 2 to 100"),
                        (["--tolerance", "x"], "must be a number"),
                        (["--keep", tmp_path], "File exists")):
        run = precision("check-deterministic", *flags, "--", "true", code=64)
        assert told in run.stderr


def test_an_interrupt_ends_the_child(tmp_path):
    """TERM and INT go on to the command; its logs go away."""
    env = programs.environment(TMPDIR=str(tmp_path))
    with subprocess.Popen(
            [programs.RECPS, "precision", "check-deterministic", "--", "sh",
             "-c", f"echo $$ > {tmp_path}/pid; exec sleep 100"], env=env,
            stderr=subprocess.PIPE, text=True) as run:
        while not ((tmp_path / "pid").exists()
                   and (tmp_path / "pid").read_text()):
            time.sleep(0.01)
        pid = int((tmp_path / "pid").read_text())
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=30)
    assert run.returncode == 130 and "run 1 of 2 was ended" in err
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["pid"]


# ---- runs ----

def log(folder, name, **done):
    path = folder / name
    path.write_text('{"step": 1, "loss": 0.5}\n' + (
        json.dumps({"event": "done", **done}) + "\n" if done else ""))
    return path


def runs(*arguments, code=0):
    return json.loads(precision("runs", "--json", *arguments, code=code).stdout)


@pytest.mark.parametrize("b", [[0.70, 0.73, 0.69], [0.5, 0.52, 0.51, 0.505],
                               [0.745], [0.1]])
def test_sets_are_compared_as_scipy_does(tmp_path, b):
    stats = pytest.importorskip("scipy.stats")
    a = [0.71, 0.74, 0.72, 0.79]
    logs = [[log(tmp_path, f"{side}{i}", auc=value, log_loss=1)
             for i, value in enumerate(values)]
            for side, values in (("a", a), ("b", b))]
    if len(b) > 1:
        t, p = stats.ttest_ind(a, b, equal_var=False)
    else:
        t = (numpy.mean(a) - b[0]) / (numpy.std(a, ddof=1) * 1.25 ** 0.5)
        p = 2 * stats.t.sf(abs(t), len(a) - 1)
    table = tmp_path / "runs.csv"
    said = runs("-o", table, *logs[0], "--", *logs[1], code=int(p < 0.05))
    assert said["metric"] == "auc" and said["differ"] == (p < 0.05)
    assert said["t"] == pytest.approx(t) and said["p"] == pytest.approx(p)
    assert said["a"]["mean"] == pytest.approx(numpy.mean(a))
    assert said["a"]["deviation"] == pytest.approx(numpy.std(a, ddof=1))
    assert (said["a"]["least"], said["a"]["most"]) == (min(a), max(a))
    assert said["difference"] == pytest.approx(numpy.mean(a) - numpy.mean(b))
    assert runs("--alpha", 0.999999, *logs[0], "--", *logs[1],
                code=1)["differ"]
    with open(table, encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["auc"]) for line in lines] == a + b
    assert [line["set"] for line in lines] == ["A"] * 4 + ["B"] * len(b)


def test_one_run_a_side_cannot_say(tmp_path):
    a, b = log(tmp_path, "a", auc=0.7), log(tmp_path, "b", auc=0.8)
    said = runs(a, "--", b, code=1)
    assert said["differ"] is None and said["p"] is None
    assert "give two at least" in precision("runs", a, "--", b, code=1).stdout
    assert runs(a, "--", a)["differ"] is False


def test_the_metric_is_one_that_every_run_has(tmp_path):
    whole = log(tmp_path, "whole", auc=0.7, final_loss=0.4, mine=3)
    part = log(tmp_path, "part", auc=None, final_loss=0.4)
    none = log(tmp_path, "none")
    assert runs(whole, "--", part)["metric"] == "final_loss"
    assert runs(whole, "--", none)["metric"] == "loss"
    assert runs("--metric", "mine", whole, "--", whole)["a"]["mean"] == 3
    said = runs("--metric", "auc", whole, "--", part, code=65)
    assert "part" in said["error"] and "auc" in said["error"]
    assert "gone" in runs(whole, "--", tmp_path / "gone", code=66)["error"]
    assert "two sets" in runs(whole, code=64)["error"]
    assert "--alpha" in runs("--alpha", 1, whole, "--", whole, code=64)["error"]


def test_logs_of_recps_train_are_compared(tmp_path):
    logs = [tmp_path / f"{seed}.json" for seed in (1, 2, 3, 4)]
    for seed, path in enumerate(logs, 1):
        trainer.train(*TRAIN, "--seed", seed, "--json-log", path)
    text = precision("runs", *logs[:2], "--", *logs[2:]).stdout
    assert text.startswith("auc ") and "do not differ" in text
    values = [trainer.log_of(path)[1]["auc"] for path in logs]
    assert runs(*logs[:2], "--", *logs[2:])["a"]["mean"] == pytest.approx(
        sum(values[:2]) / 2)
