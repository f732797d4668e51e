"""Several models in one plan: drawn by their law, for sessions as a whole, and without any change of the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fastllmload.documents.plan import ModelPlan
from fastllmload.endpoint import ENDPOINTS
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.build import build_plan
from fastllmload.plan.classes import build_classes
from fastllmload.plan.models import shares
from fastllmload.plan.plan import Plan
from fastllmload.settings import Load, RunSettings, Target, TrafficClass, Workload

MODELS = (("base", 5.0), ("org/a-longer-name", 3.0), ('q"uote', 1.0))
NAMES = [name for name, _ in MODELS]


def settings_with(
    models: tuple[tuple[str, float], ...] = MODELS, zipf: float | None = None, **workload: Any
) -> RunSettings:
    target = Target(model=models[0][0] if models else "base", models=models, model_zipf=zipf)
    chosen = {"isl": "4", "osl": "uniform:1,9", "tokenizer": "none"} | workload
    return RunSettings(target=target, load=Load(rate=200.0, duration=5.0), workload=Workload(**chosen))


def build(settings: RunSettings, folder: Path, endpoint: str = "openai-chat", phase: str = "measure") -> Plan:
    return build_plan(settings, phase=phase, endpoint=ENDPOINTS[endpoint], model="base", out_dir=folder)


def named(plan: Plan) -> list[str]:
    return [json.loads(plan.body(i))["model"] for i in range(plan.requests)]


def without_name(plan: Plan, request: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(plan.body(request))
    del body["model"]
    return body


@pytest.mark.parametrize(
    "workload", [{}, {"turns": "uniform:1,4", "think_time": "0.5"}, {"turns": "3", "history": "planned"}]
)
@pytest.mark.parametrize("endpoint", ["openai-chat", "openai-completions", "ollama-chat"])
def test_nothing_but_the_name_differs(tmp_path: Path, workload: dict[str, Any], endpoint: str) -> None:
    """Instants, lengths and bodies are those of the plan with one model; only `model` in the bodies is another."""
    one = build(settings_with((), **workload), tmp_path / "one", endpoint)
    several = build(settings_with(**workload), tmp_path / "several", endpoint)
    for name in ("t_sched", "input_tokens", "output_tokens", "request_class"):
        assert np.array_equal(getattr(one, name), getattr(several, name))
    assert [without_name(one, i) for i in range(one.requests)] == [
        without_name(several, i) for i in range(several.requests)
    ]
    assert several.request_model is not None
    assert named(several) == [NAMES[number] for number in several.request_model]
    several.verify()


def test_turns_stay_with_the_model_of_their_conversation(tmp_path: Path) -> None:
    """And what a worker skips of a later turn's body still ends in front of its first message."""
    plan = build(settings_with(turns="uniform:2,5", tool_turns=0.5), tmp_path)
    assert plan.turns is not None and plan.request_model is not None
    of_session: dict[int, set[int]] = {}
    for turn, number in zip(plan.turns, plan.request_model.tolist(), strict=True):
        of_session.setdefault(int(turn["session"]), set()).add(number)
    assert {len(each) for each in of_session.values()} == {1} and set().union(*of_session.values()) == {0, 1, 2}
    for i, turn in enumerate(plan.turns):
        body = plan.body(i)
        assert body[: int(turn["skip"])].endswith(b'"messages":[')
        if turn["reply_at"]:
            assert body[int(turn["reply_at"]) - 1 : int(turn["reply_at"]) + 1] == b'""'


@pytest.mark.parametrize("zipf", [None, 0.0, 1.2])
def test_draws_follow_the_law(tmp_path: Path, zipf: float | None) -> None:
    """Chi-square of 20,000 draws below its 99.9th percentile (2 degrees of freedom: 13.8); the shares are the law's."""
    models = MODELS if zipf is None else tuple((name, 1.0) for name in NAMES)
    settings = settings_with(models, zipf)
    weights = [weight for _, weight in models] if zipf is None else [(k + 1) ** -zipf for k in range(3)]
    assert shares(settings.target) == pytest.approx([weight / sum(weights) for weight in weights])
    settings = msgspec.structs.replace(settings, load=Load(rate=math.inf, num_requests=20_000))
    plan = build(settings, tmp_path)
    counts = np.array([one.starts for one in plan.description.models])
    expected = np.array(weights) / sum(weights) * 20_000
    assert counts.sum() == 20_000 and float(((counts - expected) ** 2 / expected).sum()) < 13.8
    assert np.bincount(np.asarray(plan.request_model)).tolist() == counts.tolist()


