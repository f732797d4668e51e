"""Other tools' command lines: each published one runs, or is refused with all that has no counterpart named at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from compat_runs import SGLANG, VLLM, settings_of
from refusals import raises_code, says

from fastllmload.cli.commands.plan import build_in
from fastllmload.cli.compat.expressions import filled
from fastllmload.cli.compat.foreign_command import KINDS
from fastllmload.cli.compat.translate import tool_names, tool_table, translate, translations
from fastllmload.cli.main import main
from fastllmload.cli.options.table import config_names
from fastllmload.errors import InputError
from fastllmload.settings import RunSettings

PUBLISHED = Path(__file__).with_name("published_commands.sh")


def published() -> Iterator[tuple[str, list[str]]]:
    """(command, options of it that are refused)."""
    for block in re.split(r"\n\s*\n", PUBLISHED.read_text()):
        lines = block.strip().splitlines()
        refused = [word for line in lines if line.startswith("#!") for word in line.split()[1:]]
        command = "\n".join(line for line in lines if not line.startswith("#"))
        if command:
            yield command, refused


COMMANDS = list(published())


def test_enough_are_published_and_run(sent: list[RunSettings]) -> None:
    assert len(COMMANDS) >= 47
    assert sum(not refused for _, refused in COMMANDS) / len(COMMANDS) >= 0.9
    every = [command for command, _ in COMMANDS if ".yml" not in command]
    assert {one.title for command in every for one in translations([command], {}, "http://h:1")} | {
        "inference-perf"
    } == {tool_table(name)["title"] for name in tool_names()}


@pytest.mark.parametrize(
    ("command", "refused"), COMMANDS, ids=lambda value: value[:60] if isinstance(value, str) else ""
)
def test_a_published_command(
    command: str, refused: list[str], sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["compat", command])
    printed = capsys.readouterr().err
    if refused:
        assert code == 2 and says(printed, "compat-load-differs", *refused), printed
        assert sent == []
        return
    assert code == 0 and sent, printed
    assert "fastllmload " in printed.splitlines()[0]
    settings = sent[0]
    if settings.load.rate is None and settings.load.concurrency is None:
        assert settings.workload.name in ("mooncake", "graph")
    load = msgspec.structs.replace(settings.load, num_requests=min(settings.load.num_requests or 5, 5))
    target = msgspec.structs.replace(settings.target, model=settings.target.model or "m")
    assert build_in(tmp_path / "plan", msgspec.structs.replace(settings, load=load, target=target)).requests != 0


ADAPTERS = ("--lora-name", "A", "B", "C", "--lora-request-distribution")


EQUAL = (("A", 1.0), ("B", 1.0), ("C", 1.0))


SPLIT = '[{"name": "A", "split": 0.25}, {"name": "B", "split": 0.75}]'


@pytest.mark.parametrize(
    ("words", "models", "order"),
    [((*VLLM, "--lora-modules", "A", "B", "C"), EQUAL, "random"),
     ((*VLLM, "--lora-modules", "A", "B", "C", "--lora-assignment", "round-robin"), EQUAL, "round-robin"),
     ((*SGLANG, "vllm", *ADAPTERS, "uniform"), EQUAL, "random"),
     ((*SGLANG, "vllm", *ADAPTERS, "distinct"), EQUAL, "round-robin"),
     ((*SGLANG, "vllm", *ADAPTERS, "skewed"), (("A", 1.0), ("B", 0.666666667), ("C", 0.444444444)), "random"),
     ((*SGLANG, "sglang-oai", *ADAPTERS, "skewed", "--lora-zipf-alpha", "2"),
      (("m:A", 1.0), ("m:B", 0.5), ("m:C", 0.25)), "random"),
     (("aiperf", "profile", "-m", "A,B,C"), EQUAL, "round-robin"),
     (("aiperf", "profile", "-m", "A", "-m", "B", "C", "--model-selection-strategy", "random"), EQUAL, "random"),
     (("genai-perf", "profile", "-m", "A", "B", "C", "--endpoint-type", "chat"), EQUAL, "round-robin"),
     (("inference-perf", "--server.model_name", "m", "--load.lora_traffic_split", SPLIT, "--load.stages",
       '[{"rate": 1, "duration": 3}]', "--data.type", "random"), (("A", 0.25), ("B", 0.75)), "random")],
)  # fmt: skip
def test_several_models(
    words: tuple[str, ...], models: tuple[tuple[str, float], ...], order: str, sent: list[RunSettings]
) -> None:
    """Names, weights and order; SGLang's own server takes an adapter as MODEL:ADAPTER, which it does not list."""
    target = settings_of(sent, *words).target
    assert (target.models, target.model_order) == (models, order)
    assert target.model_check == (not models[0][0].startswith("m:"))


