"""Compares two sides: refuses unequal workloads, then makes one row per figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fastllmload.compare.between import change_between, chosen_test, pairs_of, without_variation
from fastllmload.compare.change import Change, undecided
from fastllmload.compare.figure import (
    GAPS,
    ComparedFigure,
    figure_of,
    gaps_of,
    standard_figures,
    weighed_otherwise,
)
from fastllmload.compare.foreign.result import ForeignSeries
from fastllmload.compare.notes import notes_on
from fastllmload.compare.paired import PAIRED
from fastllmload.compare.series import RunSeries, ValueSeries
from fastllmload.compare.side import RunRecord, Side, manifest_diff
from fastllmload.compare.within import WITHIN, change_within
from fastllmload.compare.workload import differences, same_plan
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.comparison import SideFigure
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError
from fastllmload.host.probe import is_loopback
from fastllmload.records.integrity import EVENTS, ROWS, TEXT
from fastllmload.records.run import load
from fastllmload.report.text.numbers import quantity
from fastllmload.statistics.student import t_interval
from fastllmload.statistics.two_samples import holm

FIRST_TOKEN = ("ttft", "ttft_sched", "ttft_any")
LATE_HOST = "host_hiccups"  # reason of a certificate: a thread that only sleeps was late


@dataclass(frozen=True)
class Row:
    """One figure on both sides, and its change.

    *definitions*: in what those of other tools differ from ours; *comparable*: False where it means another thing on the
    two sides.
    """

    figure: ComparedFigure
    base: SideFigure
    new: SideFigure
    change: Change
    definitions: tuple[str, ...] = ()
    comparable: bool = True

    @property
    def result(self) -> str:
        """The result by the claim rule, in one or two words."""
        if not self.comparable:
            return "not comparable"
        if self.base.value is None or self.new.value is None:
            return "no value"
        if self.change.interval is None:
            return "not estimable"
        if not self.change.shown:
            return "not shown"
        better = ((self.change.difference or 0.0) > 0) == self.figure.higher_is_better
        return "better" if better else "worse"


@dataclass(frozen=True)
class Comparison:
    """*workload*: differences between the workloads, empty when they are the same; *notes*: caveats for the reader."""

    base: Side
    new: Side
    test: str
    rows: list[Row]
    workload: list[str]
    manifest: dict[str, tuple[str, ...]]
    notes: list[str] = field(default_factory=list)

    @property
    def same_requests(self) -> bool:
        """Whether both sides are known to have been sent the same."""
        return not self.workload and self.base.foreign is None and self.new.foreign is None

    @property
    def paired_by(self) -> str | None:
        """How the requests of two single runs were paired; None where they were not."""
        if not any(row.change.pairs for row in self.rows):
            return None
        digests = [run.digest for run in (self.base.first, self.new.first)]
        named = f"plan {digests[0][:12]}" if digests[0] is not None and digests[0] == digests[1] else "the one plan"
        return f"their number in {named}"


def validate_workloads(sides: list[Side], allowed: bool) -> list[str]:
    """Differences between the workloads. InputError when there are any that are not *allowed*."""
    found = differences(sides)
    if found and not allowed:
        listed = "".join(f"\n  {line}" for line in found)
        raise InputError(
            "workloads-differ",
            f"the runs were not given the same workload, so they cannot be compared:{listed}\n"
            "Repeat one side with the other's settings, or give --different-workload to compare them nevertheless",
        )
    return found


def compare(
    base: Side,
    new: Side,
    names: Sequence[str] = (),
    test: str = "auto",
    different_workload: bool = False,
    also: Sequence[str] = (),
) -> Comparison:
    """Compare the figures *names* (default: the standard ones) and *also* others. InputError for unequal workloads and
    unknown figures.
    """
    workload = validate_workloads([base, new], different_workload)
    documents = [*base.documents, *new.documents]
    own = next((run.document for run in (*base.runs, *new.runs) if run.foreign is None), documents[0])
    foreign = base.foreign is not None or new.foreign is not None
    figures = [figure_of(name, own) for name in names] or standard_figures(documents, foreign)
    figures += [figure for name in also if (figure := figure_of(name, own)) not in figures]
    if not figures:
        raise InputError(
            "no-common-figure",
            f"{base.first.folder} has no figure that the other runs have too: did a request succeed?",
        )
    if len(base.runs) == len(new.runs) == 1:
        rows = _within(figures, base, new)
        used = PAIRED if any(row.change.pairs for row in rows) else WITHIN
    else:
        used = chosen_test(test, base, new)
        rows = [_between(figure, base, new, used) for figure in figures]
    rows = [replace(row, definitions=tuple(definitions(row.figure, base, new))) for row in rows]
    return Comparison(base, new, used, with_holm(rows), workload, manifest_diff([base, new]), notes_on(base, new, used))


def measured(figure: ComparedFigure, side: Side, values: tuple[float | None, ...] | None = None) -> SideFigure:
    """The figure on *side*, with the interval over its runs or, for a single run, the interval within it. *values*: of each
    run; None: those of its run.json.
    """
    values = tuple(figure.value(document) for document in side.documents) if values is None else values
    given = [value for value in values if value is not None]
    if len(given) < len(values):
        return SideFigure(None, None, values)
    interval = figure.interval(side.first.document) if len(given) == 1 else t_interval(given)
    if figure.is_share and interval is not None:
        interval = max(0.0, interval[0]), min(1.0, interval[1])
    bounds = [figure.at_least(document) for document in side.documents]
    least = [value if bound is None else bound for value, bound in zip(given, bounds, strict=True)]
    at_least = sum(least) / len(least) if least != given else None
    return SideFigure(sum(given) / len(given), interval, values, at_least=at_least)


OF_EVENTS = (*GAPS, "output_tok_s")  # metrics whose change is judged by events


def _within(figures: Sequence[ComparedFigure], base: Side, new: Side) -> list[Row]:
    runs = [load(side.first.folder) for side in (base, new) if side.foreign is None]
    damage = next((text for run in runs if (text := run.damage_of(ROWS, EVENTS, TEXT)) is not None), None)
    away = next((text for run in runs if (text := run.lost(EVENTS)) is not None), None)
    series = [series_of(side) for side in (base, new)]
    paired, documents = same_plan(base.first, new.first), [base.first.document, new.first.document]
    rows = []
    for figure in figures:
        a, b = measured(figure, base), measured(figure, new)
        if (unlike := defined_otherwise(figure, base, new)) is not None:
            change = undecided(None, None, unlike)
        elif a.value is None or b.value is None:
            change = undecided(a.value, b.value, "not measured on both sides")
        elif (bare := summaries_only(figure, base, new)) is not None:
            change = undecided(a.value, b.value, bare)
        elif damage is not None:
            change = undecided(a.value, b.value, damage)
        elif away is not None and figure.metric in OF_EVENTS:
            change = undecided(a.value, b.value, away)
        elif (no_change := only_bounded(figure, base, new) or weighed_otherwise(figure, documents)) is not None:
            change = undecided(None, None, no_change)
        elif (starved := starved_server(figure, [base.first, new.first])) is not None:
            change = undecided(a.value, b.value, starved)
        elif series[0] is not None and series[1] is not None:
            change = change_within(figure, series[0], series[1], (a.value, b.value), paired)
            change = within_clocks(figure, documents[0], documents[1], change)
        rows.append(Row(figure, a, b, change, comparable=unlike is None))
    return rows


def series_of(side: Side) -> ValueSeries | None:
    """The series of the only run of a side; None for a result file without values of each request."""
    if side.foreign is None:
        return RunSeries(load(side.first.folder).intact, side.name)
    return None if side.foreign.requests is None else ForeignSeries(side.foreign.requests, side.name)


def summaries_only(figure: ComparedFigure, base: Side, new: Side) -> str | None:
    """Why one run a side has no interval: a result file has summaries of the figure only; None where it has values."""
    for side in (base, new):
        found = side.foreign
        if found is not None and (found.requests is None or not found.requests.has(figure)):
            return f"{side.name} has summaries of {found.tool} only, from which no interval can be had{found.remedy}"
    return None


def defined_otherwise(figure: ComparedFigure, base: Side, new: Side) -> str | None:
    """Why the figure means another thing on the two sides, one of them of another tool; None where it does not."""
    for side, other in ((base, new), (new, base)):
        if side.foreign is None:
            continue
        why = side.foreign.without.get(figure.metric)
        if why is not None and measured(figure, side).value is None:
            return f"{side.foreign.tool} has no such figure: {why}"
        kinds = [{gaps_of(run.document) for run in each.runs} for each in (side, other)]
        if figure.metric in GAPS and kinds[0] != kinds[1]:
            return (
                f"gaps of different kinds: {', '.join(sorted(kinds[0]))} of {side.name}, "
                f"{', '.join(sorted(kinds[1]))} of {other.name}"
            )
    return None


def definitions(figure: ComparedFigure, base: Side, new: Side) -> Iterator[str]:
    """For each tool, its name of the figure and in what its definition differs from ours."""
    for tool, found in {each.tool: each for side in (base, new) if (each := side.foreign) is not None}.items():
        metric = next(gaps_of(run.document) for side in (base, new) for run in side.runs if run.foreign is found)
        text = found.theirs.get(metric if figure.metric in GAPS else figure.metric)
        if text is not None:
            yield f"{tool}'s {text}"


def only_bounded(figure: ComparedFigure, base: Side, new: Side) -> str | None:
    """Message for a run with only a bound of the figure, since requests did not end; None where all have its value."""
    for run in (*base.runs, *new.runs):
        least = figure.at_least(run.document)
        if least is not None:
            return f"requests of {run.folder} did not end: it is at least {quantity(least)} {figure.unit} there"
    return None


def _between(figure: ComparedFigure, base: Side, new: Side, test: str) -> Row:
    a, b = measured(figure, base), measured(figure, new)
    x, y = [v for v in a.runs if v is not None], [v for v in b.runs if v is not None]
    unlike = defined_otherwise(figure, base, new)
    if unlike is not None:
        return Row(figure, a, b, undecided(None, None, unlike), comparable=False)
    if a.value is None or b.value is None:
        missing = undecided(a.value, b.value, "a run has no such value")
        return Row(figure, a, b, missing)
    no_change = only_bounded(figure, base, new) or weighed_otherwise(figure, [*base.documents, *new.documents])
    if no_change is not None:
        return Row(figure, a, b, undecided(None, None, no_change))
    if (fixed := without_variation(figure, x, y)) is not None:
        return Row(figure, a, b, undecided(a.value, b.value, fixed))
    return Row(figure, a, b, change_between(x, y, test, pairs_of(base, new) if test == "paired" else None))


def with_holm(rows: list[Row]) -> list[Row]:
    """The rows with p adjusted by Holm's method over all figures that have one."""
    tested = [row for row in rows if row.change.p is not None]
    adjusted = holm([row.change.p for row in tested if row.change.p is not None])
    by_row = {id(row): p for row, p in zip(tested, adjusted, strict=True)}
    return [replace(row, change=row.change.adjusted(by_row[id(row)])) if id(row) in by_row else row for row in rows]


