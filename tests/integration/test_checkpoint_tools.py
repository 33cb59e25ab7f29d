# SPDX-License-Identifier: Apache-2.0
"""The tools that work on checkpoints without a cluster.

The checkpoints are NumPy's (deltas.py), which also says what must come out.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy
import pytest

import deltas
import programs
import wire

if not programs.RECPS.is_file():
    pytest.skip(f"{programs.RECPS} is not built", allow_module_level=True)


def recps(*arguments, code=0, text=None):
    run = subprocess.run([str(programs.RECPS), *map(str, arguments)],
                         env=programs.environment(), input=text,
                         capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, (arguments, run.stdout, run.stderr)
    return run


def answer(*arguments, code=0):
    return json.loads(recps(*arguments, "--json", code=code).stdout)


def random_of(number):
    return numpy.random.default_rng(number)


@pytest.fixture(name="job")
def make_job(tmp_path):
    return deltas.chain(tmp_path / "ckpt", random_of(1))


def expect_content(folder, job):
    """The full checkpoint in the folder has the job's rows, bit for bit."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["tables"]) == sorted(job.tables)
    for name, table in job.tables.items():
        assert deltas.read(folder, name) == table.rows, name
    assert manifest["digest"] == job.digest()


# ---- verify and digest ----

def test_a_delta_has_the_digest_of_the_state_it_leads_to(job):
    said = answer("digest", job.folder)
    assert said["digest"] == job.digest()
    assert [(l["step"], l["kind"]) for l in said["links"]] == [
        (10, "full"), (20, "delta"), (30, "delta"), (40, "delta")]
    assert {t["name"]: t["rows"] for t in said["tables"]} == {
        n: len(t.rows) for n, t in job.tables.items()}
    assert said["links"][-1]["digest"] == job.parent[1] != said["digest"]
    assert answer("verify", job.folder / job.parent[0])["matches"] is True


def documented(folder, monkeypatch):
    """The page's code, in a folder that has its ckpt-000000000042."""
    shutil.copytree(folder / "ckpt-000000000010", folder / "ckpt-000000000042")
    monkeypatch.chdir(folder)
    page = (programs.ROOT / "docs/CHECKPOINT.md").read_text(encoding="utf8")
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, scope)  # pylint: disable=exec-used
    return page, scope


def save_the_example(folder):
    job = deltas.Job(folder)
    table = job.make("emb", 2, "sgd")

    def put(key, *value):
        table.put(key, deltas.Row(numpy.array(value, "<f4"), {}, 1, 1))

    for key in (1, 2, 3):
        put(key, key, key)
    put(7, 7, 7)  # which the page prints
    job.save(10, 1)
    table.erase(7)
    job.save(40, 2)
    table.erase(2)
    put(3, 3, 30)
    put(4, 4, 4)
    job.save(50, 1, "delta")
    return job


def test_the_documented_example_is_what_it_says(tmp_path, monkeypatch, capsys):
    job = save_the_example(tmp_path)
    page, scope = documented(tmp_path, monkeypatch)
    assert capsys.readouterr().out.startswith("4 rows; key 7 is [7. 7.]")
    rows = re.findall(r"^\| (\d) \|(.*?)\|(.*?)\|(.*?)\|$", page, re.M)
    full, delta, state = ({int(r[0]): r[i].strip() for r in rows if r[i].strip()}
                          for i in (1, 2, 3))
    show = lambda found: {k: f"[{v[0]:g}, {v[1]:g}]"  # noqa: E731
                          for k, v in found.items()}
    replay = scope["replay"]
    assert show(replay("ckpt-000000000040", "emb")) == full
    assert show(replay("ckpt-000000000050", "emb")) == state
    here = tmp_path / "ckpt-000000000050/table-emb"
    assert sorted(numpy.load(here / "0-of-1.keys.npy")) == [3, 4]
    assert list(numpy.load(here / "0-of-1.erased.npy")) == [
        k for k, words in delta.items() if words == "in `erased`"]
    slots = [str(deltas.slot_of(k)) for k in (1, 2, 3, 4)]
    assert f"are {slots[0]}, {slots[1]}, {slots[2]} and {slots[3]}" in " ".join(
        page.split())
    assert answer("digest", tmp_path / job.parent[0])["digest"] == job.digest()


