# SPDX-License-Identifier: Apache-2.0
"""recps-train: what it writes beside the report, and what it says."""
import json
import re
import signal
import socket
import subprocess
import sys
import time

import numpy
import pytest

import programs
import trainer

sys.path.insert(0, str(programs.ROOT / "tests/unit/worker"))
import check_events  # noqa: E402  pylint: disable=wrong-import-position

pytestmark = trainer.needs_programs

SYNTHETIC = "synthetic:rows=6000,keys=300,seed=3"
BASE = ["--data", SYNTHETIC, "--train-rows", 5000, "--batch-size", 100]


def scalars(folder):
    (path,) = folder.glob("events.out.tfevents.*")
    return check_events.scalars(path)


def test_summaries_hold_auc_and_log_loss_of_the_evaluation(tmp_path):
    log, first, second = (tmp_path / n for n in ("log.json", "a", "b"))
    folder = ["--checkpoint-dir", tmp_path / "ck"]
    trainer.train(*BASE, *folder, "--json-log", log, "--summary-dir", first)
    _, done = trainer.log_of(log)
    trainer.train(*BASE, *folder, "--evaluate", "--summary-dir", second)
    for seen in (scalars(first), scalars(second)):
        assert abs(seen[50, "auc"] - done["auc"]) < 1e-6
        assert abs(seen[50, "log_loss"] - done["log_loss"]) < 1e-6


def damaged(path, rows, bad):
    """A file of `rows` rows in Criteo's form, the `bad` ones cut short."""
    trainer.criteo_file(path, rows)
    lines = path.read_text().splitlines()
    for number in bad:
        lines[number] = lines[number].partition("\t")[0]
    path.write_text("\n".join(lines) + "\n")
    return f"criteo:{path}"


def test_skipped_rows_are_counted_and_said_once(tmp_path):
    data = damaged(tmp_path / "a.tsv", 300, (4, 77, 130))
    test = damaged(tmp_path / "b.tsv", 50, (9,))
    flags = ["--data", data, "--eval-data", test, "--on-bad-row", "skip",
             "--checkpoint-dir", tmp_path / "ck"]
    for how in (["--epochs", 3], ["--evaluate"]):
        out = trainer.train(*flags, *how).stdout
        words = "malformed rows that were left out:"
        assert out.count(f"--data: {words} 3") == 1
        assert out.count(f"--eval-data: {words} 1") == 1


def test_too_few_rows_say_how_many_were_malformed(tmp_path):
    data = damaged(tmp_path / "a.tsv", 130, (4, 77, 101))
    done = trainer.train("--data", data, "--on-bad-row", "skip", code=65)
    assert "127 training rows (malformed ones left out: 3)" in done.stderr


