"""Whole searches through the lab, over a slot server whose run folders are written in simulated time."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refusals import codes, raises_code
from slot_runs import Killed, SlotTarget, without_target
from slot_server import SlotServer

from fastllmload.api import SearchResult
from fastllmload.errors import InputError, TargetError
from fastllmload.experiment import experiment
from fastllmload.experiment.console import Console
from fastllmload.procedure.reshow import saved_report
from fastllmload.search.objective_text import read_objective
from fastllmload.search.run import SearchTerms, run_search, too_few_requests
from fastllmload.search.trials import SearchParameters
from fastllmload.settings import Output, RunSettings, Target

pytestmark = pytest.mark.slow

RATE = SearchParameters(minimum=8, maximum=128, level_s=60, step=0.1)
SLOTS = SearchParameters(what="concurrency", minimum=2, maximum=64, level_s=30, step=1, step_share=False, levels=14)


def run(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    target: SlotTarget,
    parameters: SearchParameters = RATE,
    goodput: tuple[tuple[str, float], ...] = (),
) -> tuple[int, dict[str, Any]]:
    """Exit code and search.json."""
    monkeypatch.setattr(experiment, "execute", target.execute)
    monkeypatch.setattr(experiment.Experiment, "is_unreachable", lambda self: False)
    settings = without_target(RunSettings(output=Output(goodput=goodput)))
    terms = SearchTerms(folder, settle_s=0, warm=False)
    code = run_search(settings, None, parameters, terms, Console(str, quiet=True))
    return code, json.loads((folder / "search.json").read_text())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """A finished search of 40 requests/s: its folder, search.json, and the names of its runs."""
    folder, target = tmp_path_factory.mktemp("whole") / "s", SlotTarget(SlotServer(8, 0.2))
    with pytest.MonkeyPatch.context() as monkeypatch:
        _, document = run(monkeypatch, folder, target)
    return folder, document, target.measured


def held(document: dict[str, Any], truth: float) -> bool:
    answer = document["answer"]
    return bool(answer["low"] <= truth <= answer["high"])


def test_sustained_rate_of_a_slot_server_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """32 slots of 1 s: 32 requests/s, within the interval and within 12 levels; all three files are written."""
    code, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 1.0)))
    assert code == 0 and document["status"] == "done"
    assert held(document, 32.0) and document["answer"]["levels"] <= 12
    assert document["answer"]["limited_by"].startswith("queue growth")
    assert "<svg" in (tmp_path / "s/search.html").read_text()
    text = (tmp_path / "s/search.md").read_text()
    assert "highest rate that" in text and "with 95% confidence" in text
    assert all(run["criteria"]["loop"] == "open" for run in document["levels"])


def test_limits_are_searched_by_percentile_and_by_attainment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TTFT of 505 ms is a wait of 500 ms: Erlang's rates for 1% and for 10% lie within the intervals."""
    server = SlotServer(32, 1.0)
    _, p99 = run(monkeypatch, tmp_path / "a", SlotTarget(server), goodput=(("ttft", 505.0),))
    assert p99["objective"] == "p99" and held(p99, server.rate_where(0.5, 0.01))
    parameters = SearchParameters(objective="attainment:90%", minimum=8, maximum=128, level_s=30, step=0.1)
    _, share = run(monkeypatch, tmp_path / "b", SlotTarget(server), parameters, goodput=(("ttft", 505.0),))
    assert held(share, server.rate_where(0.5, 0.1))


