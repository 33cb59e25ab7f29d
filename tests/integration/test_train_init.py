# SPDX-License-Identifier: Apache-2.0
"""--init-from: what of its folder is refused, and how."""
import shutil

import numpy
import pytest

import trainer

pytestmark = trainer.needs_programs

DIM, FIELDS, ROWS, TOKENS = 4, 26, 120, 10
PAIRS = (FIELDS + 1) * FIELDS // 2
SHAPES = {"bot.0.weight": (6, 13), "bot.0.bias": (6,),
          "bot.2.weight": (DIM, 6), "bot.2.bias": (DIM,),
          "top.0.weight": (1, DIM + PAIRS), "top.0.bias": (1,)}


@pytest.fixture(name="start")
def fixture_start(tmp_path):
    """(flags, folder of start weights, its keys)."""
    data, folder = tmp_path / "data.tsv", tmp_path / "start"
    made = trainer.criteo_file(data, ROWS, tokens=TOKENS)
    pairs = sorted({(field, -1 if v is None else v * 2654435761 % 2**32)
                    for row in made for field, v in enumerate(row[2])})
    draw = numpy.random.default_rng(1)
    folder.mkdir()
    for name, shape in {**SHAPES, "emb.weight": (len(pairs), DIM)}.items():
        numpy.save(folder / f"{name}.npy",
                   draw.uniform(-0.1, 0.1, shape).astype("f4"))
    (folder / "keys.tsv").write_text("".join(
        f"{n}\t{field}\t{token}\n"
        for n, (field, token) in enumerate(pairs)))
    flags = ["--data", f"criteo:{data}", "--batch-size", 40, "--emb-dim", DIM,
             "--bottom-mlp", f"6,{DIM}", "--top-mlp", 1, "--init-from",
             folder]
    return flags, folder, pairs


def lines_of(folder):
    return (folder / "keys.tsv").read_text().splitlines(keepends=True)


def test_crlf_and_any_order_of_lines_are_the_same(start, tmp_path):
    flags, folder, pairs = start
    logs = [tmp_path / "a.json", tmp_path / "b.json"]
    out = trainer.train(*flags, "--json-log", logs[0]).stdout
    assert f"{len(pairs)} keys assigned, 0 left out" in out
    (folder / "keys.tsv").write_text("".join(
        line.replace("\n", "\r\n") for line in reversed(lines_of(folder))),
        newline="")
    trainer.train(*flags, "--json-log", logs[1])
    assert trainer.log_of(logs[0])[0] == trainer.log_of(logs[1])[0]


def cut_off(folder):
    lines = lines_of(folder)
    (folder / "keys.tsv").write_text("".join(lines[:100]))
    return f"row 100 of emb.weight's {len(lines)} is on none of its 100 lines"


def empty(folder):
    (folder / "keys.tsv").write_text("")
    return "row 0 of emb.weight's"


def hole(folder):
    lines = lines_of(folder)
    (folder / "keys.tsv").write_text("".join(lines[:7] + lines[8:]))
    return f"row 7 of emb.weight's {len(lines)} is on none"


def twice(folder):
    lines = lines_of(folder)
    lines[9] = "5\t" + lines[9].partition("\t")[2]
    (folder / "keys.tsv").write_text("".join(lines))
    return "keys.tsv:10: row 5 of emb.weight was on an earlier line"


def bad_token(folder):
    lines = lines_of(folder)
    lines[2] = lines[2].rstrip("\n") + "x\n"
    (folder / "keys.tsv").write_text("".join(lines))
    return "keys.tsv:3: "


def bad_field(folder):
    lines = lines_of(folder)
    lines[2] = "2\t26\t5\n"
    (folder / "keys.tsv").write_text("".join(lines))
    return "keys.tsv:3: field 26"


def other_shape(folder):
    numpy.save(folder / "top.0.bias.npy", numpy.zeros(2, "f4"))
    return "top.0.bias.npy is 2; the model needs 1"


def other_type(folder):
    numpy.save(folder / "top.0.bias.npy", numpy.zeros(1, "f8"))
    return "top.0.bias.npy holds <f8; it must be <f4"


def truncated(folder):
    path = folder / "emb.weight.npy"
    path.write_bytes(path.read_bytes()[:-8])
    return "emb.weight.npy"


def no_npy(folder):
    (folder / "bot.0.bias.npy").write_bytes(b"")
    return "bot.0.bias.npy"


def not_finite(folder):
    numpy.save(folder / "bot.0.bias.npy", numpy.full(6, numpy.nan, "f4"))
    return "bot.0.bias"


def infinite_embedding(folder):
    rows = numpy.load(folder / "emb.weight.npy")
    rows[3, 1] = numpy.inf
    numpy.save(folder / "emb.weight.npy", rows)
    return "assigning"


@pytest.mark.parametrize("damage", [
    cut_off, empty, hole, twice, bad_token, bad_field, other_shape,
    other_type, truncated, no_npy, not_finite, infinite_embedding])
def test_damaged_start_weights_are_65_and_named(start, damage):
    flags, folder, _ = start
    words = damage(folder)
    done = trainer.train(*flags, code=65)
    assert words in done.stderr
    assert "step 1 " not in done.stdout


@pytest.mark.parametrize("name", ["keys.tsv", "emb.weight.npy",
                                  "top.0.bias.npy", "."])
def test_missing_start_weights_are_66_and_named(start, name):
    flags, folder, _ = start
    if name == ".":
        shutil.rmtree(folder)
    else:
        (folder / name).unlink()
    done = trainer.train(*flags, code=66)
    assert str(folder / name).rstrip(".") in done.stderr
