# SPDX-License-Identifier: Apache-2.0
"""recpsd --check-config: every sample of TF_CONFIG, and the rules beyond them.

The program is RECPSD, else recpsd of the build folder (RECPS_BUILD, else
build/release, else build), else its unit probe, which reads the same options.
"""
import csv
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "conf/examples/recpsd.json"
MORE = ["listen", "auth", "admin", "start"]
KEYS = ["role", "index", "n_ps", "n_worker", "chief", "own_address"]


def find_program():
    if "RECPSD" in os.environ:
        return os.environ["RECPSD"]
    builds = [ROOT / "build/release", ROOT / "build"]
    if "RECPS_BUILD" in os.environ:
        builds = [pathlib.Path(os.environ["RECPS_BUILD"])]
    for build in builds:
        for name in ["server/daemon/recpsd", "recpsd",
                     "tests/unit/conf/check_config_probe"]:
            if (build / name).is_file():
                return str(build / name)
    pytest.skip("no recpsd is built; set RECPSD", allow_module_level=True)


PROGRAM = find_program()


def samples_folder():
    data = os.environ.get("RECPS_TEST_DATA", ROOT.parent / "shared/data")
    return pathlib.Path(data).parent / "tf_config"


def samples():
    table = samples_folder() / "EXPECTED.tsv"
    if not table.is_file():
        return []
    with open(table, encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


SAMPLES = samples()


def check(*flags, env=None, **variables):
    """Run --check-config with nothing but the variables given."""
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("TF_CONFIG", "RECPS_"))}
    clean.update(env or {}, **variables)
    return subprocess.run([PROGRAM, "--check-config", *map(str, flags)],
                          env=clean, capture_output=True, text=True,
                          timeout=60, check=False)


def accepted(run):
    assert run.returncode == 0, run.stderr
    lines = [line.split(": ", 1) for line in run.stdout.splitlines()]
    assert [line[0] for line in lines[:7]] == KEYS + ["fingerprint"]
    # the program, where it is to serve; the probe knows TF_CONFIG alone
    assert [line[0] for line in lines[7:]] in ([], MORE)
    return dict(lines)


def verdict(*flags, **variables):
    run = check("--json", *flags, **variables)
    answer = json.loads(run.stdout)
    assert run.returncode == {"accept": 0, "reject": 78}[answer["verdict"]]
    return answer


def code_of(config, *flags):
    text = config if isinstance(config, str) else json.dumps(config)
    return verdict("--tf-config", text, *flags).get("code")


def expected_message(detail):
    code, _, message = detail.partition(" ")
    if code != "E_JSON":
        return code, re.escape(message)
    hint = re.escape(message.partition("(")[2])
    return code, (r"TF_CONFIG: not valid JSON at line \d+ column \d+: .+ \("
                  + hint)


WAYS = {
    "variable": lambda path: ([], {"TF_CONFIG": path.read_text("utf8")}),
    "file": lambda path: ([], {"TF_CONFIG_FILE": str(path)}),
    "flag": lambda path: (["--tf-config", path.read_text("utf8")], {}),
    "flag_file": lambda path: ([f"--tf_config=@{path}"], {}),
}


@pytest.mark.skipif(not SAMPLES, reason="no samples of TF_CONFIG beside the "
                    "checkout (RECPS_TEST_DATA/../tf_config)")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", SAMPLES, ids=[s["file"] for s in SAMPLES])
def test_samples_resolve_as_expected(sample, way):
    flags, variables = WAYS[way](samples_folder() / sample["file"])
    run = check(*flags, env=variables)
    answer = verdict(*flags, env=variables)
    if sample["verdict"] == "accept":
        plain = accepted(run)
        for key in KEYS:
            assert plain[key] == sample[key], key
            assert str(answer[key]) == sample[key], key
        assert answer["fingerprint"] == plain["fingerprint"]
        assert re.fullmatch("[0-9a-f]{16}", plain["fingerprint"])
        return
    code, message = expected_message(sample["detail"])
    assert run.returncode == 78 and run.stdout == ""
    assert re.fullmatch(message, run.stderr.rstrip("\n"))
    assert answer["code"] == code
    assert re.fullmatch(message, answer["message"])


