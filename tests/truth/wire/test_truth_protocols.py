"""Over other protocols than OpenAI's chat every figure is the server's own too; Ollama's durations are what its log says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from truth.truth_bench import measure, times_within, until_quiet

from fastllmload.records.error_texts import message_of
from fastllmload.records.layout import EVENT_NAMES, FINISH_NAMES, STATUS_NAMES

NAMES = ("total", "load", "prompt_eval", "eval")
OLLAMA = ("ollama-chat", "ollama-generate")
OTHERS = ("openai-responses", "anthropic-messages")
OVER_WEBSOCKET = "openai-responses-ws"
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@pytest.mark.clock
@pytest.mark.parametrize("endpoint", [*OLLAMA, *OTHERS, OVER_WEBSOCKET])
def test_figures_are_the_servers_own(tmp_path: Path, endpoint: str) -> None:
    """Server durations equal to the nanosecond; ttft, every token and e2e within what the host's noise allows."""

    def check(directory: Path) -> tuple[bool | None, str]:
        measured = measure(
            directory,
            ["--endpoint-type", endpoint, "--rate", "40", "--duration", "2", "--isl", "32", "--osl", "15",
             "--warmup", "5", "--seed", "7"],
            ttft_ms=25.0, itl_ms=8.0, phase="spread",
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        ours, theirs = measured.joined()
        assert (ours["status"] == 2).all()
        assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
        if endpoint in OLLAMA:
            for name in NAMES:
                assert list(ours[f"server_{name}_ns"]) == list(theirs[f"{name}_ns"]), name
            assert (theirs["prompt_eval_ns"] >= 25_000_000).all()
            assert (theirs["total_ns"] >= theirs["prompt_eval_ns"] + theirs["eval_ns"]).all()
            server = measured.document["metrics"]["server_eval_duration"]
            assert server["n"] == measured.document["counts"]["latency_population"]
        return times_within(measured, 40, 600)

    until_quiet(tmp_path, check)


def test_a_whole_answer_brings_its_durations(tmp_path: Path) -> None:
    """stream: false gives one JSON object; it has the same figures."""
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", "ollama-generate", "--no-stream", "--rate", "40", "--num-requests", "20", "--isl", "16",
         "--osl", "10", "--warmup", "2"],
        ttft_ms=10.0, itl_ms=2.0, phase="spread",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert (ours["status"] == 2).all() and set(ours["completion_tokens"]) == {10}
    for name in NAMES:
        assert list(ours[f"server_{name}_ns"]) == list(theirs[f"{name}_ns"]), name
    assert (theirs["eval_ns"] >= 9 * 2_000_000).all()


@STREAMED
@pytest.mark.parametrize("endpoint", OTHERS)
def test_usage_is_what_the_server_counted(tmp_path: Path, endpoint: str, streamed: bool) -> None:
    """Prompts share text that the engine's prefix cache holds; cached tokens are part of the prompt in every protocol."""
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", endpoint, "--rate", "40", "--num-requests", "40", "--isl", "32", "--osl", "uniform:3,9",
         "--prefix-len", "256", "--num-prefixes", "2", "--warmup", "4", *([] if streamed else ["--no-stream"])],
        overrides=(("step_ms", "1"),),
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert {STATUS_NAMES[status] for status in ours["status"]} == {"ok"}
    assert {FINISH_NAMES[word] for word in ours["finish"]} == {"length"}
    for mine, their in (("prompt", "prompt"), ("completion", "output"), ("cached", "cached")):
        assert list(ours[f"{mine}_tokens"]) == list(theirs[f"{their}_tokens"]), mine
    assert theirs["cached_tokens"].max() > 200
    if streamed:
        assert list(ours["content_events"]) == list(theirs["output_tokens"])


@pytest.mark.parametrize("endpoint", [*OTHERS, OVER_WEBSOCKET])
@pytest.mark.parametrize("fault", ["reasoning:1:4", "tool_calls:1:2"])
def test_events_have_the_servers_kinds(tmp_path: Path, endpoint: str, fault: str) -> None:
    """Event for event: thought, text and pieces of calls, as the truth log has them."""
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", endpoint, "--rate", "40", "--num-requests", "20", "--isl", "16", "--osl", "11", "--warmup", "2"],
        ttft_ms=5.0, itl_ms=1.0, phase="spread", faults=(fault,),
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, _ = measured.joined()
    assert {STATUS_NAMES[status] for status in ours["status"]} == {"ok"}
    run, number = measured.run, measured.run.manifest["phases"][-1]["number"]
    said = [EVENT_NAMES.index(name) for name in ("content", "reasoning", "tool")]
    for r in np.flatnonzero(run.rows["phase"] == 1):
        mine = run.event_kind[run.first_event[r] : run.first_event[r + 1]]
        theirs = measured.truth.of(int(run.rows["request"][r]), number)["kind"]
        # The first piece of a call has no text: it is its name.
        assert list(mine[np.isin(mine, said)]) == list(theirs[np.isin(theirs, said)])
    if fault.startswith("reasoning"):
        assert set(ours["reasoning_tokens"]) == {4} and (ours["t_any"] <= ours["t_first"]).all()
    else:
        assert {FINISH_NAMES[word] for word in ours["finish"]} <= {"tool_calls", "stop"}


@STREAMED
@pytest.mark.parametrize("endpoint", OTHERS)
def test_failures_are_the_servers(tmp_path: Path, endpoint: str, streamed: bool) -> None:
    """Requests that are refused, or fail inside a 200: statuses by the log, and one line of what was said."""
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", endpoint, "--rate", "80", "--num-requests", "80", "--isl", "16", "--osl", "6", "--warmup", "0",
         *([] if streamed else ["--no-stream"])],
        ttft_ms=5.0, itl_ms=1.0, phase="spread", faults=("status:0.2:529", "status:0.1:429", "error_event:0.2", "close:0.1"),
    )  # fmt: skip
    ours, theirs = measured.joined()
    assert list(ours["http_status"]) == list(theirs["status"])
    names = np.array([STATUS_NAMES[status] for status in ours["status"]])
    assert set(names[theirs["status"] == 429]) == {"rate_limited"} and set(names[theirs["status"] == 529]) == {
        "http_error"
    }
    assert set(names[theirs["status"] == 200]) == {"ok", "stream_error", "truncated"}
    faults = {name: set(theirs["fault"][names == name]) for name in ("ok", "stream_error", "truncated")}
    assert all(len(found) == 1 for found in faults.values()), "each outcome has its one cause in the log"
    texts = {(one["http_status"], message_of(one["text"])) for one in measured.document["error_texts"]["texts"]}
    assert texts == {(status, "simulated failure") for status in (200, 429, 529)}
