# SPDX-License-Identifier: Apache-2.0
"""recps launch: places, output, signals, exit codes, nothing left behind."""
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")

TRAIN = programs.BUILD / "client/worker/recps-train"

# Says who it is, and as the chief ends the servers as recps-train does.
MEMBER = r"""
import json, os, sys, time
sys.path.insert(0, %r)
import wire
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
print("config", json.dumps(config), flush=True)
chief = task["type"] == "chief" or (
    "chief" not in cluster and task["type"] == "worker" and task["index"] == 0)
ports = [int(a.rsplit(":", 1)[1]) for a in cluster["ps"]]
def connect(i):
    for _ in range(500):
        try:
            return wire.Connection(ports[i])
        except OSError:
            time.sleep(0.02)
    raise SystemExit("no server")
links = [connect(i) for i in range(len(ports))]
for i, link in enumerate(links):
    reply = link.hello(ps_count=len(ports), ps_index=i,
                       job_id=config["recps"].get("job_id", "recps"),
                       job_seed=config["recps"].get("job_seed", "0"))
    assert reply.status == 0, reply.text
if chief:
    time.sleep(0.3)
    for link in links:
        link.call(wire.SHUTDOWN, [wire.text({"action": "now"})])
""" % os.path.dirname(wire.__file__)


def launch(*arguments, timeout=60, env=None):
    return subprocess.run(
        [str(programs.RECPS), "launch", *map(str, arguments)],
        env=programs.environment(RECPS_ADMIN=None, **(env or {})),
        capture_output=True,
        text=True, timeout=timeout, check=False)


