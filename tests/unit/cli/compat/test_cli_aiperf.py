"""Command lines of AIPerf and GenAI-Perf: files, sessions, sweeps and lengths."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from compat_runs import settings_of
from refusals import says

from fastllmload.cli.main import main
from fastllmload.settings import RunSettings


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


def test_genai_perf_sends_tensors_to_an_ensemble_over_grpc(sent: list[RunSettings]) -> None:
    """With 256 tokens where no length is asked for, and the shortest length where it is exact; `generate` is over HTTP."""
    words = ("genai-perf", "profile", "-m", "ensemble", "--backend", "tensorrtllm")
    settings = settings_of(sent, *words)
    assert settings.target.endpoint_type == "kserve-grpc-ensemble" and settings.target.urls == (
        "http://localhost:8001",
    )
    workload = settings.workload
    assert (workload.osl, workload.ignore_eos, workload.streaming, workload.temperature) == ("256", False, False, None)
    words = (*words, "--streaming", "--output-tokens-mean", "9", "--output-tokens-mean-deterministic")
    workload = settings_of(sent, *words, "--service-kind", "triton").workload
    assert (workload.osl, workload.ignore_eos, workload.streaming) == ("9", True, True)
    words = ("genai-perf", "profile", "-m", "m", "--endpoint-type", "generate", "--output-tokens-mean", "9")
    settings = settings_of(sent, *words)
    assert (settings.target.endpoint_type, settings.workload.streaming) == ("triton-ensemble", False)


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
    load = settings_of(sent, *AIPERF, "chats.jsonl", "--request-count", "5").load
    assert load.num_requests == 3, "conversations of two turns each"
    assert "--request-count 5: nearly the same" in capsys.readouterr().err
    workload = settings_of(sent, *AIPERF, "prompts.jsonl", "--endpoint-type", "responses").workload
    assert json.loads(workload.extra_body or "") == {"max_output_tokens": None}
    assert main(["compat", *AIPERF, "prompts.jsonl", "--endpoint-type", "messages"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--endpoint-type anthropic-messages")
    target = settings_of(sent, *AIPERF, "prompts.jsonl", "--endpoint-type", "kserve_chat").target
    assert (target.endpoint_type, target.endpoint_path) == ("openai-chat", "/openai/v1/chat/completions")
    assert main(["compat", *AIPERF, "prompts.jsonl", "--fixed-schedule"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--fixed-schedule")


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


@pytest.mark.usefixtures("without_hub")
def test_public_data_sets_are_found_where_they_lie(
    sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aiperf", "profile", "-m", "m", "--public-dataset")
    settings = settings_of(sent, *words, "sharegpt")
    assert (settings.workload.name, settings.workload.isl, settings.workload.extra_body) == ("sharegpt", None, None)
    (tmp_path / "ShareGPT_V3_unfiltered_cleaned_split.json").unlink()
    workload = settings_of(sent, *words, "aimo").workload
    assert (workload.name, workload.dataset_path, workload.hf_split) == ("hf", "AI-MO/NuminaMath-TIR", "train")
    for name in ("sharegpt", "mmvu"):
        assert main(["compat", *words, name]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", f"--public-dataset {name}")


def test_ramps_of_aiperf_in_a_run_of_a_known_duration(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aiperf", "profile", "-m", "m", "--concurrency", "100", "--concurrency-ramp-duration", "30")
    load = settings_of(sent, *words, "--benchmark-duration", "120").load
    assert (load.concurrency_curve, load.concurrency, load.duration) == ("ramp:1,100,30", 100, 120)
    load = settings_of(sent, *words, "--request-count", "1000").load
    assert (load.concurrency_curve, load.num_requests, load.duration) == ("ramp:1,100,30", 1000, 86400)
    assert main(["compat", *words, "--request-rate", "5", "--benchmark-duration", "9"]) == 2
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


def test_runs_of_aiperf_are_a_sweep(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("aiperf", "profile", "-m", "m", "--concurrency", "8", "--num-profile-runs", "3")
    assert settings_of(sent, *words).load.concurrency == 8 and len(sent) == 1
    shown = capsys.readouterr().err.splitlines()[0]
    assert shown.startswith("fastllmload sweep --vary concurrency=8 ") and " --runs 3 --same-requests " in shown
