"""Other tools' command lines: the server's log has the requests, the rate, the lengths and the fields that they ask for."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from commands import command

from fastllmload.cli.compat.translate import translate
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import NO_KEY
from fastllmload.simulator.truth import load as load_truth

MEASURED = 1  # phase of the measured requests


CADENCE = SimulatorOptions(ttft_ms=2.0, itl_ms=0.5)
ENDING = msgspec.structs.replace(CADENCE, overrides=(("eos_mean_tokens", "2"),))  # its model ends answers early


def requests_of(
    folder: Path, typed: str, options: SimulatorOptions = CADENCE, ours: bool = False, words: bool = False
) -> npt.NDArray[np.void]:
    """Requests of the command *typed* in the server's log, in the order of their arrival; {url} is the server. *ours*: it is
    a command of fastllmload itself; *words*: it begins with an option of compat.
    """
    folder.mkdir()
    truth = folder / "truth.bin"
    with SimulatorProcess(msgspec.structs.replace(options, truth=str(truth))) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        text = typed.format(url=server.url, host=host, port=port)
        given = shlex.split(text) if ours or words else [text]
        done = command(*given) if ours else command("compat", *given)
    assert done.returncode == 0, done.stderr
    found = load_truth(truth).requests
    named = found[found["key"] != NO_KEY]
    return named[np.argsort(named["t_recv_first"], kind="stable")]


def in_flight(requests: npt.NDArray[np.void]) -> int:
    """The most at the same time."""
    begun, ended = requests["t_recv_first"], requests["t_end"]
    return max(int(((begun <= at) & (ended > at)).sum()) for at in begun)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_vllms_rate_and_random_lengths(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "vllm",
        "vllm bench serve --backend openai --host {host} --port {port} --endpoint /v1/completions --model simulated "
        "--dataset-name random --random-input-len 100 --random-output-len 10 --random-range-ratio 0.5 --num-prompts 300 "
        "--request-rate 200 --percentile-metrics ttft --disable-tqdm",
    )
    assert len(found) == 300
    assert found["prompt_tokens"].min() >= 50 and found["prompt_tokens"].max() <= 150
    assert abs(found["prompt_tokens"].mean() - 100) < 6  # 3 standard errors: 29 / sqrt(300) * 3 = 5
    assert found["output_tokens"].min() >= 5 and found["output_tokens"].max() <= 15
    seconds = (found["t_recv_first"][-1] - found["t_recv_first"][0]) / 1e9
    assert 200 * 0.8 < 299 / seconds < 200 * 1.2  # 3 standard errors: 3 / sqrt(299) = 17 %


def test_vllms_result_file_is_written(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "saved",
        "vllm bench serve --base-url {url} --model simulated --dataset-name random --random-input-len 30 "
        "--random-output-len 9 --num-prompts 25 --request-rate 100 --save-result --save-detailed --result-dir results "
        "--result-filename one.json --metric-percentiles 50,99 --goodput ttft:1000",
    )
    saved = json.loads((tmp_path / "results/one.json").read_text())
    assert (
        (saved["completed"], saved["total_output_tokens"])
        == (len(found), int(found["output_tokens"].sum()))
        == (25, 225)
    )
    assert saved["total_input_tokens"] == found["prompt_tokens"].sum() and len(saved["ttfts"]) == 25
    assert saved["request_goodput"] == saved["request_throughput"] and saved["request_rate"] == 100
    ours, theirs = np.sort(saved["ttfts"]), np.sort((found["t_first"] - found["t_recv_last"]) / 1e9)
    assert abs(np.median(ours) - np.median(theirs)) < 0.001
    gaps = np.concatenate(saved["itls"])
    assert len(gaps) <= 25 * 8 and saved["median_itl_ms"] == pytest.approx(float(np.median(gaps)) * 1e3, abs=0.001)


RANDOM = "vllm bench serve --base-url {url} --model simulated --dataset-name random --random-input-len 20 "


def test_vllms_burst_and_its_cap(tmp_path: Path) -> None:
    burst = requests_of(tmp_path / "burst", RANDOM + "--random-output-len 8 --num-prompts 40")
    assert len(burst) == 40
    assert in_flight(burst) >= 30, "nearly all are there before one ends"
    capped = requests_of(tmp_path / "capped", RANDOM + "--random-output-len 8 --num-prompts 40 --max-concurrency 4")
    assert (len(capped), in_flight(capped)) == (40, 4)


def test_vllms_sweep(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('[{"random_input_len": 32}, {"random_input_len": 48, "max_concurrency": 2}]')
    found = requests_of(
        tmp_path / "sweep",
        "--url {url} vllm bench sweep serve --serve-cmd 'vllm serve m' --bench-params {file} --num-runs 2 --bench-cmd "
        "'vllm bench serve --model simulated --dataset-name random --random-output-len 5 --num-prompts 6'".replace(
            "{file}", str(tmp_path / "params.json")
        ),
        words=True,
    )
    assert found["prompt_tokens"].tolist() == [32] * 12 + [48] * 12 and (found["output_tokens"] == 5).all()
    assert [in_flight(found[at : at + 6]) <= 2 for at in (12, 18)] == [True, True]


def test_sglangs_lengths(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "sglang",
        "python3 -m sglang.bench_serving --backend sglang --base-url {url} --model simulated --dataset-name random "
        "--random-input 80 --random-output 10 --random-range-ratio 0.5 --num-prompts 200 --warmup-requests 0 "
        "--max-concurrency 8",
    )
    assert len(found) == 200
    assert found["prompt_tokens"].min() >= 40 and found["prompt_tokens"].max() <= 80
    assert abs(found["prompt_tokens"].mean() - 60) < 3


def test_aiperfs_concurrency_and_warm_up(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "aiperf",
        "aiperf profile -m simulated --url {url} --endpoint-type chat --streaming --concurrency 3 --request-count 30 "
        "--warmup-request-count 5 --isl 64 --osl 12 --extra-inputs ignore_eos:true min_tokens:12",
    )
    measured = found[found["phase"] == MEASURED]
    assert (len(found), len(measured), in_flight(measured)) == (35, 30, 3)
    assert (measured["output_tokens"] == 12).all()


def test_guidellms_rates_are_a_sweep(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "guidellm",
        "guidellm benchmark --target {url} --model simulated --profile constant --rate 20,40 --max-requests 20 "
        "--data prompt_tokens=32,output_tokens=6",
    )
    gaps = np.diff(found["t_recv_first"]) / 1e9
    assert len(found) == 40 and (found["output_tokens"] == 6).all()
    assert abs(np.median(gaps[:19]) - 0.05) < 0.005 and abs(np.median(gaps[20:]) - 0.025) < 0.005


def test_the_sweep_of_guidellm_sends_the_rates_between_its_first_two_runs(tmp_path: Path) -> None:
    """4 slots x 8 tokens of 5 ms. One at a time, 32 at once, then half way between what the log says of both, then the
    second's rate; as compat writes its profile sweep, with a shorter pause.
    """
    typed = "guidellm --target {url} --model simulated --rate-type sweep --rate 4 --max-seconds 2 --data"
    (words,) = translate([*typed.split(), "prompt_tokens=16,output_tokens=8"], {}).commands
    slots = SimulatorOptions(profile="slots", overrides=(("max_running", "4"), ("step_ms", "5")))
    words = [*words, "--max-concurrency", "32", "--settle", "1"]
    found = requests_of(tmp_path / "sweep", shlex.join(words), slots, ours=True)
    runs = np.split(found, np.flatnonzero(np.diff(found["t_recv_first"]) > 0.5e9) + 1)
    assert len(runs) == 4 and (found["output_tokens"] == 8).all()
    assert [in_flight(run) for run in runs[:2]] == [1, 32]
    lowest, highest = (len(run) / (run["t_end"].max() - run["t_recv_first"][0]) * 1e9 for run in runs[:2])
    for run, rate in zip(runs[2:], ((lowest + highest) / 2, highest), strict=True):
        sent = (len(run) - 1) / (run["t_recv_first"][-1] - run["t_recv_first"][0]) * 1e9
        assert sent == pytest.approx(rate, rel=0.05)


def test_aiperfs_own_prompts_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Each with its own length of the answer."""
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"text": "why " * many, "output_length": 3 + many}) + "\n" for many in (1, 9, 4))
    )
    found = requests_of(
        tmp_path / "own",
        "AIPERF_UI_X=1 aiperf profile -m simulated --url {url} --endpoint-type completions --streaming --concurrency 1 "
        "--request-count 6 --input-file {file} --extra-inputs ignore_eos:true 2>&1 | tee log".replace(
            "{file}", str(tmp_path / "prompts.jsonl")
        ),
    )
    assert found["output_tokens"].tolist() == [4, 12, 7] * 2
    assert np.all(np.diff(found["prompt_tokens"][:3]) == [8, -5])


