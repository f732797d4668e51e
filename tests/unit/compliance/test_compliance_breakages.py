"""Each MUST by itself: on evidence that keeps all of them, breaking that one makes the verdict "not compliant"."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from breakages import BREAKAGES, NEVER, SHOULDS
from case_builder import Cases
from compliance_scenes import SCENES

from fastllmload.compliance.coverage import statements
from fastllmload.compliance.outcome import DECLARED, FALSE, TRUE, UNDECLARED
from fastllmload.compliance.verdict import NOT, UNCONDITIONAL, ComplianceJudgement, judge

pytestmark = pytest.mark.slow


@functools.cache
def kept(scene: str) -> Cases:
    return SCENES[scene]()


def state_of(judgement: ComplianceJudgement, name: str) -> str:
    return next(found.outcome.state for found in judgement.findings if found.requirement.id == name)


@pytest.mark.parametrize("scene", SCENES)
def test_the_evidence_is_compliant_before_it_is_broken(scene: str, tmp_path: Path) -> None:
    """Otherwise a verdict of "not compliant" after a change would mean nothing."""
    judgement = judge(kept(scene).copy().evidence(tmp_path))
    assert [found.requirement.id for found in judgement.unmet if found.requirement.must] == []
    assert judgement.verdict != NOT


@pytest.mark.parametrize("name", BREAKAGES)
def test_breaking_it_flips_the_verdict(name: str, tmp_path: Path) -> None:
    """The requirement is among those that do not hold, and the verdict is the worst."""
    scene, change = BREAKAGES[name]
    cases = kept(scene).copy()
    change(cases)
    judgement = judge(cases.evidence(tmp_path))
    assert state_of(judgement, name) in (FALSE, UNDECLARED)
    assert judgement.verdict == NOT
    found = next(one for one in judgement.unmet if one.requirement.id == name)
    assert found.outcome.reason and found.outcome.remedy


def test_every_must_has_something_that_breaks_it() -> None:
    """A MUST without an entry here has a check that is never seen to fail."""
    wanted = {one.id for one in statements() if one.must and one.in_verdict}
    assert wanted == set(BREAKAGES)


@pytest.mark.parametrize("name", SHOULDS)
def test_breaking_a_should_ends_unconditional_compliance(name: str, tmp_path: Path) -> None:
    """It held before, it does not hold after, and it is listed with a remedy."""
    scene, change = SHOULDS[name]
    assert state_of(judge(kept(scene).copy().evidence(tmp_path / "kept")), name) in (TRUE, DECLARED)
    cases = kept(scene).copy()
    change(cases)
    judgement = judge(cases.evidence(tmp_path / "broken"))
    assert state_of(judgement, name) in (FALSE, UNDECLARED)
    assert judgement.verdict != UNCONDITIONAL
    found = next(one for one in judgement.unmet if one.requirement.id == name)
    assert found.outcome.reason and found.outcome.remedy


def test_every_should_has_something_that_breaks_it() -> None:
    """But the one that this tool can never keep."""
    wanted = {one.id for one in statements() if one.should and one.in_verdict}
    assert wanted == set(SHOULDS) | NEVER
