"""A comparison as a page: workload, gates, differences as a forest plot, curves of both sides, set-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fastllmload.compare.comparison import Comparison
from fastllmload.compare.gate import FAILED, PASSED, UNDECIDED, GateResult
from fastllmload.compare.report.blocks import (
    SAME,
    SAME_SETUP,
    explained,
    figure_table,
    reasons,
    setup_table,
    side_text,
    test_text,
)
from fastllmload.compare.series import RunSeries
from fastllmload.compare.side import Side
from fastllmload.metrics.distribution.summary import without_nulls
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.run import load
from fastllmload.report.blocks import Block, Page, Paragraph, Section, Table, Verdict, VerdictReason
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.series.curves import cdf
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


def page(comparison: Comparison, gates: Sequence[GateResult]) -> Page:
    """RunFolderError for rows of another version."""
    gate_table = Table("", ["Rule", "Outcome", "Why"], [[each.gate.text, each.outcome, each.why] for each in gates])
    setup = setup_table(comparison.manifest, ["base", "new"]) if comparison.manifest else Paragraph(SAME_SETUP)
    figures, why = figure_table(comparison, False), list(reasons(comparison))
    intro = Paragraph("All runs of a side together, by percentile.")
    sections = [
        Section("Same workload?", _workload(comparison)),
        *([Section("Gates", [gate_table])] if gates else []),
        Section("Differences", [Paragraph(_method(comparison)), replace(figures, notes=[*figures.notes, *why])]),
        Section("Latencies of both sides", [intro, *_curves(comparison)]),
        Section("Set-up", [setup]),
    ]
    sides = (comparison.base, comparison.new)
    word, meaning, tone = _verdict(comparison, gates)
    notes = [VerdictReason("note", text.removeprefix("note: ")) for text in explained(comparison)]
    facts = {"Base": side_text(comparison.base), "New": side_text(comparison.new), "Test": test_text(comparison)}
    return titled_page(
        f"{comparison.new.name} against {comparison.base.name}",
        sections,
        facts,
        verdict=Verdict(word, meaning, notes, tone),
        simulated=any(run.document.target.simulated is True for side in sides for run in side.runs),
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


def _workload(comparison: Comparison) -> list[Block]:
    if comparison.workload:
        differing = Table("", ["Differs in"], [[each] for each in comparison.workload])
        return [Paragraph("No. The figures below are not comparable."), differing]
    if not comparison.same_requests:
        return [Paragraph(f"Not known. {SAME[False].capitalize()}.")]
    digests = {run.digest for side in (comparison.base, comparison.new) for run in side.runs}
    if len(digests) == 1:
        return [Paragraph("Yes: all runs were sent one plan, the same requests at the same instants.")]
    text = "Yes: the same settings on both sides. Some runs have other instants and prompts (other seeds)."
    return [Paragraph(text)]


def _method(comparison: Comparison) -> str:
    return (
        "A line is the 95 % interval of the change from base to new. Better and worse are reported only with p < 0.05 after "
        f"Holm over all figures of the table, and an interval without 0. Test: {test_text(comparison)}."
    )


def _curves(comparison: Comparison) -> Iterator[Block]:
    """Curves of the requests of the latency population; a side with a damaged run has none."""
    sides = {"base": comparison.base, "new": comparison.new}
    values = {label: values_of(side) for label, side in sides.items()}
    for label, side in sides.items():
        if not values[label]:
            yield Paragraph(f"{side.name} is not plotted: files of its runs are damaged.")
        elif side.foreign is not None and side.foreign.requests is None:
            yield Paragraph(f"{side.name} is not plotted: the file of {side.foreign.tool} has summaries only.")
    compared = {row.figure.metric for row in comparison.rows}
    for metric, title in CURVES.items():
        found = {
            label if side.name == label else f"{label}: {side.name}": values[label][metric]
            for label, side in sides.items()
            if len(values[label].get(metric, ()))
        }
        if found and (metric not in OF_REASONING or metric in compared):
            yield cdf(title, found)


def values_of(side: Side) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Metric → ms of all runs of the side; empty where a run is damaged."""
    found: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {name: [] for name in CURVES}
    for each in side.runs:
        if each.foreign is not None:
            given = each.foreign.requests
            for name, parts in found.items():
                parts.append(without_nulls(given.latencies.get(name, np.empty(0))) / 1e6 if given else np.empty(0))
            continue
        run = load(each.folder, contents=False)
        if run.damage_of(ROWS, EVENTS):
            return {}
        latencies = RunSeries(run, side.name).latencies
        for name, parts in found.items():
            parts.append(without_nulls(latencies[name]) / 1e6)
    return {name: np.concatenate(parts) for name, parts in found.items()}
