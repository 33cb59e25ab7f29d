# SPDX-License-Identifier: Apache-2.0
"""Saves beside traffic: what is in them, and that each one ends."""
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import threading
import time

import numpy
import pytest

import programs
import trainer
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")
chief = pytest.importorskip("test_checkpoint_numpy").chief

DIM = 8
DECISION = 8
ROLLED_BACK, CANCELED = -7, -11  # include/recps/status.h
OWN = {"optimizer": "adagrad", "initializer": "zeros",
       "learning_rate": 0.5, "initial_accumulator": 0.25}
SHARED = {"optimizer": "sgd", "initializer": "zeros",
          "learning_rate": 1.0}


def section_of(table, keys, rows):
    return [wire.section(wire.KEYS, numpy.asarray(keys, "<u8").tobytes(),
                         table_id=table, count=len(keys)),
            wire.section(wire.ROWS, numpy.asarray(rows, "<f4").tobytes(),
                         table_id=table, dim=DIM, count=len(keys),
                         learning_rate=float("nan"))]


class Pushes:
    """What a client pushes with its number n: rows of its own, and whole
    numbers to rows that all push to, so that their order is no matter."""

    def __init__(self, client, keys=400):
        self.client, self.keys = client, keys

    def __getitem__(self, n):
        draw = numpy.random.default_rng([self.client, n])
        own = draw.choice(self.keys, 40, replace=False) + (self.client << 32)
        shared = draw.choice(self.keys, 40, replace=False)
        return (own, draw.standard_normal((40, DIM)).astype("f4"),
                shared, draw.integers(-3, 4, (40, DIM)).astype("f4"))

    def send(self, connection, tables, n, **fields):
        own, g, shared, whole = self[n]
        return connection.call(wire.PUSH, [
            *section_of(tables[0], own, g),
            *section_of(tables[1], shared, whole)], number=n, **fields)


class Model:
    """The tables, replayed push by push in float32."""

    def __init__(self):
        self.own, self.shared = {}, {}

    def push(self, own, g, shared, whole):
        half = numpy.float32(0.5)
        for key, row in zip(own.tolist(), g):
            w, a = self.own.get(key, (numpy.zeros(DIM, "f4"),
                                      numpy.full(DIM, 0.25, "f4")))
            a = a + row * row
            self.own[key] = (w - half * row / numpy.sqrt(a), a)
        for key, row in zip(shared.tolist(), whole):
            old = self.shared.get(key, numpy.zeros(DIM, "f4"))
            self.shared[key] = old - row

    def check(self, folder):
        keys, rows = trainer.table(folder, "own")
        _, slots = trainer.table(folder, "own", "slot-accumulator")
        assert sorted(keys.tolist()) == sorted(self.own)
        for key, row, slot in zip(keys.tolist(), rows, slots):
            w, a = self.own[key]
            assert row.tobytes() == w.tobytes(), key
            assert slot.tobytes() == a.tobytes(), key
        keys, rows = trainer.table(folder, "shared")
        assert sorted(keys.tolist()) == sorted(self.shared)
        for key, row in zip(keys.tolist(), rows):
            # -0.0 of an empty sum is 0.0 of another order
            assert (row == self.shared[key]).all(), key


def save_call(connection, step, epoch=0, **what):
    return connection.call(wire.SAVE, [wire.text(what)], step=step, epoch=epoch)


def commit(connection, step, epoch, prepared, keep=0):
    manifest = json.loads(chief([prepared]))
    manifest.update(step=step, epoch=epoch)
    reply = save_call(connection, step, epoch, action="commit", keep=keep,
                      manifest=json.dumps(manifest, indent=1, sort_keys=True))
    assert reply.status == wire.OK, reply.text


def last_numbers(folder):
    """{client: its last number at the cut}."""
    lanes = numpy.load(next(folder.glob("lanes-*.npy")))
    last = {}
    for client, _, number, _ in lanes.tolist():
        last[client] = max(last.get(client, 0), number)
    return last


