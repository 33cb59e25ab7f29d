# SPDX-License-Identifier: Apache-2.0
"""Every command in the README and in docs/ runs; every link leads somewhere.

A ```sh block runs as one script in a folder with the built programs in PATH
and the library known to pkg-config; the page's ```c block that has a main()
lies there as example.c. A comment `<!-- run by X -->` or
`<!-- not run: why -->` above a block says who runs it instead, or why nobody
can.
"""
import os
import pathlib
import re
import subprocess

import pytest

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RECPS_BUILD", ROOT / "build/release"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "proto/PROTOCOL.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
PAGES += sorted(ROOT.glob("*/README.md"))
BLOCK = re.compile(r"(?:<!-- (run by|not run:)[^>]*-->\n)?```sh\n(.*?)```", re.S)


def blocks():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text("utf8")), 1):
            if not match.group(1):
                name = f"{page.relative_to(ROOT)}:{number}"
                yield pytest.param(page, match.group(2), id=name)


def write_example(page, folder):
    for block in re.findall(r"```c\n(.*?)```", page.read_text("utf8"), re.S):
        if re.search(r"^main\(", block, re.M):
            (folder / "example.c").write_text(block, "utf8")


@pytest.mark.parametrize("page, script", blocks())
def test_documented_commands_run(page, script, tmp_path):
    if page.name == "SECURITY.md" and not programs.has_openssl():
        pytest.skip("built without OpenSSL")
    if re.search("allreduce|collective", script) and not programs.has_mpi():
        pytest.skip("built without MPI, or there is no mpirun")
    write_example(page, tmp_path)
    places = ["server/daemon", "client/cli", "client/worker", "bench"]
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TF_CONFIG", "RECPS_"))}
    env["PATH"] = ":".join([str(BUILD / p) for p in places] + [env["PATH"]])
    env["RPS_NPU_HOST"] = f"test-docs-{os.getpid()}"  # devices of our own
    env["PKG_CONFIG_PATH"] = str(BUILD / "meson-uninstalled")
    env["LD_LIBRARY_PATH"] = ":".join(
        str(BUILD / p) for p in ["client", "client/collective", "client/npu"])
    run = subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path, env=env,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=120, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf8")):
        assert (page.parent / target).exists(), f"{page}: {target}"
