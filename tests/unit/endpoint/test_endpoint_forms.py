"""Protocols with messages of their own: bodies, what a data set's messages become, and what they cannot carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code, says
from support.plan_builder import asked

from fastllmload.endpoint import ENDPOINTS, resolve_endpoint
from fastllmload.errors import InputError
from fastllmload.plan.build import build_plan
from fastllmload.plan.sequence import write_sequence
from fastllmload.settings import Workload

RESPONSES = "openai-responses"
MESSAGES = "anthropic-messages"
ALL = (RESPONSES, MESSAGES)
OSL = {RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]},
    {"role": "assistant", "content": "So", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "42"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "43"}]},
    {"role": "user", "content": "And?"},
]


def body(name: str, **workload: Any) -> dict[str, Any]:
    found = json.loads(ENDPOINTS[name].encode_body("m", Workload(**workload), "hi", 64))
    assert isinstance(found, dict)
    return found


def planned(folder: Path, name: str, lines: list[dict[str, Any]], conversations: int = 0, **changes: Any) -> Any:
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps({"output_tokens": 4, **line}) + "\n" for line in lines))
    given = {
        "workload__name": "custom",
        "workload__dataset_path": str(path),
        "workload__isl": None,
        "workload__osl": None,
    }
    settings = asked(
        load__duration=None,
        load__num_requests=conversations or len(lines),
        target__endpoint_type=name,
        **given,
        **changes,
    )
    return build_plan(settings, phase="measure", endpoint=ENDPOINTS[name], model="m", out_dir=folder)


def test_a_body_of_responses() -> None:
    """Nothing is stored by the server; ignore_eos is vLLM's, and there is no min_tokens."""
    said = {"model": "m", "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 64, "temperature": 0.0}
    assert body(RESPONSES) == {**said, "ignore_eos": True, "store": False, "stream": True}
    found = body(RESPONSES, ignore_eos=False, streaming=False, temperature=None, extra_body='{"store":null,"top_p":1}')
    assert found == {"model": "m", "input": said["input"], "max_output_tokens": 64, "stream": False, "top_p": 1}


def test_the_longest_answer_of_responses_may_be_left_out() -> None:
    found = body(RESPONSES, ignore_eos=False, extra_body='{"max_output_tokens":null}')
    assert "max_output_tokens" not in found
    for name, length in ((RESPONSES, "9"), (MESSAGES, "null")):  # --osl has it; Messages need it
        with raises_code("extra-body-reserved", OSL[name]):
            body(name, ignore_eos=False, extra_body=f'{{"{OSL[name]}":{length}}}')


def test_a_body_of_messages() -> None:
    """There is no ignore_eos, which the report says; the system prompt is in front, where later turns keep it."""
    said = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64}
    assert body(MESSAGES) == {**said, "temperature": 0.0, "stream": True}
    found = body(MESSAGES, streaming=False, temperature=None, extra_body='{"system":"s","top_k":1}')
    assert found == {**said, "system": "s", "stream": False, "top_k": 1} and list(found)[:3] == [
        "model",
        "system",
        "messages",
    ]
    endpoint = ENDPOINTS[MESSAGES]
    assert "no ignore_eos" in endpoint.remarks(Workload())[0] and not endpoint.remarks(Workload(ignore_eos=False))
    assert endpoint.own_headers("k") == [("anthropic-version", "2023-06-01"), ("x-api-key", "k")]
    assert endpoint.own_headers(None) == [("anthropic-version", "2023-06-01")]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ('{"LENGTH":5}', ("extra-body-reserved", "--osl")),
        ('{"max_completion_tokens":"{output_tokens}"}', ("protocol-unsupported", "--osl becomes LENGTH")),
        ('{"PROMPT":[]}', ("extra-body-reserved", "--workload")),
    ],
)
def test_what_the_run_decides_is_refused_in_extra_body(name: str, extra: str, sentence: tuple[str, ...]) -> None:
    for placeholder, field in (("LENGTH", OSL[name]), ("PROMPT", ENDPOINTS[name].prompt_fields[0])):
        extra, sentence = (
            extra.replace(placeholder, field),
            tuple(part.replace(placeholder, field) for part in sentence),
        )
    with pytest.raises(InputError, match="--extra-body") as caught:
        ENDPOINTS[name].body_pieces("m", Workload(extra_body=extra))
    assert says(str(caught.value), *sentence)


