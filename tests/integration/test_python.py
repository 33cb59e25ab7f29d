# SPDX-License-Identifier: Apache-2.0
"""The Python package against NumPy: embedded, and through a real recpsd."""
import copy
import importlib
import json
import os
import pathlib
import pickle
import pkgutil
import re
import subprocess
import sys

import pytest

import package
import programs

recps = package.load()
import numpy  # noqa: E402
from recps import _arrays, _library, _table  # noqa: E402

DIM = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    with programs.Recpsd("--checkpoint-dir", str(folder)) as one:
        yield one


@pytest.fixture(params=["embedded", "tcp",
                        pytest.param("shm", marks=pytest.mark.long)])
def client(request, server, tmp_path):
    """One client each way, on tables that nobody else has."""
    if request.param == "embedded":
        made = recps.connect("embedded", checkpoint_dir=tmp_path)
    else:
        made = recps.connect(
            package.cluster_of(server, chief=True), connect_timeout=10,
            transport=request.param, unix_dir=programs.unix_folder())
    with made:
        yield made


counter = iter(range(10**6))


def table_of(client, dim=DIM, **spec):
    spec.setdefault("optimizer", recps.SGD(1.0))
    spec.setdefault("initializer", "zeros")
    return client.get_embedding_table(f"t{next(counter)}", dim, **spec)


def filled(client, n=100, dim=DIM, **spec):
    """A table whose row of key k is [k, k + 1/4, ...]."""
    table = table_of(client, dim, **spec)
    keys = numpy.arange(n)
    rows = (keys[:, None] + numpy.arange(dim) / 4).astype(numpy.float32)
    table.assign(keys, rows)
    return table, rows


# --- lookups -----------------------------------------------------------------


def test_a_lookup_has_the_shape_of_its_ids(client):
    table, rows = filled(client)
    for ids in (7, [1, 2, 2], numpy.arange(24).reshape(2, 3, 4),
                numpy.arange(100)[::-3], numpy.array([5], numpy.int16),
                numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
                numpy.arange(6, dtype=">i8"), [], numpy.empty((3, 0), int)):
        found = table.lookup(ids)
        flat = numpy.asarray(ids, dtype=int)
        assert found.shape == flat.shape + (DIM,)
        assert found.dtype == numpy.float32
        numpy.testing.assert_array_equal(found, rows[flat])


def test_every_key_is_legal(client):
    table = table_of(client)
    keys = numpy.array([0, 2**63, 2**64 - 1, 1], numpy.uint64)
    table.push(keys, -numpy.arange(16, dtype=numpy.float32).reshape(4, 4))
    numpy.testing.assert_array_equal(
        table.lookup(keys), numpy.arange(16).reshape(4, 4))
    # -1 and -2^63 are the same 64 bits
    numpy.testing.assert_array_equal(
        table.lookup([-1, -2**63]), [[8, 9, 10, 11], [4, 5, 6, 7]])


def test_out_is_written_and_answered(client):
    table, rows = filled(client)
    out = numpy.full((2, 3, DIM), -1, numpy.float32)
    ids = numpy.arange(6).reshape(2, 3)
    assert table.lookup(ids, out=out) is out
    numpy.testing.assert_array_equal(out, rows[ids])
    wide = numpy.full((5, 10), -1, numpy.float32)
    table.lookup(numpy.arange(5), out=wide[:, 3:3 + DIM])
    numpy.testing.assert_array_equal(wide[:, 3:7], rows[:5])
    assert (wide[:, :3] == -1).all() and (wide[:, 7:] == -1).all()
    deep = numpy.full((2, 3, 10), -1, numpy.float32)
    table.lookup(ids, out=deep[:, :, 3:7])
    numpy.testing.assert_array_equal(deep[:, :, 3:7], rows[ids])
    assert (deep[:, :, :3] == -1).all() and (deep[:, :, 7:] == -1).all()
    for shape, where in (((2, 3, 10), numpy.s_[:, :1, 3:7]),
                         ((3, 2, 10), numpy.s_[::2, 1:, 6:]),
                         ((2, 1, 2, 10), numpy.s_[..., :4])):  # axes of one
        buffer = numpy.full(shape, -1, "f4")
        wanted, part = buffer.copy(), buffer[where]
        some = numpy.arange(part[..., 0].size).reshape(part.shape[:-1])
        wanted[where] = rows[some]
        assert table.lookup(some, out=part) is part
        numpy.testing.assert_array_equal(buffer, wanted)
    table.assign(ids, deep[:, :, 3:7] + 1)
    numpy.testing.assert_array_equal(table.lookup(ids), rows[ids] + 1)
    with pytest.raises(ValueError, match="equally far apart"):
        table.lookup(ids, out=numpy.empty((2, 4, 10), "f4")[:, :3, :4])


