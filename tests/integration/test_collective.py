# SPDX-License-Identifier: Apache-2.0
"""Workers as the ranks of an MPI group: what they send, and what they train.

The parameter server's own way (--dense ps) is the oracle: with two ranks a sum
has one order, so that losses and checkpoints must be the same bits.
"""
import functools
import itertools
import json
import os
import re
import signal
import subprocess

import pytest

import benches
import programs
import test_schedule
import trainer

pytestmark = [
    trainer.needs_programs,
    pytest.mark.skipif(not programs.has_mpi(),
                       reason="built without MPI, or there is no mpirun"),
]

DATA = ["--data", "synthetic:rows=1400,keys=200,seed=7", "--train-rows", 1280,
        "--seed", 3, "--batch-size", 32]
GROUP = ["--dense", "allreduce"]
BYTES = 16 << 20

mpi = functools.partial(trainer.launch, options=["--mpi"])


def losses_of(folder):
    return trainer.log_of(folder / "log")[0]


def run(folder, *flags, start=mpi, workers=2, ps=2, **how):
    """Train below `folder`; what was printed."""
    folder.mkdir(exist_ok=True)
    options = ["--checkpoint-dir", folder / "c"]
    options += ["--mpi"] if start is mpi else []
    return trainer.launch(*DATA, "--json-log", folder / "log", *flags, ps=ps,
                          workers=workers, options=options, **how)


def digest_of(folder):
    out = trainer.run([programs.RECPS, "digest", folder / "c", "--json"])
    return json.loads(out.stdout)["digest"]


# --- what is sent ------------------------------------------------------------

@benches.is_built
def test_a_ring_sends_no_more_than_it_must_and_to_one_rank_only():
    result = benches.figures("allreduce", "--bytes", BYTES, "--ranks", "2,4",
                             "--repeat", 1)
    assert result["payload_bytes"] == BYTES
    assert [r["ranks"] for r in result["runs"]] == [2, 4]
    for measured in result["runs"]:
        n = measured["ranks"]
        assert measured["least_bytes"] == 2 * (n - 1) / n * BYTES
        assert len(measured["ring"]["sent_bytes"]) == n
        for sent in measured["ring"]["sent_bytes"]:
            assert sent == pytest.approx(measured["least_bytes"], rel=0.1)
        assert measured["ring"]["peers"] == 1
        assert sum(measured["default"]["sent_bytes"]) > 0
        for side in ("ring", "default"):
            benches.assert_positive(
                measured[side], ["ratio_low", "ratio_high", "milliseconds"])


@benches.is_built
def test_the_report_of_sent_bytes_is_a_table_for_people():
    done = benches.bench("allreduce", "--bytes", 4, "--ranks", 2, "--repeat", 2)
    assert done.returncode == 0, done.stderr
    assert "payload: 4 bytes" in done.stdout
    assert re.search(r"^ +2  ring ", done.stdout, re.M)
    assert re.search(r"^ +2  default ", done.stdout, re.M)
    assert "2 ranks, ring" in done.stderr  # it shows that it lives


@benches.is_built
@pytest.mark.parametrize("flags, words", [
    (["--ranks", "1"], "2 to 64"), (["--ranks", "2,,4"], "2 to 64"),
    (["--bytes", "6"], "multiple of 4"), (["--repeat", "0"], "--repeat"),
    (["more"], "none is taken")])
def test_a_wrong_option_of_the_report_is_refused(flags, words):
    done = benches.bench("allreduce", *flags)
    assert done.returncode == 64
    assert words in done.stderr


@benches.is_built
def test_without_mpirun_the_report_says_what_to_install():
    done = benches.bench("allreduce", "--mpirun", "/nowhere/mpirun")
    assert done.returncode == 69
    assert "openmpi-bin" in done.stderr


# --- what is trained ---------------------------------------------------------

