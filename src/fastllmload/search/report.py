"""Renders the result of a search as values, sentences and tables: search.json, search.md, search.html, terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fastllmload.documents.experiment import FindingTable
from fastllmload.documents.fields import known
from fastllmload.documents.search import Answer, CriterionEntry, LevelDecision, SearchDocument, TrialFigures
from fastllmload.experiment.report.findings import in_percent
from fastllmload.experiment.report.parts import facts, table_of, terminal_lines, with_state
from fastllmload.experiment.saved_report import SavedReport
from fastllmload.report.blocks import Items, Page, Paragraph, Section, Verdict
from fastllmload.report.charts import Axis, Chart, Rule, Series
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.search.driver import CHANGED, Interval
from fastllmload.search.judges import criterion_text
from fastllmload.search.objectives import client_limit_text, discarded_text
from fastllmload.search.peak_search import Peak
from fastllmload.search.trials import TrialRunner
from fastllmload.statistics.sequential_tests import Decision

JSON = "search.json"
IMPLIED = "implied"  # decision on an undecided level below one that passed
DIGITS = 3  # significant digits of an end of the answer that lies between levels
UNITS = {"rate": "requests/s", "concurrency": "in flight"}
FIGURES = {
    "req_s": "req/s",
    "output_tok_s": "tok/s",
    "ttft_p50_ms": "TTFT P50 (ms)",
    "ttft_p99_ms": "TTFT P99 (ms)",
    "tpot_p99_ms": "TPOT P99 (ms)",
    "success_rate": "Success",
}


def interval_answer(found: Interval, runner: TrialRunner) -> Answer:
    """`answer` of search.json for a threshold."""
    objective = runner.requested.objective
    assert objective is not None  # of a threshold
    limit = None if found.above is None else runner.judgements.get(found.above)
    return Answer(
        level=found.best,
        low=None if found.system_changed else answer_lower_bound(found, runner),
        high=None if found.system_changed else found.above,
        ended_by=found.ended_by,
        confirmed=found.confirmed,
        limited_by=None if limit is None else limit.reason,
        at_level=None if found.best is None else figures_at(runner, found.best),
        best_output_tok_s=highest_output_rate(found, runner),
        looks=sum(found.trials.values()),  # prose: allow (key)
        levels=len(found.decisions),
        notes=found.notes,
    )


def answer_lower_bound(found: Interval, runner: TrialRunner) -> float | None:
    """Lower end of the answer: the highest lower bound that a passing level gives; None if no level passed."""
    objective, best = runner.requested.objective, found.best
    assert objective is not None  # of a threshold
    if best is None:
        return None
    passed = [best] if objective.sustain else found.passed
    return max(objective.lower_bound(level, found.decisions, runner.max_growth(level)) for level in passed)


def highest_output_rate(found: Interval, runner: TrialRunner) -> float | None:
    """Highest output tokens/s of the levels that passed; with `fluid`, the fluid token generation rate."""
    passed = [level for level, decision in found.decisions.items() if decision is Decision.PASS]
    rates = [rate for level in passed if (rate := figures_at(runner, level).output_tok_s) is not None]
    return max(rates, default=None)


def figures_at(runner: TrialRunner, level: float) -> TrialFigures:
    """Figures of the longest run at *level*."""
    runs = runner.runs.get(level) or ()
    return max(runs, key=lambda run: run.seconds).figures if runs else TrialFigures()


def peak_answer(found: Peak, runner: TrialRunner) -> Answer:
    """`answer` of search.json for a peak."""
    best = None if found.best is None else found.heights[found.best]
    return Answer(
        level=found.best,
        low=found.low,
        high=found.high,
        ended_by=found.ended_by,
        smooth_goodput=None if best is None else best.value,
        smooth_goodput_half_width=None if best is None else best.half,
        contenders=found.contenders,
        at_level=None if found.best is None else figures_at(runner, found.best),
        looks=sum(found.trials.values()),  # prose: allow (key)
        levels=len(found.heights),
    )


def interval_rows(found: Interval, runner: TrialRunner) -> tuple[LevelDecision, ...]:
    """One entry per level, ascending."""
    best = 0.0 if found.best is None or found.system_changed else found.best
    rows = []
    for level, decision in sorted(found.decisions.items()):
        implied, by = decision is Decision.UNDECIDED and level < best, runner.judgements[level]
        reason = (f"holds if {best:g} does; " if implied else "") + by.reason
        tests = tuple(CriterionEntry(**msgspec.to_builtins(part), words=criterion_text(part)) for part in by.parts)
        name = IMPLIED if implied else str(decision)
        rows.append(row(runner, level, found.trials[level], decision=name, reason=reason, tests=tests))
    return tuple(rows)


def row(runner: TrialRunner, level: float, trials: int, **fields: Any) -> LevelDecision:
    seconds = sum(run.seconds for run in runner.runs.get(level, ()))
    figures = figures_at(runner, level)
    return LevelDecision(level=level, looks=trials, seconds=seconds, figures=figures, **fields)  # prose: allow (key)


def peak_rows(found: Peak, runner: TrialRunner) -> tuple[LevelDecision, ...]:
    return tuple(
        row(
            runner, level, found.trials[level], decision=peak_decision(level, found),
            reason=peak_reason(level, found, runner), smooth_goodput=height.value, half_width=height.half,
        )
        for level, height in sorted(found.heights.items())
    )  # fmt: skip


def peak_decision(level: float, found: Peak) -> str:
    if not found.heights[level].known:
        return str(Decision.CLIENT)
    return "contender" if level in found.contenders else "below"


def peak_reason(level: float, found: Peak, runner: TrialRunner) -> str:
    """Smooth goodput at *level*, and how many trials were discarded."""
    height, runs = found.heights[level], runner.runs.get(level, [])
    limits = list(dict.fromkeys(reason for run in runs for reason in run.limited))
    if not height.known:
        return client_limit_text(
            [*limits, runner.refused[level]] if level in runner.refused else limits, found.trials[level]
        )
    words = f"{height.value:,.5g} +/- {height.half:,.3g} tokens/s"
    discarded = sum(bool(run.limited) for run in runs)
    return f"{words}; {discarded_text(discarded, len(runs))}" if discarded else words


# -- text -------------------------------------------------------------------------------------------------------------


def answer_lines(document: SearchDocument) -> Iterator[str]:
    """The answer in sentences, the most important first."""
    answer, parameters = document.answer or Answer(), document.parameters.search
    what, unit = parameters.what, UNITS[parameters.what]
    confidence = f"{100 * parameters.confidence:g}%"
    yield f"objective: {document.sentence}"
    low, high = bounds(document)
    complete = document.status == "done"
    if answer.ended_by == CHANGED:
        yield f"THE SYSTEM CHANGED DURING THE SEARCH: {ENDED[CHANGED]}"
    if answer.level is None and document.is_peak:
        yield f"no smooth goodput is known{': the client was the limit at every level' if complete else ' so far'}"
    else:
        if answer.level is None:
            yield f"no {what} was found to hold{'' if complete else ' so far'}"
        elif answer.smooth_goodput is not None:
            yield f"highest smooth goodput: {answer.smooth_goodput:,.5g} tokens/s at {what} {answer.level:g}"
        else:
            yield f"highest {what} that holds: {answer.level:g} {unit}"
        yield from bound_lines(low, high, unit, confidence)
    if answer.limited_by:
        yield f"limited by: {answer.limited_by}"
    why = ended_text(document) if complete else ""  # interrupted: the warnings say why
    confirmed = "" if answer.confirmed is None else CONFIRMED[answer.confirmed]
    yield from (text for text in (why, confirmed) if text)
    if document.objective == "fluid" and answer.best_output_tok_s is not None:
        yield f"fluid token generation rate: {answer.best_output_tok_s:,.5g} output tokens/s"
    yield from answer.notes


def bounds(document: SearchDocument) -> tuple[str | None, str | None]:
    """Both ends of the answer as text. An end that was not tested has three digits and is rounded outwards."""
    levels, answer = {entry.level for entry in document.decisions}, document.answer or Answer()

    def end(value: float | None, rounded: Callable[[float], int]) -> str | None:
        if value is None or value in levels or value <= 0 or not math.isfinite(value):
            return None if value is None else f"{value:g}"
        scale = 10.0 ** max(0, DIGITS - 1 - math.floor(math.log10(value)))
        return f"{rounded(value * scale) / scale:.15g}"

    return end(answer.low, math.floor), end(answer.high, math.ceil)


def bound_lines(low: str | None, high: str | None, unit: str, confidence: str) -> Iterator[str]:
    """The interval as a sentence, with the ends that are known."""
    if low is not None and high is not None:
        yield f"with {confidence} confidence the answer is between {low} and {high} {unit}"
    elif low is not None:
        yield f"with {confidence} confidence the answer is at least {low} {unit}"
    elif high is not None:
        yield f"with {confidence} confidence no level from {high} {unit} on holds"


ENDED = {
    "bracket": "",
    "levels": "the number of levels was used up before the step was reached: more --max-levels narrow the interval",
    "bound": "the upper bound --max was reached without a failure: the true answer may be higher",
    "minimum": "the lowest level that was measured fails, which says nothing about lower ones. Start lower (--min), unless "
    "requests miss the objective at any load: then no level holds",
    "undecided": "not every level could be decided: longer levels (--level-duration) or more --runs decide more",
    "nothing": "nothing was measured",
    CHANGED: "levels measured before and after the change are of different systems, so no interval is stated; find out "
    "what changed, and search again",
}


def ended_text(document: SearchDocument) -> str:
    """What ended the search, if that needs saying; for the client, at which levels and in how many trials."""
    ended = (document.answer or Answer()).ended_by
    if ended == CHANGED:
        return ""  # the first line says so
    if ended != "client":
        return ENDED[ended]
    limited = [entry for entry in document.decisions if entry.decision == Decision.CLIENT]
    tried = sum(entry.looks for entry in limited)  # prose: allow (key)
    where = ", ".join(f"{entry.level:g}" for entry in limited)
    return (
        f"the client was the limit at {where}, in {'each of ' if tried > 1 else ''}{tried} trial{'s' * (tried > 1)}: "
        "nothing is known of the system there; free this host, or give the client more of it (fastllmload doctor)"
    )


CONFIRMED = {
    True: "confirmed: the level passed its re-test",
    False: "the re-test does not contradict the level, but does not prove it by itself",
}


def level_table(document: SearchDocument) -> FindingTable:
    """Decision and figures of all levels."""
    what = document.parameters.search.what
    columns = (f"{what} ({UNITS[what]})".capitalize(), "Decision", "Trials", "Measured (s)", *FIGURES.values())
    rows = tuple(
        (
            f"{entry.level:g}", entry.decision, entry.looks, entry.seconds,  # prose: allow (key)
            *(in_percent(key, getattr(entry.figures, key)) for key in FIGURES),
        )
        for entry in document.decisions
    )  # fmt: skip
    note = "Figures are those of the longest trial; the seconds are those of all runs, re-tests included."
    return FindingTable(title="Levels", columns=columns, rows=rows, notes=(note,))


def reason_table(document: SearchDocument) -> FindingTable:
    """The reason for the decision on each level."""
    rows = tuple((f"{entry.level:g}", entry.decision, entry.reason) for entry in document.decisions)
    return FindingTable(title="Decisions", columns=("Level", "Decision", "Why"), rows=rows)


def run_table(document: SearchDocument) -> FindingTable:
    """All runs in the order in which they were measured, with the draft's own criteria."""
    fired = "Criteria of IETF 5.2.3.1 that fired"
    columns = ("Run", "Level", "Trial", "tok/s", "TTFT P99 (ms)", "Client", fired, "Folder")
    rows = tuple(
        (
            str(run.number), f"{known(run.level_value) or 0:g}", run.look,  # prose: allow (key)
            known(run.output_tok_s), known(run.ttft_p99_ms), run.certificate,
            ", ".join(run.criteria.fired) or "none", run.folder,
        )
        for run in document.levels
        if run.criteria is not None
    )  # fmt: skip
    return FindingTable(title="Runs in the order measured", columns=columns, rows=rows)


