"""What a user gives a run to send: examples of the documentation, one plan for two systems, files that are wrong."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from integration.bad_days import COMMAND, run
from support.canned_server import canned

import fastllmload
from fastllmload.metrics.tokens.counts import SOURCES, TOKENIZER, count_tokens
from fastllmload.plan.archive import load_plan
from fastllmload.records.layout import MEASURE, OK

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "workloads.md"
EXAMPLES = re.findall(r"```\w+ (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
CHUNK = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}'
STREAM = b"data: " + CHUNK + b"\n\ndata: [DONE]\n\n"
CHAT = "/v1/chat/completions"


def model_page(**more: object) -> tuple[int, str, bytes]:
    return 200, "application/json", json.dumps({"object": "list", "data": [{"id": "m", **more}]}).encode()


def answers(**more: object) -> dict[str, tuple[int, str, bytes]]:
    return {"/v1/models": model_page(**more), CHAT: (200, "text/event-stream", STREAM)}


def test_the_page_has_an_example_of_each() -> None:
    assert [name for name, _ in EXAMPLES] == ["custom", "text", "aiperf", "batch", "csv", "sharegpt"]


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_the_examples_are_sent(tmp_path: Path, name: str, text: str) -> None:
    """Each example of the page goes through a run: all requests are answered, with the lengths that it asks for."""
    file = tmp_path / "set"
    file.write_text(text)
    done = fastllmload.run(
        workload=name, dataset_path=str(file), concurrency=2, num_requests=6, warmup=0, output=str(tmp_path / "run"),
        simulate={"set.step_ms": "0.1"}, **({"osl": "16"} if name in ("text", "aiperf") else {}),
    )  # fmt: skip
    rows = done.rows[(done.rows["phase"] == MEASURE) & (done.rows["status"] == OK)]
    assert len(rows) == 6
    assert (rows["completion_tokens"] == rows["output_target"]).all()
    facts = done.manifest["plan"]["description"]["workload"]["dataset"]
    assert len(facts["sha256"]) == 64 and facts["rounds"] > 1 and facts["used"] == facts["requests"]


def bodies(asked: list[tuple[str, str, dict[str, str], bytes]]) -> list[bytes]:
    return sorted(body for method, path, _, body in asked if (method, path) == ("POST", CHAT))


def test_one_plan_sends_two_systems_the_same_bytes(tmp_path: Path) -> None:
    """Saved once, sent twice: every body of the plan arrives at both, byte for byte."""
    plan = tmp_path / "a.plan"
    small = ("--rate", "50", "--num-requests", "12", "--isl", "uniform:5,30", "--osl", "2", "-m", "m")
    subprocess.run([*COMMAND, "plan", "save", str(plan), *small], check=True, capture_output=True)
    planned = load_plan(plan, tmp_path / "plan")
    expected = {planned.body(number) for number in range(planned.requests)}
    assert len(expected) == 12
    for name in ("one", "two"):
        with canned(answers()) as server:
            url = f"{server.url}/v1"
            run(tmp_path / name, "--plan", str(plan), "--url", url, "--warmup", "0", "--ui", "none")
            assert expected <= set(bodies(server.asked))
            assert len(bodies(server.asked)) == 13  # and the probe


WRONG = [
    ("custom", '{"prompt": "a", "output_tokens": 1}\n{"prompt": "b"; }\n', "line 2 column 15 is not JSON"),
    ("custom", "", "contains no request"),
    ("sharegpt", '[\n {"conversations": 5}]', "is not a ShareGPT file"),
    ("trace", "timestamp,input,output\n5,9,9\n4,9,9\n", "line 3: timestamp '4' is earlier than the previous line's"),
    ("mooncake", '{"timestamp": 5}\n', "line 1"),
]


@pytest.mark.parametrize(("name", "text", "sentence"), WRONG)
def test_a_wrong_file_is_reported_before_a_server_is_asked(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with canned(answers()) as server:
        options = ("--url", f"{server.url}/v1", "--rate", "5", "--duration", "1", "--workload", name)
        run(tmp_path / "run", *options, "--dataset-path", str(file)).refused(2, sentence)
        assert server.asked == []


def test_a_file_of_conversations_is_checked_as_one(tmp_path: Path) -> None:
    """What only conversations have is accepted when they are asked for."""
    file = tmp_path / "talk.jsonl"
    turn = {"session": "a", "prompt": "hello", "output_tokens": 2}
    file.write_text("".join(json.dumps(turn) + "\n" for _ in range(3)))
    options = ("--workload", "custom", "--dataset-path", str(file), "--rate", "20", "--num-requests", "1")
    run(tmp_path / "alone", *options).refused(2, "'session' belongs to conversations; add --turns all")
    talk = run(tmp_path / "talk", *options, "--turns", "all", "--warmup", "0", "--ui", "none")
    assert talk.kept(0, "done")["completed"] == 3


def test_a_file_other_than_a_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("[1, 2]")
    with canned(answers()) as server:
        options = ("--url", f"{server.url}/v1", "--rate", "5", "--duration", "1", "--tokenizer", str(file))
        run(tmp_path / "run", *options).refused(2, "is not a tokenizer.json: it has no model")
        assert server.asked == []


@pytest.mark.parametrize(("more", "options"), [({"max_model_len": 300}, ()), ({}, ("--context-limit", "300"))])
def test_lengths_beyond_the_models_context(tmp_path: Path, more: dict[str, int], options: tuple[str, ...]) -> None:
    """As the server reports it, or as the user says; nothing but the probe is sent."""
    with canned(answers(**more)) as server:
        load = ("--url", f"{server.url}/v1", "--rate", "50", "--duration", "1", "--isl", "256", "--osl", "45")
        run(tmp_path / "run", *load, *options).refused(2, "do not fit into the model's context of 300 tokens", "--isl")
        asked = bodies(server.asked)
        assert len(asked) == 2 and all(b"Say hello." in body for body in asked)  # for usage, then for token ids


def test_answers_counted_by_the_reference_tokenizer(tmp_path: Path) -> None:
    """Option B: texts are recorded and counted after the run, prompts are the plan's, and run.json declares it."""
    done = fastllmload.run(
        rate=50.0, num_requests=10, isl="20", osl="8", warmup=0, counting="B", output=str(tmp_path / "run"),
        simulate={"set.step_ms": "0.1"},
    )  # fmt: skip
    declared = done.manifest["plan"]["counting"]
    assert declared["option"] == "B" and declared["tokenizer"]["vocabulary"] == 100_277
    counts = count_tokens(done)
    assert {SOURCES[number] for number in counts.source.tolist()} == {SOURCES[TOKENIZER]}
    assert set(counts.input.tolist()) == {20}


@pytest.mark.parametrize("transport", ["reactor", "asyncio"])
def test_every_source_address_is_used(tmp_path: Path, transport: str) -> None:
    """By the connections of the event loop too (TLS takes these): their ports would run short without."""
    sources = ("--source-address", "127.0.0.7", "--source-address", "127.0.0.8")
    asked = ("--rate", "100", "--num-requests", "8", "--warmup", "0", "--isl", "4", "--osl", "2", "--no-telemetry")
    peers: list[str] = []
    with canned(answers()) as server:
        accepted = server.server.process_request

        def noted(request: object, client: tuple[str, int]) -> None:
            peers.append(client[0])
            accepted(request, client)

        server.server.process_request = noted
        ended = run(tmp_path / "run", "--url", server.url, "--transport", transport, *asked, *sources)
    assert ended.code == 0, ended.said
    assert set(peers) == {"127.0.0.7", "127.0.0.8"} and peers.count("127.0.0.8") >= 4
