"""User behavior is drawn before time zero, with the requested shares."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.plan.build import described_users, drawn_users
from fastllmload.settings import UserBehavior


def test_users_who_wait_have_no_rows():
    assert drawn_users(UserBehavior(), "s", 10) is None


@given(st.floats(0.01, 1), st.integers(0, 1000))
def test_the_share_that_cancels(share, seed):
    """Within five standard deviations, the same for the same seed, the same beginnings for more requests."""
    behaviour = UserBehavior(cancel_share=share, cancel_after="20tok")
    rows = drawn_users(behaviour, f"{seed}", 500)
    found = int((rows["cancel_tokens"] == 20).sum())
    assert abs(found - 500 * share) <= 5 * (500 * share * (1 - share)) ** 0.5 + 1
    assert (drawn_users(behaviour, f"{seed}", 300) == rows[:300]).all()
    assert described_users(behaviour, rows).cancelling == found


def test_one_behavior_does_not_change_another():
    """Who cancels does not depend on whether others read slowly."""
    leaving = UserBehavior(cancel_share=0.2, cancel_after="1.5s")
    both = UserBehavior(cancel_share=0.2, cancel_after="1.5s", slow_readers="0.3:2kB/s", abandon="e2e:30s")
    one, two = drawn_users(leaving, "s", 400), drawn_users(both, "s", 400)
    assert (one["cancel_ns"] == two["cancel_ns"]).all() and set(one["cancel_ns"]) == {0, 1_500_000_000}
    slow = two["read_rate"] > 0
    assert 60 < slow.sum() < 180 and set(two["read_rate"][slow]) == {2000.0} and (two["read_bytes"][slow] == 1).all()
    assert (two["abandon_ns"] == 30_000_000_000).all() and (two["abandon_e2e"] == 1).all()


def test_invalid_behavior_is_refused():
    with raises_code("time-invalid", "ttft:5s"):
        drawn_users(UserBehavior(abandon="soon"), "s", 3)
