"""Files of inference-perf: stages, distributions of lengths, modes, sweeps, traces and chats of users."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.cli.compat.translate import Translation, translations

STAGES = "load: {type: constant, interval: 7, stages: [{rate: 2, duration: 30}, {rate: 4, duration: 30}]}\n"
SERVER = "server: {type: vllm, model_name: m, base_url: 'http://h:1'}\napi: {type: completion, streaming: true}\n"


def translated(tmp_path: Path, *parts: str) -> Translation:
    file = tmp_path / "config.yml"
    file.write_text("\n".join((SERVER, *parts)))
    (found,) = translations(("inference-perf", "-c", str(file)), {})
    return found


def options(found: Translation) -> dict[str, str]:
    (command,) = found.commands
    return {word: command[at + 1] for at, word in enumerate(command[:-1]) if word.startswith("--")}


def changes(found: Translation) -> list[str]:
    return [lack.option for lack in found.lacks if lack.kind == "changes"]


@pytest.mark.parametrize(
    ("given", "written"),
    [("{type: fixed, mean: 70.9}", "70"), ("{type: uniform, min: 10, max: 90}", "uniform:10,90"),
     ("{mean: 50, std_dev: 10, min: 20, max: 80}", "normal:50,10,20,80"), ("{mean: 50, std: 0, min: 60, max: 80}", "60"),
     ("{mean: 50, variance: 25, std_dev: 0, min: 20, max: 80}", "normal:50,5,20,80"), ("{mean: 9, min: 64, max: 64}", "64")],
)  # fmt: skip
def test_distributions_of_lengths(given: str, written: str, tmp_path: Path) -> None:
    found = translated(tmp_path, STAGES, f"data: {{type: random, input_distribution: {given}}}")
    assert options(found)["--isl"] == written and options(found)["--osl"] == "normal:512,200,10,1024"


def test_a_lognormal_has_the_mean_and_the_spread(tmp_path: Path) -> None:
    data = "data: {type: synthetic, output_distribution: {type: lognormal, mean: 150, std_dev: 60, min: 0, max: 4096}}"
    text = options(translated(tmp_path, STAGES, data))["--osl"]
    mu, sigma, low, high = (float(part) for part in text.removeprefix("lognormal:").split(","))
    assert (low, high) == (1, 4096) and math.exp(mu + sigma**2 / 2) == pytest.approx(150)
    assert 150 * math.sqrt(math.exp(sigma**2) - 1) == pytest.approx(60)


def test_other_distributions(tmp_path: Path) -> None:
    """A skewed one has no counterpart; a Poisson one is normal, which is stated; without a data set there is no load."""
    skewed = translated(tmp_path, STAGES, "data: {type: random, input_distribution: {type: skew_normal, skew: 2}}")
    assert changes(skewed) == ["--data.input_distribution.type skew_normal"]
    poisson = translated(tmp_path, STAGES, "data: {type: random, input_distribution: {type: poisson, mean: 100}}")
    assert options(poisson)["--isl"] == "normal:100,10,10,1024" and not changes(poisson)
    assert any("poisson" in lack.option and lack.kind == "differs" for lack in poisson.lacks)
    assert changes(translated(tmp_path, STAGES)) == ["--data.type mock"]
    with raises_code("number-invalid", "--data.input_distribution.mean", "'x'"):
        translated(tmp_path, STAGES, "data: {type: random, input_distribution: {mean: x}}")


MODES = """data: {type: bimodal, bimodal: {mode_a_system_prompt_len: 100, mode_a_groups: 2, mode_a_user_prompt_len: 50,
  mode_a_output_len: 40, mode_b_user_prompt_len: {type: uniform, min: 900, max: 1100}, mode_a_ratio: 0.7}}"""


def test_modes_are_classes_of_a_rate(tmp_path: Path) -> None:
    (command,) = translated(tmp_path, STAGES, MODES).commands
    assert [command[at + 1] for at, word in enumerate(command) if word == "--class"] == [
        "a share=0.7 isl=50 osl=40 prefix-len=100 num-prefixes=2", "b share=0.3 isl=uniform:900,1100 osl=1024"
    ]  # fmt: skip
    assert "--isl" not in command and command[command.index("--vary") + 1] == "rate=2;4"
    slots = "load: {type: concurrent, stages: [{num_requests: 9, concurrency_level: 3}]}"
    assert changes(translated(tmp_path, slots, MODES)) == ["--data.type bimodal"]


def test_stages_and_the_pause_between_them(tmp_path: Path) -> None:
    data = "data: {type: random, input_distribution: {type: fixed, mean: 9}}"
    assert options(translated(tmp_path, STAGES, data))["--settle"] == "7"
    one = options(translated(tmp_path, STAGES.replace(", {rate: 4, duration: 30}", ""), data))
    assert "--settle" not in one and (one["--rate"], one["--duration"], one["--arrival"]) == ("2", "30", "constant")
    both = translated(tmp_path, STAGES.replace("4, duration: 30", "4, duration: 60"), data)
    assert len(both.commands) == 2 and not any("--settle" in command for command in both.commands)
    assert any(lack.option == "--load.interval 7" and lack.kind == "cannot" for lack in both.lacks)
    workers = STAGES.replace("interval: 7", "interval: 7, num_workers: 4, worker_max_concurrency: 25")
    assert options(translated(tmp_path, workers, data))["--max-concurrency"] == "100"


def test_a_sweep_finds_its_rates(tmp_path: Path) -> None:
    data = "data: {type: random, input_distribution: {type: fixed, mean: 9}}"
    for sweep in (
        "sweep: {type: linear, num_stages: 4, stage_duration: 20, timeout: 60}",
        "auto_stage: {gen_type: geometric, num_stages: 4, stage_duration: 20}",
    ):
        found = translated(tmp_path, f"load: {{type: poisson, {sweep}}}", data)
        words = options(found)
        assert (words["--vary"], words["--duration"]) == ("rate=spaced:6", "20") and "--arrival" not in words
        assert not changes(found) and any(lack.kind == "differs" for lack in found.lacks)


def test_traces_of_azure_and_of_spans(tmp_path: Path) -> None:
    trace = "trace: {file: azure.csv, format: AzurePublicDataset}"
    found = translated(tmp_path, f"load: {{type: trace_replay, {trace}}}", f"data: {{type: random, {trace}}}")
    words = options(found)
    assert (words["--workload"], words["--dataset-path"]) == ("azure", "azure.csv") and not changes(found)
    assert not words.keys() & {"--rate", "--isl", "--osl", "--duration"}
    spans = "data: {type: otel_trace_replay, otel_trace_replay: {trace_files: [a.json], static_model_name: other}}"
    load = "load: {type: trace_session_replay, stages: [{concurrent_sessions: 4, num_sessions: 20}]}"
    words = options(translated(tmp_path, load, spans))
    assert (words["--workload"], words["--concurrency"], words["--num-requests"]) == ("otel", "4", "20")
    several = translated(tmp_path, load, spans.replace("[a.json]", "[a.json, b.json]"))
    assert changes(several) == ["--data.type otel_trace_replay"]
    rate = translated(tmp_path, load.replace("num_sessions: 20", "session_rate: 2"), spans)
    assert changes(rate) == ["--load.stages session_rate"]


def test_images_of_one_size(tmp_path: Path) -> None:
    image = "multimodal: {image: {count: {type: fixed, mean: 2}, resolutions: [{resolution: 720p, weight: 1.0}]}}"
    data = "data: {type: synthetic, input_distribution: {type: fixed, mean: 9}, "
    assert options(translated(tmp_path, STAGES, f"{data}{image}}}"))["--image"] == "1280x720:2"
    drawn = image.replace("type: fixed, mean: 2", "type: uniform, min: 1, max: 2")
    assert changes(translated(tmp_path, STAGES, f"{data}{drawn}}}")) == ["--data.multimodal.image.count"]


CHATS = """data: {type: shared_prefix, shared_prefix: {num_unique_system_prompts: 2, num_users_per_system_prompt: 2,
  system_prompt_len: 100, question_len: 30, output_len: 20, enable_multi_turn_chat: true}}"""


def test_chats_of_users_who_take_turns(tmp_path: Path) -> None:
    """Four users at 2 a second: each has a turn every two seconds, over both stages and the pause between them."""
    load = "load: {type: constant, interval: 1, stages: [{rate: 2, duration: 4}, {rate: 4, duration: 1}]}"
    found = translated(tmp_path, load, CHATS)
    ((path, text),) = found.files.items()
    assert options(found)["--dataset-path"] == path and options(found)["--workload"] == "graph" and not changes(found)
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0] == {"fastllmload_graph": 1, "source": "graph", "block_tokens": 100, "scope": "file"}
    calls: list[dict[str, Any]] = lines[1:]
    firsts = [call for call in calls if "at_s" in call]
    assert [(call["at_s"], call["input_tokens"], call["hash_ids"]) for call in firsts] == [
        (0, 130, [0]), (0.5, 130, [1]), (1, 130, [0]), (1.5, 130, [1])]  # fmt: skip
    mine = [call for call in calls if call["session"] == "0"]
    assert [call["after"][1]["wait_s"] for call in mine[1:]] == [2.0, 3.0] and len(calls) == 12
    assert all(call["after"][0] == call["context"] and call["input_tokens"] == 30 for call in mine[1:])
    lengths = CHATS.replace("question_len: 30", "question_len: {mean: 30, std_dev: 5, min: 1, max: 90}")
    assert changes(translated(tmp_path, load, lengths)) == ["--data.shared_prefix.enable_multi_turn_chat"] * 2
