"""Sessions of traces against the simulated engine: the order of its log, delays from its clock, its prefix cache."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agentic_traces import BLOCK, Row, growing, write_trace
from truth_bench import Measured, bare_reply_us, measure, until_quiet, within

from fastllmload.certificate.run_evidence import not_arrived
from fastllmload.metrics.request.action import first_call_ns
from fastllmload.metrics.run.block_hits import messages_at_send
from fastllmload.plan.plan import EDGE_START, Plan
from fastllmload.records.layout import EVENT_TOOL, OK
from fastllmload.workload.graph import WaitKind
from fastllmload.workload.traces.formats import detect_format, read_call_graph
from fastllmload.workload.underway import AFTER_ALL_NS, read_start, under_way

QUICK: dict[str, Any] = {"overrides": (("step_ms", "1"), ("block_size", str(BLOCK)))}
MS = 1_000_000


def in_file_order(found: Measured, trace: Path) -> tuple[np.ndarray, np.ndarray]:
    """Our rows and the server's by the row of the file: a plan has the calls of a session in the order of their starts."""
    place = np.array([int(name[1:]) for name in read_call_graph("agentic-mooncake", trace).call_id])
    ours, theirs = found.joined()
    assert len(ours) == len(place)
    return ours[np.argsort(place)], theirs[np.argsort(place)]


def replay(directory: Path, trace: Path, *words: str, pin: bool = True, **simulator: Any) -> Measured:
    options = ["--workload", "agentic-mooncake", "--dataset-path", str(trace), "--warmup", "0", *words]
    return measure(directory, options, pin=pin, **{**QUICK, **simulator})


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_call_is_sent_before_what_it_waits_for(tmp_path: Path, workers: str) -> None:
    """By the server's log: the first byte of a call came after the last byte of every reply that it waits for, and after the
    delay; by our record it was due exactly then.
    """
    rows = write_trace(tmp_path / "trace.jsonl", 60)
    found = replay(
        tmp_path / "m", tmp_path / "trace.jsonl", "--workers", workers, "--timestamps", "kernel", pin=workers == "1"
    )
    ours, theirs = in_file_order(found, tmp_path / "trace.jsonl")
    assert (ours["status"] == OK).all()
    for number, row in enumerate(rows):
        if row.waits:
            ended = max(int(ours["t_end"][one]) for one in row.waits)
            assert int(ours["t_sched"][number]) == ended + round(row.wait_ms * MS)
            for one in row.waits:
                assert theirs["t_recv_first"][number] >= theirs["t_end"][one] + round(row.wait_ms * MS)


@pytest.mark.clock
def test_delays_are_kept_to_the_microsecond(tmp_path: Path) -> None:
    """From the last byte of the reply to the next call, by the server's clock: after a tool's delay the median is 50 us late
    at most and P99 300. A call without a delay answers what has just come: its median is 50 us or 1.5 times that of a bare
    process that answers.
    """

    def check(directory: Path) -> tuple[bool | None, str]:
        trace = tmp_path / "trace.jsonl"
        rows = write_trace(trace, 150, seed=2)
        found = replay(directory, trace)
        bare = bare_reply_us()
        _, theirs = in_file_order(found, trace)
        late: dict[bool, list[float]] = {True: [], False: []}
        for number, row in enumerate(rows):
            if row.waits:
                due = max(int(theirs["t_end"][one]) for one in row.waits) + round(row.wait_ms * MS)
                late[row.wait_ms > 0].append((int(theirs["t_recv_first_kernel"][number]) - due) / 1e3)
        p50, p99 = np.percentile(late[True], [50, 99])
        at_once = float(np.median(late[False]))
        seen = (
            f"{len(late[True])} delays: P50 {p50:.1f} us, P99 {p99:.1f} us late; {len(late[False])} calls without one: P50 "
            f"{at_once:.1f} us, a bare process {bare:.1f}"
        )
        if at_once > max(50.0, 1.5 * bare):
            return False, seen
        return within(found, {"delay": np.array([p50, p99])}, 50, 300), seen

    until_quiet(tmp_path, check)


def ideal_hits(rows: list[Row], order: list[int]) -> list[int]:
    """Tokens of the leading blocks of each row that an earlier one in *order* had."""
    seen: set[int] = set()
    found = [0] * len(rows)
    for number in order:
        for one in rows[number].blocks:
            if one not in seen:
                break
            found[number] += BLOCK
        seen.update(rows[number].blocks)
    return found


