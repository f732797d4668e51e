"""The Python API takes the options of the command line, returns a Run and raises errors as exceptions."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from refusals import raises_code

import fastllmload
from fastllmload import InputError, Run, TargetError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def short_run(**options: Any) -> Run:
    return fastllmload.run(**{"rate": 40, "num_requests": 20, "warmup": 2, "osl": 8, **options})


def test_run_returns_a_measured_run(capsys: pytest.CaptureFixture[str]) -> None:
    """It has metrics, verdict and objectives; rows are mapped and not copied; nothing is printed."""
    run = short_run(goodput={"ttft": 60_000}, output="here", metadata={"note": "a"})
    assert run.manifest["completed"] == 20 and run.metrics["ttft"]["n"] == 20
    assert run.verdict in ("valid", "suspect", "invalid") and not run.incomplete
    assert run.manifest["slo"]["slo_attainment"] == 1.0
    assert isinstance(run.rows.base, np.memmap) or isinstance(run.rows, np.memmap) or not run.rows.flags.owndata
    assert capsys.readouterr().out == ""
    again = fastllmload.load("here")
    assert repr(again) == repr(run) and "20 of 20 requests ok" in repr(run)


def test_plain_view_prints(capsys: pytest.CaptureFixture[str]) -> None:
    short_run(ui="plain")
    assert "verdict" in capsys.readouterr().out


def test_inside_a_running_event_loop_and_in_a_thread() -> None:
    """As in a notebook, whose cells run inside an event loop."""

    async def cell() -> Run:
        return short_run()

    assert asyncio.run(cell()).manifest["completed"] == 20
    found: list[Run] = []
    thread = threading.Thread(target=lambda: found.append(short_run()))
    thread.start()
    thread.join(60)
    assert found[0].manifest["completed"] == 20


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rat": 5}, ("option-unknown", "'rat'", "rate?")),
        ({"rate": -5}, ("rate-invalid", "rate '-5'")),
        ({"rate": 5, "strict": "yes"}, ("option-value-type", "strict", "'yes'")),
        ({"rate": 5, "num_requests": [1, 2]}, ("option-repeated", "num_requests", "2")),
        ({"rate": 5, "concurrency": 2}, ("rate-and-concurrency", "5", "2")),
        ({"duration": 5}, ("load-missing", "--rate")),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, object], sentence: tuple[str, ...]) -> None:
    with raises_code(*sentence):
        fastllmload.run(**options)


def test_an_unreachable_target() -> None:
    with pytest.raises(TargetError):
        fastllmload.run(url="http://127.0.0.1:1", rate=5, duration=1)


def test_the_key_is_not_stored(tmp_path: Path) -> None:
    run = short_run(api_key="canary-0123456789")
    for file in run.directory.rglob("*"):
        assert not file.is_file() or b"canary-0123456789" not in file.read_bytes()


def test_a_killed_run_is_measured_when_loaded() -> None:
    """run.json of a killed run says "running" and has no metrics: they are computed from the rows."""
    run = short_run()
    document = {name: value for name, value in run.manifest.items() if name not in ("metrics", "certificate", "counts")}
    (run.directory / "run.json").write_bytes(msgspec.json.encode({**document, "status": "running"}))
    again = fastllmload.load(run.directory)
    assert again.incomplete and again.metrics["ttft"]["p50"] == run.metrics["ttft"]["p50"]


def test_no_run_folder(tmp_path: Path) -> None:
    with raises_code("not-a-run-folder", tmp_path):
        fastllmload.load(tmp_path)


def test_paths_and_numbers_of_numpy_are_values(tmp_path: Path) -> None:
    settings = fastllmload.read_settings(output=tmp_path / "run", rate=np.int64(40), osl=np.float32(8))
    assert (settings.output.directory, settings.load.rate) == (str(tmp_path / "run"), 40.0)
    with raises_code("option-value-type", "rate", "bytes"):
        fastllmload.read_settings(rate=b"40")


def test_settings_instead_of_options() -> None:
    """They are parsed and checked before, can be changed, and print nothing unless they say so."""
    settings = fastllmload.read_settings(rate="40", num_requests=20, warmup=0, osl=8)
    assert (settings.load.rate, settings.output.ui) == (40.0, "none")
    run = fastllmload.run(
        msgspec.structs.replace(settings, load=msgspec.structs.replace(settings.load, num_requests=10))
    )
    assert run.manifest["completed"] == 10
    with raises_code("options-conflict", "rate"):
        fastllmload.run(settings, rate=5)


def test_settings_made_by_hand_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Their default view, `auto`, is meant for the command line."""
    load = fastllmload.settings.Load(rate=40.0, num_requests=5, warmup_requests=0)
    run = fastllmload.run(fastllmload.settings.RunSettings(load=load), api_key="canary-0123456789")
    assert run.manifest["completed"] == 5 and capsys.readouterr().out == ""


def test_a_plan_is_built_saved_opened_and_replayed() -> None:
    plan = fastllmload.build_plan("plan", rate=40, num_requests=10, osl=8)
    fastllmload.save_plan(plan, Path("plan.zip"))
    assert (
        fastllmload.load_plan(Path("plan.zip"), Path("again")).digest
        == plan.digest
        == fastllmload.Plan.open(Path("plan")).digest
    )
    run = fastllmload.run(plan="plan.zip", warmup=0)
    assert run.manifest["plan"]["digest"] == plan.digest and run.manifest["completed"] == plan.requests == 10
    with pytest.raises(InputError, match="load_plan"):
        fastllmload.build_plan("other", plan="plan.zip")


def test_runs_are_compared_by_folder_and_by_run() -> None:
    """Sides are folders, runs, or several of them; the result has one row per figure."""
    base, new = short_run(), short_run()
    comparison = fastllmload.compare(base, str(new.directory), figures=["p50_ttft_ms", "req_s"])
    assert [row.figure.name for row in comparison.rows] == ["p50_ttft_ms", "req_s"]
    assert comparison.rows[0].base.value == base.metrics["ttft"]["p50"]
    assert len(fastllmload.compare([base, new], [new.directory, base]).base.runs) == 2
    with raises_code("figure-unknown", "p50_speed_ms"):
        fastllmload.compare(base, new, figures=["p50_speed_ms"])
    with pytest.raises(InputError, match="test 'exact' does not exist"):
        fastllmload.compare(base, new, test="exact")
    with raises_code("workloads-differ"):
        fastllmload.compare(base, short_run(isl=32))


def test_a_search_returns_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints nothing, and its folder can be opened again."""
    options = {
        "min": 20,
        "max": 40,
        "level_duration": 1,
        "max_levels": 2,
        "runs": 1,
        "settle": 0,
        "warmup": 0,
        "osl": 8,
    }
    found = fastllmload.search(goodput={"ttft": 5_000}, objective="attainment:0.5", output="found", **options)
    assert capsys.readouterr() == ("", "")
    assert [entry["level"] for entry in found.levels] == sorted(entry["level"] for entry in found.levels) != []
    assert found.document["status"] == "done" and found.level in (None, 20.0, 40.0)
    again = fastllmload.SearchResult.open("found")
    assert again == found and str(found.level) in repr(again)
    with raises_code("option-prescribed", "rate"):
        fastllmload.search(rate=5)
    with raises_code("option-unknown", "'steps'"):
        fastllmload.search(steps=5)


def test_an_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = fastllmload.walk
