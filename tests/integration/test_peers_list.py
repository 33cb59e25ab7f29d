# SPDX-License-Identifier: Apache-2.0
"""tests/README.md names tests; each of them exists."""
import re

import programs

TESTS = programs.ROOT / "tests"


def test_each_test_in_the_list_is_there():
    rows = re.findall(r"^\| .*\|$",
                      (TESTS / "README.md").read_text().split(
                          "## What went wrong elsewhere")[1], re.M)[2:]
    assert len(rows) > 15
    sources = "".join(p.read_text() for pattern in ("test_*.c", "test_*.py")
                      for p in TESTS.rglob(pattern))
    there = set(re.findall(r"START_TEST\((\w+)\)|^def (test_\w+)", sources,
                           re.M))
    there = {name for pair in there for name in pair}
    for row in rows:
        names = re.findall(r"`(\w+)`", row.split("|")[3])
        assert names, row
        for name in names:
            assert name in there, name