def test_a_fluid_rate_is_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half a second for 20 tokens is fluid; the rate is found, and the tokens/s there."""
    parameters = SearchParameters(objective="fluid", minimum=4, maximum=64, level_s=30, step=0.1)
    _, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 0.5, fixed=True)), parameters)
    assert document["objective"] == "fluid" and document["answer"]["level"] is not None
    assert document["answer"]["best_output_tok_s"] > 4 * 20 * 0.8
    assert "fluid token generation" in (tmp_path / "s/search.md").read_text()


def test_closed_loop_gain_ends_where_slots_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """min(C, 16) are served at once: C / 1.25 gives 5% less until C = 16 x 1.25 / 1.05 = 19.05."""
    _, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(16, 0.5)), SLOTS)
    assert document["answer"]["level"] <= 19.05 < document["answer"]["high"] <= 64
    assert document["answer"]["level"] >= 12
    assert document["answer"]["limited_by"].startswith("gain")


@pytest.mark.parametrize(("slots", "levels", "least"), [(6, 7, 4), (12, 20, 9)])
def test_a_bend_between_two_levels_is_not_taken_for_a_rise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slots: int, levels: int, least: int
) -> None:
    """Doubling steps over the bend, and a line from below it to above it is lower than what is served there. With few levels
    the interval begins at the lower end of that line; with enough of them the line is measured.
    """
    asked = msgspec.structs.replace(SLOTS, levels=levels)
    _, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(slots, 0.5, fixed=True)), asked)
    answer = document["answer"]
    assert least <= answer["low"] <= slots * 1.25 / 1.05 < answer["high"]


def test_the_peak_of_smooth_goodput_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Users idle once requests wait: the peak lies at or below the capacity, its interval around it."""
    parameters = SearchParameters(objective="smooth-goodput", minimum=4, maximum=128, level_s=30, step=0.2)
    _, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 1.0)), parameters)
    answer = document["answer"]
    assert 16 <= answer["level"] <= 40 and answer["low"] < 32 < answer["high"] * 1.3
    assert "highest smooth goodput" in (tmp_path / "s/search.md").read_text()


def test_a_search_is_shown_again_in_its_forms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the files say it; a form of runs, and a redaction that would leave nothing, are refused."""
    once = SearchParameters(minimum=8, maximum=8, level_s=60)
    run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 0.1)), once)
    assert saved_report(tmp_path / "s", "markdown") == (tmp_path / "s/search.md").read_text()
    assert saved_report(tmp_path / "s", "html") == (tmp_path / "s/search.html").read_text()
    assert json.loads(saved_report(tmp_path / "s", "json") or "")["procedure"] == "search"
    assert saved_report(tmp_path, "markdown") is None
    for how in ({"form": "minimum"}, {"form": "terminal", "redact": True}):
        with pytest.raises(InputError):
            saved_report(tmp_path / "s", **how)  # type: ignore[arg-type]
    document = json.loads((tmp_path / "s/search.json").read_text())
    opened = SearchResult.open(tmp_path / "s")
    assert opened.document == document and opened.levels == document["decisions"]
    (tmp_path / "s/search.json").write_text(json.dumps({**document, "decisions": [{"level": "high"}]}))
    for show in (lambda: saved_report(tmp_path / "s", "terminal"), lambda: SearchResult.open(tmp_path / "s")):
        with raises_code("run-file-damaged", "search.json", "`decisions.0.level`"):
            show()


@pytest.mark.parametrize("kill_at", [0, 1, 3, 6])
def test_a_killed_search_continues_and_finds_the_same(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    uninterrupted: tuple[Path, dict[str, Any], list[str]],
    kill_at: int,
) -> None:
    """Killed in any level: started again it repeats no finished level, and the answer is the uninterrupted one."""
    server = SlotServer(8, 0.2)
    whole, expected, measured = uninterrupted
    killed = SlotTarget(server, kill_at=kill_at)
    with pytest.raises(Killed):
        run(monkeypatch, tmp_path / "cut", killed)
    said = saved_report(tmp_path / "cut", "terminal")
    assert said is not None and "INCOMPLETE (killed)" in said
    pooled_decision = SlotTarget(server)
    _, document = run(monkeypatch, tmp_path / "cut", pooled_decision)
    assert document["answer"] == expected["answer"]
    assert saved_report(tmp_path / "cut", "terminal") == saved_report(whole, "terminal")
    assert killed.measured + pooled_decision.measured == measured
    assert document["starts"] == 2


def test_a_finished_search_started_again_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uninterrupted: tuple[Path, dict[str, Any], list[str]]
) -> None:
    """Other parameters in the same folder are refused, with what differs."""
    folder, first, _ = uninterrupted
    shutil.copytree(folder, tmp_path / "s")
    pooled_decision = SlotTarget(SlotServer(8, 0.2))
    _, second = run(monkeypatch, tmp_path / "s", pooled_decision)
    assert pooled_decision.measured == [] and second["answer"] == first["answer"]
    with raises_code("experiment-changed", "(search.level_s 60, now 30; search.minimum 8, now 4)"):
        run(
            monkeypatch, tmp_path / "s", pooled_decision, SearchParameters(minimum=4, maximum=128, level_s=30, step=0.1)
        )


def test_a_level_at_which_the_client_was_late_is_not_saturated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From 33/s on releases are 4 s late: overloads prove nothing, and the answer says why."""
    target = SlotTarget(SlotServer(32, 1.0), late_above=33, late_s=4.0)
    code, document = run(monkeypatch, tmp_path / "s", target)
    answer = document["answer"]
    assert answer["high"] is None and answer["ended_by"] == "client" and answer["level"] is not None
    beyond = [entry for entry in document["decisions"] if entry["level"] > 33]
    assert "fail" not in {entry["decision"] for entry in beyond}
    limited = [entry for entry in beyond if entry["decision"] == "client limited"]
    assert limited and all("dispatch lag is 4" in entry["reason"] for entry in limited)
    assert code == 0
    tried = sum(entry["looks"] for entry in limited)
    levels = ", ".join(f"{entry['level']:g}" for entry in limited)
    assert f"limit at {levels}, in each of {tried} trials" in (tmp_path / "s/search.md").read_text()


