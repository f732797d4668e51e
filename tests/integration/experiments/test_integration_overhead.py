"""What a proxy of known delay adds, measured by the command and compared with what the proxy itself noted.

`bench/statistical/overhead_coverage.py` counts how often the interval contains the truth; here are a few trials.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command
from refusals import says

from fastllmload.simulator import truth
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))

from overhead_coverage import Trial, measured, proxied
from peers.delay_proxy import added_ns

TRIES = 3  # an interval of 95 % misses by chance
BOTH = ("mean_ttft_ms", "mean_e2e_ms")
SHORT = [
    "--pairs",
    4,
    "--settle",
    0,
    "--rate",
    20,
    "--duration",
    1,
    "--isl",
    64,
    "--osl",
    4,
    "--warmup",
    4,
    "--ui",
    "none",
]


@pytest.mark.parametrize("delay_ms", [1.0, 5.0])
def test_the_interval_contains_what_the_proxy_added(tmp_path: Path, delay_ms: float) -> None:
    """In the mean of TTFT and of the end-to-end latency; and the gateway's 5 ms are seen as such."""
    trials: list[Trial] = []
    while len(trials) < TRIES:
        number = len(trials)
        trials.append(measured(tmp_path / f"{number}", delay_ms, 4, 1.0, 40.0, number))
        one = trials[-1]
        assert one.exit_code == 0, one.said
        assert all(one.truth[figure] >= delay_ms for figure in BOTH), "the proxy held each request at least that long"
        if all(map(one.contains, BOTH)):
            break
    else:
        pytest.fail(
            "; ".join(f"{one.truth} against {[one.added[figure]['interval'] for figure in BOTH]}" for one in trials)
        )


MIX = ("--class", "chat share=1", "--class", "back concurrency=2 osl=20")


def test_what_a_mix_gets_is_by_class_where_a_class_is_closed(tmp_path: Path) -> None:
    """It sends fewer requests through the proxy, which are the long ones: the mean of all rises by 18 ms of 20."""
    for number in range(TRIES):
        one = measured(tmp_path / f"{number}", 20.0, 4, 1.5, 20.0, number, *MIX)
        assert one.exit_code == 0 and not set(BOTH) & one.added.keys(), one.said
        truth = {f"{name}/{figure}": one.truth[figure] for name in ("chat", "back") for figure in BOTH}
        found = {figure: one.added[figure]["interval"] for figure in truth}
        if all(low <= truth[figure] <= high for figure, (low, high) in found.items()):
            break
    else:
        pytest.fail(f"{truth} against {found}")
    assert "by class" in one.said and one.added["req_s"]["added"] < 0


def test_a_mix_of_endpoints_has_what_is_added_to_each(tmp_path: Path) -> None:
    """Open classes: also of all requests together, as both ways have the same ones."""
    figures = ("embed/p50_e2e_ms", "mean_ttft_ms", "chat/mean_ttft_ms")
    asked = [text for name in figures for text in ("--figure", name)]
    mix = ["--class", "chat share=0.7", "--class", "embed share=0.3 endpoint-type=embeddings"]
    with SimulatorProcess(SimulatorOptions()) as engine, proxied(engine.port, 20.0, tmp_path / "log.npy") as url:
        ways = ["--direct", engine.url, "--through", url]
        done = command("overhead", *ways, *SHORT, *mix, *asked, "-o", tmp_path / "o")
    added = json.loads((tmp_path / "o/overhead.json").read_text())["added"]
    assert done.returncode == 0 and set(added) == set(figures), done.stderr
    assert added["embed/p50_e2e_ms"]["added"] > 15
    assert added["mean_ttft_ms"]["added"] == added["chat/mean_ttft_ms"]["added"]


CALLS = 4  # of a session, one after the other


