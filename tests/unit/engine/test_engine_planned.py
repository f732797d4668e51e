"""A replayed plan brings its own load, workload and model; what contradicts it is refused."""

import math

import msgspec
import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.planned import build_plans, settled
from fastllmload.errors import InputError
from fastllmload.plan.archive import save_plan
from fastllmload.plan.settings import Load, Output, RunSettings, Target, Workload

CHAT = ENDPOINTS["openai-chat"]
ASKED = Workload(isl="8", osl="4")


@pytest.fixture
def saved(tmp_path):
    """`saved(load)` gives the path of a saved plan and its digest."""

    def save(load):
        plans = build_plans(
            settled(RunSettings(load=load, workload=ASKED), CHAT, tmp_path), CHAT, "m", tmp_path / "made"
        )
        save_plan(plans.measure, tmp_path / "p.plan")
        return str(tmp_path / "p.plan"), plans.measure.digest

    return save


@pytest.mark.parametrize(
    ("load", "rate", "concurrency", "duration", "requests"),
    [
        (Load(rate=50.0, duration=1.0), 50.0, None, 1.0, None),
        (Load(rate=math.inf, num_requests=9), math.inf, None, None, 9),
        (Load(concurrency=3, num_requests=7), None, 3, None, 7),
        (Load(concurrency=3, duration=2.0), None, 3, 2.0, None),
    ],
)
def test_the_load_of_a_plan_comes_back(tmp_path, saved, load, rate, concurrency, duration, requests):
    file, digest = saved(load)
    replayed = settled(RunSettings(output=Output(plan=file)), CHAT, tmp_path / "work")
    found = replayed.settings
    assert (found.load.rate, found.load.concurrency) == (rate, concurrency)
    assert (found.load.duration, found.load.num_requests) == (duration, requests)
    assert found.target.model == "m" and found.workload.osl == "4"
    plans = build_plans(replayed, CHAT, "m", tmp_path / "work")
    assert plans.measure.digest == digest and plans.warmup.requests >= 100
    assert set(plans.warmup.output_tokens) == {4}


@pytest.mark.parametrize(
    ("target", "endpoint", "said"),
    [
        (Target(model="other"), "openai-chat", "names model 'm'"),
        (Target(), "openai-completions", "--endpoint-type openai-chat"),
    ],
)
def test_a_plan_that_does_not_fit_the_command_line_is_refused(tmp_path, saved, target, endpoint, said):
    file, _ = saved(Load(rate=50.0, num_requests=3))
    settings = msgspec.structs.replace(RunSettings(target=target), output=Output(plan=file))
    with pytest.raises(InputError, match=said):
        settled(settings, ENDPOINTS[endpoint], tmp_path / "work")