def test_a_fail_far_beyond_what_the_client_was_late_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """20 ms late, at levels whose queue grows by many requests a second or whose TTFT is seconds above its limit."""
    target = SlotTarget(SlotServer(32, 1.0), late_above=33)
    _, document = run(monkeypatch, tmp_path / "a", target)
    assert held(document, 32.0)
    assert "dispatch lag is 20 ms" in document["answer"]["limited_by"]
    target = SlotTarget(SlotServer(32, 1.0), late_above=0)
    _, document = run(monkeypatch, tmp_path / "b", target, goodput=(("ttft", 505.0),))
    assert held(document, SlotServer(32, 1.0).rate_where(0.5, 0.01))


def test_a_search_that_starts_where_the_client_is_the_limit_goes_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client is late from 33/s on, the lowest level asked for is 64/s: 32/s and then 16/s say something."""
    parameters = SearchParameters(minimum=64, maximum=128, level_s=30, step=0.1)
    target = SlotTarget(SlotServer(32, 1.0), late_above=33, late_s=4.0)
    code, document = run(monkeypatch, tmp_path / "s", target, parameters)
    answer = document["answer"]
    assert code == 0 and answer["ended_by"] == "client" and 0.7 * 32 <= answer["low"] <= 32
    report = (tmp_path / "s/search.md").read_text()
    assert "level 32 is below" in report and "level-below-range" in report


@pytest.mark.parametrize("late", [{0}, {0, 1}, {1}, {2}, {1, 4, 6}])
def test_a_host_that_is_busy_for_a_moment_does_not_end_the_search_for_a_peak(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: set[int]
) -> None:
    """Runs in which the client was the limit are repeated: the search finds its peak and names the discarded trials."""
    parameters = SearchParameters(objective="smooth-goodput", minimum=4, maximum=128, level_s=30, step=0.2)
    target = SlotTarget(SlotServer(32, 1.0), late_runs=frozenset(late))
    _, document = run(monkeypatch, tmp_path / "s", target, parameters)
    answer = document["answer"]
    assert 16 <= answer["level"] <= 40 and answer["low"] < 32 < answer["high"] * 1.3
    assert answer["ended_by"] != "client"
    said = " ".join(entry["reason"] for entry in document["decisions"])
    assert "trials discarded" in said
    lengths = {one["number"]: one for one in document["levels"]}
    assert all(lengths[number]["level_value"] == lengths[number + 1]["level_value"] for number in late)


def test_a_client_that_stays_late_ends_the_search_for_a_peak_in_clear_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three trials of the same length at the first level and at each of four lower ones, then the end: no level is named a
    contender.
    """
    parameters = SearchParameters(objective="smooth-goodput", minimum=4, maximum=128, level_s=30, step=0.2)
    target = SlotTarget(SlotServer(32, 1.0), late_above=0)
    code, document = run(monkeypatch, tmp_path / "s", target, parameters)
    assert len(target.measured) == 15 and document["answer"]["ended_by"] == "client"
    assert code == 1 and document["answer"]["level"] is None and document["answer"]["smooth_goodput"] is None
    levels = [entry["level"] for entry in document["decisions"]]
    assert len(levels) == 5 and max(levels) == 4
    for only in document["decisions"]:
        assert only["decision"] == "client limited" and only["seconds"] == 3 * 27.0
        assert "each of 3 trials" in only["reason"] and "dispatch lag is 20 ms" in only["reason"]
    report = (tmp_path / "s/search.md").read_text()
    where = ", ".join(f"{level:g}" for level in levels)
    assert f"limit at {where}, in each of 15 trials" in report and "no smooth goodput" in report


