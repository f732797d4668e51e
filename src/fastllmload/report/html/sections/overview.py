"""The top of the page: verdict with reasons, what was run, and the key figures."""

from __future__ import annotations

import shlex
from dataclasses import replace

from fastllmload.documents.fields import known as number
from fastllmload.documents.metric import Metric
from fastllmload.documents.plan import ClassDescription, WorkloadDescription
from fastllmload.records.integrity import missing_checksums
from fastllmload.report.blocks import Callout, Items, Strong, VerdictReason
from fastllmload.report.documents.subject import Subject
from fastllmload.report.html.charts.scales import duration
from fastllmload.report.html.context import ReportContext
from fastllmload.report.html.sections.evidence import evidence
from fastllmload.report.render.html import (
    Markup,
    element,
    facts,
    joined,
    render,
    render_block,
    verdict_card,
    visible,
)
from fastllmload.report.terminal.summary import run_folder
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.doubts import bound, token_texts, unsteady_texts
from fastllmload.report.text.failures import error_classes, errors
from fastllmload.report.text.numbers import NOT_KNOWN, count, quantity
from fastllmload.report.text.tokens import reasoned
from fastllmload.report.text.traffic import load_text, unstreamed_answers
from fastllmload.report.text.verdict import SIMULATED, Headline, cold_start, incomplete, simulated, verdict
from fastllmload.settings import RunSettings, Workload

FAILED = "Latencies exclude failed requests: read them with the success rate, and see the failures below."
NONE = "No request succeeded, so latencies are not available: see the failures below."
SETTLE = "Run longer, or exclude more of the start (--ramp-share)."
LOST = "Requests in flight, their rate and their duration are inconsistent: the window was not steady."
CLASSES = 6  # classes whose lengths are listed
DAMAGED = "DAMAGED FILES"


def title(context: ReportContext) -> str:
    """The window title: marks, target, load and verdict."""
    where = SIMULATED.mark if simulated(context.document) else ", ".join(target_urls(context)) or NOT_KNOWN
    words = [
        *marks(context),
        visible(where, 80),
        visible(load_text(context.document), 60),
        verdict(context.document).word.upper(),
        "fastllmload",
    ]
    return " · ".join(words)


def headlines(context: ReportContext) -> list[Headline]:
    """Warnings that belong to every figure of the run."""
    return [*incomplete(context.document), *cold_start(context.document)]


def marks(context: ReportContext) -> list[str]:
    """Their names, without details."""
    return [DAMAGED] * bool(context.damage) + [each.mark.partition(" (")[0] for each in headlines(context)]


def header(context: ReportContext) -> Markup:
    """Verdict with its reasons, and what was run."""
    found, figures = verdict(context.document), evidence(context)
    found = replace(found, reasons=reasons(context))
    above = [str(each) for each in (SIMULATED, *headlines(context))]
    listed = [text for text in deviations(Subject(context.run.directory, context.raw)) if text not in above]
    few = 3 * len(found.reasons) + len(listed) <= 9  # lines; then the figures fit below them
    warnings = render(Callout((Strong(each.mark), f": {each.text}.")) for each in headlines(context))
    deviating = element("div", element("h3", "Deviations from the methodology"), render_block(Items(listed)),
                        class_="deviations")  # fmt: skip
    judged = verdict_card(
        found,
        over="Verdict on the client",
        heading="h1",
        extra=joined(_damaged(context), warnings),
        below=joined(deviating if listed else None, figures if few else None),
    )
    facts_ = element(
        "div", element("h2", "What was run"), run_facts(context), None if few else figures, class_="card facts"
    )
    return element("section", judged, facts_, id="verdict", class_="top")


def _damaged(context: ReportContext) -> Markup | None:
    """Files of the folder that were changed since the run."""
    if not context.damage:
        return None
    tables = (
        "The tables have the figures of run.json, computed before the damage"
        if context.complete
        else "Figures that need these files are n/a"
    )
    return element(
        "div",
        element("p", element("strong", f"{DAMAGED}. "), f"{tables}; charts that need these files are left out."),
        element("ul", *(element("li", visible(text)) for text in context.damage)),
        class_="incomplete",
    )


