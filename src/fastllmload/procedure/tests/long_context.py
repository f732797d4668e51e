"""Long context scaling (IETF 5.9): how TTFT grows with the length of the context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.procedure import FittedCurve, LongContextFindings
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import LevelFinding
from fastllmload.experiment.level.settings import at_concurrency, changed, own_requests
from fastllmload.experiment.level.tables import Column, figure, output_tok_s, tabulate
from fastllmload.experiment.report.findings import LOAD, NOTHING, Findings
from fastllmload.metrics.levels.scaling import LEAST_TO_TELL, Scaling, scaling
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, first
from fastllmload.settings import RunSettings

LENGTHS = tuple(1024 << k for k in range(8))  # 1 Ki to 128 Ki
REQUESTS, LEAST_REQUESTS = 30, 20
SLOTS = 4
WORKLOAD = "long-context"
WEAK_LENGTHS = 6  # with fewer, only a clear curve can be distinguished from a line
NO_P99 = "no P99: it needs 1,000 samples per length"
CRITERION = "criterion: F test at 5 % by relative error: a larger model must explain more than chance"


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*lengths* in tokens; *requests* per length, in a closed loop of *slots*."""

    lengths: tuple[int, ...] = LENGTHS
    requests: int = REQUESTS
    slots: int = 1
    output_tokens: int = 256

    def quick(self) -> Parameters:
        return msgspec.structs.replace(
            self, lengths=first(self.lengths, LENGTHS, 4), requests=min(5, self.requests),
            output_tokens=min(16, self.output_tokens),
        )  # fmt: skip


@dataclass(frozen=True)
class Point(LevelFinding):
    length: int

    @property
    def mean(self) -> float | None:
        """TTFT in ms."""
        return self.figure("ttft", "mean")

    @property
    def samples(self) -> int:
        return int(self.figure("ttft", "n") or 0)


COLUMNS: tuple[Column[Point], ...] = (
    Column("Context (tokens)", lambda point: f"{point.length:,}"),
    figure("ttft", "mean"),
    figure("ttft", "p50"),
    figure("ttft", "p95"),
    Column("ms/1K tokens", lambda point: None if point.mean is None else point.mean / (point.length / 1000)),
    figure("e2e", "mean"),
)


def shared(parameters: Parameters) -> dict[str, dict[str, Any]]:
    return {"workload": {"name": WORKLOAD, "osl": str(parameters.output_tokens), "ignore_eos": True}}


def at_length(settings: RunSettings, parameters: Parameters, length: int, **load: Any) -> RunSettings:
    return at_concurrency(changed(settings, workload={"isl": str(length)}), parameters.slots, **load)


def levels(given: Conditions[Parameters]) -> Iterator[list[Point]]:
    settings, parameters = given.settings, given.parameters
    points: list[Point] = []
    skipped = beyond_context(parameters, settings)
    for length in sorted(set(parameters.lengths).difference(skipped)):
        asked = at_length(
            settings, parameters, length, num_requests=parameters.requests, duration=None, warmup_requests=0
        )
        level = given.experiment.level(f"{length} tokens", own_requests(asked, length))
        points.append(Point(level, length))
        yield points
    if skipped:
        limit, listed = settings.workload.context_limit, ", ".join(map(str, skipped))
        given.found.say(f"left out, beyond the model's context of {limit:,} tokens: {listed}", public=True)


def beyond_context(parameters: Parameters, settings: RunSettings) -> list[int]:
    """Lengths that exceed the model's context together with their answers."""
    limit = settings.workload.context_limit
    return [x for x in sorted(parameters.lengths) if limit is not None and x > limit - parameters.output_tokens]


def analyze(points: list[Point], given: Conditions[Parameters]) -> None:
    parameters, found = given.parameters, given.found
    known = [(point.length, mean) for point in points if (mean := point.mean) is not None]
    fitted = scaling([float(x) for x, _ in known], [y for _, y in known]) if len(known) > 1 else None
    columns: tuple[Column[Point], ...] = (
        *COLUMNS,
        output_tok_s(f"tok/s at concurrency {parameters.slots}", LOAD),
        Column("n", lambda point: point.samples, LOAD),
    )
    note = found.publish(NO_P99)
    tabulate(found, "long-context", "Long Context Scaling", columns, points, note, reveals=NOTHING)
    found.values = values = LongContextFindings(
        lengths=tuple(point.length for point in points), ttft_mean_ms=tuple(point.mean for point in points)
    )
    if fitted is not None:
        fits(fitted, (known[0][0], known[-1][0]), values, found)
        plot(known, fitted, found)
    few = [f"{point.length:,}" for point in points if point.samples < LEAST_REQUESTS]
    found.deviations = [text for text in found.deviations if "requests each" not in text]
    if few:
        found.deviate(f"fewer than {LEAST_REQUESTS} requests each at {', '.join(few)} tokens (IETF 5.9.2)", public=True)


