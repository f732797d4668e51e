"""What telemetry adds to run.json: each series over the window, the server-only figures, the power of the run.

A gauge is averaged in the window; a counter's increment is taken between the samples nearest to its two ends.
"""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from fastllmload.documents.cluster import Cluster
from fastllmload.documents.fields import Number, known
from fastllmload.documents.metric import Metric, Value
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.telemetry import TelemetryFacts, TelemetrySource
from fastllmload.errors import RunFolderError, coded
from fastllmload.metrics.distribution.summary import number
from fastllmload.metrics.request.tpot import gen_tok_s
from fastllmload.metrics.run.cost import power_w, tok_s_per_w
from fastllmload.metrics.run.window import Window, populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.telemetry.cluster import cluster_of, of_asked_models, warnings
from fastllmload.telemetry.energy import labels_of, node_of
from fastllmload.telemetry.files import INDEX, ROWS
from fastllmload.telemetry.sensors.nvml import throttle_words
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries, load
from fastllmload.telemetry.server_figures import Spans, server_figures
from fastllmload.telemetry.servers import DEVICE
from fastllmload.telemetry.spec import POWER

PER_CORE = re.compile(r"host\.cpu\d+\.busy")  # in telemetry.npy; as one line per core they would drown the rest


def added(run: Run) -> RunDocument:
    """The document of a measured run with `telemetry`, `server`, and the metrics of power."""
    every, window = left_of(run), window_of(run)
    found = of_asked_models(every, asked_models(run.document), window)
    spans = Spans(found, window)
    sent = run.rows["t_dispatch"][run.rows["t_dispatch"] > 0]
    idle_until_ns = int(sent.min()) if run.document.config.telemetry.idle > 0 and len(sent) else None
    cluster = cluster_of(found, spans, window, power_series(found), idle_until_ns)
    return replace(
        run.document,
        telemetry=described(every, window, spans, cluster) if every.sources or every.absent else None,
        server=dict(server_figures(spans, largest_batch(run.document))),
        cluster=cluster,
        metrics={
            **(run.document.metrics or {}),
            **power(run, found, cluster),
            **per_energy(run.document, cluster),
            **speculative(cluster),
        },
    )


def asked_models(document: RunDocument) -> list[str]:
    """The models that requests name."""
    plan = document.plan.description
    named = [plan.model, *(one.name for one in plan.models), *(one.model for one in plan.classes)]
    return [str(name) for name in named if name is not None]


def left_of(run: Run) -> TelemetryRecord:
    try:
        return TelemetryRecord() if run.lost(INDEX, ROWS) else load(run.directory)
    except RunFolderError:
        return TelemetryRecord()


def largest_batch(document: RunDocument) -> tuple[int, str] | None:
    """(requests, whose word) of a server's largest batch: declared as max_batch_size, or by its own page."""
    declared = document.declarations.get("max_batch_size", "")
    if declared.isdecimal() and int(declared) > 0:
        return int(declared), "declared max_batch_size"
    engine = document.environment.engine
    limit = None if engine is None else known(engine.max_batch_size)
    return None if engine is None or limit is None else (int(limit), engine.max_batch_source or "")


def described(
    found: TelemetryRecord, window: Window | None, spans: Spans, cluster: Cluster | None = None
) -> TelemetryFacts:
    cpu = found.first("sampler.cpu_s")
    return TelemetryFacts(
        interval_s=found.interval_s,
        ended=found.ended,
        sources=tuple(
            TelemetrySource(**{name: getattr(source, name) for name in TelemetrySource.__struct_fields__})
            for source in found.sources
        ),
        absent=dict(found.absent),
        cpu_share=None if cpu is None else share_of_a_core(cpu),
        warnings=(*throttling(found, window), *warnings(found, spans, cluster)),
        series=tuple(spans.summary(series) for series in found.series if PER_CORE.fullmatch(series.name) is None),
    )


def share_of_a_core(cpu: TelemetrySeries) -> float | None:
    """What telemetry itself took, from its second sample on: the first holds the start of its process."""
    if len(cpu.value) < 3:
        return None
    seconds = (cpu.t_before[-1] - cpu.t_before[1]) / 1e9
    return float((cpu.value[-1] - cpu.value[1]) / seconds) if seconds > 0 else None


THROTTLED = "gpu.throttled_by_"


def device_name(series: TelemetrySeries) -> str:
    """`gpu0` of NVML; of an exporter the GPU's number and its node."""
    if not series.name.startswith(DEVICE):
        return series.name.partition(".")[0]
    return f"gpu{labels_of(series).get('gpu', '')} of {node_of(series)}"