def start(*arguments):
    # a shell that runs the tests in the background has them ignore SIGINT
    return subprocess.Popen(
        [str(programs.RECPS), "launch", *map(str, arguments)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env=programs.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def member(tmp_path):
    script = tmp_path / "member.py"
    script.write_text(MEMBER)
    return [sys.executable, str(script)]


def lines_of(output, label):
    return [line.split(" | ", 1)[1] for line in output.splitlines()
            if re.match(rf"{re.escape(label)} +\| ", line)]


def processes_with(word):
    """Process ids whose environment or command line holds `word`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for part in ("environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{part}", "rb") as file:
                    if word.encode() in file.read() and int(pid) != os.getpid():
                        found.append(int(pid))
            except OSError:
                pass
    return found


def test_every_role_gets_its_place(member, tmp_path):
    run = launch("--ps", 2, "--workers", 2, "--chief", "--evaluator",
                 "--checkpoint-dir", tmp_path / "c", "--job-seed", 2**64 - 1,
                 "--job-id", "j", "--", *member)
    assert run.returncode == 0, run.stdout + run.stderr
    configs = {}
    for label in ("chief:0", "worker:0", "worker:1", "evaluator:0"):
        text = lines_of(run.stdout, label)[0]
        configs[label] = json.loads(text.removeprefix("config "))
    clusters = [c["cluster"] for c in configs.values()]
    assert all(c == clusters[0] for c in clusters)
    assert len(clusters[0]["ps"]) == 2 and len(clusters[0]["worker"]) == 2
    everyone = sum(clusters[0].values(), [])
    assert len(set(everyone)) == len(everyone)
    for label, config in configs.items():
        role, index = label.split(":")
        assert config["task"] == {"type": role, "index": int(index)}
        assert config["recps"]["checkpoint_dir"] == str(tmp_path / "c")
        assert config["recps"]["job_seed"] == str(2**64 - 1)
        assert config["recps"]["job_id"] == "j"
    for index in range(2):
        log = "\n".join(lines_of(run.stderr, f"ps:{index}"))
        assert "listening" in log and f"index={index}" in log
        assert f"checkpoint_dir={tmp_path}/c" in log
        assert "exit code 0" in log


def test_a_flag_wins_over_a_variable_for_every_process(member, tmp_path):
    run = launch("--ps", 1, "--workers", 1, "--job-id", "flag", "--", *member,
                 env={"RECPS_JOB_ID": "variable",
                      "RECPS_STEP_TIMEOUT": "7"})
    assert run.returncode == 0, run.stdout + run.stderr
    config = json.loads(
        lines_of(run.stdout, "worker:0")[0].removeprefix("config "))
    assert config["recps"]["job_id"] == "flag"
    assert config["recps"]["step_timeout"] == 7
    assert "job_id=flag" in run.stderr


def test_a_command_may_bind_its_own_port():
    script = ("import json, os, socket\n"
              "cluster = json.loads(os.environ['TF_CONFIG'])['cluster']\n"
              "host, port = cluster['worker'][0].split(':')\n"
              "s = socket.socket(); s.bind((host, int(port))); s.listen()\n"
              "print('bound'); raise SystemExit(9)")
    run = launch("--ps", 1, "--workers", 1, "--", sys.executable, "-c", script)
    assert lines_of(run.stdout, "worker:0") == ["bound"], run.stderr
    assert run.returncode == 9


def test_streams_keep_their_names():
    run = launch("--ps", 0, "--workers", 1, "--", "sh", "-c",
                 "echo out; echo err >&2; printf 'no end'")
    assert run.returncode == 0
    assert lines_of(run.stdout, "worker:0") == ["out", "no end"]
    assert lines_of(run.stderr, "worker:0") == ["err"]


def test_lines_of_many_processes_stay_whole():
    script = "for i in $(seq 2000); do echo line $i end; done"
    run = launch("--ps", 1, "--workers", 3, "--", "sh", "-c", script + "; exit 3")
    for index in range(3):
        lines = lines_of(run.stdout, f"worker:{index}")
        assert all(re.fullmatch(r"line \d+ end", line) for line in lines)
    everything = run.stdout.splitlines()
    assert all(re.fullmatch(r"worker:\d \| line \d+ end", line)
               for line in everything)


def test_embedded_mode_has_no_cluster():
    run = launch("--ps", 0, "--workers", 1, "--checkpoint-dir", "/x", "--",
                 "sh", "-c", 'echo "$TF_CONFIG"')
    assert run.returncode == 0
    given = json.loads(lines_of(run.stdout, "worker:0")[0])
    given["recps"].pop("unix_dir")  # from the variable, see programs.py
    assert given == {"recps": {"checkpoint_dir": "/x"}}


def test_servers_have_an_admin_port_where_it_is_asked_for():
    without = launch("--ps", 2, "--", "true")
    assert without.stderr.count("admin=off") == 2
    given = launch("--ps", 2, "--admin", "127.0.0.1:0", "--", "true")
    ports = re.findall(r"admin=127.0.0.1:(\d+)", given.stderr)
    assert len(set(ports)) == 2, given.stderr


def test_programs_beside_it_are_found():
    run = launch("--ps", 0, "--workers", 1, "--", "recpsd", "--version",
                 env={"PATH": "/usr/bin:/bin"})
    assert run.returncode == 0, run.stderr
    assert lines_of(run.stdout, "worker:0")[0].startswith("recpsd ")


# ---- ends ----

def test_the_first_failure_is_the_exit_code():
    run = launch("--ps", 2, "--workers", 3, "--", "sh", "-c",
                 'case $TF_CONFIG in *\'"type":"worker","index":1\'*) exit 7;; '
                 "esac; sleep 60")
    assert run.returncode == 7
    assert "worker:1 ended with code 7" in run.stderr


def test_a_death_by_signal_is_128_and_the_signal():
    run = launch("--ps", 1, "--workers", 1, "--", "sh", "-c", "kill -9 $$")
    assert run.returncode == 137
    assert "worker:0 was ended by signal 9" in run.stderr


SECOND_OF_TWO = 'case $TF_CONFIG in *\'"type":"worker","index":1\'*) '


@pytest.mark.parametrize("chief, rank", [([], 1), (["--chief"], 2)])
def test_with_leave_a_lost_worker_stops_nobody(chief, rank):
    train = f"{TRAIN} --data synthetic:rows=600,keys=300 --batch-size 20"
    run = launch("--ps", 1, "--workers", 2, *chief, "--on-lost", "leave", "--",
                 "sh", "-c", SECOND_OF_TWO + f"{train} --steps 2; kill -9 $$;; "
                 f"esac; {train}")
    assert run.returncode == 0, run.stderr
    assert (f"worker:1 was ended by signal 9 (Killed); the others go on "
            f"without rank {rank}" in run.stderr)


def test_with_leave_no_job_begins_without_a_worker():
    run = launch("--ps", 1, "--workers", 2, "--on-lost", "leave", "--", "sh",
                 "-c", SECOND_OF_TWO + "exit 9;; esac; "
                 f"{TRAIN} --data synthetic:rows=600,keys=300 --batch-size 20")
    assert run.returncode == 9
    assert ("worker:1 ended with code 9; the job does not begin without rank "
            "1; stopping all" in run.stderr)


def test_with_leave_a_lost_chief_stops_all():
    run = launch("--ps", 1, "--workers", 2, "--on-lost", "leave", "--", "sh",
                 "-c", SECOND_OF_TWO + "sleep 60;; esac; exit 9")
    assert run.returncode == 9
    assert "worker:0 ended with code 9; stopping all" in run.stderr


@pytest.mark.long
def test_with_leave_who_hangs_does_not_keep_the_launcher():
    run = launch("--ps", 1, "--workers", 2, "--on-lost", "leave", "--", "sh",
                 "-c", SECOND_OF_TWO + "exec sleep 60;; esac")
    assert run.returncode == 0
    assert "stopping worker:1, which has not" in run.stderr


def test_a_command_that_is_not_there_is_127():
    run = launch("--ps", 1, "--workers", 1, "--", "no-such-command-here")
    assert run.returncode == 127
    assert "no-such-command-here" in run.stderr


def test_a_command_that_cannot_be_executed_is_126(tmp_path):
    (tmp_path / "data").write_text("no program")
    run = launch("--ps", 0, "--workers", 1, "--", tmp_path / "data")
    assert run.returncode == 126
    assert "Permission denied" in run.stderr


def test_a_failed_evaluator_stops_nobody(member, tmp_path):
    command = ('case $TF_CONFIG in *evaluator\\",\\"index*) exit 5;; esac; exec '
               + " ".join(member))
    run = launch("--ps", 1, "--workers", 1, "--evaluator", "--checkpoint-dir",
                 tmp_path / "c", "--", "sh", "-c",
                 command.replace('\\"', '\'"\''))
    assert run.returncode == 5, run.stdout + run.stderr
    assert "the others go on" in run.stderr
    assert "exit code 0" in "\n".join(lines_of(run.stderr, "ps:0"))


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143),
                                          (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_and_everything_stops(number, code):
    mark = f"recps-launch-test-{os.getpid()}-{code}"
    process = start("--ps", 2, "--workers", 2, "--", "sh", "-c",
                    f": {mark}; echo ready; sleep 100; :")
    seen = 0
    for line in process.stdout:
        seen += "ready" in line or "listening" in line
        if seen == 4:
            break
    process.send_signal(number)
    output = process.communicate(timeout=20)[0]
    assert process.returncode == code, output
    assert processes_with(mark) == []


def read_until(process, word, count=1):
    seen = ""
    for line in process.stdout:
        seen += line
        if seen.count(word) >= count:
            return seen
    raise AssertionError(f"no {word!r} in:\n{seen}")


def assert_gone(mark, seconds=10):
    end = time.monotonic() + seconds
    while processes_with(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_with(mark) == []


@pytest.mark.skipif(not programs.RECPS_TRAIN.is_file(),
                    reason=f"{programs.RECPS_TRAIN} is not built")
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143),
                                          (signal.SIGINT, 130)])
@pytest.mark.parametrize("chief", [[], ["--chief"]])
def test_a_signal_lets_the_chief_save(tmp_path, number, code, chief):
    folder = tmp_path / "ckpt"
    process = start("--ps", 2, "--workers", 2, *chief,
                    "--checkpoint-dir", folder, "--", "recps-train", "--data",
                    "synthetic:rows=20000,keys=200", "--epochs", 100000,
                    "--log-every", 5)
    output = read_until(process, "| step ", 2)
    assert len(processes_with(str(folder))) >= 5
    process.send_signal(number)
    output += process.communicate(timeout=60)[0]
    assert process.returncode == code, output
    assert "killing" not in output.split("killing all", 1)[1]
    assert output.count("exit code 0") == 2, output  # SHUTDOWN, not TERM
    stopped = verified(folder)
    assert stopped["step"] > 0
    assert processes_with(str(folder)) == []
    # every replica's part of every step is in it
    straight = launch("--ps", 2, "--workers", 2, *chief, "--checkpoint-dir",
                      tmp_path / "straight", "--", "recps-train", "--data",
                      "synthetic:rows=20000,keys=200", "--epochs", 100000,
                      "--steps", stopped["step"], "--log-every", 100000)
    assert straight.returncode == 0, straight.stderr
    assert verified(tmp_path / "straight")["digest"] == stopped["digest"]


def verified(folder):
    run = subprocess.run(
        [str(programs.RECPS), "verify", "--json", str(folder)],
        env=programs.environment(), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


STUBBORN = ("import signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('ready', flush=True)\ntime.sleep(100)")


def test_members_that_ignore_term_are_killed_after_the_drain_timeout():
    mark = f"recps-drain-{os.getpid()}"
    process = start("--ps", 1, "--workers", 2, "--job-id", mark,
                    "--drain-timeout", 1, "--", sys.executable, "-c", STUBBORN)
    output = read_until(process, "ready", 2)
    process.terminate()
    output += process.communicate(timeout=30)[0]
    assert process.returncode == 143, output
    assert "worker:0 did not stop" in output
    # only then the server was told
    assert output.index("did not stop") < output.index("SIGTERM")
    assert "exit code 143" in output
    assert processes_with(mark) == []


def test_a_second_term_kills_everything():
    mark = f"recps-twice-{os.getpid()}"
    process = start("--ps", 2, "--workers", 2, "--job-id", mark, "--",
                    sys.executable, "-c", STUBBORN)
    read_until(process, "ready", 2)
    process.terminate()
    read_until(process, "the replicas have 25.0 s")
    time.sleep(0.3)  # a repetition at once is the same signal
    assert process.poll() is None and len(processes_with(mark)) >= 5
    process.terminate()
    output = process.communicate(timeout=10)[0]
    assert process.returncode == 143, output
    assert "again: killing all" in output
    assert processes_with(mark) == []


def test_a_launcher_killed_with_9_leaves_nothing():
    mark = f"recps-launch-orphan-{os.getpid()}"
    process = start("--ps", 2, "--workers", 2, "--job-id", mark, "--",
                    sys.executable, "-c", STUBBORN)
    read_until(process, "ready", 2)
    assert len(processes_with(mark)) >= 5
    process.kill()
    process.wait()
    assert_gone(mark)


def test_a_server_that_dies_is_said_and_ends_the_job():
    process = start("--ps", 2, "--workers", 1, "--", sys.executable, "-c",
                    "import time; time.sleep(1.5); raise SystemExit(1)")
    output, pids = "", []
    for line in process.stdout:
        output += line
        if output.count("listening") == 2:
            break
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                name = file.read().strip()
        except (OSError, NotADirectoryError):
            continue
        if name == "recpsd" and int(fields[1].split()[1]) == process.pid:
            pids.append(int(pid))
    assert len(pids) == 2
    os.kill(min(pids), signal.SIGKILL)
    output += process.communicate(timeout=30)[0]
    assert process.returncode == 137, output
    assert "unexpectedly" in output


def test_servers_that_get_no_shutdown_are_stopped():
    run = launch("--ps", 1, "--workers", 1, "--", "true")
    assert run.returncode == 0, run.stderr
    assert "no SHUTDOWN" in run.stderr


# ---- a terminal ----

def on_terminal(*arguments, timeout=30):
    """Run with a terminal as stdout; returns (exit code, what it showed)."""
    parent, child = pty.openpty()
    process = subprocess.Popen([str(programs.RECPS), "launch", *arguments],
                               env=programs.environment(TERM="xterm"),
                               stdout=child, stderr=subprocess.DEVNULL)
    os.close(child)
    shown = b""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(parent)
    return process.wait(10), shown.decode()


def test_a_progress_line_reaches_the_terminal_before_it_ends():
    code, shown = on_terminal(
        "--ps", "0", "--workers", "1", "--", "sh", "-c",
        'printf "step 1\\rstep 2\\r"; echo progress=$RECPS_PROGRESS')
    assert code == 0
    assert "step 1" in shown and "step 2\r\x1b[K" in shown
    assert "progress=1" in shown


def test_without_a_terminal_nobody_is_asked_for_progress():
    run = launch("--ps", 0, "--workers", 1, "--", "sh", "-c",
                 "echo progress=$RECPS_PROGRESS")
    assert lines_of(run.stdout, "worker:0") == ["progress="]
    assert "\x1b" not in run.stdout


# ---- usage ----

@pytest.mark.parametrize("arguments, words", [
    (["--ps", "2"], "--"),
    (["--ps", "2", "--"], "--"),
    (["--ps", "two", "--", "true"], "two"),
    (["--ps", "-1", "--", "true"], "-1"),
    (["--ps", "100000", "--", "true"], "100000"),
    (["--workers", "0", "--", "true"], "--chief"),
    (["--ps", "0", "--workers", "2", "--", "true"], "--ps 0"),
    (["--evaluator", "--", "true"], "--checkpoint-dir"),
    (["--no-such", "--", "true"], "no-such"),
    *[([flag, "1", "--", "true"], f"unknown option {flag}; it is an option of")
      for flag in ("--tf-config", "--ps-hosts", "--worker-hosts",
                   "--chief-hosts", "--evaluator-hosts", "--job-name",
                   "--task-index", "--num-ps", "--num-workers", "--bind",
                   "--port-file", "--batch-size")],
    *[([flag, "--", "true"], f"unknown option {flag}; it is an option of")
      for flag in ("--allow-unknown-roles", "--check-config", "--json")],
    (["true"], "true"),
])
def test_bad_usage_is_64_and_said(arguments, words):
    run = launch(*arguments)
    assert run.returncode == 64, run.stderr
    assert words in run.stderr


def test_help_lists_what_launch_takes_and_nothing_else():
    run = launch("--help")
    assert run.returncode == 0
    flags = set(re.findall(r"^  (--[a-z-]+)", run.stdout, re.M))
    assert flags == {
        "--ps", "--workers", "--chief", "--evaluator", "--mpi", "--help",
        "--version",
        "--checkpoint-dir", "--job-id", "--job-seed", "--connect-timeout",
        "--step-timeout", "--step-bytes-max", "--token-file", "--tls-cert",
        "--tls-key", "--tls-ca", "--tls-clients", "--log-level", "--log-format",
        "--unix-dir", "--transport", "--shm-ring", "--warm-start-dirs",
        "--admin", "--live-timeout", "--auth", "--loops", "--connections-max",
        "--handshakes-max", "--buffers-max", "--memory-limit", "--disk-tier",
        "--disk-limit", "--save-buffer", "--numa",
        "--start-from", "--client-ttl", "--drain-delay", "--drain-timeout",
        "--on-lost", "--restart", "--max-restarts"}
