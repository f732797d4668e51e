"""What the documents of experiments share: how it was started, warm-ups, hooks, levels, tables.

They are procedure.json, search.json, sweep.json, overhead.json and runs.json.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fastllmload.documents.fields import (
    Count,
    Document,
    File,
    Load,
    Ms,
    Name,
    Names,
    Number,
    Rate,
    Ratio,
    Reveals,
    Sentences,
    TokenRate,
    Tokens,
    field,
)
from fastllmload.documents.run import Tool
from fastllmload.documents.run_parts.compliance import Compliance

Cell = str | int | float | bool | None
# "inf": all at once
LoadOrAll = Annotated[int | float | str | None, field("requests/s or requests in flight", Reveals.LOAD)]
LogLines = Annotated[dict[str, tuple[int, int | None]], field("lines", Reveals.ENGINE)]


class Manifest(Document, frozen=True, kw_only=True):
    """What was declared of the system before the first request (IETF 4.1), and what the settings say of the requests."""

    declarations: dict[str, str] = {}  # by name
    simulated: bool = False  # the target was the simulated engine
    workload: str | None = None  # its name
    seed: int | None = None
    tokenizer: File = None  # that counts prompts
    streaming: bool | None = None  # answers are asked for as streams
    endpoint_type: str | None = None
    urls: Names = ()
    goodput: Annotated[tuple[tuple[str, float], ...], field("ms")] = ()  # metric and limit of each objective


class Probe(Document, frozen=True, kw_only=True):
    """One request to the idle system."""

    ttft_ms: Annotated[float | None, field("ms")] = None  # TTFT
    e2e_ms: Annotated[float | None, field("ms")] = None  # from submission to the end


class WarmUpEntry(Document, frozen=True, kw_only=True):
    """A warm-up and its verification (IETF 4.5)."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("before_level", "folders")

    before_level: int | None = None  # number of the level that was measured next
    requests: Count = None  # that succeeded
    tokens: Tokens = None  # output tokens that came
    rounds: int | None = None  # of workload and probes
    probe_before: Probe | None = None  # before the warm-up
    probes: tuple[Probe, ...] = ()  # after the last round
    verified: bool | None = None  # the probes were stable; None: no probe was sent
    folders: Names = ()  # in `preparation/`


class HookEntry(Document, frozen=True, kw_only=True):
    """A hook that was run, or that the operator was asked for."""

    name: str = ""  # of the hook
    at_utc: str | None = None  # when it was begun
    how: str | None = None  # command, operator or simulated engine
    seconds: Annotated[float | None, field("s")] = None  # that it took
    status: int | None = None  # exit code
    ready_after_s: Annotated[float | None, field("s")] = None  # until the target answered after it
    output: Name = None  # end of what it printed


Speed = Annotated[float | None, field("tokens/s", Reveals.LOAD)]
Requests = Annotated[float | None, field("requests", Reveals.LOAD)]
Latency = Annotated[float | None, field("ms", Reveals.LOAD)]


class CriteriaFigures(Document, frozen=True, kw_only=True):
    """The figures of a level that its criteria judge; no key where nothing was measured."""

    completion_rate: Annotated[float | None, field("share", Reveals.LOAD)] = (
        None  # answered of what was due in the window
    )
    ttft_p99_ms: Latency = None  # P99 of TTFT
    lowest_ttft_p50_ms: Latency = None  # median TTFT of the lowest level
    output_tok_s: Speed = None  # that came in the window
    in_flight_mean: Requests = None  # in flight over the window
    in_flight_last: Requests = None  # in flight at its end
    queue_mean: Requests = None  # in *queue* over the window
    queue_last: Requests = None  # in *queue* at its end
    e2e_mean_s: Annotated[float | None, field("s", Reveals.LOAD)] = None  # mean end-to-end latency

    def optional(self) -> tuple[str, ...]:
        """All or none."""
        return self.__struct_fields__ if self == CriteriaFigures() else ()


