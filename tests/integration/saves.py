# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one server that has no job: its chief is the test."""

import json

import pytest

import wire


def save(server, step, keep=5):
    chief = pytest.importorskip("test_checkpoint_numpy").chief
    with server.connect() as connection:
        reply = connection.call(
            wire.SAVE, [wire.text({"action": "prepare"})], step=step)
        assert reply.status == wire.OK, reply.text
        manifest = json.loads(chief([reply.json]))
        manifest.update(step=step, epoch=0)
        manifest = json.dumps(manifest, indent=1, sort_keys=True)
        reply = connection.call(wire.SAVE, [wire.text(
            {"action": "commit", "keep": keep, "manifest": manifest})],
            step=step)
        assert reply.status == wire.OK, reply.text
