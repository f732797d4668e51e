"""sweep.json: one run or more for each combination of options."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.fields import Document, Names, Reveals, Sentence, field
from fastllmload.settings import RunSettings


class SweepParameters(Document, frozen=True, kw_only=True):
    """What was asked for, and the settings of the runs."""

    runs: int | None = None
    order: str | None = None
    same_requests: bool | None = None
    cells: tuple[dict[str, str], ...] = ()
    run: RunSettings = RunSettings()


class CellFigure(Document, frozen=True, kw_only=True):
    """One figure of a combination, in the unit that its key names."""

    mean: Annotated[float | None, field("", Reveals.LOAD)] = None
    ci95: Annotated[tuple[float, float] | None, field("", Reveals.LOAD)] = (
        None  # over runs, where there are two or more
    )
    runs: Annotated[tuple[float, ...], field("", Reveals.LOAD)] = ()


class Cell(Document, frozen=True, kw_only=True):
    """One combination of the varied options."""

    values: Annotated[dict[str, str], field("", Reveals.LOAD)] = {}
    runs: int = 0  # that were measured
    folders: Names = ()
    verdicts: tuple[str, ...] = ()  # of the certificates
    figures: dict[str, CellFigure] = {}
    refused: Sentence = None  # why it was not measured


class SweepDocument(ExperimentDocument, frozen=True, kw_only=True):
    """A sweep over options."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "cells")

    parameters: SweepParameters = SweepParameters()
    cells: tuple[Cell, ...] = ()