def _folder(context: ReportContext) -> Markup:
    path = element("code", visible(run_folder(context.document, str(context.run.directory))))
    text = missing_checksums(context.raw)
    return path if text is None else joined(path, element("small", text))


def reasons(context: ReportContext) -> list[VerdictReason]:
    """Failures, the reasons of the certificate, doubts about the figures, and the incidents of the run."""
    document = context.document
    lost, found = errors(error_classes(document.errors)), []
    if lost != "":
        found.append(VerdictReason("failures", f"Requests failed: {lost}.", FAILED if document.completed else NONE))
    found += verdict(document).reasons
    for text in unsteady_texts(document):
        found.append(VerdictReason("unsteady", text, LOST if text.startswith("Little") else SETTLE))
    found += [VerdictReason("tokens", text) for text in token_texts(document)]
    return found + [VerdictReason("incident", text) for text in document.incidents]


def target_urls(context: ReportContext) -> list[str]:
    """Target URLs without passwords."""
    return [without_password(url) for url in context.document.target.urls or context.document.config.target.urls]


def without_password(url: str) -> str:
    from fastllmload.redact import Redactor, url_secrets

    return Redactor(url_secrets(url))(url)


def run_facts(context: ReportContext) -> Markup:
    """Load, target, workload, window, start, plan, command and folder."""
    rows: list[tuple[str, str | Markup | None]] = [
        ("Load", _load(context)),
        ("Target", _target(context)),
        ("Workload", _workload(context)),
        ("Window", _window(context)),
        ("Began", _began(context)),
        ("Plan", _plan(context)),
        ("Command", _command(context)),
        ("Folder", _folder(context)),
    ]
    labels = context.document.metadata
    if labels:
        rows.append(
            ("Labels", ", ".join(f"{visible(key, 60)} = {visible(value, 120)}" for key, value in labels.items()))
        )
    return facts((name, text) for name, text in rows if text is not None)


def _load(context: ReportContext) -> str:
    found = load_text(context.document)
    settings, plan = context.document.config.load, context.document.plan
    bound, cap, planned = settings.duration, settings.max_concurrency, plan.requests
    loop = plan.description.load.loop
    parts = [f"{found}, open loop" if loop == "open" else found]
    if bound is not None:
        parts.append(f"for {duration(1e3 * bound)}")
    if number(planned) is not None and loop == "open":
        parts.append(f"{count(planned)} requests planned")
    if cap is not None:
        parts.append(f"at most {count(cap)} in flight")
    return ", ".join(parts)


def _target(context: ReportContext) -> Markup:
    target = context.document.target
    protocol, model = visible(target.endpoint_type or NOT_KNOWN, 60), visible(target.model or NOT_KNOWN, 120)
    where = (
        "the simulated engine"
        if simulated(context.document)
        else ", ".join(visible(url, 200) for url in target_urls(context))
    )
    return joined(where or NOT_KNOWN, element("br"), element("span", f"{protocol}, model {model}", class_="quiet"))


def _workload(context: ReportContext) -> str | None:
    work: WorkloadDescription | Workload = context.document.plan.description.workload
    if work == WorkloadDescription():
        if context.document.config == RunSettings():  # a folder without settings
            return None
        work = context.document.config.workload
    if work.name == "classes":
        return _class_workloads(context)
    parts = [visible(work.name or NOT_KNOWN, 80)]
    for length, label in ((work.isl, "prompt"), (work.osl, "output")):
        if length == "trace":
            parts.append(f"{label} lengths of the trace")
        elif length is not None:
            parts.append(f"{label} {visible(length, 80)} tokens")
    if number(work.prefix_len):
        parts.append(f"{count(work.num_prefixes)} shared prefix of {count(work.prefix_len)} tokens")
    if unstreamed_answers(context.document) == "all":
        parts.append("not streamed")
    return ", ".join(parts)


def _class_workloads(context: ReportContext) -> str:
    """Each class with its lengths."""
    texts = [_class_workload(one) for one in context.document.plan.description.classes[:CLASSES]]
    return "; ".join(texts + ["..."] * (len(texts) == CLASSES)) or "by class"


