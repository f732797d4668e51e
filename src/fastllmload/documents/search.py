"""search.json: the parameters of a search, the decision on each of its levels, and the answer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.experiment import ExperimentDocument, Latency, Speed
from fastllmload.documents.fields import Document, Reveals, Sentence, Sentences, field
from fastllmload.settings import RunSettings

# A search is never redacted: it holds little else than capacities
Level = Annotated[int | float | None, field("requests/s or requests in flight", Reveals.LOAD)]
Value = Annotated[int | float | None, field("tokens/s", Reveals.LOAD)]
Duration = Annotated[int | float | None, field("s")]


PEAK = "smooth-goodput"  # the objective


class RequestedSearch(Document, frozen=True, kw_only=True):
    """What was asked for."""

    objective: str | None = None  # that a level must meet, or smooth-goodput
    what: str = "rate"  # rate or concurrency
    minimum: Level = None  # lowest level
    maximum: Level = None  # highest level
    step: Level = None  # to which the interval narrows
    step_share: bool | None = None  # the step is a share of the level
    level_s: Duration = None  # of a trial
    looks: int | None = None  # trials of a level after the short one; prose: allow, a key of the document
    levels: int | None = None  # that are measured at most
    confidence: Annotated[float, field("share")] = 0.95  # of the answer
    interleave: bool | None = None  # levels are measured in random order
    preset: str | None = None  # of smooth goodput


class SearchSettings(Document, frozen=True, kw_only=True):
    """The parameters of a search and the settings of its runs."""

    search: RequestedSearch = RequestedSearch()
    run: RunSettings = RunSettings()


class TrialFigures(Document, frozen=True, kw_only=True):
    """The figures of a level's longest trial; no key without a trial."""

    req_s: Annotated[float | None, field("requests/s", Reveals.LOAD)] = None  # completed in the window
    output_tok_s: Speed = None  # that came in the window
    ttft_p50_ms: Latency = None  # median TTFT
    ttft_p99_ms: Latency = None  # P99 of TTFT
    tpot_p50_ms: Latency = None  # median TPOT
    tpot_p99_ms: Latency = None  # P99 of TPOT
    e2e_p99_ms: Latency = None  # P99 of the end-to-end latency
    success_rate: Annotated[float | None, field("share", Reveals.LOAD)] = None  # ok of submitted
    smooth_goodput: Speed = None  # with the preset sg-default
    fluid_share: Annotated[float | None, field("share", Reveals.LOAD)] = None  # requests that were fluid

    def optional(self) -> tuple[str, ...]:
        """All or none."""
        return self.__struct_fields__ if self == TrialFigures() else ()


class CriterionEntry(Document, frozen=True, kw_only=True):
    """One criterion of a level's decision."""

    name: str | None = None  # of the criterion
    decision: str | None = None  # pass, fail, undecided, client limited
    value: Level = None  # in *unit*
    low: Level = None  # one-sided lower bound
    high: Level = None  # one-sided upper bound
    allowed: Annotated[float | None, field("", Reveals.LOAD)] = None  # what the bounds are compared with
    unit: str | None = None  # of its figures
    veto: bool | None = None  # it can fail a level, but need not pass
    note: Sentence = None  # what else decided it
    words: Sentence = None  # the criterion as a sentence


class LevelDecision(Document, frozen=True, kw_only=True):
    """The decision on one level."""

    level: Annotated[int | float, field("requests/s or requests in flight", Reveals.LOAD)] = 0.0  # rate or concurrency
    decision: str = ""  # pass, fail, undecided, client limited; implied: a higher level passes
    reason: Annotated[str, field("", Reveals.SENTENCE)] = ""  # criteria that decided
    tests: tuple[CriterionEntry, ...] = ()  # criteria of the level
    smooth_goodput: Value = None  # of a search for a peak
    half_width: Value = None  # of the interval of smooth goodput
    looks: Annotated[int, field("trials")] = 0  # how many were run; prose: allow, a key of the document
    seconds: Duration = None  # of all its trials
    figures: TrialFigures = TrialFigures()


class Answer(Document, frozen=True, kw_only=True):
    """The answer of a search."""

    level: Level = None  # the highest that holds, or the peak
    low: Level = None  # lower end of the interval in which the true answer lies
    high: Level = None  # its upper end; None: no higher level fails
    ended_by: str = ""  # bracket, levels, bound, minimum, undecided, client, changed, nothing
    confirmed: bool | None = None  # the re-test of the level passed; false: undecided; None: there was none
    limited_by: Sentence = None  # why the level above does not hold
    smooth_goodput: Value = None  # of a search for a peak
    smooth_goodput_half_width: Value = None  # of its interval
    contenders: Annotated[tuple[float, ...], field("", Reveals.LOAD)] = ()  # levels that may be the peak
    at_level: TrialFigures | None = None  # figures at *level*
    best_output_tok_s: Value = None  # highest of the levels that hold
    looks: Annotated[int, field("trials")] = 0  # how many were run; prose: allow, a key of the document
    levels: int | None = None  # that were decided
    notes: Sentences = ()  # of the search


class SearchDocument(ExperimentDocument, frozen=True, kw_only=True):
    """A search for the highest load that meets an objective, or for a peak."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (*ExperimentDocument.OPTIONAL, "objective", "sentence", "decisions", "answer")

    parameters: SearchSettings = SearchSettings()
    objective: str = ""  # name; smooth-goodput: a search for a peak
    sentence: Annotated[str, field("", Reveals.SENTENCE)] = ""  # the objective in words
    decisions: tuple[LevelDecision, ...] = ()  # on each level, ascending
    answer: Answer | None = None  # None: stopped before the first level

    @property
    def is_peak(self) -> bool:
        """Whether the peak of smooth goodput was searched, and not a threshold."""
        return self.objective == PEAK
