"""Lengths and shares of the standard workloads: what the plan drew, held against what it should have drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from case_builder import Cases
from compliance_scenes import plain

from fastllmload.compliance.checks import CHECKS
from fastllmload.compliance.outcome import FALSE, INAPPLICABLE, TRUE
from fastllmload.plan.plan import RECORD


def with_prefixes(share: float, stated: float = 0.8, count: int = 400) -> Cases:
    """A plan of *count* requests of which *share* begin alike."""
    cases = plain(workload="code-completion")
    planned = np.zeros(count, RECORD)
    planned["prefix_tokens"][: round(share * count)] = 700
    cases.run.planned = planned
    cases.run.manifest["plan"]["description"]["workload"]["contexts"] = {"share": stated, "tokens": [700] * 10}
    return cases


@pytest.mark.parametrize(
    ("drawn", "stated", "state"), [(0.8, 0.8, TRUE), (0.83, 0.8, TRUE), (0.7, 0.8, FALSE), (0.8, 0.5, FALSE)]
)
def test_a_share_is_what_was_drawn(drawn: float, stated: float, state: str, tmp_path: Path) -> None:
    """Both the stated share and the drawn one must be the standard's; chance may move the latter by 4 errors."""
    found = CHECKS["share_drawn"](with_prefixes(drawn, stated).evidence(tmp_path), path="contexts.share", share=0.8)
    assert found.state == state


@pytest.mark.parametrize(("exponent", "state"), [(1.5, TRUE), (0.0, FALSE)])
def test_choices_follow_zipf(exponent: float, state: str, tmp_path: Path) -> None:
    """10,000 choices drawn by the law fit it; equal ones do not."""
    law = np.arange(1, 11.0) ** -exponent
    chosen = np.random.default_rng(3).multinomial(10_000, law / law.sum())
    cases = with_prefixes(0.8)
    cases.run.manifest["plan"]["description"]["workload"]["contexts"]["chosen"] = chosen.tolist()
    assert CHECKS["choices_follow"](cases.evidence(tmp_path), exponent=1.5).state == state


def test_few_choices_say_nothing(tmp_path: Path) -> None:
    """Below 100 there is no telling one law from another."""
    cases = with_prefixes(0.8)
    cases.run.manifest["plan"]["description"]["workload"]["contexts"]["chosen"] = [9, 9, 9]
    assert CHECKS["choices_follow"](cases.evidence(tmp_path), exponent=1.5).state == INAPPLICABLE


@pytest.mark.parametrize(
    ("wanted", "state"),
    [({"least": 128, "most": 512, "mean": 320.0}, TRUE), ({"least": 200}, FALSE), ({"most": 400}, FALSE),
     ({"mean": 400.0}, FALSE), ({"median": 250.0}, FALSE), ({"mean": 400.0, "enough": 10_000}, TRUE)],
)  # fmt: skip
def test_lengths_lie_where_they_should(wanted: dict[str, float], state: str, tmp_path: Path) -> None:
    """Bounds hold for every request, means and medians only where there are enough."""
    asked = {"side": "input", "enough": 100} | wanted
    assert CHECKS["targets"](plain().evidence(tmp_path), **asked).state == state


def test_contexts_have_their_number_and_lengths(tmp_path: Path) -> None:
    """Ten of 512 to 1024 tokens."""
    cases = with_prefixes(0.8)
    asked = {"count": 10, "least": 512, "most": 1024}
    assert CHECKS["contexts"](cases.evidence(tmp_path), **asked).state == TRUE
    cases.run.manifest["plan"]["description"]["workload"]["contexts"]["tokens"][3] = 511
    assert CHECKS["contexts"](cases.evidence(tmp_path), **asked).state == FALSE
