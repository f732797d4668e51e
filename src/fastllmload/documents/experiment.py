"""What procedure.json, search.json, sweep.json and runs.json share: how it was started, warm-ups, hooks, levels, tables."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fastllmload.documents.fields import (
    Count,
    Document,
    File,
    Limit,
    Load,
    Ms,
    Name,
    Names,
    Rate,
    Ratio,
    Reveals,
    Sentences,
    TokenRate,
    Tokens,
    field,
)
from fastllmload.documents.run import Compliance, Tool

Cell = str | int | float | bool | None
# "inf": all at once
LoadOrAll = Annotated[int | float | str | None, field("requests/s or requests in flight", Reveals.LOAD)]


class Manifest(Document, frozen=True, kw_only=True):
    """What was declared of the system before the first request (IETF 4.1), and what the settings say of the requests."""

    declarations: dict[str, str] = {}
    simulated: bool = False  # the target was the simulated engine
    workload: str | None = None
    seed: int | None = None
    tokenizer: File = None
    streaming: bool | None = None
    endpoint_type: str | None = None
    urls: Names = ()
    goodput: Annotated[tuple[tuple[str, float], ...], field("ms")] = ()  # metric and limit of each objective


class Probe(Document, frozen=True, kw_only=True):
    """One request to the idle system."""

    ttft_ms: Annotated[float | None, field("ms")] = None
    e2e_ms: Annotated[float | None, field("ms")] = None


class WarmUpEntry(Document, frozen=True, kw_only=True):
    """A warm-up and its verification (IETF 4.5)."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("before_level", "folders")

    before_level: int | None = None  # number of the level that was measured next
    requests: Count = None
    tokens: Tokens = None
    rounds: int | None = None
    probe_before: Probe | None = None
    probes: tuple[Probe, ...] = ()
    verified: bool | None = None  # None: no probe was sent
    folders: Names = ()  # in `preparation/`


class HookEntry(Document, frozen=True, kw_only=True):
    """A hook that was run, or that the operator was asked for."""

    name: str = ""
    at_utc: str | None = None
    how: str | None = None  # command, operator or simulated engine
    seconds: Annotated[float | None, field("s")] = None
    status: int | None = None  # exit code
    ready_after_s: Annotated[float | None, field("s")] = None  # until the target answered after it
    output: Name = None


class Criteria(Document, frozen=True, kw_only=True):
    """A level judged by the criteria of IETF 5.2.3.1 (spec/procedures 0.9)."""

    loop: str | None = None  # open or closed
    saturated: bool | None = None  # None: undecided
    fired: tuple[str, ...] = ()  # criteria that hold
    inapplicable: Annotated[tuple[tuple[str, str], ...], field("", Reveals.SENTENCE)] = ()  # criterion, reason
    steady: bool | None = None
    generator_limited: bool | None = None
    limits: Sentences = ()  # how the client was late
    offered_in_full: bool | None = None
    cascading: bool | None = None
    warnings: Sentences = ()
    figures: Annotated[dict[str, float | None], field("", Reveals.LOAD)] = {}  # the compared values
    queue: Name = None  # what the queue's growth was judged by
    in_question: tuple[str, ...] = ()  # criteria that the client's lateness may decide


