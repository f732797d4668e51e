"""What a search found, as plain values, sentences and tables: search.json, search.md, search.html, the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.experiment.report.findings import in_percent
from fastllmload.experiment.report.output import write_whole
from fastllmload.experiment.report.parts import aligned, escaped, facts, markdown_head, markdown_tables, with_state
from fastllmload.search.interval_search import CHANGED, Interval
from fastllmload.search.objectives import client_words, part_words, set_aside
from fastllmload.search.peak_search import Peak
from fastllmload.search.trials import TrialRunner
from fastllmload.statistics.sequential_tests import Decision

Document = Mapping[str, Any]

JSON, MARKDOWN, PAGE = "search.json", "search.md", "search.html"
IMPLIED = "implied"  # decision of a level that was not proven, below one that passed
DIGITS = 3  # of an end of the answer that lies between levels
UNITS = {"rate": "requests/s", "concurrency": "in flight"}
FIGURES = {
    "req_s": "req/s",
    "output_tok_s": "tok/s",
    "ttft_p50_ms": "TTFT P50 (ms)",
    "ttft_p99_ms": "TTFT P99 (ms)",
    "tpot_p99_ms": "TPOT P99 (ms)",
    "success_rate": "Success",
}


def interval_answer(found: Interval, bench: TrialRunner) -> dict[str, Any]:
    """`answer` of search.json for a threshold."""
    goal = bench.asked.goal
    assert goal is not None  # of a threshold
    limit = None if found.above is None else bench.judgements.get(found.above)
    return {
        "level": found.best,
        "low": None if found.drifted else surely(found, bench),
        "high": None if found.drifted else found.above,
        "ended_by": found.ended_by,
        "confirmed": found.confirmed,
        "limited_by": None if limit is None else limit.reason,
        "at_level": None if found.best is None else figures_at(bench, found.best),
        "best_output_tok_s": most_tokens(found, bench),
        "looks": sum(found.looks.values()),
        "levels": len(found.decisions),
        "notes": list(found.notes),
    }


def surely(found: Interval, bench: TrialRunner) -> float | None:
    """The lower end of the answer: the most that any level says that passed; None without any."""
    goal, best = bench.asked.goal, found.best
    assert goal is not None  # of a threshold
    if best is None:
        return None
    passed = [best] if goal.sustain else found.passed
    return max(goal.claim(level, found.decisions, bench.growth_left(level)) for level in passed)


def most_tokens(found: Interval, bench: TrialRunner) -> float | None:
    """Highest output tokens/s among the levels that passed: with `fluid`, the fluid token generation rate."""
    passed = [level for level, decision in found.decisions.items() if decision is Decision.PASS]
    rates = [rate for level in passed if (rate := figures_at(bench, level).get("output_tok_s")) is not None]
    return max(rates, default=None)


def figures_at(bench: TrialRunner, level: float) -> dict[str, float | None]:
    """Of the longest run at *level*."""
    runs = bench.runs.get(level) or ()
    return dict(max(runs, key=lambda run: run.seconds).figures) if runs else {}


def peak_answer(found: Peak, bench: TrialRunner) -> dict[str, Any]:
    """`answer` of search.json for a peak."""
    best = None if found.best is None else found.heights[found.best]
    return {
        "level": found.best,
        "low": found.low,
        "high": found.high,
        "ended_by": found.ended_by,
        "smooth_goodput": None if best is None else best.value,
        "smooth_goodput_half_width": None if best is None else best.half,
        "contenders": list(found.contenders),
        "at_level": None if found.best is None else figures_at(bench, found.best),
        "looks": sum(found.looks.values()),
        "levels": len(found.heights),
        "notes": [],
    }


def interval_rows(found: Interval, bench: TrialRunner) -> list[dict[str, Any]]:
    """One entry per level, ascending."""
    best = 0.0 if found.best is None or found.drifted else found.best
    implied = {level for level, one in found.decisions.items() if one is Decision.UNDECIDED and level < best}
    return [
        {
            "level": level,
            "decision": IMPLIED if level in implied else str(decision),
            "reason": (f"holds if {best:g} does; " if level in implied else "") + bench.judgements[level].reason,
            "tests": [
                {**msgspec.to_builtins(part), "words": part_words(part)} for part in bench.judgements[level].parts
            ],
            "looks": found.looks[level],
            "seconds": sum(run.seconds for run in bench.runs.get(level, ())),
            "figures": figures_at(bench, level),
        }
        for level, decision in sorted(found.decisions.items())
    ]


def peak_rows(found: Peak, bench: TrialRunner) -> list[dict[str, Any]]:
    return [
        {
            "level": level,
            "decision": peak_decision(level, found),
            "reason": peak_reason(level, found, bench),
            "smooth_goodput": height.value,
            "half_width": height.half,
            "looks": found.looks[level],
            "seconds": sum(run.seconds for run in bench.runs.get(level, ())),
            "figures": figures_at(bench, level),
        }
        for level, height in sorted(found.heights.items())
    ]


def peak_decision(level: float, found: Peak) -> str:
    if not found.heights[level].known:
        return str(Decision.CLIENT)
    return "contender" if level in found.contenders else "below"


def peak_reason(level: float, found: Peak, bench: TrialRunner) -> str:
    """How high it is there, and on how many looks that rests."""
    height, runs = found.heights[level], bench.runs.get(level, [])
    limits = list(dict.fromkeys(reason for run in runs for reason in run.limited))
    if not height.known:
        return client_words([*limits, bench.refused[level]] if level in bench.refused else limits, found.looks[level])
    words = f"{height.value:,.5g} +/- {height.half:,.3g} tokens/s"
    aside = sum(bool(run.limited) for run in runs)
    return f"{words}; {set_aside(aside, len(runs))}" if aside else words


# -- words ------------------------------------------------------------------------------------------------------------


def answer_lines(document: Document) -> Iterator[str]:
    """The answer in sentences, the most important first."""
    answer, parameters = document["answer"], document["parameters"]["search"]
    what, unit = parameters["what"], UNITS[parameters["what"]]
    sure = f"{100 * parameters['confidence']:g}%"
    yield f"objective: {document['sentence']}"
    level = answer["level"]
    low, high = bounds(document)
    whole = document["status"] == "done"
    if answer["ended_by"] == CHANGED:
        yield f"THE SYSTEM CHANGED DURING THE SEARCH: {ENDED[CHANGED]}"
    if level is None and "smooth_goodput" in answer:
        yield f"no smooth goodput is known{': the client was the limit at every level' if whole else ' so far'}"
    elif level is None:
        yield f"no {what} was found to hold{'' if whole else ' so far'}"
        yield from bound_lines(low, high, unit, sure)
    elif "smooth_goodput" in answer:
        yield f"highest smooth goodput: {answer['smooth_goodput']:,.5g} tokens/s at {what} {level:g}"
        yield from bound_lines(low, high, unit, sure)
    else:
        yield f"highest {what} that holds: {level:g} {unit}"
        yield from bound_lines(low, high, unit, sure)
    if answer.get("limited_by"):
        yield f"limited by: {answer['limited_by']}"
    why = ended_words(document) if whole else ""  # cut short: the warnings say by what
    yield from (text for text in (why, CONFIRMED.get(answer.get("confirmed"), "")) if text)
    if document["objective"] == "fluid" and answer["best_output_tok_s"] is not None:
        yield f"fluid token generation rate: {answer['best_output_tok_s']:,.5g} output tokens/s"
    yield from answer["notes"]


def bounds(document: Document) -> tuple[str | None, str | None]:
    """Both ends of the answer as text; of one that is no tested level, three digits, rounded away from the answer."""
    levels = {entry["level"] for entry in document["decisions"]}

    def end(name: str, rounded: Callable[[float], int]) -> str | None:
        value = document["answer"][name]
        if value is None or value in levels or value <= 0 or not math.isfinite(value):
            return None if value is None else f"{value:g}"
        scale = 10.0 ** max(0, DIGITS - 1 - math.floor(math.log10(value)))
        return f"{rounded(value * scale) / scale:.15g}"

    return end("low", math.floor), end("high", math.ceil)


def bound_lines(low: str | None, high: str | None, unit: str, sure: str) -> Iterator[str]:
    """The interval, as far as it is known."""
    if low is not None and high is not None:
        yield f"with {sure} confidence the answer is between {low} and {high} {unit}"
    elif low is not None:
        yield f"with {sure} confidence the answer is at least {low} {unit}"
    elif high is not None:
        yield f"with {sure} confidence no level from {high} {unit} on holds"


ENDED = {
    "bracket": "",
    "levels": "the number of levels was used up before the step was reached: more --max-levels narrow the interval",
    "bound": "the upper bound --max was reached without a failure: the true answer may be higher",
    "minimum": "the lowest level that was measured fails; of lower ones nothing is said. Start lower (--min), unless "
    "requests miss the objective at any load: then none holds",
    "undecided": "not every level could be decided: longer levels (--level-duration) or more --runs decide more",
    "nothing": "nothing was measured",
    CHANGED: "levels measured before and after it are not of one system, so no interval is stated; find out what changed, "
    "and search again",
}


def ended_words(document: Document) -> str:
    """What ended the search, where that needs to be said; of the client, at which levels and how often it was tried."""
    ended = document["answer"]["ended_by"]
    if ended == CHANGED:
        return ""  # was said first
    if ended != "client":
        return ENDED[ended]
    limited = [entry for entry in document["decisions"] if entry["decision"] == Decision.CLIENT]
    tried = sum(entry["looks"] for entry in limited)
    where = ", ".join(f"{entry['level']:g}" for entry in limited)
    return (
        f"the client was the limit at {where}, in {'each of ' if tried > 1 else ''}{tried} look{'s' * (tried > 1)}: of "
        "the system nothing is known there; free this host, or give the client more of it (fastllmload doctor)"
    )


CONFIRMED = {
    True: "confirmed: measured afresh, the level passed again",
    False: "measured afresh, the level was not contradicted, but that run alone does not prove it",
}


def table_of(document: Document) -> dict[str, Any]:
    """All levels."""
    name = f"{document['parameters']['search']['what']} ({UNITS[document['parameters']['search']['what']]})"
    columns = [name.capitalize(), "Decision", "Looks", "Measured (s)", *FIGURES.values()]
    rows = [
        [
            f"{entry['level']:g}", entry["decision"], entry["looks"], entry["seconds"],
            *(in_percent(key, entry["figures"].get(key)) for key in FIGURES),
        ]
        for entry in document["decisions"]
    ]  # fmt: skip
    note = "Figures are those of the longest look; the seconds are those of all runs, re-tests included."
    return {"title": "Levels", "columns": columns, "rows": rows, "notes": [note]}


def reason_table(document: Document) -> dict[str, Any]:
    """Why each level was decided as it was."""
    rows = [[f"{entry['level']:g}", entry["decision"], entry["reason"]] for entry in document["decisions"]]
    return {"title": "Decisions", "columns": ["Level", "Decision", "Why"], "rows": rows, "notes": []}


def run_table(document: Document) -> dict[str, Any]:
    """All runs in the order in which they were measured, with the draft's own criteria."""
    columns = [
        "Run",
        "Level",
        "Look",
        "tok/s",
        "TTFT P99 (ms)",
        "Client",
        "Criteria of IETF 5.2.3.1 that fired",
        "Folder",
    ]
    rows = [
        [
            str(run["number"]), f"{run['level_value']:g}", run["look"], run["output_tok_s"], run["ttft_p99_ms"],
            run["certificate"], ", ".join(run["criteria"]["fired"]) or "none", run["folder"],
        ]
        for run in document["levels"]
        if "criteria" in run
    ]  # fmt: skip
    return {"title": "Runs in the order measured", "columns": columns, "rows": rows, "notes": []}


