"""Plans of graphs of calls: prompts share exactly the trace's blocks, and edges lead inside of each copy of a session."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from refusals import raises_code
from support.agentic_traces import write_trace

from fastllmload.cli.main import main
from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.build import build_plan
from fastllmload.plan.conversations.graph import GraphSessions
from fastllmload.plan.description.session_picture import draw_sessions
from fastllmload.plan.plan import EDGE_CONTEXT, EDGE_START, LAST_TURN, REAL_REPLY, STITCHED
from fastllmload.plan.prompts.load import LoadedWorkload
from fastllmload.settings import Load, RunSettings, Workload
from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph, WaitKind
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

CHAT = ENDPOINTS["openai-chat"]
MS = 1_000_000


def call(name: str, blocks: list[int], tokens: int, **values: object) -> TracedCall:
    values = {"chain": name[0], "output": 5, "start_ns": 0, **values}
    return TracedCall(name, "line 1", input=tokens, blocks=np.array(blocks), **values)  # type: ignore[arg-type]


def blocks_graph() -> CallGraph:
    """Session a: a0 -> a1, a child c0 of a0 that a1 joins. Session b: shares block 1 with a."""
    calls = [
        call("a0", [1, 2], 40, start_ns=0, end_ns=100 * MS),
        call("c0", [1, 9], 32, after=[After("a0")], wait_ns=10 * MS, start_ns=110 * MS, end_ns=300 * MS),
        call("a1", [1, 2, 3], 44, after=[After("a0", 50 * MS), After("c0")], wait_ns=20 * MS,
             wait_kind=WaitKind.TOOL, start_ns=400 * MS, end_ns=500 * MS),
        call("b0", [1, 7], 30, start_ns=200 * MS, end_ns=250 * MS),
    ]  # fmt: skip
    return build_graph("test", "0" * 64, calls, block_tokens=16)


def planned(path: Path, graph: CallGraph, quota: int, endpoint: str = "openai-chat", **values: object) -> Bodies:
    warmup = bool(values.pop("warmup", False))
    workload = Workload(name="graph", **values)  # type: ignore[arg-type]
    source = GraphSessions(workload, 1, graph, warmup=warmup)
    found = source.write(path, Quota(quota), ENDPOINTS[endpoint], "m", by_starts=not warmup)
    source.describe()
    return found


def bodies_of(path: Path, found: Bodies) -> list[bytes]:
    raw, pieces = path.read_bytes(), found.graph.get("pieces.npy")
    if pieces is None:
        return [raw[int(a) : int(b)] for a, b in pairwise(found.offsets)]
    parts = [raw[int(at) : int(at + size)] for at, size in pieces]
    return [b"".join(parts[int(a) : int(b)]) for a, b in pairwise(found.offsets)]


def common(one: list[int], other: list[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_prompts_share_the_blocks_of_the_trace(tmp_path):
    """In tokens: what two prompts have in common is what their blocks have, also of a block that one uses in part."""
    found = planned(tmp_path / "bodies", blocks_graph(), 2)
    tokenizer = load_tokenizer("cl100k_base")
    prompts = [json.loads(body)["messages"][0]["content"] for body in bodies_of(tmp_path / "bodies", found)]
    tokens = [tokenizer.encode(text) for text in prompts]
    assert [len(one) for one in tokens] == found.input_tokens.tolist() == [40, 32, 44, 30]
    assert common(tokens[0], tokens[1]) == 16 and common(tokens[0], tokens[2]) == 32
    assert common(tokens[1], tokens[2]) == 16 and common(tokens[0], tokens[3]) == 16
    assert [json.loads(body)["max_tokens"] for body in bodies_of(tmp_path / "bodies", found)] == [5] * 4


def test_edges_and_waits_are_those_of_the_trace(tmp_path):
    found = planned(tmp_path / "bodies", blocks_graph(), 2, trace_speed=2.0)
    edges, turns = found.graph["edges.npy"], found.turns
    assert edges[["source", "target", "wait_ns"]].tolist() == [(0, 1, 0), (0, 2, 25 * MS), (1, 2, 0)]
    assert turns["think_ns"].tolist() == [0, 5 * MS, 10 * MS, 0]
    assert turns["turn"].tolist() == [0, 1, 2, 0] and turns["waits_for"].tolist() == [0, 1, 2, 0]
    assert turns["session"].tolist() == [0, 0, 0, 1]
    assert (turns["flags"] & LAST_TURN > 0).tolist() == [False, False, True, True]
    calls = found.graph["calls.npy"]
    assert calls["kind"].tolist() == [0, 0, WaitKind.TOOL, 0] and calls["depth"].tolist() == [0, 1, 0, 0]
    assert calls["service_s"].tolist() == [0.1, 0.19, 0.1, 0.05]


def test_repeated_sessions_share_nothing_with_their_earlier_round(tmp_path):
    found = planned(tmp_path / "bodies", blocks_graph(), 5)
    prompts = [json.loads(body)["messages"][0]["content"] for body in bodies_of(tmp_path / "bodies", found)]
    assert len(prompts) == 11 and found.turns["session"].tolist() == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4]
    tokenizer = load_tokenizer("cl100k_base")
    tokens = [tokenizer.encode(text) for text in prompts]
    assert (
        common(tokens[0], tokens[4]) == 0 and common(tokens[4], tokens[6]) == 32 and common(tokens[4], tokens[7]) == 16
    )
    edges = found.graph["edges.npy"]
    assert edges["source"].tolist() == [0, 0, 1, 4, 4, 5, 8, 8, 9]


def test_a_warm_up_waits_for_nothing_and_shares_nothing(tmp_path):
    measured = planned(tmp_path / "measured", blocks_graph(), 2)
    graph = blocks_graph()
    source = GraphSessions(Workload(name="graph"), "1/warmup", graph, warmup=True)
    found = source.write(tmp_path / "warm", Quota(6, 20), CHAT, "m", by_starts=False)
    assert len(found.input_tokens) == 6 and found.turns["think_ns"].sum() == 0
    assert found.turns["session"].tolist() == [0, 0, 0, 1, 2, 2] and found.graph["edges.npy"]["wait_ns"].sum() == 0
    texts = [json.loads(one)["messages"][0]["content"] for one in bodies_of(tmp_path / "warm", found)]
    others = [json.loads(one)["messages"][0]["content"] for one in bodies_of(tmp_path / "measured", measured)]
    assert not {text[:20] for text in texts} & {text[:20] for text in others}


def test_recorded_timing_has_an_instant_for_every_call(tmp_path):
    workload = Workload(name="graph", trace_timing="recorded")
    source = GraphSessions(workload, 1, blocks_graph(), warmup=False)
    assert source.instants.tolist() == [0, 110 * MS, 200 * MS, 400 * MS]
    found = source.write(tmp_path / "bodies", Quota(6), CHAT, "m", by_starts=True)
    assert found.turns["session"].tolist() == [0, 0, 1, 0, 2, 2] and len(found.graph["edges.npy"]) == 0
    assert found.graph["calls.npy"]["session"].tolist() == [0, 0, 1, 0, 2, 2]
    assert found.input_tokens.tolist() == [40, 32, 30, 44, 40, 32]


def test_prompts_of_token_ids(tmp_path):
    found = planned(tmp_path / "bodies", blocks_graph(), 2, "openai-completions", prompt_form="ids")
    prompts = [json.loads(body)["prompt"] for body in bodies_of(tmp_path / "bodies", found)]
    assert [len(one) for one in prompts] == [40, 32, 44, 30] and common(prompts[0], prompts[2]) == 32
    assert common(prompts[0], prompts[3]) == 16


def test_a_prompt_grows_from_what_the_recording_had_cached(tmp_path):
    calls = [
        TracedCall("a0", "line 1", "a", 50, 5, start_ns=0, prefix_tokens=0),
        TracedCall("a1", "line 2", "a", 80, 5, after=[After("a0")], start_ns=MS, prefix_tokens=45),
        TracedCall("a2", "line 3", "a", 60, 5, after=[After("a1")], start_ns=2 * MS, prefix_tokens=60),
    ]
    graph = build_graph("test", "0" * 64, calls)
    found = planned(tmp_path / "bodies", graph, 1)
    tokenizer = load_tokenizer("cl100k_base")
    texts = [json.loads(one)["messages"][0]["content"] for one in bodies_of(tmp_path / "bodies", found)]
    tokens = [tokenizer.encode(text) for text in texts]
    assert [len(one) for one in tokens] == [50, 80, 60]
    assert common(tokens[0], tokens[1]) == 45 and common(tokens[1], tokens[2]) == 60


def dialogue() -> CallGraph:
    """A root with two branches of its conversation, one of which waits for the other."""

    def said(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text}]

    calls = [
        TracedCall("r", "line 1", "r", 0, 5, messages=said("root"), start_ns=0),
        TracedCall("x", "line 2", "x", 0, 6, messages=said("left"), after=[After("r")], context="r"),
        TracedCall("y", "line 3", "r", 0, 7, messages=said("right"), after=[After("r"), After("x")], context="r"),
    ]
    return build_graph("test", "0" * 64, calls)


def test_branches_continue_a_conversation(tmp_path):
    found = planned(tmp_path / "bodies", dialogue(), 1)
    edges = found.graph["edges.npy"]
    assert edges["flags"].tolist() == [EDGE_CONTEXT, EDGE_CONTEXT, 0]
    assert (found.turns["flags"] & (STITCHED | REAL_REPLY)).tolist() == [0, 6, 6]
    messages = [json.loads(one)["messages"] for one in bodies_of(tmp_path / "bodies", found)]
    assert [one[-1]["content"] for one in messages] == ["root", "left", "right"]
    assert all(len(one) == 1 for one in messages)


def test_a_planned_history_is_in_the_body(tmp_path):
    found = planned(tmp_path / "bodies", dialogue(), 1, history="planned")
    messages = [json.loads(one)["messages"] for one in bodies_of(tmp_path / "bodies", found)]
    assert [[one["role"] for one in each] for each in messages] == [
        ["user"], ["user", "assistant", "user"], ["user", "assistant", "user"]
    ]  # fmt: skip
    assert messages[1][:2] == messages[2][:2] and (found.turns["flags"] & STITCHED).sum() == 0


def test_ideal_hits_of_messages_are_those_of_the_bodies(tmp_path):
    """Two rounds of a session in which one call has an answer of its own in place of the reply: by the texts in the bodies.
    A planned reply is new in each round, the messages are the same.
    """
    tokenizer = load_tokenizer("cl100k_base")
    assert tokenizer is not None
    question, own = ({"role": role, "content": f"{role} says so"} for role in ("user", "assistant"))
    calls = [
        TracedCall("r", "line 1", "r", 0, 5, messages=[question], start_ns=0),
        TracedCall("x", "line 2", "r", 0, 6, messages=[own, question], after=[After("r")], context="r"),
        TracedCall("y", "line 3", "r", 0, 7, messages=[question], after=[After("x")], context="x"),
    ]
    found = planned(tmp_path / "bodies", build_graph("test", "0" * 64, calls), 2, history="planned")
    texts = [
        [tokenizer.encode(one["content"]) for one in json.loads(body)["messages"]]
        for body in bodies_of(tmp_path / "bodies", found)
    ]
    assert found.input_tokens.tolist() == [sum(map(len, each)) for each in texts]
    ideal = []
    for call, mine in enumerate(texts):
        flat = [each for one in mine for each in one]
        before = ([each for one in other for each in one] for other in texts[:call])
        ideal.append(min(len(flat) - 1, max((common_start(flat, other) for other in before), default=0)))
    assert found.graph["calls.npy"]["ideal_tokens"].tolist() == ideal


def common_start(one: list[int], other: list[int]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_a_second_root_counts_from_the_first(tmp_path):
    calls = [
        call("a0", [1], 16, start_ns=0),
        call("b0", [2], 16, start_ns=30 * MS),
        call("a1", [1, 3], 32, after=[After("a0"), After("b0")], start_ns=80 * MS),
    ]
    found = planned(tmp_path / "bodies", build_graph("test", "0" * 64, calls, block_tokens=16), 1)
    edges = found.graph["edges.npy"]
    assert edges[["source", "target", "wait_ns", "flags"]].tolist() == [
        (0, 1, 30 * MS, EDGE_START), (0, 2, 0, 0), (1, 2, 0, 0)
    ]  # fmt: skip


def test_grpc_bodies_are_complete(tmp_path):
    found = planned(tmp_path / "bodies", blocks_graph(), 2, "vllm-grpc", prompt_form="ids")
    assert "pieces.npy" not in found.graph and int(found.offsets[-1]) == (tmp_path / "bodies").stat().st_size


@pytest.mark.parametrize(
    ("values", "part"),
    [({"prompt_form": "text"}, "--prompt-form words or ids"), ({"osl": None}, "")],
)
def test_what_blocks_cannot_be(tmp_path, values, part):
    if not part:
        graph = blocks_graph()
        graph.output[1] = 0
        with pytest.raises(InputError, match="add --osl"):
            planned(tmp_path / "bodies", graph, 1)
        return
    with pytest.raises(InputError, match=part):
        planned(tmp_path / "bodies", blocks_graph(), 1, **values)


def test_an_output_length_can_be_drawn(tmp_path):
    found = planned(tmp_path / "bodies", blocks_graph(), 2, osl="33")
    assert found.output_tokens.tolist() == [33] * 4


def test_a_part_of_a_trace():
    graph = blocks_graph().between(0.1, None)
    assert graph.sessions == 1 and graph.call_id == ["b0"] and graph.start_ns.tolist() == [0]
    assert len(graph.edge_from) == 0 and graph.block.tolist() == [0, 1]
    with pytest.raises(InputError, match="no session that begins from --trace-from 9 s"):
        blocks_graph().between(9, None)
    assert msgspec.json.encode(blocks_graph().between(0, 0.2).call_id) == b'["a0","c0","a1"]'


def test_a_trace_is_written_in_our_own_format(tmp_path, monkeypatch, capsys):
    """What `plan --sequence` writes gives the same plan; a saved plan has no trace to write."""
    monkeypatch.chdir(tmp_path)
    write_trace(Path("trace.jsonl"), 5)
    words = ["plan", "--model", "m", "--rate", "5", "-n", "5", "--dataset-path"]
    assert main([*words, "trace.jsonl", "--workload", "agentic-mooncake", "--sequence", "own.jsonl"]) == 0
    first = capsys.readouterr().out
    assert main([*words, "own.jsonl", "--workload", "graph"]) == 0
    second = capsys.readouterr().out
    kept = ("sessions", "calls due", "ideal hits", "input length", "output length", "bodies", "schedule")
    facts = [[line for line in text.splitlines() if line.startswith(kept)] for text in (first, second)]
    assert facts[0] == facts[1] and len(facts[0]) == len(kept)
    assert main(["plan", "save", "saved", *words[1:], "trace.jsonl", "--workload", "agentic-mooncake"]) == 0
    capsys.readouterr()
    assert main(["plan", "describe", "saved", "--sequence", "x.jsonl"]) == 2
    assert "the sequence of a plan of sessions is its trace" in capsys.readouterr().err


def test_sessions_are_drawn(tmp_path):
    """1 s in 64 columns: m0 takes 0.25 s, k0 begins then and takes 0.25 s, m1 follows 0.25 s after its end."""

    def at(name: str, chain: str, start: float, **values: object) -> TracedCall:
        times = {"start_ns": round(start * 1e9), "end_ns": round((start + 0.25) * 1e9)}
        return TracedCall(name, "line 1", chain, 16, 5, **times, **values)  # type: ignore[arg-type]

    calls = [
        at("m0", "m", 0),
        at("k0", "k", 0.25, after=[After("m0")]),
        at("m1", "m", 0.75, after=[After("m0"), After("k0")], wait_ns=250 * MS, wait_kind=WaitKind.TOOL),
    ]
    settings = RunSettings(load=Load(rate=1.0, num_requests=2), workload=Workload(name="graph", tokenizer="none"))
    plan = build_plan(
        settings, phase="measure", endpoint=CHAT, model="m", out_dir=tmp_path,
        loaded=LoadedWorkload(graph=build_graph("graph", "0" * 64, calls)),
    )  # fmt: skip
    first, second = draw_sessions(plan)
    assert first == [
        "session 1      3 calls, 1 s",
        "agent 0    │" + "█" * 16 + " " * 15 + "t" * 16 + "█" * 17,
        "  agent 1  │" + " " * 15 + "█" * 17,
    ]
    assert second[1:3] == first[1:] and "t waits (tool)" in second[3]


@pytest.mark.parametrize("context", ["y", "x"])
def test_a_conversation_is_continued_after_its_last_reply_only(tmp_path, context):
    """x is not waited for by z, and y only follows it."""
    said = [{"role": "user", "content": "text"}]
    calls = [
        TracedCall("r", "line 1", "r", 0, 5, messages=said, start_ns=0),
        TracedCall("x", "line 2", "x", 0, 5, messages=said, after=[After("r")], start_ns=1),
        TracedCall("z", "line 3", "r", 0, 5, messages=said, after=[After("r")], context=context, start_ns=2),
        TracedCall("y", "line 4", "y", 0, 5, messages=said, after=[After("z")], start_ns=3),
    ]
    with raises_code("call-graph-invalid", "call z", f"call {context}"):
        planned(tmp_path / "bodies", build_graph("test", "0" * 64, calls), 1)


@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions"])
def test_a_salt_changes_the_words_and_not_what_prompts_share(tmp_path, endpoint):
    """Of two salts no prompt begins alike; tokens, sessions and shared blocks are the same."""
    tokens, found = [], []
    for salt in (0, 3):
        found.append(planned(tmp_path / f"{salt}", blocks_graph(), 2, endpoint, salt=salt))
        bodies = [json.loads(body) for body in bodies_of(tmp_path / f"{salt}", found[-1])]
        texts = [one["prompt"] if "prompt" in one else one["messages"][0]["content"] for one in bodies]
        tokens.append([load_tokenizer("cl100k_base").encode(text) for text in texts])
    assert found[0].input_tokens.tolist() == found[1].input_tokens.tolist() == [len(one) for one in tokens[1]]
    assert common(tokens[1][0], tokens[1][1]) == 16 and common(tokens[1][0], tokens[1][2]) == 32
    assert all(common(one, other) == 0 for one in tokens[0] for other in tokens[1])
