"""The worked examples of the definitions, through the functions that make run.json."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastllmload.metrics import core, e2e, itl, token_rate, tpot, ttft
from fastllmload.metrics.between import NULL
from fastllmload.metrics.percentiles import insufficient, interval_ranks, percentile
from fastllmload.metrics.throughput import makespan_s, per_second
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.timeline import timeline
from fastllmload.records.token_counts import count_tokens

MS = 1_000_000
BASE = 1_000_000 * MS  # times of 0 mean "did not happen", so examples that begin at 0 are moved
KINDS = {
    "role": layout.EVENT_NAMES.index("role"),
    "ws": layout.EVENT_WHITESPACE,
    "reason": layout.EVENT_REASONING,
    "text": layout.EVENT_CONTENT,
}
EXAMPLES = tomllib.loads((Path(__file__).parent / "examples.toml").read_text())["example"]


def of_kind(kind: str) -> Any:
    chosen = [example for example in EXAMPLES if example["kind"] == kind]
    assert chosen
    return pytest.mark.parametrize("example", chosen, ids=[example["id"] for example in chosen])


def ns(ms: float) -> int:
    return BASE + round(ms * MS)


def run_of(requests: list[dict[str, Any]]) -> Run:
    """A run whose rows and events are those of *requests* (fields of kind "request")."""
    rows = np.zeros(len(requests), layout.REQUEST)
    events: list[tuple[int, int, int, int, int]] = []
    first = [0]
    for number, asked in enumerate(requests):
        row = rows[number]
        for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"):
            row[name] = -1
        row["phase"], row["status"], row["request"] = layout.MEASURE, layout.OK, number
        row["t_sched"], row["t_dispatch"] = ns(asked["t_sched"]), ns(asked["t_dispatch"])
        row["t_submit"], row["t_headers"], row["t_end"] = ns(asked["t_submit"]), ns(asked["headers"]), ns(asked["t_end"])
        row["completion_tokens"] = asked["output_tokens"]
        if "hidden_reasoning_tokens" in asked:
            row["reasoning_tokens"] = asked["hidden_reasoning_tokens"]
        for t, n, what in asked["chunks"]:
            events.append((ns(t), number, KINDS[what], 1, n))
            count(row, ns(t), what)
        first.append(len(events))
    made = np.array(events, layout.EVENT) if events else np.empty(0, layout.EVENT)
    return Run(Path("."), {}, rows, made, np.array(first, np.int64))


def count(row: Any, t: int, what: str) -> None:
    """What the client keeps of one event on its row."""
    if what == "role":
        return
    if row["t_any"] == 0:
        row["t_any"] = t
    if what == "reason":
        row["reasoning_events"] += 1
    elif what == "ws" and row["t_first"] == 0:
        row["leading_events"] += 1
    else:
        row["t_first"] = row["t_first"] or t
        row["t_last"] = t
        row["content_events"] += 1


def plain(values: np.ndarray, scale: float) -> float | str:
    value = values[0]
    null = value == NULL if values.dtype == np.int64 else np.isnan(value)
    return "null" if null else float(value) / scale


def figures(run: Run) -> dict[str, Any]:
    tokens = count_tokens(run)
    line = timeline(run, np.ones(len(run.rows), bool))
    chunks, spread = itl.chunk_gaps(line), itl.token_gaps(line)
    rows, timed, output = run.rows, tokens.timed, tokens.output
    in_ms = {
        "ttft": ttft.ttft(rows), "ttft_any": ttft.ttft_any(rows), "ttft_dispatch": ttft.ttft_dispatch(rows),
        "ttft_sched": ttft.ttft_sched(rows), "ttfb": ttft.ttfb(rows), "dispatch_lag": ttft.dispatch_lag(rows),
        "send_time": ttft.send_time(rows), "tpot": tpot.tpot(rows, timed), "tpot_n": tpot.tpot_n(rows, timed),
        "norm_latency": tpot.norm_latency(rows, output), "e2e": e2e.e2e(rows), "total_duration": e2e.total_duration(rows),
        "final_silence": e2e.final_silence(rows), "jitter": itl.jitter(chunks), "max_pause": itl.max_pause(chunks),
    }  # fmt: skip
    rates = {
        "decode_tok_s": token_rate.decode_tok_s(rows, timed), "gen_tok_s": token_rate.gen_tok_s(rows, output),
        "request_tok_s": token_rate.request_tok_s(rows, output),
    }  # fmt: skip
    return {
        **{name: plain(values, MS) for name, values in in_ms.items()},
        **{name: plain(values, 1) for name, values in rates.items()},
        "timed_tokens": int(timed[0]), "itl": list(chunks.ns / MS), "tbc": list(chunks.ns / MS),
        "itl_b": list(spread.ns / MS), "share_single": itl.share_single(line, tokens),
    }  # fmt: skip


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, str | bool) or isinstance(found, str):
        return bool(found == expected)
    return bool(found == pytest.approx(expected, rel=1e-6, abs=1e-9))


@of_kind("request")
def test_request(example: dict[str, Any]) -> None:
    found = figures(run_of([example["in"]]))
    wrong = {name: (found[name], value) for name, value in example["expect"].items() if not same(found[name], value)}
    assert not wrong, wrong


@of_kind("gaps")
def test_gaps(example: dict[str, Any]) -> None:
    given = example["in"]
    lists = given.get("requests") or [[given["gap"]] * (given["tokens_each"] - 1)] * given["repeat"]
    requests = []
    for gaps in lists:
        times = np.concatenate([[100.0], 100.0 + np.cumsum(gaps)])
        chunks = [[t, 1, "text"] for t in times]
        requests.append({"t_sched": 0, "t_dispatch": 0, "t_submit": 0, "headers": 1, "chunks": chunks,
                         "t_end": times[-1], "output_tokens": len(chunks)})  # fmt: skip
    run = run_of(requests)
    gaps = itl.chunk_gaps(timeline(run, np.ones(len(run.rows), bool)))
    pooled, pauses = np.sort(gaps.ns / MS), itl.max_pause(gaps) / MS
    tail = percentile(pooled, 0.99)
    found = {
        "itl_n": len(pooled), "itl_mean": pooled.mean(), "itl_std": pooled.std(), "itl_p50": percentile(pooled, 0.5),
        "tpot_mean": np.nanmean(tpot.tpot(run.rows, count_tokens(run).timed)) / MS,
        "jitter": ["null" if np.isnan(value) else value / MS for value in itl.jitter(gaps)], "max_pause": list(pauses),
        "max_pause_p50": percentile(np.sort(pauses), 0.5), "max_pause_p99": percentile(np.sort(pauses), 0.99),
        "tail_ratio": "null" if not percentile(pooled, 0.5) else tail / percentile(pooled, 0.5),
        "enough": len(pooled) >= 5000,
    }  # fmt: skip
    wrong = {name: (found[name], value) for name, value in example["expect"].items() if not same(found[name], value)}
    assert not wrong, wrong


@of_kind("percentile")
def test_percentile(example: dict[str, Any]) -> None:
    given, expected = example["in"], example["expect"]
    if "x" in given:
        assert same([percentile(np.array(given["x"], float), q) for q in given["q"]], expected["values"])
        return
    ranks = [interval_ranks(n, q) for n, q in zip(given["n"], given["q"], strict=True)]
    assert [low for low, _ in ranks] == expected["lower_rank"]
    assert ["null" if high is None else high for _, high in ranks] == expected["upper_rank"]


@of_kind("makespan")
def test_makespan(example: dict[str, Any]) -> None:
    table = np.array(example["in"]["requests"])
    span = makespan_s(BASE + table[:, 0] * MS, BASE + table[:, 1] * MS)
    assert same(per_second(float(table[:, 2].sum()), span), example["expect"]["output_tok_s_makespan"])
    assert same(per_second(float(len(table)), span), example["expect"]["req_s_makespan"])


def test_insufficient_samples_are_flagged() -> None:
    assert insufficient(999) == ["p99", "p999"] and insufficient(1000) == ["p999"] and insufficient(10000) == []


def test_a_run_without_a_request_is_all_null() -> None:
    """Null is null: no NaN, no 0 that was not measured."""
    empty = Run(Path("."), {}, np.empty(0, layout.REQUEST), np.empty(0, layout.EVENT), np.zeros(1, np.int64))
    document = core.measure(empty)
    assert document["completed"] == 0 and document["mean_ttft_ms"] is None and document["request_throughput"] is None
    assert all(metric.get("mean") is None for metric in document["metrics"].values())
