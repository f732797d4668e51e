"""Section on the load generator: arrivals, lag, delays, stalls of the host, CPU of each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fastllmload.certificate.monitor import HICCUP, HISTOGRAMS, STALLS
from fastllmload.documents.certificate import WorkerUsage
from fastllmload.documents.fields import known as number
from fastllmload.errors import RunFolderError
from fastllmload.records.integrity import ROWS
from fastllmload.records.samples import SAMPLES, SIMULATOR
from fastllmload.report.blocks import Cell, Paragraph, Section, Table
from fastllmload.report.charts import Axis, Chart, Rule, Series, is_known
from fastllmload.report.documents.hosts import host_table, interface_table
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.evidence import us
from fastllmload.report.run_page.over_time import time_chart
from fastllmload.report.series.axis import Floats, TimeAxis
from fastllmload.report.series.curves import arrival_gaps
from fastllmload.report.series.host import (
    Bars,
    bars,
    cpu_over_time,
    histograms,
    lag_over_time,
    stalls_over_time,
    worker_stalls_over_time,
)
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent
from fastllmload.report.text.traffic import mixes_loops

TONES = ("c1", "c3", "c4", "c5", "c6", "c8")
MOST_WORKERS = 6
MOST_ROWS = 32  # of the table of workers
LAG = "Release lag", "How late each request left: dispatch after its scheduled instant."
BOTH = (
    "Release lag and turn-around",
    "How late each request left: after its scheduled instant, or in a closed loop after the end of the one before.",
)
TURN = "Turn-around", "From the end of a request to the next dispatch in its slot."
STALL = "Host wake-up delay", "How late an idle thread was woken: stalls of the host."
SOCKET = (
    "Socket to user",
    "From the kernel's receive stamp until the client read the data; latencies use the kernel's stamp.",
)
WORKER_HEAD = (
    "worker",
    "CPU",
    "spinning",
    "run queue",
    "longest stall",
    "switches forced",
    "GC runs",
    "memory",
    "connections",
)


def section(context: ReportContext) -> Section:
    intro = Paragraph("How the load generator affected these figures. The verdict at the top is based on this.")
    charts = [_gaps(context), *_histograms(context)]
    if context.axis is not None:
        charts += [_stalls(context, context.axis), _cpu(context, context.axis)]
    found = [host_table(context.document, "Hosts"), interface_table(context.document, "Network interfaces")]
    tables = [*(table for table in found if table is not None), *workers(context)]
    return Section("The client", [intro, *charts, *tables], "client", "Client")


def _gaps(context: ReportContext) -> Chart:
    """Gaps between sends against the requested process; those of a Poisson process are a straight line."""
    found, key, title = arrival_gaps(context.run), "gaps", "Gaps between arrivals"
    if found is None:
        return Chart(title, note=context.reason("Fewer than two requests were sent.", ROWS), key=key)
    sent, planned, asked = found.sent, found.planned, found.asked
    series = [Series("sent", sent.value, sent.tail, until=sent.solid_until, tone="c1")]
    if planned is not None:
        series.insert(0, Series("planned", planned.value, planned.tail, until=planned.solid_until, tone="c3"))
    if asked is not None:
        series.append(Series(f"asked ({found.process})", asked.value, asked.tail, style="dash", tone="c7"))
    note = "Gaps of a Poisson process are a straight line here." if found.process == "poisson" else ""
    note = "Of the open loops." if mixes_loops(context.document) else note
    x = Axis(scale="tail", high=max(1.0, float(sent.tail[-1])))
    return Chart(title, series, x, Axis(unit="ms", scale="linear"), note, key=key)


def _histograms(context: ReportContext) -> list[Chart]:
    missing = "The run ended before it was written."
    try:
        words = histograms(context.run)
    except RunFolderError as problem:
        words, missing = {}, str(problem)
    closed = context.document.plan.description.load.loop == "closed"
    lag = TURN if closed else BOTH if mixes_loops(context.document) else LAG
    return [
        _histogram(f"hist-{key}", title, note, bars(words[key]))
        if key in words
        else Chart(
            title, note=context.reason(missing, HICCUP if key == "hiccup" else HISTOGRAMS), key=f"hist-{key}"
        )
        for key, (title, note) in {
            "lag": lag, "socket_to_user": SOCKET, "hiccup": STALL
        }.items()
    ]  # fmt: skip


def _histogram(key: str, title: str, note: str, found: Bars) -> Chart:
    """Two logarithmic axes, so that a few late values are visible."""
    edges, heights = found.edges_us / 1e3, found.counts.astype(np.float64)
    top = max(10.0, 10.0 ** np.ceil(np.log10(heights.max())))
    x = Axis(unit="ms", scale="log", low=float(edges[0]), high=float(edges[-1]))
    y = Axis(unit=f"count, of {found.n:,}", scale="log", low=0.7, high=float(top) * 1.2)
    return Chart(title, [Series("values", heights, edges, style="columns", tone="c1")], x, y, note, key=key)


def _stalls(context: ReportContext, axis: TimeAxis) -> Chart:
    """Stalls of the host and of the workers together with the latest release of each bin."""
    x, lag = axis.middles_s, lag_over_time(context.run, axis)
    stalls, own = None, None
    unread = context.reason("Stalls of the host were not recorded.", STALLS)
    try:
        stalls, own = stalls_over_time(context.run, axis), worker_stalls_over_time(context.run, axis)
    except RunFolderError as problem:
        unread = str(problem)
    closed = context.document.plan.description.load.loop == "closed"
    series = [Series("longest turn-around" if closed else "latest release", lag, x, tone="c1")]
    if stalls is not None:
        series.append(Series("host stall above 5 ms", stalls, x, style="stems", tone="c2"))
    if own is not None:
        series.append(Series("worker stall above 5 ms", own, x, style="stems", tone="c3"))
    quiet = "The host did not stall for more than 5 ms." if stalls is not None and not is_known(stalls) else ""
    note = quiet if stalls is not None else unread
    if not any(is_known(one.y) for one in series):
        note = "Nothing was scheduled, and stalls of the host were not recorded."
    y = Axis(unit="ms", scale="linear", least=0.01)
    return time_chart(context, "stalls", "Stalls and late releases", y, series, note)


def _cpu(context: ReportContext, axis: TimeAxis) -> Chart:
    """Share of a core of each worker; of many workers, the busiest, the median and the least busy."""
    found = {worker: share for worker, share in cpu_over_time(context.run, axis).items() if is_known(share)}
    if not found:
        return Chart("CPU", note=context.reason("Too few samples: the run was too short.", SAMPLES), key="cpu")
    series = [Series(name, share, axis.middles_s, tone=tone) for name, share, tone in _cpu_lines(found)]
    top = max(float(np.nanmax(one.y)) for one in series)
    y = Axis(unit="share", low=0.0, high=1.05 if top <= 1.05 else None)
    return time_chart(context, "cpu", "CPU", y, series, "Share of one core.", [Rule("y", 1.0, "one core")])


def _cpu_lines(found: Mapping[int, Floats]) -> Sequence[tuple[str, Floats, str]]:
    own = {worker: share for worker, share in found.items() if worker != SIMULATOR}
    lines: list[tuple[str, Floats, str]]
    if len(own) > MOST_WORKERS:
        order = np.argsort([np.nanmean(share) for share in own.values()])
        names = list(own)
        picked = {"busiest": order[-1], "median": order[len(order) // 2], "least busy": order[0]}
        lines = [
            (f"worker {names[k]} ({word})", own[names[k]], tone)
            for (word, k), tone in zip(picked.items(), TONES, strict=False)
        ]
    else:
        lines = [(f"worker {w}", share, TONES[n]) for n, (w, share) in enumerate(own.items())]
    if SIMULATOR in found:
        lines.append(("simulated engine", found[SIMULATOR], "c7"))
    return lines


def workers(context: ReportContext) -> list[Table]:
    """One row per worker, from the certificate; of more than MOST_ROWS the busiest."""
    every = context.certificate.workers
    found = every if len(every) <= MOST_ROWS else sorted(every, key=busyness, reverse=True)[:MOST_ROWS]
    notes = (
        [f"The busiest {len(found)} of {len(every):,} workers; run.json has all."] if len(found) < len(every) else []
    )
    return [Table("Workers", WORKER_HEAD, [_worker(worker) for worker in found], notes)] if found else []


def busyness(worker: WorkerUsage) -> tuple[bool, float]:
    """Those that died come first."""
    return worker.died is True, number(worker.cpu_share) or 0.0


def _worker(worker: WorkerUsage) -> list[Cell]:
    memory = number(worker.rss_bytes)
    return [
        f"{count(worker.worker)}{' (died)' if worker.died else ''}",
        percent(worker.cpu_share),
        percent(worker.spin_share),
        percent(worker.run_delay_share),
        us(worker.stall_max_us),
        count(worker.involuntary_switches),
        count(worker.gc_runs),
        NOT_KNOWN if memory is None else f"{memory / 2**20:,.0f} MiB",
        count(worker.connections_max),
    ]
