# SPDX-License-Identifier: Apache-2.0
"""What `pip wheel .` makes: types that hold, files that belong, a demo that
runs where nothing else is installed."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import package
import programs


def run(*command, cwd=None, env=None, timeout=600):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env,
                          capture_output=True, text=True, timeout=timeout,
                          check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_types_are_strict(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("there is no mypy")
    said = run(sys.executable, "-m", "mypy", "--strict", "-p", "recps",
               "--config-file", programs.ROOT / "pyproject.toml",
               "--cache-dir", programs.BUILD / "mypy", cwd=tmp_path,
               env={**os.environ, "MYPYPATH": str(package.SOURCE)})
    assert said.startswith("Success")


def setup_arguments():
    """What pyproject.toml sets up the build with."""
    text = (programs.ROOT / "pyproject.toml").read_text()
    block = re.search(r"^setup = \[(.*?)\]", text, re.S | re.M).group(1)
    return re.findall(r'"([^"]+)"', block)


def test_a_wheel_holds_the_package_its_library_and_the_server(tmp_path):
    if shutil.which("meson") is None:
        pytest.skip("there is no meson")
    run("meson", "setup", tmp_path / "build", programs.ROOT,
        *setup_arguments())
    plan = json.loads(run("meson", "introspect", "--install-plan",
                          tmp_path / "build"))
    names = sorted(
        entry["destination"].split("/", 1)[1]
        for entries in plan.values() for entry in entries.values()
        if entry["tag"] in ("runtime", "python-runtime"))
    modules = [f"recps/{p.relative_to(package.SOURCE / 'recps')}"
               for p in (package.SOURCE / "recps").rglob("*")
               if p.suffix == ".py" or p.name == "py.typed"]
    libraries = [name for name in names if ".so" in name]
    assert sorted(set(names) - set(libraries)) == sorted(
        [*modules, "recps/LICENSE", "recps/THIRD_PARTY.txt", "recps/recpsd"])
    assert "recps/librecps.so" in libraries
    assert set(libraries) <= {"recps/librecps.so", "recps/libjansson.so.4"}
    # no other programs, nor what only they need, is built
    targets = json.loads(run("meson", "introspect", "--targets",
                             tmp_path / "build"))
    assert [t["name"] for t in targets
            if t["type"] == "executable" and t["installed"]] == ["recpsd"]
    flags = (tmp_path / "build/build.ninja").read_text()
    for absent in ("jemalloc", "openblas", "numa", "zstd"):
        assert f"-l{absent}" not in flags and f"lib{absent}" not in flags


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """An environment with nothing in it but our wheel, and NumPy."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("there is no pip")
    folder = tmp_path_factory.mktemp("wheel")
    wheel = subprocess.run(  # fetches meson-python, which Debian's is too old
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir",
         folder, programs.ROOT], capture_output=True, text=True,
        timeout=900, check=False)
    if "No matching distribution found for meson" in wheel.stderr:
        pytest.skip("meson-python cannot be fetched")
    assert wheel.returncode == 0, wheel.stdout + wheel.stderr
    wheel = next(folder.glob("recps-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert {"recps/librecps.so", "recps/py.typed", "recps/recpsd",
            "recps/LICENSE", "recps/THIRD_PARTY.txt"} <= set(names)
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    assert subprocess.run([python, "-c", "import numpy"], check=False,
                          capture_output=True).returncode != 0
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", wheel],
                         capture_output=True, text=True, env=alone(),
                         timeout=300, check=False)
    if pip.returncode != 0 and "numpy" in pip.stderr:
        pytest.skip("NumPy cannot be fetched")
    assert pip.returncode == 0, pip.stderr
    return folder / "venv"


def alone():
    """No variable, and no program in PATH, leads out of the environment."""
    return programs.environment(PYTHONPATH=None, RPS_LIBRARY=None,
                                RECPS_RECPSD=None, TF_CONFIG=None,
                                PATH="/usr/bin:/bin")


def test_a_wheel_runs_its_demo_in_an_empty_environment(venv, tmp_path):
    said = run(venv / "bin/python", "-m", "recps.demo", cwd=tmp_path,
               env=alone())
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+)", said).groups()
    assert float(last) < 0.7 * float(first)
    assert str(venv) in said


@pytest.mark.parametrize("name", ["librecps.so", "recpsd"])
def test_what_a_wheel_needs_is_part_of_every_linux(venv, name):
    file = next(venv.rglob(name))
    for line in run("ldd", file).splitlines():
        library = line.split()[0].rsplit("/", 1)[-1]
        assert re.match(r"(linux-vdso|ld-linux.*|lib(c|m|pthread|dl|jansson)"
                        r")\.so", library), line
        if "jansson" in library and name == "recpsd":
            assert str(file.parent) in line
    # whose words about them are in THIRD_PARTY.txt
    text = (file.parent / "THIRD_PARTY.txt").read_text("utf8")
    for part in ("OpenSSL", "jansson", "xxHash", "libevent"):
        assert part in text


def test_a_task_that_is_a_ps_serves_from_the_wheel_alone(venv, tmp_path):
    hosts = package.free_addresses(3)
    flags = [f"--ps_hosts={hosts[0]},{hosts[1]}", f"--worker_hosts={hosts[2]}"]

    def task(name, index, **more):
        return subprocess.Popen(
            [venv / "bin/python", "-m", "recps.demo", *flags, "--steps=300",
             f"--job_name={name}", f"--task_index={index}"], text=True,
            cwd=tmp_path, env=alone(), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, **more)

    tasks = [task("ps", 0), task("ps", 1), task("worker", 0)]
    try:
        said = tasks[2].communicate(timeout=120)[0]
        assert tasks[2].returncode == 0, said
        for server in tasks[:2]:
            words = server.communicate(timeout=60)[0]
            assert "listening:" in words and server.returncode == 0, words
    finally:
        for each in tasks:
            each.kill()
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+)", said).groups()
    assert "2 servers" in said and float(last) < float(first)
