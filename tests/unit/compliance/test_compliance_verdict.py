"""Tests the three verdicts and the report of unmet requirements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from case_builder import Cases
from compliance_scenes import SCENES, cold, plain, ttft
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.compliance.applies import why_not
from fastllmload.compliance.coverage import how_met
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, content_events
from fastllmload.compliance.outcome import DECLARED, INAPPLICABLE, SHOWN, TRUE, UNCHECKED, RequirementOutcome
from fastllmload.compliance.report import blocks
from fastllmload.compliance.statement import Statement
from fastllmload.compliance.verdict import (
    CONDITIONAL,
    NOT,
    UNCONDITIONAL,
    ComplianceJudgement,
    compliance_of,
    document,
    document_with_all,
    joined,
    judge,
    outcome_of,
)
from fastllmload.documents.write import values
from fastllmload.records import layout
from fastllmload.report.render.text import lines

pytestmark = pytest.mark.slow


def judged(cases: Cases, folder: Path) -> ComplianceJudgement:
    return judge(cases.evidence(folder))


def state(judgement: ComplianceJudgement, name: str) -> str:
    return next(found.outcome.state for found in judgement.findings if found.requirement.id == name)


def test_everything_met_is_unconditional(tmp_path: Path) -> None:
    """Every MUST and every SHOULD holds."""
    assert judged(cold(), tmp_path).verdict == UNCONDITIONAL


def test_a_broken_should_is_conditional(tmp_path: Path) -> None:
    """A plain run sends no probes, which are recommended only."""
    judgement = judged(plain(), tmp_path)
    assert judgement.verdict == CONDITIONAL
    assert {found.requirement.id for found in judgement.unmet} == {"IETF-4.5.2-a", "IETF-4.5.2-b"}


def test_a_broken_must_is_not_compliant(tmp_path: Path) -> None:
    """One undeclared MUST is enough, and its remedy is an option that can be typed."""
    cases = plain()
    cases.undeclare("sut.boundary")
    judgement = judged(cases, tmp_path)
    assert judgement.verdict == NOT
    shown = document(judgement)
    (entry,) = [entry for entry in shown.unmet if entry.id == "IETF-4.1-a"]
    assert entry.state == "undeclared"
    assert entry.remedy is not None and entry.remedy.startswith("--declare sut.boundary=")
    assert shown.must.undeclared == ("IETF-4.1-a",)


def test_a_quick_procedure_never_complies(tmp_path: Path) -> None:
    """Whatever holds: durations were scaled down."""
    cases = ttft()
    assert cases.procedure is not None
    cases.procedure["quick"] = True
    judgement = judged(cases, tmp_path)
    assert judgement.verdict == NOT
    assert "--quick" in document(judgement).deviations[0]


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_procedure_that_did_not_end_never_complies(status: str, tmp_path: Path) -> None:
    """What was found so far is judged, and the verdict says that it is not all."""
    cases = ttft()
    assert cases.procedure is not None
    cases.procedure["status"] = status
    judgement = judged(cases, tmp_path)
    assert judgement.verdict == NOT
    assert status in document(judgement).deviations[0]


def test_a_level_whose_folder_is_gone(tmp_path: Path) -> None:
    """It is named, and nothing is made up for it."""
    whole = ttft().evidence(tmp_path)
    judgement = judge(ComplianceEvidence(whole.folder, whole.runs, whole.procedure, absent=("levels/001-gone",)))
    assert judgement.verdict == NOT
    assert "levels/001-gone" in document(judgement).deviations[0]


def test_a_procedure_without_a_level_is_not_compliant(tmp_path: Path) -> None:
    """Nothing measured is nothing shown."""
    whole = ttft().evidence(tmp_path)
    assert judge(ComplianceEvidence(whole.folder, (), whole.procedure)).verdict == NOT


def test_what_is_declared_is_called_so(tmp_path: Path) -> None:
    """Declarations are not verified, and are counted separately."""
    judgement = judged(plain(), tmp_path)
    assert state(judgement, "IETF-4.8.1-c") == DECLARED
    assert state(judgement, "IETF-4.2.6-b") == TRUE
    assert "not verified" in "\n".join(lines(blocks(judgement)))


def test_a_declared_line_end_begins_no_line(tmp_path: Path) -> None:
    """Otherwise a declaration could look like a statement that holds."""
    cases = plain().declare(guardrails__names="none\nIETF-4.2-a  MUST  true")
    shown = list(lines(blocks(judged(cases, tmp_path), everything=True)))
    assert len(shown) == len("\n".join(shown).splitlines())
    assert sum(line.startswith("IETF-4.2-a ") for line in shown) == 1


def test_what_a_run_does_not_exercise_is_met_by_design(tmp_path: Path) -> None:
    """An open loop says nothing about closed loops; the option for them is named."""
    judgement = judged(plain(), tmp_path)
    found = next(one for one in judgement.findings if one.requirement.id == "IETF-4.2.4-a")
    assert found.outcome.state == SHOWN
    assert found.outcome.reason.startswith("by design: --concurrency;")


def test_other_tests_do_not_apply(tmp_path: Path) -> None:
    """A plain run is judged by what is asked of every test."""
    judgement = judged(plain(), tmp_path)
    assert state(judgement, "IETF-5.2.2.1-b") == INAPPLICABLE
    assert "a single run" in document(judgement).scope


def test_a_statement_that_is_not_covered_is_unchecked(tmp_path: Path) -> None:
    """It is never silently true."""
    bare = Statement(id="X", level="MUST", basis="keyword", text=".", judged_by=how_met("open", "it is not known how"))
    outcome = outcome_of(plain().evidence(tmp_path), bare, {}, ())
    assert outcome.state == UNCHECKED and not outcome.holds


def test_a_conjunction_is_as_weak_as_its_weakest_part() -> None:
    """False before undeclared, declared before seen; parts that do not apply say nothing."""
    parts = {"a": RequirementOutcome(TRUE), "b": RequirementOutcome(DECLARED), "c": RequirementOutcome(INAPPLICABLE)}
    assert joined(parts).state == DECLARED
    assert joined({"c": RequirementOutcome(INAPPLICABLE)}).state == INAPPLICABLE
    broken = parts | {"d": RequirementOutcome("undeclared", "not said"), "e": RequirementOutcome("false", "3 of 4")}
    assert joined(broken) == RequirementOutcome("false", "e: 3 of 4")


def test_an_unknown_condition_is_an_error(tmp_path: Path) -> None:
    """A slip in the data must not make a requirement vanish."""
    with pytest.raises(ValueError, match="known condition"):
        why_not(plain().evidence(tmp_path), ["whenever it suits"])


def test_a_level_of_a_procedure_is_judged_with_it(tmp_path: Path) -> None:
    """By itself it would lack the warm-up that the procedure has."""
    cases = plain()
    cases.run.manifest["metadata"]["level"] = "abc"
    assert values(compliance_of(cases.evidence(tmp_path))) == {
        "verdict": None,
        "scope": "a level of a procedure, judged with it",
    }


def test_deviations_are_named_where_no_key_word_is_broken(tmp_path: Path) -> None:
    """A stand-in workload, a client at its limit, estimated counts."""
    cases = plain()
    manifest = cases.run.manifest
    manifest["plan"]["description"]["workload"]["deviations"] = ["lengths are not the standard ones"]
    manifest["certificate"]["generator_limited"] = True
    manifest["counts"]["output_tokens_source"]["estimate"] = 3
    shown = " | ".join(judged(cases, tmp_path).deviations)
    assert "standard ones" in shown and "the client" in shown and "3 output counts" in shown


def test_the_document_is_json_and_whole(tmp_path: Path) -> None:
    """With everything asked for, all 653 are in it."""
    shown = json.loads(json.dumps(document_with_all(judged(plain(), tmp_path))))
    assert len(shown["requirements"]) == 653 == sum(shown["counts"].values())


def test_the_text_names_what_to_do_and_stays_in_its_width(tmp_path: Path) -> None:
    """Options are never cut, so that they can be copied."""
    cases = plain()
    for key in ("sut.boundary", "guardrails.names", "tokenizer.name"):
        cases.undeclare(key)
    shown = list(lines(blocks(judged(cases, tmp_path)), width=80))
    assert shown[0].split() == ["verdict", "NOT", "COMPLIANT"]
    assert any(line.strip() == "--declare sut.boundary=model_engine" for line in shown)
    assert all(len(line) <= 80 or "--declare" in line for line in shown)


ORDER = (NOT, CONDITIONAL, UNCONDITIONAL)
WITH_HOLES = ["plain", "closed", "throughput", "fairness"]
paths = st.sampled_from(
    ["metrics", "counts", "plan", "config", "phases", "target", "certificate", "declarations", "window", "environment",
     "plan.description", "plan.description.workload", "plan.description.load", "config.load", "metrics.ttft", "errors"]
)  # fmt: skip


@settings(max_examples=25)
@given(gone=st.sets(paths, min_size=1, max_size=6), scene=st.sampled_from(WITH_HOLES))
def test_a_document_with_holes_is_judged_and_gains_nothing(
    gone: set[str], scene: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A run that was killed, or is of another version: no crash, and no better verdict than the whole one."""
    whole = judged(SCENES[scene](), tmp_path_factory.mktemp("whole"))
    cases = without(SCENES[scene](), gone)
    verdict = judged(cases, tmp_path_factory.mktemp("holes")).verdict
    assert ORDER.index(verdict) <= ORDER.index(whole.verdict)


