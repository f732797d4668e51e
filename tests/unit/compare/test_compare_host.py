"""Tests that limits of the client (bounds of times, a busy host) are not reported as differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import write_run
from typed_documents import typed

from fastllmload.compare.change import Change
from fastllmload.compare.comparison import Comparison, compare, on_this_host
from fastllmload.compare.report.blocks import for_terminal
from fastllmload.compare.report.json import document
from fastllmload.compare.side import read_side
from fastllmload.report.render import text

pytestmark = pytest.mark.slow

FIGURES = ["mean_ttft_ms", "mean_e2e_ms"]
LATE = {"code": "host_hiccups", "severity": "note", "value": 2836.0, "unit": "us"}


def compared(folder: Path, changed: dict[str, Any] | None = None, **parts: Any) -> Comparison:
    """A run, and one that is 5 % slower; *parts* of both run.json, and *changed* bounds of the base's metrics."""
    sides = []
    for name, factor in (("a", 1.0), ("b", 1.05)):
        written = write_run(folder / name, 1, 800, factor, **parts) / "run.json"
        found = json.loads(written.read_text())
        for metric, bounds in (changed or {}).items() if name == "a" else ():
            found["metrics"][metric]["bounds"] = bounds(found["metrics"][metric])
        written.write_text(json.dumps(found))
        sides.append(read_side([str(written.parent)]))
    return compare(sides[0], sides[1], FIGURES)


def results(found: Comparison) -> dict[str, str]:
    return {row.figure.name: row.result for row in found.rows}


def test_a_difference_that_the_times_leave_open_is_not_claimed(tmp_path: Path) -> None:
    """The base's TTFT may be 8 % more than stated: so much, and more, is the difference."""
    wide = {"ttft": lambda ttft: {"mean": [ttft["mean"], 1.08 * ttft["mean"]]}}
    found = compared(tmp_path, wide)
    assert results(found) == {"mean_ttft_ms": "not shown", "mean_e2e_ms": "worse"}
    change = found.rows[0].change
    assert change.open_by_clocks and change.p == 1.0 and change.interval is not None and change.interval[0] < 0
    assert "a difference: mean_ttft_ms +" in " ".join(text.lines(for_terminal(found, [], 300), 300))
    assert document(found, [])["figures"]["mean_ttft_ms"]["clocks"][0] > 0


def test_an_error_on_the_other_side_of_the_figure_hides_nothing(tmp_path: Path) -> None:
    other = {"ttft": lambda ttft: {"mean": [0.92 * ttft["mean"], ttft["mean"]]}}
    found = compared(tmp_path, other)
    assert results(found)["mean_ttft_ms"] == "worse" and not found.rows[0].change.open_by_clocks


@pytest.mark.parametrize(("address", "judged"), [("127.0.0.1", False), ("10.0.0.1", True)])
def test_a_first_token_of_a_starved_server_is_not_compared(tmp_path: Path, address: str, judged: bool) -> None:
    """On the client's own host, and there alone: what kept a sleeping thread waiting kept the server waiting too."""
    target = {"urls": [f"http://{address}:8000"], "addresses": [address], "model": "m", "simulated": False}
    found = compared(tmp_path, target=target, certificate={"verdict": "suspect", "reasons": [LATE]})
    assert results(found) == {"mean_ttft_ms": "worse" if judged else "not estimable", "mean_e2e_ms": "worse"}
    if not judged:
        assert "2.836 ms late" in str(found.rows[0].change.why_not) and "P99" in str(found.rows[0].change.why_not)


def test_a_unix_socket_is_on_this_host() -> None:
    assert on_this_host(typed({"config": {"target": {"unix_socket": "/run/s"}}}))
    assert not any(on_this_host(typed(found)) for found in ({}, {"target": {"addresses": ["127.0.0.1", "10.0.0.1"]}}))


def test_a_nearer_difference_has_a_larger_p() -> None:
    change = Change(10.0, 0.1, (6.0, 14.0), (0.06, 0.14), "t", 0.001)
    less = change.measured_within(4.0, 1.0, 100.0)
    assert less.interval == (2.0, 15.0) and less.relative_interval == pytest.approx((0.02, 0.15))
    assert less.p == pytest.approx(0.0484, abs=2e-4)  # 0.6 of 3.2905 standard errors
    assert change.measured_within(10.0, 0.0, 100.0).p == 1.0
    assert change.measured_within(0.0, 50.0, 100.0).p == pytest.approx(0.001)
