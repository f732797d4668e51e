"""Documents are checked once on reading: each part has its type, and a message names the first that has not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from golden_file import GOLDEN

from fastllmload.documents.fields import WITHHELD
from fastllmload.documents.read import DocumentError, convert, fields, fitted
from fastllmload.documents.run import Phase, RunDocument
from fastllmload.documents.run_parts.telemetry import TelemetryEntry
from fastllmload.documents.write import plain
from fastllmload.metrics.run.measure import FLAT, REASONING, VLLM

DOCUMENT: dict[str, Any] = json.loads((GOLDEN / "report" / "run.json").read_text())
# Facts of a plan's classes, deadlines and parts of `not_estimable` have several shapes; metadata is the user's.
FREE = ("plan.description.classes", "d_p_ms", "not_estimable", "metadata", "users.denominators")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of a document with the first three items of each list."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def put(path: tuple[Any, ...], value: object, inner: Any = DOCUMENT) -> Any:
    """The document with *value* at *path*; what is not on the way is shared."""
    if not path:
        return value
    found = copy.copy(inner)
    found[path[0]] = put(path[1:], value, inner[path[0]])
    return found


def at(path: tuple[Any, ...]) -> Any:
    inner: Any = DOCUMENT
    for key in path:
        inner = inner[key]
    return inner


def test_a_complete_document_keeps_its_values() -> None:
    found = convert(DOCUMENT, RunDocument)
    assert found.counts.ok == DOCUMENT["counts"]["ok"]
    assert found.metric("ttft").p99 == DOCUMENT["metrics"]["ttft"]["p99"]
    assert found.phases[0].start_ns == DOCUMENT["phases"][0]["start_ns"]
    assert found.config.target.endpoint_type == DOCUMENT["config"]["target"]["endpoint_type"]


def test_every_key_of_a_document_is_declared() -> None:
    """Redaction leaves out what is not: so were vLLM's latencies. A null is not read where the type has another default."""
    written = {path for path in places(DOCUMENT) if at(path) is not None}
    assert written - set(places(fitted(DOCUMENT, RunDocument))) == set()
    names = [f"{key}_{name}_ms" for name in VLLM | REASONING for key in FLAT]
    assert len(names) == 42 and set(names) <= set(fields(RunDocument))


def test_an_empty_document_has_a_default_for_every_part() -> None:
    found = convert({}, RunDocument)
    assert found.phases == ()
    assert found.counts.ok is None
    assert found.metric("ttft").p99 is None
    assert found.plan.description.load.arrivals is None


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("phases", 0, "start_ns"), "x"),
        (("metrics", "tpot", "p99"), "fast"),
        (("certificate", "workers", 0, "socket_to_user_us", "p99"), [1]),
        (("steadiness", "drift", "ttft.v2", "p"), "x"),
        (("slo", "classes", "a.b", "slo_attainment"), [1]),
    ],
)
def test_the_path_has_the_keys_of_tables_with_free_names(path: tuple[Any, ...], wrong: object) -> None:
    """Also one with a dot in it; a second error further on, of another part, changes nothing."""
    document = copy.deepcopy(DOCUMENT)
    document["steadiness"]["drift"] = {"ttft": {"p": 0.5}, "ttft.v2": {"p": 0.5}}
    document["slo"] = {"classes": {"a": {"slo_attainment": 1.0}, "a.b": {"slo_attainment": 1.0}}}
    document["withheld"] = 5
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    document["withheld"] = document.pop("withheld")  # the last key
    with pytest.raises(DocumentError) as caught:
        convert(document, RunDocument)
    assert str(caught.value).startswith(f"`{'.'.join(map(str, path))}`: expected ")


@pytest.mark.slow
def test_every_part_of_another_type_is_named() -> None:
    checked = 0
    known = fitted(DOCUMENT, RunDocument)
    for path in places(known):
        name = ".".join(map(str, path))
        if any(free in name for free in FREE) or name.split(".")[0] in ("config", "declarations"):
            continue
        value = at(path)
        wrong: object = 3 if isinstance(value, (dict, list, str)) else "x"
        if value is None or (name.endswith(("arrivals.rate", "ci95")) or ".ci95." in name):
            continue
        with pytest.raises(DocumentError):
            convert(put(path, wrong), RunDocument)
        checked += 1
    assert checked > 500


def test_the_message_names_the_place() -> None:
    with pytest.raises(DocumentError, match=r"^`phases\.0\.start_ns`: expected `?int"):
        convert(put(("phases", 0, "start_ns"), "x"), RunDocument)
    with pytest.raises(DocumentError, match=r"^`certificate\.workers\.0\.cpu_share`: expected a number, got 'x'$"):
        convert(put(("certificate", "workers", 0, "cpu_share"), "x"), RunDocument)


@pytest.mark.parametrize("name", ["number", "name", "start_ns", "end_ns", "bound", "ramp_share"])
def test_a_phase_needs_its_times(name: str) -> None:
    phase = {key: value for key, value in DOCUMENT["phases"][0].items() if key != name}
    with pytest.raises(DocumentError, match=name):
        convert({"phases": [phase]}, RunDocument)


def test_null_is_missing_where_the_type_has_another_default() -> None:
    assert convert({"counts": None, "phases": None, "target": {"urls": None}}, RunDocument) == RunDocument()


def test_a_withheld_value_is_kept_where_the_type_has_a_place_for_it() -> None:
    found = convert({"counts": {"ok": "withheld"}, "config": {"load": {"rate": "withheld"}}}, RunDocument)
    assert found.counts.ok is WITHHELD
    assert found.config.load.rate is None


def test_a_bool_is_not_a_number() -> None:
    with pytest.raises(DocumentError, match=r"counts\.ok"):
        convert({"counts": {"ok": True}}, RunDocument)
    with pytest.raises(DocumentError):
        convert({"number": 0}, Phase)


def test_a_series_with_labels_is_read_as_it_was_written() -> None:
    """The labels of a server's own series are one text."""
    series = TelemetryEntry(name="queue", kind="gauge", labels="model='a'", mean=2.0)
    found = convert({"telemetry": {"series": [plain(series)]}}, RunDocument)
    assert found.telemetry is not None and found.telemetry.series == (series,)
    assert list(plain(series)) == [
        *("name", "source", "origin", "unit", "kind", "n", "n_failed", "labels", "mean", "min", "max")
    ]
