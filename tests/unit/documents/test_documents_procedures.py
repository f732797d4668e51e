"""Documents of experiments: written and read again they are the same, and nothing that reveals a load is published."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from test_documents_redaction import canaries, example

from fastllmload.documents.experiment import ExperimentDocument, FindingTable, LevelEntry
from fastllmload.documents.fields import Reveals
from fastllmload.documents.procedure import FINDINGS, ProcedureDocument, RunsDocument, experiment_document
from fastllmload.documents.read import DocumentError
from fastllmload.documents.redaction import redacted_procedure
from fastllmload.documents.search import SearchDocument
from fastllmload.documents.sweep import SweepDocument
from fastllmload.documents.write import plain

HIDDEN = frozenset((Reveals.NAME, Reveals.ENGINE, Reveals.LOAD, Reveals.SENTENCE))


@pytest.mark.parametrize("kind", [ProcedureDocument, RunsDocument, SearchDocument, SweepDocument])
def test_an_empty_document_of_each_kind_is_read(kind: type[ExperimentDocument]) -> None:
    """As a folder of an earlier version, or one that was stopped at once, may have it."""
    assert experiment_document({}, kind) == kind()
    assert experiment_document(plain(kind()), kind) == kind()


@pytest.mark.parametrize("test", FINDINGS)
def test_findings_are_read_as_those_of_their_test(test: str) -> None:
    found = experiment_document({"procedure": test, "findings": {"unknown": 1}}, ProcedureDocument)
    assert type(found.findings) is FINDINGS[test]
    assert experiment_document(plain(found), ProcedureDocument) == found


def test_a_wrong_part_is_named() -> None:
    with pytest.raises(DocumentError, match=r"`levels\.0\.number`: expected int"):
        experiment_document({"levels": [{"number": "one"}]}, ProcedureDocument)
    with pytest.raises(DocumentError, match=r"in `findings`, `requests`: expected"):
        experiment_document({"procedure": "ttft", "findings": {"requests": {}}}, ProcedureDocument)


def test_keys_of_one_kind_of_experiment_are_written_only_where_they_have_a_value() -> None:
    assert "passes" not in plain(LevelEntry()) and plain(LevelEntry(passes=False))["passes"] is False
    assert plain(LevelEntry())["ttft_p99_ms"] is None
    assert "reveals" not in plain(FindingTable())


@pytest.mark.parametrize("test", FINDINGS)
def test_nothing_that_reveals_a_load_is_left_of_any_test(test: str) -> None:
    """A canary in every such field of the document and of the test's findings."""
    document: dict[str, Any] = example(ProcedureDocument, Reveals.NOTHING, HIDDEN)
    findings = example(FINDINGS[test], Reveals.NOTHING, HIDDEN)
    document |= {"procedure": test, "findings": findings, "public": []}
    assert len(list(canaries(document))) > 40
    assert list(canaries(redacted_procedure(document))) == []


def test_cells_are_withheld_by_column_and_by_row() -> None:
    kinds = (Reveals.NOTHING, Reveals.LOAD, Reveals.SHARE)
    rows = (("a", 918273, 0.123456), ("b", 0, None), ("c", 918273, 0.5))
    table = FindingTable(
        "t", "T", ("Name", "n", "share"), rows, ("of 918273", "known"), Reveals.NOTHING, kinds,
        (Reveals.NOTHING, Reveals.NOTHING, Reveals.LOAD),
    )  # fmt: skip
    document = plain(ProcedureDocument(procedure="itl", tables=(table,), public=("known",)))
    (kept,) = redacted_procedure(document)["tables"]
    assert kept["rows"] == [["a", "withheld", 0.123], ["b", 0, None], ["c", "withheld", "withheld"]]
    assert kept["notes"] == ["known"]
    undeclared = msgspec.structs.replace(table, reveals=None)
    assert redacted_procedure({**document, "tables": [plain(undeclared)]})["tables"] == []


def test_a_sentence_is_published_only_if_it_is_declared_public() -> None:
    texts = ("knee at 918273", "gaps are pooled with option direct")
    document = ProcedureDocument(procedure="itl", sentences=texts, warnings=texts, deviations=texts, public=texts[1:])
    shown = redacted_procedure(plain(document))
    assert shown["sentences"] == [texts[1]] and shown["warnings"] == shown["deviations"]
    assert shown["warnings"][0] == texts[1] and "918273" not in json.dumps(shown)
