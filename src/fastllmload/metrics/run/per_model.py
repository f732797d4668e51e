"""Computes the figures of each of several models or adapters that one run asks, over the populations of the run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload.documents.fields import known
from fastllmload.documents.run_parts.classes import ClassResult, ModelResult
from fastllmload.errors import RunFolderError
from fastllmload.metrics.objectives.objective import class_number
from fastllmload.metrics.run.parts import PartFigures
from fastllmload.plan.plan import Plan
from fastllmload.records import layout
from fastllmload.records.run import Run


def models_of_rows(run: Run) -> npt.NDArray[np.int64] | None:
    """Index into `plan.description.models` of each row, -1 outside of the measurement; None without several models."""
    if not run.document.plan.description.models:
        return None
    try:
        of_request = Plan.read_record(run.directory / "plan").request_model
    except RunFolderError:
        return None
    if of_request is None or not len(of_request):
        return None
    found: npt.NDArray[np.int64] = of_request[run.rows["request"] % len(of_request)].astype(np.int64)
    found[run.rows["phase"] != layout.MEASURE] = -1  # a warm-up has a plan of its own
    return found


def models_block(parts: PartFigures) -> tuple[ModelResult, ...]:
    """`models` of run.json, in the order of their numbers; empty without several models."""
    numbers = models_of_rows(parts.run)
    if numbers is None:
        return ()
    planned = parts.run.document.plan.description.models
    total, sent = sum(known(one.requests) or 0 for one in planned), int(parts.sent.sum())
    found = []
    for number, one in enumerate(planned):
        asked = ModelResult(
            name=one.name,
            share_asked=one.share,
            share_planned=(known(one.requests) or 0) / total if total else None,
            planned=one.requests,
        )
        result = parts.with_figures(asked, numbers == number)
        found.append(replace(result, share_sent=(known(result.sent) or 0) / sent if sent else None))
    return tuple(found)


def with_models(classes: dict[str, ClassResult] | None, parts: PartFigures) -> dict[str, ClassResult] | None:
    """*classes* with `models` of each that asks several."""
    numbers = models_of_rows(parts.run)
    if classes is None or numbers is None:
        return classes
    return {name: replace(one, models=models_of_class(parts, name, numbers)) for name, one in classes.items()}


def models_of_class(parts: PartFigures, name: str, numbers: npt.NDArray[np.int64]) -> tuple[ModelResult, ...]:
    """Those that requests of the class *name* ask; empty for a single one. *numbers*: model of each row."""
    mine = (parts.run.rows["request_class"] == class_number(name, parts.run.document)) & parts.sent & (numbers >= 0)
    asked, counts = np.unique(numbers[mine], return_counts=True)
    if len(asked) < 2:
        return ()
    order, planned = np.argsort(-counts, kind="stable"), parts.run.document.plan.description.models
    return tuple(
        parts.with_figures(
            ModelResult(name=planned[asked[at]].name, share_sent=int(counts[at]) / int(counts.sum())),
            mine & (numbers == asked[at]),
        )
        for at in order
    )
