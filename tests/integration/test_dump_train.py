# SPDX-License-Identifier: Apache-2.0
"""recps-train --dump: its files, against the model computed again in float64
from nothing but the rows, variables and batch that they have."""
import json
import os
import re

import numpy
import pytest

import programs
import train_dumps
import trainer

pytestmark = trainer.needs_programs

CONFIG = programs.ROOT / "conf/examples/dlrm_tables.json"
ROWS, BATCH = 400, 100


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.txt"
    return path, trainer.criteo_file(path, ROWS)


def demo(data, *flags):
    """Of narrow layers."""
    config = data[0].parent / "demo.json"
    told = json.loads((CONFIG.parent / "little_demo.json").read_text())
    config.write_text(json.dumps(told | {"mlp": [48, 16]}))
    return ["--data", "synthetic:rows=300,seed=4", "--model-config", config,
            "--batch-size", BATCH, *flags]


def dlrm(data, *flags):
    return ["--data", f"criteo:{data[0]}", "--model-config", CONFIG,
            "--batch-size", BATCH, *flags]


@pytest.fixture(scope="module")
def dumped(data, tmp_path_factory):
    """(folder, what was printed) of steps 0 and 2, fused and in parts."""
    folder = tmp_path_factory.mktemp("dump")
    said = {}
    for fusion in ("on", "off"):
        said[fusion] = trainer.train(
            *dlrm(data), "--dump-step", "0|2", "--dump-path", folder / fusion,
            "--fusion", fusion).stdout
    return folder, said


# --- an oracle ---------------------------------------------------------------

class Model:
    """What a step's operators have to give, by their names."""

    def __init__(self, step):
        self.values = {name: o.output("values").astype(float)
                       for name, o in step.named("variables").items()}
        self.step = step
        self.outputs = {}

    def pool(self, table):
        pooling = self.step.operator("pooling", f"{table}/pooling")
        lookup = self.step.operator("lookup", table)
        rows = lookup.output("rows").astype(float)
        assert pooling.input("rows").tobytes() == \
            lookup.output("rows").tobytes()
        slots, starts = pooling.input("slots"), pooling.input("starts")
        how = pooling.attributes["pooling"]
        bags = [rows[slots[a:b]] for a, b in zip(starts, starts[1:])]
        power = {"sum": 0, "mean": 1, "sqrtn": .5}[how]
        self.divisor = numpy.array([max(len(b), 1) ** power for b in bags])
        pooled = numpy.array([b.sum(0) for b in bags]) / self.divisor[:, None]
        shape = pooling.output("pooled").shape
        self.outputs[pooling.name, "pooled"] = pooled.reshape(shape)
        return pooled.reshape(shape)

    def mlp(self, prefix, x, last):
        """Forward; what the backward needs."""
        tape = []
        names = sorted({n.rsplit(".", 1)[0] for n in self.values
                        if n.startswith(prefix + ".")})
        for i, name in enumerate(names):
            relu = last or i + 1 < len(names)
            y = x @ self.values[f"{name}.weight"].T + \
                self.values[f"{name}.bias"]
            y = numpy.maximum(y, 0) if relu else y
            tape.append((name, x, y, relu))
            self.outputs[f"{name}/linear" + ("_relu" if relu else ""), "y"] = y
            x = y
        return x, tape

    def mlp_back(self, tape, dy, wants_dx=True):
        for i, (name, x, y, relu) in reversed(list(enumerate(tape))):
            dz = dy * (y > 0) if relu else dy
            at = f"{name}/linear_backward"
            self.outputs[at, "dbias"] = dz.sum(0)
            self.outputs[at, "dweight"] = dz.T @ x
            dy = dz @ self.values[f"{name}.weight"]
            if i > 0 or wants_dx:
                self.outputs[at, "dx"] = dy
        return dy

    def loss(self, logits):
        bce = self.step.operator("bce", "loss/bce")
        labels, scale = bce.input("labels"), bce.input("scale")
        assert scale.tolist() == [1 / BATCH, 1 / BATCH]
        p = 1 / (1 + numpy.exp(-logits))
        self.outputs["loss/bce", "loss"] = numpy.array([
            scale[0] * (numpy.logaddexp(0, logits) - labels * logits).sum()])
        self.outputs["loss/bce", "dlogits"] = (p - labels) * scale[1]
        return self.outputs["loss/bce", "dlogits"]

    def check(self):
        """Everything that the model wrote is what it had to be."""
        own = ("linear", "linear_relu", "linear_backward", "dots", "bce",
               "dots_backward", "pooling", "cast", "relu", "relu_backward",
               "add", "contiguous")
        seen = set()
        for operator in self.step.operators:
            if operator.type not in own:
                continue
            for t in operator.entries["outputs"]:
                key = operator.name, t["label"]
                if operator.type == "contiguous":
                    key = operator.name, t["label"], operator.occurrence
                numpy.testing.assert_allclose(
                    operator.output(t["label"]), self.outputs[key],
                    rtol=2e-4, atol=2e-6, err_msg=str(key))
                seen.add(key)
        assert seen == set(self.outputs)


