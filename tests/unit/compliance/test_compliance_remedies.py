"""Remedies name what the tester did: a scaled-down test, a warm-up that was left out; who the limit was, by one rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_builder import Cases
from compliance_scenes import plain, tradeoff, ttft

from fastllmload.compliance.checks.warmup import probed, stable, warmup_reported
from fastllmload.compliance.outcome import FALSE
from fastllmload.compliance.statement import Check
from fastllmload.compliance.verdict import deviations, judge


def remedies(cases: Cases, folder: Path) -> dict[str, str]:
    return {found.requirement.id: found.outcome.remedy for found in judge(cases.evidence(folder)).unmet}


def document(cases: Cases) -> dict[str, Any]:
    assert cases.procedure is not None
    return cases.procedure


def without_warm_up() -> Cases:
    cases = ttft(1_000)
    document(cases).pop("warmup", None)
    document(cases).pop("warmups", None)
    document(cases)["parameters"] = {"run": {"load": {"warmup_requests": 0}}}
    return cases


@pytest.mark.parametrize("check", [probed, stable, warmup_reported])
def test_a_procedure_without_a_warm_up_gets_the_advice_to_leave_out_the_option(check: Check, tmp_path: Path) -> None:
    """It is a procedure already."""
    outcome = check(without_warm_up().evidence(tmp_path))
    assert outcome.state == FALSE and outcome.remedy.startswith("leave out --warmup 0")


@pytest.mark.parametrize("check", [probed, stable])
def test_a_plain_run_gets_the_advice_to_run_a_procedure(check: Check, tmp_path: Path) -> None:
    assert "fastllmload procedure" in check(plain().evidence(tmp_path)).remedy


def test_a_scaled_down_test_gets_the_advice_to_run_in_full(tmp_path: Path) -> None:
    """The least that the draft asks for may be less than what was given."""
    cases = ttft(50)
    shorter = remedies(cases, tmp_path / "given")["IETF-5.1.2.1-c"]
    assert shorter == "-n 1000 or longer"
    document(cases)["quick"] = True
    found = remedies(cases, tmp_path / "quick")
    assert found["IETF-5.1.2.1-c"] == f"leave out --quick, which scales this down; where that is not enough: {shorter}"


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"saturated": False, "steady": True, "criteria": {"offered_in_full": True}}, False),
        ({"passes": True}, False),
        ({"passes": False}, False),
        ({"passes": None}, True),
        ({"saturated": True, "steady": False, "criteria": {"generator_limited": False}}, False),
        ({"saturated": None, "steady": None, "criteria": {"generator_limited": True}}, True),
        ({"saturated": False, "steady": True, "criteria": {"offered_in_full": False}}, True),
        ({"saturated": None, "steady": True, "criteria": {"offered_in_full": True}}, True),
    ],
)
def test_a_late_client_was_not_the_limit_of_a_level_that_is_decided(
    entry: dict[str, Any], named: bool, tmp_path: Path
) -> None:
    """The rule of the test's own warning."""
    cases = tradeoff()
    late = cases.levels[0]
    late.manifest["certificate"]["generator_limited"] = True
    late.entry = {key: value for key, value in (late.entry or {}).items() if key not in ("passes", "criteria")} | entry
    reasons = [text for text in deviations(cases.evidence(tmp_path)) if text.startswith("the client was the limit")]
    assert [late.name in text for text in reasons] == [True] * named


def test_a_late_client_was_the_limit_of_a_plain_run(tmp_path: Path) -> None:
    cases = plain()
    cases.run.manifest["certificate"]["generator_limited"] = True
    assert any("the client" in text for text in deviations(cases.evidence(tmp_path)))
