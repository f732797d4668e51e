"""Formats the closing summary of run.json: one screen of 80 by 24, verdict first. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from fastllmload.certificate.per_second import BRACKET_US, CPU_SHARE, LAG_US
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.error_texts import message_of
from fastllmload.report.redaction.document import notice
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.doubts import all_texts, bound, reason_text
from fastllmload.report.text.event_tokens import event_token_lines
from fastllmload.report.text.failing_urls import failing_urls
from fastllmload.report.text.numbers import (
    NOT_KNOWN,
    WITHHELD,
    asked_rate,
    count,
    errors,
    has_too_few_samples,
    number,
    percent,
    quantity,
)
from fastllmload.report.text.numbers import part as part  # re-exported for the reports
from fastllmload.report.text.reasoning import alone_text, headlines, legend, reasoned, token_text
from fastllmload.report.text.traffic import traffic_texts, unstreamed_answers

SCREEN = 23  # lines: the shell's next prompt needs the 24th
LABEL = 11
SIMULATED = "SIMULATED ENGINE: the target was fastllmload's own simulator, not a server"
LATENCIES = ("ttft", "ttft_sched", "ttft_any", "tpot", "tpot_any", "itl", "e2e", "e2e_sched")
WITH_INTERVAL = ("ttft", "ttft_any", "itl", "e2e")  # those whose intervals fit on a line
COLUMNS = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
ERRORS = {
    "ttft": ("ttft",),
    "ttft_any": ("ttft_any",),
    "itl": ("itl", "tbc", "itl_b"),
    "e2e": ("e2e",),
}  # metrics of the error bound of P99, by label
OPTIONAL_ROWS = ("e2e_sched", "stamps")  # rows dropped to make room for the most severe reason
OPTIONAL_REASONING_ROWS = ("ttft_sched", "tpot_any")  # also dropped where reasoning adds rows
COLUMNS_DROPPED_FIRST = ("p95", "p90", "mean", "p999", "max")  # in a narrow terminal
CELL = 9
SAMPLES_NEEDED = {"p99": 1_000, "p999": 10_000}  # IETF 5.1.2.1
SEVERITIES = {"invalid": -2, "suspect": -1}
STYLES = {"valid": "32;1", "suspect": "33;1", "invalid": "31;1", "loud": "7;1", "bad": "31"}

Document = Mapping[str, Any]


@dataclass(frozen=True)
class SummaryLine:
    """A line of text, and the name of its style in STYLES or an empty string."""

    text: str
    style: str = ""

    def render(self, redact: Callable[[str], str], colour: bool) -> str:
        text = one_screen_line(redact(self.text))
        return f"\x1b[{STYLES[self.style]}m{text}\x1b[0m" if colour and self.style != "" else text


def summary_lines(
    document: Document, width: int = 80, folder: str | None = None, screen: int = SCREEN
) -> list[SummaryLine]:
    """At most *screen* lines of at most *width* columns, and further lines for what only some runs have. Any part of
    *document* may be missing; *folder* is the run folder.
    """
    loud = [SummaryLine(SIMULATED, "loud")] if simulated(document) else []
    body = [
        *_target(document),
        *_requests(document, width),
        *_rate(document, width),
        *_latencies(document, width),
        *_throughput(document, width),
        *_client(document, width),
        *_objectives(document, width),
        *_methodology(document, width),
    ]
    for label in (*OPTIONAL_ROWS, *(OPTIONAL_REASONING_ROWS if reasoned(document) else ())):
        if screen - len(body) - 2 * len(loud) - 2 < _most_severe_lines(document, width):
            body = [line for line in body if not line.text.startswith(f"{label} ")]
    room = screen - len(body) - 2 * len(loud) - 2
    if len(_wrapped(part(document, "certificate", "reasons") or (), width)) < room:
        below = next(k for k, line in enumerate(body) if line.text.startswith("throughput"))
        body[below:below] = _intervals(document)
        room = screen - len(body) - 2 * len(loud) - 2
    # Never truncated, so that it can be copied
    where = SummaryLine(_labelled("run", run_folder(document, folder)))
    redaction = notice(document)
    withheld = [SummaryLine(text) for text in wrap(redaction, width)] if redaction is not None else []
    more = [
        *doubt_lines(document, width),
        *(line for text in event_token_lines(document) for line in _multiline("tokens", text, width)),
        *reasoning_lines(document, width),
        *traffic_lines(document),
    ]  # what only some runs have, below the screen that all runs have
    above = [_cut(line, width) for line in (*loud, *_verdict(document, room, width), *body, *more)]
    return [*above, *withheld, where, *(_cut(line, width) for line in loud)]


def doubt_lines(document: Document, width: int) -> list[SummaryLine]:
    """Warnings that the run was not steady or that figures are bounds; empty for most runs."""
    return [
        SummaryLine(line, "bad") for each in all_texts(document) for line in wrap(each, width, subsequent_indent="  ")
    ]


def reasoning_lines(document: Document, width: int) -> list[SummaryLine]:
    """Which figures are of the answer, the number of reasoning tokens, and the answers that were all reasoning."""
    texts = [text for text in (legend(document), token_text(document), alone_text(document)) if text is not None]
    return [line for place, text in enumerate(texts) for line in _multiline("" if place else "reasoning", text, width)]


def _multiline(label: str, text: str, width: int) -> Iterator[SummaryLine]:
    """The label and the text, wrapped over several lines."""
    for place, line in enumerate(wrap(text, width - LABEL)):
        yield SummaryLine(_labelled("" if place else label, line))


def traffic_lines(document: Document) -> list[SummaryLine]:
    return [SummaryLine(text) for text in traffic_texts(document)]


def simulated(document: Document) -> bool:
    """Whether the target was the simulated engine."""
    return part(document, "target", "simulated") is True


def run_folder(document: Document, folder: str | None = None) -> str:
    asked = part(document, "config", "output", "directory") if folder is None else folder
    return asked if isinstance(asked, str) else NOT_KNOWN


def _labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _cut(line: SummaryLine, width: int) -> SummaryLine:
    return line if len(line.text) <= width else SummaryLine(line.text[: width - 3].rstrip() + "...", line.style)


def _verdict(document: Document, room: int, width: int) -> list[SummaryLine]:
    verdict = part(document, "certificate", "verdict")
    style = verdict if verdict in STYLES else ""
    text = verdict.upper() if isinstance(verdict, str) else "NOT JUDGED"
    if any(part(reason, "cause") == "path" for reason in part(document, "certificate", "reasons") or ()):
        text += ", THE PATH DELIVERS TOKENS IN BATCHES"
    if declared_cold(document.get("declarations") or {}):
        text += ", COLD START" + (_cold_start(document) if document.get("status") == "done" else "")
    status = document.get("status")
    if status != "done":
        known = status if isinstance(status, str) else "no status"
        text += f", INCOMPLETE ({known}): what was measured before it ended"
        style = style or "bad"
    reasons = _fitting_reasons(part(document, "certificate", "reasons") or (), room, width)
    competitors = part(document, "certificate", "host", "competitors")
    if isinstance(competitors, list) and competitors and len(reasons) < room and _blames_host(document):
        reasons += wrap(f"also running: {', '.join(map(str, competitors))}", width - LABEL)[: room - len(reasons)]
    return [SummaryLine(_labelled("verdict", text), style), *(SummaryLine(" " * LABEL + reason) for reason in reasons)]


def _blames_host(document: Document) -> bool:
    return any(part(reason, "cause") == "host" for reason in part(document, "certificate", "reasons") or ())


def _fitting_reasons(reasons: Sequence[object], room: int, width: int) -> list[str]:
    """As many complete reasons as fit *room* lines, and the number of the others; the first is truncated if needed."""
    each = [_wrapped([reason], width) for reason in _by_severity(reasons)]
    if sum(map(len, each)) <= room:
        return [line for lines in each for line in lines]
    shown = each[0][: max(0, room - 1)]
    if shown and len(shown) < len(each[0]):
        shown[-1] = shown[-1][: width - LABEL - 4] + " ..."
    n = 1
    while n < len(each) and len(shown) + len(each[n]) < room:
        shown += each[n]
        n += 1
    left = len(each) - n
    more = (
        "(complete text in run.json)"
        if left == 0
        else f"({left} more {'reason' if left == 1 else 'reasons'} in run.json)"
    )
    return [*shown, more][:room]


def _cold_start(document: Document) -> str:
    """The time to the first token of the run."""
    took = number(part(document, "metrics", "cold_start_latency", "value"))
    return "" if took is None else f" (first token after {quantity(took)} ms)"


def _most_severe_lines(document: Document, width: int) -> int:
    """Lines of the most severe reason and of the note on others; 0 where there are only notes."""
    reasons = _by_severity(part(document, "certificate", "reasons") or ())
    severe = [each for each in reasons if part(each, "severity") in SEVERITIES]
    return len(_wrapped(severe[:1], width)) + (len(reasons) > 1) if severe else 0


def _by_severity(reasons: Sequence[object]) -> list[object]:
    return sorted(reasons, key=lambda reason: SEVERITIES.get(part(reason, "severity"), 0))


def _wrapped(reasons: Sequence[object], width: int) -> list[str]:
    """The most severe first; notes are marked."""
    lines: list[str] = []
    for reason in _by_severity(reasons):
        mark = "note: " if part(reason, "severity") == "note" else ""
        lines += wrap(f"{mark}{reason_text(reason)}", width - LABEL, initial_indent="- ", subsequent_indent="  ")
    return lines


def _target(document: Document) -> list[SummaryLine]:
    target = part(document, "target") or {}
    urls = target.get("urls") or part(document, "config", "target", "urls") or ()
    where = "the simulated engine" if simulated(document) else ", ".join(urls) or NOT_KNOWN
    protocols = dict.fromkeys(str(part(one, "endpoint_type")) for one in part(target, "classes") or ())
    protocol = ", ".join(protocols) or target.get("endpoint_type") or NOT_KNOWN
    return [SummaryLine(_labelled("target", f"{where} ({protocol}, model {target.get('model') or NOT_KNOWN})"))]


UNFINISHED = (("in_flight", "cut off"), ("not_sent", "never sent"))  # of a run that was stopped early


def _requests(document: Document, width: int) -> list[SummaryLine]:
    ok, failed = document.get("completed"), document.get("failed")
    sent, lost = number(ok), number(failed)
    share = f" ({quantity(100 * lost / (sent + lost))} %)" if sent is not None and lost else ""
    if failed == WITHHELD:  # the number is not public, but that some failed is reported
        share = f" ({percent(part(document, 'metrics', 'success_rate', 'value'))} of those in the window succeeded)"
    rest = [(name, number(part(document, "counts", key))) for key, name in UNFINISHED]
    parts = [(0, f"{count(ok)} ok, {count(failed)} failed{share}")]
    lines = [_fitted("requests", parts + [(1, f"{count(many)} {name}") for name, many in rest if many], width)]
    wrong = errors(_error_classes(document.get("errors")))
    if wrong != "" or number(failed):
        lines.append(SummaryLine(_labelled("errors", wrong or "see run.json"), "bad"))
    where = failing_urls(document, width - LABEL)
    if where != "":
        lines.append(SummaryLine(_labelled("failed", where), "bad"))
    texts = part(document, "error_texts", "texts")
    if isinstance(texts, list) and texts:
        lines.append(SummaryLine(_labelled("", _quoted(texts[0], width))))
    return lines


def _quoted(error: object, width: int) -> str:
    """One line with the most frequent error message of the server."""
    times = f" ({count(part(error, 'requests'))} x)"
    text, room = message_of(str(part(error, "text"))), max(8, width - LABEL - len(times) - 2)
    return f'"{text if len(text) <= room else text[: room - 3] + "..."}"{times}'


def _error_classes(groups: object) -> dict[str, float]:
    """Failed requests by error class, else status, and by HTTP status."""
    classes: dict[str, float] = {}
    for group in groups if isinstance(groups, list) else ():
        name = part(group, "error") or part(group, "status") or NOT_KNOWN
        code = part(group, "http_status")
        shown = f"{name} {code}:" if code is not None and code != 200 else name
        classes[shown] = classes.get(shown, 0) + (number(part(group, "count")) or 0)
    return classes


def _rate(document: Document, width: int) -> list[SummaryLine]:
    offered = part(document, "certificate", "offered_rate")
    planned = part(document, "certificate", "planned_rate")
    parts = [(0, _asked(document))]
    if number(planned) is not None:
        parts.append((3, f"planned {quantity(planned)}/s"))
    parts.append((2, f"sent {quantity(offered)}/s"))
    parts.append((1, f"completed {quantity(document.get('request_throughput'))}/s"))
    return [_fitted("rate", parts, width)]


def _fitted(label: str, parts: Sequence[tuple[int, str]], width: int) -> SummaryLine:
    """*parts* in their order; in a narrow terminal those with the highest rank are dropped."""
    kept = list(parts)
    while len(kept) > 1 and LABEL + len(", ".join(text for _, text in kept)) > width:
        kept.remove(max(kept, key=lambda each: each[0]))
    return SummaryLine(_labelled(label, ", ".join(text for _, text in kept)))


def _asked(document: Document) -> str:
    """The load of the plan, which is also known where a saved plan was sent."""
    load = part(document, "plan", "description", "load")
    if WITHHELD in (part(load, "concurrency"), part(load, "arrivals", "rate")):
        return f"{'open' if part(load, 'concurrency') is None else 'closed'} loop, load withheld"
    if part(load, "concurrency") is not None:
        return f"closed loop, {count(part(load, 'concurrency'))} in flight"
    rate, name = part(load, "arrivals", "rate"), part(load, "arrivals", "name")
    shown = asked_rate(math.inf if rate == "inf" else rate)
    changes = part(load, "arrivals", "changes")
    if changes is not None:
        shown = f"{changes} (mean {shown})"
    unit = " conversations" if part(document, "plan", "description", "conversations") else ""
    return f"asked {shown} {name if name and rate != 'inf' else ''}".rstrip() + unit


def _latencies(document: Document, width: int) -> list[SummaryLine]:
    columns = list(COLUMNS)
    for column in COLUMNS_DROPPED_FIRST:
        if LABEL + CELL * len(columns) <= width:
            break
        columns.remove(column)
    head = "".join(f"{'p99.9' if name == 'p999' else name:>{CELL}}" for name in columns)
    lines = [SummaryLine(f"{'ms':<{LABEL}}{head}")]
    short = False
    for name in headlines(document, LATENCIES):
        name = gap_name(document, name)
        metric = part(document, "metrics", name)
        cells = [_cell(metric, column) for column in columns]
        short = short or any(cell.endswith("*") for cell in cells)
        lines.append(SummaryLine(f"{name:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells)))
    unstreamed = unstreamed_answers(document)
    if unstreamed == "all":
        text = "not streamed: ttft is the end of the answer; no gaps, so no itl and tpot"
        lines.append(SummaryLine(text if len(text) <= width else "not streamed: no itl, tpot"))
    elif unstreamed:
        text = f"{unstreamed} not streamed: their ttft is their end; not in itl and tpot"
        lines.append(SummaryLine(text if len(text) <= width else "some answers not streamed"))
    if short:
        text = "* fewer samples than needed: P99 1,000, P99.9 10,000"
        lines.append(SummaryLine(text if len(text) <= width else "* too few samples"))
    return lines


def _intervals(document: Document) -> list[SummaryLine]:
    """The 95 % interval of P99 of each latency, or the number of requests that it needs."""
    parts = []
    for name in headlines(document, WITH_INTERVAL):
        name = gap_name(document, name)
        metric = part(document, "metrics", name)
        if bound(metric, "p99") is not None:
            continue
        ends = part(metric, "ci95", "p99")
        needed = number(part(metric, "not_estimable", "p99", "requests_needed"))
        if isinstance(ends, Sequence) and len(ends) == 2:
            parts.append(f"{name} {quantity(number(ends[0]))}-{quantity(number(ends[1]))}")
        elif part(metric, "not_estimable", "p99") is not None:
            parts.append(f"{name} n/a" + ("" if needed is None else f" (needs {count(needed)})"))
    return [SummaryLine(_labelled("p99 95 %", ", ".join(parts)))] if parts else []


def gap_name(document: Document, name: str) -> str:
    """The metric that the run has in place of `itl`: where chunks carry several tokens, the time between chunks `tbc`
    (IETF B.2.1, option A) or `itl_b` (option B). Any other *name* unchanged.
    """
    present = [other for other in ERRORS.get(name, ()) if part(document, "metrics", other, "n")]
    return present[0] if name == "itl" and present else name


def _cell(metric: object, column: str) -> str:
    known = bound(metric, column)
    if known is not None:
        return known if len(known) < CELL else f">={quantity(part(metric, 'unfinished_bounds', column, 'low'))}"
    text = quantity(_milliseconds(metric, column))
    few = has_too_few_samples(metric, column, SAMPLES_NEEDED.get(column, 0))
    return f"{text}*" if few and text != NOT_KNOWN else text


def _methodology(document: Document, width: int) -> list[SummaryLine]:
    """The compliance verdict, where there is one."""
    verdict, must = part(document, "compliance", "verdict"), part(document, "compliance", "must")
    if not isinstance(verdict, str) or not isinstance(must, Mapping):
        return []
    parts = [
        (0, f"{verdict} by the IETF draft"),
        (1, f"{count(must.get('hold'))} of {count(must.get('of'))} MUST hold"),
    ]
    return [_fitted("compliance", parts, width)]


def _milliseconds(metric: object, column: str) -> float | None:
    value = number(part(metric, column))
    scale = {"s": 1e3, "us": 1e-3, "ns": 1e-6}.get(part(metric, "unit") or "ms", 1.0)
    return None if value is None else value * scale


def _throughput(document: Document, width: int) -> list[SummaryLine]:
    parts = [
        (0, f"{quantity(document.get('output_throughput'))} output tok/s"),
        (1, f"{quantity(document.get('total_token_throughput'))} tok/s with input"),
    ]
    return [_fitted("throughput", parts, width)]


def _client(document: Document, width: int) -> list[SummaryLine]:
    certificate = document.get("certificate")
    lag = part(certificate, "schedule_lag_us")
    shown = [
        (rank, f"{label} {quantity(part(lag, key))}")
        for rank, label, key in ((2, "p50", "p50"), (0, "p99", "p99"), (3, "p99.9", "p999"), (1, "max", "max"))
    ]
    source = part(certificate, "timestamp_source") or NOT_KNOWN
    batched = percent(part(certificate, "batched_share"))
    busiest, collections = percent(_highest(certificate, "cpu_share")), count(_total(certificate, "gc_runs"))
    headroom = [(0, _headroom(certificate)), (1, f"busiest worker {busiest} of a core"), (2, f"GC {collections}")]
    bad = bad_seconds(certificate)
    errors = ", ".join(
        f"{gap_name(document, name)} {_error_us(certificate, ERRORS[name])}"
        for name in headlines(document, tuple(ERRORS))
    )
    return [
        _fitted("lag us", shown, width),
        _fitted("headroom", headroom, width),
        *([] if bad is None else [SummaryLine(_labelled("bad s", bad))]),
        _fitted("stamps", [(1, source), (2, f"batched {batched}"), (0, f"P99 known within us: {errors}")], width),
    ]


def bad_seconds(certificate: object) -> str | None:
    """The number of seconds of the window in which the client was bad, and the worst of them; None without any."""
    seconds = part(certificate, "seconds")
    worst = part(seconds, "worst")
    if not isinstance(worst, list) or not worst:
        return None
    first = worst[0]
    shown = [
        ("lag P99 {} ms", number(part(first, "lag_p99_us")), LAG_US, 1e-3),
        ("brackets P99 {} ms", number(part(first, "bracket_p99_us")), BRACKET_US, 1e-3),
        ("CPU {} %", number(part(first, "cpu_share")), CPU_SHARE, 100),
    ]
    each = ", ".join(
        text.format(quantity(value * scale))
        for text, value, limit, scale in shown
        if value is not None and value > limit
    )
    return f"{part(seconds, 'bad')} of {part(seconds, 'n')}, the worst at {part(first, 'at_s')} s: {each}"


def _error_us(certificate: object, metrics: Sequence[str]) -> str:
    """Error bound (us) of P99 of the first of *metrics* that was judged."""
    found = next((p99 for name in metrics if (p99 := part(certificate, "figures", name, "p99")) is not None), None)
    value, share = number(part(found, "value")), number(part(found, "error_share"))
    return quantity(None if value is None or share is None else value * share * 1e3)


def _headroom(certificate: object) -> str:
    headroom = part(certificate, "headroom")
    factor = number(part(headroom, "headroom") if isinstance(headroom, Mapping) else headroom)
    return "n/a (run fastllmload calibrate)" if factor is None else f"{quantity(factor)} x this load"


def _of_workers(certificate: object, name: str) -> list[float]:
    workers = part(certificate, "workers")
    if not isinstance(workers, Sequence):
        return []
    return [value for worker in workers if (value := number(part(worker, name))) is not None]


def _highest(certificate: object, name: str) -> float | None:
    return max(_of_workers(certificate, name), default=None)


def _total(certificate: object, name: str) -> float | None:
    values = _of_workers(certificate, name)
    return sum(values) if values else None


def _objectives(document: Document, width: int) -> list[SummaryLine]:
    asked = part(document, "config", "output", "goodput") or ()
    if not asked:
        return []
    names = ", ".join(_limit(document, name, limit) for name, limit in asked)
    rate, attainment = document.get("request_goodput"), part(document, "slo", "slo_attainment")
    met = (
        f"{quantity(rate)} requests/s"
        if attainment is None
        else f"{percent(attainment)} of requests ({quantity(rate)}/s)"
    )
    text = f"{met} meet {names}"
    return [SummaryLine(_labelled("goodput", text if LABEL + len(text) <= width else met))]


def _limit(document: Document, name: str, limit: object) -> str:
    """`ttft 200 ms`: the limit as set, in the unit of the objective."""
    units = {part(each, "objective"): part(each, "unit") for each in part(document, "slo", "objectives") or ()}
    known, unit = number(limit), units.get(name)
    shown = NOT_KNOWN if known is None else f"{known:,.10g}"
    return f"{name} {shown} {unit}" if unit not in (None, "share") else f"{name} {shown}"
