# SPDX-License-Identifier: Apache-2.0
"""Killed processes come back, and the job goes on as if nothing had been.

The oracle is the same job undisturbed: all its losses, bit for bit, and the
content digest of its last checkpoint.
"""
import json
import os
import random
import re
import signal
import struct
import subprocess
import time
import urllib.request

import pytest

import programs
import recovery
import trainer
import wire

pytestmark = trainer.needs_programs

RESTART = ["--restart", "on-failure"]
ROLLED_BACK = -7  # include/recps/status.h


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    with recovery.Job(tmp_path_factory.mktemp("straight"),
                      *recovery.FLAGS) as job:
        losses, name, digest = job.result()
    assert list(losses) == list(range(1, 63)) and name == "ckpt-000000000062"
    return losses, name, digest


@pytest.fixture
def job(tmp_path):
    with recovery.Job(tmp_path, *recovery.FLAGS, options=RESTART) as started:
        yield started


def test_a_server_a_worker_and_the_chief_are_killed(straight, job):
    job.wait_for_step(13)
    job.signal("ps:1")
    line = job.wait_for(r"worker:0 \| rolled back from step (\d+) to (\d+): "
                        r"PS 1 was lost \(epoch 2\)")
    assert int(line[1]) >= 13 and line[2] in ("0", "10", "20")
    job.wait_for_step(25)
    job.signal("worker:1")
    job.wait_for(r"worker:0 \| rolled back from .* rank 1 was lost \(epoch 3\)")
    job.wait_for_step(36)
    job.signal("worker:0")
    job.wait_for(r"worker:0 \| rolled back from .*: the chief was lost "
                 r"\(epoch 4\)")
    assert job.result() == straight
    output = job.output()
    for task in ("ps:1", "worker:1", "worker:0"):
        assert (f"{task} was ended by signal 9 (Killed); starting it again in "
                f"0.1 s (restart 1, at most 10 in 10 minutes)") in output
    # what was reported of a step is told apart by the epoch
    lines = [json.loads(line) for line in job.log.read_text().splitlines()]
    assert [line["epoch"] for line in lines
            if line.get("event") == "rolled_back"] == [2, 3, 4]
    epochs = [line["epoch"] for line in lines if "loss" in line]
    assert epochs == sorted(epochs) and set(epochs) == {1, 2, 3, 4}


def test_a_server_that_is_terminated_has_the_chief_save_and_comes_back(
        tmp_path):
    flags = [*recovery.FLAGS, "--save-steps", 1000, "--epochs", 5]
    for name in ("straight", "stopped"):
        (tmp_path / name).mkdir()
    with recovery.Job(tmp_path / "straight", *flags) as job:
        straight = job.result()
    with recovery.Job(tmp_path / "stopped", *flags, options=RESTART) as job:
        job.wait_for_step(13)
        job.signal("ps:1", signal.SIGTERM)
        saved = job.wait_for(r"ps:1 .*checkpoint_saved: ckpt-0*(\d+)")[1]
        job.wait_for(r"ps:1 ended with code 143; starting it again")
        job.wait_for(rf"worker:0 \| rolled back from step \d+ to {saved}: "
                     r"PS 1 was lost \(epoch 2\)")
        assert job.result() == straight
    assert not list(job.checkpoints.glob("orphan-*"))


@pytest.mark.long
def test_before_the_first_checkpoint_it_begins_again(straight, job):
    job.wait_for_step(3)
    job.signal("ps:0")
    job.wait_for(r"worker:1 \| rolled back from step \d+ to 0: PS 0 was lost")
    assert job.result() == straight


