"""`tools/prose`: what it finds, and what it leaves alone."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def checked(tmp_path: Path, name: str, text: str) -> tuple[int, str]:
    """Exit code and output of a copy of the tool in a project that consists of one file."""
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "prose"
    tool.write_bytes((ROOT / "tools" / "prose").read_bytes())
    (tmp_path / name).write_text(text)
    done = subprocess.run([sys.executable, tool, name], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", '"""Fine."""\n\n# the spoilt one\n', 'a.py:3: "spoilt"'),
        ("a.py", 'TEXT = "the third look"\n', 'a.py:1: "look"'),
        ("a.md", "Fine.\n\nThe row is no row.\n", 'a.md:3: "is no row"'),
        ("a.pyx", "cdef int x  # counted anew\n", 'a.pyx:1: "anew"'),
        ("a.toml", 'cause = "nobody answers"\n', 'a.toml:1: "nobody"'),
        ("a", "#!/usr/bin/env bash\n# goes on\n", 'a:2: "goes on"'),
        ("a.py", "def test_it_stands_in_a_file() -> None: ...\n", 'a.py:1: "stands in"'),
    ],
)
def test_a_word_is_reported_with_its_place(tmp_path: Path, name: str, text: str, line: str) -> None:
    code, output = checked(tmp_path, name, text)
    assert code == 1 and output.startswith(line)


def test_each_pattern_finds_only_what_has_one_of_the_parts() -> None:
    """A Python file without any of them is not split into its tokens."""
    tool = runpy.run_path(str(ROOT / "tools" / "prose"))
    matches = (
        "spoilt,look,behind it,beside,was told,stand for,stands in,anew,is no row,are no rows,so many,nobody,somebody"
    )
    matches += ",whoever,rung,rungs,ladders,befalls,befell,in vain,goes on,went on,came home,brings home"
    found = {pattern for pattern in tool["COMPILED"] if any(pattern.search(text) for text in matches.split(","))}
    assert found == set(tool["COMPILED"])
    assert [text for text in matches.split(",") if not any(part in text for part in tool["PARTS"])] == []
    assert [part for part in tool["PARTS"] if part.strip() not in matches] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "looks = spoilt = 3\n"),  # names of variables are not prose
        ("a.py", 'KEY = "looks of"  # prose: allow (a key of search.json)\n'),
        ("a.py", 'KEY = "looks"\n'),
        ("a.md", "There is no run.\n\n```\nspoilt\n```\n\n    spoilt\n\nThe key `looks`.\n"),
    ],
)
def test_names_code_and_allowed_lines_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    assert checked(tmp_path, name, text) == (0, "")
