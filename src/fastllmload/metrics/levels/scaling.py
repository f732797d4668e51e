"""Fits how TTFT grows with the context length: exponent and polynomial models (IETF 5.9.4; spec/metrics 7.8).

One point per length: the length in tokens, the mean TTFT in ms. The fits are unweighted, and all are reported. The model is
chosen by the relative error at each length, which is similar for long and short contexts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Floats
from fastllmload.statistics.student import incomplete_beta

FEW_LENGTHS = 3  # with fewer the exponent is flagged
LEAST_TO_TELL = 4  # with fewer a line and a curve cannot be distinguished
SIGNIFICANT = 0.05
MODELS = {"proportional": (1,), "linear": (0, 1), "quadratic": (0, 1, 2)}  # powers of the length
EXACT = 1e-12  # of the largest TTFT: residuals below it are rounding, not evidence


@dataclass(frozen=True)
class Exponent:
    """TTFT ~ length^k by least squares of ln on ln. *few*: with two lengths the fit proves nothing."""

    k: float | None
    r2_log: float | None
    few: bool


@dataclass(frozen=True)
class Fit:
    """One polynomial: *coefficients* in ms / token^power by ascending power of MODELS. None where not determined.

    *saturated*: as many coefficients as lengths, or more; it goes through every point and is never chosen.
    *relative_rss*: residual sum of squares of a fit by relative error.
    """

    model: str
    coefficients: tuple[float, ...] | None
    r2: float | None
    aic: float | None
    aicc: float | None
    saturated: bool
    relative_rss: float | None = None


@dataclass(frozen=True)
class Scaling:
    """*ms_per_1k*: TTFT per 1000 tokens, by length; *best*: the model that *criterion* chose, None for too few lengths."""

    lengths: tuple[float, ...]
    ms_per_1k: tuple[float, ...]
    exponent: Exponent
    fits: tuple[Fit, ...]
    best: str | None
    criterion: str = "f_test"

    def fit(self, model: str) -> Fit:
        return next(fit for fit in self.fits if fit.model == model)


def scaling(lengths: Sequence[float], ttft_ms: Sequence[float]) -> Scaling:
    """Exponent and all fits. ValueError for lengths that are not different and above 0, or TTFT that is not above 0."""
    x, y = np.array(lengths, np.float64), np.array(ttft_ms, np.float64)
    if x.shape != y.shape or len(np.unique(x)) != len(x) or not (x > 0).all() or not (y > 0).all():
        raise ValueError("lengths must be different and above 0, with one TTFT above 0 for each")
    order = np.argsort(x)
    x, y = x[order], y[order]
    fits = tuple(fit_model(x, y, model) for model in MODELS)
    best = choose(fits, len(x))
    return Scaling(tuple(x.tolist()), tuple((y / (x / 1000)).tolist()), exponent(x, y), fits, best)


def exponent(lengths: Floats, ttft_ms: Floats) -> Exponent:
    """The exponent k and its fit; None for fewer than 2 lengths."""
    few = len(lengths) < FEW_LENGTHS
    if len(lengths) < 2:
        return Exponent(None, None, few)
    x, y = np.log(lengths), np.log(ttft_ms)
    dx = x - x.mean()
    k = float((dx * (y - y.mean())).sum() / (dx * dx).sum())
    offset = float(y.mean() - k * x.mean())
    return Exponent(k, r_squared(y, offset + k * x), few)


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
    found, residual = least_squares(columns, ttft_ms)
    predicted = columns @ found
    parameters = len(powers) + 1
    saturated = n <= len(powers)
    aic = None if saturated else n * math.log(residual / n) + 2 * parameters
    spare = n - parameters - 1
    aicc = None if aic is None or spare <= 0 else aic + 2 * parameters * (parameters + 1) / spare
    coefficients = tuple(float(value) / float(scale) ** power for value, power in zip(found, powers, strict=True))
    _, relative = least_squares(columns / ttft_ms[:, None], np.ones(n))
    return Fit(model, coefficients, r_squared(ttft_ms, predicted), aic, aicc, saturated, relative)


def least_squares(columns: Floats, y: Floats) -> tuple[Floats, float]:
    found = np.asarray(np.linalg.lstsq(columns, y, rcond=None)[0], np.float64)
    residual = float(((y - columns @ found) ** 2).sum())
    return found, max(residual, len(y) * (EXACT * float(y.max())) ** 2)


def choose(fits: Sequence[Fit], n: int) -> str | None:
    """The smallest model that no larger one improves significantly (F test, p < SIGNIFICANT).

    AICc is not used: with an error of 1 % of each TTFT, which is largest at the largest length, it chooses a curve for
    a third of the lines over eight lengths. None below LEAST_TO_TELL lengths, where a curve goes through every point.
    """
    if n < LEAST_TO_TELL:
        return None
    best = fits[0]
    for larger in fits[1:]:
        if f_test(best, larger, n) < SIGNIFICANT:
            best = larger
    return best.model


def f_test(smaller: Fit, larger: Fit, n: int) -> float:
    """P value of the improvement of *larger* over *smaller*, whose powers it includes."""
    assert smaller.relative_rss is not None and larger.relative_rss is not None
    more, spare = len(MODELS[larger.model]) - len(MODELS[smaller.model]), n - len(MODELS[larger.model])
    f = max(0.0, smaller.relative_rss - larger.relative_rss) / more / (larger.relative_rss / spare)
    return incomplete_beta(spare / (spare + more * f), spare / 2, more / 2)
