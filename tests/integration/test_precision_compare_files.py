# SPDX-License-Identifier: Apache-2.0
"""recps precision compare: files that are damaged or missing, another
framework's, what recps-train writes, commands that are printed, the page."""
import copy
import csv
import json
import os
import re
import shutil

import numpy as np
import pytest

from comparing import answer, change, make_step, recps, write_two
import numpy_dumps as dumps
import programs
import trainer

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")


# ---- damaged, missing, mismatched ----

def damage_cut(file):
    file.write_bytes(file.read_bytes()[:-3])


def damage_text(file):
    file.write_bytes(b"these are no numbers")


def damage_shape(file):
    array = np.load(file)
    np.save(file, array[:-1])


def damage_dtype(file):
    np.save(file, np.load(file).astype(np.float64))


@pytest.mark.parametrize("damage", [damage_cut, damage_text, damage_shape,
                                    damage_dtype, lambda file: file.unlink()])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_bad_file_is_named_and_the_rest_is_compared(tmp_path, damage, side):
    left = make_step()
    right = change(left, "top.0/linear_backward", "outputs", 0, lambda y: -y)
    a, b = write_two(tmp_path, left, right)
    [file] = dumps.files_of(dumps.step_folder(tmp_path / side, 6),
                            "top.0/linear_relu", "output")
    damage(file)
    run = recps(a, b, code=65)
    assert str(file) in run.stderr
    found = answer(a, b, code=65)
    assert found["problems"] == 1
    assert str(file) in found["steps"][0]["problems"][0]
    assert found["operator"]["name"] == "top.0/linear_backward"
    assert found["steps"][0]["files"] == 12


@pytest.mark.parametrize("way, cell", [("input", "Input"), ("output", "Output")])
def test_what_cannot_be_read_is_not_said_to_agree(tmp_path, way, cell):
    a, b = write_two(tmp_path, make_step(), make_step())
    file = dumps.files_of(dumps.step_folder(b, 6), "top.0/linear_relu", way)[0]
    damage_cut(file)
    text = recps(a, b, "-o", tmp_path / "t.csv", "--html", tmp_path / "t.html",
                 code=65).stdout
    assert ("all that could be read agrees, and all 12 files that could be "
            "compared are the same") in text
    assert ("1 tensor is not compared, since its file is damaged, missing or of "
            f'another shape: linear_relu "top.0/linear_relu" {way} 0') in text
    with open(tmp_path / "t.csv", encoding="utf8", newline="") as table:
        lines = {line["Left"]: line for line in csv.DictReader(table)}
    assert lines["top.0/linear_relu"]["Agrees"] == "not compared"
    assert "0:" not in lines["top.0/linear_relu"][cell]
    assert lines["top.0/linear_backward"]["Agrees"] == "yes"
    page = (tmp_path / "t.html").read_text(encoding="utf8")
    assert page.count('class="unread"') == 1
    assert page.count("<td>not compared</td>") == 1
    found = answer(a, b, code=65)["steps"][0]["operators"]
    assert [op["not_compared"] for op in found] == [0, 1, 0, 0]


def test_settings_are_told_of_what_agrees_too(tmp_path):
    dumps.write_step(tmp_path / "a", 0, make_step(), run={"seed": 1, "mode": "x"})
    dumps.write_step(tmp_path / "b", 0, make_step(), run={"seed": 2, "mode": "x"})
    text = recps(tmp_path / "a", tmp_path / "b").stdout
    assert "every operator agrees" in text
    assert "other settings: seed (1, 2)." in text


def test_other_steps_are_told(tmp_path):
    dumps.write_step(tmp_path / "a", 3, make_step())
    dumps.write_step(tmp_path / "b", 0, make_step(seed=2))
    text = recps(tmp_path / "a", tmp_path / "b", code=1).stdout
    assert "Step 3 of the left with step 0 of the right: " in text
    assert "These are different steps" in text
    assert "same --seed" not in text
    dumps.write_step(tmp_path / "c", 0, make_step())
    text = recps(tmp_path / "a", tmp_path / "c").stdout
    assert "These are different steps" in text


@pytest.mark.parametrize("swap", [False, True])
def test_steps_that_a_single_one_leaves_are_told(tmp_path, swap):
    for step in range(4):
        dumps.write_step(tmp_path / "a", step, make_step())
    dumps.write_step(tmp_path / "b", 0, make_step())
    sides = [tmp_path / "a", tmp_path / "b"]
    run = recps(*(sides[::-1] if swap else sides))
    many, one = ("right", "left") if swap else ("left", "right")
    assert (f"3 steps of the {many} are not compared (1 to 3): the {one} has step "
            "0 alone.") in run.stdout
    assert run.stderr == ""
    found = answer(*sides)
    assert found["left_alone"] == [1, 2, 3] and found["problems"] == 0