@pytest.mark.parametrize("late", [{0}, {0, 1}, {1}, {3, 4}, {2, 5}])
def test_a_host_that_is_busy_for_a_moment_does_not_end_a_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: set[int]
) -> None:
    """The bracket closes around the capacity all the same."""
    target = SlotTarget(SlotServer(32, 1.0), late_runs=frozenset(late))
    _, document = run(monkeypatch, tmp_path / "s", target)
    assert held(document, 32.0) and document["answer"]["ended_by"] in ("bracket", "levels")


def test_a_server_that_slows_down_ends_the_search_loudly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """32 requests/s, and 8 after seven levels: no interval is stated, the exit code is 1, every report says so first."""
    target = SlotTarget(SlotServer(32, 1.0), slower=SlotServer(8, 1.0), slows_after=7)
    code, document = run(monkeypatch, tmp_path / "s", target)
    answer = document["answer"]
    assert code == 1 and answer["ended_by"] == "changed" and answer["low"] is None and answer["high"] is None
    assert "system-changed" in codes(answer["notes"])
    for text in ((tmp_path / "s/search.md").read_text(), saved_report(tmp_path / "s", "terminal") or ""):
        assert "THE SYSTEM CHANGED" in text and "confidence the answer" not in text
    assert "THE SYSTEM CHANGED" in (tmp_path / "s/search.html").read_text()


def test_no_level_holds_when_everything_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit code 1, and the cascading failure is named."""
    code, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 1.0), broken_above=0))
    assert code == 1 and document["answer"]["level"] is None
    assert "cascading failure" in document["decisions"][0]["reason"]
    assert "no rate was" in (tmp_path / "s/search.md").read_text()


def test_a_server_that_dies_leaves_a_partial_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is known by then is in search.json, and a search started again continues."""
    target = SlotTarget(SlotServer(8, 0.2))
    alive = target.execute

    def dies(*arguments: Any) -> int:
        if len(target.measured) == 3:
            raise TargetError("target-lost", "the target does not answer any more")
        return alive(*arguments)

    monkeypatch.setattr(target, "execute", dies)
    with pytest.raises(TargetError):
        run(monkeypatch, tmp_path / "s", target)
    document = json.loads((tmp_path / "s/search.json").read_text())
    assert document["status"] == "failed" and document["decisions"]
    assert any("cut short" in text for text in document["warnings"])
    assert "INCOMPLETE (cut short)" in (tmp_path / "s/search.md").read_text()
    pooled_decision = SlotTarget(SlotServer(8, 0.2))
    run(monkeypatch, tmp_path / "s", pooled_decision)
    assert not set(pooled_decision.measured) & set(target.measured)


