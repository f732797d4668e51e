"""The top of the page: what was run, whether it can be believed and why, and the figures most people came for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fastllmload.metrics.cold_start import started_cold
from fastllmload.records.whole import unlisted
from fastllmload.report.doubts import bound, token_texts, unsteady_texts
from fastllmload.report.figures import NOT_KNOWN, asked_rate, count, errors, number, percent, quantity
from fastllmload.report.html.evidence import evidence
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.html.scales import duration
from fastllmload.report.html.scene import Scene
from fastllmload.report.html.shell import SIMULATED
from fastllmload.report.html.verdict import Reason, card
from fastllmload.report.reasoning import reasoned
from fastllmload.report.reasons import codes
from fastllmload.report.remedies import remedy
from fastllmload.report.summary import SEVERITIES, part, run_folder, simulated
from fastllmload.report.traffic import came_whole

FAILED = "Latencies are those of the others: read them with the success rate, and see the failures below."
NONE = "No request succeeded, so there are no latencies: see the failures below."
SETTLE = "Run longer, or leave more out at the start (--ramp-share)."
LOST = "Requests in flight, their rate and their time do not fit together: the window was not steady."
CLASSES = 6  # whose lengths are named
DAMAGED, INCOMPLETE, COLD = "DAMAGED FILES", "INCOMPLETE", "COLD START"
WORDS = {
    "valid": "The client kept up: what it measured is the target, within the error bars given.",
    "suspect": "Something limited the client or was not seen: read the reasons before you quote a figure.",
    "invalid": "The client did not do what was asked: these figures do not describe the target.",
}


def title(scene: Scene) -> str:
    """Of the window: what, and the verdict."""
    where = SIMULATED if simulated(scene.document) else ", ".join(target_urls(scene)) or NOT_KNOWN
    words = [*marks(scene), visible(where, 80), visible(load_text(scene), 60), verdict(scene).upper(), "fastllmload"]
    return " · ".join(words)


def marks(scene: Scene) -> list[str]:
    """What must be known wherever a figure of the run is shown."""
    return [DAMAGED] * bool(scene.damage) + [INCOMPLETE] * (not scene.complete) + [COLD] * started_cold(scene.document)


def verdict(scene: Scene) -> str:
    found = scene.get("certificate", "verdict")
    return visible(found, 40) if isinstance(found, str) else "not judged"


def header(scene: Scene) -> Markup:
    """Verdict with its reasons, and what was run."""
    found = verdict(scene)
    told, figures = reasons(scene), evidence(scene)
    few = 3 * len(told) + len(deviations(scene)) <= 9  # lines; then the figures fit below, else beside
    judged = card(
        found,
        "No request was answered: nothing was measured."
        if "nothing_measured" in codes(scene.document)
        else WORDS.get(found, "Nobody judged the client: do not rely on these figures."),
        told,
        over="Verdict on the client",
        tone=found if found in WORDS else "invalid",
        heading="h1",
        extra=joined(_damaged(scene), _incomplete(scene), _cold(scene)),
        below=joined(_listed(scene), figures if few else None),
    )
    facts_ = element("div", element("h2", "What was run"), facts(scene), None if few else figures, class_="card facts")
    return element("section", judged, facts_, id="verdict", class_="top")


def _incomplete(scene: Scene) -> Markup | None:
    if scene.complete:
        return None
    status = visible(scene.document.get("status") or "no status", 40)
    ended = "The run was killed" if status == "running" else "The run did not come to its planned end"
    told = f"{ended}; shown is what was measured until then."
    return element("p", element("strong", f"{INCOMPLETE} ({status}). "), told, class_="incomplete")


def _damaged(scene: Scene) -> Markup | None:
    """Files of the folder that are not as the run left them."""
    if not scene.damage:
        return None
    tables = (
        "The tables hold the figures of run.json, made when the files were whole"
        if scene.complete
        else "Figures that would need them are n/a"
    )
    return element(
        "div",
        element("p", element("strong", f"{DAMAGED}. "), f"{tables}; charts that need these files are left out."),
        element("ul", *(element("li", visible(text)) for text in scene.damage)),
        class_="incomplete",
    )


def _folder(scene: Scene) -> Markup:
    shown = element("code", visible(run_folder(scene.document, str(scene.run.directory))))
    text = unlisted(scene.document)
    return shown if text is None else joined(shown, element("small", text))


def _cold(scene: Scene) -> Markup | None:
    """procedures 0.8: the report's head says so."""
    if not started_cold(scene.document):
        return None
    first = number(scene.get("metrics", "cold_start_latency", "value"))
    took = "" if first is None else f" The first request had its first token after {duration(first)}."
    told = f"The target had just become ready and nothing was sent before.{took}"
    return element("p", element("strong", f"{COLD}. "), told, class_="cold")