def dlrm_model(step):
    """Tables of other widths than 16 are projected."""
    model = Model(step)
    x = step.operator("linear_relu", "bot.0/linear_relu").input("x")
    b, bottom = model.mlp("bot", x.astype(float), True)
    tables = list(step.named("lookup"))
    vectors, divisors, pooled = [b[:, None]], {}, {}
    for table in tables:
        pooled[table] = p = model.pool(table)
        divisors[table] = model.divisor
        weight = model.values.get(f"proj.{table}.weight")
        if weight is not None:
            y = p.reshape(-1, p.shape[2]) @ weight.T
            model.outputs[f"{table}/linear", "y"] = y
            p = y.reshape(len(b), -1, 16)
            model.outputs[f"{table}/cast", "y"] = p
        vectors.append(p)
    v = numpy.concatenate(vectors, 1)
    low = numpy.tril_indices(v.shape[1], -1)
    z = (v @ v.transpose(0, 2, 1))[:, low[0], low[1]]
    top_input = numpy.concatenate([b, z], 1)
    model.outputs["interaction/dots", "y"] = top_input
    logits, top = model.mlp("top", top_input, False)
    dtop = model.mlp_back(top, model.loss(logits))
    dots = numpy.zeros((len(b), v.shape[1], v.shape[1]))
    dots[:, low[0], low[1]] = dots[:, low[1], low[0]] = dtop[:, 16:]
    dv = dots @ v
    dv[:, 0] += dtop[:, :16]
    model.outputs["interaction/dots_backward", "dv"] = dv
    first, given, copies = 1, {}, 0
    for table in tables:
        bags = pooled[table].shape[1]
        d = dv[:, first:first + bags]
        first += bags
        weight = model.values.get(f"proj.{table}.weight")
        if weight is None:
            model.outputs[f"{table}/cast", "y"] = d
        else:
            model.outputs["contiguous", "y", copies] = d
            copies += 1
            flat = d.reshape(-1, 16)
            at = f"{table}/linear_backward"
            model.outputs[at, "dweight"] = flat.T @ pooled[table].reshape(
                len(flat), -1)
            d = model.outputs[at, "dx"] = flat @ weight
        given[table] = d.reshape(len(divisors[table]), -1), divisors[table]
    model.mlp_back(bottom, dv[:, 0], wants_dx=False)
    return model, given


def demo_model(step):
    model = Model(step)
    tables = list(step.named("lookup"))
    pooled, divisors = {}, {}
    for table in tables:
        pooled[table] = model.pool(table)
        divisors[table] = model.divisor
    x = numpy.concatenate([pooled[t].reshape(BATCH, -1) for t in tables], 1)
    x = model.outputs["input/relu", "y"] = numpy.maximum(x, 0)
    hidden, trunk = model.mlp("mlp", x, True)
    heads = [model.mlp(f"head_{h}", hidden, False) for h in range(2)]
    dlogits = model.loss(numpy.concatenate([h[0] for h in heads], 1))
    slopes = [model.mlp_back(heads[h][1], dlogits[:, h:h + 1])
              for h in range(2)]
    model.outputs["heads/add", "y"] = slopes[0] + slopes[1]
    dx = model.mlp_back(trunk, slopes[0] + slopes[1]) * (x > 0)
    model.outputs["input/relu_backward", "dx"] = dx
    first, given = 0, {}
    for table in tables:
        _, bags, dim = pooled[table].shape
        d = dx[:, first:first + bags * dim].reshape(-1, bags, dim)
        first += bags * dim
        model.outputs[f"{table}/cast", "y"] = d
        given[table] = d.reshape(-1, dim), divisors[table]
    return model, given


