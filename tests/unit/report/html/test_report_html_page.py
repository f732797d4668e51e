"""report.html has the figures of run.json, marks unreliable ones, escapes all text, and stays small."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from html_runs import CHARTS, Written, write
from page_reader import Page
from refusals import says
from synthetic_run import Shape
from typed_documents import typed, typed_metric, with_keys

from fastllmload.documents.run import RunDocument
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.records import layout
from fastllmload.report.documents.forms import page_of, write_page
from fastllmload.report.text.doubts import bound
from fastllmload.report.text.numbers import quantity

pytestmark = pytest.mark.slow

EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'\u202e"
LIMIT_BYTES = 2_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(tmp_path_factory.mktemp("page") / "run", Shape(requests=400))


@pytest.fixture(scope="module")
def page(run: Written) -> Page:
    return Page(run.source)


def rendered(run: Written, **more: Any) -> Page:
    """The page with other entries in run.json."""
    return Page(page_of(with_keys(run.run, **more)))


def test_the_page_is_one_document_that_loads_nothing(page: Page) -> None:
    assert page.unbalanced == []
    assert page.addresses() == []
    policy = next(found["content"] for tag, found in page.elements if "http-equiv" in found)
    assert policy.startswith("default-src 'none';")
    assert re.search(r"url\(|@import|https?://(?!127\.0\.0\.1)", page.source) is None


def test_every_chart_is_present_and_every_link_has_a_target(page: Page) -> None:
    assert set(CHARTS) <= set(page.ids("figure"))
    links = {found["href"].removeprefix("#") for tag, found in page.elements if tag == "a"}
    assert links and links <= set(page.ids())
    ids = page.ids()
    assert len(ids) == len(set(ids))


def test_the_latency_table_has_the_values_and_intervals_of_run_json(run: Written, page: Page) -> None:
    text = page.text("latency")
    for name in ("ttft", "ttft_sched", "tpot", "e2e", "e2e_sched"):
        metric = run.document["metrics"][name]
        for column in ("mean", "p50", "p90", "p95", "p99", "p999", "max"):
            known = bound(typed_metric(metric), column)
            assert (quantity(metric[column]) if known is None else known.replace(">=", "≥")) in text, (name, column)


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ([26.97, 29.38], "26.97\N{EN DASH}29.38"),
        ([26.97, None], "≥ 26.97"),
        ([None, 29.38], "≤ 29.38"),
        ([None, None], "not estimable"),
        (None, "not estimable"),
    ],
)
def test_an_interval_with_one_open_end_is_printed(run: Written, ends: Any, shown: str) -> None:
    ttft = {**run.document["metrics"]["ttft"], "ci95": {"p50": ends}}
    page = rendered(run, metrics={"ttft": ttft})
    assert shown in page.text("latency")


def test_curves_are_the_percentiles_of_the_latency_population(run: Written, page: Page) -> None:
    rows = run.run.rows[(run.run.rows["status"] == layout.OK) & (run.run.rows["phase"] == layout.MEASURE)]
    window = run.document["window"]
    rows = rows[(rows["t_submit"] >= window["w0_ns"]) & (rows["t_submit"] < window["w1_ns"])]
    ordered = np.sort((rows["t_first"] - rows["t_submit"]) / 1e6)
    tail, value = page.column("cdf-ttft", "from submission", "x"), page.column("cdf-ttft", "from submission")
    for at, shown in list(zip(tail, value, strict=True))[:-1]:
        assert at is not None and shown == pytest.approx(percentile(ordered, 1 - 10**-at), rel=2e-3)
    assert value[-1] == pytest.approx(ordered[-1], rel=1e-4)


def test_rates_add_up_to_the_requests(run: Written, page: Page) -> None:
    x = page.column("rate", "sent", "x")
    width = (x[1] or 0) - (x[0] or 0)
    status = run.run.rows["status"]
    expected = {"sent": len(status), "completed": (status == layout.OK).sum(), "failed": (status > layout.OK).sum()}
    for name, requests in expected.items():
        assert sum(v or 0 for v in page.column("rate", name)) * width == pytest.approx(requests, rel=1e-3), name


def test_stalls_of_workers_and_host_share_a_chart(page: Page) -> None:
    """The run has one of each; other stalls of workers were in the warm-up or below 5 ms."""
    for name, ms in (("host stall above 5 ms", 9.0), ("worker stall above 5 ms", 7.0)):
        assert [value for value in page.column("stalls", name) if value] == [ms], name


def test_a_changing_rate_is_drawn_as_requested(run: Written) -> None:
    curve = {"kind": "linear", "t_s": [0.0, 2.0, 2.0, 5.0], "rate": [10.0, 10.0, 40.0, 80.0]}
    arrivals = {"name": "poisson", "rate": 40.0, "curve": curve}
    plan = {**run.document["plan"], "description": {"load": {"loop": "open", "arrivals": arrivals}}}
    page = rendered(run, plan=plan)
    t, rate = page.column("rate", "asked", "x"), page.column("rate", "asked")
    assert np.interp([1.0, 3.5, 5.0], np.array(t), np.array(rate)) == pytest.approx([10.0, 60.0, 80.0], rel=1e-2)
    talking = {**plan, "description": {**plan["description"], "conversations": {"conversations": 3}}}
    shown = rendered(run, plan=talking).numbers["charts"]["rate"]["series"]
    assert not [one for one in shown if one["name"].startswith("asked")]


def test_the_verdict_comes_before_any_figure_with_reasons_and_remedies(run: Written) -> None:
    reason = {"code": "cpu", "severity": "invalid", "text": "a worker used 99 % of its core", "cause": "generator"}
    page = rendered(run, certificate={"verdict": "invalid", "reasons": [reason], "generator_limited": True})
    text = page.text()
    order = [text.index(part) for part in ("INVALID", "a worker used 99 %", "Add workers", "Time to first token")]
    assert order == sorted(order)
    assert "INVALID" in page.title
    assert "does not show" in text


def test_failures_are_reported_at_the_top_and_by_class(run: Written, page: Page) -> None:
    groups = run.document["errors"]
    assert len(groups) > 2
    assert "Requests failed:" in page.text("verdict")
    for group in groups:
        assert group["status"] in page.text("failures")
        assert f"{group['count']:,}" in page.text("failures")
    shown = page.numbers["charts"]["failures-time"]["series"]
    assert {one["name"] for one in shown} == {group["status"] for group in groups}


def test_a_simulated_engine_is_named_in_the_title_and_twice_on_the_page(run: Written, page: Page) -> None:
    assert "SIMULATED" not in page.text() + page.title
    simulated = rendered(run, target={**run.document["target"], "simulated": True})
    assert simulated.title.startswith("SIMULATED ENGINE")
    assert simulated.text().count("SIMULATED ENGINE") == 2


@pytest.mark.parametrize(
    ("more", "mark", "said"),
    [
        ({"status": "running"}, "INCOMPLETE", "killed; the figures"),
        ({"status": "interrupted"}, "INCOMPLETE", "stopped early; the figures"),
        ({"declarations": {"cold_start": "yes"}}, "COLD START", "just become ready"),
    ],
)
def test_warnings_come_first(run: Written, more: dict[str, Any], mark: str, said: str) -> None:
    page = rendered(run, **more)
    assert page.title.startswith(mark)
    assert mark in page.text("verdict") and said in page.text("verdict")


def test_deviations_are_listed(run: Written) -> None:
    plan = {**run.document["plan"], "warmup": {"deviation": "warm-up was off"}}
    compliance = {"deviations": ["lengths are a stand-in"]}
    text = rendered(run, plan=plan, compliance=compliance).text("verdict")
    assert "a stand-in" in text and "warm-up was off" in text
    again = {"deviations": ["warm-up was off", "lengths are a stand-in"]}
    assert rendered(run, plan=plan, compliance=again).text("verdict").count("warm-up was off") == 1


def test_unmet_requirements_are_listed_with_remedies(run: Written) -> None:
    unmet = {
        "id": "IETF-4.5.1-b",
        "level": "MUST",
        "state": "false",
        "reason": "5 requests",
        "remedy": "leave out --warmup",
    }
    must = {"hold": 49, "of": 52, "false": ["a", "b", "c"], "undeclared": [], "unchecked": []}
    given = {"verdict": "not compliant", "scope": "every test", "must": must, "unmet": [unmet]}
    text = rendered(run, compliance=given).text("methodology")
    assert "not compliant" in text and "every test" in text
    assert "MUST, MUST NOT, REQUIRED 49 52 3 0 0" in text
    assert "IETF-4.5.1-b MUST false 5 requests leave out --warmup" in text
    assert "methodology" not in rendered(run, compliance=None).ids()


def test_an_unsteady_run_has_a_warning(run: Written) -> None:
    little = {"holds": False, "residual": 0.12}
    level = {
        "first_half": 47.0,
        "second_half": 66.0,
        "p": 1e-6,
        "step_at": 0.5,
        "before_step": 47.0,
        "after_step": 66.0,
    }
    drift = {"ttft": {**level, "p_step": 1e-3, "steady": False}, "itl": {**level, "p_step": 1.0, "steady": True}}
    flight = {"first_half": 12.0, "second_half": 30.0, "p": 1e-4, "growing": True}
    text = rendered(run, steadiness={"drift": drift, "in_flight": flight, "littles_law": little}).text("verdict")
    assert "TTFT 47.00 ms" in text and "window, 66.00 ms in" in text
    assert "queue was growing: 12.00 requests" in text and "12.0 % are missing" in text
    assert "Not steady: ITL" not in text


def test_a_value_without_interval_says_how_many_requests_it_needs(run: Written) -> None:
    missing = {"p99": {"reason": "P99 needs about 1,736 requests", "requests_needed": 1736}}
    ttft = {**run.document["metrics"]["ttft"], "ci95": {"p99": None, "mean": [60.0, 70.0]}, "not_estimable": missing}
    text = rendered(run, metrics={"ttft": ttft}).text("latency")
    assert "needs 1,736" in text and "60.00\N{EN DASH}70.00" in text
    assert "like these one" in text


def test_classes_conversations_and_users_have_their_tables(run: Written) -> None:
    ttft = {"p50": 27.5, "p99": 92.25}
    one = {
        "ok": 196,
        "failed": 3,
        "left": 2,
        "success_rate": 0.985,
        "req_s": 20.5,
        "output_tok_s": 1635.0,
        "ttft": ttft,
        "tpot": ttft,
    }
    turn = {"turn": 1, "requests": 18, "ttft": ttft, "prompt_tokens_mean": 802.0, "cached_share": 0.427}
    talks = {
        "planned": 40,
        "begun": 39,
        "turns_sent": 64,
        "turns_planned": 117,
        "ended_by_failure": 1,
        "ended_by_leaving": 0,
        "turns": [turn],
    }
    left = {"left_by_plan": 7, "gave_up": 0, "slow_readers": 0, "denominators": "who left is in no latency"}
    page = rendered(
        run, classes={"chat": one}, conversations=talks, users=left, slo={"classes": {"chat": {"slo_attainment": 0.5}}}
    )
    text = page.text("traffic")
    assert "chat 196 3 2 98.5 % 20.50 1,635 n/a 27.50 92.25" in text and "50.0 %" in text
    assert "2 18 27.50 92.25 802.0 42.7 %" in text and "39 of 40 conversations begun" in text
    assert "Users: 7 left by plan." in text
    assert "traffic" not in rendered(run, classes=None, fairness=None).ids()


def test_users_who_left_are_not_failures(tmp_path: Path) -> None:
    found = write(tmp_path / "run", Shape(requests=60, failures=0.0))
    rows = found.run.rows.copy()
    left = (rows["status"] > layout.OK) | (np.arange(len(rows)) < 20)
    rows["status"][left], rows["error"][left] = layout.CANCELLED, layout.CLIENT_CANCELLED
    counts = {**found.document["counts"], "left": int(left.sum())}
    page = Page(page_of(with_keys(dataclasses.replace(found.run, rows=rows), errors=[], counts=counts)))
    assert f"failed, {left.sum()} left" in page.text()
    assert "failures-time" not in page.ids()
    assert sum(v or 0 for v in page.column("rate", "left")) > 0
    assert "failed" not in {one["name"] for one in page.numbers["charts"]["rate"]["series"]}


def test_external_text_is_escaped(run: Written) -> None:
    evil: dict[str, Any] = poisoned(run.document)
    evil["config"]["load"] = run.document["config"]["load"]  # has names that must be known
    evil["run_id"], evil["metadata"], evil["incidents"] = EVIL, {EVIL: EVIL}, [EVIL]
    evil["certificate"]["reasons"] = [{"severity": EVIL, "text": EVIL, "code": EVIL}]
    source = page_of(run.run.with_document(typed(evil)))
    page = Page(source)
    assert page.unbalanced == []
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in page.elements}
    assert "<script>alert" not in source and "\u202e" not in source
    assert "alert(1)" in page.text()


def poisoned(found: Any) -> Any:
    """A document whose texts are all replaced by an attack; keys and numbers are kept."""
    if isinstance(found, dict):
        return {key: poisoned(value) if key != "status" else value for key, value in found.items()}
    if isinstance(found, list):
        return [poisoned(value) for value in found]
    return EVIL if isinstance(found, str) else found


def test_secrets_are_not_on_the_page(run: Written) -> None:
    urls = ["https://user:hunter2@example.org/v1"]
    target = {"urls": urls, "headers": [["Authorization", "Bearer sk-secret"], ["X-Team", "blue"]]}
    command = ["fastllmload", "--url", urls[0], "--api-key", "***"]
    page = rendered(run, config={"target": target}, target={**run.document["target"], "urls": urls}, command=command)
    assert "hunter2" not in page.source and "sk-secret" not in page.source
    assert "https://user:***@example.org/v1" in page.text() and "blue" in page.text()
    assert "fastllmload --url 'https://user:***@example.org/v1' --api-key '***'" in page.text("verdict")


def test_missing_parts_do_not_affect_the_rest(tmp_path: Path) -> None:
    run = write(tmp_path / "run", Shape(requests=20))
    for key in run.document:
        assert Page(page_of(with_keys(run.run, **{key: None}))).unbalanced == [], key
    assert "NOT JUDGED" in Page(page_of(run.run.with_document(RunDocument()))).text().upper()


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (None, "measured phase was"),
        (Shape(requests=40, failures=1.0), "No request succeeded"),
        (Shape(requests=3, failures=0.0), "None of 3 requests failed"),
        (Shape(requests=1, failures=0.0), "one request did"),
    ],
    ids=["nothing", "failures", "three", "one"],
)
def test_pages_of_runs_with_little_data(tmp_path: Path, shape: Shape | None, said: str) -> None:
    page = Page(write(tmp_path / "run", shape).source)
    assert page.unbalanced == []
    assert said in page.text()
    assert set(CHARTS) <= set(page.ids("figure")) or shape is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    found = write(tmp_path / "run", Shape(requests=20))
    (found.run.directory / "telemetry.json").write_text("{")
    page = Page(page_of(found.run))
    assert says(page.text("telemetry"), "run-file-damaged", "telemetry")


def test_the_file_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = write(tmp_path / "run", Shape(requests=20))
    before = found.source

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_page(found.run)
    assert found.source == before
    assert not list(found.run.directory.glob("*.part"))


def test_the_page_hardly_grows_with_the_run(run: Written) -> None:
    """With thirty times the requests the page has about the same size."""
    large = repeated(run, 30)
    assert len(large.rows) == 30 * len(run.run.rows)
    source = page_of(large)
    assert len(source.encode()) < LIMIT_BYTES / 4
    assert Page(source).unbalanced == []


def repeated(run: Written, times: int) -> Any:
    """The run repeated *times* times, one after the other."""
    one = run.run
    span = int(one.rows["t_end"].max() - one.rows["t_sched"].min()) + 1
    rows, events = np.tile(one.rows, times), np.tile(one.events, times)
    copy = np.repeat(np.arange(times), len(one.rows))
    for name in (field for field in layout.REQUEST.fields or () if field.startswith("t_")):
        rows[name] += np.where(rows[name] > 0, copy * span, 0)
    of_event = np.repeat(np.arange(times), len(one.events))
    events["t_ns"] += of_event * span
    events["row"] += (of_event * len(one.rows)).astype(np.uint32)
    first = np.append(np.tile(one.first_event[:-1], times) + copy * len(one.events), len(events))
    (phase,) = one.document.phases
    phase = msgspec.structs.replace(phase, end_ns=phase.start_ns + times * span)
    return dataclasses.replace(one, rows=rows, events=events, first_event=first).changed(phases=(phase,))


def test_classes_are_listed_with_their_lengths_and_marks(run: Written) -> None:
    """Not as one workload whose lengths are "by class tokens"."""
    plan = {**run.document["plan"], "classes": ["chat", "batch"]}
    lengths = {"chat": ("16", "uniform:2,9"), "batch": ("1000", "200")}
    described = [
        {"name": name, "workload": {"name": "synthetic-uniform", "isl": isl, "osl": osl}}
        for name, (isl, osl) in lengths.items()
    ]
    plan["description"] = {
        "load": {"loop": "open", "arrivals": {"name": "classes", "rate": 35.0}, "concurrency": None},
        "workload": {"name": "classes", "isl": "by class", "osl": "by class"},
        "classes": described,
    }
    latency = {"unit": "ms", "n": 40, "p50": 20.0, "p99": 90.5}
    classes = {
        name: {"ok": 40, "failed": 0, "left": 0, "ttft": latency, "tpot": latency, "e2e": latency} for name in lengths
    }
    page = rendered(run, plan=plan, classes=classes)
    verdict = page.text("verdict")
    assert "35/s in 2 classes, open loop" in verdict and "by class" not in verdict
    assert "chat: synthetic-uniform, prompt 16, output uniform:2,9; batch: synthetic-uniform, prompt 1000" in verdict
    assert "90.50*" in page.text("traffic") and "fewer samples than" in page.text("traffic")


def test_requirements_without_a_key_word_are_listed_separately(run: Written) -> None:
    beside = {"id": "IETF-5.3.2-b", "level": "DEFINITION", "state": "false", "reason": "4 s", "remedy": "--duration 60"}
    given = {"verdict": "conditionally compliant", "scope": "one test", "unmet": [], "beside": [beside]}
    text = rendered(run, compliance=given).text("methodology")
    assert "the verdict 1" in text
    assert "IETF-5.3.2-b DEFINITION false 4 s --duration 60" in text