def test_gradients_that_are_one_row_many_times_are_read_as_such(client):
    table, rows = filled(client)
    two = numpy.arange(2 * DIM, dtype="f4").reshape(2, 1, DIM)
    for grads in (numpy.broadcast_to(two, (2, 3, DIM)),
                  numpy.broadcast_to(two[0], (2, 3, DIM)),
                  numpy.broadcast_to(two.reshape(1, 2, DIM)[:, :, ::-1],
                                     (3, 2, DIM)).transpose(1, 0, 2)):
        table.assign(numpy.arange(6), rows[:6])
        table.push(numpy.arange(6).reshape(2, 3), grads, lr=1.0)
        numpy.testing.assert_array_equal(
            table.lookup(numpy.arange(6)),
            rows[:6] - grads.reshape(6, DIM))


def test_arrays_go_by_address(client):
    table, _ = filled(client)
    ids, out = numpy.arange(6).reshape(2, 3), numpy.empty((2, 3, DIM), "f4")
    request, _, rows = _table._lookup_part(recps.Lookup(table, ids, out))
    assert request.keys == ids.ctypes.data
    assert request.rows == out.ctypes.data == rows.ctypes.data
    gradients = numpy.ones((2, 3, DIM), numpy.float32)
    request, _ = _table._push_part(recps.Push(table, ids, gradients))
    assert request.keys == ids.ctypes.data
    assert request.gradients == gradients.ctypes.data
    # and a result that was not given is what librecps wrote to
    ticket = table.lookup_async(ids)
    address = ticket._result.ctypes.data
    assert ticket.wait().ctypes.data == address


def test_pooling_without_bags_is_refused(client):
    table, rows = filled(client)
    for pooling in ("mean", "sum"):
        with pytest.raises(ValueError, match="pooling.*needs offsets"):
            table.lookup([3, 1], pooling=pooling)
        with pytest.raises(ValueError, match="pooling.*needs offsets"):
            table.push([3], numpy.ones((1, DIM), "f4"), pooling=pooling)
    numpy.testing.assert_array_equal(table.lookup([3, 1]), rows[[3, 1]])


def test_masked_arrays_are_refused(client):
    table, _ = filled(client)
    with pytest.raises(TypeError, match="ids: a masked array"):
        table.lookup(numpy.ma.array([5, 0], mask=[1, 0]))
    with pytest.raises(TypeError, match="offsets: a masked array"):
        table.lookup([5, 0], offsets=numpy.ma.array([0, 2], mask=[0, 1]))
    with pytest.raises(TypeError, match="grads: a masked array"):
        table.push([5], numpy.ma.ones((1, DIM), "f4"))


def test_a_dropped_table_has_no_length():
    with recps.connect("embedded") as own:
        table = own.get_embedding_table("gone", DIM)
        assert len(table) == 0
        table.drop()
        with pytest.raises(recps.NotFoundError, match="gone"):
            len(table)
    with pytest.raises(recps.ClosedError), own:
        pass


def test_an_empty_list_of_servers_is_refused():
    for cluster in ({"ps": []}, {"cluster": {"ps": [], "worker": ["a:1"]}}):
        with pytest.raises(ValueError, match="ps is empty"):
            recps.connect(cluster)
    for text in ('{"cluster": {"ps": []}}', '{"cluster": {"ps": {}}}'):
        with pytest.raises(ValueError, match="ps is empty"):
            recps.connect(text)


def test_workers_without_servers_get_no_tables_of_their_own(tmp_path):
    task = {"type": "worker", "index": 0}
    two = {"cluster": {"worker": ["a:1", "b:1"]}, "task": task}
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"cluster": {"ps": []}}), "utf-8")
    for cluster in (two, file, json.dumps({"cluster": {"evaluator": ["a:1"]}})):
        with pytest.raises(recps.InvalidError, match="it has no ps"):
            recps.connect(cluster)
    with recps.connect({"cluster": {"worker": ["a:1"]}, "task": task}) as one:
        assert one.embedded


