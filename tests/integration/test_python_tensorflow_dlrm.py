# SPDX-License-Identifier: Apache-2.0
"""The reference model in TensorFlow with mxrec beside PyTorch's: losses and
AUC from the same start, on Criteo's data, at two parameter servers."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

import package
import programs
import trainer

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import recps.tensorflow  # noqa: E402
import mxrec  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("dlrm_tensorflow.py")
TRAIN_ROWS = 7000

#: The two lines that a migration changes, as the guide has it, and imports.
TWO_LINES = {
    'self.table = tf.Variable(start["emb.weight"], name="emb")':
    'self.table = mxrec.get_embedding_table("emb", 16, 40000, '
    'tf.zeros_initializer, optimizer=recps.Adagrad(0.02, '
    'initial_accumulator=0.1))',
    "rows = tf.nn.embedding_lookup(self.table, ids)":
    "rows = mxrec.embedding_lookup(self.table, ids)",
    "import numpy\n": "import recps\nimport recps.compat\nimport mxrec\n"
    "import numpy\n"}


def module_of(changes):
    """The script as a module, with some lines changed."""
    text = SCRIPT.read_text("utf8")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = types.ModuleType("dlrm")
    exec(compile(text, str(SCRIPT), "exec"), module.__dict__)
    return module


class Reference:
    """A run of reference/dlrm_torch.py: its start, losses, end, and data."""

    def __init__(self, folder, epochs):
        script = trainer.SHARED / "reference/dlrm_torch.py"
        if not script.is_file():
            pytest.skip(f"{script} is not here")
        for needed in "torch", "sklearn":
            pytest.importorskip(needed)
        path = trainer.data("criteo.tsv")
        log = folder / "torch.json"
        subprocess.run(
            [sys.executable, script, "criteo", path, "--epochs", str(epochs),
             "--init-out", folder, "--json-log", log], check=True,
            env=programs.environment(OMP_NUM_THREADS="1"),
            stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.losses = [line["loss"] for line in lines[:-1]]
        self.auc = lines[-1]["auc"]
        self.epochs = epochs
        self.start = {file.name[:-4]: numpy.load(file)
                      for file in folder.glob("*.npy")}
        self._read(path, folder / "keys.tsv")
        self.train = tuple(each[:TRAIN_ROWS] for each in (
            self.dense, self.ids, self.labels))
        self.test = self.dense[TRAIN_ROWS:], self.ids[TRAIN_ROWS:]
        self.seen = numpy.unique(self.train[1])

    def _read(self, path, keys):
        number = {}
        for line in keys.read_text().splitlines():
            row, field, token = map(int, line.split("\t"))
            number[field, token] = row
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        self.labels = numpy.array([row[0] for row in rows], "f4")
        self.dense = numpy.array(
            [[numpy.log(max(float(v or 0), -2) + 3) for v in row[1:14]]
             for row in rows], "f4")
        self.ids = numpy.array(
            [[number[i, int(v, 16) if v else -1]
              for i, v in enumerate(row[14:40])] for row in rows])

    def judge(self, losses, scores):
        """Losses within 1e-4, AUC within 0.001."""
        assert len(losses) == len(self.losses)
        numpy.testing.assert_allclose(losses, self.losses, rtol=0, atol=1e-4)
        metrics = pytest.importorskip("sklearn.metrics")
        found = metrics.roc_auc_score(self.labels[TRAIN_ROWS:], scores)
        assert abs(found - self.auc) < 1e-3
        assert self.losses[-1] < self.losses[0]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return Reference(tmp_path_factory.mktemp("short"), 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Reference(tmp_path_factory.mktemp("whole"), 3)


@pytest.fixture
def rec(monkeypatch):
    """mxrec, its tables at two servers."""
    _tables.forget()
    with package.two_servers() as task:
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        yield mxrec
        _tables.forget()


def migrated(reference, eager):
    """The script with the guide's lines; rows that training does not see stay
    away, and read as zeros in the evaluation, as the reference has them."""
    module = module_of(TWO_LINES)
    with contextlib.nullcontext() if eager else tf.Graph().as_default():
        model = module.Model(reference.start)
        model.table.table.assign(
            reference.seen, reference.start["emb.weight"][reference.seen])
        run = module.train_eager if eager else module.train_session
        ended = run(model, reference.train, reference.test, reference.epochs)
    assert model.table.table.client.servers == 2
    assert model.table.size() == reference.seen.size
    return ended


@pytest.mark.parametrize("eager", [True, False])
def test_two_lines_make_the_model_recps_s(rec, short, eager):
    short.judge(*migrated(short, eager))


@pytest.mark.long
@pytest.mark.parametrize("eager", [True, False])
def test_three_epochs_are_pytorch_s(rec, whole, eager):
    whole.judge(*migrated(whole, eager))


@pytest.mark.long
@pytest.mark.parametrize("eager", [True, False])
def test_the_script_itself_is_pytorch_s_model(short, eager):
    """Before its migration: what is compared above is the same model."""
    module = module_of({})
    start = {**short.start, "emb.weight": short.start["emb.weight"].copy()}
    unseen = numpy.setdiff1d(numpy.arange(len(start["emb.weight"])),
                             short.seen)
    start["emb.weight"][unseen] = 0
    with contextlib.nullcontext() if eager else tf.Graph().as_default():
        run = module.train_eager if eager else module.train_session
        short.judge(*run(module.Model(start), short.train, short.test, 1))


@pytest.mark.long
def test_a_layer_of_recps_tensorflow_is_pytorch_s_too(whole):
    module = module_of({
        'self.table = tf.Variable(start["emb.weight"], name="emb")':
        "self.table = start['emb']",
        "rows = tf.nn.embedding_lookup(self.table, ids)":
        "rows = self.table(ids)"})
    with package.two_servers() as task, recps.connect(
            task, connect_timeout=20) as client:
        table = recps.tensorflow.EmbeddingTable(
            "emb", 16, client=client, initializer="zeros",
            optimizer=recps.Adagrad(0.02, initial_accumulator=0.1))
        table.assign(whole.seen, whole.start["emb.weight"][whole.seen])
        model = module.Model({**whole.start, "emb": table})
        whole.judge(*module.train_eager(model, whole.train, whole.test, 3))