def test_the_prefix_cache_finds_the_blocks_of_the_trace(tmp_path: Path) -> None:
    """Prompts of token ids: the server's cache hits are those that the blocks have; calls at one instant may miss."""
    rows = write_trace(tmp_path / "trace.jsonl", 40, seed=3, gap_ms=400.0)
    found = replay(
        tmp_path / "m", tmp_path / "trace.jsonl", "--trace-speed", "4", "--endpoint-type", "openai-completions",
        "--prompt-form", "ids",
    )  # fmt: skip
    ours, theirs = in_file_order(found, tmp_path / "trace.jsonl")
    assert (theirs["prompt_tokens"] == [row.input for row in rows]).all()
    order = np.argsort(theirs["t_recv_last"], kind="stable").tolist()
    ideal = np.array(ideal_hits(rows, order))
    assert (theirs["cached_tokens"] == ideal).mean() > 0.98
    assert abs(int(theirs["cached_tokens"].sum()) / int(ideal.sum()) - 1) < 0.001
    assert (ours["cached_tokens"] == theirs["cached_tokens"]).all()


def test_agents_of_a_session_are_named_to_a_router(tmp_path: Path) -> None:
    """By the server's log: each agent has an id of its own and that of the one that started it, and its last call says so;
    the token of an answer comes back in the same agent's next call.
    """
    trace = tmp_path / "trace.jsonl"
    rows = write_trace(trace, 40, seed=5)
    found = replay(
        tmp_path / "m", trace, "--affinity", "dynamo", "--session-token", "x-token", "--concurrency", "4", "-n", "40",
        logged=("X-Dynamo-Session-ID", "X-Dynamo-Parent-Session-ID", "X-Dynamo-Session-Final", "x-token"),
        session_token="x-token",
    )  # fmt: skip
    graph = read_call_graph("agentic-mooncake", trace)
    ours, theirs = found.joined()
    assert len(ours) == len(rows) and (ours["status"] == OK).all()
    number = next(phase["number"] for phase in found.run.manifest["phases"] if phase["name"] == "measure")
    prefix = f"{found.document['run_id']}-{number}-s"

    def named(session: int, chain: int) -> str:
        return f"{prefix}{session}" + (f"-{chain}" if chain else "")

    answered: dict[str, str] = {}
    for call, serial in enumerate(theirs["serial"].tolist()):
        said = dict(line.split(": ", 1) for line in found.truth.notes[serial].split("\n") if line)
        session, chain, parent = int(ours["session"][call]), int(graph.chain[call]), int(graph.parent_chain[call])
        mine = (graph.session_of() == session) & (graph.chain == chain)
        name, token = named(session, chain), said.pop("answered")
        assert said == {
            "x-dynamo-session-id": name,
            **({"x-dynamo-parent-session-id": named(session, parent)} if parent >= 0 else {}),
            **({"x-dynamo-session-final": "true"} if graph.turn[call] == graph.turn[mine].max() else {}),
            **({"x-token": answered[name]} if name in answered else {}),
        }
        answered[name] = token
    assert len(answered) == len(set(answered.values())) > 40


