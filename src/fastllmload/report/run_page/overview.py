"""The top of the page: verdict with reasons, what was run, and the key figures."""

from __future__ import annotations

import shlex
from dataclasses import replace

from fastllmload.documents.fields import known as number
from fastllmload.documents.metric import Metric
from fastllmload.documents.plan import ClassDescription, WorkloadDescription
from fastllmload.records.integrity import missing_checksums
from fastllmload.report.blocks import (
    Block,
    Callout,
    Card,
    Code,
    Columns,
    Facts,
    Heading,
    Items,
    Section,
    Strong,
    Text,
    Tile,
    Tiles,
    VerdictReason,
)
from fastllmload.report.documents.subject import Subject
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.evidence import evidence
from fastllmload.report.terminal.summary import run_folder
from fastllmload.report.text.control import control_texts
from fastllmload.report.text.deviations import deviations
from fastllmload.report.text.doubts import bound, token_texts, unsteady_texts
from fastllmload.report.text.failures import error_classes, errors
from fastllmload.report.text.numbers import NOT_KNOWN, count, duration, quantity
from fastllmload.report.text.tokens import has_tokens, reasoned
from fastllmload.report.text.traffic import load_text, loops, model_name, of_open_loops, unstreamed_answers
from fastllmload.report.text.verdict import SIMULATED, Headline, incomplete, simulated, special_states, verdict
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
        where[:80],
        load_text(context.document)[:60],
        verdict(context.document).word.upper(),
        "fastllmload",
    ]
    return " · ".join(words)


def headlines(context: ReportContext) -> list[Headline]:
    """Warnings that belong to every figure of the run."""
    return [*incomplete(context.document), *special_states(context.document)]


def marks(context: ReportContext) -> list[str]:
    """Their names, without details."""
    return [DAMAGED] * bool(context.damage) + [each.mark.partition(" (")[0] for each in headlines(context)]


def section(context: ReportContext) -> Section:
    """Verdict with its reasons, what was run, and the key figures."""
    figures = evidence(context)
    above = [str(each) for each in (SIMULATED, *headlines(context))]
    listed = [text for text in deviations(Subject(context.run.directory, context.document)) if text not in above]
    why = reasons(context)
    few = 3 * len(why) + len(listed) <= 9  # lines; then the figures fit below them
    deviating: list[Block] = [Heading("Deviations from the methodology", 3), Items(listed)] if listed else []
    warnings = (Callout((Strong(each.mark), f": {each.text}.")) for each in headlines(context))
    shown: list[Block] = [] if figures is None else [figures]
    judged = replace(
        verdict(context.document),
        reasons=why,
        of="the client",
        warnings=[*_damaged(context), *warnings],
        more=[*deviating, *(shown if few else [])],
    )
    run = Card("What was run", [run_facts(context), *([] if few else shown)])
    return Section("", [Columns([judged, run]), tiles(context)], "verdict", "Verdict")


def _damaged(context: ReportContext) -> list[Callout]:
    """Files of the folder that were changed since the run."""
    if not context.damage:
        return []
    tables = (
        "The tables have the figures of run.json, computed before the damage"
        if context.complete
        else "Figures that need these files are n/a"
    )
    text = f". {tables}; charts that need these files are left out. {'; '.join(context.damage)}"
    return [Callout((Strong(DAMAGED), text))]


def _folder(context: ReportContext) -> Text:
    text = missing_checksums(context.document)
    return (Code(run_folder(context.document, str(context.run.directory))), "" if text is None else f" {text}")


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


def run_facts(context: ReportContext) -> Facts:
    """Load, target, workload, window, start, plan, command and folder."""
    rows: list[tuple[str, Text | None]] = [
        ("Load", _load(context)),
        ("Target", _target(context)),
        ("Workload", _workload(context)),
        ("Window", _window(context)),
        ("Control", "; ".join(control_texts(context.document)) or None),
        ("Began", _began(context)),
        ("Plan", _plan(context)),
        ("Command", _command(context)),
        ("Folder", _folder(context)),
        ("Labels", ", ".join(f"{key} = {value}" for key, value in context.document.metadata.items()) or None),
    ]
    return Facts([(name, text) for name, text in rows if text is not None])


def _load(context: ReportContext) -> str:
    found = load_text(context.document)
    settings, plan = context.document.config.load, context.document.plan
    bound, cap, planned = settings.duration, settings.max_concurrency, plan.requests
    loop = plan.description.load.loop
    parts = [f"{found}, {loops(context.document)}" if loop == "open" else found]
    if bound is not None:
        parts.append(f"for {duration(1e3 * bound)}")
    if number(planned) is not None and loop == "open":
        parts.append(f"{count(planned)} requests planned{of_open_loops(context.document)}")
    if cap is not None:
        parts.append(f"at most {count(cap)} in flight")
    if settings.max_prefill is not None:
        parts.append(f"at most {count(settings.max_prefill)} waiting for a first token")
    return ", ".join(parts)


