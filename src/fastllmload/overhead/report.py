"""Renders what a gateway adds: overhead.json, overhead.md, overhead.html, terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.documents.experiment import FindingTable
from fastllmload.documents.fields import known
from fastllmload.documents.overhead import AddedFigure, OverheadDocument
from fastllmload.experiment.report.parts import facts, remarks, table_of, terminal_lines, with_state
from fastllmload.experiment.saved_report import SavedReport
from fastllmload.report.blocks import Bar, Block, Cell, Facts, Page, Section, Stacked, Table
from fastllmload.report.charts import Axis, Chart, Rule, Series
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.text.numbers import NOT_KNOWN, quantity

JSON = "overhead.json"
PLOTTED = ("mean_ttft_ms", "p50_ttft_ms", "mean_tpot_ms", "mean_e2e_ms")
MOST_PLOTTED = 12
TONES = {"better": "valid", "worse": "invalid"}
BRIEF = (
    "added: through less direct, mean over pairs; the interval allows for chance and the client's own times (client)"
)
METHOD = (
    "added is through less direct, the mean over the pairs of runs; for a percentile the difference of the percentiles of "
    "both ways. The interval (95 %) allows for chance (Student's t over the pairs) and for the client's own times: client "
    "is how far they may shift the figure, in the worst case. Worse and better: p < 0.05 after Holm over all figures, and "
    "an interval without 0."
)


def headline(document: OverheadDocument) -> str:
    return with_state("What the way through adds", document)


def figure_table(document: OverheadDocument, method: str) -> Table:
    columns = ["figure", "direct", "through", "added", "95 % interval", "client", "result"]
    rows: list[list[Cell]] = [
        [
            name,
            value_text(one.direct, one),
            value_text(one.through, one),
            f"{sign(one.added)}{value_text(one.added, one)}",
            Bar(interval_text(one), *relative(one), TONES.get(one.result or "", "")),
            client_text(one),
            Stacked(one.result or NOT_KNOWN, tone=TONES.get(one.result or "", "")),
        ]
        for name, one in document.added.items()
    ]
    missing = [f"{name} is not estimable: {one.why_not}" for name, one in document.added.items() if one.why_not]
    return Table("", columns, rows, [method, *dict.fromkeys(missing)])


def value_text(value: float | None, one: AddedFigure) -> str:
    """Shares in %."""
    return f"{quantity(100 * value)} %" if one.unit == "share" and value is not None else quantity(value)


def sign(value: float | None) -> str:
    return "+" if value is not None and value > 0 else ""


def relative(one: AddedFigure) -> tuple[float | None, float | None, float | None]:
    """Both ends of the interval, and what is added, in % of the direct way: figures of all units share the axis."""
    if one.interval is None or one.added is None or not one.direct:
        return None, None, None
    low, high, at = (100 * value / one.direct for value in (*one.interval, one.added))
    return low, high, at


def interval_text(one: AddedFigure) -> str:
    """Of shares in points."""
    if one.interval is None:
        return NOT_KNOWN
    low, high = (end * (100 if one.unit == "share" else 1) for end in one.interval)
    return f"{sign(low)}{quantity(low)}..{sign(high)}{quantity(high)}"


def client_text(one: AddedFigure) -> str:
    return NOT_KNOWN if one.clocks is None else f"-{quantity(one.clocks[0])}..+{quantity(one.clocks[1])}"


def gate_table(document: OverheadDocument) -> Table:
    return Table("Gates", ["Rule", "Outcome", "Why"], [[each.text, each.outcome, each.why] for each in document.gates])


def ways(document: OverheadDocument) -> dict[str, str]:
    """Each way with its URLs, a model of its own and the verdicts on its runs."""
    urls = {"direct": document.parameters.direct, "through": document.parameters.through}
    model = document.parameters.through_model
    named = {"through": f", as {model}"} if model else {}
    return {
        way.capitalize(): f"{', '.join(urls[way])}{named.get(way, '')}; {verdicts(found)}"
        for way, found in document.verdicts.items()
    }


def verdicts(found: tuple[str, ...]) -> str:
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(found))
    return f"certificates of {len(found)} runs: {counts}"


def lines(document: OverheadDocument) -> Iterator[str]:
    gates = [gate_table(document)] if document.gates else []
    blocks: list[Block] = [Facts(list(ways(document).items())), figure_table(document, BRIEF), *gates]
    return terminal_lines(headline(document), blocks, document)


def page(document: OverheadDocument) -> Page:
    runs = FindingTable(
        columns=("Run", "req/s", "TTFT P50 (ms)", "TTFT P99 (ms)", "TPOT P99 (ms)", "Client", "Folder"),
        rows=tuple(
            (run.name, known(run.req_s), known(run.ttft_p50_ms), known(run.ttft_p99_ms), known(run.tpot_p99_ms),
             run.certificate, run.folder)
            for run in document.levels
        ),
    )  # fmt: skip
    sections = [
        Section("Added", [figure_table(document, METHOD)]),
        *([Section("Gates", [gate_table(document)])] if document.gates else []),
        Section("Pair by pair", charts(document)),
        Section("Runs in the order measured", [table_of(runs)]),
        *remarks(document),
    ]
    about = {**facts(document), **ways(document)}
    about.pop("Target")
    return titled_page(headline(document), sections, about, simulated=document.manifest.simulated)


def charts(document: OverheadDocument) -> list[Chart]:
    """The difference of each pair: a drift, or a pair that differs from the others, shows here."""
    known_to_add = [name for name, one in document.added.items() if one.added is not None] or list(document.added)
    names = [name for name in known_to_add if name.rpartition("/")[2] in PLOTTED][:MOST_PLOTTED] or known_to_add[:1]
    drawn = []
    for name in names:
        one = document.added[name]
        pairs = [float(k + 1) for k in range(len(one.by_pair))]
        marks = [] if one.added is None else [Rule("y", one.added, "mean")]
        drawn.append(
            Chart(name, [Series("added", one.by_pair, pairs, style="points")], Axis("pair"), Axis("added", one.unit or ""),
                  marks=marks)
        )  # fmt: skip
    return drawn


REPORT = SavedReport(JSON, OverheadDocument, lambda found: bool(found.added), lines, page)