@pytest.mark.parametrize(
    "typed",
    [
        "genai-perf profile -m simulated --service-kind triton --backend tensorrtllm --url {host}:{port} --streaming "
        "--concurrency 2 --request-count 12 --synthetic-input-tokens-mean 40 --output-tokens-mean 7 "
        "--output-tokens-mean-deterministic",
        "python benchmark_serving.py --backend tensorrt-llm --endpoint /v2/models/simulated/generate_stream --port {port} "
        "--host {host} --model meta-llama/Llama-2-7b --dataset-name random --random-input-len 40 --random-output-len 7 "
        "--num-prompts 12 --max-concurrency 2 --ignore-eos",
    ],
    ids=["grpc", "http"],
)
def test_an_ensemble_of_tensorrt_llm(tmp_path: Path, typed: str) -> None:
    found = requests_of(tmp_path / "ensemble", typed, ENDING)
    assert (len(found), in_flight(found)) == (12, 2)
    assert set(found["prompt_tokens"].tolist()) == {40}
    assert set(found["output_tokens"].tolist()) == {7}, "the shortest length is asked for"


def test_sglangs_groups_whose_lengths_are_drawn(tmp_path: Path) -> None:
    """As many prompts in each group, with the group's own prefix in front; all lengths from half to all of the longest."""
    found = requests_of(
        tmp_path / "groups",
        "python3 -m sglang.bench_serving --backend sglang --base-url {url} --model simulated --dataset-name "
        "generated-shared-prefix --gsp-num-groups 8 --gsp-prompts-per-group 15 --gsp-system-prompt-len 640 "
        "--gsp-question-len 32 --gsp-output-len 12 --gsp-range-ratio 0.5 --max-concurrency 4 --warmup-requests 0 --seed 3",
        SimulatorOptions(overrides=(("step_ms", "1"),)),
    )
    assert len(found) == 120 and in_flight(found) == 4
    assert found["prompt_tokens"].min() >= 336 and found["prompt_tokens"].max() <= 672
    assert found["output_tokens"].min() >= 6 and found["output_tokens"].max() <= 12
    assert abs(found["output_tokens"].mean() - 9) < 0.6  # 3 standard errors: 2 / sqrt(120) * 3 = 0.55
    shared = found["cached_tokens"] >= 320  # but those that begin while their group's first is not there
    assert shared.sum() >= 120 - 8 * 4 and (found["prompt_tokens"] - found["cached_tokens"])[shared].max() <= 32 + 16


