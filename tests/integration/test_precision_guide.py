# SPDX-License-Identifier: Apache-2.0
"""The guide's commands, recps precision ac, vcs, vc, ni, and its prompt, of
dumps that NumPy wrote; every figure is NumPy's."""
import copy
import csv
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import xml.dom.minidom

import numpy as np
import pytest

import numpy_dumps as dumps
import programs
import trainer
from test_precision_compare import change, make_step, named, set_at

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")

NPU, NPU_1, TF = ("precision_data/npu/debug_0", "precision_data/npu/debug_1",
                  "precision_data/tf/dump")
RESULTS = "precision_data/temp/vector_compare"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder in which precision_data lies."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recps(*words, code=0):
    return trainer.run([programs.RECPS, "precision", *words], code=code)


def answer(*words, code=0):
    return json.loads(recps(*words, "--json", code=code).stdout)


def write_pair(left, right, step=0):
    return (dumps.write_step(NPU, step, left), dumps.write_step(TF, step, right))


def noisy(ops, sizes):
    """Normal noise on outputs, of a size for each operator's name."""
    rng = np.random.default_rng(9)
    ops = copy.deepcopy(ops)
    for name, size in sizes.items():
        for one in named(ops, name)["outputs"]:
            noise = rng.normal(size=one.array.shape) * size
            one.array = (one.array + noise).astype(np.float32)
    return ops


def cosine(left, right):
    l, r = left.ravel().astype(float), right.ravel().astype(float)
    return l @ r / (np.linalg.norm(l) * np.linalg.norm(r))


def tables():
    return sorted(pathlib.Path(RESULTS).glob("*.csv"))