class Storm:
    """Clients that push one push after the other, each its own."""

    def __init__(self, server, clients):
        self.server, self.over, self.failed, self.sent = server, False, [], {}
        self.threads = [threading.Thread(target=self.guard, args=(c,))
                        for c in clients]

    def guard(self, client):
        try:
            with self.server.connect(client=f"{client:016x}") as connection:
                tables = (connection.table("own", DIM, **OWN),
                          connection.table("shared", DIM, **SHARED))
                pushes = Pushes(client)
                while not self.over:
                    n = self.sent.get(client, 0) + 1
                    reply = pushes.send(connection, tables, n)
                    assert reply.status == wire.OK, reply.text
                    self.sent[client] = n
                    time.sleep(0.002)  # each is replayed in NumPy
        except Exception as error:  # told in the test's thread
            self.failed.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for thread in self.threads:
            thread.join()
        assert not self.failed, self.failed


@pytest.mark.parametrize("buffer", ["256MiB", "64KiB"])
def test_a_save_of_async_is_the_state_at_its_cut(tmp_path, buffer):
    """A lane's last number says how far its client was: what is saved is, row
    for row and bit for bit, the pushes up to there."""
    clients = (1, 2, 3)
    with programs.Recpsd("--checkpoint-dir", str(tmp_path), "--save-buffer",
                         buffer, admin="127.0.0.1:0") as server, \
            server.connect() as saver:
        with Storm(server, clients) as storm:
            programs.until(lambda: all(
                storm.sent.get(c, 0) > 20 for c in clients))
            for step in (1, 2):
                reply = save_call(saver, step, action="cut")
                assert reply.status == wire.OK, reply.text
                reply = save_call(saver, step, action="prepare")
                assert reply.status == wire.OK, reply.text
                before = dict(storm.sent)
                programs.until(lambda: all(
                    storm.sent[c] > before[c] + 5 for c in clients))
                commit(saver, step, 0, reply.json)
        model, done = Model(), dict.fromkeys(clients, 0)
        for step in (1, 2):
            folder = trainer.checkpoint(tmp_path, step)
            last = last_numbers(folder)
            for client in clients:
                pushes = Pushes(client)
                while done[client] < last[client]:
                    done[client] += 1
                    model.push(*pushes[done[client]])
            model.check(folder)
        assert all(done[c] < storm.sent[c] for c in clients)
        stat = server.stat()["save"]
        assert (stat["saves"], stat["failures"], stat["phase"]) == (2, 0, "none")
        assert stat["last"]["kind"] == "full"
        found = dict(re.findall(r"^(recps_[a-z_]+) (\S+)$",
                                server.get("/metrics")[1], re.M))
        assert int(found["recps_save_buffer_rows_total"]) == stat["copied_rows"]
        assert int(found["recps_save_buffer_waits_total"]) == stat["waits"]
        assert int(found["recps_save_buffer_limit_bytes"]) == stat[
            "buffer_limit_bytes"] == {"256MiB": 1 << 28, "64KiB": 1 << 16}[buffer]
        assert 0 < float(found["recps_checkpoint_cut_pause_seconds"]) < 10
        assert found["recps_checkpoint_open"] == "0"
        assert server.stop() == 143, server.log()


