"""Conversations of a plan: lengths, instants and messages of each turn."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from refusals import raises_code
from support.plan_builder import asked

from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.build import build_plan
from fastllmload.plan.description.facts import figures
from fastllmload.plan.description.text import describe_as_text
from fastllmload.plan.plan import FOLLOWS, LAST_TURN, REAL_REPLY, STITCHED, Plan
from fastllmload.plan.sequence import write_sequence
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer


def spoken(*turns):
    """An entry of a ShareGPT file from (speaker, text)."""
    return {"conversations": [{"from": speaker, "value": text} for speaker, text in turns]}


SHAREGPT = [
    spoken(("gpt", "Hello"), ("human", "one"), ("gpt", "1"), ("human", "two"), ("gpt", '2 "and" ü'), ("human", "?")),
    spoken(("human", "only"), ("gpt", "answer")),
    spoken(("gpt", "nothing")),
]
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "x", "content": "42"},
]
THIRD = [{"role": "assistant", "content": "so"}, {"role": "user", "content": "third"}]
CUSTOM = [
    {"session": "a", "prompt": "first", "output_tokens": 3, "reply": "r1"},
    {"prompt": "alone", "output_tokens": 1},
    {"session": "a", "delay": 1.5, "output_tokens": 4, "reply": "r2", "messages": RESULT},
    {"session": "a", "messages": THIRD, "output_tokens": 2, "reply": "r3", "body": {"top_k": 3}},
]


def planned(folder, endpoint="openai-chat", phase="measure", **changes):
    settings = asked(**changes)
    return build_plan(settings, phase=phase, endpoint=ENDPOINTS[endpoint], model="m", out_dir=folder)


def synthetic(folder, **changes):
    given = {"workload__turns": "uniform:1,5", "workload__isl": "uniform:3,9", "workload__osl": "uniform:2,6",
             "workload__tokenizer": "none", "load__duration": None, "load__num_requests": 40}  # fmt: skip
    return planned(folder, **(given | changes))


def test_starts_are_scheduled_and_turns_follow(tmp_path):
    """--num-requests counts conversations; only their first turns have instants; expected lengths grow by the turns."""
    plan = synthetic(tmp_path, workload__think_time="uniform:1,2")
    turns = plan.turns
    assert len(plan.starts) == 40 == plan.description.conversations.conversations
    assert (plan.t_sched[turns["turn"] > 0] == FOLLOWS).all()
    assert ((turns["think_ns"] > 0) == (turns["turn"] > 0)).all()
    later = turns["turn"] > 0
    assert ((turns["think_ns"][later] >= 1e9) & (turns["think_ns"][later] <= 2e9)).all()
    assert (turns["flags"][later] & (STITCHED | REAL_REPLY) == STITCHED | REAL_REPLY).all()
    assert not (turns["flags"][~later] & (STITCHED | REAL_REPLY)).any()
    for number in np.flatnonzero(later):
        least = int(plan.input_tokens[number - 1]) + int(plan.output_tokens[number - 1]) + 3
        assert least <= plan.input_tokens[number] <= least + 6
    assert set(np.bincount(turns["session"])) == {1, 2, 3, 4, 5}


def test_the_record_of_a_run_folder_has_the_plan_without_bodies(tmp_path):
    """Of conversations it has the sessions, by which requests are dealt to workers."""
    for name, turns in (("turns", {}), ("single", {"workload__turns": None}), ("closed", {"load__concurrency": 3})):
        more = {"load__rate": None} if name == "closed" else {}
        plan = synthetic(tmp_path / name, **turns, **more)
        plan.write_record(tmp_path / f"record-{name}")
        found = Plan.read_record(tmp_path / f"record-{name}")
        assert (found.digest, found.requests, found.duration_s) == (plan.digest, plan.requests, plan.duration_s)
        for array in ("input_tokens", "output_tokens", "request_class"):
            assert getattr(found, array).tolist() == getattr(plan, array).tolist()
        assert (found.t_sched is None) == (name == "closed")
        if found.t_sched is not None:
            assert found.t_sched.tolist() == plan.t_sched.tolist()
            assert (found.turns is None) == (name == "single")
        if found.turns is not None:
            assert found.turns["session"].tolist() == plan.turns["session"].tolist()


def test_the_first_turns_do_not_depend_on_what_follows(tmp_path):
    """Instants of starts, think times and prompts come from their own streams."""
    quick = synthetic(tmp_path / "a", workload__think_time="0")
    slow = synthetic(tmp_path / "b", workload__think_time="exponential:5")
    assert quick.t_sched.tolist() == slow.t_sched.tolist()
    assert quick.bodies.tobytes() == slow.bodies.tobytes()
    assert quick.digest != slow.digest


def test_a_warm_up_has_no_think_times(tmp_path):
    plan = synthetic(tmp_path, phase="warmup", workload__think_time="600", load__warmup_requests=20)
    assert not plan.turns["think_ns"].any() and plan.requests == 20
    assert plan.turns["flags"][-1] & LAST_TURN


def test_only_the_first_turn_has_a_shared_prefix(tmp_path):
    plan = synthetic(tmp_path, workload__prefix_len=7, workload__turns="3")
    said = [json.loads(plan.body(n))["messages"][0]["content"].split() for n in range(plan.requests)]
    sizes = np.array([len(words) for words in said])
    assert {tuple(words[:7]) for words in said[::3]} == {tuple(said[0][:7])}
    assert (sizes[::3] >= 10).all() and (np.delete(sizes, np.s_[::3]) <= 9).all()


def test_planned_history_is_complete_in_the_plan(tmp_path):
    """Every body has all messages so far, with replies of the planned lengths."""
    plan = synthetic(tmp_path, workload__history="planned", workload__turns="3", workload__tool_turns=0.5)
    for number in range(plan.requests):
        messages = json.loads(plan.body(number))["messages"]
        turn = int(plan.turns["turn"][number])
        replies = [message for message in messages if message["role"] == "assistant"]
        assert len(replies) == turn
        for reply, tokens in zip(replies, plan.output_tokens[number - turn : number], strict=True):
            assert len(reply["content"].split()) == tokens
    tools = sum("tool_calls" in json.dumps(json.loads(plan.body(n))["messages"]) for n in range(plan.requests))
    assert 0 < tools < plan.requests


def test_whole_conversations_of_sharegpt(tmp_path):
    """From the first question to the last that was answered; answers give the lengths, or the planned history."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(SHAREGPT))
    common = {"workload__name": "sharegpt", "workload__dataset_path": str(file), "workload__turns": "all",
              "load__duration": None, "load__num_requests": 2, "workload__history": "planned"}  # fmt: skip
    plan = planned(tmp_path / "plan", **common)
    contents = [[m["content"] for m in json.loads(plan.body(n))["messages"]] for n in range(plan.requests)]
    assert sorted(contents) == sorted([["one"], ["one", "1", "two"], ["only"]])
    assert plan.description.workload.dataset.left_out == 1
    assert plan.output_tokens.sum() == 1 + 1 + 5
    short = planned(tmp_path / "short", **{**common, "workload__turns": "1"})
    assert short.requests == 2


