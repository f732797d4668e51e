"""A target of a Prometheus server as a sensor: its series as the server scraped them, each dated by its scrape.

A range selector (`{...}[20s]`) in `/api/v1/query` gives the samples themselves with their instants; `query_range` would give
values at a step of its own, each up to that step old. The samples of one scrape are read as its page would be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from fastllmload.telemetry.exposition import Samples
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.scrape import ADAPTERS, UNAME, Scrape, spelled
from fastllmload.telemetry.sensors.sensor import Reading, SensorError
from fastllmload.telemetry.servers import SOURCES

FIRST_S = 150  # asked for at first, so that a value of before the run is there with scrapes every 60 s
AGAIN_S = 10  # of each later question, before the newest sample
LONGEST_S = 3600  # of one question, after answers that did not come
CLOCK_S = 30.0  # between two comparisons of the clocks
CLOCK_TRIES = 5
SERVER_MS = 1_000_000  # ns; the server's own instants are whole ms
DURATION = "scrape_duration_seconds"
TARGET = ("job", "instance")  # labels of a target
POD = ("pod", "exported_pod")
Labels = dict[str, str]
Point = tuple[float, str]


class StoredSeries(msgspec.Struct):
    """One of an answer: *value* of an instant query, *values* of a range, each (seconds of the epoch, value)."""

    metric: Labels
    value: Point | None = None
    values: list[Point] = []


class QueryAnswer(msgspec.Struct, frozen=True):
    resultType: str = ""
    result: Any = None


class QueryReply(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: QueryAnswer = QueryAnswer()


@dataclass(frozen=True)
class Clock:
    """The server's clock against CLOCK_MONOTONIC: ns to take from its instants, and how far that may be off."""

    offset_ns: int
    within_ns: int


