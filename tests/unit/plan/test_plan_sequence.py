"""A plan's sequence: read by other tools, and replayed to the same bodies."""

from __future__ import annotations

import hashlib
import json

import pytest
from refusals import raises_code

from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_table
from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.build import build_plan
from fastllmload.plan.classes import build_classes
from fastllmload.plan.sequence import write_sequence
from fastllmload.redact import Redactor
from fastllmload.settings import Client, Load, RunSettings, Target, Workload

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
        ("openai-chat", {"image": "8x8:2"}),
        ("openai-chat", {"temperature": 0.5, "ignore_eos": False}),
        ("openai-chat", {"temperature": None, "extra_body": '{"top_p": 0.9, "min_tokens": null, "seed": 2}'}),
        ("openai-chat", {"extra_body": '{"max_completion_tokens": "{output_tokens}"}'}),
        ("openai-completions", {}),
        ("openai-completions", {"prompt_form": "ids"}),
        ("openai-completions", {"name": "code-completion"}),
    ],
)
def test_a_sequence_is_replayed_to_the_byte(tmp_path, endpoint, workload):
    """Through `--workload custom`, with default options: the same bodies and the same lengths."""
    plan = planned(tmp_path / "a", endpoint=endpoint, **workload)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", endpoint=endpoint, name="custom", dataset_path=str(tmp_path / "s.jsonl"))
    assert bodies(again) == bodies(plan)
    assert again.output_tokens.tolist() == plan.output_tokens.tolist()
    assert again.input_tokens.tolist() == plan.input_tokens.tolist()


def test_a_data_sets_own_fields_come_back(tmp_path):
    """Classes, stop, tools, formats, image URLs and lengths of a data set survive being written and read again."""
    file = tmp_path / "set.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in MIXED))
    plan = planned(tmp_path / "a", 6, name="custom", dataset_path=str(file))
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", 6, name="custom", dataset_path=str(tmp_path / "s.jsonl"))
    assert bodies(again) == bodies(plan)
    assert again.request_class.tolist() == plan.request_class.tolist() == [0, 1, 0] * 2
    sent = json.loads(plan.body(1))
    assert sent["max_completion_tokens"] == 5 and "max_tokens" not in sent and "min_tokens" not in sent
    assert json.loads(plan.body(2))["response_format"] == {"type": "json_object"}


def test_fields_of_a_line(tmp_path):
    """Instant, prompt, lengths; no body where a default run sends the same; the hash is the file's."""
    plan = planned(tmp_path / "a", 5)
    sha256 = write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    assert sha256 == hashlib.sha256((tmp_path / "s.jsonl").read_bytes()).hexdigest()
    found = entries(tmp_path / "s.jsonl")
    assert [list(one) for one in found] == [["timestamp", "prompt", "input_tokens", "output_tokens"]] * 5
    assert [one["timestamp"] for one in found] == [t / 1e9 for t in plan.t_sched.tolist()]
    assert [one["output_tokens"] for one in found] == plan.output_tokens.tolist()


def test_a_closed_loop_has_no_instants(tmp_path):
    plan = planned(tmp_path / "a", load=Load(concurrency=2, num_requests=3))
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    assert all("timestamp" not in one for one in entries(tmp_path / "s.jsonl"))


def test_without_a_tokenizer_lengths_are_the_files(tmp_path):
    """Without a tokenizer the prompt lengths of the file are used."""
    plan = planned(tmp_path / "a", 3)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    again = planned(tmp_path / "b", 3, name="custom", dataset_path=str(tmp_path / "s.jsonl"), tokenizer="none")
    assert again.input_tokens.tolist() == plan.input_tokens.tolist()


def test_a_full_disk(tmp_path):
    from pathlib import Path

    with raises_code("output-not-writable", "/dev", "No space left"):
        write_sequence(planned(tmp_path / "a", 5), ENDPOINTS, Path("/dev/full"))


# -- classes with protocols, models and URLs of their own ------------------------------------------------------------

APART = [
    {"name": "chat", "rate": 20, "isl": 12, "osl": 4},
    {"name": "text", "rate": 20, "turns": 2, "isl": 10, "osl": 3, "endpoint-type": "completions", "model": "base",
     "url": ["http://b/v2", "http://c"]},
    {"name": "more", "rate": 10, "isl": 9, "osl": 5, "endpoint-type": "ollama-chat"},
]  # fmt: skip


