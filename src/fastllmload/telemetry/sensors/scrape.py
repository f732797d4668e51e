"""A server's metrics page as a sensor: known names combined over their label sets, names asked for as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.telemetry.exposition import KINDS, Exposition, Samples, labels
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.sensor import COUNTER, GAUGE, Key, Reading, SensorError
from fastllmload.telemetry.servers import KNOWN, SOURCES, KnownMetric

MOST_LABEL_SETS = 64  # of one name that was asked for; a page with more gives its first ones, in its order
OWN_UNIT = ""  # of a name that was asked for: whatever the server means


class Scrape:
    """Sensor over one page. *extra*: names that --scrape-metric asked for; each label set is a series of its own."""

    def __init__(self, page: HttpPage, extra: Sequence[str] = (), redact: Callable[[str], str] = str) -> None:
        self.origin = page.spec.origin
        self._redact = redact
        self.page = page
        self.extra = tuple(extra)
        self._exposition = Exposition([*SOURCES, *extra])
        self._chosen: dict[str, str] = {}  # our name -> the server's, from the first page that has one

    def read(self) -> list[Reading]:
        answer = self.page.get()
        if answer.status != 200:
            moved = ", a redirect, which is not followed" if 300 <= answer.status < 400 else ""
            raise SensorError(f"HTTP status {answer.status}{moved}")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise SensorError("the page is compressed although identity was asked for")
        found = self._exposition.read(answer.body)
        readings = [*self._known(found), *self._asked(found)]
        if not readings:
            raise SensorError("the page has none of the wanted metrics")
        return readings

    def close(self) -> None:
        self.page.close()

    def _known(self, found: Samples) -> list[Reading]:
        readings = []
        for known in KNOWN:
            source = self._source(known, found)
            series = found.values.get(source, [])
            if series:
                total = sum(value for _, value in series)
                value = total / len(series) if known.combine == "mean" else total
                readings.append(Reading(Key(known.name, source, known.unit, known.kind), value))
        return readings

    def _source(self, known: KnownMetric, found: Samples) -> str:
        """The server's name for it, from the first page that has one, so that a series never changes its meaning."""
        if known.name not in self._chosen:
            there = next((source for source in known.sources if source in found.values), None)
            if there is None:
                return ""
            self._chosen[known.name] = there
        return self._chosen[known.name]

    def _asked(self, found: Samples) -> list[Reading]:
        readings = []
        for name in self.extra:
            kind = found.kinds.get(name, "")
            if kind not in KINDS:
                kind = COUNTER if name.endswith(("_total", "_sum", "_count", "_bucket")) else GAUGE
            for block, value in found.values.get(name, [])[:MOST_LABEL_SETS]:
                readings.append(Reading(Key(name, name, OWN_UNIT, kind, self._redact(shown(block))), value))
        return readings


def shown(block: bytes) -> str:
    """The label block in one order and spelling, so that a server that changes them does not make new series."""
    return ",".join(f"{name}={value!r}" for name, value in sorted(labels(block).items()))
