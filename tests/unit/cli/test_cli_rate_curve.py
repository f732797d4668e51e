"""A rate that changes: every way to write it, its mean in the settings, and one sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import says
from support.command_lines import refused, settings_of


@pytest.mark.parametrize(
    ("arguments", "curve", "mean"),
    [
        (["--rate", "ramp:10,30", "--duration", "100"], "ramp:10,30", 20.0),
        (["--rate", "steps:10,20,60", "--duration", "30"], "steps:10,20,60", 30.0),
        (["--rate", "steps:10x10,20x30", "--num-requests", "5"], "steps:10x10,20x30", 17.5),
        (["--rate", "spikes:10,110,10s,1s", "--duration", "1m"], "spikes:10,110,10s,1s", 20.0),
        (["--rate", "day:10,30", "--duration", "10"], "day:10,30", 20.0),
        (["--rate", "ramp:10,30"], "ramp:10,30", 20.0),
        (["--ramp-up-start-rps", "10", "--ramp-up-end-rps", "30", "--duration", "9"], "ramp:10,30", 20.0),
        (["--arrival", "ramp", "--ramp-up-start-rps", "0.5", "--ramp-up-end-rps", "1.5"], "ramp:0.5,1.5", 1.0),
        (
            [
                "--ramp-up-strategy",
                "exponential",
                "--ramp-up-start-rps",
                "1",
                "--ramp-up-end-rps",
                "2",
                "--duration",
                "1",
            ],
            "exponential:1,2",
            1 / 0.6931471805599453,
        ),
    ],
)
def test_curve_and_mean(arguments: list[str], curve: str, mean: float) -> None:
    """The mean goes into `load.rate`, over the duration or, without one, over the curve's own length."""
    settings, _ = settings_of(*arguments)
    assert settings.load.rate_curve == curve
    assert settings.load.rate == pytest.approx(mean)
    assert settings.load.arrival == "poisson"


def test_series_file(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text("time,rate\n0,10\n# lunch\n60,30\n")
    settings, _ = settings_of("--rate-series", str(file), "--duration", "60")
    assert settings.load.rate == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rate", "ramp:10"], ("rate-curve-invalid", "--rate", "'ramp:10'", "1 values")),
        (["--rate", "ramp:a,b"], ("rate-curve-invalid", "'ramp:a,b'", "'a'")),
        (["--rate", "ramp:0,0"], ("schedule-empty", "'ramp:0,0'")),
        (["--rate", "steps:1x5,2"], ("rate-curve-invalid", "'steps:1x5,2'", "or none")),
        (["--rate", "spikes:1,2,5,9"], ("rate-curve-invalid", "'spikes:1,2,5,9'", "not fit")),
        (["--rate", "day:9,3"], ("rate-curve-invalid", "low rate 9", "high rate 3")),
        (["--rate", "exponential:0,3"], ("rate-curve-invalid", "'exponential:0,3'", "above 0")),
        (["--rate", "ramp:1,2", "--num-requests", "5"], ("rate-curve-invalid", "add --duration")),
        (["--rate", "steps:0x10,5x10", "--duration", "5"], ("schedule-empty", "steps:0x10,5x10", "--duration 5 s")),
        (["--rate", "ramp:1,2", "--concurrency", "5"], ("options-conflict", "--concurrency", "give one")),
        (
            ["--rate", "5", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2"],
            ("options-conflict", "--rate", "--ramp-up-start-rps", "give one"),
        ),
        (["--ramp-up-start-rps", "1"], ("option-missing", "--ramp-up-start-rps", "--ramp-up-end-rps")),
        (["--arrival", "ramp", "--rate", "5"], ("option-missing", "--arrival ramp", "--ramp-up-start-rps")),
    ],
)
def test_one_sentence(arguments: list[str], sentence: tuple[str, ...]) -> None:
    assert says(refused(*arguments), *sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ("rate-curve-invalid", "no rate")),
        ("0,1\n5,2\n4,3\n", ("rate-curve-invalid", "line 3", "time 4", "line's 5")),
        ("0,1\n5\n", ("rate-curve-invalid", "line 2", "1 values")),
        ("0,nan\n", ("rate-curve-invalid", "line 1", "'nan'")),
        ("0,1\nx,y\n", ("rate-curve-invalid", "line 2", "'x'")),
    ],
)
def test_bad_series(tmp_path: Path, text: str, sentence: tuple[str, ...]) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text)
    said = refused("--rate-series", str(file), "--duration", "60")
    assert f"--rate-series {file}" in said and says(said, *sentence) and "write one TIME,RATE a line" in said


def test_slots_that_change() -> None:
    """The most slots go into `load.concurrency`; the run has a duration."""
    settings, _ = settings_of("--concurrency", "ramp:1,64", "--duration", "10")
    assert (settings.load.concurrency_curve, settings.load.concurrency, settings.load.rate) == ("ramp:1,64", 64, None)
    settings, _ = settings_of("-c", "steps:4,9,2")
    assert (settings.load.concurrency, settings.load.duration) == (9, 60.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-c", "ramp:1"], ("rate-curve-invalid", "--concurrency", "'ramp:1'")),
        (["-c", "ramp:0,0.3", "-d", "9"], ("schedule-empty", "ramp:0,0.3")),
        (["-c", "ramp:0,0", "-d", "9"], ("schedule-empty", "--concurrency")),
        (["-c", "ramp:1,2000000", "-d", "9"], ("value-out-of-range", "1,000,000")),
        (["-c", "ramp:1,9", "--rate", "5"], ("rate-and-concurrency", "--rate")),
    ],
)
def test_what_slots_cannot_do(arguments: list[str], sentence: tuple[str, ...]) -> None:
    assert says(refused(*arguments), *sentence)