def test_shapes_that_differ_are_told(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: y[:-1])
    a, b = write_two(tmp_path, left, right)
    run = recps(a, b, code=65)
    assert "shapes [32, 8] and [31, 8]" in run.stderr
    assert "output 0 is of another shape" in run.stdout


def test_a_damaged_manifest_is_named_and_names_are_read(tmp_path):
    a, b = write_two(tmp_path, make_step(), make_step())
    manifest = dumps.step_folder(a, 6).with_suffix(".json")
    manifest.write_text(manifest.read_text()[:-5])
    run = recps(a, b, code=65)
    assert str(manifest) in run.stderr and "names are read" in run.stderr
    found = answer(a, b, code=65)
    assert found["verdict"] == "same" and found["steps"][0]["equal_files"] == 13


def test_operators_and_steps_of_one_side_are_told(tmp_path):
    left = make_step()
    a, b = write_two(tmp_path, left, left[:-1])
    run = recps(a, b, code=1)
    assert '1 operator is on the left alone: push "emb"' in run.stdout
    dumps.write_step(tmp_path / "a", 7, left)
    dumps.write_step(tmp_path / "b", 8, left)
    run = recps(a, b, code=65)
    assert "step 7 is on the left alone" in run.stderr
    assert "step 8 is on the right alone" in run.stderr


