"""Renders a comparison as lines for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from textwrap import wrap

from fastllmload.compare.comparison import Comparison, MeasuredFigure, Row
from fastllmload.compare.gate import FAILED, PASSED, UNDECIDED, GateResult
from fastllmload.compare.setup import SetupDifference
from fastllmload.compare.side import Side
from fastllmload.report.text.numbers import NOT_KNOWN, quantity
from fastllmload.statistics.batches import BATCHES

WIDE = 110  # columns from which intervals of both sides fit
MOST_DIFFERENCES = 20
TESTS = {
    "welch": "Welch's t, one value a run",
    "paired": "paired t, one value a run, runs paired by their arrivals",
    "mann-whitney": "Mann-Whitney, one value a run; intervals by Welch's t",
    "one against several": "t of one new run among several",
}
WORD = {"superiority": "P(new > base)", "hedges_g": "Hedges' g", "standard_deviations": "std. deviations"}


def lines(comparison: Comparison, gates: Sequence[GateResult], width: int) -> list[str]:
    """For a terminal of *width* columns, 80 at least."""
    return [
        *_sides(comparison, width),
        "",
        *aligned(_cells(comparison, width >= WIDE)),
        "",
        *explained(comparison, width),
        *reasons(comparison, width),
        *(line for each in gates for line in wrap(gate_text(each), width, subsequent_indent="      ")),
    ]


def gate_text(result: GateResult) -> str:
    return f"gate {result.outcome}: {result.gate.text}: {result.why}"


def _sides(comparison: Comparison, width: int) -> Iterator[str]:
    for label, side in (("base", comparison.base), ("new", comparison.new)):
        yield f"{label:<9}{side_text(side)}"
    if comparison.workload:
        yield "DIFFERENT WORKLOADS: the figures below are not comparable"
        yield from (f"         {line}" for line in comparison.workload)
    else:
        yield "workload the same on both sides"
    yield from wrap(f"test     {test_text(comparison)}", width, subsequent_indent="         ")
    yield from differences_text(comparison.manifest, [comparison.base, comparison.new])


def test_text(comparison: Comparison) -> str:
    """The test of the comparison, and the figures that were tested by Welch's t instead of a paired one."""
    name = TESTS.get(comparison.test, comparison.test)
    if comparison.paired_by is not None:
        pairs = sorted({row.change.pairs for row in comparison.rows if row.change.pairs})
        many = f"{pairs[0]:,}" if len(pairs) == 1 else f"{pairs[0]:,} to {pairs[-1]:,}"
        return f"requests paired by {comparison.paired_by}: {many} pairs in {BATCHES} blocks of consecutive ones"
    if comparison.test != "paired":
        return name
    alike = ", ".join(row.figure.name for row in comparison.rows if row.change.test == "welch")
    return f"{name}; Welch's t where all pairs differ by one amount: {alike}" if alike else name


def side_text(side: Side) -> str:
    """`new-build: 3 runs, runs/x and 2 more`, or the folder alone."""
    if len(side.runs) == 1:
        return str(side.first.folder) if side.first.folder.name == side.name else f"{side.name}: {side.first.folder}"
    return f"{side.name}: {len(side.runs)} runs, {side.first.folder} and {len(side.runs) - 1} more"


def differences_text(found: list[SetupDifference], sides: list[Side]) -> Iterator[str]:
    if not found:
        yield "set-up   no other difference in settings, target and host"
        return
    yield f"set-up   differs in {len(found)} entr{'y' if len(found) == 1 else 'ies'}:"
    for differs in found[:MOST_DIFFERENCES]:
        yield f"         {differs.key}: " + " | ".join(_short(differs.values))
    if len(found) > MOST_DIFFERENCES:
        yield f"         and {len(found) - MOST_DIFFERENCES} more, see --json"


def _short(values: Sequence[str], most: int = 48) -> list[str]:
    """The different *values*, shortened around the place where they begin to differ."""
    if max(map(len, values)) <= most:
        return list(values)
    alike = takewhile(lambda each: len(set(each)) == 1, zip(*values, strict=False))
    begin = max(0, sum(1 for _ in alike) - most // 2)
    lead = "..." if begin else ""
    return [
        lead + (value[begin:] if len(value) - begin <= most else value[begin : begin + most - 3] + "...")
        for value in values
    ]


def _cells(comparison: Comparison, wide: bool) -> list[list[str]]:
    head = ["figure", "base", "new", "change", "95 % interval", "p Holm", "result"]
    table = [[*head[:6], "effect", head[6]] if wide else head]
    for row in comparison.rows:
        base, new = _value(row, row.base, wide), _value(row, row.new, wide)
        cells = [row.figure.name, base, new, change_text(row), interval_text(row), p_text(row)]
        table.append([*cells, quantity(row.change.effect), row.result] if wide else [*cells, row.result])
    return table


def _value(row: Row, side: MeasuredFigure, wide: bool) -> str:
    text = quantity(side.value)
    if not wide or side.interval is None or side.value is None:
        return text
    return f"{text} ({quantity(side.interval[0])}..{quantity(side.interval[1])})"


def change_text(row: Row) -> str:
    if row.figure.is_share:
        return NOT_KNOWN if row.change.difference is None else f"{100 * row.change.difference:+.2f} pt"
    return NOT_KNOWN if row.change.relative is None else relative_text(row.change.relative)


def relative_text(relative: float) -> str:
    """`+8.1 %`, and `x 2,432` from tenfold on."""
    return f"{100 * relative:+.1f} %" if relative < 9 else f"x {1 + relative:,.0f}"


def interval_text(row: Row) -> str:
    ends = row.change.interval if row.figure.is_share else row.change.relative_interval
    if ends is None:
        return NOT_KNOWN
    digits = 2 if row.figure.is_share else 1
    return f"{100 * ends[0]:+.{digits}f}..{100 * ends[1]:+.{digits}f}"


def p_text(row: Row) -> str:
    p = row.change.p_holm
    return NOT_KNOWN if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def aligned(table: list[list[str]]) -> list[str]:
    """Lines with columns two spaces apart; the first and the last are left-aligned, the others right-aligned."""
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(widths[k]) if k in (0, last) else cell.rjust(widths[k]) for k, cell in enumerate(row)
        ).rstrip()
        for row in table
    ]


