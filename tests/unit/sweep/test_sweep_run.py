"""Sweeps through the lab: a run per combination, one table, started again without repeating anything."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code
from slot_runs import Killed, SlotTarget, without_target
from slot_server import SlotServer
from typed_documents import typed

from fastllmload.errors import FastLLMLoadError, HostLimitError, InputError, TargetError
from fastllmload.experiment import experiment
from fastllmload.experiment.console import Console
from fastllmload.experiment.level.result import Level
from fastllmload.settings import Load, Output, RunSettings, Workload
from fastllmload.sweep.report import figure
from fastllmload.sweep.run import GRID, INTERLEAVED, ROUNDS, SHUFFLED, Combination, SweepTerms, run_sweep, schedule
from fastllmload.sweep.spacing import Spaced, names_of

pytestmark = pytest.mark.slow


def cells(rates: tuple[int, ...] = (5, 10), lengths: tuple[int, ...] = (16, 32)) -> list[Combination]:
    return [
        Combination(
            (("rate", str(rate)), ("osl", str(osl))),
            without_target(
                RunSettings(
                    load=Load(rate=float(rate), duration=10.0),
                    workload=Workload(osl=str(osl)),
                    output=Output(goodput=(("ttft", 500.0),)),
                )
            ),
        )
        for rate, osl in itertools.product(rates, lengths)
    ]


def sweep(
    monkeypatch: pytest.MonkeyPatch, target: SlotTarget, given: list[Combination], terms: SweepTerms, gone: bool = False
) -> int:
    monkeypatch.setattr(experiment, "execute", target.execute)
    monkeypatch.setattr(experiment.Experiment, "is_unreachable", lambda self: gone)
    return run_sweep(given, None, terms, Console(str, quiet=True))


def terms(folder: Path, **more: Any) -> SweepTerms:
    return SweepTerms(folder, settle_s=0, **more)


def test_every_combination_has_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four cells of two runs: means, intervals, objectives, folders; and a page with plots over the rate."""
    target = SlotTarget(SlotServer(8, 0.2))
    assert sweep(monkeypatch, target, cells(), terms(tmp_path / "s", runs=2)) == 0
    document = json.loads((tmp_path / "s/sweep.json").read_text())
    assert [cell["values"] for cell in document["cells"]] == [dict(cell.values) for cell in cells()]
    first = document["cells"][0]["figures"]["req_s"]
    assert first["mean"] == pytest.approx(sum(first["runs"]) / 2) and first["ci95"][0] < first["mean"]
    assert document["cells"][0]["figures"]["slo_attainment"]["mean"] == 1.0
    assert len({run["folder"] for run in document["levels"]}) == 8
    text = (tmp_path / "s/sweep.md").read_text()
    assert text.count("\n| 5 |") == 2 and "SLO attainment" in text and "+/-" in text
    assert (tmp_path / "s/sweep.html").read_text().count("<svg") >= 3


@pytest.mark.parametrize(("answers", "value"), [(5, 12.5), (0, None)])
def test_first_tokens_of_any_kind_are_reported_where_answers_reason(answers: int, value: float | None) -> None:
    document = {"counts": {"reasoned": answers}, "metrics": {"ttft_any": {"p50": 12.5}, "ttft": {"p50": 40.0}}}
    level = Level(0, "a", RunSettings(), Path("a"), typed(document))
    assert figure(level, "ttft_any_p50_ms") == value and figure(level, "ttft_p50_ms") == 40.0


def test_runs_do_not_share_requests_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each run has a stream of its own; with --same-requests all have the first one's."""
    sweep(monkeypatch, SlotTarget(SlotServer(8, 0.2)), cells(), terms(tmp_path / "own", runs=2))
    assert len(streams(tmp_path / "own")) == 8
    sweep(monkeypatch, SlotTarget(SlotServer(8, 0.2)), cells(), terms(tmp_path / "same", runs=2, same_requests=True))
    assert streams(tmp_path / "same") == {""}


