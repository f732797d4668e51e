"""Removes the load from a run whose load is a capacity, and what reveals it: rates, counts of requests and tokens.

A count over the known duration is a rate, and so is a number in flight over a mean latency (Little's law). Integers are
counts unless they are known to be something else; latencies and shares are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.records.layout import STATUS_NAMES
from fastllmload.report.redaction.texts import WITHHELD, texts_without_figures

Document = dict[str, Any]
THROUGHPUTS = (
    "req_s", "output_tok_s", "input_tok_s", "input_tok_s_cache_misses", "req_s_makespan", "output_tok_s_makespan",
    "failed_output_tok_s", "tok_per_gpu_s", "tok_s_per_dollar_hour", "tokens_per_dollar", "tok_s_per_w",
    "smooth_goodput_sg_default", "smooth_goodput_sg_fig6",
)  # fmt: skip
FLAT_THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput")
GOODPUTS = ("request_goodput", "token_goodput", "smooth_goodput")
COUNTS = (
    "n", "n_null", "n_censored", "n_degenerate", "degenerate", "k", "count", "ok", "failed", "met", "missed",
    "submitted", "released", "planned", "dispatched", "latency_population", "submitted_in_window", "events",
    "completed", "requests", "request_count", "samples", "input_tokens", "output_tokens", "total_input_tokens",
    "total_output_tokens", "explicit_errors", "usage", "tokenizer", "estimate", "checked", "exact", "prompts",
    "in_flight", "requests_needed", "generated", "rate_per_s", "cut_requests", "rounds_of_plan", "cut_share", "left",
    "came_whole", "n_unfinished", "unfinished", *STATUS_NAMES,
)  # fmt: skip
COUNTED = ("counts", "classes", "by_target", "errors", "error_texts", "slo", "server", "phases", "fairness")
NO_COUNTS = frozenset(("http_status", "number", "limit", "start_ns", "end_ns", "drained_ns"))
DROPPED = ("telemetry", "conversations", "users", "watch", "steadiness", "files")
CERTIFICATE = (
    "verdict", "generator_limited", "schedule_lag_us", "plan_lead_s", "socket_to_user_us", "timestamp_source",
    "kernel_share", "bounded_share", "coalesced_read_share", "batched_share", "headroom", "latency_error_bar_us",
)  # fmt: skip
LOADS = frozenset(
    ("rate", "rate_curve", "concurrency", "max_concurrency", "num_requests", "slots", "capacity", "changes", "stream",
     "chosen", "load", "requests")
)  # fmt: skip


def without_load(document: Mapping[str, Any]) -> Document:
    """A copy of a run.json without its load."""
    found: Document = texts_without_figures(dict(document))
    withhold_counts(found)
    for name in COUNTED:
        withhold_integers(found.get(name))
    withhold(found, ("command", *FLAT_THROUGHPUTS))
    withhold(found.get("slo"), (*GOODPUTS, "slo_attainment_bounds"))
    metrics = found.get("metrics")
    for name in THROUGHPUTS:
        withhold(metrics.get(name) if isinstance(metrics, dict) else None, ("value", "max"))
    for figure in (metrics or {}).values() if isinstance(metrics, dict) else ():
        if isinstance(figure, dict) and figure.get("unit") == "share" and "value" in figure:
            figure["value"] = coarse(figure["value"])
        if isinstance(figure, dict) and figure.get("unit") == "requests" and figure.get("value"):
            figure["value"] = WITHHELD
    for name in ("classes", "by_target"):
        _withhold_rates(found.get(name))
    for figure in (found.get("server") or {}).values():
        withhold(figure, ("value",))
    for name, value in (("config", found.get("config")), ("plan", found.get("plan"))):
        found[name] = without_loads(value)
    if isinstance(found["plan"], dict) and isinstance(found["plan"].get("warmup"), dict):
        found["plan"]["warmup"] = {
            name: value for name, value in found["plan"]["warmup"].items() if name in ("deviation", "deviations")
        }
    found["certificate"] = _certificate(found.get("certificate"))
    return {**found, **{name: None for name in DROPPED if name in found}, "incidents": [], "workers": []}


def _certificate(found: Any) -> Any:
    """The quality of the measurement, without the counts."""
    if not isinstance(found, dict):
        return found
    rates = {name: WITHHELD for name in ("planned_rate", "offered_rate") if found.get(name) is not None}
    workers = [{"cpu_share": each.get("cpu_share")} for each in found.get("workers") or () if isinstance(each, dict)]
    reasons = [
        {name: each[name] for name in ("severity", "code", "cause", "text") if name in each}
        if isinstance(each, dict)
        else each
        for each in found.get("reasons") or ()
    ]
    kept = {name: found[name] for name in CERTIFICATE if name in found}
    return {**kept, **rates, "workers": workers, "reasons": reasons}


def withhold(found: object, names: Any) -> None:
    """Withhold the values of *names* that are known, in place."""
    for name in names if isinstance(found, dict) else ():
        if isinstance(found, dict) and found.get(name) is not None:
            found[name] = WITHHELD


def withhold_counts(found: Any) -> None:
    """Withhold all COUNTS, except under `config`, where `timeout` is in seconds."""
    for value in found if isinstance(found, list) else ():
        withhold_counts(value)
    if isinstance(found, dict):
        for key, value in found.items():
            if key != "config":
                withhold_counts(value)
        withhold(found, [name for name in COUNTS if isinstance(found.get(name), (int, float)) and found[name]])


def withhold_integers(found: Any) -> None:
    """Withhold integers other than 0, except under NO_COUNTS; in place."""
    for value in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        withhold_integers(value)
    if isinstance(found, dict):
        withhold(found, [name for name, value in found.items() if name not in NO_COUNTS and _is_count(value)])


def coarse(value: Any) -> Any:
    """A share to three decimals, as all of its digits would reveal its denominator, a count."""
    return round(value, 3) if isinstance(value, float) else value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value != 0


def _withhold_rates(found: Any) -> None:
    for each in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        withhold(each, (*THROUGHPUTS, *FLAT_THROUGHPUTS, *GOODPUTS))


def without_loads(value: Any, key: str = "") -> Any:
    """*value* without the values of LOADS keys; the kind of load is kept."""
    if isinstance(value, Mapping):
        return {str(name): without_loads(inner, str(name)) for name, inner in value.items()}
    if key in LOADS and value not in (None, 0, "") and not isinstance(value, bool) and not _nested(value):
        return WITHHELD
    return [without_loads(inner, key) for inner in value] if isinstance(value, (list, tuple)) else value


def _nested(value: object) -> bool:
    """Whether a list contains tables or lists, whose entries are then checked one by one."""
    return isinstance(value, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in value)