class Criteria(Document, frozen=True, kw_only=True):
    """A level judged by the criteria of IETF 5.2.3.1 (spec/procedures 0.9)."""

    loop: str | None = None  # open or closed
    saturated: bool | None = None  # None: undecided
    fired: tuple[str, ...] = ()  # criteria that hold
    inapplicable: Annotated[tuple[tuple[str, str], ...], field("", Reveals.SENTENCE)] = ()  # criterion, reason
    steady: bool | None = None  # throughput does not drift and the queue does not grow; None: undecided
    generator_limited: bool | None = None  # the client's lateness may decide whether the level holds
    limits: Sentences = ()  # how the client was late
    offered_in_full: bool | None = None  # the planned load was offered
    cascading: bool | None = None  # most of the last requests failed (IETF 7.4)
    warnings: Sentences = ()  # that the level is too short, or nothing was measured
    figures: CriteriaFigures = CriteriaFigures()
    queue: Name = None  # what the queue's growth was judged by
    in_question: tuple[str, ...] = ()  # criteria that the client's lateness may decide


class LevelEntry(Document, frozen=True, kw_only=True):
    """A measured load level. What follows `tpot_p99_ms` is of some kinds of experiments only."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "criteria", "saturated", "steady", "passes", "oom", "share_of_capacity", "aborted", "died", "recovered_s",
        "look",  # prose: allow, a key of the document
        "level_value", "cascading", "cell", "repetition",
    )  # fmt: skip

    number: int | None = None  # from 1, in the order of measurement
    name: Annotated[str | None, field("", Reveals.LOAD)] = None  # of the level
    folder: Annotated[str | None, field("", Reveals.LOAD)] = None  # of its run, below the folder of the experiment
    phase: str | None = None  # measure
    state: Names = ()  # preparation steps that hold during the level
    loop: str | None = None  # open or closed
    load: LoadOrAll = None  # rate of an open loop, slots of a closed one; "inf": all at once
    certificate: str | None = None  # verdict of its certificate: valid, suspect, invalid
    completed: Count = None  # that succeeded
    failed: Count = None  # that failed
    req_s: Rate = None  # completed in the window
    output_tok_s: TokenRate = None  # that came in the window
    ttft_p50_ms: Ms = None  # median TTFT
    ttft_p99_ms: Ms = None  # P99 of TTFT
    tpot_p99_ms: Ms = None  # P99 of TPOT
    criteria: Criteria | None = None
    saturated: bool | None = None  # as in *criteria*
    steady: bool | None = None  # as in *criteria*
    passes: bool | None = None  # of a concurrency search: it meets the criteria; None: undecided
    oom: Annotated[Number, field("errors", Reveals.ENGINE)] = None  # out-of-memory errors
    share_of_capacity: Ratio = None  # its load
    aborted: bool | None = None  # most requests failed, or the system did not answer after it
    died: bool | None = None  # the system did not answer after it
    recovered_s: Annotated[float | None, field("s")] = None  # how long the hook took to bring the system back
    look: str | None = None  # which trial of its level; prose: allow, a key of the document
    level_value: Load = None  # the level of a search
    cascading: bool | None = None  # sending was stopped by `--stop-on-failures` (IETF 7.4)
    cell: dict[str, str] | None = None  # the varied options of a sweep; of an overhead the way
    repetition: int | None = None  # of the cell, or number of the pair, from 0

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

    id: str = ""  # that stays the same between versions
    title: str = ""  # as in the draft, where it has the table
    columns: tuple[str, ...] = ()  # headings
    rows: tuple[tuple[Cell, ...], ...] = ()  # cells; None: n/a
    notes: Sentences = ()  # sentences below the table
    reveals: Reveals | None = None  # kind of all cells; None: not declared, as by earlier versions
    column_reveals: tuple[Reveals, ...] = ()  # kind of each column; empty: nothing
    row_reveals: tuple[Reveals, ...] = ()  # kind of each row; empty: nothing
    public_columns: tuple[str, ...] = ()  # titles that reveal nothing, where *columns* quote a load


class FindingSeries(Document, frozen=True, kw_only=False):
    """*style*: "" for that of the plot's kind, else line, dash, step or points. For a cdf *y* holds the values."""

    name: str = ""  # in the legend
    y: tuple[float | None, ...] = ()  # values; None: no value
    x: tuple[float, ...] = ()  # where they are; empty: no axis, as of a cdf
    style: Literal["", "line", "dash", "step", "points"] = ""  # "": that of the plot's kind