def fits(fitted: Scaling, ends: tuple[int, int], values: LongContextFindings, found: Findings) -> None:
    """All models, the chosen one in the draft's line, and the exponent. *ends*: the shortest and longest context."""
    columns = ("Model", "Coefficients (ms per token^k, ascending)", "R2", "AIC", "AICc", "")
    rows = [
        (fit.model, None if fit.coefficients is None else ", ".join(f"{value:.4g}" for value in fit.coefficients),
         fit.r2, fit.aic, fit.aicc, "chosen" if fit.model == fitted.best else "")
        for fit in fitted.fits
    ]  # fmt: skip
    found.table("fits", "Fits of the mean TTFT", columns, rows, found.publish(CRITERION), reveals=NOTHING)
    exponent, linear = fitted.exponent, fitted.fit("linear").coefficients
    found.values = msgspec.structs.replace(
        values,
        best_fit=fitted.best,
        criterion=fitted.criterion,
        exponent=exponent.k,
        r2_log=exponent.r2_log,
        slope_us_per_token=None if linear is None else 1000 * linear[1],
        fits=tuple(FittedCurve(model=fit.model, r2=fit.r2, coefficients=fit.coefficients) for fit in fitted.fits),
    )
    found.sentences = [text for text in found.sentences if not text.startswith(("Best fit", "Exponent"))]
    many = len(fitted.lengths)
    if fitted.best is None:
        text = f"too few lengths to distinguish a line from a curve: {many}, {LEAST_TO_TELL} are needed"
    else:
        r2 = fitted.fit(fitted.best).r2
        text = f"{fitted.best} (R^2 = {'n/a' if r2 is None else f'{r2:.4f}'}){per_token(fitted, ends)}"
        if many < WEAK_LENGTHS:
            text += f"; with {many} lengths only a clear curve can be distinguished from a line"
    found.say(f"Best fit: {text}", public=True)
    if exponent.k is not None:
        few = ", from two lengths only" if exponent.few else ""
        found.say(f"Exponent: TTFT grows as length^{exponent.k:.3f}{few}", public=True)


def per_token(fitted: Scaling, ends: tuple[int, int]) -> str:
    """The cost of one more input token by the chosen model; for a quadratic one it depends on the length."""
    assert fitted.best is not None
    c = fitted.fit(fitted.best).coefficients or ()
    if fitted.best == "quadratic":
        each = [f"{1000 * (c[1] + 2 * c[2] * length):.3g} at {length:,} tokens" for length in ends]
        return f", ~{' and '.join(each)}, in microseconds per input token"
    return f", ~{1000 * c[-1]:.3g} microseconds per input token"


def plot(known: list[tuple[int, float]], fitted: Scaling, found: Findings) -> None:
    x = np.geomspace(known[0][0], known[-1][0], 50)
    series = [FindingSeries("TTFT mean", tuple(y for _, y in known), tuple(float(x) for x, _ in known), "points")]
    if fitted.best is not None:
        fit = fitted.fit(fitted.best)
        powers = {"proportional": (1,), "linear": (0, 1), "quadratic": (0, 1, 2)}[fit.model]
        y = sum(c * x**p for c, p in zip(fit.coefficients or (), powers, strict=True))
        series.append(FindingSeries(f"{fit.model} fit", tuple(np.asarray(y).tolist()), tuple(x.tolist()), "dash"))
    axes = ("context", "tokens", True), ("TTFT", "ms", True)
    found.plot(FindingPlot("ttft", "TTFT over context length", "scatter", tuple(series), *axes))


def validate(parameters: Parameters, settings: RunSettings) -> None:
    if not 1 <= parameters.slots <= SLOTS:
        raise InputError("value-out-of-range", f"--slots {parameters.slots} must be from 1 to {SLOTS} (IETF 5.9.2)")
    if not parameters.lengths:
        raise InputError(
            "option-value-missing", "--lengths names no length; write for example --lengths 2048,4096,8192,16384"
        )
    twice = [str(length) for length, times in Counter(parameters.lengths).items() if times > 1]
    if twice:
        raise InputError("value-repeated", f"--lengths names {','.join(twice)} twice; each length is measured once")
    if min(parameters.lengths) <= 100:
        raise InputError(
            "value-out-of-range", "--lengths must all be above 100 tokens, which the question after the document takes"
        )
    if settings.workload.isl is not None:
        raise InputError(
            "option-prescribed", "the test long-context sets the input lengths: leave --isl out, use --lengths"
        )
    if len(beyond_context(parameters, settings)) == len(parameters.lengths):
        raise InputError(
            "context-exceeded",
            f"every length, from {min(parameters.lengths):,} tokens on, exceeds with its {parameters.output_tokens:,} "
            f"tokens of answer the model's context of {settings.workload.context_limit:,}: name shorter ones with --lengths",
        )


TEST = ProcedureTest(
    "long-context", "5.9", "Long Context Scaling", Parameters, levels, analyze, shared=shared,
    warm_up_settings=lambda settings, parameters: at_length(settings, parameters, min(parameters.lengths)),
    load="sets the load itself, in a closed loop: leave --rate and --concurrency out, use --slots",
    validate=validate, sends=WORKLOAD,
)  # fmt: skip