def reasons(scene: Scene) -> list[Reason]:
    """Of the certificate, the gravest first and each with what to do; then what befell the run."""
    given = scene.get("certificate", "reasons")
    ranked = sorted(
        given if isinstance(given, list) else [], key=lambda one: SEVERITIES.get(str(part(one, "severity")), 0)
    )
    found = []
    for reason in ranked:
        severity, code, cause = (part(reason, key) for key in ("severity", "code", "cause"))
        text = part(reason, "text") if isinstance(reason, Mapping) else reason
        found.append(Reason(str(severity or "note"), str(text), remedy(code, cause)))
    lost = errors(_by_status(scene))
    if lost != "":
        found.insert(
            0, Reason("failures", f"Requests failed: {lost}.", FAILED if scene.document.get("completed") else NONE)
        )
    return found + _unsteady(scene) + [Reason("incident", text) for text in _texts(scene.document.get("incidents"))]


def _unsteady(scene: Scene) -> list[Reason]:
    """What speaks against one figure standing for the whole window."""
    return [
        *(
            Reason("unsteady", text, LOST if text.startswith("Little") else SETTLE)
            for text in unsteady_texts(scene.document)
        ),
        *(Reason("tokens", text, NONE) for text in token_texts(scene.document)),
    ]


def _by_status(scene: Scene) -> dict[str, int]:
    """Failed requests by status, of the groups in `errors`."""
    found: dict[str, int] = {}
    for group in scene.document.get("errors") or ():
        status, times = part(group, "status"), number(part(group, "count"))
        if times is not None:
            found[str(status)] = found.get(str(status), 0) + int(times)
    return found


def deviations(scene: Scene) -> list[str]:
    """From the methodology, each once."""
    judged = _texts(scene.get("compliance", "deviations"))
    found = [*judged, *_texts(scene.document.get("deviations")), *_texts(scene.get("plan", "deviations"))]
    warm_up = scene.get("plan", "warmup", "deviation")
    if isinstance(warm_up, str):
        found.append(warm_up)
    whole = came_whole(scene.document)
    if not judged and whole:
        which = "the answers" if whole == "all" else whole
        found.append(f"{which} were not streamed: what counts as first token is the whole answer")
    if not judged and scene.get("certificate", "generator_limited") is True:
        found.append("the client may have been the limit: this run cannot stand for saturation of the target")
    return list(dict.fromkeys(found))


def _listed(scene: Scene) -> Markup | None:
    """The deviations below the reasons."""
    found = deviations(scene)
    if not found:
        return None
    items = (element("li", visible(text)) for text in found)
    return element("div", element("h3", "Deviations from the methodology"), element("ul", *items), class_="deviations")


def _texts(given: object) -> list[str]:
    return [str(part(one, "text") or one) for one in given] if isinstance(given, list) else []


def target_urls(scene: Scene) -> list[str]:
    """Without the passwords that a URL may hold."""
    urls = scene.get("target", "urls") or scene.get("config", "target", "urls") or ()
    return [without_password(str(url)) for url in urls]


def without_password(url: str) -> str:
    from fastllmload.redact import Redactor, url_secrets

    return Redactor(url_secrets(url))(url)


