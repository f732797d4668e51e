"""What `fastllmload compare --json` writes: two sides, or several systems."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import Document, Name, Reveals, Sentence, Sentences, field

Value = Annotated[float | None, field("", Reveals.LOAD)]  # in the unit of its figure
Interval = Annotated[tuple[float, float] | None, field("", Reveals.LOAD)]  # 95 %


class ComparedRun(Document, frozen=True, kw_only=True):
    """One run of a side."""

    folder: Name = None
    plan_digest: str | None = None
    verdict: str | None = None  # of its certificate
    complete: bool | None = None


class ComparedSide(Document, frozen=True, kw_only=True):
    """One side: a configuration, a version, a system. *figures*: of several systems only."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("figures",)

    name: str | None = None
    runs: tuple[ComparedRun, ...] = ()
    figures: dict[str, SideFigure] | None = None


class SideFigure(Document, frozen=True, kw_only=False):
    """A figure on one side: the mean over its runs, with the interval over them, or within the only one."""

    value: Value = None
    ci95: Interval = None
    runs: Annotated[tuple[float | None, ...], field("", Reveals.LOAD)] = ()
    median: Value = None  # of several systems only
    at_least: Value = None  # where requests of a run did not end: *value* is only of those that did


class FigureChange(Document, frozen=True, kw_only=True):
    """One figure on both sides, and its change from *base* to *new*."""

    unit: str | None = None
    higher_is_better: bool | None = None
    base: SideFigure | None = None
    new: SideFigure | None = None
    difference: Value = None  # new - base
    relative: float | None = None  # new / base - 1
    interval: Interval = None  # of the difference
    relative_interval: tuple[float, float] | None = None
    test: str | None = None
    p: float | None = None  # two-sided
    p_holm: float | None = None  # adjusted for all compared figures
    effect: float | None = None
    effect_kind: str | None = None
    why_not: Sentence = None  # why the interval is missing
    lacking: Annotated[tuple[str, int] | None, field("requests", Reveals.LOAD)] = None  # side, requests that it needs
    pairs: Annotated[int | None, field("requests", Reveals.LOAD)] = None  # None: not paired
    clocks: Interval = None  # how far below and above the true difference may lie, by the bounds of events' times
    shown: bool | None = None  # p below 0.05, and an interval without 0
    result: str | None = None


class Pairing(Document, frozen=True, kw_only=True):
    """How requests of two single runs were paired."""

    by: str | None = None
    blocks: int | None = None
    pairs: Annotated[dict[str, int], field("requests", Reveals.LOAD)] = {}  # by figure


class GateLimit(Document, frozen=True, kw_only=True):
    """A limit of *figure*, an upper one if *above*; *about*: relative, difference or value; *unit* as written."""

    text: Sentence = None
    figure: str | None = None
    above: bool | None = None
    limit: Value = None
    about: str | None = None
    unit: str | None = None
    outcome: str | None = None  # passed, FAILED or UNDECIDED
    why: Sentence = None


class ComparisonDocument(Document, frozen=True, kw_only=True):
    """Two sides."""

    schema_version: int | None = None
    base: ComparedSide = ComparedSide()
    new: ComparedSide = ComparedSide()
    same_workload: bool | None = None
    workload_differences: Sentences = ()
    test: str | None = None
    paired: Pairing | None = None
    figures: dict[str, FigureChange] = {}
    setup_differences: Annotated[dict[str, tuple[str, ...]], field("", Reveals.NAME)] = {}  # by entry, values by side
    notes: Sentences = ()
    gates: tuple[GateLimit, ...] = ()


class ChecklistEntry(Document, frozen=True, kw_only=False):
    """One item of the draft's checklist (IETF 6.4)."""

    name: str | None = None
    state: str | None = None  # yes, NO, declared or not declared
    evidence: Sentence = None


class SystemsDocument(Document, frozen=True, kw_only=True):
    """Several systems."""

    schema_version: int | None = None
    systems: tuple[ComparedSide, ...] = ()
    pairs: tuple[ComparisonDocument, ...] = ()
    checklist: tuple[ChecklistEntry, ...] = ()
    normalised: tuple[str, ...] = ()  # figures per GPU or per price
    normalisation_method: str | None = None
    same_hardware: bool | None = None
    setup_differences: Annotated[dict[str, tuple[str, ...]], field("", Reveals.NAME)] = {}
    claims: Sentences = ()
    notes: Sentences = ()