def lines_of(path):
    with open(path, encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


def cosines_of(cell):
    return {int(i): float(c) for i, c in
            (part.split(":") for part in cell.split(";"))} if cell else {}


# ---- ac ----

def test_ac_writes_cosines_of_the_two_default_folders(here):
    left = make_step()
    right = noisy(left, {"top.0/linear_relu": 0.5, "top.0/linear_backward": 1})
    write_pair(left, right)
    run = recps("ac", "-c", code=1)
    [table] = tables()
    assert str(table) in run.stdout
    lines = lines_of(table)
    assert list(lines[0])[:5] == ["Left", "Right", "type", "Input", "Output"]
    for line, l, r in zip(lines, left, right, strict=True):
        assert (line["Left"], line["Right"], line["type"]) == (
            l["name"], r["name"], l["type"])
        for cell, way in ((line["Input"], "inputs"), (line["Output"], "outputs")):
            found = cosines_of(cell)
            assert sorted(found) == list(range(len(l[way])))
            for i, value in found.items():
                assert -1 <= value <= 1
                if l[way][i].array.dtype == np.float32:
                    assert value == pytest.approx(
                        cosine(l[way][i].array, r[way][i].array), rel=1e-12)


def test_ac_lists_as_many_as_are_asked_for(here):
    left = make_step()
    write_pair(left, noisy(left, {op["name"]: 9 for op in left
                                  if op["outputs"]}))
    assert recps("ac", "-c", "-l", "1", code=1).stdout.count("\n   0  ") == 1
    assert recps("ac", "-c", "-l", "2", code=1).stdout.count("\n   0  ") == 2
    assert len(tables()) == 2  # each comparison has a table of its own
    assert recps("ac", "-c", "--threshold", "-1", code=0)


def test_ac_alone_says_what_is_there(here):
    left = make_step()
    write_pair(left, make_step(fused=False))
    run = recps("ac", "-l", "1")
    assert "4 operators, 13 files" in run.stdout
    assert "2 of them are fused" in run.stdout and "1 more: -l 2" in run.stdout
    assert "linear_relu top.0/linear_relu: linear + bias + relu" in run.stdout
    assert not tables()
    found = answer("ac")
    assert found["left"]["files"] == 13 and len(found["left"]["fused"]) == 2
    assert found["right"]["operators"] == 8 and not found["right"]["fused"]
    dumps.files_of(dumps.step_folder(NPU, 0), "top.0/linear_relu")[0].unlink()
    assert "1 files are missing" in recps("ac", code=65).stderr


def test_where_a_folder_is_missing_what_makes_it_is_said(here):
    run = recps("ac", "-c", code=66)
    assert f"{NPU} is not there" in run.stderr and f"{TF} is not" in run.stderr
    assert "recps-train --device npu --dump" in run.stderr
    dumps.write_step("other/npu/debug_0", 0, make_step())
    dumps.write_step("other/tf/dump", 0, make_step())
    recps("ac", "-c", "--folder", "other")
    assert list(pathlib.Path("other/temp/vector_compare").glob("*.csv"))


def test_damaged_files_are_named_and_the_rest_is_compared(here):
    folder, _ = write_pair(make_step(), make_step())
    [file] = dumps.files_of(folder, "top.0/linear_relu", "output")
    file.write_bytes(b"no numbers")
    assert file.name in recps("ac", "-c", code=65).stderr
    assert [line["Output"] for line in lines_of(tables()[0])] == [
        "0:1", "", "0:1;1:1", ""]


# ---- vc ----

def test_vc_compares_what_is_given_and_a_graph_of_several(here):
    left = make_step()
    for path, ops in ((NPU, left), (NPU_1, noisy(left, {"emb": 9}))):
        dumps.write_step(path, 0, ops)
        folder = dumps.step_folder(path, 0, model="other.model")
        folder.parents[1].mkdir(exist_ok=True)
        shutil.copytree(dumps.step_folder(path, 0).parents[1],
                        dumps.step_folder(path, 0, model="other_model").parents[1],
                        dirs_exist_ok=True)
    assert "give one of them" in recps(
        "vc", "-lt", NPU_1, "-rt", NPU, code=66).stderr
    run = recps("vc", "-lt", NPU_1, "-rt", NPU, "-g", "other.model", code=1)
    assert "other_model/1" in run.stdout and "little_demo" not in run.stdout
    assert lines_of(tables()[0])[0]["type"] == "lookup"
    assert "has no dump of a model third" in recps(
        "vc", "-lt", dumps.step_folder(NPU, 0), "-rt", NPU, "-g", "third",
        code=66).stderr
    # down to a step's folder
    recps("vc", "-lt", dumps.step_folder(NPU, 0), "-rt",
          dumps.step_folder(NPU, 0))
    found = answer("vc", "-lt", NPU_1, "-rt", NPU, "-g", "little_demo", code=1)
    assert found["verdict"] == "lookup" and pathlib.Path(found["file"]).is_file()


def test_a_graph_that_is_not_there_is_said(here):
    write_pair(make_step(), make_step())
    for path in (NPU, TF):
        folder = dumps.step_folder(path, 0).parents[1]
        shutil.copytree(folder, folder.parent / "other_model")
    for words in (["vc", "-lt", NPU, "-rt", TF], ["ni", "lookup.emb"]):
        run = recps(*words, "-g", "nosuch", code=66)
        assert "no model nosuch" in run.stderr
        assert "little_demo, other_model" in run.stderr


# ---- vcs ----

def test_vcs_finds_the_first_whose_inputs_are_good(here):
    left = make_step()
    right = noisy(left, {"top.0/linear_backward": 1})
    write_pair(left, right)
    recps("ac", "-c", code=1)
    run = recps("vcs", code=1)
    assert "1 of 4 operators are below 0.98" in run.stdout
    assert "output is: linear_backward top.0/linear_backward" in run.stdout
    found = answer("vcs", code=1)
    assert [line["left"] for line in found["list"]] == ["top.0/linear_backward"]
    assert found["first"]["type"] == "linear_backward"
    outputs = zip(named(left, "top.0/linear_backward")["outputs"],
                  named(right, "top.0/linear_backward")["outputs"])
    for one, (l, r) in zip(found["first"]["output"], outputs, strict=True):
        assert float(one["cosine"]) == pytest.approx(
            cosine(l.array, r.array), rel=1e-12)


def test_vcs_proposes_a_threshold_that_finds_something(here):
    left = make_step()
    for size in (0.1, 1e-3, 1e-4, 1e-5):
        shutil.rmtree("precision_data", ignore_errors=True)
        right = noisy(left, {"top.0/linear_relu": size})
        write_pair(left, right)
        recps("ac", "-c", code=0)
        run = recps("vcs")
        assert "No cosine is below 0.98" in run.stdout
        assert "of linear_relu top.0/linear_relu" in run.stdout
        command = re.search(r"something: recps (precision vcs .*)", run.stdout)
        proposed = answer("vcs")["proposed"]
        assert float(proposed) <= 1 and proposed in command.group(1)
        found = json.loads(trainer.run(
            [programs.RECPS, *command.group(1).split(), "--json"],
            code=1).stdout)
        assert found["first"]["left"] == "top.0/linear_relu"
        assert answer("vcs", "-c", str(1 - 2 * (1 - float(proposed))))["below"] == 0


def test_where_all_are_one_no_threshold_is_proposed(here):
    write_pair(make_step(), make_step())
    recps("ac", "-c")
    assert "no threshold finds anything" in recps("vcs").stdout
    assert "proposed" not in answer("vcs")
    for number in ("0.99999999", "0.1", "0.3", "-0.5", "1"):
        said = recps("vcs", "-c", number).stdout
        assert f"are below {number}\n" in said


def test_vcs_takes_the_newest_table_or_one_by_its_name(here):
    left = make_step()
    write_pair(left, noisy(left, {"top.0/linear_relu": 9}))
    recps("ac", "-c", code=1)
    [first] = tables()
    recps("vc", "-lt", NPU, "-rt", NPU)
    [second] = set(tables()) - {first}
    os.utime(first, ns=(1, 1))
    assert answer("vcs")["file"] == str(second)
    assert answer("vcs", "-f", first.name, code=1)["file"] == str(first)
    assert answer("vcs", "-f", first, code=1)["below"] >= 1
    assert answer("vcs", "-f", first, "-c", "-1")["below"] == 0


def test_vcs_sees_nan_and_what_is_no_matter_of_cosine(here):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0,
                   set_at((3, 4), np.nan))
    named(right, "top.0/linear_backward")["outputs"][0].array *= np.float32(0.5)
    write_pair(left, right)
    recps("ac", "-c", code=1)
    found = answer("vcs", "-c", "-1", code=1)
    assert found["list"][0]["output"] == [{"index": 0, "cosine": None}]
    run = recps("vcs", code=1)
    assert "0: nan" in run.stdout
    assert "1 more does not agree for another reason" in run.stdout


