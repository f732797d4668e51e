"""`--prometheus PORT`: serves the run's own counters and histograms (docs/guides/prometheus.md), from shared memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastllmload import __version__
from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.engine.recording.totals import PhaseTotals, Totals, Words
from fastllmload.engine.workers.fleet import HostState
from fastllmload.errors import InputError
from fastllmload.records.layout import ERROR_NAMES, STATUS_NAMES
from fastllmload.report.terminal.snapshot import STATUSES

if TYPE_CHECKING:
    from prometheus_client import Metric

MISSING = "--prometheus needs the package prometheus-client; install fastllmload with the extra `prometheus`"
COUNTERS: tuple[tuple[str, int, str], ...] = (
    ("requests_dispatched", k.W_RELEASED, "Requests that were sent, or tried."),
    ("events", k.W_EVENTS, "Events of the responses, of every kind."),
    ("content_events", k.W_CONTENT_EVENTS, "Events that carried output text; one token each where the server does so."),
    ("received_bytes", k.W_BYTES_IN, "Bytes read from the target."),
    ("sent_bytes", k.W_BYTES_OUT, "Bytes written to the target."),
    ("connects", k.W_CONNECTS, "Connections made."),
    ("connect_failures", k.W_CONNECT_FAILURES, "Connections that could not be made."),
)
NOT_COUNTED = (
    "none",
    "not_sent",
    "in_flight",
    "host_lost",
)  # statuses and errors that no request ends with on a worker
LEVELS: tuple[tuple[str, int, str], ...] = (
    ("requests_in_flight", k.W_IN_FLIGHT, "Requests in flight now."),
    ("requests_waiting", k.W_WAITING, "Requests that wait for their first token now."),
    ("connections_open", k.W_CONNECTIONS, "Connections open now."),
)
DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
GAPS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LAGS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0)
HISTOGRAMS: tuple[tuple[str, int, tuple[float, ...], str], ...] = (
    ("ttft_seconds", k.H_TTFT, DELAYS, "Last byte of the request sent to first content token."),
    (
        "ttft_any_seconds",
        k.H_TTFT_ANY,
        DELAYS,
        "Last byte of the request sent to first token of any kind, with reasoning.",
    ),
    ("itl_seconds", k.H_ITL, GAPS, "Gap between content events of one response."),
    ("e2e_seconds", k.H_E2E, DELAYS, "Last byte of the request sent to last content token."),
    ("schedule_lag_seconds", k.H_LAG, LAGS, "Scheduled instant to dispatch."),
)


class Collector:
    """A prometheus_client collector over *totals*; `collect` runs in the thread that serves the request."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        info = GaugeMetricFamily("fastllmload_info", "Version of fastllmload; always 1.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        phases = self._totals.phases()
        if not phases:
            return
        levels, hosts = self._totals.levels(), self._totals.hosts()
        yield from counted(phases)
        for name, word, text in LEVELS:
            yield GaugeMetricFamily(f"fastllmload_{name}", text, value=int(levels[:, word].sum()))
        yield from rates(phases)
        yield from distributions(phases)
        if hosts:
            yield from of_hosts(phases, levels, hosts)


def counted(phases: Sequence[PhaseTotals], hosts: Sequence[str] | None = None) -> Iterator[Metric]:
    """Counters of all hosts together; with the names of *hosts*, those of each, without statuses and errors that are 0."""
    from prometheus_client.core import CounterMetricFamily

    prefix, labels = ("fastllmload_", ["phase"]) if hosts is None else ("fastllmload_host_", ["phase", "host"])
    rows = labelled(phases, hosts)
    for name, word, text in COUNTERS:
        family = CounterMetricFamily(f"{prefix}{name}", text, labels=labels)
        for values, words in rows:
            family.add_metric(values, int(words[word]))
        yield family
    for name, first, names, text in (
        ("requests", k.W_STATUS0, STATUS_NAMES, "Requests that ended, by status."),
        ("request_errors", k.W_ERROR0, ERROR_NAMES, "Requests that ended with an error, by its class."),
    ):
        label = "status" if first == k.W_STATUS0 else "error"
        family = CounterMetricFamily(f"{prefix}{name}", text, labels=[*labels, label])
        for values, words in rows:
            for number, value in enumerate(names):
                if value in NOT_COUNTED or (hosts is not None and not words[first + number]):
                    continue
                family.add_metric([*values, value], int(words[first + number]))
        yield family


