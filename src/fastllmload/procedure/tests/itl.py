"""Inter-token latency (IETF 5.4): the distribution of gaps at shares of the capacity."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fastllmload.documents.experiment import Cell, FindingPlot, FindingSeries
from fastllmload.documents.procedure import ItlFindings, ItlLevel
from fastllmload.errors import InputError
from fastllmload.experiment.level.gaps import LevelGaps, gaps_of
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_rate, changed, own_requests
from fastllmload.experiment.report.findings import LOAD, NOTHING, Findings
from fastllmload.procedure.procedure_test import OF_CAPACITY, Conditions, ProcedureTest, first
from fastllmload.records import layout
from fastllmload.search.saturation import validate_capacity_source, validate_levels
from fastllmload.settings import RunSettings
from fastllmload.workload.lengths import Choice, Fixed, InTurn, LogNormal, Uniform, parse_lengths

SHARES = (0.25, 0.5, 0.75, 0.9)
REQUESTS, LEAST_REQUESTS = 200, 100
LEAST_TOKENS, LEAST_GAPS = 50, 5_000
OUTPUT_AT_LEAST = 51  # a request of 51 tokens has 50 gaps; 100 of them have the required 5,000
TRIES = 4
RAISED = f"output lengths below {OUTPUT_AT_LEAST} tokens were raised to {OUTPUT_AT_LEAST} (IETF 5.4.2)"
WORKLOADS = ("synthetic-uniform", "conversation")


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*levels*: shares of the capacity. *requests*: per level; more are sent if too few qualify."""

    capacity: float | None = None
    capacity_source: str | None = None
    levels: tuple[float, ...] = SHARES
    requests: int = REQUESTS
    duration_s: float = 300.0  # of the levels that measure the capacity

    def quick(self) -> Parameters:
        return msgspec.structs.replace(
            self, levels=first(self.levels, SHARES, 2), requests=min(self.requests, LEAST_REQUESTS)
        )


Done = list[tuple[float, Level, LevelGaps]]  # share of the capacity, level, and its gaps


def levels(given: Conditions[Parameters]) -> Iterator[Done]:
    done: Done = []
    for share in sorted(given.parameters.levels):
        level, gaps = measure(given, given.rate_at(share))
        done.append((share, level, gaps))
        yield done


def measure(given: Conditions[Parameters], rate: float) -> tuple[Level, LevelGaps]:
    """Measure a level with at least 100 requests of 50 tokens and 5,000 gaps; repeated with more requests until it has."""
    experiment, requests = given.experiment, given.parameters.requests
    for _ in range(TRIES):
        settings = at_rate(
            experiment.base, rate, num_requests=requests, duration=None, warmup_requests=0, ramp_share=0.0
        )
        settings = changed(settings, workload={"least_output": OUTPUT_AT_LEAST, "ignore_eos": True})
        settings = own_requests(settings, rate, requests)
        level = experiment.level(f"{rate:g} per second, {requests} requests", settings)
        gaps = gaps_of(level.run, LEAST_TOKENS)
        if (gaps.requests >= LEAST_REQUESTS and len(gaps.ns) >= LEAST_GAPS) or level.cascading:
            return level, gaps
        share = max(0.05, min(gaps.requests / requests, len(gaps.ns) / LEAST_GAPS))
        requests = int(requests * min(10.0, 1.2 / share)) + 1
    given.found.warn("few-samples", f"at {rate:g} r/s only {gaps.requests} requests and {len(gaps.ns):,} gaps qualify")
    return level, gaps


