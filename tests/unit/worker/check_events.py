#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes the event file that write_events makes, with a reader of
its own (TFRecord framing, CRC32C by table, protocol buffers by hand), and
compares the scalars. usage: check_events.py WRITE_EVENTS
"""
import glob
import math
import struct
import subprocess
import sys
import tempfile

TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def unmask(masked):
    rot = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((rot >> 17) | (rot << 15)) & 0xFFFFFFFF


def records(data):
    while data:
        head, crc = data[:8], struct.unpack("<I", data[8:12])[0]
        assert unmask(crc) == crc32c(head)
        size = struct.unpack("<Q", head)[0]
        body = data[12:12 + size]
        crc = struct.unpack("<I", data[12 + size:16 + size])[0]
        assert len(body) == size and unmask(crc) == crc32c(body)
        yield body
        data = data[16 + size:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        elif kind == 5:
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        else:
            assert kind == 2, kind
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        yield number, value


def scalars(path):
    """{(step, tag): value} of an event file."""
    with open(path, "rb") as file:
        events = [dict(fields(r)) for r in records(file.read())]
    assert events[0][3] == b"brain.Event:2"
    seen = {}
    for event in events[1:]:
        assert event[1] > 1.6e9  # wall time
        for number, value in fields(event[5]):
            assert number == 1
            scalar = dict(fields(value))
            seen[event.get(2, 0), scalar[1].decode()] = scalar[2]
    return seen


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder + "/a/b"],
                       check=True, stdout=subprocess.DEVNULL)
        paths = glob.glob(folder + "/a/b/events.out.tfevents.*")
        assert len(paths) == 1, paths
        seen = scalars(paths[0])

    def f32(value):
        return struct.unpack("<f", struct.pack("<f", value))[0]

    assert seen[1, "loss"] == 0.5
    assert seen[2, "loss"] == f32(0.693147180559945)
    assert math.isnan(seen[3, "loss"])
    for step in (1, 2, 3):
        assert seen[step, "learning_rate/sparse"] == f32(0.02)
        assert seen[step, "learning_rate/dense"] == f32(0.001)
        assert seen[step, "samples_per_second"] > 0
    assert seen[3, "auc"] == 0.75 and seen[3, "log_loss"] == 0.25
    assert len(seen) == 14, seen
    print(f"{len(seen)} scalars")


if __name__ == "__main__":
    main()