def labelled(phases: Sequence[PhaseTotals], hosts: Sequence[str] | None) -> list[tuple[list[str], Words]]:
    """Values of the labels with the counters: of all hosts together, or of each of *hosts*."""
    if hosts is None:
        return [([phase.name], phase.words.sum(axis=0)) for phase in phases]
    return [([phase.name, host], own) for phase in phases for host, own in zip(hosts, phase.words, strict=True)]


def rates(phases: Sequence[PhaseTotals]) -> Iterator[Metric]:
    """Requested rate of open loops, achieved rate of all. A closed loop and a rate of inf have no requested rate and no
    sample of it.
    """
    from prometheus_client.core import GaugeMetricFamily

    asked = GaugeMetricFamily(
        "fastllmload_asked_requests_per_second", "Rate that open loops ask for.", labels=["phase"]
    )
    achieved = GaugeMetricFamily(
        "fastllmload_achieved_requests_per_second",
        "Requests sent per second of sending, by open and closed loops.",
        labels=["phase"],
    )
    for phase in phases:
        if phase.asked_rate is not None and np.isfinite(phase.asked_rate):
            asked.add_metric([phase.name], phase.asked_rate)
        if phase.achieved_rate is not None:
            achieved.add_metric([phase.name], phase.achieved_rate)
    yield asked
    yield achieved


def distributions(phases: Sequence[PhaseTotals]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    for name, number, bounds, text in HISTOGRAMS:
        family = HistogramMetricFamily(f"fastllmload_{name}", text, labels=["phase"])
        for phase in phases:
            words = phase.lags.sum(axis=0) if number == k.H_LAG else phase.histograms[number]
            buckets, total = in_buckets(words, bounds)
            family.add_metric([phase.name], buckets=buckets, sum_value=total)
        yield family


def of_hosts(phases: Sequence[PhaseTotals], levels: Words, hosts: Sequence[HostState]) -> Iterator[Metric]:
    """The families of each host, whose sums over `host` are the totals; its status; and since when it is silent."""
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

    names = [host.name for host in hosts]
    yield from counted(phases, names)
    for name, word, text in LEVELS:
        family = GaugeMetricFamily(f"fastllmload_host_{name}", text, labels=["host"])
        for host, own in zip(names, levels, strict=True):
            family.add_metric([host], int(own[word]))
        yield family
    lag = HistogramMetricFamily(
        "fastllmload_host_schedule_lag_seconds", "Scheduled instant to dispatch.", labels=["phase", "host"]
    )
    for phase in phases:
        for host, own in zip(names, phase.lags, strict=True):
            buckets, total = in_buckets(own, LAGS)
            lag.add_metric([phase.name, host], buckets=buckets, sum_value=total)
    yield lag
    status = GaugeMetricFamily(
        "fastllmload_host_status", "1 for the status that the host has.", labels=["host", "status"]
    )
    silence = GaugeMetricFamily(
        "fastllmload_host_silence_seconds", "Time since something was received from the host.", labels=["host"]
    )
    for each in hosts:
        for value in STATUSES:
            status.add_metric([each.name, value], int(each.status == value))
        silence.add_metric([each.name], each.silent_s)
    yield status
    yield silence


def in_buckets(words: Words, bounds: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    """(le, cumulative count) for *bounds* in seconds and +Inf, and the sum in seconds; exact to 0.05 %."""
    at = np.flatnonzero(words[: histogram.COUNTS])
    counts, middles = words[at], middle_ns(at)
    cumulative = np.concatenate([[0], np.cumsum(counts)])
    below = np.searchsorted(middles, np.asarray(bounds) * 1e9, side="right")
    buckets = [(repr(bound), float(cumulative[n])) for bound, n in zip(bounds, below.tolist(), strict=True)]
    return [*buckets, ("+Inf", float(cumulative[-1]))], float((counts * middles).sum() / 1e9)


def middle_ns(position: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Middle of the values that share the HDR count at *position* (layout: histogram.pxd)."""
    bucket = np.maximum((position >> 10) - 1, 0)
    sub = np.where(position < 1024, position, (position & 1023) + 1024)
    width = np.left_shift(np.int64(1), bucket)
    middles: npt.NDArray[np.float64] = sub * width + (width - 1) / 2
    return middles


@contextlib.contextmanager
def serving(where: str | None, totals: Totals) -> Iterator[None]:
    """Serve /metrics at `host:port` until the block ends. InputError when it cannot be served there."""
    if where is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise InputError("package-missing", MISSING) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(totals))
    host, _, port = where.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise InputError(
            "listen-failed", f"--prometheus {where} cannot be served: {why}; choose another port or host"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