def analyze(done: Done, given: Conditions[Parameters]) -> None:
    """The draft's table with a column per level, and the shape of the distribution."""
    capacity, found = given.capacity, given.found
    name = "ITL" if all(gaps.option == "direct" for _, _, gaps in done) else "Time Between Chunks"
    columns = ("Metric", *(f"{share:.0%} ({level.load:.4g} r/s)" for share, level, _ in done))
    figures = [gaps.figures() for _, _, gaps in done]
    public = ("Metric", *(f"{share:.0%}" for share, _, _ in done))
    rows: list[tuple[Cell, ...]] = [(f"{name} Samples", *(len(gaps.ns) for _, _, gaps in done))]
    for title, key in (("P50", "p50"), ("P90", "p90"), ("P95", "p95"), ("P99", "p99"), ("P99.9", "p999")):
        rows.append((f"{name} {title} (ms)", *(one[key] for one in figures)))
    rows += [(f"{name} Mean (ms)", *(one["mean"] for one in figures))]
    rows += [(f"{name} Std Dev (ms)", *(one["std"] for one in figures))]
    rows += [("P99/P50 Ratio", *(one["p99_p50"] for one in figures))]
    found.table(
        "itl", f"{name} Results", columns, rows, *map(found.publish, notes(done)), reveals=NOTHING,
        row_reveals=(LOAD, *(NOTHING for _ in rows[1:])), public_columns=public,
    )  # fmt: skip
    shape: list[tuple[Cell, ...]] = [("Requests that qualify", *(gaps.requests for _, _, gaps in done)),
             ("Requests below 50 tokens, left out", *(gaps.short for _, _, gaps in done)),
             *((f"{title} {label} (ms)", *(gaps.per_request(key, q) for _, _, gaps in done))
               for title, key in (("Jitter", "jitter"), ("Max pause", "max_pause"))
               for label, q in (("P50", 0.5), ("P95", 0.95), ("P99", 0.99))),
             ("Modality", *(gaps.modality for _, _, gaps in done)),
             ("Tail", *(gaps.tail for _, _, gaps in done))]  # fmt: skip
    found.table(
        "itl-shape", "Per request, and the shape of the distribution", columns, shape, reveals=NOTHING,
        row_reveals=(LOAD, LOAD, *(NOTHING for _ in shape[2:])), public_columns=public,
    )  # fmt: skip
    options = sorted({gaps.option for _, _, gaps in done})
    found.values = ItlFindings(
        capacity=capacity.entry(),
        option=tuple(options),
        levels=tuple(
            ItlLevel(share=share, load=level.load, samples=len(gaps.ns), requests=gaps.requests, short=gaps.short,
                     modality=gaps.modality, tail=gaps.tail, **one)
            for (share, level, gaps), one in zip(done, figures, strict=True)
        ),
        answers_at_least_length=report_raised(done, found),
    )  # fmt: skip
    series = tuple(FindingSeries(f"{share:.0%}", tuple(sample(gaps))) for share, _, gaps in done)
    found.plot(FindingPlot("itl-cdf", name, "cdf", series, y=(name, "ms", None)))
    found.say(f"gaps are pooled with option {', '.join(options)} (IETF B.2.1)", public=True)


def report_raised(done: Done, found: Findings) -> int:
    """How many requests have the minimum output length, to which shorter targets are raised (spec/procedures 5.4)."""
    targets = [level.run.rows["output_target"][level.run.rows["phase"] == layout.MEASURE] for _, level, _ in done]
    raised = sum(int((each == OUTPUT_AT_LEAST).sum()) for each in targets)
    found.sentences = [text for text in found.sentences if not text.startswith(RAISED)]
    if raised:
        found.say(f"{RAISED}: {raised:,} of {sum(map(len, targets)):,} requests have exactly that length")
    return raised


def refuse_short(osl: str | None) -> None:
    """InputError if no answer of the lengths in --osl has enough gaps."""
    asked = None if osl is None else parse_lengths(osl, "--osl")
    longest = {Fixed: "tokens", Uniform: "high", LogNormal: "high"}.get(type(asked))
    if isinstance(asked, (Choice, InTurn)):
        short = max(asked.values) < OUTPUT_AT_LEAST
    else:  # a normal length is not bounded
        short = longest is not None and getattr(asked, longest) < OUTPUT_AT_LEAST
    if short:
        raise InputError(
            "output-too-short",
            f"--osl {osl} asks for answers of less than {OUTPUT_AT_LEAST} tokens, and the test itl needs {LEAST_TOKENS} "
            f"gaps in each (IETF 5.4.2): give --osl {OUTPUT_AT_LEAST} or more, or leave it out",
        )


def notes(done: Done) -> list[str]:
    few = [f"{share:.0%}" for share, _, gaps in done if len(gaps.ns) < 10_000]
    return [f"P99.9 needs 10,000 gaps: too few at {', '.join(few)}"] if few else []


def sample(gaps: LevelGaps) -> list[float]:
    """At most 4,000 quantiles of the gaps in ms, for the plot."""
    if not len(gaps.ns):
        return []
    ordered = np.sort(gaps.ns) / 1e6
    if len(ordered) <= 4_000:
        return [float(x) for x in ordered]
    return [float(x) for x in np.quantile(ordered, np.linspace(0, 1, 4_000))]


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if not settings.workload.streaming:
        raise InputError("streaming-required", "the test itl measures gaps between tokens: leave --no-stream out")
    refuse_short(settings.workload.osl)
    validate_capacity_source(parameters)
    validate_levels(parameters.levels, SHARES, most=1.0)  # percent of the maximum throughput (IETF 5.4.2)


TEST = ProcedureTest(
    "itl", "5.4", "Inter-Token Latency Distribution", Parameters, levels, analyze,
    at_shares=True, load=OF_CAPACITY.format("shares"), validate=validate,
)  # fmt: skip