class SyncJob:
    """One replica, the chief, that drives steps over the wire."""

    def __init__(self, server):
        self.server = server
        self.link = server.connect(role="chief", rank=0, replicas=1,
                                   client="00000000000000c1")
        reply = self.link.call(wire.RESTORE, [wire.text(
            {"epoch": 1, "step": 0, "mode": "sync", "replicas": 1})])
        assert reply.status == wire.OK, reply.text
        self.tables = [int(self.link.call(
            wire.GET_TABLE, [wire.text({"name": name, "dimension": DIM, **words})],
            epoch=1).json["table_id"], 16) for name, words in (
                ("own", OWN), ("shared", SHARED))]
        self.decision, self.number = None, 0
        reply = self.link.call(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": None, "wishes": []})])
        assert reply.status == wire.OK, reply.text

    def carry(self):
        data, self.decision = self.decision, None
        return [] if data is None else [wire.section(DECISION, data)]

    def step(self, step, wishes=()):
        own, g, shared, whole = Pushes(9)[step]
        reply = self.link.call(wire.PUSH, [
            *self.carry(), *section_of(self.tables[0], own, g),
            *section_of(self.tables[1], shared, whole)], step=step, epoch=1)
        assert reply.status == wire.OK, reply.text
        reply = self.link.call(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": 1.0, "wishes": list(wishes)})],
            step=step, epoch=1)
        assert reply.status == wire.OK, reply.text
        self.decision = reply.find(DECISION)


def test_a_save_of_sync_is_the_state_after_its_step(tmp_path):
    """Steps go on between the cut, PREPARE and COMMIT."""
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        job, model = SyncJob(server), Model()
        for step in range(1, 9):
            job.step(step)
        job.step(9, ["save"])
        job.step(10)  # carries decision 9: the cut
        job.step(11)
        reply = save_call(job.link, 9, 1, action="cut")
        assert reply.status == wire.OK, reply.text
        prepare = job.link.send_frame(
            wire.SAVE, [wire.text({"action": "prepare"})], step=9, epoch=1)
        reply = job.link.receive()
        assert (reply.request_id, reply.status) == (prepare, wire.OK)
        for step in range(12, 15):
            job.step(step)
        commit(job.link, 9, 1, reply.json)
        for step in range(1, 10):
            model.push(*Pushes(9)[step])
        model.check(trainer.checkpoint(tmp_path, 9))
        assert server.stat()["save"]["cuts"] == 1
        job.link.close()  # else the server waits for it to save
        assert server.stop() == 143, server.log()


def test_a_chief_killed_before_its_commit_leaves_no_save(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path), "--step-timeout",
                         "0.3") as server:
        job = SyncJob(server)
        job.step(1, ["save"])
        job.step(2)
        assert save_call(job.link, 1, 1, action="cut").status == wire.OK
        assert save_call(job.link, 1, 1, action="prepare").status == wire.OK
        assert list(tmp_path.glob(".tmp-ckpt-*"))
        job.link.close()
        programs.until(lambda: server.stat()["save"]["phase"] == "none")
        programs.until(lambda: not list(tmp_path.glob(".tmp-ckpt-*")))
        stat = server.stat()
        assert "gone" in stat["save"]["failed"]["why"]
        assert stat["unsaved"] and stat["checkpoints"] == []
        with server.connect() as other:
            reply = save_call(other, 1, 1, action="prepare")
            assert reply.status == wire.OK, reply.text
            commit(other, 1, 1, reply.json)
        assert server.stat()["checkpoints"] == [1]


def test_a_restore_does_not_wait_for_the_save_that_it_ends(tmp_path):
    """A chief that was killed while a large checkpoint is written."""
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        with server.connect(client="a1") as link:
            table = link.table("own", DIM, **OWN)
            for n in range(3):
                reply = link.call(wire.PUSH, section_of(
                    table, numpy.arange(150000) + n * 150000,
                    numpy.ones((150000, DIM), "f4")), number=n + 1)
                assert reply.status == wire.OK, reply.text
        with server.connect() as saver, server.connect() as chief:
            prepare = saver.send_frame(
                wire.SAVE, [wire.text({"action": "prepare"})], step=1)
            programs.until(lambda: server.stat()["save"]["phase"] == "writing")
            reply = chief.call(wire.RESTORE, [wire.text(
                {"epoch": 1, "step": 0, "mode": "sync", "replicas": 1})])
            assert reply.status == wire.OK, reply.text
            reply = saver.receive()
            assert (reply.request_id, reply.status) == (prepare, CANCELED)
            assert "the job begins again" in reply.text
            assert list(tmp_path.iterdir()) == []
            # and the next one is whole
            reply = save_call(chief, 0, 1, action="prepare")
            assert reply.status == wire.OK, reply.text


def is_restoring(server):
    return '{what="restore"} 1\n' in server.get("/metrics")[1]


