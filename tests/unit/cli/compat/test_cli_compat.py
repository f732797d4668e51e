"""Other tools' command lines: each published one runs, or is refused with all that has no counterpart named at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refusals import raises_code, says

from fastllmload.cli.commands.plan import build_in
from fastllmload.cli.compat.expressions import filled
from fastllmload.cli.compat.foreign_command import KINDS
from fastllmload.cli.compat.translate import tool_names, tool_table, translate, translations
from fastllmload.cli.main import main
from fastllmload.cli.options.table import config_names
from fastllmload.engine import run as engine_run
from fastllmload.errors import InputError
from fastllmload.settings import RunSettings
from fastllmload.sweep import run as sweep_run

PUBLISHED = Path(__file__).with_name("published_commands.sh")
CONVERSATION = [
    {"from": "human", "value": "Why is the sky blue?"},
    {"from": "gpt", "value": "Light is scattered by air."},
]
FILES = {
    "ShareGPT_V3_unfiltered_cleaned_split.json": json.dumps(
        [{"id": str(n), "conversations": CONVERSATION} for n in range(9)]
    ),
    "data.jsonl": '{"prompt": "What is the capital of India?"}\n',
    "tokens.jsonl": '{"prompt": "Why?", "output_tokens": 9}\n{"prompt": "How?", "output_tokens": 7}\n',
    "open_qa.jsonl": '{"question": "Why?", "human_answers": ["So."]}\n{"question": "How?", "human_answers": []}\n',
    "prompts.txt": "Why?\nWhere to?\n",
    "prompts-10.csv": "prompt,output_tokens_count\nWhy?,20\nHow?,30\n",
    "prompts.json": '[{"prompt": "Why?"}, {"prompt": "How?"}]',
    "wildchat_guidellm.jsonl": '{"prompt": "Why?", "language": "English"}\n{"prompt": "How?", "language": "English"}\n',
    "sinusoidal.jsonl": "".join(
        json.dumps({"timestamp": 500 * n, "input_length": 600, "output_length": 20, "hash_ids": [0, n + 1]}) + "\n"
        for n in range(9)
    ),
    "random.yml": "load: {type: constant, stages: [{rate: 1, duration: 30}]}\napi: completion\n"
    "server: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data: {type: random, input_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}}\n"
    "metrics: {type: prometheus, prometheus: {url: 'http://localhost:9090', scrape_interval: 15}}\n",
    "sp.yml": "load: {type: constant, interval: 15, stages: [{rate: 1, duration: 30}, {rate: 2, duration: 30}]}\n"
    "api: {type: completion}\nserver: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data: {type: shared_prefix, shared_prefix: {num_unique_system_prompts: 10, num_users_per_system_prompt: 10,\n"
    "  system_prompt_len: 100, question_len: 50, output_len: 50}}\nstorage: {local_storage: {path: /workspace}}\n",
    "pd.yml": "load:\n  type: constant\n  stages:\n"
    "  - {rate: 45, duration: 120, num_requests: null, concurrency_level: null}\n"
    "  num_workers: 45\n  worker_max_concurrency: 100\napi: {type: completion, streaming: true}\n"
    "server: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data:\n  type: random\n  input_distribution: {min: 5000, max: 5000, mean: 5000, std_dev: 0}\n"
    "  output_distribution: {min: 250, max: 250, mean: 250, std_dev: 0}\n",
    "prompts.jsonl": '{"text": "Why?"}\n{"text": "How?"}\n',
    "lengths.jsonl": '{"text": "Why?", "output_length": 5}\n{"text": "How?", "output_length": 7}\n',
    "texts.jsonl": '{"text_input": "Why?", "output_length": 5}\n{"text_input": "How?", "output_length": 7}\n',
    "chats.jsonl": '{"session_id": "a", "turns": [{"text": "Why?"}, {"text": "How?", "delay": 10}]}\n',
    "BurstGPT.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    + "".join(f"{n},GPT-4,{100 + n},{20 + n},{120 + 2 * n},Conversation log\n" for n in range(30)),
    "mooncake.jsonl": "".join(
        json.dumps({"timestamp": 500 * n, "input_length": 600, "output_length": 20, "hash_ids": [0, n + 1]}) + "\n"
        for n in range(9)
    ),
    "weka.jsonl": json.dumps(
        {
            "id": "a",
            "block_size": 64,
            "requests": [
                {"t": 0.0, "type": "s", "in": 128, "out": 5, "hash_ids": [1, 2], "api_time": 1.0},
                {"t": 2.0, "type": "s", "in": 192, "out": 5, "hash_ids": [1, 2, 3], "api_time": 1.0},
            ],
        }
    ),
    "config.yml": "load:\n  type: constant\n  stages:\n  - {rate: 1, duration: 30}\n  - {rate: 2, duration: 30}\n"
    "api: {type: completion, streaming: true}\nserver: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000'}\n"
    "tokenizer: {pretrained_model_name_or_path: m}\n"
    "data:\n  type: random\n  input_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}\n"
    "  output_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}\n"
    "report: {request_lifecycle: {summary: true, per_stage: true, per_request: true}}\n",
}


def published() -> Iterator[tuple[str, list[str]]]:
    """(command, options of it that are refused)."""
    for block in re.split(r"\n\s*\n", PUBLISHED.read_text()):
        lines = block.strip().splitlines()
        refused = [word for line in lines if line.startswith("#!") for word in line.split()[1:]]
        command = "\n".join(line for line in lines if not line.startswith("#"))
        if command:
            yield command, refused


COMMANDS = list(published())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RunSettings]:
    """Settings of what would be sent, in a folder with the files that commands name."""
    found: list[RunSettings] = []

    def execute(settings: RunSettings, *_: Any, **__: Any) -> int:
        found.append(settings)
        return 0

    def run_sweep(cells: list[Any], *_: Any) -> int:
        found.extend(cell.settings for cell in cells)
        return 0

    monkeypatch.setattr(engine_run, "execute", execute)
    monkeypatch.setattr(sweep_run, "run_sweep", run_sweep)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return found


def test_enough_are_published_and_run() -> None:
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
    told = capsys.readouterr().err
    if refused:
        assert code == 2 and says(told, "compat-load-differs", *refused), told
        assert sent == []
        return
    assert code == 0 and sent, told
    assert "fastllmload " in told.splitlines()[0]
    settings = sent[0]
    if settings.load.rate is None and settings.load.concurrency is None:
        assert settings.workload.name == "mooncake"
    load = msgspec.structs.replace(settings.load, num_requests=min(settings.load.num_requests or 5, 5))
    target = msgspec.structs.replace(settings.target, model=settings.target.model or "m")
    assert build_in(tmp_path / "plan", msgspec.structs.replace(settings, load=load, target=target)).requests != 0


def settings_of(sent: list[RunSettings], *words: str) -> RunSettings:
    sent.clear()
    assert main(["compat", *words]) == 0
    return sent[0]


VLLM = ("vllm", "bench", "serve", "--model", "m", "--dataset-name", "random")


def test_vllm_sends_all_at_once_unless_told(sent: list[RunSettings]) -> None:
    load = settings_of(sent, *VLLM).load
    assert (load.rate, load.num_requests, load.warmup_requests, load.ramp_share) == (float("inf"), 1000, 0, 0)
    load = settings_of(sent, *VLLM, "--max-concurrency", "8").load
    assert (load.rate, load.concurrency, load.max_concurrency) == (None, 8, None)
    load = settings_of(sent, *VLLM, "--max-concurrency", "8", "--request-rate", "5", "--burstiness", "2").load
    assert (load.rate, load.concurrency, load.max_concurrency, load.burstiness) == (5, None, 8, 2)
    load = settings_of(sent, *VLLM, "--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "9",
                       "--num-prompts", "50").load  # fmt: skip
    assert (load.rate_curve, load.duration, load.num_requests) == ("ramp:1,9", 10, 50)


def test_vllms_random_lengths_and_answers(sent: list[RunSettings]) -> None:
    workload = settings_of(sent, *VLLM, "--random-range-ratio", "0.5", "--random-prefix-len", "7").workload
    assert (workload.isl, workload.osl, workload.prefix_len) == ("uniform:512,1536", "uniform:64,192", 7)
    assert workload.ignore_eos and workload.temperature is None
    custom = settings_of(
        sent, "vllm", "bench", "serve", "--model", "m", "--dataset-name", "custom", "--dataset-path", "data.jsonl"
    )
    assert not custom.workload.ignore_eos and custom.workload.osl == "256"


def test_vllms_data_sets_of_the_hub(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = (*VLLM[:-1], "hf", "--dataset-path")
    workload = settings_of(sent, *words, "philschmid/mt-bench").workload
    assert (workload.name, workload.dataset_path, workload.osl, workload.hf_split) == (
        "hf",
        "philschmid/mt-bench",
        "256",
        None,
    )
    workload = settings_of(sent, *words, "AI-MO/NuminaMath-CoT", "--hf-split", "test", "--hf-subset", "s").workload
    assert (workload.osl, workload.hf_split, workload.hf_subset) == (None, "test", "s") and not workload.ignore_eos
    workload = settings_of(sent, *words, "copy", "--hf-name", "philschmid/mt-bench", "--hf-output-len", "9").workload
    assert (workload.dataset_path, workload.osl) == ("copy", "9")
    for more, option in (
        (("likaixin/InstructCoder",), "--dataset-path"),
        (("copy", "--hf-name", "other/set"), "--hf-name"),
    ):
        assert main(["compat", *words, *more]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", option)


def test_sglangs_ratio_means_something_else(sent: list[RunSettings]) -> None:
    words = ("sglang", "--model", "m", "--dataset-name", "random", "--random-input", "1000", "--random-output", "10")
    workload = settings_of(sent, *words, "--random-range-ratio", "0.5").workload
    assert (workload.isl, workload.osl, workload.ignore_eos) == ("uniform:500,1000", "uniform:5,10", True)
    assert settings_of(sent, *words).workload.isl == "uniform:1,1000"
    assert settings_of(sent, *words, "--random-range-ratio", "1").workload.isl == "1000"
    target = settings_of(sent, *words).target
    assert (target.urls, target.endpoint_type) == (("http://127.0.0.1:30000",), "sglang-generate")


def test_sglangs_sampling(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sglang", "--model", "m", "--dataset-name", "random", "--return-logprob", "--top-p", "0.9")
    workload = settings_of(sent, *words, "--temperature", "0.5").workload
    assert json.loads(workload.extra_body or "") == {"return_logprob": True, "sampling_params": {"top_p": 0.9}}
    assert workload.temperature == 0.5
    assert settings_of(sent, *words).workload.temperature == 0
    assert "--top-p 0.9: ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [(*VLLM, "--reset-prefix-cache", "--profile"),
     ("sglang", "--model", "m", "--dataset-name", "random", "--flush-cache", "--profile"),
     ("aiperf", "profile", "-m", "m", "--reset-kv-cache", "--server-profiler")],
    ids=["vllm", "sglang", "aiperf"],
)  # fmt: skip
def test_resets_and_profiles_are_asked_for(sent: list[RunSettings], words: tuple[str, ...]) -> None:
    assert settings_of(sent, *words).control.between == ("reset-cache", "profile")


def test_aiperf_leaves_the_length_to_the_model(sent: list[RunSettings]) -> None:
    workload = settings_of(sent, "aiperf", "profile", "-m", "m", "--streaming").workload
    assert json.loads(workload.extra_body or "") == {"max_tokens": None} and not workload.ignore_eos
    words = ["--osl", "9", "--osl-stddev", "2", "--extra-inputs", "top_k:5"]
    goals = "time_to_first_token:200 request_latency:900"
    settings = settings_of(sent, "aiperf", "profile", "-m", "m", *words, "--goodput", goals)
    assert settings.workload.osl == "normal:9,2" and not settings.workload.streaming
    assert settings.output.goodput == (("ttft_any", 200), ("e2el", 900))
    assert settings.load.concurrency == 1 and settings.load.num_requests == 10


def test_the_longest_answer_among_other_inputs_is_a_length(sent: list[RunSettings]) -> None:
    """It replaces the mean length, as it does there; other fields go into the body."""
    words = ("--output-tokens-mean", "9", "--extra-inputs", "max_tokens:5", "min_tokens:5")
    workload = settings_of(sent, "aiperf", "profile", "-m", "m", *words).workload
    assert workload.osl == "5" and workload.extra_body == '{"min_tokens": 5}'


def test_live_sessions_of_genai_perf(sent: list[RunSettings]) -> None:
    words = (
        "--session-concurrency",
        "3",
        "--num-sessions",
        "4",
        "--session-turns-mean",
        "2",
        "--measurement-interval",
        "9",
    )
    load = settings_of(sent, "genai-perf", "profile", "-m", "m", *words).load
    assert (load.concurrency, load.num_requests, load.duration) == (3, 4, None)
    triton = ("genai-perf", "profile", "-m", "m", "--service-kind", "triton", "--backend", "vllm", "--url", "h:8001")
    assert settings_of(sent, *triton).workload.extra_body is None


MOONCAKE = ("aiperf", "profile", "-m", "m", "--input-file", "f.jsonl", "--custom-dataset-type", "mooncake_trace")


def test_sessions_of_aiperfs_traces(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    """Weka's are sent by its loader, with a number of live sessions; rows of Mooncake are additions there."""
    words = ("aiperf", "profile", "-m", "m", "--input-file", "weka.jsonl", "--custom-dataset-type", "weka_trace")
    settings = settings_of(sent, *words, "--concurrency", "3", "--session-header", "X-S", "--num-sessions", "7")
    assert settings.workload.name == "weka" and (settings.load.concurrency, settings.load.num_requests) == (3, 7)
    assert settings.session.headers == (("X-S", "{session}"),)
    assert main(["compat", *words, "--request-count", "5"]) == 2 and "--request-count 5" in capsys.readouterr().err
    assert settings_of(sent, *MOONCAKE).workload.trace_prompts == "delta"


