"""Sections and files that code and documents cite are in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "ext", "docs", "tests", "bench")
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".h", ".c", ".toml", ".md", ".js", ".css"}
CITATION = re.compile(r"spec/(metrics|procedures)[\s#*]+(\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*(?! s\b)\b)*)")
OLD_FORM = re.compile(
    r"(?<!spec/)\b(?:metrics|procedures)(?:\.md`?[\s#*]+(?:section )?\d| \d+(?:\.\d+)+(?![\d.]*\d| s\b))", re.IGNORECASE
)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def numbers(page: str) -> set[str]:
    """Numbers of the sections of a page of docs/spec: headings, paragraphs with a number, items of a section's list."""
    found, section = set(), ""
    for line in (ROOT / "docs" / "spec" / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"#+ (\d+(?:\.\d+)*)", line):
            section = heading[1]
            found.add(section)
        elif paragraph := re.match(r"\d+\.\d+(?= \*\*)", line) or re.match(r"\| (10\.\d+) \|", line):
            found.add(paragraph[paragraph.lastindex or 0])
        elif item := re.match(r"(\d+)\. ", line):
            found.add(f"{section}.{item[1]}")
    return found


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of each file that may cite; not this one, which has the old forms."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__) and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("*.md")):
        yield path.name, path.read_text(encoding="utf-8")


def test_cited_sections_exist() -> None:
    known = {page: numbers(page) for page in ("metrics", "procedures")}
    cited = [
        (name, page, number)
        for name, text in sources()
        for page, listed in CITATION.findall(text)
        for number in re.findall(r"\d+(?:\.\d+)*", listed)
    ]
    assert len(cited) > 100
    assert [each for each in cited if each[2] not in known[each[1]]] == []


def test_sections_are_cited_in_one_form() -> None:
    old = [(name, match[0]) for name, text in sources() for match in OLD_FORM.finditer(text)]
    assert old == []


@pytest.mark.parametrize(
    "text", ["(metrics.md 5.2)", "procedures.md 0.9", "(procedures 0.4.4)", "`metrics.md` 2", "Procedures 0.10 has"]
)
def test_the_old_forms_are_recognised(text: str) -> None:
    assert OLD_FORM.search(text)


def test_links_lead_to_files() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
    dangling = [
        (page.relative_to(ROOT).as_posix(), target)
        for page in pages
        for target in LINK.findall(outside_code(page.read_text(encoding="utf-8")))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert dangling == []


def test_pictures_are_small_and_load_nothing() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert [picture.suffix for picture in pictures] == [".png", ".svg"]
    assert [picture.name for picture in pictures if picture.stat().st_size > 300_000] == []
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", pictures[1].read_text(encoding="utf-8"))


def outside_code(text: str) -> str:
    """Markdown without fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
