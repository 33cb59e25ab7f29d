# SPDX-License-Identifier: Apache-2.0
"""One script of mxrec for every role: servers, chief, worker, evaluator."""
import contextlib
import json
import os
import re
import subprocess
import sys

import pytest

import package
import programs
from test_python_serve import Job

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import recps.tensorflow  # noqa: E402
import mxrec  # noqa: E402
from recps import checkpoint  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

EXAMPLE = package.SOURCE / "examples/mxrec_script.py"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
DIM = 4


def loss_by(weights, samples=2048, words_each=5):
    """Of the example's model, NumPy alone: weights by word."""
    words_all = 300
    truth = numpy.random.default_rng(0).normal(size=words_all)
    draw = numpy.random.default_rng([1, 0])
    words = draw.integers(0, words_all, (samples, words_each))
    chance = 1 / (1 + numpy.exp(-truth[words].sum(1)))
    clicks = draw.random(samples) < chance
    logits = weights[words].sum(1)
    return float(numpy.mean(numpy.logaddexp(0, logits) - clicks * logits))


def weights_of(folder, step):
    saved = checkpoint.Checkpoint(folder / f"ckpt-{step:012d}")
    return saved.table("weights").rows_of(
        numpy.arange(300))[:, 0].astype(float)


def test_every_role_is_one_script_and_the_evaluator_evaluates(tmp_path):
    servers = tmp_path / "ck"
    flags = [f"--save_path={tmp_path / 'saved'}",
             f"--checkpoint_dir={servers}", "--steps=120"]
    with Job(tmp_path, ps=2, worker=2, evaluator=1) as job:
        for role, index in (("worker", 1), ("ps", 1), ("evaluator", 0),
                            ("ps", 0), ("worker", 0)):
            job.start(role, index, EXAMPLE, *flags, **QUIET)
        for role, index in job.running:
            job.ends(role, index, timeout=120)
        said = dict(re.findall(r"step (\d+): log loss ([\d.]+), 300 rows",
                               job.log("evaluator", 0)))
        assert "chief 0: done" in job.log("worker", 0) or (
            "worker 0: done" in job.log("worker", 0))
        assert "worker 1: done" in job.log("worker", 1)
    assert "121" in said, job.log("evaluator", 0)
    for step, loss in said.items():
        if (servers / f"ckpt-{int(step):012d}").is_dir():
            assert float(loss) == pytest.approx(
                loss_by(weights_of(servers, int(step))), abs=2e-6)
    assert float(said["121"]) < 0.75 * loss_by(numpy.zeros(300))


@pytest.mark.long
def test_the_script_alone_trains_too(tmp_path):
    subprocess.run([sys.executable, EXAMPLE, "--steps=60"], cwd=tmp_path,
                   env=package.environment(**QUIET), timeout=120, check=True)
    assert loss_by(weights_of(tmp_path / "mxrec-saved", 61)) < (
        0.9 * loss_by(numpy.zeros(300)))


# --- what an evaluator sees --------------------------------------------------


@contextlib.contextmanager
def evaluator_of(tmp_path, monkeypatch):
    """mxrec of an evaluator, and the chief's client."""
    cluster = {"ps": package.free_addresses(2), "worker": ["localhost:1"],
               "evaluator": ["localhost:2"]}
    with contextlib.ExitStack() as stack:
        for index in range(2):
            stack.enter_context(programs.Recpsd(
                "--checkpoint-dir", str(tmp_path / "ck"), bind=None, env={
                    "TF_CONFIG": json.dumps({
                        "cluster": cluster,
                        "task": {"type": "ps", "index": index}})}))
        chief = stack.enter_context(recps.connect(
            {"cluster": cluster, "task": {"type": "worker", "index": 0}},
            connect_timeout=20))
        monkeypatch.setenv("TF_CONFIG", json.dumps({
            "cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
        stack.callback(_tables.forget)
        _tables.forget()
        yield chief


def rows_of(*keys):
    return numpy.array([[key + 0.5] * DIM for key in keys], "f4")


def note(tmp_path, step, **where):
    (tmp_path / "saved").mkdir(exist_ok=True)
    (tmp_path / f"saved/recps-{step}.json").write_text(json.dumps(
        {"checkpoint_step": step, **where}))


def test_an_evaluator_reads_files_also_when_the_servers_are_gone(
        tmp_path, monkeypatch):
    with evaluator_of(tmp_path, monkeypatch) as chief:
        made = chief.get_embedding_table(
            "user", DIM, optimizer=recps.AdamW(), initializer="normal")
        made.assign(numpy.arange(9), rows_of(*range(9)))
        chief.save(5)
        made.assign([2], rows_of(100))
        table = mxrec.get_embedding_table("user", DIM, 100)
        saver = mxrec.EmbeddingTableSaver([table])
        with pytest.raises(recps.InvalidError, match="load.. comes first"):
            mxrec.embedding_lookup(table, [2])
        with pytest.raises(FileNotFoundError, match="step 5"):
            saver.load(None, tmp_path / "saved", 5)
        note(tmp_path, 5, checkpoint_dir=str(tmp_path / "elsewhere"))
        with pytest.raises(FileNotFoundError, match="same name"):
            saver.load(None, tmp_path / "saved", 5)
        note(tmp_path, 5, checkpoint_dir=str(tmp_path / "ck"))
        note(tmp_path, 6, checkpoint_step="five")
        with pytest.raises(ValueError, match='no whole number "checkpoint'):
            saver.load(None, tmp_path / "saved", 6)
        (tmp_path / "saved/recps-6.json").unlink()
        saver.load(None, tmp_path / "saved", 5)
        assert not recps.compat.client().await_end(timeout=0)
        chief.shutdown_servers()
        assert recps.compat.client().await_end(timeout=20)
    assert mxrec.embedding_lookup(table, [2, 77]).numpy().tolist() == [
        [2.5] * DIM, [0] * DIM]
    assert table.size() == 9
    rows = mxrec.embedding_lookup(table, [2])
    with pytest.raises(recps.ReadOnlyError, match="evaluator"):
        mxrec.AdamWOptimizer().apply_gradients([(rows, rows)])
    saver.save(None, tmp_path / "saved", 6)
    assert not (tmp_path / "saved/recps-6.json").exists()
    for combiner, wanted in ("sum", 11.0), ("mean", 11 / 4), ("sqrtn", 5.5):
        found = recps.tensorflow.embedding_lookup_sparse(
            table, tf.ragged.constant([[], [2, 3, 77, 4]], tf.int64),
            combiner=combiner)
        wanted = wanted - {"sum": 0.5, "mean": 0.125, "sqrtn": 0.25}[combiner]
        numpy.testing.assert_allclose(
            found, [[0] * DIM, [wanted] * DIM], rtol=1e-6)
