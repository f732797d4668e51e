"""The lead before a release follows how late wake-ups are."""

import numpy as np
import pytest

from fastllmload._ext.plan.pacer import Pacer

LEAST, MOST = 5_000, 90_000


@pytest.mark.parametrize("typical_ns", [12_000, 35_000, 60_000])
def test_most_wake_ups_come_before_their_release(typical_ns):
    """Seven of eight, whatever the host needs; not the latest ones, for which every release would pay."""
    delays = np.random.default_rng(3).gamma(12.0, typical_ns / 12.0, 4_000).astype(np.int64)
    pacer = Pacer(lead_ns=MOST)
    pacer.after_wakes(delays[:1_000].tolist())
    in_time = [delay <= pacer.after_wakes([delay]) for delay in delays[1_000:].tolist()]
    assert 0.8 <= np.mean(in_time) <= 0.95
    assert typical_ns < pacer.lead_ns < 2.5 * typical_ns


def test_the_lead_has_bounds():
    """A host that is never in time does not have every release spun for; one that always is keeps some."""
    pacer = Pacer(lead_ns=MOST)
    assert pacer.lead_ns == MOST
    assert LEAST // 2 <= pacer.after_wakes([0] * 1_000) <= LEAST
    assert pacer.after_wakes([10_000_000] * 1_000) == MOST


def test_who_may_not_spin_has_no_lead():
    assert Pacer(budget=0.0).after_wakes([50_000] * 10) == 0
