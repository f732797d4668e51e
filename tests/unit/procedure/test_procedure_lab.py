"""A lab measures each level once; started again it finds what is finished, and prepares the system for what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made

from fastllmload.errors import InputError, Interrupted
from fastllmload.procedure.change import at_concurrency, at_rate
from fastllmload.procedure.lab import Lab


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def three_levels(lab: Lab) -> list[str]:
    return [lab.level(f"rate {rate}", at_rate(lab.base, float(rate))).folder.name for rate in (1, 2, 3)]


def test_levels_are_numbered_in_the_order_asked(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as lab:
        assert three_levels(lab) == ["000-rate-1", "001-rate-2", "002-rate-3"]
    assert runs.folders == ["000-rate-1", "001-rate-2", "002-rate-3"]
    levels = json.loads((tmp_path / "p" / "procedure.json").read_text())["levels"]
    assert [level["load"] for level in levels] == [1.0, 2.0, 3.0]


def test_started_again_nothing_finished_is_measured(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as lab:
        first = three_levels(lab)
        lab.journal.put(started_utc="2026-01-01T00:00:00Z")
    with made(tmp_path / "p") as lab:
        assert three_levels(lab) == first
        assert all(level.resumed for level in lab.levels)
        assert lab.journal.document["starts"] == 2
        assert lab.journal.document["started_utc"] == "2026-01-01T00:00:00Z"  # when it began, not when it went on
    assert len(runs.asked) == 3


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_level_that_was_cut_off_is_measured_anew_and_kept_beside(runs: FakeRuns, tmp_path: Path, cut: int) -> None:
    with made(tmp_path / "p") as lab:
        names = three_levels(lab)
    path = tmp_path / "p" / "levels" / names[cut] / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    with made(tmp_path / "p") as lab:
        three_levels(lab)
    assert runs.folders[3:] == [names[cut]]
    assert (tmp_path / "p" / "levels" / f"{names[cut]}.cut-1" / "run.json").exists()


def test_a_damaged_run_json_is_measured_anew(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as lab:
        three_levels(lab)
    (tmp_path / "p" / "levels" / "001-rate-2" / "run.json").write_text('{"status": "do')
    with made(tmp_path / "p") as lab:
        three_levels(lab)
    assert runs.folders[3:] == ["001-rate-2"]


def test_a_level_of_other_settings_is_refused(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as lab:
        lab.level("one", at_rate(lab.base, 1.0))
    with made(tmp_path / "p") as lab, pytest.raises(InputError, match="measured with other settings"):
        lab.level("one", at_concurrency(lab.base, 4))


def test_a_folder_of_another_procedure_is_refused(runs: FakeRuns, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is no folder of a procedure"):
        made(tmp_path / "p")


def test_an_interrupted_level_ends_the_procedure_and_can_be_gone_on_with(runs: FakeRuns, tmp_path: Path) -> None:
    runs.code, runs.answer = 4, lambda settings: {"status": "interrupted"}
    with made(tmp_path / "p") as lab, pytest.raises(Interrupted):
        lab.level("one", lab.base)
    runs.code, runs.answer = 0, lambda settings: {}
    with made(tmp_path / "p") as lab:
        assert not lab.level("one", lab.base).resumed


def test_every_level_stops_on_cascading_failure(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as lab:
        lab.level("one", lab.base)
    assert runs.asked[0].load.stop_on_failures == 0.5


# -- what prepares a level ------------------------------------------------------------------------------------------


def prepared(lab: Lab, log: list[str], cache: str, level: str) -> None:
    """A hook, a warm-up behind it, a level."""
    lab.prepare("cache", cache, lambda: log.append(cache))
    lab.prepare("warmup", "warm-up", lambda: log.append("warm-up"))
    lab.level(level, lab.base)


def test_hooks_and_warm_up_come_before_the_level_that_needs_them(runs: FakeRuns, tmp_path: Path) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as lab:
        prepared(lab, log, "off", "a")
        prepared(lab, log, "off", "b")  # the same state: nothing to do
        prepared(lab, log, "on", "c")
    assert log == ["off", "warm-up", "on", "warm-up"]


def test_a_warm_up_is_done_again_behind_a_hook(runs: FakeRuns, tmp_path: Path) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as lab:
        prepared(lab, log, "off", "a")
        lab.steps.renew("cache")
        prepared(lab, log, "off", "b")
    assert log == ["off", "warm-up", "off", "warm-up"]


def test_finished_levels_need_no_preparation_and_the_next_one_gets_all_of_its_own(
    runs: FakeRuns, tmp_path: Path
) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as lab:
        prepared(lab, log, "off", "a")
        prepared(lab, log, "on", "b")
    (tmp_path / "p" / "levels" / "001-b" / "run.json").unlink()
    log.clear()
    with made(tmp_path / "p") as lab:
        prepared(lab, log, "off", "a")
        prepared(lab, log, "on", "b")
    assert log == ["on", "warm-up"]
