"""Checks the types of the parts of run.json once on reading; all other code relies on them.

A part may be missing or null. A wrong type means that the file was changed by hand or written by another program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# `*` is every key of a table, or every item of a list.
TABLES = """
tool files files.* config config.target config.load config.workload config.client config.output config.telemetry
environment environment.engine environment.libraries declarations metadata
phases.* plan plan.description plan.description.load plan.description.load.arrivals plan.description.workload
plan.counting plan.counting.tokenizer plan.warmup target workers.* watch window
metrics metrics.* metrics.*.not_estimable counts counts.output_tokens_source errors.*
slo slo.objectives.* slo.objectives.*.excess slo.classes slo.classes.* slo.smooth_goodput slo.each
fairness fairness.classes fairness.classes.* fairness.classes.*.ttft fairness.classes.*.tpot fairness.jain_index
fairness.jain_norm_latency steadiness server server.* telemetry telemetry.absent telemetry.series.* telemetry.sources.*
certificate certificate.schedule_lag_us certificate.reasons.* certificate.workers.* certificate.socket_to_user_us
certificate.latency_error_bar_us certificate.host certificate.ports
compliance compliance.must compliance.should compliance.counts compliance.unmet.*
classes classes.* classes.*.ttft classes.*.tpot conversations conversations.turns.* users
"""
LISTS = """
phases workers incidents errors command conversations.turns plan.deviations plan.classes target.urls
target.addresses target.notes
target.connect_ms target.connect_after_ms
config.target.urls config.target.headers config.target.source_addresses config.output.goodput
config.output.goodput.* config.output.prefill_deadline config.output.prefill_deadline.*
slo.objectives telemetry.series telemetry.sources certificate.reasons certificate.workers
compliance.deviations compliance.unmet compliance.must.false compliance.must.undeclared compliance.must.unchecked
compliance.should.false compliance.should.undeclared compliance.should.unchecked
"""
TEXTS = """
status run_id metrics.*.unit tool.name tool.version phases.*.name phases.*.bound certificate.verdict
certificate.reasons.*.severity certificate.reasons.*.text errors.*.status errors.*.error declarations.*
"""
NUMBERS = """
config.output.gpus config.output.price_per_hour config.output.reading_speed config.output.decode_deadline
config.output.goodput.*.1 conversations.ended_by_failure conversations.ended_by_leaving conversations.tool_call_replies
plan.description.workload.prefix_len watch.steal_share watch.ports watch.fd_limit
phases.*.ramp_share files.*.bytes files.*.crc32
"""
NEEDED = {
    "phases.*": ("name", "number", "start_ns", "end_ns", "bound", "ramp_share"),
    "workers.*": ("worker", "died"),
    "watch.ceiling": ("events_per_s",),
    "files.*": ("bytes", "crc32"),
    "classes.*": ("ok", "failed", "left", "ttft", "tpot"),
    "classes.*.ttft": ("p50", "p99"),
    "classes.*.tpot": ("p50",),
    "slo.classes.*": ("slo_attainment",),
    "conversations": ("turns_sent", "begun", "ended_by_failure", "ended_by_leaving", "turns"),
    "conversations.turns.*": ("cached_share",),
    "users": ("left_by_plan", "gave_up", "slow_readers"),
}
NEVER_NULL = """
config config.target config.load config.workload config.client config.output config.output.goodput
config.output.goodput.* config.output.goodput.*.0 config.output.goodput.*.1 config.target.urls
config.target.source_addresses declarations phases phases.* phases.*.start_ns phases.*.ramp_share workers workers.*
files.* files.*.bytes files.*.crc32
plan plan.description watch watch.ports watch.fd_limit metrics certificate classes.* classes.*.ttft classes.*.tpot
slo.classes.* conversations.turns conversations.turns.* conversations.ended_by_failure conversations.ended_by_leaving
"""
KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(TABLES.split(), ("a table", dict)),
    **dict.fromkeys(LISTS.split(), ("a list", list)),
    **dict.fromkeys(TEXTS.split(), ("a text", str)),
    "phases.*.start_ns": ("a whole number", int),
    "phases.*.end_ns": ("a whole number", int),
    "phases.*.number": ("a whole number", int),
    **dict.fromkeys(NUMBERS.split(), ("a number", (int, float))),
    "config.output.goodput.*.0": ("a text", str),
    "watch.ceiling": ("a table", dict),
}


def misshapen(document: Mapping[str, Any]) -> str | None:
    """One sentence about the first part that is not what it should be; None when all are."""
    never_null = frozenset(NEVER_NULL.split())
    for path, (kind, types) in KINDS.items():
        for where, value in parts(document, path.split("."), ""):
            if value is None and path in never_null:
                return f"`{where}` is null"
            if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
                return f"`{where}` is not {kind}"
    for path, names in NEEDED.items():
        for where, value in parts(document, path.split("."), ""):
            lacking = [name for name in names if isinstance(value, Mapping) and name not in value]
            if lacking:
                return f"`{where}` has no `{lacking[0]}`"
    return None


def parts(found: object, path: list[str], where: str) -> Iterator[tuple[str, object]]:
    """(name, value) of everything at *path*; nothing where a step is missing."""
    if not path:
        yield where, found
        return
    step, *rest = path
    keys: Iterable[Any]
    if step == "*":
        keys = found.keys() if isinstance(found, Mapping) else range(len(found)) if isinstance(found, list) else ()
    elif isinstance(found, list):
        keys = (int(step),) if step.isdigit() and int(step) < len(found) else ()
    else:
        keys = (step,) if isinstance(found, Mapping) and step in found else ()
    for key in keys:
        yield from parts(found[key], rest, f"{where}.{key}" if where else str(key))  # type: ignore[index]