def check_pushes(step, model, given):
    """Keys and gradients, a token each; and those of each variable."""
    pushes = step.named("push")
    for table, (gradients, divisor) in given.items():
        pooling = step.operator("pooling", f"{table}/pooling")
        keys = step.operator("lookup", table).input("keys")
        starts, slots = pooling.input("starts"), pooling.input("slots")
        assert len(set(keys)) == len(keys) == slots.max() + 1
        assert (pushes[table].input("keys") == keys[slots]).all()
        numpy.testing.assert_allclose(
            pushes[table].input("gradients"),
            numpy.repeat(gradients / divisor[:, None], numpy.diff(starts),
                         axis=0), rtol=2e-4, atol=2e-6)
    for name in model.values:
        part, kind = name.rsplit(".", 1)
        if part.startswith("proj."):
            part = part[5:]
        wrote = step.operator("linear_backward", f"{part}/linear_backward")
        assert pushes[name].input().tobytes() == \
            wrote.output(f"d{kind}").tobytes()
    assert set(pushes) == set(model.values) | set(given)


# --- on the host -------------------------------------------------------------

@pytest.mark.parametrize("number", [0, 2])
def test_dlrms_operators_are_what_the_model_is(dumped, data, number):
    step = train_dumps.Step(dumped[0] / "on", number)
    model, given = dlrm_model(step)
    model.check()
    check_pushes(step, model, given)
    labels = [row[0] for row in data[1]][number * BATCH:(number + 1) * BATCH]
    assert step.operator("bce", "loss/bce").input(
        "labels")[:, 0].tolist() == labels


@pytest.mark.long
def test_little_demos_operators_are_what_the_model_is(data, tmp_path):
    trainer.train(*demo(data), "--dump-step", 1, "--dump-path", tmp_path / "out")
    step = train_dumps.Step(tmp_path / "out", 1)
    model, given = demo_model(step)
    model.check()
    check_pushes(step, model, given)


@pytest.mark.parametrize("fusion", ["on", "off"])
def test_files_are_in_the_order_of_their_fifth_field(dumped, fusion):
    step = train_dumps.Step(dumped[0] / fusion, 2)
    files = step.files()
    times = [train_dumps.time_of(file) for file in files]
    assert times == sorted(set(times))
    assert sorted(files) == sorted(p.name for p in step.folder.iterdir())
    kinds = [o.type for o in step.operators]
    assert kinds[0] == "variables" and kinds[-1] == "push"
    assert kinds.index("lookup") < kinds.index("pooling") < \
        kinds.index("dots") < kinds.index("dots_backward") < \
        kinds.index("push")


def test_parts_have_the_tensors_of_what_is_fused(dumped):
    fused = train_dumps.Step(dumped[0] / "on", 2)
    parts = train_dumps.Step(dumped[0] / "off", 2)
    assert not any(o.holds for o in parts.operators if o.type != "dots")
    for operator in fused.operators:
        where, _, kind = operator.name.partition("/")
        if kind == "linear_relu":
            relu = parts.operator("relu", f"{where}/relu")
            product = parts.operator("linear", f"{where}/linear")
            bias = parts.operator("bias", f"{where}/bias")
            assert product.input(2).tobytes() == bias.output().tobytes()
            assert relu.input().tobytes() == product.output().tobytes()
            assert relu.output().tobytes() == operator.output().tobytes()
        elif kind == "linear_backward":
            for part in ("dbias", "dweight", "dx"):
                name = f"{where}/linear_{part}"
                if name in parts.named(f"linear_{part}"):
                    assert operator.output(part).tobytes() == parts.operator(
                        f"linear_{part}", name).output(part).tobytes()
        elif operator.holds == "pooling + concat":
            concat = parts.operator("concat", f"{where}/concat")
            assert concat.output().tobytes() == operator.output().tobytes()
    loss = fused.operator("bce", "loss/bce")
    for part, label in (("loss", "loss"), ("gradient", "dlogits")):
        own = parts.operator(f"bce_{part}", f"loss/bce_{part}")
        assert own.output(label).tobytes() == loss.output(label).tobytes()