def test_another_command_and_the_type_of_a_file_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "vllm", "bench", "latency", "--model", "m"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "bench latency")
    words = ("-m", "m", "--input-file", "f.jsonl", "--custom-dataset-type", "raw_payload")
    assert main(["compat", "genai-perf", "profile", *words]) == 2
    shown = capsys.readouterr().err
    assert "raw_payload" in shown and "{" not in shown.replace("{session}", "")


def test_aiperf_caps_what_waits_for_a_first_token(sent: list[RunSettings]) -> None:
    words = ("-m", "m", "--streaming", "--concurrency", "16", "--prefill-concurrency", "4")
    load = settings_of(sent, "aiperf", "profile", *words).load
    assert (load.concurrency, load.max_prefill) == (16, 4)


def test_aiperf_reads_exporters_of_gpus(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpu-telemetry", "dashboard", "http://n1:9400/metrics", "--server-metrics", "http://s:8000")
    settings = settings_of(sent, "aiperf", "profile", "-m", "m", *words)
    assert settings.telemetry.urls == ("http://n1:9400/metrics", "http://s:8000/metrics")
    assert "--gpu-telemetry dashboard" in capsys.readouterr().err


def test_a_trace_of_aiperf_has_its_own_instants(sent: list[RunSettings]) -> None:
    settings = settings_of(sent, *MOONCAKE, "--fixed-schedule-start-offset", "1000", "--synthesis-speedup-ratio", "2")
    assert (settings.load.rate, settings.load.concurrency, settings.load.num_requests) == (None, None, None)
    assert (settings.workload.trace_from, settings.workload.trace_speed) == (1.0, 2.0)
    assert settings_of(sent, *MOONCAKE, "--no-fixed-schedule", "--request-rate", "4").load.rate == 4


ADAPTERS = ("--lora-name", "A", "B", "C", "--lora-request-distribution")
SGLANG = ("sglang", "--model", "m", "--dataset-name", "random", "--backend")
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
       '[{"rate": 1, "duration": 3}]'), (("A", 0.25), ("B", 0.75)), "random")],
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


