"""The worked examples of the definitions, through the functions that make run.json."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_metrics_examples_run_level as run_level
from example_runs import BASE, MS, run_of, streamed, timed

from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import values
from fastllmload.metrics.distribution.percentiles import insufficient, percentile
from fastllmload.metrics.objectives import benefit
from fastllmload.metrics.objectives.evaluators import EVALUATORS, JudgedRequests, evaluator
from fastllmload.metrics.objectives.objective import objective
from fastllmload.metrics.objectives.report import judge
from fastllmload.metrics.public import measure
from fastllmload.metrics.request import durations, tpot
from fastllmload.metrics.request.durations import NULL, committed
from fastllmload.metrics.run.throughput import makespan_s, per_second
from fastllmload.metrics.tokens import fluidity, idle, itl
from fastllmload.metrics.tokens import fluidity as fluid_rates
from fastllmload.records import layout
from fastllmload.records.run import Run

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from interval_coverage import textbook

EXAMPLES = tomllib.loads((Path(__file__).parent / "examples.toml").read_text())["example"]
KINDS: set[str] = set()  # asserted here


def of_kind(kind: str) -> Any:
    chosen = [example for example in EXAMPLES if example["kind"] == kind]
    assert chosen
    KINDS.add(kind)
    return pytest.mark.parametrize("example", chosen, ids=[example["id"] for example in chosen])


def plain(values: np.ndarray, scale: float = 1) -> float | str:
    value = values[0]
    null = value == NULL if values.dtype == np.int64 else np.isnan(value)
    return "null" if null else float(value) / scale


def figures(run: Run) -> dict[str, Any]:
    tokens, times = timed(run)
    kept = np.ones(len(run.rows), bool)
    chunks = itl.gaps_of(times.chunks.t_ns, times.chunks.first, kept)
    spread = itl.gaps_of(times.t_ns, times.first, kept)
    rows, counted, output = run.rows, tokens.timed, tokens.output
    in_ms = {
        "ttft": durations.ttft(rows), "ttft_any": durations.ttft_any(rows), "ttft_dispatch": durations.ttft_dispatch(rows),
        "ttft_sched": durations.ttft_sched(rows), "ttfb": durations.ttfb(rows), "dispatch_lag": durations.dispatch_lag(rows),
        "send_time": durations.send_time(rows), "tpot": tpot.tpot(rows, counted), "tpot_n": tpot.tpot_n(rows, counted),
        "norm_latency": tpot.norm_latency(rows, output), "e2e": durations.e2e(rows),
        "total_duration": durations.total_duration(rows),
        "final_silence": durations.final_silence(rows), "jitter": itl.jitter(chunks), "max_pause": itl.max_pause(chunks),
    }  # fmt: skip
    rates = {
        "decode_tok_s": tpot.decode_tok_s(rows, counted), "gen_tok_s": tpot.gen_tok_s(rows, output),
        "request_tok_s": tpot.request_tok_s(rows, output),
    }  # fmt: skip
    return {
        **{name: plain(values, MS) for name, values in in_ms.items()},
        **{name: plain(values) for name, values in rates.items()},
        "timed_tokens": int(counted[0]), "itl": list(spread.ns / MS), "tbc": list(chunks.ns / MS),
        "itl_b": list(spread.ns / MS), "share_single": itl.share_single(times, tokens, kept),
    }  # fmt: skip


def same(found: Any, expected: Any, tolerance: float = 1e-6) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(same(*pair, tolerance) for pair in zip(found, expected, strict=True))
    if isinstance(expected, str | bool) or isinstance(found, str):
        return bool(found == expected)
    return bool(found == pytest.approx(expected, rel=tolerance, abs=1e-9))


def check(found: dict[str, Any], example: dict[str, Any]) -> None:
    tolerance = example.get("tol", 1e-6)
    wrong = {
        name: (found[name], value)
        for name, value in example["expect"].items()
        if not same(found[name], value, tolerance)
    }
    assert not wrong, wrong


@of_kind("request")
def test_request(example: dict[str, Any]) -> None:
    check(figures(run_of([example["in"]])), example)


@of_kind("gaps")
def test_gaps(example: dict[str, Any]) -> None:
    given = example["in"]
    lists = given.get("requests") or [[given["gap"]] * (given["tokens_each"] - 1)] * given["repeat"]
    run = run_of([streamed([100.0, *(100.0 + np.cumsum(gaps))]) for gaps in lists])
    tokens, times = timed(run)
    gaps = itl.gaps_of(times.t_ns, times.first, np.ones(len(lists), bool))
    pooled, pauses = np.sort(gaps.ns / MS), itl.max_pause(gaps) / MS
    tail = percentile(pooled, 0.99)
    check({
        "itl_n": len(pooled), "itl_mean": pooled.mean(), "itl_std": pooled.std(), "itl_p50": percentile(pooled, 0.5),
        "tpot_mean": np.nanmean(tpot.tpot(run.rows, tokens.timed)) / MS,
        "jitter": ["null" if np.isnan(value) else value / MS for value in itl.jitter(gaps)], "max_pause": list(pauses),
        "max_pause_p50": percentile(np.sort(pauses), 0.5), "max_pause_p99": percentile(np.sort(pauses), 0.99),
        "tail_ratio": "null" if not percentile(pooled, 0.5) else tail / percentile(pooled, 0.5),
        "enough": len(pooled) >= 5000,
    }, example)  # fmt: skip


@of_kind("asiai")
def test_asiai(example: dict[str, Any]) -> None:
    given = example["in"]
    request = streamed([given["ttft_ms"]], ended=given["total_ms"], output_tokens=given["tokens"])
    rows, output = run_of([request]).rows, np.array([given["tokens"]])
    naive = output * 1e9 / durations.total_duration(rows)
    found = {"gen_tok_s": plain(tpot.gen_tok_s(rows, output)), "naive_tok_s": plain(naive),
             "gen_duration_ms": plain(durations.gen_duration(rows), MS)}  # fmt: skip
    check(found, example)
    assert tpot.degenerate(rows)[0] == (found["gen_tok_s"] == 0.0)


@of_kind("fluidity")
def test_fluidity(example: dict[str, Any]) -> None:
    given = example["in"]
    run = run_of([streamed(list(np.cumsum(given["gaps"])))])
    _, times = timed(run)
    d_p = fluidity.TokenDeadlines(((0, given["d_p"]),)).d_p_ns(np.array([7]))
    found = fluidity.fluidity(times, committed(run.rows), d_p, given["d_d"] * MS)
    check({
        "fluidity_index": plain(found.index), "fluidity_index_decode": plain(found.index_decode),
        "fluidity_index_deadline": plain(found.index_deadline), "missed": found.missed[0],
        "total": found.met[0] + found.missed[0],
    }, example)  # fmt: skip


@of_kind("min_tbt")
def test_min_tbt(example: dict[str, Any]) -> None:
    _, times = timed(run_of([streamed([100.0, *(100.0 + np.cumsum(example["in"]["gaps"]))])]))
    d_star = plain(fluid_rates.min_tbt_deadline(times), MS)
    assert isinstance(d_star, float)
    check({"d_star_ms": d_star, "stream_tok_s": fluid_rates.stream_rate(d_star)}, example)


@of_kind("idle")
def test_idle(example: dict[str, Any]) -> None:
    given = example["in"]
    run = run_of([streamed(given["token_ms"], "ended" not in given, given.get("ended"))])
    reader = idle.Reader(given["speed"], given["d1"] * MS if "d1" in given else None)
    late = idle.max_lateness(run.rows, timed(run)[1], reader, committed(run.rows))
    check({"idle_ms": plain(idle.idle_latency(late), MS), "max_lateness_ms": plain(late, MS)}, example)


@of_kind("smooth")
def test_smooth(example: dict[str, Any]) -> None:
    given = example["in"]
    run = run_of([streamed(**asked) for asked in given["requests"]])
    tokens, times = timed(run)
    preset = benefit.Preset(given["alpha"], idle.Reader(given["speed"]))
    each = benefit.benefits_by(run, times, benefit.received(tokens, times, True), preset)
    check({"benefit": list(each), "smooth_goodput": benefit.smooth_goodput(each, given["window_s"])}, example)


@of_kind("goodput")
def test_goodput(example: dict[str, Any]) -> None:
    given = example["in"]
    limits = {
        "ttft": given.get("ttft"),
        "tbt": given.get("tbt"),
        "e2el": given.get("e2e"),
        "reading": given.get("speed"),
    }
    wanted = [objective(name, limits[name]) for name in EVALUATORS[given["evaluator"]]]
    assert evaluator({each.metric for each in wanted}) == given["evaluator"]
    run = run_of([streamed(**asked) for asked in given["requests"]])
    tokens, times = timed(run)
    fluid = fluidity.fluidity_of(run, tokens, times)
    judged = JudgedRequests(run.rows, tokens.timed, tokens.output, times, fluid, idle.Reader())
    check(values(judge(run, wanted, judged, benefit.received(tokens, times, True), given["window_s"])), example)


@of_kind("percentile")
def test_percentile(example: dict[str, Any]) -> None:
    given, expected = example["in"], example["expect"]
    if "x" in given:
        assert same([percentile(np.array(given["x"], float), q) for q in given["q"]], expected["values"])
        return
    ends = [textbook(np.arange(1.0, n + 1), q) for n, q in zip(given["n"], given["q"], strict=True)]  # value = rank
    assert [low for low, _ in ends] == expected["lower_rank"]
    assert ["null" if high is None else high for _, high in ends] == expected["upper_rank"]


@of_kind("makespan")
def test_makespan(example: dict[str, Any]) -> None:
    table = np.array(example["in"]["requests"])
    span = makespan_s(BASE + table[:, 0] * MS, BASE + table[:, 1] * MS)
    assert same(per_second(float(table[:, 2].sum()), span), example["expect"]["output_tok_s_makespan"])
    assert same(per_second(float(len(table)), span), example["expect"]["req_s_makespan"])


def test_all_85_examples_are_asserted_once() -> None:
    """This file and the one of the run-level metrics share the kinds between them, and leave none out."""
    assert len(EXAMPLES) == 85 == len({example["id"] for example in EXAMPLES})
    assert not KINDS & set(run_level.KINDS)
    assert KINDS | set(run_level.KINDS) == {example["kind"] for example in EXAMPLES}


def test_insufficient_samples_are_flagged() -> None:
    assert insufficient(999) == ("p99", "p999") and insufficient(1000) == ("p999",) and insufficient(10000) == ()


def test_a_run_without_a_request_is_all_null() -> None:
    """Null is null: no NaN, no 0 that was not measured."""
    empty = Run(Path("."), RunDocument(), np.empty(0, layout.REQUEST), np.empty(0, layout.EVENT), np.zeros(1, np.int64))
    document = measure(empty)
    assert document["completed"] == 0 and document["mean_ttft_ms"] is None and document["request_throughput"] is None
    assert all(metric.get("mean") is None for metric in document["metrics"].values())
