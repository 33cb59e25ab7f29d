# SPDX-License-Identifier: Apache-2.0
"""recps-train --device npu: the same model as --device cpu, in compiled steps
whose loop size changes no bit; what it counts, and how it fails."""
import json
import random
import re
import signal
import subprocess
import urllib.request

import pytest

import programs
import recovery
import trainer
from test_lost import wait_for_step
from test_train import start_worker

pytestmark = trainer.needs_programs

DLRM = ["--data", "synthetic:rows=2600,keys=400,zipf=1.05,seed=3",
        "--batch-size", 25, "--train-rows", 2500]
DEMO = ["--data", "synthetic:rows=1300,keys=300,seed=2", "--model",
        "little_demo", "--batch-size", 25, "--train-rows", 1250]
MODELS = pytest.mark.parametrize("flags, steps", [(DLRM, 40), (DEMO, 9)],
                                 ids=["dlrm", "little_demo"])
NPU = ["--device", "npu"]
EXACT = [*NPU, "--deterministic"]


class Run:
    """What a run of one replica left: its losses, their bits, the content of
    its last checkpoint, and what it says of the NPU."""

    def __init__(self, folder, *flags, steps, **how):
        folder.mkdir()
        log, saved = folder / "log.json", folder / "ck"
        self.out = trainer.train(
            *flags, "--steps", steps, "--json-log", log, "--checkpoint-dir",
            saved, timeout=900, **how).stdout
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.done = lines[-1]
        steps = [line for line in lines[:-1] if "loss" in line]
        self.losses = [line["loss"] for line in steps]
        self.bits = [line.get("loss_bits") for line in steps]
        self.digest = trainer.digest(max(saved.glob("ckpt-*")))
        self.npu = self.done.get("npu")

    def result(self):
        return self.bits, self.digest, self.done["log_loss"]


@MODELS
def test_the_device_computes_what_the_host_does(tmp_path, flags, steps):
    host = Run(tmp_path / "cpu", *flags, steps=steps)
    device = Run(tmp_path / "npu", *flags, *NPU, "--npu-loop-size", 8,
                 steps=steps)
    assert host.npu is None and device.npu["id"] == 0
    assert device.losses == pytest.approx(host.losses, abs=1e-6)
    for what in ("auc", "log_loss"):
        assert device.done[what] == pytest.approx(host.done[what], abs=1e-6)


@MODELS
def test_the_loop_size_changes_no_bit(tmp_path, flags, steps):
    runs = [Run(tmp_path / str(size), *flags, *EXACT, "--npu-loop-size", size,
                "--pipeline-depth", depth, steps=steps)
            for size, depth in ((1, 1), (7, 3), (32, 4))]
    host = Run(tmp_path / "cpu", *flags, "--deterministic", steps=steps)
    for run in runs:
        # tiles of 64 rows, as on the host
        assert (run.bits, run.digest) == (host.bits, host.digest)
        assert run.result() == runs[0].result()


def test_launches_are_the_loops_and_input_is_copied_once_a_step(tmp_path):
    run = Run(tmp_path / "run", *DLRM, *NPU, steps=100,
              env={"NPU_LOOP_SIZE": "30"})
    assert "100 steps in 4 launches (loop 30)" in run.out
    npu = run.npu
    assert npu["steps"] == npu["input_copies"] == 100
    assert npu["launches"] == 4 and npu["loop_size"] == 30
    assert npu["queue_bytes"] >= 30 * 25 * 4  # the labels alone
    assert "input queue " in run.out
    assert 1 <= npu["input_ahead"] <= 30
    assert npu["compiles"] == 2  # training, and the evaluation's forward
    assert "compiled again" not in run.out


@pytest.mark.parametrize("times", [4, pytest.param(
    0, marks=pytest.mark.long)])