@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Two ranks, to the end."""
    folder = tmp_path_factory.mktemp("straight")
    done = run(folder, *GROUP)
    assert re.search(r"worker:0 +\| 2 ranks, default allreduce, 8 dense "
                     r"variables of [0-9.]+ KiB", done.stdout)
    return folder


def test_two_ranks_train_the_bits_of_the_parameter_servers(straight, tmp_path):
    run(tmp_path, start=None)
    assert losses_of(tmp_path) == losses_of(straight)
    assert digest_of(tmp_path) == digest_of(straight)


def test_four_ranks_train_the_losses_of_the_parameter_servers(tmp_path):
    run(tmp_path / "ps", start=None, workers=4)
    run(tmp_path / "ring", *GROUP, "--allreduce", "ring", workers=4)
    expected = losses_of(tmp_path / "ps")
    assert losses_of(tmp_path / "ring") == pytest.approx(expected, abs=1e-5)
    assert len(expected) == 10


@pytest.mark.parametrize("name, flags", [
    ("skipped", ["--loss-scale", "dynamic:2^127", "--combine", "mean",
                 "--dense-optimizer", "momentum", "--dense-schedule",
                 "polynomial:steps=10,end=0.0001,warmup=3"]),
    pytest.param("refused", ["--dense-optimizer", "sgd", "--dense-lr", "1e6"],
                 marks=pytest.mark.long)])
def test_what_servers_skip_refuse_and_average_a_group_does(
        name, flags, tmp_path):
    data = tmp_path / "data.tsv"
    test_schedule.huge(data, 400)
    flags = ["--data", f"criteo:{data}", "--train-rows", 320,
             *test_schedule.LARGE, *flags]
    code = 70 if name == "refused" else 0  # the last loss is not finite
    run(tmp_path / "ps", *flags, start=None, code=code)
    done = run(tmp_path / "group", *GROUP, "--allreduce-bucket", "4KiB", *flags,
               code=code)
    log = (tmp_path / "group/log").read_text()
    if name == "skipped":
        assert '"skipped": true' in log and '"skipped": false' in log
    else:
        assert "is not finite and was refused" in done.stderr
    assert losses_of(tmp_path / "ps") == losses_of(tmp_path / "group")
    assert digest_of(tmp_path / "ps") == digest_of(tmp_path / "group")


def in_each_rank(*words):
    """A shell that sees OMPI_COMM_WORLD_RANK, before recps-train runs."""
    return ["sh", "-c", " ".join(map(str, words))]


def test_start_values_are_those_of_rank_0_whatever_seed_others_have(
        straight, tmp_path):
    script = in_each_rank(
        "exec", trainer.TRAIN, *DATA, *GROUP, "--json-log", tmp_path / "log",
        '--dense-seed "$((3 + OMPI_COMM_WORLD_RANK))"')
    trainer.run([programs.RECPS, "launch", "--mpi", "--ps", 2, "--workers", 2,
                 "--checkpoint-dir", tmp_path / "c", "--", *script])
    assert losses_of(tmp_path) == losses_of(straight)
    assert digest_of(tmp_path) == digest_of(straight)


def test_groups_and_servers_go_on_from_each_others_checkpoints(
        straight, tmp_path):
    run(tmp_path, *GROUP, "--steps", 6)
    run(tmp_path, "--restore", "--steps", 11, start=None)
    run(tmp_path, *GROUP, "--restore", ps=3)
    losses = losses_of(tmp_path)
    assert losses == {step: loss for step, loss in losses_of(straight).items()
                      if step > 11}
    assert digest_of(tmp_path) == digest_of(straight)


# --- how it ends -------------------------------------------------------------

def start_endless(*options, workers=2):
    command = [programs.RECPS, "launch", "--mpi", "--ps", 1, "--workers",
               workers, *options, "--", trainer.TRAIN, *DATA, *GROUP,
               "--epochs", 100000]
    return subprocess.Popen(
        [str(word) for word in command], env=programs.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_until(process, pattern):
    """Lines up to the first that has it."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"{pattern} is not in:\n{''.join(lines)}")


