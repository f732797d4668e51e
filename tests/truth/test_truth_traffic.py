"""Conversations, classes and users against the simulated engine: what we say of them is what the server saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from truth_bench import measure

import fastllmload
from fastllmload.records.layout import (
    CLIENT_ABANDONED,
    CLIENT_CANCELLED,
    CLIENT_CANCELS,
    CLIENT_SLOW,
    MEASURE,
    OK,
    STAMP_NAMES,
    STATUS_NAMES,
)
from fastllmload.records.run import Run

BLOCK = 16
QUICK = {"set.step_ms": "1", "set.block_size": str(BLOCK)}
Rows = npt.NDArray[Any]


def measured_rows(run: Run) -> Rows:
    """Rows of the measured phase by conversation and turn."""
    rows = run.rows[run.rows["phase"] == MEASURE]
    return rows[np.lexsort((rows["turn"], rows["session"]))]


def pairs(rows: Rows) -> tuple[Rows, Rows]:
    """Each turn that was sent with the one that was sent after it."""
    follows = rows["session"][1:] == rows["session"][:-1]
    return rows[:-1][follows], rows[1:][follows]


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions"])
def test_the_prefix_cache_finds_what_was_said_before(tmp_path: Path, endpoint: str) -> None:
    """A turn's prompt begins with the whole prompt before it: its full blocks are cached, and nothing else is."""
    run = fastllmload.run(
        rate=20, num_requests=12, turns="2-5", think_time="10ms", isl="uniform:20,90", osl="uniform:4,12", warmup=2,
        endpoint_type=endpoint, output=str(tmp_path / "run"), simulate=QUICK,
    )  # fmt: skip
    rows = measured_rows(run)
    assert (rows["status"] == OK).all()
    assert len(rows) == run.manifest["plan"]["description"]["conversations"]["requests"]
    before, after = pairs(rows)
    assert (rows[rows["turn"] == 0]["cached_tokens"] == 0).all()
    if endpoint == "openai-chat":  # of one text the engine's last token may yet grow into the reply
        assert (after["cached_tokens"] == before["prompt_tokens"] // BLOCK * BLOCK).all()
    else:
        assert np.isin(before["prompt_tokens"] // BLOCK - after["cached_tokens"] // BLOCK, (0, 1)).all()
    grown = after["prompt_tokens"] - before["prompt_tokens"]
    said = before["completion_tokens"] + (
        after["input_target"].astype(int) - before["input_target"] - before["output_target"]
    )
    assert (np.abs(grown - said) <= 8).all(), "a turn adds the reply and its own prompt, and the template's few tokens"
    shares = [turn["cached_share"] for turn in run.manifest["conversations"]["turns"]]
    assert shares[0] == 0 and shares[1] > 0.3 and shares[-1] > shares[1]


def test_a_turn_is_due_when_the_reply_has_ended_and_was_thought_about(tmp_path: Path) -> None:
    """t_sched of a later turn is t_end of the one before and the planned time to think, to the nanosecond."""
    run = fastllmload.run(
        rate=30, num_requests=10, turns=4, think_time="uniform:5ms,40ms", isl=16, osl=3, warmup=0,
        output=str(tmp_path / "run"), save_plan=str(tmp_path / "plan"), simulate=QUICK,
    )  # fmt: skip
    from fastllmload.plan.archive import load_plan

    plan = load_plan(tmp_path / "plan", tmp_path / "opened")
    assert plan.turns is not None and plan.t_sched is not None
    before, after = pairs(measured_rows(run))
    assert len(after) == 30
    assert (after["t_sched"] - before["t_end"] == plan.turns["think_ns"][after["request"]]).all()
    assert (after["t_dispatch"] >= after["t_sched"]).all()
    zero = run.manifest["phases"][-1]["start_ns"]
    first = run.rows[(run.rows["phase"] == MEASURE) & (run.rows["turn"] == 0)]
    assert (first["t_sched"] - zero == plan.t_sched[first["request"]]).all()
    assert run.manifest["certificate"]["schedule_lag_us"]["n"] == 40, "the lag is over all turns"


def test_conversations_in_a_closed_loop(tmp_path: Path) -> None:
    """Three at a time, each to its end; five in all, dealt to two workers."""
    run = fastllmload.run(
        concurrency=3, num_requests=5, turns="3", think_time="2ms", isl=16, osl=2, warmup=0, workers=2,
        output=str(tmp_path / "run"), simulate=QUICK,
    )  # fmt: skip
    rows = measured_rows(run)
    assert rows["session"].tolist() == [n for n in range(5) for _ in range(3)]
    assert rows["turn"].tolist() == [0, 1, 2] * 5
    assert (rows["session"] % 3 % 2 == rows["worker"]).all()  # by slot
    begun = np.sort(rows["t_dispatch"][rows["turn"] == 0])
    ended = np.sort(rows["t_end"][rows["turn"] == 2])
    alive = np.searchsorted(begun, begun, "right") - np.searchsorted(ended, begun, "right")
    assert alive.max() <= 3


def test_a_turn_that_fails_ends_its_conversation(tmp_path: Path) -> None:
    """Requests that the server refuses are followed by nothing of the same conversation; all is accounted for."""
    run = fastllmload.run(
        rate=100, num_requests=30, turns=4, isl=16, osl=2, warmup=0, output=str(tmp_path / "run"),
        simulate={**QUICK, "fault": "status:0.2:500"},
    )  # fmt: skip
    rows = measured_rows(run)
    before, _ = pairs(rows)
    assert (before["status"] == OK).all()
    found = run.manifest["conversations"]
    failed = int((rows["status"] != OK).sum())
    assert failed == found["ended_by_failure"] > 0
    assert found["begun"] == 30 and found["turns_sent"] == len(rows) < found["turns_planned"] == 120
    assert run.manifest["counts"]["not_sent"] == 0


def test_tool_results_come_back_as_messages(tmp_path: Path) -> None:
    """Every later turn brings a call and its result; the engine takes them and still finds the history."""
    run = fastllmload.run(
        rate=40,
        num_requests=8,
        turns=3,
        tool_turns=1,
        isl=40,
        osl=4,
        warmup=0,
        output=str(tmp_path / "run"),
        simulate=QUICK,
    )
    rows = measured_rows(run)
    before, after = pairs(rows)
    assert (rows["status"] == OK).all() and len(after) == 16
    assert (after["cached_tokens"] == before["prompt_tokens"] // BLOCK * BLOCK).all()


def test_classes_are_sent_as_planned_for_any_number_of_workers(tmp_path: Path) -> None:
    """Each class has its own lengths and arrivals; the plan is the same for one worker and two."""
    options: dict[str, Any] = {
        "class": [
            {"name": "chat", "rate": 40, "isl": 20, "osl": 3, "goodput": "ttft:5000"},
            {"name": "batch", "rate": 20, "arrival": "constant", "isl": 50, "osl": 6, "header": "X-Priority: 7"},
        ],
        "duration": 1, "warmup": 2,
    }  # fmt: skip
    digests, found = set(), []
    for workers in (1, 2):
        run = fastllmload.run(**options, workers=workers, output=str(tmp_path / str(workers)), simulate=QUICK)
        digests.add(run.manifest["plan"]["digest"])
        zero = run.manifest["phases"][-1]["start_ns"]
        rows = run.rows[run.rows["phase"] == MEASURE]
        chat, batch = (rows[rows["request_class"] == number] for number in (0, 1))
        assert (chat["input_target"] == 20).all() and (chat["completion_tokens"] == 3).all()
        assert (batch["input_target"] == 50).all() and (batch["completion_tokens"] == 6).all()
        found.append([(row["request"], row["request_class"], row["t_sched"] - zero) for row in rows])
        assert len(batch) == 20
        classes = run.manifest["classes"]
        assert classes["chat"]["planned"] == len(chat) and classes["batch"]["ok"] == 20
        assert run.manifest["slo"]["objectives"][0]["class"] == "chat"
        assert run.manifest["slo"]["objectives"][0]["submitted"] < len(rows)
    assert len(digests) == 1 and found[0] == found[1]


def test_users_leave_after_that_many_tokens(tmp_path: Path) -> None:
    """Those whom the seed chose read that many and are gone; the server's log knows that it sent no end to them."""
    measured = measure(
        tmp_path / "one",
        ["--rate", "60", "-n", "40", "--isl", "16", "--osl", "500", "--warmup", "0", "--cancel-share", "0.3",
         "--cancel-after", "5tok", "--seed", "3"],
        ttft_ms=5.0, itl_ms=4.0, phase="spread",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    rows = measured.run.rows[measured.run.rows["phase"] == MEASURE]
    chosen = (rows["client"] & CLIENT_CANCELS) > 0
    left = rows["error"] == CLIENT_CANCELLED
    assert 4 < chosen.sum() < 30 and (left == chosen).all()
    assert {STATUS_NAMES[status] for status in rows["status"][left]} == {"cancelled"}
    assert (rows["content_events"][left] >= 5).all() and (rows["content_events"][left] < 500).all()
    assert (rows["status"][~left] == OK).all() and (rows["completion_tokens"][~left] == 500).all()
    document = measured.document
    assert document["failed"] == 0 and document["errors"] == []
    assert document["users"]["left_by_plan"] == left.sum() == document["counts"]["left"]
    assert document["metrics"]["success_rate"]["value"] == 1.0
    number = measured.run.manifest["phases"][-1]["number"]
    content = measured.truth.content()
    sent = np.bincount(content["key"][content["phase"] == number], minlength=40)
    assert (sent[left] < 500).all() and (sent[~left] == 500).all(), "the server stopped when they left"


def test_users_leave_after_a_time(tmp_path: Path) -> None:
    """Not before 80 ms from the submission, and all of them while the answer still came."""
    run = fastllmload.run(
        rate=50, num_requests=40, isl=16, osl=100, cancel_share=0.5, cancel_after="80ms", warmup=0, seed=5,
        output=str(tmp_path / "run"), simulate={"ttft-ms": "5", "itl-ms": "10", "phase": "spread"},
    )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    left = rows[rows["error"] == CLIENT_CANCELLED]
    assert len(left) == ((rows["client"] & CLIENT_CANCELS) > 0).sum() > 5
    assert ((left["t_end"] - left["t_submit"]) >= 80_000_000).all()


def test_users_give_up_when_no_token_comes(tmp_path: Path) -> None:
    """The first token takes two seconds; a user who waits 60 ms for it leaves, which is not a failure."""
    run = fastllmload.run(
        rate=50, num_requests=30, isl=16, osl=5, abandon="ttft:60ms", goodput={"ttft": 10000}, warmup=0,
        output=str(tmp_path / "run"), simulate={"ttft-ms": "2000", "itl-ms": "1", "phase": "spread"},
    )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["error"] == CLIENT_ABANDONED).all()
    assert ((rows["t_end"] - rows["t_submit"]) >= 60_000_000).all() and (rows["t_first"] == 0).all()
    document = run.manifest
    assert document["users"]["gave_up"] == 30 and document["failed"] == 0 and document["errors"] == []
    assert document["metrics"]["abandon_rate"]["value"] == 1.0 and document["metrics"]["fail_rate"]["value"] == 0.0
    assert document["metrics"]["success_rate"]["value"] == 0.0 and document["slo"]["slo_attainment"] == 0.0


def test_slow_readers_hold_the_server_up(tmp_path: Path) -> None:
    """The socket is really not read: the server cannot write, so its last event leaves late; those of the others do not."""
    measured = measure(
        tmp_path / "one",
        ["--rate", "50", "-n", "24", "--isl", "16", "--osl", "120", "--warmup", "0", "--slow-readers", "0.3:100tok/s",
         "--seed", "3"],
        ttft_ms=5.0, itl_ms=1.0, phase="spread",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    rows = measured.run.rows[measured.run.rows["phase"] == MEASURE]
    slow = (rows["client"] & CLIENT_SLOW) > 0
    assert 2 <= slow.sum() <= 20 and (rows["status"] == OK).all()
    lasted = (rows["t_last"] - rows["t_first"]) / 1e9
    assert (lasted[slow] >= 0.9 * 119 / 100).all(), "120 tokens at 100 tok/s"
    assert {STAMP_NAMES[stamp] for stamp in rows["stamps"][slow]} == {"user"}
    assert measured.document["counts"]["latency_population"] == int((~slow).sum())
    assert measured.document["users"]["slow_readers"] == int(slow.sum())
    assert measured.document["metrics"]["ttft"]["n"] == int((~slow).sum())


def test_a_saved_plan_carries_all_of_it(tmp_path: Path) -> None:
    """Classes, conversations and users of a saved plan are sent again, in the same bytes and to the same schedule."""
    table = {
        "name": "talk",
        "rate": 20,
        "isl": 16,
        "osl": 3,
        "turns": "2-3",
        "think-time": "5ms",
        "abandon": "ttft:30s",
    }
    other = {"name": "bulk", "rate": 10, "isl": 40, "osl": 2, "cancel-share": 0.2, "cancel-after": "1tok",
             "header": "X-Priority: 3"}  # fmt: skip
    options: dict[str, Any] = {"class": [table, other], "duration": 1, "warmup": 2, "simulate": QUICK}
    first = fastllmload.run(**options, output=str(tmp_path / "a"), save_plan=str(tmp_path / "plan"))
    again = fastllmload.run(
        plan=str(tmp_path / "plan"), output=str(tmp_path / "b"), warmup=2, simulate={**QUICK, "model": "simulated"}
    )
    assert first.manifest["plan"]["digest"] == again.manifest["plan"]["digest"]
    names = ["request", "session", "turn", "request_class", "client", "input_target"]
    one, two = (run.rows[(run.rows["phase"] == MEASURE) & (run.rows["turn"] == 0)][names] for run in (first, again))
    assert (one == two).all() and len(one) > 10
    assert json.dumps(list(again.manifest["classes"])) == '["talk", "bulk"]'
