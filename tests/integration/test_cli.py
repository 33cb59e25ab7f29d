# SPDX-License-Identifier: Apache-2.0
"""recps tables, stats, ping, save, verify, digest, shutdown."""
import json
import re
import signal
import struct
import subprocess

import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPS.is_file(), reason=f"{programs.RECPS} is not built")


def recps(*arguments, env=None, timeout=60):
    return subprocess.run([str(programs.RECPS), *map(str, arguments)],
                          env=programs.environment(**(env or {})),
                          capture_output=True, text=True, timeout=timeout,
                          errors="replace", check=False)


class Cluster:
    """Two servers of one job."""

    def __init__(self, folder=None):
        ports = programs.free_ports(2)
        self.hosts = ",".join(f"127.0.0.1:{p}" for p in ports)
        self.servers = []
        for index in range(2):
            config = json.dumps({
                "cluster": {"ps": self.hosts.split(","),
                            "worker": ["127.0.0.1:1"]},
                "task": {"type": "ps", "index": index},
                "recps": {"checkpoint_dir": str(folder)} if folder else {}})
            self.servers.append(programs.Recpsd(
                bind=None, env={"TF_CONFIG": config}))

    def __enter__(self):
        for server in self.servers:
            server.start()
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.__exit__()

    def connect(self, index, **hello):
        return self.servers[index].connect(ps_count=2, ps_index=index, **hello)


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path / "checkpoints") as servers:
        yield servers


def fill(cluster, index, numbers):
    """Push keys that this server owns; returns how many there were."""
    taken = 0
    with cluster.connect(index) as connection:
        table = connection.table("emb", 4)
        for number in numbers:
            reply = connection.call(wire.PUSH, [
                wire.section(wire.KEYS, struct.pack("<Q", number),
                             table_id=table, count=1),
                wire.section(wire.ROWS, struct.pack("<4f", 1, 2, 3, 4),
                             table_id=table, dim=4, count=1,
                             learning_rate=0.1)])
            assert reply.status in (wire.OK, -6), reply.text
            taken += reply.status == wire.OK
    return taken


