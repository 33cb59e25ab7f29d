# SPDX-License-Identifier: Apache-2.0
"""recps-train: what it prints, writes, saves, restores and refuses."""
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

SYNTHETIC = "synthetic:rows=6000,keys=300,seed=3"
BASE = ["--data", SYNTHETIC, "--train-rows", 5000, "--batch-size", 100]


def test_embedded_run_learns_logs_and_ends(tmp_path):
    log = tmp_path / "log.json"
    out = trainer.train(*BASE, "--epochs", 3, "--json-log", log).stdout
    losses, done = trainer.log_of(log)
    assert sorted(losses) == list(range(1, 151))
    first = numpy.mean([losses[s] for s in range(1, 11)])
    last = numpy.mean([losses[s] for s in range(141, 151)])
    assert last < first - 0.05
    assert done["auc"] > 0.7 and 0.3 < done["log_loss"] < 0.7
    assert done["steps"] == 150 and done["samples_per_second"] > 0
    assert done["final_loss"] == losses[150]
    assert out.count("nothing is saved") == 1


def test_log_every_takes_steps_and_steps_ends_the_run(tmp_path):
    log = tmp_path / "log.json"
    trainer.train(*BASE, "--steps", 23, "--log-every", 5, "--json-log", log)
    losses, done = trainer.log_of(log)
    assert sorted(losses) == [5, 10, 15, 20]
    assert done["steps"] == 23


def test_without_test_rows_auc_and_log_loss_are_null(tmp_path):
    log = tmp_path / "log.json"
    trainer.train("--data", SYNTHETIC, "--steps", 5, "--json-log", log)
    _, done = trainer.log_of(log)
    assert done["auc"] is None and done["log_loss"] is None


def test_eval_data_are_the_test_rows(tmp_path):
    # the same planted model, and rows that --data has, too
    flags = ["--data", SYNTHETIC, "--batch-size", 100, "--epochs", 2,
             "--eval-data", "synthetic:rows=900,keys=300,seed=3"]
    out, folder = tmp_path / "p.txt", tmp_path / "ck"
    done = trainer.train(*flags, "--checkpoint-dir", folder).stdout
    assert trainer.auc_of(done) > 0.7
    trainer.train(*flags, "--predict", out, "--checkpoint-dir", folder)
    assert len(out.read_text().splitlines()) == 900


def test_number_of_servers_changes_no_bit(tmp_path):
    logs, digests = [], []
    for ps in (1, 2, 3):
        log, folder = tmp_path / f"{ps}.json", tmp_path / f"ck{ps}"
        trainer.launch(*BASE, "--json-log", log, ps=ps,
                       options=["--checkpoint-dir", folder])
        logs.append(trainer.log_of(log)[0])
        digests.append(trainer.digest(trainer.checkpoint(folder, 50)))
    assert logs[0] == logs[1] == logs[2]
    assert digests[0] == digests[1] == digests[2]