def measured_with_start(
    folder: Path, options: list[str], workers: str
) -> tuple[Measured, Plan, np.ndarray, np.ndarray]:
    """A run that begins with sessions under way, in which every call of the plan succeeds: our rows and the server's."""
    more = [
        "--session-start", "stationary", "--warmup", "20", "--endpoint-type", "openai-completions", "--prompt-form", "ids",
        "--workers", workers,
    ]  # fmt: skip
    found = measure(folder, [*options, *more], pin=workers == "1", **QUICK)
    plan = Plan.read_record(found.run.directory / "plan")
    ours, theirs = found.joined()
    order = np.argsort(ours["request"])
    ours, theirs = ours[order], theirs[order]
    assert plan.calls is not None
    assert (ours["request"] == np.arange(len(plan.calls))).all() and (ours["status"] == OK).all()
    return found, plan, ours, theirs


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sessions_under_way_continue_when_and_with_what_they_would_have(tmp_path: Path, workers: str) -> None:
    """By the plan and the server's log: each slot begins with what is left of its own session, at the planned instant; and
    the cache has what the warm-up sent, so that a call of a session under way finds what the one before it left.
    """
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, 40, seed=3)
    options = [
        "--workload", "agentic-mooncake", "--dataset-path", str(trace), "--concurrency", "8", "-n", "40", "--seed", "7",
    ]  # fmt: skip
    found, plan, ours, theirs = measured_with_start(tmp_path / "m", options, workers)
    assert plan.calls is not None and plan.edges is not None
    begins = np.flatnonzero(np.diff(plan.calls["session"].astype(np.int64), prepend=-1))[:8]
    assert (plan.calls["turn"][begins] > 0).any()
    graph = read_call_graph("agentic-mooncake", trace)
    wanted = under_way(graph, read_start("stationary"), 8, 40, 1.0, "7/start")
    left = np.where(wanted.due_ns < 0, AFTER_ALL_NS, wanted.due_ns)
    due = np.minimum.reduceat(left, wanted.graph.first_call[:-1])[:8]
    start = ours["t_sched"][begins]
    assert (start - start[0] == due - due[0]).all() and due[-1] > due[0]
    later = plan.edges["flags"] & EDGE_START > 0
    assert later.any()
    for edge in plan.edges:
        source, target = int(edge["source"]), int(edge["target"])
        if edge["flags"] & EDGE_START:
            assert ours["t_sched"][target] >= ours["t_sched"][source] + edge["wait_ns"]
        else:
            assert theirs["t_recv_first"][target] >= theirs["t_end"][source] + edge["wait_ns"]
    assert (theirs["cached_tokens"] == plan.calls["ideal_tokens"]).mean() > 0.97
    assert abs(int(theirs["cached_tokens"].sum()) / int(plan.calls["ideal_tokens"].sum()) - 1) < 0.002
    figures = found.document["sessions"]
    assert figures["under_way"] == found.document["plan"]["description"]["workload"]["sessions"]["under_way"] > 0
    assert figures["begun"] + figures["under_way"] == 40


@pytest.mark.parametrize("workers", ["1", "2"])
def test_arrivals_find_the_sessions_that_came_before_them(tmp_path: Path, workers: str) -> None:
    """By the plan and the server's log: sessions that arrived before time zero send what is left of them when it is due,
    among the arrivals, which are those of a fresh start; the cache has what the warm-up sent.
    """
    trace = tmp_path / "trace.jsonl"
    growing(trace, 60, seed=2)
    options = [
        "--workload", "graph", "--dataset-path", str(trace), "--rate", "15", "-n", "40", "--seed", "7",
    ]  # fmt: skip
    found, plan, ours, theirs = measured_with_start(tmp_path / "m", options, workers)
    assert plan.calls is not None and plan.t_sched is not None
    begins = np.flatnonzero(plan.t_sched >= 0)
    zero = int(ours["t_sched"][begins[0]] - plan.t_sched[begins[0]])
    assert (ours["t_sched"][begins] - zero == plan.t_sched[begins]).all()
    assert (theirs["t_recv_first"][begins] >= ours["t_sched"][begins]).all()
    under = plan.under_way
    assert len(under) > 3 and (plan.t_sched[under] < 100 * MS).all() and (plan.calls["turn"][under] > 0).all()
    assert set(begins) - set(under) == set(begins[plan.calls["turn"][begins] == 0])
    assert (theirs["cached_tokens"] == plan.calls["ideal_tokens"]).mean() > 0.95
    assert abs(int(theirs["cached_tokens"].sum()) / int(plan.calls["ideal_tokens"].sum()) - 1) < 0.005
    figures = found.document["sessions"]
    assert figures["under_way"] == len(under) and figures["begun"] == 40
    arrived = ~not_arrived(found.run, ours)  # what the certificate takes for the arrival process
    assert int(arrived.sum()) == 40 and (plan.calls["turn"][arrived] == 0).all()


def test_a_saved_plan_is_warmed_up_as_its_ideal_counts(tmp_path: Path) -> None:
    """By the server's log: sent from its file, the rest of each session finds what came before it in the cache."""
    trace, file = tmp_path / "trace.jsonl", tmp_path / "p.plan"
    growing(trace, 60, seed=2)
    options = [
        "--workload", "graph", "--dataset-path", str(trace), "--rate", "15", "-n", "40", "--session-start", "stationary",
        "--endpoint-type", "openai-completions", "--prompt-form", "ids", "--model", "simulated",
    ]  # fmt: skip
    saved = subprocess.run([sys.executable, "-m", "fastllmload", "plan", "save", str(file), *options], check=False)
    assert saved.returncode == 0
    sent = ["--plan", str(file), "--endpoint-type", "openai-completions", "--warmup", "20"]
    found = measure(tmp_path / "m", sent, pin=True, **QUICK)
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None and len(plan.under_way) > 3
    _, theirs = found.joined()
    assert abs(int(theirs["cached_tokens"].sum()) / int(plan.calls["ideal_tokens"].sum()) - 1) < 0.005
    assert found.document["sessions"]["under_way"] == len(plan.under_way)