def test_json_answers_are_one_object_with_numbers():
    config = {"cluster": {"ps": ["h:1"], "worker": ["h:2"]},
              "task": {"type": "ps", "index": 0}}
    answer = verdict("--tf-config", json.dumps(config))
    assert list(answer)[:8] == ["verdict", *KEYS, "fingerprint"]
    assert list(answer)[8:] in ([], MORE)
    assert answer["index"] == 0 and answer["n_ps"] == 1
    assert answer["n_worker"] == 1 and answer["own_address"] == "h:1"


PS = ["h1:2222", "h2:2222"]
TASK = {"type": "ps", "index": 0}
REFUSED = {
    "E_FILE": "@/nowhere/tf_config.json",
    "E_EMPTY": " \n\t ",
    "E_JSON": '{"cluster": NaN}',
    "E_DUPKEY": '{"task": {}, "task": {}}',
    "E_SHAPE": {"cluster": {"ps": None}, "task": TASK},
    "E_ROLE": {"cluster": {"ps": PS}, "task": {"type": "server", "index": 0}},
    "E_CHIEF": {"cluster": {"chief": {"1": "h:1"}, "ps": PS}, "task": TASK},
    "E_EVAL": {"cluster": {"ps": PS, "evaluator": ["a:1", "b:1"]}, "task": TASK},
    "E_ADDR_EMPTY": {"cluster": {"ps": [""]}, "task": TASK},
    "E_ADDR_SPACE": {"cluster": {"ps": ["h\t:1"]}, "task": TASK},
    "E_ADDR_SCHEME": {"cluster": {"ps": ["grpc://h:1"]}, "task": TASK},
    "E_ADDR_PORT": {"cluster": {"ps": ["h:0"]}, "task": TASK},
    "E_ADDR": {"cluster": {"ps": ["2001:db8::1:2222"]}, "task": TASK},
    "E_DUPADDR": {"cluster": {"ps": PS, "worker": ["H2.:02222"]}, "task": TASK},
    "E_SPARSE_KEY": {"cluster": {"ps": {"00": "h:1"}}, "task": TASK},
    "E_SPARSE_PS": {"cluster": {"ps": {"0": "h:1", "2": "i:1"}}, "task": TASK},
    "E_SELFONLY": {"cluster": {"worker": {}, "ps": ["h:1"]}, "task": TASK},
    "E_NOCLUSTER": {"cluster": None, "task": {"type": "chief", "index": 0}},
    "E_TASK": {"cluster": {"ps": PS}, "task": {"type": "worker", "index": 0}},
    "E_INDEX": {"cluster": {"ps": PS}, "task": {"type": "ps", "index": True}},
    "E_OPTION": {"recps": {"batchsize": 1}},
}


@pytest.mark.parametrize("code", REFUSED)
def test_each_code_refuses(code):
    assert code_of(REFUSED[code]) == code


def test_host_flags_replace_the_whole_cluster():
    config = {"cluster": {"ps": PS, "chief": ["c:1"]},
              "task": {"type": "chief", "index": 0}}
    run = check("--tf-config", json.dumps(config), "--ps_hosts=a:1,b:1",
                "--worker-hosts", "w:1", "--job_name", "ps", "--task_index=1")
    answer = accepted(run)
    assert answer["own_address"] == "b:1" and answer["chief"] == "worker:0"
    assert "replaced by --ps-hosts, --worker-hosts" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_an_empty_host_flag_is_named():
    answer = verdict("--ps_hosts=", "--job_name=ps", "--task_index=0")
    assert answer["code"] == "E_ADDR_EMPTY"
    assert answer["message"].startswith("TF_CONFIG: --ps-hosts[0]: ")


