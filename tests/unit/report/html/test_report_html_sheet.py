"""A page of given tables and plots contains all of them, escapes text, and refuses wrong shapes."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from page_reader import Page

from fastllmload.report.blocks import Block, Paragraph, Section, Table, Text, Verdict, VerdictReason
from fastllmload.report.charts import Axis, Chart, Rule, Series
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.html.page import render
from fastllmload.report.series.curves import cdf

EVIL = "<script>alert(1)</script>\"'&"


def page_of(*blocks: Block, title: str = "Sheet", verdict: Verdict | None = None, simulated: bool = False) -> Page:
    facts: dict[str, Text] = {title: title}
    found = titled_page(title, [Section("Part", blocks)], facts, lead=title, verdict=verdict, simulated=simulated)
    return Page(render(found))


def dots(page: Page, chart: str) -> list[tuple[float, float]]:
    """Positions of the dots of a chart."""
    part = page.source[page.source.index(f'id="{chart}"') :]
    heads = re.search(r'<path d="([^"]*)" class="heads">', part)
    assert heads is not None
    return [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)h", heads[1])]


def test_a_table_formats_numbers_text_and_unknown_values() -> None:
    rows: list[list[str | int | float | bool | None]] = [
        ["10/s", 1234567, 0.031249, True],
        ["20/s", None, float("nan"), False],
    ]
    text = page_of(Table("Points", ["rate", "n", "TTFT", "ok"], rows, ["a note"])).text()
    assert "rate n TTFT ok 10/s 1,234,567 0.0312 yes 20/s n/a n/a no" in text


def test_a_row_that_is_too_short_is_completed() -> None:
    """As in the other formats: tables of saved documents are not checked before."""
    assert "a b only n/a" in page_of(Table("", ["a", "b"], [["only"]])).text()


def test_uneven_columns_of_a_series_are_refused() -> None:
    with pytest.raises(ValueError, match=r"series 'A' has columns of \[2, 3\] values, expected 2"):
        page_of(Chart("Curve", [Series("A", y=[1, 2, 3], x=[1, 2], low=[1, 2])]))
    with pytest.raises(ValueError, match="expected 3"):
        page_of(Chart("Bars", [Series("A", y=[1, 2])], Axis(names=["a", "b", "c"])))


def test_a_line_keeps_the_order_of_its_points() -> None:
    throughput, p99 = [10.0, 20.0, 25.0, 22.0], [30.0, 40.0, 400.0, 9000.0]
    curve = Series("A", y=p99, x=throughput, labels=["1/s", "2/s", "3/s", "4/s"], style="curve")
    page = page_of(Chart("Curve", [curve], x=Axis("throughput"), y=Axis("P99", "ms", "log")))
    assert page.column("s0-0", "A", "x") == throughput
    assert page.column("s0-0", "A") == p99
    xs, ys = zip(*dots(page, "s0-0"), strict=True)
    assert xs[0] < xs[1] < xs[3] < xs[2]
    assert ys[0] > ys[1] > ys[2] > ys[3]
    assert all(label in page.text("s0-0") for label in ("1/s", "4/s", "throughput", "P99"))


def test_logarithmic_axes_put_powers_of_ten_at_equal_distances() -> None:
    given = Series("A", y=[1.0, 10.0, 100.0, 1000.0], x=[1.0, 10.0, 100.0, 1000.0], style="points")
    page = page_of(Chart("Log", [given], x=Axis("n", scale="log"), y=Axis("t", "ms", "log")))
    places = np.array(dots(page, "s0-0"))
    assert np.allclose(np.diff(places[:, 0]), np.diff(places[:, 0])[0], atol=0.11)
    assert np.allclose(np.diff(places[:, 1]), np.diff(places[:, 1])[0], atol=0.11)


def test_a_cdf_shows_the_percentiles_of_its_values() -> None:
    values = np.random.default_rng(5).exponential(20, 2000)
    page = page_of(cdf("TTFT", {"A": [*values, math.nan]}))
    tail, shown = np.array(page.column("s0-0", "A", "x")), np.array(page.column("s0-0", "A"))
    assert np.allclose(shown[:-1], np.quantile(values, 1 - 10.0 ** -tail[:-1]), rtol=1e-3)
    assert shown[-1] == pytest.approx(values.max(), rel=1e-4)


def test_bars_are_side_by_side_and_have_whiskers() -> None:
    series = [Series("alone", y=[1, 2], low=[0.5, 1], high=[2, 3]), Series("shared", y=[3, math.nan])]
    page = page_of(Chart("By class", series, Axis(names=["small", "large"]), marks=[Rule("y", 2.5, "limit")]))
    assert page.numbers["charts"]["s0-0"]["x"]["names"] == ["small", "large"]
    assert page.column("s0-0", "alone")[::2] == [1, 2]
    assert page.column("s0-0", "shared")[::2] == [3, None]
    assert 'class="whiskers c1"' in page.source
    assert "limit" in page.text("s0-0")


def test_a_plot_without_values_has_a_sentence() -> None:
    nothing = Chart("Curve", [Series("A", y=[math.nan], x=[1])], note="No rate was sustained.")
    page = page_of(nothing)
    assert page.text("s0-0").startswith("Curve No rate")
    assert page.numbers["charts"] == {}


def test_many_points_are_thinned_between_the_ends() -> None:
    x = np.arange(50_000.0)
    page = page_of(Chart("Many", [Series("A", y=x * 2, x=x, style="points")]))
    shown = page.column("s0-0", "A", "x")
    assert len(shown) == 2000
    assert (shown[0], shown[-1]) == (0, 49999)


def test_the_verdict_comes_first_with_reasons_and_remedies() -> None:
    verdict = Verdict("suspect", "Check.", [VerdictReason("suspect", "late", "add workers")])
    page = page_of(Paragraph("Some words."), verdict=verdict)
    text = page.text()
    assert text.index("SUSPECT") < text.index("late") < text.index("add workers") < text.index("Some words.")


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulated_engine_has_a_banner(simulated: bool) -> None:
    page = page_of(simulated=simulated)
    assert ("SIMULATED ENGINE" in page.title) is simulated
    assert page.text().count("SIMULATED ENGINE") == (2 if simulated else 0)


def test_text_is_escaped_and_nothing_is_loaded() -> None:
    blocks: list[Block] = [
        Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]], [EVIL]),
        Chart(EVIL, [Series(EVIL, y=[1, 2], x=[1, 2], labels=[EVIL, EVIL])], Axis(EVIL), Axis(EVIL), EVIL),
        Chart(EVIL, [Series(EVIL, y=[1])], Axis(names=[EVIL]), marks=[Rule("y", 1, EVIL)]),
        cdf(EVIL, {EVIL: [1, 2, 3]}, note=EVIL),
        Paragraph(EVIL),
    ]
    page = page_of(*blocks, title=EVIL, verdict=Verdict(EVIL, EVIL, [VerdictReason(EVIL, EVIL, EVIL)]), simulated=True)
    assert page.unbalanced == []
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "alert(1)</script>" not in page.source
    assert page.addresses() == []