def test_bags_are_pooled(client):
    table, rows = filled(client)
    ids, offsets = numpy.array([3, 1, 4, 1, 5]), [0, 3, 3, 5]
    bags = [rows[[3, 1, 4]], rows[:0], rows[[1, 5]]]
    for pooling, root in (("sum", 0), ("mean", 1), ("sqrtn", 0.5)):
        for there in (False, True):
            found = table.lookup(ids, offsets=offsets, pooling=pooling,
                                 pool_on_server=there)
            numpy.testing.assert_allclose(found, [
                bag.sum(0) / max(1, len(bag))**root for bag in bags],
                rtol=1e-6)
    table.push(ids, numpy.full((3, DIM), -2, "f4"), offsets=offsets,
               pooling="mean")
    rows[[3, 4, 5]] += [[2 / 3], [2 / 3], [1]]
    rows[1] += 2 / 3 + 1
    numpy.testing.assert_allclose(table.lookup([1, 3, 4, 5]),
                                  rows[[1, 3, 4, 5]], rtol=1e-6)


def test_padding_reads_zeros_and_is_never_pushed(client):
    table, rows = filled(client)
    found = table.lookup([1, -1, 2], padding=-1)
    numpy.testing.assert_array_equal(found, [rows[1], rows[0] * 0, rows[2]])
    table.push([1, -1], numpy.ones((2, DIM), "f4"), padding=-1)
    assert len(table) == 100


def test_what_travels_may_be_shorter(client):
    table, rows = filled(client)
    numpy.testing.assert_array_equal(
        table.lookup(numpy.arange(100), wire="float16"),
        rows.astype("f2").astype("f4"))


def test_a_row_that_is_absent_has_its_first_value_or_the_default(client):
    table = table_of(client, initializer=recps.Constant(0.5),
                     default_value=-3.0)
    assert (table.lookup([9]) == 0.5).all()
    assert (table.lookup([9], read_only=True) == -3).all()
    assert len(table) == 0


def test_ids_of_32_bits_are_widened_with_their_sign(client):
    table = table_of(client, key_dtype=numpy.int32)
    table.push(numpy.array([-5], numpy.int32), numpy.full((1, DIM), -1, "f4"))
    assert (table.lookup([-5]) == 1).all()
    with pytest.raises(TypeError, match="keys are int32"):
        table.lookup(numpy.array([1]))
    with pytest.raises(ValueError, match="int32"):
        table.lookup([2**31])


# --- pushes ------------------------------------------------------------------


def test_pushes_of_duplicates_are_one_step_of_their_sum(client):
    table = table_of(client, optimizer=recps.Adagrad(
        0.5, initial_accumulator=1.0))
    gradients = numpy.array([[1, 2, 3, 4], [1, 0, 0, 0], [0, 1, 1, 1]], "f4")
    table.push([7, 9, 7], gradients)
    table.push([[7]], gradients[None, :1], lr=0.25)
    total = gradients[0] + gradients[2]
    first = 0.5 * total / numpy.sqrt(1 + total**2)
    second = 0.25 * gradients[0] / numpy.sqrt(
        1 + total**2 + gradients[0]**2)
    numpy.testing.assert_allclose(table.lookup(7), -first - second, rtol=1e-6)


def test_fused_calls_carry_several_tables(client):
    one, rows = filled(client)
    two, more = filled(client, dim=3)
    found = recps.lookup_tables([
        recps.Lookup(one, [1, 2]), recps.Lookup(two, [[3]])])
    numpy.testing.assert_array_equal(found[0], rows[[1, 2]])
    numpy.testing.assert_array_equal(found[1], more[[[3]]])
    recps.push_tables([
        recps.Push(one, [1], numpy.ones((1, 4), "f4")),
        recps.Push(two, [3], numpy.ones((1, 3), "f4"), lr=0.5)])
    numpy.testing.assert_array_equal(one.lookup(1), rows[1] - 1)
    numpy.testing.assert_array_equal(two.lookup(3), more[3] - 0.5)


def test_tickets_overlap_and_may_be_taken_in_any_order(client):
    table, rows = filled(client)
    tickets = [table.lookup_async([n, n + 1]) for n in range(20)]
    push = table.push_async([99], numpy.ones((1, DIM), "f4"))
    for n in reversed(range(20)):
        numpy.testing.assert_array_equal(tickets[n].wait(), rows[[n, n + 1]])
    assert push.wait() is None and push.done()
    assert tickets[3].wait(timeout=0) is tickets[3].wait()
    canceled = table.lookup_async([1])
    canceled.cancel()
    with pytest.raises(recps.CanceledError):
        canceled.wait()
    assert not client._borrowed