class LevelEntry(Document, frozen=True, kw_only=True):
    """A measured load level. What follows `tpot_p99_ms` is of some kinds of experiments only."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "criteria", "saturated", "steady", "passes", "oom", "share_of_capacity", "aborted", "died", "recovered_s",
        "look",  # prose: allow, a key of the document
        "level_value", "cascading", "cell", "repetition",
    )  # fmt: skip

    number: int | None = None
    name: Annotated[str | None, field("", Reveals.LOAD)] = None
    folder: Annotated[str | None, field("", Reveals.LOAD)] = None
    phase: str | None = None
    state: Names = ()  # preparation steps that hold during the level
    loop: str | None = None  # open or closed
    load: LoadOrAll = None
    certificate: str | None = None  # verdict
    completed: Count = None
    failed: Count = None
    req_s: Rate = None
    output_tok_s: TokenRate = None
    ttft_p50_ms: Ms = None
    ttft_p99_ms: Ms = None
    tpot_p99_ms: Ms = None
    criteria: Criteria | None = None
    saturated: bool | None = None
    steady: bool | None = None
    passes: bool | None = None  # of a concurrency search
    oom: Limit = None  # out-of-memory errors
    share_of_capacity: Ratio = None
    aborted: bool | None = None
    died: bool | None = None  # the system did not answer after it
    recovered_s: Annotated[float | None, field("s")] = None  # how long the hook took to bring the system back
    look: str | None = None  # which trial of its level; prose: allow, a key of the document
    level_value: Load = None  # the level of a search
    cascading: bool | None = None
    cell: dict[str, str] | None = None  # the varied options of a sweep
    repetition: int | None = None

    @property
    def counts(self) -> bool:
        """Whether it is evidence on the system although the client was late: its decision does not depend on the lateness,
        or it passes and was offered in full.
        """
        criteria = self.criteria or Criteria()
        held = self.saturated is False and self.steady is True and criteria.offered_in_full is True
        return held or criteria.generator_limited is False or self.passes is not None


class FindingTable(Document, frozen=True, kw_only=False):
    """*rows* contain numbers in the unit of their column; None is "n/a".

    *reveals* is the kind of all cells, *column_reveals* and *row_reveals* are those of columns and rows; a cell is as
    sensitive as the most sensitive of the three. An empty list: NOTHING. None: not declared, as by earlier versions.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("reveals", "column_reveals", "row_reveals", "public_columns")

    id: str = ""
    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    notes: Sentences = ()
    reveals: Reveals | None = None
    column_reveals: tuple[Reveals, ...] = ()
    row_reveals: tuple[Reveals, ...] = ()
    public_columns: tuple[str, ...] = ()  # titles that reveal nothing, where *columns* quote a load


class FindingSeries(Document, frozen=True, kw_only=False):
    """*style*: "" for that of the plot's kind, else line, dash, step or points. For a cdf *y* holds the values."""

    name: str = ""
    y: tuple[float | None, ...] = ()
    x: tuple[float, ...] = ()
    style: Literal["", "line", "dash", "step", "points"] = ""


class FindingMark(Document, frozen=True, kw_only=False):
    """A limit, a knee: a line at *at* across *axis* ("x" or "y")."""

    axis: Literal["x", "y"] = "x"
    at: float = 0.0
    label: str = ""


class FindingPlot(Document, frozen=True, kw_only=False):
    """*kind*: line, scatter, cdf or bars (one group for each of *names*). *x*, *y*: label, unit, logarithmic."""

    id: str = ""
    title: str = ""
    kind: Literal["line", "scatter", "cdf", "bars"] = "line"
    series: tuple[FindingSeries, ...] = ()
    x: tuple[str, str, bool | None] = ("", "", None)
    y: tuple[str, str, bool | None] = ("", "", None)
    names: tuple[str, ...] = ()
    marks: tuple[FindingMark, ...] = ()
    note: str = ""


class ColdStart(Document, frozen=True, kw_only=True):
    """What a cold start took (IETF 4.5.3)."""

    model_load_time_s: Annotated[float | None, field("s")] = None
    cold_start_latency_ms: Annotated[float | None, field("ms")] = None


class FindingValues(Document, frozen=True, kw_only=True):
    """The figures of a test; each test has its own."""


class ExperimentDocument(Document, frozen=True, kw_only=True):
    """What all documents of experiments hold."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("ended_utc", "sentences", "public", "compliance", "cold_start", "withheld")

    schema_version: int | None = None
    tool: Tool = Tool()
    procedure: str = ""  # name of the test; search or sweep
    status: str = ""  # running, done, interrupted or failed
    command: Annotated[tuple[str, ...] | str | None, field("", Reveals.NAME)] = None  # None: from Python
    started_utc: str = ""
    last_start_utc: str | None = None
    ended_utc: str | None = None
    starts: int = 1
    quick: bool = False  # durations and counts are below those of the methodology
    manifest: Manifest = Manifest()
    warmup: WarmUpEntry | None = None
    warmups: tuple[WarmUpEntry, ...] = ()
    steps: tuple[HookEntry, ...] = ()
    server_log: Annotated[
        dict[str, tuple[int, int | None]], field("lines", Reveals.ENGINE)
    ] = {}  # before, after a level
    levels: tuple[LevelEntry, ...] = ()
    findings: FindingValues = FindingValues()
    tables: tuple[FindingTable, ...] = ()
    plots: tuple[FindingPlot, ...] = ()
    sentences: Sentences = ()
    deviations: Sentences = ()
    warnings: Sentences = ()
    public: tuple[str, ...] = ()  # those of the sentences, deviations, warnings and notes that reveal nothing
    compliance: Compliance | None = None
    cold_start: ColdStart | None = None
    withheld: str | None = None  # what redaction took away

    def level(self, number: int | None) -> LevelEntry | None:
        return next((entry for entry in self.levels if entry.number == number), None)