def test_lines_that_share_a_session(tmp_path):
    """Turns in their order with their own delays; an assistant's message that calls a tool takes the reply."""
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in CUSTOM))
    common = {"workload__name": "custom", "workload__dataset_path": str(file), "workload__turns": "all",
              "workload__think_time": "9", "load__duration": None, "load__num_requests": 2}  # fmt: skip
    plan = planned(tmp_path / "planned", **common, workload__history="planned")
    bodies = [json.loads(plan.body(n)) for n in range(4)]
    assert [m["content"] for m in bodies[2]["messages"]] == ["first", "r1", "42", "so", "third"]
    assert bodies[2]["messages"][1]["tool_calls"][0]["id"] == "x" and bodies[2]["top_k"] == 3
    assert "top_k" not in bodies[1] and [m["content"] for m in bodies[3]["messages"]] == ["alone"]
    assert plan.turns["think_ns"].tolist() == [0, 1_500_000_000, 9_000_000_000, 0]
    real = planned(tmp_path / "real", **common)
    assert [int(flags) & (STITCHED | REAL_REPLY) for flags in real.turns["flags"]] == [
        0,
        STITCHED | REAL_REPLY,
        STITCHED,
        0,
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"session": ["a"], "prompt": "x"}, ("dataset-field-invalid", "line 1: session is")),
        ({"session": True, "prompt": "x"}, ("dataset-field-invalid", "line 1: session is True")),
        ({"session": 1, "delay": "soon", "prompt": "x"}, ("dataset-field-invalid", "line 1: delay is 'soon'")),
        ({"session": 1, "delay": -1, "prompt": "x"}, ("dataset-field-invalid", "line 1: delay is -1", "from 0")),
        ({"session": 1, "prompt": [1, 2]}, ("dataset-field-invalid", "token ids", "be turns")),
        ({"session": 1, "prompt": "x"}, ("output-length-missing", "line 1")),
    ],
)
def test_wrong_lines_are_named(tmp_path, line, said):
    file = tmp_path / "c.jsonl"
    file.write_text(json.dumps(line))
    with raises_code(*said):
        planned(tmp_path / "plan", workload__name="custom", workload__dataset_path=str(file), workload__turns="all")