def test_tables_are_summed_over_the_servers(cluster):
    counts = [fill(cluster, i, range(100)) for i in range(2)]
    assert sum(counts) == 100 and min(counts) > 0
    run = recps("tables", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    head, line = run.stdout.splitlines()
    assert head.split() == ["table", "dim", "optimizer", "rows", "bytes",
                            "bytes/row", "pending", "cold", "full", "refused"]
    assert line.split()[:4] == ["emb", "4", "sgd", "100"]


def test_options_may_stand_anywhere(cluster):
    fill(cluster, 0, range(10))
    for arguments in (["tables", "--json", "--ps-hosts", cluster.hosts],
                      ["--ps-hosts", cluster.hosts, "tables", "--json"],
                      ["--json", "tables", "--ps_hosts=" + cluster.hosts]):
        run = recps(*arguments)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["tables"][0]["name"] == "emb"


def test_the_cluster_may_come_from_the_environment(cluster, tmp_path):
    config = json.dumps({"cluster": {"ps": cluster.hosts.split(",")}})
    run = recps("tables", "--json", env={"TF_CONFIG": config})
    assert run.returncode == 0, run.stderr
    (tmp_path / "config.json").write_text(config)
    run = recps("tables", "--json",
                env={"TF_CONFIG_FILE": str(tmp_path / "config.json")})
    assert run.returncode == 0, run.stderr


def test_stats_show_every_server(cluster):
    run = recps("stats", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    for index, address in enumerate(cluster.hosts.split(",")):
        assert lines[index + 1].split()[:5] == [
            str(index), address, "0", "0", "async"]
    run = recps("stats", "--json", "--ps-hosts", cluster.hosts)
    answer = json.loads(run.stdout)["ps"]
    assert [ps["ps_index"] for ps in answer] == [0, 1]


def test_ping_shows_a_round_trip_to_every_server(cluster):
    run = recps("ping", "--json", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    answers = json.loads(run.stdout)["ps"]
    assert [a["address"] for a in answers] == cluster.hosts.split(",")
    for answer in answers:
        assert 0 < answer["fastest_ms"] <= answer["mean_ms"] < 5000
        assert answer["answer"]["epoch"] == 0
    run = recps("ping", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0
    assert "fastest ms" in run.stdout


def test_save_without_a_chief_says_so(cluster):
    run = recps("save", "--ps-hosts", cluster.hosts)
    assert run.returncode == 70
    assert "chief" in run.stderr


def test_save_with_a_chief_is_a_wish(cluster):
    with cluster.connect(0, role="chief", rank=0, replicas=1) as chief:
        run = recps("save", "--no-wait", "--ps-hosts", cluster.hosts)
        assert run.returncode == 0, run.stderr
        reply = chief.call(wire.PING)
        assert reply.flags & wire.WISH
        assert reply.json["wishes"] == ["save"]


def test_shutdown_without_a_chief_needs_now(cluster):
    run = recps("shutdown", "--ps-hosts", cluster.hosts)
    assert run.returncode == 70
    assert "chief" in run.stderr
    run = recps("shutdown", "--now", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    assert [server.wait(10) for server in cluster.servers] == [0, 0]


def test_shutdown_now_is_refused_while_a_chief_is_connected(cluster):
    with cluster.connect(0, role="chief", rank=0, replicas=1):
        run = recps("shutdown", "--now", "--ps-hosts", cluster.hosts)
        assert run.returncode == 70
        assert "chief" in run.stderr
    assert all(s.process.poll() is None for s in cluster.servers)


def push_once(connection, keys):
    """All keys that this server owns in its first push; returns them."""
    table = connection.table("emb", 4)
    owned = [k for k in keys if connection.call(wire.LOOKUP, [
        wire.section(wire.KEYS, struct.pack("<Q", k), table_id=table,
                     count=1)]).status == wire.OK]
    values = [float(k % 7 + i) for k in owned for i in range(4)]
    reply = connection.call(wire.PUSH, [
        wire.section(wire.KEYS, struct.pack(f"<{len(owned)}Q", *owned),
                     table_id=table, count=len(owned)),
        wire.section(wire.ROWS, struct.pack(f"<{len(values)}f", *values),
                     table_id=table, dim=4, count=len(owned),
                     learning_rate=0.1)])
    assert reply.status == wire.OK, reply.text
    return owned


def test_the_digest_of_a_job_does_not_depend_on_who_has_the_rows(cluster):
    keys = range(2**64 - 200, 2**64)
    owned = []
    for index in range(2):
        with cluster.connect(index) as connection:
            owned += push_once(connection, keys)
    assert sorted(owned) == list(keys)
    run = recps("digest", "--json", "--ps-hosts", cluster.hosts)
    assert run.returncode == 0, run.stderr
    two = json.loads(run.stdout)
    with programs.Recpsd() as one:
        with one.connect() as connection:
            assert push_once(connection, keys) == list(keys)
        run = recps("digest", "--json", "--ps-hosts", f"127.0.0.1:{one.port}")
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout) == two
        assert two["tables"][0]["rows"] == 200
        with one.connect() as connection:
            push_once(connection, keys)
        run = recps("digest", "--json", "--ps-hosts", f"127.0.0.1:{one.port}")
        assert json.loads(run.stdout)["digest"] != two["digest"]


# ---- checkpoints, without a cluster ----

def test_verify_of_a_folder_that_is_not_there_names_it(tmp_path):
    run = recps("verify", tmp_path / "nothing")
    assert run.returncode == 66
    assert "nothing: No such file or directory" in run.stderr


def test_verify_of_a_damaged_manifest_is_corrupt(tmp_path):
    folder = tmp_path / "ckpt-000000000007"
    folder.mkdir()
    (folder / "manifest.json").write_text("{")
    run = recps("verify", folder)
    assert run.returncode == 65, run.stderr
    assert "manifest.json" in run.stderr


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A complete one, that a job has written; tests put back what they take."""
    if not programs.RECPS_TRAIN.is_file():
        pytest.skip(f"{programs.RECPS_TRAIN} is not built")
    folder = tmp_path_factory.mktemp("job") / "ckpt"
    run = recps("launch", "--ps", 2, "--workers", 1, "--checkpoint-dir", folder,
                "--", "recps-train", "--data", "synthetic:rows=500,keys=50")
    assert run.returncode == 0, run.stderr
    return next(folder.glob("ckpt-*"))


@pytest.mark.parametrize("command", ["verify", "digest"])
@pytest.mark.parametrize("part", [
    "manifest.json", "manifest.json.xxh3", "part-1-of-2.json",
    "lanes-0-of-2.npy", "table-emb/0-of-2.keys.npy",
    "table-emb/1-of-2.rows.npy", "table-emb/1-of-2.rows.npy.xxh3"])
def test_a_missing_part_is_corrupt_and_named(checkpoint, tmp_path, command,
                                             part):
    (checkpoint / part).rename(tmp_path / "away")
    try:
        for folder in (checkpoint, checkpoint.parent):
            run = recps(command, "--json", folder)
            assert run.returncode == 65, run.stderr
            assert part in run.stderr and "missing" in run.stderr
            answer = json.loads(run.stdout)
            assert part in answer["error"]
            assert (answer["exit"], answer["status"]) == (65, "RPS_E_CORRUPT")
    finally:
        (tmp_path / "away").rename(checkpoint / part)
    assert recps(command, checkpoint).returncode == 0


# ---- usage ----

def test_help_lists_the_commands():
    run = recps("--help")
    assert run.returncode == 0
    for name in ("launch", "tables", "stats", "ping", "save", "verify",
                 "digest", "shutdown"):
        assert f"  {name} " in run.stdout


@pytest.mark.parametrize("name", ["launch", "tables", "stats", "ping", "save",
                                  "verify", "digest", "shutdown"])
def test_every_command_has_help(name):
    run = recps(name, "--help")
    assert run.returncode == 0, run.stderr
    assert f"usage: recps {name}" in run.stdout


@pytest.mark.parametrize("arguments, words", [
    ([], "usage"),
    (["tabels"], 'did you mean "tables"'),
    (["tables", "--no-such-flag"], "no-such-flag"),
    (["tables", "extra"], "extra"),
    (["verify"], "folder"),
    (["verify", "a", "b"], "b"),
    (["tables"], "--ps-hosts"),
    (["tables", "--ps-hosts"], "ps"),
    (["shutdown", "--now=yes"], "--now"),
])
def test_bad_usage_is_64_and_said(arguments, words):
    run = recps(*arguments)
    assert run.returncode == 64, run.stderr
    assert words in run.stderr


@pytest.mark.parametrize("arguments, code, words", [
    (["tables"], 64, "--ps-hosts"),
    (["tables", "extra"], 64, "extra"),
    (["tables", "--no-such-flag"], 64, "no-such-flag"),
    (["tables", "--connect-timeout", "x"], 64, "--connect-timeout"),
    (["tabels"], 64, "tables"),
    (["launch", "--", "true"], 64, "unknown option --json"),
    (["shutdown", "--now=yes"], 64, "--now"),
    (["stats", "--tf-config", "{"], 78, "not valid JSON"),
    (["verify", "/nothing/here"], None, "/nothing/here"),
    (["verify", "/nothing/\udcff"], None, "UTF-8"),
])
def test_a_failure_is_json_too(arguments, code, words):
    run = recps(arguments[0], "--json", *arguments[1:])
    answer = json.loads(run.stdout)
    assert words in answer["error"] and run.returncode != 0
    assert answer["exit"] == run.returncode
    assert code is None or run.returncode == code
    assert ("status" in answer) == (code is None)
    assert run.stderr


def test_the_json_of_a_failure_has_the_status(cluster):
    port = programs.free_ports(1)[0]
    run = recps("ping", "--ps-hosts", f"127.0.0.1:{port}", "--json",
                "--connect-timeout", "1")
    answer = json.loads(run.stdout)
    assert (answer["status"], answer["exit"]) == ("RPS_E_UNREACHABLE", 69)
    assert f"127.0.0.1:{port}" in answer["error"]
    run = recps("save", "--json", "--ps-hosts", cluster.hosts)
    answer = json.loads(run.stdout)
    assert run.returncode == answer["exit"] == 70
    assert "chief" in answer["error"] and answer["status"].startswith("RPS_E_")


def test_an_unreachable_server_is_69_and_named():
    port = programs.free_ports(1)[0]
    run = recps("ping", "--ps-hosts", f"127.0.0.1:{port}",
                "--connect-timeout", "1")
    assert run.returncode == 69
    assert f"127.0.0.1:{port}" in run.stderr
    assert "refused" in run.stderr.lower()


def test_a_server_of_another_job_is_refused(cluster):
    run = recps("ping", "--ps-hosts", cluster.hosts, "--job-id", "other")
    assert run.returncode == 70
    assert "other" in run.stderr


def test_version_names_the_program():
    run = recps("--version")
    assert run.returncode == 0
    assert run.stdout.startswith("recps ")


@pytest.mark.parametrize("transport", ["tcp", "unix", "shm", "auto"])
def test_a_silent_server_is_named_with_the_time_that_passed(
        recpsd, transport):
    programs.stop(recpsd.process)
    try:
        run = recps("ping", "--ps-hosts", f"127.0.0.1:{recpsd.port}",
                    "--connect-timeout", "1", "--transport", transport)
    finally:
        recpsd.process.send_signal(signal.SIGCONT)
    assert run.returncode == 69
    assert re.search(r"not reached in 1\.[0-4] s: .*connected, (but )?no "
                     r"answer to HELLO (yet|in 1\.[0-4] s)", run.stderr)
