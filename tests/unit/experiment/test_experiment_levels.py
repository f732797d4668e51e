"""A lab measures each level once; started again it finds what is finished, and prepares the system for what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_runs import FakeRuns, installed, made
from refusals import code_of, codes, raises_code, says

from fastllmload.cli.main import main
from fastllmload.documents.experiment import FindingTable, HookEntry, WarmUpEntry
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.engine.hosts.placement import cluster
from fastllmload.errors import Interrupted, TargetError
from fastllmload.experiment.console import level_line
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.settings import at_concurrency, at_rate, changed
from fastllmload.redact import Redactor


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return installed(monkeypatch)


def three_levels(experiment: Experiment) -> list[str]:
    return [experiment.level(f"rate {rate}", at_rate(experiment.base, float(rate))).folder.name for rate in (1, 2, 3)]


def test_levels_are_numbered_in_the_order_asked(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as experiment:
        assert three_levels(experiment) == ["000-rate-1", "001-rate-2", "002-rate-3"]
    assert runs.folders == ["000-rate-1", "001-rate-2", "002-rate-3"]
    levels = json.loads((tmp_path / "p" / "procedure.json").read_text())["levels"]
    assert [level["load"] for level in levels] == [1.0, 2.0, 3.0]


def test_levels_need_events_that_are_copied(tmp_path: Path) -> None:
    """They are judged by their events, so hosts that keep theirs are refused before anything is measured."""
    experiment = made(tmp_path / "p")
    experiment.base = changed(experiment.base, hosts={"address": "local", "collect": "summary"})
    with raises_code("option-not-applicable", "--collect rows"), experiment:
        pass
    assert not (tmp_path / "p" / "procedure.json").exists()


def test_levels_on_hosts_need_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, that is said before anything is prepared or written."""
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    experiment = made(tmp_path / "p")
    experiment.base = changed(experiment.base, hosts={"address": "local"})
    with raises_code("ray-missing"), experiment:
        pass
    assert not (tmp_path / "p").exists()


