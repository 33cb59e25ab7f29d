# SPDX-License-Identifier: Apache-2.0
"""One Python script for every role of a job: recps.serve() and its helpers,
and client/python/examples/one_script.py."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import warnings

import pytest

import package
import programs
import test_check_config

recps = package.load()
import numpy  # noqa: E402

EXAMPLE = package.SOURCE / "examples/one_script.py"
HOSTS = ["--ps_hosts=h1:2222,h2:2222", "--worker-hosts=h1:2223,h2:2223"]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("TF_CONFIG", "RECPS_RECPSD")):
            monkeypatch.delenv(name)


# --- who is this process -----------------------------------------------------


def test_the_guides_flags_are_a_cluster():
    cluster = recps.cluster_from_flags(
        [*HOSTS, "--chief_hosts=h3:1", "--evaluator_hosts", "h3:2",
         "--job_name=worker", "--task_index=1", "--batch=7", "more"])
    assert cluster == {
        "cluster": {"ps": ["h1:2222", "h2:2222"],
                    "worker": ["h1:2223", "h2:2223"], "chief": ["h3:1"],
                    "evaluator": ["h3:2"]},
        "task": {"type": "worker", "index": 1}}
    mine = recps.role(cluster)
    assert mine == recps.Role("worker", 1, False, 2, 3,
                              ("h1:2222", "h2:2222"))
    assert str(mine) == "worker:1" and mine.trains


@pytest.mark.parametrize("job, index, is_chief, rank, trains", [
    ("worker", 0, True, 0, True), ("worker", 1, False, 1, True),
    ("ps", 1, False, 0, False), ("evaluator", 0, False, 0, False)])
def test_without_a_chief_worker_0_is_it(job, index, is_chief, rank, trains):
    mine = recps.role(recps.cluster_from_flags(
        [*HOSTS, f"--job-name={job}", f"--task-index={index}"]))
    assert (mine.name, mine.index) == (job, index)
    assert (mine.is_chief, mine.rank, mine.trains) == (is_chief, rank, trains)
    assert mine.replicas == 2


def test_flags_replace_what_tf_config_says(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]},
        "task": {"type": "worker", "index": 0}, "recps": {"job_id": "x"}}))
    assert recps.role().servers == ("a:1",)
    cluster = recps.cluster_from_flags(["--task_index=1"])
    assert cluster == {"cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]},
                       "task": {"type": "worker", "index": 1},
                       "recps": {"job_id": "x"}}
    cluster = recps.cluster_from_flags([*HOSTS])
    assert cluster["cluster"]["ps"] == ["h1:2222", "h2:2222"]
    assert recps.role("embedded").name == "local"


def test_what_the_reader_notes_is_shown(monkeypatch):
    """As recpsd logs it: what is replaced or renamed warns, what was ignored
    is there for who looks."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": {"ps": ["a:1"], "worker": ["b:1"]},
        "task": {"type": "worker", "index": 0}}))
    with pytest.warns(recps.ClusterWarning, match="is replaced by") as said:
        cluster = recps.cluster_from_flags(
            [*HOSTS, "--job_name=worker", "--task_index=0"])
    assert [each.filename for each in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recps.role(cluster).notes == ()
        mine = recps.role({"sparseCluster": {"ps": ["a:1"]}, "cluster": {
            "ps": ["a:1"], "worker": ["b:1"]},
            "task": {"type": "worker", "index": 0}})
    assert mine.notes == ("ignored: sparseCluster",)
    with pytest.warns(recps.ClusterWarning, match="sparseCluster read as"):
        mine = recps.role({"sparseCluster": {"ps": ["a:1"], "worker": {
            "0": "b:1"}}, "task": {"type": "worker", "index": 0}})
    assert mine.notes == ("sparseCluster read as cluster",)


def test_workers_of_whom_the_number_is_unknown_stay_so(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": {"ps": ["a:1"], "worker": {"1": "b:2"}},
        "task": {"type": "worker", "index": 1}}))
    cluster = recps.cluster_from_flags([])
    assert cluster["cluster"]["worker"] == {"1": "b:2"}
    assert recps.role(cluster).replicas == 0


def test_the_dict_says_what_each_tf_config_of_the_wild_does(monkeypatch):
    if not test_check_config.SAMPLES:
        pytest.skip("the samples of TF_CONFIG are not here")
    accepted = 0
    for path in sorted(test_check_config.samples_folder().glob("*.json")):
        monkeypatch.setenv("TF_CONFIG", path.read_text("utf8"))
        try:
            mine = recps.role()
        except recps.InvalidError:
            with pytest.raises(recps.InvalidError):
                recps.cluster_from_flags([])
            continue
        assert recps.role(recps.cluster_from_flags([])) == mine, path
        accepted += 1
    assert accepted > 10