def test_a_commit_behind_another_chiefs_restore_is_void(tmp_path):
    """It was accepted before, and its turn comes when the new chief has chosen
    among the steps that were complete."""
    with programs.Recpsd("--checkpoint-dir", str(tmp_path),
                         admin="127.0.0.1:0") as server:
        old, new = server.connect(client="a1"), server.connect(client="b2")
        table = old.table("own", DIM, **OWN)
        reply = old.call(wire.PUSH, section_of(
            table, numpy.arange(300000), numpy.ones((300000, DIM), "f4")),
            number=1)
        assert reply.status == wire.OK, reply.text
        for step in (1, 2):
            prepared = save_call(old, step, action="prepare")
            assert prepared.status == wire.OK, prepared.text
            if step == 1:
                commit(old, step, 0, prepared.json)
        restore = new.send_frame(wire.RESTORE, [wire.text(
            {"epoch": 1, "step": 1, "mode": "async", "replicas": 1})])
        programs.until(lambda: is_restoring(server))
        manifest = json.loads(chief([prepared.json]))
        manifest.update(step=2, epoch=0)
        late = save_call(old, 2, action="commit", manifest=json.dumps(
            manifest, indent=1, sort_keys=True))
        assert late.status == ROLLED_BACK, late.text
        reply = new.receive()
        assert (reply.request_id, reply.status) == (restore, wire.OK)
        assert new.call(wire.STAT, [wire.text({})]).json["checkpoints"] == [1]
        assert not list(tmp_path.glob("ckpt-000000000002"))


def no_signal_for_large_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))


def test_a_full_disk_fails_the_save_and_not_the_server(tmp_path):
    """RLIMIT_FSIZE: writes end with EFBIG, as with ENOSPC on a full disk."""
    server = programs.Recpsd("--checkpoint-dir", str(tmp_path))
    popen = subprocess.Popen
    try:
        subprocess.Popen = lambda *a, **k: popen(
            *a, **k, restore_signals=False,
            preexec_fn=no_signal_for_large_files)
        server.start()
    finally:
        subprocess.Popen = popen
    with contextlib.ExitStack() as stack:
        stack.push(server)  # it runs already
        link = stack.enter_context(server.connect())
        table = link.table("own", DIM, **OWN)
        keys = numpy.arange(3000)
        reply = link.call(wire.PUSH, section_of(
            table, keys, numpy.ones((3000, DIM))), number=1)
        reply = save_call(link, 1, action="prepare")
        assert reply.status < 0 and str(tmp_path) in reply.text, reply.text
        assert list(tmp_path.iterdir()) == []  # its room is given back
        stat = server.stat()
        assert stat["save"]["phase"] == "none" and stat["unsaved"]
        assert stat["save"]["failed"]["why"] in reply.text
        assert "checkpoint_failed: ckpt-000000000001 is not saved" in server.log()
        # once there is room
        link.call(wire.ERASE, section_of(table, keys[100:], [])[:1], number=2)
        reply = save_call(link, 1, action="prepare")
        assert reply.status == wire.OK, reply.text
        commit(link, 1, 0, reply.json)
        assert server.stop() == 143, server.log()


# ---- orphans ----

def recps(*words):
    return subprocess.run([str(programs.RECPS), *map(str, words)],
                          env=programs.environment(), capture_output=True,
                          text=True, timeout=60, check=False)


def begin_at(links, step, epoch):
    """The chief's RESTORE at every server."""
    for link in links:
        reply = link.call(wire.RESTORE, [wire.text(
            {"epoch": epoch, "step": step, "mode": "sync", "replicas": 1})])
        assert reply.status == wire.OK, reply.text


