# SPDX-License-Identifier: Apache-2.0
"""docs/MIGRATION.md: our names beside others' are there, its Python runs."""
import dataclasses
import inspect
import re

import package
import programs

recps = package.load()
import numpy  # noqa: E402
from recps import checkpoint  # noqa: E402

PAGE = programs.ROOT / "docs/MIGRATION.md"
SECTIONS = ("ParameterServerStrategy", "PyTorch", "TorchRec", "TFRA",
            "DeepRec")


def test_rows_come_along_as_the_migration_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text("utf8")
    page = page[page.index("# Bringing rows along"):]
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, scope)  # pylint: disable=exec-used
    saved = checkpoint.open_newest(tmp_path / "brought")
    table = saved.table("user")
    numpy.testing.assert_array_equal(
        table.rows_of(scope["keys"]), scope["rows"])
    (slot,) = table.slot_names
    assert (table.slots_of(slot) == 0.5).all()


def ours_in_the_tables():
    """Code in the last column of the migration page's tables."""
    page = PAGE.read_text("utf8")
    parts = dict(part.split("\n", 1) for part in re.split(
        r"^# Coming from ", page, flags=re.M)[1:])
    cells = [line.rsplit("|", 2)[1] for name in SECTIONS
             for line in parts[name].splitlines() if line.startswith("|")]
    return re.findall(r"`([^`]+)`", " ".join(cells))


def all_parameters():
    """Of every public call of the package."""
    calls = [getattr(recps, name) for name in recps.__all__]
    for one in list(calls):
        if inspect.isclass(one):
            calls += [call for _, call in inspect.getmembers(
                one, inspect.isfunction)]
    return {name for call in calls if inspect.isfunction(call)
            or dataclasses.is_dataclass(call)
            for name in inspect.signature(call).parameters}


def test_what_stands_in_the_migration_tables_is_there():
    codes = ours_in_the_tables()
    words = [word for code in codes for word in re.findall(
        r"\b(?:recps|client|table)\.[\w.]*\w", code)]
    assert len(words) > 60
    for word in words:
        first, *names = word.split(".")
        if names[0] in ("torch", "checkpoint"):
            continue  # modules of their own: imported where they are used
        kinds = {"recps": (recps,), "client": (recps.Client,),
                 "table": (recps.EmbeddingTable, checkpoint.Table)}[first]
        assert any(hasattr(kind, names[0]) for kind in kinds), word
    known = all_parameters() | {
        "parents", "mode", "push"}  # of argparse, of recps.torch
    absent = {name for code in codes
              for name in re.findall(r"(\w+)=", code)} - known
    assert not absent