@MODELS
def test_after_the_first_step_no_memory_is_reserved(tmp_path, flags, steps,
                                                    times):
    steps = steps * times or 10000
    npu = Run(tmp_path / "run", *flags, "--epochs", 1000, "--train-rows", 1250,
              *NPU, "--log-every", 100, steps=steps).npu
    assert npu["steps"] == npu["launches"] == steps
    assert 0 < npu["allocated_peak_bytes"] <= npu["reserved_bytes"]
    assert npu["reserved_train_bytes"] == npu["reserved_first_bytes"]


def test_saves_inside_a_loop_are_those_between_two_steps(tmp_path):
    flags = [*DLRM, "--save-steps", 7, "--keep", 100]
    device = Run(tmp_path / "npu", *flags, *EXACT, "--npu-loop-size", 16,
                 steps=30)
    host = Run(tmp_path / "cpu", *flags, "--deterministic", steps=30)
    assert device.bits == host.bits
    # one that is due while another runs is put off
    saved = [folder.name for folder in (tmp_path / "npu/ck").glob("ckpt-*")
             if (tmp_path / "cpu/ck" / folder.name).is_dir()]
    assert "ckpt-000000000007" in saved and "ckpt-000000000030" in saved
    for name in saved:
        assert (trainer.digest(tmp_path / "npu/ck" / name) ==
                trainer.digest(tmp_path / "cpu/ck" / name))


