"""Time to first token (IETF 5.1): its distribution at one load, and by input length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.procedure import TtftFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.report.findings import LOAD, NOTHING, SHARE, Findings
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, by_count, fewer
from fastllmload.records import layout
from fastllmload.settings import RunSettings

COUNT, LEAST_P99, LEAST_P999 = 10_000, 1_000, 10_000
BUCKETS = (0, 256, 512, 1024, 2048, 4096)
ROWS = (("P50", "p50"), ("P90", "p90"), ("P95", "p95"), ("P99", "p99"), ("P99.9", "p999"), ("Mean", "mean"),
        ("Min", "min"), ("Max", "max"))  # fmt: skip


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*request_count*: P99 needs 1,000, P99.9 needs 10,000."""

    request_count: int = COUNT

    def quick(self) -> Parameters:
        return Parameters(request_count=fewer(self.request_count, 50, 50))


def levels(given: Conditions[Parameters]) -> Iterator[Level]:
    yield given.experiment.level("ttft", given.settings)


def analyze(level: Level, given: Conditions[Parameters]) -> None:
    """The draft's two tables and the CDF."""
    parameters, found = given.parameters, given.found
    n = int(level.figure("ttft", "n") or 0)
    found.values = TtftFindings(
        requests=n,
        request_count=parameters.request_count,
        **{f"ttft_{key}_ms": level.figure("ttft", key) for _, key in ROWS},
        ttft_sched_p99_ms=level.figure("ttft_sched", "p99"),
        success_rate=level.success_rate,
    )
    rows: list[tuple[str, Any]] = [("Requests", n)]
    rows += [(f"TTFT {name} (ms)", level.figure("ttft", key)) for name, key in ROWS]
    success = level.success_rate
    rows += [("Success rate", "n/a" if success is None else f"{success:.2%}")]
    rows += [("TTFT P99 from the intended instant (ms)", level.figure("ttft_sched", "p99"))]
    notes = [sufficiency(n, parameters.request_count)] if n < LEAST_P999 else []
    found.table(
        "ttft-results", "TTFT Results", ("Metric", "Value"), rows, *notes, reveals=NOTHING,
        row_reveals=(LOAD, *(NOTHING for _ in ROWS), SHARE, NOTHING),
    )  # fmt: skip
    by_length(level, found)
    found.say("queue wait and prefill time: not measured, they need server data", public=True)
    if n < LEAST_P999:
        found.deviate(notes[0])


def sufficiency(n: int, asked: int) -> str:
    why = f"; {asked - n:,} of {asked:,} requests gave none" if n < asked else ""
    least = "P99 and P99.9 are" if n < LEAST_P99 else "P99.9 is"
    return f"{n:,} TTFT samples: {least} from fewer than needed (P99 {LEAST_P99:,}, P99.9 {LEAST_P999:,}){why}"


def by_length(level: Level, found: Findings) -> None:
    """*TTFT by Input Length*, if input lengths vary; left-closed buckets."""
    lengths, ttft = samples(level)
    found.plot(
        FindingPlot("ttft-cdf", "TTFT", "cdf", (FindingSeries("TTFT", tuple(ttft.tolist())),), y=("TTFT", "ms", None))
    )
    if not len(lengths) or lengths.min() == lengths.max():
        return
    rows = []
    for low, high in zip(BUCKETS, (*BUCKETS[1:], np.inf), strict=True):
        inside = np.sort(ttft[(lengths >= low) & (lengths < high)])
        if len(inside):
            name = f"{low:,}+" if high == np.inf else f"{low:,}-{int(high) - 1:,}"
            rows.append((name, *(percentile(inside, q) for q in (0.5, 0.95, 0.99)), len(inside)))
    found.table(
        "ttft-by-length", "TTFT by Input Length", ("Input Tokens", "P50 (ms)", "P95 (ms)", "P99 (ms)", "n"), rows,
        found.publish(f"a P99 needs {LEAST_P99:,} samples"), reveals=NOTHING,
        column_reveals=(NOTHING, NOTHING, NOTHING, NOTHING, LOAD),
    )  # fmt: skip


def samples(level: Level) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Input tokens and TTFT in ms of every successful request of the level."""
    rows = level.run.rows
    ok = rows[(rows["phase"] == layout.MEASURE) & (rows["status"] == layout.OK) & (rows["t_first"] > 0)]
    return ok["input_target"].astype(np.int64), (ok["t_first"] - ok["t_submit"]) / 1e6


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if settings.load.rate is None and settings.load.concurrency is None:
        raise InputError(
            "load-missing",
            "the test ttft needs a load: --rate REQUESTS_PER_S (open loop) or --concurrency COUNT (closed)",
        )


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return None if not settings.load.rate else parameters.request_count / settings.load.rate


TEST = ProcedureTest(
    "ttft", "5.1", "Time to First Token", Parameters, levels, analyze,
    shared=by_count, validate=validate, expected_s=expected_s,
)  # fmt: skip
