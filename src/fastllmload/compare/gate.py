"""Judges gates for continuous integration: `p99_ttft_ms > +5%` fails the comparison (exit code 1).

A limit with a sign applies to the change (`+5%`, `-20ms`, `+3`), one without applies to the new side's value (`> 200`,
for shares also `< 99%`). Its unit must be that of the figure, as a gate with a wrong unit would always pass.
A gate fails when the measured figure breaks the limit *and* chance does not explain it, as the mode defines:

* significant (default): the change differs from 0 (p < 0.05 after Holm over the gates, and the interval excludes 0);
* proven: the whole interval lies beyond the limit itself;
* measured: the measured figure alone decides, however noisy.

Where the limit is broken but the runs are too short for an interval, the gate is undecided. That counts as failed by
default, so that a short run does not let a regression through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastllmload import quantities
from fastllmload.compare.change import SIGNIFICANT
from fastllmload.compare.comparison import Comparison, Row
from fastllmload.compare.figure import ComparedFigure
from fastllmload.errors import InputError
from fastllmload.statistics.two_samples import holm

MODES = ("significant", "proven", "measured")
PASSED, FAILED, UNDECIDED = "passed", "FAILED", "UNDECIDED"
TIMES = {unit: ns / quantities.NANOSECONDS["ms"] for unit, ns in quantities.NANOSECONDS.items()}
RATES = {"tokens/s": 1.0, "tok/s": 1.0, "requests/s": 1.0}
FACTORS = quantities.THOUSANDS | TIMES | RATES | {"%": 0.01, "points": 0.01}
UNITS = {  # unit of a figure: units that its limit may have, those to suggest first
    "ms": tuple(dict.fromkeys(("ms", "s", *TIMES))), "share": ("points", "%"), "tokens/s": ("tokens/s", "tok/s"),
    "requests/s": ("requests/s",),
}  # fmt: skip
FORM = re.compile(r"\s*((?:[^\s<>]+/)?[A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([+-]?)\s*([0-9.].*)")


@dataclass(frozen=True)
class Gate:
    """A limit of *figure*, an upper one if *above*; *about*: "relative", "difference" or "value"; *unit* as written."""

    text: str
    figure: str
    above: bool
    limit: float
    about: str
    unit: str | None = None


@dataclass(frozen=True)
class GateResult:
    """*outcome*: PASSED, FAILED or UNDECIDED; *why*: a short reason."""

    gate: Gate
    outcome: str
    why: str


def parse_gate(text: str) -> Gate:
    """Parse `FIGURE > LIMIT`. InputError for any other text."""
    match = FORM.fullmatch(text)
    amount = None if match is None else quantities.quantity(match[4], FACTORS)
    if match is None or amount is None:
        raise InputError(
            "gate-invalid",
            f"--fail-if {text!r} is not understood; write a figure, > or <, and a limit, "
            'such as "p99_ttft_ms > +5%", "output_tok_s < -3%" or "p99_ttft_ms > 200"',
        )
    figure, beyond, sign, written = match.groups()
    _, unit = quantities.split(written) or (0.0, "")
    if unit == "%" and sign == "" and figure.endswith(("_ms", "_s")):
        raise InputError(
            "gate-invalid", f"--fail-if {text!r}: a limit in % is about the change; write {beyond} +{written.strip()}"
        )
    about = "value" if sign == "" else "relative" if unit == "%" else "difference"
    limit = -amount if sign == "-" else amount
    return Gate(
        text.strip(), figure, beyond.startswith(">"), limit, about, None if unit in quantities.THOUSANDS else unit
    )


def validate_unit(gate: Gate, figure: ComparedFigure) -> None:
    """InputError for a limit in a unit that *figure* does not have."""
    mine = UNITS.get(figure.unit, ())
    if gate.unit in (None, *mine) or (gate.unit == "%" and gate.about == "relative"):
        return
    what = "a share" if figure.is_share else f"in {figure.unit}"
    write = " or ".join(mine[:2]) or "the number alone"
    raise InputError(
        "gate-invalid", f"--fail-if {gate.text!r}: {gate.figure} is {what}, not in {gate.unit}; write {write}"
    )


def judge_gates(gates: Sequence[Gate], comparison: Comparison, mode: str) -> list[GateResult]:
    """Results in the order of *gates*; *comparison* must have a row for each of their figures."""
    of_all = {row.figure.metric: row for row in comparison.rows if row.figure.part is None}
    rows = {row.figure.name: row for row in comparison.rows} | of_all
    chosen = [rows[gate.figure] for gate in gates]
    for gate, row in zip(gates, chosen, strict=True):
        validate_unit(gate, row.figure)
    tested = [k for k, row in enumerate(chosen) if row.change.p is not None]
    adjusted = dict(zip(tested, holm([chosen[k].change.p or 0.0 for k in tested]), strict=True))
    return [
        _judged(gate, row if k not in adjusted else replace(row, change=row.change.adjusted(adjusted[k])), mode)
        for k, (gate, row) in enumerate(zip(gates, chosen, strict=True))
    ]


def _judged(gate: Gate, row: Row, mode: str) -> GateResult:
    value, interval = _of(gate, row)
    least = row.new.at_least if gate.about == "value" else None
    if least is not None:  # requests that did not end: the value is higher by an unknown amount
        above = gate.above and _beyond(gate, least)
        return GateResult(
            gate, FAILED if above else UNDECIDED, f"at least {_text(gate, row, least)}: requests did not end"
        )
    if value is None:
        return GateResult(gate, UNDECIDED, row.change.why_not or "there is no such value")
    why = f"measured {_text(gate, row, value)}"
    if not _beyond(gate, value):
        return GateResult(gate, PASSED, why)
    if mode == "measured":
        return GateResult(gate, FAILED, why)
    if interval is None:
        return GateResult(gate, UNDECIDED, f"{why}, but {row.change.why_not or 'no interval'}")
    low, high = (_text(gate, row, end) for end in interval)
    why += f", 95 % interval {low} to {high}"
    if gate.about == "value" or mode == "proven":
        proven = _beyond(gate, interval[0] if gate.above else interval[1])
        return GateResult(
            gate, FAILED if proven else PASSED, why if proven else f"{why}: not beyond the limit for certain"
        )
    p = row.change.p_holm
    significant = p is not None and p < SIGNIFICANT and row.change.excludes_zero
    why += "" if p is None else f", p {p:.3g}"
    return GateResult(gate, FAILED if significant else PASSED, why + ("" if significant else ": may be chance"))


def _of(gate: Gate, row: Row) -> tuple[float | None, tuple[float, float] | None]:
    if gate.about == "value":
        return row.new.value, row.new.ci95
    if gate.about == "relative":
        return row.change.relative, row.change.relative_interval
    return row.change.difference, row.change.interval


def _beyond(gate: Gate, value: float) -> bool:
    return value > gate.limit if gate.above else value < gate.limit


def _text(gate: Gate, row: Row, value: float) -> str:
    if gate.about == "relative":
        return f"{100 * value:+.1f} %"
    if gate.about == "difference":
        return f"{100 * value:+.2f} points" if row.figure.is_share else f"{value:+,.4g} {row.figure.unit}"
    return f"{100 * value:.4g} %" if row.figure.is_share else f"{value:,.4g} {row.figure.unit}"
