"""AIPerf's `profile_export_aiperf.json`, and `profile_export.jsonl`, which has a line per request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastllmload.compare.foreign.result import (
    FROM,
    RATES_WITHOUT,
    WITH_DRAIN,
    ForeignRequests,
    ForeignResult,
    is_number,
    known_only,
    load_text,
    rate,
    summary,
    whole_number,
)
from fastllmload.documents.metric import Metric
from fastllmload.errors import RunFolderError

TOOL = "AIPerf"
SUMMARY, RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
MAJOR = "1"  # of schema_version; the first versions, and GenAI-Perf, do not write one
NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
STATISTICS = {
    "avg": "mean",
    "std": "std",
    "min": "min",
    "max": "max",
    **{f"p{q}": f"p{q}" for q in (50, 75, 90, 95, 99)},
}
OURS = {
    "ttft_any": "time_to_first_token",
    "ttft": "time_to_first_output_token",
    "tpot_any": "inter_token_latency",
    "tbc": "inter_chunk_latency",
    "e2e": "request_latency",
}
THEIRS = {
    "ttft_any": f"time_to_first_token: {FROM}",
    "ttft": f"time_to_first_output_token: {FROM}",
    "tpot_any": "inter_token_latency: the mean of each request, until its last response, also one without a token",
    "tbc": "inter_chunk_latency: gaps between chunks, however many tokens they have",
    "itl": "inter_chunk_latency: gaps between chunks, of which nearly all have one token here",
    "e2e": f"request_latency: until the last response, also one without a token, and {FROM}",
    "req_s_makespan": f"request_throughput: {WITH_DRAIN}",
    "output_tok_s_makespan": f"output_token_throughput: {WITH_DRAIN}",
}
WITHOUT = {
    "tpot": "its inter_token_latency counts all tokens, reasoning included: compare tpot_any",
    "ttft": "its time_to_first_token ends at any token, reasoning included: compare ttft_any",
    **RATES_WITHOUT,
}


def is_aiperf(found: Mapping[str, Any]) -> bool:
    latency = found.get("request_latency")
    return isinstance(latency, Mapping) and "unit" in latency and "request_throughput" in found


def is_record(found: Mapping[str, Any]) -> bool:
    return isinstance(found.get("metrics"), Mapping) and "request_start_ns" in (found.get("metadata") or {})


def read_aiperf(found: Mapping[str, Any], records: Sequence[Mapping[str, Any]] | None, place: str) -> ForeignResult:
    """*records*: the lines of RECORDS in the same folder; those of another run are not used."""
    stated = found.get("schema_version")
    if stated is not None and str(stated).partition(".")[0] != MAJOR:
        raise RunFolderError(
            "schema-version", f"{place} has schema_version {stated!r} of AIPerf; this version reads {MAJOR}.x"
        )
    completed = whole_number(value_of(found, "request_count"))
    requests = None if records is None else requests_of(records, place)
    notes: tuple[str, ...] = ()
    if requests is not None and int(requests.ok.sum()) != completed:
        many = f"{int(requests.ok.sum()):,} of {completed or 0:,} successful requests"
        requests, notes = (
            None,
            (f"{RECORDS} in the folder of {place} has {many}, so it is of another run and was not used",),
        )
    loadgen = (found.get("input_config") or {}).get("loadgen")
    names = ((found.get("input_config") or {}).get("endpoint") or {}).get("model_names") or [None]
    return ForeignResult(
        tool=TOOL,
        theirs=THEIRS,
        without=WITHOUT,
        advice=f"keep {RECORDS} in its folder (--export-level records)",
        version=found.get("aiperf_version"),
        model=names[0],
        completed=completed,
        failed=whole_number(value_of(found, "error_request_count")) or 0,
        input_tokens=whole_number(value_of(found, "total_isl")),
        output_tokens=whole_number(value_of(found, "total_osl")),
        seconds=value_of(found, "benchmark_duration"),
        load=load_text(loadgen.get("request_rate"), loadgen.get("concurrency")) if loadgen else None,
        metrics=summaries(found),
        requests=requests,
        notes=notes,
    )


def read_records(records: Sequence[Mapping[str, Any]], place: str) -> ForeignResult:
    """RECORDS alone: rates from the times of its requests."""
    requests = requests_of(records, place)
    times = [each["metadata"] for each in records if measured(each)]
    good = [each for each in records if measured(each) and not each.get("error")]
    seconds = (max(each["request_end_ns"] for each in times) - min(each["request_start_ns"] for each in times)) / 1e9
    tokens = [
        sum(int(value_of(each["metrics"], f"{side}_sequence_length") or 0) for each in good)
        for side in ("input", "output")
    ]
    return ForeignResult(
        tool=TOOL,
        theirs=THEIRS,
        without=WITHOUT,
        advice="",
        completed=len(good),
        failed=len(times) - len(good),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        seconds=seconds,
        metrics=known_only(
            {
                "req_s_makespan": rate(len(good) / seconds, "requests/s") if seconds > 0 else None,
                "output_tok_s_makespan": rate(tokens[1] / seconds, "tokens/s") if seconds > 0 else None,
            }
        ),
        requests=requests,
    )


def summaries(found: Mapping[str, Any]) -> dict[str, Metric]:
    metrics: dict[str, Metric | None] = {}
    for ours, theirs in OURS.items():
        block = found.get(theirs) or {}
        unit = NS.get(block.get("unit", ""))
        metrics[ours] = None if unit is None else summary(block, STATISTICS, unit / NS["ms"])
    metrics["req_s_makespan"] = rate(value_of(found, "request_throughput"), "requests/s")
    metrics["output_tok_s_makespan"] = rate(value_of(found, "output_token_throughput"), "tokens/s")
    return known_only(metrics)


def value_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """The only value of a metric: `avg` in the summary, `value` in a record."""
    block = metrics.get(name)
    found = block.get("avg", block.get("value")) if isinstance(block, Mapping) else None
    return float(found) if is_number(found) else None


def ns(metrics: Mapping[str, Any], name: str) -> float:
    """A duration of a record; NaN where it has none."""
    block = metrics.get(name)
    if not isinstance(block, Mapping) or not is_number(block.get("value")):
        return float("nan")
    return float(block["value"]) * NS[str(block["unit"])]


def measured(record: Mapping[str, Any]) -> bool:
    return bool(record["metadata"].get("benchmark_phase", "profiling") == "profiling")


def requests_of(records: Sequence[Mapping[str, Any]], place: str) -> ForeignRequests:
    sent = sorted(filter(measured, records), key=lambda record: int(record["metadata"]["request_start_ns"]))
    if not sent:
        raise RunFolderError("result-file-invalid", f"{place} has no request of the phase profiling")
    good = [record["metrics"] for record in sent if not record.get("error")]
    named = {ours: np.array([ns(each, theirs) for each in good]) for ours, theirs in OURS.items() if ours != "tbc"}
    tokens = np.array([int(value_of(each, "output_sequence_length") or 0) for each in good], np.int64)
    several = tokens > 1
    named["tpot_any"] = np.where(several, (named["e2e"] - named["ttft_any"]) / np.where(several, tokens - 1, 1), np.nan)
    blocks = [each.get("inter_chunk_latency") or {} for each in good]
    each_gaps = [
        np.asarray(block.get("value", []), np.float64) * NS.get(block.get("unit", ""), 1.0) for block in blocks
    ]
    found = {ours: values for ours, values in named.items() if not np.isnan(values).all()}
    ok = np.array([not record.get("error") for record in sent], np.bool_)
    if not any(len(each) for each in each_gaps):
        return ForeignRequests(ok, found, tokens)
    first = np.concatenate([[0], np.cumsum([len(each) for each in each_gaps])]).astype(np.int64)
    return ForeignRequests(ok, found, tokens, np.concatenate(each_gaps), first)
