"""Unusual graphs of calls in each mode of replay: the order and the instants of the simulated engine's log, and figures of
sessions that are computed here from the file and the rows alone.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import measure

from fastllmload.plan.plan import Plan
from fastllmload.records.layout import OK
from fastllmload.workload.traces.formats import read_call_graph

BLOCK = 16
ENGINE: dict[str, Any] = {"overrides": (("step_ms", "1"), ("block_size", str(BLOCK)), ("kv_blocks", "1048576"))}
IDS = ["--endpoint-type", "openai-completions", "--prompt-form", "ids", "--warmup", "0"]
MS = 1_000_000


@dataclass(frozen=True)
class Call:
    """One line of the file: *after* with the ns of each edge of its own, and whether that counts from the call's instant."""

    session: int
    agent: int
    parent: int
    after: dict[int, tuple[int, bool]]
    wait_ns: int
    tool: bool
    at_ns: int
    start_ns: int
    blocks: tuple[int, ...]


def unusual(path: Path, sessions: int, seed: int) -> list[Call]:
    """Sessions of one call; lines without any delay; joins of joins; agents that no call joins and that outlive their
    session; edges with waits of their own, from ends and from instants; two sessions at one instant; lines in any order.
    """
    stream, calls, ends, lines, block = random.Random(seed), list[Call](), list[int](), list[str](), 1
    for session in range(sessions):
        first, at_ns = len(calls), session // 2 * 60 * MS  # two at a time
        shape, many = stream.choice(["one", "line", "graph", "graph"]), stream.randint(2, 9)
        agents: dict[int, tuple[int, tuple[int, ...]]] = {}  # latest call, blocks
        for number in range(1 if shape == "one" else many):
            new = number == 0 or (shape == "graph" and stream.random() < 0.4)
            agent = len(agents) if new else stream.choice(list(agents))
            parent = stream.choice(list(agents)) if new and number else -1
            after: dict[int, tuple[int, bool]] = {}
            if number:
                source = agents[parent][0] if new else agents[agent][0]
                after[source] = (stream.choice([0, 0, 3 * MS]), stream.random() < 0.2)
                for other in range(first, len(calls)):
                    if shape == "graph" and stream.random() < 0.25:
                        after.setdefault(other, (stream.choice([0, 2 * MS]), False))
            wait_ns = 0 if not number or shape == "line" else stream.choice([0, 0, 1 * MS, 7 * MS])
            begins = [(calls[one].start_ns if start else ends[one]) + own for one, (own, start) in after.items()]
            start_ns = max(begins, default=at_ns) + wait_ns
            blocks = (*(agents[agent][1] if not new else (0,)), *range(block, block + stream.randint(1, 4)))
            block = blocks[-1] + 1
            agents[agent] = (len(calls), blocks)
            calls.append(Call(session, agent, parent, after, wait_ns, stream.random() < 0.5, at_ns, start_ns, blocks))
            ends.append(start_ns + stream.randint(2, 30) * MS)
            row = {
                "id": f"c{len(calls) - 1}", "session": f"s{session}", "chain": f"s{session}a{agent}",
                "input_tokens": BLOCK * len(blocks), "output_tokens": 3, "hash_ids": list(blocks),
                "start_s": start_ns / 1e9, "end_s": ends[-1] / 1e9, "wait_s": wait_ns / 1e9,
                "wait_kind": "tool" if calls[-1].tool else "agent",
                **({"parent": f"s{session}a{parent}"} if parent >= 0 else {}),
                **({"at_s": at_ns / 1e9} if not after else {}),
                **({"after": [{"call": f"c{one}", "wait_s": own / 1e9, "from": "start" if start else "end"}
                              for one, (own, start) in after.items()]} if after else {}),
            }  # fmt: skip
            lines.append(json.dumps(row))
    stream.shuffle(lines)
    path.write_text(json.dumps({"fastllmload_graph": 1, "block_tokens": BLOCK}) + "\n" + "\n".join(lines) + "\n")
    return calls


def foreground(calls: list[Call]) -> list[bool]:
    """Calls of agents that another agent than their own spawns waits for, and of no agent in the background."""
    joined: set[tuple[int, int]] = set()
    above = {(one.session, one.agent): one.parent for one in calls if one.parent >= 0}

    def line(session: int, agent: int) -> list[int]:
        found = [agent]
        while (session, found[-1]) in above:
            found.append(above[session, found[-1]])
        return found

    for one in calls:
        for source, (_, from_start) in one.after.items():
            of = calls[source]
            if not from_start and of.agent not in line(one.session, one.agent):
                joined.add((of.session, of.agent))
    alone = {key for key in above if key not in joined}
    return [not any((one.session, agent) in alone for agent in line(one.session, one.agent)) for one in calls]


MODES = {
    "dependent": ["--trace-speed", "2"],
    "recorded": ["--trace-timing", "recorded", "--trace-speed", "0.5"],
    "rate": ["--rate", "40", "-n", "30"],
    "slots": ["--concurrency", "3", "-n", "24", "--trace-speed", "4"],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2])
