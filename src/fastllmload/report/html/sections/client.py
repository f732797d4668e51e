"""Section on the load generator: arrivals, lag, delays, stalls of the host, CPU of each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fastllmload.certificate.monitor import HICCUP, HISTOGRAMS, STALLS
from fastllmload.documents.certificate import WorkerUsage
from fastllmload.documents.fields import known as number
from fastllmload.errors import RunFolderError
from fastllmload.records.integrity import ROWS
from fastllmload.records.run import SAMPLES
from fastllmload.records.samples import SIMULATOR
from fastllmload.report.html.charts.chart import Chart, Columns, Layer, Line, Rule, Stems
from fastllmload.report.html.charts.figure import empty, grid, known, middles
from fastllmload.report.html.charts.scales import Linear, Log, Tail, duration, in_one_unit, plain, up_to
from fastllmload.report.html.charts.scales import percent as percent_tick
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.sections.evidence import us
from fastllmload.report.html.sections.over_time import time_chart
from fastllmload.report.render.html import Markup, element, table, visible
from fastllmload.report.series.axis import Floats
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

TONES = ("c1", "c3", "c4", "c5", "c6", "c8")
MOST_WORKERS = 6
LAG = "Release lag", "How late each request left: dispatch after its scheduled instant."
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


def section(context: ReportContext) -> Markup:
    return element(
        "section",
        element("h2", "The client"),
        element(
            "p",
            "How the load generator affected these figures. The verdict at the top is based on this.",
            class_="intro",
        ),
        grid(_gaps(context), *_histograms(context), *_over_time(context)),
        workers(context),
        id="client",
    )


def _gaps(context: ReportContext) -> Markup:
    """Gaps between sends against the requested process; those of a Poisson process are a straight line."""
    found = arrival_gaps(context.run)
    if found is None:
        return empty("gaps", "Gaps between arrivals", context.reason("Fewer than two requests were sent.", ROWS))
    layers: list[Layer] = []
    if found.planned is not None:
        layers.append(Line("planned", found.planned.tail, found.planned.value, "c3", "", found.planned.solid_until))
    layers.append(Line("sent", found.sent.tail, found.sent.value, "c1", "", found.sent.solid_until))
    if found.asked is not None:
        layers.append(Line(f"asked ({found.process})", found.asked.tail, found.asked.value, "c7", "dash"))
    highest = max(float(layer.y.max()) for layer in layers)
    chart = Chart(
        Tail(max(1.0, float(found.sent.tail[-1]))),
        in_one_unit(highest),
        layers,
        label="Gaps between arrivals by percentile: asked, planned and sent",
    )
    note = "Gaps of a Poisson process are a straight line here." if found.process == "poisson" else ""
    return context.figures.add("gaps", "Gaps between arrivals", chart, "ms", note)


def _histograms(context: ReportContext) -> list[Markup]:
    missing = "The run ended before it was written."
    try:
        words = histograms(context.run)
    except RunFolderError as problem:
        words, missing = {}, visible(problem)
    closed = context.document.plan.description.load.loop == "closed"
    figures = []
    for key, (title, note) in {"lag": TURN if closed else LAG, "socket_to_user": SOCKET, "hiccup": STALL}.items():
        if key in words:
            figures.append(_histogram(context, f"hist-{key}", title, note, bars(words[key])))
        else:
            figures.append(
                empty(f"hist-{key}", title, context.reason(missing, HICCUP if key == "hiccup" else HISTOGRAMS))
            )
    return figures


def _histogram(context: ReportContext, key: str, title: str, note: str, found: Bars) -> Markup:
    """Bars on two logarithmic axes, so that a few late values are visible."""
    edges = found.edges_us / 1e3
    heights = found.counts.astype(np.float64)
    top = max(10.0, 10.0 ** np.ceil(np.log10(heights.max())))
    chart = Chart(
        Log(float(edges[0]), float(edges[-1]), duration),
        Log(0.7, float(top) * 1.2, lambda value: plain(value)),
        [Columns("values", edges, heights, "c1")],
        label=f"{title}: histogram of {found.n} values",
        y_unit=f"count, of {found.n:,}",
        x_as="ms",
    )
    return context.figures.add(key, title, chart, "n", note)


def _over_time(context: ReportContext) -> list[Markup]:
    if context.axis is None:
        return []
    return [figure for figure in (_stalls(context), _cpu(context)) if figure is not None]


def _stalls(context: ReportContext) -> Markup:
    """Stalls of the host and of the workers together with the latest release of each bin."""
    axis = context.axis
    assert axis is not None
    x = middles(axis.edges_s)
    lag, unread = lag_over_time(context.run, axis), context.reason("Stalls of the host were not recorded.", STALLS)
    try:
        stalls, own = stalls_over_time(context.run, axis), worker_stalls_over_time(context.run, axis)
    except RunFolderError as problem:
        stalls, own, unread = None, None, visible(problem)
    layers: list[Layer] = []
    closed = context.document.plan.description.load.loop == "closed"
    if known(lag):
        layers.append(Line("longest turn-around" if closed else "latest release", x, lag, "c1"))
    if stalls is not None and known(stalls):
        layers.append(Stems("host stall above 5 ms", x, stalls, "c2"))
    if own is not None and known(own):
        layers.append(Stems("worker stall above 5 ms", x, own, "c3"))
    if not layers:
        return empty(
            "stalls", "Stalls and late releases", "Nothing was scheduled, and stalls of the host were not recorded."
        )
    highest = max(float(np.nanmax(layer.y)) for layer in layers)
    chart = time_chart(
        context, in_one_unit(max(highest, 0.01)), layers, "Longest stall of the host and latest release over time"
    )
    quiet = "The host did not stall for more than 5 ms." if stalls is not None and not known(stalls) else ""
    note = quiet if stalls is not None else unread
    return context.figures.add("stalls", "Stalls and late releases", chart, "ms", note)


def _cpu(context: ReportContext) -> Markup | None:
    """Share of a core of each worker; of many workers, the busiest, the median and the least busy."""
    axis = context.axis
    assert axis is not None
    found = {worker: share for worker, share in cpu_over_time(context.run, axis).items() if known(share)}
    if not found:
        return empty("cpu", "CPU", context.reason("Too few samples: the run was too short.", SAMPLES))
    x = middles(axis.edges_s)
    layers: list[Layer] = [Line(name, x, share, tone) for name, share, tone in _cpu_lines(found)]
    top = max(1.0, max(float(np.nanmax(line.y)) for line in layers))
    scale = Linear(0.0, 1.05, percent_tick) if top <= 1.05 else up_to([np.array([top])], percent_tick)
    chart = time_chart(
        context, scale, layers, "CPU of each process as a share of one core", "", (Rule("y", 1.0, "one core"),)
    )
    return context.figures.add("cpu", "CPU", chart, "share", "Share of one core.")


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


def workers(context: ReportContext) -> Markup | None:
    """One row per worker, from the certificate."""
    rows = [_worker(worker) for worker in context.certificate.workers]
    if not rows:
        return None
    return element("div", element("h3", "Workers"), table(WORKER_HEAD, rows), class_="card")


def _worker(worker: WorkerUsage) -> list[str | Markup]:
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