class FindingMark(Document, frozen=True, kw_only=False):
    """A limit, a knee: a line at *at* across *axis* ("x" or "y")."""

    axis: Literal["x", "y"] = "x"  # that the line crosses
    at: float = 0.0  # where on the axis
    label: str = ""  # text at the line


class FindingPlot(Document, frozen=True, kw_only=False):
    """*kind*: line, scatter, cdf or bars (one group for each of *names*). *x*, *y*: label, unit, logarithmic."""

    id: str = ""  # that stays the same between versions
    title: str = ""  # heading
    kind: Literal["line", "scatter", "cdf", "bars"] = "line"  # line, scatter, cdf, bars: one group for each of *names*
    series: tuple[FindingSeries, ...] = ()  # what is drawn
    x: tuple[str, str, bool | None] = ("", "", None)  # label, unit, whether logarithmic; None: by the values
    y: tuple[str, str, bool | None] = ("", "", None)  # label, unit, whether logarithmic; None: by the values
    names: tuple[str, ...] = ()  # of the groups of bars
    marks: tuple[FindingMark, ...] = ()  # lines across the plot
    note: str = ""  # below the plot


class ColdStart(Document, frozen=True, kw_only=True):
    """What a cold start took (IETF 4.5.3)."""

    model_load_time_s: Annotated[float | None, field("s")] = None  # from the restart, or as declared
    cold_start_latency_ms: Annotated[float | None, field("ms")] = None  # TTFT of the first request (spec/metrics 7.11)


class FindingValues(Document, frozen=True, kw_only=True):
    """The figures of a test; each test has its own."""


class ExperimentDocument(Document, frozen=True, kw_only=True):
    """What all documents of experiments hold."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("ended_utc", "sentences", "public", "compliance", "cold_start", "withheld")

    schema_version: int | None = None
    tool: Tool = Tool()
    procedure: str = ""  # name of the test; search, sweep or overhead
    status: str = ""  # running, done, interrupted or failed
    command: Annotated[tuple[str, ...] | str | None, field("", Reveals.NAME)] = None  # None: from Python
    started_utc: str = ""  # first start
    last_start_utc: str | None = None  # last start
    ended_utc: str | None = None  # end; None: not ended
    starts: int = 1  # of the program; above 1: it was continued
    quick: bool = False  # durations and counts are below those of the methodology
    manifest: Manifest = Manifest()
    warmup: WarmUpEntry | None = None  # the last one; None: there was none
    warmups: tuple[WarmUpEntry, ...] = ()  # of every start, also before later levels
    steps: tuple[HookEntry, ...] = ()  # hooks, in the order in which they ran
    server_log: LogLines = {}  # out-of-memory lines before and after each level
    levels: tuple[LevelEntry, ...] = ()  # in the order of their numbers
    findings: FindingValues = FindingValues()  # figures of the test, see `TtftFindings` and the others of a procedure
    tables: tuple[FindingTable, ...] = ()  # of the report
    plots: tuple[FindingPlot, ...] = ()  # of the report
    sentences: Sentences = ()  # of the report
    deviations: Sentences = ()  # from the method of the draft
    warnings: Sentences = ()  # each with its code of docs/codes.md
    public: tuple[str, ...] = ()  # those of the sentences, deviations, warnings and notes that reveal nothing
    compliance: Compliance | None = None  # the verdict by the draft; None: not judged
    cold_start: ColdStart | None = None  # of a run that begins with a cold start (IETF 4.5.3)
    withheld: str | None = None  # what redaction took away

    def level(self, number: int | None) -> LevelEntry | None:
        return next((entry for entry in self.levels if entry.number == number), None)