@pytest.mark.parametrize("gone", ["metrics", "counts", "plan", "plan.description.workload"])
@pytest.mark.parametrize("scene", WITH_HOLES)
def test_what_every_verdict_rests_on_must_be_there(gone: str, scene: str, tmp_path: Path) -> None:
    """Nothing recorded is nothing shown."""
    assert judged(without(SCENES[scene](), {gone}), tmp_path).verdict == NOT


def without(cases: Cases, gone: set[str]) -> Cases:
    """Every run.json without the parts at these dotted paths."""
    for level in cases.levels:
        for path in gone:
            part = level.manifest
            *before, last = path.split(".")
            for step in before:
                part = part.get(step) or {}
            part.pop(last, None)
    return cases


def test_a_run_that_was_killed_has_rows_in_flight(tmp_path: Path) -> None:
    """Incomplete, so not compliant, and judged all the same."""
    cases = plain()
    cases.run.rows["t_end"][-5:] = 0
    cases.run.rows["status"][-5:] = 1
    cut = replace(cases.run.run(tmp_path), incomplete=True)
    judgement = judge(ComplianceEvidence(tmp_path, (MeasuredRun(cut),)))
    assert judgement.verdict == NOT
    assert np.count_nonzero(cut.rows["t_end"] == 0) == 5


