"""Objectives of a run: who met them, who missed them by how much, per class of requests; limits are inclusive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from example_runs import run_of, streamed
from hypothesis import given
from hypothesis import strategies as st
from refusals import raises_code
from typed_documents import typed

from fastllmload.errors import InputError
from fastllmload.metrics.objectives.evaluators import METRICS, JudgedRequests, RequestMetric, evaluator
from fastllmload.metrics.objectives.objective import (
    objective,
    objectives_of,
    of_requests,
    read_objective,
    refuse_unknown,
)
from fastllmload.metrics.objectives.report import WORST, slo_ok
from fastllmload.metrics.public import measure
from fastllmload.records import layout
from fastllmload.report.blocks import Stacked
from fastllmload.report.documents.headlines import headline_table
from fastllmload.report.terminal.summary import objectives


def slo(requests: list[dict[str, Any]], goodput: list[tuple[str, float]], **manifest: Any) -> dict[str, Any]:
    config = {"output": {"goodput": [list(each) for each in goodput], **manifest.pop("output", {})}}
    found: dict[str, Any] = measure(run_of(requests, {"config": config, "run_id": "r", **manifest}))["slo"]
    return found


STREAMS = [
    streamed([100, 150, 200]),
    streamed([200, 260, 300]),
    streamed([201, 250, 400], **{"class": 1}),
    streamed([150, 180], ok=False, ended=500),
    streamed([], ok=False, ended=900, **{"class": 1}),
]


@pytest.mark.parametrize(
    ("name", "limit", "met", "excess"),
    [
        ("ttft", 200, 2, [1]),
        ("ttft", 199.9999, 1, [1.0001, 0.0001]),
        ("tpot", 50, 2, [49.5]),
        ("e2el", 300, 2, [100]),
        ("ttft_sched", 200, 2, [1]),
        ("e2el_sched", 299, 1, [101, 1]),
        ("tbt", 60, 2, [90]),
        ("itl", 49, 0, [101, 11, 1]),
        ("tbc", 60, 2, [90]),
        ("idle", 150, 1, [10, 100]),  # lateness at 20 tokens/s: 50, 160, 250
        ("reading", 10, 1, [100, 101]),
        ("fluidity", 1.0, 1, [2 / 3, 2 / 3]),
    ],
)
def test_each_metric(name: str, limit: float, met: int, excess: list[float]) -> None:
    found = slo(STREAMS, [(name, limit)])
    entry = found["objectives"][0]
    assert (entry["met"], entry["missed"], entry["failed"], entry["submitted"]) == (met, len(excess), 2, 5), entry
    assert sorted((each["excess"] for each in entry["worst"]), reverse=True) == pytest.approx(
        sorted(excess, reverse=True)
    )
    assert entry["excess"]["max"] == pytest.approx(max(excess)) and entry["excess"]["n"] == len(excess)
    assert found["each"] == {name: met} and found["met"] == met and found["slo_attainment"] == met / 5
    assert entry["failed_requests"] == ["r-1-3", "r-1-4"]


def test_the_worst_are_named_worst_first() -> None:
    late = [streamed([200.0 + k]) for k in range(WORST + 5)]
    entry = slo(late, [("ttft", 200)])["objectives"][0]
    assert [each["request_id"] for each in entry["worst"]] == [f"r-1-{k}" for k in range(WORST + 4, 4, -1)]
    assert entry["missed"] == WORST + 4 and entry["worst"][0]["excess"] == pytest.approx(WORST + 4)


def test_a_class_has_its_own_limit_instead_of_the_general_one() -> None:
    found = slo(STREAMS, [("ttft", 150.0), ("1/ttft", 201.0)])
    general, own = found["objectives"]
    assert (general["submitted"], general["met"]) == (3, 1) and (own["submitted"], own["met"]) == (2, 1)
    assert found["met"] == 2 and found["classes"]["1"] == {"met": 1, "submitted": 2, "slo_attainment": 0.5}


def test_classes_go_by_the_names_of_the_plan() -> None:
    named = slo(STREAMS, [("long/ttft", 201.0)], plan={"classes": ["short", "long"]})
    assert named["objectives"][0]["submitted"] == 2 and set(named["classes"]) == {"short", "long"}
    assert named["met"] == 3  # the short ones that are ok were asked for nothing
    nobody = slo(STREAMS, [("wide/ttft", 201.0)], plan={"classes": ["short", "long"]})["objectives"][0]
    assert nobody["submitted"] == 0 and nobody["attainment"] is None and "no class 'wide'" in nobody["problem"]


def test_goodput_counts_what_was_delivered_in_time() -> None:
    found = slo(STREAMS, [("ttft", 200.0)])
    assert found["time_base"] == "makespan" and found["seconds"] == pytest.approx(0.4)
    assert found["request_goodput"] == pytest.approx(2 / 0.4) and found["token_goodput"] == pytest.approx(6 / 0.4)


def test_smooth_goodput_of_each_preset_is_reported() -> None:
    """sg-default: idle 50, 160, 250, 500 - 150, 900 - 50 ms. sg-fig6: 0, 0, 1, 0 as 500 is before 600, 900 - 200."""
    smooth = slo(STREAMS, [("ttft", 200.0)])["smooth_goodput"]
    expected = 11 - 5 * (0.05 + 0.16 + 0.25 + 0.35 + 0.85), 11 - 10 * (0.001 + 0.7)
    assert [smooth["sg-default"], smooth["sg-fig6"]] == pytest.approx([each / 0.4 for each in expected])


def test_deadlines_and_reader_are_those_of_the_run() -> None:
    """A table over input length; without --goodput there is no slo at all."""
    asked = {"prefill_deadline": [[0, 100], [100, 300]], "decode_deadline": 150.0, "reading_speed": 5.0}
    entries = slo(STREAMS, [("fluidity", 1.0), ("idle", 1.0)], output=asked)["objectives"]
    assert entries[0]["met"] == 1 and entries[0]["d_p_ms"] == [[0, 100], [100, 300]] and entries[0]["d_d_ms"] == 150
    assert entries[1]["met"] == 3 and entries[1]["speed_tok_s"] == 5.0 and entries[1]["d1_ms"] == 200
    assert measure(run_of(STREAMS))["slo"] is None


def test_frameworks_of_the_paper_are_recognised() -> None:
    assert evaluator({"ttft", "tbt"}) == "ttft_tbt" == evaluator({"ttft", "itl"})
    assert evaluator({"e2el"}) == "e2e" and evaluator({"reading"}) == "reading"
    assert evaluator({"ttft", "tpot"}) == "ttft_tpot" and evaluator({"ttft", "e2el"}) is None


def test_slo_ok_of_chosen_rows() -> None:
    run = run_of(STREAMS)
    chosen = run.rows["request"] != 1
    assert slo_ok(run, chosen, {"ttft": 200, "tbt": 60}).tolist() == [True, False, False, False]
    with raises_code("objective-invalid", "'speed:5'", "[CLASS/]NAME:LIMIT"):
        slo_ok(run, chosen, {"speed": 5})


def test_python_objectives_out_of_range_are_one_sentence() -> None:
    for limit in (0.0, -1.0, float("nan"), float("inf")):
        with raises_code("objective-invalid", "out of range"):
            objectives_of([("ttft", limit)])


@given(
    st.sampled_from(sorted(METRICS)), st.integers(1, 99), st.none() | st.from_regex(r"[a-z0-9 _-]{1,8}", fullmatch=True)
)
def test_reading_an_objective_gives_back_its_name(metric: str, limit: int, name: str | None) -> None:
    asked = metric if name is None or not name.strip() else f"{name}/{metric}"
    text, wanted = (
        (f"{asked}:{limit}%", limit * 0.01) if METRICS[metric].unit == "share" else (f"{asked}:{limit}", limit)
    )
    found, value = read_objective(text)
    assert value == wanted and objective(found, value).name == found and objective(found, value).metric == metric


def test_a_request_that_failed_at_the_connection_waits_from_its_dispatch() -> None:
    request = streamed([], ok=False, ended=700)
    run = run_of([request, streamed([10, 20])])
    run.rows["t_submit"][0], run.rows["status"][0] = 0, layout.CONNECTION_ERROR
    idle = measure(run)["metrics"]["idle_latency"]
    assert idle["n"] == 2 and idle["max"] == pytest.approx(650) and idle["n_censored"] == 1
    assert np.isclose(idle["min"], 0)


@pytest.mark.parametrize(
    ("asked", "names", "said"),
    [
        (
            "chad/ttft",
            ["chat", "batch"],
            ("class-unknown", "--goodput chad/ttft:9", "'chad'", "are chat, batch"),
        ),
        ("2/ttft", ["chat", "batch"], ("class-unknown", "'2'")),
        ("chat/ttft", [], ("class-unknown", "'chat'", "no classes")),
    ],
)
def test_an_objective_of_an_empty_class_is_refused_and_not_met_by_all(
    asked: str, names: list[str], said: tuple[str, ...]
) -> None:
    refuse_unknown([("ttft", 5), ("0/ttft", 5), *((f"{name}/e2el", 5) for name in names)], names, [0, 1], False)
    with raises_code(*said):
        refuse_unknown([(asked, 9.0)], names, [0, 1], False)


def long_pauses(judged: JudgedRequests) -> Any:
    """Gaps of more than 100 ms of each request."""
    long = np.flatnonzero(np.diff(judged.times.t_ns) > 100_000_000)  # the gap after each of these tokens
    request = np.searchsorted(judged.times.first, long, side="right") - 1
    inside = long + 1 < judged.times.first[request + 1]
    return np.bincount(request[inside], minlength=len(judged.rows)).astype(float)


def test_a_metric_is_added_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worked example of CONTRIBUTING: in `metrics`, in the headline table and an objective; none may be allowed."""
    entry = RequestMetric("count", long_pauses, title="Pauses over 100 ms")
    monkeypatch.setitem(METRICS, "long_pauses", entry)
    streams = [streamed([100, 150, 251]), streamed([100, 150, 200]), streamed([10, 300, 500, 550])]
    config = {"output": {"goodput": [list(read_objective("long_pauses:0"))]}}
    run = run_of(streams, {"config": config, "run_id": "r"})
    found = measure(run)
    metric = found["metrics"]["long_pauses"]
    assert (metric["unit"], metric["title"], metric["n"]) == ("count", "Pauses over 100 ms", 3)
    assert (metric["mean"], metric["min"], metric["max"]) == (1.0, 0.0, 2.0)
    (objective_of_it,) = found["slo"]["objectives"]
    assert (objective_of_it["met"], objective_of_it["missed"]) == (1, 2)
    assert [each["excess"] for each in objective_of_it["worst"]] == [2.0, 1.0]
    document = typed(found)
    rows = {cells[0].text: cells for cells in headline_table(document).rows if isinstance(cells[0], Stacked)}
    assert rows["Pauses over 100 ms"][0].short == "long_pauses (count)"
    assert str(rows["Pauses over 100 ms"][-1].text).startswith("2")
    (goodput,) = [fact for fact in objectives(document) if fact.label == "goodput"]
    assert str(goodput).count("long_pauses 0") == 1 and "0 count" not in str(goodput)


@pytest.mark.parametrize("text", ["long_pauses:-1", "long_pauses:2ms"])
def test_a_count_has_a_limit_of_zero_or_more(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setitem(METRICS, "long_pauses", RequestMetric("count", long_pauses))
    with raises_code("objective-invalid"):
        read_objective(text)


def test_an_objective_of_sessions_needs_sessions_and_no_class() -> None:
    assert read_objective("session_makespan:30s") == ("session_makespan", 30_000.0)
    assert read_objective("session_stretch:1.5") == ("session_stretch", 1.5)
    assert objective("session_stretch", 1.5).words == "session_stretch of at most 1.5"
    refuse_unknown([("session_makespan", 5.0)], (), [0], True)
    with pytest.raises(InputError, match="the requests of this run stand alone; give --turns or a trace of sessions"):
        refuse_unknown([("session_makespan", 5.0)], (), [0], False)
    with pytest.raises(ValueError, match="names a class, but sessions have none"):
        objective("chat/session_makespan", 1.0)
    assert [one.metric for one in of_requests([("ttft", 1.0), ("session_makespan", 1.0)])] == ["ttft"]
