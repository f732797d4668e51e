"""Data sets: their fields reach the requests, and each error is one sentence."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code, says

from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError
from fastllmload.plan.build import build_plan
from fastllmload.settings import Client, Load, RunSettings, Target, Workload
from fastllmload.workload.dataset import of_one_prompt, read_dataset
from fastllmload.workload.dialogues import read_dialogues
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "one two three"}, {"from": "gpt", "value": "four five"}]},
    {"id": "b", "conversations": [{"from": "gpt", "value": "hello"}]},
    {
        "id": "c",
        "conversations": [
            {"from": "system", "value": "s"},
            {"from": "human", "value": "six"},
            {"from": "gpt", "value": "seven"},
        ],
    },
    {"id": "d", "conversations": []},
]
CUSTOM = [
    {"prompt": "one two", "output_tokens": 7, "class": "short"},
    {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "why"}]}],
     "output_tokens": 9, "class": "long", "body": {"stop": ["x"], "temperature": 0.5}},
]  # fmt: skip


def lines(tmp_path: Path, entries: list[Any], name: str = "set.jsonl") -> Path:
    file = tmp_path / name
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in entries))
    return file


def planned(tmp_path: Path, name: str, file: Path, count: int, endpoint: str = "openai-chat", **workload: Any) -> Any:
    settings = RunSettings(
        target=Target(endpoint_type=endpoint),
        load=Load(rate=10.0, num_requests=count),
        workload=Workload(name=name, dataset_path=str(file), **workload),
        client=Client(seed=42),
    )
    return build_plan(settings, phase="measure", endpoint=ENDPOINTS[endpoint], model="m", out_dir=tmp_path / "plan")


def test_sharegpt_first_turn_and_first_answer(tmp_path: Path) -> None:
    """Lengths are the tokenizer's; conversations without an answered human turn are left out and counted."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(SHAREGPT))
    found = read_dataset("sharegpt", file, load_tokenizer("cl100k_base"))
    assert [(one.content, one.output_tokens) for one in found.requests] == [("one two three", 2), ("six", 1)]
    assert found.left_out == 2


def test_sampling_is_seeded_and_without_replacement(tmp_path: Path) -> None:
    entries = [
        {"conversations": [{"from": "human", "value": f"p{n}"}, {"from": "gpt", "value": "a"}]} for n in range(20)
    ]
    file = tmp_path / "s.json"
    file.write_text(json.dumps(entries))
    found = read_dataset("sharegpt", file, load_tokenizer("cl100k_base"))
    first = [one.content for one in islice(found.ordered(1), 40)]
    assert sorted(first[:20]) == sorted(first[20:]) == sorted(f"p{n}" for n in range(20))
    assert first == [one.content for one in islice(found.ordered(1), 40)]
    assert first != [one.content for one in islice(found.ordered(2), 40)]


def test_custom_bodies(tmp_path: Path) -> None:
    """Messages are sent unchanged; a request's own fields override those of --extra-body; classes are
    numbered.
    """
    plan = planned(tmp_path, "custom", lines(tmp_path, CUSTOM), 3, extra_body='{"stop": ["y"], "seed": 5}')
    bodies = [json.loads(plan.body(n)) for n in range(3)]
    assert bodies[0]["messages"] == [{"role": "user", "content": "one two"}] and bodies[0]["stop"] == ["y"]
    assert bodies[1]["messages"] == CUSTOM[1]["messages"] and bodies[1]["stop"] == ["x"] and bodies[1]["seed"] == 5
    assert bodies[1]["temperature"] == 0.5 and bodies[1]["max_tokens"] == 9
    assert bodies[2] == bodies[0]
    assert plan.request_class.tolist() == [0, 1, 0] and plan.output_tokens.tolist() == [7, 9, 7]
    assert plan.input_tokens.tolist() == [2, 3, 2]
    facts = plan.description.workload.dataset
    assert facts.classes == ("short", "long") and facts.rounds == 1.5 and len(facts.sha256) == 64


def test_token_ids_need_completions(tmp_path: Path) -> None:
    file = lines(tmp_path, [{"prompt": [5, 6, 7], "output_tokens": 1}])
    plan = planned(tmp_path, "custom", file, 1, endpoint="openai-completions")
    assert json.loads(plan.body(0))["prompt"] == [5, 6, 7] and plan.input_tokens.tolist() == [3]
    with raises_code("protocol-unsupported", "line 1", "--prompt-form ids", "openai-chat"):
        planned(tmp_path, "custom", file, 1)


