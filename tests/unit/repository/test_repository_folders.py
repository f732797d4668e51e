"""No folder is flat: one of more than twenty files has rooms."""

from __future__ import annotations

from unit.repository.linters import ROOT

MOST = 20
# A series of numbered records with its index, which is read in order.
SERIES = {"docs/decisions"}


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    folders: dict[str, int] = {}
    for top in ("src", "ext", "tests", "bench", "tools", "docs", "examples"):
        for path in (ROOT / top).rglob("*"):
            generated = "__pycache__" in path.parts or path.suffix in (".so", ".c", ".pyc") or "egg-info" in str(path)
            if path.is_file() and not generated:
                name = path.parent.relative_to(ROOT).as_posix()
                folders[name] = folders.get(name, 0) + 1
    assert len(folders) > 100
    assert {name: count for name, count in folders.items() if count > MOST and name not in SERIES} == {}