def test_vcs_tells_what_was_not_compared(here):
    left = make_step()
    folder, _ = write_pair(left, left)
    file, *_ = folder.glob("linear_relu.*.output.0.npy")
    file.write_bytes(file.read_bytes()[:-1])
    recps("ac", "-c", code=65)
    assert answer("vcs")["not_compared"] == 1
    assert "1 operator has a tensor that was not compared" in recps("vcs").stdout


@pytest.mark.parametrize("text, words", [
    ("Left,Right\na,b\n", "no column type"), ("", "no column Left"),
    ("Left,Right,type,Input,Output\na,b\n", "line 2: has too few columns"),
    ("Left,Right,type,Input,Output\na,b,c,0:2,\n", "line 2: Input and Output"),
    ("Left,Right,type,Input,Output\na,b,c,x,\n", "line 2: Input and Output"),
    ("Left,Right,type,Input,Output\na,b,c,0:1;,\n", "line 2: Input and Output"),
    ('Left,Right,type,Input,Output\n"a,b,c,,\n', "a quote has no end"),
    ("Left,Right,type,Input,Output,Step\na,b,c,,,x\n", "its Step"),
    ("Left,Right,type,Input,Output\na\0,b,c,,\n", "is no text"),
    ("," * 100, "too many columns")])
def test_a_table_that_is_none_is_refused(here, text, words):
    pathlib.Path("t.csv").write_text(text)
    assert words in recps("vcs", "-f", "t.csv", code=65).stderr


def test_a_table_may_have_quotes_and_other_columns(here):
    pathlib.Path("t.csv").write_text(
        'type,Left,Right,Output,Input,more\r\nlinear,"a ""b"", c",x,0:0.5,0:1,1')
    [line] = answer("vcs", "-f", "t.csv", code=1)["list"]
    assert line["left"] == 'a "b", c' and line["right"] == "x"
    assert line["input"] == [{"index": 0, "cosine": "1"}]


# ---- ni ----

def figures(array):
    """As ni's JSON has them."""
    flat = array.ravel()
    good = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
    return {"shape": list(array.shape), "min": good.min(), "max": good.max(),
            "mean": good.astype(float).mean(), "first": flat[:6],
            "nan": int(np.isnan(flat).sum()), "infinite": int(np.isinf(flat).sum())}


