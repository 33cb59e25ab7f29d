# SPDX-License-Identifier: Apache-2.0
"""recps precision nan: each ending, on dumps that NumPy writes, beside the
guide's find_nan.py."""
import json
import subprocess

import numpy as np
import pytest

import placed_dumps as dumps
import programs

F = np.float32
KEYS = np.array([4, 17, 2 ** 64 - 1, 9], np.uint64)


def nan(path, *flags, code=1):
    done = subprocess.run(
        [str(programs.RECPS), "precision", "nan", str(path), *flags, "--json"],
        capture_output=True, text=True, timeout=60, check=False,
        env=programs.environment())
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def text(path, code=1):
    done = subprocess.run(
        [str(programs.RECPS), "precision", "nan", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
        env=programs.environment())
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def nothing(name, array):
    return array


class Model:
    """Two layers on a table's pooled rows. plant(name, array) changes what an
    operator gives, read[name] what it reads."""

    def __init__(self, dump, plant=nothing, read=None, host=True, weight=None):
        self.dump, self.plant, self.read = dump, plant, read or {}
        rng = np.random.default_rng(3)
        t = dump.tensor
        self.x = t(rng.standard_normal((8, 5)).astype(F))
        self.rows = t(rng.standard_normal((4, 3)).astype(F))
        self.w = [t(rng.standard_normal(s).astype(F) / 3)
                  for s in ((6, 8), (1, 6))]
        self.b = [t(np.zeros(6, F)), t(np.zeros(1, F))]
        self.labels = t(rng.integers(0, 2, (8, 1)).astype(F))
        self.wide = t(np.zeros((8, 8), F))
        self.store = t(np.zeros((16, 3), F))
        self.slots = t(rng.integers(0, 4, 12).astype(np.int32))
        self.starts = t(np.array([0, 1, 3, 5, 6, 8, 9, 10, 12], np.int32))
        self.host = host
        self.new_weight = t(np.zeros((6, 8), F))
        if weight is not None:
            self.w[0] = weight

    def op(self, kind, name, inputs, outputs, **more):
        label = next(iter(outputs), None)
        if label is not None:
            outputs[label].array[...] = self.plant(name, outputs[label].array)
        self.dump.op(kind, name, inputs, outputs, read=self.read.get(name),
                     **more)

    def run(self):
        t = self.dump.tensor
        self.op("lookup", "user", {"keys": t(KEYS)}, {"rows": self.rows})
        packed = t(self.rows.array.reshape(-1).copy())
        places = t(np.arange(4, dtype=np.int32))
        self.store.array[:4] = self.rows.array
        self.op("scatter", "user/scatter",
                {"packed": packed, "header": t(np.array([0, 4], np.int32)),
                 "places": places, "y": t(np.zeros((16, 3), F))},
                {"y": self.store})
        counts = np.diff(self.starts.array)
        taken = self.store.array[self.slots.array].astype(float)
        ends = self.starts.array
        pooled = self.wide[:, 5:]
        with np.errstate(over="ignore"):
            pooled.array[...] = np.array([taken[a:b].sum(0) for a, b in
                                          zip(ends[:-1], ends[1:])])
        self.op("pooling", "user/pooling",
                {"rows": self.store, "slots": self.slots,
                 "starts": self.starts}, {"pooled": pooled}, pooling="sum",
                holds="pooling + concat")
        dense = self.wide[:, :5]
        dense.array[...] = self.x.array
        self.op("copy", "dense/copy", {"x": self.x}, {"y": dense})
        with np.errstate(all="ignore"):
            hidden = t(np.maximum(self.wide.array @ self.w[0].array.T
                                  + self.b[0].array, 0).astype(F))
            self.op("linear_relu", "top.0/linear_relu",
                    {"x": self.wide, "weight": self.w[0], "bias": self.b[0]},
                    {"y": hidden}, holds="linear + bias + relu")
            logits = t((hidden.array @ self.w[1].array.T
                        + self.b[1].array).astype(F))
            self.op("linear", "top.2/linear",
                    {"x": hidden, "weight": self.w[1], "bias": self.b[1]},
                    {"y": logits}, holds="linear + bias")
            x = logits.array.astype(float)
            loss = np.maximum(x, 0) - x * self.labels.array + np.log1p(
                np.exp(-abs(x)))
            dlogits = 1 / (1 + np.exp(-x)) - self.labels.array
            dlogits = t(dlogits.astype(F))
            self.op("bce", "loss/bce",
                    {"logits": logits, "labels": self.labels},
                    {"loss": t(np.array([loss.sum()])), "dlogits": dlogits},
                    holds="loss + gradient", accumulate=False)
            slope = hidden.array > 0
            dhidden = t((dlogits.array @ self.w[1].array).astype(F))
            self.op("linear_backward", "top.2/linear_backward",
                    {"dy": dlogits, "weight": self.w[1]}, {"dx": dhidden},
                    activation="none", holds="dx")
            dz = (dhidden.array * slope).astype(F)
            dwide = t((dz @ self.w[0].array).astype(F))
            self.op("linear_backward", "top.0/linear_backward",
                    {"dy": dhidden, "kept": hidden, "x": self.wide,
                     "weight": self.w[0]},
                    {"dweight": t((dz.T @ self.wide.array).astype(F)),
                     "dx": dwide}, activation="relu",
                    holds="relu_backward + dweight + dx")
        dtokens = t(np.repeat(dwide.array[:, 5:], counts, 0).copy())
        self.op("pooling_backward", "user/pooling_backward",
                {"starts": self.starts, "dpooled": dwide[:, 5:]},
                {"dtokens": dtokens}, pooling="sum")
        gradients = np.zeros((4, 3), F)
        np.add.at(gradients, self.slots.array, dtokens.array)
        self.op("push", "user", {"keys": t(KEYS), "gradients": t(gradients)},
                {})
        self.new_weight.array[...] = self.w[0].array
        self.op("sgd", "top.0.weight/sgd",
                {"gradient": t(np.zeros((6, 8), F)), "weight": self.w[0],
                 "learning_rate": t(np.array([0.1]))},
                {"weight": dumps.Tensor(self.new_weight.array,
                                        self.w[0].place)}, weight_decay=0.0)
        return self


def put(name, at, value=np.nan):
    """A plant: one element of one operator's output."""
    def plant(operator, array):
        if operator == name:
            array = array.copy()
            array[at] = value
        return array
    return plant


def same_file(said, dump, tmp_path):
    found = dumps.find_nan(dump.folder, tmp_path / "guide")
    assert found == said["nan_file"].rpartition("/")[2]
    return found


def test_a_clean_dump_has_none(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    Model(dump).run()
    said = nan(dump.end(), code=0)
    assert said["ending"] == "clean" and said["steps"] == 1
    assert said["files"] > 30 and said["problems"] == []
    assert dumps.find_nan(dump.folder, tmp_path / "guide") is None
    assert text(tmp_path / "a", 0).startswith("no NaN and no infinity: ")


@pytest.mark.parametrize("manifest", [True, False])
def test_an_operator_whose_inputs_do_not_give_it(tmp_path, manifest):
    dump = dumps.Dump(tmp_path / "a", manifest=manifest)
    Model(dump, put("top.0/linear_relu", (3, 2))).run()
    said = nan(dump.end())
    assert said["ending"] == "operator"
    assert said["cause"]["type"] == "linear_relu"
    assert said["cause"]["name"] == (
        "top.0/linear_relu" if manifest else "top_0_linear_relu")
    assert (said["cause"]["at"], said["elements"]) == ("[3, 2]", [20])
    assert said["nan"] == said["element_count"] == 1
    name = same_file(said, dump, tmp_path)
    assert name.startswith("linear_relu.top_0_linear_relu.4.0.")
    assert name.endswith(".output.0.npy")
    assert ("--fusion off" in " ".join(said["words"])) == manifest


def test_what_is_not_fused_is_not_said_to_have_parts(tmp_path):
    dump = dumps.Dump(tmp_path / "a", fusion="off")
    Model(dump, put("top.0/linear_relu", (3, 2))).run()
    assert "--fusion off" not in " ".join(nan(dump.end())["words"])


def test_what_comes_behind_it_is_no_cause(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    Model(dump, put("top.2/linear_backward", (0, 0))).run()
    said = nan(dump.end())
    assert said["ending"] == "operator"
    assert said["cause"]["name"] == "top.2/linear_backward"
    same_file(said, dump, tmp_path)


def test_memory_that_was_overwritten_between_two(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump)
    bad = model.run().wide.array.copy()
    bad[2, 6] = bad[2, 7] = np.nan
    dump = dumps.Dump(tmp_path / "b")
    Model(dump, read={"top.0/linear_relu": {"x": bad}}).run()
    said = nan(dump.end())
    assert said["ending"] == "overwritten"
    assert said["cause"]["name"] == "top.0/linear_relu"
    assert (said["cause"]["side"], said["cause"]["label"]) == ("input", "x")
    assert said["elements"] == [22, 23] and said["element_count"] == 2
    assert said["before"]["name"] == "user/pooling"
    assert said["before"]["at"] == "[2, 1]"
    words = "\n".join(said["words"])
    assert "between pooling user/pooling and linear_relu top.0" in words
    assert "copy dense/copy (stream 0)" in words and "0x7f00" in words
    same_file(said, dump, tmp_path)


def test_overwritten_memory_is_guessed_where_places_are_not_known(tmp_path):
    dump = dumps.Dump(tmp_path / "a", manifest=False)
    model = Model(dump)
    bad = np.array(model.run().wide.array @ model.w[0].array.T)
    bad = np.maximum(bad, 0).astype(F)
    bad[0, 0] = np.inf
    dump = dumps.Dump(tmp_path / "b", manifest=False)
    Model(dump, read={"top.2/linear": {"x": bad}}).run()
    said = nan(dump.folder)
    assert said["ending"] == "overwritten"
    assert said["before"]["type"] == "linear_relu"
    assert said["cause"]["type"] == "linear"
    assert "all other elements are equal" in said["words"][-1]


@pytest.mark.parametrize("bad", [(0, 3), slice(None)])
def test_a_devices_copy_of_a_variable_that_changed_is_overwritten(
        tmp_path, bad):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump)
    values = dump.tensor(model.w[0].array.copy())
    dump.op("variables", "top.0.weight", {}, {"values": values})
    model.w[0].array[bad] = np.nan
    model.run()
    said = nan(dump.end())
    assert said["ending"] == "overwritten"
    assert said["before"]["name"] == "top.0.weight"
    assert said["cause"]["label"] == "weight"


def test_a_variable_that_is_not_finite_is_the_servers(tmp_path):
    dump = dumps.Dump(tmp_path / "a", step=6)
    model = Model(dump)
    model.w[0].array[0, 3] = np.nan
    dump.op("variables", "top.0.weight", {}, {"values": model.w[0]})
    model.run()
    said = nan(dump.end())
    assert said["ending"] == "host"
    assert said["cause"]["type"] == "variables"
    assert "the dense variable top.0.weight" in said["words"][0]


def test_a_tables_rows_are_named_by_their_keys(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    Model(dump, put("user", (slice(1, 3), 2))).run()
    said = nan(dump.end())
    assert (said["ending"], said["table"]) == ("embedding", "user")
    assert said["keys"] == ["17", str(2 ** 64 - 1)] and said["key_count"] == 2
    words = " ".join(said["words"])
    assert "keys 17, 18446744073709551615" in words
    assert "recps lookup user 17" in words
    same_file(said, dump, tmp_path)


def test_data_that_is_not_finite_came_from_the_host(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump)
    model.x.array[1, 1] = np.nan
    model.run()
    said = nan(dump.end())
    assert said["ending"] == "host"
    assert said["cause"]["name"] == "dense/copy"
    assert "data, or a start value" in said["words"][0]
    same_file(said, dump, tmp_path)


def test_a_weight_may_be_of_the_step_before(tmp_path):
    dump = dumps.Dump(tmp_path / "a", step=6)
    model = Model(dump)
    model.w[0].array[5, 1] = np.nan
    model.run()
    said = nan(dump.end())
    assert (said["ending"], said["step"]) == ("host", 6)
    assert said["cause"]["label"] == "weight"
    assert "--dump-step '5|6'" in said["words"][0]


def test_memory_that_was_overwritten_between_two_steps(tmp_path):
    dump = dumps.Dump(tmp_path / "a", step=5)
    before = Model(dump).run()
    dump.end()
    weight = before.w[0]
    dump = dumps.Dump(tmp_path / "a2", step=6)
    bad = dumps.Tensor(weight.array.copy(), weight.place)
    bad.array[0, 3] = np.nan
    Model(dump, weight=bad).run()
    path = dump.end()
    for entry in (dump.folder.parent).iterdir():
        entry.rename(tmp_path / "a/dump/20260101000000/0/model/1" / entry.name)
    assert path.is_dir()
    said = nan(tmp_path / "a")
    assert (said["ending"], said["step"], said["steps"]) == (
        "overwritten", 6, 2)
    assert said["before_step"] == 5
    assert "sgd top.0.weight/sgd" in said["before_words"]
    assert "step 5" in said["words"][0]


def test_gradients_that_change_on_their_way_are_named_by_keys(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    gradients = np.zeros((4, 3), F)
    gradients[3, 1] = np.inf
    Model(dump, read={"user": {"gradients": gradients}}).run()
    said = nan(dump.end())
    assert (said["ending"], said["table"], said["keys"]) == (
        "push", "user", ["9"])
    assert said["nan_file"] is None and said["infinite"] == 1


def test_gradients_that_change_behind_their_operator_have_keys_too(tmp_path):
    dump = dumps.Dump(tmp_path / "a", fusion="off")
    t = dump.tensor
    given, wrong = np.ones((3, 2), F), np.ones((3, 2), F)
    wrong[[0, 2], 1] = np.nan
    y = t(given)
    dump.op("cast", "user/cast", {"x": t(given)}, {"y": y})
    dump.op("push", "user", {"keys": t(np.array([8, 5, 8], np.uint64)),
                             "gradients": y}, {}, read={"gradients": wrong})
    said = nan(dump.end())
    assert said["ending"] == "overwritten"
    assert said["before"]["name"] == "user/cast"
    assert (said["table"], said["keys"]) == ("user", ["8"])
    assert 'of table "user", key 8' in said["words"][-1]


def test_numbers_that_grow_are_followed_to_their_end(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump, put("user", (1, 1), 3e38))
    model.slots.array[:] = 1
    model.run()
    said = nan(dump.end())
    assert said["ending"] == "arithmetic"
    assert said["first"]["name"] == "user/pooling"
    assert (said["table"], said["keys"]) == ("user", ["17"])
    assert "no f32 any more" in said["words"][0]


def test_a_wrong_operator_upstream_is_found_behind_finite_numbers(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump, put("user/scatter", (0, 0), 3e38))
    model.slots.array[:] = 0
    model.run()
    said = nan(dump.end())
    assert said["first"]["name"] == "user/pooling"
    assert said["ending"] == "operator"
    assert said["cause"]["name"] == "user/scatter"


def test_overwritten_finite_numbers_are_found_behind_an_overflow(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    model = Model(dump)
    store = model.run().store.array.copy()
    store[1] = -3e38
    counts = np.diff(model.starts.array)[:, None]

    def pooled(name, array):
        return (np.where(counts > 1, -np.inf, F(-3e38)) + 0 * array
                if name == "user/pooling" else array)

    dump = dumps.Dump(tmp_path / "b")
    model = Model(dump, pooled, read={"user/pooling": {"rows": store}})
    model.slots.array[:] = 1
    model.run()
    said = nan(dump.end())
    assert said["ending"] == "overwritten"
    assert said["before"]["name"] == "user/scatter"
    assert said["cause"]["name"] == "user/pooling"


def test_infinities_count_unless_they_are_looked_over(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    one, two = put("top.0/linear_relu", (3, 2), np.inf), put("loss/bce", 0)
    Model(dump, lambda name, array: two(name, one(name, array))).run()
    said = nan(dump.end())
    assert (said["ending"], said["infinite"]) == ("operator", 1)
    assert said["first"]["name"] == "top.0/linear_relu"
    found = same_file(said, dump, tmp_path)
    assert not said["file"].endswith(found)
    assert f"the first NaN: {said['nan_file']}" in text(tmp_path / "a")
    alone = nan(tmp_path / "a", "--nan-only")
    assert alone["file"].endswith(found)


def test_an_operator_without_a_reference_is_said_to_be_one(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    t = dump.tensor
    y = np.array([1, np.nan], F)
    dump.op("convolution", "a", {"x": t(np.ones(2, F))}, {"y": t(y)})
    dump.end()
    said = nan(tmp_path / "a")
    assert said["ending"] == "unknown"
    assert 'no reference for operators of type "convolution"' in (
        said["words"][0])


def test_the_first_step_that_has_one_is_told(tmp_path):
    for step in (3, 4, 7):
        dump = dumps.Dump(tmp_path / "a", step=step)
        Model(dump, put("loss/bce", 0) if step > 3 else nothing).run()
        dump.end()
    said = nan(tmp_path / "a")
    assert (said["step"], said["steps"]) == (4, 2)
    assert said["cause"]["name"] == "loss/bce"


def test_damaged_files_are_named_and_the_rest_is_looked_at(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    Model(dump, put("top.2/linear", (0, 0))).run()
    files = sorted(dump.folder.iterdir(), key=lambda p: p.name)
    for file in files:
        if ".top_2_linear." in file.name and ".input.1." in file.name:
            file.write_bytes(file.read_bytes()[:100])
        if ".dense_copy." in file.name and ".output." in file.name:
            file.unlink()
    said = nan(dump.end(), code=65)
    assert len(said["problems"]) >= 2, said["problems"]
    assert any("top_2_linear" in p for p in said["problems"])
    assert said["ending"] == "unknown"
    assert said["first"]["name"] == "top.2/linear"


def test_files_that_cannot_be_read_are_not_counted(tmp_path):
    dump = dumps.Dump(tmp_path / "a")
    Model(dump).run()
    path = dump.end()
    whole = nan(path, code=0)
    assert whole["unread"] == 0
    file = sorted(dump.folder.glob("*.output.0.npy"))[-1]
    file.write_bytes(file.read_bytes()[:-4])
    said = nan(path, code=65)
    assert (said["files"], said["unread"]) == (whole["files"] - 1, 1)
    words = text(path, code=65)
    assert "no NaN and no infinity in what could be read" in words
    assert "1 could not be read" in words


def test_the_command_of_the_docs_finds_a_dump_below_its_folder(tmp_path):
    path = tmp_path / "precision_data/npu/debug_0"
    dump = dumps.Dump(path)
    Model(dump, put("top.2/linear", (0, 0))).run()
    dump.end()
    done = subprocess.run(
        [str(programs.RECPS), "precision", "nan", "precision_data/npu/debug_0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env=programs.environment())
    assert done.returncode == 1 and done.stderr == ""
    assert "ending  operator" in done.stdout


def test_no_dump_and_no_folder_are_refused(tmp_path):
    for arguments, code in (([str(tmp_path / "none")], 66), ([], 64),
                            ([str(tmp_path)], 66)):
        done = subprocess.run(
            [str(programs.RECPS), "precision", "nan", *arguments],
            capture_output=True, text=True, timeout=60, check=False,
            env=programs.environment())
        assert done.returncode == code, done.stderr


def test_the_report_reads_as_words(tmp_path):
    dump = dumps.Dump(tmp_path / "a", step=7)
    Model(dump, put("top.2/linear", (0, 0))).run()
    lines = text(dump.end()).splitlines()
    assert lines[0].startswith("first   ") and lines[0].endswith(".npy")
    assert lines[1].strip() == ("step 7, operator 6 of 12: linear "
                                "top.2/linear, output 0 (y) [8, 1]")
    assert lines[2].strip() == ("1 NaN and 0 infinities of 8 elements, the "
                                "first at [0, 0]")
    assert lines[3].startswith("way     linear top.2/linear, output 0 (y), "
                               "element [0, 0] is nan: replayed")
    assert lines[4] == "ending  operator"
    assert "the operator linear top.2/linear is wrong" in lines[5]