def test_gradients_may_be_a_slice_of_columns(client):
    table = table_of(client)
    wide = -numpy.arange(30, dtype=numpy.float32).reshape(3, 10)
    table.push([1, 2, 3], wide[:, 2:6])
    numpy.testing.assert_array_equal(table.lookup([1, 2, 3]), -wide[:, 2:6])


# --- what is refused ---------------------------------------------------------


def test_wrong_arrays_are_refused_by_name(client):
    table, _ = filled(client)
    ones = numpy.ones((2, DIM), numpy.float32)
    locked = numpy.empty((2, DIM), numpy.float32)
    locked.flags.writeable = False
    cases = [
        (TypeError, "ids: float64", lambda: table.lookup([1.5, 2])),
        (TypeError, "NaN", lambda: table.lookup([numpy.nan])),
        (TypeError, "ids: bool", lambda: table.lookup([True])),
        (TypeError, "ids: <U1", lambda: table.lookup(["a"])),
        (TypeError, "ids: object", lambda: table.lookup([None])),
        (TypeError, "ids: object", lambda: table.lookup([2**70])),
        (TypeError, "2.63", lambda: table.lookup([-1, 2**63])),
        (TypeError, "out: list", lambda: table.lookup([1], out=[0.0] * 4)),
        (TypeError, "out: float64",
         lambda: table.lookup([1], out=numpy.empty((1, DIM)))),
        (ValueError, "out: shape",
         lambda: table.lookup([1], out=numpy.empty((2, DIM), "f4"))),
        (ValueError, "read-only", lambda: table.lookup([1, 2], out=locked)),
        (ValueError, "out: must be contiguous", lambda: table.lookup(
            [1, 2], out=numpy.empty((2, 2 * DIM), "f4")[:, ::2])),
        (TypeError, "grads: float64",
         lambda: table.push([1, 2], ones.astype(float))),
        (ValueError, "grads: shape", lambda: table.push([1], ones)),
        (ValueError, "flat with offsets",
         lambda: table.lookup([[1]], offsets=[0, 1])),
        (ValueError, "the number of ids",
         lambda: table.lookup([1, 2], offsets=[0, 1])),
        (TypeError, "offsets: float",
         lambda: table.lookup([1], offsets=[0.0, 1.0])),
        (ValueError, "offsets", lambda: table.lookup([1], offsets=[-1, 1])),
        (recps.InvalidError, "offsets",
         lambda: table.lookup([1, 2], offsets=[0, 2, 1, 2])),
        (recps.InvalidError, "pooling",
         lambda: table.lookup([1], offsets=[0, 1], pooling="max")),
        (recps.InvalidError, "lr: -1.0, must be a finite number of 0 or more",
         lambda: table.push([1, 2], ones, lr=-1.0)),
        (recps.InvalidError, "lr: inf",
         lambda: table.push([1, 2], ones, lr=float("inf"))),
        (recps.NonFiniteError, "key 2", lambda: table.assign(
            [2], numpy.full((1, DIM), numpy.nan, "f4"))),
        (ValueError, "slots: shape", lambda: table.assign(
            [1, 2], ones, slots=ones)),
    ]
    for kind, words, call in cases:
        with pytest.raises(kind, match=words):
            call()
    assert not client._borrowed
    assert (table.lookup([1]) == [1, 1.25, 1.5, 1.75]).all()


def test_a_table_is_what_it_is(client):
    table = client.get_embedding_table("same", 8, optimizer="adam")
    assert client.get_embedding_table("same", 8, optimizer="adam") is table
    assert client.find_embedding_table("same") is table
    with pytest.raises(recps.MismatchError, match="dim"):
        client.get_embedding_table("same", 16, optimizer="adam")
    with pytest.raises(recps.NotFoundError, match="never"):
        client.find_embedding_table("never")
    assert (table.name, table.dimension, table.optimizer, table.slot_floats,
            table.key_dtype, table.value_dtype) == (
        "same", 8, "adam", 16, "int64", "float32")
    table.drop()