def test_first_actions_are_those_that_the_server_sent(tmp_path: Path) -> None:
    """By the server's log: a reply acts with the first piece of a tool call that the server sent, else with its first answer
    token; a session with the earliest of these, or with the end of a reply that a tool or another agent follows.
    """
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, 40, seed=3)
    found = replay(
        tmp_path / "m", trace, "--goodput", "ttfa:60000 session_first_action:60000", faults=("tool_calls:0.3:2",)
    )
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None and plan.edges is not None
    ours, theirs = found.joined()
    assert (ours["request"] == np.arange(len(plan.calls))).all() and (ours["status"] == OK).all()
    sent: dict[int, int] = {}  # by request: when the server sent the first piece of a call
    for event in found.truth.events[found.truth.events["kind"] == EVENT_TOOL]:
        if event["serial"] in theirs["serial"]:
            sent.setdefault(int(event["key"]), int(event["t_ns"]))
    measured = np.flatnonzero(found.run.rows["phase"] == 1)
    called = first_call_ns(found.run)[measured]
    assert set(np.flatnonzero(called)) == set(sent) and 20 < len(sent) < len(ours) / 2
    assert all(called[one] >= t_ns for one, t_ns in sent.items())
    submit, first, end = (ours[name].astype(np.int64) for name in ("t_submit", "t_first", "t_end"))
    acts = set()  # the latest of the replies that a call with a wait for tools or agents waits for
    for target in np.flatnonzero(np.isin(plan.calls["kind"], (WaitKind.TOOL, WaitKind.AGENT))):
        before = plan.edges["source"][plan.edges["target"] == target]
        acts |= {int(before[np.argmax(end[before])])} if len(before) else set()
    action = [int(called[one] or (end[one] if one in acts else first[one])) for one in range(len(ours))]
    by_session = [
        (min(action[one] for one in mine) - min(submit[mine])) / 1e6
        for session in np.unique(plan.calls["session"])
        for mine in [np.flatnonzero(plan.calls["session"] == session)]
    ]
    figures = found.document["sessions"]
    assert figures["first_action"]["n"] == figures["met"] == 40
    assert figures["first_action"]["mean"] == pytest.approx(np.mean(by_session))
    each = np.where(called > 0, called, first) - submit
    assert found.document["metrics"]["ttfa"]["mean"] == pytest.approx(each.mean() / 1e6)
    assert found.document["metrics"]["session_first_action"]["p50"] == pytest.approx(np.median(by_session), rel=0.05)


SAMPLES = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[3] / "shared" / "corpora")) / "agentic"
SHARING = [  # sample, block size of the server, further options
    ("mooncake_sessions.jsonl", 512, []),
    ("mooncake_sessions.jsonl", 512, ["--trace-prompts", "delta", "--history", "planned"]),
    ("agentic_mooncake.jsonl", 64, []),
    ("weka_linear.json", 64, []),
    ("weka_rows.jsonl", 64, []),
    ("dynamo_request_trace.jsonl", 64, []),
    ("bailian.jsonl", 16, []),
    ("tracelab.jsonl", 1, ["--trace-max-wait", "500ms"]),
    ("applied_compute.jsonl", 1, []),
]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the agentic samples are not there (FASTLLMLOAD_CORPORA)")
@pytest.mark.parametrize(("file", "block", "options"), SHARING, ids=[f"{one[0]}{len(one[2])}" for one in SHARING])
def test_the_server_finds_what_the_plan_states_of_each_format(
    tmp_path: Path, file: str, block: int, options: list[str]
) -> None:
    """By the server's log: call by call, with blocks of the trace's size."""
    name = detect_format(SAMPLES / file)
    words = [
        "--workload", name, "--dataset-path", str(SAMPLES / file), "--warmup", "0", "--trace-speed", "4", *options,
        "--endpoint-type", "openai-completions", "--prompt-form", "ids",
    ]  # fmt: skip
    engine = (("step_ms", "1"), ("block_size", str(block)), ("kv_blocks", "131072"))
    found = measure(tmp_path / "m", words, overrides=engine)
    plan, (ours, theirs) = Plan.read_record(found.run.directory / "plan"), found.joined()
    theirs = theirs[np.argsort(ours["request"], kind="stable")]
    assert plan.calls is not None
    assert theirs["prompt_tokens"].tolist() == plan.input_tokens.tolist()
    assert theirs["cached_tokens"].tolist() == plan.calls["ideal_tokens"].tolist()
    cache, facts = found.document["sessions"]["cache"], plan.description.workload.sessions
    assert facts is not None and facts.ideal is not None and cache["achieved"] == cache["ideal"]
    assert facts.ideal.whole_block_share == pytest.approx(cache["achieved"])


