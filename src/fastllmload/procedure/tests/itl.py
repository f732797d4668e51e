"""Inter-token latency (IETF 5.4): the distribution of gaps at shares of the capacity."""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller

import msgspec
import numpy as np

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.procedure import ItlFindings, ItlLevel
from fastllmload.errors import InputError
from fastllmload.experiment.level.gaps import LevelGaps, gaps_of
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import at_rate, changed, own_requests
from fastllmload.experiment.level.tables import Column, thinned, transpose
from fastllmload.experiment.report.findings import LOAD, Findings
from fastllmload.procedure.procedure_test import OF_CAPACITY, Conditions, ProcedureTest, first
from fastllmload.records import layout
from fastllmload.search.driver import measure_until
from fastllmload.search.saturation import validate_capacity_source, validate_levels
from fastllmload.settings import RunSettings
from fastllmload.workload.lengths import Choice, Fixed, InTurn, LogNormal, Uniform, parse_lengths

SHARES = (0.25, 0.5, 0.75, 0.9)
REQUESTS, LEAST_REQUESTS = 200, 100
LEAST_TOKENS, LEAST_GAPS = 50, 5_000
OUTPUT_AT_LEAST = 51  # a request of 51 tokens has 50 gaps; 100 of them have the required 5,000
TRIES = 4
RAISED = f"output lengths below {OUTPUT_AT_LEAST} tokens were raised to {OUTPUT_AT_LEAST} (IETF 5.4.2)"


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


STATISTICS = {"P50": "p50", "P90": "p90", "P95": "p95", "P99": "p99", "P99.9": "p999", "Mean": "mean", "Std Dev": "std"}
SHAPE: tuple[Column[LevelGaps], ...] = (
    Column("Requests that qualify", lambda gaps: gaps.requests, LOAD),
    Column("Requests below 50 tokens, left out", lambda gaps: gaps.short, LOAD),
    *(
        Column(f"{title} {label} (ms)", methodcaller("per_request", key, q))
        for title, key in (("Jitter", "jitter"), ("Max pause", "max_pause"))
        for label, q in (("P50", 0.5), ("P95", 0.95), ("P99", 0.99))
    ),
    Column("Modality", lambda gaps: gaps.modality),
    Column("Tail", lambda gaps: gaps.tail),
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

    def once(requests: int, attempt: int) -> tuple[Level, LevelGaps]:
        settings = at_rate(
            given.experiment.base, rate, num_requests=requests, duration=None, warmup_requests=0, ramp_share=0.0
        )
        settings = changed(settings, workload={"least_output": OUTPUT_AT_LEAST, "ignore_eos": True})
        settings = own_requests(settings, rate, requests)
        level = given.experiment.level(f"{rate:g} per second, {requests} requests", settings)
        return level, gaps_of(level.run, LEAST_TOKENS)

    def more(measured: tuple[Level, LevelGaps], requests: int) -> int | None:
        level, gaps = measured
        if enough(gaps) or level.cascading:
            return None
        share = max(0.05, min(gaps.requests / requests, len(gaps.ns) / LEAST_GAPS))
        return int(requests * min(10.0, 1.2 / share)) + 1

    level, gaps = measure_until(once, more, given.parameters.requests, TRIES)
    if not enough(gaps) and not level.cascading:
        text = f"at {rate:g} r/s only {gaps.requests} requests and {len(gaps.ns):,} gaps qualify"
        given.found.warn("few-samples", text)
    return level, gaps


def enough(gaps: LevelGaps) -> bool:
    return gaps.requests >= LEAST_REQUESTS and len(gaps.ns) >= LEAST_GAPS


def analyze(done: Done, given: Conditions[Parameters]) -> None:
    """The draft's table with a column per level, and the shape of the distribution."""
    found = given.found
    options = sorted({gaps.option for _, _, gaps in done})
    name = "ITL" if options == ["direct"] else "Time Between Chunks"
    results: list[Column[LevelGaps]] = [
        Column(f"{name} Samples", lambda gaps: len(gaps.ns), LOAD),
        *(Column(f"{name} {title} (ms)", methodcaller("figure", key)) for title, key in STATISTICS.items()),
        Column("P99/P50 Ratio", methodcaller("figure", "p99_p50")),
    ]
    by_share = {f"{share:.0%} ({level.load:.4g} r/s)": gaps for share, level, gaps in done}
    public = ("Metric", *(f"{share:.0%}" for share, _, _ in done))
    few = [f"{share:.0%}" for share, _, gaps in done if len(gaps.ns) < 10_000]
    notes = [found.publish(f"P99.9 needs 10,000 gaps: too few at {', '.join(few)}")] if few else []
    transpose(found, "itl", f"{name} Results", results, by_share, *notes, public=public)
    shape = "Per request, and the shape of the distribution"
    transpose(found, "itl-shape", shape, SHAPE, by_share, public=public)
    found.values = ItlFindings(
        capacity=given.capacity.entry(),
        option=tuple(options),
        levels=tuple(
            ItlLevel(share=share, load=level.load, samples=len(gaps.ns), requests=gaps.requests, short=gaps.short,
                     modality=gaps.modality, tail=gaps.tail, **gaps.figures)
            for share, level, gaps in done
        ),
        answers_at_least_length=report_raised(done, found),
    )  # fmt: skip
    series = tuple(FindingSeries(f"{share:.0%}", thinned(np.sort(gaps.ns) / 1e6)) for share, _, gaps in done)
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
