"""Over the protocols of engines every figure is the server's own: times, kinds of events, tokens, usage, statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from commands import command
from truth.truth_bench import MEASURE, Measured, measure, times_within, until_quiet, within

from fastllmload._ext.sim.fault import NAMES
from fastllmload.metrics.run.window import window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records.layout import EVENT_NAMES, FINISH_NAMES, STATUS_NAMES

ARRIVALS = [EVENT_NAMES.index(name) for name in ("whitespace", "content", "reasoning", "tool")]
LOAD = ["--rate", "40", "--duration", "2", "--isl", "32", "--osl", "15", "--warmup", "5", "--seed", "7"]

# An ensemble that has no such inputs, and says nothing of tokens.
EARLIER = ("--extra-body", '{"return_num_input_tokens":null,"return_num_output_tokens":null}')


class Protocol(NamedTuple):
    name: str
    options: tuple[str, ...] = ()
    cached: bool = False  # usage has cached tokens
    counted: bool = True  # and a sum of the tokens of the answer
    listed: bool = True  # events say how many tokens they are
    ends: bool = True  # an answer has a last word
    reasons: bool = True  # and says why it ended


PROTOCOLS = [
    Protocol("tgi"),
    Protocol("sglang-generate", cached=True), Protocol("sglang-generate", ("--prompt-form", "ids"), cached=True),
    Protocol("vllm-generate", ("--prompt-form", "ids"), cached=True),
    Protocol("triton-generate", counted=False, ends=False),
    Protocol("triton-tensorrtllm", counted=False, listed=False, ends=False),
    Protocol("triton-ensemble", counted=False, ends=False, reasons=False),
    Protocol("triton-ensemble", EARLIER, counted=False, listed=False, ends=False, reasons=False),
]  # fmt: skip
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda one: one.name)


def arrivals(measured: Measured) -> list[tuple[int, list[int], list[int]]]:
    """(request, kinds of its events with text as recorded, as sent) of the measured phase."""
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == MEASURE)
    run, found = measured.run, []
    for r in np.flatnonzero(run.rows["phase"] == 1):
        kinds = run.event_kind[run.first_event[r] : run.first_event[r + 1]]
        key = int(run.rows["request"][r])
        sent = measured.truth.of(key, number)["kind"]
        found.append((key, kinds[np.isin(kinds, ARRIVALS)].tolist(), sent[np.isin(sent, ARRIVALS)].tolist()))
    return found


def same_counts(measured: Measured, protocol: Protocol) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both sides, of which tokens, usage and reasons for the end are equal."""
    ours, theirs = measured.joined()
    assert (ours["status"] == STATUS_NAMES.index("ok")).all(), measured.said
    assert (ours["finish"] == FINISH_NAMES.index("length" if protocol.reasons else "none")).all()
    if protocol.listed:
        assert list(ours["prompt_tokens"]) == list(theirs["prompt_tokens"])
    if protocol.counted:
        assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
    else:  # by its events, else by its text
        counts = count_tokens(measured.run).output[measured.run.rows["phase"] == 1]
        assert list(counts) == list(theirs["output_tokens"])
    if protocol.cached:
        assert list(ours["cached_tokens"]) == list(theirs["cached_tokens"])
    return ours, theirs


@pytest.mark.clock
@each_protocol
def test_figures_are_the_servers_own(tmp_path: Path, protocol: Protocol) -> None:
    """ttft, every token and e2e within what the host's noise allows; kinds, tokens and usage exactly."""

    def check(directory: Path) -> tuple[bool | None, str]:
        measured = measure(
            directory, ["--endpoint-type", protocol.name, *protocol.options, *LOAD], ttft_ms=25.0, itl_ms=8.0,
            phase="spread",
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        same_counts(measured, protocol)
        assert all(recorded == sent for _, recorded, sent in arrivals(measured))
        chosen = np.isin(measured.run.event_kind, ARRIVALS)
        assert set(measured.run.events["tokens"][chosen]) == {1 if protocol.listed else 0}
        return times_within(measured, 40, 600)

    until_quiet(tmp_path, check)


@each_protocol
def test_a_whole_answer_has_the_same_counts(tmp_path: Path, protocol: Protocol) -> None:
    measured = measure(
        tmp_path / "run",
        ["--endpoint-type", protocol.name, *protocol.options, "--no-stream", "--rate", "40", "--num-requests", "20",
         "--isl", "16", "--osl", "10", "--warmup", "2"],
        ttft_ms=10.0, itl_ms=2.0, phase="spread",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert (ours["status"] == STATUS_NAMES.index("ok")).all(), measured.said
    assert set(theirs["output_tokens"]) == {10}
    if protocol.counted:
        assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])


def said(*arguments: object) -> str:
    done = command(*arguments)
    return done.stdout + done.stderr