def test_the_documented_code_replays_any_chain(job, tmp_path, monkeypatch):
    _, scope = documented(save_the_example(tmp_path / "other").folder,
                          monkeypatch)
    folder = str(job.folder / job.parent[0])
    recps("compact", job.folder / "ckpt-000000000020")  # "folded"
    for name, table in job.tables.items():
        found = scope["replay"](folder, name)
        assert {k: v.tobytes() for k, v in found.items()} == {
            k: r.value.tobytes() for k, r in table.rows.items()}


@pytest.mark.parametrize("seed", range(2))
def test_any_chain_is_replayed(tmp_path, seed):
    random = random_of(100 + seed)
    parts = [int(n) for n in random.integers(1, 6, size=5)]
    job = deltas.chain(tmp_path, random, deltas=5, parts=parts, seed=seed)
    assert answer("digest", tmp_path)["digest"] == job.digest()


def test_an_abandoned_step_is_not_the_newest(job):
    digest = job.digest()
    job.epoch = 2
    job.save(35, 2)
    assert answer("verify", job.folder)["step"] == 35
    assert answer("digest", job.folder)["digest"] == digest
    assert answer("verify", job.folder / "ckpt-000000000040")["step"] == 40


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_each_part_that_cannot_be_read_is_named(tmp_path, how):
    deltas.chain(tmp_path, random_of(31), deltas=0, parts=[5])
    folder = tmp_path / "ckpt-000000000010"
    for part in (1, 4):
        path = folder / f"part-{part}-of-5.json"
        if how == "missing":
            path.unlink()
        else:
            path.write_text(path.read_text() + " ")
    said = answer("verify", folder, code=65)["error"]
    with programs.Recpsd("--checkpoint-dir", str(tmp_path)) as server:
        with server.connect() as connection:
            reply = connection.call(wire.RESTORE, [wire.text(
                {"epoch": 9, "step": 10, "mode": "async", "replicas": 1})])
            assert reply.status < 0
            for words in (said, reply.text):
                assert "part-1-of-5.json" in words, words
                assert "part-4-of-5.json" in words, words
                assert "part-0" not in words and "part-2" not in words
        unusable = server.stat()["checkpoints_unusable"]
        if how == "missing":
            assert "part-4-of-5.json" in unusable[0]["why"]


def test_a_missing_link_is_named(job):
    (job.folder / "ckpt-000000000020").rename(job.folder / "aside")
    for tool in ("verify", "digest", "compact", "inspect"):
        for path in (job.folder / "ckpt-000000000040", job.folder):
            said = answer(tool, path, code=65)
            assert "ckpt-000000000020" in said["error"], said


def test_a_replaced_link_is_refused(job):
    parent = job.folder / "ckpt-000000000020"
    other = deltas.Job(job.folder.parent / "other")
    other.make("emb", 3).put(1, job.tables["emb"].random_row(random_of(2), 20))
    made = other.save(20)
    parent.rename(job.folder / "aside")
    made.rename(parent)
    said = answer("verify", job.folder / "ckpt-000000000040", code=65)
    assert "ckpt-000000000020" in said["error"] and "replaced" in said["error"]


def damaged(data, random, how):
    at = int(random.integers(len(data)))
    if how == "flip":
        return data[:at] + bytes([data[at] ^ 1 << int(random.integers(8))]
                                 ) + data[at + 1:]
    return data[:at]


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_damage_of_any_file_of_any_link_is_named(tmp_path, how):
    """All files of a full checkpoint and a delta, a random byte of each."""
    random = random_of(7)
    job = deltas.Job(tmp_path)
    job.make("emb", 3).counts = {70: 2, 71: 3}
    job.make("half", 2, "momentum", "float16")
    job.storm(random, 10, keys=20)
    job.save(10, 2)
    job.storm(random, 20, keys=20)
    newest = job.save(20, 1, "delta")
    files = [f for f in sorted(tmp_path.rglob("*")) if f.is_file()]
    assert any(f.name.endswith("erased.npy") for f in files)
    for file in files:
        kept = file.read_bytes()
        file.write_bytes(damaged(kept, random, how))
        run = subprocess.run(
            [str(programs.RECPS), "verify", str(newest)], text=True,
            env=programs.environment(), capture_output=True, check=False)
        file.write_bytes(kept)
        assert run.returncode in (65, 70), (file, run)
        named = str(file.relative_to(tmp_path))
        assert named.removesuffix(".xxh3") in run.stderr, (file, run.stderr)
        if named.endswith(".npy"):
            assert "block 0" in run.stderr, run.stderr
    recps("verify", newest)


