"""Classes with protocols and targets of their own: each server saw exactly the requests of its class, as it speaks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording_relay import Recorded, relayed
from refusals import raises_code

import fastllmload
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_table
from fastllmload.plan.archive import save_plan
from fastllmload.plan.classes import build_classes
from fastllmload.records.layout import MEASURE, OK
from fastllmload.redact import Redactor
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

QUICK = (("step_ms", "1"),)
MODELS = ("first", "second", "third")


@pytest.fixture
def servers() -> Iterator[list[Recorded]]:
    """Three engines, each with a model of its own."""
    with ExitStack() as stack:
        found = []
        for model in MODELS:
            engine = stack.enter_context(SimulatorProcess(SimulatorOptions(model=model, overrides=QUICK)))
            found.append(stack.enter_context(relayed(engine.url)))
        yield found


def classes(servers: list[Recorded]) -> list[dict[str, Any]]:
    _, second, third = (server.url for server in servers)
    return [
        {"name": "chat", "rate": 20, "turns": "2-3", "isl": 12, "osl": 4},
        {"name": "text", "rate": 20, "turns": 3, "isl": 10, "osl": 3, "endpoint-type": "completions", "url": second},
        {"name": "more", "rate": 20, "isl": 9, "osl": 5, "endpoint-type": "ollama-chat", "url": third},
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_each_class_goes_to_its_targets_in_its_protocol(tmp_path: Path, servers: list[Recorded], workers: int) -> None:
    """Every body arrives once, at a target of its class, at the path of its protocol, and names the model served there;
    every answer is read whole; turns of a conversation stay at one target and carry what it said.
    """
    run = fastllmload.run(
        **{"class": classes(servers)}, url=servers[0].url, num_requests=36, warmup=3, workers=workers, seed=4,
        output=str(tmp_path / "run"),
    )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all()
    assert (rows["completion_tokens"] == rows["output_target"]).all()
    number = run.manifest["phases"][-1]["number"]
    paths = ("/v1/chat/completions", "/v1/completions", "/api/chat")
    for kind, server in enumerate(servers):
        mine = {int(row["request"]) for row in rows[rows["request_class"] == kind]}
        got = {key[1]: path for key, path in server.paths.items() if key[0] == number}
        assert set(got) == mine and len(mine) > 5 and set(got.values()) == {paths[kind]}
        named = {json.loads(server.said[number, request][0])["model"] for request in mine}
        assert {name.removesuffix(":latest") for name in named} == {MODELS[kind]}  # Ollama lists its models with a tag
        assert set(rows["url"][rows["request_class"] == kind].tolist()) == {kind}
    text = rows[rows["request_class"] == 1]
    for request in text[text["turn"] == 1]["request"].tolist():
        asked, answer = servers[1].said[number, request - 1]
        events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
        reply = "".join(event["choices"][0]["text"] for event in events if event["choices"])
        after = json.loads(servers[1].said[number, request][0])["prompt"]
        assert after.startswith(json.loads(asked)["prompt"] + "\n" + reply + "\n")
    target = run.manifest["target"]
    assert target["urls"] == [server.url for server in servers]
    assert [one["model"].removesuffix(":latest") for one in target["classes"]] == list(MODELS)
    block = run.manifest["classes"]["text"]
    assert (block["endpoint_type"], block["urls"]) == ("openai-completions", [servers[1].url])


def test_several_targets_of_a_class_are_taken_in_turn(tmp_path: Path) -> None:
    """A class whose requests all have even numbers does not end at every second target."""
    with ExitStack() as stack:
        engines = [stack.enter_context(SimulatorProcess(SimulatorOptions(overrides=QUICK))) for _ in range(3)]
        urls = [engine.url for engine in engines]
        run = fastllmload.run(
            **{"class": [{"name": "a", "rate": 20, "isl": 5, "osl": 2, "arrival": "constant"},
                         {"name": "b", "rate": 20, "isl": 5, "osl": 2, "arrival": "constant", "url": urls[1:]}]},
            url=urls[0], duration=1, warmup=0, output=str(tmp_path / "run"),
        )  # fmt: skip
    rows = run.rows[run.rows["phase"] == MEASURE]
    counts = [np.bincount(rows["url"][rows["request_class"] == kind], minlength=3).tolist() for kind in (0, 1)]
    assert counts == [[20, 0, 0], [0, 10, 10]]


def test_a_plan_does_not_depend_on_where_a_class_goes(tmp_path: Path) -> None:
    """The digest is the same for another URL, and a replay that would send the class elsewhere is refused."""
    digests = set()
    with ExitStack() as stack:
        urls = [stack.enter_context(SimulatorProcess(SimulatorOptions(overrides=QUICK))).url for _ in range(3)]
        for url in urls[1:]:
            run = fastllmload.run(
                **{"class": [{"name": "a", "rate": 9, "isl": 5, "osl": 2},
                             {"name": "b", "rate": 9, "isl": 5, "osl": 2, "url": url}]},
                url=urls[0], num_requests=6, warmup=0, output=str(tmp_path / url[-5:]),
                save_plan=str(tmp_path / f"{url[-5:]}.plan"),
            )  # fmt: skip
            digests.add(run.manifest["plan"]["digest"])
        assert len(digests) == 1
        with raises_code("class-without-url", "'b'", "--plan"):
            fastllmload.run(url=urls[0], plan=str(tmp_path / f"{urls[1][-5:]}.plan"), output=str(tmp_path / "again"))


def test_a_plan_is_replayed_where_the_command_line_says(tmp_path: Path, servers: list[Recorded]) -> None:
    """A plan of classes with protocols and URLs of their own, planned for servers that are gone: the same bytes of each
    class arrive at the URLs given now, in its protocol, and so does its warm-up.
    """
    asked = [{**one, "url": "http://gone:1", "model": MODELS[number]} if "url" in one else {**one, "model": MODELS[0]}
             for number, one in enumerate(classes(servers))]  # fmt: skip
    settings, _ = read_settings(
        from_table({"class": asked, "num_requests": 24, "seed": 4, "url": "http://gone:1"}, "", ""), {}, Redactor([])
    )
    plan = build_classes(settings, phase="measure", model=MODELS[0], out_dir=tmp_path / "p")
    save_plan(plan, tmp_path / "week.plan")
    run = fastllmload.run(
        **{"class": [{"name": "text", "url": servers[1].url}, {"name": "more", "url": servers[2].url}]},
        plan=str(tmp_path / "week.plan"), url=servers[0].url, warmup=6, output=str(tmp_path / "run"),
    )  # fmt: skip
    assert run.manifest["plan"]["digest"] == plan.digest
    rows = run.rows[run.rows["phase"] == MEASURE]
    assert (rows["status"] == OK).all() and len(rows) == plan.requests
    number = run.manifest["phases"][-1]["number"]
    whole = [row["request"] for row in rows if row["turn"] == 0]
    for request in whole:
        kind = int(plan.request_class[request])
        assert servers[kind].said[number, request][0] == plan.body(request)
        assert servers[kind].paths[number, request] == ("/v1/chat/completions", "/v1/completions", "/api/chat")[kind]
    assert all(any(key[0] == 0 for key in server.paths) for server in servers)
