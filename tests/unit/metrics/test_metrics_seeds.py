"""docs/metric-definitions.md holds what its machine-readable companion says, and our functions give those numbers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_runs import MS, run_of, streamed, timed

from fastllmload.documents.procedure import ByStatistic
from fastllmload.documents.write import plain
from fastllmload.metrics.distribution import shape
from fastllmload.metrics.levels import asiai, fairness, operating_points, prefix_cache
from fastllmload.metrics.levels.scaling import scaling
from fastllmload.metrics.objectives import benefit
from fastllmload.metrics.objectives.evaluators import JudgedRequests
from fastllmload.metrics.objectives.objective import objective
from fastllmload.metrics.objectives.report import judge, slo_ok
from fastllmload.metrics.request import durations, server_side, tpot
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.run import cost, throughput
from fastllmload.metrics.run.cost import power_w, tok_s_per_w
from fastllmload.metrics.tokens import fluidity, idle, itl
from fastllmload.metrics.tokens import fluidity as fluid_rates
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

Found = dict[str, Any]
HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "metric-definitions.md"
ROWS = tomllib.loads((HERE / "seeds.toml").read_text())["row"]
TABLE_ROW = re.compile(r"^\| `([a-z]+-[a-z0-9.-]+)` \|(.*)\|$", re.MULTILINE)
DOCUMENTS = {"blog": 8, "asiai": 9, "sg": 8, "etalon": 6, "ietf": 11}


def request_of(given: Found) -> Found:
    asked = streamed(given["token_ms"], ended=given.get("ended"), output_tokens=given["output_tokens"],
                     t_sched=given.get("sched_ms", 0))  # fmt: skip
    run = run_of([asked])
    tokens, times = timed(run)
    rows, output, counted = run.rows, tokens.output, tokens.timed
    gaps = itl.gaps_of(times.t_ns, times.first, np.ones(1, bool))
    late = idle.max_lateness(rows, times, idle.Reader(given.get("speed", 20)), committed(rows))
    ms = {
        "ttft": durations.ttft(rows), "ttft_dispatch": durations.ttft_dispatch(rows),
        "ttft_sched": durations.ttft_sched(rows),
        "e2e": durations.e2e(rows), "e2e_dispatch": durations.e2e_dispatch(rows),
        "total_duration": durations.total_duration(rows),
        "gen_duration": durations.gen_duration(rows), "tpot": tpot.tpot(rows, counted), "tpot_n": tpot.tpot_n(rows, counted),
        "norm_latency": tpot.norm_latency(rows, output), "max_pause": itl.max_pause(gaps),
        "idle_latency": idle.idle_latency(late),
    }  # fmt: skip
    rates = {
        "gen_tok_s": tpot.gen_tok_s(rows, output), "request_tok_s": tpot.request_tok_s(rows, output),
        "request_tok_s_dispatch": tpot.request_tok_s_dispatch(rows, output),
    }  # fmt: skip
    return {**{name: float(value[0]) / MS for name, value in ms.items()},
            **{name: float(value[0]) for name, value in rates.items()}, "itl": list(gaps.ns / MS)}  # fmt: skip


def tokens_of(given: Found) -> Found:
    tokenizer = load_tokenizer("cl100k_base")
    assert tokenizer is not None
    return {"joined": tokenizer.count("".join(given["chunks"])),
            "per_chunk": sum(tokenizer.count(chunk) for chunk in given["chunks"])}  # fmt: skip


def makespan_of(given: Found) -> Found:
    begun = 10**12 + np.zeros(given["requests"], np.int64)
    span = throughput.makespan_s(begun, begun + round(given["seconds"] * 1e9))
    return {"output_tok_s_makespan": throughput.per_second(given["tokens"], span),
            "req_s_makespan": throughput.per_second(given["requests"], span)}  # fmt: skip


def server_of(given: Found) -> Found:
    run = run_of([streamed([given["first_ms"], 1300], output_tokens=given["tokens"], t_dispatch=given["dispatch_ms"])])
    run.rows["server_prompt_eval_ns"] = given["prompt_eval_ms"] * MS
    run.rows["server_eval_ns"] = given["eval_ms"] * MS
    assert server_side.gen_tok_s(run.rows)[0] == given["tokens"] * 1000 / given["eval_ms"]
    return {"ttft_dispatch": durations.ttft_dispatch(run.rows)[0] / MS,
            "server_ttft": server_side.duration(run.rows, "prompt_eval")[0] / MS}  # fmt: skip


def estimate_of(given: Found) -> Found:
    run = run_of([streamed([10], output_tokens=count) for count in given["usage"]])
    run.rows["text_bytes"] = given["text_bytes"]
    return {"output_tokens": count_tokens(run).output.tolist()}


def power_of(given: Found) -> Found:
    t_ns = (np.array(given["t_s"]) * 1e9).astype(np.int64)
    watts = power_w(t_ns, np.array(given["watts"], float), given["start_s"] * 10**9, given["end_s"] * 10**9)
    return {"power_w": watts, "tok_s_per_w": tok_s_per_w(given.get("tok_s"), watts)}


def protocol_of(given: Found) -> Found:
    def one(rate: float) -> asiai.Generation:
        return asiai.Generation(100 * MS, 100 * MS + round(100 / rate * 1e9), 100)

    block = asiai.protocol({name: [one(rate) for rate in rates] for name, rates in given["runs"].items()})
    return asdict(block.gen_tok_s)


def objectives_of(given: Found) -> Found:
    def met(token_ms: list[float]) -> int:
        run = run_of([streamed(token_ms)])
        return int(slo_ok(run, np.ones(1, bool), given["limits"]).sum())

    return {"met": met(given["token_ms"]), "met_delayed": met(given.get("delayed_ms", given["token_ms"]))}


def goodput_of(given: Found) -> Found:
    run = run_of([streamed(**asked) for asked in given["requests"]])
    tokens, times = timed(run)
    judged = JudgedRequests(
        run.rows, tokens.timed, tokens.output, times, fluidity.fluidity_of(run, tokens, times), idle.Reader()
    )
    n_r = benefit.received(tokens, times, True)
    return plain(judge(run, [objective("reading", given["speed"])], judged, n_r, given["window_s"]))


def smooth_of(given: Found) -> Found:
    run = run_of([streamed(**asked) for asked in given["requests"]])
    tokens, times = timed(run)
    preset = benefit.Preset(given["alpha"], idle.Reader(given["speed"]))
    each = benefit.benefits_by(run, times, benefit.received(tokens, times, True), preset)
    return {"benefit": list(each), "smooth_goodput": benefit.smooth_goodput(each, given["window_s"])}


def fluidity_of(given: Found) -> Found:
    run = run_of([streamed(list(np.cumsum(given["gaps"])))])
    targets = fluidity.TokenDeadlines(((0, given["d_p"]),), given["d_d"])
    found = fluidity.fluidity(timed(run)[1], committed(run.rows), targets.d_p_ns(np.array([7])), given["d_d"] * MS)
    return {"fluidity_index": found.index[0], "fluidity_index_decode": found.index_decode[0],
            "fluidity_index_deadline": found.index_deadline[0]}  # fmt: skip


def fluid_rate_of(given: Found) -> Found:
    shares = [fluid / given["requests"] for fluid in given["fluid_requests"]]
    _, times = timed(run_of([streamed([100.0, *(100.0 + np.cumsum(given["gaps"]))])]))
    least = float(fluid_rates.min_tbt_deadline(times)[0]) / MS
    return {"fluid_token_generation_rate": operating_points.fluid_token_generation_rate(given["output_tok_s"], shares),
            "fluid_token_rate_stream": fluid_rates.stream_rate(least)}  # fmt: skip


def levels_of(given: Found) -> Found:
    return {"knee_point": operating_points.knee_point(given["offered"], given["ttft_p99"]),
            "saturation_point": operating_points.saturation_point(given["offered"], given["achieved"]),
            "peak_level": operating_points.peak_level(given["offered"], given["achieved"])}  # fmt: skip


def gap_count_of(given: Found) -> Found:
    run = run_of([streamed([20.0 * (i + 1) for i in range(given["tokens"])]) for _ in range(given["requests"])])
    times = timed(run)[1]
    return {"n": len(itl.gaps_of(times.t_ns, times.first, np.ones(given["requests"], bool)).ns)}


def scaling_of(given: Found) -> Found:
    found = scaling(given["lengths"], given["ttft_ms"])
    linear = found.fit("linear")
    assert linear.coefficients is not None and (found.criterion, found.best) == ("f_test", "linear")
    return {"ms_per_1k": list(found.ms_per_1k), "k": found.exponent.k, "r2_linear": linear.r2,
            "slope_us": 1000 * linear.coefficients[1]}  # fmt: skip


def guardrail_of(given: Found) -> Found:
    def medians(position: int) -> prefix_cache.Latencies:
        return prefix_cache.Latencies(*(ByStatistic(p50=given[name][position]) for name in ("ttft", "e2e")))

    found = prefix_cache.overheads(medians(0), input_filter=medians(1), full=medians(1))
    return {name: values.p50 for name, values in found.items() if values is not None}


FUNCTIONS: dict[str, Callable[[Found], Found]] = {
    "request": request_of, "tokens": tokens_of, "makespan": makespan_of, "server": server_of, "estimate": estimate_of,
    "power": power_of, "protocol": protocol_of, "objectives": objectives_of, "goodput": goodput_of, "smooth": smooth_of,
    "fluidity": fluidity_of, "fluid_rate": fluid_rate_of, "levels": levels_of, "gap_count": gap_count_of,
    "scaling": scaling_of, "guardrail": guardrail_of,
    "cost": lambda given: {"tok_per_gpu_s": cost.tok_per_gpu_s(given["output_tok_s"], given["gpus"])},
    "tail_ratio": lambda given: {"tail_ratio": shape.tail_ratio(given["p50"], given["p99"])},
    "capacity": lambda given: {
        "slo_capacity": operating_points.slo_capacity(given["offered"], given["completion"], given["least"])},
    "jain": lambda given: {"jain": fairness.jain_index(np.array(given["x"], float))},
    "prefix": lambda given: {name: prefix_cache.ttft_reduction(given["off"], given[name]) for name in ("cold", "warm")},
    "change": lambda given: {
        "throughput_change": [prefix_cache.change_percent(given["base"], each) for each in given["configured"]]},
}  # fmt: skip


def shown(value: Any, digits: int) -> str:
    """As the page and the documents print it."""
    if isinstance(value, list):
        return ", ".join(shown(each, digits) for each in value)
    return "none" if value is None or value == "null" else value if isinstance(value, str) else f"{value:.{digits}f}"


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_numbers_come_out(row: Found) -> None:
    """To the digits that the document prints; where its number does not follow from its own formula, ours differs."""
    found, digits = FUNCTIONS[row["kind"]](row["in"]), row["digits"]
    wrong = {
        name: (found[name], value)
        for name, value in row["expect"].items()
        if shown(found[name], digits) != shown(value, digits)
    }
    assert not wrong, wrong
    for name, value in row.get("printed", {}).items():
        assert shown(value, digits) != shown(found[name], digits), f"{name} follows after all"


def page_rows() -> list[tuple[str, list[str]]]:
    text = PAGE.read_text(encoding="utf-8")
    return [(match[1], [cell.strip() for cell in match[2].split("|")]) for match in TABLE_ROW.finditer(text)]


def test_the_page_has_the_rows_of_its_companion() -> None:
    assert [name for name, _ in page_rows()] == [row["id"] for row in ROWS]
    per_document = {name: sum(row["id"].startswith(f"{name}-") for row in ROWS) for name in DOCUMENTS}
    assert per_document == DOCUMENTS and len(ROWS) == sum(DOCUMENTS.values())


@pytest.mark.parametrize(("row", "cells"), list(zip(ROWS, (cells for _, cells in page_rows()), strict=False)),
                         ids=[row["id"] for row in ROWS])  # fmt: skip
def test_the_page_names_our_metric_and_shows_the_number(row: Found, cells: list[str]) -> None:
    _, ours, _, number = cells
    assert ours == ", ".join(f"`{name}`" for name in row["metric"])
    for value in row["expect"].values():
        assert shown(value, row["digits"]) in number, (value, number)
    for value in row.get("printed", {}).values():
        literal = ", ".join(f"{each:g}" for each in value) if isinstance(value, list) else f"{value:g}"
        assert literal in number, (value, number)
    assert ("does not follow" in number) == ("printed" in row)
