"""Classes of a mix that begin with sessions under way, by the plan and the log of the simulated engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agentic_traces import BLOCK, growing, write_trace
from truth.truth_bench import measure

from fastllmload.certificate.run_evidence import not_arrived
from fastllmload.plan.plan import Plan
from fastllmload.records.layout import OK
from fastllmload.workload.traces.formats import read_call_graph
from fastllmload.workload.underway import AFTER_ALL_NS, read_start, under_way

ENGINE: dict[str, Any] = {"overrides": (("step_ms", "1"), ("block_size", str(BLOCK)), ("kv_blocks", "1048576"))}
IDS = "endpoint-type=openai-completions prompt-form=ids session-start=stationary"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_classes_begin_with_sessions_of_their_own(tmp_path: Path, workers: str) -> None:
    """Each class begins as its own plan says: slots with the rest of their sessions, at the planned instants; arrivals among
    sessions that came before. Both find in the cache what their own part of the warm-up sent, which is not counted, and
    the third class is as without the option.
    """
    trees, lines = tmp_path / "trees.jsonl", tmp_path / "lines.jsonl"
    write_trace(trees, 40, seed=3)
    growing(lines, 60, seed=2)
    classes = [
        f"tools concurrency=6 workload=agentic-mooncake dataset-path={trees} {IDS}",
        f"flow rate=15 workload=graph dataset-path={lines} {IDS}",
        "chat rate=20 isl=20 osl=4",
    ]
    options = ["--duration", "2.5", "--seed", "7", "--warmup", "12", "--workers", workers]
    found = measure(
        tmp_path / "m",
        [*options, *(word for one in classes for word in ("--class", one))],
        pin=workers == "1",
        **ENGINE,
    )
    plan = Plan.read_record(found.run.directory / "plan")
    assert plan.calls is not None and plan.t_sched is not None and plan.turns is not None
    ours, theirs = found.joined()
    tools, flow, chat = (ours["request_class"] == number for number in range(3))
    assert (ours["status"][flow | chat] == OK).all() and len(ours) == len(theirs)

    first = np.flatnonzero(np.diff(plan.calls["session"].astype(np.int64), prepend=-1))
    under, of_class = plan.under_way, plan.request_class
    kept = first[of_class[first] == 0][:6]
    assert set(under[of_class[under] == 0]) <= set(kept) and (of_class[under] < 2).all()
    assert (plan.calls["turn"][kept] > 0).any() and (of_class[under] == 1).sum() > 3
    begun = ours[flow & (plan.t_sched[ours["request"] % plan.requests] >= 0)]
    zero = int(begun["t_sched"][0] - plan.t_sched[begun["request"][0]])
    assert (begun["t_sched"] - zero == plan.t_sched[begun["request"]]).all()
    mine = ours[np.isin(ours["request"], kept)]
    assert len(mine) == 6, "every slot begins with a session of its own"
    graph = read_call_graph("agentic-mooncake", trees)
    wanted = under_way(graph, read_start("stationary"), 6, 40, 1.0, "7/class/tools/start")
    left = np.where(wanted.due_ns < 0, AFTER_ALL_NS, wanted.due_ns)
    due = np.minimum.reduceat(left, wanted.graph.first_call[:-1])[:6]
    assert (mine["t_sched"] - zero == due).all() and due[-1] > due[0]
    again = ours["request"] >= plan.requests
    assert again.any() and not np.isin(ours["request"][again] % plan.requests, kept).any(), "rests are not repeated"

    arrived = ~not_arrived(found.run, ours)
    assert set(ours["request"][arrived & flow]) == set(first[of_class[first] == 1]) - set(under)
    for number, chosen in ((0, tools), (1, flow)):
        facts = plan.description.classes[number].workload
        assert facts is not None and facts.sessions is not None and facts.sessions.calls_before
        chosen = chosen & ~again
        ideal = plan.calls["ideal_tokens"][ours["request"][chosen]]
        cached = theirs["cached_tokens"][chosen].astype(np.int64)
        assert (cached == ideal).mean() > 0.95
        assert abs(int(cached.sum()) / int(ideal.sum()) - 1) < 0.005
    stated = plan.description.classes[1].workload.sessions.ideal  # type: ignore[union-attr]
    assert stated is not None and stated.whole_block_share == pytest.approx(
        theirs["cached_tokens"][flow].sum() / theirs["prompt_tokens"][flow].sum(), rel=0.005
    )
    assert not theirs["cached_tokens"][chat].any()
