"""Classes that are closed loops next to open ones: what the simulated engine had in flight of each, and what it was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agentic_traces import BLOCK, write_trace
from truth.truth_bench import Measured, measure, until_quiet

from fastllmload.arrivals.curve import SlotChanges, read_curve, slot_changes
from fastllmload.metrics.run.window import window_of
from fastllmload.plan.archive import load_plan
from fastllmload.plan.plan import Plan
from fastllmload.records.layout import OK
from fastllmload.workload.traces.formats import read_call_graph

ENGINE: dict[str, Any] = {"ttft_ms": 30.0, "itl_ms": 4.0, "phase": "spread"}
OPTIONS = ["--seed", "5", "--no-telemetry", "--warmup", "8", "--ramp-share", "0", "--duration", "2"]
CHAT, BATCH, LONG = "chat rate=60 isl=24 osl=6", "batch concurrency=9 isl=16 osl=30", "long concurrency=4 isl=40 osl=45"
MIX = (BATCH, CHAT, LONG)  # numbers 0, 1, 2
SLOTS = {0: 9, 2: 4}
PROMPTS = (20, 28, 44)  # tokens that the engine counts in each class: those of the message's frame as well
TIMEOUT = 8


def sent(directory: Path, classes: tuple[str, ...], *options: str, **engine: Any) -> Measured:
    words = [*OPTIONS, *(word for one in classes for word in ("--class", one)), *options]
    return measure(directory, words, pin=False, **(ENGINE | engine))


def zero(measured: Measured) -> int:
    return next(int(phase["start_ns"]) for phase in measured.run.manifest["phases"] if phase["name"] == "measure")


def in_flight(measured: Measured, number: int, t: np.ndarray) -> np.ndarray:
    """Of class *number* at *t*, ns from time zero, by the engine's log. It learns from the end of the connection that a
    request was given up, which comes after the next one: such a request is in flight up to the instant that we say.
    """
    ours, theirs = measured.joined()
    mine = ours["request_class"] == number
    ended = np.where(ours["status"] == TIMEOUT, np.minimum(theirs["t_end"], ours["t_end_user"]), theirs["t_end"])
    begin, end = (np.sort(each[mine] - zero(measured)) for each in (theirs["t_recv_first"], ended))
    return np.searchsorted(begin, t, "right") - np.searchsorted(end, t, "right")


def of_each_class(measured: Measured) -> list[int]:
    """Requests that the engine was sent of each class of MIX, by the length of their prompts."""
    _, theirs = measured.joined()
    return [int((theirs["prompt_tokens"] == tokens).sum()) for tokens in PROMPTS]


@pytest.mark.clock
@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_each_class_has_its_slots_in_flight(tmp_path: Path, workers: str) -> None:
    """Never more, and as many at 95 % of the instants; each slot's request is due when the one before it has ended."""

    def check(folder: Path) -> tuple[bool | None, str]:
        measured = sent(folder, MIX, "--workers", workers)
        ours, _ = measured.joined()
        assert (ours["status"] == OK).all()
        assert np.bincount(ours["request_class"], minlength=3).tolist() == of_each_class(measured)
        shares = []
        for number, slots in SLOTS.items():
            found = in_flight(measured, number, np.arange(100_000_000, 1_990_000_000, 1_000_000))
            assert found.max() <= slots
            shares.append(float((found == slots).mean()))
            mine = np.sort(ours[ours["request_class"] == number], order="t_sched")
            assert (mine["t_sched"][:slots] == zero(measured)).all() and len(mine) > 3 * slots
            assert set(mine["t_sched"][slots:].tolist()) <= set(mine["t_end_user"].tolist())
            assert len(set(mine["t_sched"][slots:].tolist())) == len(mine) - slots
            assert mine["t_sched"].max() < zero(measured) + 2_000_000_000
        return min(shares) >= 0.95, str(shares)

    until_quiet(tmp_path, check)


def longest(measured: Measured, number: int) -> int:
    """Of the requests of a class, by the engine's log, ns."""
    ours, theirs = measured.joined()
    mine = theirs[ours["request_class"] == number]
    return int((mine["t_end"] - mine["t_recv_first"]).max())


def followed(measured: Measured, number: int, asked: SlotChanges, seconds: int) -> tuple[float, float]:
    """Of what is in flight of a class: the share of instants that it is the number asked for, and the highest share by which
    it exceeds what was asked for within the length of a request before, which is when slots that close still hold theirs.
    """
    t = np.arange(5_000_000, seconds * 1_000_000_000 - 10_000_000, 1_000_000)
    found, most = in_flight(measured, number, t), longest(measured, number)
    recent = np.stack([asked.at(t - back) for back in range(0, most + 10_000_000, 1_000_000)]).max(axis=0)
    settled = recent == asked.at(t)
    assert settled.mean() > 0.5
    return float((found == asked.at(t))[settled].mean()), float((found - recent).max())