def test_specs_are_checked(client):
    cases = [
        ({"name": "bad-name"}, ValueError, "name"),
        ({"dimension": 0}, ValueError, "dimension: 0, must be 1 to 8192"),
        ({"dimension": -1}, ValueError, "dimension: -1, must be 1 to 8192"),
        ({"dimension": True}, TypeError, "dimension: True"),
        ({"dimension": numpy.bool_(True)}, TypeError, "dimension"),
        ({"key_dtype": None}, ValueError, "key_dtype: None"),
        ({"dimension": 2.5}, TypeError, "dimension"),
        ({"optimizer": "sgdx"}, ValueError, "optimizer"),
        ({"optimizer": 3}, TypeError, "optimizer"),
        ({"optimizer": recps.Adam(beta1=1.5)}, ValueError, "beta1"),
        ({"initializer": "glorot"}, ValueError, "initializer"),
        ({"key_dtype": "float32"}, ValueError, "key_dtype"),
        ({"value_dtype": "float64"}, ValueError, "value_dtype"),
        ({"min_used_times": -1}, ValueError, "min_used_times"),
        ({"max_cold_secs": 5, "max_cold_steps": 5}, ValueError, "max_cold"),
        ({"device_vocabulary_size": 0}, ValueError,
         r"device_vocabulary_size is 0, must be in \[1, 1000000000\]"),
        ({"initializer": recps.VarianceScaling(0)}, ValueError, "scale"),
    ]
    for given, kind, words in cases:
        spec = {"name": "x", "dimension": 4, **given}
        with pytest.raises(kind, match=words):
            client.get_embedding_table(**spec)


@pytest.mark.parametrize("optimizer", [
    recps.SGD(weight_decay=0.1), recps.Momentum(nesterov=True),
    recps.Adagrad(), recps.RowwiseAdagrad(epsilon=1e-6),
    recps.Adam(beta2=0.9), recps.Adam(catchup=True), recps.AdamW(),
    recps.AdamW(0.01, catchup=True), recps.Ftrl(l1=0.01), recps.RMSprop()],
    ids=lambda each: each._name())
def test_every_optimizer_and_its_state(optimizer, tmp_path):
    with recps.connect("embedded", checkpoint_dir=tmp_path) as client:
        table = table_of(client, optimizer=optimizer, initializer="uniform")
        table.push([5, 6], numpy.ones((2, DIM), "f4"))
        batch = next(table.read())
        assert batch.slots.shape == (2, table.slot_floats)
        copy = table_of(client, optimizer=optimizer)
        copy.push([99], numpy.ones((1, DIM), "f4"))  # Adam counts pushes
        copy.assign(batch.keys, batch.rows, batch.slots, batch.meta)
        for each in (table, copy):
            each.push([5], numpy.full((1, DIM), 2, "f4"), step=2)
        numpy.testing.assert_array_equal(table.lookup([5, 6]),
                                         copy.lookup([5, 6]))


# --- rows, checkpoints -------------------------------------------------------


def test_rows_are_read_erased_and_evicted(client):
    table, rows = filled(client)
    batches = list(table.read(batch=30))
    keys = numpy.concatenate([batch.keys for batch in batches])
    found = numpy.concatenate([batch.rows for batch in batches])
    assert sorted(keys) == list(range(100))
    numpy.testing.assert_array_equal(found, rows[keys.astype(int)])
    assert table.erase([1, 2, 2, 1000]) == 2
    assert len(table) == 98
    assert table.evict().cold == 0
    table.alter(learning_rate=0.25)
    assert table.learning_rate == 0.25
    assert table.hot_keys() == []
    assert table.drop() == 98


def test_refresh_brings_what_changed(client):
    table, rows = filled(client)
    table.push([1], numpy.ones((1, DIM), "f4"))
    since = client.lookup_step
    hand = table.lookup([1, 2])
    table.push([2], numpy.ones((1, DIM), "f4"))
    assert 1 <= table.refresh([1, 2], hand, since) <= 2
    numpy.testing.assert_array_equal(hand, rows[[1, 2]] - 1)


def test_a_save_and_a_restore(client):
    table, rows = filled(client)
    saved = client.save(next(counter) + 1, data_position={"row": 3})
    assert saved.rows >= 100 and not saved.is_delta
    assert client.newest_checkpoint() == saved.step
    table.push(numpy.arange(100), numpy.ones((100, DIM), "f4"))
    later = table_of(client)
    later.push([1], numpy.ones((1, DIM), "f4"))
    started = client.restore()
    assert (started.step, started.data_position) == (saved.step, {"row": 3})
    numpy.testing.assert_array_equal(table.lookup(numpy.arange(100)), rows)
    assert (later.lookup([1]) == 0).all()  # made again, empty
    with pytest.raises(recps.NotFoundError):
        client.restore(999)