def streams(folder: Path) -> set[str]:
    runs = [json.loads(path.read_text()) for path in folder.glob("levels/*/run.json")]
    return {run["config"]["workload"]["stream"] for run in runs}


@pytest.mark.parametrize("order", [GRID, INTERLEAVED, SHUFFLED, ROUNDS])
@pytest.mark.parametrize("kill_at", [0, 2, 5])
def test_a_killed_sweep_continues(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: str, kill_at: int) -> None:
    """In any order: no finished run again, and the same table in the end."""
    how: dict[str, Any] = {"runs": 2, "order": order}
    whole = SlotTarget(SlotServer(8, 0.2))
    sweep(monkeypatch, whole, cells(), terms(tmp_path / "whole", **how))
    cut, again = SlotTarget(SlotServer(8, 0.2), kill_at=kill_at), SlotTarget(SlotServer(8, 0.2))
    with pytest.raises(Killed):
        sweep(monkeypatch, cut, cells(), terms(tmp_path / "cut", **how))
    sweep(monkeypatch, again, cells(), terms(tmp_path / "cut", **how))
    assert cut.measured + again.measured == whole.measured
    tables = [json.loads((tmp_path / name / "sweep.json").read_text())["cells"] for name in ("whole", "cut")]
    assert tables[0] == tables[1]


def test_orders_hold_every_run_once() -> None:
    """Cell by cell, round by round, or drawn from the seed; the runs of a cell are counted as they come."""
    orders = {
        order: schedule(3, SweepTerms(Path(), runs=2, order=order), 42) for order in (GRID, INTERLEAVED, SHUFFLED)
    }
    assert orders[GRID] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert orders[INTERLEAVED] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert sorted(orders[SHUFFLED]) == orders[GRID] and orders[SHUFFLED] not in (orders[GRID], orders[INTERLEAVED])
    assert schedule(3, SweepTerms(Path(), runs=2, order=SHUFFLED), 42) == orders[SHUFFLED]
    for cell in range(3):
        assert [run for at, run in orders[SHUFFLED] if at == cell] == [0, 1]


def test_rounds_are_shuffled_each_for_itself() -> None:
    """Both promises: all cells before any is run again, in an order drawn from the seed, another one each time."""
    terms = SweepTerms(Path(), runs=5, order=ROUNDS)
    found = schedule(6, terms, 42)
    rounds = [found[start : start + 6] for start in range(0, 30, 6)]
    assert [sorted(one) for one in rounds] == [[(cell, run) for cell in range(6)] for run in range(5)]
    assert len({tuple(cell for cell, _ in one) for one in rounds}) == 5
    assert schedule(6, terms, 42) == found != schedule(6, terms, 43)


@pytest.mark.parametrize(
    "problem",
    [
        HostLimitError("load-exceeds-host", "100,000 open files"),
        InputError("model-not-offered", "-m 'large', http://127.0.0.1:1"),
        TargetError("request-refused", "http://127.0.0.1:1 answers POST /api/chat with 404"),
    ],
)
def test_a_cell_that_cannot_be_measured_is_reported_and_the_rest_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: FastLLMLoadError
) -> None:
    """By this host, or because the target does not take it; the table has the cell as not measured. --strict makes
    that exit code 1.
    """
    target = SlotTarget(SlotServer(8, 0.2))
    real = target.execute

    def refusing(settings: RunSettings, *others: Any) -> int:
        if settings.load.rate == 10:
            raise problem
        return real(settings, *others)

    monkeypatch.setattr(target, "execute", refusing)
    assert sweep(monkeypatch, target, cells(), terms(tmp_path / "s", runs=2)) == 0
    document = json.loads((tmp_path / "s/sweep.json").read_text())
    assert [cell["refused"] is None for cell in document["cells"]] == [True, True, False, False]
    assert problem.message in (tmp_path / "s/sweep.md").read_text().replace("&#x27;", "'")
    assert sweep(monkeypatch, target, cells(), terms(tmp_path / "t", strict=True)) == 1


