# SPDX-License-Identifier: Apache-2.0
"""Faults planted into recps-train (tests/tools/faulty_train.c): each is found,
and told by the right operator, step, key or memory, by the command that
docs/PRECISION.md leads to."""
import json
import subprocess

import pytest

import programs

FAULTY = programs.TESTS_BUILD / "tests/tools/faulty-train"
STEPS = 9
COMMON = ["--model", "dlrm", "--data", "synthetic:rows=1300,keys=60",
          "--batch-size", "64", "--deterministic", "--seed", "3"]

pytestmark = pytest.mark.skipif(
    not FAULTY.exists() or not programs.RECPS.exists(),
    reason="faulty-train is not built")


def train(folder, *flags, fault=None, dump="0-8"):
    dumps = ["--dump-step", dump, "--dump-path", folder] if dump else []
    words = [FAULTY, *COMMON, "--steps", STEPS, *dumps, *flags]
    env = programs.environment()
    if fault is not None:
        env["RECPS_TEST_FAULT"] = fault
    done = subprocess.run([str(w) for w in words], env=env, timeout=120,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def precision(*words, code=1):
    done = subprocess.run([str(programs.RECPS), "precision", *map(str, words)],
                          env=programs.environment(), capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The plain path's dump of every step."""
    folder = tmp_path_factory.mktemp("good") / "dump"
    train(folder)
    return folder


def part_of(good, folder, *flags):
    """The sentence of the first step in which the two part."""
    said = precision("compare", good, folder, *flags)
    return next(line for line in said.splitlines()
                if line.startswith("Step ") and "agrees" not in line)


def test_without_a_fault_nothing_parts(good, tmp_path):
    train(tmp_path / "dump", "--device", "npu")
    assert "all 77 files that were compared" in precision(
        "compare", good, tmp_path / "dump", "--exact", code=0)


def test_a_wrong_sign_in_a_kernel_is_that_operator(good, tmp_path):
    train(tmp_path / "dump", "--device", "npu",
          fault="sign interaction/dots 0")
    verdict = part_of(good, tmp_path / "dump")
    assert verdict.startswith(
        'Step 0: dots "interaction/dots" is the first whose output differs')


def test_a_fused_one_is_found_in_its_parts(good, tmp_path):
    """The fault sits in the part that the fused operator has, too."""
    train(tmp_path / "fused", "--device", "npu",
          fault="sign top.0/linear_relu 0")
    said = precision("compare", good, tmp_path / "fused")
    assert '"top.0/linear_relu" is the first whose output differs' in said
    assert "fused" in said and "--fusion off" in said

    train(tmp_path / "plain", "--fusion", "off")
    train(tmp_path / "parts", "--device", "npu", "--fusion", "off",
          fault="sign top.0/relu 0")
    verdict = part_of(tmp_path / "plain", tmp_path / "parts")
    assert verdict.startswith(
        'Step 0: relu "top.0/relu" is the first whose output differs')


def test_a_lost_gradient_is_the_next_steps_lookup(good, tmp_path):
    train(tmp_path / "dump", "--device", "npu", fault="lost emb 2")
    verdict = part_of(good, tmp_path / "dump", "--exact")
    assert verdict.startswith(
        'Step 3: the lookup of table "emb" is the first that differs')
    assert "in what was pushed before" in verdict


def test_a_stale_row_is_named_by_its_key(good, tmp_path):
    train(tmp_path / "dump", "--device", "npu", fault="stale emb 3")
    verdict = part_of(good, tmp_path / "dump", "--exact")
    assert verdict.startswith('Step 3: the lookup of table "emb" is the first '
                              "that differs: 1 key's row differs: 0.")


def test_a_rounding_is_found_by_a_higher_threshold(good, tmp_path):
    train(tmp_path / "dump", "--device", "npu",
          fault="bf16 top.0/linear_relu *")
    said = precision("compare", good, tmp_path / "dump", code=0)
    assert "A higher --threshold than 0.98 finds what is smaller." in said
    verdict = part_of(good, tmp_path / "dump", "--threshold", "0.99999999")
    assert '"top.0/linear_relu" is the first whose output differs' in verdict


@pytest.mark.parametrize("fault, ending, words", [
    ("nan top.0/linear_relu 7", "operator", ["top.0/linear_relu"]),
    ("poison emb 7", "embedding", ['table "emb"', "key 0"]),
    ("smash interaction/dots 7 bot.2/linear_relu", "overwritten",
     ["between linear_relu bot.2/linear_relu and dots_backward "
      "interaction/dots_backward"]),
])
def test_a_nan_at_step_7_is_followed_to_its_end(
        tmp_path, fault, ending, words):
    train(tmp_path / "dump", "--device", "npu", fault=fault)
    said = json.loads(precision("nan", tmp_path / "dump", "--json"))
    assert said["ending"] == ending
    told = precision("nan", tmp_path / "dump")
    assert "step 7" in told
    for word in words:
        assert word in told


def test_a_fault_of_one_step_is_in_the_next_checkpoint(tmp_path):
    """The guide's way with faults that come now and then."""
    for run, fault in (("good", None),
                       ("bad", "scale top.0/linear_backward:1 7")):
        train(None, "--device", "npu", "--checkpoint-dir", tmp_path / run,
              "--save-steps", "5", "--keep", "9", "--dense-optimizer", "sgd",
              "--dense-lr", "0.5", fault=fault, dump=None)
    said = json.loads(precision("ckpt", tmp_path / "good", tmp_path / "bad",
                                "--first", "--json"))
    assert said["steps"] == [STEPS, STEPS] and said["step_before"] == 5
    assert said["first"] == {
        "kind": "dense", "variable": "top.0.weight", "optimizer": "sgd",
        "operator": "top.0/linear_backward",
        "unfused": "top.0/linear_dweight"}
    assert said["variables"][0]["cosine"] < 0.98


@pytest.mark.parametrize("flags, servers", [
    (["--npu-loop-size", "4"], None),
    ([], 1),
    (["--npu-loop-size", "3"], 2),
])
def test_other_loops_and_servers_change_no_file(
        good, tmp_path, flags, servers):
    """`good` is the plain path, embedded, a step at a time."""
    dump = tmp_path / "dump"
    flags = ["--device", "npu", *flags]
    if servers is None:
        train(dump, *flags)
    else:
        done = subprocess.run(
            [str(w) for w in [
                programs.RECPS, "launch", "--ps", servers, "--workers", 1,
                "--", FAULTY, *COMMON, "--steps", STEPS, "--dump-step", "0-8",
                "--dump-path", dump, *flags]],
            env=programs.environment(), timeout=120, capture_output=True,
            text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    said = precision("compare", good, dump, "--exact", code=0)
    assert said.count("all 77 files that were compared") == STEPS
