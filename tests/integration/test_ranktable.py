# SPDX-License-Identifier: Apache-2.0
"""recps ranktable plan: what it orders, writes and refuses."""
import copy
import json
import re
import subprocess

import pytest

import programs

pytestmark = pytest.mark.skipif(not programs.RECPS.is_file(),
                                reason="recps is not built")

EXAMPLES = programs.ROOT / "conf/examples"
TABLE = json.loads((EXAMPLES / "ranktable.json").read_text("utf8"))
TOPOLOGY = json.loads((EXAMPLES / "topology.json").read_text("utf8"))


def run(*words, code=0):
    done = subprocess.run(
        [str(programs.RECPS), "ranktable", *map(str, words)],
        capture_output=True, text=True, env=programs.environment(), timeout=60,
        check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value),
                    "utf8")
    return path


def plan(folder, *words, table=None, topology=None, code=0):
    files = [write(folder / "table.json", TABLE if table is None else table),
             write(folder / "topology.json",
                   TOPOLOGY if topology is None else topology)]
    return run("plan", "--ranktable", files[0], "--topology", files[1], *words,
               code=code)


def places(table):
    """server_id and device_ip of every rank, in order."""
    found = {int(device["rank_id"]): (server["server_id"], device["device_ip"])
             for server in table["server_list"] for device in server["device"]}
    assert sorted(found) == list(range(len(found)))
    return [found[rank] for rank in sorted(found)]


def hops(names):
    return sum(a != b for a, b in zip(names, names[1:] + names[:1]))


def count(table, topology=None):
    """Crossings of hosts and switches, counted here."""
    switch = {host["server_id"]: host["switch"]
              for host in (topology or TOPOLOGY)["hosts"]}
    hosts = [server for server, _ in places(table)]
    return {"hosts": hops(hosts), "switches": hops([switch[h] for h in hosts])}


def test_the_example_is_planned_and_written(tmp_path):
    out = tmp_path / "new.json"
    answer = json.loads(plan(tmp_path, "--output", out, "--json").stdout)
    made = json.loads(out.read_text("utf8"))
    assert {k: answer["before"][k] for k in ("hosts", "switches")} == \
        count(TABLE) == {"hosts": 8, "switches": 8}
    assert {k: answer["after"][k] for k in ("hosts", "switches")} == \
        count(made) == {"hosts": 4, "switches": 2}
    assert (answer["before"]["links"], answer["after"]["links"]) == (32, 12)
    assert answer["changed"] is True and answer["ranks"] == 8
    assert answer["output"] == str(out)
    was = places(TABLE)
    assert places(made) == [was[entry["was"]] for entry in answer["order"]]
    assert sorted(places(made)) == sorted(was)
    assert [entry["rank"] for entry in answer["order"]] == list(range(8))
    assert not (tmp_path / "new.json.tmp").exists()


def test_what_was_written_is_read_again_and_stays(tmp_path):
    out, again = tmp_path / "new.json", tmp_path / "again.json"
    plan(tmp_path, "--output", out)
    done = run("plan", "--ranktable", out, "--topology",
               EXAMPLES / "topology.json", "--output", again)
    assert "the ranks stay as they are" in done.stdout
    assert out.read_bytes() == again.read_bytes()


def test_fields_that_are_not_ours_stay(tmp_path):
    table = copy.deepcopy(TABLE)
    table["para_plane"] = "eth0"
    table["server_list"][1]["host_nic_ip"] = "reserve"
    table["server_list"][2]["device"][1]["super_device_id"] = "7"
    out = tmp_path / "new.json"
    plan(tmp_path, "--output", out, table=table)
    made = json.loads(out.read_text("utf8"))
    assert made["para_plane"] == "eth0" and made["server_count"] == "4"
    servers = {server["server_id"]: server for server in made["server_list"]}
    assert servers["10.0.0.2"]["host_nic_ip"] == "reserve"
    (device,) = [d for d in servers["10.0.0.3"]["device"]
                 if "super_device_id" in d]
    assert device["device_ip"] == "192.168.3.2"


def test_people_get_two_tables(tmp_path):
    lines = plan(tmp_path).stdout.splitlines()
    assert lines[0].split() == ["rank", "was", "host", "device", "switch"]
    assert lines[1].split() == ["0", "0", "10.0.0.1", "0", "leaf-a"]
    assert lines[2].split() == ["1", "4", "10.0.0.1", "1", "leaf-a"]
    assert [line.split() for line in lines[-4:]] == [
        ["crossings", "before", "after"], ["hosts", "8", "4"],
        ["switches", "8", "2"], ["links", "32", "12"]]


