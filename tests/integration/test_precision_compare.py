# SPDX-License-Identifier: Apache-2.0
"""recps precision compare, of dumps that NumPy wrote: figures against NumPy's in
float64, verdicts, fused operators and whole dumps."""
import copy
import csv
import re

import numpy as np
import pytest

from comparing import (B, DIM, answer, change, make_step, named, recps,
                       set_at, write_two)
import numpy_dumps as dumps
import programs
import trainer

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")


# ---- figures ----

def figures(left, right):
    l, r = left.ravel().astype(float), right.ravel().astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(l - r)
        relative = np.where(apart == 0, 0.0, apart / np.abs(l))
    lengths = sorted([np.linalg.norm(l), np.linalg.norm(r)])
    return {"cosine": l @ r / (np.linalg.norm(l) * np.linalg.norm(r)),
            "max_absolute": apart.max(), "max_relative": relative.max(),
            "mean_absolute": apart.mean(),
            "length_ratio": lengths[0] / lengths[1]}


def test_every_figure_is_numpys(tmp_path):
    left = make_step()
    rng = np.random.default_rng(5)
    right = copy.deepcopy(left)
    for op in right:
        for one in op["inputs"] + op["outputs"]:
            if one.array.dtype == np.float32:
                noise = rng.normal(size=one.array.shape) * 1e-3
                one.array = (one.array + noise).astype(np.float32)
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, "-o", tmp_path / "t.csv")
    assert found["verdict"] == "same" and found["same"]
    [step] = found["steps"]
    for op, l, r in zip(step["operators"], left, right):
        assert op["name"] == l["name"]
        for way in ("inputs", "outputs"):
            for one, x, y in zip(op[way], l[way], r[way]):
                if x.array.dtype != np.float32:
                    assert one["equal_bytes"] and one["cosine"] == 1
                    continue
                for key, value in figures(x.array, y.array).items():
                    assert float(one[key]) == pytest.approx(value, rel=1e-8), key
    with open(tmp_path / "t.csv", encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0])[:6] == ["Left", "Right", "type", "Input", "Output",
                                  "Step"]
    for line, l, r in zip(lines, left, right):
        assert (line["Left"], line["type"], line["Step"]) == (
            l["name"], l["type"], "6")
        for column, way in (("Input", "inputs"), ("Output", "outputs")):
            cells = dict(cell.split(":") for cell in line[column].split(";")
                         if cell)
            assert len(cells) == len(l[way])
            for number, (x, y) in enumerate(zip(l[way], r[way])):
                if x.array.dtype == np.float32:
                    value = figures(x.array, y.array)["cosine"]
                    assert float(cells[str(number)]) == pytest.approx(
                        value, rel=1e-13)
                    assert -1 <= float(cells[str(number)]) <= 1


def test_the_same_dump_is_the_same_in_every_file(tmp_path):
    a, b = write_two(tmp_path, make_step(), make_step())
    run = recps(a, b)
    assert "all 13 files that were compared" in run.stdout and run.stderr == ""
    recps(a, b, "--exact")


@pytest.mark.parametrize("left, right, cosine", [
    ([0, 0, 0], [0, 0, 0], 1), ([0, 0, 0], [1, 0, 0], 0),
    ([1, 2, 3], [0, 0, 0], 0), ([1, 2, 3], [-1, -2, -3], -1),
    ([1, 2, 3], [2, 4, 6], 1), ([np.nan, 2, 3], [np.nan, 2, 3], 1),
    ([np.nan, 2, 3], [1, 2, 3], "nan"), ([np.inf, 1, 1], [np.inf, 1, 2], "nan"),
    ([1, 2, 3], [1, np.inf, np.nan], "nan")])
def test_cosines_of_zero_and_of_what_is_not_finite(tmp_path, left, right, cosine):
    ops = [dumps.operator("add", "top", [np.ones(2, np.float32)],
                          [np.array(v, np.float32)]) for v in (left, right)]
    a, b = write_two(tmp_path, ops[:1], ops[1:])
    same = np.array_equal(left, right, equal_nan=True)
    found = answer(a, b, code=0 if same else 1)
    one = found["steps"][0]["operators"][0]["outputs"][0]
    assert one["cosine"] == (cosine if cosine == "nan" else
                             pytest.approx(cosine, abs=1e-15))
    assert one["left_nan"] == int(np.isnan(left).sum())
    assert one["right_nan"] == int(np.isnan(right).sum())
    assert one["left_inf"] == int(np.isinf(left).sum())
    assert one["right_inf"] == int(np.isinf(right).sum())
    assert one["equal_bytes"] == same
    assert found["verdict"] == ("same" if same else "operator")