def headline(document: SearchDocument) -> str:
    return with_state(f"Search: {document.objective}", document)


def lines(document: SearchDocument) -> Iterator[str]:
    """The report for a terminal, without the reasons, which were printed level by level."""
    answer = map(Paragraph, answer_lines(document))
    yield from terminal_lines(headline(document), [table_of(level_table(document)), *answer], document)


def page(document: SearchDocument) -> Page:
    first, *others = list(answer_lines(document))[1:]
    answer = [*others, *(f"warning: {text}" for text in document.warnings)]
    sections = [
        *([Section("Answer", [Items(answer)])] if answer else []),
        Section("Levels", [*charts(document), table_of(level_table(document), "")]),
        Section("Reason for each decision", [table_of(reason_table(document), "")]),
        Section("Runs in the order measured", [table_of(run_table(document), "")]),
    ]
    word, tone = outcome(document)
    verdict, simulated = Verdict(word, first, tone=tone), document.manifest.simulated
    return titled_page(
        headline(document), sections, facts(document), lead=f"objective: {document.sentence}", verdict=verdict,
        simulated=simulated,
    )  # fmt: skip


def charts(document: SearchDocument) -> list[Chart]:
    """Throughput and TTFT over the levels that were measured, with the ends of the answer."""
    answer, unit = document.answer or Answer(), UNITS[document.parameters.search.what]
    measured = [entry for entry in document.decisions if entry.figures != TrialFigures()]
    marks = [Rule("x", end, name) for name, end in (("low", answer.low), ("high", answer.high)) if end is not None]

    def curve(name: str, key: str) -> Series:
        y = [math.nan if (value := getattr(entry.figures, key)) is None else value for entry in measured]
        return Series(name, y, [entry.level for entry in measured], style="curve")

    output, ttft = [curve("output", "output_tok_s")], [curve("P50", "ttft_p50_ms"), curve("P99", "ttft_p99_ms")]
    plots = [
        Chart("Output tokens/s by level", output, Axis("level", unit), Axis("output", "tokens/s"), marks=marks),
        Chart("TTFT by level", ttft, Axis("level", unit), Axis("TTFT", "ms"), marks=marks),
    ]
    return plots if measured else []


def outcome(document: SearchDocument) -> tuple[str, str]:
    """A word for how the search ended, and its tone."""
    answer = document.answer or Answer()
    if document.status != "done":
        return "incomplete", "suspect"
    if answer.ended_by == CHANGED:
        return "changed", "invalid"
    if answer.low is not None and answer.high is not None:
        return "found", "valid"
    return ("open", "suspect") if answer.level else ("none", "invalid")


REPORT = SavedReport(JSON, SearchDocument, lambda found: found.answer is not None, lines, page)
