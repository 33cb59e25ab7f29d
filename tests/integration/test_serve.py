# SPDX-License-Identifier: Apache-2.0
"""recpsd --serve: reads alone, of the checkpoints of a folder, and follows."""
import shutil
import signal
import subprocess
import threading

import numpy
import pytest

import programs
import trainer
import wire
from programs import until

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")
written = pytest.importorskip("written")

DIM = 8
POLL = ("--serve-poll", "0.05")
READ_ONLY = -13


def serving(folder, *more, **how):
    return programs.Recpsd("--serve", str(folder), *POLL, *more, **how)


def row(key, step):
    """Every element of it says whose it is, and of which step."""
    return numpy.full(DIM, key * 1000 + step, "f4")


def rows_of(keys, step):
    return {key: row(key, step) for key in keys}


def emb(rows, **how):
    fields = how.pop("fields", {})
    return written.Table(written.spec("emb", DIM, **fields), rows, **how)


def full(folder, step, keys=range(1, 51), **how):
    return written.Checkpoint(folder, step, [emb(rows_of(keys, step))], **how)


def delta(folder, step, parent, keys, erased=(), **how):
    return written.Checkpoint(
        folder, step, [emb(rows_of(keys, step), erased=erased)], parent=parent,
        **how)


def lookup(connection, table, keys, **fields):
    """Answered rows, whatever the server had to say."""
    reply = connection.call(wire.LOOKUP, [wire.section(
        wire.KEYS, numpy.asarray(keys, "<u8").tobytes(), table_id=table,
        count=len(keys))], **fields)
    assert reply.status == wire.OK, reply.text
    return numpy.frombuffer(reply.find(wire.ROWS), "<f4").reshape(
        len(keys), DIM)


def steps_of(server, keys):
    """The step that each key's row is of; 0: it has none."""
    with server.connect() as connection:
        found = lookup(connection, connection.table("emb", DIM), keys)
    for key, values in zip(keys, found):
        assert (values == values[0]).all(), values
        assert values[0] == 0 or values[0] // 1000 == key
    return [int(values[0] % 1000) for values in found]


def step_of(server):
    state = server.stat()["serving"]
    return state["step"] if state["holds"] else None


def wait_for_step(server, step):
    until(lambda: step_of(server) == step)


