"""Data sets and programs of other tools: what each becomes, and which file, server or size decides that."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.cli.compat.translate import Translation, translations

VLLM = ("vllm", "bench", "serve", "--model", "m", "--dataset-name")
SGLANG = ("sglang", "--model", "m", "--dataset-name")
SHAREGPT = "ShareGPT_V3_unfiltered_cleaned_split.json"


def translated(*words: str, server: str | None = None) -> Translation:
    (found,) = translations(words, {"HF_HOME": "hub-home"}, server)
    return found


def options(*words: str, server: str | None = None) -> dict[str, str]:
    """Options of our command; a switch has the next option as its value."""
    (command,) = translated(*words, server=server).commands
    return {
        word: command[at + 1] if at + 1 < len(command) else "" for at, word in enumerate(command) if word[:2] == "--"
    }


def changes(*words: str) -> list[str]:
    return [lack.option for lack in translated(*words).lacks if lack.kind == "changes"]


def test_vllms_sonnet_is_a_shared_prefix_and_random_words() -> None:
    found = options(*VLLM, "sonnet", "--dataset-path", "sonnet.txt", "--sonnet-input-len", "1000")
    assert (found["--isl"], found["--prefix-len"], found["--osl"]) == (
        "800",
        "200",
        "150",
    ) and "--no-ignore-eos" in found
    assert "--prefix-len" not in options(*VLLM, "sonnet", "--sonnet-prefix-len", "0", "--ignore-eos")
    notes = translated(*VLLM, "sonnet").differs
    assert any("poem" in line for line in notes) and not any("ratio" in line for line in notes)


def test_vllms_images_of_one_size() -> None:
    bucket = ("--random-mm-bucket-config", "{(480, 864, 1): 1.0, (720, 1280, 16): 0.0}")
    found = options(*VLLM, "random-mm", *bucket, "--random-mm-base-items-per-request", "20", "--random-input-len", "9")
    assert (found["--image"], found["--isl"], found["--workload"]) == ("864x480:20", "9", "random")
    limit = ("--random-mm-limit-mm-per-prompt", '{"image": 3, "video": 0}', "--random-mm-base-items-per-request", "5")
    assert (
        options(*VLLM, "random-mm", "--random-mm-bucket-config", '{"(32, 64, 1)": 0.5}', *limit)["--image"] == "64x32:3"
    )


def test_vllms_images_of_several_sizes_are_sets_by_share() -> None:
    """Each image has its own size, and the number is drawn too, at any load: every set with its probability."""
    both = "256x256:1@0.5,1280x720:1@0.5"
    assert {item: float(share) for item, _, share in shares_of(*VLLM, "random-mm")} == {
        "256x256:1": 0.5, "1280x720:1": 0.5,
    }  # fmt: skip
    assert options(*VLLM, "random-mm", "--request-rate", "4")["--image"].count("@") == both.count("@")
    words = ("--random-mm-base-items-per-request", "2", "--random-mm-num-mm-items-range-ratio", "0.5")
    config = ("--random-mm-bucket-config", "{(256, 256, 1): 0.7, (720, 1280, 1): 0.3}")
    found = {item: float(share) for item, _, share in shares_of(*VLLM, "random-mm", *words, *config)}
    assert sum(found.values()) == pytest.approx(1) and len(found) == 2 + 3 + 4
    assert found["256x256:1+1280x720:1"] == pytest.approx(2 * 0.7 * 0.3 / 3)
    assert found["1280x720:3"] == pytest.approx(0.3**3 / 3) and found["256x256:1"] == pytest.approx(0.7 / 3)
    limit = ("--random-mm-limit-mm-per-prompt", '{"image": 2, "video": 0}')
    assert len(shares_of(*VLLM, "random-mm", *words, *config, *limit)) == 2 + 3
    none = shares_of(*VLLM, "random-mm", *words[:3], "1", *config)
    assert [(item, float(share)) for item, _, share in none if item == "none"] == [("none", pytest.approx(0.2))]
    rate = (*VLLM, "random-mm", "--request-rate", "4")
    assert len(changes(*rate, "--random-mm-bucket-config", "{(32, 32, 8): 1.0}")) == 1
    for option, value, code in (
        ("--random-mm-bucket-config", "{}", "value-invalid"),
        ("--random-mm-base-items-per-request", "x", "count-invalid"),
        ("--random-mm-num-mm-items-range-ratio", "2", "number-invalid"),
    ):
        with raises_code(code, option):
            translated(*rate, option, value)


def shares_of(*words: str) -> list[tuple[str, str, str]]:
    return [each.partition("@") for each in options(*words)["--image"].split(",")]


def test_numbers_of_images_that_sglang_draws_are_sets_by_share() -> None:
    words = (*SGLANG, "image", "--backend", "sglang-oai-chat", "--random-image-count", "--image-count", "2")
    assert options(*words, "--image-resolution", "720p")["--image"] == "1280x720:1@0.5,1280x720:2@0.5"
    with raises_code("count-invalid", "'x'"):
        translated(*words[:-1], "x")
    found = options(*SGLANG, "image", "--backend", "sglang")
    assert (found["--endpoint-type"], found["--image"]) == ("openai-chat", "1920x1080:1")


def test_turns_and_the_longest_answer_of_sglang() -> None:
    found = options(*SGLANG, "generated-shared-prefix", "--gsp-num-turns", "5", "--gsp-num-groups", "2")
    assert (found["--turns"], found["--num-requests"], found["--num-prefixes"]) == ("5", "32", "2")
    assert "--turns" not in options(*SGLANG, "generated-shared-prefix", "--gsp-num-turns", "1")
    body = '{"sampling_params": {"max_new_tokens": 3, "temperature": 0.5}}'
    found = options(*SGLANG, "random", "--extra-request-body", body)
    assert (found["--osl"], json.loads(found["--extra-body"])) == ("3", {"sampling_params": {"temperature": 0.5}})


def test_a_trace_of_vllm_has_its_own_instants() -> None:
    words = (*VLLM, "timed_trace", "--dataset-path", "mooncake.jsonl", "--max-concurrency", "7")
    units = ("--timed-trace-chunk-hash-size", "512", "--timed-trace-sec-multiplier", "0.001")
    found = options(*words, *units)
    assert (found["--workload"], found["--max-concurrency"]) == ("mooncake", "7")
    assert not found.keys() & {"--rate", "--concurrency"} and changes(*words, *units) == []
    assert changes(*words) == ["--timed-trace-chunk-hash-size 16", "--timed-trace-sec-multiplier 1"]
    assert "--no-self-timed" in changes(*words, *units, "--no-self-timed")


def test_numbers_of_entries_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-1 is all of them, and --no-oversample at most all."""
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text('{"prompt": "a"}\n\n{"prompt": "b"}\n')
    Path(SHAREGPT).write_text("[{}, {}, {}]")
    rows = [{"category": "qa" if n % 3 else "math", "turns": ["a"]} for n in range(9)]
    Path("question.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    custom = (*VLLM, "custom", "--dataset-path", "data.jsonl")
    assert options(*custom, "--num-prompts", "-1")["--num-requests"] == "2"
    assert options(*custom, "--no-oversample")["--num-requests"] == "2"
    assert options(*custom, "--num-prompts", "1", "--no-oversample")["--num-requests"] == "1"
    assert "--osl" not in options(*custom, "--custom-output-len", "-1")
    assert options(*VLLM, "sharegpt", "--dataset-path", SHAREGPT, "--num-prompts", "-1")["--num-requests"] == "3"
    spec = (
        *VLLM,
        "spec_bench",
        "--dataset-path",
        "question.jsonl",
        "--num-prompts",
        "-1",
        "--spec-bench-category",
        "qa",
    )
    found = options(*spec)
    assert (found["--workload"], found["--num-requests"], found["--dataset-class"]) == ("hf", "6", "qa")
    assert (found["--dataset-column"], found["--osl"]) == ("class=category", "256")
    assert changes(*VLLM, "custom", "--dataset-path", "absent.jsonl", "--num-prompts", "-1") == ["--num-prompts -1"]


def test_prefixes_of_vllm_come_equally_often() -> None:
    words = (*VLLM, "prefix_repetition", "--num-prompts", "107", "--prefix-repetition-num-prefixes", "10")
    assert options(*words)["--num-requests"] == "100"


def test_rows_of_burstgpt_that_vllm_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    file.write_text(f"{head}5,GPT-4,10,20,30,API log\n")
    assert changes(*VLLM, "burstgpt", "--dataset-path", str(file)) == []
    file.write_text(
        f"{head}5,GPT-4,10,20,30,API log\n6,ChatGPT,10,20,30,API log\n7,GPT-4,9,0,9,API log\n8,GPT-4,7,3,10,b\n"
    )
    words = (*VLLM, "burstgpt", "--dataset-path", str(file))
    ((path, text),) = translated(*words).files.items()
    assert options(*words)["--dataset-path"] == path and changes(*words) == []
    assert text == f"{head}5,GPT-4,10,20,30,API log\n8,GPT-4,7,3,10,b\n"


def test_a_file_that_sglang_fetches_is_found_where_it_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    words = ("sglang", "--model", "m")
    assert options(*words)["--dataset-path"] == f"hf://datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/{SHAREGPT}"
    request.getfixturevalue("without_hub")
    assert changes(*words) == ["--dataset-name sharegpt"]
    assert any(SHAREGPT in lack.why and "fastllmload[hf]" in lack.why for lack in translated(*words).lacks)
    snapshot = Path("hub-home/hub/datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/snapshots/1")
    for folder in (snapshot, tmp_path / "temporary", Path()):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SHAREGPT).write_text("[]")
        assert Path(options(*words)["--dataset-path"]) == folder / SHAREGPT
    trace = ("--mooncake-workload", "toolagent", "--max-concurrency", "8")
    assert changes(*SGLANG, "mooncake", *trace) == ["--dataset-name mooncake"]
    Path("toolagent_trace.jsonl").write_text(
        '{"timestamp": 0, "hash_ids": [7, 8]}\n{"timestamp": 3000, "hash_ids": [7]}\n'
    )
    for name in (("mooncake", *trace), ("mooncake-toolagent", "--max-concurrency", "8")):
        found = options(*SGLANG, *name, "--mooncake-slowdown-factor", "2")
        assert (found["--workload"], found["--max-concurrency"]) == ("graph", "8")
        assert not found.keys() & {"--rate", "--concurrency", "--num-requests"}
        (text,) = translated(*SGLANG, *name).files.values()
        _, *calls = map(json.loads, text.splitlines())
    assert [(call["at_s"], call["input_tokens"], call["output_tokens"]) for call in calls] == [
        (0, 21, 256),
        (3, 17, 256),
    ]
    assert changes(*SGLANG, *name, "--mooncake-num-rounds", "3") == ["--mooncake-num-rounds 3"]