def test_what_no_chief_saved_is_restored_from_the_servers_parts(tmp_path):
    servers = [programs.Recpsd(
        "--checkpoint-dir", str(tmp_path), "--ps-hosts",
        "127.0.0.1:1,127.0.0.1:2", "--job-name", "ps", "--task-index", str(i))
        for i in range(2)]
    hello = {"ps_count": 2, "client": "00000000000000c1", "role": "chief",
             "rank": 0, "replicas": 1}
    keys = numpy.arange(200, dtype="u8")
    rows = numpy.arange(200 * DIM, dtype="f4").reshape(200, DIM)
    xxhash = pytest.importorskip("xxhash")
    owner = numpy.array([xxhash.xxh3_64_intdigest(int(k).to_bytes(8, "little"))
                         >> 63 for k in keys])
    with servers[0], servers[1]:
        links = [s.connect(ps_index=i, **hello) for i, s in enumerate(servers)]
        begin_at(links, 0, 1)
        for i, link in enumerate(links):
            reply = link.call(wire.GET_TABLE, [wire.text(
                {"name": "shared", "dimension": DIM, **SHARED})], epoch=1)
            table = int(reply.json["table_id"], 16)
            reply = link.call(wire.PUSH, section_of(
                table, keys[owner == i], -rows[owner == i]), step=1, epoch=1)
            assert reply.status == wire.OK, reply.text
        links[0].call(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": None, "wishes": []})])
        decision = links[0].call(wire.STEP_END, [wire.text(
            {"rank": 0, "loss": 1.0, "wishes": []})], step=1, epoch=1)
        for link in links:
            reply = link.call(wire.APPLY, [wire.section(
                DECISION, decision.find(DECISION))], epoch=1)
            assert reply.status == wire.OK, reply.text
            link.close()
        assert servers[0].stop() == 143, servers[0].log()
        done = recps("restore", "--orphans", tmp_path)
        assert done.returncode == 66 and "PS 1 wrote no" in done.stderr
        assert servers[1].stop() == 143, servers[1].log()
        assert "orphan_written" in servers[1].log()
    assert recps("verify", tmp_path).returncode != 0  # no checkpoint yet
    done = recps("restore", "--orphans", "--json", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["one_instant"] is True
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt-000000000001"]
    assert recps("verify", tmp_path).returncode == 0
    found, values = trainer.table(tmp_path / "ckpt-000000000001", "shared")
    order = numpy.argsort(found)
    assert (found[order] == keys).all()
    assert (values[order] == rows).all()
    done = recps("restore", "--orphans", tmp_path)
    assert done.returncode == 66, done.stdout


def test_orphans_of_an_older_run_are_refused(tmp_path):
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        with server.connect() as link:
            table = link.table("shared", DIM, **SHARED)
            link.call(wire.PUSH, section_of(
                table, [1], numpy.ones((1, DIM))), number=1, step=3)
        assert server.stop() == 143, server.log()
    orphan, = tmp_path.glob("orphan-*")
    left = tmp_path / ".tmp-orphan-0-of-1" / ".tmp-ckpt-000000000001-0"
    (left / "table-emb").mkdir(parents=True)  # of a stop that was cut short
    (left / "table-emb" / "0-of-1.keys.npy").write_text("half")
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        with server.connect() as link:
            link.table("shared", DIM, **SHARED)
            reply = save_call(link, 9, action="prepare")
            commit(link, 9, 0, reply.json)
        assert server.stop() == 143, server.log()
    done = recps("restore", "--orphans", tmp_path)
    assert done.returncode == 70 and "ckpt-000000000009 is newer" in done.stderr
    assert orphan.is_dir() and not left.parent.exists()
    damaged = next(orphan.glob("*/part-*.json"))
    (tmp_path / "ckpt-000000000009").rename(tmp_path / "aside")
    damaged.write_text(damaged.read_text().replace('"rows": 1', '"rows": 2'))
    done = recps("restore", "--orphans", tmp_path)
    assert done.returncode == 65 and "not what was written" in done.stderr
    assert orphan.is_dir()


# ---- recps-train and recps save ----

BASE = ["--data", "synthetic:rows=6000,keys=300,seed=3", "--batch-size", 100]


def columns(folder, name):
    """{key: the bytes of everything else in its row}, of one part."""
    keys = numpy.load(folder / f"table-{name}/0-of-1.keys.npy")
    others = [numpy.load(path) for path in sorted(
        folder.glob(f"table-{name}/0-of-1.*.npy"))
        if path.name.split(".")[1] not in ("keys", "erased", "admission")]
    return {key: b"".join(array[i].tobytes() for array in others)
            for i, key in enumerate(keys.tolist())}


def replay(directory, name):
    """{table: {key: row}} of a checkpoint and its parents, of one PS, as
    docs/CHECKPOINT.md says."""
    folder = directory / name
    manifest = json.loads((folder / "manifest.json").read_text())
    part = json.loads((folder / "part-0-of-1.json").read_text())
    before = {} if manifest["parent"] is None else replay(
        directory, manifest["parent"]["name"])
    tables = {}
    for table, entry in part["tables"].items():
        rows = {} if entry.get("whole") else before.get(table, {})
        if entry.get("erased"):
            for key in numpy.load(
                    folder / f"table-{table}/0-of-1.erased.npy").tolist():
                rows.pop(key, None)
        rows.update(columns(folder, table))
        tables[table] = rows
    return tables


@trainer.needs_programs
def test_saves_beside_training_change_no_bit_of_it(tmp_path):
    """Full ones and deltas, as many as there is time for."""
    plain, saved = tmp_path / "plain", tmp_path / "saved"
    flags = [*BASE, "--steps", 60, "--deterministic"]
    trainer.train(*flags, "--checkpoint-dir", plain)
    out = trainer.train(*flags, "--checkpoint-dir", saved, "--save-steps", 1,
                        "--save-deltas", 2, "--keep", 3).stdout
    steps = re.findall(r"saved step (\d+): (full|a delta on step (\d+))", out)
    assert len(steps) >= 2 and steps[-1][0] == "60", out
    kinds = ["full", "delta", "delta"] * len(steps)
    for (step, kind, parent), want, before in zip(
            steps, kinds, [None, *steps]):
        assert kind.startswith("full") == (want == "full"), steps
        assert want == "full" or parent == before[0], steps
    want = replay(plain, "ckpt-000000000060")
    assert replay(saved, "ckpt-000000000060") == want and want["emb"]
    done = [trainer.train(*flags, "--checkpoint-dir", folder, "--restore",
                          "--evaluate", "--eval-data",
                          "synthetic:rows=500,keys=300,seed=3").stdout
            for folder in (plain, saved)]
    assert trainer.auc_of(done[0]) == trainer.auc_of(done[1])


@trainer.needs_programs
@pytest.mark.parametrize("mode", [
    "async", pytest.param("bounded:2", marks=pytest.mark.long)])
def test_a_local_cut_needs_no_barrier(tmp_path, mode):
    out = trainer.launch(*BASE, "--mode", mode, "--cut", "local", "--save-steps",
                         10, workers=2, options=[
                             "--checkpoint-dir", tmp_path]).stdout
    assert re.search(r"saved step 10: full", out), out
    trainer.run([programs.RECPS, "verify", tmp_path])


@trainer.needs_programs
def test_cut_local_is_refused_in_sync():
    done = trainer.train(*BASE, "--cut", "local", code=64)
    assert "--cut=local does not go with --mode=sync" in done.stderr


@trainer.needs_programs
def test_recps_save_waits_for_its_checkpoint(tmp_path):
    job = pytest.importorskip("test_job_tools")
    with job.Job(tmp_path, "--checkpoint-dir", str(tmp_path / "ckpt")) as run:
        done = job.recps("save", "--ps-hosts", run.hosts)
        assert done.returncode == 0, done.stderr
        step = int(re.match(r"saved step (\d+): full, ", done.stdout).group(1))
        assert trainer.checkpoint(tmp_path / "ckpt", step).is_dir()
        done = job.recps("save", "--json", "--ps-hosts", run.hosts)
        answer = json.loads(done.stdout)
        assert answer["done"] == "save" and answer["step"] > step
        assert trainer.checkpoint(tmp_path / "ckpt", answer["step"]).is_dir()
        # two at once: one save serves both, or one waits for the other's end
        both = [subprocess.Popen(
            [str(programs.RECPS), "save", "--ps-hosts", run.hosts],
            env=programs.environment(), stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
        for one in both:
            assert one.wait(60) == 0 and "saved step" in one.stdout.read()


@trainer.needs_programs
def test_a_save_that_fails_is_told_and_training_goes_on(tmp_path):
    folder = tmp_path / "ckpt"
    job = pytest.importorskip("test_job_tools")
    with job.Job(tmp_path, "--checkpoint-dir", str(folder)) as run:
        os.rmdir(folder)
        folder.write_text("no folder any more")
        done = job.recps("save", "--ps-hosts", run.hosts)
        assert done.returncode == 70, done.stdout
        assert re.search(r"step \d+ is not saved: .*ckpt", done.stderr)
        run.wait_for(r"step \d+ is not saved: .*; training goes on")
        folder.unlink()
        folder.mkdir()
        done = job.recps("save", "--ps-hosts", run.hosts)
        assert done.returncode == 0, done.stderr