def test_a_sweep_of_nothing_that_can_be_measured_fails_for_the_first_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = SlotTarget(SlotServer(8, 0.2))

    def refusing(settings: RunSettings, *others: Any) -> int:
        raise InputError("load-missing", f"no rate {settings.load.rate:g}")

    monkeypatch.setattr(target, "execute", refusing)
    with raises_code("load-missing", "no rate 5"):
        sweep(monkeypatch, target, cells(), terms(tmp_path / "s"))
    assert json.loads((tmp_path / "s/sweep.json").read_text())["status"] == "failed"


def test_a_run_of_other_settings_does_not_refuse_its_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = SlotTarget(SlotServer(8, 0.2))
    assert sweep(monkeypatch, target, cells(), terms(tmp_path / "s")) == 0
    run = next((tmp_path / "s/levels").glob("001*/run.json"))
    run.write_text(json.dumps({**json.loads(run.read_text()), "metadata": {"level": "another"}}))
    with raises_code("experiment-changed", "other settings"):
        sweep(monkeypatch, target, cells(), terms(tmp_path / "s"))


def test_a_dead_target_leaves_a_partial_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error sets the exit code; what was measured is in the table, which says that it is incomplete."""
    target = SlotTarget(SlotServer(8, 0.2))
    real = target.execute

    def dying(*arguments: Any) -> int:
        if len(target.measured) == 2:
            raise TargetError("target-lost", "the target does not answer any more")
        return real(*arguments)

    monkeypatch.setattr(target, "execute", dying)
    with pytest.raises(TargetError):
        sweep(monkeypatch, target, cells(), terms(tmp_path / "s"), gone=True)
    document = json.loads((tmp_path / "s/sweep.json").read_text())
    assert document["status"] == "failed" and [cell["runs"] for cell in document["cells"]] == [1, 1, 0, 0]
    assert "INCOMPLETE" in (tmp_path / "s/sweep.md").read_text()


def spaced_cells(rates: int = 3, lengths: tuple[int, ...] = (16,), at_once: int = 64) -> list[Combination]:
    """`--vary rate=spaced:N --vary osl=…`, as the command makes them."""
    loads = [Load(concurrency=1, duration=40.0), Load(concurrency=at_once, duration=40.0)]
    loads += [Load(rate=1.0, duration=40.0, arrival="constant")] * rates
    return [
        Combination(
            (("rate", name), ("osl", str(osl))),
            without_target(RunSettings(load=loads[place], workload=Workload(osl=str(osl)))),
            Spaced("rate", place),
        )
        for place, name in enumerate(names_of(f"spaced:{rates + 2}"))
        for osl in lengths
    ]


def table(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "sweep.json").read_text())["cells"]
    return found


@pytest.mark.parametrize("order", [GRID, INTERLEAVED])
def test_rates_are_spaced_between_one_at_a_time_and_all_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: str
) -> None:
    """8 slots of 0.2 s: 5 requests/s and 40. Each value of the other option has rates of its own."""
    target = SlotTarget(SlotServer(8, 0.2, fixed=True))
    assert sweep(monkeypatch, target, spaced_cells(lengths=(16, 32)), terms(tmp_path / "s", runs=2, order=order)) == 0
    cells = [cell for cell in table(tmp_path / "s") if cell["values"]["osl"] == "32"]
    lowest, highest = (cell["figures"]["req_s"]["runs"][0] for cell in cells[:2])
    assert lowest == pytest.approx(5, rel=0.05) and highest == pytest.approx(40, rel=0.1)
    assert [cell["values"]["rate"] for cell in cells[:2]] == ["one at a time", "all at once"]
    rates = [float(cell["values"]["rate"]) for cell in cells[2:]]
    assert rates == pytest.approx([lowest + (highest - lowest) * share / 3 for share in (1, 2, 3)], rel=1e-5)
    for rate, cell in zip(rates, cells[2:], strict=True):
        loads = [json.loads((tmp_path / "s" / folder / "run.json").read_text())["config"]["load"]
                 for folder in cell["folders"]]  # fmt: skip
        assert [(load["rate"], load["concurrency"], load["arrival"]) for load in loads] == [
            (rate, None, "constant")
        ] * 2
    page = (tmp_path / "s/sweep.html").read_text()
    assert page.count("<svg") >= 3, "over the rate, and for the first two runs over what they completed"


@pytest.mark.parametrize("kill_at", [0, 1, 3])
def test_a_killed_sweep_of_spaced_rates_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kill_at: int
) -> None:
    """With the rates that the first start found."""
    uncut = SlotTarget(SlotServer(8, 0.2))
    sweep(monkeypatch, uncut, spaced_cells(), terms(tmp_path / "uncut"))
    cut, again = SlotTarget(SlotServer(8, 0.2), kill_at=kill_at), SlotTarget(SlotServer(8, 0.2))
    with pytest.raises(Killed):
        sweep(monkeypatch, cut, spaced_cells(), terms(tmp_path / "cut"))
    sweep(monkeypatch, again, spaced_cells(), terms(tmp_path / "cut"))
    assert cut.measured + again.measured == uncut.measured
    assert table(tmp_path / "cut") == table(tmp_path / "uncut")


def test_rates_of_a_first_run_that_was_repeated_replace_the_old_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The old levels are kept under other names."""
    sweep(monkeypatch, SlotTarget(SlotServer(8, 0.2, fixed=True)), spaced_cells(), terms(tmp_path / "s"))
    old = [folder for cell in table(tmp_path / "s")[2:] for folder in cell["folders"]]
    run = next((tmp_path / "s/levels").glob("001*/run.json"))
    run.write_text(json.dumps({**json.loads(run.read_text()), "status": "running"}))
    again = SlotTarget(SlotServer(4, 0.2, fixed=True))
    assert sweep(monkeypatch, again, spaced_cells(), terms(tmp_path / "s")) == 0
    new = [folder for cell in table(tmp_path / "s")[2:] for folder in cell["folders"]]
    assert len(again.measured) == 4 and not {*old} & {*new}
    assert not any((tmp_path / "s" / folder).exists() for folder in old)
    assert len(list((tmp_path / "s/levels").glob("*.cut-*"))) == 1 + len(old)