def headline(document: Document) -> str:
    return with_state(f"Search: {document['objective']}", document)


def lines(document: Document) -> Iterator[str]:
    """For a terminal; each level has said already why it was decided as it was."""
    yield ""
    yield headline(document)
    yield from aligned(table_of(document))
    yield ""
    yield from answer_lines(document)
    yield from (f"warning    {text}" for text in document["warnings"])


def markdown(document: Document) -> str:
    return "\n".join(_markdown(document)) + "\n"


def _markdown(document: Document) -> Iterator[str]:
    yield from markdown_head(headline(document), document)
    yield from (f"* {escaped(line)}" for line in answer_lines(document))
    yield from (f"* warning: {escaped(text)}" for text in document["warnings"])
    yield from markdown_tables([table_of(document), reason_table(document), run_table(document)])


def page(document: Document) -> str:
    from fastllmload.report.html.page_layout import (
        PageHead,
        PageSection,
        PageTable,
        Plot,
        PlotAxis,
        PlotSeries,
        Rule,
        page_layout,
    )

    answer, levels = document["answer"], document["decisions"]
    known = [entry for entry in levels if entry["figures"]]
    x = [entry["level"] for entry in known]
    unit = UNITS[document["parameters"]["search"]["what"]]
    marks = [Rule("x", answer[end], end) for end in ("low", "high") if answer[end] is not None]

    def column(name: str) -> list[float]:
        return [math.nan if (value := entry["figures"].get(name)) is None else value for entry in known]

    ttft = [PlotSeries("P50", y=column("ttft_p50_ms"), x=x), PlotSeries("P99", y=column("ttft_p99_ms"), x=x)]
    output = [PlotSeries("output", y=column("output_tok_s"), x=x)]
    plots = [
        Plot(
            "line",
            "Output tokens/s by level",
            output,
            PlotAxis("level", unit),
            PlotAxis("output", "tokens/s"),
            marks=marks,
        ),
        Plot("line", "TTFT by level", ttft, PlotAxis("level", unit), PlotAxis("TTFT", "ms"), marks=marks),
    ]
    tables = [
        PageTable(table["columns"], table["rows"], notes=table["notes"])
        for table in (table_of(document), reason_table(document), run_table(document))
    ]
    first, *others = list(answer_lines(document))[1:]
    sections = [
        PageSection("Answer", [*others, *document["warnings"]]),
        PageSection("Levels", [*(plots if known else ()), tables[0]]),
        PageSection("Why each level was decided so", [tables[1]]),
        PageSection("Runs in the order measured", [tables[2]]),
    ]
    closed = answer["low"] is not None and answer["high"] is not None
    word, tone = ("found", "valid") if closed else ("open", "suspect") if answer["level"] else ("none", "invalid")
    if answer["ended_by"] == CHANGED:
        word, tone = "changed", "invalid"
    if document["status"] != "done":
        word, tone = "incomplete", "suspect"
    head = PageHead(
        headline(document), lead=document["sentence"], verdict=word, meaning=first, tone=tone, facts=facts(document),
        simulated=bool(document["manifest"]["simulated"]),
    )  # fmt: skip
    return page_layout(head, sections)


def write(folder: Path, document: Document) -> Sequence[str]:
    """search.md and search.html, each whole or not at all; their names."""
    return write_whole(folder, {MARKDOWN: markdown(document), PAGE: page(document)})
