# SPDX-License-Identifier: Apache-2.0
"""Models of several tables from --model-config, against model_oracle.py."""
import json
import subprocess

import numpy
import pytest

import programs
import trainer

pytestmark = trainer.needs_programs

from model_oracle import Dlrm, Table  # after the marks: it may skip

OPTIMIZERS = ["sgd", "momentum", "adagrad", "rowwise_adagrad", "adam",
              "adamw", "adam_catchup", "adamw_catchup", "ftrl", "rmsprop"]
EXTRAS = {"momentum": {"momentum": 0.8, "nesterov": 1},
          "adagrad": {"initial_accumulator": 0.2},
          "adam": {"beta1": 0.8, "clip_norm": 0.004},
          "adamw": {"weight_decay": 0.05},
          "adamw_catchup": {"weight_decay": 0.02},
          "ftrl": {"l1": 0.001, "initial_accumulator": 0.3},
          "rmsprop": {"momentum": 0.5, "clip_value": 0.001}}
ROWS, BATCH, SLOTS, SEED = 96, 16, 14, 7
BOTTOM, TOP = [6, 4], [8, 1]
EXAMPLES = programs.ROOT / "conf/examples"


def feasign_file(path):
    """Bags of none to four tokens, some of them twice. Returns the rows."""
    draw = numpy.random.default_rng(11)
    rows, labels = [], []
    with open(path, "w", encoding="ascii") as file:
        for _ in range(ROWS):
            row = [[int(t) * SLOTS + slot + 2**40 for t in
                    draw.integers(0, 9, draw.integers(0, 5))]
                   for slot in range(SLOTS)]
            label = int(draw.random() < 0.5)
            rows.append(row)
            labels.append(label)
            tokens = [f"{key}:{slot}" for slot, keys in enumerate(row)
                      for key in keys]
            file.write(" ".join([f"{label}:1"] + tokens) + "\n")
    return rows, numpy.array(labels, float)


def table_of(i, optimizer, pooling):
    """A table of the file; some have bags of several fields, or two bags."""
    fields = {0: [[0, 10]], 1: [1, 11], 2: [["12-13"], 2]}.get(i, [i])
    bags = {0: [[0, 10]], 1: [[1], [11]], 2: [[12, 13], [2]]}.get(i, [[i]])
    entry = {"name": f"{optimizer}_{i}", "dimension": 2 + i % 5,
             "fields": fields, "pooling": pooling, "optimizer": optimizer,
             "learning_rate": 0.01 * (1 + i % 3), "initializer": "uniform",
             "initializer_low": -0.3, "initializer_high": 0.4,
             **EXTRAS.get(optimizer, {})}
    spec = {k: v for k, v in entry.items() if k not in ("fields", "pooling")}
    return entry, spec, bags


def make(path, pooling, dense, rows):
    """The file, and the oracle of what it describes."""
    entries, tables = [], []
    for i, optimizer in enumerate(OPTIMIZERS):
        entry, spec, bags = table_of(i, optimizer, pooling)
        keys = sorted({key for row in rows for bag in bags
                       for field in bag for key in row[field]})
        entries.append(entry)
        tables.append(Table(spec, bags, pooling,
                            numpy.array(keys, numpy.uint64), SEED))
    path.write_text(json.dumps({
        "model": "dlrm", "bottom_mlp": BOTTOM, "top_mlp": TOP,
        "dense": dense, "tables": entries}))
    return Dlrm(tables, BOTTOM, TOP, dense, SEED)


def assert_near(got, want, what):
    off = numpy.abs(got - want).max()
    assert off < 2e-6 + 1e-4 * numpy.abs(want).max(), f"{what}: {off}"


@pytest.mark.parametrize("pooling, dense, ps", [
    ("sum", {"optimizer": "adam", "learning_rate": 0.002, "beta1": 0.7}, 0),
    ("mean", {"optimizer": "momentum", "learning_rate": 0.1,
              "momentum": 0.5}, 2),
    ("sqrtn", {"optimizer": "adagrad", "learning_rate": 0.01,
               "clip_norm": 0.01}, 0)])