def sessions_file(folder: Path, sessions: int, calls: int, tokens_more: int) -> Path:
    """A trace of sessions whose prompts grow by *tokens_more* from call to call, with 10 ms of a tool between them."""
    lines = []
    for number in range(sessions * calls):
        session, call = divmod(number, calls)
        due = {"after": [f"c{number - 1}"], "wait_s": 0.01, "wait_kind": "tool"} if call else {"at_s": 0.0}
        tokens = 32 + tokens_more * call
        lines.append({"id": f"c{number}", "session": f"s{session}", "input_tokens": tokens, "output_tokens": 4, **due})
    (folder / "sessions.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return folder / "sessions.jsonl"


ROUTED = ("--rate", 25, "--affinity", "generic", "--session-token", "x-token")


@pytest.mark.parametrize("load", [("--concurrency", 3), ROUTED], ids=["closed", "routed"])
def test_what_sessions_get_through_a_proxy_is_what_it_held_each_of_their_calls(
    tmp_path: Path, load: tuple[Any, ...]
) -> None:
    """Calls have it once, makespans once for each call of the longest chain; each interval contains it."""
    trace = sessions_file(tmp_path, 40, CALLS, 0)
    for number in range(TRIES):
        log, folder = tmp_path / f"{number}.npy", tmp_path / f"{number}"
        engine = SimulatorProcess(
            SimulatorOptions(ttft_ms=10.0, itl_ms=2.0, session_token="x-token" if load == ROUTED else None)
        )
        with engine, proxied(engine.port, 5.0, log) as url:
            done = command(
                "overhead", "--direct", engine.url, "--through", url, "--workload", "graph", "--dataset-path", trace, *load,
                "--pairs", 4, "--duration", 1.5, "--warmup", 4, "--settle", 0, "--ui", "none", "-o", folder,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        added = json.loads((folder / "overhead.json").read_text())["added"]
        assert added["success_rate"]["through"] == 1
        ttft, e2e = added_ns(np.load(log))[:, 1:].mean(axis=0) / 1e6
        truth = {"mean_ttft_ms": ttft, "mean_e2e_ms": e2e, "mean_session_makespan_ms": CALLS * e2e}
        found = {figure: added[figure]["interval"] for figure in truth}
        if all(low <= truth[figure] <= high for figure, (low, high) in found.items()):
            break
    else:
        pytest.fail(f"{truth} against {found}")
    assert {"p99_session_makespan_ms", "p50_session_first_action_ms", "sessions_s"} <= added.keys()


def test_calls_that_only_one_way_came_to_are_left_out(tmp_path: Path) -> None:
    """The direct way gets further into its session, to longer prompts: over all calls of each run 20 ms would be 7."""
    trace = sessions_file(tmp_path, 2, 200, 128)
    slow = (("step_ms", "2"), ("per_prefill_token_us", "20"), ("prefix_cache", "false"), ("per_kilo_context_us", "0"))
    log = tmp_path / "log.npy"
    with SimulatorProcess(SimulatorOptions(overrides=slow)) as engine, proxied(engine.port, 20.0, log) as url:
        done = command(
            "overhead", "--direct", engine.url, "--through", url, "--workload", "graph", "--dataset-path", trace,
            "--concurrency", 1, "--pairs", 4, "--duration", 1.5, "--warmup", 2, "--settle", 0, "--ui", "none",
            "-o", tmp_path / "o",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    added = json.loads((tmp_path / "o/overhead.json").read_text())["added"]
    runs = [json.loads(path.read_text()) for path in sorted((tmp_path / "o").glob("levels/*/run.json"))]
    ways = [
        [run["metrics"]["ttft"]["mean"] for run in runs if way in run["config"]["target"]["urls"]]
        for way in (engine.url, url)
    ]
    assert np.mean(ways[1]) - np.mean(ways[0]) < 15
    assert 19 < added["mean_ttft_ms"]["added"] < 24


def test_ways_whose_prompts_were_cached_otherwise_are_said_to_be_unlike(tmp_path: Path) -> None:
    """Texts of a file: the first run finds none of them in the cache, all later ones do."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"prompt": "{number} {"some words of a text " * 40}"}}\n' for number in range(60)))
    with SimulatorProcess(SimulatorOptions()) as engine:
        ways = ["--direct", engine.url, "--through", engine.url]
        for name, more in (("warm", []), ("reset", ["--between", "reset-cache"])):
            done = command(
                "overhead", *ways, "--workload", "custom", "--dataset-path", texts, "--osl", 4, "--concurrency", 2,
                "-n", 40, "--pairs", 4, "--warmup", 0, "--settle", 0, "--ui", "none", "-o", tmp_path / name, *more,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    warned = {
        name: json.loads((tmp_path / name / "overhead.json").read_text())["warnings"] for name in ("warm", "reset")
    }
    assert any("ways-differ" in text and "pair 1" in text for text in warned["warm"])
    assert not any("in its cache" in text for text in warned["reset"])


def test_a_gate_on_what_a_gateway_adds_fails(tmp_path: Path) -> None:
    """50 ms are far above what a busy host does by chance."""
    found = measured(tmp_path / "m", 50.0, 4, 1.0, 20.0, 1, "--fail-if", "p50_ttft_ms > +10ms")
    assert found.exit_code == 1 and "FAILED" in found.said
    assert found.added["p50_ttft_ms"]["result"] == "worse"


def test_no_run_finds_a_prompt_of_another_in_the_cache(tmp_path: Path) -> None:
    """An engine with a prefix cache reports no cached token in any run; shared prefixes of one run are found in it."""
    with SimulatorProcess(SimulatorOptions()) as engine, proxied(engine.port, 0.0, tmp_path / "log.npy") as url:
        ways = ["--direct", engine.url, "--through", url]
        for name, more in (("own", []), ("shared", ["--prefix-len", 64])):
            done = command("overhead", *ways, *SHORT, *more, "-o", tmp_path / name)
            assert done.returncode == 0, done.stderr
    shares = {
        name: [
            json.loads(path.read_text())["metrics"]["cached_prompt_share"]["value"]
            for path in sorted((tmp_path / name).glob("levels/*/run.json"))
        ]
        for name in ("own", "shared")
    }
    assert len(shares["own"]) == 8 and set(shares["own"]) == {0.0}
    assert all(0.3 < share < 0.5 for share in shares["shared"])


def test_two_ways_to_different_models_are_refused(tmp_path: Path) -> None:
    """Both are named, and nothing is written."""
    one, other = (SimulatorProcess(SimulatorOptions(model=name)) for name in ("first", "second"))
    with one, other:
        done = command("overhead", "--direct", one.url, "--through", other.url, *SHORT, "-o", tmp_path / "o")
    assert done.returncode == 2 and says(done.stderr, "model-not-offered", other.url, "'first'")
    assert not (tmp_path / "o").exists()


def test_a_gateway_that_does_not_answer_is_refused_before_the_first_run(tmp_path: Path) -> None:
    with SimulatorProcess(SimulatorOptions()) as engine:
        gone = "http://127.0.0.1:9"
        done = command("overhead", "--direct", engine.url, "--through", gone, *SHORT, "-o", tmp_path / "o")
    assert done.returncode == 3 and gone in done.stderr and not (tmp_path / "o").exists()


def test_each_way_has_its_own_key_model_and_headers(tmp_path: Path) -> None:
    """By the notes of two servers; neither key is in any file of the folder."""
    logged = ("authorization", "x-both", "x-direct", "x-through", "body:model")
    key = tmp_path / "gateway.key"
    key.write_text("gateway-key-77\n")
    with (
        SimulatorProcess(SimulatorOptions(model="m", logged=logged, truth=str(tmp_path / "direct.bin"))) as engine,
        SimulatorProcess(SimulatorOptions(model="team", logged=logged, truth=str(tmp_path / "through.bin"))) as gateway,
    ):
        done = command(
            "overhead", "--direct", engine.url, "--through", gateway.url, *SHORT, "-o", tmp_path / "o",
            "-m", "m", "--api-key", "engine-key-66", "-H", "x-both: b", "--direct-header", "x-direct: d",
            "--through-header", "x-through: t", "--through-model", "team", "--through-api-key-file", key,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    asked = {way: truth.load(tmp_path / f"{way}.bin") for way in ("direct", "through")}
    notes = {
        way: {line for one in found.requests[found.requests["key"] != truth.NO_KEY]
              for line in found.notes[int(one["serial"])].splitlines()}
        for way, found in asked.items()
    }  # fmt: skip
    assert notes == {
        "direct": {"authorization: Bearer engine-key-66", "x-both: b", "x-direct: d", "body:model: m"},
        "through": {"authorization: Bearer gateway-key-77", "x-both: b", "x-through: t", "body:model: team"},
    }
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert document["parameters"]["through_model"] == "team"
    assert "as team" in (tmp_path / "o/overhead.md").read_text()
    written = [path for path in (tmp_path / "o").rglob("*") if path.is_file()]
    assert len(written) > 20
    assert not [
        path for path in written for secret in (b"engine-key-66", b"gateway-key-77") if secret in path.read_bytes()
    ]