def plan_of(directory, classes, **options):
    given = {"class": classes, "seed": 5, "model": "m", "url": "http://a", **options}
    settings, _ = read_settings(from_table(given, "", ""), {}, Redactor([]))
    return build_classes(settings, phase="measure", model="m", out_dir=directory)


def test_a_sequence_has_the_targets_of_classes(tmp_path):
    """Protocol, path, model and URL of each line; a class's URLs in turn, and both turns of a conversation at one URL."""
    plan = plan_of(tmp_path / "a", APART, num_requests=40)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl", {"text": ("http://b/v2", "http://c")})
    found = entries(tmp_path / "s.jsonl")
    of = {name: [one["target"] for one in found if one["class"] == name] for name in ("chat", "text", "more")}
    assert all(
        one == {"endpoint_type": "openai-chat", "path": "/v1/chat/completions", "model": "m"} for one in of["chat"]
    )
    assert all(one == {"endpoint_type": "ollama-chat", "path": "/api/chat", "model": "m"} for one in of["more"])
    both = [{"endpoint_type": "openai-completions", "path": path, "model": "base", "url": url}
            for url, path in (("http://b/v2", "/v2/completions"), ("http://c", "/v1/completions"))]  # fmt: skip
    assert of["text"][:6] == [both[0]] * 2 + [both[1]] * 2 + [both[0]] * 2
    assert [one["model"] for one in (json.loads(plan.body(number)) for number in range(plan.requests))] == [
        one["target"]["model"] for one in found
    ]


def test_classes_with_the_same_target_have_none_in_the_sequence(tmp_path):
    plan = plan_of(
        tmp_path / "a", [{"name": "a", "rate": 5, "isl": 9}, {"name": "b", "rate": 5, "isl": 9}], num_requests=9
    )
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    assert all("target" not in one for one in entries(tmp_path / "s.jsonl"))


def test_a_sequence_of_several_protocols_is_replayed_class_by_class(tmp_path):
    """Each class reads its own lines with `dataset-class`: the same bodies at the same instants."""
    plan = plan_of(tmp_path / "a", APART, num_requests=40)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    own = {"workload": "custom", "dataset-path": str(tmp_path / "s.jsonl"), "turns": "all"}
    kept = ("name", "rate", "endpoint-type", "model", "url")
    again = [{key: one[key] for key in kept if key in one} | own | {"dataset-class": one["name"]} for one in APART]
    replayed = plan_of(tmp_path / "b", again, num_requests=40)
    assert bodies(replayed) == bodies(plan)
    assert replayed.t_sched.tolist() == plan.t_sched.tolist()
    assert replayed.request_class.tolist() == plan.request_class.tolist()


def test_a_line_of_another_protocol_is_refused(tmp_path):
    plan = plan_of(tmp_path / "a", [{"name": "a", "rate": 5, "isl": 9}, APART[2]], num_requests=12)
    write_sequence(plan, ENDPOINTS, tmp_path / "s.jsonl")
    with raises_code("protocol-unsupported", "line ", "request of ollama-chat", "uses openai-chat"):
        planned(tmp_path / "b", name="custom", dataset_path=str(tmp_path / "s.jsonl"))
    mine = planned(tmp_path / "c", 5, name="custom", dataset_path=str(tmp_path / "s.jsonl"), dataset_class="a")
    facts = mine.description.workload.dataset
    assert facts.subset == "entries of class a" and facts.requests + facts.left_out == 12
    with raises_code("class-unknown", "--dataset-class 'x'", "classes are a"):
        planned(tmp_path / "d", 5, name="custom", dataset_path=str(tmp_path / "s.jsonl"), dataset_class="x")


@pytest.mark.parametrize(
    ("target", "said"),
    [("http://a", "target is 'http://a', not a JSON object"), ({"endpoint_type": 5}, "endpoint_type of target is 5")],
)
def test_invalid_targets_are_refused(tmp_path, target, said):
    file = tmp_path / "s.jsonl"
    file.write_text(json.dumps({"prompt": "a", "output_tokens": 3, "target": target}))
    with raises_code("dataset-field-invalid", "line 1", said):
        planned(tmp_path / "b", name="custom", dataset_path=str(file))
