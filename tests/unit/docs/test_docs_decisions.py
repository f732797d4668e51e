"""Decision records have one form, the index lists all of them, and what cites one names a file that exists."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ("Context", "Decision", "Consequences", "Alternatives")
STATUS = re.compile(r"^Status: (accepted|replaced by \d+)\. Date: (\d{4}-\d\d-\d\d)\.", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (\S+) \| (.+) \|$", re.MULTILINE)
SUFFIXES = {".py", ".pyx", ".pxd", ".h", ".md", ".toml", ""}
CITED = re.compile(r"decisions/(\d[\w.-]*)")
BY_NUMBER = re.compile(r"\bdecisions? \d", re.IGNORECASE)


def stated(record: Path) -> tuple[str, str, str, str, str]:
    """Number, title, file, date and status, as the index has them."""
    text = record.read_text(encoding="utf-8")
    heading = re.match(r"# (\d+)\. (.+)\n", text)
    status = STATUS.search(text)
    assert heading and status, record.name
    return heading[1], heading[2], record.name, status[2], status[1]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_record_has_number_status_date_and_sections(record: Path) -> None:
    number, _, name, day, _ = stated(record)
    assert int(number) == int(name[:2])
    assert date.fromisoformat(day)
    headings = re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(heading.partition(",")[0] for heading in headings) == SECTIONS


def test_the_index_lists_all_records_in_order() -> None:
    rows = ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert rows == [stated(record) for record in RECORDS]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))


def test_records_are_cited_by_file() -> None:
    """A number alone cannot be searched for, and a path is checked here."""
    names = {record.name for record in RECORDS}
    found = 0
    for folder in ("src", "ext", "docs", "tests", "bench", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__) and "bin" not in path.parts:
                text = path.read_text(encoding="utf-8")
                cited = CITED.findall(text)
                found += len(cited)
                assert [name for name in cited if name.rstrip(".") not in names] == [], path
                assert BY_NUMBER.search(text) is None, path
    assert found > 15
