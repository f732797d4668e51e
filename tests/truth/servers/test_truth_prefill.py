"""--max-prefill: by the engine's log never more requests than that had arrived without a first token that was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agentic_traces import BLOCK, write_trace
from truth.truth_bench import Measured, measure

from fastllmload.plan.plan import EDGE_START, Plan

ENGINE: dict[str, Any] = {"ttft_ms": 40.0, "itl_ms": 4.0, "phase": "spread"}
LOAD = ["--isl", "16", "--osl", "10", "--no-telemetry", "--warmup", "4", "--ramp-share", "0"]
OPEN = ["--rate", "200", "-n", "120"]  # twice what the cap lets through
CLOSED = ["--concurrency", "16", "-d", "2s"]
OK, TIMEOUT = 2, 8


def most(begun: np.ndarray, until: np.ndarray) -> int:
    """At one time; what ends at an instant ends before what begins at it."""
    t, step = np.concatenate([until, begun]), np.repeat([-1, 1], [len(until), len(begun)])
    return int(np.cumsum(step[np.argsort(t, kind="stable")]).max())


def waiting(measured: Measured) -> tuple[int, int]:
    """The most that waited for a first token, by our rows and by the engine's log.

    The engine learns from the end of the connection that a request was given up, which comes after the next one: such a
    request waits up to the instant that we say.
    """
    ours, theirs = measured.joined()
    first = np.where(ours["t_any"] > 0, ours["t_any"], ours["t_end"])
    sent = np.where((theirs["flags"] & 1 > 0) & (theirs["t_first"] > 0), theirs["t_first"], theirs["t_end"])
    sent = np.where(ours["status"] == TIMEOUT, np.minimum(sent, ours["t_end_user"]), sent)
    return most(ours["t_dispatch"], first), most(theirs["t_recv_first"], sent)


def sent(directory: Path, cap: int, *options: str, **engine: Any) -> Measured:
    measured = measure(directory, [*LOAD, "--max-prefill", str(cap), *options], pin=False, **(ENGINE | engine))
    assert measured.exit_code == 0, measured.said
    return measured


def reasons(measured: Measured) -> dict[str, float]:
    return {each["code"]: each["value"] for each in measured.document["certificate"]["reasons"]}


@pytest.mark.parametrize("more", [[], ["--no-stream"], ["--http-version", "2"]], ids=["stream", "whole", "http2"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=["open", "closed"])
def test_no_more_than_the_cap_wait_for_their_first_token(
    tmp_path: Path, load: list[str], workers: str, more: list[str]
) -> None:
    """The cap is reached, and every request is answered."""
    measured = sent(tmp_path / "run", 4, *load, "--workers", workers, *more)
    assert waiting(measured) == (4, 4)
    ours, _ = measured.joined()
    assert (ours["status"] == OK).all()
    if load is OPEN:
        assert len(ours) == 120


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        ("ollama", []),
        ("vllm-grpc", ["--prompt-form", "ids"]),
        ("openai-responses-ws", []),
        ("chat", ["--transport", "asyncio"]),
    ],
)
def test_of_every_wire(tmp_path: Path, protocol: str, more: list[str]) -> None:
    """NDJSON, gRPC, WebSocket, and connections that the event loop owns."""
    measured = sent(tmp_path / "run", 3, *OPEN, "--endpoint-type", protocol, "-m", "simulated", "--workers", "1", *more)
    assert waiting(measured) == (3, 3)
    ours, _ = measured.joined()
    assert (ours["status"] == OK).all() and len(ours) == 120


def test_a_token_of_reasoning_is_a_first_token(tmp_path: Path) -> None:
    """The place is free long before the first token of the answer proper: with that, 60 requests in flight would wait."""
    measured = sent(tmp_path / "run", 3, *OPEN, "--workers", "1", faults=("reasoning:1:9",))
    ours, _ = measured.joined()
    assert waiting(measured) == (3, 3)
    assert most(ours["t_dispatch"], ours["t_first"]) > 3


@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=["open", "closed"])
def test_a_request_that_fails_frees_its_place(tmp_path: Path, load: list[str]) -> None:
    """Refused by the server, reset before the first token, or never answered until its time-out: the others are answered."""
    faults = ("status:0.15:503", "reset:0.15:0", "never:0.1")  # none of the preflight's with this seed
    measured = sent(tmp_path / "run", 4, *load, "--workers", "2", "--timeout", "0.25", seed=7, faults=faults)
    ours, _ = measured.joined()
    assert waiting(measured) == (4, 4)
    statuses = set(ours["status"].tolist())
    assert {OK, TIMEOUT} < statuses and len(statuses) >= 4
    assert (ours["t_any"][ours["status"] == TIMEOUT] == 0).any()


@pytest.mark.parametrize(
    "load", [["--rate", "60", "-n", "90"], ["--concurrency", "12", "-n", "90"]], ids=["open", "closed"]
)
def test_turns_of_conversations_wait_as_well(tmp_path: Path, load: list[str]) -> None:
    """Each conversation has all of its turns, one after the other; a turn is due when the reply has ended."""
    measured = sent(tmp_path / "run", 2, *load, "--turns", "3", "--workers", "2")
    ours, _ = measured.joined()
    assert waiting(measured) == (2, 2)
    assert (ours["status"] == OK).all()
    late = ours["t_dispatch"] - ours["t_sched"]
    assert (late[ours["turn"] > 0] > 5_000_000).any()
    for session in np.unique(ours["session"]):
        own = np.sort(ours[ours["session"] == session], order="turn")
        assert own["turn"].tolist() == [0, 1, 2]
        assert (own["t_dispatch"][1:] >= own["t_end"][:-1]).all()


@pytest.mark.parametrize(
    "load",
    [[], ["--concurrency", "10", "-n", "40"], ["--concurrency", "10", "-n", "40", "--session-start", "stationary"]],
    ids=["recorded", "slots", "under way"],
)
def test_calls_of_agents_wait_as_well(tmp_path: Path, load: list[str]) -> None:
    """Sessions with joins: every call is sent, none before what it waits for has ended, and each of them once."""
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, 40, seed=3)
    words = [
        "--workload",
        "agentic-mooncake",
        "--dataset-path",
        str(trace),
        "--no-telemetry",
        "--warmup",
        "0",
        "--workers",
        "1",
    ]
    engine = {"overrides": (("step_ms", "20"), ("block_size", str(BLOCK)))}
    measured = measure(tmp_path / "run", [*words, *load, "--max-prefill", "2"], pin=False, **engine)
    assert measured.exit_code == 0, measured.said
    assert waiting(measured) == (2, 2)
    plan = Plan.read_record(measured.run.directory / "plan")
    assert plan.calls is not None and plan.edges is not None
    ours, theirs = measured.joined()
    order = np.argsort(ours["request"])
    ours, theirs = ours[order], theirs[order]
    assert (ours["request"] == np.arange(len(plan.calls))).all() and (ours["status"] == OK).all()
    assert (ours["t_dispatch"] - ours["t_sched"] > 5_000_000).any()
    ends = plan.edges[plan.edges["flags"] & EDGE_START == 0]
    came, ended = theirs["t_recv_first"][ends["target"]], theirs["t_end"][ends["source"]]
    assert len(ends) > 20 and (came >= ended + ends["wait_ns"]).all()


def test_what_has_been_due_longest_goes_first(tmp_path: Path) -> None:
    """One worker, a closed loop of conversations: slots, freed slots and turns are sent in the order of their instants."""
    measured = sent(tmp_path / "run", 2, "--concurrency", "12", "-d", "2s", "--turns", "2", "--workers", "1")
    ours = np.sort(measured.joined()[0], order="t_dispatch")
    late = np.flatnonzero(ours["t_dispatch"] - ours["t_sched"] > 1_000_000)
    assert len(late) > 30
    before = np.maximum.accumulate(ours["t_sched"])[:-1]
    # Several places may be free in one turn of the reactor, and then two may change places.
    assert (before - ours["t_sched"][1:])[ours["t_sched"][1:] < before].max(initial=0) < 5_000_000


def test_a_ramp_keeps_the_cap_and_its_end(tmp_path: Path) -> None:
    """Slots of `ramp:1,24` open when they may; nothing that waits is sent after the end of the duration."""
    measured = sent(tmp_path / "run", 3, "--concurrency", "ramp:1,24", "-d", "2s", "--workers", "1", ttft_ms=80.0)
    assert waiting(measured) == (3, 3)
    ours, _ = measured.joined()
    begun = next(int(phase["start_ns"]) for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    assert (ours["t_dispatch"] < begun + 2_000_000_000 + 1_000_000).all()
    assert ours["t_sched"].max() > begun + 1_000_000_000


def held_by(begun: np.ndarray, until: np.ndarray, cap: int, since: np.ndarray, to: np.ndarray) -> float:
    """Share of the requests for which *cap* was full for more than 1 ms from *since* to *to*, by steps of 0.1 ms."""
    grid = np.arange(since.min(), to.max(), 100_000)
    full = np.searchsorted(np.sort(begun), grid, "right") - np.searchsorted(np.sort(until), grid, "right") >= cap
    steps = np.concatenate([[0], np.cumsum(full)])
    at = [np.searchsorted(grid, each) for each in (since, to)]
    return float(np.mean((steps[at[1]] - steps[at[0]]) * 100_000 > 1_000_000))


@pytest.mark.parametrize(("flight", "cap"), [(8, 4), (5, 6), (60, 4)], ids=["both", "mostly flight", "prefill alone"])
def test_the_certificate_has_what_each_cap_delayed(tmp_path: Path, flight: int, cap: int) -> None:
    """By the engine's log, within the requests that its times and ours may place on either side of 1 ms."""
    measured = sent(tmp_path / "run", cap, *OPEN, "--max-concurrency", str(flight), "--workers", "1")
    ours, theirs = measured.joined()
    since, to = ours["t_sched"], ours["t_dispatch"]
    in_flight = held_by(theirs["t_recv_first"], theirs["t_end"], flight, since, to)
    prefill = held_by(theirs["t_recv_first"], theirs["t_first"], cap, since, to)
    found = reasons(measured)
    assert found.get("capped", 0.0) == pytest.approx(in_flight, abs=0.07)
    assert found.get("capped_prefill", 0.0) == pytest.approx(prefill, abs=0.07)
    assert ("capped_prefill" in found, "capped" in found) == (prefill > 0.07, in_flight > 0.07)
    assert "rate" not in found and "schedule_lag" not in found
    # The worker did not stall while requests waited for a cap: these were held for many times as long.
    assert measured.document["certificate"]["workers"][0]["stall_max_us"] * 1e3 < (to - since).max() / 2


def test_a_closed_loop_is_not_judged_by_it(tmp_path: Path) -> None:
    """Slots wait for many times the limit of the lag, which counts from when a place was free."""
    measured = sent(tmp_path / "run", 2, *CLOSED, "--workers", "1")
    ours, _ = measured.joined()
    assert np.percentile(ours["t_dispatch"] - ours["t_sched"], 50) > 20_000_000
    certificate = measured.document["certificate"]
    assert "capped_prefill" not in reasons(measured)
    assert certificate["schedule_lag_us"]["p50"] < 5_000
    assert certificate["first_fill_us"] < 20_000


def test_without_the_option_nothing_waits(tmp_path: Path) -> None:
    """The same load has more than 4 without a first token."""
    measured = measure(tmp_path / "run", [*LOAD, *OPEN, "--workers", "1"], pin=False, **ENGINE)
    ours, theirs = waiting(measured)
    assert ours > 4 and theirs > 4
