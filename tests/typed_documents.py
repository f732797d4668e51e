"""Documents that tests write as plain tables, as the types that the program takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.documents.metric import Metric
from fastllmload.documents.procedure import ProcedureDocument, experiment_document
from fastllmload.documents.read import convert
from fastllmload.documents.run import RunDocument
from fastllmload.documents.search import SearchDocument
from fastllmload.documents.write import plain
from fastllmload.records.run import Run


def typed(found: Mapping[str, Any]) -> RunDocument:
    return convert(found, RunDocument)


def typed_metric(found: Mapping[str, Any]) -> Metric:
    return convert(found, Metric)


def typed_procedure(found: Mapping[str, Any]) -> ProcedureDocument:
    return experiment_document(found, ProcedureDocument)


def typed_search(found: Mapping[str, Any]) -> SearchDocument:
    return experiment_document(found, SearchDocument)


def with_keys(run: Run, **keys: Any) -> Run:
    """*run* with other values of these keys of its run.json."""
    return run.with_document(typed({**plain(run.document), **keys}))
