"""The page of a comparison: workload first, gates, one row of the forest per figure, both sides' curves; nothing misread."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from made_runs import plan, write_run
from refusals import says

from fastllmload.cli.main import main
from fastllmload.report.html.render import WIDTH

pytestmark = pytest.mark.slow

CIRCLE = re.compile(r'<circle cx="([\d.]+)"')


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("compared")
    write_run(folder / "a", 1)
    write_run(folder / "b<b>", 1, factor=1.5)
    write_run(folder / "c", 2, plan=plan("e" * 64, seed=7))
    for path in (write_run(folder / "cut", 1) / "workers").glob("*/tokens.npy"):
        os.truncate(path, path.stat().st_size // 2)
    found = {}
    for name, options in {
        "b<b>": ["--fail-if", "p50_ttft_ms > +5%", "--figure", "p50_ttft_ms", "--figure", "success_rate"],
        "c": ["--different-workload"],
        "cut": [],
    }.items():
        main(["compare", str(folder / "a"), str(folder / name), "-o", str(folder / "page.html"), *options])
        found[name] = (folder / "page.html").read_text()
    return found


def test_sections_come_in_the_order_in_which_they_matter(pages: dict[str, str]) -> None:
    """Equal workloads before anything that was measured; nothing from outside becomes markup."""
    page = pages["b<b>"]
    heads = ["Same workload?", "Gates", "Differences", "Latencies of both sides", "Set-up"]
    places = [page.index(f"<h2>{head}</h2>") for head in heads]
    assert places == sorted(places) and "sent one plan" in page[places[0] : places[1]]
    assert "<b>" not in page.replace("<b>fastllmload", "").split("<main>")[0] and "b&lt;b&gt;" in page
    assert "GATES FAILED" in page and "p50_ttft_ms &gt; +5%" in page


def test_a_bar_shows_where_the_change_is(pages: dict[str, str]) -> None:
    """Half as slow again: the middle lies right of no change, in the tone of worse; an equal share lies on it."""
    table = pages["b<b>"].split("<h2>Differences</h2>")[1].split("</table>")[0]
    worse, same = (float(found) for found in CIRCLE.findall(table))
    assert worse > 110 and same == WIDTH / 2
    assert 'class="words toned invalid">worse' in table and "+50.0 %" in table
    assert 'id="s3-1"' in pages["b<b>"] and "to first token" in pages["b<b>"]


def test_unlike_workloads_are_said_first(pages: dict[str, str]) -> None:
    assert "DIFFERENT WORKLOADS" in pages["c"] and "not comparable" in pages["c"]


def test_a_side_with_damaged_files_is_not_drawn(pages: dict[str, str]) -> None:
    page = pages["cut"]
    assert "is not plotted" in page and "are damaged" in page and "tokens.npy is cut: " in page
    assert "NOT ESTIMABLE" in page


def test_several_systems_have_no_such_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(write_run(tmp_path / name, 1)) for name in "abc"]
    command = ["compare", runs[0], "--against", runs[1], "--against", runs[2], "-o", str(tmp_path / "x.html")]
    assert main(command) == 2
    assert says(capsys.readouterr().err, "options-conflict", "--html", "--systems")
