# SPDX-License-Identifier: Apache-2.0
"""recps npu memory: what it draws of a snapshot, and what it refuses."""
import json
import random
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest

import programs

SNAPSHOT = programs.TESTS_BUILD / "tests/tools/npu_snapshot"
KIB, MIB = 1 << 10, 1 << 20
STATES = ["allocated", "waiting", "held", "free"]

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")


def recps(*words, code=0, **more):
    done = subprocess.run(
        [str(programs.RECPS), "npu", *map(str, words)], capture_output=True,
        text=True, env=programs.environment(), timeout=60, check=False, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def segment(address, states, unit=512, **fields):
    """A segment of blocks of one unit, a letter each: a, w, f."""
    names = {"a": "allocated", "w": "waiting", "f": "free"}
    blocks = [{"address": hex(address + i * unit), "bytes": unit,
               "requested": 0 if s == "f" else unit - 1, "state": names[s]}
              for i, s in enumerate(states)]
    return {"address": hex(address), "bytes": len(states) * unit,
            "pool": "small", "stream": "compute", "step": 0,
            "blocks": blocks, **fields}


def snapshot(*segments):
    return {"device": 3, "capacity": 1024 * MIB, "statistics": {},
            "segments": list(segments)}


def save(folder, value):
    path = folder / "snapshot.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value),
                    "utf8")
    return path


def sums(value):
    """Bytes by state and the largest free block, counted here."""
    found, largest = dict.fromkeys(STATES, 0), 0
    for seg in value["segments"]:
        for block in seg["blocks"]:
            state = block["state"]
            if state == "free" and seg["step"]:
                state = "held"
            found[state] += block["bytes"]
            if state == "free":
                largest = max(largest, block["bytes"])
    return found, largest


@pytest.fixture(scope="module")
def real():
    if not SNAPSHOT.is_file():
        pytest.skip(f"{SNAPSHOT} is not built")
    env = programs.environment()
    return json.loads(subprocess.run([str(SNAPSHOT)], env=env, check=True,
                                     capture_output=True, timeout=60).stdout)


# --- sums -----------------------------------------------------------------------

def test_a_pools_own_figures_are_those_of_its_snapshot(real, tmp_path):
    value, report = real["snapshot"], real["report"]
    answer = json.loads(
        recps("memory", save(tmp_path, value), "--json").stdout)
    by_state, largest = sums(value)
    assert all(by_state[s] > 0 for s in STATES)
    assert {s: answer[s] for s in STATES} == by_state
    assert answer["largest_free"] == report["largest_free"] == largest
    assert answer["allocated"] == report["allocated"]["now"]
    assert answer["allocated"] + answer["waiting"] == report["active"]["now"]
    assert answer["held"] == report["held"]
    assert answer["reserved"] == report["reserved"]["now"] == \
        sum(by_state.values())
    assert answer["segments"] == report["segments"]["now"]
    assert answer["fragmentation"] == pytest.approx(report["fragmentation"])
    assert answer["fragmentation"] == \
        pytest.approx(1 - largest / by_state["free"])
    assert answer["capacity"] == 1024 * MIB and answer["device"] == 0
    assert report == {**value["statistics"], "device": 0}


def test_an_empty_pool_is_drawn_too(tmp_path):
    path = save(tmp_path, snapshot())
    assert "reserved 0 B of 1.0 GiB, in 0 segments" in \
        recps("memory", path).stdout
    answer = json.loads(recps("memory", path, "--json").stdout)
    assert answer["fragmentation"] == 0 and answer["segments"] == 0
    recps("memory", path, "--svg", tmp_path / "o.svg")
    ET.parse(tmp_path / "o.svg")


# --- what is asked for first ------------------------------------------------------

def test_variables_and_slots_first_fit_in_less_and_fragment_less():
    tool = SNAPSHOT.with_name("npu_fragmentation")
    if not tool.is_file():
        pytest.skip(f"{tool} is not built")
    env = programs.environment()
    table = subprocess.run([str(tool)], env=env, check=True, text=True,
                           capture_output=True, timeout=60).stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in table.splitlines()[2:]]
    first, mixed = ([float(cell.split()[0]) for cell in row[1:]]
                    for row in rows)
    allocated, _, trimmed, fragmentation, fits = range(5)
    assert mixed[allocated] == pytest.approx(first[allocated], rel=0.01)
    assert first[trimmed] <= mixed[trimmed]
    assert first[fragmentation] < mixed[fragmentation] / 2
    assert mixed[fits] / first[fits] == pytest.approx(1.15, abs=0.01)
    assert table in (programs.ROOT / "docs/NPU.md").read_text("utf8")


# --- the terminal ---------------------------------------------------------------