@pytest.mark.parametrize(
    ("slots", "broken_above", "found"),
    [(1, math.inf, "5 requests/s"), (8, 0.0, "0 requests/s")],
    ids=["equal", "failed"],
)
def test_rates_that_cannot_be_had_end_a_sweep_with_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slots: int, broken_above: float, found: str
) -> None:
    target = SlotTarget(SlotServer(slots, 0.2, fixed=True), broken_above=broken_above)
    at_once = 1 if slots == 1 else 64
    with raises_code("rates-not-spaced", found, "one at a time", "all at once"):
        sweep(monkeypatch, target, spaced_cells(at_once=at_once), terms(tmp_path / "s"))
    cells = table(tmp_path / "s")
    assert [cell["runs"] for cell in cells] == [1, 1, 0, 0, 0] and len(target.measured) == 2
    assert all("no rates lie between" in cell["refused"] for cell in cells[2:])
    assert json.loads((tmp_path / "s/sweep.json").read_text())["status"] == "failed"


def test_other_groups_are_measured_where_one_has_no_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = SlotTarget(SlotServer(8, 0.2, fixed=True))
    cells = spaced_cells(lengths=(16, 32))
    cells[2] = replace(cells[2], settings=cells[0].settings)  # all at once of osl 16: one slot, too
    with raises_code("rates-not-spaced", "osl 16"):
        sweep(monkeypatch, target, cells, terms(tmp_path / "s", same_requests=True))
    found = table(tmp_path / "s")
    assert [cell["runs"] for cell in found if cell["values"]["osl"] == "32"] == [1] * 5
    assert [cell["runs"] for cell in found if cell["values"]["osl"] == "16"] == [1, 1, 0, 0, 0]


def test_the_same_combination_twice_is_refused(tmp_path: Path) -> None:
    """It would be measured twice under one name."""
    with raises_code("value-repeated", "twice"):
        run_sweep([*cells((5,)), *cells((5,))], None, terms(tmp_path / "s"), Console(str, quiet=True))
