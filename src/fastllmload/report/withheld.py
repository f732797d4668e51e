"""A document without what should not be public (IETF 7.1): capacity limits, knees and memory thresholds; and without
names of hosts, URLs and paths.

What is left out is `withheld`, which is not the same as `n/a`: it was measured. Latencies at a declared rate stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from fastllmload.records.layout import STATUS_NAMES
from fastllmload.report.figures import WITHHELD

CAPACITY_TESTS = ("throughput", "tradeoff", "capacity", "memory-pressure")
CAPACITY_WORDS = re.compile(
    r"capacity|knee|saturat|peak|optimal|optimum|maximum|sustainable|oversub|preempt|out of memory|in flight|bracket"
    r"|mixed load|throughput(?!.*percent)",
    re.IGNORECASE,
)
LOAD = re.compile(r"\d[\d,.]*(?:e[+-]?\d+)? (?=(?:per second|slots|r/s|requests/s|requests at once)\b)")
LOADS = ("load", "rate", "capacity", "slots")  # numbers under these names in findings and parameters
MEMORY = ("tokens_in_flight",)
SERVER_MEMORY = (
    "kv_usage", "preemptions", "preemption_rate", "preemption_loss", "running", "waiting", "batch_utilization",
)  # fmt: skip
THROUGHPUTS = (
    "req_s", "output_tok_s", "input_tok_s", "input_tok_s_cache_misses", "req_s_makespan", "output_tok_s_makespan",
    "failed_output_tok_s", "tok_per_gpu_s", "tok_s_per_dollar_hour", "tokens_per_dollar", "tok_s_per_w",
    "smooth_goodput_sg_default", "smooth_goodput_sg_fig6",
)  # fmt: skip
FLAT_THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput")
GOODPUTS = ("request_goodput", "token_goodput", "smooth_goodput")
COUNTS = (
    "n", "n_null", "count", "ok", "failed", "met", "missed", "submitted", "released", "planned", "dispatched",
    "latency_population", "submitted_in_window", "events", "completed", "requests", "input_tokens", "output_tokens",
    "total_input_tokens", "total_output_tokens", "explicit_errors", "usage", "tokenizer", "estimate", "checked",
    "exact", "prompts", "in_flight", "requests_needed", "generated", "rate_per_s", "cut_requests", *STATUS_NAMES,
)  # fmt: skip
URL = re.compile(r"\b[a-z][a-z0-9+]*://[^\s\"'<>)\],;]+", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.:/])(?:~|\.{1,2})?/(?:[\w.@+%=-]+/)*[\w.@+%=-]+")
HOOK = re.compile(r"(--hook[ =][\w-]+=)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")  # in a sentence, as repr writes it
EMPTIED = ("headers", "source_addresses", "server_name", "texts")
PATH_KEYS = frozenset(
    ("directory", "save_plan", "plan", "dataset_path", "cacert", "client_cert", "client_key", "unix_socket", "folder")
)


def withheld(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json or procedure.json that may be published. *limit*: its load is the answer of a search."""
    found: dict[str, Any] = without_names(document)
    if "procedure" in found:
        return _procedure(found)
    for name in MEMORY:
        _withhold_metric(found, name)
    server = found.get("server")
    for name in SERVER_MEMORY:
        _withhold(server.get(name) if isinstance(server, dict) else None, ("value",))
    telemetry = found.get("telemetry")
    for series in telemetry.get("series") or () if isinstance(telemetry, dict) else ():
        if series.get("name") in SERVER_MEMORY:
            _withhold(series, [name for name in series if isinstance(series[name], float)])
    if limit:
        _withhold_load(found)
    if limit or tells_capacity(found):
        for name in THROUGHPUTS:
            _withhold_metric(found, name)
        _withhold(found, FLAT_THROUGHPUTS)
        _withhold(found.get("slo"), GOODPUTS)
    return {**found, "withheld": True}


def tells_capacity(document: Mapping[str, Any]) -> bool:
    """Whether the throughput of a run is what the system could do: a closed loop, everything at once, or a cap."""
    asked = (document.get("config") or {}).get("load") or {}
    return asked.get("rate") in (None, "inf", float("inf")) or asked.get("max_concurrency") is not None


def _withhold_load(found: dict[str, Any]) -> None:
    """The load that was asked, and every number of requests or tokens: over the known duration it is that load."""
    _withhold_counts(found)
    _withhold(found.get("certificate"), ("planned_rate", "offered_rate", "peak_events_per_s", "peak_requests_per_s"))
    _withhold((found.get("config") or {}).get("load"), ("rate", "concurrency", "max_concurrency", "num_requests"))
    load = ((found.get("plan") or {}).get("description") or {}).get("load") or {}
    _withhold(load, ("concurrency",))
    _withhold(load.get("arrivals"), ("rate", "changes"))
    _withhold(found, ("command",))
    found.update(telemetry=None, incidents=[])
    for figure in (found.get("server") or {}).values():
        _withhold(figure, ("value",))


def _withhold_counts(found: Any) -> None:
    """Everywhere but under `config`: `timeout` counts requests, but is a number of seconds there."""
    for value in found if isinstance(found, list) else ():
        _withhold_counts(value)
    if isinstance(found, dict):
        for key, value in found.items():
            if key != "config":
                _withhold_counts(value)
        counts = [name for name in COUNTS if isinstance(found.get(name), (int, float)) and found[name]]
        _withhold(found, counts)


def _withhold(found: object, names: Any) -> None:
    for name in names if isinstance(found, dict) else ():
        if isinstance(found, dict) and found.get(name) is not None:
            found[name] = WITHHELD