def elements(t):
    """Addresses of a tensor's elements, as far apart as they lie."""
    size = {"f32": 4, "bf16": 4, "i32": 4, "f64": 8, "u64": 8}[t["dtype"]]
    at = numpy.array(int(t["place"], 16), dtype=object)
    for n, stride in zip(t["shape"], t["strides"]):
        at = at[..., None] + numpy.arange(n).astype(object) * stride * size
    return set(at.reshape(-1))


@pytest.mark.parametrize("fusion", ["on", "off"])
def test_places_lead_to_who_wrote_what_an_operator_reads(dumped, fusion):
    """All but the batch itself was written by an earlier operator."""
    step = train_dumps.Step(dumped[0] / fusion, 0)
    written, orphans = set(), set()
    for operator in step.operators:
        for t in operator.entries["inputs"]:
            if not elements(t) <= written:
                orphans.add((operator.type, t["label"]))
        for t in operator.entries["outputs"]:
            written |= elements(t)
    orphans -= {("lookup", "keys"), ("pooling", "slots"),
                ("pooling", "starts"), ("pooling_backward", "starts"),
                ("push", "keys")}
    bce = {("bce", "labels"), ("bce", "scale")} if fusion == "on" else {
        (f"bce_{part}", label) for part in ("loss", "gradient")
        for label in ("labels", "scale")}
    dense = {("linear_relu", "x"), ("linear_backward", "x")} \
        if fusion == "on" else {("linear", "x"), ("linear_dweight", "x")}
    assert orphans == bce | dense


def test_what_it_will_take_is_said_before_it_begins(dumped):
    folder, said = dumped
    for fusion in ("on", "off"):
        first = said[fusion].splitlines()[0]
        value, unit = re.fullmatch(
            r"dump of 2 steps \(--dump-step 0\|2\) to \S+: at most some "
            r"([\d.]+) (KiB|MiB)", first).groups()
        most = float(value) * {"KiB": 2**10, "MiB": 2**20}[unit] * 1.05
        took = sum(p.stat().st_size for p in (folder / fusion).rglob("*")
                   if p.is_file())
        assert most / 2 < took < most
        assert re.search(r"dump of 2 steps: \S+ \(\d+ files, ", said[fusion])


# --- what a dump does to a run -----------------------------------------------

def run_bits(folder, flags):
    """(losses, digest of the last checkpoint)"""
    log = folder / "log.json"
    trainer.train(*flags, "--deterministic", "--json-log", log,
                  "--checkpoint-dir", folder / "save", "--save-steps", 3)
    losses = re.findall(r'"loss_bits": "(\w+)"', log.read_text())
    last = max((folder / "save").glob("ckpt-*"))
    return losses, trainer.digest(last)


def test_a_dump_changes_no_bit(data, tmp_path):
    flags = ["--data", f"criteo:{data[0]}", "--batch-size", BATCH]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain = run_bits(tmp_path / "a", flags)
    assert len(plain[0]) >= 3
    path = tmp_path / "out"
    assert run_bits(tmp_path / "b", [
        *flags, "--dump-step", "all", "--dump-path", path,
        "--dump-and-save"]) == plain
    for step in range(len(plain[0])):
        loss = train_dumps.Step(path, step).operator("bce", "loss/bce")
        assert numpy.float64(loss.output("loss")[0]).tobytes() == bytes.fromhex(
            plain[0][step])[::-1]


def test_without_steps_indices_count_from_0(tmp_path):
    flags = ["--data", "synthetic:rows=300,seed=3", "--batch-size", 100]
    trainer.train(*flags, "--dump", cwd=tmp_path)
    default = tmp_path / "precision_data/tf/dump"
    assert train_dumps.Step(default, 0).manifest["run"]["device"] == "cpu"
    refused = trainer.train(*flags, "--dump", cwd=tmp_path, code=64)
    assert "--rotate" in refused.stderr
    trainer.train(*flags, "--dump", "--rotate", cwd=tmp_path)
    assert train_dumps.Step(tmp_path / "precision_data/tf/dump.1", 0).files()
    assert train_dumps.Step(default, 0).files()


