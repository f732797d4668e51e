"""Formats the closing summary of run.json: one screen of 80 by 24, verdict first. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from fastllmload.certificate.per_second import BRACKET_US, CPU_SHARE, LAG_US
from fastllmload.documents.certificate import Certificate, Reason, ScheduleLag, StatisticBounds
from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.metric import Bounds, Metric
from fastllmload.documents.plan import ArrivalProcess
from fastllmload.documents.run import ErrorCount, ErrorText, RunDocument
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.error_texts import message_of
from fastllmload.report.terminal.outlet import one_screen_line
from fastllmload.report.text.doubts import all_texts, bound, reason_text
from fastllmload.report.text.event_tokens import event_token_lines
from fastllmload.report.text.failing_urls import failing_urls
from fastllmload.report.text.numbers import (
    NOT_KNOWN,
    asked_rate,
    count,
    errors,
    has_too_few_samples,
    milliseconds,
    percent,
    quantity,
    redaction_notice,
)
from fastllmload.report.text.reasoning import alone_text, headlines, legend, reasoned, token_text
from fastllmload.report.text.traffic import total, traffic_texts, unstreamed_answers

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


@dataclass(frozen=True)
class SummaryLine:
    """A line of text, and the name of its style in STYLES or an empty string."""

    text: str
    style: str = ""

    def render(self, redact: Callable[[str], str], colour: bool) -> str:
        text = one_screen_line(redact(self.text))
        return f"\x1b[{STYLES[self.style]}m{text}\x1b[0m" if colour and self.style != "" else text


def summary_lines(
    document: RunDocument, width: int = 80, folder: str | None = None, screen: int = SCREEN
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
    if len(_wrapped(reasons_of(document), width)) < room:
        below = next(k for k, line in enumerate(body) if line.text.startswith("throughput"))
        body[below:below] = _intervals(document)
        room = screen - len(body) - 2 * len(loud) - 2
    # Never truncated, so that it can be copied
    where = SummaryLine(_labelled("run", run_folder(document, folder)))
    redaction = redaction_notice(document.withheld)
    withheld = [SummaryLine(text) for text in wrap(redaction, width)] if redaction is not None else []
    more = [
        *doubt_lines(document, width),
        *(line for text in event_token_lines(document) for line in _multiline("tokens", text, width)),
        *reasoning_lines(document, width),
        *traffic_lines(document),
    ]  # what only some runs have, below the screen that all runs have
    above = [_cut(line, width) for line in (*loud, *_verdict(document, room, width), *body, *more)]
    return [*above, *withheld, where, *(_cut(line, width) for line in loud)]


def doubt_lines(document: RunDocument, width: int) -> list[SummaryLine]:
    """Warnings that the run was not steady or that figures are bounds; empty for most runs."""
    return [
        SummaryLine(line, "bad") for each in all_texts(document) for line in wrap(each, width, subsequent_indent="  ")
    ]


def reasoning_lines(document: RunDocument, width: int) -> list[SummaryLine]:
    """Which figures are of the answer, the number of reasoning tokens, and the answers that were all reasoning."""
    texts = [text for text in (legend(document), token_text(document), alone_text(document)) if text is not None]
    return [line for place, text in enumerate(texts) for line in _multiline("" if place else "reasoning", text, width)]


def _multiline(label: str, text: str, width: int) -> Iterator[SummaryLine]:
    """The label and the text, wrapped over several lines."""
    for place, line in enumerate(wrap(text, width - LABEL)):
        yield SummaryLine(_labelled("" if place else label, line))


def traffic_lines(document: RunDocument) -> list[SummaryLine]:
    return [SummaryLine(text) for text in traffic_texts(document)]


def simulated(document: RunDocument) -> bool:
    """Whether the target was the simulated engine."""
    return document.target.simulated is True


def run_folder(document: RunDocument, folder: str | None = None) -> str:
    asked = document.config.output.directory if folder is None else folder
    return NOT_KNOWN if asked is None else asked


def reasons_of(document: RunDocument) -> tuple[Reason, ...]:
    """Of the certificate, the most severe first."""
    found = () if document.certificate is None else document.certificate.reasons
    return tuple(sorted(found, key=lambda reason: SEVERITIES.get(reason.severity, 0)))


def _labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _cut(line: SummaryLine, width: int) -> SummaryLine:
    return line if len(line.text) <= width else SummaryLine(line.text[: width - 3].rstrip() + "...", line.style)


def _verdict(document: RunDocument, room: int, width: int) -> list[SummaryLine]:
    certificate, status = document.certificate or Certificate(), document.status
    style = certificate.verdict if certificate.verdict in STYLES else ""
    text = (certificate.verdict or "not judged").upper()
    if any(reason.cause == "path" for reason in certificate.reasons):
        text += ", THE PATH DELIVERS TOKENS IN BATCHES"
    if declared_cold(document.declarations):
        text += ", COLD START" + (_cold_start(document) if status == "done" else "")
    if status != "done":
        text += f", INCOMPLETE ({status or 'no status'}): what was measured before it ended"
        style = style or "bad"
    reasons = _fitting_reasons(reasons_of(document), room, width)
    competitors, of_host = certificate.host.competitors, any(reason.cause == "host" for reason in certificate.reasons)
    if competitors and of_host and len(reasons) < room:
        reasons += wrap(f"also running: {', '.join(competitors)}", width - LABEL)[: room - len(reasons)]
    return [SummaryLine(_labelled("verdict", text), style), *(SummaryLine(" " * LABEL + reason) for reason in reasons)]


def _fitting_reasons(reasons: Sequence[Reason], room: int, width: int) -> list[str]:
    """As many complete reasons as fit *room* lines, and the number of the others; the first is truncated if needed."""
    each = [_wrapped([reason], width) for reason in reasons]
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


def _cold_start(document: RunDocument) -> str:
    """The time to the first token of the run."""
    took = document.metric("cold_start_latency").value
    return "" if known(took) is None else f" (first token after {quantity(took)} ms)"


def _most_severe_lines(document: RunDocument, width: int) -> int:
    """Lines of the most severe reason and of the note on others; 0 where there are only notes."""
    reasons = reasons_of(document)
    severe = [reason for reason in reasons if reason.severity in SEVERITIES]
    return len(_wrapped(severe[:1], width)) + (len(reasons) > 1) if severe else 0


def _wrapped(reasons: Sequence[Reason], width: int) -> list[str]:
    """Notes are marked."""
    lines: list[str] = []
    for reason in reasons:
        mark = "note: " if reason.severity == "note" else ""
        lines += wrap(f"{mark}{reason_text(reason)}", width - LABEL, initial_indent="- ", subsequent_indent="  ")
    return lines


def _target(document: RunDocument) -> list[SummaryLine]:
    target = document.target
    urls = target.urls or document.config.target.urls
    where = "the simulated engine" if simulated(document) else ", ".join(urls) or NOT_KNOWN
    protocol = protocols(document) or NOT_KNOWN
    return [SummaryLine(_labelled("target", f"{where} ({protocol}, model {target.model or NOT_KNOWN})"))]


def protocols(document: RunDocument) -> str | None:
    """The protocol of the target, or those of its classes."""
    of_classes = dict.fromkeys(str(one.endpoint_type) for one in document.target.classes)
    return ", ".join(of_classes) or document.target.endpoint_type


def _requests(document: RunDocument, width: int) -> list[SummaryLine]:
    ok, failed, counts = document.completed, document.failed, document.counts
    sent, lost = known(ok), known(failed)
    share = f" ({quantity(100 * lost / (sent + lost))} %)" if sent is not None and lost else ""
    if failed is WITHHELD:  # the number is not public, but that some failed is reported
        share = f" ({percent(document.metric('success_rate').value)} of those in the window succeeded)"
    unfinished = ((counts.in_flight, "cut off"), (counts.not_sent, "never sent"))  # of a run that was stopped early
    parts = [(0, f"{count(ok)} ok, {count(failed)} failed{share}")]
    parts += [(1, f"{count(many)} {name}") for many, name in unfinished if known(many)]
    lines = [_fitted("requests", parts, width)]
    wrong = errors(_error_classes(document.errors))
    if wrong != "" or lost:
        lines.append(SummaryLine(_labelled("errors", wrong or "see run.json"), "bad"))
    where = failing_urls(document, width - LABEL)
    if where != "":
        lines.append(SummaryLine(_labelled("failed", where), "bad"))
    lines += [SummaryLine(_labelled("", _quoted(text, width))) for text in document.error_texts.texts[:1]]
    return lines


def _quoted(error: ErrorText, width: int) -> str:
    """One line with the most frequent error message of the server."""
    times = f" ({count(error.requests)} x)"
    text, room = message_of(str(error.text)), max(8, width - LABEL - len(times) - 2)
    return f'"{text if len(text) <= room else text[: room - 3] + "..."}"{times}'


def _error_classes(groups: Sequence[ErrorCount]) -> dict[str, float]:
    """Failed requests by error class, else status, and by HTTP status."""
    classes: dict[str, float] = {}
    for group in groups:
        name, code = group.error or group.status or NOT_KNOWN, group.http_status
        shown = f"{name} {code}:" if code is not None and code != 200 else name
        classes[shown] = classes.get(shown, 0) + (known(group.count) or 0)
    return classes


def _rate(document: RunDocument, width: int) -> list[SummaryLine]:
    certificate = document.certificate or Certificate()
    parts = [(0, _asked(document))]
    if known(certificate.planned_rate) is not None:
        parts.append((3, f"planned {quantity(certificate.planned_rate)}/s"))
    parts.append((2, f"sent {quantity(certificate.offered_rate)}/s"))
    parts.append((1, f"completed {quantity(document.request_throughput)}/s"))
    return [_fitted("rate", parts, width)]


def _fitted(label: str, parts: Sequence[tuple[int, str]], width: int) -> SummaryLine:
    """*parts* in their order; in a narrow terminal those with the highest rank are dropped."""
    kept = list(parts)
    while len(kept) > 1 and LABEL + len(", ".join(text for _, text in kept)) > width:
        kept.remove(max(kept, key=lambda each: each[0]))
    return SummaryLine(_labelled(label, ", ".join(text for _, text in kept)))


def _asked(document: RunDocument) -> str:
    """The load of the plan, which is also known where a saved plan was sent."""
    load = document.plan.description.load
    arrivals = load.arrivals or ArrivalProcess()
    if load.is_withheld:
        return f"{'open' if load.concurrency is None else 'closed'} loop, load withheld"
    if load.concurrency is not None:
        return f"closed loop, {count(load.concurrency)} in flight"
    shown = asked_rate(arrivals.rate)
    if arrivals.changes is not None:
        shown = f"{arrivals.changes} (mean {shown})"
    unit = " conversations" if document.plan.description.conversations is not None else ""
    return f"asked {shown} {arrivals.name if arrivals.name and arrivals.rate != 'inf' else ''}".rstrip() + unit


def _latencies(document: RunDocument, width: int) -> list[SummaryLine]:
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
        metric = document.metric(name)
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


def _intervals(document: RunDocument) -> list[SummaryLine]:
    """The 95 % interval of P99 of each latency, or the number of requests that it needs."""
    parts = []
    for name in headlines(document, WITH_INTERVAL):
        name = gap_name(document, name)
        metric = document.metric(name)
        if bound(metric, "p99") is not None:
            continue
        ends, why = metric.interval("p99"), metric.why_not_estimable("p99")
        if ends is not None:
            parts.append(f"{name} {quantity(ends[0])}-{quantity(ends[1])}")
        elif why is not None:
            needed = "" if known(why.requests_needed) is None else f" (needs {count(why.requests_needed)})"
            parts.append(f"{name} n/a{needed}")
    return [SummaryLine(_labelled("p99 95 %", ", ".join(parts)))] if parts else []


def gap_name(document: RunDocument, name: str) -> str:
    """The metric that the run has in place of `itl`: where chunks carry several tokens, the time between chunks `tbc`
    (IETF B.2.1, option A) or `itl_b` (option B). Any other *name* unchanged.
    """
    present = [other for other in ERRORS.get(name, ()) if document.metric(other).n]
    return present[0] if name == "itl" and present else name


def _cell(metric: Metric, column: str) -> str:
    shown = bound(metric, column)
    if shown is not None:
        return shown if len(shown) < CELL else f">={quantity((metric.unfinished_bounds[column] or Bounds()).low)}"
    text = quantity(milliseconds(metric, column))
    few = has_too_few_samples(metric, column, SAMPLES_NEEDED.get(column, 0))
    return f"{text}*" if few and text != NOT_KNOWN else text


def _methodology(document: RunDocument, width: int) -> list[SummaryLine]:
    """The compliance verdict, where there is one."""
    found = document.compliance
    if found is None or found.verdict is None:
        return []
    parts = [
        (0, f"{found.verdict} by the IETF draft"),
        (1, f"{count(found.must.hold)} of {count(found.must.of)} MUST hold"),
    ]
    return [_fitted("compliance", parts, width)]


def _throughput(document: RunDocument, width: int) -> list[SummaryLine]:
    parts = [
        (0, f"{quantity(document.output_throughput)} output tok/s"),
        (1, f"{quantity(document.total_token_throughput)} tok/s with input"),
    ]
    return [_fitted("throughput", parts, width)]


def _client(document: RunDocument, width: int) -> list[SummaryLine]:
    certificate = document.certificate or Certificate()
    lag = certificate.schedule_lag_us or ScheduleLag()
    shown = [
        (rank, f"{label} {quantity(value)}")
        for rank, label, value in (
            (2, "p50", lag.p50),
            (0, "p99", lag.p99),
            (3, "p99.9", lag.p999),
            (1, "max", lag.max),
        )
    ]
    workers = certificate.workers
    busiest = max((share for worker in workers if (share := known(worker.cpu_share)) is not None), default=None)
    collections = [worker.gc_runs for worker in workers if worker.gc_runs is not None]
    headroom = [
        (0, headroom_text(certificate)),
        (1, f"busiest worker {percent(busiest)} of a core"),
        (2, f"GC {count(total(collections) if collections else None)}"),
    ]
    bad = bad_seconds(certificate)
    within = ", ".join(
        f"{gap_name(document, name)} {_error_us(certificate, ERRORS[name])}"
        for name in headlines(document, tuple(ERRORS))
    )
    stamps = [
        (1, certificate.timestamp_source or NOT_KNOWN),
        (2, f"batched {percent(certificate.batched_share)}"),
        (0, f"P99 known within us: {within}"),
    ]
    return [
        _fitted("lag us", shown, width),
        _fitted("headroom", headroom, width),
        *([] if bad is None else [SummaryLine(_labelled("bad s", bad))]),
        _fitted("stamps", stamps, width),
    ]


def bad_seconds(certificate: Certificate) -> str | None:
    """The number of seconds of the window in which the client was bad, and the worst of them; None without any."""
    if not certificate.seconds.worst:
        return None
    seconds, first = certificate.seconds, certificate.seconds.worst[0]
    shown = [
        ("lag P99 {} ms", known(first.lag_p99_us), LAG_US, 1e-3),
        ("brackets P99 {} ms", known(first.bracket_p99_us), BRACKET_US, 1e-3),
        ("CPU {} %", known(first.cpu_share), CPU_SHARE, 100),
    ]
    each = ", ".join(
        text.format(quantity(value * scale))
        for text, value, limit, scale in shown
        if value is not None and value > limit
    )
    return f"{seconds.bad} of {seconds.n}, the worst at {first.at_s} s: {each}"


def p99_error(certificate: Certificate, metrics: Sequence[str]) -> tuple[float, float] | None:
    """(us, share) of P99 within which the first judged one of *metrics* is known; None where none was judged."""
    judged = (figure.p99 for name in metrics if (figure := certificate.figures.get(name)) is not None)
    found = next((p99 for p99 in judged if p99 is not None), StatisticBounds())
    value, share = known(found.value), known(found.error_share)
    return None if value is None or share is None else (value * share * 1e3, share)


def _error_us(certificate: Certificate, metrics: Sequence[str]) -> str:
    found = p99_error(certificate, metrics)
    return quantity(None if found is None else found[0])


def headroom_text(certificate: Certificate) -> str:
    if known(certificate.headroom) is None:
        return "n/a (run fastllmload calibrate)"
    return f"{quantity(certificate.headroom)} x this load"


def _objectives(document: RunDocument, width: int) -> list[SummaryLine]:
    asked = document.config.output.goodput
    if not asked:
        return []
    names = ", ".join(_limit(document, name, limit) for name, limit in asked)
    rate, attainment = document.request_goodput, None if document.slo is None else document.slo.slo_attainment
    met = (
        f"{quantity(rate)} requests/s"
        if attainment is None
        else f"{percent(attainment)} of requests ({quantity(rate)}/s)"
    )
    text = f"{met} meet {names}"
    return [SummaryLine(_labelled("goodput", text if LABEL + len(text) <= width else met))]


def _limit(document: RunDocument, name: str, limit: Number) -> str:
    """`ttft 200 ms`: the limit as set, in the unit of the objective."""
    units = {} if document.slo is None else {each.objective: each.unit for each in document.slo.objectives}
    found, unit = known(limit), units.get(name)
    shown = NOT_KNOWN if found is None else f"{found:,.10g}"
    return f"{name} {shown} {unit}" if unit not in (None, "share") else f"{name} {shown}"