def test_num_ps_answers_what_a_self_only_list_leaves_open():
    config = {"cluster": {"worker": {}, "ps": ["h:1"]},
              "task": {"type": "ps", "index": 3}}
    answer = verdict("--tf-config", json.dumps(config), "--num-ps=5")
    assert (answer["n_ps"], answer["index"]) == (5, 3)
    assert answer["own_address"] == "h:1" and answer["n_worker"] == "0?"
    assert code_of(config, "--num-ps=3") == "E_INDEX"
    config = {"cluster": {"ps": PS}, "task": TASK}
    assert code_of(config, "--num-ps=3") == "E_COUNT"


def test_fingerprint_follows_the_ordered_servers_alone():
    def of(ps, **more):
        config = {"cluster": {"ps": ps, **more}, "task": TASK}
        return verdict("--tf-config", json.dumps(config))["fingerprint"]
    one = of(["A.b.:1", "c:2"])
    assert one == of(["a.B:1", "C:2"], worker=["w:1"])
    assert one != of(["c:2", "a.b:1"])
    assert one != of(["a.b:1", "c:3"])


def test_standalone_without_any_cluster():
    answer = accepted(check())
    assert answer["role"] == "local" and answer["chief"] == "self"


def test_index_auto_takes_the_completion_index():
    # the host running this may itself end in -NUMBER, which comes first
    name = os.uname().nodename.split(".")[0]
    number = re.search(r"[^-].*-(\d+)$|^-?(\d+)$", name)
    if number:
        pytest.skip("this host's name ends in a number")
    run = check("--ps_hosts=a:1,b:1", "--job_name=ps", "--task_index=auto",
                JOB_COMPLETION_INDEX="1", SLURM_PROCID="0")
    assert accepted(run)["index"] == "1"
    run = check("--ps_hosts=a:1,b:1", "--job_name=ps", "--task_index=auto")
    assert run.returncode == 78 and "auto finds no index" in run.stderr


@pytest.mark.parametrize("flags, words", [
    (["--tf-confg={}"], "did you mean --tf-config?"),
    (["--batch-size=1"], "it is an option of recps-train"),
    (["--loops"], "--loops: needs a value"),
    (["--loops=many"], '--loops: "many" is no whole number (allowed: 0..64'),
    (["--log-level", "loud"], "debug|info|warn|error"),
    (["--num-ps=0"], "allowed: 1.."),
    (["extra"], 'unexpected argument "extra"'),
])
def test_bad_flags_end_with_64(flags, words):
    run = check(*flags)
    assert run.returncode == 64 and run.stdout == ""
    assert words in run.stderr and len(run.stderr.splitlines()) == 1


def test_unknown_variables_warn_and_wrong_ones_refuse():
    run = check(RECPS_LOOPZ="1", RECPS_TEST_DATA="x", RECPS_BATCH_SIZE="x")
    assert run.returncode == 0 and len(run.stderr.splitlines()) == 1
    assert "RECPS_LOOPZ is no option; did you mean RECPS_LOOPS?" in run.stderr
    run = check(RECPS_LOOPS="x")
    assert run.returncode == 64 and "variable RECPS_LOOPS: " in run.stderr


def test_help_and_version_answer_on_stdout():
    run = check("--help")
    assert run.returncode == 0 and run.stderr == ""
    for word in ["--ps-hosts", "--drain-timeout=SECONDS", "RECPS_DRAIN_TIMEOUT"]:
        assert word in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert re.fullmatch(r"recpsd \d+\.\d+\.\d+\n", check("--version").stdout)


def test_the_example_is_accepted():
    answer = accepted(check(TF_CONFIG_FILE=str(EXAMPLE)))
    assert answer["role"] == "ps" and answer["n_ps"] == "2"


# ---- beyond TF_CONFIG ----

is_recpsd = pytest.mark.skipif(not PROGRAM.endswith("/recpsd"),
                               reason="the probe reads TF_CONFIG alone")