def variables_of(pid):
    try:
        with open(f"/proc/{pid}/environ", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            return file.read().split("\0")
    except OSError:
        return []


def saves_now(job):
    return programs.until(lambda: list(job.checkpoints.glob(".tmp-ckpt-*")))


@pytest.mark.long
def test_a_server_and_the_chief_are_killed_while_they_save(tmp_path):
    flags = [*recovery.FLAGS, "--epochs", 20]
    for name in ("straight", "killed"):
        (tmp_path / name).mkdir()
    with recovery.Job(tmp_path / "straight", *flags) as job:
        straight = job.result()
    with recovery.Job(tmp_path / "killed", *flags, options=RESTART) as job:
        for task in ("ps:1", "worker:0"):
            saves_now(job)
            job.signal(task)
            job.wait_for(r"worker:0 \| rolled back")
        assert job.result() == straight
    assert not list(job.checkpoints.glob(".tmp-*"))


@pytest.mark.long
def test_they_are_killed_on_their_way_back_and_two_at_once(straight, job):
    job.wait_for_step(13)
    job.signal("ps:0")
    job.wait_for(r"worker:0 \| lost at step")
    job.signal("ps:1")  # the RESTORE comes now
    job.wait_for(r"worker:1 \| rolled back")
    job.wait_for_step(33)
    job.signal("worker:1")
    job.signal("ps:1")
    job.wait_for(r"worker:1 \| the job goes on after step")
    job.signal("worker:1")
    job.signal("worker:0")
    assert job.result() == straight


def test_a_worker_is_killed_twice_in_a_row(straight, job):
    """The second time before it has joined, or just after."""
    job.wait_for_step(13)
    job.signal("worker:1")
    job.wait_for(r"worker:1 was ended by signal 9 .*\(restart 1,")
    job.signal("worker:1")
    job.wait_for(r"worker:1 was ended by signal 9 .*\(restart 2,")
    job.wait_for(r"worker:1 \| (rolled back from|the job goes on after) step")
    assert job.result() == straight


def figure(port, name):
    """Of a server's admin port; None: it does not answer."""
    try:
        text = urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError:
        return None
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return None if found is None else float(found[1])


@pytest.mark.long
@pytest.mark.parametrize("task", ["ps:1", "worker:0"])
def test_one_is_killed_while_a_restore_is_read(tmp_path, task):
    """So many rows that it takes a while, in which a server says so."""
    flags = ["--batch-size", 512, "--emb-dim", 64, "--bottom-mlp", "64",
             "--steps", 70, "--save-steps", 20, "--deterministic"]
    how = {"data": "synthetic:rows=40000,fields=26,keys=400000,seed=5",
           "workers": 1}
    for name in ("straight", "killed"):
        (tmp_path / name).mkdir()
    with recovery.Job(tmp_path / "straight", *flags, **how) as job:
        straight = job.result()
    with recovery.Job(tmp_path / "killed", *flags, **how,
                      options=[*RESTART, "--admin", "127.0.0.1:0"]) as job:
        port = job.wait_for(r"ps:1 .*admin=127.0.0.1:(\d+)")[1]
        job.wait_for(r"saved step")
        job.signal("ps:0")  # ps:1 lives, and restores, too
        programs.until(lambda: figure(
            port, 'recps_checkpoint_in_progress{what="restore"}') == 1)
        job.signal(task)
        job.wait_for(rf"{task} was ended by signal 9")
        assert not re.search("ps:1 .*job_begun: epoch 2", job.output())
        job.wait_for(r"worker:0 \| rolled back from")
        assert job.result() == straight


def test_a_worker_that_was_stopped_wakes_in_another_epoch(straight, job):
    job.wait_for_step(13)
    job.signal("worker:1", signal.SIGSTOP)
    job.signal("ps:1")
    job.wait_for(r"ps:1 .*job_begun: epoch 2")
    time.sleep(0.1)
    assert "epoch=2" not in job.log.read_text()
    job.signal("worker:1", signal.SIGCONT)
    job.wait_for(r"worker:1 \| rolled back from step \d+ to \d+: PS 1 was lost")
    assert job.result() == straight


def test_one_wakes_where_nobody_else_knows_its_epoch(straight, tmp_path):
    """All servers and the chief begin anew, with no checkpoint, and count the
    epoch that the worker is in."""
    flags = [*recovery.FLAGS, "--save-steps", 0]
    with recovery.Job(tmp_path, *flags, options=RESTART) as job:
        job.wait_for_step(5)
        job.signal("worker:1", signal.SIGSTOP)
        for task in ("worker:0", "ps:0", "ps:1"):
            job.signal(task)
        begun = job.wait_for(r"ps:1 .*job_begun: epoch (\d+), step 0")
        assert begun[1] == "1"
        job.signal("worker:1", signal.SIGCONT)
        job.wait_for(r"worker:1 \| lost at step .*began anew")
        assert job.result() == straight


@pytest.mark.long
@pytest.mark.parametrize("task", ["worker:1", "worker:0", "ps:0"])
def test_who_is_lost_after_the_last_step_is_needed_again(
        straight, tmp_path, task):
    """The last save is at the end: its steps are trained again, by replicas
    that had left."""
    flags = [*recovery.FLAGS, "--save-steps", 50]
    with recovery.Job(tmp_path, *flags, options=RESTART) as job:
        job.wait_for_step(62)
        job.signal(task)
        assert job.result() == straight


@pytest.mark.long
def test_the_evaluator_is_not_disturbed(tmp_path):
    flags = [*recovery.FLAGS, "--train-rows", 3000, "--epochs", 10]
    with recovery.Job(tmp_path, *flags,
                      options=[*RESTART, "--evaluator"]) as job:
        job.wait_for(r"evaluator:0 \| evaluator: step ")
        job.signal("ps:0")
        job.signal("worker:0")
        job.wait_for(r"worker:0 +\| rolled back")
        job.wait_for(r"evaluator:0 \| evaluator: step 930 ")
        assert job.end() == 0, job.output()
        assert "evaluator:0 was ended" not in job.output()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["async", "bounded:1"])
