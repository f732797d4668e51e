"""How TTFT grows with the context length: exponent and model fits (IETF 5.9.4; metrics.md 7.8).

One point per length, unweighted: the length in tokens, the mean TTFT in ms. Every fit is reported, whichever is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.statistics.student import incomplete_beta

Floats = npt.NDArray[np.float64]

FEW_LENGTHS = 3  # with fewer the exponent is flagged
LEAST_TO_TELL = 4  # with fewer nothing tells a line from a curve
SIGNIFICANT = 0.05
MODELS = {"proportional": (1,), "linear": (0, 1), "quadratic": (0, 1, 2)}  # powers of the length
EXACT = 1e-12  # of the largest TTFT: residuals below it are rounding, not evidence


@dataclass(frozen=True)
class Exponent:
    """TTFT ~ prefactor * length^k by least squares of ln on ln. *few*: two lengths only, so the fit is no test."""

    k: float | None
    prefactor_ms: float | None
    r2_log: float | None
    few: bool


@dataclass(frozen=True)
class Fit:
    """One polynomial: *coefficients* in ms / token^power by ascending power of MODELS. None where not determined.

    *saturated*: as many coefficients as lengths, or more; it goes through every point and is never chosen.
    """

    model: str
    coefficients: tuple[float, ...] | None
    r2: float | None
    aic: float | None
    aicc: float | None
    saturated: bool
    rss: float | None = None


@dataclass(frozen=True)
class Scaling:
    """*ms_per_1k* by length; *best* is the model that *criterion* chose ("aicc", or "f_test" where AICc has no value),
    None with too few lengths to tell.
    """

    lengths: tuple[float, ...]
    ms_per_1k: tuple[float, ...]
    exponent: Exponent
    fits: tuple[Fit, ...]
    criterion: str
    best: str | None

    def fit(self, model: str) -> Fit:
        return next(fit for fit in self.fits if fit.model == model)


def scaling(lengths: Sequence[float], ttft_ms: Sequence[float]) -> Scaling:
    """All of it. ValueError for lengths that are not different and above 0, or TTFT that is not above 0."""
    x, y = np.array(lengths, np.float64), np.array(ttft_ms, np.float64)
    if x.shape != y.shape or len(np.unique(x)) != len(x) or not (x > 0).all() or not (y > 0).all():
        raise ValueError("lengths must be different and above 0, with one TTFT above 0 for each")
    order = np.argsort(x)
    x, y = x[order], y[order]
    fits = tuple(fit_model(x, y, model) for model in MODELS)
    criterion, best = choose(fits, len(x))
    return Scaling(tuple(x.tolist()), tuple(prefill_ms_per_1k(x, y).tolist()), exponent(x, y), fits, criterion, best)


def prefill_ms_per_1k(lengths: Floats, ttft_ms: Floats) -> Floats:
    """TTFT per 1000 tokens of context."""
    return ttft_ms / (lengths / 1000)


def exponent(lengths: Floats, ttft_ms: Floats) -> Exponent:
    """k null for fewer than 2 lengths."""
    few = len(lengths) < FEW_LENGTHS
    if len(lengths) < 2:
        return Exponent(None, None, None, few)
    x, y = np.log(lengths), np.log(ttft_ms)
    dx = x - x.mean()
    k = float((dx * (y - y.mean())).sum() / (dx * dx).sum())
    offset = float(y.mean() - k * x.mean())
    return Exponent(k, math.exp(offset), r_squared(y, offset + k * x), few)


def r_squared(y: Floats, predicted: Floats) -> float | None:
    """Centred: 1 - RSS / TSS; None when all y are the same."""
    total = float(((y - y.mean()) ** 2).sum())
    return None if total == 0 else 1 - float(((y - predicted) ** 2).sum()) / total


def fit_model(lengths: Floats, ttft_ms: Floats, model: str) -> Fit:
    """Least squares in linear space, with AIC and AICc; the variance of the error counts as a parameter."""
    powers, n = MODELS[model], len(lengths)
    if n < len(powers):
        return Fit(model, None, None, None, None, saturated=True)
    scale = lengths.max()  # powers of 131072 would swamp the lower ones
    columns = np.stack([(lengths / scale) ** power for power in powers], axis=1)
    found, *_ = np.linalg.lstsq(columns, ttft_ms, rcond=None)
    predicted = columns @ found
    residual = max(float(((ttft_ms - predicted) ** 2).sum()), n * (EXACT * float(ttft_ms.max())) ** 2)
    parameters = len(powers) + 1
    saturated = n <= len(powers)
    aic = None if saturated else n * math.log(residual / n) + 2 * parameters
    spare = n - parameters - 1
    aicc = None if aic is None or spare <= 0 else aic + 2 * parameters * (parameters + 1) / spare
    coefficients = tuple(float(value) / float(scale) ** power for value, power in zip(found, powers, strict=True))
    return Fit(model, coefficients, r_squared(ttft_ms, predicted), aic, aicc, saturated, residual)


def choose(fits: Sequence[Fit], n: int) -> tuple[str, str | None]:
    """Criterion and model: lowest AICc; F test where *n* lengths are too few for the AICc of one of the models.

    With so few lengths AIC takes the model with the most parameters, which bends to any error: a larger model is taken
    there only where it explains more than chance would (p < SIGNIFICANT). None below LEAST_TO_TELL lengths, where
    a curve goes through every point.
    """
    if all(fit.aicc is not None for fit in fits):
        return "aicc", min((fit.aicc, fit.model) for fit in fits if fit.aicc is not None)[1]
    if n < LEAST_TO_TELL:
        return "f_test", None
    best = fits[0]
    for larger in fits[1:]:
        if larger.rss is not None and best.rss is not None and f_test(best, larger, n) < SIGNIFICANT:
            best = larger
    return "f_test", best.model


def f_test(smaller: Fit, larger: Fit, n: int) -> float:
    """P value of what *larger* explains beyond *smaller*, whose powers it has all."""
    assert smaller.rss is not None and larger.rss is not None
    more, spare = len(MODELS[larger.model]) - len(MODELS[smaller.model]), n - len(MODELS[larger.model])
    f = max(0.0, smaller.rss - larger.rss) / more / (larger.rss / spare)
    return incomplete_beta(spare / (spare + more * f), spare / 2, more / 2)
