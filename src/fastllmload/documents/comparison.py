"""What `fastllmload compare --json` writes: two sides, or several systems."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import Document, Interval, Name, OfFigure, Reveals, Sentence, Sentences, field


class ComparedRun(Document, frozen=True, kw_only=True):
    """One run of a side."""

    folder: Name = None  # of the run
    plan_digest: str | None = None  # SHA-256 of everything that was sent
    verdict: str | None = None  # of its certificate
    complete: bool | None = None  # it ended in order
    foreign: str | None = None  # tool whose result file it is; None: a run folder
    foreign_version: str | None = None  # of that tool, where the file says it
    values_of_requests: bool | None = None  # there are values of each request, not summaries only


class ComparedSide(Document, frozen=True, kw_only=True):
    """One side: a configuration, a version, a system. *figures*: of several systems only."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("figures",)

    name: str | None = None  # of the side
    runs: tuple[ComparedRun, ...] = ()
    figures: dict[str, SideFigure] | None = None  # of several systems: by name


class SideFigure(Document, frozen=True, kw_only=False):
    """A figure on one side: the mean over its runs, with the interval over them, or within the only one."""

    value: OfFigure = None  # mean over the runs
    ci95: Interval = None  # over the runs, or within the only one
    runs: Annotated[tuple[float | None, ...], field("unit of the figure", Reveals.LOAD)] = ()  # value of each run
    median: OfFigure = None  # of several systems only
    at_least: OfFigure = None  # where requests of a run did not end: *value* is only of those that did


class FigureChange(Document, frozen=True, kw_only=True):
    """One figure on both sides, and its change from *base* to *new*."""

    unit: str | None = None
    higher_is_better: bool | None = None  # of the figure
    base: SideFigure | None = None
    new: SideFigure | None = None
    difference: OfFigure = None  # new - base
    relative: Annotated[float | None, field("share")] = None  # new / base - 1
    interval: Interval = None  # of the difference
    relative_interval: Annotated[tuple[float, float] | None, field("share")] = None  # of *relative*
    test: str | None = None  # by which *p* was found
    p: float | None = None  # two-sided
    p_holm: float | None = None  # adjusted for all compared figures
    effect: float | None = None  # size, by *effect_kind*
    effect_kind: str | None = None  # hedges_g over runs; superiority: probability that a new request takes longer
    why_not: Sentence = None  # why the interval is missing
    lacking: Annotated[tuple[str, int] | None, field("requests", Reveals.LOAD)] = None  # side, requests that it needs
    pairs: Annotated[int | None, field("requests", Reveals.LOAD)] = None  # None: not paired
    clocks: Interval = None  # how far below and above the true difference may lie, by the bounds of events' times
    shown: bool | None = None  # p below 0.05, and an interval without 0
    result: str | None = None  # better, worse, not shown, not estimable, no value, not comparable
    definitions: Sentences = ()  # of other tools: their name of it, and in what they differ


class Pairing(Document, frozen=True, kw_only=True):
    """How requests of two single runs were paired."""

    by: str | None = None  # what pairs have in common
    blocks: int | None = None  # parts into which the pairs are cut
    pairs: Annotated[dict[str, int], field("requests", Reveals.LOAD)] = {}  # by figure


class GateLimit(Document, frozen=True, kw_only=True):
    """A limit of *figure*, an upper one if *above*; *about*: relative, difference or value; *unit* as written."""

    text: Sentence = None  # as written
    figure: str | None = None  # that is limited
    above: bool | None = None  # the limit is an upper one
    limit: OfFigure = None  # in the unit of the figure; a share where it is relative
    about: str | None = None  # relative, difference, value
    unit: str | None = None  # as written
    outcome: str | None = None  # passed, FAILED or UNDECIDED
    why: Sentence = None  # why it has that outcome


class ComparisonDocument(Document, frozen=True, kw_only=True):
    """Two sides."""

    schema_version: int | None = None
    base: ComparedSide = ComparedSide()  # the side compared with
    new: ComparedSide = ComparedSide()  # the side that is judged
    same_workload: bool | None = None  # both sides sent the same; None: not known of another tool's result file
    workload_differences: Sentences = ()  # each as a sentence
    test: str | None = None  # by which changes are judged
    paired: Pairing | None = None
    figures: dict[str, FigureChange] = {}
    setup_differences: Annotated[dict[str, tuple[str, ...]], field("", Reveals.NAME)] = {}  # by entry, values by side
    notes: Sentences = ()  # caveats
    gates: tuple[GateLimit, ...] = ()


class ChecklistEntry(Document, frozen=True, kw_only=False):
    """One item of the draft's checklist (IETF 6.4)."""

    name: str | None = None  # of the item
    state: str | None = None  # yes, NO, declared or not declared
    evidence: Sentence = None  # what was found


class SystemsDocument(Document, frozen=True, kw_only=True):
    """Several systems."""

    schema_version: int | None = None
    systems: tuple[ComparedSide, ...] = ()  # that are compared
    pairs: tuple[ComparisonDocument, ...] = ()  # each system against each other
    checklist: tuple[ChecklistEntry, ...] = ()
    normalised: tuple[str, ...] = ()  # figures per GPU or per price
    normalisation_method: str | None = None  # how; None: nothing is normalised
    same_hardware: bool | None = None  # all systems declare the same
    setup_differences: Annotated[dict[str, tuple[str, ...]], field("", Reveals.NAME)] = {}  # by entry, values by system
    claims: Sentences = ()  # that the data support
    notes: Sentences = ()  # caveats