def test_a_lost_steps_folder_is_named(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    for step in (2, 3, 4):
        dumps.write_step(tmp_path / "a", step, left)
        dumps.write_step(tmp_path / "b", step, right if step == 4 else left)
    lost = dumps.step_folder(tmp_path / "b", 3)
    shutil.rmtree(lost)
    run = recps(tmp_path / "a", tmp_path / "b", code=65)
    assert f"{lost}: the step's folder is missing" in run.stderr
    assert "Step 4: " in run.stdout  # what differs decides
    words = answer(tmp_path / "a", tmp_path / "b", code=65)["steps"][1]["words"]
    assert words.startswith("Step 3: nothing could be compared")
    for words in (["nan"], ["replay"]):
        run = trainer.run([programs.RECPS, "precision", *words, tmp_path / "b"],
                          code=65)
        assert f"{lost}: the step's folder is missing" in run.stderr, words
    recps(lost, lost, code=66)


def test_where_there_is_no_dump_that_is_said(tmp_path):
    a, _ = write_two(tmp_path, make_step(), make_step())
    (tmp_path / "empty").mkdir()
    assert "no dump is under it" in recps(a, tmp_path / "empty", code=66).stderr
    assert recps(a, tmp_path / "none", code=66).stderr
    folder = dumps.step_folder(a, 6, device="1")
    folder.mkdir(parents=True)
    assert "give one of them: 0, 1" in recps(a, a, code=66).stderr
    dumps.write_step(tmp_path / "c", 1, make_step())
    dumps.write_step(tmp_path / "c", 2, make_step())
    dumps.write_step(tmp_path / "d", 3, make_step())
    dumps.write_step(tmp_path / "d", 4, make_step())
    assert "no step is in both" in recps(
        tmp_path / "c", tmp_path / "d", code=66).stderr


def test_the_words_of_precision_are_told():
    run = trainer.run([programs.RECPS, "precision"], code=64)
    assert re.search("give a command: .*compare", run.stderr)
    run = trainer.run([programs.RECPS, "precision", "compere", "--json"], code=64)
    assert 'did you mean "compare"?' in run.stderr
    assert json.loads(run.stdout)["exit"] == 64


@pytest.mark.parametrize("words", [
    [], ["a"], ["a", "b", "c"], ["a", "b", "--threshold", "2"],
    ["a", "b", "--threshold", "x"], ["a", "b", "--limit", "-1"],
    ["a", "b", "--nonsense"]])
def test_bad_usage_is_64(words):
    assert recps(*words, code=64).stderr


# ---- other frameworks ----

def foreign_step(path, ops):
    """By names alone, as PyTorch's hooks would call them."""
    renamed = copy.deepcopy(ops)
    for op in renamed:
        if op["name"] == "top.0/linear_relu":
            op |= {"type": "Linear", "name": "Linear_top_0"}
            op["inputs"] = [op["inputs"][i] for i in (1, 2, 0)]
    return dumps.write_step(path, 0, renamed, manifest=False)


def test_a_mapping_file_says_who_belongs_together(tmp_path):
    left = make_step()
    a = dumps.write_step(tmp_path / "a", 6, left)
    b = foreign_step(tmp_path / "b", left)
    assert "Linear_top_0" in recps(a, b, code=1).stdout  # on one side alone
    mapping = tmp_path / "map.json"
    mapping.write_text(json.dumps({"recps_map": 1, "pairs": [
        {"left": "*/linear_relu", "right": "Linear_*", "right_type": "Linear",
         "inputs": {"0": 2, "1": 0, "2": 1}}]}))
    found = answer(a, b, "--map", mapping)
    assert found["same"] and found["steps"][0]["equal_files"] == 13
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    c = foreign_step(tmp_path / "c", right)
    found = answer(a, c, "--map", mapping, code=1)
    assert found["operator"]["name"] == "top.0/linear_relu"
    assert found["operator"]["right"] == "Linear_top_0"


@pytest.mark.parametrize("pair, words", [
    ({"left": "nosuch", "right": "Linear_top_0"}, "matches no two operators"),
    ({"left": "a*", "right": "b*"}, "pair a*, b* matches no two operators"),
    ({"outputs": {"0": 9}}, "output 9: Linear \"Linear_top_0\" of the right has none"),
    ({"inputs": {"7": 1}}, 'input 7: linear_relu "top.0/linear_relu" of the left')])
def test_what_of_a_mapping_was_of_no_use_is_told(tmp_path, pair, words):
    left = make_step()
    a = dumps.write_step(tmp_path / "a", 6, left)
    b = foreign_step(tmp_path / "b", left)
    good = {"left": "*/linear_relu", "right": "Linear_*",
            "inputs": {"0": 2, "1": 0, "2": 1}}
    mapping = tmp_path / "map.json"
    mapping.write_text(json.dumps({"recps_map": 1, "pairs": [good]}))
    text = recps(a, b, "--map", mapping).stdout
    assert "The mapping" not in text
    assert "different steps" not in text  # its number is no step's
    pairs = [good | pair] if "left" not in pair else [good, pair]
    mapping.write_text(json.dumps({"recps_map": 1, "pairs": pairs}))
    assert words in recps(a, b, "--map", mapping).stdout


@pytest.mark.parametrize("text, words", [
    ("{", "line 1"), ("[]", "no mapping"), ('{"recps_map": 1}', "no mapping"),
    ('{"recps_map": 1, "pairs": [{"left": "a"}]}', "pair 0"),
    ('{"recps_map": 1, "pairs": [{"left": "a*", "right": "b"}]}', "in both"),
    ('{"recps_map": 1, "pairs": [{"left": "a", "right": "b", "x": 1}]}',
     "another field"),
    ('{"recps_map": 1, "pairs": [{"left": "a", "right": "b", "inputs": [1]}]}',
     "inputs and outputs")])
def test_a_bad_mapping_is_refused(tmp_path, text, words):
    a, b = write_two(tmp_path, make_step(), make_step())
    mapping = tmp_path / "map.json"
    mapping.write_text(text)
    run = recps(a, b, "--map", mapping, code=65)
    assert words in run.stderr and str(mapping) in run.stderr


# ---- what recps-train writes ----

DATA = ["--data", "synthetic:rows=200,seed=3", "--batch-size", 100]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function: the dump of a run with these options."""
    folder = tmp_path_factory.mktemp("trained")

    def train(*options):
        path = folder / "".join(str(o) for o in options)
        if not path.exists():
            trainer.train(*DATA, *options, "--dump-step", "0|1", "--dump-path",
                          path)
        return path

    return train


@trainer.needs_programs
def test_host_and_device_agree_fused_and_not(trained):
    host = trained("--device", "cpu")
    for device, fusion in (("cpu", "off"), ("npu", "on"), ("npu", "off")):
        found = answer(host, trained("--device", device, "--fusion", fusion))
        assert found["same"] and len(found["steps"]) == 2
        for step in found["steps"]:
            assert step["only_left"] == step["only_right"] == 0
            for op in step["operators"]:
                assert min(op["input_cosine"], op["output_cosine"]) > 0.999999
            if device == "cpu":
                assert step["equal_files"] == step["files"]


@trainer.needs_programs
def test_another_seed_shows_at_once_with_the_command_to_type(trained):
    a, b = trained("--seed", 1), trained("--seed", 2)
    found = answer(a, b, code=1)
    assert found["step"] == 0 and "seed (1, 2)" in found["words"]
    [left], [right] = (list(side.glob("dump/*/0/dlrm/0/1")) for side in (a, b))
    text = recps(left, right, code=1).stdout
    assert (f"recps-train --data synthetic:rows=200,seed=3 --batch-size 100 --seed "
            f"1 --dump-path {a} --dump --dump-step '0-1' --rotate\n") in text


COMMAND = ["recps-train", "--seed", "1", "--checkpoint_dir", "ck", "--dump",
           "--restore=5", "--save-steps=2", "--rotate", "--fusion", "on",
           "--dump-step=6", "--keep", "3"]


def printed(a, b):
    return re.findall(r"^  (left|right):  ?(.*)$", recps(a, b, code=1).stdout, re.M)


def test_the_command_of_a_run_has_no_option_twice_and_saves_nothing(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    a, b = write_two(tmp_path, left, right, run={"command": COMMAND})
    kept = "recps-train --seed 1 "
    assert printed(a, b) == [
        (side, f"{kept}--dump-step=6 --dump --fusion off --rotate")
        for side in ("left", "right")]
    text = recps(a, b, code=1).stdout
    assert "(without --checkpoint-dir, --restore, --save-steps, --keep: " in text
    assert "recps launch" not in text
    right = change(left, "emb", "outputs", 0, lambda rows: -rows)
    a, b = write_two(tmp_path / "more", left, right, run={"command": COMMAND})
    assert printed(a, b)[0][1] == (
        f"{kept}--fusion on --dump --dump-step '0-6' --rotate")


def test_what_a_run_had_from_its_environment_is_printed(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    run = {"command": ["recps-train", "--seed", "1"], "device": "npu",
           "ps_count": 2, "options": {"seed": 1, "emb_dim": 8, "data": "a b",
                                      "shuffle": True, "fusion": "on",
                                      "checkpoint_dir": "ck"}}
    a, b = write_two(tmp_path, left, right, run=run)
    text = recps(a, b, code=1).stdout
    assert ("RECPS_DEVICE=npu RECPS_EMB_DIM=8 RECPS_DATA='a b' RECPS_SHUFFLE=true "
            "recps-train --seed 1 --dump --fusion off --rotate\n") in text
    assert "within the same recps launch" in text


@trainer.needs_programs
@pytest.mark.parametrize("environment", [{}, {"RECPS_DEVICE": "npu"}])
def test_commands_that_are_printed_can_be_typed(tmp_path, environment):
    """The dumps that are compared stay, one name on."""
    path = f"{programs.RECPS.parent}:{trainer.TRAIN.parent}:{os.environ['PATH']}"

    def shell(line, code=0, env=None):
        return trainer.run(["sh", "-eu", "-c", line], cwd=tmp_path, code=code,
                           env={"PATH": path} | (env or {})).stdout

    train = ("recps-train --data synthetic:rows=300,seed=3 --batch-size 100 "
             "--dump-step 1 --checkpoint-dir ck-{0} --seed {0}")
    folder = "tf/dump" if not environment else "npu/debug_0"
    older = "tf/dump.1" if not environment else "npu/debug_1"
    shell(train.format(1), env=environment)
    shell(train.format(2) + " --dump --rotate", env=environment)
    text = shell(f"recps precision compare precision_data/{older} "
                 f"precision_data/{folder}", code=1)
    saved = sorted(tmp_path.glob("ck-*/*"))
    for line in re.findall(r"^  (?:left|right):  ?(.*)$", text, re.M):
        shell(line)
    assert sorted(tmp_path.glob("ck-*/*")) == saved
    then = re.search(r"^Then: (.*)$", text, re.M).group(1)
    text = shell(then, code=1)
    assert "Step 0: " in text and "seed (1, 2)" in text
    assert len(list((tmp_path / "precision_data" / folder).parent.glob("d*"))) == 4


# ---- the documentation ----

def test_the_documentations_commands_run(tmp_path):
    page = (programs.ROOT / "docs/PRECISION.md").read_text(encoding="utf8")
    script = re.search(r"test_precision_compare_files.py -->\n```sh\n(.*?)```", page,
                       re.S).group(1)
    dumps.write_step(tmp_path / "precision_data/npu/debug_0", 0, make_step())
    dumps.write_step(tmp_path / "precision_data/tf/dump", 0, make_step())
    trainer.run(["sh", "-eu", "-c", script], cwd=tmp_path, env={
        "PATH": f"{programs.RECPS.parent}:{os.environ['PATH']}"})
    assert (tmp_path / "compare.csv").is_file()
    assert (tmp_path / "compare.html").is_file()
    # and its mapping is one
    mapping = re.search(r"```json\n(\{\"recps_map.*?)```", page, re.S).group(1)
    (tmp_path / "map.json").write_text(mapping)
    recps(tmp_path / "precision_data/npu", tmp_path / "precision_data/tf",
          "--map", tmp_path / "map.json")


# ---- the page ----

def test_the_page_stands_alone(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    a, b = write_two(tmp_path, left, right)
    page = tmp_path / "page.html"
    recps(a, b, "--html", page, code=1)
    text = page.read_text(encoding="utf8")
    assert text.count("<rect") == len(left)
    assert text.count('<rect class="bad"') == 1
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(src|href)=|url\(|<script|@import", text)
    assert "is the first whose output differs" in text