def test_a_bar_shows_each_state_where_it_is(tmp_path):
    path = save(tmp_path, snapshot(
        segment(0x10000, "a" * 10 + "w" * 10 + "f" * 20),
        segment(0x20000, "a" * 20 + "f" * 20, step=2, pool="large",
                stream=None)))
    lines = recps("memory", path).stdout.splitlines()
    assert lines[0] == \
        "npu 3: reserved 40.0 KiB of 1.0 GiB, in 2 segments, 80 blocks"
    assert lines[2:7] == [
        "  #  allocated                   15.0 KiB   37.5 %",
        "  ~  waits for other streams      5.0 KiB   12.5 %",
        "  -  free, a compiled step's     10.0 KiB   25.0 %",
        "  .  free                        10.0 KiB   25.0 %",
        "     largest free block             512 B"]
    assert lines[-2].split() == [
        "0x10000", "20.0", "KiB", "small", "compute", "40",
        "[" + "#" * 10 + "~" * 10 + "." * 20 + "]"]
    assert lines[-1].split() == [
        "0x20000", "20.0", "KiB", "large", "(any)", "2", "40",
        "[" + "#" * 20 + "-" * 20 + "]"]


def test_a_cell_is_as_most_of_its_bytes_are(tmp_path):
    # 120 blocks, three a cell: two of the three decide
    path = save(tmp_path, snapshot(segment(0, "aaf" * 20 + "ffa" * 20)))
    assert "[" + "#" * 20 + "." * 20 + "]" in recps("memory", path).stdout


def test_a_segment_with_fewer_bytes_than_cells_is_drawn(tmp_path):
    path = save(tmp_path, snapshot(segment(0, "awf", unit=1)))
    assert "[#~.]" in recps("memory", path).stdout


def test_names_give_no_orders_to_a_terminal(tmp_path):
    path = save(tmp_path, snapshot(
        segment(0, "af", stream="\x1b]0;title\x07\u009b31mred")))
    out = recps("memory", path).stdout
    assert "\x1b" not in out and "\u009b" not in out and "\x07" not in out
    assert "?]0;title?" in out


def test_a_pipe_is_read(tmp_path):
    out = recps("memory", "/dev/stdin",
                input=json.dumps(snapshot(segment(0, "af")))).stdout
    assert "1 segments, 2 blocks" in out


# --- the picture ----------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def picture(tmp_path, value):
    out = tmp_path / "memory.svg"
    recps("memory", save(tmp_path, value), "--svg", out)
    assert not (tmp_path / "memory.svg.tmp").exists()
    return out.read_text("utf8"), ET.parse(out).getroot()


def bars(root):
    """The rectangles of blocks, by the height at which they stand."""
    found = {}
    for rect in root.iter(SVG + "rect"):
        if float(rect.get("y")) >= 150:
            found.setdefault(float(rect.get("y")), []).append(rect)
    return [found[y] for y in sorted(found)]