def additions(path: Path, sessions: int, seed: int) -> None:
    """Sessions of 1 to 6 rows that add to the prompt before them: a common block, then blocks of which some are common."""
    stream, lines = random.Random(seed), []
    for session in range(sessions):
        for turn in range(stream.randint(1, 6)):
            start = 1000 * (session + 1) + 10 * turn
            ids = (
                [0, 1 + session % 3, start]
                if not turn
                else [900 + stream.randrange(3), start + 1][: stream.randint(1, 2)]
            )
            row = {
                "session_id": f"s{session}", "input_length": BLOCK * len(ids), "output_length": stream.randint(3, 70),
                "hash_ids": ids, **({"delay": 5} if turn else {"timestamp": session * 60}),
            }  # fmt: skip
            lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("options", "exact"),
    [(["--history", "planned", "--prompt-form", "ids"], True), (["--history", "planned"], False), ([], False)],
)
def test_additions_are_shared_between_sessions(tmp_path: Path, options: list[str], exact: bool) -> None:
    """Rows that add to a prompt begin with blocks of other sessions, after a planned reply or the server's own. By the
    server's log it finds what the plan states: all of it where replies are planned, and never more where they are its own.
    """
    trace = tmp_path / "trace.jsonl"
    additions(trace, 40, seed=2)
    words = [
        "--workload", "mooncake", "--dataset-path", str(trace), "--warmup", "0", "--trace-prompts", "delta",
        "--endpoint-type", "openai-completions", *options,
    ]  # fmt: skip
    found = measure(tmp_path / "m", words, **QUICK)
    plan, (ours, theirs) = Plan.read_record(found.run.directory / "plan"), found.joined()
    theirs = theirs[np.argsort(ours["request"], kind="stable")]
    assert plan.calls is not None and (ours["status"] == OK).all()
    ideal = plan.calls["ideal_tokens"]
    first = plan.calls["turn"] == 0
    assert (ideal[first] > 0).sum() > 30, "sessions begin alike"
    facts = plan.description.workload.sessions
    assert facts is not None and (facts.inexact == ()) == exact and ("hits-inexact" in found.said) == (not exact)
    if options:
        assert theirs["prompt_tokens"].tolist() == plan.input_tokens.tolist()
        assert abs(int(theirs["cached_tokens"].sum()) / int(ideal.sum()) - 1) < 0.001
        assert (theirs["cached_tokens"] == ideal).mean() > 0.98
        return
    assert (theirs["cached_tokens"][first] == ideal[first]).mean() > 0.95
    assert (theirs["cached_tokens"] <= ideal).mean() > 0.95 and int(theirs["cached_tokens"].sum()) > 0.7 * int(
        ideal.sum()
    )


def test_additions_under_way_continue_prompts_of_the_warm_up(tmp_path: Path) -> None:
    """By the server's log: with planned replies prompts are complete, so that sessions can begin in their middle."""
    trace = tmp_path / "trace.jsonl"
    additions(trace, 40, seed=4)
    options = [
        "--workload", "mooncake", "--dataset-path", str(trace), "--trace-prompts", "delta", "--history", "planned",
        "--concurrency", "6", "-n", "30", "--seed", "3",
    ]  # fmt: skip
    _, plan, _, theirs = measured_with_start(tmp_path / "m", options, "1")
    assert plan.calls is not None and len(plan.under_way) > 2
    ideal = plan.calls["ideal_tokens"]
    assert (theirs["prompt_tokens"] == plan.input_tokens).all() and int(ideal.sum()) > 0
    assert (theirs["cached_tokens"] == ideal).mean() > 0.97
    assert abs(int(theirs["cached_tokens"].sum()) / int(ideal.sum()) - 1) < 0.002