def test_other_modes_go_on_too(tmp_path, mode):
    flags = ["--train-rows", 2000, "--batch-size", 16, "--save-steps", 10,
             "--mode", mode]
    with recovery.Job(tmp_path, *flags, options=RESTART) as job:
        job.wait_for_step(13)
        job.signal("worker:1")
        job.wait_for(r"worker:0 \| rolled back .* rank 1 was lost")
        job.wait_for_step(25)
        job.signal("ps:1")
        job.wait_for(r"worker:0 \| rolled back .* PS 1 was lost")
        assert job.end() == 0, job.output()
        assert job.newest().name == "ckpt-000000000062"


@pytest.mark.long
@pytest.mark.skipif(not programs.has_mpi(), reason="no MPI")
def test_a_group_is_started_again_as_a_whole(tmp_path):
    flags = [*recovery.FLAGS, "--epochs", 10, "--dense", "allreduce"]
    for name in ("straight", "killed"):
        (tmp_path / name).mkdir()
    with recovery.Job(tmp_path / "straight", *flags, options=["--mpi"]) as job:
        straight = job.result()
    with recovery.Job(tmp_path / "killed", *flags,
                      options=[*RESTART, "--mpi"]) as job:
        job.wait_for_step(23)
        ranks = [int(pid) for pid in filter(str.isdigit, os.listdir("/proc"))
                 if command_of(pid)[0].endswith("recps-train") and
                 str(job.log) in command_of(pid)]
        assert len(ranks) == 2
        os.kill(max(ranks), signal.SIGKILL)
        job.wait_for("mpirun ended with code 137; starting it again")
        job.wait_for(r"rolled back from step \d+ to \d+: (rank 1|the chief) ")
        job.wait_for_step(35)
        job.signal("ps:1")
        job.wait_for(r"rolled back from step \d+ to \d+: PS 1 was lost")
        assert job.result() == straight


# ---- when it does not go on ----

def test_too_many_restarts_end_the_job(tmp_path):
    with recovery.Job(tmp_path, *recovery.FLAGS, "--epochs", 1000,
                      options=[*RESTART, "--max-restarts", 2]) as job:
        for _ in range(2):
            job.wait_for_step(3)
            job.signal("ps:1")
            job.wait_for(r"worker:0 \| rolled back")
        job.wait_for_step(3)
        job.signal("ps:1")
        job.wait_for("ps:1 was started again 2 times within 10 minutes: "
                     "giving up")
        assert job.end() == 137, job.output()


@pytest.mark.parametrize("code, restarts", [(3, 1), (64, 0), (78, 0)])
def test_what_a_restart_cannot_help_is_not_tried_again(code, restarts):
    run = trainer.run(
        [programs.RECPS, "launch", "--ps", 0, "--workers", 1, *RESTART,
         "--max-restarts", 1, "--", "sh", "-c", f"exit {code}"], code=code)
    assert run.stderr.count("starting it again") == restarts
    assert f"worker:0 ended with code {code}; stopping all" in run.stderr


