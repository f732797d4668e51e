"""docs/run-folder.md names every file, row field, name of a number and key of run.json that a run leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_run import real_run

from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.run.measure import FLAT, REASONING, VLLM
from fastllmload.records import layout

PAGE = (Path(__file__).parents[3] / "docs" / "run-folder.md").read_text(encoding="utf-8")
# Tables whose names are free: classes, objectives, libraries, sensors.
FREE = (
    "slo.objectives_ms", "slo.each", "slo.smooth_goodput", "environment.libraries", "telemetry.absent",
    "compliance.counts", "telemetry.sources[].problems", "declarations", "metadata", "users.denominators", "config.classes",
    "plan.description.classes", "plan.classes",
    "certificate.arrival_tests",
    "certificate.figures.*.p50",
    "certificate.figures.*.p99",
    "watch.ceiling",
)  # fmt: skip
NAMED_BY_DATA = (
    "certificate.figures",
    "slo.classes",
    "fairness.classes",
    "classes",
    "server",
    "steadiness.transient",
    "steadiness.drift",
    "files",
    "certificate.latency_error_bar_us",
)
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


def test_every_file_is_there_and_every_file_of_a_run_is_named() -> None:
    named = set().union(*(words(row[0]) for row in rows("Files")))
    left = {str(path.relative_to(real_run())) for path in real_run().rglob("*") if path.is_file()}
    assert left <= named
    assert named - left == {"text.bin", "workers/<w>/", "workers/tap.bin", "workers/tap.json", ".work/"}


@pytest.mark.parametrize(("title", "dtype"), [("requests.npy", layout.REQUEST), ("tokens.npy", layout.EVENT)])
def test_row_fields_are_those_of_the_layout(title: str, dtype: Any) -> None:
    documented = [(row[0].strip("`"), row[1]) for row in rows(title)]
    assert documented == [(name, kind.lstrip("<|")) for name, kind in dtype.descr]


def test_columns_of_the_other_arrays_are_those_that_are_written() -> None:
    documented = {row[0].strip("`"): words(row[1]) for row in rows("samples.npy, hiccup_intervals.npy, telemetry.npy")}
    for name, columns in documented.items():
        assert columns == set(np.load(real_run() / name).dtype.names or ()), name


def test_names_of_numbers_are_those_of_the_layout() -> None:
    documented = {row[0]: tuple(re.findall(r"`([^`]+)`", row[1])) for row in rows("Names of the numbers")}
    expected = {name[:-6].lower(): getattr(layout, name) for name in dir(layout) if name.endswith("_NAMES")}
    assert documented == expected


def tables(found: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, table) of run.json and everything in it; metrics and distributions are described apart."""
    yield place or "(top)", found
    for key, value in found.items():
        inner = f"{place}.{key}" if place else key
        inner = f"{place}.*" if place in NAMED_BY_DATA else inner
        inner = inner.replace("plan.warmup.description", "plan.description")
        if inner == "metrics" or set(DISTRIBUTION) <= set(value if isinstance(value, dict) else ()):
            continue
        if inner in FREE:
            continue
        if isinstance(value, dict):
            yield from tables(value, inner)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield from tables(item, f"{inner}[]")


def test_every_key_of_run_json_is_described() -> None:
    described = {row[0].strip("`"): words(row[1]) for row in rows("run.json")}
    described["(top)"] |= flat_keys()
    document = json.loads((real_run() / "run.json").read_text())
    missing = {}
    for place, table in tables(document):
        names = {"*"} if place in NAMED_BY_DATA and place != "server" else set(table)
        if lacking := names - described.get(place, set()) - {"*"}:
            missing[place] = lacking
    assert missing == {}


def flat_keys() -> set[str]:
    """Plain keys of the section, and its pattern filled in."""
    text = words(section("vLLM's flat keys"))
    pattern = [word for word in text if "_X_" in word]
    assert sorted(pattern) == sorted(f"{name}_X_ms" for name in FLAT)
    filled = {word.replace("X", name) for word in pattern for name in VLLM | REASONING}
    return {word for word in text if "_X_" not in word} | filled


def test_every_metric_and_each_of_its_keys_is_described() -> None:
    text = section("Metrics")
    known = words(text)
    document = json.loads((real_run() / "run.json").read_text())
    assert set(document["metrics"]) - known == set()
    keys = set().union(*document["metrics"].values())
    assert keys - known == set()
    assert set(DISTRIBUTION) <= known


def test_what_is_described_as_always_there_is_there() -> None:
    """The page names nothing at the top level that a run does not leave."""
    described = {row[0].strip("`"): words(row[1]) for row in rows("run.json")}
    document = json.loads((real_run() / "run.json").read_text())
    assert (
        described["(top)"] - set(document) - {"running", "done", "interrupted", "partial", "failed", "killed"} == set()
    )


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