def test_a_manifest_that_is_no_json_is_named(job):
    file = job.folder / "ckpt-000000000040" / "manifest.json"
    kept = file.read_bytes()
    for data in (b"{", kept + b"x", b""):
        file.write_bytes(data)
        for path in (file.parent, job.folder):
            said = answer("verify", path, code=65)
            assert f"{file.parent.name}/{file.name}" in said["error"], said


# ---- compact and reshard ----

def test_compact_folds_a_chain_in_its_place(job):
    path = job.folder / job.parent[0]
    said = answer("compact", job.folder)
    assert said["written"] is True and said["digest"] == job.digest()
    expect_content(path, job)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["data_position"] == {"row": 40}
    assert (manifest["job_id"], manifest["epoch"]) == ("numpy", 1)
    assert numpy.load(path / "lanes-0-of-2.npy").tolist() == job.lanes
    assert [p.name for p in job.folder.iterdir() if p.name[0] == "."] == []
    part = json.loads((path / "part-1-of-2.json").read_text())
    assert part["tables"]["emb"]["pushes"] == str(job.tables["emb"].pushes + 1)
    assert answer("compact", job.folder)["written"] is False
    expect_counts(path, 2, job)
    assert answer("verify", job.folder)["digest"] == job.digest()


def expect_counts(path, parts, job):
    counts = {}
    for part in range(parts):
        file = path / f"table-emb/{part}-of-{parts}.admission.npy"
        if file.exists():
            for key, count in numpy.load(file).tolist():
                assert deltas.slot_of(key, job.seed) * parts // 4096 == part
                counts[key] = count
    assert counts == job.tables["emb"].counts


def test_a_child_still_stands_on_a_delta_that_was_folded(job):
    digest = job.digest()
    recps("compact", job.folder / "ckpt-000000000020")
    recps("reshard", job.folder / "ckpt-000000000020", "--parts", 3)
    said = answer("verify", job.folder)
    assert [(l["step"], l["kind"]) for l in said["links"]] == [
        (20, "full"), (30, "delta"), (40, "delta")]
    assert said["digest"] == digest
    assert answer("prune", "--keep", 1, job.folder)["removed"] == [10]
    assert answer("verify", job.folder)["digest"] == digest


def test_compact_into_another_folder_leaves_what_was_there(job, tmp_path):
    files = {p: p.read_bytes() for p in job.folder.rglob("*") if p.is_file()}
    recps("compact", job.folder, "--out", tmp_path / "out")
    expect_content(tmp_path / "out/ckpt-000000000040", job)
    assert files == {
        p: p.read_bytes() for p in job.folder.rglob("*") if p.is_file()}
    said = answer("compact", job.folder, "--out", tmp_path / "out", code=70)
    assert "already" in said["error"]


@pytest.mark.parametrize("memory", ["1k", "20m"])
def test_little_memory_takes_more_passes(job, tmp_path, memory):
    recps("compact", job.folder, "--out", tmp_path / "out", "--memory", memory)
    expect_content(tmp_path / "out/ckpt-000000000040", job)


COUNTS = (1, 2, 3, 5, 8)


def test_n_parts_become_m(tmp_path):
    """Every row once, bit for bit, for N and M of 1, 2, 3, 5, 8."""
    job = deltas.Job(tmp_path / "from", seed=3)
    job.make("emb", 3).counts = {10000 + i: 1 + i for i in range(50)}
    job.storm(random_of(11), 7, keys=101)
    for n in COUNTS:
        path = job.save(7, n, like=tmp_path / f"from-{n}")
        for m in COUNTS:
            out = tmp_path / f"to-{n}-{m}"
            said = answer("reshard", path, "--parts", m, "--out", out)
            assert said["digest"] == job.digest()
            if m != n:
                expect_content(out / path.name, job)
                expect_counts(out / path.name, m, job)
                lanes = numpy.load(out / path.name / f"lanes-0-of-{m}.npy")
                assert lanes.shape == (0, 4)