def test_one_replica_in_sync(client):
    started = client.begin(mode="sync", replicas=1)
    assert started.mode == "sync" and started.step == 0
    table = table_of(client)
    assert client.join().step == 0
    for step in (1, 2):
        table.push([1], numpy.ones((1, DIM), "f4"), step=step)
        decision = client.step_end(step, loss=0.5)
        assert (decision.step, decision.loss, decision.included) == (
            step, 0.5, True)
        client.apply()
        assert (table.lookup(1) == -step).all()
    assert client.step_end(3, leave=True).leave
    client.begin()  # what follows is async again
    client.join()


def test_statistics(client):
    table, _ = filled(client)
    table.lookup([1, 2, 1])
    assert table.stats()["rows"] == 100
    assert client.stats()[0]["tables"] and client.stats(digests=True)
    assert client.ping() is not None
    before = client.traffic()
    table.lookup([1])
    assert client.traffic().requests == before.requests + 1
    assert client.transport() in ("local", "tcp", "shm")
    assert client.servers == 1


# --- the package -------------------------------------------------------------


def test_a_cluster_is_a_dict_a_text_a_file_or_the_environment(
        server, tmp_path, monkeypatch):
    cluster = package.cluster_of(server)
    text = '{"cluster": {"ps": ["127.0.0.1:%d"]}}' % server.port
    (tmp_path / "tf_config.json").write_text(text)
    for given in (cluster, {"cluster": cluster}, text,
                  tmp_path / "tf_config.json"):
        with recps.connect(given, connect_timeout=10) as client:
            assert (client.role, client.servers) == ("none", 1)
            with pytest.raises(recps.InvalidError, match="chief"):
                client.save(1)
    monkeypatch.setenv("TF_CONFIG", (
        '{"cluster": {"ps": ["127.0.0.1:%d"], "worker": ["h:1", "h:2"]}, '
        '"task": {"type": "worker", "index": 1}, '
        '"recps": {"transport": "tcp"}}' % server.port))
    with recps.connect(connect_timeout=10) as client:
        assert (client.role, client.rank, client.replicas, client.is_chief,
                client.transport()) == ("worker", 1, 2, False, "tcp")
    with recps.connect(job_name="worker", task_index=0) as client:
        assert client.is_chief
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(recps.InvalidError, match="TF_CONFIG"):
        recps.connect()
    with pytest.raises(recps.InvalidError, match="recpsd"):
        recps.connect({"cluster": cluster, "task": {"type": "ps", "index": 0}})
    with pytest.raises(recps.UnreachableError, match="127.0.0.1:1"):
        recps.connect({"ps": ["127.0.0.1:1"]}, connect_timeout=0.2)
    with pytest.raises(recps.MismatchError, match="job"):
        recps.connect(cluster, job_id="another", connect_timeout=10)
    with pytest.raises(TypeError, match="cluster"):
        recps.connect(3)


def test_a_closed_client_says_so():
    client = recps.connect("embedded")
    table = table_of(client)
    ticket = table.lookup_async([1])
    client.close()
    client.close()
    assert client.closed and "closed" in repr(client)
    for call in (lambda: table.lookup([1]), client.stats, lambda: len(table),
                 lambda: table.push([1], numpy.ones((1, DIM), "f4")),
                 lambda: table_of(client), client.traffic):
        with pytest.raises(recps.ClosedError, match="closed"):
            call()
    with pytest.raises(recps.CanceledError):
        ticket.wait()


def test_nothing_here_is_pickled():
    with recps.connect("embedded") as client:
        for each in (client, table_of(client)):
            with pytest.raises(TypeError, match="pickled"):
                pickle.dumps(each)


def test_each_status_has_its_exception():
    header = (programs.ROOT / "include/recps/status.h").read_text()
    count = len(re.findall(r"RPS_E_\w+ = -\d+", header))
    from recps import errors
    assert sorted(errors._BY_STATUS) == list(range(-count, 0))
    for status, kind in errors._BY_STATUS.items():
        error = errors.error_of(status, "why")
        assert (type(error), str(error), error.status) == (
            kind, "why", status)
        assert isinstance(error, recps.Error)


def test_what_is_public_is_documented_and_typed():
    """Every module without an underscore; those of torch and tensorflow in
    their own tests, which have the two."""
    modules = {each.name for each in pkgutil.iter_modules(recps.__path__)
               if not each.name.startswith("_")}
    modules -= {"torch", "tensorflow", "compat"}
    assert {"checkpoint", "demo", "errors", "tables"} <= modules
    for name in ("recps", *(f"recps.{each}" for each in sorted(modules))):
        module = importlib.import_module(name)
        assert package.faults_of(module, module.__all__) == []