@pytest.mark.long
def test_a_worker_without_servers_is_started_again(tmp_path):
    with recovery.Job(tmp_path, *recovery.FLAGS, "--epochs", 10, ps=0,
                      workers=1, options=RESTART) as job:
        job.wait_for("saved step")
        for pid in recovery.children(job.process.pid):
            os.kill(pid, signal.SIGKILL)
        job.wait_for("rolled back from step")
        losses, name, _ = job.result()
    assert len(losses) == 1250 and name == "ckpt-000000001250"


def test_a_new_run_does_not_go_on_from_another_ones_checkpoints(tmp_path):
    for _ in range(2):
        job = recovery.Job(tmp_path, "--steps", 3, *recovery.FLAGS,
                           options=RESTART)
        with job:
            code = job.end()
    assert code == 64, job.output()
    assert "already holds checkpoints" in job.output()
    assert "starting it again" not in job.output()


def test_a_step_before_the_newest_is_no_place_to_begin(tmp_path):
    with recovery.Job(tmp_path, *recovery.FLAGS, "--steps", 20) as job:
        assert job.end() == 0, job.output()
    with recovery.Job(tmp_path, *recovery.FLAGS, "--restore=10",
                      options=RESTART) as job:
        assert job.end() == 64, job.output()
    assert "has later steps, up to 20" in job.output()


# ---- without a launcher: what a server does ----

def test_a_server_in_an_epoch_of_its_own_takes_all_to_the_next(tmp_path):
    """A chief that was killed between two RESTOREs."""
    with programs.Recpsd("--checkpoint-dir", tmp_path) as server:
        chief = server.connect(role="chief", rank=0, replicas=1, client="a1")
        begun = chief.call(wire.RESTORE, [wire.text(
            {"epoch": 7, "step": 0, "mode": "sync", "replicas": 1,
             "recover": True})])
        assert begun.status == wire.OK, begun.text
        chief.close()
        other = server.connect(role="chief", rank=0, replicas=1, client="b2",
                               known_epoch=9)
        assert other.call(wire.STAT, [wire.text({})]).json["epoch_known"] == 9
        old = other.call(wire.STEP_END, [wire.text({"rank": 0})], step=1,
                         epoch=9)
        assert old.status == ROLLED_BACK