def ranks_of(launcher):
    """{rank: pid} of the processes that this launcher's mpirun started."""
    found = {}
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf8") as file:
                parents[int(pid)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    for pid, parent in parents.items():
        if parents.get(parent) != launcher.pid:
            continue
        try:
            with open(f"/proc/{pid}/environ", encoding="utf8") as file:
                number = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
        except OSError:
            continue
        if number:
            found[int(number.group(1))] = pid
    return found


def is_running(pid):
    """And no zombie that waits for its new parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_lost_rank_ends_the_group_and_is_named():
    process = start_endless(workers=3)
    read_until(process, r"step 3 ")
    ranks = ranks_of(process)
    assert sorted(ranks) == [0, 1, 2]
    os.kill(ranks[2], signal.SIGKILL)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 137
    assert re.search(r"mpirun +\| .*rank 2 .*signal 9", out)
    assert "stopping all" in out
    assert not [rank for rank, pid in ranks.items() if is_running(pid)]


def test_a_signal_lets_the_group_save_at_one_step_and_end(tmp_path):
    process = start_endless("--checkpoint-dir", tmp_path / "c")
    read_until(process, r"step 3 ")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143
    step = int(re.search(r"worker:0 \| saved step (\d+)", out).group(1))
    assert trainer.checkpoint(tmp_path / "c", step).is_dir()
    assert f"done steps {step} " in out


# --- what is refused ---------------------------------------------------------

def mpirun(*words, code):
    done = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe",
         *(str(word) for word in words)], env=programs.environment(),
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def task(index, workers):
    """TF_CONFIG of a worker whose server nobody asks."""
    cluster = {"ps": ["127.0.0.1:9"],
               "worker": [f"127.0.0.1:{10 + i}" for i in range(workers)]}
    return "TF_CONFIG=" + json.dumps(
        {"cluster": cluster, "task": {"type": "worker", "index": index}})


def test_ranks_in_another_order_than_the_cluster_are_refused():
    command = [trainer.TRAIN, *DATA, *GROUP]
    said = mpirun("-np", 1, "env", task(1, 2), *command, ":",
                  "-np", 1, "env", task(0, 2), *command, code=64)
    assert re.search(r"says that this process is replica [01], MPI that it is "
                     r"rank [01]", said)


def test_backup_workers_are_refused_in_a_group():
    name, value = task(0, 3).split("=", 1)
    done = trainer.train(*DATA, *GROUP, "--backup-workers", 1, code=64,
                         env={name: value})
    assert "does not go with --backup-workers=1" in done.stderr


@pytest.mark.long
def test_another_number_of_ranks_than_replicas_is_refused():
    said = mpirun("-np", 2, "env", task(0, 3), trainer.TRAIN, *DATA, *GROUP,
                  code=64)
    assert "3 replicas, mpirun started 2 ranks" in said


def test_a_worker_outside_mpirun_is_told_to_start_under_it():
    name, value = task(0, 2).split("=", 1)
    done = trainer.train(*DATA, *GROUP, code=64, env={name: value})
    assert done.stderr.startswith("recps-train: --dense allreduce: the cluster")
    assert "recps launch --mpi" in done.stderr and "MPI_" not in done.stderr


def test_a_refusal_is_said_without_mpiruns_banner():
    done = trainer.run(
        [programs.RECPS, "launch", "--ps", 1, "--workers", 2, "--mpi", "--",
         trainer.TRAIN, *DATA, *GROUP, "--train-rows", 10], code=65)
    assert "worker:0 | " in done.stderr and "fewer than one" in done.stderr
    assert "mpirun ended with code 65; stopping all" in done.stderr
    assert not re.search(r"mpirun +\|", done.stderr), done.stderr


@pytest.mark.parametrize("flags, words", [
    ([*GROUP, "--mode", "async"], "does not go with --mode=async"),
    ([*GROUP, "--mode", "bounded:2"], "does not go with --mode=bounded:2"),
    ([*GROUP, "--on-lost", "leave"], "does not go with --on-lost=leave"),
    (["--allreduce", "ring"], "--dense allreduce only"),
    (["--ring-order", "x"], "--dense allreduce only"),
    ([*GROUP, "--ring-order", "/nowhere"], "--ring-order: "),
])
def test_options_that_do_not_go_together_are_refused(flags, words):
    done = trainer.run([trainer.TRAIN, *DATA, *flags],
                       code=66 if "/nowhere" in flags else 64)
    assert words in done.stderr


def test_mpirun_cannot_pass_a_colon_on():
    done = trainer.run([programs.RECPS, "launch", "--mpi", "--", "echo", ":"],
                       code=64)
    assert '":"' in done.stderr


# --- the order of the ring ---------------------------------------------------

def ring_file(folder, order):
    path = folder / "ring.json"
    path.write_text(json.dumps({"order": [
        {"rank": place, "was": rank} for place, rank in enumerate(order)]}))
    return path


def test_each_rank_sends_to_the_next_one_of_the_order(tmp_path):
    order = [0, 2, 1, 3]
    # Open MPI's monitor: who sent how many bytes to whom
    run(tmp_path, *GROUP, "--allreduce", "ring", "--steps", 3, "--ring-order",
        ring_file(tmp_path, order), workers=4,
        env={"OMPI_MCA_pml_monitoring_enable": "1",
             "OMPI_MCA_pml_monitoring_enable_output": "3",
             "OMPI_MCA_pml_monitoring_filename": str(tmp_path / "sent")})
    next_of = dict(itertools.pairwise(order + order[:1]))
    for rank in range(4):
        sent = {}
        for line in (tmp_path / f"sent.{rank}.prof").read_text().splitlines():
            kind, *fields = line.split("\t")
            if kind in ("E", "I"):
                peer, size = int(fields[1]), int(fields[2].split()[0])
                sent[peer] = sent.get(peer, 0) + size
        # the broadcast at the start is a tree, and small beside three sums
        assert max(sent, key=sent.get) == next_of[rank]


@pytest.mark.parametrize("text, words", [
    ("{", "line 1"), ("{}", 'no list "order"'),
    ('{"order":[]}', "orders 0 ranks, the job has 1"),
    ('{"order":[{"rank":0}]}', '"rank" and "was"'),
    ('{"order":[{"rank":1,"was":0}]}', "each must be one of 0 to 0"),
])
def test_an_order_that_is_none_is_refused_by_name(text, words, tmp_path):
    (tmp_path / "o.json").write_text(text)
    done = trainer.run([trainer.TRAIN, *DATA, *GROUP, "--ring-order",
                        tmp_path / "o.json"], code=64)
    assert words in done.stderr and "o.json" in done.stderr


def test_a_plan_of_the_tool_is_taken(tmp_path):
    examples = programs.ROOT / "conf/examples"
    plan = trainer.run([programs.RECPS, "ranktable", "plan", "--ranktable",
                        examples / "ranktable.json", "--topology",
                        examples / "topology.json", "--json"]).stdout
    (tmp_path / "plan.json").write_text(plan)
    done = trainer.run([trainer.TRAIN, *DATA, *GROUP, "--ring-order",
                        tmp_path / "plan.json"], code=64)
    # read as it is: it has more ranks than this job
    assert re.search(r"orders \d+ ranks, the job has 1 replicas", done.stderr)
