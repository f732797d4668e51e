"""Which of several URLs failed: counts per URL agree with those of the run."""

from __future__ import annotations

from test_metrics_run_blocks import run_of

from fastllmload.metrics.public import measure
from fastllmload.records import layout

URLS = {"target": {"urls": ["http://a:1", "http://b:2", "http://c:3"]}}
REFUSED = layout.ERROR_NAMES.index("connect_refused")


def test_each_url_has_its_own_counts_and_errors() -> None:
    """a answers, b refuses, c is never reached: what was not sent went nowhere, what is in flight has not failed."""
    run = run_of([10.0, 0.0, 10.0, 0.0, 10.0, 10.0], manifest=URLS, url=[0, 1, 0, 1, 1, 0])
    run.rows["status"][3], run.rows["error"][3] = layout.CONNECTION_ERROR, REFUSED
    run.rows["status"][4] = layout.IN_FLIGHT
    run.rows["status"][5] = layout.NOT_SENT
    found = measure(run)
    a, b, c = found["by_target"]
    assert [a["url"], b["url"], c["url"]] == URLS["target"]["urls"]
    assert a == {"url": "http://a:1", "dispatched": 2, "ok": 2, "failed": 0, "errors": []}
    assert (b["dispatched"], b["ok"], b["failed"]) == (3, 0, 2)
    assert {(each["status"], each["error"]) for each in b["errors"]} == {
        ("timeout", None), ("connection_error", "connect_refused")
    }  # fmt: skip
    assert (c["dispatched"], c["failed"], c["errors"]) == (0, 0, [])
    for key in ("dispatched", "ok", "failed"):
        assert sum(each[key] for each in found["by_target"]) == found["counts"][key]


def test_one_url_needs_no_table_of_its_own() -> None:
    assert measure(run_of([10.0], manifest={"target": {"urls": ["http://a:1"]}}))["by_target"] == []
    assert measure(run_of([10.0]))["by_target"] == []


def test_a_user_who_left_by_plan_does_not_count_as_a_failure_of_the_url() -> None:
    run = run_of([10.0, 0.0], manifest=URLS, url=[0, 1])
    run.rows["status"][1], run.rows["error"][1] = layout.CANCELLED, layout.CLIENT_CANCELLED
    run.rows["client"][1] = layout.CLIENT_CANCELS
    found = measure(run)
    assert [each["failed"] for each in found["by_target"]] == [0, 0, 0] and found["counts"]["failed"] == 0