# ---- verdicts ----

def test_an_operator_whose_inputs_agree_is_named(tmp_path):
    left = make_step(fused=False)
    right = change(left, "top.0/linear", "outputs", 0, lambda z: -z)
    a, b = write_two(tmp_path, left, right)
    run = recps(a, b, code=1)
    assert 'linear "top.0/linear" is the first whose output differs' in run.stdout
    assert "has cosine -1 (the threshold is 0.98)" in run.stdout
    command = re.search(r"recps (precision compare .*)", run.stdout).group(1)
    shown = trainer.run([programs.RECPS, *command.split()], code=1).stdout
    assert re.search(r"output 0 +-1\.0", shown)
    found = answer(a, b, code=1)
    assert found["verdict"] == "operator" and found["step"] == 6
    assert found["operator"]["name"] == "top.0/linear"


def test_a_length_that_differs_is_found_though_the_cosine_is_1(tmp_path):
    left = make_step(fused=False)
    right = change(left, "top.0/linear_dweight", "outputs", 0, lambda w: 2 * w)
    a, b = write_two(tmp_path, left, right)
    run = recps(a, b, code=1)
    assert "one side is 2 times as long" in run.stdout
    assert "top.0/linear_dweight" in run.stdout


@pytest.mark.parametrize("factor, threshold, code", [
    (1.2, 0.98, 0), (1.3, 0.98, 1), (1.002, 0.999999, 1), (1.001, 0.999999, 0)])
def test_lengths_may_differ_as_far_as_directions(tmp_path, factor, threshold, code):
    assert (1 / factor < 1 - np.sqrt(2 - 2 * threshold)) == (code == 1)
    ops = [dumps.operator("add", "top", [], [np.ones(9) * f]) for f in (1, factor)]
    a, b = write_two(tmp_path, ops[:1], ops[1:])
    recps(a, b, "--threshold", threshold, code=code)


def test_a_fused_operator_is_to_be_taken_apart(tmp_path):
    run = {"command": ["recps-train", "--device", "npu", "--data", "a b"]}
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    a, b = write_two(tmp_path, left, right, run=run)
    text = recps(a, b, code=1).stdout
    assert answer(a, b, code=1)["verdict"] == "fused"
    assert "linear + bias + relu" in text
    assert ("recps-train --device npu --data 'a b' --dump --fusion off --rotate\n"
            ) in text


def test_a_threshold_finds_what_another_does_not(tmp_path):
    left = make_step(fused=False)

    def round_off(array):
        return (array.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)

    right = change(left, "top.0/relu", "outputs", 0, round_off)
    a, b = write_two(tmp_path, left, right)
    assert answer(a, b)["verdict"] == "same"
    for words in (["--exact"], ["--threshold", "0.999999"]):
        found = answer(a, b, *words, code=1)
        assert found["operator"]["name"] == "top.0/relu", words
    assert "bytes are not the same" in recps(a, b, "--exact", code=1).stdout


def test_a_stale_row_is_found_by_its_key(tmp_path):
    """In another order on the other side, where nothing else differs."""
    left = make_step()
    keys, rows = (named(left, "emb")[way][0].array for way in
                  ("inputs", "outputs"))
    order = np.random.default_rng(3).permutation(B)
    changed = rows.copy()
    changed[[7, 9]] += np.float32(9)
    right = copy.deepcopy(left)
    right[0] = dumps.lookup("emb", keys[order], changed[order])
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, "--threshold", "0.9", code=1)
    assert found["verdict"] == "lookup"
    assert found["operator"]["keys_differ"] == 2
    assert found["operator"]["keys"] == [
        str(k) for k in sorted(int(keys[i]) for i in (7, 9))]
    assert found["operator"]["outputs"][0]["cosine"] == pytest.approx(
        figures(rows, changed)["cosine"], rel=1e-8)
    text = recps(a, b, code=1).stdout
    assert 'lookup of table "emb"' in text and str(keys[7]) in text


