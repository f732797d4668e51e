"""Every reason of a certificate has a remedy."""

from __future__ import annotations

from fastllmload.certificate.criteria import CRITERIA
from fastllmload.report.text.verdict import REMEDIES, REMEDY_OF_HOST, REMEDY_OF_TIMESTAMPS, remedy


def test_every_criterion_has_a_remedy_and_no_other() -> None:
    assert set(REMEDIES) == {criterion.code for criterion in CRITERIA} | {"uncertain_figure"}
    assert all(text.endswith(".") and len(text) < 120 for text in REMEDIES.values())


def test_host_causes_have_host_remedies() -> None:
    assert remedy("schedule_lag", "host") == REMEDY_OF_HOST
    assert remedy("host_steal", "host") == REMEDIES["host_steal"]


def test_timestamp_causes_have_the_timestamp_remedy() -> None:
    assert remedy("uncertain_figure", "timestamps") == REMEDY_OF_TIMESTAMPS and remedy("new", "timestamps") == ""


def test_an_unknown_code_has_no_remedy() -> None:
    assert remedy("of a later version") == remedy(None) == remedy("new", "host") == ""
