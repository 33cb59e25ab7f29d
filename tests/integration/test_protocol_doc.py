# SPDX-License-Identifier: Apache-2.0
"""PROTOCOL.md's worked frame, rebuilt from the rules with struct and xxhash."""
import pathlib
import re
import struct

import xxhash

ROOT = pathlib.Path(__file__).resolve().parents[2]


def documented_frame():
    text = (ROOT / "proto/PROTOCOL.md").read_text(encoding="utf8")
    dump = re.search(r"```hex\n(.*?)```", text, re.S).group(1)
    return b"".join(bytes.fromhex(line[4:]) for line in dump.splitlines())


def test_the_documented_dump_follows_the_documented_rules():
    section = struct.pack(
        "<QHHIQQQif", xxhash.xxh3_64_intdigest(b"emb"), 1, 0, 0, 2, 128, 16, 0, 0.0)
    body = (struct.pack("<II", 1, 0) + section).ljust(64, b"\0")
    body += struct.pack("<QQ", 7, 2**64 - 1)
    header = struct.pack("<4sHHIIQQQQIII", b"RPS1", 1, 4, 8, len(body), 42, 0, 3,
                         0, 1, 1, 250000)
    header += struct.pack("<I", xxhash.xxh32_intdigest(header))
    assert documented_frame() == header + body