def test_a_row_that_is_a_step_old_is_told_before_it_is_below(tmp_path):
    left = make_step()
    keys, rows = (named(left, "emb")[way][0].array for way in
                  ("inputs", "outputs"))
    right = change(left, "emb", "outputs", 0, set_at(
        5, rows[5] + np.float32([.01, -.02, .03, 0])))
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b)["steps"][0]
    stale = figures(rows[5], named(right, "emb")["outputs"][0].array[5])["cosine"]
    one = found["operators"][0]["outputs"][0]
    assert one["row_key"] == str(keys[5])
    assert one["row_cosine"] == pytest.approx(stale, rel=1e-8)
    assert f'of key {keys[5]} in lookup "emb"' in found["words"]
    assert "A higher --threshold than 0.98" in found["words"]
    found = answer(a, b, "--threshold", str((1 + stale) / 2), code=1)
    assert found["operator"]["keys"] == [str(keys[5])]


def test_many_keys_are_counted_and_ten_are_told(tmp_path):
    left = make_step()
    right = change(left, "emb", "outputs", 0, lambda rows: -rows)
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)["operator"]
    keys = sorted(int(k) for k in named(left, "emb")["inputs"][0].array)
    assert found["keys_differ"] == B
    assert found["keys"] == [str(k) for k in keys[:10]]


def test_other_keys_are_other_data(tmp_path):
    left = make_step()
    right = change(left, "emb", "inputs", 0, set_at(3, 5))
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)
    assert found["verdict"] == "inputs"
    assert (found["operator"]["keys_left"], found["operator"]["keys_right"]) == (
        1, 1)
    assert "fed with other data" in found["words"]


def test_inputs_that_nobody_wrote_come_from_before(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "inputs", 1, lambda w: -w)
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)
    assert found["verdict"] == "inputs"
    assert "No operator of this step wrote it" in found["words"]
    assert "--dump-step '0-6'" in found["words"]


def test_an_input_that_differs_from_what_was_written_is_followed(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_backward", "inputs", 1, lambda y: -y)
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)
    assert found["verdict"] == "inputs"
    assert ('written by linear_relu "top.0/linear_relu", whose output agrees on '
            "both sides") in found["words"]


def chain(seed=1):
    """Gradients of 40 rows: a layer back, a cast, and their push. Row 5 is so
    small that no cosine of all of them sees it."""
    rng = np.random.default_rng(seed)
    f32 = np.float32
    keys = np.arange(40, dtype=np.uint64)
    dy, w = rng.normal(size=(40, 3)).astype(f32), rng.normal(size=(3, DIM))
    dx = (dy @ w.astype(f32)).astype(f32)
    dx[5] *= f32(1e-3)
    tensor = dumps.Tensor
    ops = [dumps.operator("linear_dx", "top.0", [tensor(dy, "dy", 0x1000)],
                          [tensor(dx.copy(), "dx", 0x2000)]),
           dumps.operator("cast", "emb", [tensor(dx.copy(), "x", 0x2000)],
                          [tensor(dx.copy(), "y", 0x3000)]),
           dumps.push("emb", keys, dx.copy())]
    ops[2]["inputs"][1].place = 0x3000
    return ops


ROWS = [(0, "outputs", 0), (1, "inputs", 0), (1, "outputs", 0), (2, "inputs", 1)]


@pytest.mark.parametrize("swap", [False, True])
def test_rows_that_differ_are_followed_to_where_they_began(tmp_path, swap):
    left = chain()
    right = copy.deepcopy(left)
    for op, way, number in ROWS:
        right[op][way][number].array[5] *= -1
    a, b = write_two(tmp_path, *((right, left) if swap else (left, right)))
    found = answer(a, b, code=1)
    assert found["verdict"] == "inputs" and found["operator"]["type"] == "push"
    assert "overwritten" not in found["words"]
    assert 'it is what cast "emb/cast" gave, byte for byte' in found["words"]
    assert ('it began in output 0 (dx) of linear_dx "top.0/linear_dx": 1 of 40 '
            "rows differ") in found["words"]
    assert "while its inputs agree. The fault is in this operator" in found["words"]


def test_rows_of_which_one_side_lost_its_writers_are_lost(tmp_path):
    left = chain()
    right = copy.deepcopy(left)
    right[2]["inputs"][1].array[5] *= -1
    a, b = write_two(tmp_path, left, right)
    words = answer(a, b, code=1)["words"]
    assert 'written by cast "emb/cast", whose output agrees on both sides: it was ' \
        "lost, overwritten" in words
    # and one hop before
    right[1]["inputs"][0].array[5] *= -1
    right[1]["outputs"][0].array[5] *= -1
    a, b = write_two(tmp_path / "more", left, right)
    words = answer(a, b, code=1)["words"]
    assert 'goes back to input 0 (x) of cast "emb/cast"' in words
    assert "That is not what was written before it: it was lost" in words


