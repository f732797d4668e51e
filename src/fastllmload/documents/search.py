"""search.json: the parameters of a search, the decision on each of its levels, and the answer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.documents.fields import Document, Reveals, Sentence, Sentences, field
from fastllmload.settings import RunSettings

# A search is never redacted: it holds little else than capacities
Level = Annotated[int | float | None, field("requests/s or requests in flight", Reveals.LOAD)]
Value = Annotated[int | float | None, field("tokens/s", Reveals.LOAD)]
Duration = Annotated[int | float | None, field("s")]
Figures = Annotated[dict[str, float | None], field("", Reveals.LOAD)]  # of the longest trial


PEAK = "smooth-goodput"  # the objective


class RequestedSearch(Document, frozen=True, kw_only=True):
    """What was asked for."""

    objective: str | None = None
    what: str = "rate"  # rate or concurrency
    minimum: Level = None
    maximum: Level = None
    step: Level = None
    step_share: bool | None = None  # the step is a share of the level
    level_s: Duration = None
    looks: int | None = None  # trials of a level after the short one; prose: allow, a key of the document
    levels: int | None = None
    confidence: Annotated[float, field("share")] = 0.95
    interleave: bool | None = None
    preset: str | None = None


class SearchSettings(Document, frozen=True, kw_only=True):
    """The parameters of a search and the settings of its runs."""

    search: RequestedSearch = RequestedSearch()
    run: RunSettings = RunSettings()


class CriterionEntry(Document, frozen=True, kw_only=True):
    """One criterion of a level's decision."""

    name: str | None = None
    decision: str | None = None
    value: Level = None  # in *unit*
    low: Level = None  # one-sided bound
    high: Level = None
    allowed: Annotated[float | None, field("", Reveals.LOAD)] = None  # what the bounds are compared with
    unit: str | None = None
    veto: bool | None = None  # it can fail a level, but need not pass
    note: Sentence = None
    words: Sentence = None


class LevelDecision(Document, frozen=True, kw_only=True):
    """The decision on one level."""

    level: Annotated[int | float, field("requests/s or requests in flight", Reveals.LOAD)] = 0.0
    decision: str = ""
    reason: Annotated[str, field("", Reveals.SENTENCE)] = ""
    tests: tuple[CriterionEntry, ...] = ()
    smooth_goodput: Value = None  # of a search for a peak
    half_width: Value = None  # of the interval of smooth goodput
    looks: Annotated[int, field("trials")] = 0  # how many were run; prose: allow, a key of the document
    seconds: Duration = None
    figures: Figures = {}


class Answer(Document, frozen=True, kw_only=True):
    """The answer of a search."""

    level: Level = None  # the highest that holds, or the peak
    low: Level = None
    high: Level = None
    ended_by: str = ""
    confirmed: bool | None = None
    limited_by: Sentence = None
    smooth_goodput: Value = None  # of a search for a peak
    smooth_goodput_half_width: Value = None
    contenders: Annotated[tuple[float, ...], field("", Reveals.LOAD)] = ()  # levels that may be the peak
    at_level: Figures | None = None
    best_output_tok_s: Value = None
    looks: Annotated[int, field("trials")] = 0  # how many were run; prose: allow, a key of the document
    levels: int | None = None
    notes: Sentences = ()


class SearchDocument(ExperimentDocument, frozen=True, kw_only=True):
    """A search for the highest load that meets an objective, or for a peak."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "objective", "sentence", "decisions", "answer")

    parameters: SearchSettings = SearchSettings()
    objective: str = ""
    sentence: Annotated[str, field("", Reveals.SENTENCE)] = ""  # the objective in words
    decisions: tuple[LevelDecision, ...] = ()
    answer: Answer | None = None  # None: stopped before the first level

    @property
    def is_peak(self) -> bool:
        """Whether the peak of smooth goodput was searched, and not a threshold."""
        return self.objective == PEAK
