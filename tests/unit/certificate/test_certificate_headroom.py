"""Headroom is computed from the busiest second of the busiest worker, not from a mean."""

from __future__ import annotations

import numpy as np
import pytest

from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.evidence import WorkerRecord
from fastllmload.certificate.judge import headroom, peak_rate

CEILING = Ceiling(events_per_s=10_000.0, requests_per_s=1_000.0)


def sampled(rates, tokens=20):
    """A worker whose requests per second are *rates*, second by second, sampled four times a second."""
    t_ns = np.arange(4 * len(rates) + 1, dtype=np.int64) * 250_000_000
    released = np.concatenate([[0], np.cumsum(np.repeat(rates, 4) / 4)]).astype(np.int64)
    return WorkerRecord(0, t_ns=t_ns, released=released, events=released * tokens)


def test_a_ramp_is_judged_at_its_peak():
    """From 20 to 200 requests/s: the last second counts, not the mean of 110."""
    rates = np.linspace(20, 200, 10)
    found = headroom((sampled(rates),), CEILING)
    assert found["peak_requests_per_s"] == pytest.approx(200, rel=0.01)
    assert found["headroom"] == pytest.approx(1 / (200 * 20 / 10_000 + 200 / 1_000), rel=0.01)


def test_a_spike_is_seen():
    """One second in a minute at ten times the rate divides the headroom by ten, though it hardly changes the mean."""
    rates = np.full(60, 40.0)
    rates[30] = 400.0
    spiked, calm = headroom((sampled(rates),), CEILING), headroom((sampled(np.full(60, 40.0)),), CEILING)
    assert spiked["headroom"] == pytest.approx(calm["headroom"] / 10, rel=0.01)


def test_the_busiest_worker_counts():
    found = headroom((sampled(np.full(5, 10.0)), sampled(np.full(5, 80.0))), CEILING)
    assert found["peak_requests_per_s"] == pytest.approx(80)


def test_a_series_shorter_than_a_second_is_used_completely():
    assert peak_rate(np.array([0, 500_000_000]), np.array([0, 50])) == pytest.approx(100.0)
    assert peak_rate(np.array([0]), np.array([0])) is None
