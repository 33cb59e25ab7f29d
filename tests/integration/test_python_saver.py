# SPDX-License-Identifier: Apache-2.0
"""EmbeddingTableSaver of mxrec: in this process, at servers, in a job of
several workers."""
import contextlib
import json
import os

import pytest

import package
import programs

recps = package.load()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
import numpy  # noqa: E402
import recps.compat  # noqa: E402
import mxrec  # noqa: E402
from recps.compat.mxrec import _tables  # noqa: E402

v1 = tf.compat.v1
DIM, KEYS = 8, 200


@pytest.fixture
def rec():
    """mxrec of a process that has no table yet; in this process."""
    _tables.forget()
    yield mxrec
    _tables.forget()


def test_tables_are_saved_and_loaded_where_one_says(rec, tmp_path,
                                                    monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = rec.get_embedding_table("user", DIM, KEYS)
    adamw = rec.AdamWOptimizer(0.1)
    saver = rec.EmbeddingTableSaver(rec.get_existing_tables())

    def train():
        rows = rec.embedding_lookup(table, [1, 2])
        adamw.apply_gradients([(tf.ones_like(rows), rows)])

    def rows_now():
        return rec.embedding_lookup(table, [1, 2]).numpy()

    kept = {}
    for step in 0, 1, 7:
        train()
        saver.save(None, "saved", step)
        kept[step] = rows_now()
    saver.save(None, "saved", 7)  # again
    train()
    with pytest.raises(FileNotFoundError, match="step 8.*ckpt-0+7"):
        saver.load(None, "saved", 8)
    with pytest.raises(FileNotFoundError, match="of step 0 .ckpt-0042949672"):
        saver.load(None, "elsewhere", 0)
    for step in 1, 0, 7:
        saver.load(None, tmp_path / "saved", step)
        numpy.testing.assert_array_equal(rows_now(), kept[step])
    from recps import checkpoint
    rows = checkpoint.Checkpoint(
        tmp_path / "saved/ckpt-000000000007").table("user").rows_of([1, 2])
    numpy.testing.assert_array_equal(rows, kept[7])
    # a run that goes on is the run that was not interrupted
    train()
    wanted = rows_now()
    _tables.forget()
    table = rec.get_embedding_table("user", DIM, KEYS)
    adamw = rec.AdamWOptimizer(0.1)
    with tf.Graph().as_default(), v1.Session() as session:
        rec.EmbeddingTableSaver([table]).load(session, "saved", 7)
    train()
    numpy.testing.assert_array_equal(rows_now(), wanted)


def test_servers_save_for_themselves(rec, tmp_path, monkeypatch):
    cluster = {"ps": package.free_addresses(2), "worker": ["localhost:1"]}
    with contextlib.ExitStack() as stack:
        for index in range(2):
            stack.enter_context(programs.Recpsd(
                "--checkpoint-dir", str(tmp_path / "servers"), bind=None,
                env={"TF_CONFIG": json.dumps({
                    "cluster": cluster,
                    "task": {"type": "ps", "index": index}})}))
        monkeypatch.setenv("TF_CONFIG", json.dumps({
            "cluster": cluster, "task": {"type": "worker", "index": 0}}))
        table = rec.get_embedding_table("user", DIM, KEYS)
        adamw = rec.AdamWOptimizer(0.1)
        saver = rec.EmbeddingTableSaver([table])

        def train():
            rows = rec.embedding_lookup(table, numpy.arange(9))
            adamw.apply_gradients([(tf.ones_like(rows), rows)])
            return rec.embedding_lookup(table, numpy.arange(9)).numpy()

        train()
        saver.save(None, str(tmp_path / "saved"), 4)
        assert table.size() == 9
        after = train()
        with pytest.raises(FileNotFoundError, match="step 5.*recps-4.json"):
            saver.load(None, str(tmp_path / "saved"), 5)
        saver.load(None, str(tmp_path / "saved"), 4)
        numpy.testing.assert_allclose(train(), after, rtol=1e-6)
        note = json.loads((tmp_path / "saved/recps-4.json").read_text())
        assert note["servers"] == cluster["ps"]
        assert (tmp_path / "servers/ckpt-000000000004").is_dir()
        _tables.forget()


# --- several workers --------------------------------------------------------

#: Does what it is told, a line each, and answers with a line.
WORKER = """
import json, sys
import recps.compat
import mxrec, numpy, tensorflow as tf
table = mxrec.get_embedding_table("user", 4, 100)
adamw = mxrec.AdamWOptimizer(0.1)
saver = mxrec.EmbeddingTableSaver([table])
ids = numpy.arange(30)
def train(count):
    mine = ids[table.table.client.rank::2]
    for _ in range(count):
        rows = mxrec.embedding_lookup(table, mine)
        adamw.apply_gradients([(rows - 1, rows)])
def save(step):
    saver.save(None, sys.argv[1], step)
def load(step):
    saver.load(None, sys.argv[1], step)
def rows(_):
    return table.table.lookup(ids).tolist()
print("ready", flush=True)
for line in sys.stdin:
    name, number = line.split()
    try:
        said = globals()[name](int(number))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
"""


class Workers:
    """Two PS and two workers, each told what to do."""

    def __init__(self, stack, folder, **more):
        self.folder, self.more = folder, more
        self.cluster = {"ps": package.free_addresses(2),
                        "worker": ["localhost:1", "localhost:2"]}
        for index in range(2):
            stack.enter_context(programs.Recpsd(
                "--checkpoint-dir", str(folder / "servers"), bind=None,
                env=self.task("ps", index)))
        stack.callback(self.end)
        self.start()

    def task(self, kind, index):
        return {"TF_CONFIG": json.dumps({
            "cluster": self.cluster,
            "task": {"type": kind, "index": index}})}

    def start(self):
        self.workers = [package.start(
            WORKER, self.folder / "saved", TF_CPP_MIN_LOG_LEVEL="3",
            OMP_NUM_THREADS="1", **self.task("worker", index), **self.more)
            for index in range(2)]
        for worker in self.workers:
            while worker.stdout.readline().strip() != "ready":
                assert worker.poll() is None

    def end(self):
        for worker in self.workers:
            worker.kill()
            worker.communicate()

    def tell(self, index, what, number=0):
        self.workers[index].stdin.write(f"{what} {number}\n")
        self.workers[index].stdin.flush()

    def hear(self, index):
        while True:  # words for people come, too
            line = self.workers[index].stdout.readline()
            assert line, f"worker {index} is gone"
            with contextlib.suppress(ValueError):
                return json.loads(line)

    def ask(self, index, what, number=0):
        self.tell(index, what, number)
        return self.hear(index)

    def rows(self):
        """The same at both."""
        first, second = (self.ask(index, "rows") for index in range(2))
        assert first == second
        return first

    def train(self):
        """One after the other: t of AdamW counts pushes as they come."""
        for index in range(2):
            assert self.ask(index, "train", 5) is None

    def both(self, what, number=0):
        for index in range(2):
            self.tell(index, what, number)
        return [self.hear(index) for index in range(2)]


def test_an_eager_worker_takes_the_optimizer_that_another_has_set(
        rec, monkeypatch):
    """Its first lookup comes before it names one; kept is what stands."""
    with package.two_servers() as task, recps.connect(
            task, connect_timeout=20) as other:
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        first, _ = _tables.initializer_of(
            v1.random_normal_initializer)
        for name in "user", "item":
            other.get_embedding_table(
                name, DIM, KEYS, initializer=first,
                optimizer=recps.AdamW(0.25, weight_decay=0.5))
        table = rec.get_embedding_table("user", DIM, KEYS)
        rows = rec.embedding_lookup(table, [1])
        assert table.table.learning_rate == 0.25
        rec.AdamWOptimizer(0.25, weight_decay=0.5).apply_gradients(
            [(tf.ones_like(rows), rows)])
        assert len(other.find_embedding_table("user")) == 1
        wrong = rec.get_embedding_table("item", DIM, 2 * KEYS)
        with pytest.raises(recps.MismatchError, match="vocabulary"):
            rec.embedding_lookup(wrong, [1])
        _tables.forget()


def test_workers_load_together(tmp_path):
    with contextlib.ExitStack() as stack:
        job = Workers(stack, tmp_path)
        job.train()
        kept = job.rows()
        assert job.both("save", 4) == [None, None]
        # the chief comes last: the other waits, and trains no more
        job.tell(1, "load", 4)
        assert job.ask(0, "train", 3) is None
        assert job.ask(0, "rows") != kept
        assert job.ask(0, "load", 4) is None and job.hear(1) is None
        assert job.rows() == kept
        job.train()
        after = job.rows()
        assert job.both("save", 7) == [None, None]
        # the chief comes first: who still trains is waited for
        job.tell(0, "load", 4)
        assert job.ask(1, "train", 40) is None
        assert job.ask(1, "load", 4) is None and job.hear(0) is None
        assert job.rows() == kept
        job.train()
        assert job.rows() == after
        # a step that is not there is none for all
        for said in job.both("load", 5):
            assert said.startswith("FileNotFoundError") and "step 5" in said
        assert job.both("load", 7) == [None, None]
        assert job.rows() == after
        # other processes of the same job go on from there
        job.end()
        job.start()
        assert job.both("load", 4) == [None, None]
        assert job.rows() == kept
        assert job.both("save", 8) == [None, None]
        assert job.both("load", 7) == [None, None]
        assert job.rows() == after


@pytest.mark.long
def test_a_worker_that_does_not_come_is_named(tmp_path):
    with contextlib.ExitStack() as stack:
        job = Workers(stack, tmp_path, RECPS_CONNECT_TIMEOUT="3")
        job.both("train", 5)
        assert job.both("save", 4) == [None, None]
        said = job.ask(0, "load", 4)
        assert said.startswith("TimedOutError") and "rank 1 of 2" in said
        job.both("train", 1)  # nothing has happened
        assert job.both("load", 4) == [None, None]
        said = job.ask(1, "load", 4)
        assert said.startswith("TimedOutError") and "the chief" in said