def test_the_picture_stands_alone_in_light_and_dark(real, tmp_path):
    text, root = picture(tmp_path, real["snapshot"])
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|href|url\(|@import|<image|on\w+=", text)
    assert root.find(SVG + "title").text == "Memory of npu 0"
    assert len(bars(root)) == len(real["snapshot"]["segments"])


def test_each_block_is_as_wide_as_its_share(tmp_path):
    _, root = picture(tmp_path, snapshot(segment(0x1000, "awff"),
                                         segment(0x9000, "ff", step=1)))
    first, second = bars(root)
    assert [r.get("class") for r in first] == \
        ["allocated", "waiting", "free", "free"]
    assert [r.get("class") for r in second] == ["held", "held"]
    for rects, count in ((first, 4), (second, 2)):
        for i, rect in enumerate(rects):
            assert float(rect.get("x")) == pytest.approx(
                290 + 650 * i / count, abs=0.02)
            # half a pixel is left between blocks
            assert float(rect.get("width")) == pytest.approx(
                650 / count - 0.5, abs=0.02)
    assert first[0].find(SVG + "title").text == \
        "0x1000: 512 B, allocated, 511 B asked for"
    assert first[2].find(SVG + "title").text == "0x1400: 512 B, free"


def test_blocks_too_narrow_to_see_are_drawn_together(tmp_path):
    count = 4000
    _, root = picture(tmp_path, snapshot(segment(0, "af" * (count // 2))))
    rects = bars(root)[0]
    assert 650 <= len(rects) + 1 and len(rects) <= 650 / 0.75 + 1
    told = [int(re.search(r"(\d+) blocks", r.find(SVG + "title").text)[1])
            for r in rects]
    assert sum(told) == count


def test_names_of_the_file_are_text_in_the_picture(tmp_path):
    name = "</text><script>alert(1)</script>&amp;\x01"
    text, root = picture(tmp_path, snapshot(segment(0, "af", stream=name)))
    assert "<script" not in text
    assert name.replace("\x01", "?") in [t.text for t in root.iter(SVG + "text")]


def test_where_the_picture_cannot_be_written_that_is_said(tmp_path):
    path = save(tmp_path, snapshot(segment(0, "af")))
    done = recps("memory", path, "--svg", tmp_path / "no/o.svg", code=74)
    assert "--svg: " in done.stderr and "no/o.svg" in done.stderr
    assert done.stdout and "written" not in done.stdout


# --- what is refused ------------------------------------------------------------

def changed(**fields):
    value = segment(0x1000, "awf")
    value.update(fields)
    return snapshot(segment(0x100, "a", unit=0x100), value)


def changed_block(index, **fields):
    value = segment(0x1000, "awf")
    value["blocks"][index].update(fields)
    return snapshot(value)


REFUSED = [
    ("{", "no JSON"),
    ("[]", "an object with device, capacity and segments"),
    ({"device": 0, "capacity": 1, "segments": {}}, "an object with device"),
    ({"device": -1, "capacity": 1, "segments": []}, "an object with device"),
    (snapshot(5), "segments[0].address must be \"0x...\""),
    (changed(address="1000"), "segments[1].address must be \"0x...\""),
    (changed(address="0x" + "f" * 17), "segments[1].address"),
    (changed(address="0x180"), "must be no less than the end of the segment"),
    (changed(bytes=0), "segments[1].bytes must be 1 at least"),
    (changed(bytes=2048), "segments[1].blocks must fill their segment"),
    (changed(bytes=1024), "segments[1].blocks[2].bytes must be 1 at least"),
    (changed(bytes=2**63), "is no JSON"),
    (changed(address=hex(2**64 - 512)), "and end below 2^64"),
    (changed(pool="medium"), "segments[1].pool must be"),
    (changed(stream=7), "segments[1].stream must be"),
    (changed(step=-1), "segments[1].step must be a whole number"),
    (changed(blocks=[]), "segments[1].blocks must be an array"),
    (changed(blocks=None), "segments[1].blocks must be an array"),
    (changed(blocks=[1, 2]), "segments[1].blocks[0].address"),
    (changed_block(1, address="0x1201"), "blocks[1].address must be the end"),
    (changed_block(1, address="0x0"), "blocks[1].address must be the end"),
    (changed_block(1, bytes=0), "blocks[1].bytes must be 1 at least"),
    (changed_block(1, bytes=-5), "blocks[1].bytes must be a whole number"),
    (changed_block(1, bytes=2**62), "blocks[1].bytes must be 1 at least"),
    (changed_block(2, requested=513), "requested must be at most its bytes"),
    (changed_block(0, state="held"), "blocks[0].state must be"),
    (changed_block(0, state=None), "blocks[0].state must be"),
]


@pytest.mark.parametrize("value, words", REFUSED)
def test_what_is_no_snapshot_is_named(value, words, tmp_path):
    path = save(tmp_path, value)
    done = recps("memory", path, code=65)
    assert words in done.stderr and str(path) in done.stderr
    assert done.stdout == ""


def test_files_cut_or_changed_anywhere_are_refused_or_drawn(tmp_path):
    whole = json.dumps(snapshot(segment(0x1000, "awffa"), segment(
        0x9000, "ffa", step=1, stream=None)))
    draw = random.Random(7)
    for _ in range(60):
        text = whole
        if draw.random() < 0.5:
            text = text[:draw.randrange(len(text))]
        else:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice('0159-"{}[],:ax') + text[at + 1:]
        run = subprocess.run(
            [str(programs.RECPS), "npu", "memory", str(save(tmp_path, text)),
             "--svg", str(tmp_path / "o.svg")], capture_output=True, text=True,
            env=programs.environment(), timeout=60, check=False)
        assert run.returncode in (0, 65), text + run.stderr


def test_usage_and_missing_files_have_their_codes(tmp_path):
    assert "say what to do: memory" in recps(code=64).stderr
    assert "say what to do: memory" in recps("draw", "x", code=64).stderr
    assert "FILE is missing" in recps("memory", code=64).stderr
    assert "--svg FILE is missing" in recps(
        "memory", save(tmp_path, "{}"), "--svg=", code=64).stderr
    gone = recps("memory", tmp_path / "gone", "--json", code=66)
    assert json.loads(gone.stdout)["exit"] == 66
    assert "gone" in gone.stderr
    recps("memory", tmp_path, code=66)
