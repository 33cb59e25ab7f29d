#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the readers make of the real files (dump_rows) with an
independent reading of the same files. usage: check_rows.py DUMP FORMAT ROOT

Data: RECPS_TEST_DATA, else ../shared/data beside the checkout ROOT, else
exit 77 (skipped). Hashed tokens are only checked for their rule: one key a
(field, text), the top bit set, none for two.
"""
import math
import os
import struct
import subprocess
import sys


def f32(value):
    return struct.pack(">f", value).hex()


def criteo(folder):
    for line in open(f"{folder}/criteo.tsv", encoding="ascii"):
        f = line.rstrip("\n").split("\t")
        dense = [math.log(max(float(v) if v else 0.0, -2) + 3)
                 for v in f[1:14]]
        tokens = [[int(v, 16) if v else ""] for v in f[14:40]]
        yield [int(f[0])], dense, tokens, True


def table(path):
    lines = list(open(path, encoding="utf8"))[1:]
    return [line.rstrip("\n").split("\t") for line in lines]


def token(text):
    """An integer, if the text is what str() makes of one below 2^48."""
    if text.isascii() and text.isdigit() and str(int(text)) == text:
        return int(text) if int(text) < 2**48 else text
    return text


def ml100k(folder):
    items = {f[0]: f for f in table(f"{folder}/ml-100k.item")}
    users = {f[0]: f for f in table(f"{folder}/ml-100k.user")}
    rows = table(f"{folder}/ml-100k.inter")
    rows.sort(key=lambda r: (float(r[3]), int(r[0]), int(r[1])))
    for u, i, rating, _ in rows:
        user, item = users[u], items[i]
        texts = [u, i, user[2], user[3], user[4], item[2],
                 item[3].split(" ")[0]]
        yield ([1 if float(rating) >= 4 else 0], [float(user[1]) / 50.0],
               [[token(t)] for t in texts], True)


def libfm(folder):
    for line in open(f"{folder}/frappe.libfm", encoding="ascii"):
        f = line.split()
        yield ([1 if f[0] == "1" else 0], [],
               [[int(t.split(":")[0])] for t in f[1:]], False)


def feasign(folder):
    lines = [line.split() for line in
             open(f"{folder}/paddle_feasign_slot_10.txt", encoding="ascii")]
    slots = sorted({int(t.split(":")[1]) for f in lines for t in f[1:]})
    big = 0
    for f in lines:
        bags = {slot: [] for slot in slots}
        for t in f[1:]:
            key, slot = t.split(":")
            bags[int(slot)].append(int(key))
            big += int(key) >= 2**63
        yield ([int(f[0].split(":")[0])], [], [bags[s] for s in slots],
               False)
    assert big > 1000, "half of the real keys are above 2^63"


FORMATS = {
    "criteo": (criteo, "criteo.tsv", "criteo.tsv"),
    "ml-100k": (ml100k, "ml-100k.inter", ""),
    "libfm": (libfm, "frappe.libfm", "frappe.libfm"),
    "feasign": (feasign, "paddle_feasign_slot_10.txt",
                "paddle_feasign_slot_10.txt"),
}


class Keys:
    """The rule of docs/DATA.md, seen from outside."""

    def __init__(self):
        self.key_of = {}
        self.pair_of = {}

    def check(self, field, tok, key):
        if isinstance(tok, int):
            assert key == field << 48 | tok, (field, tok, key)
            return
        assert key >> 63 == 1, (field, tok, key)
        assert self.key_of.setdefault((field, tok), key) == key
        assert self.pair_of.setdefault(key, (field, tok)) == (field, tok)


def check_row(line, expected, keys):
    labels, dense, fields, packed = expected
    got = line.rstrip("\n").split("\t")
    assert [float(v) for v in got[0].split()] == labels
    assert got[1].split() == [f32(v) for v in dense]
    bags = [[int(k) for k in b.split(",") if k] for b in got[2].split(" ")]
    if not packed:
        assert bags == fields
        return
    assert len(bags) == len(fields)
    for field, (bag, tokens) in enumerate(zip(bags, fields)):
        assert len(bag) == len(tokens) == 1
        keys.check(field, tokens[0], bag[0])


def main():
    dump, name, root = sys.argv[1:4]
    folder = os.environ.get("RECPS_TEST_DATA") or f"{root}/../shared/data"
    read, needs, path = FORMATS[name]
    if not os.path.exists(f"{folder}/{needs}"):
        print(f"skipped: no {folder}/{needs} (set RECPS_TEST_DATA)")
        sys.exit(77)
    out = subprocess.run([dump, f"{name}:{folder}/{path}"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    lines = out.splitlines()
    keys = Keys()
    count = 0
    for count, expected in enumerate(read(folder), 1):
        try:
            check_row(lines[count - 1], expected, keys)
        except AssertionError as error:
            sys.exit(f"row {count}: {error}\n{lines[count - 1]}\n{expected}")
    assert count == len(lines), (count, len(lines))
    print(f"{count} rows, {len(keys.key_of)} hashed tokens")


main()
