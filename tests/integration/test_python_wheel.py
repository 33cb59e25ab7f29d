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


def test_a_wheel_holds_the_package_and_its_library_alone(tmp_path):
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
    assert sorted(set(names) - set(libraries)) == sorted(modules)
    assert "recps/librecps.so" in libraries
    assert set(libraries) <= {"recps/librecps.so", "recps/libjansson.so.4"}
    # neither programs nor what only they need is built
    targets = json.loads(run("meson", "introspect", "--targets",
                             tmp_path / "build"))
    assert not [t["name"] for t in targets
                if t["type"] == "executable" and t["installed"]]
    flags = (tmp_path / "build/build.ninja").read_text()
    for absent in ("event", "jemalloc", "openblas"):
        assert f"-l{absent}" not in flags and f"lib{absent}" not in flags


@pytest.mark.long
def test_a_wheel_runs_its_demo_in_an_empty_environment(tmp_path):
    if importlib.util.find_spec("pip") is None:
        pytest.skip("there is no pip")
    wheel = subprocess.run(  # fetches meson-python, which Debian's is too old
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir",
         tmp_path, programs.ROOT], capture_output=True, text=True,
        timeout=900, check=False)
    if "No matching distribution found for meson" in wheel.stderr:
        pytest.skip("meson-python cannot be fetched")
    assert wheel.returncode == 0, wheel.stdout + wheel.stderr
    wheel = next(tmp_path.glob("recps-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "recps/librecps.so" in names and "recps/py.typed" in names
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    env = programs.environment(PYTHONPATH=None, RPS_LIBRARY=None)
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", wheel],
                         capture_output=True, text=True, env=env, timeout=300,
                         check=False)
    if pip.returncode != 0 and "numpy" in pip.stderr:
        pytest.skip("NumPy cannot be fetched")
    assert pip.returncode == 0, pip.stderr
    said = run(python, "-m", "recps.demo", cwd=tmp_path, env=env)
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+)", said).groups()
    assert float(last) < 0.7 * float(first)
    assert str(tmp_path / "venv") in said
    # nothing of the system that is not part of every Linux
    library = next((tmp_path / "venv").rglob("librecps.so"))
    needed = run("ldd", library)
    for line in needed.splitlines():
        name = line.split()[0].rsplit("/", 1)[-1]
        assert re.match(r"(linux-vdso|ld-linux.*|lib(c|m|pthread|dl|jansson)"
                        r")\.so", name), needed
