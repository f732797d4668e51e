"""The options of searches and sweeps: read, contradictions refused in one sentence, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import raises_code, says

from fastllmload.cli.commands.search import confidence, levels, trial_count, width
from fastllmload.cli.commands.sweep import axes_of, cell_options, order_of
from fastllmload.cli.main import main
from fastllmload.errors import InputError
from fastllmload.sweep import run as sweep_run
from fastllmload.sweep.run import Combination


def test_steps_are_numbers_or_shares() -> None:
    """`5%` of the level, or an absolute number."""
    assert width("5%") == (0.05, True)
    assert width("2.5") == (2.5, False)
    with pytest.raises(ValueError, match="below 100%"):
        width("150%")


@pytest.mark.parametrize(
    ("reading", "good", "value", "bad"),
    [
        (trial_count, "3", 3, "9"),
        (levels, "12", 12, "1"),
        (confidence, "95%", 0.95, "0.2"),
        (confidence, "0.9", 0.9, "1"),
    ],
)
def test_counts_and_shares_have_ranges(reading: object, good: str, value: float, bad: str) -> None:
    """Out of range is a sentence that says the range."""
    assert callable(reading) and reading(good) == value
    with pytest.raises(ValueError, match="out of range"):
        reading(bad)


def test_values_of_a_sweep_are_split_at_commas_or_semicolons() -> None:
    """Names are those of a run's options, aliases and with or without their dashes."""
    assert axes_of((("rate", "10,20"), ("input-len", "uniform:1,5; 7"))) == {
        "rate": ["10", "20"],
        "input-len": ["uniform:1,5", "7"],
    }
    assert axes_of((("--osl", "4"),)) == {"osl": ["4"]}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ((), "missing"),
        ((("rate", "1,,2"),), "empty value"),
        ((("rate", "1"), ("request-rate", "2")), "twice"),
        ((("output", "a,b"),), "cannot be varied"),
        ((("rate", ",".join(map(str, range(1, 50)))), ("osl", ",".join(map(str, range(1, 50))))), "combinations"),
    ],
)
def test_what_cannot_be_varied_is_refused(pairs: tuple[tuple[str, str], ...], why: tuple[str, ...]) -> None:
    """Each with its own sentence."""
    with pytest.raises(InputError, match=why):
        axes_of(pairs)


def test_switches_are_varied_by_true_and_false() -> None:
    """Values are read as in a config file; the same option outside of --vary contradicts it."""
    found = cell_options({}, {"ignore-eos": "false", "rate": "5"})
    assert found["ignore_eos"].state is False and found["rate"].texts == ("5",)
    with raises_code("options-conflict", "rate of --vary", "--vary rate"):
        cell_options(found, {"rate": "7"})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["search", "--rate", "5"], ("option-prescribed", "--rate")),
        (
            ["search", "--what", "concurrency", "--arrival", "constant"],
            ("option-not-applicable", "--arrival", "open loop"),
        ),
        (["search", "--min", "9", "--max", "3"], ("range-empty", "--min 9", "--max 3")),
        (["search", "--objective", "p99"], ("objective-invalid", "'p99'", "needs limits")),
        (["search", "--objective", "best"], ("objective-invalid", "'best'", "not known")),
        (["sweep", "--duration", "1"], ("option-missing", "--vary")),
        (["sweep", "--vary", "rat=5"], ("option-unknown", "rat", "rate?")),
        (["sweep", "--vary", "rate=5", "--concurrency", "3"], ("rate-and-concurrency", "--rate 5", "--concurrency 3")),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    why: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert says(said, *why) and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[Combination]:
    """The combinations that a sweep would measure."""
    found: list[Combination] = []

    def run_sweep(given: list[Combination], *_: object) -> int:
        found.extend(given)
        return 0

    monkeypatch.setattr(sweep_run, "run_sweep", run_sweep)
    return found


@pytest.mark.parametrize(("cap", "at_once"), [((), 512), (("--max-concurrency", "40"), 40)])
def test_spaced_rates_are_one_slot_then_all_then_rates(
    cells: list[Combination], cap: tuple[str, ...], at_once: int
) -> None:
    """What only an open loop has is left out of the first two."""
    words = ["--arrival", "gamma", "--burstiness", "0.5", "--vary", "osl=4,8", "--duration", "9", *cap]
    assert main(["sweep", "--vary", "request-rate=spaced:4", *words, "--url", "http://h:1"]) == 0
    assert [one.settings.load.concurrency for one in cells] == [1, 1, at_once, at_once, None, None, None, None]
    assert {one.settings.workload.osl for one in cells} == {"4", "8"}
    assert {(one.settings.load.arrival, one.settings.load.burstiness) for one in cells[4:]} == {("gamma", 0.5)}
    assert {one.settings.load.max_concurrency for one in cells[4:]} == ({40} if cap else {None})
    assert [one.spaced and one.spaced.place for one in cells[::2]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rate=spaced:2",), ("value-invalid", "spaced:2", "3 to 1,000")),
        (("rate=spaced:4,9",), ("value-invalid", "spaced:4,9", "stand alone")),
        (("rate=spaced:",), ("value-invalid", "3 to 1,000")),
        (("rate=spaced:1001",), ("value-invalid", "1,000")),
        (("rate=spaced:600", "--vary", "osl=4,8"), ("sweep-too-large", "1,200")),
        (("rate=spaced:4", "--concurrency", "3"), ("options-conflict", "--concurrency", "rate=spaced")),
        (("rate=spaced:4", "--rate", "3"), ("options-conflict", "--rate", "rate=spaced")),
        (("rate=spaced:4", "--shuffle"), ("options-conflict", "--shuffle")),
    ],
)
def test_spaced_rates_that_cannot_be_are_refused(
    words: tuple[str, ...], why: tuple[str, ...], cells: list[Combination], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--duration", "9", "--url", "http://h:1", "--vary", *words]) == 2
    assert says(capsys.readouterr().err, *why) and cells == []


@pytest.mark.parametrize("command", ["search", "sweep"])
def test_help_names_its_own_options_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The section of the command stands before those of a run."""
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.index(f"\n{command.capitalize()}:") < said.index("Target:")
    assert said.count(" --settle TIME ") == 1 and "  --interleave  " in said


def test_neither_switch_of_a_sweeps_order_is_ignored() -> None:
    orders = [order_of(shuffle, interleave) for shuffle in (False, True) for interleave in (False, True)]
    assert orders == ["grid", "interleaved", "shuffled", "interleaved and shuffled"]