SWEPT = ("guidellm", "--data", "prompt_tokens=9,output_tokens=4", "--max-seconds", "5")


@pytest.mark.parametrize(
    ("words", "shown", "runs", "arrival"),
    [
        ((), "rate=spaced:10", 10, "constant"),
        (("--rate-type", "sweep", "--rate", "5.0"), "rate=spaced:5", 5, "constant"),
        (("--profile", "kind=sweep,sweep_size=4,strategy_type=poisson"), "rate=spaced:4", 4, "poisson"),
    ],
)
def test_the_sweep_of_guidellm_is_spaced_rates(
    words: tuple[str, ...], shown: str, runs: int, arrival: str, sent: list[RunSettings],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It is its default, of ten runs; its rate is the number of runs."""
    settings_of(sent, *SWEPT, *words)
    assert shown in capsys.readouterr().err
    assert [each.load.concurrency for each in sent] == [1, 512, *[None] * (runs - 2)]
    assert {each.load.arrival for each in sent[2:]} == {arrival}


def test_the_sweep_of_guidellm_has_its_cap(
    sent: list[RunSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(sent, *SWEPT, "--profile", "kind=sweep,max_concurrency=64")
    assert (sent[1].load.concurrency, sent[2].load.max_concurrency) == (64, 64)
    monkeypatch.setenv("GUIDELLM__MAX_CONCURRENCY", "100")
    settings_of(sent, *SWEPT)
    assert (sent[1].load.concurrency, sent[2].load.max_concurrency) == (100, 100)
    assert main(["compat", *SWEPT, "--rate", "2"]) == 2
    assert says(capsys.readouterr().err, "value-invalid", "3 to 1,000")


def test_what_is_not_in_a_table_is_refused_with_the_rest(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*VLLM, "--flurb", "5", "--probe-request-rate", "1", "--trust-remote-code", "stray"]
    assert main(["compat", *words]) == 2
    told = capsys.readouterr().err
    assert (
        says(told, "compat-load-differs", "--flurb", "--probe-request-rate") and "--trust-remote-code: ignored" in told
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
    named = {option for option, *_ in table["write"] if not option.startswith("body.")}
    for entry in table["options"].values():
        told = entry if isinstance(entry, str) else entry.get("to") or entry.get("ours") or entry.get("path") or ""
        named |= {word for word in told.split() if word.startswith("--")} if told.startswith("--") else set()
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


GUIDELLM = (
    "guidellm",
    "benchmark",
    "--profile",
    "constant",
    "--rate",
    "2",
    "--data",
    "prompt_tokens=9,output_tokens=4",
)


@pytest.mark.parametrize(
    ("words", "share"),
    [(("--max-seconds", "40", "--warmup-percent", "0.1"), 0.1), (("--max-seconds", "40", "--warmup-percent", "10"), 0.25),
     (("--max-requests", "50", "--warmup", "10"), 0.2),
     (("--max-seconds", "40", "--max-requests", "20", "--warmup", "value=5,mode=requests"), 0.25),
     (("--max-seconds", "40", "--warmup", '{"percent": 0.3}'), 0.3), (("--max-seconds", "40"), 0)],
)  # fmt: skip
def test_guidellms_warm_up_is_a_part_of_the_measurement(
    words: tuple[str, ...], share: float, sent: list[RunSettings]
) -> None:
    """Below 1 a share, else seconds, or requests where there is no duration."""
    load = settings_of(sent, *GUIDELLM, *words).load
    assert (load.ramp_share, load.warmup_requests) == (share, 0)


DATA = ("--data", "prompt_tokens=9,output_tokens=4")


def test_scenarios_of_guidellm(sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Built-in ones, and files of each of its generations; what is typed goes before what they say, wherever it stands."""
    settings_of(sent, "guidellm", "--max-seconds", "5", "--rate", "4", "--scenario", "rag")
    assert len(sent) == 4 and sent[0].workload.isl == "normal:4096,512,2048,6144"
    assert (
        settings_of(sent, "guidellm", "--scenario", "chat.json", "--max-seconds", "5").workload.osl
        == "normal:256,64,1,1024"
    )
    (tmp_path / "flat.yaml").write_text(
        "target: http://a:1\nrequest_type: text_completions\nprofile: constant\nrate: [1, 5]\nmax_seconds: 30\n"
        "data:\n  prompt_tokens: 50\n  prompt_tokens_stdev: 5\n  output_tokens: 60\n"
    )
    settings = settings_of(sent, "guidellm", "benchmark", "--rate", "7", "--scenario", "flat.yaml", *DATA)
    assert [one.load.rate for one in sent] == [7] and settings.load.duration == 30
    assert (settings.workload.isl, settings.workload.osl) == ("9", "4")
    settings_of(sent, "guidellm", "benchmark", "--scenario=flat.yaml")
    assert [(one.load.rate, one.workload.isl) for one in sent] == [(1, "normal:50,5,25,75"), (5, "normal:50,5,25,75")]
    spec = {
        "backend": {"kind": "openai_http", "target": "http://b:2"},
        "profile": {"kind": "concurrent", "streams": [2, 3]},
        "constraints": [{"kind": "max_requests", "count": 8}, {"kind": "max_errors", "count": 1}],
        "data": [{"kind": "synthetic_text", "prompt_tokens": 6, "output_tokens": 3}],
        "outputs": [{"kind": "json", "path": "x.json"}],
    }
    (tmp_path / "spec.json").write_text(json.dumps({"spec": spec}))
    settings = settings_of(sent, "guidellm", "run", "-c", "spec.json")
    assert [one.load.concurrency for one in sent] == [2, 3] and settings.target.urls == ("http://b:2",)
    assert settings.load.num_requests == 8
    for text, code in (("- a", "config-invalid"), ("a: [", "config-invalid")):
        (tmp_path / "bad.yaml").write_text(text)
        assert main(["compat", "guidellm", "run", "-c", "bad.yaml"]) == 2
        assert says(capsys.readouterr().err, code, "bad.yaml")


def test_prefixes_of_guidellm(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    """Prefixes of one length, equally likely, are one group; others are classes, which share a rate."""
    group = {"prefix_tokens": 100, "prefix_count": 2, "bucket_weight": 50}
    data = {"prompt_tokens": 9, "output_tokens": 4}
    words = ("guidellm", "--max-seconds", "5", "--profile")
    typed = json.dumps({**data, "prefix_buckets": [group, {**group, "prefix_count": 4, "bucket_weight": 100}]})
    workload = settings_of(sent, *words, "concurrent", "--rate", "2", "--data", typed).workload
    assert (workload.prefix_len, workload.num_prefixes) == (100, 6)
    typed = json.dumps({**data, "prefix_buckets": [group, {"prefix_tokens": 30, "bucket_weight": 150}]})
    settings = settings_of(sent, *words, "constant", "--rate", "8", "--data", typed)
    assert [(one.load.rate, one.workload.prefix_len, one.workload.num_prefixes) for one in settings.classes] == [
        (2, 100, 2),
        (6, 30, 1),
    ]
    assert main(["compat", *words, "concurrent", "--rate", "2", "--data", typed]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data prefix_buckets")
    assert main(["compat", *words, "constant", "--rate", "2", "--data", '{"prefix_buckets": [{}]}']) == 2
    assert says(capsys.readouterr().err, "value-invalid", "prefix_buckets")
    assert main(["compat", *words, "constant", "--rate", "2", *DATA, *DATA]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data prompt_tokens=9")


GUIDED = ("guidellm", "--profile", "concurrent", "--rate", "2", "--max-seconds", "5", "--data")


@pytest.mark.parametrize(
    ("name", "text", "more", "form", "columns", "osl"),
    [("a.csv", "prompt,output_tokens_count,x\nWhy?,5,y\n", (), "csv",
      (("prompt", "prompt"), ("output_tokens", "output_tokens_count")), None),
     ("a.jsonl", '{"id": 1, "question": "Why?"}\n', (), "custom", (("prompt", "question"),), "1024"),
     ("a.json", '[{"prompt": "Why?", "article": "How?"}]', ("--data-column-mapper", '{"text_column": "article"}'),
      "custom", (("prompt", "article"),), "1024"),
     ("a.jsonl", '{"q": "Why?", "n": 5}\n', ("--data-column-mapper", "kind=generative_column_mapper,"
      "column_mappings.text_column=q,column_mappings.output_tokens_count_column=n"), "custom",
      (("prompt", "q"), ("output_tokens", "n")), None)],
)  # fmt: skip
def test_files_of_guidellm(
    name: str, text: str, more: tuple[str, ...], form: str, columns: Any, osl: str | None, sent: list[RunSettings],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Their columns are found by their names; an answer without a length ends where the model ends it."""
    (tmp_path / name).write_text(text)
    workload = settings_of(sent, *GUIDED, name, *more).workload
    assert (workload.name, workload.dataset_columns, workload.osl) == (form, columns, osl)
    assert workload.ignore_eos == (osl is None)
    assert build_in(tmp_path / "plan", msgspec.structs.replace(sent[0], target=msgspec.structs.replace(
        sent[0].target, model="m"))).requests != 0  # fmt: skip


def test_other_data_of_guidellm(sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--data", "org/name", "--data-args", '{"name": "3.0.0", "split": "test"}', "--data-column-mapper")
    workload = settings_of(sent, *GUIDED[:-1], *words, "column_mappings.text_column=article").workload
    assert (workload.name, workload.dataset_path, workload.hf_split, workload.hf_subset) == (
        "hf", "org/name", "test", "3.0.0"
    )  # fmt: skip
    assert workload.dataset_columns == (("prompt", "article"),)
    typed = '{"kind": "huggingface", "source": "org/name", "load_kwargs": {"split": "test"}}'
    workload = settings_of(sent, *GUIDED, typed).workload
    assert (workload.dataset_path, workload.hf_split) == ("org/name", "test")
    (tmp_path / "lengths.json").write_text('{"prompt_tokens": 30, "prompt_tokens_stdev": 2, "output_tokens": 8}')
    assert settings_of(sent, *GUIDED, "lengths.json").workload.isl == "normal:30,2,20,40"
    for name, text in (
        ("a.csv", "x,y\n1,2\n"),
        ("b.csv", "system_prompt,prompt\n1,2\n"),
        ("c.csv", "prompt_0,prompt_1\n1,2\n"),
    ):
        (tmp_path / name).write_text(text)
        assert main(["compat", *GUIDED, name]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", f"--data {name}")
    for data in ("https://h/rows.parquet", "kind=mooncake,path=mooncake.jsonl", "kind=synthetic_image"):
        assert main(["compat", *GUIDED, data]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", "--data")


def test_fields_of_a_body_stay_as_deep_as_they_were_written(sent: list[RunSettings]) -> None:
    deep = {"chat_template_kwargs": {"enable_thinking": False}, "top_p": 0.9}
    for words in (
        ("--backend-kwargs", json.dumps({"extras": {"body": deep, "headers": {"X-A": "b"}}})),
        ("--backend-args", json.dumps({"extra_body": deep, "headers": {"X-A": "b"}})),
        ("--backend", "kind=openai_http,extras.body.chat_template_kwargs.enable_thinking=false,extras.body.top_p=0.9,"
         "extras.headers.X-A=b"),
    ):  # fmt: skip
        settings = settings_of(sent, *GUIDED[:-1], *DATA, *words)
        assert json.loads(settings.workload.extra_body or "") == deep
        assert settings.target.headers == (("X-A", "b"),)


def test_images_of_guidellm(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    data = "kind=synthetic_image,width=640,height=480,images_per_request=2,text_tokens=30,output_tokens=8"
    workload = settings_of(sent, *GUIDED, data).workload
    assert (workload.image, workload.isl, workload.osl) == ((640, 480, 2), "30", "8")
    assert main(["compat", *GUIDED, "kind=synthetic_image,text_tokens=30"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data kind=synthetic_image")


def test_lengths_of_early_versions_of_guidellm(sent: list[RunSettings]) -> None:
    data = "prompt_tokens=100,prompt_tokens_variance=30,generated_tokens=20,generated_tokens_variance=0"
    words = ("GUIDELLM__NUM_SWEEP_PROFILES=3", "guidellm", "--data-type", "emulated", "--max-seconds", "5")
    workload = settings_of(sent, *words, "--data", data).workload
    assert (workload.isl, workload.osl, len(sent)) == ("uniform:70,130", "20", 5)


def test_a_refused_value_is_named_as_it_was_typed(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = (*GUIDELLM, "--max-seconds", "5", "--warmup-percent", "10", "--cooldown-percent", "10")
    assert main(["compat", *words]) == 2 and sent == []
    shown = capsys.readouterr().err
    assert says(shown, "share-invalid", "--ramp-share is --max-seconds 5, --warmup-percent 10")
    assert "--cooldown-percent: not done" in shown
    assert main(["compat", *VLLM, "--num-prompts", "x"]) == 2
    assert says(capsys.readouterr().err, "count-invalid", "--num-requests is --num-prompts x")


def test_guidellms_groups_of_settings(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["guidellm", "run", "--backend", "kind=openai_http,target=http://h:8,extras.headers.X-A=b",
             "--profile", '{"kind": "concurrent", "streams": [1, 4], "warmup": 5}', "--seed", "kind=static,value=7",
             "--constraint", "kind=max_duration,seconds=20", "--constraint", "kind=max_errors,count=3",
             "--data", "kind=synthetic_text,prompt_tokens=256"]  # fmt: skip
    settings = settings_of(sent, *words)
    assert [one.load.concurrency for one in sent] == [1, 4] and settings.target.headers == (("X-A", "b"),)
    assert (settings.load.duration, settings.load.num_requests, settings.load.ramp_share) == (20, None, 0.25)
    assert json.loads(settings.workload.extra_body or "") == {"max_tokens": None} and not settings.workload.ignore_eos
    assert settings.client.seed == 7 and "--constraint kind=max_errors: not done" in capsys.readouterr().err
    assert main(["compat", *words, "--constraint", "kind=over_saturation"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--constraint kind=over_saturation")
    settings_of(sent, *words[:4], "--profile", "kind=poisson", "--override", "profile.rate", "3,5", *words[8:])
    assert [one.load.rate for one in sent] == [3, 5]


def test_variables_of_the_environment(
    sent: list[RunSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a tool reads are its options, and those of others are named; an option goes before its variable."""
    monkeypatch.setenv("GUIDELLM_MAX_SECONDS", "7")
    words = ("GUIDELLM_TARGET=http://h:1", "GUIDELLM_RATE=9", "GUIDELLM__OPENAI__API_KEY=key-secret-9",
             "CUDA_VISIBLE_DEVICES=0", "OTHER=1", *GUIDELLM)  # fmt: skip
    settings = settings_of(sent, *words)
    shown = capsys.readouterr().err
    assert (settings.target.urls, settings.load.rate, settings.load.duration) == (("http://h:1",), 2, 7)
    assert "CUDA_VISIBLE_DEVICES: ignored" in shown and "OTHER: not done" in shown and "key-secret-9" not in shown
    assert main(["compat", "GUIDELLM__NOVEL=1", *GUIDELLM]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "GUIDELLM__NOVEL")
    monkeypatch.delenv("GUIDELLM_MAX_SECONDS")
    assert settings_of(sent, "API_KEY=k-8", *SGLANG, "vllm").target.headers == (("Authorization", "k-8"),)
    assert main(["compat", "HTTPS_PROXY=http://p", *VLLM]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "HTTPS_PROXY")


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


AIPERF = ("aiperf", "profile", "-m", "m", "--concurrency", "2", "--input-file")


@pytest.mark.parametrize(
    ("words", "osl", "body", "count"),
    [(("prompts.jsonl",), "1024", {"max_tokens": None}, 10), (("prompts.jsonl", "--osl", "9"), "9", {}, 10),
     (("lengths.jsonl", "--request-count", "7"), None, {}, 7), (("texts.jsonl",), None, {}, 2),
     (("prompts.jsonl", "--custom-dataset-type", "random_pool"), "1024", {"max_tokens": None}, 10),
     (("lengths.jsonl", "--endpoint-type", "responses"), None, {}, 10)],
)  # fmt: skip
def test_aiperfs_own_prompts(
    words: tuple[str, ...], osl: str | None, body: dict[str, Any], count: int, sent: list[RunSettings]
) -> None:
    """Without lengths, answers end where the model ends them; files of texts are sent once."""
    settings = settings_of(sent, *AIPERF, *words)
    assert (settings.workload.name, settings.workload.osl, settings.load.num_requests) == ("aiperf", osl, count)
    assert json.loads(settings.workload.extra_body or "{}") == body and not settings.workload.ignore_eos


def test_aiperfs_own_conversations(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(sent, *AIPERF, "chats.jsonl", "--num-sessions", "5")
    assert (settings.workload.name, settings.workload.turns, settings.load.num_requests) == ("aiperf", "all", 5)
    assert main(["compat", *AIPERF, "chats.jsonl", "--request-count", "5"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--request-count 5")
    workload = settings_of(sent, *AIPERF, "prompts.jsonl", "--endpoint-type", "responses").workload
    assert json.loads(workload.extra_body or "") == {"max_output_tokens": None}
    assert main(["compat", *AIPERF, "prompts.jsonl", "--endpoint-type", "messages"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--endpoint-type anthropic-messages")
    target = settings_of(sent, *AIPERF, "prompts.jsonl", "--endpoint-type", "kserve_chat").target
    assert (target.endpoint_type, target.endpoint_path) == ("openai-chat", "/openai/v1/chat/completions")
    assert main(["compat", *AIPERF, "prompts.jsonl", "--fixed-schedule"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--fixed-schedule")


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


@pytest.mark.parametrize(
    ("words", "field", "found"),
    [(("--sweep-range", "1:8"), "load.concurrency", [1, 2, 4, 8]),
     (("--sweep-type", "request_rate", "--sweep-range", "10:30:10"), "load.rate", [10, 20, 30]),
     (("--sweep-type", "input_sequence_length", "--sweep-list", "100,150"), "workload.isl", ["100", "150"])],
)  # fmt: skip
def test_sweeps_of_genai_perf(
    words: tuple[str, ...], field: str, found: list[Any], sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    analyze = ("genai-perf", "analyze", "-m", "m", "--endpoint-type", "chat", "--request-count", "4")
    settings_of(sent, *analyze, *words)
    group, name = field.split(".")
    assert [getattr(getattr(one, group), name) for one in sent] == found
    assert main(["compat", *analyze]) == 2 and says(capsys.readouterr().err, "compat-load-differs", "analyze")
    for value in ("1:x", "4:1", "1:9:0"):
        assert main(["compat", *analyze, "--sweep-range", value]) == 2
        assert says(capsys.readouterr().err, "value-invalid", value)
    assert main(["compat", *analyze, "--sweep-type", "batch_size", "--sweep-list", "1,2"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--sweep-type batch_size")


def test_pauses_with_a_spread_have_its_mean(sent: list[RunSettings]) -> None:
    """A lognormal of median m and sigma s has the mean m exp(s s / 2) and the variance (exp(s s) - 1) mean mean."""
    words = ("--session-turns-mean", "3", "--session-turn-delay-mean", "2000", "--session-turn-delay-stddev", "500")
    text = settings_of(sent, "aiperf", "profile", "-m", "m", *words).workload.think_time
    median, sigma = (float(part.removesuffix("s")) for part in str(text).removeprefix("lognormal:").split(","))
    assert median * math.exp(sigma * sigma / 2) == pytest.approx(2, rel=1e-6)
    assert math.sqrt(math.exp(sigma * sigma) - 1) * 2 == pytest.approx(0.5, rel=1e-6)


def test_public_data_sets_are_found_where_they_lie(
    sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aiperf", "profile", "-m", "m", "--public-dataset")
    settings = settings_of(sent, *words, "sharegpt")
    assert (settings.workload.name, settings.workload.isl, settings.workload.extra_body) == ("sharegpt", None, None)
    (tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json").unlink()
    for name in ("sharegpt", "aimo"):
        assert main(["compat", *words, name]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", f"--public-dataset {name}")


EVALSCOPE = ("evalscope", "perf", "--model", "m", "--parallel", "2", "--number", "8", "--max-tokens", "16")


def test_evalscopes_own_prompts(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    workload = settings_of(sent, *EVALSCOPE, "--prompt", "Write a story").workload
    assert (workload.name, workload.prompt, workload.osl) == ("text", "Write a story", "16")
    assert settings_of(sent, *EVALSCOPE, "--prompt", "@prompts.txt").workload.prompt == "Why?\nWhere to?\n"
    workload = settings_of(sent, *EVALSCOPE, "--dataset", "line_by_line", "--dataset-path", "prompts.txt").workload
    assert (workload.name, workload.dataset_path, workload.prompt) == ("text", "prompts.txt", None)
    words = ("--dataset", "line_by_line", "--dataset-path", "prompts.txt", "--min-prompt-length", "5")
    assert main(["compat", *EVALSCOPE, *words]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--min-prompt-length 5")
    workload = settings_of(sent, *EVALSCOPE, "--dataset", "openqa", "--max-prompt-length", "2000").workload
    assert (workload.name, workload.dataset_path, dict(workload.dataset_columns)) == (
        "custom", "open_qa.jsonl", {"prompt": "question"}
    )  # fmt: skip
    assert main(["compat", *EVALSCOPE, "--dataset", "longalpaca"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--dataset longalpaca")
    assert main(["compat", *EVALSCOPE, "--prompt", "@absent.txt"]) == 2
    assert says(capsys.readouterr().err, "file-unreadable", "--prompt is --prompt @absent.txt")


def test_evalscopes_conversations_and_templates(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dataset", "random_multi_turn", "--min-prompt-length", "5", "--max-prompt-length", "9", "--multi-turn")
    settings = settings_of(sent, *EVALSCOPE, *words, "--min-turns", "2", "--max-turns", "5")
    assert (settings.workload.turns, settings.workload.isl, settings.load.num_requests) == (
        "uniform:2,5",
        "uniform:5,9",
        8,
    )
    assert "--number 8: nearly the same" in capsys.readouterr().err
    assert main(["compat", *EVALSCOPE, *words]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--max-turns")
    fields = {"model": "%m", "messages": [{"role": "user", "content": "%p"}], "stream": False, "stop": ["x"],
              "temperature": 0.7, "max_tokens": 33}  # fmt: skip
    words = (*EVALSCOPE[:-2], "--prompt", "p", "--query-template")
    workload = settings_of(sent, *words, json.dumps(fields)).workload
    assert (workload.osl, workload.temperature, workload.streaming) == ("33", 0.7, False)
    assert json.loads(workload.extra_body or "") == {"stop": ["x"]}
    fields["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "%p"}]
    assert main(["compat", *words, json.dumps(fields)]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--query-template messages")
    for text, code in (("[1]", "json-invalid"), ("@absent", "file-unreadable")):
        assert main(["compat", *words, text]) == 2 and says(capsys.readouterr().err, code, "--query-template")


def test_rates_that_are_repeated_or_a_range(sent: list[RunSettings]) -> None:
    settings_of(sent, *GUIDELLM[:2], "--data", "prompts.txt", "--max-seconds", "5", "--profile", "concurrent",
                "--rate", "2", "--rate", "4,8")  # fmt: skip
    assert [each.load.concurrency for each in sent] == [2, 4, 8] and sent[0].workload.name == "text"
    settings_of(sent, *SGLANG, "sglang", "--multi", "--request-rate-range", "1,10,4")
    assert [each.load.rate for each in sent] == [1, 5, 9]


def test_turns_of_guidellm_at_a_rate_are_counted_otherwise(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--data", "prompt_tokens=9,output_tokens=4,turns=3", "--max-seconds", "5")
    assert main(["compat", "guidellm", *words]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data turns=3")
    for profile, arrival in (("constant", "constant"), ("poisson", "poisson")):
        load = settings_of(sent, "guidellm", "--profile", profile, "--rate", "6", *words).load
        assert (load.rate, load.arrival, load.duration) == (2.0, arrival, 5.0)
        assert "--data turns=3: nearly the same: a rate counts turns" in capsys.readouterr().err
    settings_of(sent, "guidellm", "--profile", "constant", "--rate", "3,6", *words)
    assert [each.load.rate for each in sent] == [1, 2]
    settings = settings_of(sent, "guidellm", "--profile", "synchronous", *words, "--max-requests", "10")
    assert (settings.workload.turns, settings.load.num_requests) == ("3", 4)
    assert "--max-requests 10: nearly the same" in capsys.readouterr().err


def test_ramps_of_aiperf_in_a_run_of_a_known_duration(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aiperf", "profile", "-m", "m", "--concurrency", "100", "--concurrency-ramp-duration", "30")
    load = settings_of(sent, *words, "--benchmark-duration", "120").load
    assert (load.concurrency_curve, load.concurrency, load.duration) == ("ramp:1,100,30", 100, 120)
    assert main(["compat", *words, "--request-count", "1000"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--concurrency-ramp-duration 30")
    words = ("aiperf", "profile", "-m", "m", "--request-rate", "100", "--request-rate-ramp-duration", "50")
    load = settings_of(sent, *words, "--benchmark-duration", "100", "--warmup-request-rate", "3").load
    assert (load.rate_curve, load.rate) == ("ramp:0.2,100,50", pytest.approx((50.1 + 100) / 2))
    assert "--warmup-request-rate: nearly the same" in capsys.readouterr().err
    load = settings_of(sent, "aiperf", "profile", "-m", "m", "--request-rate", "inf", "--concurrency", "9").load
    assert (load.rate, load.concurrency, load.max_concurrency) == (None, 9, None)


def test_system_prompts_of_genai_perf(sent: list[RunSettings]) -> None:
    words = ("--num-system-prompts", "10", "--system-prompt-length", "512")
    workload = settings_of(sent, "genai-perf", "profile", "-m", "m", "--endpoint-type", "chat", *words).workload
    assert (workload.prefix_len, workload.num_prefixes) == (512, 10)


@pytest.mark.parametrize(
    "text",
    ["64|10,32|8:70;256,128:30", "[(64|10,32|8):70, (256,128):30]",
     json.dumps({"pairs": [{"isl": 64, "isl_stddev": 10, "osl": 32, "osl_stddev": 8, "prob": 70},
                           {"isl": 256, "osl": 128, "prob": 30}]})],
)  # fmt: skip
def test_aiperfs_pairs_of_lengths_are_classes(
    text: str, sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aiperf", "profile", "-m", "m", "--request-rate", "4", "--request-count", "20", "--sequence-distribution")
    settings = settings_of(sent, *words, text)
    found = [(one.load.num_requests, one.workload.isl, one.workload.osl) for one in settings.classes]
    assert [each[1:] for each in found] == [("normal:64,10", "normal:32,8"), ("256", "128")]
    assert settings.workload.extra_body is None
    assert main(["compat", *words, "64,32:70"]) == 2 and says(capsys.readouterr().err, "value-invalid")
    assert main(["compat", "aiperf", "profile", "-m", "m", "--seq-dist", text]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--sequence-distribution")


def test_an_old_file_of_vllm_and_a_command_of_the_shell(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "benchmark_serving.py",
        "--backend",
        "vllm",
        "--model",
        "m",
        "--dataset",
        "ShareGPT_V3_unfiltered_cleaned_split.json",
    )
    workload = settings_of(sent, *words).workload
    assert (workload.name, workload.dataset_path, workload.isl, workload.osl) == ("sharegpt", words[-1], None, None)
    assert not workload.ignore_eos
    assert main(["compat", "vllm bench serve --model m --seed $(hostname) --dataset-name random"]) == 2
    assert says(capsys.readouterr().err, "usage", "$(hostname)")


def test_runs_of_aiperf_are_a_sweep(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("aiperf", "profile", "-m", "m", "--concurrency", "8", "--num-profile-runs", "3")
    assert settings_of(sent, *words).load.concurrency == 8 and len(sent) == 1
    shown = capsys.readouterr().err.splitlines()[0]
    assert shown.startswith("fastllmload sweep --vary concurrency=8 ") and " --runs 3 --same-requests " in shown