@pytest.mark.parametrize("workload", [{}, {"turns": "uniform:1,4"}])
def test_round_robin_gives_models_in_turn(tmp_path: Path, workload: dict[str, Any]) -> None:
    """Session k has model k of the list, modulo its length; all of its turns have it."""
    settings = settings_with(tuple((name, 1.0) for name in NAMES), **workload)
    target = msgspec.structs.replace(settings.target, model_order="round-robin")
    plan = build(msgspec.structs.replace(settings, target=target), tmp_path)
    sessions = range(plan.requests) if plan.turns is None else plan.turns["session"].tolist()
    assert named(plan) == [NAMES[session % 3] for session in sessions] and len(set(sessions)) > 300
    starts = [one.starts for one in plan.description.models]
    assert sum(starts) == len(set(sessions)) and max(starts) - min(starts) <= 1


def test_blocks_of_a_trace_keep_their_bytes(tmp_path: Path) -> None:
    """Bodies of pieces: each session names its model, the rest is the plan's with one model."""
    rows = [
        {"timestamp": 100 * n, "session_id": f"s{n % 9}", "input_length": 512 * (1 + n // 9), "output_length": 3,
         "hash_ids": [1000 * (n % 9) + k for k in range(1 + n // 9)]} for n in range(27)
    ]  # fmt: skip
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traced = {"name": "mooncake", "dataset_path": str(path), "isl": None, "osl": None, "tokenizer": "cl100k_base"}
    load = Load(rate=50.0, num_requests=9)
    plans = [
        build(msgspec.structs.replace(settings_with(models, **traced), load=load), tmp_path / f"{len(models)}")
        for models in ((), MODELS)
    ]
    one, several = plans
    assert several.pieces is not None and several.turns is not None and several.request_model is not None
    assert [without_name(one, i) for i in range(27)] == [without_name(several, i) for i in range(27)]
    assert named(several) == [NAMES[number] for number in several.request_model]
    by_session = {int(s): {named(several)[i] for i in np.flatnonzero(several.turns["session"] == s)} for s in range(9)}
    assert {len(each) for each in by_session.values()} == {1} and len(set(named(several))) > 1


def traffic(name: str, **more: Any) -> TrafficClass:
    workload = Workload(isl="4", tokenizer="none")
    return TrafficClass(name=name, load=Load(rate=40.0, duration=5.0), workload=workload, **more)


def test_classes_have_their_own_models(tmp_path: Path) -> None:
    """A class's list, its single model, and one table of all of them; draws of one class do not depend on the other."""
    several, single = traffic("chat", model="base", models=MODELS), traffic("batch", model="big")
    settings = RunSettings(load=Load(rate=80.0, duration=5.0), workload=Workload(tokenizer="none"))

    def build_of(*classes: TrafficClass) -> Plan:
        folder = tmp_path / f"{len(classes)}"
        chosen = msgspec.structs.replace(settings, classes=classes)
        return build_classes(chosen, phase="measure", model="base", out_dir=folder)

    both, alone = build_of(several, single), build_of(several)
    table = [str(one.name) for one in both.description.models]
    assert table == [*NAMES, "big"]
    assert both.request_model is not None and [table[n] for n in both.request_model] == named(both)
    chat = np.flatnonzero(np.asarray(both.request_class) == 0)
    assert [named(both)[i] for i in chat] == named(alone)
    totals = {one.name: one.requests for one in both.description.models}
    assert totals == {name: named(both).count(name) for name in table}
    asked = [float(one.share or 0) for one in both.description.models]  # type: ignore[arg-type]
    of_chat = len(chat) / both.requests
    assert asked == pytest.approx([share * of_chat for share in shares(settings_with().target)] + [1 - of_chat])


def test_a_saved_plan_keeps_them(tmp_path: Path) -> None:
    plan = build(settings_with(), tmp_path / "plan")
    save_plan(plan, tmp_path / "file.plan")
    again = load_plan(tmp_path / "file.plan", tmp_path / "again")
    assert np.array_equal(np.asarray(again.request_model), np.asarray(plan.request_model))
    assert again.description.models == plan.description.models and isinstance(plan.description.models[0], ModelPlan)
    plan.write_record(tmp_path / "record")
    assert np.array_equal(
        np.asarray(Plan.read_record(tmp_path / "record").request_model), np.asarray(plan.request_model)
    )


def test_the_warmup_has_draws_of_its_own(tmp_path: Path) -> None:
    warm = build(settings_with(), tmp_path / "warm", phase="warmup")
    measured = build(settings_with(), tmp_path / "measure")
    few = min(warm.requests, measured.requests)
    assert named(warm)[:few] != named(measured)[:few] and set(named(warm)) == set(NAMES)