def test_without_any_cluster_a_script_is_alone():
    assert recps.cluster_from_flags(["--batch=7"]) == {}
    assert recps.role() == recps.role({}) == recps.serve({})
    assert recps.role() == recps.Role("local", 0, True, 0, 1, ())


def test_a_scripts_own_parser_takes_the_flags():
    parser = argparse.ArgumentParser(parents=[recps.cluster_flags()])
    parser.add_argument("--batch", type=int)
    given = parser.parse_args([*HOSTS, "--batch=7", "--job_name=ps",
                               "--task_index=0"])
    assert str(recps.role(recps.cluster_from_flags(given))) == "ps:0"
    assert "--evaluator_hosts" in parser.format_help()


@pytest.mark.parametrize("flags, words", [
    (HOSTS, "task.type is missing|no task|--job-name"),
    ([*HOSTS, "--job_name=ps", "--task_index=2"], "indices 0,1"),
    ([*HOSTS, "--job_name=boss", "--task_index=0"], "boss"),
    (["--ps_hosts=h:1, h:2", "--job_name=ps", "--task_index=0"], "space"),
    ([*HOSTS, "--evaluator_hosts=", "--job_name=ps", "--task_index=0"],
     "empty address")])
def test_what_tf_config_refuses_flags_do_not_get_through(flags, words):
    with pytest.raises(recps.InvalidError, match=words):
        recps.cluster_from_flags(flags)


# --- the server --------------------------------------------------------------


def a_server():
    return {"cluster": {"ps": ["localhost:1"]},
            "task": {"type": "ps", "index": 0}}


def test_a_server_without_recpsd_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(recps.NotFoundError,
                       match="ps:0.*install the wheel.*"
                             "RECPS_RECPSD"):
        recps.serve(a_server())
    monkeypatch.setenv("RECPS_RECPSD", str(tmp_path / "gone"))
    with pytest.raises(recps.NotFoundError, match="RECPS_RECPSD: .*gone"):
        recps.serve(a_server())
    (tmp_path / "recpsd").write_text("no program")
    (tmp_path / "recpsd").chmod(0o755)
    monkeypatch.setenv("RECPS_RECPSD", str(tmp_path / "recpsd"))
    with pytest.raises(recps.FileError, match="cannot be started"):
        recps.serve(a_server())


def test_a_server_is_no_client():
    with pytest.raises(recps.InvalidError, match=r"recps\.serve\(\)"):
        recps.connect(a_server())


class Job:
    """Processes that run one script, each with its role's flags."""

    def __init__(self, folder, **hosts):
        self.folder = folder
        free = iter(package.free_addresses(sum(hosts.values())))
        self.hosts = {role: [next(free) for _ in range(count)]
                      for role, count in hosts.items()}
        self.running = {}

    def start(self, role, index, *command, **env):
        flags = [f"--{name}_hosts={','.join(hosts)}"
                 for name, hosts in self.hosts.items()]
        with open(self.folder / f"{role}-{index}.log", "wb") as log:
            self.running[role, index] = subprocess.Popen(
                [sys.executable, *map(str, command), *flags,
                 f"--job_name={role}", f"--task_index={index}"],
                stdout=log, stderr=log, env=package.environment(
                    RECPS_RECPSD=str(programs.RECPSD), **env))

    def log(self, role, index):
        return (self.folder / f"{role}-{index}.log").read_text("utf8")

    def ends(self, role, index, code=0, timeout=60):
        got = self.running[role, index].wait(timeout)
        assert got == code, f"{role}:{index} exits {got}:\n" + self.log(
            role, index)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.kill()
            process.wait()


def expected_loss(steps, batch, rate):
    """Of the example's model after its steps: NumPy alone, in float64."""
    words_all, each = 300, 5
    truth = numpy.random.default_rng(0).normal(size=words_all)

    def samples(step, size):
        draw = numpy.random.default_rng([1, step])
        words = draw.integers(0, words_all, (size, each))
        chance = 1 / (1 + numpy.exp(-truth[words].sum(1)))
        return words, draw.random(size) < chance

    weights = numpy.zeros(words_all)
    for step in range(1, steps + 1):
        words, clicks = samples(step, batch)
        errors = 1 / (1 + numpy.exp(-weights[words].sum(1))) - clicks
        numpy.subtract.at(weights, words, rate * errors[:, None] / batch)
    words, clicks = samples(0, 4 * batch)
    logits = weights[words].sum(1)
    return float(numpy.mean(numpy.logaddexp(0, logits) - clicks * logits))


def losses_of(said):
    return {int(step): float(loss) for step, loss in re.findall(
        r"step (\d+): log loss ([\d.]+)", said)}


