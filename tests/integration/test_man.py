# SPDX-License-Identifier: Apache-2.0
"""The manual pages: whole, clean, and of what the programs say."""
import os
import re
import shutil
import subprocess

import pytest

import programs
from test_cli import recps
from test_completion import commands, flags_of

FOLDER = programs.BUILD / "man"
PAGES = [FOLDER / name for name in (
    "recps.1", "recpsd.8", "recps-train.1", "recps-bench.1")]

pytestmark = pytest.mark.skipif(
    not PAGES[0].is_file(), reason="the manual pages are not built")


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_groff_has_nothing_to_complain_of(page):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = run("groff", "-ww", "-z", "-man", "-Tutf8", page)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_mandoc_has_nothing_to_complain_of(page):
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    done = run("mandoc", "-T", "lint", "-W", "warning", page)
    assert (done.stdout + done.stderr).splitlines() == []


def plain(page):
    """The page's text without roff."""
    text = page.read_text("utf8")
    text = re.sub(r"^\.(TP|PP|IP.*|br|nf|fi|RS.*|RE|nh|ad.*)$", "", text,
                  flags=re.M)
    for mark, words in ((r"\f[BR]", ""), (r"\-", "-"), (r"\(aq", "'"),
                        (r"\(ga", "`"), (r"\:", ""), (r"\&", "")):
        text = (re.sub(mark.replace("\\", "\\\\"), words, text)
                if "[" in mark else text.replace(mark, words))
    return " ".join(text.split())


def words_of(text):
    return " ".join(text.split())


def test_every_command_and_its_words_stand_in_the_page():
    page = plain(FOLDER / "recps.1")
    for command in commands():
        text = recps(command, "--help").stdout
        usage, about = text.split("\n\n")[:2]
        assert f".SS {command} " in page
        assert words_of(usage.split("\n")[0].removeprefix("usage:")) in page
        assert words_of(about) in page
        for flag in flags_of(text):
            assert flag in page
    assert "EXIT CODES" in page and "77 not let in" in page


@pytest.mark.parametrize("page, program", [
    ("recpsd.8", programs.RECPSD), ("recps-train.1", programs.RECPS_TRAIN),
    ("recps-bench.1", programs.BUILD / "bench/recps-bench")])
def test_every_flag_stands_in_the_page(page, program):
    text = subprocess.run([str(program), "--help"], capture_output=True,
                          text=True, env=programs.environment(), timeout=30,
                          check=True).stdout
    for flag in flags_of(text):
        assert flag in plain(FOLDER / page)


def test_signals_and_exit_codes_are_those_of_the_documentation():
    page = plain(FOLDER / "recpsd.8")
    assert "USR1 the chief is asked for a checkpoint" in page
    assert re.search(r"138 [^.]*in use", page)