@pytest.mark.clock
@pytest.mark.parametrize("workers", ["1", "3"])
def test_slots_of_a_class_follow_a_ramp(tmp_path: Path, workers: str) -> None:
    """By the engine's log never above it, and at it at 95 % of the instants; a class with slots that do not change and one
    that arrives stand next to it, and each opening is the instant of one request.
    """
    asked, seconds = slot_changes(read_curve("ramp:1,24", 2.0), 2.0), 2

    def check(folder: Path) -> tuple[bool | None, str]:
        classes = ("batch concurrency=ramp:1,24 isl=16 osl=30", CHAT, LONG)
        measured = sent(folder, classes, "--workers", workers)
        ours, _ = measured.joined()
        assert (ours["status"] == OK).all()
        assert np.bincount(ours["request_class"], minlength=3).tolist() == of_each_class(measured)
        t = np.arange(1_000_000, 1_990_000_000, 1_000_000)
        found = in_flight(measured, 0, t)
        assert (found <= asked.at(t)).all() and in_flight(measured, 2, t).max() == SLOTS[2]
        due = ours["t_sched"][ours["request_class"] == 0] - zero(measured)
        assert set(asked.t_ns.tolist()) <= set(due.tolist())
        certificate, block = measured.document["certificate"], measured.document["classes"]["batch"]["slots"]
        area = float(np.sum(np.diff(np.append(asked.t_ns, seconds * 1_000_000_000)) * asked.slots)) / seconds / 1e9
        assert block["asked_mean"] == pytest.approx(area) and block["above_share"] == 0
        assert certificate["closed_classes"]["batch"]["asked_mean"] == pytest.approx(area)
        assert "asked_mean" not in certificate["closed_classes"]["long"]
        share, empty = (found == asked.at(t)).mean(), certificate["closed_classes"]["batch"]["empty_share"]
        held = block["achieved_mean"] / found.mean() - 1
        return share >= 0.95 and empty < 0.005 and abs(held) < 0.02, str((share, empty, held))

    until_quiet(tmp_path, check)