class _Planted:
    """Words."""

    def __init__(self, given):
        """Words."""

    @staticmethod
    def silent(given: int) -> int:
        return given

    @property
    def untyped(self):
        """Words."""

    @classmethod
    def whole(cls, given: int, *more: str, **names: str) -> None:
        """Words."""


def test_the_walk_sees_what_has_no_words_or_types():
    module = sys.modules[__name__]
    assert package.faults_of(module, ["_Planted"]) == [
        "_Planted.__init__: given has no type",
        "_Planted.__init__: no type of what it answers",
        "_Planted.silent: no words",
        "_Planted.untyped: no type of what it answers"]


LAYOUTS = {
    _library.TableSpec: "rps_table_spec", _library.Member: "rps_member",
    _library.Cluster: "rps_cluster",
    _library.ClusterOptions: "rps_cluster_options",
    _library.ClusterError: "rps_cluster_error",
    _library.ClientOptions: "rps_client_options",
    _library.Traffic: "rps_traffic", _library.CTicket: "rps_ticket",
    _library.CRollback: "rps_rollback",
    _library.CLookup: "rps_lookup", _library.CPush: "rps_push",
    _library.Call: "rps_call", _library.Assign: "rps_assign",
    _library.Terms: "rps_terms", _library.Start: "rps_start",
    _library.Decision: "rps_decision", _library.Eviction: "rps_eviction",
    _library.Hot: "rps_hot", _library.Scan: "rps_scan",
    _library.Rows: "rps_rows", _library.SavePlan: "rps_save_plan",
    _library.CSaved: "rps_saved"}


def test_structs_lie_as_the_c_compiler_has_them(tmp_path):
    lines, wanted = [], []
    for struct, name in LAYOUTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        wanted.append(f"{name} {_library.ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", '
                         f'offsetof({name}, {field}), '
                         f'sizeof((({name} *)0)->{field}));')
            where = getattr(struct, field)
            wanted.append(f"{name}.{field} {where.offset} {where.size}")
    (tmp_path / "layout.c").write_text(
        "#include <recps/rows.h>\n#include <recps/save.h>\n"
        "#include <stdio.h>\nint main(void) {\n" + "\n".join(lines)
        + "\nreturn 0; }\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{programs.ROOT}/include", "-o", program,
                    tmp_path / "layout.c"], check=True)
    said = subprocess.run([program], check=True, capture_output=True,
                          text=True).stdout
    assert said.splitlines() == wanted


def test_words_are_numbered_as_in_the_header():
    header = (programs.ROOT / "include/recps/types.h").read_text()
    words = {"RPS_VALUE": ["F32", "F16", "BF16", "I8"],
             "RPS_OPTIMIZER": [w.upper() for w in _library.OPTIMIZERS],
             "RPS_INITIALIZER": [w.upper() for w in _library.INITIALIZERS],
             "RPS_POOLING": [w.upper() for w in _library.POOLINGS],
             "RPS_TRANSPORT": [w.upper() for w in _library.TRANSPORTS],
             "RPS_ON_FULL": ["REFUSE", "EVICT_LRU", "EVICT_LFU"],
             "RPS_ADMISSION": ["EXACT", "SKETCH"],
             "RPS_FAN": ["IN", "OUT", "AVG"],
             "RPS_DISTRIBUTION": ["TRUNCATED_NORMAL", "NORMAL", "UNIFORM"]}
    for prefix, names in words.items():
        for number, name in enumerate(names):
            assert f"{prefix}_{name} = {number}" in header


def test_every_file_is_in_the_wheel():
    listed = (package.SOURCE / "meson.build").read_text()
    files = [p for p in sorted((package.SOURCE / "recps").rglob("*"))
             if p.suffix in (".py", "") and p.is_file()
             or p.name == "py.typed"]
    for path in files:
        relative = path.relative_to(package.SOURCE)
        assert f"'{relative}'" in listed, f"{relative} is not in meson.build"


def test_keys_of_a_list_are_not_rounded():
    keys, _ = _arrays.as_keys([2**63, 2**64 - 1])
    assert keys.tolist() == [2**63, 2**64 - 1]
    assert pathlib.Path(recps.library_path) == package.LIBRARY


