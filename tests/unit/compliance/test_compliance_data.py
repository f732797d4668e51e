"""The requirements as data: complete, unique, each bound to something that exists."""

from __future__ import annotations

import ast
import functools
import inspect
from collections import Counter
from pathlib import Path

import pytest
from compliance_scenes import plain

from fastllmload.compliance.applies import QUESTIONS
from fastllmload.compliance.checks import CHECKS
from fastllmload.compliance.requirement import Requirement, requirements
from fastllmload.declarations import STANDARD, by_key, workload_kind
from fastllmload.plan.standard import LENGTHS, OWN_TEXT
from fastllmload.workload.dataset import DATASETS
from fastllmload.workload.trace import TRACES

ROOT = Path(__file__).parents[3]
LEVELS = {"MUST": 103, "MUST NOT": 3, "REQUIRED": 7, "SHOULD": 19, "RECOMMENDED": 19, "MAY": 2, "DEFINITION": 500}
ALL = requirements()


def of(one: Requirement) -> str:
    return one.id


def test_all_653_are_there_once() -> None:
    """As many of each level as the sources have."""
    assert Counter(one.level for one in ALL) == LEVELS
    assert len({one.id for one in ALL}) == len(ALL) == 653


def test_nothing_is_without_a_check_a_declaration_or_a_proof() -> None:
    """653 of 653; what is only shown by a test of ours, or may, never decides a verdict by itself."""
    assert [one.id for one in ALL if not one.bound] == []
    only_shown = [one.id for one in ALL if one.shown_by and not (one.check or one.declare or one.metric or one.all_of)]
    decided = {one.id for one in ALL if one.in_verdict}
    assert decided.isdisjoint(only_shown)


@pytest.mark.parametrize("one", [one for one in ALL if one.check], ids=of)
def test_checks_exist_and_take_what_they_are_given(one: Requirement) -> None:
    """A name or a parameter that is wrong would show only when somebody needs it."""
    assert one.check in CHECKS
    signature = inspect.signature(CHECKS[one.check])
    signature.bind(None, **one.params)


@pytest.mark.parametrize("one", ALL, ids=of)
def test_conditions_ids_and_keys_exist(one: Requirement) -> None:
    """Every word of a condition, every id of a conjunction and every declaration is known."""
    assert one.applies
    assert {word.partition(" ")[0] for word in one.applies} <= set(QUESTIONS)
    assert set(one.all_of) <= {other.id for other in ALL}
    assert set(one.declare) <= set(by_key())
    assert one.statement.endswith(".")


@functools.cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("one", [one for one in ALL if one.shown_by], ids=of)
def test_proofs_exist(one: Requirement) -> None:
    """`shown_by` names a test function of this project."""
    assert one.shown_by is not None
    path, _, name = one.shown_by.partition("::")
    assert name.startswith("test_")
    assert name in functions(path), f"{path} has no {name}"


def test_metrics_exist() -> None:
    """Names of metrics are those that a run is measured by."""
    measured = plain().run.manifest["metrics"]
    named = {one.metric for one in ALL if one.metric} | {
        name for one in ALL for name in one.params.get("names", ()) if one.check in ("figures", "figures_there", "unit")
    }
    assert named <= set(measured), named - set(measured)


def test_declarations_of_the_table_are_asked_for_by_something() -> None:
    """A key that no requirement and no check reads would ask people for nothing."""
    read = {key for one in ALL for key in one.declare}
    read |= {value for one in ALL for value in one.params.values() if isinstance(value, str)}
    sources = "".join(path.read_text() for path in (ROOT / "src/fastllmload/compliance").rglob("*.py"))
    unread = {key for key in by_key() if key not in read and f'"{key}"' not in sources}
    dynamic = {key for key in by_key() if key.startswith(("tokenizer.", "workload.dataset."))}
    assert unread <= dynamic


def test_only_key_words_enter_a_verdict() -> None:
    """Statements in plain words, and those of sources that are no standard, decide nothing (IETF 2)."""
    for one in ALL:
        if one.in_verdict:
            assert one.basis in ("keyword", "governed") and one.id.startswith("IETF-")
            assert one.level in ("MUST", "MUST NOT", "REQUIRED", "SHOULD", "RECOMMENDED")


def test_no_metric_rates_the_quality_of_answers() -> None:
    """The methodology measures speed (IETF 3)."""
    words = ("accuracy", "quality", "correct", "bleu", "rouge", "perplexity")
    assert [name for name in plain().run.manifest["metrics"] if any(word in name for word in words)] == []


def test_the_standard_workloads_are_those_of_the_command_line() -> None:
    """Five by name, and the tool has each of them (IETF 4.3.2)."""
    assert len(STANDARD) == 5
    assert set(STANDARD) <= {*LENGTHS, *OWN_TEXT}


def test_every_workload_of_the_command_line_has_a_kind() -> None:
    """What a workload must declare hangs on it; a new one must not become a custom one unseen."""
    assert {workload_kind(name) for name in (*LENGTHS, *OWN_TEXT)} == {"standard"}
    assert {workload_kind(name) for name in TRACES} == {"trace"}
    assert {name: workload_kind(name) for name in DATASETS} == {
        "sharegpt": "dataset", "csv": "dataset", "custom": "custom", "batch": "custom",
    }  # fmt: skip