def test_sglangs_trace_is_names_of_blocks(tmp_path: Path) -> None:
    """At the trace's instants times the factor; a prompt has a few tokens for each block, whatever its input_length."""
    rows = [{"timestamp": 300 * n, "input_length": 6000, "output_length": 4 + n, "hash_ids": [*range(12), 20 + n]}
            for n in range(6)]  # fmt: skip
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = requests_of(
        tmp_path / "trace",
        "python3 -m sglang.bench_serving --backend sglang --base-url {url} --model simulated --dataset-name mooncake "
        "--dataset-path {file} --mooncake-slowdown-factor 0.5 --num-prompts 5 --warmup-requests 0".replace(
            "{file}", str(tmp_path / "trace.jsonl")
        ),
    )
    assert found["prompt_tokens"].tolist() == [13 * 4 + 13] * 5 and found["output_tokens"].tolist() == [4, 5, 6, 7, 8]
    assert np.diff(found["t_recv_first"]) / 1e9 == pytest.approx([0.15] * 4, abs=0.05)


def test_one_prompt_for_all_of_evalscope(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path / "one",
        "evalscope perf --url {url}/v1/chat/completions --model simulated --parallel 2 --number 8 --max-tokens 6 "
        "--prompt 'Write a story' --extra-args '{{\"ignore_eos\": true}}'",
    )
    assert len(found) == 8 and len(set(found["prompt_tokens"].tolist())) == 1 and in_flight(found) == 2
    assert (found["output_tokens"] == 6).all()