def test_the_demo_learns():
    said = package.run("import sys; from recps import demo; "
                       "sys.exit(demo.main(['--steps', '400']))")
    assert "mapped from the file" in said


def test_the_manual_is_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("docs/PYTHON.md", "client/python/README.md"):
        scope = {}
        text = (programs.ROOT / name).read_text("utf8")
        for code in re.findall(r"```python\n(.*?)```", text, re.S):
            if "torch" not in code and "tensorflow" not in code:
                # test_python_torch.py and _tensorflow.py run those
                exec(code, scope)  # pylint: disable=exec-used
    text = (programs.ROOT / "docs/PYTHON.md").read_text("utf8")
    for name in recps.errors._BY_STATUS.values():
        assert f"`{name.__name__}`" in text


def test_what_a_lookup_writes_may_lie_over_its_own_ids():
    """A buffer used for both: the rows are those of the ids that were in it."""
    with recps.connect("embedded") as own:
        table = own.get_embedding_table("t", 2, optimizer=recps.SGD(1.0),
                                        initializer="zeros")
        ids = numpy.arange(1000)
        table.push(ids, -numpy.stack([ids, ids], 1).astype("f4"))
        for first in (0, 500):
            memory = numpy.zeros(1500, numpy.int64)
            memory[first:first + 1000] = ids
            rows = table.lookup(memory[first:first + 1000],
                                memory[:1000].view("f4").reshape(1000, 2))
            assert (rows == ids[:, None]).all()
        memory = numpy.zeros(1002, numpy.uint32)
        memory[:3] = [0, 1, 3]
        rows = table.lookup([1, 2, 3], memory[:4].view("f4").reshape(2, 2),
                            offsets=memory[:3])
        assert rows.tolist() == [[1, 1], [5, 5]]


@pytest.mark.parametrize("call, kind, words", [
    (lambda c, t: t.lookup([1], padding=[1, 2]), ValueError, r"padding.*one"),
    (lambda c, t: t.lookup([1], padding=[]), ValueError, r"padding.*one id"),
    (lambda c, t: t.lookup([1], padding=2**70), TypeError, "padding"),
    (lambda c, t: t.lookup_async([1]).wait(float("nan")), ValueError,
     "timeout: NaN"),
    (lambda c, t: t.lookup_async([1]).wait("1"), TypeError, "timeout: '1'"),
    (lambda c, t: copy.copy(t.lookup_async([1])), TypeError, "one request"),
    (lambda c, t: pickle.dumps(t.lookup_async([1])), TypeError, "request|cli"),
    (lambda c, t: c.get_embedding_table("a\0b", 4), ValueError, "NUL"),
    (lambda c, t: c.find_embedding_table("t\0b"), ValueError, "NUL"),
    (lambda c, t: c.find_embedding_table(7), TypeError, "name: 7"),
    (lambda c, t: c.transport(1), ValueError, "server: 1, must be 0 to 0"),
    (lambda c, t: c.join(), ValueError, "begin.. comes first"),
    (lambda c, t: c.begin(replicas=2), ValueError, "replicas: 2"),
])
def test_what_cannot_be_is_an_exception_and_no_hang(call, kind, words):
    with recps.connect("embedded") as own:
        table = own.get_embedding_table("t", DIM)
        with pytest.raises(kind, match=words):
            call(own, table)
        assert table.lookup_async([1]).wait(float("inf")).shape == (1, DIM)
        assert not own._borrowed


def test_the_demo_trains_through_two_servers():
    said = subprocess.run(
        [programs.RECPS, "launch", "--ps", "2", "--workers", "1", "--",
         sys.executable, "-m", "recps.demo", "--steps", "300"],
        env=package.environment(PATH=os.environ["PATH"]), timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    assert said.returncode == 0, said.stdout
    assert "<recps.Client worker 2 servers>" in said.stdout


@pytest.mark.parametrize("json_too", [False, True])
def test_the_benchmark_runs(json_too):
    said = subprocess.run(
        [sys.executable, programs.ROOT / "bench/python.py", "--rounds", "1",
         "--keys", "1000", "--library", package.LIBRARY,
         *["--json"] * json_too],
        env=package.environment(PATH=os.environ["PATH"]), timeout=60,
        capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    if json_too:
        figures = json.loads(said.stdout)
        assert figures["ratio"] == pytest.approx(
            figures["python_ms"] / figures["c_ms"])
        assert figures["same_address"] is True
    else:
        assert re.search(r"4096 x 26 ids of dim 16, local: .* ratio",
                         said.stdout)
