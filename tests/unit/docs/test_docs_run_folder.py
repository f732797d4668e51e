"""docs/run-folder.md names every file, row field and name of a number; every key of run.json has a type."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_run import real_run
from support.document_keys import undeclared

from fastllmload.documents.run import RunDocument
from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.run.measure import FLAT, REASONING, VLLM
from fastllmload.records import layout

PAGE = (Path(__file__).parents[3] / "docs" / "run-folder.md").read_text(encoding="utf-8")
DISTRIBUTION = ["unit", "n", "n_null", "mean", "std", "min", "max", *NAMED, "ci95", "not_estimable", "insufficient"]


def section(title: str) -> str:
    """Text below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found.group(1)


def rows(title: str) -> list[list[str]]:
    """Cells of the section's first table."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def words(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.slow
def test_every_file_is_there_and_every_file_of_a_run_is_named() -> None:
    named = set().union(*(words(row[0]) for row in rows("Files")))
    left = {str(path.relative_to(real_run())) for path in real_run().rglob("*") if path.is_file()}
    assert left <= named
    of_others = {"text.bin", "workers/<w>/", "workers/tap.bin", "workers/tap.json", ".work/", "hosts/<h>/"}
    of_others |= {"plan/edges.npy", "plan/blocks.npy", "plan/request_model.npy"}  # of sessions, of several models
    of_others |= {"server-info.json"}  # of servers that the run did not start
    of_others |= {"workers/merged/", "event_totals.npy", "hosts/<h>/summary/"}  # collect; --collect summary
    assert named - left == of_others


@pytest.mark.parametrize(("title", "dtype"), [("requests.npy", layout.REQUEST), ("tokens.npy", layout.EVENT)])
def test_row_fields_are_those_of_the_layout(title: str, dtype: Any) -> None:
    documented = [(row[0].strip("`"), row[1]) for row in rows(title)]
    assert documented == [(name, kind.lstrip("<|")) for name, kind in dtype.descr]


@pytest.mark.slow
def test_columns_of_the_other_arrays_are_those_that_are_written() -> None:
    documented = {row[0].strip("`"): words(row[1]) for row in rows("samples.npy, hiccup_intervals.npy, telemetry.npy")}
    for name, columns in documented.items():
        assert columns == set(np.load(real_run() / name).dtype.names or ()), name


def test_names_of_numbers_are_those_of_the_layout() -> None:
    documented = {row[0]: tuple(re.findall(r"`([^`]+)`", row[1])) for row in rows("Names of the numbers")}
    expected = {name[:-6].lower(): getattr(layout, name) for name in dir(layout) if name.endswith("_NAMES")}
    assert documented == expected


@pytest.mark.slow
def test_every_key_of_run_json_has_a_type() -> None:
    """A key without one would be lost to every reader, and to a redacted document."""
    document = json.loads((real_run() / "run.json").read_text())
    assert {place.lstrip(".") for place in undeclared(document, RunDocument)} <= flat_keys()
    assert list(undeclared({"counts": {"ok": 1, "new": 2}}, RunDocument)) == [".counts.new"]


def test_the_pages_of_keys_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[3]
    main = runpy.run_path(str(root / "tools" / "document_keys"))["main"]
    assert (main(["--check"]), "".join(capsys.readouterr())) == (0, "")


def keys_of_pages() -> Iterator[tuple[str, str, str, str]]:
    """Place, type, unit and meaning of each key on the pages of keys."""
    for page in sorted((Path(__file__).parents[3] / "docs" / "reference").glob("*.md")):
        struct = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            struct = line.removeprefix("## ") if line.startswith("## ") else struct
            if line.startswith("| `"):
                key, kind, unit, _, meaning = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
                yield f"{page.stem} {struct}.{key.strip('`')}", kind, unit, meaning


def test_every_key_has_a_meaning() -> None:
    found = list(keys_of_pages())
    assert len(found) > 1_000
    assert [place for place, _, _, meaning in found if len(meaning) < 2] == []


UNITS = {  # what a name ends in: what its unit contains
    "tok_s": "tokens/s", "req_s": "requests/s", "per_s": "/s", "ns": "ns", "us": "us", "ms": "ms", "s": "s", "seconds": "s",
    "percent": "%", "bytes": "bytes", "share": "share", "tok": "tokens", "tokens": "tokens", "tokens_mean": "tokens",
}  # fmt: skip


def test_every_number_whose_name_ends_in_a_unit_has_it() -> None:
    lacking = [
        place
        for place, kind, unit, _ in keys_of_pages()
        for end in [next((end for end in UNITS if place.split(".")[-1] == end or place.endswith(f"_{end}")), None)]
        if end is not None and {"number", "integer"} & set(kind.split()) and UNITS[end] not in unit
    ]
    assert lacking == []


def test_meanings_and_units_are_in_the_schemas() -> None:
    path = Path(__file__).parents[3] / "docs" / "reference" / "run.schema.json"
    parts = json.loads(path.read_text())["$defs"]
    assert parts["WindowTimes"]["properties"]["w0_ns"]["unit"] == "ns"
    assert parts["Load"]["properties"]["duration"]["unit"] == "s"
    bare = [(name, key) for name, part in parts.items() for key, each in part.get("properties", {}).items()
            if not each.get("description")]  # fmt: skip
    assert bare == []


def flat_keys() -> set[str]:
    """Plain keys of the section, and its pattern filled in."""
    text = words(section("vLLM's flat keys"))
    pattern = [word for word in text if "_X_" in word]
    assert sorted(pattern) == sorted(f"{name}_X_ms" for name in FLAT)
    filled = {word.replace("X", name) for word in pattern for name in VLLM | REASONING}
    return {word for word in text if "_X_" not in word} | filled


@pytest.mark.slow
def test_every_metric_and_each_of_its_keys_is_described() -> None:
    text = section("Metrics")
    known = words(text)
    document = json.loads((real_run() / "run.json").read_text())
    assert set(document["metrics"]) - known == set()
    keys = set().union(*document["metrics"].values())
    assert keys - known == set()
    assert set(DISTRIBUTION) <= known


def test_the_versions_are_those_that_are_written() -> None:
    from fastllmload.records.run import SCHEMA_VERSION
    from fastllmload.report.documents.hlog import FORMAT
    from fastllmload.report.documents.subject import PROCEDURE_VERSION
    from fastllmload.telemetry.files import VERSION

    said = {row[0]: row[1] for row in rows("Versions")}
    assert said["`run.json`"] == f"`schema_version` {SCHEMA_VERSION}"
    assert said["`procedure.json`"] == f"`schema_version` {PROCEDURE_VERSION}"
    assert said["`telemetry.json`"] == f"`version` {VERSION}"
    assert said["`latency.hlog`"] == f"HdrHistogram log {FORMAT}"
