"""A real short run: what its rows show is judged true, and what it lacks is named. Nothing here depends on speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastllmload.cli.main import main
from fastllmload.compliance.evidence import read
from fastllmload.compliance.outcome import FALSE, TRUE
from fastllmload.compliance.verdict import judge
from fastllmload.records.run import read_stored

# What the recorder, the plan and the document show of any run of ours, on a host however slow.
SEEN = (
    "IETF-4.2.1-a", "IETF-4.2.1-b", "IETF-4.2.2-a", "IETF-4.2.2-b", "IETF-4.2.6-a", "IETF-4.2.6-b", "IETF-4.2.6-c",
    "IETF-4.2.6-d", "IETF-4.2.6-e", "IETF-4.2.6-f", "IETF-4.2.6-g", "IETF-4.3.1-a", "IETF-4.3.1-f", "IETF-4.3.3-a",
    "IETF-4.3.3-b", "IETF-4.3.3-c", "IETF-4.5.1-c", "IETF-4.6.2-a", "IETF-4.6.2-b", "IETF-4.6.3-f", "IETF-4.7.4-b",
)  # fmt: skip
OPEN, CLOSED = ("IETF-4.2.3-a", "IETF-4.2.3-b"), ("IETF-4.2.4-a",)


@pytest.mark.parametrize(("load", "more"), [(("--rate", "30"), OPEN), (("--concurrency", "4"), CLOSED)])
def test_a_run_shows_what_it_does(load: tuple[str, str], more: tuple[str, ...], tmp_path: Path) -> None:
    """Rows, schedule, lengths and seed agree; the verdict in run.json is that of the command."""
    folder = tmp_path / "run"
    assert main([*load, "-n", "40", "--warmup", "5", "-o", str(folder), "--ui", "none"]) == 0
    judgement = judge(read(folder))
    states = {found.requirement.id: found.outcome for found in judgement.findings}
    assert {name: states[name] for name in (*SEEN, *more) if states[name].state != TRUE} == {}
    judged = read_stored(folder)[0]["compliance"]
    assert judged["verdict"] == judgement.verdict == "not compliant"
    assert "IETF-4.5.1-b" in judged["must"]["false"]
    assert main(["compliance", str(folder)]) == 1


def test_a_plain_run_does_not_pass_for_one_with_a_warm_cache(tmp_path: Path) -> None:
    """Its warm-up has prefixes of its own: the first request of each measured prefix finds nothing in the cache."""
    folder = tmp_path / "run"
    words = ["--concurrency", "1", "-n", "12", "--warmup", "8", "--isl", "16", "--osl", "2", "--prefix-len", "64"]
    words += ["--num-prefixes", "2", "--declare", "prefix_cache.state=warm", "--declare", "prefix_cache.enabled=yes"]
    engine = ["--simulate", "set.prefix_cache=true", "--simulate", "set.step_ms=1"]
    assert main([*words, *engine, "-o", str(folder), "--ui", "none"]) == 0
    found = {each.requirement.id: each.outcome for each in judge(read(folder)).findings}["IETF-4.5.1-d"]
    assert found.state == FALSE and "2 of 12 requests" in found.reason
