"""Whether systems got the same workload: one rule for `compliance --against` and `compare --systems` (IETF 6.1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_builder import Cases
from compliance_scenes import plain

from fastllmload.compare.checklist import unequal_systems
from fastllmload.compare.side import RunRecord, Side
from fastllmload.compliance.checks.comparison import same_boundary, same_load, same_requests, systems
from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import FALSE, TRUE, UNDECLARED


def bounded_by_time(system: str, number: int, requests: int) -> Cases:
    """Repetition *number*: its own arrivals, so a number of *requests* of its own from the one sequence."""
    found = plain().declare(sut__model__name=system)
    case = found.run
    stream = f"42/arrivals/{number}"
    for described in (case.manifest["plan"]["description"], case.plan["description"]):
        described["load"] = {**described["load"], "arrivals": {**described["load"]["arrivals"], "stream": stream}}
        described["requests"] = requests
    case.manifest["plan"]["digest"] = f"d{number}"
    case.planned = case.planned[:requests]
    return found


def evidence_of(folder: Path, runs: list[tuple[str, int]]) -> ComplianceEvidence:
    sizes = (154, 180, 174, 160)
    made = [bounded_by_time(system, number, sizes[number]) for system, number in runs]
    return Cases(made[0].levels, others=made[1:]).evidence(folder)


def by_compare(evidence: ComplianceEvidence) -> list[str]:
    """The same folders as `compare` has them."""
    return unequal_systems(
        [
            Side(str(k), tuple(RunRecord(run.run.directory, run.run.document) for one in side for run in one.runs))
            for k, side in enumerate(systems(evidence))
        ]
    )


THREE = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("runs", [THREE, THREE[::-1], THREE[:1] + THREE[3:4]])
def test_repetitions_of_unequal_length_are_of_one_workload(runs: list[tuple[str, int]], tmp_path: Path) -> None:
    """With --duration each draw of arrivals has another number of requests; the systems got the same ones."""
    evidence = evidence_of(tmp_path, runs)
    assert same_requests(evidence).state == same_load(evidence).state == TRUE
    assert by_compare(evidence) == []


@pytest.mark.parametrize(
    ("runs", "who", "words"),
    [
        ([("a", 0), ("b", 0), ("b", 1)], "other1", "arrivals 42/arrivals/1"),
        ([*THREE[:5], ("b", 3)], "other4", "'42/arrivals/2' in "),
    ],
)
def test_the_repetition_without_its_like_is_named(
    runs: list[tuple[str, int]], who: str, words: str, tmp_path: Path
) -> None:
    evidence = evidence_of(tmp_path, runs)
    outcome = same_requests(evidence)
    assert outcome.state == FALSE and who in outcome.reason and words in outcome.reason
    assert "--repetition" in outcome.remedy
    assert str(tmp_path / who) in same_load(evidence).reason
    assert any(who in sentence for sentence in by_compare(evidence))


@pytest.mark.parametrize(("change", "words"), [("lengths", "from number 7"), ("seed", "seeds 42 and 7")])
def test_repetitions_of_one_system_have_one_sequence(change: str, words: str, tmp_path: Path) -> None:
    """Systems that were both sent three unlike sequences were not sent the same requests three times."""
    made = [bounded_by_time(system, number, 150 + number) for system, number in THREE]
    for cases in (made[1], made[4]):
        if change == "lengths":
            cases.run.planned["input_tokens"][7] += 1
        else:
            cases.run.manifest["plan"]["description"]["seed"] = 7
    evidence = Cases(made[0].levels, others=made[1:]).evidence(tmp_path)
    outcome = same_requests(evidence)
    assert outcome.state == FALSE and words in outcome.reason
    assert any(words in sentence for sentence in by_compare(evidence))


def test_classes_may_mix_otherwise_in_each_repetition(tmp_path: Path) -> None:
    """Which class is next follows the instants; each class has its own requests in their order."""
    runs = [bounded_by_time(system, number, 20) for system, number in THREE]
    for k, cases in enumerate(runs):
        planned = cases.run.planned
        planned["request_class"] = [(j + k % 3) % 2 for j in range(20)]
        for number in (0, 1):
            chosen = planned["request_class"] == number
            planned["input_tokens"][chosen] = range(10 + 100 * number, 20 + 100 * number)
            planned["output_tokens"][chosen] = 8
    evidence = Cases(runs[0].levels, others=runs[1:]).evidence(tmp_path)
    assert same_requests(evidence).state == TRUE


def test_a_closed_loop_to_models_of_other_names_is_one_workload(tmp_path: Path) -> None:
    """It has no schedule; its requests are the same all the same."""
    runs = [bounded_by_time(system, 0, 100) for system in ("a", "b")]
    for name, cases in zip("ab", runs, strict=True):
        plan = cases.run.manifest["plan"]
        plan["digest"], plan["description"]["model"] = name * 64, name
    evidence = Cases(runs[0].levels, others=runs[1:]).evidence(tmp_path / "same")
    assert same_requests(evidence).state == TRUE
    runs[1].run.planned["output_tokens"][3] += 1
    evidence = Cases(runs[0].levels, others=runs[1:]).evidence(tmp_path / "other")
    assert same_requests(evidence).state == FALSE


def test_a_boundary_without_declaration_is_undeclared(tmp_path: Path) -> None:
    made = Cases(plain().levels, others=[plain()])
    made.others[0].undeclare("sut.boundary")
    outcome = same_boundary(made.evidence(tmp_path))
    assert outcome.state == UNDECLARED and "sut.boundary=" in outcome.remedy
