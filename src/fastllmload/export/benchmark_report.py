"""Benchmark report 0.2 of llm-d-benchmark: the places that its schema has, from run.json and rows of a run.

What has no place there (intervals, certificate, objectives, classes ...) is in `scenario.load.native.config`. The first
token is of any kind, reasoning included, as in the reports that llm-d-benchmark makes of other tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from fastllmload.arrays import Values
from fastllmload.documents.fields import Number, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.telemetry import TelemetryEntry
from fastllmload.documents.write import printable_json, values
from fastllmload.errors import RunFolderError
from fastllmload.metrics.distribution.summary import distribution, without_nulls
from fastllmload.metrics.request.latencies import by_request, in_time
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import Run

VERSION = "0.2"
NAMES = {"mean": "mean", "stddev": "std", "min": "min", "p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95",
         "p99": "p99", "p99p9": "p999", "max": "max"}  # fmt: skip
LOW = {"p0p1": 0.1, "p1": 1.0, "p5": 5.0, "p10": 10.0, "p25": 25.0}  # percentiles that run.json does not have
LATENCIES = {  # theirs: ours, and the unit
    "time_to_first_token": ("ttft_any", "ms"),
    "normalized_time_per_output_token": ("norm_latency", "ms/token"),
    "time_per_output_token": ("tpot_any", "ms/token"),
    "request_latency": ("e2e", "ms"),
}
TOKEN_GAPS = ("itl", "itl_b")  # gaps between chunks have no place: they are not per token
RATES = {
    "input_token_rate": ("input_tok_s", "tokens/s"),
    "output_token_rate": ("output_tok_s", "tokens/s"),
    "request_rate": ("req_s", "queries/s"),
}
DEFINITIONS = {
    "time_to_first_token": "ttft_any: last byte sent to the first token of any kind, reasoning included",
    "time_per_output_token": "tpot_any: (last token - first token of any kind) / (output tokens - 1), by request",
    "normalized_time_per_output_token": "norm_latency: request_latency / output tokens, by request",
    "inter_token_latency": "itl: each gap between tokens; left out where only gaps between chunks (tbc) are known",
    "request_latency": "e2e: last byte sent to the last content token",
    "rates": "of the measured window, without the drain",
}
NATIVE = ("declarations", "metadata", "plan", "window", "metrics", "counts", "errors", "slo", "fairness", "classes",
          "conversations", "sessions", "users", "steadiness", "server", "certificate", "incidents")  # fmt: skip
SERIES = {  # ours: theirs, and the unit
    "kv_usage": ("kv_cache_usage", "percent"),
    "running": ("running_requests", "count"),
    "waiting": ("waiting_requests", "count"),
    "power_w": ("power_consumption", "Watts"),
}
UTILISATION = re.compile(r"gpu\d+\.utilisation")
CACHE = ("prefix_cache_hits", "prefix_cache_queries")
SERVER = "server"


def benchmark_report(run: Run) -> dict[str, Any]:
    """RunFolderError for a run without figures."""
    document = run.document
    if not document.metrics:
        raise RunFolderError("run-not-begun", f"{run.directory} has no figures: did the measurement begin?")
    return without_none(
        {
            "version": VERSION,
            "run": {"uid": document.run_id or document.plan.digest or "unknown", "time": _time(document)},
            "scenario": {"load": _load(run)},
            "results": {
                "request_performance": {"aggregate": _aggregate(run)},
                "session_performance": _sessions(document),
                "observability": _observability(document),
            },
        }
    )


def encode(report: Mapping[str, Any]) -> bytes:
    """JSON, which is YAML too."""
    return printable_json(msgspec.json.format(msgspec.json.encode(report), indent=2).decode()).encode() + b"\n"


def without_none(found: dict[str, Any]) -> dict[str, Any]:
    """*found* without keys that have no value, and without tables that become empty by that."""
    kept = {name: without_none(each) if isinstance(each, dict) else each for name, each in found.items()}
    return {name: each for name, each in kept.items() if each is not None and each != {}}


def _time(document: RunDocument) -> dict[str, Any] | None:
    """Of the measured phase, until nothing was in flight."""
    phase = next((each for each in document.phases if each.name == "measure"), None)
    if phase is None or phase.start_utc is None:
        return None
    end = known(phase.drained_ns) or known(phase.end_ns)
    if end is None:
        return {"start": phase.start_utc}
    seconds = (end - phase.start_ns) / 1e9
    ended = datetime.fromisoformat(phase.start_utc) + timedelta(seconds=seconds)
    text = ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"start": phase.start_utc, "end": text, "duration": f"PT{seconds:.6f}S"}


# -- the load ----------------------------------------------------------------------------------------------------------


def _load(run: Run) -> dict[str, Any]:
    document, config = run.document, run.document.config
    load, described = document.plan.description.load, document.plan.description.workload
    rate = None if load.arrivals is None else load.arrivals.rate
    tokens, ok = count_tokens(run), (run.rows["phase"] == MEASURE) & (run.rows["status"] == OK)
    workload = described.name or ""
    mixed = sum(document.plan.description.closed_classes.values())
    many = known(load.concurrency) or config.load.max_concurrency or mixed
    prefix = known(described.prefix_len)
    return {
        "metadata": {"cfg_id": document.plan.digest},
        "standardized": {
            "tool": document.tool.name,
            "tool_version": document.tool.version,
            "parallelism": max(1, len(document.workers)),
            "source": "random" if workload.startswith("synthetic") else "sampled" if workload else "unknown",
            "stage": 0,
            "input_seq_len": length(described.isl, tokens.input[ok]),
            "output_seq_len": length(described.osl, tokens.output[ok]) if config.workload.ignore_eos else None,
            "prefix": None
            if not prefix
            else {
                "prefix_len": {"distribution": "fixed", "value": int(prefix)},
                "num_groups": 1,
                "num_users_per_group": 1,
                "num_prefixes": max(1, int(known(described.num_prefixes) or 1)),
            },
            "multi_turn": {"enabled": True} if document.conversations or document.sessions else None,
            "rate_qps": rate if isinstance(rate, int | float) and 0 < rate < float("inf") else None,
            "concurrency": int(many) if many else None,
        },
        "native": {
            "config": {
                "definitions": DEFINITIONS,
                "settings": values(config),
                **{name: values(getattr(document, name)) for name in NATIVE},
            }
        },
    }


def length(text: str | None, found: Values) -> dict[str, Any]:
    """A distribution of lengths as planned (`256`, `uniform:a,b`, `normal:mean,std`); else as the requests had it."""
    kind, _, rest = (text or "").partition(":")
    numbers = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", rest or kind)]
    if kind.isdigit():
        return {"distribution": "fixed", "value": int(kind)}
    if kind == "uniform" and len(numbers) == 2:
        low, high = map(int, numbers)
        return {"distribution": "uniform", "value": (low + high) / 2, "min": low, "max": high}
    if kind == "normal" and len(numbers) == 2:
        return {"distribution": "gaussian", "value": numbers[0], "std_dev": numbers[1]}
    sizes = found[found >= 0]
    if not len(sizes):
        return {"distribution": "other", "value": 0}
    return {
        "distribution": "other", "value": float(sizes.mean()), "std_dev": float(sizes.std()), "min": int(sizes.min()),
        "max": max(1, int(sizes.max())),
    }  # fmt: skip


# -- results -----------------------------------------------------------------------------------------------------------


def statistics(metric: Metric | None, unit: str, sample: Values | None = None) -> dict[str, Any] | None:
    """None without a mean, which a report must have. *sample*: the values in ns, for low percentiles."""
    if metric is None or known(metric.mean) is None:
        return None
    found = {theirs: known(metric.statistic(ours)) for theirs, ours in NAMES.items()}
    if sample is not None and len(sample):
        found |= {name: float(np.percentile(sample, q)) / 1e6 for name, q in LOW.items()}
    return {"units": unit, **found}


def whole_number(value: Number) -> int | None:
    found = known(value)
    return None if found is None else round(found)


def single(value: float | None, unit: str) -> dict[str, Any] | None:
    return None if value is None else {"units": unit, "mean": value}


def of_values(found: Values, unit: str) -> dict[str, Any] | None:
    if not len(found):
        return None
    low = {name: float(np.percentile(found, q)) for name, q in LOW.items()}
    return {**(statistics(distribution(found.astype(np.float64), ""), unit) or {}), **low}


def _aggregate(run: Run) -> dict[str, Any]:
    metrics, counts = run.document.metrics or {}, run.document.counts
    tokens = count_tokens(run)
    chosen = populations(run, window_of(run))
    rows = in_time(run.rows, chosen.latency)
    samples = {name: without_nulls(each) for name, each in by_request(run, tokens, rows).items()}
    ok = chosen.measured & (run.rows["status"] == OK)
    gaps = next((name for name in TOKEN_GAPS if (metrics.get(name) or Metric()).n), None)
    rates = {theirs: _value(metrics.get(ours)) for theirs, (ours, _) in RATES.items()}
    taken, made = rates["input_token_rate"], rates["output_token_rate"]
    left = [whole_number(counts.left), whole_number(counts.in_flight)]
    found: dict[str, Any] = {
        "requests": {
            "total": whole_number(counts.dispatched),
            "failures": whole_number(counts.failed),
            "incomplete": sum(filter(None, left)),
            "input_length": of_values(tokens.input[ok & (tokens.input >= 0)], "count"),
            "output_length": of_values(tokens.output[ok & (tokens.output >= 0)], "count"),
        },
        "latency": {
            **{
                theirs: statistics(metrics.get(ours), unit, samples.get(ours))
                for theirs, (ours, unit) in LATENCIES.items()
            },
            "inter_token_latency": None if gaps is None else statistics(metrics.get(gaps), "ms/token"),
        },
        "throughput": {
            **{theirs: single(rates[theirs], unit) for theirs, (_, unit) in RATES.items()},
            "total_token_rate": None if taken is None or made is None else single(taken + made, "tokens/s"),
        },
    }
    return found


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else known(metric.value)


def _sessions(document: RunDocument) -> dict[str, Any] | None:
    found = document.sessions
    if found is None:
        return None
    planned, sent, cancelled = (
        whole_number(each) for each in (found.calls_planned, found.calls_sent, found.calls_cancelled)
    )
    return {
        "sessions": {
            "total": whole_number(found.begun),
            "succeeded": whole_number(found.completed),
            "failed": whole_number(found.failed),
            "total_events": planned,
            "total_events_completed": None if sent is None else sent - (whole_number(found.calls_failed) or 0),
            "total_events_cancelled": cancelled,
            "session_rate": single(known(found.completed_per_s), "queries/s"),
            "session_duration": statistics(found.makespan, "ms"),
            "events_per_session": statistics(found.calls, "count"),
        }
    }


def _observability(document: RunDocument) -> dict[str, Any] | None:
    """What the server and its GPUs reported: a component for each address that was read, and for each GPU of an exporter."""
    found: dict[str, dict[str, TelemetryEntry]] = {}
    for series in () if document.telemetry is None else document.telemetry.series:
        found.setdefault(str(series.origin), {})[str(series.name)] = series
    components = [
        {"component_label": SERVER, "replica_id": origin, "aggregate": aggregate}
        for origin, by_name in found.items()
        if (aggregate := _resources(by_name))
    ]
    for gpu in () if document.cluster is None else document.cluster.gpus:
        busy, power = known(gpu.utilisation), known(gpu.power_w)
        resources = {
            "gpu_utilization": single(None if busy is None else 100 * busy, "percent"),
            "power_consumption": single(power, "Watts"),
        }
        if aggregate := without_none(resources):
            name = f"{gpu.node or 'node'} GPU {gpu.gpu or gpu.uuid}"
            components.append({"component_label": SERVER, "replica_id": name, "aggregate": aggregate})
    return {"components": components} if components else None


def _resources(found: Mapping[str, TelemetryEntry]) -> dict[str, Any]:
    resources = {theirs: gauge(found[ours], unit) for ours, (theirs, unit) in SERIES.items() if ours in found}
    busy = [
        share for name, each in found.items() if UTILISATION.fullmatch(name) and (share := known(each.mean)) is not None
    ]
    hits, asked = (known(found[name].delta) if name in found else None for name in CACHE)
    return without_none(
        {
            **resources,
            "gpu_utilization": single(100 * sum(busy) / len(busy), "percent") if busy else None,
            "cache_hit_rate": single(100 * hits / asked, "percent") if hits is not None and asked else None,
        }
    )


def gauge(series: TelemetryEntry, unit: str) -> dict[str, Any] | None:
    """Shares become percent."""
    scale = 100.0 if unit == "percent" else 1.0
    mean, low, high = (known(each) for each in (series.mean, series.min, series.max))
    if mean is None:
        return None
    return {
        "units": unit,
        "mean": mean * scale,
        **{name: each * scale for name, each in (("min", low), ("max", high)) if each is not None},
    }
