"""The parts of procedure.json that decide a verdict, as types. Keys that no statement needs are ignored."""

from __future__ import annotations

import msgspec

from fastllmload.documents.fields import Count, Document, Load, Ms, Number, Rate, Ratio, Samples, Tokens
from fastllmload.settings import RunSettings

Cell = str | int | float | bool | None


class Probe(Document, frozen=True, kw_only=True):
    """One request to the idle system."""

    ttft_ms: Ms = None
    e2e_ms: Ms = None


class WarmUp(Document, frozen=True, kw_only=True):
    """A warm-up and its verification (IETF 4.5)."""

    requests: Count = None
    tokens: Tokens = None
    probe_before: Probe | None = None
    probes: tuple[Probe, ...] | None = None
    folders: tuple[str, ...] | None = None  # in `preparation/`; None: all of them


class Criteria(Document, frozen=True, kw_only=True):
    """What a level was judged by (IETF 5.2.3.1)."""

    generator_limited: bool | None = None
    offered_in_full: bool | None = None


class Level(Document, frozen=True, kw_only=True):
    """The entry of a measured level."""

    number: int | None = None
    name: str | None = None
    folder: str | None = None
    state: tuple[str, ...] = ()  # preparation steps that hold during the level
    load: int | float | str | None = None  # "inf": all at once
    criteria: Criteria = Criteria()
    saturated: bool | None = None
    steady: bool | None = None
    passes: bool | None = None
    share_of_capacity: Ratio = None

    @property
    def counts(self) -> bool:
        """Whether it is evidence on the system although the client was late: its decision does not depend on the lateness,
        or it passes and was offered in full.
        """
        held = self.saturated is False and self.steady is True and self.criteria.offered_in_full is True
        return held or self.criteria.generator_limited is False or self.passes is not None


class Table(Document, frozen=True, kw_only=True):
    """A table of the report."""

    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


class Plot(Document, frozen=True, kw_only=True):
    """A plot of the report."""

    id: str = ""
    title: str = ""
    kind: str = ""
    series: tuple[Document, ...] = ()


class Capacity(Document, frozen=True, kw_only=True):
    """What shares of a load refer to."""

    req_s: Rate = None


class ItlLevel(Document, frozen=True, kw_only=True):
    """A level of the test of inter-token latency."""

    short: Samples = None  # answers with too few tokens, which were excluded


class Findings(Document, frozen=True, kw_only=True):
    """What a test found."""

    request_count: Count = None
    capacity: Capacity | None = None
    levels: tuple[ItlLevel, ...] | Number = None  # of some tests their number


class TestParameters(Document, frozen=True, kw_only=True):
    """What a test was asked for."""

    request_count: Count = None
    minimum: Load = None
    maximum: Load = None
    step: Load = None


class Parameters(Document, frozen=True, kw_only=True):
    """The parameters of the test, and the settings of its runs."""

    test: TestParameters = TestParameters()
    run: RunSettings = RunSettings()


class Manifest(Document, frozen=True, kw_only=True):
    """What was declared before the first request."""

    declarations: dict[str, str] = msgspec.field(default_factory=dict)


class ColdStart(Document, frozen=True, kw_only=True):
    """The start was cold (IETF 4.5.3)."""


class Procedure(Document, frozen=True, kw_only=True):
    """procedure.json."""

    procedure: str = ""
    status: str | None = None
    quick: bool = False
    manifest: Manifest = Manifest()
    parameters: Parameters = Parameters()
    warmup: WarmUp | None = None  # all warm-ups together
    warmups: tuple[WarmUp, ...] = ()
    levels: tuple[Level, ...] = ()
    findings: Findings = Findings()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    deviations: tuple[str, ...] = ()
    cold_start: ColdStart | None = None