@pytest.mark.parametrize("name", ["top.0/linear_relu", "lookup.emb", "push.emb"])
def test_every_figure_of_ni_is_numpys(here, name):
    ops = make_step()
    one = named(ops, "top.0/linear_relu")["inputs"][0]
    one.array[0, :3] = (np.inf, np.nan, -np.inf)
    dumps.write_step(NPU, 6, ops)
    [op] = answer("ni", "-n", name)["operators"]
    [side] = op["sides"]
    assert side["side"] == "debug_0" and side["step"] == 6
    wanted = next(w for w in ops if (w["type"], w["name"]) == (op["type"],
                                                              op["name"]))
    for way in ("inputs", "outputs"):
        for found, tensor in zip(side[way], wanted[way], strict=True):
            want = figures(tensor.array)
            assert found["label"] == tensor.label
            assert found["dtype"] == dumps.DTYPES[str(tensor.array.dtype)]
            for key in ("shape", "nan", "infinite"):
                assert found[key] == want[key], key
            kind = tensor.array.dtype.type
            assert kind(found["min"]) == want["min"]
            assert kind(found["max"]) == want["max"]
            assert float(found["mean"]) == pytest.approx(want["mean"], rel=1e-9)
            assert np.array_equal([kind(x) for x in found["first"]],
                                  want["first"], equal_nan=kind == np.float32)


def test_ni_tells_that_two_steps_are_not_one(here):
    dumps.write_step(NPU, 3, make_step())
    dumps.write_step(NPU_1, 0, make_step())
    assert "The two are different steps." in \
        recps("ni", "-n", "lookup.emb").stdout
    dumps.write_step(NPU_1, 3, make_step())
    assert "different steps" not in recps("ni", "-n", "lookup.emb").stdout


def test_both_dumps_stand_side_by_side(here):
    left = make_step()
    named(left, "top.0/linear_relu")["attributes"] = {"activation": "relu",
                                                      "mixed": False}
    right = copy.deepcopy(left)
    dumps.write_step(NPU, 0, left)
    dumps.write_step(NPU_1, 0, right)
    run = recps("ni", "top.0/linear_relu")
    assert re.search(r"^tensor +figure +debug_0 +debug_1", run.stdout, re.M)
    assert "Op linear_relu top.0/linear_relu (linear + bias + relu)" in run.stdout
    assert "differs" not in run.stdout
    assert re.search(r"activation +relu +relu", run.stdout)
    assert "activation" not in recps(
        "ni", "top.0/linear_relu", "-a", "mix").stdout
    shutil.rmtree(NPU_1)
    named(right, "top.0/linear_relu")["attributes"]["mixed"] = True
    dumps.write_step(NPU_1, 0, change(right, "top.0/linear_relu", "outputs", 0,
                                      set_at((0, 0), 77)))
    run = recps("ni", "-n", "top.0/linear_relu", "-a", "mixed", code=1)
    assert re.search(r"mixed +false +true +differs", run.stdout)
    assert re.search(r"max +\S+ +77 +differs", run.stdout)
    assert len(re.findall(r"differs$", run.stdout, re.M)) == 4
    found = answer("ni", "-n", "top.0/linear_relu", code=1)
    assert not found["same"]
    assert [side["side"] for side in found["operators"][0]["sides"]] == [
        "debug_0", "debug_1"]
    # a folder that is given stands alone
    assert len(answer("ni", "linear_relu", "-lt", NPU)["operators"][0]["sides"]) == 1


def test_names_that_several_operators_have_are_listed(here):
    dumps.write_step(NPU, 0, make_step())
    run = recps("ni", "-n", "emb", code=66)
    assert re.findall(r"-n (\S+)", run.stderr) == ["lookup.emb", "push.emb"]
    run = recps("ni", "TOP", code=66)
    assert re.findall(r"-n (\S+)", run.stderr) == [
        "linear_relu.top_0_linear_relu", "linear_backward.top_0_linear_backward"]
    for name in re.findall(r"-n (\S+)", run.stderr):
        recps("ni", name)
    assert "no operator" in recps("ni", "nothing", code=66).stderr
    # one that has it in its name alone is meant
    assert answer("ni", "_RELU")["operators"][0]["name"] == "top.0/linear_relu"