def _target(context: ReportContext) -> str:
    target = context.document.target
    where = "the simulated engine" if simulated(context.document) else ", ".join(target_urls(context)) or NOT_KNOWN
    return f"{where}; {target.endpoint_type or NOT_KNOWN}, model {model_name(context.document) or NOT_KNOWN}"


def _workload(context: ReportContext) -> str | None:
    work: WorkloadDescription | Workload = context.document.plan.description.workload
    if work == WorkloadDescription():
        if context.document.config == RunSettings():  # a folder without settings
            return None
        work = context.document.config.workload
    if work.name == "classes":
        return _class_workloads(context)
    parts = [work.name or NOT_KNOWN]
    lengths = ((work.isl, "prompt"), (work.osl, "output"))
    for length, label in lengths if has_tokens(context.document) else lengths[:1]:
        if length == "trace":
            parts.append(f"{label} lengths of the trace")
        elif length is not None:
            parts.append(f"{label} {length} tokens")
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
    work = one.workload or WorkloadDescription()
    lengths = [
        f"{label} {length}" for length, label in ((work.isl, "prompt"), (work.osl, "output")) if length is not None
    ]
    return ", ".join([f"{one.name or NOT_KNOWN}: {work.name or NOT_KNOWN}", *lengths])


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
    return None if stamp is None else stamp.replace("T", " ").replace("Z", " UTC")


def _command(context: ReportContext) -> Text | None:
    """The command line as typed, without secrets."""
    given = context.document.command
    words = [without_password(word) for word in given] if isinstance(given, tuple) else []
    return (Code(shlex.join(words)),) if words else None


def _plan(context: ReportContext) -> Text | None:
    digest, seed = context.document.plan.digest, context.document.plan.description.seed
    if digest is None:
        return None
    return (Code(digest[:16]), f", seed {seed}")


def tiles(context: ReportContext) -> Tiles:
    """Six figures; eight where answers reason, three where they are not tokens."""
    metric = context.document.metric
    gap, both = context.gap_name, reasoned(context.document)
    of_any = [
        _latency_tile("First token of any kind", metric("ttft_any")),
        _latency_tile("Per token, with reasoning", metric("tpot_any")),
    ]
    if not has_tokens(context.document):
        return Tiles([
            _latency_tile("End to end", metric("e2e")),
            Tile("Completed", quantity(context.document.request_throughput), "requests/s", _asked(context)),
            _success_tile(context),
        ])  # fmt: skip
    return Tiles([
        _latency_tile("First answer token" if both else "Time to first token", metric("ttft")),
        *(of_any if both else []),
        _latency_tile(f"Between {'answer ' if both else ''}{'chunks' if gap == 'tbc' else 'tokens'}", metric(gap)),
        _latency_tile("End to end", metric("e2e")),
        Tile("Output", quantity(context.document.output_throughput), "tokens/s",
             f"{quantity(context.document.total_token_throughput)} with input"),
        Tile("Completed", quantity(context.document.request_throughput), "requests/s", _asked(context)),
        _success_tile(context),
    ])  # fmt: skip


def _latency_tile(name: str, metric: Metric) -> Tile:
    p50, p99, known = number(metric.p50), number(metric.p99), bound(metric, "p99")
    if known is not None:
        below = f"P99 {known.replace('>=', '≥ ')} ms"
    else:
        below = "nothing measured" if p99 is None else f"P99 {duration(p99, zeros=True)}"
    if p50 is None:
        return Tile(name, NOT_KNOWN, "", below)
    value, _, unit = duration(p50, zeros=True).partition(" ")
    return Tile(name, value, f"{unit or 'ms'} P50", below)


def _asked(context: ReportContext) -> str:
    planned = number(context.certificate.planned_rate)
    return "closed loop" if planned is None else f"planned {quantity(planned)}{of_open_loops(context.document)}"


def _success_tile(context: ReportContext) -> Tile:
    share = number(context.document.metric("success_rate").value)
    failed, left = number(context.document.failed), number(context.document.counts.left)
    shown = NOT_KNOWN if share is None else f"{100 * share:.4g}"
    below = f"{count(failed)} failed" + (f", {count(left)} left" if left else "")
    return Tile("Succeeded", shown, "" if share is None else "%", below, "bad" if failed else "")