class Chief:
    """A process of rank 0, over the wire: it begins, and makes a step."""

    def __init__(self, server, client):
        self.client = client
        self.link = server.connect(role="chief", rank=0, replicas=1,
                                   client=client)
        self.epoch = 0

    def call(self, opcode, sections=(), **fields):
        return self.link.call(opcode, sections,
                              **{"epoch": self.epoch, **fields})

    def restore(self, epoch, step=0):
        reply = self.call(wire.RESTORE, [wire.text(
            {"epoch": epoch, "step": step, "mode": "sync", "replicas": 1,
             "recover": True, "step_timeout_ms": 300})])
        if reply.status == wire.OK:
            self.epoch = epoch
        return reply

    def table(self):
        reply = self.call(wire.GET_TABLE, [wire.text(
            {"name": "emb", "dimension": 2, "optimizer": "sgd"})])
        assert reply.status == wire.OK, reply.text
        return int(reply.json["table_id"], 16)

    def rows(self, table, keys=8):
        return [wire.section(wire.KEYS, struct.pack(f"<{keys}Q", *range(keys)),
                             table_id=table, count=keys),
                wire.section(wire.ROWS, struct.pack("<f", 1.0) * 2 * keys,
                             table_id=table, dim=2, count=keys,
                             learning_rate=1.0)]

    def end(self, step, wishes=()):
        return self.call(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": 0.5, "wishes": list(wishes)})], step=step)

    def decision_of(self, step, table, wishes=()):
        """What the step's end says, of a step that pushed rows."""
        reply = self.call(wire.PUSH, self.rows(table), step=step)
        assert reply.status == wire.OK, reply.text
        reply = self.end(step, wishes)
        assert reply.status == wire.OK, reply.text
        return [wire.section(8, reply.find(8))]


def state(server, link):
    """All that a request could have changed."""
    stat = link.call(wire.STAT, [wire.text({"digests": True})]).json
    return ([stat[name] for name in ("epoch", "step", "checkpoints", "wishes",
                                     "ending") if name in stat],
            [[table[name] for name in ("name", "spec", "rows", "digest")]
             for table in stat["tables"]], stat["save"]["phase"])


def test_an_older_chief_that_lives_changes_nothing(tmp_path):
    """A partition: the job has a second chief, and the first one comes back."""
    with programs.Recpsd("--checkpoint-dir", tmp_path) as server:
        old, new = Chief(server, "a1"), Chief(server, "b2")
        assert old.restore(1).status == wire.OK
        table = old.table()
        assert old.end(0).status == wire.OK
        first = old.decision_of(1, table, ["save"])
        assert old.call(wire.APPLY, first, step=1).status == wire.OK
        prepared = old.call(wire.SAVE, [wire.text({"action": "prepare"})],
                            step=1)
        assert prepared.status == wire.OK, prepared.text
        second = old.decision_of(2, table)
        refused = new.restore(2)  # while the first one is heard
        assert refused.status == wire.RETRY_LATER
        assert "the job has a chief" in refused.text
        programs.until(lambda: new.restore(2).status == wire.OK)
        assert new.table() == table
        assert new.end(0).status == wire.OK
        third = new.decision_of(1, table)
        assert new.call(wire.APPLY, third, step=1).status == wire.OK
        before = state(server, new.link)

        some = old.rows(table)
        for opcode, sections, fields in (
                (wire.GET_TABLE, [wire.text({"name": "other", "dimension": 2,
                                             "optimizer": "sgd"})], {}),
                (wire.ALTER_TABLE, [wire.text(
                    {"table": "emb", "fields": {"learning_rate": 0.5}})], {}),
                (wire.LOOKUP, some[:1], {}),
                (wire.LOOKUP, second + some[:1], {}),
                (wire.PUSH, some, {"step": 2}), (wire.PUSH, some, {"step": 3}),
                (wire.APPLY, second, {"step": 2}),
                (wire.STEP_END, [wire.text({"rank": 0, "loss": None,
                                            "wishes": []})], {"step": 2}),
                (9, some, {}),  # ASSIGN
                (wire.ERASE, some[:1], {}),
                (wire.EVICT, [wire.text({})], {}),
                (wire.DROP, [wire.text({"table": "emb"})], {}),
                *((wire.SAVE, [wire.text({"action": action, "manifest": "{}"})],
                   {"step": 1})
                  for action in ("cut", "prepare", "commit", "abort")),
                (wire.SHUTDOWN, [], {}), (wire.SHUTDOWN, [wire.text({})], {})):
            reply = old.call(opcode, sections, **fields)
            assert reply.status == ROLLED_BACK, (opcode, sections, reply.text)
        assert old.restore(2).status == wire.INVAL
        assert old.restore(3).status == wire.RETRY_LATER  # the new one lives
        assert state(server, new.link) == before
        # and the new one goes on
        fourth = new.decision_of(2, table, ["save"])
        assert new.call(wire.APPLY, fourth, step=2).status == wire.OK
        assert new.call(wire.SAVE, [wire.text({"action": "prepare"})],
                        step=2).status == wire.OK
        assert new.call(wire.SHUTDOWN).status == wire.OK
        assert server.wait() == 0


def test_who_waits_for_what_was_lost_does_not_say_that_nothing_was_trained(
        tmp_path):
    with programs.Recpsd("--checkpoint-dir", tmp_path / "ck") as server:
        with open(tmp_path / "out", "wb") as out:
            worker = subprocess.Popen(
                [trainer.TRAIN, "--data", "synthetic:rows=2000,keys=100",
                 "--epochs", "1000000", "--recover",
                 "--reconnect-timeout", "0.1", "--ps_hosts",
                 f"127.0.0.1:{server.port}", "--worker_hosts", "127.0.0.1:1",
                 "--job_name", "worker", "--task_index", "0"],
                stdout=out, stderr=out, env=programs.environment())
        try:
            said = (tmp_path / "out").read_text
            programs.until(lambda: "step 10 " in said())
            server.process.kill()
            programs.until(lambda: "going back" in said())
            time.sleep(0.5)  # it dials by now
            worker.terminate()
            assert worker.wait(20) == 143, said()
        finally:
            worker.kill()
    assert "steps since the newest checkpoint are not saved" in said()
    assert "nothing to save" not in said()


# ---- examples ----

# Slurm's two programs, for one host: srun starts the tasks, ends with the
# first bad code, and passes TERM on.
SCONTROL = "#!/bin/sh\nprintf '127.0.0.1\\n'\n"
SRUN = '''#!/bin/sh
tasks=0
while :; do
    case $1 in
    --ntasks=*) tasks=${1#*=} ;;
    --*) ;;
    *) break ;;
    esac
    shift
done
pids=
for rank in $(seq 0 $((tasks - 1))); do
    SLURM_PROCID=$rank "$@" & pids="$pids $!"
done
for pid in $pids; do wait "$pid" || { kill $pids; exit 1; }; done
'''


@pytest.mark.long
def test_the_slurm_example_starts_a_lost_task_again(tmp_path, straight):
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log.json"
    places = [str(tmp_path), *(str(program.parent) for program in
                               (programs.RECPSD, trainer.TRAIN))]
    process = subprocess.Popen(
        ["sh", programs.ROOT / "conf/slurm/recps.sbatch", "recps-train",
         "--data", f"criteo:{trainer.data('criteo.tsv')}", "--json-log", log,
         *map(str, recovery.FLAGS)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env=programs.environment(
            PATH=":".join([*places, os.environ["PATH"]]),
            SLURM_JOB_NODELIST="here", PORT=str(23000 + os.getpid() % 2000),
            RESTART_WAIT="0.1"))
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "step 15 loss" in line and "restart" not in "".join(lines):
                for pid in filter(str.isdigit, os.listdir("/proc")):
                    if (f"{tmp_path}/checkpoints" in variables_of(pid) and
                            command_of(pid)[1:2] == ["--data"]):
                        os.kill(int(pid), signal.SIGKILL)
        assert process.wait(60) == 0, "".join(lines)
    finally:
        process.kill()
    output = "".join(lines)
    assert output.count("ended with code 137; restart 1") == 2, output
    assert recovery.counted(log) == straight[0]
    assert trainer.digest(
        tmp_path / "checkpoints" / straight[1]) == straight[2]


def test_the_kubernetes_example_is_understood(tmp_path):
    yaml = pytest.importorskip("yaml")
    text = (programs.ROOT / "conf/kubernetes/recps.yaml").read_text()
    parts = {part["kind"]: part for part in yaml.safe_load_all(text)}
    variables = parts["ConfigMap"]["data"]
    cluster = json.loads(variables["TF_CONFIG"])["cluster"]
    server = parts["StatefulSet"]["spec"]
    worker = parts["Job"]["spec"]
    assert len(cluster["ps"]) == server["replicas"]
    assert len(cluster["worker"]) == worker["completions"]
    assert worker["template"]["spec"]["restartPolicy"] == "OnFailure"
    command = server["template"]["spec"]["containers"][0]["command"]
    run = trainer.run(
        [programs.RECPSD, "--check-config", *command[1:]],
        env={**variables, "RECPS_CHECKPOINT_DIR": str(tmp_path),
             "JOB_COMPLETION_INDEX": "1"})
    assert "index: 1" in run.stdout
    command = worker["template"]["spec"]["containers"][0]["command"]
    options = subprocess.run([trainer.TRAIN, "--help"], text=True,
                             capture_output=True, check=True).stdout
    for flag in command[1:]:
        assert re.search(rf"^  {flag.split('=')[0]}\b", options, re.M), flag


# ---- the long form ----

@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_random_kills_change_nothing(tmp_path, seed):
    """Point 7 of issue 6: 2 servers and 2 workers on criteo.tsv."""
    flags = ["--train-rows", 7000, "--batch-size", 32, "--epochs", 6,
             "--save-steps", 20, "--deterministic"]
    draw = random.Random(seed)
    for name in ("straight", "killed"):
        (tmp_path / name).mkdir()
    with recovery.Job(tmp_path / "straight", *flags) as job:
        straight = job.result()
    with recovery.Job(tmp_path / "killed", *flags,
                      options=[*RESTART, "--max-restarts", 100]) as job:
        kills = 0
        while kills < 20:
            time.sleep(draw.uniform(0.05, 0.6))
            tasks = job.tasks()
            if tasks:
                job.signal(draw.choice(sorted(tasks)))
                kills += 1
            assert job.process.poll() is None, (kills, job.output())
        assert job.result() == straight
    assert len(re.findall("starting it again", job.output())) == 20