def test_batch(tmp_path: Path) -> None:
    """The run's model, stream and length fields replace the body's; the length is kept as the request's."""
    body = {
        "model": "x",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4,
        "tools": [{"type": "function"}],
    }
    entry = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    plan = planned(tmp_path, "batch", lines(tmp_path, [entry]), 1)
    sent = json.loads(plan.body(0))
    assert (
        sent["model"] == "m" and sent["max_tokens"] == 4 and sent["stream"] is True and sent["tools"] == body["tools"]
    )


def test_csv_and_osl(tmp_path: Path) -> None:
    """--osl supplies or replaces lengths."""
    file = tmp_path / "p.csv"
    file.write_text('prompt,output_tokens,class\n"a, ""b""\nc",5,x\nd,,y\n')
    plan = planned(tmp_path, "csv", file, 2, osl="3")
    assert plan.output_tokens.tolist() == [3, 3]
    assert json.loads(plan.body(0))["messages"][0]["content"] == 'a, "b"\nc'
    with raises_code("output-length-missing", "line 4", "--osl"):
        planned(tmp_path, "csv", file, 2)


def test_lines_of_text_and_one_prompt(tmp_path: Path) -> None:
    found = read_dataset("text", lines(tmp_path, ["\ufeffFirst?\r", "", "  Second "], "prompts.txt"), None)
    assert [one.content for one in found.requests] == ["First?", "Second"] and not found.shuffled
    assert [one.where.rpartition(" ")[2] for one in found.requests] == ["1", "3"]
    assert [one.content for one in islice(of_one_prompt("a\n").ordered(1), 3)] == ["a\n"] * 3


AIPERF: list[Any] = [
    {"text": "one", "output_length": 5, "extra": {"top_p": 0.5}},
    {"texts": [{"name": "t", "contents": ["two"]}], "type": "random_pool"},
    {"text_input": "three", "output_length": 7, "role": "user"},
]
CHATS: list[Any] = [
    {"session_id": "s", "turns": [{"role": "system", "text": "terse"}, {"text": "a", "output_length": 3},
                                  {"text": "b", "delay": 250}]},
    {"turns": [{"text": "c"}]},
    {"session_id": "s", "turns": [{"text": "d"}]},
]  # fmt: skip


def test_prompts_of_aiperf(tmp_path: Path) -> None:
    """Their own lengths go before those of --osl."""
    file = lines(tmp_path, AIPERF)
    found = read_dataset("aiperf", file, None)
    assert [(one.content, one.output_tokens) for one in found.requests] == [("one", 5), ("two", None), ("three", 7)]
    assert found.requests[0].extra == {"top_p": 0.5}
    plan = planned(tmp_path, "aiperf", file, 4, osl="9")
    assert plan.output_tokens.tolist() == [5, 9, 7, 5]


def test_conversations_of_aiperf(tmp_path: Path) -> None:
    """A system turn is in front of the first; delays are in milliseconds."""
    first, second = read_dialogues("aiperf", lines(tmp_path, CHATS)).entries
    messages = [{"role": "system", "content": "terse"}, {"role": "user", "content": "a"}]
    assert [turn.request.content for turn in first] == [messages, "b", "d"]
    assert [(turn.delay_s, turn.request.output_tokens) for turn in first] == [(None, 3), (0.25, None), (None, None)]
    assert [turn.request.content for turn in second] == ["c"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a", "image": "x.png"}', "'image'"),
        ('{"texts": ["a", "b"]}', "one text"),
        ('{"text": "a", "delay": 5}', "delay"),
        ('{"text": "a", "session_id": "s"}', "'session_id'"),
        ('{"turns": []}', "turns"),
        ('{"turns": [{"role": "assistant", "text": "a"}]}', "'assistant'"),
        ('{"type": "raw_payload", "text": "a"}', "'raw_payload'"),
        ('{"turns": [{"text": "a"}]}', "--turns all"),
    ],
)
def test_what_is_not_sent_of_aiperfs_files_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_dataset("aiperf", lines(tmp_path, ['{"text": "fine"}', line]), None)
    assert "line 2" in refused.value.message and said in refused.value.message