@pytest.mark.clock
@pytest.mark.parametrize("curves", [("steps:6,2,9,0,4", "exponential:1,12"), ("day:1,9,1", "spikes:2,8,0.8,0.3")])
def test_slots_of_several_classes_follow_their_curves(tmp_path: Path, curves: tuple[str, str]) -> None:
    """Each its own, also where both fall and all classes are closed loops; no request is cut off."""

    def check(folder: Path) -> tuple[bool | None, str]:
        classes = tuple(f"{name} concurrency={curve} isl=16 osl=6" for name, curve in zip("ab", curves, strict=True))
        measured = sent(folder, classes, "--workers", "2", "--duration", "3")
        assert (measured.joined()[1]["flags"] & 2 == 0).all()  # aborted
        shares, above = zip(
            *(followed(measured, number, slot_changes(read_curve(curve, 3.0), 3.0), 3)
              for number, curve in enumerate(curves)), strict=True,
        )  # fmt: skip
        assert max(above) <= 0
        return min(shares) >= 0.95, str(shares)

    until_quiet(tmp_path, check)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_arrivals_do_not_depend_on_closed_classes(tmp_path: Path, workers: str) -> None:
    """To the nanosecond those of the run without them, and all of the plan's, whatever the closed classes do."""
    both, alone = (sent(tmp_path / str(len(each)), each, "--workers", workers) for each in (MIX, (CHAT,)))
    instants = []
    for measured, number in ((both, 1), (alone, 0)):
        ours, _ = measured.joined()
        mine = np.sort(ours[ours["request_class"] == number], order="t_sched")
        instants.append((mine["t_sched"] - zero(measured)).tolist())
    assert instants[0] == instants[1] and len(instants[0]) > 80
    of_class = [one.document["plan"]["description"]["classes"] for one in (both, alone)]
    assert of_class[0][1]["digest"] == of_class[1][0]["digest"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_errors_lose_no_slot(tmp_path: Path, workers: str) -> None:
    """Refused, reset or never answered until their time-out: each slot is filled again, and no class has more."""
    faults = ("status:0.15:503", "reset:0.15:0", "never:0.1")  # none of the preflight's with this seed
    measured = sent(tmp_path / "run", MIX, "--timeout", "0.25", "--workers", workers, seed=7, faults=faults)
    ours, _ = measured.joined()
    assert {OK, TIMEOUT} < set(ours["status"].tolist()) and len(set(ours["status"].tolist())) >= 4
    assert np.bincount(ours["request_class"], minlength=3).tolist() == of_each_class(measured)
    t = np.arange(100_000_000, 1_990_000_000, 1_000_000)
    for number, slots in SLOTS.items():
        found = in_flight(measured, number, t)
        assert found.max() <= slots and found[-200:].max() == slots
        mine = ours[ours["request_class"] == number]
        ends = set(mine["t_end_user"].tolist())
        assert {int(each) for each in mine["t_sched"][mine["t_sched"] > zero(measured)]} <= ends


@pytest.mark.parametrize("more", [[], ["--http-version", "2"], ["--transport", "asyncio"]], ids=["h1", "h2", "loop"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_classes_that_are_all_closed(tmp_path: Path, workers: str, more: list[str]) -> None:
    """A closed loop with several pools, which end with the duration; each repeats its own requests alone."""
    measured = sent(tmp_path / "run", (BATCH, LONG), "--workers", workers, *more)
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    load = measured.document["plan"]["description"]["load"]
    assert (load["loop"], load["concurrency"], load["arrivals"]) == ("closed", 13, None)
    t = np.arange(100_000_000, 1_990_000_000, 1_000_000)
    for number, slots, tokens in ((0, 9, PROMPTS[0]), (1, 4, PROMPTS[2])):
        mine = ours["request_class"] == number
        assert (theirs["prompt_tokens"][mine] == tokens).all() and mine.sum() > 3 * slots
        assert in_flight(measured, number, t).max() == slots
    assert (ours["t_sched"] < zero(measured) + 2_000_000_000).all()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_slot_holds_a_conversation(tmp_path: Path, workers: str) -> None:
    """Turns of a closed class follow each other in their slot, next to conversations that arrive."""
    classes = ("chat rate=20 isl=24 osl=6 turns=2", "batch concurrency=5 isl=16 osl=8 turns=3")
    measured = sent(tmp_path / "run", classes, "--workers", workers)
    ours, _ = measured.joined()
    assert (ours["status"] == OK).all()
    for number, turns in ((0, 2), (1, 3)):
        mine = ours[ours["request_class"] == number]
        in_time = np.unique(mine["session"][mine["turn"] == 0])
        whole = [int((mine["session"] == session).sum()) for session in in_time]
        assert set(whole) <= set(range(1, turns + 1)) and whole.count(turns) > len(whole) / 2
        for session in in_time:
            own = np.sort(mine[mine["session"] == session], order="turn")
            assert own["turn"].tolist() == list(range(len(own)))
            assert (own["t_dispatch"][1:] >= own["t_end"][:-1]).all()
    t = np.arange(100_000_000, 1_990_000_000, 1_000_000)
    assert in_flight(measured, 1, t).max() == 5
    batch = ours[ours["request_class"] == 1]
    starts = batch["t_sched"][(batch["turn"] == 0) & (batch["t_sched"] > zero(measured))]
    assert set(starts.tolist()) <= set(batch["t_end_user"][batch["turn"] == 2].tolist())


@pytest.mark.parametrize("slots", ["3", "ramp:1,6"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_slot_holds_a_session_of_a_trace(tmp_path: Path, workers: str, slots: str) -> None:
    """By the engine's log: at most as many sessions at once as the class has slots, every call after all that it waits for
    and its delay; sessions are complete, or end where sending ends. The next one is due when that of its slot ended.
    """
    trace = tmp_path / "trace.jsonl"
    rows = write_trace(trace, 30, seed=4)
    graph = read_call_graph("agentic-mooncake", trace)
    agents = f"agents concurrency={slots} workload=agentic-mooncake dataset-path={trace}"
    quick = {"overrides": (("block_size", str(BLOCK)),), "ttft_ms": 4.0, "itl_ms": 1.0}
    measured = sent(tmp_path / "run", (agents, CHAT), "--workers", workers, **quick)
    ours, theirs = measured.joined()
    plan, mine = Plan.read_record(measured.run.directory / "plan"), np.flatnonzero(ours["request_class"] == 0)
    assert (ours["status"] == OK).all() and (ours["request"][mine] < plan.requests).all()
    sessions, of_session = np.unique(ours["session"][mine], return_inverse=True)
    begin, end = np.full(len(sessions), np.iinfo(np.int64).max), np.zeros(len(sessions), np.int64)
    np.minimum.at(begin, of_session, theirs["t_recv_first"][mine] - zero(measured))
    np.maximum.at(end, of_session, theirs["t_end"][mine] - zero(measured))
    calls = (ours["request"][mine].astype(np.int64) - plan.open_requests) % len(
        graph.call_id
    )  # the pool repeats the file
    joins = 0
    for number, ended in enumerate(end):
        own = calls[of_session == number]
        place = {int(graph.call_id[call][1:]): at for call, at in zip(own, mine[of_session == number], strict=True)}
        for row, at in place.items():
            delay = round(rows[row].wait_ms * 1e6)
            before = [place[one] for one in rows[row].waits]  # every one of them was sent
            assert all(theirs["t_recv_first"][at] >= theirs["t_end"][one] + delay for one in before)
            joins += len(before) > 1
        (of_trace,) = set((np.searchsorted(graph.first_call, own, "right") - 1).tolist())
        assert len(own) == np.diff(graph.first_call)[of_trace] or ended + 16_000_000 > 2_000_000_000
    assert joins > 0 and len(sessions) > 10
    changes = slot_changes(read_curve("steps:3" if slots == "3" else slots, 2.0), 2.0)
    t = np.arange(1_000_000, 1_950_000_000, 1_000_000)
    held = np.searchsorted(np.sort(begin), t, "right") - np.searchsorted(np.sort(end), t, "right")
    assert (held <= changes.at(t)).all() and held.max() == changes.slots.max()
    block = measured.document["classes"]["agents"]["slots"]
    assert block["above_share"] == 0 and block["achieved_mean"] == pytest.approx(held.mean(), rel=0.1)
    first = ours["t_sched"][mine][ours["turn"][mine] == 0]
    opened = set((changes.t_ns + zero(measured)).tolist())
    assert opened <= set(first.tolist()) <= opened | set(ours["t_end_user"][mine].tolist())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_wait_for_one_cap_on_first_tokens(tmp_path: Path, workers: str) -> None:
    """--max-prefill holds slots and arrivals alike, in the order in which they became due, and sends every arrival."""
    measured = sent(tmp_path / "run", MIX, "--max-prefill", "4", "--workers", workers)
    ours, theirs = measured.joined()
    assert (ours["status"] == OK).all()
    step = np.repeat([1, -1], [len(ours), len(ours)])
    at = np.concatenate([theirs["t_recv_first"], theirs["t_first"]])
    assert np.cumsum(step[np.lexsort((step, at))]).max() == 4
    assert (ours["request_class"] == 1).sum() == measured.document["plan"]["description"]["classes"][1]["requests"]
    slots = ours["request_class"] != 1
    assert (ours["t_dispatch"][slots] < zero(measured) + 2_000_000_000 + 1_000_000).all()
    for number, many in SLOTS.items():
        assert in_flight(measured, number, np.arange(0, 2_000_000_000, 1_000_000)).max() <= many
    if workers == "1":
        sorted_ = np.sort(ours, order="t_dispatch")
        before = np.maximum.accumulate(sorted_["t_sched"])[:-1]
        # Several places may be free in one turn of the reactor, and then two may change places.
        assert (before - sorted_["t_sched"][1:]).max() < 5_000_000


def test_figures_of_each_class_are_those_of_its_rows(tmp_path: Path) -> None:
    """Throughput and latency, and what was sent, of closed and open classes."""
    measured = sent(tmp_path / "run", MIX, "--workers", "2")
    ours, theirs = measured.joined()
    window = window_of(measured.run)
    assert window is not None
    submitted, ended = window.holds(ours["t_submit"]), window.holds(ours["t_last"])
    truth = measured.truth.content()  # an event for each token
    truth = truth[truth["phase"] == 1]
    for number, name in enumerate(("batch", "chat", "long")):
        mine, found = ours["request_class"] == number, measured.document["classes"][name]
        assert (found["ok"], found["failed"]) == (mine.sum(), 0)
        e2e = (ours["t_last"] - ours["t_submit"])[mine & submitted] / 1e6
        assert found["e2e"]["n"] == len(e2e) > 20
        assert found["e2e"]["p50"] == pytest.approx(np.percentile(e2e, 50))
        assert found["req_s"] == pytest.approx((mine & ended).sum() / window.seconds)
        tokens = truth["t_ns"][np.isin(truth["key"], theirs["key"][mine])]
        assert found["output_tok_s"] == pytest.approx(window.holds(tokens).sum() / window.seconds, rel=0.02)


def test_a_saved_plan_sends_the_same(tmp_path: Path) -> None:
    """Its closed classes keep their slots; a class with a URL of its own is given it again."""
    file = tmp_path / "mix.plan"
    first = sent(tmp_path / "first", MIX, "--save-plan", str(file), "--workers", "1")
    again = measure(
        tmp_path / "again",
        ["--plan", str(file), "--no-telemetry", "--warmup", "8", "--workers", "2"],
        pin=False,
        **ENGINE,
    )
    assert again.exit_code == 0, again.said
    digests = {one.document["plan"]["digest"] for one in (first, again)}
    assert len(digests) == 1 and load_plan(file, tmp_path / "opened").closed_classes == SLOTS
    t = np.arange(200_000_000, 1_900_000_000, 1_000_000)
    assert {number: in_flight(again, number, t).max() for number in SLOTS} == SLOTS
    instants = []
    for one in (first, again):
        rows, _ = one.joined()
        instants.append(sorted((rows["t_sched"][rows["request_class"] == 1] - zero(one)).tolist()))
    assert instants[0] == instants[1]