def test_started_again_nothing_finished_is_measured(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as experiment:
        first = three_levels(experiment)
        experiment.journal.put(started_utc="2026-01-01T00:00:00Z")
    with made(tmp_path / "p") as experiment:
        assert three_levels(experiment) == first
        assert all(level.resumed for level in experiment.levels)
        assert experiment.journal.document.starts == 2
        assert (
            experiment.journal.document.started_utc == "2026-01-01T00:00:00Z"
        )  # when it began, not when it was continued
    assert len(runs.asked) == 3


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_level_that_was_cut_off_is_kept_and_measured_again(runs: FakeRuns, tmp_path: Path, cut: int) -> None:
    with made(tmp_path / "p") as experiment:
        names = three_levels(experiment)
    path = tmp_path / "p" / "levels" / names[cut] / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
    assert runs.folders[3:] == [names[cut]]
    assert (tmp_path / "p" / "levels" / f"{names[cut]}.cut-1" / "run.json").exists()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"status": "do', "is not JSON"),
        ('{"schema_version": 1, "status": "done", "certificate": 3}', "`certificate`"),
        (
            '{"schema_version": 1, "status": "done", "files": {"requests.npy": {"bytes": 99, "crc32": 0}}}',
            "run wrote 99 bytes",
        ),
    ],
)
def test_a_damaged_level_is_reported_and_measured_again(
    runs: FakeRuns, tmp_path: Path, document: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are kept under another name; the terminal and the report state the reason."""
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
    (tmp_path / "p" / "levels" / "001-rate-2" / "run.json").write_text(document)
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
        (reported,) = experiment.journal.document.warnings
    assert runs.folders[3:] == ["001-rate-2"]
    assert (reported[:16], code_of(reported)) == ("level 1 (rate 2)", "level-damaged") and words in reported
    assert "001-rate-2.cut-1" in reported and reported in capsys.readouterr().err
    assert (tmp_path / "p" / "levels" / "001-rate-2.cut-1" / "run.json").read_text() == document


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema_version": 1, "proc', "not JSON"),
        ('{"schema_version": 1}', "it has no procedure"),
        ('{"schema_version": 1, "procedure": "ttft", "parameters": {}, "started_utc": "", "levels": 7, "steps": []}',
          "`levels`"),
    ],
)  # fmt: skip
def test_a_damaged_procedure_json_is_one_sentence(runs: FakeRuns, tmp_path: Path, content: str, words: str) -> None:
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
    (tmp_path / "p" / "procedure.json").write_text(content)
    with raises_code("experiment-damaged", "procedure.json", words):
        made(tmp_path / "p")


def test_a_folder_in_which_another_works_is_refused(tmp_path: Path) -> None:
    """Nothing of it is touched; when the other ends, it is free."""
    with Journal(tmp_path / "p", ProcedureDocument, "ttft", {}) as first:
        first.save()
        with (
            Journal(tmp_path / "p", ProcedureDocument, "ttft", {}) as second,
            raises_code("folder-in-use", tmp_path / "p"),
        ):
            second.put(status="mine")
        first.save()
    with Journal(tmp_path / "p", ProcedureDocument, "ttft", {}) as third:
        third.save()
        assert third.document.starts == 2


def test_the_folder_of_another_test_is_refused_by_its_name(runs: FakeRuns, tmp_path: Path) -> None:
    """Not by a list of all options in which the two differ."""
    with made(tmp_path / "p") as experiment:
        experiment.level("one", experiment.base)
    with raises_code("experiment-changed", "'ttft'", "'itl'", "--output"):
        Journal(tmp_path / "p", ProcedureDocument, "itl", {"test": {"levels": [1]}})
    with raises_code("experiment-changed", "(quick false, now true)"):
        Journal(tmp_path / "p", ProcedureDocument, "ttft", {"test": {}, "quick": True, "run": {}})


def test_a_level_of_other_settings_is_refused(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as experiment:
        experiment.level("one", at_rate(experiment.base, 1.0))
    with made(tmp_path / "p") as experiment, raises_code("experiment-changed", "one", "other settings"):
        experiment.level("one", at_concurrency(experiment.base, 4))


def test_a_folder_of_another_procedure_is_refused(runs: FakeRuns, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "notes.txt").write_text("mine")
    with raises_code("output-not-empty", tmp_path / "p"):
        made(tmp_path / "p")


@pytest.mark.parametrize("name", ["levels", "preparation"])
def test_a_folder_whose_levels_lead_elsewhere_is_not_gone_on_with(runs: FakeRuns, tmp_path: Path, name: str) -> None:
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "p" / "levels").rename(tmp_path / "kept")
    (tmp_path / "p" / name).symlink_to(tmp_path / "elsewhere")
    with raises_code("output-is-link", f"p/{name} is a link"):
        made(tmp_path / "p")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_interrupted_level_ends_the_procedure_and_can_be_gone_on_with(runs: FakeRuns, tmp_path: Path) -> None:
    runs.code, runs.answer = 4, lambda settings: {"status": "interrupted"}
    with made(tmp_path / "p") as experiment, pytest.raises(Interrupted):
        experiment.level("one", experiment.base)
    runs.code, runs.answer = 0, lambda settings: {}
    with made(tmp_path / "p") as experiment:
        assert not experiment.level("one", experiment.base).resumed


def test_every_level_stops_on_cascading_failure(runs: FakeRuns, tmp_path: Path) -> None:
    with made(tmp_path / "p") as experiment:
        experiment.level("one", experiment.base)
    assert runs.asked[0].load.stop_on_failures == 0.5


def test_a_level_that_was_stopped_early_gives_a_warning(runs: FakeRuns, tmp_path: Path) -> None:
    """Once, also when it is found finished; with the share that was asked for."""
    times = {"name": "measure", "number": 1, "start_ns": 0, "end_ns": 1, "bound": "duration", "ramp_share": 0.1}
    runs.answer = lambda settings: {"phases": [{**times, "cascading_failure": True}]}
    for _ in range(2):
        with made(tmp_path / "p") as experiment:
            experiment.level("rate 40", at_rate(experiment.base, 40.0))
            (reported,) = experiment.journal.document.warnings
            assert (reported[:17], code_of(reported)) == ("level 0 (rate 40)", "cascading-failures")
            assert "50%" in reported and "last 100 requests" in reported


def test_a_level_whose_requests_did_not_end_has_a_bound(runs: FakeRuns, tmp_path: Path) -> None:
    """P99 of the requests that ended is 40 ms; that of all is at least 4,129 ms."""
    ttft = {"unit": "ms", "n": 9, "p99": 40.0, "unfinished_bounds": {"p99": {"low": 4129.0, "high": None}}}
    runs.answer = lambda settings: {"metrics": {"ttft": ttft}}
    with made(tmp_path / "p") as experiment:
        level = experiment.level("rate 40", at_rate(experiment.base, 40.0))
        (warning,) = experiment.journal.document.warnings
    assert (warning[:17], code_of(warning)) == ("level 0 (rate 40)", "requests-unfinished") and ">=4,129 ms" in warning
    assert "TTFT P99 >=4,129 ms" in level_line(level)


@pytest.mark.parametrize("answered", [0, 1])
def test_a_target_that_stopped_answering_names_the_last_answered_level(
    monkeypatch: pytest.MonkeyPatch, runs: FakeRuns, tmp_path: Path, answered: int
) -> None:
    """Its last words alone ("is the endpoint type right?") would send the reader the wrong way; at first they are right."""

    def refusing(*given: object) -> int:
        raise TargetError("server-error", "http://x answers POST /v1/chat/completions with 500")

    with made(tmp_path / "p") as experiment:
        for number in range(answered):
            experiment.level(f"rate {number + 1}", at_rate(experiment.base, number + 1.0))
        monkeypatch.setattr("fastllmload.experiment.experiment.execute", refusing)
        with pytest.raises(TargetError) as caught:
            experiment.level("rate 9", at_rate(experiment.base, 9.0))
    assert caught.value.code == ("target-lost" if answered else "server-error")
    assert ("level 0 (rate 1)" in caught.value.message) == bool(answered)
    assert caught.value.message.endswith("http://x answers POST /v1/chat/completions with 500")


def test_a_secret_that_a_hook_printed_is_in_no_file(tmp_path: Path) -> None:
    """Output, command and error of a hook go into the journal, which keeps none of them with the key in it."""
    book = Journal(tmp_path / "p", ProcedureDocument, "ttft", {}, redact=Redactor(["sk-abcdef"]))
    book.put(steps=(HookEntry(name="restart", output="token sk-abcdef\n"),))
    book.warn("hook-failed", "--hook restart='echo sk-abcdef' ended with status 3: sk-abcdef")
    book.put(tables=(FindingTable("a", "b", ("sk-abcdef",), (("sk-abcdef", 1.5),)),))
    assert "sk-abcdef" not in (tmp_path / "p/procedure.json").read_text()
    assert "sk-abcdef" not in str(book.document)  # what the reports are written from
    assert book.document.tables[0].rows == (("***", 1.5),)


# -- what prepares a level ------------------------------------------------------------------------------------------


def prepared(experiment: Experiment, log: list[str], cache: str, level: str) -> None:
    """A hook, a warm-up after it, a level."""
    experiment.prepare("cache", cache, lambda: log.append(cache))
    experiment.prepare("warmup", "warm-up", lambda: log.append("warm-up"))
    experiment.level(level, experiment.base)


def test_hooks_and_warm_up_come_before_the_level_that_needs_them(runs: FakeRuns, tmp_path: Path) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as experiment:
        prepared(experiment, log, "off", "a")
        prepared(experiment, log, "off", "b")  # the same state: nothing to do
        prepared(experiment, log, "on", "c")
    assert log == ["off", "warm-up", "on", "warm-up"]


def test_a_warm_up_is_repeated_after_a_hook(runs: FakeRuns, tmp_path: Path) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as experiment:
        prepared(experiment, log, "off", "a")
        experiment.steps.renew("cache")
        prepared(experiment, log, "off", "b")
    assert log == ["off", "warm-up", "off", "warm-up"]


def test_finished_levels_need_no_preparation_and_the_next_one_gets_all_of_its_own(
    runs: FakeRuns, tmp_path: Path
) -> None:
    log: list[str] = []
    with made(tmp_path / "p") as experiment:
        prepared(experiment, log, "off", "a")
        prepared(experiment, log, "on", "b")
    (tmp_path / "p" / "levels" / "001-b" / "run.json").unlink()
    log.clear()
    with made(tmp_path / "p") as experiment:
        prepared(experiment, log, "off", "a")
        prepared(experiment, log, "on", "b")
    assert log == ["on", "warm-up"]


@pytest.mark.parametrize("may_die", [False, True])
def test_a_target_that_dies_under_a_level_ends_the_test_or_is_what_it_found(
    monkeypatch: pytest.MonkeyPatch, runs: FakeRuns, tmp_path: Path, may_die: bool
) -> None:
    """A test that can bring it back keeps the level; any other sets it aside and stops."""
    runs.answer = lambda settings: {"failed": 60}
    monkeypatch.setattr(Experiment, "is_unreachable", lambda experiment: True)
    with made(tmp_path / "p") as experiment:
        if may_die:
            assert experiment.level("150%", experiment.base, may_die=True).failed == 60
        else:
            with raises_code("target-lost", tmp_path / "p/levels/000-150.cut-1"):
                experiment.level("150%", experiment.base)
    assert (tmp_path / "p/levels/000-150").exists() == may_die


def test_a_level_that_sends_everything_at_once_has_its_load_in_words(runs: FakeRuns, tmp_path: Path) -> None:
    """JSON has no infinite number: null would mean an unknown load."""
    with made(tmp_path / "p") as experiment:
        experiment.level("all at once", at_rate(experiment.base, float("inf")))
    (level,) = json.loads((tmp_path / "p" / "procedure.json").read_text())["levels"]
    assert level["load"] == "inf"


def test_unused_levels_are_quarantined_and_reported(runs: FakeRuns, tmp_path: Path) -> None:
    """A repeated level may lead a test to other levels; those that only an earlier start measured are in no figure."""
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
        experiment.quarantine_unused_levels()
        assert experiment.journal.document.warnings == ()
    with made(tmp_path / "p") as experiment:
        experiment.level("rate 1", at_rate(experiment.base, 1.0))
        experiment.level("rate 5", at_rate(experiment.base, 5.0))
        experiment.quarantine_unused_levels()
        reported = experiment.journal.document.warnings
    there = sorted(place.name for place in (tmp_path / "p" / "levels").iterdir())
    assert there == ["000-rate-1", "001-rate-2.cut-1", "001-rate-5", "002-rate-3.cut-1"]
    assert [text.split(" was ")[0] for text in reported] == ["levels/001-rate-2", "levels/002-rate-3"]
    assert codes(reported) == ["level-unused", "level-unused"]


def test_a_start_that_is_killed_at_once_forgets_nothing(runs: FakeRuns, tmp_path: Path) -> None:
    """What an earlier one recorded of levels, and the warm-ups that they stand on, is there for the next."""
    with made(tmp_path / "p") as experiment:
        for rate in (1, 2):
            experiment.record(experiment.level(f"rate {rate}", at_rate(experiment.base, float(rate))), died=True)
        experiment.journal.put(warmup=WarmUpEntry(), warmups=(WarmUpEntry(before_level=0), WarmUpEntry(before_level=7)))
    with made(tmp_path / "p"):
        pass  # killed before it came to a level
    with made(tmp_path / "p") as experiment:
        document = experiment.journal.document
        assert document.warmup == WarmUpEntry() and document.warmups == (WarmUpEntry(before_level=0),)
        level = experiment.level("rate 1", at_rate(experiment.base, 1.0))
        assert experiment.earlier(level).died is True
        assert experiment.entry(level).died is None  # until this start finds it again
        experiment.quarantine_unused_levels()
        assert [one.number for one in experiment.journal.document.levels] == [0]


def test_an_amount_of_warm_up_without_effect_gives_a_warning(
    runs: FakeRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 requests and 10,000 tokens are what the methodology asks for; only 0 is another choice."""
    for amount in ("10", "10000tok", "0"):
        main(["procedure", "ttft", "--warmup", amount, "--rate", "1", "-o", str(tmp_path / amount), "--ui", "none"])
        assert says(capsys.readouterr().err, "option-not-applicable", "--warmup has") == (amount != "0")


@pytest.mark.parametrize(
    ("reported", "asked"),
    [
        ({"continuous_usage": False, "token_ids": False}, ["auto", "off", "off"]),
        ({"continuous_usage": True, "token_ids": None}, ["auto", "auto", "auto"]),
        ({"continuous_usage": False, "token_ids": True}, ["auto", "auto", "auto"]),
    ],
    ids=["neither", "usage", "token ids"],
)
def test_a_target_that_does_not_say_what_events_carry_is_asked_once(
    runs: FakeRuns, tmp_path: Path, reported: dict[str, bool | None], asked: list[str]
) -> None:
    """Otherwise each level would repeat queries whose answer is known; another target is queried again."""
    runs.answer = lambda settings: {"target": reported}
    with made(tmp_path / "p") as experiment:
        three_levels(experiment)
        assert [settings.workload.continuous_usage for settings in runs.asked] == asked
        other = changed(experiment.base, target={"urls": ("http://127.0.0.1:2",)})
        experiment.level("elsewhere", at_rate(other, 1.0))
    assert runs.asked[-1].workload.continuous_usage == "auto"
