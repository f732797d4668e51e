"""Searches for the highest load in evalscope's and AIPerf's command lines, and AIPerf's files of settings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.cli.compat.translate import Translation, translations

EVALSCOPE = ("evalscope", "perf", "--model", "m", "--dataset", "random", "--max-prompt-length", "9", "--sla-auto-tune")
AIPERF = ("aiperf", "profile", "-m", "m", "--streaming")


def translated(*words: str, **environment: str) -> Translation:
    (found,) = translations(words, environment)
    return found


def options(command: list[str]) -> dict[str, str]:
    return {word: command[at + 1] for at, word in enumerate(command[:-1]) if word.startswith("--")}


def changes(*words: str) -> list[str]:
    return [lack.option for lack in translated(*words).lacks if lack.kind == "changes"]


def test_conditions_of_evalscope_are_objectives_in_milliseconds() -> None:
    both = json.dumps([{"p99_ttft": "<=2", "p99_tpot": "<0.05"}])
    (command,) = translated(*EVALSCOPE, "--sla-params", both, "--sla-upper-bound", "64", "--parallel", "2").commands
    found = options(command)
    assert (
        command[0] == "search" and found["--goodput"] == "ttft_any:2000,tpot_any:50" and found["--objective"] == "p99"
    )
    assert (found["--what"], found["--min"], found["--max"]) == ("concurrency", "1", "64")
    assert not found.keys() & {"--concurrency", "--rate", "--num-requests", "--vary"}


def test_each_group_of_conditions_is_a_search() -> None:
    groups = json.dumps([{"p99_latency": "<=2"}, {"p50_latency": "<=1"}])
    words = ("--sla-variable", "rate", "--rate", "2", "--sla-fixed-parallel", "40", "--sla-lower-bound", "10")
    commands = [options(command) for command in translated(*EVALSCOPE, "--sla-params", groups, *words).commands]
    assert [(each["--objective"], each["--goodput"]) for each in commands] == [
        ("p99", "e2el:2000"),
        ("p50", "e2el:1000"),
    ]
    assert {(each["--what"], each["--min"], each["--max-concurrency"]) for each in commands} == {("rate", "10", "40")}


def test_the_highest_throughput_is_where_it_no_longer_grows() -> None:
    found = translated(*EVALSCOPE, "--sla-params", '[{"tps": "max"}]')
    assert options(found.commands[0])["--objective"] == "sustained" and "--goodput" not in found.commands[0]
    assert any(lack.option == "--sla-params max" and lack.kind == "differs" for lack in found.lacks)


@pytest.mark.parametrize(
    "group", [{"avg_ttft": "<=2"}, {"p99_ttft": "<=2", "p50_tpot": "<=1"}, {"rps": ">=5"}, {"p99_latency": "min"}]
)
def test_conditions_without_a_counterpart(group: dict[str, str]) -> None:
    assert changes(*EVALSCOPE, "--sla-params", json.dumps([group])) == [f"--sla-params {json.dumps(group)}"]


def test_conditions_that_cannot_be_read() -> None:
    for text in ("[]", "[1]", "x"):
        with raises_code("json-invalid", "--sla-params"):
            translated(*EVALSCOPE, "--sla-params", text)


def test_aiperfs_scale_and_search() -> None:
    scale = ("--adaptive-scale", "--adaptive-scale-control", "concurrency:1,400:int", "--adaptive-scale-sla")
    words = (*scale, "request_latency:p95:le:30000", "--adaptive-scale-sla", "ttft:p95:lt:200", "--adaptive-scale-sla")
    found = options(translated(*AIPERF, *words, "error_rate:avg:le:0.01", "--benchmark-duration", "3600").commands[0])
    assert (found["--objective"], found["--goodput"]) == ("p95", "e2el:30000,ttft_any:200")
    assert (found["--what"], found["--max"]) == ("concurrency", "400") and "--level-duration" not in found
    space = ("--search-space", "phases.profiling.request_rate:0.5,100:real", "--search-metric")
    found = options(translated(*AIPERF, *space, "output_token_throughput", "--benchmark-duration", "90").commands[0])
    assert (found["--what"], found["--min"], found["--objective"]) == ("rate", "0.5", "sustained")
    assert found["--level-duration"] == "90"
    assert changes(*AIPERF, *space, "time_to_first_token") == ["--search-metric time_to_first_token"]
    assert changes(*AIPERF, "--search-space", "isl:1,9:int") == ["--search-space isl:1,9:int"]
    assert changes(*AIPERF, *scale, "goodput:avg:ge:20") == ["--adaptive-scale-sla goodput:avg:ge:20"]


def config(tmp_path: Path, tree: dict[str, Any], **environment: str) -> Translation:
    (tmp_path / "c.json").write_text(json.dumps(tree))
    return translated("aiperf", "profile", "--config", str(tmp_path / "c.json"), **environment)


BODY = {
    "model": "${NAME:m}", "endpoint": {"urls": ["http://h:1"], "streaming": True, "headers": {"X-A": "b"}},
    "dataset": {"type": "synthetic", "prompts": {"isl": {"mean": "{{ long }}", "stddev": "{{ long // 10 }}"}, "osl": 9}},
    "phases": [{"name": "warmup", "type": "concurrency", "concurrency": 2, "requests": 5},
               {"name": "profiling", "type": "gamma", "rate": 4, "smoothness": 0.5, "duration": "5m", "gracePeriod": 60}],
    "slos": {"request_latency": 300}, "artifacts": {"dir": "out"},
}  # fmt: skip


def test_a_file_of_aiperf(tmp_path: Path) -> None:
    """Variables of the environment and expressions have their values, and names may be written as in JavaScript."""
    tree = {"schemaVersion": "2.0", "randomSeed": 7, "variables": {"long": 95}, "benchmark": BODY}
    found = config(tmp_path, tree, NAME="other")
    words = options(found.commands[0])
    assert (words["--model"], words["--url"], words["--isl"], words["--osl"]) == (
        "other",
        "http://h:1",
        "normal:95,9",
        "9",
    )
    assert (words["--rate"], words["--arrival"], words["--burstiness"]) == ("4", "gamma", "0.5")
    assert (words["--duration"], words["--grace"], words["--warmup"], words["--seed"]) == ("300", "60", "5", "7")
    assert words["--goodput"] == "e2el:300" and "X-A: b" in found.commands[0] and "--no-stream" not in found.commands[0]
    assert not [lack for lack in found.lacks if lack.kind == "changes"]
    typed = translated("aiperf", "profile", "--config", str(tmp_path / "c.json"), "--request-rate", "9")
    assert options(typed.commands[0])["--rate"] == "9", "what is typed goes before the file"


def test_a_grid_of_a_file_is_all_combinations(tmp_path: Path) -> None:
    grid = {"type": "grid", "parameters": {"datasets.default.prompts.osl": [3, 5], "rate": [1, 2]}}
    found = config(tmp_path, {"variables": {"long": 9}, "benchmark": BODY, "sweep": grid})
    assert sorted((options(each)["--rate"], options(each)["--osl"]) for each in found.commands) == [
        ("1", "3"), ("1", "5"), ("2", "3"), ("2", "5")]  # fmt: skip
    folders = [options(each)["--output"] for each in found.commands]
    assert folders == ["out/1", "out/2", "out/3", "out/4"]
    one = {"parameters": {"phases.profiling.rate": [1, 2]}}
    (command,) = config(tmp_path, {"variables": {"long": 9}, "benchmark": BODY, "sweep": one}).commands
    assert options(command)["--vary"] == "rate=1;2"
    scenarios = {"type": "scenarios", "runs": [{"name": "a", "benchmark": {}}]}
    lacks = config(tmp_path, {"variables": {"long": 9}, "benchmark": BODY, "sweep": scenarios}).lacks
    assert [lack.option for lack in lacks if lack.kind == "changes"] == ["--sweep.runs"]


def test_what_a_file_of_aiperf_has_besides_is_named(tmp_path: Path) -> None:
    """A setting that is not known is never left out silently."""
    body = {**BODY, "dataset": {"type": "synthetic", "prompts": {"isl": {"type": "zipf", "mean": 9}, "block": 3}}}
    phases = [{"name": "first", "type": "concurrency", "requests": 3, "adaptive_scale": {"enabled": True}}]
    lacks = config(tmp_path, {"variables": {"long": 9}, "benchmark": {**body, "phases": phases}}).lacks
    assert [lack.option for lack in lacks if lack.kind == "changes"] == [
        "--dataset.prompts.isl", "--dataset.prompts.block", "--phases", "--phases.first.adaptive_scale.enabled"
    ]  # fmt: skip
    with raises_code("config-invalid", "${UNSET}"):
        config(tmp_path, {"benchmark": {"model": "${UNSET}"}})
    with raises_code("config-invalid", "unknown"):
        config(tmp_path, {"benchmark": {"model": "{{ unknown + 1 }}"}})


def test_several_lists_of_aiperf_are_all_combinations() -> None:
    found = translated(*AIPERF, "--concurrency", "8,16", "--isl", "128,256", "--request-count", "10")
    assert len(found.commands) == 4


def test_signs_of_the_shell_in_quotes_are_values() -> None:
    text = """evalscope perf --model m --prompt 'a & b; c' --stop '<|im_end|>' "x>y" --stream > log.txt 2>&1"""
    found = translated(text)
    words = options(found.commands[0])
    assert words["--prompt"] == "a & b; c" and json.loads(words["--extra-body"]) == {"stop": ["<|im_end|>", "x>y"]}
    assert "--stream" in found.commands[0] and [lack.option for lack in found.lacks] == ["> log.txt 2>&1"]
    inner = shlex.join(["bash", "-c", "aiperf profile -m m --header 'X: a|b' | tee log"])
    assert "X: a|b" in translated(inner).commands[0]


def test_the_server_of_compat_is_the_only_one() -> None:
    (found,) = translations((*AIPERF, "--url", "http://typed:1"), {}, "http://ours:2")
    command = found.commands[0]
    assert [command[at + 1] for at, word in enumerate(command) if word == "--url"] == ["http://ours:2"]