def start_worker(server, index, *flags, workers=2):
    """A worker of a server's job, outside `recps launch`."""
    config = {"cluster": {"ps": [f"127.0.0.1:{server.port}"],
                          "worker": [f"127.0.0.1:{n + 1}"
                                     for n in range(workers)]},
              "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        [str(word) for word in (trainer.TRAIN, *flags)],
        env=programs.environment(TF_CONFIG=json.dumps(config)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def outputs(*processes):
    try:
        return [p.communicate(timeout=60)[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_the_chiefs_mode_and_combine_hold_for_all(tmp_path, recpsd):
    flags = ["--data", SYNTHETIC, "--train-rows", 5000, "--batch-size", 50]
    own, want = tmp_path / "own.json", tmp_path / "want.json"
    chief = start_worker(recpsd, 0, *flags, "--combine", "mean",
                         "--json-log", own)
    other = start_worker(recpsd, 1, *flags, "--mode", "async")
    _, said = outputs(chief, other)
    assert (chief.returncode, other.returncode) == (0, 0)
    assert said.count("the chief's --mode sync --combine mean hold, not this "
                      "replica's --mode async --combine sum") == 1
    trainer.launch(*flags, "--combine", "mean", "--json-log", want, workers=2)
    got, want = trainer.log_of(own)[0], trainer.log_of(want)[0]
    assert got == want


def test_another_number_of_replicas_is_refused_with_both(recpsd):
    flags = ["--data", SYNTHETIC, "--batch-size", 50, "--step-timeout", 5]
    chief = start_worker(recpsd, 0, *flags)
    other = start_worker(recpsd, 1, *flags, workers=3)
    _, said = outputs(chief, other)
    assert other.returncode == 64
    assert "began the job with 2 replicas" in said and "counts 3" in said
    assert chief.returncode != 0


OLDER = "already holds checkpoints of an earlier run (newest: step 20)"


def test_a_fresh_run_is_refused_where_an_older_one_saved(tmp_path):
    flags = [*BASE, "--steps", 20]
    folder = ["--checkpoint-dir", tmp_path]
    trainer.train(*flags, "--save-steps", 10, *folder)
    before = sorted(tmp_path.rglob("*"))
    for run in (trainer.train(*BASE, *folder, code=64),
                trainer.launch(*BASE, options=folder, code=64)):
        said = run.stdout + run.stderr
        assert f"checkpoint_dir {tmp_path} {OLDER}" in said
        assert "add --restore" in said and "step 1 " not in said
    assert sorted(tmp_path.rglob("*")) == before
    # what reads them, or goes on, is not touched by it
    trainer.train(*BASE, "--evaluate", *folder)
    trainer.train(*BASE, "--predict", tmp_path / "p.txt", *folder)
    trainer.train(*BASE, "--restore", "--steps", 21, *folder)


OTHER_MODELS = {  # flags, and the table that the words must name
    "deeper": (["--top-mlp", "64,32,1"], "has no table top.4.weight"),
    "shallower": (["--bottom-mlp", 16], "has a table bot.2."),
    "wider": (["--top-mlp", "32,1"], "table top.0.weight of the checkpoint"),
}


@pytest.fixture(name="saved", scope="module")
def fixture_saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    trainer.train(*BASE, "--steps", 10, "--checkpoint-dir", folder)
    return folder


@pytest.mark.parametrize("how", ["--restore", "--evaluate"])
@pytest.mark.parametrize("case", OTHER_MODELS)
def test_a_checkpoint_of_another_model_is_refused(saved, case, how):
    flags, words = OTHER_MODELS[case]
    done = trainer.train(*BASE, *flags, how, "--checkpoint-dir", saved,
                         code=65)
    assert words in done.stderr
    assert "step 11" not in done.stdout
    assert [f.name for f in saved.glob("ckpt-*")] == ["ckpt-000000000010"]


def test_a_checkpoint_of_another_kind_of_model_is_refused(saved):
    done = trainer.launch("--model", "little_demo", "--data",
                          "synthetic:rows=9000,keys=100,seed=1", "--restore",
                          options=["--checkpoint-dir", saved], code=65)
    assert "has no table user_table" in done.stdout + done.stderr


def libfm_file(path, rows, longest, seed):
    draw = numpy.random.default_rng(seed)
    with open(path, "w", encoding="ascii") as file:
        for _ in range(rows):
            keys = draw.integers(0, 50, longest)
            file.write(f"{2 * int(draw.integers(0, 2)) - 1} " +
                       " ".join(f"{key}:1" for key in keys) + "\n")
    return f"libfm:{path}"


@pytest.mark.parametrize("lengths", [(6, 3), (3, 6)])
def test_the_fields_of_libfm_are_those_of_both_inputs(tmp_path, lengths):
    data = libfm_file(tmp_path / "a", 400, lengths[0], 1)
    test = libfm_file(tmp_path / "b", 90, lengths[1], 2)
    flags = ["--data", data, "--eval-data", test, "--batch-size", 50,
             "--checkpoint-dir", tmp_path / "ck"]
    first = trainer.train(*flags).stdout
    again = trainer.train(*flags, "--evaluate").stdout
    assert trainer.auc_of(first) == trainer.auc_of(again)


def test_the_slots_of_feasign_are_those_of_both_inputs(tmp_path):
    (tmp_path / "a").write_text("1:1 5:1 6:2\n0:1 7:1\n" * 20)
    (tmp_path / "b").write_text("1:1 5:1 9:3\n0:1 7:4\n")
    out = trainer.train("--data", f"feasign:{tmp_path / 'a'}", "--eval-data",
                        f"feasign:{tmp_path / 'b'}", "--batch-size", 4).stdout
    assert " auc " in out


@pytest.mark.parametrize("workers", [1, 2])
def test_a_broken_model_shows_a_loss_that_is_not_finite(tmp_path, workers):
    log = tmp_path / "log.json"
    out = trainer.launch("--data", SYNTHETIC, "--batch-size", 100, "--steps",
                         5, "--sparse-init", "constant:1e30", "--json-log",
                         log, workers=workers, code=70)
    assert "training has failed: the loss of the last step, 5, is" in out.stderr
    out = out.stdout
    assert out.count("loss of step 1 is not finite") == workers
    assert out.count("is not finite: ") == workers
    assert re.search(r"final_loss -?nan \(training has failed\)", out)
    losses, done = trainer.log_of(log)
    assert losses == {step: None for step in range(1, 6)}
    assert done["final_loss"] is None


def test_an_id_that_stands_twice_is_named_by_file_and_line(tmp_path):
    (tmp_path / "ml-100k.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
        "2\t1\t3\t9\n")
    users = ["user_id:token\tage:token\tgender:token\toccupation:token\t"
             "zip_code:token"] + [
        f"{user}\t30\tM\tnurse\t85711" for user in (7, 2, 5, 2)]
    items = ["item_id:token\tmovie_title:token_seq\trelease_year:token\t"
             "class:token_seq"] + [
        f"{item}\tA\t1995\tDrama" for item in (3, 1, 3)]
    flags = ["--data", f"ml-100k:{tmp_path}", "--batch-size", 1]
    for name, lines, place in (("user", users, "user:5"),
                               ("item", items, "item:4")):
        good = {"user": users[:4], "item": items[:3], name: lines}
        for suffix, text in good.items():
            (tmp_path / f"ml-100k.{suffix}").write_text(
                "\n".join(text) + "\n")
        done = trainer.train(*flags, code=65)
        assert f"{tmp_path}/ml-100k.{place}: column 1: id" in done.stderr


def test_data_that_is_not_there_is_said_as_it_is(tmp_path):
    (tmp_path / ".hidden").write_text("x")
    done = trainer.train("--data", f"criteo:{tmp_path}", code=66)
    assert f"the folder {tmp_path} is empty" in done.stderr
    done = trainer.train("--data", "criteo:", code=64)
    assert "--data=criteo:: a path is missing" in done.stderr
    done = trainer.train("--data", "synthetic:rows=200,rows=300", code=64)
    assert "rows is set twice" in done.stderr


RANGES = {"--sparse-lr": ("1e-30", "1e6"), "--dense-lr": ("1e-30", "1e6"),
          "--sparse-accumulator": ("0", "1e6")}


@pytest.mark.parametrize("flag", RANGES)
def test_the_ranges_of_the_options_page_are_what_is_taken(flag):
    low, high = RANGES[flag]
    page = (programs.ROOT / "docs/OPTIONS.md").read_text()
    (row,) = [line for line in page.splitlines()
              if line.startswith(f"| `{flag}` |")]
    assert f"| {low}..{high} |" in row
    for value in (low, high):
        trainer.train("--data", "synthetic:rows=200", flag, value)
    for value in (f"-{low}" if float(low) else "-1e-9", "1.01e6", "nan"):
        trainer.train("--data", "synthetic:rows=200", f"{flag}={value}",
                      code=64)


# ---- signals while it waits ----

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_who_waits_for_servers_at_once(number):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody listens
        port = silent.getsockname()[1]
        process = subprocess.Popen(
            [str(trainer.TRAIN), "--data", "synthetic:rows=1000,keys=10",
             "--ps-hosts", f"127.0.0.1:{port}", "--worker-hosts",
             "127.0.0.1:1", "--job-name", "worker", "--task-index", "0"],
            env=programs.environment(), stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(0.5)
            process.send_signal(number)
            assert process.wait(10) == 128 + number
            assert "nothing to save yet" in process.stderr.read()
        finally:
            process.kill()
            process.stderr.close()


def test_a_signal_ends_who_waits_for_the_other_replicas_at_once(recpsd):
    process = subprocess.Popen(
        [str(trainer.TRAIN), "--data", "synthetic:rows=1000,keys=10",
         "--ps-hosts", f"127.0.0.1:{recpsd.port}", "--worker-hosts",
         "127.0.0.1:1,127.0.0.1:2", "--job-name", "worker", "--task-index", "1"],
        env=programs.environment(), stderr=subprocess.PIPE, text=True)
    try:
        programs.until(lambda: any(
            m["connected"] for m in recpsd.stat().get("members", [])
            if m["rank"] == 1))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
    finally:
        process.kill()
        process.stderr.close()


@pytest.mark.parametrize("flags", [
    [], ["--data", "synthetic:rows=1000,keys=10", "--emb-dim", "x"]])
def test_what_is_refused_is_json_where_the_log_is(flags):
    run = trainer.train(*flags, "--log-format", "json", code=64)
    for line in run.stderr.splitlines():
        assert json.loads(line)["event"] == "bad_option"


def test_a_refused_token_is_77(recpsd, tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"x" * 32)
    token.chmod(0o600)
    run = trainer.train(
        "--data", "synthetic:rows=1000,keys=10", "--ps-hosts",
        f"127.0.0.1:{recpsd.port}", "--worker-hosts", "127.0.0.1:1",
        "--job-name", "worker", "--task-index", "0", "--token-file", token,
        code=77)
    assert "RPS_E_AUTH" in run.stderr
