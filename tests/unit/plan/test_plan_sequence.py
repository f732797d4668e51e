"""A plan's sequence: what other tools read, and what our own run makes the same bodies of."""

from __future__ import annotations

import hashlib
import json

import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import HostLimitError
from fastllmload.plan.build import build_plan
from fastllmload.plan.sequence import write_sequence
from fastllmload.plan.settings import Client, Load, RunSettings, Target, Workload

MIXED = [
    {"prompt": "why", "output_tokens": 3, "class": "a", "body": {"stop": ["x"], "temperature": 0.7}},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "output_tokens": 5,
     "class": "b", "body": {"min_tokens": None, "max_completion_tokens": "{output_tokens}", "logprobs": True}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "t"},
     {"type": "image_url", "image_url": {"url": "https://h/x.png"}}]}], "output_tokens": 2, "class": "a",
     "body": {"tools": [{"type": "function", "function": {"name": "f"}}], "response_format": {"type": "json_object"}}},
]  # fmt: skip


def planned(directory, count=40, endpoint="openai-chat", load=None, **workload):
    settings = RunSettings(
        target=Target(endpoint_type=endpoint),
        load=load or Load(rate=10.0, num_requests=count),
        workload=Workload(**workload),
        client=Client(seed=7),
    )
    return build_plan(settings, phase="measure", endpoint=ENDPOINTS[endpoint], model="m", out_dir=directory)


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def bodies(plan):
    return [plan.body(number) for number in range(plan.requests)]


@pytest.mark.parametrize(
    ("endpoint", "workload"),
    [
        ("openai-chat", {}),
        ("openai-chat", {"prompt_form": "text"}),
        ("openai-chat", {"name": "conversation"}),
        ("openai-chat", {"name": "fairness"}),
        ("openai-chat", {"image": (8, 8, 2)}),
        ("openai-chat", {"temperature": 0.5, "ignore_eos": False}),
        ("openai-chat", {"temperature": None, "extra_body": '{"top_p": 0.9, "min_tokens": null, "n": 2}'}),
        ("openai-chat", {"extra_body": '{"max_completion_tokens": "{output_tokens}"}'}),
        ("openai-completions", {}),
        ("openai-completions", {"prompt_form": "ids"}),
        ("openai-completions", {"name": "code-completion"}),
    ],
)
def test_a_sequence_is_replayed_to_the_byte(tmp_path, endpoint, workload):
    """Through `--workload custom`, with default options: the same bodies and the same lengths."""
    plan = planned(tmp_path / "a", endpoint=endpoint, **workload)
    write_sequence(plan, ENDPOINTS[endpoint], tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", endpoint=endpoint, name="custom", dataset_path=str(tmp_path / "s.jsonl"))
    assert bodies(again) == bodies(plan)
    assert again.output_tokens.tolist() == plan.output_tokens.tolist()
    assert again.input_tokens.tolist() == plan.input_tokens.tolist()


def test_a_data_sets_own_fields_come_back(tmp_path):
    """Classes, stop, tools, formats, image URLs and lengths of a data set survive being written and read again."""
    file = tmp_path / "set.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in MIXED))
    plan = planned(tmp_path / "a", 6, name="custom", dataset_path=str(file))
    write_sequence(plan, ENDPOINTS["openai-chat"], tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", 6, name="custom", dataset_path=str(tmp_path / "s.jsonl"))
    assert bodies(again) == bodies(plan)
    assert again.request_class.tolist() == plan.request_class.tolist() == [0, 1, 0] * 2
    sent = json.loads(plan.body(1))
    assert sent["max_completion_tokens"] == 5 and "max_tokens" not in sent and "min_tokens" not in sent
    assert json.loads(plan.body(2))["response_format"] == {"type": "json_object"}


def test_what_a_line_holds(tmp_path):
    """Instant, prompt, lengths; no body where a default run sends the same; the hash is the file's."""
    plan = planned(tmp_path / "a", 5)
    sha256 = write_sequence(plan, ENDPOINTS["openai-chat"], tmp_path / "s.jsonl")
    assert sha256 == hashlib.sha256((tmp_path / "s.jsonl").read_bytes()).hexdigest()
    found = entries(tmp_path / "s.jsonl")
    assert [list(one) for one in found] == [["timestamp", "prompt", "input_tokens", "output_tokens"]] * 5
    assert [one["timestamp"] for one in found] == [t / 1e9 for t in plan.t_sched.tolist()]
    assert [one["output_tokens"] for one in found] == plan.output_tokens.tolist()


def test_a_closed_loop_has_no_instants(tmp_path):
    plan = planned(tmp_path / "a", load=Load(concurrency=2, num_requests=3))
    write_sequence(plan, ENDPOINTS["openai-chat"], tmp_path / "s.jsonl")
    assert all("timestamp" not in one for one in entries(tmp_path / "s.jsonl"))


def test_without_a_tokenizer_lengths_are_the_files(tmp_path):
    """Nothing counts, so what the file says of its prompts is taken."""
    plan = planned(tmp_path / "a", 3)
    write_sequence(plan, ENDPOINTS["openai-chat"], tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", 3, name="custom", dataset_path=str(tmp_path / "s.jsonl"), tokenizer="none")
    assert again.input_tokens.tolist() == plan.input_tokens.tolist()


def test_a_full_disk(tmp_path):
    from pathlib import Path

    with pytest.raises(HostLimitError, match="No space left"):
        write_sequence(planned(tmp_path / "a", 5), ENDPOINTS["openai-chat"], Path("/dev/full"))