@pytest.mark.parametrize(
    ("words", "option"),
    [((*SGLANG, "sglang", *ADAPTERS, "uniform"), "--lora-name"),
     (("sglang", "--dataset-name", "random", "--backend", "sglang-oai", *ADAPTERS, "uniform"), "--lora-name"),
     (("aiperf", "profile", "-m", "A,B", "--session-turns-mean", "3"), "--model A,B")],
)  # fmt: skip
def test_models_that_mean_another_load(
    words: tuple[str, ...], option: str, sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compat", *words]) == 2 and sent == []
    assert says(capsys.readouterr().err, "compat-load-differs", option)


def test_one_model_of_a_list_is_a_model(sent: list[RunSettings]) -> None:
    target = settings_of(sent, "aiperf", "profile", "-m", "A", "--session-turns-mean", "3").target
    assert (target.model, target.models) == ("A", ())


def test_several_values_are_several_runs(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    settings_of(sent, "guidellm", "--data", "prompt_tokens=9,output_tokens=4", "--profile", "constant", "--rate", "1,2,4",
                "--max-seconds", "5")  # fmt: skip
    assert [each.load.rate for each in sent] == [1, 2, 4]
    assert "fastllmload sweep --vary 'rate=1;2;4'" in capsys.readouterr().err
    words = ["--dataset", "random", "--parallel", "1", "2", "--number", "10", "20", "--max-prompt-length", "9"]
    settings_of(sent, "evalscope", "perf", "--model", "m", *words)
    assert [(each.load.concurrency, each.load.num_requests) for each in sent] == [(1, 10), (2, 20)]


def test_what_is_not_in_a_table_is_refused_with_the_rest(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*VLLM, "--flurb", "5", "--probe-request-rate", "1", "--trust-remote-code", "stray"]
    assert main(["compat", *words]) == 2
    printed = capsys.readouterr().err
    assert (
        says(printed, "compat-load-differs", "--flurb", "--probe-request-rate")
        and "--trust-remote-code: ignored" in printed
    )
    assert main(["compat", "--anyway", *words]) == 0 and len(sent) == 1


def test_print_runs_nothing_and_shows_no_key(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "OPENAI_API_KEY=sk-secret-9",
        *VLLM,
        "--header",
        "Authorization=Bearer abc-def-9",
        "--hf-token",
        "tok-tokey-secret-9",
    ]
    assert main(["compat", "--print", *words]) == 0 and sent == []
    shown = capsys.readouterr()
    assert shown.out.startswith("fastllmload ") and "changes the load" in shown.out
    assert main(["compat", *words]) == 2
    shown += capsys.readouterr()
    assert not [secret for secret in ("sk-secret-9", "abc-def-9", "tok-tokey-secret-9") if secret in "".join(shown)]


@pytest.mark.parametrize(
    ("words", "code"),
    [([], "usage"), (["wrk", "-t2"], "choice-unknown"), (["vllm bench 'serve"], "usage"),
     ([*VLLM, "--port"], "option-value-missing"), ([*VLLM, "--header", "x"], "header-invalid"),
     ([*VLLM, "--help"], "usage"), ([*VLLM, "--goodput", "ttft"], "value-invalid"),
     (["inference-perf", "--load.lora_traffic_split", "[1]"], "models-invalid"),
     ([*SGLANG, "vllm", *ADAPTERS, "skewed", "--lora-zipf-alpha", "x"], "number-invalid")],
)  # fmt: skip
def test_what_cannot_be_read(
    words: list[str], code: str, sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compat", *words]) == 2
    assert says(capsys.readouterr().err, code)


@pytest.mark.parametrize("name", tool_names())
def test_a_table_names_options_of_ours(name: str) -> None:
    table = tool_table(name)
    ours = {f"--{option}" for option in config_names()} | {"-H", "--config", "--api-key"}
    ours |= {"--runs", "--vary", "--settle", "--same-requests"}  # of a sweep
    ours |= {"--objective", "--what", "--min", "--max", "--level-duration"}  # of a search
    named = {option for option, *_ in table["write"] if not option.startswith("body.")}
    for entry in table["options"].values():
        printed = entry if isinstance(entry, str) else entry.get("to") or entry.get("ours") or entry.get("path") or ""
        named |= {word for word in printed.split() if word.startswith("--")} if printed.startswith("--") else set()
        if isinstance(entry, dict):
            assert entry.keys() & {"to", "as", "convert", "body", *KINDS}, entry
    assert named - ours == set()


@pytest.mark.parametrize("name", tool_names())
def test_no_value_of_an_option_is_a_bug(name: str) -> None:
    """Each option of a table with any value is translated, or refused with a sentence."""
    table = tool_table(name)
    refused = 0
    for option in table["options"]:
        for values in (
            (),
            ("1",),
            ("0",),
            ("inf",),
            ("-1",),
            ("a b",),
            ("x=1",),
            ("{}",),
            ("[1]",),
            ("1,2",),
            ("1", "2"),
        ):
            try:
                assert translate([name, option, *values], {}).commands
            except InputError:
                refused += 1
    assert refused > 0


def test_expressions() -> None:
    assert filled("uniform:{max(1, floor(a * b))},{a}", {"a": "10", "b": "0.25"}) == "uniform:2,10"
    with raises_code("number-invalid", "a is 'x'"):
        filled("{a + 1}", {"a": "x"})
    with raises_code("number-invalid", "a 0"):
        filled("{1 / a}", {"a": "0"})


def test_words_of_the_shell(
    sent: list[RunSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variables are replaced, a container's command is found, and what follows the command is named."""
    monkeypatch.setenv("HERE", "from-here")
    text = "export MODEL=a/b; docker run --rm -e GUIDELLM_RATE=4 image/aiperf guidellm benchmark --model $MODEL "
    more = "--target http://${HERE} --profile constant --data prompt_tokens=9 2>&1 | tee aiperf.log"
    target = settings_of(sent, text + more).target
    assert (target.model, target.urls, sent[0].load.rate) == ("a/b", ("http://from-here",), 4)
    assert "2>&1 | tee aiperf.log: not done" in capsys.readouterr().err
    text = 'podman run -it -e GUIDELLM_DATA=prompt_tokens=9 -e GUIDELLM__SPEC__PROFILE=\'{"kind": "constant", "rate": 3}\' '
    more = "-e GUIDELLM__SPEC__BACKEND__TARGET=http://guidellm:8000 registry:5000/guidellm:v0.7 run"
    assert settings_of(sent, text + more).target.urls == ("http://guidellm:8000",) and sent[0].load.rate == 3
    text = "uvx --from guidellm==0.6.0 sh -c 'guidellm benchmark --profile synchronous --data prompt_tokens=9'"
    assert settings_of(sent, text).load.concurrency == 1 and "guidellm: not done" not in capsys.readouterr().err


def test_commands_that_send_no_load_are_named(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    for text in (
        "aiperf plot --paths a",
        "aiperf analyze-trace f.jsonl --block-size 512",
        "genai-perf config -f c.yaml",
    ):
        assert main(["compat", text]) == 2 and sent == []
        assert says(capsys.readouterr().err, "choice-unknown", text.split()[1])
    target = settings_of(sent, "aiperf", "profile", "A,B", "--streaming").target
    assert target.models == (("A", 1.0), ("B", 1.0))
