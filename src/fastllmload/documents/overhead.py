"""overhead.json: what the way through a gateway adds to each figure, with the runs that it was measured by."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.comparison import GateLimit
from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.fields import ByRun, Document, Interval, Model, Names, OfFigure, Reveals, Sentence, field
from fastllmload.settings import RunSettings


class OverheadParameters(Document, frozen=True, kw_only=True):
    """What was asked for, and the settings of the runs."""

    pairs: int | None = None  # of runs, one each way
    direct: Names = ()  # URLs of the direct way
    through: Names = ()  # URLs of the way through the gateway
    through_model: Model = None  # that the gateway is asked for; None: the model of the direct way
    run: RunSettings = RunSettings()


class AddedFigure(Document, frozen=True, kw_only=True):
    """One figure both ways, and what the way through adds to it."""

    unit: str | None = None
    higher_is_better: bool | None = None  # of the figure
    direct: OfFigure = None  # mean over the runs of the direct way
    through: OfFigure = None  # mean over the runs through the gateway
    added: OfFigure = None  # through - direct
    interval: Interval = None  # of *added*, by chance and by the client's times together
    by_chance: Interval = None  # Student's t over the pairs alone
    clocks: Annotated[tuple[float, float] | None, field("unit of the figure", Reveals.LOAD)] = (
        None  # how far below and above *added* the truth may lie, by the bounds of events' times; None: not known
    )
    by_pair: ByRun = ()  # through - direct of each pair
    p_holm: float | None = None  # two-sided, adjusted for all figures
    result: str | None = None  # better, worse, not shown, not estimable, no value
    why_not: Sentence = None  # why the interval is missing


class OverheadDocument(ExperimentDocument, frozen=True, kw_only=True):
    """What a gateway adds."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "added", "gates", "verdicts")

    parameters: OverheadParameters = OverheadParameters()
    added: dict[str, AddedFigure] = {}  # by figure
    gates: tuple[GateLimit, ...] = ()
    verdicts: dict[str, tuple[str, ...]] = {}  # of the certificates of the runs: direct, through