@pytest.mark.parametrize("name", ALL)
def test_token_ids_are_refused(name: str) -> None:
    with raises_code("protocol-unsupported", "--prompt-form ids", "openai-completions"):
        ENDPOINTS[name].body_pieces("m", Workload(prompt_form="ids"))


@pytest.mark.parametrize(("alias", "name"), [("responses", RESPONSES), ("messages", MESSAGES), ("anthropic", MESSAGES)])
def test_aliases(alias: str, name: str) -> None:
    assert resolve_endpoint(alias).name == name


@pytest.mark.parametrize(("name", "path"), [(RESPONSES, "/v1/responses"), (MESSAGES, "/v1/messages")])
def test_paths(name: str, path: str) -> None:
    endpoint = ENDPOINTS[name]
    assert [endpoint.path(base) for base in ("", "/v1", path, "/x/v1")] == [path, path, path, "/x" + path]
    assert endpoint.models_path("") == endpoint.models_path(path) == "/v1/models"


def test_a_data_sets_messages_become_items(tmp_path: Path) -> None:
    plan = planned(tmp_path, RESPONSES, [{"messages": TALK}])
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
    assert json.loads(plan.body(0))["input"] == [
        TALK[0],
        {"role": "user", "content": [
            {"type": "input_text", "text": "Look"},
            {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"}]},
        {"role": "assistant", "content": "So"}, call,
        {"type": "function_call_output", "call_id": "c1", "output": "42"}, call,
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "43"}]},
        TALK[-1],
    ]  # fmt: skip


def test_a_data_sets_messages_become_blocks(tmp_path: Path) -> None:
    plan = planned(tmp_path, MESSAGES, [{"messages": TALK}])
    found = json.loads(plan.body(0))
    use = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    text = {"type": "text", "text": "43"}
    assert found["system"] == "Be brief." and found["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image", "source": source}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So"}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [text]}]},
        TALK[-1],
    ]


def test_answers_of_several_tools_are_one_message(tmp_path: Path) -> None:
    several = [{"role": "tool", "tool_call_id": ident, "content": ident} for ident in "ab"]
    calls = [{**CALL, "id": ident} for ident in "ab"]
    prompts = [
        {"role": "developer", "content": "one"},
        {"role": "system", "content": [{"type": "text", "text": "two"}]},
    ]
    talk = [*prompts, TALK[-1], {"role": "assistant", "tool_calls": calls}, *several]
    found = json.loads(planned(tmp_path, MESSAGES, [{"messages": talk}]).body(0))
    assert [block["tool_use_id"] for block in found["messages"][-1]["content"]] == ["a", "b"]
    assert [block["text"] for block in found["system"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"messages": [TALK[-1], TALK[0]]}, ("protocol-unsupported", "role system", "front")),
        ({"messages": TALK[:1] + TALK[-1:], "body": {"system": "x"}}, ("extra-body-reserved", "'system'")),
        ({"messages": [{"role": "critic", "content": "x"}]}, ("protocol-unsupported", "'critic'")),
        ({"messages": [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "[]"}}]}]},
         ("protocol-unsupported", "'f'", "JSON object")),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:,x"}]}]},
         ("protocol-unsupported", "base64")),
    ],
)  # fmt: skip
def test_what_messages_cannot_carry_is_refused_with_its_line(
    tmp_path: Path, line: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError, match="requests.jsonl line 2: ") as caught:
        planned(tmp_path, MESSAGES, [{"prompt": "hi"}, line])
    assert says(str(caught.value), *words)