def test_groups_of_sglang_have_lengths_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ratio: each group as often, its prefix in multiples of 1/128 of the longest; in order if that is asked for."""
    monkeypatch.chdir(tmp_path)
    words = (
        *SGLANG,
        "generated-shared-prefix",
        "--gsp-num-groups",
        "3",
        "--gsp-prompts-per-group",
        "2",
        "--gsp-range-ratio",
    )
    found = translated(*words, "0.5", "--gsp-ordered", "--gsp-system-prompt-len", "1280", "--gsp-question-len", "40")
    (text,) = found.files.values()
    first, *calls = map(json.loads, text.splitlines())
    assert first["block_tokens"] == 10
    blocks = [set(call["hash_ids"]) for call in calls]
    assert [len(one & other) for one, other in itertools.pairwise(blocks)][1::2] == [0, 0]
    assert blocks[::2] == blocks[1::2]
    for call in calls:
        assert 64 <= len(call["hash_ids"]) <= 128 and 128 <= call["output_tokens"] <= 256
        assert 20 <= call["input_tokens"] - 10 * len(call["hash_ids"]) <= 40
    assert options(*words, "1")["--num-prefixes"] == "3"
    assert changes(*words, "0.5", "--gsp-num-turns", "3") == ["--gsp-range-ratio 0.5"]


BATCH = (
    "python3",
    "-m",
    "sglang.bench_one_batch_server",
    "--model",
    "None",
    "--base-url",
    "http://h:1",
    "--batch-size",
)


def test_an_adapter_of_sglangs_own_api_is_a_field_of_the_body() -> None:
    for words in ((*SGLANG, "random", "--backend", "sglang", "--lora-name", "a"), (*BATCH, "4", "--lora-name", "a")):
        assert json.loads(options(*words)["--extra-body"])["lora_path"] == "a"
        assert changes(*words) == [] and "--models" not in options(*words)
    assert changes(*BATCH, "4", "--lora-name", "a", "b") == ["--lora-name"]
    assert changes(*SGLANG, "random", "--backend", "sglang", "--lora-name", "a", "b") == ["--lora-name"]
    assert changes(*BATCH, "4", "--dataset-name", "mmmu") == ["--dataset-name"]


def test_batches_of_sglang_are_sent_at_once() -> None:
    found = options(*BATCH, "16", "--input-len", "100", "--output-len", "9", "--skip-warmup", "--tp", "8")
    assert (found["--rate"], found["--num-requests"], found["--isl"], found["--osl"]) == ("inf", "16", "100", "9")
    assert (found["--warmup"], found["--temperature"]) == ("0", "0") and "--model" not in found
    assert options(*BATCH, "1", "16")["--vary"] == "num-requests=1;16"
    several = translated(*BATCH, "1", "2", "--input-len", "100", "200").commands
    assert [(one[one.index("--num-requests") + 1], one[one.index("--isl") + 1]) for one in several] == [
        ("1", "100"), ("1", "200"), ("2", "100"), ("2", "200")]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "load", "temperature"),
    [
        (("vllm", "bench", "throughput", "--num-prompts", "7", "--input-len", "5", "--output-len", "3"), "--rate", "1"),
        (("benchmark_latency.py", "--batch-size", "4", "--num-iters", "5"), "--concurrency", "1"),
        (("sglang.bench_offline_throughput", "--dataset-name", "random", "--num-prompts", "9"), "--rate", "0"),
    ],
)  # fmt: skip
def test_programs_without_a_server_run_against_one_that_is_named(
    words: tuple[str, ...], load: str, temperature: str
) -> None:
    """Options of the engine are ignored, and answers have their full length."""
    with raises_code("compat-load-differs", "--url"):
        translated(*words)
    found = options(*words, "--model", "m", "--gpu-memory-utilization", "0.9", server="http://h:1")
    assert found["--url"] == "http://h:1" and load in found and "--no-ignore-eos" not in found
    assert found.get("--temperature", "0") == temperature


@pytest.mark.parametrize(
    "words",
    [("trtllm-bench", "--model", "m", "build"), ("python", "llm_correctness.py"), ("vllm", "bench", "startup"),
     ("vllm", "bench", "sweep", "serve"), ("python", "-m", "sglang.bench_one_batch", "--model", "m")],
)  # fmt: skip
def test_programs_that_send_no_load(words: tuple[str, ...]) -> None:
    with raises_code("compat-load-differs", words[-1] if words[-1].endswith(".py") else ""):
        translated(*words)


BENCH = ("trtllm-bench", "--model", "org/m", "--model_path", "/x")


def test_requests_of_trtllm_bench_go_to_a_server(tmp_path: Path) -> None:
    file = tmp_path / "requests.txt"
    rows = [
        {"task_id": 0, "prompt": "Why?", "output_tokens": 9},
        {"task_id": 1, "input_ids": [5, 6], "output_tokens": 4},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--dataset", str(file), "--backend", "pytorch", "--tp", "4")
    with raises_code("compat-load-differs", "--url"):
        translated(*BENCH, "throughput", *words)
    found = translated(*BENCH, "throughput", *words, server="http://h:1")
    assert [lack for lack in found.lacks if lack.kind != "harmless"] == []
    (text,) = found.files.values()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"prompt": "Why?", "output_tokens": 9}, {"prompt": [5, 6], "output_tokens": 4}
    ]  # fmt: skip
    for more, wanted in (
        (("throughput",), {"--rate": "inf", "--num-requests": "2", "--no-stream": ""}),
        (("throughput", "--streaming", "--concurrency", "8", "--warmup", "0"), {"--concurrency": "8", "--warmup": "0"}),
        (("throughput", "--concurrency", "-1", "--num_requests", "1"), {"--rate": "inf", "--num-requests": "1"}),
        (("latency",), {"--concurrency": "1", "--num-requests": "2", "--warmup": "2", "--temperature": "0"}),
    ):
        sent = options(*BENCH, *more, *words, server="http://h:1")
        assert sent.items() >= wanted.items() and ("--rate" in sent) != ("--concurrency" in sent)
        assert ("--no-stream" in sent) == (more[0] == "throughput" and "--streaming" not in more)
        assert sent["--model"] == "org/m" and sent["--dataset-path"].startswith("runs/compat-requests-")
    file.write_text('{"task_id": 0, "prompt": "Why?"}\n')
    with raises_code("dataset-field-invalid", "line 1", "output_tokens"):
        translated(*BENCH, "latency", *words, server="http://h:1")
    lacks = translated(*BENCH, "build", server="http://h:1").lacks
    assert {lack.option for lack in lacks if lack.kind == "changes"} == {"--mode", "--dataset"}


def test_the_ratio_of_inferencex_is_the_shortest_length() -> None:
    words = ("python3", "bench_serving/benchmark_serving.py", "--model", "m", "--random-input-len", "100")
    assert options(*words, "--random-range-ratio", "0.8")["--isl"] == "uniform:80,100"
    assert options(*words)["--isl"] == "100"
    old = options("python3", "benchmarks/benchmark_serving.py", "--model", "m", "--random-range-ratio", "1")
    assert old["--isl"] == "1024" and "--random-range-ratio" not in old


LLMPERF = ("token_benchmark_ray.py", "--llm-api", "litellm", "--model")


def test_models_of_litellm() -> None:
    found = options("TOGETHERAI_API_KEY=k-9", *LLMPERF, "together_ai/org/name")
    assert (found["--model"], found["--endpoint-type"], found["--api-key"]) == ("org/name", "openai-chat", "k-9")
    assert "--api-key" not in options("TOGETHERAI_API_KEY=k-9", *LLMPERF, "groq/x")
    found = options("OPENAI_API_BASE=http://h:1/v1", *LLMPERF, "openai/x")
    assert (found["--url"], found["--model"]) == ("http://h:1/v1", "x")
    assert options(*LLMPERF, "anthropic/c")["--endpoint-type"] == "anthropic-messages"
    for name in ("bedrock/x", "gpt-4"):
        assert changes(*LLMPERF, name) == ["--llm-api litellm"]
    plain = (
        "token_benchmark_ray.py",
        "--model",
        "openai/gpt-oss",
        "--additional-sampling-params",
        '{"max_tokens": 50}',
    )
    found = options(*plain, "--metadata", "a=1,b=2")
    assert (found["--model"], found["--osl"], found["--metadata"]) == ("openai/gpt-oss", "50", "b=2")


def test_notes_are_about_what_is_sent() -> None:
    def random_words(*words: str) -> bool:
        return any("random words" in line for line in translated(*words).differs)

    assert random_words(*VLLM, "random") and random_words(*SGLANG, "random")
    assert not random_words(*VLLM, "custom", "--dataset-path", "x")
    assert not random_words(*SGLANG, "sharegpt", "--dataset-path", "x")


def test_a_path_of_the_api_is_not_written_twice() -> None:
    words = ("--base-url", "http://h:1/v1", "--endpoint", "/v1/completions")
    assert options(*VLLM, "random", *words)["--url"] == "http://h:1/v1"