def explained(comparison: Comparison, width: int) -> Iterator[str]:
    """Summary of the table, and the notes."""
    shown = [row for row in comparison.rows if row.change.shown]
    tested = sum(row.change.p is not None for row in comparison.rows)
    if shown:
        names = ", ".join(f"{row.figure.name} {change_text(row)} ({row.result})" for row in shown)
        text = f"Shown with p < 0.05 after Holm over {tested} figures: {names}."
    elif tested == 0:
        text = "No figure could be tested."
    else:
        text = (
            f"No difference is shown at p < 0.05 after Holm over {tested} figures. That does not prove the sides equal: "
            "a difference within the intervals is possible."
        )
    yield from wrap(text, width)
    hidden = [f"{row.figure.name} {change_text(row)}" for row in comparison.rows if row.change.open_by_clocks]
    if hidden:
        text = f"The times of both runs are too imprecise to show a difference: {', '.join(hidden)}."
        yield from wrap(text, width)
    for note in comparison.notes:
        yield from wrap(f"note: {note}", width, subsequent_indent="      ")


def reasons(comparison: Comparison, width: int) -> Iterator[str]:
    """Why figures are not estimable, and what to do about it."""
    needing: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.change.lacking is not None:
            side, needed = row.change.lacking
            needing.setdefault(side, []).append(f"{row.figure.name} about {needed:,}")
        elif row.change.why_not is not None:
            missing.setdefault(row.change.why_not, []).append(row.figure.name)
    texts = [f"too few requests; needed of {side}: {', '.join(each)}" for side, each in needing.items()]
    texts += [f"{', '.join(names)}: {why}" for why, names in missing.items()]
    for text in texts:
        yield from wrap(f"not estimable: {text}", width, subsequent_indent="      ")


def markdown(comparison: Comparison, gates: Sequence[GateResult]) -> str:
    """Text for a pull request: the table, the differences, the gates."""
    head = [f"## {comparison.new.name} against {comparison.base.name}", ""]
    if gates:
        outcomes = [each.outcome for each in gates]
        counts = [f"{outcomes.count(name)} {name.lower()}" for name in (FAILED, UNDECIDED, PASSED)]
        head += [f"**Gates: {', '.join(counts)}.**", ""]
    body = [*head, *bulleted(comparison), "", *table_of(_cells(comparison, True)), ""]
    body += [f"- {text}" for text in (*explained(comparison, 10_000), *reasons(comparison, 10_000))]
    body += [f"- gate {each.outcome}: `{each.gate.text}`: {each.why}" for each in gates]
    if comparison.manifest:
        body += ["", "### Differences in set-up", "", *manifest_table(comparison.manifest, ["base", "new"])]
    return "\n".join(body) + "\n"


def bulleted(comparison: Comparison) -> list[str]:
    same = "the same on both sides" if not comparison.workload else "**different**: " + "; ".join(comparison.workload)
    return [
        f"- base: {side_text(comparison.base)}",
        f"- new: {side_text(comparison.new)}",
        f"- workload: {same}",
        f"- test: {test_text(comparison)}; effect: {_effects(comparison.rows)}",
    ]


def _effects(rows: list[Row]) -> str:
    kinds = {row.change.effect_kind for row in rows if row.change.effect_kind is not None}
    return ", ".join(sorted(WORD[kind] for kind in kinds)) or "none"


def manifest_table(found: list[SetupDifference], names: list[str]) -> list[str]:
    return table_of([["entry", *names], *([each.key, *each.values] for each in found)])


def table_of(cells: list[list[str]]) -> list[str]:
    """A Markdown table; the first row is its head."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    rule = "|" + "---|" + "---:|" * (len(safe[0]) - 2) + "---|"
    return [_row(safe[0]), rule, *(_row(row) for row in safe[1:])]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