def test_a_system_prompt_is_kept_by_later_turns(tmp_path: Path) -> None:
    """It is in the first turn's body in front of the messages; a later turn cannot bring another."""
    turns = [
        {"session": "s", "messages": [TALK[0], TALK[-1]], "reply": "So"},
        {"session": "s", "prompt": "Why?", "reply": "x"},
    ]
    plan = planned(tmp_path, MESSAGES, turns, workload__turns="all", workload__history="planned")
    for number in range(2):
        assert json.loads(plan.body(number))["system"] == "Be brief."
    assert [one["role"] for one in json.loads(plan.body(1))["messages"]] == ["user", "assistant", "user"]
    (tmp_path / "b").mkdir()
    turns[1] = {"session": "s", "messages": [TALK[0], TALK[-1]]}
    with raises_code("dataset-field-invalid", "line 2", "role system", "first turn"):
        planned(tmp_path / "b", MESSAGES, turns, workload__turns="all")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, ("input_audio", "cannot carry")),
        ({"role": "user", "content": "hi", "name": "Ann"}, ("role user", "'name'")),
        ({"role": "assistant", "content": "hi", "reasoning_content": "hm"}, ("'reasoning_content'",)),
        ({"role": "tool", "content": "hi"}, ("no tool_call_id",)),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, ("tool_calls", "arguments")),
        ({"role": "assistant", "tool_calls": 5}, ("tool_calls", "arguments")),
        ({"role": "user", "content": [{"type": "image_url"}]}, ("no URL",)),
        ({"role": "function", "name": "f", "content": "hi"}, ("function",)),
    ],
)
def test_a_message_that_cannot_be_carried_is_refused_with_its_line(
    tmp_path: Path, name: str, message: dict[str, Any], words: tuple[str, ...]
) -> None:
    lines = [{"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}, message]}]
    with raises_code("protocol-unsupported", "requests.jsonl line 2: ", *words):
        planned(tmp_path, name, lines)


@pytest.mark.parametrize("name", ALL)
def test_a_written_sequence_gives_the_same_bodies(tmp_path: Path, name: str) -> None:
    """In the protocol's own form, which is read as it is: messages, calls, synthetic images."""
    content = [{"type": "text", "text": "hi"}, {**IMAGE, "image_url": {"url": "synthetic:8x8"}}]
    lines = [{"messages": TALK}, {"messages": [{"role": "user", "content": content}]}, {"prompt": "hi"}]
    first = planned(tmp_path, name, lines)
    assert b"synthetic" not in first.bodies.tobytes() and first.bodies.tobytes().count(b"base64") == 2
    write_sequence(first, {name: ENDPOINTS[name]}, tmp_path / "sequence.jsonl")
    again = [json.loads(line) for line in (tmp_path / "sequence.jsonl").read_text().splitlines()]
    (tmp_path / "again").mkdir()
    again = [{key: value for key, value in line.items() if key != "timestamp"} for line in again]
    second = planned(tmp_path / "again", name, again)
    assert [json.loads(second.body(n)) for n in range(3)] == [json.loads(first.body(n)) for n in range(3)]


@pytest.mark.parametrize("name", ["openai-chat", *ALL])
def test_a_written_conversation_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    """Users' turns and tool turns, with the place of each reply."""
    drawn = {"workload__turns": "4", "workload__tool_turns": 0.6, "workload__isl": "9"}
    settings = asked(load__duration=None, load__num_requests=6, target__endpoint_type=name, **drawn)
    (tmp_path / "first").mkdir()
    plan = build_plan(settings, phase="measure", endpoint=ENDPOINTS[name], model="m", out_dir=tmp_path / "first")
    write_sequence(plan, {name: ENDPOINTS[name]}, tmp_path / "s.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    again = planned(tmp_path, name, lines, workload__turns="all", conversations=6)
    assert again.bodies.tobytes() == plan.bodies.tobytes()
    assert again.turns[["reply_at", "flags"]].tolist() == plan.turns[["reply_at", "flags"]].tolist()


@pytest.mark.parametrize("name", ALL)
def test_drawn_images_are_parts_of_a_message(tmp_path: Path, name: str) -> None:
    settings = asked(
        load__duration=None,
        load__num_requests=2,
        target__endpoint_type=name,
        workload__image="8x8:2",
        workload__isl="9",
    )
    plan = build_plan(settings, phase="measure", endpoint=ENDPOINTS[name], model="m", out_dir=tmp_path)
    content = json.loads(plan.body(1))[ENDPOINTS[name].prompt_fields[0]][0]["content"]
    assert [part["type"] for part in content] == {
        RESPONSES: ["input_text", "input_image", "input_image"],
        MESSAGES: ["text", "image", "image"],
    }[name]