def within_clocks(figure: ComparedFigure, base: RunDocument, new: RunDocument, change: Change) -> Change:
    """*change*, widened by the bounds of both runs' times; unchanged where a run.json does not have them."""
    old, fresh, value = figure.clocks(base), figure.clocks(new), figure.value(base)
    if old is None or fresh is None or value is None:
        return change
    return change.measured_within(fresh[0] + old[1], fresh[1] + old[0], value)


def starved_server(figure: ComparedFigure, runs: Sequence[RunRecord]) -> str | None:
    """Why the first token of single *runs* cannot be compared; None where it can.

    TTFT contains only a few waits for a processor, so on a busy host it varies far more from run to run than TPOT.
    """
    if figure.metric not in FIRST_TOKEN:
        return None
    for run in runs:
        certificate = run.document.certificate or Certificate()
        late = next((each for each in certificate.reasons if each.code == LATE_HOST), None)
        if late is not None and on_this_host(run.document):
            lateness = quantity((known(late.value) or 0.0) / 1000)
            return (
                f"the server of {run.folder} ran on the client's host, where other processes delayed it "
                f"(a thread that only sleeps was {lateness} ms late at P99); repeat on a quiet host, or 3 runs a side"
            )
    return None


def on_this_host(document: RunDocument) -> bool:
    """Whether every address of the target is a loopback one, or a Unix socket."""
    addresses = document.target.addresses
    local = bool(addresses) and all(map(is_loopback, addresses))
    return local or document.config.target.unix_socket is not None