def test_one_script_is_every_process_of_a_job(tmp_path):
    saved = f"--checkpoint_dir={tmp_path / 'ck'}"
    with Job(tmp_path, ps=2, chief=1, worker=1, evaluator=1) as job:
        for role, index in (("worker", 0), ("ps", 1), ("evaluator", 0),
                            ("ps", 0)):
            job.start(role, index, EXAMPLE, saved)
        for index in range(2):
            programs.until(lambda i=index: "listening" in job.log("ps", i))
        # servers serve, and who trains waits, until there is a chief
        assert all(p.poll() is None for p in job.running.values())
        assert not (tmp_path / "ck").exists() or not list(
            (tmp_path / "ck").glob("ckpt-*"))
        job.start("chief", 0, EXAMPLE, saved)
        for role, index in job.running:
            job.ends(role, index)
        assert "chief 0: done" in job.log("chief", 0)
        assert "worker 1: done" in job.log("worker", 0)
        assert losses_of(job.log("evaluator", 0))[60] == pytest.approx(
            expected_loss(60, 512, 20.0), abs=2e-5)


def test_one_script_alone_learns_the_same(tmp_path):
    said = subprocess.run(
        [sys.executable, EXAMPLE, f"--checkpoint_dir={tmp_path}"],
        env=package.environment(), timeout=60, check=True,
        capture_output=True, text=True).stdout
    assert losses_of(said) == {60: pytest.approx(
        expected_loss(60, 512, 20.0), abs=2e-5)}


@pytest.mark.long
def test_recps_launch_starts_the_same_script(tmp_path):
    said = subprocess.run(
        [programs.RECPS, "launch", "--ps", "2", "--workers", "2",
         "--evaluator", "--checkpoint-dir", tmp_path, "--", sys.executable,
         EXAMPLE, f"--checkpoint_dir={tmp_path}"],
        env=package.environment(PATH=os.environ["PATH"]), timeout=60,
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    assert said.returncode == 0, said.stdout
    assert 60 in losses_of(said.stdout)


SERVER = """
import recps, signal, sys, threading
cluster = recps.cluster_from_flags()
print("python", flush=True)
sys.stdout.write("buffered")
recps.serve(cluster, **eval(sys.argv[1]))
raise SystemExit("a server came back")
"""


def test_a_server_ends_when_the_chief_says_so_and_not_before(tmp_path):
    with Job(tmp_path, ps=1, worker=2) as job:
        job.start("ps", 0, "-c", SERVER, {"job_id": "x", "body_checksum":
                                          None, "job_seed": 7})
        programs.until(lambda: "listening" in job.log("ps", 0))
        assert "python" in job.log("ps", 0)  # what was said before is kept
        assert "buffered" in job.log("ps", 0)
        cluster = {"ps": job.hosts["ps"], "worker": job.hosts["worker"]}
        for index in (1, 0):  # the last one is the chief
            with recps.connect(
                    {"cluster": cluster,
                     "task": {"type": "worker", "index": index}},
                    job_id="x", job_seed=7, connect_timeout=10) as client:
                client.ping()
                assert job.running["ps", 0].poll() is None
                if client.is_chief:
                    client.shutdown_servers()
        job.ends("ps", 0)


def test_a_server_hears_signals_as_recpsd_does(tmp_path):
    with Job(tmp_path, ps=1) as job:
        job.start("ps", 0, "-c", SERVER, {})
        programs.until(lambda: "listening" in job.log("ps", 0))
        job.running["ps", 0].send_signal(signal.SIGTERM)
        job.ends("ps", 0, 143)


def test_an_option_that_recpsd_does_not_know_is_its_to_refuse(tmp_path):
    with Job(tmp_path, ps=1) as job:
        job.start("ps", 0, "-c", SERVER, {"no_such": 1})
        job.ends("ps", 0, 64)
        assert "--no-such" in job.log("ps", 0)


def test_recpsd_is_found_in_path(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "recpsd").symlink_to(programs.RECPSD)
    with Job(tmp_path, ps=1) as job:
        job.start("ps", 0, "-c",
                  "import os; del os.environ['RECPS_RECPSD']\n" + SERVER, {},
                  PATH=f"{folder}:{os.environ['PATH']}")
        programs.until(lambda: "listening" in job.log("ps", 0))
        assert "RECPS_RECPSD" not in job.log("ps", 0)


# --- an evaluator ------------------------------------------------------------


def test_only_an_evaluator_awaits_the_end(recpsd):
    with recps.connect("embedded") as client:
        with pytest.raises(recps.InvalidError, match="evaluator"):
            client.await_end()
    where = {"cluster": package.cluster_of(recpsd),
             "task": {"type": "evaluator", "index": 0}}
    with recps.connect(where, connect_timeout=10) as client:
        assert not client.await_end(timeout=0)
        assert not client.await_end(timeout=0.06)
        with recps.connect(package.cluster_of(recpsd, chief=True)) as chief:
            chief.shutdown_servers()
        assert client.await_end(timeout=20)


def test_the_example_is_typed(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", EXAMPLE,
         "--config-file", os.devnull, "--cache-dir", programs.BUILD / "mypy"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(package.SOURCE)},
        capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
