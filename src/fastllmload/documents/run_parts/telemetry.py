"""What was sampled during the run, in run.json."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import Document, Figure, Name, Names, Number, Ratio, Reveals, Samples, Seconds, field


class TelemetrySource(Document, frozen=True, kw_only=True):
    """Where figures were read."""

    origin: Name = None  # URL of a metrics page, or name of a sensor
    kind: str | None = None  # server, router, gpu, node: role of a metrics page; power, host
    exporter: str | None = None  # whose page it is: vllm, dcgm, node ...; None: not recognised
    label: Name = None  # that `--telemetry-url` gave to the page
    n: Samples = None  # reads
    n_failed: Samples = None  # reads that failed
    n_skipped: Samples = None  # reads that were due during another one
    slowest_s: Seconds = None  # the longest read
    problems: Annotated[dict[str, int], field("", Reveals.NAME)] = {}  # how often, by sentence

    OPTIONAL: ClassVar[tuple[str, ...]] = ("exporter", "label")


class TelemetryEntry(Document, frozen=True, kw_only=True):
    """A series: of a gauge mean, min and max; of a counter first, last and delta."""

    name: str | None = None  # ours
    source: Name = None  # name that the source has for it
    origin: Name = None  # URL of a metrics page, or name of a sensor
    unit: str | None = None  # of its figures
    kind: str | None = None  # gauge, counter
    n: Samples = None  # in the window
    n_failed: Samples = None  # reads in the window that gave no value
    labels: Name = None  # of one of a server's own series, as a="x",b="y"
    first: Figure = None  # at the start of the window
    last: Figure = None  # at its end
    delta: Figure = None  # increment, also over a restart of the server
    span_s: Seconds = None  # between *first* and *last*
    restarts: Annotated[Number, field("restarts")] = None  # how often it went back, of which *delta* counts from 0
    mean: Figure = None  # over the window
    min: Figure = None  # in the window
    max: Figure = None  # in the window

    def optional(self) -> tuple[str, ...]:
        """The figures of the other kind."""
        others = ("mean", "min", "max") if self.kind == "counter" else ("first", "last", "delta", "span_s")
        return ("labels", "restarts", *others)


class TelemetryFacts(Document, frozen=True, kw_only=True):
    """What was sampled during the run."""

    interval_s: Seconds = None  # between two reads of a source
    ended: bool | None = None  # the sampling process ended in order
    sources: tuple[TelemetrySource, ...] = ()
    absent: dict[str, Name] = {}  # why a sensor is missing, by its name
    cpu_share: Ratio = None  # of a core, that sampling used
    warnings: Names = ()  # hardware that was slowed down during the window
    series: tuple[TelemetryEntry, ...] = ()  # each series over the window


class ServerFigure(Document, frozen=True, kw_only=True):
    """A figure that the server reports; `source` is "not measured" without one."""

    value: Figure = None  # over the window
    unit: str | None = None
    source: str | None = None  # names that the server has for it; "not measured": it reports none