@pytest.mark.parametrize("history", ["real", "planned"])
def test_branches_keep_a_part_of_a_conversation(tmp_path: Path, history: str) -> None:
    """By the server's log: y keeps all but the last reply, z the system prompt, w everything."""
    trace = tmp_path / "trace.jsonl"
    named = {"r": (None, -1), "x": ("r", -1), "y": ("x", 4), "z": ("x", 1), "w": ("x", -1)}
    lines = [
        {
            "id": name, "session": "s", "output_tokens": 3, "messages": [{"role": "user", "content": f"say {name}"}],
            "kept": kept, **({"at_s": 0} if before is None else {"after": [before], "context": before}),
        }
        for name, (before, kept) in named.items()
    ]  # fmt: skip
    lines[0]["messages"] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "say r"}]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--workload", "graph", "--dataset-path", str(trace), "--warmup", "0", "--history", history]
    found = measure(tmp_path / "m", options, **QUICK, logged=("body:messages",))
    ours, theirs = found.joined()
    assert (ours["status"] == OK).all()
    graph = read_call_graph("graph", trace)
    notes = [found.truth.notes[serial].partition(": ")[2] for serial in theirs["serial"].tolist()]
    sent = {name: literal_eval(note) for name, note in zip(graph.call_id, notes, strict=True)}
    assert [one["role"] for one in sent["w"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert sent["x"][:2] == sent["r"] and sent["w"][:4] == sent["x"]
    assert sent["y"] == [*sent["x"], {"role": "user", "content": "say y"}]
    assert sent["z"] == [sent["r"][0], {"role": "user", "content": "say z"}]
    assert all(len(sent[name][2]["content"].split()) == 3 for name in "xyw"), "a reply has three words"


WORDS = ["time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family"]
TEMPLATE = 4  # tokens that the simulated engine counts of each message next to its text: 3, and its role


def agents_of_messages(path: Path, sessions: int, seed: int, times: int = 1) -> None:
    """Sessions of a main agent that grows by 3 turns, branches from its second prompt and compacts its history, and of two
    sub-agents; all agents of a kind have one system prompt, whose end is that of the session in every second one.
    *times*: as many words.
    """
    stream, lines = random.Random(seed), []

    def said(words: int, role: str = "user") -> dict[str, str]:
        return {"role": role, "content": " ".join(stream.choices(WORDS, k=words * times))}

    system, helper = said(90, "system"), said(60, "system")
    for session in range(sessions):
        text = system["content"] + (f" {said(9)['content']}" if session % 2 else "")
        main = {"role": "system", "content": text}
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("a", "main", {"messages": [main, said(30)], "at_s": session * 2.0}),
            ("b", "main", {"messages": [said(20)], "after": ["a"], "context": "a"}),
            ("c", "main", {"messages": [said(25)], "after": ["b"], "context": "b"}),
            ("k", "kid", {"messages": [helper, said(12)], "after": ["a"], "wait_s": 0.9, "parent": "main"}),
            ("l", "kid2", {"messages": [helper, said(14)], "after": ["a"], "wait_s": 1.1, "parent": "main"}),
            ("d", "main", {"messages": [said(8)], "after": ["b", "c"], "context": "b", "kept": 4, "wait_s": 0.1}),
            ("e", "main", {"messages": [said(40)], "after": ["d"], "context": "d", "kept": 1, "wait_s": 0.1}),
        ]
        for name, agent, values in calls:
            for key in ("context", "after", "parent"):
                if key in values:
                    one = values[key]
                    values[key] = [f"{session}{each}" for each in one] if key == "after" else f"{session}{one}"
            line = {"id": f"{session}{name}", "session": f"{session}", "chain": f"{session}{agent}", "output_tokens": 7}
            lines.append(json.dumps({**line, **values}))
    path.write_text("\n".join(lines) + "\n")


def counted(note: str) -> list[tuple[int, str]]:
    """Of a prompt's messages as the simulated engine counts them: (1 for a token of the template, the token)."""
    found: list[tuple[int, str]] = []
    for one in literal_eval(note.partition(": ")[2]):
        found += [
            *([(1, "message")] * (TEMPLATE - 1)),
            (1, one["role"]),
            *((0, word) for word in one["content"].split()),
        ]
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_messages_are_found_as_the_plan_states(tmp_path: Path, seed: int) -> None:
    """By the server's log, with blocks of one token: branches, compaction and sub-agents find what the plan states of the
    text, and the template of the messages that it is in.
    """
    trace = tmp_path / "trace.jsonl"
    agents_of_messages(trace, 10, seed)
    options = [
        "--workload", "graph", "--dataset-path", str(trace), "--warmup", "0", "--history", "planned", "--trace-speed", "4",
        "--cache-blocks", "100",
    ]  # fmt: skip
    engine = (("step_ms", "1"), ("block_size", "1"), ("kv_blocks", "131072"))
    found = measure(tmp_path / "m", options, overrides=engine, logged=("body:messages",))
    plan, (ours, theirs) = Plan.read_record(found.run.directory / "plan"), found.joined()
    theirs = theirs[np.argsort(ours["request"], kind="stable")]
    assert plan.calls is not None and (ours["status"] == OK).all() and len(theirs) == 70
    prompts = [counted(found.truth.notes[serial]) for serial in theirs["serial"].tolist()]
    cached, template = theirs["cached_tokens"].astype(np.int64), np.zeros(len(prompts), np.int64)
    for call, (prompt, hit) in enumerate(zip(prompts, cached.tolist(), strict=True)):
        assert theirs["prompt_tokens"][call] == len(prompt)
        assert plan.input_tokens[call] == sum(not extra for extra, _ in prompt)
        template[call] = sum(extra for extra, _ in prompt[:hit])
    ideal = plan.calls["ideal_tokens"]
    assert (ideal > 0).sum() > 60 and ((ideal > 0) & (ideal < plan.input_tokens)).any()
    assert (cached - template == ideal).mean() > 0.98
    assert abs(int((cached - template).sum()) / int(ideal.sum()) - 1) < 0.001
    facts = plan.description.workload.sessions
    assert facts is not None and facts.ideal is not None and "hits-inexact" in found.said
    assert facts.ideal.token_share == pytest.approx((cached - template).sum() / plan.input_tokens.sum(), rel=0.001)
    assert facts.ideal.cache_token_share is not None and 0 < facts.ideal.cache_token_share < facts.ideal.token_share


@pytest.mark.parametrize("failing", [False, True])
def test_messages_are_found_with_the_template_that_was_measured(tmp_path: Path, failing: bool) -> None:
    """By the server's log: in its own tokens, and in the order in which calls were sent, of which some failed or were left
    by their users, it found what a cache could find.
    """
    trace = tmp_path / "trace.jsonl"
    agents_of_messages(trace, 16, 5, times=6)  # so that the begin of a message of another role counts for little
    options = [
        "--workload", "graph", "--dataset-path", str(trace), "--warmup", "0", "--history", "planned", "--trace-speed", "4",
        "-n", "16", *(["--cancel-share", "0.2", "--cancel-after", "2tok"] if failing else []),
    ]  # fmt: skip
    engine = (("step_ms", "1"), ("block_size", "1"), ("kv_blocks", "131072"))
    faults = ("status:0.06", "close:0.06:3") if failing else ()
    found = measure(tmp_path / "m", options, overrides=engine, faults=faults)
    ours, theirs = found.joined()
    assert ((ours["status"] != OK).sum() > 10) == failing
    cache = found.document["sessions"]["cache"]
    counted = (ours["cached_tokens"] >= 0) & (ours["prompt_tokens"] > 0)
    truth = theirs["cached_tokens"][counted].sum() / theirs["prompt_tokens"][counted].sum()
    assert cache["template_tokens"] == TEMPLATE and cache["requests"] == counted.sum() > 40
    assert cache["achieved"] == pytest.approx(truth)
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None
    could = messages_at_send(plan, ours, TEMPLATE)
    assert cache["ideal_at_send"] == pytest.approx(could[counted].sum() / theirs["prompt_tokens"][counted].sum())
    later = counted & (plan.calls["session"][ours["request"]] > 0)  # the first ones race for the system prompts
    cached = theirs["cached_tokens"].astype(np.int64)
    assert abs(int(could[later].sum()) / int(cached[later].sum()) - 1) < 0.001
    without = messages_at_send(plan, ours, 0.0)
    assert abs(int(without[later].sum()) / int(cached[later].sum()) - 1) > 0.01, "the template counts"
