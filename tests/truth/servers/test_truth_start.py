"""Classes and conversations that begin with sessions under way, by the plan and the log of the simulated engine."""

from __future__ import annotations

import json
import random
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agentic_traces import BLOCK, growing, write_trace
from truth.truth_bench import measure

from fastllmload.certificate.run_evidence import not_arrived
from fastllmload.plan.plan import Plan
from fastllmload.records.layout import OK
from fastllmload.workload.traces.formats import read_call_graph
from fastllmload.workload.underway import AFTER_ALL_NS, read_start, under_way

ENGINE: dict[str, Any] = {"overrides": (("step_ms", "1"), ("block_size", str(BLOCK)), ("kv_blocks", "1048576"))}
IDS = "endpoint-type=openai-completions prompt-form=ids session-start=stationary"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_classes_begin_with_sessions_of_their_own(tmp_path: Path, workers: str) -> None:
    """Each class begins as its own plan says: slots with the rest of their sessions, at the planned instants; arrivals among
    sessions that came before. Both find in the cache what their own part of the warm-up sent, which is not counted, and
    the third class is as without the option.
    """
    trees, lines = tmp_path / "trees.jsonl", tmp_path / "lines.jsonl"
    write_trace(trees, 40, seed=3)
    growing(lines, 60, seed=2)
    classes = [
        f"tools concurrency=6 workload=agentic-mooncake dataset-path={trees} {IDS}",
        f"flow rate=15 workload=graph dataset-path={lines} {IDS}",
        "chat rate=20 isl=20 osl=4",
    ]
    options = ["--duration", "2.5", "--seed", "7", "--warmup", "12", "--workers", workers]
    found = measure(
        tmp_path / "m",
        [*options, *(word for one in classes for word in ("--class", one))],
        pin=workers == "1",
        **ENGINE,
    )
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None and plan.t_sched is not None and plan.turns is not None
    ours, theirs = found.joined()
    tools, flow, chat = (ours["request_class"] == number for number in range(3))
    assert (ours["status"][flow | chat] == OK).all() and len(ours) == len(theirs)

    first = np.flatnonzero(np.diff(plan.calls["session"].astype(np.int64), prepend=-1))
    under, of_class = plan.under_way, plan.request_class
    kept = first[of_class[first] == 0][:6]
    assert set(under[of_class[under] == 0]) <= set(kept) and (of_class[under] < 2).all()
    assert (plan.calls["turn"][kept] > 0).any() and (of_class[under] == 1).sum() > 3
    begun = ours[flow & (plan.t_sched[ours["request"] % plan.requests] >= 0)]
    zero = int(begun["t_sched"][0] - plan.t_sched[begun["request"][0]])
    assert (begun["t_sched"] - zero == plan.t_sched[begun["request"]]).all()
    mine = ours[np.isin(ours["request"], kept)]
    assert len(mine) == 6, "every slot begins with a session of its own"
    graph = read_call_graph("agentic-mooncake", trees)
    wanted = under_way(graph, read_start("stationary"), 6, 40, 1.0, "7/class/tools/start")
    left = np.where(wanted.due_ns < 0, AFTER_ALL_NS, wanted.due_ns)
    due = np.minimum.reduceat(left, wanted.graph.first_call[:-1])[:6]
    assert (mine["t_sched"] - zero == due).all() and due[-1] > due[0]
    again = ours["request"] >= plan.requests
    assert not np.isin(ours["request"][again] % plan.requests, kept).any(), "rests are not repeated"

    arrived = ~not_arrived(found.run, ours)
    assert set(ours["request"][arrived & flow]) == set(first[of_class[first] == 1]) - set(under)
    for number, chosen in ((0, tools), (1, flow)):
        facts = plan.description.classes[number].workload
        assert facts is not None and facts.sessions is not None and facts.sessions.calls_before
        chosen = chosen & ~again
        ideal = plan.calls["ideal_tokens"][ours["request"][chosen]]
        cached = theirs["cached_tokens"][chosen].astype(np.int64)
        assert (cached == ideal).mean() > 0.95
        assert abs(int(cached.sum()) / int(ideal.sum()) - 1) < 0.005
    stated = plan.description.classes[1].workload.sessions.ideal  # type: ignore[union-attr]
    assert stated is not None and stated.whole_block_share == pytest.approx(
        theirs["cached_tokens"][flow].sum() / theirs["prompt_tokens"][flow].sum(), rel=0.005
    )
    assert not theirs["cached_tokens"][chat].any()


WORDS = ["time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family"]
TEMPLATE = 4  # tokens that the simulated engine counts of each message next to its text


def talks(path: Path, conversations: int, seed: int) -> list[list[tuple[list[dict[str, str]], str]]]:
    """A data set with replies: for each conversation the messages of each turn, and the reply to it."""
    stream, found, lines = random.Random(seed), [], []

    def said(words: int, role: str = "user") -> dict[str, str]:
        return {"role": role, "content": " ".join(stream.choices(WORDS, k=words))}

    system = said(40, "system")
    for number in range(conversations):
        turns = []
        for turn in range(stream.randint(1, 9)):
            messages = [*([system] if not turn else []), said(stream.randint(8, 30))]
            turns.append((messages, said(stream.randint(3, 9))["content"]))
            row = {
                "session": str(number),
                "messages": messages,
                "reply": turns[-1][1],
                "output_tokens": 6,
                "delay": 0.04,
            }
            lines.append(json.dumps(row))
        found.append(turns)
    path.write_text("\n".join(lines) + "\n")
    return found


def history(turns: list[tuple[list[dict[str, str]], str]], until: int) -> list[dict[str, str]]:
    """All messages of the turns before *until* with their recorded replies, and those of that one."""
    found: list[dict[str, str]] = []
    for messages, reply in turns[:until]:
        found += [*messages, {"role": "assistant", "content": reply}]
    return found + turns[until][0]


