"""What is made of levels and is stopped a second time while it writes its report: the report is whole all the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from refusals import raises_code
from slot_runs import SlotTarget, without_target
from slot_server import SlotServer

from fastllmload.engine.preflight.check import Preflight
from fastllmload.errors import Interrupted
from fastllmload.experiment import experiment
from fastllmload.experiment.console import Console
from fastllmload.experiment.ending import ALL, ignore_signals
from fastllmload.experiment.journal import DONE, INTERRUPTED, Journal
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_rate
from fastllmload.overhead import run as overhead_run
from fastllmload.overhead.run import OverheadTerms, run_overhead
from fastllmload.procedure import run
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest
from fastllmload.procedure.repeat import run_repeatedly
from fastllmload.search.run import SearchTerms, run_search
from fastllmload.search.trials import SearchParameters
from fastllmload.settings import Load, RunSettings
from fastllmload.sweep.run import Combination, SweepTerms, run_sweep

BASE = without_target(RunSettings(load=Load(rate=5.0, duration=10.0)))
QUIET = Console(str, quiet=True)


def search(folder: Path) -> int:
    parameters = SearchParameters(minimum=8, maximum=16, level_s=30, looks=1)
    return run_search(BASE, None, parameters, SearchTerms(folder, settle_s=0, warm=False), QUIET)


def sweep(folder: Path) -> int:
    return run_sweep([Combination((("rate", "5"),), BASE)], None, SweepTerms(folder, settle_s=0), QUIET)


def overhead(folder: Path) -> int:
    urls = BASE.target.urls
    return run_overhead(BASE, urls, urls, None, OverheadTerms(folder, pairs=4, settle_s=0), QUIET)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """None."""


def one_level(given: Conditions[Parameters]) -> Iterator[Level]:
    yield given.experiment.level("one", at_rate(given.settings, 2.0))


def nothing(level: Level, given: Conditions[Parameters]) -> None:
    """An analysis without findings."""


def procedure(folder: Path) -> int:
    test = ProcedureTest(
        "ttft", "5.1", "Time to First Token", Parameters, one_level, nothing,
        shared=lambda parameters: {}, warms_up=False,
    )  # fmt: skip
    return run_repeatedly(
        test, BASE, None, Parameters(), run.ProcedureTerms(folder, conforming=False, settle_s=0.0), QUIET, 1
    )


MADE = {
    "search": (search, ("search.json", "search.md", "search.html")),
    "sweep": (sweep, ("sweep.json", "sweep.md", "sweep.html")),
    "overhead": (overhead, ("overhead.json", "overhead.md", "overhead.html")),
    "procedure": (
        procedure,
        ("run-1/procedure.json", "run-1/procedure.md", "run-1/procedure.html", "runs.json", "runs.md", "runs.html"),
    ),
}


def not_held_back(number: int, frame: FrameType | None) -> None:
    raise AssertionError("the signal was not held back")


@pytest.fixture(params=ALL, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that, were it not held back, would fail the test."""
    before = signal.signal(request.param, not_held_back)
    yield request.param
    assert signal.signal(request.param, before) is not_held_back, "the handler from before is not back"


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("status", [INTERRUPTED, DONE])
def test_a_signal_after_the_final_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, status: str, number: signal.Signals
) -> None:
    """It comes when the document says how the whole ended and its pages are not there yet."""
    made, files = MADE[name]
    target = SlotTarget(SlotServer(8, 0.2))
    sent: list[str] = []
    put = Journal.put

    def struck(self: Journal, **entries: Any) -> None:
        put(self, **entries)
        if "status" in entries:
            sent.append(entries["status"])
            signal.raise_signal(number)

    def stopped(*given: Any) -> int:
        raise Interrupted("interrupted", "")

    monkeypatch.setattr(Journal, "put", struck)
    monkeypatch.setattr(experiment, "execute", target.execute if status == DONE else stopped)
    monkeypatch.setattr(experiment.Experiment, "is_unreachable", lambda self: False)
    monkeypatch.setattr(overhead_run, "preflight", lambda *_: Preflight(model="m"))
    if status == DONE:
        made(tmp_path / "p")
    else:
        with raises_code("interrupted", "--output"):
            made(tmp_path / "p")
    assert sent and set(sent) == {status}
    for each in files:
        assert (tmp_path / "p" / each).exists(), each
    for each in files:
        if each.endswith(".json"):
            assert json.loads((tmp_path / "p" / each).read_text())["status"] == status


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ignore_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