def test_unusual_graphs_are_replayed_as_they_are_written(tmp_path: Path, mode: str, seed: int) -> None:
    trace = tmp_path / "trace.jsonl"
    calls = unusual(trace, 24, seed)
    options = ["--workload", "graph", "--dataset-path", str(trace), *IDS, *MODES[mode]]
    found = measure(tmp_path / "m", options, pin=True, **ENGINE)
    ours, theirs = found.joined()
    assert (ours["status"] == OK).all()
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None
    speed = {"dependent": 2.0, "recorded": 0.5, "rate": 1.0, "slots": 4.0}[mode]
    # The plan has the calls in the graph's order, or by their instants; a second round repeats them.
    order = [int(name[1:]) for name in read_call_graph("graph", trace).call_id]
    if mode == "recorded":
        order.sort(key=lambda one: calls[one].start_ns)
    size = len(calls)
    place = {number: order[int(request) % size] for number, request in enumerate(ours["request"].tolist())}
    row_of = {(int(request) // size, place[number]): number for number, request in enumerate(ours["request"].tolist())}
    for number, call in place.items():
        assert theirs["prompt_tokens"][number] == BLOCK * len(calls[call].blocks)

    if mode == "recorded":
        zero = {int(ours["t_sched"][number]) - round(calls[call].start_ns / speed) for number, call in place.items()}
        assert len(zero) == 1, "every call is due at its own instant"
        return
    for (turn, call), number in row_of.items():
        one = calls[call]
        instants = []
        for source, (own, from_start) in one.after.items():
            before = row_of[turn, source]
            instants.append(int(ours["t_sched" if from_start else "t_end"][before]) + round(own / speed))
            if not from_start:
                sent = int(theirs["t_end"][before]) + round(own / speed) + round(one.wait_ns / speed)
                assert int(theirs["t_recv_first"][number]) >= sent
        if instants:
            assert int(ours["t_sched"][number]) == max(instants) + round(one.wait_ns / speed)
    first = {(turn, calls[call].session): number for (turn, call), number in row_of.items() if not calls[call].after}
    last: dict[tuple[int, int], int] = defaultdict(int)
    for (turn, call), number in row_of.items():
        key = turn, calls[call].session
        last[key] = max(last[key], int(ours["t_end"][number]))
    if mode == "dependent":
        zero = {
            int(ours["t_sched"][number]) - round(session // 2 * 60 * MS / 2) for (_, session), number in first.items()
        }
        assert len(zero) == 1, "sessions begin at their recorded instants"
    elif mode == "slots":
        begins, session_ends = sorted(int(ours["t_sched"][number]) for number in first.values()), sorted(last.values())
        assert len(set(begins[:3])) == 1, "all slots begin at once"
        assert all(begin >= end for begin, end in zip(begins[3:], session_ends, strict=False)), "three at a time"

    seen: dict[int, set[int]] = defaultdict(set)
    ideal = np.zeros(len(ours), np.int64)
    for number in np.argsort(theirs["t_recv_last"], kind="stable").tolist():
        turn, blocks = int(ours["request"][number]) // size, calls[place[number]].blocks
        hits = next((at for at, one in enumerate(blocks) if one not in seen[turn]), len(blocks))
        ideal[number] = min(hits, len(blocks) - 1) * BLOCK
        seen[turn].update(blocks)
    assert (theirs["cached_tokens"] == ideal).mean() > 0.9
    assert abs(int(theirs["cached_tokens"].sum()) / int(ideal.sum()) - 1) < 0.03  # calls at one instant may miss

    in_front = foreground(calls)
    makespans, models, tools = [], [], []
    for (turn, session), number in first.items():
        mine = {
            call: row for (round_of, call), row in row_of.items() if round_of == turn and calls[call].session == session
        }
        end = max((call for call in mine if in_front[call]), key=lambda call: int(ours["t_end"][mine[call]]))
        makespans.append(int(ours["t_end"][mine[end]]) - int(ours["t_submit"][number]))
        model = tool = 0
        at, whole, by_tool = end, True, False
        while True:
            row = ours[mine[at]]
            model += int(row["t_end"]) - int(row["t_submit"]) if whole else 0
            causes = {
                source: (int(ours["t_sched" if start else "t_end"][mine[source]]) + round(own / speed), start)
                for source, (own, start) in calls[at].after.items()
            }
            if not causes:  # the makespan begins with the first send, so a wait from its instant is shorter by that
                tool += int(row["t_sched"]) - int(row["t_submit"]) if by_tool and not whole else 0
                break
            source = max(causes, key=lambda one: causes[one][0])
            if calls[at].tool:
                tool += int(row["t_sched"]) - causes[source][0] + round(calls[at].after[source][0] / speed)
            whole, by_tool = not causes[source][1], calls[at].tool
            at = source
        models.append(model)
        tools.append(tool)
    figures = found.document["sessions"]
    assert figures["completed"] == figures["begun"] == len(first) == len(makespans)
    assert figures["makespan"]["mean"] == pytest.approx(np.mean(makespans) / 1e6)
    assert figures["model_time"]["mean"] == pytest.approx(np.mean(models) / 1e6, rel=1e-6)
    assert figures["tool_time"]["mean"] == pytest.approx(np.mean(tools) / 1e6, rel=1e-6)
    agents = [
        len({calls[call].agent for (turn, call) in row_of if (turn, calls[call].session) == key}) for key in first
    ]
    assert figures["agents"]["mean"] == pytest.approx(np.mean(agents))