def test_aiperfs_users_at_a_rate(tmp_path: Path) -> None:
    """20 a second from the start, by six users of all ages; turns of one user, whose prompts grow, are 0.3 s apart."""
    found = requests_of(
        tmp_path / "users",
        "aiperf profile -m simulated --url {url} --endpoint-type chat --streaming --user-centric-rate 20 --num-users 6 "
        "--session-turns-mean 8 --shared-system-prompt-length 40 --user-context-prompt-length 60 --isl 20 --osl 5 "
        "--extra-inputs ignore_eos:true --benchmark-duration 3",
    )
    assert len(found) == 60 and (found["output_tokens"] == 5).all()
    due = np.arange(60) / 20 + (found["t_recv_first"] / 1e9 - np.arange(60) / 20).min()
    late = found["t_recv_first"] / 1e9 - due
    assert np.median(late) < 0.005, "each at its place, one after the other"
    shortest = found["prompt_tokens"].min()
    assert (found["prompt_tokens"][:6] == shortest).all(), "first turns of six users"
    assert set(np.diff(sorted(set(found["prompt_tokens"].tolist())))) == {33}, "20 asked, 5 answered, two messages"


SERVER = """server: {type: vllm, model_name: simulated}
api: {type: completion, streaming: true}
"""
MODES = """load: {type: poisson, stages: [{rate: 100, duration: 3}]}
data:
  type: bimodal
  bimodal: {mode_a_ratio: 0.75, mode_a_user_prompt_len: 20, mode_a_output_len: 3, mode_b_user_prompt_len: 90,
    mode_b_output_len: 7}
"""
CHATS = """load: {type: constant, stages: [{rate: 20, duration: 2}]}
data:
  type: shared_prefix
  shared_prefix: {num_groups: 2, num_prompts_per_group: 2, system_prompt_len: 50, question_len: 20, output_len: 6,
    enable_multi_turn_chat: true}
"""


def test_inference_perfs_modes_and_chats(tmp_path: Path) -> None:
    (tmp_path / "modes.yml").write_text(SERVER + MODES)
    found = requests_of(tmp_path / "modes", "inference-perf -c modes.yml --server.base_url {url}")
    kinds = set(zip(found["prompt_tokens"].tolist(), found["output_tokens"].tolist(), strict=True))
    assert kinds == {(20, 3), (90, 7)}
    share = (found["output_tokens"] == 3).mean()
    assert abs(share - 0.75) < 3 * (0.75 * 0.25 / len(found)) ** 0.5 and 240 < len(found) < 360
    (tmp_path / "chats.yml").write_text(SERVER + CHATS)
    found = requests_of(tmp_path / "chats", "inference-perf -c chats.yml --server.base_url {url}")
    assert len(found) == 40 and (found["output_tokens"] == 6).all()
    assert np.median(np.abs(np.diff(found["t_recv_first"]) / 1e9 - 0.05)) < 0.005
    by_round = found["prompt_tokens"].reshape(10, 4)
    assert (by_round[0] == 70).all() and (np.diff(by_round, axis=0) >= 26).all(), "each turn has all before it"