def load_text(scene: Scene) -> str:
    """From the plan, which also knows it when a saved plan was sent; else from the settings."""
    load = scene.get("plan", "description", "load") or {}
    settings = scene.get("config", "load") or {}
    slots = part(load, "concurrency") or part(settings, "concurrency")
    if slots is not None:
        return f"closed loop, {count(slots)} in flight"
    rate = part(load, "arrivals", "rate") or part(settings, "rate")
    name = part(load, "arrivals", "name") or part(settings, "arrival") or ""
    shown = asked_rate(float("inf") if rate == "inf" else rate)
    classes = scene.get("plan", "classes")
    if name == "classes" and isinstance(classes, list):
        return f"{shown} in {count(len(classes))} classes"
    if name == "trace":
        return f"a trace, {quantity(rate)}/s on average"
    return "all at once" if name == "inf" else f"{shown} {name}".strip()


def facts(scene: Scene) -> Markup:
    """Load, target, workload, window, when, and how to find it again."""
    rows: list[tuple[str, str | Markup | None]] = [
        ("Load", _load(scene)),
        ("Target", _target(scene)),
        ("Workload", _workload(scene)),
        ("Window", _window(scene)),
        ("Began", _began(scene)),
        ("Plan", _plan(scene)),
        ("Command", _command(scene)),
        ("Folder", _folder(scene)),
    ]
    labels = scene.document.get("metadata")
    if isinstance(labels, Mapping) and labels:
        rows.append(
            ("Labels", ", ".join(f"{visible(key, 60)} = {visible(value, 120)}" for key, value in labels.items()))
        )
    return element("dl", *(joined(element("dt", name), element("dd", text)) for name, text in rows if text is not None))


def _load(scene: Scene) -> str:
    found = load_text(scene)
    bound = scene.get("config", "load", "duration")
    cap = scene.get("config", "load", "max_concurrency")
    loop = scene.get("plan", "description", "load", "loop")
    parts = [f"{found}, open loop" if loop == "open" else found]
    if number(bound) is not None:
        parts.append(f"for {duration(1e3 * float(bound))}")
    planned = scene.get("plan", "requests")
    if number(planned) is not None and loop == "open":
        parts.append(f"{count(planned)} requests planned")
    if cap is not None:
        parts.append(f"at most {count(cap)} in flight")
    return ", ".join(parts)


def _target(scene: Scene) -> Markup:
    target = scene.get("target") or {}
    protocol, model = (
        visible(part(target, "endpoint_type") or NOT_KNOWN, 60),
        visible(part(target, "model") or NOT_KNOWN, 120),
    )
    where = (
        "the simulated engine"
        if simulated(scene.document)
        else ", ".join(visible(url, 200) for url in target_urls(scene))
    )
    return joined(where or NOT_KNOWN, element("br"), element("span", f"{protocol}, model {model}", class_="quiet"))


def _workload(scene: Scene) -> str | None:
    work = scene.get("plan", "description", "workload") or scene.get("config", "workload")
    if not isinstance(work, Mapping):
        return None
    if work.get("name") == "classes":
        return _class_workloads(scene)
    parts = [visible(work.get("name") or NOT_KNOWN, 80)]
    for key, label in (("isl", "prompt"), ("osl", "output")):
        if work.get(key) == "trace":
            parts.append(f"{label} lengths of the trace")
        elif work.get(key) is not None:
            parts.append(f"{label} {visible(work[key], 80)} tokens")
    if number(work.get("prefix_len")):
        parts.append(f"{count(work.get('num_prefixes'))} shared prefix of {count(work['prefix_len'])} tokens")
    if came_whole(scene.document) == "all":
        parts.append("not streamed")
    return ", ".join(parts)


def _class_workloads(scene: Scene) -> str:
    """Each class with its own lengths."""
    found = scene.get("plan", "description", "classes")
    told = [_class_workload(one) for one in found[:CLASSES]] if isinstance(found, list) else []
    return "; ".join(told + ["..."] * (len(told) == CLASSES)) or "by class"