@pytest.mark.parametrize("m", COUNTS)
def test_m_servers_restore_chains_of_n_parts(tmp_path, m):
    """Real servers, from NumPy's deltas: the digest is of every row's bits."""
    job = deltas.chain(tmp_path / "ckpt", random_of(61), parts=(5, 2, 8, 1),
                       seed=9)
    run = recps("launch", "--ps", m, "--workers", 1, "--checkpoint-dir",
                job.folder, "--start-from", "newest", "--job-seed", 9, "--",
                "sh", "-c", "recps digest --json && recps shutdown --now")
    said = json.loads(re.search(r"\{.*\}", run.stdout).group())
    assert {t["name"]: (t["rows"], int(t["digest"], 16))
            for t in said["tables"]} == {
                n: (len(t.rows), t.digest()) for n, t in job.tables.items()}


# ---- prune ----

def test_prune_keeps_what_the_kept_stand_on(job):
    job.save(50, 2)
    assert answer("prune", "--keep", 2, "--dry-run", job.folder)["removed"] == []
    job.save(60, 2)
    dry = answer("prune", "--keep", 2, "--dry-run", job.folder)
    assert dry["removed"] == [10, 20, 30, 40] and dry["kept"] == [50, 60]
    assert len(list(job.folder.glob("ckpt-*"))) == 6
    assert answer("prune", "--keep", 2, job.folder)["removed"] == [10, 20, 30, 40]
    assert sorted(p.name[-2:] for p in job.folder.iterdir()) == ["50", "60"]


# ---- inspect, lookup, diff ----

def test_inspect_says_rows_norms_and_links(job):
    said = answer("inspect", job.folder)
    tables = {t["name"]: t for t in said["tables"]}
    rows = numpy.array([r.value for r in job.tables["emb"].rows.values()])
    norms = numpy.linalg.norm(rows.astype("f8"), axis=1)
    found = tables["emb"]["norms"]
    assert tables["emb"]["rows"] == len(norms)
    assert tables["emb"]["admission"] == 50
    assert found["least"] == pytest.approx(norms.min())
    assert found["largest"] == pytest.approx(norms.max())
    assert found["mean"] == pytest.approx(norms.mean())
    assert found["p50"] == pytest.approx(numpy.median(norms), rel=0.1)
    assert tables["empty"]["rows"] == 0
    assert [l["kind"] for l in said["links"]] == ["full"] + 3 * ["delta"]
    text = recps("inspect", job.folder).stdout
    assert "ckpt-000000000040" in text and "rowwise_adagrad" in text
    fast = answer("inspect", job.folder, "--fast")
    assert "norms" not in fast["tables"][0]
    for table in fast["tables"]:  # nobody has counted which rows are whose
        assert table["rows"] is None
        assert table["rows_at_most"] >= tables[table["name"]]["rows"]
    assert "<=" in recps("inspect", job.folder, "--fast").stdout
    full = answer("inspect", job.folder / "ckpt-000000000010", "--fast")
    manifest = json.loads((
        job.folder / "ckpt-000000000010/manifest.json").read_text())
    for table in full["tables"]:
        assert table["rows"] == manifest["tables"][table["name"]]["rows"]
        assert "rows_at_most" not in table


NONE = {"verify": ["{}"], "digest": ["{}"], "inspect": ["{}"],
        "compact": ["{}"], "prune": ["--keep", 1, "{}"],
        "reshard": ["--parts", 2, "{}"], "gather": ["{}", "--out", "new"],
        "archive": ["{}", "--out", "new"], "diff": ["{}", "{}"],
        "export": ["{}", "emb", "--out", "new"],
        "lookup": ["emb", 1, "--checkpoint", "{}"],
        "restore": ["--orphans", "{}"]}


@pytest.mark.parametrize("tool", NONE)
def test_a_folder_without_a_checkpoint_is_66(tmp_path, tool):
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "nowhere"):
        said = answer(tool, *[path if word == "{}" else tmp_path / word
                              if word == "new" else word
                              for word in NONE[tool]], code=66)
        assert str(path) in said["error"] or tool == "gather", said
    assert sorted(tmp_path.iterdir()) == [empty]