def test_texts_and_lengths_at_their_instants(tmp_path: Path) -> None:
    """AIPerf's milliseconds, GuideLLM's seconds, evalscope's half as long."""
    (tmp_path / "t.jsonl").write_text('{"timestamp": 50, "text": "why"}\n{"timestamp": 450, "text": "why so"}\n')
    found = requests_of(
        tmp_path / "texts",
        "aiperf profile -m simulated --url {url} --endpoint-type chat --streaming --input-file t.jsonl "
        "--custom-dataset-type single_turn --fixed-schedule --osl 6 --extra-inputs ignore_eos:true",
    )
    assert abs(np.diff(found["t_recv_first"])[0] / 1e9 - 0.4) < 0.02 and (found["output_tokens"] == 6).all()
    rows = [{"timestamp": 9 + 0.2 * n, "input_length": 30 + n, "output_length": 4 + n} for n in range(4)]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = requests_of(
        tmp_path / "trace",
        "guidellm run --backend kind=openai_http,target={url},model=simulated,request_format=/v1/completions "
        "--profile kind=replay,time_scale=2.0 --data kind=trace_synthetic,path=trace.jsonl",
    )
    assert found["prompt_tokens"].tolist() == [30, 31, 32, 33] and found["output_tokens"].tolist() == [4, 5, 6, 7]
    assert np.median(np.abs(np.diff(found["t_recv_first"]) / 1e9 - 0.4)) < 0.02
    body = {"model": "simulated", "messages": [{"role": "user", "content": "why"}], "max_tokens": 5, "ignore_eos": True}
    (tmp_path / "w.jsonl").write_text("".join(json.dumps({"body": body, "timestamp": n}) + "\n" for n in range(3)))
    found = requests_of(
        tmp_path / "bodies",
        "evalscope perf --dataset workload_trace --dataset-path w.jsonl --open-loop --url {url}/v1/chat/completions "
        "--dataset-args '{{\"speed\": 4.0}}'",
    )
    assert np.median(np.abs(np.diff(found["t_recv_first"]) / 1e9 - 0.25)) < 0.02 and (found["output_tokens"] == 5).all()


def test_evalscopes_conversations_of_a_file(tmp_path: Path) -> None:
    row = [
        {"role": "user", "content": "a b c"},
        {"role": "assistant", "content": "-"},
        {"role": "user", "content": "d"},
    ]
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    found = requests_of(
        tmp_path / "chat",
        "evalscope perf --model simulated --url {url}/v1/chat/completions --dataset custom_multi_turn "
        "--dataset-path c.jsonl --multi-turn --number 3 --parallel 1 --max-tokens 9 --extra-args '{{\"ignore_eos\": true}}'",
    )
    assert len(found) == 6 and (found["output_tokens"] == 9).all() and in_flight(found) == 1
    assert (found["prompt_tokens"][1::2] - found["prompt_tokens"][::2] >= 10).all(), "with the server's reply"


class Recorder(BaseHTTPRequestHandler):
    """Answers each completion with one token, and keeps the bodies."""

    protocol_version = "HTTP/1.1"
    bodies: list[dict[str, Any]]

    def do_GET(self) -> None:
        self.answer(b'{"object":"list","data":[{"id":"m","object":"model"}]}')

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        event = {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}}
        stream = "".join(f"data: {json.dumps(each)}\n\n" for each in (event, usage)) + "data: [DONE]\n\n"
        self.answer(stream.encode(), "text/event-stream")

    def answer(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    bodies: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Recorder,), {"bodies": bodies}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    server.server_close()


def test_sampling_fields_reach_the_server(recorder: tuple[str, list[dict[str, Any]]]) -> None:
    url, bodies = recorder
    done = command(
        "compat",
        f"vllm bench serve --base-url {url} --endpoint /v1/completions --model m --num-prompts 5 "
        "--dataset-name random --random-input-len 4 --random-output-len 1 --temperature 0.5 --top-p 0.9 --top-k 7 "
        "--min-p 0.1 --presence-penalty 1 --frequency-penalty -1 --repetition-penalty 1.2",
    )
    assert done.returncode == 0, done.stderr
    assert len(bodies) >= 5
    for body in bodies[-5:]:
        assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.5, 0.9, 7, 0.1)
        assert (body["presence_penalty"], body["frequency_penalty"], body["repetition_penalty"]) == (1, -1, 1.2)
        assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (1, True, True)
