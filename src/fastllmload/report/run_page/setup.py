"""Section on the setup: objectives, settings, environment, declarations, and definitions of the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from fastllmload.documents.run import Tool
from fastllmload.documents.write import values
from fastllmload.redact import PLACEHOLDER, secret_header
from fastllmload.report.blocks import Card, Code, Columns, Facts, Folded, Section
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.overview import without_password
from fastllmload.report.text.numbers import some
from fastllmload.report.text.tokens import event_tokens_text, has_tokens, headlines
from fastllmload.settings import RunSettings

DEFINITIONS = {
    "t_submit": "The last byte of the request was handed to the kernel. Latencies without a suffix count from here.",
    "t_sched": "The instant at which the request was due. Latencies with _sched count from here, so that a client or a "
    "target that delays requests cannot hide the wait (coordinated omission).",
    "ttft": "From t_submit to the first content token.",
    "itl": "Gap between two consecutive content tokens, pooled over all requests.",
    "tpot": "(last \N{MINUS SIGN} first content token) / (tokens \N{MINUS SIGN} 1), one value per request.",
    "e2e": "From t_submit to the last content token.",
    "ttft_any": "From t_submit to the first generated token of any kind: reasoning, white space or content; ttft is of the "
    "answer.",
    "tpot_any": "(last content token \N{MINUS SIGN} first token of any kind) / (all output tokens \N{MINUS SIGN} 1). An "
    "answer that is all reasoning ends with its last reasoning token.",
    "window": "Figures describe requests submitted in the window, whenever they ended; the first part of a run with a "
    "duration is excluded.",
    "percentiles": "Exact, type 7, with 95 % intervals; a percentile of too few samples is marked.",
    "success": "Failed requests are counted and never dropped from rates; latencies are those of successful requests.",
}
# In place of `itl`, by the option of the gaps (IETF B.2.1)
GAPS = {
    "tbc": "Gap between two consecutive chunks of content, pooled over all requests (option A): a chunk carries several "
    "tokens.",
    "itl_b": "Gap between two consecutive content tokens, pooled over all requests (option B): tokens of one chunk arrive "
    "with it, with gaps of 0 between them.",
}
ALONE = "From t_submit to the last content token, of an answer that is all reasoning to its last reasoning token."


def section(context: ReportContext) -> Section:
    return Section("Setup", [Columns(list(_settings(context))), Card("Definitions", [_definitions(context)])], "setup")


def _settings(context: ReportContext) -> Iterator[Folded]:
    document = context.document
    target = replace(document.target, urls=())  # shown above
    groups = {
        "Settings": values(public(document.config)),
        "Environment": {**values(document.environment), "tool": _tool(document.tool)},
        "Target": values(target),
        "Declarations": document.declarations,
    }
    for name, found in groups.items():
        rows = list(_flat(found))
        if rows:
            yield Folded(name, [Facts(rows)], unfolded=True)


def _tool(tool: Tool) -> str:
    return f"{tool.name or 'fastllmload'} {tool.version or ''}".strip()


def public(config: RunSettings) -> RunSettings:
    """Settings without secrets: values of secret headers, passwords in URLs."""
    target = config.target
    return replace(
        config,
        target=replace(
            target,
            urls=tuple(without_password(url) for url in target.urls),
            headers=tuple(
                (name, PLACEHOLDER if secret_header(name) else text.strip()) for name, text in target.headers
            ),
        ),
    )


def _flat(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, value) of everything that is set."""
    for key, value in found.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif value is not None and value not in ([], (), ""):
            items = value if isinstance(value, list | tuple) else [value]
            yield name, ", ".join(_word(item)[:300] for item in items[:40])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return f"{value:,.10g}" if isinstance(value, float) else str(value)


def _definitions(context: ReportContext) -> Facts:
    meanings = {}
    for name in headlines(context.document, tuple(DEFINITIONS)):
        shown = context.gap_name if name == "itl" else name
        meanings[shown] = GAPS.get(shown, DEFINITIONS[name])
    if some(context.document.counts.all_reasoning):
        meanings["e2e"] = ALONE
    if not has_tokens(context.document):
        meanings["e2e"] = "From t_submit to the end of the answer."
    source = event_tokens_text(context.document)
    if source is not None:
        meanings["tokens of an event"] = f"Source: {source}."
    return Facts([((Code(name),), text) for name, text in meanings.items()])