@pytest.mark.parametrize("parameters", [RATE, msgspec.structs.replace(RATE, objective="smooth-goodput")])
def test_a_search_that_was_cut_short_has_no_answer_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parameters: SearchParameters
) -> None:
    """Nothing was found to hold *so far*: the page does not say NONE, and names no cause."""
    target = SlotTarget(SlotServer(8, 0.2))

    def dies(*arguments: Any) -> int:
        raise TargetError("target-lost", "the target does not answer any more")

    monkeypatch.setattr(target, "execute", dies)
    with pytest.raises(TargetError):
        run(monkeypatch, tmp_path / "s", target, parameters)
    report, page = ((tmp_path / "s" / name).read_text() for name in ("search.md", "search.html"))
    assert "so far" in report and "the client" not in report
    assert '<b class="word">incomplete' in page.replace("\n", "") or "incomplete" in page.lower()


@pytest.mark.parametrize(
    ("text", "limits", "why"),
    [
        ("p99", (), "needs limits"),
        ("attainment", (), "needs limits"),
        ("attainment:1.5", (("ttft", 200.0),), "out of range"),
        ("sustained", (("ttft", 200.0),), "has no limits"),
        ("p5", (("ttft", 200.0),), "not a percentile"),
        ("fastest", (), "not known"),
        ("smooth-goodput:3", (), "no share"),
    ],
)
def test_an_invalid_objective_is_refused(text: str, limits: tuple[tuple[str, float], ...], why: str) -> None:
    """One sentence with the value."""
    with raises_code("objective-invalid", repr(text), why):
        read_objective(text, limits, lambda level: 1.0, False)


def test_too_few_requests_to_prove_anything_are_reported_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At 2 requests/s trials of 2.5, 10, 20 and 40 s have 130 requests and P99 needs hundreds: the length needed is said."""
    few = SearchParameters(minimum=2, maximum=2, level_s=10)
    _, document = run(monkeypatch, tmp_path / "s", SlotTarget(SlotServer(32, 0.1)), few, goodput=(("ttft", 500.0),))
    assert codes(document["warnings"]) == ["few-samples"]
    assert re.findall(r"1\d\d|6\d\d", document["warnings"][0]) == ["130", "654"]
    assert document["decisions"][0]["decision"] == "undecided"
    assert too_few_requests(read_objective(None, (("ttft", 500.0),), few.width, False), few, 0.1) is not None
    enough = SearchParameters(minimum=2, maximum=2, level_s=60)
    assert too_few_requests(read_objective(None, (("ttft", 500.0),), few.width, False), enough, 0.1) is None


def test_secrets_of_headers_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the search was asked is in search.json, but no credential."""
    target = SlotTarget(SlotServer(8, 0.2))
    monkeypatch.setattr(experiment, "execute", target.execute)
    headers = (("Authorization", "Bearer sk-very-secret"),)
    settings = RunSettings(target=Target(urls=("http://user:pa55word@127.0.0.1:9/v1",), headers=headers))
    once = SearchParameters(minimum=8, maximum=8, level_s=30, looks=1)
    run_search(settings, None, once, SearchTerms(tmp_path / "s", settle_s=0, warm=False), Console(str, quiet=True))
    for name in ("search.json", "search.md", "search.html"):
        text = (tmp_path / "s" / name).read_text()
        assert "very-secret" not in text and "pa55word" not in text


def test_the_default_objective_depends_on_the_limits() -> None:
    """P99 of what was given; else what can be sustained."""
    assert read_objective(None, (("ttft", 200.0), ("tpot", 50.0)), lambda level: 1.0, False).name == "p99"
    assert read_objective(None, (), lambda level: 1.0, False).name == "sustained"


@pytest.mark.parametrize(
    "parameters",
    [
        SearchParameters(minimum=9, maximum=3),
        SearchParameters(what="concurrency", minimum=1.5),
        SearchParameters(preset="x"),
    ],
)
def test_an_impossible_search_is_refused(parameters: SearchParameters) -> None:
    """Before anything is made."""
    with pytest.raises(InputError):
        parameters.validate()