def _class_workload(one: object) -> str:
    lengths = [
        f"{label} {visible(part(one, 'workload', key), 40)}"
        for key, label in (("isl", "prompt"), ("osl", "output"))
        if part(one, "workload", key) is not None
    ]
    return ", ".join(
        [f"{visible(part(one, 'name') or NOT_KNOWN, 40)}: {part(one, 'workload', 'name') or NOT_KNOWN}", *lengths]
    )


def _window(scene: Scene) -> str:
    window, axis = scene.populations, scene.axis
    given = scene.get("window")
    if (axis is None or axis.window is None) and isinstance(given, Mapping):
        sent = count(scene.get("counts", "submitted_in_window"))
        return f"{duration(1e3 * float(given['seconds']))} long; {sent} requests submitted in it"
    if axis is None or axis.window is None:
        return "none: nothing was measured"
    start, end = axis.since_zero(axis.window.w0_ns), axis.since_zero(axis.window.w1_ns)
    n = int(window.submitted.sum())
    return f"{duration(1e3 * start)} to {duration(1e3 * end)} after the start; {count(n)} requests submitted in it"


def _began(scene: Scene) -> str | None:
    phases = scene.document.get("phases") or []
    begun = next((phase.get("start_utc") for phase in phases if phase.get("name") == "measure"), None)
    stamp = begun or scene.get("environment", "time_utc")
    return None if stamp is None else visible(str(stamp).replace("T", " ").replace("Z", " UTC"), 40)


def _command(scene: Scene) -> Markup | None:
    """As it was typed, secrets blanked before it was stored."""
    given = scene.document.get("command")
    words = [without_password(str(word)) for word in given] if isinstance(given, list) else []
    return element("code", visible(shlex.join(words), 1000)) if words else None


def _plan(scene: Scene) -> Markup | None:
    digest, seed = scene.get("plan", "digest"), scene.get("plan", "description", "seed")
    if digest is None:
        return None
    return joined(element("code", visible(digest, 64)[:16]), f", seed {visible(seed, 30)}")


def tiles(scene: Scene) -> Markup:
    """Six figures; eight where answers reason."""
    metrics: Any = scene.get("metrics") or {}
    gap, both = scene.gap_name, reasoned(scene.document)
    of_any = [
        _latency_tile("First token of any kind", part(metrics, "ttft_any")),
        _latency_tile("Per token, with reasoning", part(metrics, "tpot_any")),
    ]
    shown = [
        _latency_tile("First answer token" if both else "Time to first token", part(metrics, "ttft")),
        *(of_any if both else []),
        _latency_tile(f"Between {'answer ' if both else ''}{'chunks' if gap == 'tbc' else 'tokens'}", part(metrics, gap)),
        _latency_tile("End to end", part(metrics, "e2e")),
        _tile("Output", quantity(scene.document.get("output_throughput")), "tokens/s",
              f"{quantity(scene.document.get('total_token_throughput'))} with input"),
        _tile("Completed", quantity(scene.document.get("request_throughput")), "requests/s", _asked(scene)),
        _success_tile(scene),
    ]  # fmt: skip
    return element("section", *shown, class_="tiles eight" if both else "tiles", aria_label="Key figures")


def _latency_tile(name: str, metric: object) -> Markup:
    p50, p99 = number(part(metric, "p50")), number(part(metric, "p99"))
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


def _asked(scene: Scene) -> str:
    planned = number(scene.get("certificate", "planned_rate"))
    return "closed loop" if planned is None else f"planned {quantity(planned)}"


def _success_tile(scene: Scene) -> Markup:
    share = number(scene.get("metrics", "success_rate", "value"))
    failed = number(scene.document.get("failed"))
    shown = NOT_KNOWN if share is None else f"{100 * share:.4g}"
    left = number(scene.get("counts", "left"))
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


def success_text(scene: Scene) -> str:
    """For the latency table: the IETF asks for it wherever latencies stand."""
    share = scene.get("metrics", "success_rate", "value")
    sent = scene.get("counts", "submitted_in_window")
    ok = scene.get("counts", "latency_population")
    return f"{percent(share)} ({count(ok)} of {count(sent)} requests submitted in the window)"