def test_a_signal_ends_the_loop_and_a_restore_goes_on(tmp_path):
    flags = [*DLRM, *EXACT, "--epochs", 100000, "--checkpoint-dir",
             tmp_path / "ck", "--npu-loop-size", 100000]
    process = subprocess.Popen(
        [str(word) for word in (trainer.TRAIN, *flags)],
        env=programs.environment(), stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("step 50 "):
            break
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, rest
    saved = max((tmp_path / "ck").glob("ckpt-*"))
    step = int(saved.name[5:])
    assert step >= 50
    out = trainer.train(*flags, "--restore", "--steps", step + 20).stdout
    assert f"done steps {step + 20} " in out
    straight = Run(tmp_path / "straight", *DLRM, *EXACT, "--epochs", 100000,
                   "--log-every", 100, steps=step + 20)
    assert straight.digest == trainer.digest(
        trainer.checkpoint(tmp_path / "ck", step + 20))


def launch(folder, *flags, options=(), workers=2, **how):
    """(bits of the losses, digest) of a job of two workers."""
    folder.mkdir()
    log, saved = folder / "log.json", folder / "ck"
    trainer.launch(*flags, "--deterministic", "--json-log", log, "--steps", 15,
                   workers=workers, ps=2,
                   options=["--checkpoint-dir", saved, *options], **how)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return ([line["loss_bits"] for line in lines if "loss_bits" in line],
            trainer.digest(max(saved.glob("ckpt-*"))))


@pytest.mark.parametrize("dense", ["ps", pytest.param(
    "allreduce", marks=pytest.mark.skipif(
        not programs.has_mpi(), reason="no MPI here"))])
def test_two_workers_have_a_device_each(tmp_path, dense):
    flags = [*DLRM, "--dense", dense]
    options = ["--mpi"] if dense == "allreduce" else []
    host = launch(tmp_path / "cpu", *flags, options=options)
    assert host == launch(tmp_path / "npu", *flags, *NPU, "--npu-loop-size", 7,
                          options=options)


@pytest.mark.long
def test_a_backup_worker_that_was_held_up_catches_up(recpsd):
    """The sets of steps that went without it are no others'."""
    flags = ["--data", DLRM[1], "--batch-size", 25, "--epochs", 100000, *NPU,
             "--npu-loop-size", 50, "--backup-workers", 1]
    workers = [start_worker(recpsd, index, *flags, workers=3)
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
        for worker in workers[1:]:
            rest, _ = worker.communicate(timeout=60)
            assert worker.returncode == 0, rest
        missed = re.search(r"(\d+) of this replica's steps were not", rest)
        assert int(missed[1]) >= 90, rest
        assert recpsd.wait() == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def feasign_file(path, rows, tokens):
    """Rows of two slots, of which the first has as many keys as told."""
    draw = random.Random(5)
    with open(path, "w", encoding="ascii") as file:
        for row in range(rows):
            keys = [f"{draw.randrange(1, 200)}:1"
                    for _ in range(draw.randint(1, tokens(row)))]
            keys.append(f"{draw.randrange(1, 200)}:2")
            file.write(f"{draw.randint(0, 1)}:1 {' '.join(keys)}\n")


def test_more_tokens_compile_again_and_are_told_once(tmp_path):
    path = tmp_path / "rows"
    feasign_file(path, 1500, lambda row: 2 + row // 100)
    flags = ["--data", f"feasign:{path}", "--batch-size", 25, "--train-rows",
             1450]
    device = Run(tmp_path / "npu", *flags, *EXACT, "--npu-loop-size", 20,
                 steps=58)
    host = Run(tmp_path / "cpu", *flags, "--deterministic", steps=58)
    assert (device.bits, device.digest) == (host.bits, host.digest)
    assert len(re.findall("compiled again", device.out)) == 1
    assert device.npu["compiles"] > 3
    assert device.npu["steps"] == 58


def test_memory_for_time(tmp_path):
    flags = [*DLRM, "--bottom-mlp", "64,64,64,16", "--top-mlp",
             "64,64,64,1", "--batch-size", 250]
    plain = Run(tmp_path / "plain", *flags, *EXACT, steps=6)
    peak = plain.npu["allocated_peak_bytes"]
    for number, way in enumerate([["--recompute"], ["--offload"],
                                  ["--fusion", "off"]]):
        run = Run(tmp_path / str(number), *flags, *EXACT, *way,
                  "--npu-loop-size", 4, steps=6)
        assert run.result() == plain.result()
        if way[0] != "--fusion":
            assert run.npu["allocated_peak_bytes"] < peak
    parts = Run(tmp_path / "parts", *flags, *NPU, "--micro-batch", 3, steps=6)
    assert parts.losses == pytest.approx(plain.losses, abs=1e-6)
    assert parts.npu["allocated_peak_bytes"] < peak


def test_offload_fits_where_the_plain_step_does_not():
    flags = ["--data", "synthetic:rows=2100,keys=500", "--batch-size", 2048,
             "--steps", 1, "--top-mlp", "512," * 8 + "1", *NPU]
    offload = trainer.train(*flags, "--offload", "--device-memory", "62MiB")
    assert "done steps 1" in offload.stdout
    plain = trainer.train(*flags, "--device-memory", "62MiB", code=78)
    assert "no device memory" in plain.stderr
    offload = trainer.train(*flags, "--offload", "--device-memory", "50MiB",
                            code=78)
    assert "no device memory" in offload.stderr


def test_a_device_of_one_mebibyte_trains():
    run = trainer.train("--data", "synthetic:rows=2100,keys=50",
                        "--batch-size", 32, "--steps", 2, *NPU,
                        "--device-memory", "1MiB")
    assert "done steps 2" in run.stdout


def test_dropout_is_of_the_step_and_not_of_the_loop(tmp_path):
    flags = [*DLRM, *EXACT, "--dropout", 0.3]
    plain = Run(tmp_path / "plain", *DLRM, *EXACT, steps=20)
    one = Run(tmp_path / "one", *flags, steps=20)
    assert one.bits[0] != plain.bits[0]
    many = Run(tmp_path / "many", *flags, "--npu-loop-size", 8, "--recompute",
               steps=20)
    assert many.result() == one.result()


@pytest.mark.parametrize("flags", [["--precision-mode", "mixed",
                                    "--loss-scale", "dynamic:1024"],
                                   ["--implmode", "high_precision"]])
def test_other_precisions_are_near(tmp_path, flags):
    plain = Run(tmp_path / "plain", *DLRM, *NPU, steps=10)
    other = Run(tmp_path / "other", *DLRM, *NPU, *flags, steps=10)
    assert other.digest != plain.digest
    assert other.losses == pytest.approx(plain.losses, abs=3e-3)


def test_evaluation_and_prediction_on_the_device(tmp_path):
    train = Run(tmp_path / "run", *DLRM, steps=40)
    saved = ["--checkpoint-dir", tmp_path / "run/ck"]
    found = {}
    for name, device in (("cpu", []), ("npu", NPU)):
        path = tmp_path / name
        out = trainer.train(*DLRM, *saved, *device, "--predict", path).stdout
        found[name] = [float(word) for word in path.read_text().split()]
        assert trainer.auc_of(out) == pytest.approx(train.done["auc"],
                                                    abs=1e-6)
    assert found["npu"] == pytest.approx(found["cpu"], abs=1e-6)


@MODELS
def test_predictions_have_the_host_s_bits_if_deterministic(tmp_path, flags,
                                                           steps):
    saved = ["--checkpoint-dir", tmp_path / "run/ck", "--deterministic"]
    train = Run(tmp_path / "run", *flags, "--deterministic", steps=steps)
    device = Run(tmp_path / "npu-run", *flags, *EXACT, steps=steps)
    for what in ("auc", "log_loss"):
        assert device.done[what] == train.done[what]
    for name, device in (("cpu", []), ("npu", NPU)):
        trainer.train(*flags, *saved, *device, "--predict", tmp_path / name)
    assert (tmp_path / "npu").read_text() == (tmp_path / "cpu").read_text()


def test_a_malformed_row_stops_at_its_own_step(tmp_path):
    path = tmp_path / "rows"
    feasign_file(path, 300, lambda row: 3)
    lines = path.read_text().splitlines()
    lines[210] = "0:1 no-key:1"
    path.write_text("\n".join(lines) + "\n")
    done = trainer.train("--data", f"feasign:{path}", "--batch-size", 10, *NPU,
                         "--npu-loop-size", 30, "--on-bad-row", "stop",
                         code=65)
    assert f"{path}:211: " in done.stderr


def test_a_device_is_one_process_s(tmp_path):
    hold = subprocess.Popen(
        [str(word) for word in (
            trainer.TRAIN, *DLRM, *NPU, "--device-id", 3, "--epochs", 1000000)],
        env=programs.environment(), stdout=subprocess.PIPE, text=True)
    try:
        for line in hold.stdout:
            if line.startswith("step 1 "):
                break
        done = trainer.train(*DLRM, *NPU, "--device-id", 3, code=69)
        assert str(hold.pid) in done.stderr
        trainer.train(*DLRM, *NPU, "--device-id", 4, "--steps", 1)
    finally:
        hold.kill()
        hold.communicate()
    trainer.train(*DLRM, *NPU, "--device-id", 3, "--steps", 1)


def test_metrics_tell_of_the_device(tmp_path):
    port = tmp_path / "port"
    process = subprocess.Popen(
        [str(word) for word in (
            trainer.TRAIN, *DLRM, *NPU, "--epochs", 1000000, "--device-memory",
            "64MiB", "--admin", "127.0.0.1:0", "--admin-port-file", port)],
        env=programs.environment(), stdout=subprocess.DEVNULL)
    try:
        programs.until(lambda: port.exists() and port.read_text().strip())
        address = f"http://127.0.0.1:{port.read_text().strip()}/metrics"

        def figure(name):
            with urllib.request.urlopen(address, timeout=10) as answer:
                found = re.search(rf"^{name} (\S+)$", answer.read().decode(),
                                  re.MULTILINE)
            return found and float(found[1])

        # of the first look, too
        assert 0 <= figure("recps_worker_npu_util_ratio") <= 1
        assert 0 < programs.until(
            lambda: figure("recps_worker_npu_util_ratio")) <= 1
        assert 0 < figure("recps_worker_npu_mem_usage_ratio") < 1
    finally:
        process.kill()
        process.wait()


def test_a_step_that_does_not_fit_ends_the_run_with_the_pool_s_numbers():
    done = trainer.train(*DLRM, *NPU, "--batch-size", 2000, "--device-memory",
                         "2MiB", code=78)
    assert done.stderr.count("fragmentation") == 1
    assert "--micro-batch" in done.stderr
    assert "allocated" in done.stderr and "reserved" in done.stderr


def test_a_queue_that_does_not_fit_names_the_loop_size():
    done = trainer.train(*DLRM, *NPU, "--npu-loop-size", 1000, "--epochs", 20,
                         "--device-memory", "4MiB", code=78)
    assert "create a queue" in done.stderr
    assert "a smaller --npu-loop-size" in done.stderr
    assert done.stderr.count("fragmentation") == 1


def test_the_evaluation_has_the_memory_of_the_steps():
    """5 MiB hold a step of 128 rows, or an evaluation's 256."""
    out = trainer.train(
        "--data", "synthetic:rows=4000", "--train-rows", 2560, "--batch-size",
        128, *NPU, "--top-mlp", "256,256,1", "--npu-loop-size", 16, "--steps",
        20, "--device-memory", "5MiB").stdout
    assert "auc " in out and "(loop 16)" in out


def test_a_restart_does_not_make_a_device_larger():
    done = trainer.launch(
        *DLRM, *NPU, "--batch-size", 2000, "--device-memory", "2MiB", ps=0,
        options=["--restart", "on-failure"], code=78)
    assert "starting it again" not in done.stderr


@pytest.mark.parametrize("device", [[], NPU], ids=["cpu", "npu"])
def test_a_profile_ends_with_the_run(tmp_path, device):
    out = trainer.train(*DLRM, *device, "--steps", 10, "--profile",
                        tmp_path / "p", "--profile-steps", "5:20").stdout
    assert "profile of 6 steps: " in out
    done = trainer.train(*DLRM, *device, "--steps", 10, "--profile",
                         tmp_path / "q", "--profile-steps", "11:20", code=64)
    assert "the run ends with step 10" in done.stderr


@pytest.mark.parametrize("flags, words", [
    (["--micro-batch", 2], "--micro-batch goes with --device npu only"),
    ([*NPU, "--micro-batch", 26], "a batch of 25 rows"),
    ([*NPU, "--recompute", "--offload"], "give one of them"),
    ([*NPU, "--device-id", "first"], "--device-id=first"),
    ([*NPU, "--device-id", "99"], "99"),
])
def test_what_does_not_go_together_is_refused(flags, words):
    assert words in trainer.train(*DLRM, *flags, code=64).stderr


def test_an_environment_that_is_no_loop_size_is_refused():
    done = trainer.train(*DLRM, *NPU, env={"NPU_LOOP_SIZE": "many"}, code=64)
    assert "NPU_LOOP_SIZE" in done.stderr


def test_a_job_on_devices_comes_back(tmp_path):
    """A killed server takes the job back inside a loop."""
    flags = ["--data", DLRM[1], "--batch-size", 25, "--recover",
             "--deterministic", "--save-steps", 10, *NPU, "--npu-loop-size",
             20]
    (tmp_path / "lost").mkdir()
    with recovery.Job(tmp_path / "lost", *flags, data=DLRM[1], workers=1,
                      options=["--restart", "on-failure"]) as job:
        job.wait_for_step(25)
        job.signal("ps:1")
        job.wait_for("rolled back from step")
        lost = job.result()
    (tmp_path / "straight").mkdir()
    with recovery.Job(tmp_path / "straight", *flags, data=DLRM[1],
                      workers=1) as job:
        assert job.result() == lost