def _withhold_metric(document: dict[str, Any], name: str) -> None:
    metrics = document.get("metrics")
    metric = metrics.get(name) if isinstance(metrics, dict) else None
    _withhold(metric, ("value", "max"))


def _procedure(found: dict[str, Any]) -> dict[str, Any]:
    """A test of capacity keeps what was done and how; any other test loses the tables and sentences about capacity."""
    limits = found.get("procedure") in CAPACITY_TESTS
    kept = [] if limits else [table for table in found.get("tables") or () if not _tells(table)]
    sentences = [] if limits else [text for text in found.get("sentences") or () if not CAPACITY_WORDS.search(text)]
    names = {name: WITHHELD for name in found.get("findings") or () if limits or CAPACITY_WORDS.search(name)}
    commanded = limits or any(str(word).startswith("--capacity") for word in found.get("command") or ())
    told: dict[str, Any] = _without_loads(
        {**found, "tables": kept, "sentences": sentences, "findings": {**(found.get("findings") or {}), **names}}
    )
    return {
        **told,
        "plots": [],
        "levels": [],
        **({"server_log": {}} if "server_log" in told else {}),
        "warnings": [text for text in told.get("warnings") or () if not CAPACITY_WORDS.search(text)],
        **({"command": WITHHELD} if commanded and found.get("command") else {}),
        "withheld": True,
        **({"compliance": _without_reasons(told["compliance"])} if limits and told.get("compliance") else {}),
    }


def _without_reasons(compliance: Any) -> Any:
    """What has no key word is about loads, orders and counts of levels: of a test of capacity their numbers go."""
    if not isinstance(compliance, dict) or not compliance.get("beside"):
        return compliance
    kept = [
        {**entry, "reason": WITHHELD if any(map(str.isdigit, str(entry.get("reason")))) else entry.get("reason")}
        for entry in compliance["beside"]
    ]
    return {**compliance, "beside": kept}


def _without_loads(value: Any, key: str = "") -> Any:
    """The same values without the loads of levels, as text (`16 slots`) or as numbers: a share of the capacity whose
    load is known tells the capacity.
    """
    if isinstance(value, str):
        return LOAD.sub(f"{WITHHELD} ", value)
    if isinstance(value, Mapping):
        return {LOAD.sub(f"{WITHHELD} ", str(name)): _without_loads(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_loads(inner, key) for inner in value]
    return WITHHELD if key in LOADS and isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _tells(table: Mapping[str, Any]) -> bool:
    words = f"{table.get('id')} {table.get('title')}"
    return bool(CAPACITY_WORDS.search(words)) or str(table.get("id")).endswith("levels")


# -- names ------------------------------------------------------------------------------------------------------------


def without_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, with targets numbered and hosts, URLs and paths taken out of every text."""
    known = dict(_names(document))
    patterns = [(re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), known[name]) for name in _longest_first(known)]

    def clean(text: str) -> str:
        text = HOOK.sub(rf"\1{WITHHELD}", text)
        for pattern, placeholder in patterns:
            text = pattern.sub(placeholder, text)
        return PATH.sub("[path]", URL.sub("[url]", text))

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return known.get(value, "[path]") if key in PATH_KEYS and value else clean(value)
        if isinstance(value, Mapping):
            return {clean(str(name)): walk(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [] if key in EMPTIED else [walk(inner, key) for inner in value]
        return value

    found: dict[str, Any] = walk({**document, **_without_hooks(document)})
    return found


def _without_hooks(document: Mapping[str, Any]) -> dict[str, Any]:
    """Entries in which commands of hooks stand, or what they said: an operator's own scripts and hosts."""
    found: dict[str, Any] = {}
    if isinstance(document.get("command"), (list, tuple)):
        words = [str(word) for word in document["command"]]
        found["command"] = [
            _hook_name(word)
            if before == "--hook"
            else f"--hook={_hook_name(word[7:])}"
            if word[:7] == "--hook="
            else word
            for before, word in zip(["", *words], words, strict=False)
        ]
    if isinstance(document.get("steps"), (list, tuple)):
        found["steps"] = [{**step, "output": WITHHELD if step.get("output") else ""} for step in document["steps"]]
    return found


def _hook_name(word: str) -> str:
    """`restart=withheld` of `restart=COMMAND`."""
    return f"{word.partition('=')[0]}={WITHHELD}"


def _longest_first(known: Mapping[str, str]) -> list[str]:
    return sorted(known, key=lambda name: (-len(name), name))


def _names(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts that name something, and what stands for them."""
    target, asked = _mapping(document.get("target")), _mapping(_mapping(document.get("config")).get("target"))
    manifest = _mapping(document.get("manifest"))
    for urls in (asked.get("urls"), target.get("urls"), manifest.get("urls")):  # in one order; classes' own come last
        for number, url in enumerate(urls or ()):
            yield str(url), f"target-{number}"
            yield from ((part, f"target-{number}") for part in _host_parts(str(url)))
    for number, address in enumerate(target.get("addresses") or ()):
        yield str(address), f"target-{number}"
    host = _mapping(document.get("environment")).get("host")
    if host:
        yield str(host), "client"
    for address in asked.get("source_addresses") or ():
        yield str(address), "client"
    if asked.get("server_name"):
        yield str(asked["server_name"]), "target-0"


def _host_parts(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL; the text as a whole is replaced
        return
    for part in (parts.netloc, parts.hostname):
        if part:
            yield part


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
