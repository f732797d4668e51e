"""What the summary and report.md say of sessions."""

from __future__ import annotations

from fastllmload.documents.metric import Distribution
from fastllmload.documents.run_parts.sessions import BlockHits, CallGroup, PathShares, SessionFigures
from fastllmload.report.documents.traffic import sessions
from fastllmload.report.text.traffic import session_texts

FOUND = SessionFigures(
    begun=4, completed=3, failed=1, unfinished=0, completed_per_s=0.5, met=2, goodput=0.25,
    makespan=Distribution(unit="ms", n=3, mean=150.0, p50=140.0, p90=190.0, p99=200.0, max=200.0),
    first_action=Distribution(unit="ms", n=3, mean=41.0, p50=40.0, p99=52.5, max=52.5),
    calls=Distribution(unit="calls", n=3, mean=4.5), agents=Distribution(unit="agents", n=3, mean=2.0),
    critical_path=PathShares(prefill=0.25, decode=0.5, tool=0.25, user=0.0, agent=0.0, unknown=0.0, client=0.0001),
    turns=(CallGroup(number=0, requests=3), CallGroup(number=1, requests=3)),
    depths=(CallGroup(number=0, requests=4), CallGroup(number=1, requests=2)),
    cache=BlockHits(requests=6, ideal=0.5, ideal_at_send=0.45, achieved=0.4), caveat="the run is short",
)  # fmt: skip


def test_the_summary_of_sessions_fits_its_lines() -> None:
    """80 columns, less the label; parts of the path that took no time are left out."""
    texts = session_texts(FOUND)
    assert texts == [
        "3 of 4 completed (0.5000/s), 1 failed, 0 cut off",
        "2 met all objectives in every call (0.2500/s)",
        "makespan p50 140.0, p99 200.0* ms; 4.500 calls and 2.000 agents each",
        "first action p50 40.00, p99 52.50* ms",
        "chain: prefill 25.0 %, decode 50.0 %, tool 25.0 %",
        "cached 40.0 % of prompts, 45.0 % possible when sent, 50.0 % ideal",
    ]
    assert max(map(len, texts)) <= 69


def test_the_report_has_a_table_of_sessions_and_of_calls_by_turn_and_depth() -> None:
    of_sessions, by_turn, by_depth = sessions(FOUND)
    assert [row[0] for row in of_sessions.rows] == [
        "makespan (ms)", "time to first action (ms)", "calls", "agents"
    ]  # fmt: skip
    assert "the run is short." in of_sessions.notes
    assert [row[0] for row in by_turn.rows] == ["1", "2"] and [row[0] for row in by_depth.rows] == ["0", "1"]