@pytest.mark.parametrize(("kind", "workers"), [("real", "1"), ("planned", "2")])
def test_conversations_begin_at_a_drawn_turn(tmp_path: Path, kind: str, workers: str) -> None:
    """Each slot begins with one turn of a conversation, after the turns before it and their recorded replies; the warm-up
    has sent the turn before; and the server finds what the plan states, message by message.
    """
    file = tmp_path / "talks.jsonl"
    every = talks(file, 50, seed=4)
    options = [
        "--workload", "custom", "--dataset-path", str(file), "--turns", "all", "--concurrency", "10", "-n", "40",
        "--history", kind, "--session-start", "stationary", "--warmup", "12", "--seed", "3", "--workers", workers,
    ]  # fmt: skip
    engine = (("step_ms", "1"), ("block_size", "1"), ("kv_blocks", "131072"))
    found = measure(tmp_path / "m", options, pin=workers == "1", overrides=engine, logged=("body:messages",))
    plan, (ours, theirs) = Plan.read_record(found.run.directory / "plan"), found.joined()
    order = np.argsort(ours["request"], kind="stable")
    ours, theirs = ours[order], theirs[order]
    assert plan.calls is not None and (ours["status"] == OK).all() and len(ours) == len(plan.calls)

    def sent(row: np.void) -> list[dict[str, str]]:
        messages: list[dict[str, str]] = literal_eval(found.truth.notes[int(row["serial"])].partition(": ")[2])
        return messages

    opening = {json.dumps(turns[0][0]): turns for turns in every}
    first = np.flatnonzero(np.diff(plan.calls["session"].astype(np.int64), prepend=-1))
    turn, under = plan.calls["turn"], plan.under_way
    assert len(first) == 40 and len(under) > 4 and set(under) <= set(first[:10])
    seen = set()
    for call in first.tolist():
        messages = sent(theirs[call])
        turns = opening[json.dumps(messages[:2])]
        assert messages == history(turns, int(turn[call]))
        if turn[call]:
            seen.add(json.dumps(history(turns, int(turn[call]) - 1)))
    warm = found.truth.requests[found.truth.requests["phase"] != theirs["phase"][0]]
    warmed = {json.dumps(sent(row)) for row in warm if int(row["serial"]) in found.truth.notes}
    assert seen <= warmed and len(seen) >= len(under) - 1
    gap = np.diff(ours["t_sched"][first[:10]])
    assert (gap >= 0).all() and 0 < gap.sum() <= 40_000_000, "the first turns are spread over the time to think"

    facts = plan.description.conversations
    assert facts is not None and facts.ideal is not None and facts.under_way == len(under)
    assert facts.turns_before == int(turn[first].sum()) and "hits-inexact" in found.said
    prompts = [sent(row) for row in theirs]
    text = np.array([sum(len(one["content"].split()) for one in prompt) for prompt in prompts])
    assert (theirs["prompt_tokens"] == text + [TEMPLATE * len(prompt) for prompt in prompts]).all()
    if kind == "planned":
        assert (plan.input_tokens == text).all()
    cached = theirs["cached_tokens"].astype(np.int64) - [
        template_of(prompt, hit) for prompt, hit in zip(prompts, theirs["cached_tokens"].tolist(), strict=True)
    ]
    if kind == "real":  # the plan counts replies as cached; this engine keeps no prompt's answer
        cached += np.where(np.isin(np.arange(len(ours)), first), 0, 6)
    ideal = plan.calls["ideal_tokens"]
    assert (cached == ideal).mean() > 0.98
    assert abs(int(cached.sum()) / int(ideal.sum()) - 1) < 0.001
    assert facts.ideal.whole_block_share == pytest.approx(cached.sum() / text.sum(), rel=0.001)
    cache = found.document["sessions"]["cache"]
    assert cache["ideal"] == pytest.approx(ideal.sum() / plan.input_tokens.sum()) and cache[
        "achieved"
    ] == pytest.approx(theirs["cached_tokens"].sum() / theirs["prompt_tokens"].sum())
    turns_seen = {one["turn"] for one in found.document["conversations"]["turns"]}
    assert turns_seen == set(turn.tolist())


def template_of(prompt: list[dict[str, str]], tokens: int) -> int:
    """How many of the first *tokens* of a prompt are the template's."""
    found = 0
    for one in prompt:
        found += min(TEMPLATE, tokens)
        tokens = max(0, tokens - TEMPLATE - len(one["content"].split()))
    return found


@pytest.mark.parametrize("kind", ["graph", "custom"])
def test_a_session_that_the_end_cuts_holds_its_slot(tmp_path: Path, kind: str) -> None:
    """Where the next call of a session is due after the end, its slot waits for it, and begins no other session instead."""
    file = tmp_path / "sessions.jsonl"
    rows: list[dict[str, Any]] = []
    for number in range(30):
        for turn in range(2):
            row = {"session": str(number), "output_tokens": 3}
            if kind == "graph":
                row |= {"id": f"{number}.{turn}", "chain": str(number), "input_tokens": 9}
                row |= {"after": [f"{number}.0"], "wait_s": 60} if turn else {"at_s": 0}
            else:
                row |= {"prompt": f"say {number} {turn}", "delay": 60}
            rows.append(row)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    turns = ["--turns", "all"] if kind == "custom" else []
    options = ["--workload", kind, "--dataset-path", str(file), *turns, "--concurrency", "4", "--duration", "1.5"]
    found = measure(tmp_path / "m", [*options, "--warmup", "0"], pin=True, **ENGINE)
    ours, theirs = found.joined()
    assert len(ours) == len(theirs) == 4 and (ours["status"] == OK).all()
