"""Gates for continuous integration: `p99_ttft_ms > +5%` fails the comparison (exit code 1).

A limit with a sign is about the change (`+5%`, `-20ms`, `+3`), one without is about the new side's own value (`> 200`, of
shares also `< 99%`). A unit must be the figure's own: a rule that is about something else would pass for ever.
A gate fails when the measured figure breaks the limit *and* chance is no explanation; what chance means is the mode:

* significant (default): the change differs from 0 (p < 0.05 after Holm over the gates, and the interval excludes 0);
* proven: the whole interval lies beyond the limit itself;
* measured: the measured figure alone decides, however noisy.

Where the limit is broken but the runs cannot carry an interval, the gate is undecided: nobody knows whether it is
chance. That counts as failed unless asked otherwise: a run too short for its gate must not let a regression through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastllmload.compare.change import SIGNIFICANT
from fastllmload.compare.comparison import Comparison, Row
from fastllmload.compare.figure import ComparedFigure
from fastllmload.errors import InputError
from fastllmload.statistics.two_samples import holm

MODES = ("significant", "proven", "measured")
PASSED, FAILED, UNDECIDED = "passed", "FAILED", "UNDECIDED"
UNITS = {  # of a figure: those that its limit may have
    "ms": ("ms", "s"), "share": ("points", "%"), "tokens/s": ("tokens/s",), "requests/s": ("requests/s",),
}  # fmt: skip
FORM = re.compile(
    r"\s*([A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([+-]?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ms|s|tokens/s|requests/s|points)?\s*"
)


@dataclass(frozen=True)
class Gate:
    """*figure* *beyond* *limit*: `<` or `>`; *about* is "relative", "difference" or "value"; *unit* as it was written."""

    text: str
    figure: str
    above: bool
    limit: float
    about: str
    unit: str | None = None


@dataclass(frozen=True)
class GateResult:
    """*outcome* is one of PASSED, FAILED, UNDECIDED; *why* in a few words."""

    gate: Gate
    outcome: str
    why: str


def parse_gate(text: str) -> Gate:
    """InputError for anything but `FIGURE > LIMIT`."""
    match = FORM.fullmatch(text)
    if match is None:
        raise InputError(
            f"--fail-if {text!r} is not understood; write a figure, > or <, and a limit, "
            'such as "p99_ttft_ms > +5%", "output_tok_s < -3%" or "p99_ttft_ms > 200"'
        )
    figure, beyond, sign, number, unit = match.groups()
    limit = float(number) * (-1 if sign == "-" else 1)
    if unit == "%" and sign == "" and figure.endswith(("_ms", "_s")):
        raise InputError(f"--fail-if {text!r}: a limit in % is about the change; write {beyond} +{number}%")
    about = "value" if sign == "" else "relative" if unit == "%" else "difference"
    unit_scale = 1e3 if unit == "s" and figure.endswith("_ms") else 0.01 if unit in ("%", "points") else 1.0
    return Gate(text.strip(), figure, beyond.startswith(">"), limit * unit_scale, about, unit)


def refuse_other_unit(gate: Gate, figure: ComparedFigure) -> None:
    """InputError for a limit in a unit that *figure* does not have."""
    mine = UNITS.get(figure.unit, ())
    if gate.unit in (None, *mine) or (gate.unit == "%" and gate.about == "relative"):
        return
    what = "a share" if figure.is_share else f"in {figure.unit}"
    write = " or ".join(mine) or "the number alone"
    raise InputError(f"--fail-if {gate.text!r}: {gate.figure} is {what}, not in {gate.unit}; write {write}")


def judge_gates(gates: Sequence[Gate], comparison: Comparison, mode: str) -> list[GateResult]:
    """In the order of *gates*; *comparison* has a row for each of their figures."""
    rows = {row.figure.name: row for row in comparison.rows} | {row.figure.metric: row for row in comparison.rows}
    chosen = [rows[gate.figure] for gate in gates]
    for gate, row in zip(gates, chosen, strict=True):
        refuse_other_unit(gate, row.figure)
    tested = [k for k, row in enumerate(chosen) if row.change.p is not None]
    adjusted = dict(zip(tested, holm([chosen[k].change.p or 0.0 for k in tested]), strict=True))
    return [
        _judged(gate, row if k not in adjusted else _with_p(row, adjusted[k]), mode)
        for k, (gate, row) in enumerate(zip(gates, chosen, strict=True))
    ]


def _with_p(row: Row, p: float) -> Row:
    return replace(row, change=row.change.adjusted(p))


def _judged(gate: Gate, row: Row, mode: str) -> GateResult:
    value, interval = _of(gate, row)
    if value is None:
        return GateResult(gate, UNDECIDED, row.change.why_not or "there is no such value")
    said = f"measured {_text(gate, row, value)}"
    if not _beyond(gate, value):
        return GateResult(gate, PASSED, said)
    if mode == "measured":
        return GateResult(gate, FAILED, said)
    if interval is None:
        return GateResult(gate, UNDECIDED, f"{said}, but {row.change.why_not or 'no interval'}")
    low, high = (_text(gate, row, end) for end in interval)
    said += f", 95 % interval {low} to {high}"
    if gate.about == "value" or mode == "proven":
        sure = _beyond(gate, interval[0] if gate.above else interval[1])
        return GateResult(
            gate, FAILED if sure else PASSED, said if sure else f"{said}: not beyond the limit for certain"
        )
    p = row.change.p_holm
    sure = p is not None and p < SIGNIFICANT and row.change.excludes_zero
    chance = "" if p is None else f", p {p:.3g}"
    return GateResult(gate, FAILED if sure else PASSED, said + chance + ("" if sure else ": may be chance"))


def _of(gate: Gate, row: Row) -> tuple[float | None, tuple[float, float] | None]:
    if gate.about == "value":
        return row.new.value, row.new.interval
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