@pytest.mark.parametrize("scene", ["plain", "closed", "ttft", "itl", "fairness", "cold"])
def test_a_run_that_sent_nothing(scene: str, tmp_path: Path) -> None:
    """No rows, no figures: judged without a trace, and not compliant."""
    cases = SCENES[scene]()
    for level in cases.levels:
        level.rows, level.events = level.rows[:0], level.events[:0]
        level.remeasured()
    assert judged(cases, tmp_path).verdict == NOT


@pytest.mark.parametrize("scene", ["plain", "closed", "throughput"])
def test_a_run_of_which_everything_failed(scene: str, tmp_path: Path) -> None:
    """Refused at the connection: no time of a token, and not compliant."""
    cases = SCENES[scene]()
    for level in cases.levels:
        rows, level.events = level.rows, level.events[:0]
        for name in ("t_submit", "t_headers", "t_first", "t_last", "t_any", "content_events", "events", "flags"):
            rows[name] = 0
        rows["status"], rows["completion_tokens"], rows["prompt_tokens"] = layout.CONNECTION_ERROR, -1, -1
        level.remeasured()
    assert judged(cases, tmp_path).verdict == NOT


def test_a_level_that_was_measured_again_replaces_its_first_trial(tmp_path: Path) -> None:
    """The first try was too short: what the test asks of a level, it asks of the last."""
    cases = SCENES["itl"]()
    first, *others = cases.levels
    again = first.copy()
    first.name, again.name = "0.25 per second, 10 requests", "0.25 per second, 100 requests"
    first.rows["output_target"] = 20
    cases.levels = [first, again, *others]
    evidence = cases.evidence(tmp_path)
    assert evidence.levels[0].name == again.name and len(evidence.levels) == len(others) + 1
    assert state(judge(evidence), "IETF-5.4.2-b") == TRUE


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_events_in_pieces_are_the_whole(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, first and last times do not depend on where a piece ends; an event out of order is seen across it."""
    run = plain(40).run.run(tmp_path)
    whole = content_events(run)
    monkeypatch.setattr("fastllmload.compliance.evidence.PIECE", piece)
    parts = content_events(run)
    for name in ("count", "first", "last"):
        assert (getattr(parts, name) == getattr(whole, name)).all()
    assert whole.ascending and parts.ascending
    run.events["t_ns"][7] -= 10**9
    assert not content_events(run).ascending
