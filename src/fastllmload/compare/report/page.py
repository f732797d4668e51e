"""Renders a comparison as an HTML page: workload, gates, differences as a forest plot, curves of both sides, set-up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastllmload.compare.comparison import Comparison, Row
from fastllmload.compare.gate import FAILED, PASSED, UNDECIDED, GateResult
from fastllmload.compare.report.blocks import (
    SAME_SETUP,
    change_text,
    explained,
    interval_text,
    p_text,
    reasons,
    setup_table,
    side_text,
    test_text,
    value_text,
)
from fastllmload.compare.series import RunSeries
from fastllmload.compare.side import Side
from fastllmload.metrics.distribution.summary import without_nulls
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.run import load
from fastllmload.report.html.page_layout import (
    Effect,
    Forest,
    PageHead,
    PageSection,
    Plot,
    PlotAxis,
    PlotSeries,
    Table,
    VerdictReason,
    page_layout,
)
from fastllmload.report.text.tokens import OF_REASONING

CURVES = {
    "ttft": "Time to first token",
    "ttft_any": "Time to first token of any kind, reasoning included",
    "tpot": "Per output token",
    "tpot_any": "Per token of any kind, reasoning included",
    "e2e": "End to end",
}
TONES = {FAILED: "invalid", UNDECIDED: "suspect", PASSED: "valid"}
MEANINGS = {
    FAILED: "A limit is broken, and chance does not explain it.",
    UNDECIDED: "A limit is broken, but these runs cannot say whether by chance.",
    PASSED: "No limit is broken, as far as these runs can tell.",
}


def page(comparison: Comparison, gates: Sequence[GateResult]) -> str:
    """The HTML text. RunFolderError for rows of another version."""
    gate_table = Table("", ["Rule", "Outcome", "Why"], [[each.gate.text, each.outcome, each.why] for each in gates])
    setup = setup_table(comparison.manifest, ["base", "new"])
    forest = Forest([_effect(row) for row in comparison.rows], ("base", "new"), list(reasons(comparison)))
    method = (
        "A line is the 95 % interval of the change from base to new. Better and worse are reported only with p < 0.05 after "
        f"Holm over all figures of the table, and an interval without 0. Test: {test_text(comparison)}."
    )
    sections = [
        PageSection("Same workload?", _workload(comparison)),
        *([PageSection("Gates", [gate_table])] if gates else []),
        PageSection("Differences", [forest], method),
        PageSection("Latencies of both sides", _curves(comparison), "All runs of a side together, by percentile."),
        PageSection("Set-up", [setup if comparison.manifest else SAME_SETUP]),
    ]
    title = f"{comparison.new.name} against {comparison.base.name}"
    return page_layout(_head(title, comparison, gates), sections)


def _head(title: str, comparison: Comparison, gates: Sequence[GateResult]) -> PageHead:
    word, meaning, tone = _verdict(comparison, gates)
    notes = [VerdictReason("note", text.removeprefix("note: ")) for text in explained(comparison)]
    return PageHead(
        title,
        verdict=word,
        meaning=meaning,
        tone=tone,
        reasons=notes,
        facts={"Base": side_text(comparison.base), "New": side_text(comparison.new), "Test": test_text(comparison)},
        simulated=any(
            run.document.target.simulated is True for side in (comparison.base, comparison.new) for run in side.runs
        ),
    )


def _verdict(comparison: Comparison, gates: Sequence[GateResult]) -> tuple[str, str, str]:
    """(word, sentence, tone) of the gates if there are any, else of the figures."""
    if comparison.workload:
        return "different workloads", "The sides were not sent the same requests and are not comparable.", "suspect"
    if gates:
        worst = next(name for name in (FAILED, UNDECIDED, PASSED) if any(each.outcome == name for each in gates))
        return f"gates {worst.lower()}", MEANINGS[worst], TONES[worst]
    found = {row.result for row in comparison.rows}
    if found >= {"better", "worse"}:
        return "mixed", "Some figures are better and some worse.", "suspect"
    if "worse" in found:
        return "worse", "The new side is worse in what could be shown.", "suspect"
    if "better" in found:
        return "better", "The new side is better in what could be shown.", "valid"
    if found <= {"not estimable", "no value"}:
        return "not estimable", "These runs are too short for an interval, so chance cannot be excluded.", "suspect"
    return "no difference shown", "This does not prove that there is none: see how wide the intervals are.", "note"


def _workload(comparison: Comparison) -> list[Table | str]:
    if comparison.workload:
        table = Table("", ["Differs in"], [[each] for each in comparison.workload])
        return ["No. The figures below are not comparable.", table]
    digests = {run.digest for side in (comparison.base, comparison.new) for run in side.runs}
    if len(digests) == 1:
        return ["Yes: all runs were sent one plan, the same requests at the same instants."]
    return ["Yes: the same settings on both sides. Some runs have other instants and prompts (other seeds)."]


def _effect(row: Row) -> Effect:
    share = row.figure.is_share
    change = row.change.difference if share else row.change.relative
    ends = row.change.interval if share else row.change.relative_interval
    low, high = (None, None) if ends is None else (100 * ends[0], 100 * ends[1])
    texts = change_text(row), interval_text(row), p_text(row)
    middle = None if change is None else 100 * change
    base, new = (value_text(side.value, at_least=side.at_least) for side in (row.base, row.new))
    return Effect(row.figure.name, base, new, middle, low, high, texts, row.result)


def _curves(comparison: Comparison) -> list[Plot | str]:
    """Curves of the requests of the latency population; a side with a damaged run has none."""
    sides = (comparison.base, comparison.new)
    values = [values_of(side) for side in sides]
    parts: list[Plot | str] = []
    for side, each in zip(sides, values, strict=True):
        if not each:
            parts.append(f"{side.name} is not plotted: files of its runs are damaged.")
    compared = {row.figure.metric for row in comparison.rows}
    for metric, title in CURVES.items():
        if metric in OF_REASONING and metric not in compared:
            continue
        series = [
            PlotSeries(label if side.name == label else f"{label}: {side.name}", each[metric])
            for label, side, each in zip(("base", "new"), sides, values, strict=True)
            if len(each.get(metric, ()))
        ]
        if series:
            parts.append(Plot("cdf", title, series, y=PlotAxis(unit="ms")))
    return parts


def values_of(side: Side) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Metric → ms of all runs of the side; empty where a run is damaged."""
    found: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {name: [] for name in CURVES}
    for each in side.runs:
        run = load(each.folder, contents=False)
        if run.lost(ROWS, EVENTS):
            return {}
        latencies = RunSeries(run, side.name).latencies
        for name, parts in found.items():
            parts.append(without_nulls(latencies[name]) / 1e6)
    return {name: np.concatenate(parts) for name, parts in found.items()}