def test_the_same_set_gives_the_same_digest(tmp_path: Path) -> None:
    file = lines(tmp_path, CUSTOM)
    first = planned(tmp_path, "custom", file, 5).digest
    assert planned(tmp_path, "custom", file, 5).digest == first
    assert planned(tmp_path, "custom", file, 6).digest != first


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("custom", "", ("dataset-empty",)),
        ("custom", '{"prompt": "a"}\n{"prompt": }\n', ("dataset-invalid", "line 2 column 12", "invalid character")),
        ("custom", "[1]\n", ("dataset-field-invalid", "line 1", "JSON object")),
        ("custom", '{"prompt": "a", "lenght": 5}\n', ("dataset-field-invalid", "line 1", "'lenght'")),
        ("custom", '{"prompt": "a", "messages": []}\n', ("dataset-field-invalid", "prompt or messages")),
        ("custom", '{"prompt": ""}\n', ("dataset-field-invalid", "prompt is ''")),
        ("custom", '{"prompt": [1, -2]}\n', ("dataset-field-invalid", "prompt is ", "token ids")),
        (
            "custom",
            '{"messages": [{"role": "user"}]}\n',
            ("dataset-field-invalid", "messages must be", "role and content"),
        ),
        ("custom", '{"prompt": "a", "output_tokens": 0}\n', ("dataset-field-invalid", "output length 0")),
        ("custom", '{"prompt": "a", "body": {"model": "x"}}\n', ("extra-body-reserved", "'model'")),
        ("custom", '{"prompt": "a", "class": 5}\n', ("dataset-field-invalid", "class is 5")),
        ("custom", '{"prompt": "a", "body": {"n": 2}}\n', ("extra-body-reserved", "line 1: n is 2")),
        ("batch", '{"prompt": "a"}\n', ("dataset-field-invalid", "line 1: body")),
        ("batch", '{"body": {"prompt": "a", "n": "2"}}\n', ("extra-body-reserved", "line 1: n is '2'")),
        ("sharegpt", "{}", ("dataset-invalid", "ShareGPT")),
        ("sharegpt", "[]", ("dataset-empty",)),
        ("csv", "text\na\n", ("dataset-invalid", "line 1", "'prompt'", "has text")),
        ("csv", "prompt,output_tokens\na,many\n", ("dataset-field-invalid", "line 2", "output_tokens 'many'")),
    ],
)
def test_one_sentence(tmp_path: Path, name: str, text: str, sentence: tuple[str, ...]) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_dataset(name, file, None)
    assert says(str(caught.value), *sentence) and "\n" not in str(caught.value)


def test_invalid_utf8_is_reported_by_line_and_column(tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_bytes('{"prompt": "é"}\n{"prompt": "é'.encode() + b'\xff"}\n')
    with raises_code("dataset-invalid", "data.jsonl line 2 column 14", "not UTF-8"):
        read_dataset("custom", file, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt\nHello, world\n", ("dataset-field-invalid", "line 2: 2 values", "has 1", "a comma")),
        ("prompt,output_tokens\na,\u00b2\n", ("dataset-field-invalid", "line 2", "output_tokens '²'")),
        ('prompt,output_tokens\n"abc,5\nd,6\n', ("dataset-invalid", "not CSV")),
        ("prompt,output_tokens,Output_Tokens\na,5,6\n", ("option-repeated", "'output_tokens'")),
        ('prompt,output_tokens\n"a\nb",5\nc,x\n', ("dataset-field-invalid", "line 4", "output_tokens 'x'")),
        (b"\x1f\x8b\x08\x00", ("dataset-invalid", "gzip file")),
        ("prompt\n".encode("utf-16"), ("dataset-invalid", "UTF-16")),
    ],
)
def test_a_table_that_would_be_misread_is_refused(tmp_path, text, said):
    """Neither cut at a comma nor swallowed by an unterminated quote."""
    (tmp_path / "f").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        read_dataset("csv", tmp_path / "f", None)
    assert says(str(error.value), *said)


def test_cells_of_a_table_are_kept_unchanged(tmp_path):
    """Other line separators within a cell, cells beyond the csv module's default limit, headers of any case."""
    long = "x " * 100_000
    text = f'Prompt, Output_Tokens,class\r\na\u2028b\x0cc,5,k\r\n\r\n"{long}", 6,\r\n"d\r\ne",7\r\n'
    (tmp_path / "f").write_bytes(text.encode())
    found = read_dataset("csv", tmp_path / "f", None).requests
    assert [one.content for one in found] == ["a\u2028b\x0cc", long, "d\r\ne"]
    assert [(one.output_tokens, one.name) for one in found] == [(5, "k"), (6, None), (7, None)]


def test_an_entry_with_an_empty_answer_is_left_out(tmp_path):
    """The entry is left out and counted. A byte order mark is ignored."""
    said = [("q", "a b"), ("q", " "), ("q", "")]
    entries = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a in said]
    (tmp_path / "f").write_text(json.dumps(entries), encoding="utf-8-sig")
    found = read_dataset("sharegpt", tmp_path / "f", load_tokenizer("cl100k_base"))
    assert [one.output_tokens for one in found.requests] == [2] and found.left_out == 2


def test_a_batch_line_of_completions_is_not_sent_as_chat(tmp_path):
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 5}}
    (tmp_path / "f").write_text(json.dumps(line))
    (found,) = read_dataset("batch", tmp_path / "f", None).requests
    assert found.protocol == "openai-completions"