def wanted(extra: Sequence[str], labels: Mapping[str, str], matchers: str = "") -> str:
    """The selector of all series that are read, of a target with *labels*. *matchers* as in PromQL, `namespace="llm"`."""
    names = sorted({*SOURCES, ADAPTERS, UNAME, DURATION, *extra})
    parts = [f'__name__=~"{"|".join(names)}"', *(f"{name}={quoted(value)}" for name, value in sorted(labels.items()))]
    return "{" + ",".join([*parts, *([matchers.strip().strip("{}")] if matchers.strip() else [])]) + "}"


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def ask(page: HttpPage, query: str) -> QueryAnswer:
    """What `/api/v1/query` says. SensorError, with the server's own words where it has some."""
    answer = page.get(urlencode({"query": query}))
    try:
        reply = msgspec.json.decode(answer.body, type=QueryReply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SensorError(f"HTTP status {answer.status}, and not an answer of Prometheus's API") from None
    if reply.status != "success":
        raise SensorError(f"it refuses the question: {reply.error or f'HTTP status {answer.status}'}")
    return reply.data


def series_of(answer: QueryAnswer) -> list[StoredSeries]:
    try:
        return msgspec.convert(answer.result, list[StoredSeries])
    except msgspec.ValidationError:
        raise SensorError(f"it answers with a {answer.resultType or 'value'} of another form") from None


def compared(page: HttpPage, tries: int = 1) -> Clock:
    """The best of *tries* comparisons: the server's instant lies between sending and receiving."""
    best = None
    for _ in range(tries):
        before = time.monotonic_ns()
        try:
            stated = float(ask(page, "time()").result[1])
        except (TypeError, ValueError, IndexError, KeyError):
            raise SensorError("it does not say what time it is") from None
        after = time.monotonic_ns()
        found = Clock(round(stated * 1e9) - (before + after) // 2, (after - before) // 2 + SERVER_MS)
        best = found if best is None or found.within_ns < best.within_ns else best
    assert best is not None
    return best


class PrometheusTarget:
    """Sensor over one scraped target, which *page* (a POST to `/api/v1/query`) has under the selector of its spec."""

    def __init__(self, page: HttpPage, extra: Sequence[str] = (), redact: Callable[[str], str] = str) -> None:
        assert page.spec.selector is not None
        self.origin = page.spec.origin
        self._selector = page.spec.selector
        self._page = page
        self._scrape = Scrape(page, extra, redact)
        self._clock: Clock | None = None
        self._compared_s = 0.0
        self._newest_s = -math.inf  # of the server's clock

    def read(self) -> list[Reading]:
        """Of all scrapes since the last read; none if there was none, which is not an error."""
        self._keep_clock()
        found = series_of(ask(self._page, f"{self._selector}[{self._seconds()}s]"))
        readings: list[Reading] = []
        for stated, samples in sorted(scrapes(found, self._newest_s).items()):
            readings += self._dated(stated, samples)
            self._newest_s = stated
        return readings

    def close(self) -> None:
        self._page.close()

    def _seconds(self) -> int:
        """How far back to ask: all that is new, and some more for samples that came late."""
        if self._newest_s == -math.inf or self._clock is None:
            return FIRST_S
        now_s = (time.monotonic_ns() + self._clock.offset_ns) / 1e9
        return min(LONGEST_S, math.ceil(max(0.0, now_s - self._newest_s)) + AGAIN_S)

    def _keep_clock(self) -> None:
        if self._clock is None:
            self._clock = compared(self._page, CLOCK_TRIES)
        elif time.monotonic() - self._compared_s < CLOCK_S:
            return
        else:
            found = compared(self._page)
            self._clock = found if found.within_ns < 2 * self._clock.within_ns else self._clock
        self._compared_s = time.monotonic()

    def _dated(self, stated: float, samples: Samples) -> list[Reading]:
        """The target's values were taken while it was scraped: from the scrape's instant to its end."""
        assert self._clock is not None
        begin = round(stated * 1e9) - self._clock.offset_ns
        took = max((value for _, value in samples.values.pop(DURATION, [])), default=0.0)
        first, last = begin - self._clock.within_ns, begin + round(took * 1e9) + self._clock.within_ns
        return [reading._replace(t_ns=first, until_ns=last) for reading in self._scrape.readings(samples)]


def scrapes(found: Sequence[StoredSeries], after_s: float) -> dict[float, Samples]:
    """The samples later than *after_s* by the instant of their scrape."""
    by_instant: dict[float, Samples] = {}
    for series in found:
        labels = {name: value for name, value in series.metric.items() if name != "__name__"}
        block = ("{" + ",".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}").encode()
        for stated, text in series.values:
            if stated > after_s:
                by_instant.setdefault(stated, Samples()).add(series.metric.get("__name__", ""), block, float(text))
    return by_instant


@dataclass(frozen=True)
class Scraped:
    """A target that the server scrapes: its labels, the names of its series, and the seconds between its scrapes."""

    labels: Labels
    names: tuple[str, ...]
    every_s: float | None
    pod: str | None

    @property
    def shown(self) -> str:
        return spelled({**self.labels, **({} if self.pod is None else {"pod": self.pod})})


def scraped_targets(page: HttpPage, extra: Sequence[str], matchers: str) -> list[Scraped]:
    """All targets with series that are read, in the order of their labels. SensorError."""
    every: dict[tuple[str, ...], float] = {}
    selector = (
        "{" + ",".join([f'__name__="{DURATION}"', *([matchers.strip().strip("{}")] if matchers.strip() else [])]) + "}"
    )
    for series in series_of(ask(page, f"{selector}[{FIRST_S}s]")):
        instants = [stated for stated, _ in series.values]
        if len(instants) > 1:
            every[key_of(series.metric)] = (instants[-1] - instants[0]) / (len(instants) - 1)
    found: dict[tuple[str, ...], dict[str, Labels]] = {}
    for series in series_of(ask(page, wanted(extra, {}, matchers))):
        name = series.metric.get("__name__", "")
        if name != DURATION:
            found.setdefault(key_of(series.metric), {}).setdefault(name, series.metric)
    return [
        Scraped(
            {name: value for name, value in zip(TARGET, key, strict=True) if value},
            tuple(names),
            every.get(key),
            next((labels[name] for labels in names.values() for name in POD if name in labels), None),
        )
        for key, names in sorted(found.items())
    ]


def key_of(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in TARGET)
