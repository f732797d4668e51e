"""The page in a real browser: loads nothing, no errors, all drawn and readable: light, dark, small, printed.

FASTLLMLOAD_SCREENSHOTS=DIR keeps the pictures, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from html_runs import CHARTS, Written, write
from synthetic_run import Shape

from fastllmload.report.blocks import Section, Table, Verdict
from fastllmload.report.charts import Axis, Chart, Rule, Series
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.html.page import render
from fastllmload.report.series.curves import cdf

EXECUTABLE = chromium.path()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        EXECUTABLE is None,
        reason="no Chromium on the PATH (Debian: apt-get install chromium); FASTLLMLOAD_CHROMIUM names one",
    ),
]
EVIL = '<img src=x onerror="console.error(1)"><script>console.error(2)</script>'
ABOVE_NORMAL = 4.5  # WCAG AA: contrast of text
BLANK = 20_000  # bytes of a PNG of an empty page of this size

CONTRAST = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => { for (let n = node; n; n = n.parentElement) {
    const found = getComputedStyle(n).backgroundColor;
    if (!/, 0\\)$/.test(found) && numbers(found)[3] !== 0.92) return found; }
    return "rgb(255, 255, 255)"; };
  const found = [];
  const wanted = "p, dt, dd, td, th, small, h1, h2, h3, li span, .tag, button, text.tick";
  for (const node of document.querySelectorAll(wanted)) {
    const style = getComputedStyle(node);
    if (!node.textContent.trim() || !node.getClientRects().length || node.closest(".banner, .bar")) continue;
    const [a, b] = [light(node.tagName === "text" ? style.fill : style.color), light(behind(node))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.className.baseVal ?? node.className,
                node.textContent.slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
})()"""
DRAWN = """[...document.querySelectorAll("svg.chart")].map((svg) => {
  const card = svg.closest("figure"), box = svg.getBoundingClientRect();
  const paths = [...svg.querySelectorAll(".series path")].filter((path) => path.getAttribute("d"));
  return [card.id, box.width > 100 && box.height > 50, paths.length > 0, /NaN|Infinity/.test(svg.outerHTML)];
})"""
WIDER = """[...document.querySelectorAll("body *")].filter((node) => !node.closest(".scroll, .numbers, svg, #tip"))
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    assert EXECUTABLE is not None
    found = chromium.Browser(EXECUTABLE, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A run with failures, and a model whose name is an attack."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return write(folder, Shape(requests=400), metadata={EVIL: EVIL}, incidents=[EVIL])


@pytest.fixture(scope="module")
def pages(whole: Written, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("others")
    failing = write(folder / "failing", Shape(requests=40, failures=1.0, usage=False))
    killed = write(folder / "killed", Shape(requests=100), status="running", declarations={"cold_start": "yes"})
    nothing = write(folder / "nothing", None)
    three = write(folder / "three", Shape(requests=3, failures=0.0))
    curve = Series(
        "A",
        y=[30, 40, 90],
        x=[10, 20, 25],
        low=[28, 38, 80],
        high=[33, 44, 120],
        labels=["1", "2", EVIL],
        style="curve",
    )
    fit = [Series("points", [1, 2, 3], [1, 2, 3], style="points"), Series("fit", [1, 3], [1, 3], style="dash")]
    bars = [Series("A", y=[1, 2]), Series("B", y=[2, 1])]
    charts = [
        Chart("Curve", [curve], Axis("rate"), Axis("P99", "ms", "log"), marks=[Rule("y", 80, "limit")]),
        Chart("Fit", fit),
        Chart("Bars", bars, Axis(names=["small", "large"])),
        cdf("Cdf", {"A": range(1, 200)}),
    ]
    sheet = Section("S", [*charts, Table("", ["a"], [[EVIL]]), WIDE])
    page = titled_page(EVIL, [sheet], {EVIL: EVIL}, verdict=Verdict("valid", ""))
    (folder / "sheet.html").write_text(render(page), encoding="utf-8")
    runs = {"whole": whole, "failing": failing, "killed": killed, "nothing": nothing, "three": three}
    return {**{name: run.file for name, run in runs.items()}, "sheet": folder / "sheet.html"}


WIDE = Table(
    "",
    ["combination", *(f"figure {k}" for k in range(9)), "folder"],
    [["rate 20", *("12,345.6",) * 9, "levels/000-rate-20"]],
)


def test_words_of_a_wide_table_are_not_broken_on_a_phone(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    """It scrolls inside its card instead."""
    browser.show(pages["sheet"], width=390)
    split = browser.value(
        """[...document.querySelectorAll("table .words")].filter((cell) => !/[<>]/.test(cell.textContent))
        .map((cell) => [cell.textContent, cell.getBoundingClientRect().height])"""
    )
    assert {"rate 20", "levels/000-rate-20"} <= {text for text, _ in split}
    assert all(height < 60 for _, height in split), split


NAMES = ("whole", "failing", "killed", "nothing", "three", "sheet")


def kept(browser: chromium.Browser, name: str, tmp_path: Path) -> Path:
    """A screenshot, in FASTLLMLOAD_SCREENSHOTS when that is set."""
    folder = Path(os.environ.get("FASTLLMLOAD_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return browser.screenshot(folder / f"{name}.png")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_renders_without_errors_and_without_the_network(
    browser: chromium.Browser, pages: dict[str, Path], name: str, width: int, tmp_path: Path
) -> None:
    browser.show(pages[name], width=width)
    assert browser.value("innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(WIDER) == []
    for chart, large, drawn, broken in browser.value(DRAWN):
        assert (large, drawn, broken) == (True, True, False), chart
    shot = kept(browser, f"{name}-{width}", tmp_path)
    assert shot.stat().st_size > BLANK
    assert browser.trouble == []
    assert browser.requests == [pages[name].as_uri()]


def test_every_chart_of_a_run_is_drawn(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"])
    ids = browser.value('[...document.querySelectorAll("figure")].map((figure) => figure.id)')
    assert set(CHARTS) <= set(ids)
    assert "failures-time" in ids
    drawn = {chart for chart, *_ in browser.value(DRAWN)}
    unwritten = {"hist-lag", "hist-socket_to_user", "hist-hiccup", "cpu"}  # no worker ran
    assert set(CHARTS) - unwritten <= drawn


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["whole", "killed", "sheet"])
def test_text_is_readable_in_light_and_dark(
    browser: chromium.Browser, pages: dict[str, Path], name: str, dark: bool, tmp_path: Path
) -> None:
    browser.show(pages[name], dark=dark)
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", back))) < 60) is dark
    contrast, class_, text = browser.value(CONTRAST)
    assert contrast >= ABOVE_NORMAL, (class_, text)
    kept(browser, f"{name}-{'dark' if dark else 'light'}", tmp_path)


def test_the_theme_can_be_chosen_against_the_system(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["sheet"], dark=True)
    seen = []
    for _ in range(3):
        browser.value('document.getElementById("theme").click()')
        colour = browser.value("getComputedStyle(document.body).backgroundColor")
        seen.append(
            (
                browser.value('document.getElementById("theme").textContent'),
                max(map(int, re.findall(r"\d+", colour))) < 60,
            )
        )
    assert seen == [("Theme: light", False), ("Theme: dark", True), ("Theme: auto", True)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_print_is_black_on_white(browser: chromium.Browser, pages: dict[str, Path], dark: bool, tmp_path: Path) -> None:
    browser.show(pages["whole"], width=720, dark=dark, media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value('getComputedStyle(document.querySelector("nav")).display') == "none"
    assert browser.value(CONTRAST)[0] >= ABOVE_NORMAL
    kept(browser, f"print-{'dark' if dark else 'light'}", tmp_path)
    pdf = browser.printed()
    assert pdf.startswith(b"%PDF-")
    sizes = {
        tuple(round(float(edge)) for edge in box) for box in re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    }
    assert sizes <= {(595, 842), (596, 842), (595, 841)}, "A4"
    assert 2 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 10


def test_values_are_shown_under_the_pointer(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"])
    x, y = centre(browser, "rate")
    browser.mouse("Moved", x, y)
    tip = browser.value('document.getElementById("tip").innerText')
    assert re.search(r"^[\d.]+ s\b", tip) and "sent" in tip and "completed" in tip
    assert browser.value('getComputedStyle(document.querySelector("#flight .cross")).visibility') == "visible"
    browser.mouse("Moved", 2, 2)
    assert browser.value('document.getElementById("tip").hidden') is True


def test_the_nearest_point_of_a_curve_is_named(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["sheet"])
    x, y = centre(browser, "s0-0")
    browser.mouse("Moved", x, y)
    tip = browser.value('document.getElementById("tip").innerText')
    assert tip.startswith("2: 20") and "40 ms" in tip


def test_a_series_can_be_hidden_and_shown(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"])
    hidden = "getComputedStyle(document.querySelector(\"#rate [data-series='1']\")).display"
    press = """document.querySelector("#rate [data-toggle='1']").click()"""
    browser.value(press)
    assert browser.value(hidden) == "none"
    browser.value(press)
    assert browser.value(hidden) != "none"


def test_a_drag_zooms_all_charts_of_the_time_axis(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"])
    plots = '[...document.querySelectorAll("#rate .plot, #stalls .plot, #cdf-ttft .plot")]'
    boxes = f'{plots}.map((plot) => plot.getAttribute("viewBox"))'
    before = browser.value(boxes)
    x, y = centre(browser, "rate")
    browser.mouse("Pressed", x - 60, y, "left", 1)
    browser.mouse("Moved", x + 60, y, "left")
    browser.mouse("Released", x + 60, y, "left", 1)
    after = browser.value(boxes)
    assert [a != b for a, b in zip(before, after, strict=True)] == [False, True, True]
    for clicks in (1, 2):
        browser.mouse("Pressed", x, y, "left", clicks)
        browser.mouse("Released", x, y, "left", clicks)
    assert browser.value(boxes) == before
    assert browser.trouble == []


def test_the_numbers_of_a_chart_can_be_read_as_a_table(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"])
    browser.value('document.querySelector("#cdf-ttft .data").open = true')
    browser.value("new Promise((done) => requestAnimationFrame(done))")
    text = browser.value('document.querySelector("#cdf-ttft .numbers").innerText')
    assert "from submission" in text and re.search(r"P[\d.]+\s+[\d.]+ ms", text)


def test_the_page_is_complete_without_script(browser: chromium.Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["whole"], script=False)
    seen = browser.value(DRAWN)
    assert len(seen) > 10 and all(drawn for _, _, drawn, _ in seen)
    assert browser.value('getComputedStyle(document.getElementById("theme")).display') == "none"
    browser.show(pages["sheet"])


def centre(browser: chromium.Browser, chart: str) -> tuple[float, float]:
    """Of a chart's plot, scrolled into view, in px of the window."""
    x, y = browser.value(
        f'(() => {{ const plot = document.querySelector("#{chart} .plot"); plot.scrollIntoView({{block: "center"}});'
        "const box = plot.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    return x, y
