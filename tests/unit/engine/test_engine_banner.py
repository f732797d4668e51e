"""Notes on a plan before it is sent: deviations from the standard workload, prompts without their exact length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import code_of, codes

from fastllmload.documents.plan import PlanDescription, PlanDocument
from fastllmload.documents.read import convert
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.banner import arriving, plan_lines
from fastllmload.engine.run_plans import Plans
from fastllmload.plan.build import build_plan
from fastllmload.settings import Load, RunSettings, Workload


def plan_notes(tmp_path: Path, share: float | None = None, **workload: str) -> list[str]:
    """The lines of a small plan; *share* replaces the share of prompts that have their length."""
    settings = RunSettings(load=Load(rate=10.0, num_requests=3, warmup_requests=1), workload=Workload(**workload))
    chat = ENDPOINTS["openai-chat"]
    built = [
        build_plan(settings, phase=phase, endpoint=chat, model="m", out_dir=tmp_path / phase)
        for phase in ("warmup", "measure")
    ]
    if share is not None:
        document = plain(built[1].document)
        document["description"]["workload"]["exact"]["share"] = share
        built[1] = replace(built[1], document=convert(document, PlanDocument))
    plans = Plans(*built)
    return plan_lines(settings.load, settings.client.seed, plans, 1, settings.session)


def test_a_standard_workload_needs_no_note(tmp_path: Path) -> None:
    assert "workload-not-standard" not in codes(plan_notes(tmp_path, prompt_form="text"))


def test_deviations_are_one_line(tmp_path: Path) -> None:
    (line,) = [line for line in plan_notes(tmp_path, isl="9") if code_of(line) == "workload-not-standard"]
    assert line.startswith("note: ") and "input lengths 9 instead of uniform:128,512; " in line


@pytest.mark.parametrize(("share", "noted"), [(0.9989, True), (0.999, False), (1.0, False)])
def test_prompts_without_their_exact_length(tmp_path: Path, share: float, noted: bool) -> None:
    """99.9 % are enough (spec/procedures 1.1); a smaller share is reported."""
    assert ("prompt-lengths-inexact" in codes(plan_notes(tmp_path, share))) is noted


@pytest.mark.parametrize(
    ("described", "what"),
    [
        ({}, "requests"),
        ({"conversations": {}}, "conversations"),
        ({"classes": [{"requests": 3}, {"requests": 5}]}, "requests"),
        ({"classes": [{"requests": 3, "conversations": {}}, {"requests": 0}]}, "conversations"),
        ({"classes": [{"requests": 3, "conversations": {}}, {"requests": 2}]}, "requests and conversations"),
    ],
)
def test_what_the_rate_counts(described: dict[str, Any], what: str) -> None:
    assert arriving(convert(described, PlanDescription)) == what


@pytest.mark.parametrize("asked", [{"rate": 10.0}, {"concurrency": 3}])
def test_caps_are_named(tmp_path: Path, asked: dict[str, Any]) -> None:
    load = Load(num_requests=3, warmup_requests=0, max_prefill=2, **asked)
    chat = ENDPOINTS["openai-chat"]
    plan = build_plan(RunSettings(load=load), phase="measure", endpoint=chat, model="m", out_dir=tmp_path)
    lines = plan_lines(load, 1, Plans(plan, plan), 1, RunSettings().session)
    assert ", at most 2 waiting for a first token; " in lines[0]


def test_conversations_are_what_arrives(tmp_path: Path) -> None:
    line = plan_notes(tmp_path, turns="3")[0]
    assert line.startswith("load: open loop") and "poisson, 10 conversations/s; 9 requests" in line