def test_an_operator_that_ran_twice_is_shown_each_time(here):
    ops = make_step(fused=False)
    ops.append(copy.deepcopy(named(ops, "top.0/relu")))
    dumps.write_step(NPU, 0, ops)
    assert [op["occurrence"] for op in
            answer("ni", "top.0/relu")["operators"]] == [0, 1]
    assert "once more (2)" in recps("ni", "top.0/relu").stdout


def test_steps_and_other_folders_may_be_chosen(here):
    for step in (2, 5):
        dumps.write_step(TF, step, make_step(seed=step))
    [op] = answer("ni", "linear_relu")["operators"]  # no debug_0: tf/dump
    assert op["sides"][0]["side"] == "dump" and op["sides"][0]["step"] == 2
    [op] = answer("ni", "linear_relu", "--step", "5")["operators"]
    assert op["sides"][0]["step"] == 5
    assert "has no step 3" in recps(
        "ni", "linear_relu", "--step", "3", code=66).stderr
    assert recps("ni", "x", "--folder", "nowhere", code=66).stderr


def test_a_damaged_file_of_an_operator_is_named(here):
    folder = dumps.write_step(NPU, 0, make_step())
    [file] = dumps.files_of(folder, "top.0/linear_relu", "output")
    file.write_bytes(file.read_bytes()[:-1])
    run = recps("ni", "linear_relu", code=65)
    assert file.name in run.stderr and re.search(r"max +\?", run.stdout)
    assert answer("ni", "linear_relu", code=65)["operators"][0]["sides"][0][
        "outputs"][0]["readable"] is False


# ---- neighbours ----

def dot_of(path):
    """({id: type and name}, {(from, to)}) of a .dot file."""
    text = pathlib.Path(path).read_text(encoding="utf8")
    nodes = dict(re.findall(r'^  (op\d+) \[label="([^"]*)"', text, re.M))
    edges = set(re.findall(r"^  (op\d+) -> (op\d+) ", text, re.M))
    return nodes, {(nodes[a], nodes[b]) for a, b in edges}


def make_chain(length):
    """x -> 0 -> 1 -> …; each also reads what the one three before it gave."""
    rng = np.random.default_rng(3)
    outputs = [dumps.Tensor(rng.normal(size=(4, 2)).astype(np.float32), "y",
                            0x1000 * (i + 1)) for i in range(length)]
    return [dumps.operator(
        "add", f"part{i}",
        [outputs[k] for k in (i - 3, i - 1) if k >= 0], [outputs[i]])
        for i in range(length)]


def neighbours(length, centre, depth):
    """By the law: up through writers, and down through readers."""
    edges = {(k, i) for i in range(length) for k in (i - 3, i - 1) if k >= 0}
    found = {centre}
    for way in (0, 1):
        now = {centre}
        for _ in range(depth):
            now = {edge[way] for edge in edges if edge[1 - way] in now}
            found |= now
    return found, {e for e in edges if e[0] in found and e[1] in found}


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_neighbours_are_written_as_graphviz_and_svg(here, depth):
    dumps.write_step(NPU, 0, make_chain(12))
    found = answer("ni", "-n", "part5/add", "-s", str(depth))
    nodes, edges = dot_of(found["dot"])
    want, want_edges = neighbours(12, 5, depth)
    name = "add\\npart{}/add".format
    assert set(nodes.values()) == {name(i) for i in want}
    assert edges == {(name(a), name(b)) for a, b in want_edges}
    assert found["dot"] == f"precision_data/temp/graph/add.part5_add.{depth}.dot"
    svg = xml.dom.minidom.parse(found["svg"])
    assert len(svg.getElementsByTagName("rect")) == len(want)
    paths = svg.getElementsByTagName("path")
    assert len(paths) == 2 * len(want_edges)  # and its tip
    text = pathlib.Path(found["svg"]).read_text(encoding="utf8")
    assert "prefers-color-scheme: dark" in text and "<script" not in text
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg", found["dot"]], check=True,
                       capture_output=True, timeout=60)


