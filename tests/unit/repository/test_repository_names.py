"""One noun, one class: no two packages give a class the same name."""

from __future__ import annotations

import re

from unit.repository.linters import ROOT

SHARED = {
    "Parameters": "each of the ten tests has its own, as each has `levels` and `analyze`",
    "HostRecord": "of the certificate, and of what a host keeps",
    "Questions": "of a conversation's user, and of the driver to its hosts",
}


def test_class_names_are_defined_once() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "fastllmload").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED} == {}