@pytest.mark.parametrize("swap", [False, True])
def test_a_lost_gradient_is_followed_by_its_contents(tmp_path, swap):
    """Pushed from the host, where it lies elsewhere; one side pushes zeros."""
    left = make_step()
    gradients = named(left, "emb")["outputs"][0].array * np.float32(0.25)
    left.insert(-1, dumps.operator("pooling_backward", "emb", [], [gradients]))
    left[-1] = dumps.push("emb", left[-1]["inputs"][0].array, gradients)
    right = copy.deepcopy(left)
    right[-1]["inputs"][1] = dumps.Tensor(0 * gradients, "gradients")
    a, b = write_two(tmp_path, *((right, left) if swap else (left, right)))
    found = answer(a, b, code=1)
    assert (found["verdict"], found["operator"]["type"]) == ("inputs", "push")
    assert (f"On the {'right' if swap else 'left'} it is what pooling_backward "
            '"emb/pooling_backward" gave') in found["words"]
    assert "lost, overwritten" in found["words"]


def test_a_key_that_is_pushed_twice_is_told_once(tmp_path):
    gradients = np.ones((4, DIM), np.float32)
    ops = [dumps.push("emb", [7, 5, 7, 5], g)
           for g in (gradients, gradients * np.float32([[-1], [1], [-1], [1]]))]
    a, b = write_two(tmp_path, ops[:1], ops[1:])
    found = answer(a, b, code=1)["operator"]
    assert (found["keys_differ"], found["keys"]) == (1, ["7"])
    assert found["inputs"][1]["rows_differ"] == 2


@pytest.mark.parametrize("swap", [False, True])
def test_what_is_not_finite_is_to_be_followed(tmp_path, swap):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, set_at((0, 0), np.nan))
    a, b = write_two(tmp_path, *((right, left) if swap else (left, right)))
    words = answer(a, b, code=1)["words"]
    folder = dumps.step_folder(a if swap else b, 6)
    assert f"recps precision nan {folder}\n" in words


def test_a_dense_variable_that_differs_came_from_the_servers(tmp_path):
    weight = np.arange(6, dtype=np.float32)
    ops = [{"type": "variables", "name": "top.0.weight", "holds": None,
            "attributes": {}, "inputs": [],
            "outputs": [dumps.Tensor(w, "values")]}
           for w in (weight, weight[::-1])]
    a, b = write_two(tmp_path, ops[:1], ops[1:], run={"command": "recps-train"})
    found = answer(a, b, code=1)
    assert found["verdict"] == "lookup"
    assert 'variables "top.0.weight" is the first' in found["words"]
    assert "recps-train --dump --dump-step '0-6' --rotate" in found["words"]


def test_how_the_two_were_run_is_told_where_it_differs(tmp_path):
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    dumps.write_step(tmp_path / "a", 0, left, run={"seed": 1, "mode": "sync"})
    dumps.write_step(tmp_path / "b", 0, right, run={"seed": 2, "mode": "sync"})
    text = recps(tmp_path / "a", tmp_path / "b", code=1).stdout
    assert "other settings: seed (1, 2)" in text and "mode" not in text


def test_options_that_differ_are_told_one_by_one(tmp_path):
    """Of the two sides' options; not where they dump, nor whence they came."""
    left = make_step()
    right = change(left, "top.0/linear_relu", "outputs", 0, lambda y: -y)
    given = [{"dropout": 0.5, "rotate": True, "seed": 1}, {"shuffle": 64}]
    for name, step, options in zip("ab", (left, right), given):
        dumps.write_step(tmp_path / name, 0, step, run={
            "seed": 1, "options": options,
            "environment": {"RECPS_X": name}})
    text = recps(tmp_path / "a", tmp_path / "b", code=1).stdout
    assert ("with other settings: dropout (0.5, default), "
            "shuffle (default, 64).") in text


# ---- fused against not fused ----

@pytest.mark.parametrize("swap", [False, True])
def test_a_fused_operator_meets_its_parts(tmp_path, swap):
    sides = [make_step(fused=True), make_step(fused=False)]
    a, b = write_two(tmp_path, *(sides[::-1] if swap else sides))
    found = answer(a, b)
    assert found["verdict"] == "same"
    [step] = found["steps"]
    assert step["only_left"] == step["only_right"] == 0
    assert step["files"] == step["equal_files"] == 13
    one = next(op for op in step["operators"] if op["type"] == "linear_relu")
    assert one["right" if not swap else "left"] == (
        "top.0/bias + top.0/linear + top.0/relu")


