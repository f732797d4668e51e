"""Computes the network's share of a latency (IETF 4.7.3; spec/metrics 7.12)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from fastllmload.arrays import Mask, Numbers
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Distribution, Metric
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.distribution.summary import distribution, without_nulls
from fastllmload.metrics.request.durations import NULL, between, ttft
from fastllmload.records.run import Run

OF_REQUESTS, OUTSIDE_THE_RUN = "connects of requests", "connects before and after the run"


class RoundTrips(Metric, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "n", "p50", "p95")


class Handshakes(Metric, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "n", "made", "resumed", "mean", "cpu_ms")


class SharedConnections(Metric, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = ("unit", "n", "connections", "window_waits", "mean", "p50", "p95", "max")


class NetAdjusted(Distribution, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Distribution.WRITTEN, "rtt_p50_ms")


def rtt_ms(connect_ns: Numbers, method: str | None = None) -> RoundTrips:
    """P50, P95 and number of TCP connect times (NULL left out), which take one round trip each. P50 is None without any."""
    ordered = np.sort(without_nulls(connect_ns))
    p50, p95 = (None if ns is None else ns / 1e6 for ns in (percentile(ordered, 0.5), percentile(ordered, 0.95)))
    return RoundTrips(unit="ms", n=len(ordered), p50=p50, p95=p95, method=method)


def handshake_ms(run: Run) -> Handshakes | None:
    """TLS handshakes of the whole run, of connections opened in advance, too: how many, how long, and processor time of one.
    P50 and P95 are of those that a request waited for. None without any.
    """
    if run.samples is None or not len(run.samples):
        return None
    last = last_of_each(run.samples)
    made, resumed, spent_ns, cpu_ns = (
        int(last[name].sum()) for name in ("handshakes", "handshakes_resumed", "handshake_ns", "handshake_cpu_ns")
    )
    if not made:
        return None
    waited = np.sort(run.rows["tls_us"][run.rows["tls_us"] > 0])
    p50, p95 = (None if us is None else us / 1e3 for us in (percentile(waited, 0.5), percentile(waited, 0.95)))
    return Handshakes(
        unit="ms", n=len(waited), made=made, resumed=resumed, mean=spent_ns / made / 1e6, cpu_ms=cpu_ns / made / 1e6,
        p50=p50, p95=p95,
    )  # fmt: skip


def streams_per_connection(run: Run, population: Mask) -> SharedConnections | None:
    """How many requests, itself included, the connection of each request in *population* carried when it was sent (HTTP/2).
    *window_waits*: requests of the run whose body waited for the server's flow control window.
    """
    if run.document.target.http_version != "2":
        return None
    sent = (run.rows["t_submit_start"] > 0) & (run.rows["local_port"] > 0)
    rows = run.rows[sent]
    of = np.stack([rows[name].astype(np.int64) for name in ("worker", "url", "local_port")])
    connections, connection = np.unique(of, axis=1, return_inverse=True)
    begin, end = rows["t_submit_start"], np.where(rows["t_end"] > 0, rows["t_end"], np.iinfo(np.int64).max)
    carried = carried_at(connection.reshape(-1), begin, end)
    chosen = np.sort(carried[population[sent]])
    waits = 0
    if run.samples is not None and "window_waits" in (run.samples.dtype.names or ()):
        waits = int(last_of_each(run.samples)["window_waits"].sum())
    p50, p95 = percentile(chosen, 0.5), percentile(chosen, 0.95)
    return SharedConnections(
        unit="requests", n=len(chosen), connections=connections.shape[1], window_waits=waits,
        mean=float(chosen.mean()) if len(chosen) else None, p50=p50, p95=p95, max=int(chosen[-1]) if len(chosen) else None,
    )  # fmt: skip


def carried_at(connection: Numbers, begin: Numbers, end: Numbers) -> Numbers:
    """How many intervals of the same *connection* (a number from 0) contain the *begin* of each, itself included."""
    if not len(begin):
        return np.zeros(0, np.int64)
    first = begin.min()
    span = begin.max() - first + 2  # every later end counts as one
    begins = connection * span + (begin - first)
    ends = connection * span + np.minimum(end - first, span - 1)
    begun = np.searchsorted(np.sort(begins), begins, "right")
    ended = np.searchsorted(np.sort(ends), begins, "right")
    return np.asarray(begun - ended, np.int64)


def last_of_each(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The last row of each worker."""
    order = np.argsort(samples["worker"], kind="stable")
    workers = samples["worker"][order]
    last: npt.NDArray[Any] = samples[order[np.append(workers[1:] != workers[:-1], True)]]
    return last


def ttft_net_adjusted(ttft_ms: float | None, rtt_p50_ms: float | None) -> float | None:
    """TTFT less one round trip, in ms. In addition to TTFT, never instead of it; it may be below 0 and is not clamped."""
    return None if ttft_ms is None or rtt_p50_ms is None else ttft_ms - rtt_p50_ms


def network_metrics(run: Run, population: Mask) -> dict[str, Metric]:
    """`rtt_ms` from the connections that were made for a request, of any phase; where all were open in advance, from the
    connects before and after the run (`method`; IETF 4.7.3). `ttft_net_adjusted` where it is configured, `handshake_ms` with
    TLS, `streams_per_connection` with HTTP/2.
    """
    secured = handshake_ms(run)
    connections: dict[str, Metric] = {} if secured is None else {"handshake_ms": secured}
    shared = streams_per_connection(run, population)
    if shared is not None:
        connections["streams_per_connection"] = shared
    rtt = rtt_ms(between(run.rows, "t_dispatch", "t_connected"), OF_REQUESTS)
    if not rtt.n:
        target = run.document.target
        found = [round(ms * 1e6) for ms in (*target.connect_ms, *target.connect_after_ms)]
        rtt = rtt_ms(np.array(found, np.int64), OUTSIDE_THE_RUN)
    if not run.document.config.output.ttft_net_adjusted:
        return {"rtt_ms": rtt, **connections}
    adjusted = np.full(0, NULL, np.int64)
    if (p50 := known(rtt.p50)) is not None:
        adjusted = ttft(run.rows[population]) - round(p50 * 1e6)
    fields = asdict(distribution(adjusted, "ms")) | {"rtt_p50_ms": rtt.p50}
    return {"rtt_ms": rtt, **connections, "ttft_net_adjusted": NetAdjusted(**fields)}