WITHOUT_TOKENS = ("openai-embeddings", "pooling", "score", "rerank")
OF_TOKENS = re.compile(r"token|tok/s|ttft|tpot|\bitl\b", re.IGNORECASE)
TAGS = re.compile(r"<(script|style|svg).*?</\1>|<[^>]+>", re.DOTALL)


@pytest.mark.clock
@pytest.mark.parametrize("name", WITHOUT_TOKENS)
def test_an_embedding_has_its_times_and_nothing_else(tmp_path: Path, name: str) -> None:
    """Statuses and the end of each answer are the server's own; of tokens only those of prompts are reported."""

    def check(directory: Path) -> tuple[bool | None, str]:
        measured = measure(
            directory,
            ["--endpoint-type", name, "--rate", "40", "--duration", "2", "--isl", "16", "--warmup-requests", "5",
             "--goodput", "e2el:10000", "--no-telemetry"],
            ttft_ms=25.0, itl_ms=8.0, phase="spread", faults=("status:0.2:503",),
        )  # fmt: skip
        ours, theirs = measured.joined()
        assert (ours["http_status"] == theirs["status"]).all() and set(theirs["status"]) == {200, 503}
        ok = theirs["status"] == 200
        assert (ours["status"] == np.where(ok, STATUS_NAMES.index("ok"), STATUS_NAMES.index("http_error"))).all()
        metrics = measured.document["metrics"]
        assert metrics["e2e"]["n"] and not [one for one in metrics if OF_TOKENS.search(one)]
        for key in ("output_throughput", "total_token_throughput", "mean_ttft_ms", "p99_itl_ms", "total_output_tokens"):
            assert measured.document[key] is None
        assert measured.document["slo"]["met"] and measured.document["slo"]["token_goodput"] is None
        assert not measured.document["certificate"]["figures"].keys() - {"e2e", "e2e_sched"}
        summary = measured.said[measured.said.rindex("verdict") :]
        assert not OF_TOKENS.search(summary), summary
        assert (ours["prompt_tokens"] == np.where(ok, theirs["prompt_tokens"], -1)).all()
        window = window_of(measured.run)
        assert window is not None
        taken = ours["prompt_tokens"][ok & window.holds(ours["t_last"])].sum() / window.seconds
        assert metrics["input_tok_s"]["value"] == pytest.approx(taken)
        page = TAGS.sub(" ", (directory / "run" / "report.html").read_text())
        page = re.sub(r"input_tok_s\s+tokens/s", "", page)
        assert not re.search(
            r"(?i)\bttft(_sched)?\b|time to first|tok/s|tokens/s|per output token|between tokens", page
        )
        text = measured.said + (directory / "run" / "report.md").read_text().replace("Input (tok/s)", "")
        assert not re.search(r"(?i)tok/s|output (tok|length)|\bosl\b|\bttft|\bitl\b|tokens that", text)
        exported = [json.loads(line) for line in said("export", directory / "run", "--format", "jsonl").splitlines()]
        counts = ("output_tokens", "reasoning_tokens", "output_tokens_source", "timed_tokens")
        assert exported and all(row[count] is None for row in exported for count in counts)
        for form in ("blog", "asiai"):
            assert "[protocol-unsupported]" in said("report", directory / "run", "--as", form)
        errors = (ours["t_last"] - theirs["t_end"])[ok]
        assert errors.min() > -2_000, "nothing is received before it is sent"
        return within(measured, {"e2e": np.percentile(np.abs(errors), [50, 99]) / 1e3}, 200, 2000), str(errors)

    until_quiet(tmp_path, check)


FAULTS = {
    "error_event": "stream_error", "close": "truncated", "status": "rate_limited", "abort": "stream_error",
    "no_done": "truncated",
}  # fmt: skip


@each_protocol
def test_what_failed_is_what_the_server_failed(tmp_path: Path, protocol: Protocol) -> None:
    """Errors inside a 200, cut streams and bad statuses: exactly the requests that the server's log names."""
    faults = tuple(f"{name}:0.15" + ":429" * (name == "status") for name in FAULTS)
    measured = measure(
        tmp_path / "run", ["--endpoint-type", protocol.name, *protocol.options, *LOAD, "--osl", "12"],
        ttft_ms=5.0, itl_ms=1.0, phase="spread", faults=faults,
    )  # fmt: skip
    ours, theirs = measured.joined()
    unsaid = ["no_done"] * (not protocol.ends) + ["abort"] * (not protocol.reasons)
    expected = FAULTS | dict.fromkeys(unsaid, "ok")
    named = [NAMES.get(fault) for fault in theirs["fault"]]
    assert set(named) == {None, *FAULTS}
    found = [STATUS_NAMES[status] for status in ours["status"]]
    assert found == ["ok" if name is None else expected[name] for name in named], measured.said
    assert (ours["http_status"] == theirs["status"]).all()
