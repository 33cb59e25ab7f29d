# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts down is enough to build and run against."""
import os
import re
import subprocess

import pytest

import programs

PROGRAMS = ("recps", "recps-bench", "recps-train", "recpsd")

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.BUILD} is not built")


def run(*command, env=None, cwd=None):
    done = subprocess.run([str(part) for part in command], env=env, cwd=cwd,
                          capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder below which the prefix lies (--destdir)."""
    folder = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", programs.BUILD, "--no-rebuild", "--quiet",
        "--destdir", folder)
    return folder


def only(folder, name):
    """The one file of this name below a folder."""
    found = list(folder.rglob(name))
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def pkg_config(installed, *arguments):
    env = programs.environment(
        PKG_CONFIG_LIBDIR=str(only(installed, "recps.pc").parent),
        PKG_CONFIG_SYSROOT_DIR=str(installed))
    return run("pkg-config", *arguments, "recps", env=env)


@pytest.fixture(scope="module")
def example(installed, tmp_path_factory):
    """docs/CLIENT.md's program, compiled as its first command says."""
    folder = tmp_path_factory.mktemp("example")
    page = (programs.ROOT / "docs/CLIENT.md").read_text("utf8")
    (folder / "example.c").write_text(
        re.search(r"```c\n(.*?)```", page, re.S).group(1), "utf8")
    run(os.environ.get("CC", "cc"), "-Wall", "-Werror", "-o", "example",
        "example.c", *pkg_config(installed, "--cflags", "--libs").split(),
        cwd=folder)
    return folder / "example"


def test_every_program_and_header_is_installed(installed):
    binaries = only(installed, "bin")
    assert sorted(os.listdir(binaries)) == sorted(PROGRAMS)
    headers = only(installed, "client.h").parent
    assert headers.name == "recps"
    assert sorted(os.listdir(headers)) == sorted(
        name for name in os.listdir(programs.ROOT / "include/recps")
        if name != "collective.h" or programs.has_mpi())


def test_the_examples_are_installed_as_they_are(installed):
    folder = only(installed, "dlrm.json").parent
    assert folder.parts[-3:] == ("share", "recps", "examples")
    for path in (programs.ROOT / "conf/examples").glob("*.json"):
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_manual_pages_and_completion_are_where_they_are_looked_for(installed):
    share = only(installed, "man1").parent.parent
    pages = [p.name for p in sorted((share / "man").glob("man*/*"))]
    assert pages == ["recps-bench.1", "recps-train.1", "recps.1", "recpsd.8"]
    bash = share / "bash-completion/completions"
    for name in PROGRAMS:
        assert "complete -F" in (bash / name).read_text("utf8")
    zsh = (share / "zsh/site-functions/_recps").read_text("utf8")
    assert zsh.startswith("#compdef recps ")
    zsh = (share / "zsh/site-functions/_recps-bench").read_text("utf8")
    assert zsh.startswith("#compdef recps-bench\n")


def test_the_programs_and_the_library_say_one_version(installed):
    version = pkg_config(installed, "--modversion").strip()
    binaries = only(installed, "bin")
    for name in PROGRAMS:
        said = run(binaries / name, "--version").strip()
        assert said == f"{name} {version}"
    assert only(installed, f"librecps.so.{version}").is_file()


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_begins_with_the_usage(installed, name):
    binaries = only(installed, "bin")
    assert run(binaries / name, "--help").startswith(f"usage: {name} ")


def library_path(installed):
    return programs.environment(
        LD_LIBRARY_PATH=str(only(installed, "librecps.so").parent))


def test_the_example_runs_against_the_installed_library(installed, example):
    said = run(example, env=library_path(installed))
    # Adagrad from an accumulator of 0.1 takes nearly a whole learning rate
    # (0.001) from start values within 0.05
    values = re.fullmatch(r"key 42: (\S+), key 7: (\S+)\n", said).groups()
    assert all(0 < abs(float(value)) < 0.051 for value in values)


@pytest.mark.skipif(not programs.has_mpi(), reason="built without MPI")
def test_the_group_of_the_migration_page_runs_against_the_installed_library(
        installed, tmp_path):
    page = (programs.ROOT / "docs/MIGRATION.md").read_text("utf8")
    (tmp_path / "example.c").write_text(
        re.search(r"```c\n(.*?)```", page, re.S).group(1), "utf8")
    env = programs.environment(
        PKG_CONFIG_LIBDIR=str(only(installed, "recps-collective.pc").parent),
        PKG_CONFIG_SYSROOT_DIR=str(installed))
    flags = run("pkg-config", "--cflags", "--libs", "recps-collective", env=env)
    run(os.environ.get("CC", "cc"), "-Wall", "-Werror", "-o", "example",
        "example.c", *flags.split(), cwd=tmp_path)
    said = run("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2",
               tmp_path / "example", env=library_path(installed))
    assert sorted(said.splitlines()) == [
        f"rank {rank} of 2: weight 0.500, bias 0.750" for rank in (0, 1)]


def test_the_installed_launcher_finds_the_installed_server(
        installed, example):
    binaries = only(installed, "bin")
    env = library_path(installed)
    env["PATH"] = os.defpath
    said = run(binaries / "recps", "launch", "--ps", "2", "--workers", "1", "--",
               example, env=env)
    assert "key 42:" in said
