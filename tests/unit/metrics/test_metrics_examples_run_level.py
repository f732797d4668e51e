"""The worked examples of metrics over groups of runs, load levels and configurations."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastllmload.metrics.levels import asiai, fairness, operating_points, prefix_cache
from fastllmload.metrics.levels.scaling import scaling
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.run import cost

Found = dict[str, Any]
EXAMPLES = tomllib.loads((Path(__file__).parent / "examples.toml").read_text())["example"]


def pooled_of(given: Found) -> Found:
    found = asiai.pooled_spread(given["groups"])
    return {**dataclasses.asdict(found), "label": found.stability,
            "naive_std": float(np.std([run for group in given["groups"] for run in group]))}  # fmt: skip


def jain_of(given: Found) -> Found:
    found = fairness.judged(np.array(given["x"], float), "none")
    return {"jain": found.value, "unfair": bool(found.significantly_unfair)}


def starvation_of(given: Found) -> Found:
    def one(requests: list[dict[str, int]]) -> float | None:
        wait = np.array([request.get("wait", NULL) for request in requests])
        ended = np.array([request.get("failed_after", request.get("wait", 0)) for request in requests])
        return fairness.starvation_rate(wait, ended)

    return {name: one(requests) for name, requests in given["classes"].items()}


def scaling_of(given: Found) -> Found:
    found = scaling(given["lengths"], given["ttft_ms"])
    linear = found.fit("linear")
    more = {} if linear.coefficients is None else {
        "intercept_ms": linear.coefficients[0], "slope_us": 1000 * linear.coefficients[1]
    }  # fmt: skip
    return {"k": found.exponent.k, "r2_log": found.exponent.r2_log, "r2_linear": linear.r2,
            "ms_per_1k": list(found.ms_per_1k), **more}  # fmt: skip


def levels_of(given: Found) -> Found:
    limit = given.get("slo_ttft_p99")
    meets = None if limit is None else [value <= limit for value in given["ttft_p99"]]
    return {"knee": operating_points.knee_point(given["offered"], given["ttft_p99"]),
            "saturation": operating_points.saturation_point(given["offered"], given["achieved"]),
            "peak": operating_points.peak_level(given["offered"], given["achieved"]),
            "optimal": operating_points.optimal_point(given["offered"], given["achieved"], meets)}  # fmt: skip


def prefix_of(given: Found) -> Found:
    rate = prefix_cache.cache_hit_rate(np.array(given["cached"]), np.array(given["prefix"]))
    return {"ttft_reduction_percent": prefix_cache.ttft_reduction(given["off"], given["on"]), "cache_hit_rate": rate}


def guardrail_of(given: Found) -> Found:
    return {"change_percent": [prefix_cache.change_percent(given["base"], cfg) for cfg in given["cfg"]]}


def cost_of(given: Found) -> Found:
    rate, price = given["output_tok_s"], given["price_per_hour"]
    return {"tok_per_gpu_s": cost.tok_per_gpu_s(rate, given["gpus"]),
            "tok_s_per_dollar_hour": cost.tok_s_per_dollar_hour(rate, price),
            "tokens_per_dollar": cost.tokens_per_dollar(rate, price)}  # fmt: skip


FUNCTIONS: dict[str, Callable[[Found], Found]] = {
    "pooled": pooled_of, "jain": jain_of, "starvation": starvation_of, "scaling": scaling_of,
    "levels": levels_of, "prefix": prefix_of, "guardrail": guardrail_of, "cost": cost_of,
}  # fmt: skip
KINDS = tuple(FUNCTIONS)  # the completeness test reads this
MINE = [example for example in EXAMPLES if example["kind"] in KINDS]


def same(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(same(*pair, tolerance) for pair in zip(found, expected, strict=True))
    if expected == "null":
        return found is None
    if found is None or isinstance(expected, str | bool):
        return bool(found == expected)
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-9)


@pytest.mark.parametrize("example", MINE, ids=[example["id"] for example in MINE])
def test_example(example: dict[str, Any]) -> None:
    found = FUNCTIONS[example["kind"]](example["in"])
    wrong = {
        name: (found[name], value)
        for name, value in example["expect"].items()
        if not same(found[name], value, example.get("tol", 1e-6))
    }
    assert not wrong, wrong


def test_every_kind_has_examples() -> None:
    assert {example["kind"] for example in MINE} == set(KINDS)