@is_recpsd
@pytest.mark.parametrize("flags, listen, auth", [
    ([], "127.0.0.1:2222", "none"),
    (["--bind", "127.0.0.1:0", "--port-file", "p"], "127.0.0.1:0", "none"),
    (["--ps-hosts", "h:2222", "--job-name", "ps", "--task-index", "0"],
     "0.0.0.0:2222, [::]:2222", "none: it would refuse to start (exit code 77)"),
    (["--ps-hosts", "h:2222", "--job-name", "ps", "--task-index", "0",
      "--auth=none"], "0.0.0.0:2222, [::]:2222", "none"),
])
def test_it_says_where_it_would_listen(flags, listen, auth):
    answer = accepted(check(*flags))
    assert (answer["listen"], answer["admin"]) == (listen, "127.0.0.1:9464")
    assert answer["auth"].split(";")[0] == auth
    assert verdict(*flags)["listen"] == listen
    start = 77 if "77" in auth else 0
    assert answer["start"] == str(start) and verdict(*flags)["start"] == start


@is_recpsd
@pytest.mark.parametrize("flags", [
    ["--admin=off", "--ps-hosts", "10.0.0.1:2222", "--job-name", "ps",
     "--task-index", "0"],
    ["--bind", "0.0.0.0:0", "--port-file", "pf"],
])
def test_a_missing_secret_is_told_and_does_not_end_the_check(flags, tmp_path):
    """It may run where the secret is not: the start is what it says."""
    assert accepted(check(*flags))["start"] == "77"
    assert verdict(*flags)["start"] == 77
    run = subprocess.run([PROGRAM, *flags], cwd=tmp_path, capture_output=True,
                         timeout=60, check=False)
    assert run.returncode == 77


@is_recpsd
@pytest.mark.parametrize("folder, code", [
    ("/proc/x", 74), ("/proc/x/y", 74), ("/dev/null", 74), ("/dev/null/x", 74),
    ("kept", 0), ("a/b/c", 0), (".", 0), ("a/b/", 0),
])
def test_the_checkpoint_folder_is_tried_and_not_made(folder, code, tmp_path):
    flags = ["--admin=off", "--checkpoint-dir", str(tmp_path / folder)]
    run = check(*flags, "--json")
    assert run.returncode == code, run.stderr
    assert not list(tmp_path.iterdir())
    if code != 0:
        assert "--checkpoint-dir: " in run.stderr
        assert json.loads(run.stdout)["code"] == "E_CHECKPOINT"
        run = subprocess.run([PROGRAM, *flags, "--bind", "127.0.0.1:0",
                              "--port-file", tmp_path / "port"],
                             capture_output=True, timeout=60, check=False)
        assert run.returncode == code


@is_recpsd
def test_a_relative_checkpoint_folder_is_tried_too(tmp_path):
    for folder in ("kept", "a/b", "."):
        run = subprocess.run(
            [PROGRAM, "--check-config", "--checkpoint-dir", folder],
            cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert run.returncode == 0 and not list(tmp_path.iterdir())


@is_recpsd
@pytest.mark.parametrize("flags, code, words", [
    (["--token-file", "/no/such/token"], 77, "--token-file"),
    (["--tls-cert", "x"], 64, "--tls-key is missing"),
    (["--bind", "127.0.0.1:7", "--admin", "127.0.0.1:7"], 64, "--admin"),
    (["--bind", "127.0.0.1:0"], 64, "--port-file"),
    (["--start-from=newest"], 64, "no checkpoint_dir"),
])
def test_what_a_start_would_refuse_is_refused(flags, code, words):
    run = check("--json", *flags)
    assert run.returncode == code and words in run.stderr
    answer = json.loads(run.stdout)
    assert answer["verdict"] == "reject"
    assert answer["code"] in ("E_ACCESS", "E_ADDRESS", "E_CHECKPOINT")


@is_recpsd
def test_a_token_that_can_be_read_is_told(tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"x" * 32)
    token.chmod(0o600)
    assert accepted(check("--token-file", token))["auth"] == "token"