def throttling(found: TelemetryRecord, window: Window | None) -> list[str]:
    """Sentences about hardware that was slowed down while it was measured."""
    if window is None:
        return []
    warnings = []
    for series in found.series:
        if series.name.endswith(".throttle_reasons"):
            bits = series.value[window.holds(series.t_ns) & ~np.isnan(series.value)].astype(np.int64)
            hot = np.array([bool(throttle_words(int(value))) for value in bits], np.bool_)
            if hot.any():
                words = throttle_words(int(np.bitwise_or.reduce(bits)))
                gpu = device_name(series)
                hot_gpu = f"{gpu} was throttled in {hot.mean():.0%} of its samples: {', '.join(words)}"
                warnings.append(coded("gpu-throttled", hot_gpu))
        elif series.name.startswith(THROTTLED):
            counted = Spans(found, window).counter(series)
            if counted is not None and counted[2] > 0:
                cause = series.name.removeprefix(THROTTLED).replace("_", " ")
                grew = f"{device_name(series)} was throttled by {cause}: {series.source_name} grew in the window"
                warnings.append(coded("gpu-throttled", grew))
        elif series.name == "host.cpu.thermal_throttles":
            inside = series.value[window.holds(series.t_ns) & ~np.isnan(series.value)]
            if len(inside) > 1 and inside[-1] > inside[0]:
                hot_cpu = f"cores of this host were slowed down for heat {inside[-1] - inside[0]:.0f} times"
                warnings.append(coded("cpu-throttled", hot_cpu))
    return warnings


class SourcedMetric(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "source")


def power(run: Run, found: TelemetryRecord, cluster: Cluster | None = None) -> dict[str, Metric]:
    """`power_w` from the first measured dispatch to the last measured end, and `tok_s_per_w` (spec/metrics 6.8).

    Without a sensor it is that of the GPUs or CPUs that exporters report, in the window.
    """
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0)]
    series = power_series(found)
    watts = None
    if series is not None and len(rows):
        start, end = int(rows["t_dispatch"].min()), int(max(rows["t_end"].max(), rows["t_dispatch"].max()))
        watts = power_w(series.t_ns, series.value, start, end)
    source = None if series is None else series.origin
    energy = None if cluster is None else cluster.energy
    if series is None and energy is not None:
        watts, source = known(energy.power_w), energy.source
    rate = None if watts is None else median_rate(run)
    return {
        "power_w": SourcedMetric(unit="W", value=number(watts), source=source),
        "tok_s_per_w": SourcedMetric(unit="tokens/s/W", value=number(tok_s_per_w(rate, watts)), source=source),
    }


class EnergyMetric(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "source", "n")


def per_energy(document: RunDocument, cluster: Cluster | None) -> dict[str, Metric]:
    """Energy in the window for each output token, request and session that ended there; good requests for a joule."""
    energy = None if cluster is None else cluster.energy
    if energy is None:
        return {}
    watts = known(energy.power_w)
    sessions = None if document.sessions is None else document.sessions.completed_per_s
    figures = {
        "energy_j": ("J", known(energy.energy_j)),
        "energy_per_output_token_j": ("J/token", over(watts, document.metric("output_tok_s").value)),
        "energy_per_request_j": ("J/request", over(watts, document.metric("req_s").value)),
        **({} if document.sessions is None else {"energy_per_session_j": ("J/session", over(watts, sessions))}),
        **({"good_requests_per_j": ("requests/J", over(document.request_goodput, watts))} if document.slo else {}),
    }
    return {
        name: EnergyMetric(unit=unit, value=value, source=energy.source, n=energy.n, note=energy.reason)
        for name, (unit, value) in figures.items()
    }


def over(top: Number, bottom: Number) -> float | None:
    above, below = known(top), known(bottom)
    return None if above is None or not below else above / below


def speculative(cluster: Cluster | None) -> dict[str, Metric]:
    found = None if cluster is None else cluster.speculation
    if found is None:
        return {}
    return {
        "acceptance_length": SourcedMetric(unit="tokens", value=known(found.acceptance_length), source=found.source),
        "acceptance_rate": SourcedMetric(unit="share", value=known(found.acceptance_rate), source=found.source),
    }


def power_series(found: TelemetryRecord) -> TelemetrySeries | None:
    """The total of the first sensor in the order of POWER: totals of different sensors overlap and are never added."""
    totals = {series.origin: series for series in found.named("power_w")}
    return next((totals[origin] for origin in POWER if origin in totals), None)


def median_rate(run: Run) -> float | None:
    measured = run.document.metric("gen_tok_s")
    if measured.unit == "tokens/s":
        return known(measured.p50)
    chosen = populations(run, window_of(run)).latency
    rates = gen_tok_s(run.rows[chosen], count_tokens(run).output[chosen])
    rates = rates[~np.isnan(rates)]
    return float(np.median(rates)) if len(rates) else None