@pytest.mark.parametrize("flags, words", [
    (["--dump", "--save-steps", 2], "--dump-and-save"),
    (["--dump-step", "0", "--evaluate"], "does not go with --evaluate"),
    (["--dump", "--predict", "x"], "does not go with --predict"),
    (["--dump-step", "5-3"], "--dump-step=5-3"),
    (["--dump-step", "x"], "--dump-step=x"),
    (["--dump", "--dump-rank", 1], "there are ranks 0 to 0"),
    (["--rotate"], "give --dump, too"),
    (["--dump-limit", "1GiB"], "give --dump, too"),
    (["--fusion", "off"], "--dump"),
    (["--dump", "--dump-limit", "64KiB"], "--dump-limit"),
])
def test_what_does_not_go_with_a_dump_is_refused(tmp_path, flags, words):
    done = trainer.train("--data", "synthetic:rows=300,seed=3",
                         "--batch-size", 100, *flags, code=64, cwd=tmp_path)
    assert words in done.stderr
    assert not list(tmp_path.rglob("*.npy"))


def test_steps_that_do_not_come_are_said(tmp_path):
    done = trainer.train("--data", "synthetic:rows=300,seed=3", "--batch-size",
                         100, "--dump-step", 7, cwd=tmp_path)
    assert "dump: nothing: the run does steps 0 to 2" in done.stdout
    assert "earlier run" not in done.stdout
    flags = ["--data", "synthetic:rows=300,seed=3", "--batch-size", 100]
    trainer.train(*flags, "--dump", cwd=tmp_path)
    before = sorted(tmp_path.rglob("*.npy"))
    done = trainer.train(*flags, "--dump-step", 7, "--rotate", cwd=tmp_path)
    assert ("the dump in precision_data/tf/dump is of an earlier run"
            in done.stdout)
    assert sorted(tmp_path.rglob("*.npy")) == before


def test_the_manifest_has_every_option_that_was_given(tmp_path):
    """By flag, variable or file; no defaults, and no files of secrets."""
    conf = tmp_path / "conf.json"
    conf.write_text(json.dumps({"recps": {"dense_lr": 0.01}}))
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    trainer.train(
        "--data", "synthetic:rows=300,seed=3", "--batch-size", 128,
        "--dump", "--loss-scale", 8, "--token-file", token,
        "--micro-batch", 2, "--tf-config", conf.read_text(), cwd=tmp_path,
        env={"RECPS_DEVICE": "npu", "RECPS_SHUFFLE": "64",
             "RECPS_EPOCHS": "1"})
    path, = tmp_path.glob("precision_data/npu/debug_0/dump/*/0/dlrm/0/0.json")
    run = json.loads(path.read_text())["run"]
    for name in "admin", "unix_dir":  # the tests' own
        assert run["options"].pop(name) == run["environment"].pop(
            f"RECPS_{name.upper()}")
    assert run["options"] == {
        "data": "synthetic:rows=300,seed=3", "dump": True, "loss_scale": "8",
        "micro_batch": 2, "device": "npu", "shuffle": 64, "dense_lr": 0.01}
    assert run["environment"] == {"RECPS_DEVICE": "npu", "RECPS_SHUFFLE": "64"}
    assert str(token) not in json.dumps(run["options"])


@pytest.mark.parametrize("flags", [[], ["--device", "npu"], [
    "--device", "npu", "--fusion", "off"]])
