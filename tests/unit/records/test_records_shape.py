"""The types of run.json are checked once on reading, and a message names the first wrong one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from golden_file import GOLDEN

from fastllmload.records.document_shape import KINDS, NEEDED, NEVER_NULL, misshapen, parts

DOCUMENT: dict[str, Any] = json.loads((GOLDEN / "report" / "run.json").read_text())


def changed(path: str, value: object) -> dict[str, Any] | None:
    """The document with *value* at the first match of *path*; None without a match."""
    found = copy.deepcopy(DOCUMENT)
    inner: Any = found
    *steps, last = path.split(".")
    for step in steps:
        inner = next((each for _, each in parts(inner, [step], "")), None)
    keys = [key for key in keys_of(inner) if last in ("*", str(key))]
    if not keys:
        return None
    inner[keys[0]] = value
    return found


def keys_of(inner: Any) -> list[Any]:
    return list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []


def test_a_complete_document_is_valid() -> None:
    assert misshapen(DOCUMENT) is None
    assert misshapen({}) is None


@pytest.mark.parametrize("path", KINDS)
def test_every_part_of_another_kind_is_named(path: str) -> None:
    kind, types = KINDS[path]
    wrong: object = 3 if types in (dict, list, str) else "x"
    found = changed(path, wrong)
    if found is not None:
        sentence = misshapen(found)
        assert sentence is not None
        assert kind in sentence


@pytest.mark.parametrize("path", NEVER_NULL.split())
def test_null_is_valid_only_where_it_has_a_meaning(path: str) -> None:
    found = changed(path, None)
    if found is not None:
        assert "is null" in (misshapen(found) or "")


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in NEEDED.items() for name in names])
def test_missing_required_parts_are_named(path: str, name: str) -> None:
    found = copy.deepcopy(DOCUMENT)
    for _, value in parts(found, path.split("."), ""):
        if isinstance(value, dict):
            del value[name]
            assert f"has no `{name}`" in (misshapen(found) or "")
            return


def test_parts_names_each_place() -> None:
    found = {"a": [{"b": 1}, {"b": 2}], "c": None}
    assert list(parts(found, ["a", "*", "b"], "")) == [("a.0.b", 1), ("a.1.b", 2)]
    assert list(parts(found, ["a", "1", "b"], "")) == [("a.1.b", 2)]
    assert list(parts(found, ["c", "d"], "")) == []