def changed(value, *path, to):
    """A copy with value[path...] = to; to=None takes it out."""
    made = copy.deepcopy(value)
    at = made
    for step in path[:-1]:
        at = at[step]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return made


SERVER = ("server_list", 1)
DEVICE = (*SERVER, "device", 0)

BAD_TABLES = [
    ("[1]", "must be a JSON object"),
    ("{", "line 1, column 1 is no JSON"),
    ('{"version": "1.0", "version": "1.0"}', "is no JSON (duplicate"),
    ({"group_list": []}, "group_list belongs to the older form"),
    (changed(TABLE, "version", to="1.2"), 'version must be "1.0"'),
    (changed(TABLE, "version", to=1.0), 'version must be "1.0"'),
    (changed(TABLE, "status", to="initializing"), "wait for it"),
    (changed(TABLE, "server_count", to="5"), "is not the 4 servers"),
    (changed(TABLE, "server_count", to=[4]), "is not the 4 servers"),
    (changed(TABLE, "server_list", to={}), "server_list must be a list"),
    (changed(TABLE, "server_list", to=None), "server_list must be a list"),
    (changed(TABLE, *SERVER, to="10.0.0.2"), "server_list[1].device must be"),
    (changed(TABLE, *SERVER, "device", to=[]), "server_list[1].device must be"),
    (changed(TABLE, *SERVER, "device", to=None), "leave a server without any"),
    (changed(TABLE, *SERVER, "server_id", to=None),
     "server_list[1].server_id is missing"),
    (changed(TABLE, *SERVER, "server_id", to="\x1b[2J"),
     "server_list[1].server_id is missing or no text"),
    (changed(TABLE, *SERVER, "server_id", to="10.0.0.1"),
     'server_list[1].server_id "10.0.0.1" is there twice'),
    (changed(TABLE, *DEVICE, "device_id", to=None),
     "server_list[1].device[0].device_id is missing"),
    (changed(TABLE, *DEVICE, "device_id", to="1"),
     'server_list[1].device[1].device_id "1" is there twice'),
    (changed(TABLE, *DEVICE, "rank_id", to="0"),
     'server_list[1].device[0].rank_id "0" is also that of server_list[0]'),
    (changed(TABLE, *DEVICE, "rank_id", to="8"),
     'rank_id must be a number from "0" to "7"'),
    (changed(TABLE, *DEVICE, "rank_id", to=-1), "rank_id must be a number"),
    (changed(TABLE, *DEVICE, "rank_id", to="1x"), "rank_id must be a number"),
    (changed(TABLE, *DEVICE, "rank_id", to=None), "rank_id must be a number"),
    (" " * (1 << 20) + "{}", "more than the 1048576 allowed"),
]


@pytest.mark.parametrize("table, words", BAD_TABLES,
                         ids=[words for _, words in BAD_TABLES])
def test_a_bad_rank_table_is_named_with_its_field(tmp_path, table, words):
    done = plan(tmp_path, "--output", tmp_path / "out", table=table, code=65)
    assert words in done.stderr and str(tmp_path / "table.json") in done.stderr
    assert done.stdout == "" and not (tmp_path / "out").exists()


def chain(length):
    return [{"name": "s0"}] + [{"name": f"s{n}", "parent": f"s{n - 1}"}
                               for n in range(1, length)]


