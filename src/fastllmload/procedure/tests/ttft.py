"""Time to first token (IETF 5.1): its distribution at one load, and by input length."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.procedure import TtftFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.tables import Column, figure, success, tabulate, transpose
from fastllmload.experiment.report.findings import LOAD, NOTHING, SHARE, Findings
from fastllmload.metrics.distribution.percentiles import percentile
from fastllmload.metrics.request.durations import ttft
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, by_count, fewer
from fastllmload.settings import RunSettings

COUNT, LEAST_P99, LEAST_P999 = 10_000, 1_000, 10_000
BUCKETS = (0, 256, 512, 1024, 2048, 4096)
STATISTICS = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9", "mean": "Mean", "min": "Min",
              "max": "Max"}  # fmt: skip
RESULTS: tuple[Column[Level], ...] = (
    Column("Requests", lambda level: samples(level), LOAD),
    *(figure("ttft", key, f"TTFT {name} (ms)") for key, name in STATISTICS.items()),
    success("Success rate", reveals=SHARE),
    figure("ttft_sched", "p99", "TTFT P99 from the scheduled instant (ms)"),
)
Bucket = tuple[str, npt.NDArray[np.float64]]  # range of input lengths, TTFT in ms, ascending
BY_LENGTH: tuple[Column[Bucket], ...] = (
    Column("Input Tokens", lambda bucket: bucket[0]),
    Column("P50 (ms)", lambda bucket: percentile(bucket[1], 0.5)),
    Column("P95 (ms)", lambda bucket: percentile(bucket[1], 0.95)),
    Column("P99 (ms)", lambda bucket: percentile(bucket[1], 0.99)),
    Column("n", lambda bucket: len(bucket[1]), LOAD),
)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*request_count*: P99 needs 1,000, P99.9 needs 10,000."""

    request_count: int = COUNT

    def quick(self) -> Parameters:
        return Parameters(request_count=fewer(self.request_count, 50, 50))


def levels(given: Conditions[Parameters]) -> Iterator[Level]:
    yield given.experiment.level("ttft", given.settings)


def analyze(level: Level, given: Conditions[Parameters]) -> None:
    """The draft's two tables and the CDF."""
    n, asked, found = samples(level), given.parameters.request_count, given.found
    found.values = TtftFindings(
        requests=n,
        request_count=asked,
        **{f"ttft_{key}_ms": level.figure("ttft", key) for key in STATISTICS},
        ttft_sched_p99_ms=level.figure("ttft_sched", "p99"),
        success_rate=level.success_rate,
    )
    notes = [sufficiency(n, asked)] if n < LEAST_P999 else []
    transpose(found, "ttft-results", "TTFT Results", RESULTS, {"Value": level}, *notes)
    by_length(level, found)
    found.say("queue wait and prefill time: not measured, they need server data", public=True)
    for note in notes:
        found.deviate(note)


def samples(level: Level) -> int:
    return int(level.figure("ttft", "n") or 0)


def sufficiency(n: int, asked: int) -> str:
    why = f"; {asked - n:,} of {asked:,} requests gave none" if n < asked else ""
    least = "P99 and P99.9 are" if n < LEAST_P99 else "P99.9 is"
    return f"{n:,} TTFT samples: {least} from fewer than needed (P99 {LEAST_P99:,}, P99.9 {LEAST_P999:,}){why}"


def by_length(level: Level, found: Findings) -> None:
    """The CDF, and *TTFT by Input Length* if input lengths vary; left-closed buckets."""
    rows = level.answered
    lengths, times = rows["input_target"].astype(np.int64), ttft(rows) / 1e6
    cdf = FindingSeries("TTFT", tuple(times.tolist()))
    found.plot(FindingPlot("ttft-cdf", "TTFT", "cdf", (cdf,), y=("TTFT", "ms", None)))
    if not len(lengths) or lengths.min() == lengths.max():
        return
    buckets = []
    for low, high in zip(BUCKETS, (*BUCKETS[1:], np.inf), strict=True):
        name = f"{low:,}+" if high == np.inf else f"{low:,}-{int(high) - 1:,}"
        buckets.append((name, np.sort(times[(lengths >= low) & (lengths < high)])))
    filled = [bucket for bucket in buckets if len(bucket[1])]
    note = found.publish(f"a P99 needs {LEAST_P99:,} samples")
    tabulate(found, "ttft-by-length", "TTFT by Input Length", BY_LENGTH, filled, note, reveals=NOTHING)


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
