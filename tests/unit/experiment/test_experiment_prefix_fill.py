"""A prefix cache is filled with what measured requests share, and with nothing that only one of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.experiment.preparation.prefix_fill import filling, shared_prefixes
from fastllmload.plan.build import build_plan
from fastllmload.settings import Load, RunSettings, Workload

SHARED = {"name": "synthetic-uniform", "isl": "40", "osl": "8", "prefix_len": 60, "num_prefixes": 3}


def settings_of(**workload: Any) -> RunSettings:
    return RunSettings(load=Load(rate=10.0, num_requests=150), workload=Workload(**workload))


def prompts(settings: RunSettings, folder: Path) -> list[str]:
    plan = build_plan(settings, phase="measure", endpoint=ENDPOINTS["openai-chat"], model="m", out_dir=folder)
    bodies = [json.loads(plan.body(number)) for number in range(plan.requests)]
    return ["\n".join(message["content"] for message in body["messages"]) for body in bodies]


def alike(one: str, other: str) -> int:
    """Characters that both begin with."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize(
    ("workload", "least"),
    [
        ({**SHARED, "prefix_share": 0.6}, 150),
        ({**SHARED, "prefix_zipf": 1.2, "stream": "rate/5/0"}, 150),
    ],
)
def test_shared_prefixes_are_filled_and_no_complete_prompt(
    tmp_path: Path, workload: dict[str, Any], least: int
) -> None:
    """Every prefix that two measured requests share is in the filling; a prompt that shares nothing is not begun."""
    settings = settings_of(**workload)
    asked = filling(settings)
    assert asked is not None and asked.workload.osl == "1"
    measured, filled = prompts(settings, tmp_path / "measured"), sorted(prompts(asked, tmp_path / "filled"))

    begun = [max(alike(prompt, other) for other in filled) for prompt in measured]
    shared = [
        max(alike(prompt, other) for k, other in enumerate(measured) if k != number)
        for number, prompt in enumerate(measured)
    ]
    assert max(shared) >= least
    for prompt, found, own in zip(measured, begun, shared, strict=True):
        assert (
            found >= own - 12 if own >= least else found < least
        )  # text after the prefix may begin with the same words
        assert found < len(prompt)


def test_as_many_requests_as_the_rarest_prefix_needs() -> None:
    """One prefix of every request: one is enough. Code completion's tenth context is in 1.3 of 100 requests."""
    one = shared_prefixes(Workload(prefix_len=100))
    assert one is not None and one.requests == 1
    code = shared_prefixes(Workload(name="code-completion"))
    assert code is not None and code.rarest == pytest.approx(0.012679, abs=1e-6)
    assert 1 - (1 - code.rarest) ** code.requests > 0.99998


def test_what_a_file_or_a_conversation_shares_is_unknown() -> None:
    assert filling(settings_of(name="custom", dataset_path="x.jsonl")) is None
    assert filling(settings_of(prefix_len=50, turns="3")) is None
    assert filling(settings_of()) is None
