"""The closing summary of run.json as blocks: one screen of 80 by 24, verdict first. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastllmload.documents.certificate import Certificate, ScheduleLag
from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.run import RunDocument
from fastllmload.metrics.objectives.evaluators import OF_SESSIONS
from fastllmload.records.error_texts import message_of
from fastllmload.report.blocks import (
    BELOW,
    SPARE,
    Block,
    Callout,
    Fact,
    Items,
    Paragraph,
    Table,
    Verdict,
    cells,
    ranked,
    tone_of,
)
from fastllmload.report.documents import cluster
from fastllmload.report.documents.headlines import COLUMNS, headline_names, headline_table
from fastllmload.report.documents.hosts import clock_bound_us, judgement, network_text, other_hosts, shown_hosts
from fastllmload.report.documents.results import MARK, few_samples_note
from fastllmload.report.text.control import control_texts
from fastllmload.report.text.doubts import all_texts, bound
from fastllmload.report.text.failures import error_classes, errors, failing_urls
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity, redaction_notice
from fastllmload.report.text.tokens import (
    GAPS,
    alone_text,
    event_token_lines,
    gap_name,
    has_tokens,
    headlines,
    legend,
    merged_text,
    names_or_count,
    reasoned,
    token_text,
)
from fastllmload.report.text.traffic import (
    load_text,
    mixes_loops,
    model_name,
    of_open_loops,
    protocols,
    total,
    traffic_facts,
    unstreamed_answers,
)
from fastllmload.report.text.verdict import (
    ERRORS,
    SIMULATED,
    bad_seconds,
    busiest_share,
    headroom_text,
    incomplete,
    p99_error,
    simulated,
    special_states,
    verdict,
)

WITH_INTERVAL = ("ttft", "ttft_any", "itl", "e2e")  # those whose intervals fit on a line
PERCENTS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
OPTIONAL_COLUMNS = ("P95", "P90", "mean", "P99.9", "max")
ROOM = {"e2e_sched": 1, "stamps": 2, "ttft_sched": 3, "tpot_any": 4}  # lines left out first


def summary(document: RunDocument, folder: str | None = None) -> Iterator[Block]:
    """Any part of *document* may be missing; *folder* is the run folder."""
    loud = [Callout(str(SIMULATED))] if simulated(document) else []
    yield from loud
    yield marked_verdict(document)
    yield target(document)
    yield from requests(document)
    yield rate(document)
    yield latencies(document)
    yield from intervals(document)
    yield from throughput_and_client(document)
    yield from objectives(document)
    yield from methodology(document)
    # What only some runs have is below the screen that all runs have
    yield Items(all_texts(document))
    yield from (Fact("tokens", [text], BELOW, overflow="wrap") for text in event_token_lines(document))
    reasoning = [text for text in (legend(document), token_text(document), alone_text(document)) if text is not None]
    for place, text in enumerate(reasoning):
        yield Fact("" if place else "reasoning", [text], BELOW, overflow="wrap")
    yield from traffic_facts(document)
    yield from cluster.facts(document)
    for text in control_texts(document):
        yield Fact("control", [text], BELOW, overflow="wrap")
    yield from hosts(document)
    redaction = redaction_notice(document.withheld)
    if redaction is not None:
        yield Paragraph(redaction)
    yield Fact("run", [run_folder(document, folder)], overflow="whole")  # can be copied
    yield from loud


def run_folder(document: RunDocument, folder: str | None = None) -> str:
    asked = document.config.output.directory if folder is None else folder
    return NOT_KNOWN if asked is None else asked


def marked_verdict(document: RunDocument) -> Verdict:
    """The verdict; its word is followed by what belongs to every figure."""
    found, certificate = verdict(document), document.certificate or Certificate()
    marks = ["THE PATH DELIVERS TOKENS IN BATCHES"] * any(reason.cause == "path" for reason in certificate.reasons)
    marks += [headline.mark for headline in (*incomplete(document), *special_states(document))]
    return replace(found, word=", ".join([found.word.upper(), *marks]), tone=found.tone or tone_of(found.word))


def target(document: RunDocument) -> Fact:
    urls = document.target.urls or document.config.target.urls
    where = "the simulated engine" if simulated(document) else ", ".join(urls) or NOT_KNOWN
    protocol, model = protocols(document) or NOT_KNOWN, model_name(document) or NOT_KNOWN
    return Fact("target", [f"{where} ({protocol}, model {model})"])


def requests(document: RunDocument) -> Iterator[Fact]:
    ok, failed, counts = document.completed, document.failed, document.counts
    sent, lost = known(ok), known(failed)
    share = f" ({quantity(100 * lost / (sent + lost))} %)" if sent is not None and lost else ""
    if failed is WITHHELD:  # the number is not public, but that some failed is reported
        share = f" ({percent(document.metric('success_rate').value)} of those in the window succeeded)"
    unfinished = (  # of a run that was stopped early, or whose hosts were lost
        (counts.in_flight, "cut off"),
        (counts.not_sent, "never sent"),
        (counts.host_lost, "of lost hosts"),
    )
    parts = [(0, f"{count(ok)} ok, {count(failed)} failed{share}")]
    parts += [(1, f"{count(many)} {name}") for many, name in unfinished if known(many)]
    yield Fact("requests", ranked(parts))
    wrong = errors(error_classes(document.errors))
    if wrong != "" or lost:
        yield Fact("errors", [wrong or "see run.json"], tone="bad")
    urls = failing_urls(document)
    if urls:
        yield Fact("failed", urls, tone="bad")
    for error in document.error_texts.texts[:1]:
        yield Fact("", [f'{count(error.requests)} x "{message_of(str(error.text))}"'])


def rate(document: RunDocument) -> Fact:
    certificate, load = document.certificate or Certificate(), load_text(document)
    parts = [(0, load if " loop, " in load or " loops, " in load else f"asked {load}")]
    if known(certificate.planned_rate) is not None:
        parts.append((3, f"planned {quantity(certificate.planned_rate)}/s"))
    parts.append((2, f"sent {quantity(certificate.offered_rate)}/s{of_open_loops(document)}"))
    parts.append((1, f"completed {quantity(document.request_throughput)}/s{' in all' * mixes_loops(document)}"))
    return Fact("rate", ranked(parts))


def latencies(document: RunDocument) -> Table:
    """The headline table without n, with the rows and columns that were asked for, and with notes that fit a line."""
    found, asked = headline_table(document), document.config.output
    names, percents = asked.percentile_metrics, asked.metric_percentiles
    shown = {key: each for key, each in COLUMNS.items() if not percents or PERCENTS.get(key, percents[0]) in percents}
    rows = [
        [first, *(cell for key, cell in zip(COLUMNS, statistics, strict=True) if key in shown)]
        for name, (first, _, *statistics) in zip(headline_names(document), found.rows, strict=True)
        if not names or document.metric(name).title or ("itl" if name in GAPS else name) in names
    ]
    unstreamed = unstreamed_answers(document)
    notes = []
    if unstreamed == "all":
        notes.append("not streamed: ttft is the end of the answer; no gaps, so no itl and tpot")
    elif unstreamed:
        notes.append(f"{unstreamed} not streamed: their ttft is their end; not in itl and tpot")
    if document.classes_with_tokens:
        notes.append(f"ttft, tpot, itl, tok/s: of {names_or_count(document)} alone; e2e mixes all classes")
    if mixes_loops(document):
        timed = known(document.metric("ttft_sched").n)
        notes.append(f"ttft_sched: {'the' if timed is None else count(timed)} requests of open loops; others: all")
    if merged_text(document) is not None:
        notes.append("gaps: from the hosts' merged histograms, to three digits [merged-histograms]")
    notes += few_samples_note(any(text.endswith(MARK) for _, *row in cells(replace(found, rows=rows)) for text in row))
    optional = ("e2e_sched", *(("ttft_sched", "tpot_any") if reasoned(document) else ()))
    spare = [title for title in OPTIONAL_COLUMNS if title in shown.values()]
    return Table("", ["ms", *shown.values()], rows, notes, spare, {name: ROOM[name] for name in optional})


def intervals(document: RunDocument) -> Iterator[Fact]:
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
            needed = "" if why.needed is None else f" (needs {count(why.needed)})"
            parts.append(f"{name} n/a{needed}")
    if parts:
        yield Fact("p99 95 %", [", ".join(parts)], SPARE)


def throughput_and_client(document: RunDocument) -> Iterator[Fact]:
    if has_tokens(document):
        tokens = [
            (0, f"{quantity(document.output_throughput)} output tok/s"),
            (1, f"{quantity(document.total_token_throughput)} tok/s with input"),
        ]
        yield Fact("throughput", ranked(tokens))
    certificate = document.certificate or Certificate()
    lag = certificate.schedule_lag_us or ScheduleLag()
    shown = ((2, "p50", lag.p50), (0, "p99", lag.p99), (3, "p99.9", lag.p999), (1, "max", lag.max))
    mixed = mixes_loops(document)
    parts = [(rank, f"{label} {quantity(value)}") for rank, label, value in shown if not mixed or label != "p99.9"]
    of = [(2, f"of {count(lag.n)} requests{of_open_loops(document)}")] if mixed and known(lag.n) is not None else []
    yield Fact("lag us", ranked(parts + of))
    collections = [worker.gc_runs for worker in certificate.workers if worker.gc_runs is not None]
    yield Fact(
        "headroom",
        ranked(
            [
                (0, headroom_text(certificate)),
                (1, f"busiest worker {percent(busiest_share(certificate))} of a core"),
                (2, f"GC {count(total(collections) if collections else None)}"),
            ]
        ),
    )
    bad = bad_seconds(certificate)
    if bad is not None:
        yield Fact("bad s", [bad])
    errors_us = {name: p99_error(certificate, ERRORS[name]) for name in headlines(document, tuple(ERRORS))}
    within = ", ".join(
        f"{gap_name(document, name)} {quantity(None if found is None else found[0])}"
        for name, found in errors_us.items()
    )
    stamps = [
        (1, certificate.timestamp_source or NOT_KNOWN),
        *([(2, f"batched {percent(certificate.batched_share)}")] if has_tokens(document) else []),
        (0, f"P99 known within us: {within}"),
    ]
    yield Fact("stamps", ranked(stamps), ROOM["stamps"])


def objectives(document: RunDocument) -> Iterator[Fact]:
    asked = [
        one for one in document.config.output.goodput if one[0] not in OF_SESSIONS
    ]  # these have lines of their own
    if not asked:
        return
    names = ", ".join(_limit(document, name, limit) for name, limit in asked)
    rate, attainment = document.request_goodput, None if document.slo is None else document.slo.slo_attainment
    met = (
        f"{quantity(rate)} requests/s"
        if attainment is None
        else f"{percent(attainment)} of requests ({quantity(rate)}/s)"
    )
    yield Fact("goodput", [f"{met} meet {names}", met])


def _limit(document: RunDocument, name: str, limit: Number) -> str:
    """`ttft 200 ms`: the limit as set, in the unit of the objective."""
    units = {} if document.slo is None else {each.objective: each.unit for each in document.slo.objectives}
    found, unit = known(limit), units.get(name)
    shown = NOT_KNOWN if found is None else f"{found:,.10g}"
    return f"{name} {shown} {unit}" if unit not in (None, "share", "count") else f"{name} {shown}"


def hosts(document: RunDocument) -> Iterator[Fact]:
    """One line per host of a run over many, of many the worst."""
    for host in shown_hosts(document):
        certificate = host.certificate or Certificate()
        lag = (certificate.schedule_lag_us or ScheduleLag()).p99
        busiest = busiest_share(document.certificate or Certificate(), host.workers)
        parts = [
            (0, f"{host.name or NOT_KNOWN} {judgement(document, host)}"),
            (1, f"{percent(host.share)} of requests"),
            (2, f"lag P99 {quantity(lag)} us"),
            (3, f"clock within {quantity(clock_bound_us(host))} us"),
            (4, f"worker {percent(busiest)}"),
            (5, f"steal {percent(host.watch.steal_share)}"),
            (6, f"network {network_text(certificate)}"),
        ]
        yield Fact(f"host {host.host}", ranked(parts), BELOW, tone="" if certificate.verdict == "valid" else "bad")
    rest = other_hosts(document)
    if rest is not None:
        yield Fact("", [rest], BELOW, overflow="wrap")


def methodology(document: RunDocument) -> Iterator[Fact]:
    """The compliance verdict, where there is one."""
    found = document.compliance
    if found is not None and found.verdict is not None:
        hold = f"{count(found.must.hold)} of {count(found.must.of)} MUST hold"
        yield Fact("compliance", ranked([(0, f"{found.verdict} by the IETF draft"), (1, hold)]))