COLUMNS = (("prompt", "question"), ("output_tokens", "length"), ("class", "topic"))
TABLE = "id,Question,length,topic\n1,Why?,5,a\n2,How?,,b\n"
ROWS = '{"id": 1, "question": "Why?", "length": 5, "topic": "a"}', '{"question": "How?", "length": null, "topic": "b"}'


@pytest.mark.parametrize(
    ("name", "text"),
    [("csv", TABLE), ("custom", "\n".join(ROWS)), ("custom", f"[{', '.join(ROWS)}]")],
)
def test_columns_of_any_name_are_read(name: str, text: str, tmp_path: Path) -> None:
    """Others are not; without their names, the usual ones are."""
    (tmp_path / "f").write_text(text)
    found = read_dataset(name, tmp_path / "f", None, COLUMNS).requests
    assert [(one.content, one.output_tokens, one.name) for one in found] == [("Why?", 5, "a"), ("How?", None, "b")]
    with raises_code("dataset-invalid" if name == "csv" else "dataset-field-invalid"):
        read_dataset(name, tmp_path / "f", None)
    with raises_code("dataset-column-unknown", "'answer'", "topic"):
        read_dataset(name, tmp_path / "f", None, (("prompt", "answer"),))


SIZES = [("a", "b"), ("a " * 4, "b " * 4), ("a " * 40, "b " * 3), ("a " * 41, "b " * 9), ("a " * 5, "b " * 95)]


def sized(tmp_path: Path) -> Path:
    """A ShareGPT file whose entries have the tokens of SIZES."""
    file = tmp_path / "sizes.json"
    turns = [
        [{"from": "human", "value": one.strip()}, {"from": "gpt", "value": two.strip()}]
        for one, two in (*SIZES, ("", "b"))
    ]
    file.write_text(json.dumps([{"conversations": each} for each in turns]))
    return file


@pytest.mark.parametrize(
    ("bounds", "osl", "kept"),
    [
        ((("min-input", 4),), None, [(4, 4), (40, 3), (41, 9), (5, 95)]),
        ((("min-input", 4), ("max-input", 40), ("min-output", 4)), None, [(4, 4), (5, 95)]),
        ((("max-total", 50),), None, [(1, 1), (4, 4), (40, 3), (41, 9)]),
        ((("min-total", 50), ("max-output", 94)), None, [(41, 9)]),
        ((("max-total", 50),), "10", [(1, 10), (4, 10), (40, 10), (5, 10)]),
        ((("max-input", 4),), "uniform:7,7", [(1, 7), (4, 7)]),
    ],
)
def test_entries_of_other_lengths_are_left_out(
    tmp_path: Path, bounds: tuple[tuple[str, int], ...], osl: str | None, kept: list[tuple[int, int]]
) -> None:
    """Bounds are inclusive, of the tokens that are sent; the plan says which and how many."""
    plan = planned(tmp_path, "sharegpt", sized(tmp_path), 5 * len(kept), dataset_lengths=bounds, osl=osl)
    bodies = [json.loads(plan.body(number)) for number in range(plan.requests)]
    words = [len(body["messages"][-1]["content"].split()) for body in bodies]
    found = zip(words, (body["max_tokens"] for body in bodies), strict=True)
    assert sorted(found) == sorted(kept * 5)
    facts = plan.description.workload.dataset
    assert (facts.requests, facts.left_out) == (len(kept), 6 - len(kept))
    assert facts.subset.endswith(f"within {','.join(f'{name}={limit}' for name, limit in bounds)} tokens")


@pytest.mark.parametrize(
    ("entry", "bounds", "osl", "refusal"),
    [
        ({"prompt": "a b"}, (("min-input", 3),), "5", ("dataset-empty", "min-input=3", "all 1 entries", "widen")),
        ({"prompt": "a b"}, (("max-total", 9),), None, ("output-length-missing", "line 1", "max-total")),
        ({"prompt": "a b"}, (("max-total", 9),), "uniform:1,9", ("option-not-applicable", "--osl uniform:1,9")),
    ],
)
def test_bounds_that_leave_nothing_or_bound_what_is_not_known(
    tmp_path: Path,
    entry: dict[str, Any],
    bounds: tuple[tuple[str, int], ...],
    osl: str | None,
    refusal: tuple[str, ...],
) -> None:
    with raises_code(refusal[0]) as error:
        planned(tmp_path, "custom", lines(tmp_path, [entry]), 1, dataset_lengths=bounds, osl=osl)
    assert all(text in str(error.value) for text in refusal[1:])