def test_each_optimizer_and_pooling_is_the_oracles(
        tmp_path, pooling, dense, ps):
    data, model, log, folder = (
        tmp_path / n for n in ("data.txt", "model.json", "log", "ck"))
    rows, labels = feasign_file(data)
    oracle = make(model, pooling, dense, rows)
    flags = ["--data", f"feasign:{data}", "--model-config", model,
             "--batch-size", BATCH, "--seed", SEED, "--json-log", log]
    if ps:
        trainer.launch(*flags, ps=ps, options=["--checkpoint-dir", folder])
    else:
        trainer.train(*flags, "--checkpoint-dir", folder)
    losses, _ = trainer.log_of(log)
    assert len(losses) == ROWS // BATCH
    for step, loss in losses.items():
        part = slice((step - 1) * BATCH, step * BATCH)
        want = oracle.step(rows[part], labels[part], step)
        assert abs(loss - want) < 1e-6 + 1e-5 * want
    saved = trainer.checkpoint(folder, ROWS // BATCH)
    for table in oracle.tables:
        keys, got = trainer.table(saved, table.spec["name"])
        order = numpy.argsort(keys)
        assert (keys[order] == table.model.keys[table.model.touched]).all()
        assert_near(got[order], table.model.w.value[table.model.touched],
                    table.spec["name"])
    for name, variable in oracle.variables.items():
        keys, got = trainer.table(saved, name)
        got = got[numpy.argsort(keys)].reshape(-1)[:variable.size]
        assert_near(got, variable.value().reshape(-1), name)


SYNTHETIC = ["--data", "synthetic:rows=640,keys=60", "--train-rows", 512,
             "--batch-size", 32]


@pytest.fixture(name="saved", scope="module")
def fixture_saved(tmp_path_factory):
    """A run of the example with every feature, its output and folder."""
    folder = tmp_path_factory.mktemp("saved") / "ck"
    out = trainer.launch(
        *SYNTHETIC, "--model-config", EXAMPLES / "dlrm_tables.json",
        "--sparse-schedule", "constant;context=polynomial:steps=8",
        options=["--checkpoint-dir", folder]).stdout
    return out, folder


def test_what_the_file_says_of_a_table_is_what_the_servers_have(saved):
    folder = trainer.checkpoint(saved[1], 16)
    manifest = json.loads((folder / "manifest.json").read_text())
    specs = {name: table["spec"]
             for name, table in manifest["tables"].items()}
    model = json.loads((EXAMPLES / "dlrm_tables.json").read_text())
    for table in model["tables"]:
        spec = specs.pop(table["name"])
        for name, value in table.items():
            if name not in ("fields", "pooling"):
                assert spec[name] == pytest.approx(value), name
        assert spec["seed"] == "1"
    for name, spec in specs.items():
        assert spec["optimizer"] == "adamw"
        assert spec["weight_decay"] == pytest.approx(0.01), name
    # fields 0 to 3, pushed twice at least: fewer rows than tokens occur
    assert 0 < len(trainer.table(folder, "user")[0]) < 240


def test_a_model_of_several_tables_is_evaluated_and_predicts(saved, tmp_path):
    out, folder = saved
    flags = [*SYNTHETIC, "--checkpoint-dir", folder, "--model-config",
             EXAMPLES / "dlrm_tables.json"]
    assert trainer.auc_of(trainer.train(*flags, "--evaluate").stdout) == \
        trainer.auc_of(out)
    bits = []
    for batch in (7, 100):
        path = tmp_path / f"p{batch}"
        trainer.train(*flags, "--predict", path, "--batch-size", batch)
        bits.append(path.read_text())
    assert bits[0] == bits[1]
    assert len(bits[0].splitlines()) == 128


def test_a_checkpoint_of_other_tables_is_refused(saved, tmp_path):
    model = json.loads((EXAMPLES / "dlrm_tables.json").read_text())
    flags = [*SYNTHETIC, "--checkpoint-dir", saved[1], "--evaluate",
             "--model-config", tmp_path / "model.json"]
    model["tables"][3]["dimension"] = 16
    (tmp_path / "model.json").write_text(json.dumps(model))
    done = trainer.train(*flags, code=65)
    assert "proj.other.weight" in done.stderr
    model["tables"][3].update(dimension=8, name="rest")
    (tmp_path / "model.json").write_text(json.dumps(model))
    done = trainer.train(*flags, code=65)
    assert "no table rest" in done.stderr and "--model-config" in done.stderr


@pytest.mark.parametrize("flags, code, words", [
    (["--model-config", "/nowhere/m.json"], 66, "/nowhere/m.json"),
    (["--model-config", ""], 64, "--model-config has an empty value"),
    (["--emb-dim", "8"], 64,
     "--emb-dim does not go with --model-config, whose file says it"),
    (["--model", "little_demo"], 64, "describes another"),
    (["--data", "synthetic:rows=99,fields=3"], 64,
     "dlrm_tables.json: unused_fields: field 25 is not one of the data's 3"),
    (["--sparse-schedule", "constant;emb=constant"], 64,
     'no table "emb"; it has user, history, context and other')])
def test_what_does_not_go_together_is_refused_in_words(flags, code, words):
    given = flags if "--model-config" in flags else [
        "--model-config", EXAMPLES / "dlrm_tables.json", *flags]
    data = [] if "--data" in flags else ["--data", "synthetic:rows=99"]
    assert words in trainer.train(*given, *data, code=code).stderr


def test_a_table_of_bytes_is_a_file_that_is_refused(tmp_path):
    model = json.loads((EXAMPLES / "dlrm_tables.json").read_text())
    model["tables"][0]["value_dtype"] = "int8"
    (tmp_path / "model.json").write_text(json.dumps(model))
    done = trainer.train("--data", "synthetic:rows=99", "--model-config",
                         tmp_path / "model.json", code=64)
    assert "value_dtype is int8" in done.stderr


def test_each_table_starts_from_weights_of_its_own(tmp_path):
    model = {"model": "dlrm", "bottom_mlp": [4], "top_mlp": [1],
             "dense": {"optimizer": "sgd", "learning_rate": 0},
             "tables": [{"name": name, "dimension": dim, "fields": fields,
                         "optimizer": "sgd", "learning_rate": 0}
                        for name, dim, fields in (
                            ("left", 4, [0, 2]), ("right", 3, [["3-25", 1]]))]}
    path, start, folder = (tmp_path / n for n in ("m.json", "start", "ck"))
    path.write_text(json.dumps(model))
    data = tmp_path / "data.tsv"
    made = trainer.criteo_file(data, 64, tokens=5)
    draw = numpy.random.default_rng(5)
    start.mkdir()
    for name, shape in (("bot.0.weight", (4, 13)), ("bot.0.bias", 4),
                        ("top.0.weight", (1, 10)), ("top.0.bias", 1),
                        ("proj.right.weight", (4, 3))):
        numpy.save(start / f"{name}.npy",
                   draw.normal(size=shape).astype("<f4"))
    want = {}
    for name, dim, fields in (("left", 4, [0, 2]),
                              ("right", 3, [1, *range(3, 26)])):
        pairs = sorted({(f, -1 if row[2][f] is None else
                         row[2][f] * 2654435761 % 2**32)
                        for row in made for f in fields})
        rows = draw.normal(size=(len(pairs), dim)).astype("<f4")
        numpy.save(start / f"{name}.weight.npy", rows)
        (start / f"{name}.keys.tsv").write_text("".join(
            f"{i}\t{f}\t{t}\n" for i, (f, t) in enumerate(pairs)))
        want[name] = sorted(map(tuple, rows.tolist()))
    flags = ["--data", f"criteo:{data}", "--model-config", path,
             "--init-from", start, "--batch-size", 32]
    out = trainer.train(*flags, "--checkpoint-dir", folder).stdout
    for name, rows in want.items():
        got = trainer.table(trainer.checkpoint(folder, 2), name)[1]
        assert sorted(map(tuple, got.tolist())) == rows
        assert f"init-from: {name}: {len(rows)} keys assigned" in out
    (start / "left.keys.tsv").write_text("0\t1\t7\n")
    done = trainer.train(*flags, code=65)
    assert "field 1 does not go to table left" in done.stderr


SMALL = ["--data", "synthetic:rows=400,keys=50", "--batch-size", 20]


def described(**table):
    return json.dumps({
        "model": "dlrm", "bottom_mlp": [8], "top_mlp": [1],
        "dense": {"optimizer": "momentum", "nesterov": True},
        "tables": [{"name": "t", "dimension": 8, "optimizer": "sgd",
                    "device_vocabulary_size": 50, **table}]})


def losses_of(tmp_path, text):
    model, log = tmp_path / "model.json", tmp_path / "log"
    model.write_text(text)
    trainer.train(*SMALL, "--model-config", model, "--json-log", log)
    return trainer.log_of(log)[0]


@pytest.mark.parametrize("given, kind, low, high", [
    ({}, "truncated_normal", 0, (1 / 50) ** 0.5 / 0.87962566103423978),
    ({"initializer_mode": "fan_out", "initializer_distribution": "normal",
      "initializer_scale": 0.5}, "normal", 0, (0.5 / 8) ** 0.5),
    ({"initializer_mode": "fan_avg", "initializer_distribution": "uniform"},
     "uniform", -((3 / 29) ** 0.5), (3 / 29) ** 0.5)])
def test_variance_scaling_is_the_numbers_that_it_comes_to(
        tmp_path, given, kind, low, high):
    got = losses_of(tmp_path, described(initializer="variance_scaling", **given))
    assert got == losses_of(tmp_path, described(
        initializer=kind, initializer_low=low, initializer_high=high))
    assert got != losses_of(tmp_path, described())


def test_switches_may_be_true_and_false(tmp_path):
    def rounded(value):
        return losses_of(tmp_path, described(
            value_dtype="bfloat16", stochastic_rounding=value))
    assert rounded(True) == rounded(1) != rounded(False) == rounded(0)


def test_the_file_may_be_a_pipe():
    done = subprocess.run(
        [str(word) for word in (trainer.TRAIN, *SMALL, "--model-config",
                                "/dev/stdin")],
        input=described(), env=programs.environment(), capture_output=True,
        text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_table_named_as_a_variable_is_refused_with_its_place(tmp_path):
    model = tmp_path / "model.json"
    model.write_text(described(name="bot.0.weight"))
    done = trainer.train(*SMALL, "--model-config", model, code=64)
    assert (f"{model}: tables[0] (bot.0.weight) has the name of a dense "
            "variable" in done.stderr)
