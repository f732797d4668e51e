"""The statements: complete, unique, in order, each with a way to be met."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from compliance_scenes import plain

from fastllmload.compliance.applies import CONDITIONS
from fastllmload.compliance.coverage import by_id, coverage, how_met, statements
from fastllmload.compliance.draft import STATEMENTS
from fastllmload.compliance.statement import AllOf, Statement
from fastllmload.declarations import STANDARD, by_key, workload_kind
from fastllmload.documents.procedure import FINDINGS, ProcedureDocument
from fastllmload.documents.read import fields, members
from fastllmload.documents.redaction import struct_of
from fastllmload.documents.run import RunDocument
from fastllmload.plan.standard import LENGTHS, OWN_TEXT
from fastllmload.settings import RunSettings
from fastllmload.workload.dataset import DATASETS
from fastllmload.workload.trace import TRACES

SOURCES = Path(__file__).parents[3] / "src/fastllmload"
LEVELS = {"MUST": 103, "MUST NOT": 3, "REQUIRED": 7, "SHOULD": 19, "RECOMMENDED": 19, "MAY": 2, "DEFINITION": 500}
ALL = statements()


def of(one: Statement) -> str:
    return one.id


def test_all_653_are_there_once() -> None:
    """As many of each level as the sources have."""
    assert Counter(one.level for one in ALL) == LEVELS
    assert len(by_id()) == len(ALL) == 653


def test_what_decides_a_verdict_is_code_in_the_order_of_the_draft() -> None:
    """144 statements; the others are rows of the coverage table, except for the advice on comparisons (IETF 6)."""
    assert sum(one.in_verdict for one in STATEMENTS) == sum(one.in_verdict for one in ALL) == 144
    assert [one.place for one in STATEMENTS] == sorted(one.place for one in STATEMENTS)
    assert all(one.in_verdict or one.id.startswith("IETF-6.") for one in STATEMENTS)
    assert [one.place for one in coverage()] == sorted(one.place for one in coverage())


@pytest.mark.parametrize("one", ALL, ids=of)
def test_conditions_and_parts_exist(one: Statement) -> None:
    """A typing error in the data must not make a statement vanish."""
    assert {word.partition(" ")[0] for word in one.applies} <= set(CONDITIONS)
    assert one.text.endswith(".")
    if isinstance(one.judged_by, AllOf):
        assert one.judged_by.ids and set(one.judged_by.ids) <= set(by_id())


@pytest.mark.parametrize("how", ["", "checked"])
def test_an_unknown_way_to_be_met_is_an_error(how: str) -> None:
    with pytest.raises(ValueError, match="is none of design, declared, judged, open"):
        how_met(how, "a reason")


def test_every_row_of_the_coverage_table_has_a_reason(tmp_path: Path) -> None:
    """Keys of declarations exist, and no row names a test."""
    rows = [line for line in (SOURCES / "compliance/coverage.csv").read_text(encoding="utf-8").splitlines() if line]
    assert len(rows) == len(coverage()) + 1
    assert not any("tests/" in row or "test_" in row for row in rows)
    evidence = plain(10).evidence(tmp_path)
    assert all(one.judged_by(evidence).reason for one in coverage() if not isinstance(one.judged_by, AllOf))


def has(kind: Any, path: Sequence[str]) -> bool:
    """Whether a value of *kind* may have the key *path*."""
    if not path:
        return True
    struct = struct_of(kind)
    if struct is not None:
        return path[0] in fields(struct) and has(fields(struct)[path[0]], path[1:])
    tables = [get_args(one)[1] for one in members(kind) if get_origin(one) is dict]
    lists = [get_args(one)[0] for one in members(kind) if get_origin(one) is tuple]
    return any(has(one, path[1:]) for one in tables) or any(has(one, path) for one in lists)


def test_keys_and_metrics_that_a_reason_names_exist() -> None:
    """A statement that is met by design says where; the place must be there."""
    measured = {*plain().run.manifest["metrics"], "power_w", "tok_s_per_w"}  # the last two with telemetry
    wrong = []
    with (SOURCES / "compliance/coverage.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["how"] == "design"]
    for row in rows:
        test = re.search(r"test ([\w-]+)", row["applies"])
        for key in re.findall(r"`([a-z_]+(?:\.[a-z0-9_]+)+)`", row["reason"]):
            head, *path = key.split(".")
            known = head == "findings" and test is not None and has(FINDINGS[test[1]], path)
            known |= head == "metrics" and path[0] in measured
            known |= head not in ("findings", "metrics") and any(
                has(kind, [head, *path]) for kind in (RunDocument, ProcedureDocument, RunSettings)
            )
            wrong += [] if known else [(row["id"], key)]
        for names in re.findall(r"the metrics? ([\w, ]+) of run\.json", row["reason"]):
            wrong += [(row["id"], name) for name in names.split(", ") if name not in measured]
    assert wrong == [] and len(rows) > 400


def test_declarations_of_the_table_are_asked_for_by_something() -> None:
    """A key that nothing reads would ask people for nothing."""
    code = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    table = (
        (SOURCES / "compliance/coverage.csv").read_text(encoding="utf-8").replace(",", " ").replace("=", " ").split()
    )
    unread = {key for key in by_key() if f'"{key}"' not in code and key not in table}
    dynamic = {key for key in by_key() if key.startswith(("tokenizer.", "workload.dataset."))}
    assert unread <= dynamic


def test_only_key_words_enter_a_verdict() -> None:
    """Statements in plain words, and those of sources other than a standard, decide nothing (IETF 2)."""
    for one in ALL:
        if one.in_verdict:
            assert one.basis in ("keyword", "governed") and one.of_draft
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
    """What a workload must declare depends on it; a new one must not become a custom one unseen."""
    assert {workload_kind(name) for name in (*LENGTHS, *OWN_TEXT)} == {"standard"}
    assert {workload_kind(name) for name in TRACES} == {"trace"}
    assert {name: workload_kind(name) for name in DATASETS} == {
        "sharegpt": "dataset", "csv": "dataset", "hf": "dataset", "custom": "custom", "batch": "custom",
        "text": "custom", "aiperf": "custom",
    }  # fmt: skip