def test_drawn_boxes_do_not_overlap_and_writers_are_above(here):
    dumps.write_step(NPU, 0, make_chain(20))
    found = answer("ni", "-n", "part9/add", "-s", "20")
    svg = xml.dom.minidom.parse(found["svg"])
    boxes = {}
    for group in svg.getElementsByTagName("g"):
        for rect in group.getElementsByTagName("rect"):
            place = [float(rect.getAttribute(k))
                     for k in ("x", "y", "width", "height")]
            title = group.getElementsByTagName("title")[0].firstChild.data
            boxes[title.split()[1]] = place
    assert len(boxes) == 20
    for a, (x, y, width, height) in boxes.items():
        assert x >= 0 and y >= 0
        for b, (x2, y2, width2, height2) in boxes.items():
            assert a == b or x + width <= x2 or x2 + width2 <= x or (
                y + height <= y2 or y2 + height2 <= y)
    for i in range(1, 20):
        assert boxes[f"part{i - 1}/add"][1] < boxes[f"part{i}/add"][1]


def test_names_in_drawings_are_escaped(here):
    ops = make_chain(3)
    ops[1]["name"] = 'a<b>&"c\\d'
    dumps.write_step(NPU, 0, ops)
    found = answer("ni", "-n", "part0/add", "-s", "3")
    svg = xml.dom.minidom.parse(found["svg"])
    titles = [t.firstChild.data for t in svg.getElementsByTagName("title")]
    assert 'add a<b>&"c\\d' in titles
    assert r'label="add\na<b>&\"c\\d"' in pathlib.Path(
        found["dot"]).read_text(encoding="utf8")


def test_too_many_operators_to_draw_are_refused(here):
    array = np.zeros(1, np.float32)
    first = dumps.Tensor(array, "y", 0x1000)
    ops = [dumps.operator("fill", "first", [], [first])]
    ops += [dumps.operator("add", f"p{i}", [first], []) for i in range(1001)]
    dumps.write_step(NPU, 0, ops)
    run = recps("ni", "first/fill", "-s", "1", code=70)
    assert "1002 operators" in run.stderr and "go less deep" in run.stderr
    recps("ni", "first/fill", "-s", "0")


def test_sides_have_names_that_tell_them_apart(here):
    for path in (NPU, NPU_1):
        dumps.write_step(path, 2, make_step())
    run = recps("ni", "lookup.emb")
    assert "debug_0: step 2: " in run.stdout and " of 1" not in run.stdout
    run = recps("ni", "lookup.emb", "-lt", NPU + "/", "-rt", NPU_1 + "/")
    assert "debug_1: step 2: " in run.stdout
    run = recps("ni", "lookup.emb", "-lt", dumps.step_folder(NPU, 2), "-rt",
                dumps.step_folder(NPU_1, 2))
    assert "left: step 2: " in run.stdout and "right: step 2" in run.stdout
    run = recps("ni", "lookup.emb", "-lt", NPU, "-rt", NPU)
    assert "left: step 2: " in run.stdout and "right: step 2" in run.stdout
    dumps.write_step(NPU, 3, make_step())
    assert "left: step 2, one of 2 that are dumped: " in recps(
        "ni", "lookup.emb", "-lt", f"{NPU}/dump/{dumps.TIME}/0/little_demo/1",
        code=0).stdout


def test_columns_stand_below_each_other(here):
    """Characters count, not bytes, and no line ends in blanks."""
    ops = make_step()
    for op in ops:
        op["attributes"] = {"holds": "a … b", "say": "ä"}
    dumps.write_step(NPU, 0, ops)
    for op in ops:
        op["attributes"] = {"holds": "a b", "say": "ä"}
    dumps.write_step(NPU_1, 0, ops)
    run = recps("ni", "linear_relu", code=1)
    table = run.stdout.split("\n\n", 1)[1].splitlines()
    right = table[0].index("debug_1")
    # six numbers of a side are three rows: two sides are not too wide
    assert max(map(len, table)) <= 120
    one = answer("ni", "linear_relu", code=1)["operators"][0]["sides"][0]
    first = " ".join(f"{float(x):.6g}" for x in one["inputs"][0]["first"])
    at = next(i for i, line in enumerate(table) if " first " in line)
    shown = [line[:right].replace("first", "").replace("...", "").split()
             for line in table[at:at + 3]]
    assert first.split() == sum(shown, [])
    for line in table:
        assert line == line.rstrip()
        assert len(line) <= right or line[right] != " "
        assert line[right - 2:right].strip() == ""


# ---- bad usage ----