def test_what_numpy_writes_is_a_checkpoint(tmp_path):
    first = full(tmp_path, 10, parts=3)
    delta(tmp_path, 20, first, [1, 60], erased=[2, 3, 60], parts=2)
    run = subprocess.run([str(programs.RECPS), "verify", str(tmp_path)],
                         env=programs.environment(), capture_output=True,
                         text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_newest_is_served_and_unknown_keys_have_the_default(tmp_path):
    full(tmp_path, 10)
    written.Checkpoint(tmp_path, 20, [
        emb(rows_of([1, 2], 20), fields={"default_value": 0.25})])
    with serving(tmp_path) as server:
        with server.connect() as connection:
            table = connection.table("emb", DIM)
            found = lookup(connection, table, [1, 2, 3])
            again = lookup(connection, table, [3], flags=wire.READ_ONLY)
        assert (found == [row(1, 20), row(2, 20), numpy.full(DIM, 0.25)]).all()
        assert (again == 0.25).all()
        stat = server.stat()
        assert stat["step"] == 20 and stat["serving"]["kind"] == "full"
        assert [t["rows"] for t in stat["tables"]] == [2]  # none was made


def test_deltas_are_followed_in_place(tmp_path):
    first = full(tmp_path, 10)
    with serving(tmp_path) as server:
        assert steps_of(server, [1, 2, 3, 60]) == [10, 10, 10, 0]
        second = delta(tmp_path, 20, first, [1, 60], erased=[2, 60])
        wait_for_step(server, 20)
        assert steps_of(server, [1, 2, 3, 60]) == [20, 0, 10, 20]
        third = delta(tmp_path, 30, second, [61])
        delta(tmp_path, 40, third, [2], erased=[1])
        wait_for_step(server, 40)
        assert steps_of(server, [1, 2, 3, 60, 61]) == [0, 40, 10, 20, 30]
        assert server.stat()["serving"]["kind"] == "delta"
        assert "loaded whole" not in server.log().split("step 20:")[1]
        assert "ckpt-000000000020 of" in server.log()
        assert server.log().count("deltas in place") >= 2


def test_a_full_one_takes_the_place_of_what_is_served(tmp_path):
    full(tmp_path, 10)
    with serving(tmp_path) as server:
        second = full(tmp_path, 20, keys=range(3, 9))
        wait_for_step(server, 20)
        assert steps_of(server, [1, 2, 3, 8]) == [0, 0, 20, 20]
        delta(tmp_path, 30, second, [1])
        wait_for_step(server, 30)
        assert steps_of(server, [1, 2, 3]) == [30, 0, 20]


def test_tables_come_and_go(tmp_path):
    first = full(tmp_path, 10)
    more = written.spec("more", 2)
    with serving(tmp_path) as server:
        second = written.Checkpoint(tmp_path, 20, [
            emb(rows_of([1], 20)),
            written.Table(more, {5: [1.0, 2.0]}, whole=True)], parent=first)
        wait_for_step(server, 20)
        assert {t["name"]: t["rows"] for t in server.stat()["tables"]} == {
            "emb": 50, "more": 1}
        written.Checkpoint(tmp_path, 30, [
            written.Table(more, {6: [1.0, 2.0]}, whole=True)], parent=second)
        wait_for_step(server, 30)
        assert {t["name"]: t["rows"] for t in server.stat()["tables"]} == {
            "more": 1}
        with server.connect() as connection:
            reply = connection.call(wire.GET_TABLE, [wire.text(
                {"name": "emb", "dimension": DIM, "optimizer": "sgd"})])
            assert reply.status == wire.NOT_FOUND
            assert "ckpt-000000000030" in reply.text


WRITES = [
    (wire.PUSH, {"number": 1}), (wire.ERASE, {"number": 1}),
    (9, {"number": 1}), (wire.ALTER_TABLE, {}), (wire.DROP, {}),
    (wire.EVICT, {}), (wire.SAVE, {}), (wire.RESTORE, {}), (wire.APPLY, {}),
    (wire.STEP_END, {"step": 1})]


def test_every_change_is_refused_in_words(tmp_path):
    full(tmp_path, 10)
    with serving(tmp_path) as server:
        for n, (opcode, fields) in enumerate(WRITES):
            with server.connect(client=f"{n + 1:x}") as connection:
                reply = connection.call(opcode, [wire.text({})], **fields)
            assert reply.status == READ_ONLY, (opcode, reply.text)
            assert f"serves the checkpoints of {tmp_path}" in reply.text
        assert steps_of(server, [1]) == [10]
        assert server.stat()["unsaved"] is False
        assert server.stop() == 143


def test_the_tools_work_and_say_what_is_served(tmp_path):
    full(tmp_path, 10)

    def recps(*words, code=0):
        run = subprocess.run(
            [str(programs.RECPS), *words, "--ps-hosts",
             f"127.0.0.1:{server.port}"], env=programs.environment(),
            capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == code, run.stderr
        return run.stdout + run.stderr

    with serving(tmp_path) as server:
        assert recps("lookup", "emb", "7").startswith("7\t7010 ")
        assert "serving" in recps("stats")
        assert "emb" in recps("tables")
        said = recps("assign", "emb", "7", *["1"] * DIM, code=70)
        assert "READ_ONLY" in said and "--serve" in said
        # whatever the rows have: a served table has no slots to put any in
        rows = tmp_path / "rows"
        rows.mkdir()
        for name, values in (("keys", [7]), ("rows", [[1.0] * DIM]),
                             ("slot-accumulator", [[1.0] * DIM])):
            numpy.save(rows / f"{name}.npy", numpy.asarray(
                values, "<u8" if name == "keys" else "<f4"))
        said = recps("import", "emb", str(rows), "optimizer=adagrad", code=70)
        assert "READ_ONLY" in said and "--serve" in said
        said = recps("lookup", "other", "7", code=70)
        assert "NOT_FOUND" in said and f"checkpoint of {tmp_path}" in said


def damage(checkpoint, name):
    path = checkpoint.folder / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x55
    path.write_bytes(data)


def hidden(checkpoint, name):
    """Nobody sees it until it is as it should be."""
    away = checkpoint.folder.with_name("away")
    checkpoint.folder.rename(away)
    checkpoint.folder = away
    damage(checkpoint, name)
    away.rename(away.with_name(f"ckpt-{checkpoint.step:012d}"))


@pytest.mark.parametrize("how", ["full", "delta"])
def test_a_damaged_one_is_passed_over_once_and_the_old_one_stays(
        tmp_path, how):
    first = full(tmp_path, 10)
    with serving(tmp_path) as server:
        stage = tmp_path / "stage"
        stage.mkdir()
        if how == "full":
            second = full(stage, 20)
        else:
            second = delta(stage, 20, first, [1, 2])
        damage(second, "table-emb/0-of-1.rows.npy")
        second.folder.rename(tmp_path / second.folder.name)
        server.wait_for_log(
            "warn checkpoint_passed_over: ckpt-000000000020 cannot be served, "
            "step 10 goes on being: .*ckpt-000000000020")
        assert steps_of(server, [1, 2]) == [10, 10]
        assert server.stat()["serving"]["load_failures"] == 1
        full(tmp_path, 30)
        wait_for_step(server, 30)
        assert server.log().count("checkpoint_passed_over") == 1
        assert steps_of(server, [1, 2]) == [30, 30]
        assert server.stat()["serving"]["failure"] == ""


def test_half_a_checkpoint_is_passed_over_until_it_is_whole(tmp_path):
    first = full(tmp_path, 10)
    second = delta(tmp_path, 20, first, [1])
    third = delta(tmp_path, 30, second, [2])
    away = tmp_path / "away"
    second.folder.rename(away)
    with serving(tmp_path) as server:
        assert steps_of(server, [1, 2]) == [10, 10]
        server.wait_for_log("passed_over: ckpt-000000000030 .*stands on")
        away.rename(tmp_path / "ckpt-000000000020")
        wait_for_step(server, third.step)
        assert steps_of(server, [1, 2]) == [20, 30]


def test_a_start_passes_over_what_is_damaged(tmp_path):
    full(tmp_path, 10)
    damage(full(tmp_path, 20), "table-emb/0-of-1.rows.npy")
    with serving(tmp_path) as server:
        server.wait_for_log("passed_over: ckpt-000000000020")
        assert steps_of(server, [1]) == [10]


@pytest.mark.parametrize("name", ["table-emb/0-of-1.rows.npy",
                                  "manifest.json"])
def test_none_that_can_be_served_ends_with_65(tmp_path, name):
    damage(full(tmp_path, 10), name)
    server = serving(tmp_path)
    with pytest.raises(RuntimeError):
        server.start()
    assert server.wait() == 65
    server.__exit__()


def test_the_first_one_is_waited_for(tmp_path):
    folder = tmp_path / "later"
    with serving(folder, admin="127.0.0.1:0") as server:
        code, text, _ = server.get("/readyz")
        assert code == 503
        assert f"waiting for the first checkpoint in {folder}" in text
        with server.connect() as connection:
            reply = connection.call(wire.GET_TABLE, [wire.text(
                {"name": "emb", "dimension": DIM, "optimizer": "sgd"})])
            assert reply.status == wire.RETRY_LATER, reply.text
            scan = connection.call(wire.SCAN, [wire.text(
                {"table": "emb", "cursor": "0"})])
            assert scan.status == wire.RETRY_LATER, scan.text
        for words in (["lookup", "emb", "7"], ["scan", "emb"]):
            run = subprocess.run(
                [str(programs.RECPS), *words, "--ps-hosts",
                 f"127.0.0.1:{server.port}"], env=programs.environment(),
                capture_output=True, text=True, timeout=60, check=False)
            assert run.returncode == 70, run.stderr
            assert "RETRY_LATER" in run.stderr, run.stderr
            assert "no complete checkpoint yet" in run.stderr
        folder.mkdir()
        full(folder, 10)
        until(lambda: server.get("/readyz")[0] == 200)
        assert steps_of(server, [1]) == [10]
        text = server.get("/metrics")[1]
        assert "\nrecps_serving_step 10\n" in text
        assert '\nrecps_serving_loads_total{how="full"} 1\n' in text
        assert "\nrecps_serving_load_failures_total 0\n" in text
        assert "\nrecps_serving_age_seconds " in text


def test_a_job_that_went_back_is_followed_back(tmp_path):
    first = full(tmp_path, 10)
    delta(tmp_path, 20, first, [1])
    full(tmp_path, 30)
    with serving(tmp_path) as server:
        assert steps_of(server, [1]) == [30]
        shutil.rmtree(tmp_path / "ckpt-000000000020")
        delta(tmp_path, 20, first, [2], epoch=2)
        wait_for_step(server, 20)
        assert steps_of(server, [1, 2]) == [10, 20]


def test_one_that_is_taken_away_is_served_no_more(tmp_path):
    full(tmp_path, 10)
    bad = full(tmp_path, 20)
    with serving(tmp_path) as server:
        assert steps_of(server, [1]) == [20]
        bad.folder.rename(tmp_path / "bad")
        wait_for_step(server, 10)
        assert steps_of(server, [1]) == [10]
        shutil.rmtree(tmp_path / "ckpt-000000000010")
        full(tmp_path, 5)
        wait_for_step(server, 5)


def test_without_room_for_both_the_old_one_stays(tmp_path):
    wide = written.spec("wide", 1024)
    rows = dict.fromkeys(range(3000), numpy.ones(1024, "f4"))
    first = written.Checkpoint(tmp_path, 10, [
        emb(rows_of([1, 2], 10)), written.Table(wide, rows)])
    limit = ("--memory-limit", "20MiB")
    with serving(tmp_path, *limit) as server:
        second = written.Checkpoint(tmp_path, 20, [
            emb(rows_of([1], 20)), written.Table(wide, rows)])
        server.wait_for_log("step 10 goes on being: .*memory limit leaves")
        assert steps_of(server, [1, 2]) == [10, 10]
        # what is there needs no room again
        shutil.rmtree(second.folder)
        written.Checkpoint(tmp_path, 30, [
            emb(rows_of([1], 30)), written.Table(wide, rows)], parent=first)
        wait_for_step(server, 30)
    with serving(tmp_path, *limit) as server:  # one alone does fit
        assert steps_of(server, [1, 2]) == [30, 10]
    server = serving(tmp_path, "--memory-limit", "8MiB")
    written.Checkpoint(tmp_path, 40, [written.Table(
        wide, dict.fromkeys(range(2200), numpy.ones(1024, "f4")))])
    with pytest.raises(RuntimeError):
        server.start()
    assert server.wait() == 78
    assert "memory limit leaves" in server.log()
    server.__exit__()


@pytest.mark.parametrize("servers, parts", [(2, 3), (3, 1), (1, 2), (2, 2)])
def test_a_cluster_serves_what_any_number_saved(tmp_path, servers, parts):
    first = full(tmp_path, 10, parts=parts)
    delta(tmp_path, 20, first, range(1, 20), erased=[30], parts=parts + 1)
    hosts = ",".join(f"127.0.0.1:{1 + i}" for i in range(servers))
    group = [serving(tmp_path, "--ps-hosts", hosts, "--job-name", "ps",
                     "--task-index", str(i)).start() for i in range(servers)]
    try:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in group)
        run = subprocess.run(
            [str(programs.RECPS), "lookup", "emb", *map(str, range(1, 52)),
             "--ps-hosts", hosts], env=programs.environment(),
            capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr
        for line in run.stdout.splitlines():
            key, values = line.split("\t")
            key = int(key)
            step = 20 if key < 20 else 10
            want = 0 if key in (30, 51) else key * 1000 + step
            assert set(values.split()) == {str(want)}, line
        counts = [sum(t["rows"] for t in server.stat()["tables"])
                  if servers == 1 else None for server in group]
        assert counts[0] in (None, 49)
    finally:
        for server in group:
            server.__exit__()


class Readers:
    """Threads that look keys up all the time; every row is of one of the
    steps that were saved of it, and steps of a key never fall."""

    def __init__(self, server, saved, count=2):
        self.server, self.saved, self.over = server, saved, False
        self.failed, self.lookups = [], 0
        self.threads = [threading.Thread(target=self.guard, args=(i,))
                        for i in range(count)]

    def guard(self, seed):
        try:
            self.read(numpy.random.default_rng(seed))
        except Exception as error:  # told in the test's thread
            self.failed.append(error)

    def read(self, draw):
        newest = {}
        with self.server.connect() as connection:
            table = connection.table("emb", DIM)
            while not self.over:
                keys = draw.integers(1, 400, 64)
                found = lookup(connection, table, keys)
                assert (found == found[:, :1]).all(), "torn"
                for key, value in zip(keys.tolist(), found[:, 0].tolist()):
                    assert value == 0 or value // 1000 == key
                    step = int(value % 1000)
                    assert step in self.saved[key], (key, step)
                    assert step == 0 or step >= newest.get(key, 0), key
                    newest[key] = max(step, newest.get(key, 0))
                self.lookups += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for thread in self.threads:
            thread.join()
        assert not self.failed, self.failed[0]


def history(seed, links=14):
    """What a job would save: [(step, is a delta, rows, erased)], and the
    steps, in their order, that each key has; 0: none."""
    draw = numpy.random.default_rng(seed)
    keys = draw.choice(range(1, 400), 300, replace=False).tolist()
    live = dict.fromkeys(keys, 1)
    saved = {key: [live.get(key, 0)] for key in range(1, 400)}
    links_ = [(1, False, list(keys), [])]
    for step in range(2, links + 2):
        if step % 6 == 0:
            rows, gone = draw.choice(range(1, 400), 250, False).tolist(), []
            links_.append((step, False, rows, gone))
            live = dict.fromkeys(rows, step)
        else:
            rows = draw.choice(range(1, 400), 40, False).tolist()
            gone = draw.choice(range(1, 400), 20, False).tolist()
            links_.append((step, True, rows, gone))
            for key in gone:
                live.pop(key, None)
            live.update(dict.fromkeys(rows, step))
        for key, steps in saved.items():
            steps.append(live.get(key, 0))
    for key, steps in saved.items():
        saved[key] = [s for i, s in enumerate(steps)
                      if i == 0 or s != steps[i - 1]]
    return links_, saved, live


def check_state(server, live):
    keys = list(range(1, 400))
    assert steps_of(server, keys) == [live.get(key, 0) for key in keys]


def test_lookups_go_on_and_are_always_of_a_saved_state(tmp_path):
    links, saved, live = history(1)
    parent = None
    with serving(tmp_path) as server:
        for step, is_delta, rows, gone in links:
            if parent is None:
                parent = full(tmp_path, step, rows)
                wait_for_step(server, step)
                readers = Readers(server, saved).__enter__()
                continue
            parent = (delta(tmp_path, step, parent, rows, gone, parts=2)
                      if is_delta else full(tmp_path, step, rows, parts=3))
            if step % 3:
                wait_for_step(server, step)
        wait_for_step(server, links[-1][0])
        readers.__exit__()
        assert readers.lookups > 0
        check_state(server, live)
        assert server.stop() == 143, server.log()


def test_after_a_kill_it_serves_the_newest_again(tmp_path):
    links, _, live = history(2, links=8)
    parent = None
    for step, is_delta, rows, gone in links:
        parent = (delta(tmp_path, step, parent, rows, gone) if is_delta
                  else full(tmp_path, step, rows))
        with serving(tmp_path) as server:
            if step % 4 == 0:
                wait_for_step(server, step)
            server.process.send_signal(signal.SIGKILL)
            server.wait()
    with serving(tmp_path) as server:
        check_state(server, live)


DATA = ["--data", "synthetic:rows=4000,keys=300,seed=3", "--batch-size", "50"]


def train(*flags):
    return subprocess.run(
        [str(programs.RECPS_TRAIN), *DATA, *map(str, flags)],
        env=programs.environment(), capture_output=True, text=True,
        timeout=120, check=False)


@pytest.mark.skipif(not programs.RECPS_TRAIN.is_file(),
                    reason="recps-train is not built")
def test_a_trainer_is_followed_while_it_trains(tmp_path):
    with serving(tmp_path) as server:
        done = train("--checkpoint-dir", tmp_path, "--save-steps", 8,
                     "--save-deltas", 2, "--keep", 20)
        assert done.returncode == 0, done.stderr
        wait_for_step(server, 80)
        assert server.stat()["serving"]["load_failures"] == 0
        newest = "ckpt-000000000080"
        tables = server.stat()["tables"]
        assert len(tables) > 1
        for table in tables:
            name, dim = table["name"], table["spec"]["dimension"]
            want = written.read_rows(tmp_path, newest, name)
            assert table["rows"] == len(want), name
            with server.connect() as connection:
                reply = connection.call(wire.LOOKUP, [wire.section(
                    wire.KEYS, numpy.array(list(want), "<u8").tobytes(),
                    table_id=connection.table(name, dim,
                                              **shape(table["spec"])),
                    count=len(want))])
            assert reply.status == wire.OK, reply.text
            assert reply.find(wire.ROWS) == b"".join(
                row.tobytes() for row in want.values()), name


def shape(spec):
    return {field: spec[field] for field in ("dense_elements", "initializer")}


def test_a_trainer_evaluates_and_predicts_what_is_served(tmp_path):
    data = ["--data", "synthetic:rows=600,keys=200,seed=3", "--train-rows",
            "400", "--batch-size", "50"]
    folder = tmp_path / "ck"
    trainer.train(*data, "--checkpoint-dir", folder)
    saved = trainer.train(*data, "--checkpoint-dir", folder, "--predict",
                          tmp_path / "saved")
    folder.rename(tmp_path / "aside")
    with serving(folder) as one, serving(tmp_path / "none") as none:
        def on(server, *flags, **how):
            return trainer.train(
                *data, *flags, "--ps-hosts", f"127.0.0.1:{server.port}",
                "--worker-hosts", "127.0.0.1:1", "--job-name", "worker",
                "--task-index", "0", **how)

        (tmp_path / "aside").rename(folder)
        wait_for_step(one, 8)
        before = one.stat()["tables"]
        done = on(one, "--predict", tmp_path / "served")
        assert "served step 8" in done.stdout
        assert (tmp_path / "served").read_text() == (
            tmp_path / "saved").read_text()
        done = on(one, "--evaluate")
        assert saved.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
        on(one, "--evaluate", "--restore=8")
        refused = on(one, "--evaluate", "--restore=7", code=66)
        assert "serve step 8" in refused.stderr
        assert "serves checkpoints for reading" in on(one, code=64).stderr
        assert "no checkpoint yet" in on(none, "--evaluate", code=66).stderr
        assert [table["rows"] for table in one.stat()["tables"]] == [
            table["rows"] for table in before]
        one.assert_serves()  # no SHUTDOWN came to it


@pytest.mark.parametrize("other", [("--start-from", "newest"),
                                   ("--disk-tier", "/tmp")])
def test_what_cannot_go_with_serving_is_refused(tmp_path, other):
    run = subprocess.run(
        [str(programs.RECPSD), "--serve", str(tmp_path), *other,
         "--bind", "127.0.0.1:0"], env=programs.environment(),
        capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 64 and "--serve" in run.stderr
