"""The probes of a warm-up are stable when three pairs in a row vary by less than 10 %, in TTFT and in e2e."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import codes

from fastllmload.documents.experiment import LevelEntry, Probe, WarmUpEntry
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.preparation import warmup
from fastllmload.experiment.preparation.warmup import probe_of, stable
from fastllmload.records import layout


def series(ttft: list[float], e2e: list[float] | None = None) -> list[dict[str, float]]:
    ends = [100.0] * len(ttft) if e2e is None else e2e
    return [Probe(ttft_ms=a, e2e_ms=b) for a, b in zip(ttft, ends, strict=True)]


@pytest.mark.parametrize(
    ("ttft", "found"),
    [
        ([10, 10, 10, 10], True),
        ([10, 10, 10], False),  # two pairs
        ([10, 10.9, 11.8, 12.8], True),
        ([10, 11, 11, 11], False),  # 10 % is not less than 10 %
        ([30, 10, 10, 10, 10], True),
        ([10, 10, 10, 20, 10, 10, 10], False),  # never three pairs in a row
    ],
)
def test_pairs_in_a_row(ttft: list[float], found: bool) -> None:
    assert stable(series(ttft)) is found


def test_both_figures_must_be_stable() -> None:
    assert not stable(series([10] * 4, [100, 120, 100, 120]))


def test_a_probe_whose_answer_is_all_reasoning() -> None:
    row = np.zeros(1, layout.REQUEST)[0]
    row["t_submit"], row["t_any"], row["t_end"] = 5_000_000, 45_000_000, 105_000_000
    assert probe_of(row) == Probe(ttft_ms=40.0, e2e_ms=100.0)
    row["t_first"] = 65_000_000
    assert probe_of(row).ttft_ms == 60.0


class Lab:
    """A start of a procedure; *verified*: what its warm-up comes to when it is done."""

    warm = True

    def __init__(self, folder: Path, verified: bool) -> None:
        self.journal = Journal(folder, ProcedureDocument, "throughput", {})
        self.console = SimpleNamespace(warn=lambda code, text: None)
        self.verified = verified
        self.due = lambda: None
        self.next_level = len(self.journal.document.levels)

    def prepare(self, group: str, what: str, action: object) -> None:
        self.due = action  # done when a level really runs


def start(
    monkeypatch: pytest.MonkeyPatch, folder: Path, verified: bool, levels: int, measures: bool
) -> ProcedureDocument:
    """procedure.json of one start that ends with *levels* finished ones and *measures* some of them itself."""
    experiment = Lab(folder, verified)
    monkeypatch.setattr(warmup, "run_rounds", lambda lab, settings, quick: WarmUpEntry(verified=lab.verified))
    warmup.warm_up(experiment, SimpleNamespace(workload=SimpleNamespace(name="synthetic-uniform")))
    if measures:
        experiment.due()
    experiment.journal.put(levels=tuple(LevelEntry(number=n) for n in range(levels)))
    return experiment.journal.document


@pytest.mark.parametrize("second", [True, False])
def test_a_start_that_measures_nothing_says_the_same_of_the_warm_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: bool
) -> None:
    """The warning stays for levels measured after an unverified warm-up, also after a verified one."""
    start(monkeypatch, tmp_path, verified=False, levels=1, measures=True)
    whole = start(monkeypatch, tmp_path, verified=second, levels=2, measures=True)
    again = start(monkeypatch, tmp_path, verified=True, levels=2, measures=False)
    for document in (whole, again):
        assert codes(document.warnings) == ["warmup-not-verified"] and document.warmup.verified is False


def test_a_warm_up_without_a_finished_level_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Killed in its first level: the next start warms up again."""
    start(monkeypatch, tmp_path, verified=False, levels=0, measures=True)
    document = start(monkeypatch, tmp_path, verified=True, levels=1, measures=True)
    assert document.warnings == () and document.warmup.verified is True


def test_each_warm_up_with_a_finished_level_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of two warm-ups before the same level, only the one after which the level was finished is kept."""
    start(monkeypatch, tmp_path, verified=False, levels=0, measures=True)  # killed in its first level
    assert start(monkeypatch, tmp_path, verified=True, levels=1, measures=True).warmups == (
        WarmUpEntry(verified=True, before_level=0),
    )
    document = start(monkeypatch, tmp_path, verified=True, levels=2, measures=True)
    assert [one.before_level for one in document.warmups] == [0, 1]
    assert start(monkeypatch, tmp_path, verified=True, levels=2, measures=False).warmups == document.warmups