@pytest.mark.parametrize("words", [
    ["ac", "-l"], ["ac", "-l", "x"], ["ac", "-l", "-1"], ["ac", "extra"],
    ["ac", "--threshold", "2"], ["vc"], ["vc", "-lt", "a"], ["vc", "-rt", "a"],
    ["vc", "a", "b"], ["vcs", "-c", "1.5"], ["vcs", "-c", "x"],
    ["vcs", "-l", "many"], ["vcs", "-f"], ["ni"], ["ni", "-n"], ["ni", ""],
    ["ni", "a", "-n", "b"], ["ni", "a", "-s", "-1"], ["ni", "a", "-s", "9999999"],
    ["ni", "a", "--step", "x"], ["shell", "x"], ["vcs", "--nonsense"]])
def test_bad_usage_is_64(here, words):
    assert recps(*words, code=64).stderr


# ---- the prompt ----

def shell(text, code=0, env=None):
    done = subprocess.run(
        [str(programs.RECPS), "precision", "shell"], input=text, text=True,
        capture_output=True, timeout=60, check=False,
        env=programs.environment(**(env or {})))
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_pipe_is_a_script(here):
    left = make_step()
    write_pair(left, noisy(left, {"top.0/linear_relu": 9}))
    run = shell("\n# a comment\nac -c\n  vcs -c 0.9 -l 1 # and one\n"
                "ni -n 'lookup.emb'\nni top.0\\/linear_relu --json\nquit\nfoo\n",
                code=1)
    assert "PrecisionTool" not in run.stdout and run.stderr == ""
    assert len(tables()) == 1
    assert "output is: linear_relu top.0/linear_relu" in run.stdout
    assert "Op lookup emb" in run.stdout
    assert json.loads(run.stdout.splitlines()[-1])["same"]
    assert shell("").stdout == ""


def test_each_line_begins_anew(here):
    """No flag, answer or word of the line before stays."""
    dumps.write_step(NPU, 0, make_step())
    run = shell("ni nothing --json\nni linear_relu --json\nni nothing\n"
                "ni other --json", code=66)
    first, second, third = map(json.loads, run.stdout.splitlines())
    assert "nothing" in first["error"] and "other" in third["error"]
    assert second["operators"][0]["type"] == "linear_relu"


def test_unknown_commands_and_open_quotes_are_said(here):
    run = shell("nj\nzebra\nni 'a\nshell\nhelp\nhelp ni\nhelp zebra\n", code=64)
    assert 'no command "zebra"' in run.stderr
    assert "a quote has no end" in run.stderr
    assert 'no command "shell"' in run.stderr
    for word in ("ac", "vcs", "vc", "ni", "compare", "nan", "exit"):
        assert re.search(rf"^  {word} +", run.stdout, re.M)
    assert "usage: recps precision ni" in run.stdout


