"""Command lines of vLLM and SGLang: random lengths, data sets, resets and rates."""

from __future__ import annotations

import json

import pytest
from compat_runs import VLLM, settings_of
from refusals import says

from fastllmload.cli.main import main
from fastllmload.settings import RunSettings


def test_vllm_sends_all_at_once_by_default(sent: list[RunSettings]) -> None:
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


def test_the_model_of_triton_is_in_the_path(sent: list[RunSettings]) -> None:
    """vLLM's and SGLang's requests to an ensemble of TensorRT-LLM, with the fields that they always have."""
    words = (*VLLM, "--backend", "tensorrt-llm", "--endpoint", "/v2/models/bls/generate_stream")
    settings = settings_of(sent, *words, "--random-output-len", "9")
    assert settings.target.endpoint_type == "triton-ensemble" and settings.target.urls == ("http://127.0.0.1:8000",)
    workload = settings.workload
    assert settings.target.model == "bls"
    assert (workload.osl, workload.ignore_eos, workload.temperature) == (
        "9",
        False,
        0.0,
    )
    assert json.loads(workload.extra_body or "") == {"top_p": 1, "accumulate_tokens": True}
    words = ("sglang", "--backend", "trt", "--model", "m", "--base-url", "http://h:1", "--dataset-name", "random")
    settings = settings_of(sent, *words)
    assert (settings.target.model, settings.target.endpoint_type) == ("ensemble", "triton-ensemble")
    assert json.loads(settings.workload.extra_body or "") == {
        "accumulate_tokens": True, "end_id": 1048576, "top_p": 1,
    }  # fmt: skip
    assert (settings.workload.ignore_eos, settings.workload.temperature) == (True, 1e-6)


def test_a_sweep_of_vllm_runs_its_command_with_each_set_of_values(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    """As often as it would, with an empty cache each time, against the server that --url names; else all is named."""
    with open("params.json", "w") as file:
        json.dump(
            [{"_benchmark_name": "a", "random_input_len": 128, "ignore_eos": True}, {"random_input_len": 256}], file
        )
    command = (
        "vllm bench serve --model m --dataset-name random --random-input-len 9 --random-output-len 7 --num-prompts 4"
    )
    words = ["vllm", "bench", "sweep", "serve", "--serve-cmd", "vllm serve m", "--bench-cmd", command]
    words += ["--bench-params", "params.json", "-o", "out"]
    assert main(["compat", "--url", "http://h:1", *words, "--num-runs", "2"]) == 0
    assert [one.workload.isl for one in sent] == ["128", "128", "256", "256"]
    assert {(one.workload.osl, one.target.urls, one.load.num_requests) for one in sent} == {("7", ("http://h:1",), 4)}
    assert main(["compat", "--url", "http://h:1", "--print", *words]) == 0
    assert capsys.readouterr().out.count("--between reset-cache") == 6
    assert main(["compat", *words]) == 2 and says(capsys.readouterr().err, "compat-load-differs", "--url URL")
    other = ("--serve-params", "s.json", "--sla-variable", "x")
    assert main(["compat", "--url", "http://h:1", *words, *other]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--serve-params", "--sla-variable")
    words[-3] = "none.json"
    assert main(["compat", "--url", "http://h:1", *words]) == 2 and says(capsys.readouterr().err, "file-unreadable")
