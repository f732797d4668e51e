"""A comparison of two sides as blocks, for the terminal and for Markdown; the page takes its texts from here too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from fastllmload.compare.change import Pair
from fastllmload.compare.comparison import Comparison, Row
from fastllmload.compare.foreign.result import ForeignResult
from fastllmload.compare.gate import FAILED, PASSED, UNDECIDED, GateResult
from fastllmload.compare.side import Side
from fastllmload.report.blocks import Bar, Block, Cell, Code, Facts, Heading, Items, Paragraph, Stacked, Strong, Table
from fastllmload.report.text.numbers import NOT_KNOWN, quantity
from fastllmload.statistics.batches import BATCHES

WIDE = 110  # columns from which intervals of both sides fit
MOST_DIFFERENCES = 20
MOST_NAMED = 6  # figures of classes, models and backends in a sentence
TONES = {"better": "valid", "worse": "invalid"}
OTHERWISE = "* defined by another tool, as said below"
DIFFERENT = "DIFFERENT WORKLOADS: the figures below are not comparable"
SAME = {True: "the same on both sides", False: "not known to be the same; nothing that the files say differs"}
SAME_SETUP = "No other difference in settings, target and host."
TESTS = {
    "welch": "Welch's t, one value a run",
    "paired": "paired t, one value a run, runs paired by their arrivals",
    "mann-whitney": "Mann-Whitney, one value a run; intervals by Welch's t",
    "one against several": "t of one new run among several",
}
EFFECTS = {"superiority": "P(new > base)", "hedges_g": "Hedges' g", "standard_deviations": "std. deviations"}


def for_terminal(comparison: Comparison, gates: Sequence[GateResult], width: int) -> Iterator[Block]:
    """The comparison for a terminal of *width* columns, 80 at least."""
    sides, *rest = blocks(comparison, gates, width >= WIDE)
    yield from (sides, *differences_in_brief(comparison.manifest), *rest)


def for_markdown(comparison: Comparison, gates: Sequence[GateResult]) -> Iterator[Block]:
    """For a pull request: the table, the differences, the gates."""
    yield Heading(f"{comparison.new.name} against {comparison.base.name}")
    if gates:
        outcomes = [each.outcome for each in gates]
        counts = [f"{outcomes.count(name)} {name.lower()}" for name in (FAILED, UNDECIDED, PASSED)]
        yield Paragraph(Strong(f"Gates: {', '.join(counts)}."))
    yield from blocks(comparison, gates, True)
    if comparison.manifest:
        yield Heading("Differences in set-up", 3)
        yield setup_table(comparison.manifest, ["base", "new"])


def blocks(comparison: Comparison, gates: Sequence[GateResult], wide: bool) -> Iterator[Block]:
    """Sides, table and remarks; *wide*: also intervals of both sides and effect sizes."""
    same = "; ".join([DIFFERENT, *comparison.workload]) if comparison.workload else SAME[comparison.same_requests]
    yield Facts(
        [
            ("base", side_text(comparison.base)),
            ("new", side_text(comparison.new)),
            ("workload", same),
            ("test", test_text(comparison)),
        ]
    )
    yield figure_table(comparison, wide)
    yield Items(
        [
            *explained(comparison),
            *reasons(comparison),
            *((f"gate {each.outcome}: ", Code(each.gate.text), f": {each.why}") for each in gates),
        ]
    )


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
    """`new-build: 3 runs, runs/x and 2 more`, or the folder alone; with `(foreign: vLLM)` of another tool."""
    tool = "" if side.foreign is None else f" ({origin_text(side.foreign)})"
    if len(side.runs) == 1:
        own_name = side.first.folder.name == side.name
        return f"{side.first.folder if own_name else f'{side.name}: {side.first.folder}'}{tool}"
    return f"{side.name}: {len(side.runs)} runs, {side.first.folder} and {len(side.runs) - 1} more{tool}"


def origin_text(found: ForeignResult) -> str:
    """`foreign: AIPerf 0.13.0, recomputed from its requests`."""
    tool = f"{found.tool} {found.version}" if found.version else found.tool
    return f"foreign: {tool}, {'its summaries' if found.requests is None else 'recomputed from its requests'}"


def setup_table(found: Mapping[str, Sequence[str]], names: Sequence[str]) -> Table:
    return Table("", ["entry", *names], [[key, *values] for key, values in found.items()])


def differences_in_brief(found: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    """The first differences in set-up, their values shortened."""
    if not found:
        yield Paragraph(SAME_SETUP)
        return
    yield Heading(f"Differences in set-up ({len(found)})", 3)
    brief = [f"{key}: {' | '.join(shortened(found[key]))}" for key in list(found)[:MOST_DIFFERENCES]]
    more = len(found) - len(brief)
    yield Items([*brief, f"and {more} more, see --json"] if more else brief)


def shortened(values: Sequence[str], most: int = 48) -> list[str]:
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


def figure_table(comparison: Comparison, wide: bool) -> Table:
    columns = ["figure", "base", "new", "change", "95 % interval", "p Holm", *(["effect"] if wide else []), "result"]
    rows = [
        [
            f"{row.figure.name} *" if row.definitions else row.figure.name,
            *(value_text(side.value, side.ci95 if wide else None, side.at_least) for side in (row.base, row.new)),
            *change_cells(row, wide),
        ]
        for row in comparison.rows
    ]
    kinds = {row.change.effect_kind for row in comparison.rows if row.change.effect_kind is not None}
    effects = ", ".join(sorted(EFFECTS[kind] for kind in kinds))
    notes = [OTHERWISE] if any(row.definitions for row in comparison.rows) else []
    return Table("", columns, rows, notes + ([f"effect: {effects}"] if wide and effects else []))


def value_text(value: float | None, interval: Pair | None = None, at_least: float | None = None) -> str:
    """`12.30 (11.10..13.40)`, the value alone, or `>=12.30` where requests did not end."""
    if at_least is not None:
        return f">={quantity(at_least)}"
    if interval is None or value is None:
        return quantity(value)
    return f"{quantity(value)} ({quantity(interval[0])}..{quantity(interval[1])})"


def change_cells(row: Row, effect: bool) -> list[Cell]:
    """The change with its interval, the test's p after Holm, the effect size where asked for, and the result."""
    share = row.figure.is_share
    change = row.change.difference if share else row.change.relative
    ends = row.change.interval if share else row.change.relative_interval
    low, high = (None, None) if ends is None else (100 * ends[0], 100 * ends[1])
    tone = TONES.get(row.result, "")
    return [
        change_text(row),
        Bar(interval_text(row), low, high, None if change is None else 100 * change, tone),
        p_text(row),
        *([quantity(row.change.effect)] if effect else []),
        Stacked(row.result, tone=tone),
    ]


