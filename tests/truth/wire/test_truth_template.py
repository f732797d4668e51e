"""An endpoint that a file describes is recorded as the built-in protocol is, and as the server's log has it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command
from truth.truth_bench import Measured, measure

from fastllmload.records.layout import EVENT_NAMES, STATUS_NAMES

USAGE = {
    "prompt_tokens": "usage.prompt_tokens", "completion_tokens": "usage.completion_tokens",
    "cached_tokens": "usage.prompt_tokens_details.cached_tokens",
}  # fmt: skip
TGI = {
    "finish": "details.finish_reason", "prompt_tokens": "details.input_length",
    "completion_tokens": "details.generated_tokens",
}  # fmt: skip
FILES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "path": "/v1/chat/completions",
        "body": {
            "model": "{model}", "messages": [{"role": "user", "content": "{prompt}"}], "max_tokens": "{max_tokens}",
            "stream": "{stream}", "stream_options": {"include_usage": "{stream}"}, "ignore_eos": "{ignore_eos}",
        },
        "text": "choices[0].delta.content", "finish": "choices[0].finish_reason",
        "reasoning": "choices[0].delta.reasoning_content", "end": "[DONE]", **USAGE,
        "whole": {"text": "choices[0].message.content", "finish": "choices[0].finish_reason", **USAGE},
    },
    "tgi": {
        "path": "/generate_stream",
        "body": {"inputs": "{prompt}", "parameters": {"max_new_tokens": "{max_tokens}", "details": True}},
        "text": "token.text", **TGI, "whole": {"text": "generated_text", **TGI},
    },
    "ollama-generate": {
        "path": "/api/generate",
        "body": {"model": "{model}", "prompt": "{prompt}", "stream": "{stream}", "options": {"num_predict": "{max_tokens}"}},
        "text": "response", "reasoning": "thinking", "done": "done", "finish": "done_reason",
        "prompt_tokens": "prompt_eval_count", "completion_tokens": "eval_count", "cached_tokens": "prompt_eval_cached_count",
    },
    "sglang-generate": {
        "path": "/generate",
        "body": {
            "text": "{prompt}", "stream": "{stream}",
            "sampling_params": {"max_new_tokens": "{max_tokens}", "ignore_eos": "{ignore_eos}"},
        },
        "text": "text", "cumulative": True, "end": "[DONE]", "finish": "meta_info.finish_reason.type",
        "prompt_tokens": "meta_info.prompt_tokens", "completion_tokens": "meta_info.completion_tokens",
        "cached_tokens": "meta_info.cached_tokens",
    },
}  # fmt: skip
SAME = ("status", "http_status", "finish", "prompt_tokens", "completion_tokens", "cached_tokens", "content_events")
SAID = [EVENT_NAMES.index(name) for name in ("content", "whitespace", "reasoning", "error")]


def recorded(folder: Path, endpoint: str, *options: str, **simulator: Any) -> Measured:
    return measure(
        folder,
        ["--endpoint-type", endpoint, "-m", "simulated", "--rate", "40", "-n", "40", "--isl", "24", "--osl", "uniform:3,9",
         "--prefix-len", "128", "--warmup", "4", "--seed", "5", *options],
        overrides=(("step_ms", "1"),), **simulator,
    )  # fmt: skip


def kinds(measured: Measured) -> list[list[int]]:
    run = measured.run
    found = [
        run.event_kind[run.first_event[r] : run.first_event[r + 1]] for r in np.flatnonzero(run.rows["phase"] == 1)
    ]
    return [list(each[np.isin(each, SAID)]) for each in found]


@pytest.mark.parametrize("protocol", FILES)
def test_a_file_gives_the_record_of_the_protocol(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "one.json").write_text(json.dumps(FILES[protocol]))
    both = [
        recorded(tmp_path / name, endpoint)
        for name, endpoint in (("own", str(tmp_path / "one.json")), ("builtin", protocol))
    ]
    (ours, theirs), (builtin, _) = (each.joined() for each in both)
    for name in SAME:
        assert list(ours[name]) == list(builtin[name]), name
    assert kinds(both[0]) == kinds(both[1])
    assert (ours["status"] == 2).all()
    for mine, their in (("prompt", "prompt"), ("completion", "output")):
        assert list(ours[f"{mine}_tokens"]) == list(theirs[f"{their}_tokens"]), mine
    assert both[0].document["target"]["endpoint_type"] == "one.json"


@pytest.mark.parametrize("protocol", FILES)
def test_failures_are_the_servers(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "one.json").write_text(json.dumps(FILES[protocol]))
    faults = ("error_event:0.3", "status:0.2:503", "close:0.2")
    ours, theirs = recorded(tmp_path / "run", str(tmp_path / "one.json"), faults=faults).joined()
    assert list(ours["http_status"]) == list(theirs["status"])
    names = np.array([STATUS_NAMES[status] for status in ours["status"]])
    answered = theirs["status"] == 200
    assert set(names[~answered]) == {"http_error"}
    assert set(names[answered]) == {"ok", "stream_error", "truncated"}
    causes = {name: set(theirs["fault"][names == name]) for name in ("ok", "stream_error", "truncated")}
    assert all(len(found) == 1 for found in causes.values()), "each outcome has its one cause in the log"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_the_example_of_the_page(tmp_path: Path, streamed: bool) -> None:
    page = (Path(__file__).parents[3] / "docs/guides/endpoint-files.md").read_text()
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    (tmp_path / "server.toml").write_text(example[1])
    whole = () if streamed else ("--no-stream", "--endpoint", "/generate")
    ours, theirs = recorded(tmp_path / "run", str(tmp_path / "server.toml"), *whole).joined()
    assert (ours["status"] == 2).all()
    for mine, their in (("prompt", "prompt"), ("completion", "output")):
        assert list(ours[f"{mine}_tokens"]) == list(theirs[f"{their}_tokens"]), mine


@pytest.mark.parametrize("protocol", ["openai-chat", "ollama-generate", "sglang-generate"])
def test_answers_that_are_not_streamed(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "one.json").write_text(json.dumps(FILES[protocol]))
    measured = recorded(tmp_path / "run", str(tmp_path / "one.json"), "--no-stream")
    ours, theirs = measured.joined()
    assert (ours["status"] == 2).all() and list(ours["completion_tokens"]) == list(theirs["output_tokens"])


def test_conversations_send_one_text_that_grows(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(FILES["tgi"]))
    rows = []
    for endpoint in (str(tmp_path / "one.json"), "tgi"):
        measured = measure(
            tmp_path / Path(endpoint).stem,
            ["--endpoint-type", endpoint, "-m", "simulated", "--rate", "20", "-n", "20", "--isl", "24", "--osl", "5",
             "--turns", "3", "--warmup", "0", "--seed", "5"],
        )  # fmt: skip
        ours, theirs = measured.joined()
        assert (ours["status"] == 2).all() and list(ours["prompt_tokens"]) == list(theirs["prompt_tokens"])
        rows.append(ours)
    assert list(rows[0]["prompt_tokens"]) == list(rows[1]["prompt_tokens"])


def test_classes_carry_their_files(tmp_path: Path) -> None:
    """Two files and a built-in protocol in one run; each class is read by its own paths."""
    for name in ("tgi", "sglang-generate"):
        (tmp_path / f"{name}.json").write_text(json.dumps(FILES[name]))
    measured = measure(
        tmp_path / "run",
        ["-m", "simulated", "--rate", "60", "--duration", "1", "--isl", "16", "--osl", "5", "--warmup", "0",
         "--class", f"a share=0.4 endpoint-type={tmp_path / 'tgi.json'}",
         "--class", f"b share=0.4 endpoint-type={tmp_path / 'sglang-generate.json'}", "--class", "c share=0.2"],
    )  # fmt: skip
    ours, theirs = measured.joined()
    assert set(ours["request_class"]) == {0, 1, 2} and (ours["status"] == 2).all()
    assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
    named = {name: one["endpoint_type"] for name, one in measured.document["classes"].items()}
    of_plan = [str(one["endpoint"]).partition(" (")[0] for one in measured.document["plan"]["description"]["classes"]]
    assert of_plan == list(named.values()), "the text of a file is in the settings alone"
    assert named == {"a": "tgi.json", "b": "sglang-generate.json", "c": "openai-chat"}


SWEEP = ("sweep", "--vary", "rate=20,40")
SEARCH = ("search", "--goodput", "e2el:10000", "--min", "10", "--max", "20", "--max-levels", "2")
LEVELS = ["-m", "simulated", "--duration", "2", "--isl", "16", "--osl", "4", "--warmup", "2"]


@pytest.mark.parametrize("words", [SWEEP, SEARCH])
def test_experiments_speak_what_a_file_describes(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Each level is a run of its own."""
    file, folder = tmp_path / "server.json", tmp_path / "levels"
    file.write_text(json.dumps(FILES["tgi"]))
    asked = [*words, "--endpoint-type", str(file), *LEVELS, "--output", str(folder)]
    done = command(*asked)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    levels = [json.loads(found.read_text()) for found in folder.rglob("run.json")]
    assert len(levels) >= 2
    for level in levels:
        assert level["target"]["endpoint_type"] == "server.json" and level["metrics"]["e2e"]["n"] > 0