def test_rows_without_dense_features_are_replayed(tmp_path, flags):
    """The first layer has no columns: nothing of it is dumped but its bias."""
    (tmp_path / "rows").write_text("1 2:1 5:1\n0 3:1 7:1\n" * 20)
    trainer.train("--data", f"libfm:{tmp_path / 'rows'}", "--batch-size", 10,
                  "--dump-path", tmp_path / "out", *flags)
    said = trainer.run([programs.RECPS, "precision", "replay",
                        tmp_path / "out"]).stdout
    assert "0 differ, 0 are not replayed" in said


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("blocks, what", [(100, "npy"), (24, "json")])
def test_a_dump_that_ends_early_is_told_at_once(tmp_path, device, blocks, what):
    """Files have a limit: of a tensor; of what has small ones, a manifest."""
    flags = ["--data", "synthetic:rows=300,seed=3", "--dump-step", "all",
             "--device", device, "--batch-size", 100 if what == "npy" else 8,
             "--steps", 3]
    if what == "json":
        flags += ["--emb-dim", 4, "--bottom-mlp", "4,4", "--top-mlp", "4,1"]
    done = trainer.run(
        ["sh", "-c", f"trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"", "sh",
         trainer.TRAIN, *flags], code=74, cwd=tmp_path)
    lines = done.stdout.splitlines()
    told = [i for i, l in enumerate(lines) if "goes on without a dump" in l]
    assert len(told) == 1 and "File too large" in lines[told[0]]
    assert f".{what}" in lines[told[0]]
    assert any("step 3" in l for l in lines[told[0]:])
    steps = list(tmp_path.glob("precision_data/*/*/dump/*/0/dlrm/0/*/"))
    assert [s for s in steps if not s.with_suffix(".json").exists()] == []


def test_one_rank_dumps_and_servers_do_not_show(tmp_path):
    """Of two ranks the second one; and with two servers the same bits."""
    flags = ["--data", "synthetic:rows=400,seed=3", "--batch-size", 50,
             "--steps", 2, "--fusion", "off", "--dump-step", 1, "--dump-rank",
             1, "--dump-path"]
    for ps in (1, 2):
        done = trainer.launch(*flags, tmp_path / f"{ps}", ps=ps, workers=2)
        assert done.stdout.count("dump of 1 step:") == 1
    one, two = (train_dumps.Step(tmp_path / f"{ps}", 1) for ps in (1, 2))
    assert one.manifest["run"]["rank"] == 1
    assert two.manifest["run"]["ps_count"] == 2
    train_dumps.equal(one, two)


# --- on a device -------------------------------------------------------------

NPU = ["--device", "npu"]


@pytest.fixture(autouse=True)
def own_devices(monkeypatch):
    monkeypatch.setenv("RPS_NPU_HOST", f"test-dump-{os.getpid()}")


def dump_of(path, flags, step=1):
    trainer.train(*flags, "--dump-step", step, "--dump-path", path)
    return train_dumps.Step(path, step)


@pytest.mark.parametrize("model, fusion", [
    ("dlrm", "on"), ("little_demo", "off"),
    pytest.param("dlrm", "off", marks=pytest.mark.long),
    pytest.param("little_demo", "on", marks=pytest.mark.long)])
def test_host_and_device_have_the_same_files(data, tmp_path, model, fusion):
    """The same operators, labels and shapes, and nearly the same values."""
    flags = (dlrm if model == "dlrm" else demo)(data, "--fusion", fusion)
    host = dump_of(tmp_path / "host", flags)
    device = dump_of(tmp_path / "device", [*flags, *NPU])
    assert host.forms() == device.forms()
    for a in host.operators:
        b = device.operator(a.type, a.name, a.occurrence)
        for way in ("inputs", "outputs"):
            for i, t in enumerate(a.entries[way]):
                numpy.testing.assert_allclose(
                    a.tensor(way, i), b.tensor(way, i), rtol=1e-3, atol=1e-6,
                    err_msg=f"{a.name} {way} {t['label']}")


def test_devices_operators_are_what_the_model_is(data, tmp_path):
    step = dump_of(tmp_path / "dlrm", dlrm(data, *NPU), step=2)
    model, given = dlrm_model(step)
    model.check()
    check_pushes(step, model, given)
    labels = [row[0] for row in data[1]][2 * BATCH:3 * BATCH]
    assert step.operator("bce", "loss/bce").input(
        "labels")[:, 0].tolist() == labels
    step = dump_of(tmp_path / "demo", demo(data, *NPU))
    model, given = demo_model(step)
    model.check()
    check_pushes(step, model, given)


def test_a_loop_dumps_the_steps_that_are_asked_for(data, tmp_path):
    """Whatever the size of the loop: the same files of steps 1 and 3."""
    for loop in (1, 4):
        trainer.train("--data", f"criteo:{data[0]}", "--batch-size", BATCH,
                      *NPU, "--deterministic", "--npu-loop-size", loop,
                      "--dump-step", "1|3", "--dump-path", tmp_path / f"{loop}")
    for step in (1, 3):
        left = train_dumps.Step(tmp_path / "1", step)
        right = train_dumps.Step(tmp_path / "4", step)
        assert right.manifest["run"]["loop_size"] == 4
        train_dumps.equal(left, right)
    assert not list(tmp_path.rglob("2.json"))


