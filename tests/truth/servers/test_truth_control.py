"""Control of servers (`--between`) against the log of two simulated replicas: what was asked when, and what it did."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import NO_KEY, LoggedCall, Truth
from fastllmload.simulator.truth import load as load_truth

LOAD = ["--rate", "60", "-n", "40", "--warmup", "30", "--isl", "320", "--osl", "8", "--prefix-len", "256"]
PROMPTS = 3  # that prove a reset: one before it, two after it


@contextmanager
def replicas(directory: Path, **options: Any) -> Iterator[tuple[list[str], list[Path]]]:
    """URLs of two simulated replicas, and their truth logs."""
    logs = [directory / f"truth{number}" for number in range(2)]
    with (
        SimulatorProcess(SimulatorOptions(truth=str(logs[0]), **options)) as one,
        SimulatorProcess(SimulatorOptions(truth=str(logs[1]), **options)) as other,
    ):
        yield [one.url, other.url], logs


def run(directory: Path, urls: list[str], *options: str) -> tuple[int, dict[str, Any], str]:
    targets = [word for url in urls for word in ("--url", url)]
    done = command(*targets, "-o", str(directory / "run"), "--ui", "plain", *LOAD, *options)
    path = directory / "run" / "run.json"
    return done.returncode, json.loads(path.read_text()) if path.exists() else {}, done.stdout + done.stderr


def of_phase(truth: Truth, number: int, since_ns: int = 0) -> np.ndarray:
    rows = truth.requests[(truth.requests["key"] != NO_KEY) & (truth.requests["t_recv_first"] > since_ns)]
    found: np.ndarray = rows[rows["phase"] == number]
    return found


def first_cached(rows: np.ndarray) -> int:
    """Cached tokens of the request that was admitted first."""
    return int(rows["cached_tokens"][np.argmin(rows["t_admitted"])])


def asked(truth: Truth, text: str) -> list[LoggedCall]:
    return [call for call in truth.calls if call.text == text]


@pytest.mark.parametrize(
    ("control", "kind", "reset"),
    [("all", [], "POST /reset_prefix_cache"), ("sglang", ["--server", "sglang"], "POST /flush_cache"),
     ("dynamo", ["--server", "dynamo"], "POST /clear_kv_blocks")],
)  # fmt: skip
def test_reset_comes_between_the_phases_on_every_replica(
    tmp_path: Path, control: str, kind: list[str], reset: str
) -> None:
    """After the last answer of the warm-up and before the first measured request; the cache is empty then, although an
    earlier run sent the same requests.
    """
    with replicas(tmp_path, control=control) as (urls, logs):
        assert run(tmp_path / "earlier", urls, *kind)[0] == 0
        code, document, said = run(tmp_path, urls, "--between", "reset-cache", *kind)
    assert code == 0, said
    since = document["phases"][0]["start_ns"]
    proofs = {proof["url"]: proof for proof in document["control"]["proofs"]}
    calls = document["control"]["calls"]
    for url, truth in zip(urls, map(load_truth, logs), strict=True):
        warm, measured = of_phase(truth, 0, since), of_phase(truth, 1, since)
        resets = asked(truth, reset)
        assert [call.status for call in resets] == [200, 200], "the second one removes what the proof left"
        assert warm["t_end"].max() < resets[0].t_ns < resets[1].t_ns < measured["t_recv_first"].min()
        assert first_cached(warm) > 0 == first_cached(measured) and (measured["cached_tokens"] > 0).any()
        probes = truth.requests[truth.requests["t_recv_first"] > warm["t_end"].max()]
        probes = probes[probes["t_end"] < resets[1].t_ns]
        assert len(probes) == PROMPTS
        cached = probes["cached_tokens"][np.argsort(probes["t_recv_first"])]
        assert proofs[url] == {
            "url": url, "first": 0, "second": int(cached[2]), "source": "usage", "proved": True, "why": None
        }  # fmt: skip
        assert int(cached[1]) == 0 < int(cached[2])
        mine = [call for call in calls if call["url"] == url]
        assert [call["request"] for call in mine] == [reset, reset] and all(call["done"] for call in mine)
        for call, really in zip(mine, resets, strict=True):
            assert call["at_ns"] <= really.t_ns <= call["at_ns"] + call["seconds"] * 1e9
    assert "proved empty" in said
    assert {one["url"] for one in document["control"]["drained"]} == set(urls)
    assert all(one["running"] == one["waiting"] == 0 for one in document["control"]["drained"])


def test_nothing_is_reset_without_it(tmp_path: Path) -> None:
    with replicas(tmp_path) as (urls, logs):
        assert run(tmp_path / "earlier", urls)[0] == 0
        code, document, said = run(tmp_path, urls)
    assert code == 0, said
    assert document["control"] is None
    for truth in map(load_truth, logs):
        assert {call.text.partition(" ")[0] for call in truth.calls} == {"GET"}
        assert (of_phase(truth, 1, document["phases"][0]["start_ns"])["cached_tokens"] > 0).all()


def test_the_profiler_runs_exactly_during_the_measurement(tmp_path: Path) -> None:
    with replicas(tmp_path) as (urls, logs):
        code, document, said = run(tmp_path, urls, "--between", "profile", "--between", "reset-cache")
    assert code == 0, said
    assert document["control"]["profiled"] is True
    assert "PROFILED" in said
    for truth in map(load_truth, logs):
        (start,), (stop,) = asked(truth, "POST /start_profile"), asked(truth, "POST /stop_profile")
        assert start.status == stop.status == 200
        measured = of_phase(truth, 1)
        assert asked(truth, "POST /reset_prefix_cache")[-1].t_ns < start.t_ns < measured["t_recv_first"].min()
        assert measured["t_end"].max() < stop.t_ns
    page, text = ((tmp_path / "run" / name).read_text() for name in ("report.html", "report.md"))
    assert "PROFILED" in page and "PROFILED" in text and "reset-cache on 2 servers" in text
    assert "reset-cache on 2 servers" in page


def test_tensorrt_llms_memory_is_released_and_resumed(tmp_path: Path) -> None:
    with replicas(tmp_path, control="tensorrt-llm") as (urls, logs):
        words = ("--server", "tensorrt-llm", "--between", "sleep", "--between", "wake")
        code, document, said = run(tmp_path, urls, *words)
    assert code == 0 and document["counts"]["ok"] == 40, said
    for truth in map(load_truth, logs):
        order = [call.text for call in truth.calls if call.text.startswith("POST")]
        assert order == ["POST /release_memory", "POST /resume_memory"]


def test_sleep_wake_and_own_requests_in_their_order(tmp_path: Path) -> None:
    with replicas(tmp_path) as (urls, logs):
        own = ["--between", "POST /reset_mm_cache", "--between", f"{urls[1]}/reset_encoder_cache"]
        code, document, said = run(tmp_path, urls, "--between", "sleep", "--between", "wake", *own)
    assert code == 0, said
    order = [[call.text for call in truth.calls if call.text.startswith("POST")] for truth in map(load_truth, logs)]
    assert order[0] == ["POST /sleep", "POST /wake_up", "POST /reset_mm_cache"]
    assert order[1] == [*order[0], "POST /reset_encoder_cache"]
    assert [call["verb"] for call in document["control"]["calls"]] == ["sleep"] * 2 + ["wake"] * 2 + ["hook"] * 3
    assert document["counts"]["ok"] == 40


def test_replicas_of_a_router_are_controlled_instead_of_it(tmp_path: Path) -> None:
    """The target is in place of a router, which has no such routes."""
    with SimulatorProcess(SimulatorOptions(control="none")) as router, replicas(tmp_path) as (urls, logs):
        engines = [word for url in urls for word in ("--replica", url)]
        code, document, said = run(tmp_path, [router.url], "--between", "flush", *engines)
    assert code == 0, said
    assert [proof["proved"] for proof in document["control"]["proofs"]] == [True, True]
    for truth in map(load_truth, logs):
        assert len(asked(truth, "POST /reset_prefix_cache")) == len(asked(truth, "POST /reset_mm_cache")) == 2
    assert [page["url"] for page in document["server_pages"]] == [url for url in urls for _ in range(2)]


def test_a_server_without_the_route_is_refused_before_any_load(tmp_path: Path) -> None:
    """As vLLM without VLLM_SERVER_DEV_MODE."""
    with replicas(tmp_path, control="none") as (urls, logs):
        code, document, said = run(tmp_path, urls, "--between", "reset-cache")
    assert (code, document) == (2, {})
    assert "[control-unsupported]" in said and "VLLM_SERVER_DEV_MODE=1" in said
    for truth in map(load_truth, logs):
        assert (truth.requests["key"] == NO_KEY).all(), "probes only"


def test_every_level_of_a_search_and_a_sweep_is_reset(tmp_path: Path) -> None:
    """Trials of a search and runs of a sweep are reset, their preparation is not."""
    with replicas(tmp_path) as (urls, logs):
        words = [word for url in urls for word in ("--url", url)]
        done = command(
            "sweep", *words, "--vary", "rate=20,40", "-n", "10", "--warmup", "5", "--isl", "320", "--osl", "8",
            "--prefix-len", "256", "--between", "reset-cache", "--between", "profile", "--settle", "none",
            "-o", str(tmp_path / "sweep"),
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folders = sorted((tmp_path / "sweep").glob("*/*/run.json"))
    documents = [json.loads(path.read_text()) for path in folders]
    levels = [each for path, each in zip(folders, documents, strict=True) if path.parts[-3] == "levels"]
    assert len(levels) == 2
    assert all(proof["proved"] for each in levels for proof in each["control"]["proofs"])
    assert all(each["control"] is None for each in documents if each not in levels)
    assert "[profiled]" in done.stdout + done.stderr + (tmp_path / "sweep" / "sweep.json").read_text()
    for truth in map(load_truth, logs):
        assert len(asked(truth, "POST /reset_prefix_cache")) == 4


SEARCH = ("search", "--isl", "64", "--osl", "8", "--goodput", "ttft:1000", "--level-duration", "1s", "--min", "20",
          "--max", "40", "--max-levels", "2", "--runs", "1", "--warmup", "5")  # fmt: skip
QUICK = ("--quick", "--warmup", "0")


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        (SEARCH, 2),
        (("procedure", "ttft", *QUICK, "--rate", "20", "-n", "1000", "--isl", "64", "--osl", "8"), 1),
        (("procedure", "itl", *QUICK, "--capacity", "40", "--capacity-source", "a test"), 1),
        (("procedure", "fairness", *QUICK, "--capacity", "40", "--capacity-source", "a test"), 1),
    ],
    ids=["search", "ttft", "itl", "fairness"],
)
def test_every_run_of_a_search_and_of_procedures_is_prepared_once(
    tmp_path: Path, words: tuple[str, ...], levels: int
) -> None:
    """By each engine's log: reset, proof, reset, the profile's begin, then only measured requests until its end."""
    with replicas(tmp_path) as (urls, logs):
        targets = [word for url in urls for word in ("--url", url)]
        control = ["--between", "reset-cache", "--between", "profile", "--settle", "none", "--ui", "plain"]
        done = command(*words, *targets, *control, "-o", str(tmp_path / "o"))
    said = done.stdout + done.stderr
    documents = [json.loads(path.read_text()) for path in sorted((tmp_path / "o" / "levels").glob("*/run.json"))]
    assert len(documents) >= levels, said
    for truth in map(load_truth, logs):
        begins, ends = asked(truth, "POST /start_profile"), asked(truth, "POST /stop_profile")
        resets = asked(truth, "POST /reset_prefix_cache")
        assert len(begins) == len(ends) == len(documents) and len(resets) == 2 * len(documents), said
        received = truth.requests["t_recv_first"][truth.requests["key"] != NO_KEY]
        previous = 0
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            first, second = (each.t_ns for each in resets[2 * number : 2 * number + 2])
            assert previous < first < second < begin.t_ns < end.t_ns
            assert not ((received > first) & (received < begin.t_ns)).any(), "no load while servers are prepared"
            during = (truth.requests["t_recv_first"] > begin.t_ns) & (truth.requests["t_recv_first"] < end.t_ns)
            assert during.any() and (truth.requests["key"][during] != NO_KEY).all(), "no probe is profiled"
            assert truth.requests["t_end"][during].max() < end.t_ns
            previous = end.t_ns


def test_what_servers_say_of_themselves_is_kept_and_compared(tmp_path: Path) -> None:
    runs = []
    for blocks in ("16", "32"):
        (tmp_path / blocks).mkdir()
        with replicas(tmp_path / blocks, overrides=(("block_size", blocks),)) as (urls, _):
            code, document, said = run(tmp_path / blocks, urls)
        assert code == 0, said
        assert all(page["read_after"] and page["changed"] == [] for page in document["server_pages"])
        info = json.loads((tmp_path / blocks / "run" / "server-info.json").read_text())
        assert info["before"].keys() == info["after"].keys() == set(urls)
        assert info["before"][urls[0]]["/server_info?config_format=json"]["block_size"] == int(blocks)
        runs.append(str(tmp_path / blocks / "run"))
    said = command("compare", *runs).stdout
    assert "server/server_info.block_size" in said and "[server-differs]" in said


class Silent(BaseHTTPRequestHandler):
    """Never answers; *asked* is set with the first request, *ended* lets it go."""

    asked, ended = threading.Event(), threading.Event()

    def do_POST(self) -> None:
        self.asked.set()
        self.ended.wait(120)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_call_without_an_answer_ends_with_a_signal(tmp_path: Path) -> None:
    """The call has 120 s, which a line says after a few; the time-out of a minute is the proof. The folder is finished, and
    nothing was measured.
    """
    silent = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    silent.daemon_threads = True
    threading.Thread(target=silent.serve_forever, daemon=True).start()
    hook = f"POST http://127.0.0.1:{silent.server_port}/reload"
    with SimulatorProcess(SimulatorOptions()) as server:
        program = [sys.executable, "-m", "fastllmload", "--url", server.url, "-o", str(tmp_path / "run"), *LOAD]
        process = subprocess.Popen(
            [*program, "--between", hook, "--ui", "plain"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert Silent.asked.wait(60) and process.stdout is not None
            notice = next(line for line in process.stdout if "did not answer" in line)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            Silent.ended.set()
            silent.shutdown()
            silent.server_close()
    assert process.returncode == 4, said
    assert f"127.0.0.1:{silent.server_port}" in notice and f"{hook} is given up after 120 s" in notice
    assert "control: interrupted" in said and "Traceback" not in said
    rows = np.load(tmp_path / "run" / "requests.npy")
    assert len(rows) >= 30 and (rows["phase"] == 0).all()
