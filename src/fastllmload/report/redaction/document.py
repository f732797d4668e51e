"""Redacts a document for publication (IETF 7.1): capacity limits, knees and memory thresholds, and names of hosts, URLs
and paths.

A redacted value is `withheld`, in contrast to `n/a`: it was measured. Latencies are kept, and so is the throughput at a
declared rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.documents.redaction import OF_LOAD, redacted
from fastllmload.report.redaction.load import withhold
from fastllmload.report.redaction.names import without_names
from fastllmload.report.redaction.procedure import CAPACITY_TESTS, of_procedure
from fastllmload.report.redaction.texts import WITHHELD

OF_LIMITS = f"results and levels, which are the capacity; {OF_LOAD}"


def withheld(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json or procedure.json that may be published; its entry `withheld` lists what is missing. *limit*: the
    load of the run belongs to a search.
    """
    if "procedure" not in document:
        return redacted(document, limit)
    found: dict[str, Any] = _without_engine(without_names(_without_sources(document)))
    return {**of_procedure(found), "withheld": OF_LIMITS if found["procedure"] in CAPACITY_TESTS else OF_LOAD}


def notice(document: Mapping[str, Any]) -> str | None:
    """One line on what is withheld and why; None where nothing is."""
    names = document.get("withheld")
    return f"withheld (IETF 7.1): {names}" if isinstance(names, str) else None


def _without_sources(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the user's text on the source of the capacity, wherever it is quoted."""
    parameters = document.get("parameters")
    test = parameters.get("test") if isinstance(parameters, Mapping) else None
    source = test.get("capacity_source") if isinstance(test, Mapping) else None
    return _replaced(document, source) if isinstance(source, str) and source.strip() else document


def _replaced(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(text, WITHHELD)
    if isinstance(value, Mapping):
        return {name: _replaced(inner, text) for name, inner in value.items()}
    return [_replaced(inner, text) for inner in value] if isinstance(value, (list, tuple)) else value


def _without_engine(found: dict[str, Any]) -> dict[str, Any]:
    """Without limits of the engine: settings of a simulated engine, the batch size that a server reports."""
    for config in (found.get("config"), (found.get("parameters") or {}).get("run")):
        target = config.get("target") if isinstance(config, dict) else None
        given = target.get("simulate") if isinstance(target, dict) else None
        if isinstance(target, dict) and isinstance(given, (list, tuple)):
            target["simulate"] = [[pair[0], WITHHELD] if isinstance(pair, list) and pair else pair for pair in given]
    environment = found.get("environment")
    withhold(environment.get("engine") if isinstance(environment, dict) else None, ("max_batch_size",))
    return found
