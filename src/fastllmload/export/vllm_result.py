"""The result file of `vllm bench serve --save-result`: its keys, from the rows of a run.

By vLLM's definitions: all successful requests of the measured phase, means over all of them, n in the denominator of the
standard deviation, percentiles with linear interpolation, the time from the first request to the last answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from fastllmload.arrays import Floats, Numbers
from fastllmload.documents.write import printable_json
from fastllmload.errors import InputError, RunFolderError
from fastllmload.metrics.request.durations import between, e2e, to_float, ttft_any
from fastllmload.metrics.request.tpot import spaced, tpot, tpot_any
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.timeline import BEARING, stated_tokens
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import Run

METRICS = ("ttft", "tpot", "itl", "e2el")
USUAL = METRICS[:3]
OURS = {"e2el": "e2e"}  # the only one of METRICS with another name in our options


def vllm_result(
    run: Run, percentiles: Sequence[float] = (99.0,), metrics: Sequence[str] = USUAL, detailed: bool = False
) -> dict[str, Any]:
    """InputError for *metrics* that vLLM does not have, RunFolderError where events are not in the folder."""
    for name in metrics:
        if name not in METRICS:
            raise InputError("choice-unknown", f"--percentile-metrics {name!r} is not one of {', '.join(METRICS)}")
    if run.where_events_are is not None:
        raise RunFolderError("events-elsewhere", f"{run.where_events_are}; gaps between events cannot be written")
    rows, tokens = run.rows, count_tokens(run)
    phase = rows["phase"] == MEASURE
    ok = np.flatnonzero(phase & (rows["status"] == OK))
    done = rows[ok]
    start = int(rows["t_submit"][phase & (rows["t_submit"] > 0)].min(initial=np.iinfo(np.int64).max))
    seconds = (int(done["t_end"].max()) - start) / 1e9 if len(done) else 0.0
    gaps, instants, stated = _events(run, ok)
    output = np.maximum(tokens.output[ok], 0)
    values = {
        "ttft": to_float(ttft_any(done), 1e6),
        "tpot": tpot_any(done, spaced(run, tokens.output)[ok]) / 1e6,
        "itl": np.concatenate([np.empty(0), *gaps]) / 1e6,
        "e2el": to_float(e2e(done), 1e6),
    }
    judged = {
        "ttft_any": values["ttft"],
        "tpot_any": values["tpot"],
        "e2el": values["e2el"],
        "ttft": to_float(between(done, "t_submit", "t_first"), 1e6),
        "tpot": tpot(done, spaced(run, tokens.timed)[ok]) / 1e6,
    }
    sums = {"input": int(np.maximum(tokens.input[ok], 0).sum()), "output": int(output.sum())}
    per_second = _per_second(seconds)
    return {
        **_head(run, int(phase.sum())),
        "duration": seconds,
        "completed": len(ok),
        "failed": int(phase.sum()) - len(ok),
        "total_input_tokens": sums["input"],
        "total_output_tokens": sums["output"],
        "request_throughput": per_second(len(ok)),
        "request_goodput": _goodput(run, judged, per_second),
        "output_throughput": per_second(sums["output"]),
        "total_token_throughput": per_second(sums["input"] + sums["output"]),
        "max_output_tokens_per_s": _most(instants, stated, start),
        "max_concurrent_requests": _most_in_flight(done["t_submit"], done["t_end"]),
        **{name: value for each in metrics for name, value in _figures(each, values[each], percentiles).items()},
        **(_details(run, ok, values, gaps, tokens.input[ok], output) if detailed else {}),
    }


def encode(result: dict[str, Any]) -> bytes:
    return printable_json(msgspec.json.encode(result).decode()).encode() + b"\n"


def _head(run: Run, requests: int) -> dict[str, Any]:
    config = run.document.config
    load = config.load
    rate: object = load.rate
    return {
        "date": re.sub(r"[-:]", "", run.document.environment.time_utc or "")[:15].replace("T", "-"),
        "endpoint_type": config.target.endpoint_type,
        "backend": config.target.endpoint_type,
        "label": dict(config.output.metadata).get("label"),
        "model_id": run.document.target.model,
        "tokenizer_id": config.workload.tokenizer,
        "num_prompts": requests,
        **{name: value for name, value in config.output.metadata if name != "label"},
        "request_rate": "inf" if rate is None or rate == math.inf else rate,
        "burstiness": load.burstiness,
        "max_concurrency": load.concurrency or load.max_concurrency,
    }


def _per_second(seconds: float) -> Callable[[float], float]:
    return lambda amount: amount / seconds if seconds > 0 else 0.0


def _events(run: Run, ok: Numbers) -> tuple[list[Numbers], Numbers, Numbers]:
    """Gaps between events with tokens of each of the rows *ok*, and the instant and the tokens of all these events."""
    bearing = BEARING[run.event_kind]
    parts = [slice(int(run.first_event[row]), int(run.first_event[row + 1])) for row in ok]
    instants = [run.event_t[part][bearing[part]] for part in parts]
    stated = [stated_tokens(run.event_tokens[part][bearing[part]], 1) for part in parts]
    nothing = np.empty(0, np.int64)
    return (
        [np.diff(each) for each in instants],
        np.concatenate([nothing, *instants]),
        np.concatenate([nothing, *stated]),
    )


def _figures(name: str, values: Floats, percentiles: Sequence[float]) -> dict[str, float]:
    known = values[~np.isnan(values)]
    known = known if len(known) else np.zeros(1)  # as vLLM, which writes 0
    return {
        f"mean_{name}_ms": float(known.mean()),
        f"median_{name}_ms": float(np.median(known)),
        f"std_{name}_ms": float(known.std()),
        **{f"p{percent:g}_{name}_ms": float(np.percentile(known, percent)) for percent in percentiles},
    }


def _goodput(run: Run, judged: dict[str, Floats], per_second: Callable[[float], float]) -> float | None:
    """Good requests per second by the run's objectives among *judged*, which vLLM has too; None without any."""
    limits = [(name, limit) for name, limit in run.document.config.output.goodput if name in judged]
    if not limits:
        return None
    met = [np.nan_to_num(judged[name], nan=0.0) <= limit for name, limit in limits]
    return per_second(int(np.logical_and.reduce(met).sum()))


def _most(instants: Numbers, amounts: Numbers, start: int) -> float:
    """The highest sum of *amounts* in a second since *start*."""
    return float(np.bincount((instants - start) // 1_000_000_000, amounts).max()) if len(instants) else 0.0


def _most_in_flight(begun: Numbers, ended: Numbers) -> int:
    changes = np.concatenate([np.ones(len(begun), np.int64), -np.ones(len(ended), np.int64)])
    order = np.lexsort((changes, np.concatenate([begun, ended])))
    return int(np.cumsum(changes[order]).max(initial=0))


def _details(
    run: Run, ok: Numbers, values: dict[str, Floats], gaps: list[Numbers], inputs: Numbers, output: Numbers
) -> dict[str, Any]:
    """Lists with one item per successful request, times in seconds."""
    return {
        "input_lens": inputs.tolist(),
        "output_lens": output.tolist(),
        "ttfts": (np.nan_to_num(values["ttft"]) / 1e3).tolist(),
        "itls": [(each / 1e9).tolist() for each in gaps],
        "start_times": (run.rows["t_submit"][ok] / 1e9).tolist(),
    }
