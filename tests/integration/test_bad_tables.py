# SPDX-License-Identifier: Apache-2.0
"""Specs and rows that no honest client sends, straight at the daemon: a
status, words that name the field, and the next request is served."""
import json
import math
import struct

import pytest

import programs
import wire

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")

# (field, value as it stands in the JSON text, more fields)
WRONG = [
    ("dimension", "0", {}), ("dimension", "8193", {}),
    ("dimension", "4294967297", {}), ("dimension", "-1", {}),
    ("dimension", "1e3000", {}), ("dimension", '"4"', {}),
    ("dimension", "4.5", {}), ("dimension", "null", {}),
    ("optimizer", '"adamax"', {}), ("optimizer", "0", {}),
    ("optimizer", '""', {}), ("optimizer", "[]", {}),
    ("initializer", '"xavier"', {}), ("value_dtype", '"f64"', {}),
    ("value_dtype", '"i8"', {}), ("key_dtype", '"string"', {}),
    ("on_full", '"panic"', {}), ("admission", '"bloom"', {}),
    ("learning_rate", "-1", {}), ("learning_rate", "1e39", {}),
    ("learning_rate", '"fast"', {}), ("learning_rate", "true", {}),
    ("initial_accumulator", "-0.5", {"optimizer": "adagrad"}),
    ("beta1", "1", {"optimizer": "adam"}),
    ("beta2", "-0.5", {"optimizer": "adam"}),
    ("epsilon", "0", {"optimizer": "adam"}),
    ("weight_decay", "-1", {"optimizer": "adamw"}),
    ("momentum", "-0.5", {"optimizer": "momentum"}),
    ("nesterov", "2", {"optimizer": "momentum"}),
    ("rho", "1.5", {"optimizer": "rmsprop"}),
    ("l1", "-1", {"optimizer": "ftrl"}), ("l2", "-1", {"optimizer": "ftrl"}),
    ("learning_rate_power", "0.5", {"optimizer": "ftrl"}),
    ("clip_value", "-1", {}), ("clip_norm", "-1", {}),
    ("default_value", "1e39", {}), ("seed", '"x"', {}), ("seed", '"-1"', {}),
    ("seed", '"18446744073709551616"', {}),
    ("device_vocabulary_size", "0", {}),
    ("min_used_times", "-1", {}), ("max_cold_secs", '"1h"', {}),
    ("memory_limit", "1", {}), ("memory_limit", "4096", {}),
    ("memory_limit", "-1", {}), ("no_such_field", "1", {}),
]


def ask(connection, text):
    return connection.call(wire.GET_TABLE, [wire.text(text)])


@pytest.mark.parametrize("field, value, more", WRONG,
                         ids=[f"{f}={v}" for f, v, _ in WRONG])
def test_a_wrong_field_is_named_and_makes_no_table(
        recpsd, field, value, more):
    words = {"name": "emb", "dimension": 4, "optimizer": "sgd", **more}
    words.pop(field, None)
    text = json.dumps(words)[:-1] + f', "{field}": {value}}}'
    with recpsd.connect() as connection:
        reply = ask(connection, text)
        assert reply.status in (wire.INVAL, wire.UNSUPPORTED), reply.text
        assert field in reply.text or value == "1e3000", reply.text
        assert ask(connection, '{"name":"emb","dimension":4,'
                               '"optimizer":"sgd"}').status == wire.OK
    assert [t["name"] for t in recpsd.stat()["tables"]] == ["emb"]


def keys(table, *values):
    return wire.section(wire.KEYS, struct.pack(f"<{len(values)}Q", *values),
                        table_id=table, count=len(values))


def rows(table, *values, lr=math.nan):
    return wire.section(wire.ROWS, struct.pack(f"<{len(values)}f", *values),
                        table_id=table, dim=2, count=len(values) // 2,
                        learning_rate=lr)


@pytest.mark.parametrize("lr", [math.inf, -math.inf])
def test_a_rate_that_no_push_may_carry_changes_nothing(recpsd, lr):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        reply = connection.call(
            wire.PUSH, [keys(table, 1), rows(table, 1.0, 1.0, lr=lr)],
            number=1)
        statuses = [reply.status] + [s["status"] for s in reply.sections]
        assert min(statuses) == wire.INVAL
        assert connection.call(wire.PING).status == wire.OK
    assert recpsd.stat()["tables"][0]["rows"] == 0


def test_gradients_of_nan_and_infinity_touch_no_other_row(recpsd):
    with recpsd.connect() as connection:
        table = connection.table(dim=2, initializer="zeros")
        reply = connection.call(wire.PUSH, [
            keys(table, 1, 2, 3, 4),
            rows(table, 1, 1, math.nan, 1, 1, -math.inf, 2, 3, lr=1.0)],
            number=1)
        assert reply.status == wire.OK, reply.text
        found = connection.call(wire.LOOKUP, [keys(table, 1, 2, 3, 4)])
        assert struct.unpack("<8f", found.find(wire.ROWS)) == (
            -1, -1, 0, 0, 0, 0, -2, -3)
    stat = recpsd.stat()["tables"][0]
    assert (stat["rows"], stat["nonfinite"]) == (2, 2)
