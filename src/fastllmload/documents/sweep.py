"""sweep.json: one run or more for each combination of options."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.fields import ByRun, Document, Interval, Names, OfFigure, Reveals, Sentence, field
from fastllmload.settings import RunSettings


class SweepParameters(Document, frozen=True, kw_only=True):
    """What was asked for, and the settings of the runs."""

    runs: int | None = None  # of each combination
    order: str | None = None  # grid, interleaved, shuffled, interleaved and shuffled
    same_requests: bool | None = None  # all runs send the same requests
    cells: tuple[dict[str, str], ...] = ()  # varied options of each combination
    run: RunSettings = RunSettings()


class CellFigure(Document, frozen=True, kw_only=True):
    """One figure of a combination, in the unit that its key names."""

    mean: OfFigure = None  # over the runs
    ci95: Interval = None  # over runs, where there are two or more
    runs: ByRun = ()  # value of each run


class Cell(Document, frozen=True, kw_only=True):
    """One combination of the varied options."""

    values: Annotated[dict[str, str], field("", Reveals.LOAD)] = {}  # of the varied options, by option
    runs: int = 0  # that were measured
    folders: Names = ()  # of its runs
    verdicts: tuple[str, ...] = ()  # of the certificates
    figures: dict[str, CellFigure] = {}
    refused: Sentence = None  # why it was not measured


class SweepDocument(ExperimentDocument, frozen=True, kw_only=True):
    """A sweep over options."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "cells")

    parameters: SweepParameters = SweepParameters()
    cells: tuple[Cell, ...] = ()