@pytest.mark.long
def test_a_dump_changes_no_bit_of_a_device(data, tmp_path):
    flags = ["--data", f"criteo:{data[0]}", "--batch-size", BATCH, *NPU,
             "--npu-loop-size", 2]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain = run_bits(tmp_path / "a", flags)
    assert run_bits(tmp_path / "b", [
        *flags, "--dump-step", "all", "--dump-path", tmp_path / "out",
        "--dump-and-save"]) == plain


def test_parts_of_a_batch_come_one_after_the_other(data, tmp_path):
    step = dump_of(tmp_path / "out", dlrm(data, *NPU, "--micro-batch", 3))
    sizes = []
    for part in range(3):
        linear = step.operator("linear_relu", "bot.0/linear_relu", part)
        sizes.append(len(linear.input("x")))
        backward = step.operator(
            "linear_backward", "bot.0/linear_backward", part)
        assert backward.attributes["accumulate"] == (part > 0)
        labels = [t["label"] for t in backward.entries["inputs"]]
        assert labels == ["dy", "kept", "x"] + (
            ["dbias", "dweight"] if part else [])
    assert sizes == [34, 33, 33]
    pushed = step.operator("push", "bot.0.weight").input()
    assert pushed.tobytes() == backward.output("dweight").tobytes()
    sums = sum(step.operator("linear_backward", "bot.0/linear_backward", part)
               .output("dbias") for part in range(1))
    assert numpy.array_equal(
        sums, step.operator("linear_backward", "bot.0/linear_backward", 1)
        .input("dbias"))


def test_what_is_computed_again_is_dumped_again(data, tmp_path):
    step = dump_of(tmp_path / "out", dlrm(data, *NPU, "--recompute"))
    dots = [step.operator("dots", "interaction/dots", i) for i in (0, 1)]
    assert dots[0].output().tobytes() == dots[1].output().tobytes()


def test_a_device_cache_has_lookups_of_the_rows_that_move(data, tmp_path):
    step = dump_of(tmp_path / "out", dlrm(data, *NPU, "--device-cache", 64))
    for table, lookup in step.named("lookup").items():
        scatter = step.operator("scatter", f"{table}/scatter")
        header, places = scatter.input("header"), scatter.input("places")
        keys, rows = lookup.input("keys"), lookup.output("rows")
        assert len(keys) == len(rows) == len(places) == header[1]
        assert scatter.output("y")[places].tobytes() == rows.tobytes()


@pytest.mark.parametrize("flags", [
    pytest.param(["--loss-scale", "1024"], marks=pytest.mark.long),
    ["--fusion", "off", "--loss-scale", "dynamic"],
    [*NPU, "--micro-batch", 2, "--recompute", "--dropout", "0.2",
     "--loss-scale", "1024"],
    [*NPU, "--device-cache", 64, "--offload", "--precision-mode", "mixed"],
    pytest.param([*NPU, "--fusion", "off", "--offload"],
                 marks=pytest.mark.long),
], ids=lambda f: " ".join(map(str, f)))
def test_each_operator_follows_from_what_it_read(data, tmp_path, flags):
    """recps precision replay: computed again in float64, each from its own
    inputs, and these are what others wrote."""
    dump_of(tmp_path / "out", dlrm(data, *flags))
    done = trainer.run([programs.RECPS, "precision", "replay",
                        tmp_path / "out", "--json"])
    told = json.loads(done.stdout)
    assert told["overwritten"] == told["differ"] == told["not_replayed"] == 0
    assert told["agree"] == told["operators"] > 25
    assert told["inputs"] > 60


def test_what_a_device_dumps_is_bounded(data, tmp_path):
    done = trainer.train(*dlrm(data, *NPU), "--dump", "--dump-limit", "64KiB",
                         "--dump-path", tmp_path / "out", code=64)
    assert "--dump-limit" in done.stderr
    assert not list(tmp_path.rglob("*.npy"))