def test_a_data_set_with_sessions_requires_turns(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text(json.dumps(CUSTOM[0]))
    with raises_code("option-not-applicable", "add --turns all"):
        planned(tmp_path / "plan", workload__name="custom", workload__dataset_path=str(file))


STANDARD = {"workload__name": "conversation", "workload__turns": "3", "load__duration": None, "load__num_requests": 30}


def test_the_standard_conversation_has_several_turns(tmp_path):
    """Without a file: the workload's own questions and answers' lengths in their order, half after the system prompt."""
    plan = planned(tmp_path / "turns", **STANDARD)
    bodies = [json.loads(plan.body(n))["messages"] for n in range(plan.requests)]
    alone = planned(tmp_path / "alone", **{**STANDARD, "workload__turns": None, "load__num_requests": 90})
    single = [json.loads(alone.body(n))["messages"] for n in range(90)]
    assert [messages[-1] for messages in bodies] == [messages[-1] for messages in single]
    assert plan.output_tokens.tolist() == alone.output_tokens.tolist()
    draw = random.Random("42/prefix")
    firsts = bodies[::3]
    assert [len(messages) - 1 for messages in firsts] == [int(draw.random() < 0.5) for _ in range(30)]
    assert {messages[0]["content"] for messages in firsts if len(messages) == 2} == {single_system(single)}
    assert all(len(messages) == 1 for n, messages in enumerate(bodies) if n % 3)
    assert [text for text in plan.deviations if "several turns (3)" in text]
    assert plan.counting.special_tokens is not None


def single_system(bodies):
    return next(messages[0]["content"] for messages in bodies if len(messages) == 2)


def test_the_standard_conversation_with_planned_history(tmp_path):
    """Replies have the output length of their turns."""
    tokenizer = load_tokenizer("cl100k_base")
    plan = planned(tmp_path, **STANDARD, workload__history="planned")
    for number in range(2, plan.requests, 3):
        messages = json.loads(plan.body(number))["messages"]
        replies = [message["content"] for message in messages if message["role"] == "assistant"]
        assert [tokenizer.count(reply) for reply in replies] == plan.output_tokens[number - 2 : number].tolist()
        assert plan.input_tokens[number] == sum(tokenizer.count(message["content"]) for message in messages)


def test_the_standard_conversation_of_a_file(tmp_path):
    """ShareGPT's turns, as without --workload conversation, except for the system prompt before half."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(SHAREGPT))
    given = {**STANDARD, "workload__turns": "all", "workload__dataset_path": str(file)}
    plan = planned(tmp_path / "standard", **given)
    plain = planned(tmp_path / "plain", **{**given, "workload__name": "sharegpt"})
    with_system, without = ([json.loads(p.body(n))["messages"] for n in range(p.requests)] for p in (plan, plain))
    assert [messages[-1:] for messages in with_system] == without
    assert 5 < sum(messages[0]["role"] == "system" for messages in with_system) < 25
    assert plan.turns["turn"].tolist() == plain.turns["turn"].tolist()


def test_turns_have_the_classes_of_their_lines(tmp_path):
    file = tmp_path / "c.jsonl"
    lines = [{**CUSTOM[0], "class": "asks"}, CUSTOM[1], {**CUSTOM[2], "class": "acts"}, CUSTOM[3]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = planned(
        tmp_path / "plan", workload__name="custom", workload__dataset_path=str(file), workload__turns="all",
        load__duration=None, load__num_requests=2,
    )  # fmt: skip
    assert [plan.classes[kind] for kind in plan.request_class] == ["asks", "acts", "", ""]


def test_a_tool_call_and_its_result_name_each_other(tmp_path):
    """What a chat template checks: ids are nine letters and digits, and the result follows the message that asks."""
    plan = synthetic(tmp_path, workload__tool_turns=1.0, workload__history="planned", workload__turns="4")
    messages = json.loads(plan.body(3))["messages"]
    assert [message["role"] for message in messages] == ["user", *["assistant", "tool"] * 3]
    calls = [message["tool_calls"][0]["id"] for message in messages if message["role"] == "assistant"]
    assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(set(calls)) == 3 and all(len(one) == 9 and one.isalnum() for one in calls)


def test_turns_count_as_samples_of_the_window_that_their_conversation_began_in(tmp_path):
    plan = planned(tmp_path, rate=20.0, duration=10.0, workload__turns="3", workload__tokenizer="none")
    begun = int((plan.t_start >= 1e9).sum())
    assert figures(plan).samples["p99"].samples == 3 * begun


def test_a_plan_shows_its_conversations(tmp_path):
    plan = synthetic(tmp_path, workload__think_time="2s", behaviour__abandon="ttft:5s")
    text = describe_as_text(plan)
    assert "load           open loop, poisson, 20 conversations/s\n" in text
    assert "conversations  40 of " in text and ("2 s to think" in text and "(2s); history real" in text)
    assert "users " in text and "up at ttft:5s" in text


@pytest.mark.parametrize("kind", [{}, {"workload__tool_turns": 0.6}, {"workload__name": "conversation"}])
def test_a_written_sequence_is_the_same_conversations(tmp_path, kind):
    """Read back as a data set it has the same bodies, turns, instants and think times."""
    changes = {"workload__think_time": "uniform:0,3", **kind}
    plan = synthetic(tmp_path / "plan", **changes)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    again = planned(
        tmp_path / "again", workload__name="custom", workload__dataset_path=str(tmp_path / "s.jsonl"),
        workload__turns="all", workload__tokenizer="none", load__duration=None, load__num_requests=40,
    )  # fmt: skip
    assert again.bodies.tobytes() == plan.bodies.tobytes()
    assert (again.turns == plan.turns).all()
    assert again.t_sched.tolist() == plan.t_sched.tolist()


def test_a_planned_history_has_no_sequence(tmp_path):
    plan = synthetic(tmp_path / "plan", workload__history="planned")
    with raises_code("output-length-missing", "use --history real"):
        write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