def test_two_replicas_in_sync_are_one_of_twice_the_batch(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    trainer.train(*BASE, "--json-log", one)
    trainer.launch("--data", SYNTHETIC, "--train-rows", 5000, "--batch-size",
                   50, "--json-log", two, workers=2)
    one, two = trainer.log_of(one), trainer.log_of(two)
    assert sorted(one[0]) == sorted(two[0])
    for step, loss in one[0].items():
        assert abs(two[0][step] - loss) < 1e-5
    assert abs(one[1]["auc"] - two[1]["auc"]) < 1e-3


def test_mean_is_sum_with_the_scale_of_the_own_batch(tmp_path):
    flags = ["--data", SYNTHETIC, "--train-rows", 5000, "--batch-size", 50]
    logs = []
    for combine in ("sum", "mean"):
        log = tmp_path / f"{combine}.json"
        trainer.launch(*flags, "--combine", combine, "--json-log", log,
                       workers=2)
        logs.append(trainer.log_of(log)[0])
    for step, loss in logs[0].items():
        assert abs(logs[1][step] - loss) < 1e-4


def test_async_replicas_learn_and_save_at_one_step(tmp_path):
    log, folder = tmp_path / "log.json", tmp_path / "ck"
    trainer.launch(*BASE, "--epochs", 3, "--mode", "async", "--save-steps",
                   20, "--json-log", log, workers=2,
                   options=["--checkpoint-dir", folder])
    _, done = trainer.log_of(log)
    assert done["auc"] > 0.7 and done["steps"] == 75
    assert trainer.checkpoint(folder, 75).is_dir()
    saved = sorted(int(f.name[5:]) for f in folder.glob("ckpt-*"))
    assert len(saved) >= 2  # a barrier may be far ahead of the chief
    for step in saved:
        manifest = json.loads(
            (trainer.checkpoint(folder, step) / "manifest.json").read_text())
        position = manifest["data_position"]
        assert position["epoch"] * 25 + position["batch"] == step


def test_restored_run_ends_as_the_straight_one(tmp_path):
    logs = {n: tmp_path / f"{n}.json" for n in ("part", "rest", "straight")}
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    flags = [*BASE, "--epochs", 2, "--shuffle", 700]
    trainer.launch(*flags, "--steps", 37, "--json-log", logs["part"], ps=2,
                   options=["--checkpoint-dir", cut])
    trainer.launch(*flags, "--restore", "--json-log", logs["rest"], ps=3,
                   options=["--checkpoint-dir", cut])
    trainer.train(*flags, "--json-log", logs["straight"], "--checkpoint-dir",
                  whole)
    read = {n: trainer.log_of(path) for n, path in logs.items()}
    assert {**read["part"][0], **read["rest"][0]} == read["straight"][0]
    assert read["rest"][1]["auc"] == read["straight"][1]["auc"]
    assert (trainer.digest(trainer.checkpoint(cut, 100)) ==
            trainer.digest(trainer.checkpoint(whole, 100)))


def test_restore_with_another_batch_says_so_and_goes_on(tmp_path):
    folder = tmp_path / "ck"
    trainer.train(*BASE, "--steps", 10, "--checkpoint-dir", folder)
    out = trainer.train("--data", SYNTHETIC, "--train-rows", 5000,
                        "--batch-size", 200, "--restore", "--checkpoint-dir",
                        folder).stdout
    assert "--batch-size times replicas) differs from the checkpoint's" in out
    assert "batch 5" in out
    assert "done steps 30 " in out  # 10, and 20 of 25 batches


def test_restore_at_the_end_trains_nothing_and_evaluates(tmp_path):
    folder = tmp_path / "ck"
    first = trainer.train(*BASE, "--checkpoint-dir", folder).stdout
    again = trainer.train(*BASE, "--restore", "--checkpoint-dir",
                          folder).stdout
    assert "nothing is left to train" in again
    assert trainer.auc_of(first) == trainer.auc_of(again)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_two_workers_with_nothing_left_leave_and_end(tmp_path, mode):
    flags = [*BASE, "--mode", mode]
    options = ["--checkpoint-dir", tmp_path]
    first = trainer.launch(*flags, workers=2, options=options).stdout
    again = trainer.launch(*flags, "--restore", workers=2,
                           options=options).stdout
    assert "1 of 1 epochs are done" in again
    assert trainer.auc_of(first) == trainer.auc_of(again)


def test_keep_bounds_the_checkpoints(tmp_path):
    trainer.train(*BASE, "--save-steps", 10, "--keep", 2, "--checkpoint-dir",
                  tmp_path)
    # which steps: those at which no save ran any more, and the last
    kept = sorted(f.name for f in tmp_path.glob("ckpt-*"))
    assert len(kept) == 2 and kept[-1] == "ckpt-000000000050", kept


@pytest.fixture(name="saved", scope="module")
def fixture_saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    out = trainer.launch(*BASE, "--seed", 7,
                         options=["--checkpoint-dir", folder]).stdout
    return folder, trainer.auc_of(out)


def test_evaluation_after_a_restore_has_the_same_auc(saved):
    folder, auc = saved
    out = trainer.launch(*BASE, "--evaluate", ps=3, workers=2,
                         options=["--checkpoint-dir", folder]).stdout
    assert trainer.auc_of(out) == auc
    assert "nothing to do here" in out


def test_prediction_has_the_same_bits_for_any_batch_size(saved, tmp_path):
    folder, _ = saved
    texts = []
    for size in (1, 128, 1000):
        out = tmp_path / f"{size}.txt"
        trainer.train("--data", SYNTHETIC, "--train-rows", 5000,
                      "--batch-size", size, "--predict", out,
                      "--checkpoint-dir", folder)
        texts.append(out.read_text())
    assert texts[0] == texts[1] == texts[2]
    lines = texts[0].splitlines()
    assert len(lines) == 1000
    assert all(0.0 < float(line) < 1.0 for line in lines)


def test_prediction_without_train_rows_takes_all_rows(saved, tmp_path):
    folder, _ = saved
    out = tmp_path / "all.txt"
    trainer.train("--data", SYNTHETIC, "--predict", out, "--checkpoint-dir",
                  folder)
    assert len(out.read_text().splitlines()) == 6000


def test_feasigns_of_64_bits_go_in_and_come_back(tmp_path):
    path = trainer.data("paddle_feasign_slot_10.txt")
    want = {int(pair.split(":")[0]) for line in path.read_text().splitlines()
            for pair in line.split()[1:]}
    folder = tmp_path / "ck"
    flags = ["--data", f"feasign:{path}", "--batch-size", 5]
    trainer.launch(*flags, options=["--checkpoint-dir", folder])
    step = max(int(f.name[5:]) for f in folder.glob("ckpt-*"))
    first = trainer.checkpoint(folder, step)
    keys, rows = trainer.table(first, "emb")
    assert sorted(keys.tolist()) == sorted(want)
    assert (keys >= 2**63).sum() > len(keys) / 3
    trainer.launch(*flags, "--restore", "--epochs", 2, ps=3,
                   options=["--checkpoint-dir", folder])
    second = trainer.checkpoint(folder, 2 * step)
    again, _ = trainer.table(second, "emb")
    assert set(again.tolist()) == set(keys.tolist())
    assert numpy.isfinite(rows).all()


def test_little_demo_trains_restores_and_predicts(tmp_path):
    flags = ["--model", "little_demo", "--data",
             "synthetic:rows=9000,keys=100,seed=1", "--train-rows", 8000,
             "--batch-size", 200]
    folder, out = tmp_path / "ck", tmp_path / "p.txt"
    first = trainer.launch(*flags, "--epochs", 3,
                           options=["--checkpoint-dir", folder]).stdout
    assert trainer.auc_of(first) > 0.75
    trainer.train(*flags, "--epochs", 4, "--restore", "--checkpoint-dir",
                  folder)
    done = trainer.train(*flags, "--predict", out, "--checkpoint-dir", folder)
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert len(rows) == 1000 and all(len(row) == 2 for row in rows)
    assert trainer.auc_of(done.stdout) > 0.75
    keys, values = trainer.table(trainer.checkpoint(folder, 160), "user_table")
    assert values.shape == (len(keys), 32)


def test_evaluator_prints_every_checkpoint_that_it_meets(tmp_path):
    folder = tmp_path / "ck"
    out = trainer.launch(*BASE, "--epochs", 2, "--save-steps", 10, workers=2,
                         options=["--chief", "--evaluator",
                                  "--checkpoint-dir", folder]).stdout
    done = [line for line in out.splitlines() if "done steps" in line][0]
    last = [line for line in out.splitlines() if "evaluator: step" in line][-1]
    assert "step 32 " in last  # 5000 rows, 3 replicas of 100, 2 epochs
    assert f"{trainer.auc_of(done):.6f}" == f"{trainer.auc_of(last):.6f}"


def start_evaluator(port, folder, *flags):
    config = {"cluster": {"ps": [f"127.0.0.1:{port}"],
                          "worker": ["127.0.0.1:1"],
                          "evaluator": ["127.0.0.1:2"]},
              "task": {"type": "evaluator", "index": 0}}
    return subprocess.Popen(
        [str(word) for word in (trainer.TRAIN, *BASE, "--checkpoint-dir",
                                folder, *flags)],
        env=programs.environment(TF_CONFIG=json.dumps(config)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_evaluator_takes_each_checkpoint_in_order(tmp_path):
    folder = tmp_path / "ck"
    with programs.Recpsd("--checkpoint-dir", folder) as server:
        evaluator = start_evaluator(server.port, folder)
        line = evaluator.stdout.readline()
        assert f"evaluator: waiting for the job's checkpoints in {folder}" in line
        chief = start_worker(server, 0, *BASE, "--steps", 40, "--save-steps", 2,
                             "--keep", 20, workers=1)
        said, _ = chief.communicate(timeout=60)
        assert chief.returncode == 0
        out, _ = evaluator.communicate(timeout=60)
        assert evaluator.returncode == 0, out
        saved = re.findall(r"saved step (\d+):", said)
        assert len(saved) > 1 and saved[-1] == "40"
        assert re.findall(r"evaluator: step (\d+) auc", out) == saved


def test_evaluator_after_the_job_evaluates_the_newest(tmp_path):
    folder = tmp_path / "ck"
    trainer.train(*BASE, "--steps", 20, "--save-steps", 10,
                  "--checkpoint-dir", folder)
    evaluator = start_evaluator(9, folder, "--connect-timeout", 0.2)
    out, _ = evaluator.communicate(timeout=60)
    assert re.findall(r"evaluator: step (\d+) auc", out) == ["20"], out
    assert "waiting for the job's checkpoints" in out
    assert evaluator.returncode == 69 and "connecting to PS 0" in out


def test_a_restore_with_nothing_left_to_do_ends_without_a_warning(tmp_path):
    options = ["--checkpoint-dir", tmp_path / "ck"]
    trainer.launch(*BASE, "--steps", 3, workers=2, options=options)
    done = trainer.launch(*BASE, "--steps", 3, "--restore", workers=2,
                          options=options)
    assert "nothing is left to train after step 3" in done.stdout
    assert " warn " not in done.stdout + done.stderr, done.stderr


REFUSED = {
    "save_without_folder": (["--save-steps", 5], 64, "no checkpoint_dir"),
    "restore_without_folder": (["--restore"], 64, "no checkpoint_dir"),
    "unknown_flag": (["--batchsize", 5], 64, "--batchsize"),
    "too_few_rows": (["--train-rows", 50], 65, "fewer than one global batch"),
    "too_many_train_rows": (["--train-rows", 6001], 64, "6000 rows only"),
    "init_without_folder": (["--init-from", "/nope"], 66, "/nope/"),
    "two_tests": (["--eval-data", SYNTHETIC], 64, "give one of them"),
}


def test_little_demo_refuses_what_is_not_its_own():
    done = trainer.train("--model", "little_demo", "--data",
                         "synthetic:rows=500,dense=3", code=64)
    assert "dense" in done.stderr


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_words(case):
    flags, code, words = REFUSED[case]
    done = trainer.train(*BASE, *flags, code=code)
    assert words in done.stderr


def test_restore_without_a_checkpoint_is_refused(tmp_path):
    done = trainer.train(*BASE, "--evaluate", "--checkpoint-dir", tmp_path,
                         code=66)
    assert "no complete checkpoint" in done.stderr


def test_missing_data_is_named():
    done = trainer.train("--data", "criteo:/nope.tsv", code=66)
    assert "/nope.tsv" in done.stderr


def test_malformed_row_is_named_by_file_line_and_column(tmp_path):
    path = tmp_path / "bad.tsv"
    trainer.criteo_file(path, 300)
    lines = path.read_text().splitlines()
    fields = lines[130].split("\t")
    fields[20] = "xyzzy"
    lines[130] = "\t".join(fields)
    path.write_text("\n".join(lines) + "\n")
    done = trainer.train("--data", f"criteo:{path}", code=65)
    assert f"{path}:131: column 21" in done.stderr
    out = trainer.train("--data", f"criteo:{path}", "--on-bad-row", "skip",
                        "--batch-size", 299).stdout
    assert "done steps 1 " in out


def test_unreachable_server_is_named_and_given_up():
    cluster = {"cluster": {"ps": ["localhost:1"], "worker": ["localhost:2"]},
               "task": {"type": "worker", "index": 0}}
    done = trainer.train(*BASE, "--connect-timeout", 1, code=69,
                         env={"TF_CONFIG": json.dumps(cluster)})
    assert "localhost:1" in done.stderr and "refused" in done.stderr


def start_launch(*flags, options=()):
    return subprocess.Popen(
        [str(word) for word in (
            programs.RECPS, "launch", "--ps", 2, "--workers", 2, *options,
            "--", trainer.TRAIN, *flags)],
        env=programs.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


def wait_for_line(process, words):
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"ended without {words!r}")


def children(process, name):
    """Process ids of a launch's children that run `name`."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent == process.pid and pathlib.Path(command[0]).name == name:
            found.append(int(entry.name))
    return sorted(found)


LONG_RUN = ["--data", "synthetic:rows=20000", "--epochs", 100000,
            "--log-every", 10]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_dropped_table_stops_the_run_by_its_name(recpsd, mode):
    process = start_worker(recpsd, 0, "--mode", mode, *LONG_RUN, workers=1)
    try:
        wait_for_line(process, "step 10 ")
        trainer.run([programs.RECPS, "drop", "emb",
                     "--ps-hosts", f"127.0.0.1:{recpsd.port}"])
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 70, rest
        assert "table emb " in rest and "open here" in rest, rest
        assert "PUSH_GRADIENTS: PUSH" not in rest, rest
    finally:
        process.kill()
        process.wait()


def test_dead_server_stops_the_workers_with_words():
    process = start_launch(*LONG_RUN)
    try:
        wait_for_line(process, "step 10 ")
        os.kill(children(process, "recpsd")[-1], signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "RPS_E_UNREACHABLE" in rest or "stopped" in rest
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_sigterm_at_the_chief_saves_and_ends_the_job(tmp_path, mode):
    process = start_launch(*LONG_RUN, "--mode", mode,
                           options=["--checkpoint-dir", tmp_path])
    try:
        wait_for_line(process, "step 10 ")
        # children in the order of their start: worker 0 is the chief
        os.kill(children(process, "recps-train")[0], signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert "saved step" in rest and "done steps" in rest, rest
        assert process.returncode == 143
        assert len(list(tmp_path.glob("ckpt-*"))) == 1
    finally:
        process.kill()
        process.wait()


def start_worker(server, index, *flags, workers=2):
    """One of the workers of a server, outside `recps launch`."""
    config = {"cluster": {"ps": [f"127.0.0.1:{server.port}"],
                          "worker": [f"127.0.0.1:{port + 1}"
                                     for port in range(workers)]},
              "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        [str(word) for word in (trainer.TRAIN, *flags)],
        env=programs.environment(TF_CONFIG=json.dumps(config)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_sigterm_at_a_worker_lets_the_others_go_on(recpsd):
    flags = ["--data", "synthetic:rows=100000", "--log-every", 10]
    chief = start_worker(recpsd, 0, *flags)
    other = start_worker(recpsd, 1, *flags)
    try:
        wait_for_line(chief, "step 10 ")
        other.send_signal(signal.SIGTERM)
        assert other.wait(30) == 143
        rest, _ = chief.communicate(timeout=60)
        assert chief.returncode == 0 and "done steps 390 " in rest, rest
        assert recpsd.wait() == 0
    finally:
        for process in (chief, other):
            process.kill()
            process.wait()