@pytest.mark.parametrize("there", ["", "there"])
def test_what_fails_leaves_no_folder_behind(job, tmp_path, there):
    """--out is made, with what leads to it, only for what succeeds."""
    file = next((job.folder / "ckpt-000000000010").rglob("*.rows.npy"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    out = tmp_path / there / "new" / "one"
    (tmp_path / there).mkdir(exist_ok=True)
    before = sorted(tmp_path.iterdir())
    for words in (["compact"], ["reshard", "--parts", 2], ["gather"]):
        answer(*words, job.folder, "--out", out, code=65)
        assert sorted(tmp_path.iterdir()) == before
        assert not (tmp_path / there / "new").exists()


def test_lookup_finds_rows_after_all_links(job):
    table = job.tables["half"]
    present, absent = sorted(table.rows), 12345678901234567890
    keys = [present[0], absent, present[-1]]
    out = recps("lookup", "half", *keys, "--checkpoint", job.folder).stdout
    lines = [line.split("\t") for line in out.splitlines()]
    assert [int(line[0]) for line in lines] == keys
    for key, row in ((line[0], line[1]) for line in lines):
        wanted = (table.rows[int(key)].value if int(key) in table.rows
                  else numpy.zeros(5))
        assert numpy.array_equal(numpy.array(row.split(), "<f4"),
                                 wanted.astype("<f4"))
    said = answer("lookup", "half", *keys, "--checkpoint", job.folder)
    assert said["absent"] == 1 and said["whole"] is True
    said = answer("lookup", "nothing", 1, "--checkpoint", job.folder, code=70)
    assert "nothing" in said["error"]


def test_diff_of_a_checkpoint_with_itself_is_empty(job):
    said = answer("diff", job.folder, job.folder)
    assert said["same"] is True
    recps("compact", job.folder, "--out", job.folder / "out")
    assert answer("diff", job.folder, job.folder / "out")["same"] is True


@pytest.mark.parametrize("memory", [(), ("--memory", "4k")])
def test_diff_says_what_changed(tmp_path, memory):
    random = random_of(21)
    job = deltas.standard_job(tmp_path / "a")
    job.storm(random, 10)
    before = {n: dict(t.rows) for n, t in job.tables.items()}
    job.save(10, 2)
    job.storm(random, 20, keys=9)
    job.make("late", 2)
    table = job.tables["lazy"]
    stamped = next(k for k in table.rows if k not in table.changed)
    old = table.rows[stamped]
    table.put(stamped, deltas.Row(old.value, old.slots, old.uses, 77))
    job.save(20, 3, "delta")
    said = answer("diff", tmp_path / "a/ckpt-000000000010",
                  tmp_path / "a/ckpt-000000000020", *memory, code=1)
    found = {t["name"]: t for t in said["tables"]}
    for name, old in before.items():
        new = job.tables[name].rows
        both = old.keys() & new.keys()
        changed = [k for k in both if
                   old[k].value.tobytes() != new[k].value.tobytes() or any(
                       old[k].slots[s].tobytes() != new[k].slots[s].tobytes()
                       for s in old[k].slots)]
        one = found[name]
        assert one["added"] == len(new.keys() - old.keys()), name
        assert one["erased"] == len(old.keys() - new.keys()), name
        assert one["changed"] == len(changed), name
        if name != "emb":
            continue
        by = {k: abs(old[k].value.astype("f8") - new[k].value).max()
              for k in changed}
        assert one["value"]["largest"] == pytest.approx(max(by.values()))
        assert int(one["value"]["key"]) == max(by, key=by.get)
        cosines = [numpy.dot(a, b) / numpy.linalg.norm(a) / numpy.linalg.norm(b)
                   for a, b in ((old[k].value.astype("f8"),
                                 new[k].value.astype("f8")) for k in changed)]
        assert one["cosine"]["mean"] == pytest.approx(numpy.mean(cosines))
        assert one["cosine"]["least"] == pytest.approx(min(cosines))
    assert found["lazy"]["stamped"] == 1
    assert found["late"]["in_a"] is False
    text = recps("diff", tmp_path / "a/ckpt-000000000010",
                 tmp_path / "a/ckpt-000000000020", code=1).stdout
    assert "table late: only in B" in text


# ---- what they cannot do ----

@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_an_error(job):
    job.folder.chmod(0o500)
    said = answer("compact", job.folder, code=70)
    job.folder.chmod(0o700)
    assert str(job.folder) in said["error"]


def test_a_path_that_is_no_folder_is_an_error(job, tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    said = answer("compact", job.folder, "--out", file, code=70)
    assert str(file) in said["error"]
    for tool in ("verify", "inspect", "compact"):
        assert answer(tool, tmp_path / "nowhere", code=66)["exit"] == 66
    pathlib.Path(tmp_path / "empty").mkdir()
    assert "neither" in answer("verify", tmp_path / "empty", code=66)["error"]