def _class_workload(one: ClassDescription) -> str:
    work = one.workload
    lengths = [
        f"{label} {visible(length, 40)}"
        for length, label in ((work.isl, "prompt"), (work.osl, "output"))
        if length is not None
    ]
    return ", ".join([f"{visible(one.name or NOT_KNOWN, 40)}: {work.name or NOT_KNOWN}", *lengths])


def _window(context: ReportContext) -> str:
    window, axis = context.populations, context.axis
    seconds = number(context.document.window.seconds)
    if (axis is None or axis.window is None) and seconds is not None:
        sent = count(context.document.counts.submitted_in_window)
        return f"{duration(1e3 * seconds)} long; {sent} requests submitted in it"
    if axis is None or axis.window is None:
        return "none: nothing was measured"
    start, end = axis.since_zero(axis.window.w0_ns), axis.since_zero(axis.window.w1_ns)
    n = int(window.submitted.sum())
    return f"{duration(1e3 * start)} to {duration(1e3 * end)} after the start; {count(n)} requests submitted in it"


def _began(context: ReportContext) -> str | None:
    phase = context.document.phase("measure")
    stamp = (None if phase is None else phase.start_utc) or context.document.environment.time_utc
    return None if stamp is None else visible(stamp.replace("T", " ").replace("Z", " UTC"), 40)


def _command(context: ReportContext) -> Markup | None:
    """The command line as typed, without secrets."""
    given = context.document.command
    words = [without_password(word) for word in given] if isinstance(given, tuple) else []
    return element("code", visible(shlex.join(words), 1000)) if words else None


def _plan(context: ReportContext) -> Markup | None:
    digest, seed = context.document.plan.digest, context.document.plan.description.seed
    if digest is None:
        return None
    return joined(element("code", visible(digest, 64)[:16]), f", seed {visible(seed, 30)}")


def tiles(context: ReportContext) -> Markup:
    """Six figures; eight where answers reason."""
    metric = context.document.metric
    gap, both = context.gap_name, reasoned(context.document)
    of_any = [
        _latency_tile("First token of any kind", metric("ttft_any")),
        _latency_tile("Per token, with reasoning", metric("tpot_any")),
    ]
    shown = [
        _latency_tile("First answer token" if both else "Time to first token", metric("ttft")),
        *(of_any if both else []),
        _latency_tile(f"Between {'answer ' if both else ''}{'chunks' if gap == 'tbc' else 'tokens'}", metric(gap)),
        _latency_tile("End to end", metric("e2e")),
        _tile("Output", quantity(context.document.output_throughput), "tokens/s",
              f"{quantity(context.document.total_token_throughput)} with input"),
        _tile("Completed", quantity(context.document.request_throughput), "requests/s", _asked(context)),
        _success_tile(context),
    ]  # fmt: skip
    return element("section", *shown, class_="tiles eight" if both else "tiles", aria_label="Key figures")


def _latency_tile(name: str, metric: Metric) -> Markup:
    p50, p99 = number(metric.p50), number(metric.p99)
    known = bound(metric, "p99")
    big = NOT_KNOWN if p50 is None else duration(p50, zeros=True)
    value, _, unit = big.partition(" ")
    return _tile(
        name,
        value,
        f"{unit or 'ms'} P50".strip() if p50 is not None else "",
        f"P99 {known.replace('>=', '≥ ')} ms"
        if known is not None
        else "nothing measured"
        if p99 is None
        else f"P99 {duration(p99, zeros=True)}",
    )


def _asked(context: ReportContext) -> str:
    planned = number(context.certificate.planned_rate)
    return "closed loop" if planned is None else f"planned {quantity(planned)}"


def _success_tile(context: ReportContext) -> Markup:
    share = number(context.document.metric("success_rate").value)
    failed = number(context.document.failed)
    shown = NOT_KNOWN if share is None else f"{100 * share:.4g}"
    left = number(context.document.counts.left)
    below = f"{count(failed)} failed" + (f", {count(left)} left" if left else "")
    return _tile("Succeeded", shown, "%" if share is not None else "", below, "bad" if failed else "")


def _tile(name: str, value: str, unit: str, below: str, tone: str = "") -> Markup:
    return element(
        "div",
        element("p", name, class_="over"),
        element("p", element("b", value), element("span", unit), class_="value"),
        element("p", below, class_="below"),
        class_=f"card tile {tone}".strip(),
    )