class Prompt:
    """recps precision shell at a terminal."""

    def __init__(self, home):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(programs.environment(
                TERM="xterm", XDG_STATE_HOME=str(home), HOME=str(home)))
            os.execv(programs.RECPS, [str(programs.RECPS), "precision", "shell"])
        self.wait("PrecisionTool > ")

    def wait(self, text, seconds=30):
        """Until it is seen; what is seen is forgotten then."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], 0.2)
            assert ready or time.monotonic() < end, self.seen
            if ready:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text, wanted):
        os.write(self.fd, text.encode())
        return self.wait(wanted)

    def interrupt(self):
        """Ctrl+C until the prompt is back: dash forgets one that comes while
        it starts a program, and no one else can tell it again."""
        for _ in range(6):
            os.write(self.fd, b"\x03")
            try:
                return self.wait("PrecisionTool > ", seconds=5)
            except AssertionError:
                pass
        raise AssertionError(self.seen)

    def end(self, text):
        """The exit code after this."""
        os.write(self.fd, text.encode())
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:  # the terminal is gone
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def has_libedit():
    return b"PrecisionTool" in programs.RECPS.read_bytes() and (
        b"precision_history" in programs.RECPS.read_bytes())


@pytest.mark.parametrize("way", ["\x03", "\x04", "exit\n", "vc\x03"])
def test_the_prompt_is_left_by_ctrl_c_and_ctrl_d(here, way):
    assert Prompt(here).end(way) == 0


def test_commands_run_at_the_prompt(here):
    dumps.write_step(NPU, 0, make_step())
    prompt = Prompt(here)
    prompt.type("ni linear_relu\n", "Op linear_relu top.0/linear_relu")
    prompt.wait("PrecisionTool > ")
    prompt.type("nonsense\n", "no command")
    prompt.wait("PrecisionTool > ")
    assert prompt.end("\x04") == 0


@pytest.mark.skipif(not has_libedit(), reason="built without libedit")
def test_the_prompt_completes_and_remembers(here):
    dumps.write_step(NPU, 0, make_step())
    pathlib.Path(RESULTS).mkdir(parents=True)
    pathlib.Path(RESULTS, "table_of_mine.csv").write_text("")
    prompt = Prompt(here)
    prompt.type("n\t", "nan  ni")
    prompt.type("i -n top.0/linear_r\t", "elu ")
    prompt.type("-\t", "--attr  --folder")
    prompt.type("-lef\t\x15", "t ")
    prompt.type("vcs -f tab\t\x15", "le_of_mine.csv ")
    prompt.type("\x15ni lookup.emb\n", "Op lookup emb")
    prompt.wait("PrecisionTool > ")
    prompt.type("\x1b[A", "ni lookup.emb")  # up
    assert prompt.end("\x03") == 0
    assert (here / "recps/precision_history").is_file()
    prompt = Prompt(here)
    prompt.type("\x1b[A\n", "Op lookup emb")  # from the last time
    assert prompt.end("exit\n") == 0


@pytest.mark.skipif(not has_libedit(), reason="built without libedit")
def test_lines_are_kept_whatever_ends_the_prompt(here):
    """Ctrl+C before the first key of a line, and a kill."""
    kept = here / "recps/precision_history"
    prompt = Prompt(here)
    prompt.type("nonsense 1\n", "no command")
    prompt.wait("PrecisionTool > ")
    assert prompt.end("\x03") == 0
    assert "nonsense" in kept.read_text()
    prompt = Prompt(here)
    prompt.type("nonsense 2\n", "no command")
    prompt.wait("PrecisionTool > ")
    os.kill(prompt.pid, signal.SIGKILL)
    assert prompt.end("") == -signal.SIGKILL
    lines = kept.read_text()
    assert lines.count("nonsense") == 2


def test_ctrl_c_ends_the_command_and_not_the_prompt(here):
    prompt = Prompt(here)
    prompt.type("check-deterministic -- sh -c 'echo up >/dev/tty; sleep 60'\n",
                "up\r\n")
    prompt.interrupt()
    os.mkfifo("waits")
    prompt.type("vcs -f ./waits\n", "waits\r\n")
    time.sleep(0.5)  # it waits for a writer by now
    prompt.interrupt()
    prompt.type("nonsense\n", "no command")
    prompt.wait("PrecisionTool > ")
    assert prompt.end("\x03") == 0


def test_a_pasted_command_has_its_two_words(here):
    dumps.write_step(NPU, 0, make_step())
    run = shell("recps precision ni lookup.emb\nrecps precision\n"
                "recps precision help ni\nrecps precision exit\nzebra\n")
    assert "Op lookup emb" in run.stdout and "  vcs " in run.stdout
    assert "usage: recps precision ni" in run.stdout
    assert "only the commands of recps precision" in shell(
        "recps top\n", code=64).stderr


@pytest.mark.skipif(not has_libedit(), reason="built without libedit")
def test_a_pasted_command_completes(here):
    dumps.write_step(NPU, 0, make_step())
    prompt = Prompt(here)
    prompt.type("recps precision n\t", "nan  ni")
    prompt.type("\x15recps precision ni -n top.0/linear_r\t", "elu ")
    assert prompt.end("\x03") == 0


# ---- the documentation ----

def test_the_documentations_commands_run(here):
    page = (programs.ROOT / "docs/PRECISION.md").read_text(encoding="utf8")
    [script] = re.findall(r"test_precision_guide.py -->\n```sh\n(.*?)```", page,
                          re.S)
    left = make_step()
    write_pair(left, noisy(left, {"top.0/linear_relu": 9}))
    dumps.write_step(NPU_1, 0, left)
    trainer.run(["sh", "-eu", "-c", script], env={
        "PATH": f"{programs.RECPS.parent}:{os.environ['PATH']}"})
    assert len(tables()) == 2
    assert list(pathlib.Path("precision_data/temp/graph").glob("*.svg"))