def change_text(row: Row) -> str:
    if row.figure.is_share:
        return NOT_KNOWN if row.change.difference is None else f"{100 * row.change.difference:+.2f} pt"
    relative = row.change.relative
    if relative is None:
        return NOT_KNOWN
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


def explained(comparison: Comparison) -> Iterator[str]:
    """Summary of the table, and the notes."""
    shown = [row for row in comparison.rows if row.change.shown]
    tested = sum(row.change.p is not None for row in comparison.rows)
    if shown:
        names = ", ".join(f"{row.figure.name} {change_text(row)} ({row.result})" for row in shown)
        yield f"Shown with p < 0.05 after Holm over {tested} figures: {names}."
    elif tested == 0:
        yield "No figure could be tested."
    else:
        yield (
            f"No difference is shown at p < 0.05 after Holm over {tested} figures. That does not prove the sides equal: "
            "a difference within the intervals is possible."
        )
    by_text: dict[str, list[str]] = {}
    for row in comparison.rows:
        for text in row.definitions:
            by_text.setdefault(text, []).append(row.figure.name)
    yield from (f"definition of {', '.join(names)}: {text}" for text, names in by_text.items())
    hidden = [f"{row.figure.name} {change_text(row)}" for row in comparison.rows if row.change.open_by_clocks]
    if hidden:
        yield f"The times of both runs are too imprecise to show a difference: {', '.join(hidden)}."
    yield from (f"note: {note}" for note in comparison.notes)


def reasons(comparison: Comparison) -> Iterator[str]:
    """Why figures are not estimable, and what to do about it."""
    needing: dict[tuple[str, str], list[str]] = {}
    missing: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.change.lacking is not None:
            side, needed = row.change.lacking
            needing.setdefault((side, row.figure.observed), []).append(f"{row.figure.name} about {needed:,}")
        elif row.change.why_not is not None:
            missing.setdefault(row.change.why_not, []).append(row.figure.name)
    for (side, observed), each in needing.items():
        yield f"not estimable: too few {observed}; needed of {side}: {', '.join(each)}"
    for why, names in missing.items():
        yield f"not estimable: {listed(names)}: {why}"


def listed(names: Sequence[str]) -> str:
    """The *names* of figures; of classes, models and backends only their number where it is above MOST_NAMED."""
    of_parts = [name for name in names if "/" in name]
    if len(of_parts) <= MOST_NAMED:
        return ", ".join(names)
    rest = [name for name in names if "/" not in name]
    return ", ".join([*rest, f"{len(of_parts)} figures of classes, models and backends"])