def test_a_fault_in_a_fused_operator_shows_against_its_parts(tmp_path):
    left = change(make_step(fused=True), "top.0/linear_backward", "outputs", 1,
                  lambda dw: -dw)
    a, b = write_two(tmp_path, left, make_step(fused=False))
    found = answer(a, b, code=1)
    assert found["verdict"] == "fused"
    assert found["operator"]["name"] == "top.0/linear_backward"
    assert [t["agrees"] for t in found["operator"]["outputs"]] == [True, False]


def test_a_writer_that_one_side_has_alone_is_told(tmp_path):
    """As a dropout, in place."""
    left = make_step(fused=False)
    right = change(left, "top.0/relu", "inputs", 0, lambda z: -z)
    at = right.index(named(right, "top.0/relu"))
    z = named(right, "top.0/relu")["inputs"][0]
    right.insert(at, dumps.operator("dropout", "top.0", [z], [z]))
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)
    assert (found["verdict"], found["operator"]["name"]) == (
        "inputs", "top.0/relu")
    assert ('On the right it was written by dropout "top.0/dropout", which the '
            "other side has not") in found["words"]


def test_an_operator_that_ran_twice_meets_each_time(tmp_path):
    """As --recompute runs a layer again; the second one is wrong."""
    left = make_step(fused=False)
    layer = [op for op in left if op["type"] in ("bias", "linear", "relu")]
    left += copy.deepcopy(layer)
    right = copy.deepcopy(left)
    right[-2]["outputs"][0] = dumps.Tensor(-right[-2]["outputs"][0].array)
    a, b = write_two(tmp_path, left, right)
    found = answer(a, b, code=1)
    assert found["operator"]["name"] == "top.0/linear"
    agree = [op["agrees"] for op in found["steps"][0]["operators"]
             if op["type"] == "linear"]
    assert agree == [True, False]
    # and a fused one meets the parts that ran as often
    fused = make_step(fused=True)
    fused.append(copy.deepcopy(named(fused, "top.0/linear_relu")))
    dumps.write_step(tmp_path / "c", 6, fused)
    assert answer(tmp_path / "c", a)["steps"][0]["equal_files"] == 17


def test_tensors_meet_by_label_whatever_their_index(tmp_path):
    rng = np.random.default_rng(2)
    arrays = [dumps.Tensor(rng.normal(size=5).astype(np.float32), label)
              for label in ("x", "y", "x")]
    sides = [dumps.operator("add", "top", inputs, [])
             for inputs in (arrays, [arrays[i] for i in (1, 0, 2)])]
    a, b = write_two(tmp_path, sides[:1], sides[1:])
    found = answer(a, b)
    assert found["steps"][0]["equal_files"] == 3


# ---- whole dumps ----

def test_the_first_step_that_differs_is_named(tmp_path):
    for step in (0, 5, 10):
        ops = make_step(seed=step)
        dumps.write_step(tmp_path / "a", step, ops)
        if step > 0:
            ops = change(ops, "top.0/linear_relu", "outputs", 0, lambda y: -y)
        dumps.write_step(tmp_path / "b", step, ops)
    found = answer(tmp_path / "a", tmp_path / "b", "--output", tmp_path / "c.csv",
                   code=1)
    assert found["step"] == 5 and found["verdict"] == "fused"
    assert [s["verdict"] for s in found["steps"]] == ["same", "fused", "fused"]
    with open(tmp_path / "c.csv", encoding="utf8", newline="") as file:
        assert [line["Step"] for line in csv.DictReader(file)] == (
            ["0"] * 4 + ["5"] * 4 + ["10"] * 4)
    # one of them alone, by its folder
    folder = dumps.step_folder(tmp_path / "a", 0)
    assert answer(folder, tmp_path / "b")["verdict"] == "same"


def test_steps_are_those_of_manifests(tmp_path):
    """One side's folders count 0, 1, 2; the other's are the steps."""
    for index, step in enumerate((3, 4)):
        dumps.write_step(tmp_path / "a", step, make_step(seed=step))
        dumps.write_step(tmp_path / "b", step, make_step(seed=step), index=index)
    found = answer(tmp_path / "a", tmp_path / "b")
    assert [s["step"] for s in found["steps"]] == [3, 4]
    assert found["same"]