BAD_TOPOLOGIES = [
    ("[]", "must be a JSON object"),
    (changed(TOPOLOGY, "switches", to=[]), "switches must be a list"),
    (changed(TOPOLOGY, "hosts", to="all"), "hosts must be a list"),
    (changed(TOPOLOGY, "switches", 1, to=7), "switches[1].name is missing"),
    (changed(TOPOLOGY, "switches", 1, "name", to="leaf-b"),
     'switches[2].name "leaf-b" is there twice'),
    (changed(TOPOLOGY, "switches", 1, "parent", to="spin"),
     'switches[1].parent names "spin", which is not in switches'),
    (changed(TOPOLOGY, "switches", 1, "parent", to=0),
     "switches[1].parent must be the name of a switch"),
    (changed(TOPOLOGY, "switches", 1, "parent", to="leaf-a"),
     'switches[1], "leaf-a", is above itself by its parents: a cycle'),
    (changed(TOPOLOGY, "switches", 0, "parent", to="leaf-b"),
     'switches[0], "spine", is above itself by its parents: a cycle'),
    (changed(TOPOLOGY, "switches", to=chain(17)),
     'switches[16], "s16", is more than 16 levels deep'),
    (changed(TOPOLOGY, "hosts", 1, "server_id", to="10.0.0.1"),
     'hosts[1].server_id "10.0.0.1" is there twice'),
    (changed(TOPOLOGY, "hosts", 1, "server_id", to="10.0.0.9"),
     'hosts has no server_id "10.0.0.2", which is server_list[1]'),
    (changed(TOPOLOGY, "hosts", 1, "switch", to=None),
     "hosts[1].switch must be the name of a switch"),
    (changed(TOPOLOGY, "hosts", 1, "switch", to="leaf-c"),
     'hosts[1].switch names "leaf-c", which is not in switches'),
]


@pytest.mark.parametrize("topology, words", BAD_TOPOLOGIES,
                         ids=[words for _, words in BAD_TOPOLOGIES])
def test_a_bad_topology_is_named_with_its_field(tmp_path, topology, words):
    done = plan(tmp_path, topology=topology, code=65)
    assert words in done.stderr
    assert str(tmp_path / "topology.json") in done.stderr


def test_hosts_without_ranks_are_left_out(tmp_path):
    topology = copy.deepcopy(TOPOLOGY)
    topology["hosts"].append({"server_id": "10.0.0.9", "switch": "nowhere"})
    plan(tmp_path, topology=topology)


def test_what_is_missing_is_asked_for(tmp_path):
    files = ["--ranktable", EXAMPLES / "ranktable.json",
             "--topology", EXAMPLES / "topology.json"]
    assert "say what to do: plan" in run(*files, code=64).stderr
    assert "say what to do: plan" in run("print", *files, code=64).stderr
    assert "--topology FILE is missing" in \
        run("plan", *files[:2], code=64).stderr
    assert "--output FILE is missing" in \
        run("plan", *files, "--output", "", code=64).stderr
    gone = tmp_path / "gone.json"
    done = run("plan", "--json", "--ranktable", gone, *files[2:], code=66)
    assert json.loads(done.stdout)["exit"] == 66 and str(gone) in done.stderr
    assert "is not a file" in \
        run("plan", "--ranktable", tmp_path, *files[2:], code=66).stderr
    done = run("plan", *files, "--output", tmp_path / "no/such", code=74)
    assert "--output: cannot create" in done.stderr
    assert "crossings" in done.stdout and "written" not in done.stdout
    assert "standard output has the answer" in \
        run("plan", *files, "--output", "-", code=64).stderr


def test_a_big_table_is_planned(tmp_path):
    """4096 ranks dealt over 512 hosts and 64 switches of two levels."""
    servers = [{"server_id": f"h{h}", "device": [
        {"device_id": str(d), "device_ip": f"10.{h // 256}.{h % 256}.{d}",
         "rank_id": str(d * 512 + h)} for d in range(8)]} for h in range(512)]
    table = {"status": "completed", "version": "1.0", "server_list": servers}
    topology = {
        "switches": [{"name": f"top{n}"} for n in range(8)] +
                    [{"name": f"s{n}", "parent": f"top{n % 8}"}
                     for n in range(64)],
        "hosts": [{"server_id": f"h{h}", "switch": f"s{h % 64}"}
                  for h in range(512)]}
    out = tmp_path / "new.json"
    answer = json.loads(plan(tmp_path, "--json", "--output", out, table=table,
                             topology=topology).stdout)
    made = json.loads(out.read_text("utf8"))
    assert count(made, topology) == {"hosts": 512, "switches": 64}
    # every link that splits the ranks, twice: hosts, s0 to s63, top0 to top7
    assert answer["after"]["links"] == 2 * (512 + 64 + 8)


def test_the_examples_are_those_of_the_manual():
    blocks = re.findall(r"<<'END'\n(.*?)\nEND\n",
                        (programs.ROOT / "docs/RANKTABLE.md").read_text("utf8"),
                        re.S)
    assert [json.loads(block) for block in blocks] == [TABLE, TOPOLOGY]
