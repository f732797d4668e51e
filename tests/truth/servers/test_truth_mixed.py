"""Classes whose answers are not tokens next to classes of tokens: what the engine was asked, and what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command
from truth.recording_relay import relayed
from truth.truth_bench import measure, mix_from_two_hosts, until_quiet, within

from fastllmload.compare.comparison import compare
from fastllmload.compare.side import read_side
from fastllmload.export.rows import record_blocks
from fastllmload.metrics.run.window import window_of
from fastllmload.records.layout import MEASURE, OK
from fastllmload.records.run import load
from fastllmload.report.run_page.context import ReportContext
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import FLAGS

ENGINE: dict[str, Any] = {"ttft_ms": 3.0, "itl_ms": 1.0, "phase": "spread"}
CLASSES = (
    "chat rate=60 isl=24 osl=8 goodput=ttft:500",
    "embed rate=150 isl=40 endpoint-type=embeddings goodput=e2el:3.05",
    "rank rate=40 isl=16 endpoint-type=rerank",
    "text rate=30 isl=12 osl=5 endpoint-type=completions",
    "batch rate=40 isl=10 osl=4 stream=false",
)
NAMES, SILENT, UNSTREAMED = ("chat", "embed", "rank", "text", "batch"), (1, 2), 4
PATHS = ("/v1/chat/completions", "/v1/embeddings", "/rerank", "/v1/completions", "/v1/chat/completions")
SEED = 7  # of faults, which spare the requests of the preflight
OPTIONS = ["--seed", "6", "--no-telemetry", "--warmup", "8"]
LOAD = [*OPTIONS, *(word for one in CLASSES for word in ("--class", one)), "--duration", "2"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_figures_of_each_class_are_those_of_its_rows(tmp_path: Path, workers: str) -> None:
    """Counts and tokens are the engine's; figures of tokens are of classes with tokens, those of requests of all."""
    measured = measure(tmp_path / "run", [*LOAD, "--workers", workers], pin=False, **ENGINE)
    assert measured.exit_code in (0, 3), measured.said
    ours, theirs = measured.joined()
    assert (ours["status"] == OK).all()
    silent, unstreamed = np.isin(ours["request_class"], SILENT), ours["request_class"] == UNSTREAMED
    assert ((theirs["flags"] & FLAGS["stream"] != 0) == ~(silent | unstreamed)).all()
    assert (ours["prompt_tokens"] == theirs["prompt_tokens"]).all()
    assert (ours["t_last"] > theirs["t_first"]).all() and not ours["t_first"][silent].any()
    window, document = window_of(measured.run), measured.document
    assert window is not None and document["classes_with_tokens"] == ["chat", "text", "batch"]
    submitted, ended = window.holds(ours["t_submit"]), window.holds(ours["t_last"])
    for number, name in enumerate(NAMES):
        mine, found = ours["request_class"] == number, document["classes"][name]
        assert (found["planned"], found["ok"], found["failed"]) == (mine.sum(), mine.sum(), 0)
        e2e = (ours["t_last"] - ours["t_submit"])[mine & submitted] / 1e6
        assert found["e2e"]["n"] == len(e2e) > 20
        assert found["e2e"]["p50"] == pytest.approx(np.percentile(e2e, 50))
        assert found["req_s"] == pytest.approx((mine & ended).sum() / window.seconds)
        at = ours["t_last"] if number in SILENT else ours["t_first"]
        taken = ours["prompt_tokens"][mine & window.holds(at)].sum()
        assert found["input_tok_s"] == pytest.approx(taken / window.seconds)
        assert (found["ttft"]["n"], found["output_tok_s"] is None) == (
            (0, True) if number in SILENT else (len(e2e), False)
        )
    metrics = document["metrics"]
    assert metrics["ttft"]["n"] == (submitted & ~silent).sum() and metrics["e2e"]["n"] == submitted.sum()
    of_classes = [document["classes"][name] for name in NAMES]
    for name in ("output_tok_s", "input_tok_s"):
        with_tokens = [each[name] for number, each in enumerate(of_classes) if number not in SILENT]
        assert metrics[name]["value"] == pytest.approx(sum(with_tokens))
    assert metrics["req_s"]["value"] == pytest.approx(sum(each["req_s"] for each in of_classes))
    assert document["counts"]["output_tokens"] == theirs["output_tokens"][~silent].sum()
    late = (ours["t_last"] - ours["t_submit"])[(ours["request_class"] == 1) & submitted] > 3_050_000
    judged = {each["objective"]: each for each in document["slo"]["objectives"]}
    assert (judged["embed/e2el"]["met"], judged["embed/e2el"]["missed"]) == ((~late).sum(), late.sum())
    exported = [record for block in record_blocks(measured.run) for record in block if record["phase"] == "measure"]
    assert {record["class"] for record in exported if record["output_tokens"] is None} == {"embed", "rank"}
    assert "chat, text, batch alone" in measured.said
    assert (
        document["classes"]["batch"]["tpot"]["n"] == 0
        and metrics["tpot"]["n"] == (submitted & ~silent & ~unstreamed).sum()
    )
    assert (
        document["counts"]["came_whole"] == (submitted & unstreamed).sum() == document["classes"]["batch"]["came_whole"]
    )
    assert document["classes"]["embed"]["came_whole"] is None
    context = ReportContext(measured.run)
    assert context.axis is not None and context.tokens is not None and context.tokens.tokens_s is not None
    drawn = context.tokens.tokens_s.sum() * context.axis.width_s
    assert drawn == pytest.approx(document["counts"]["output_tokens"])


@pytest.mark.clock
def test_the_time_of_an_answer_is_the_engines(tmp_path: Path) -> None:
    """E2E of each class without tokens, against the engine's own times of receipt and of the send of the answer; the true
    time of each answer is within its bracket.
    """

    def check(folder: Path) -> tuple[bool | None, str]:
        measured = measure(folder, LOAD, **ENGINE)
        ours, theirs = measured.joined()
        found = {}
        for number in SILENT:
            mine = ours["request_class"] == number
            took = (ours["t_last"] - ours["t_submit"])[mine]
            true = (theirs["t_end"] - theirs["t_recv_last_kernel"])[mine]
            found[NAMES[number]] = np.percentile(np.abs(took - true), [50, 99]) / 1e3
        bounds = measured.document["metrics"]["e2e"]["bounds"]["p50"]
        value = measured.document["metrics"]["e2e"]["p50"]
        assert bounds[0] <= value <= bounds[1]
        return within(measured, found, 100.0, 2_000.0), str(found)

    until_quiet(tmp_path, check)


def test_each_endpoint_gets_bodies_that_it_accepts(tmp_path: Path) -> None:
    """Paths and bodies by class, of a run and of its saved plan sent again; both put the same bytes on the wire."""
    bodies: list[dict[tuple[int, int], bytes]] = []
    with SimulatorProcess(SimulatorOptions(overrides=(("step_ms", "1"),))) as engine:
        for options in (
            [*LOAD, "--save-plan", str(tmp_path / "mix.plan")],
            ["--plan", str(tmp_path / "mix.plan"), "--warmup", "8"],
        ):
            folder = tmp_path / str(len(bodies))
            with relayed(engine.url) as server:
                done = command("--url", server.url, *options, "-o", str(folder))
                assert done.returncode in (0, 3), done.stderr
            rows = load(folder).rows
            rows = rows[rows["phase"] == MEASURE]
            classes = rows["request_class"][np.argsort(rows["request"])]
            document = json.loads((folder / "run.json").read_text())
            phase = document["phases"][-1]["number"]
            got = {request: body for (number, request), (body, _) in server.said.items() if number == phase}
            assert set(got) == set(range(len(classes))) and document["counts"]["failed"] == 0
            for request, body in got.items():
                kind, fields = int(classes[request]), json.loads(body)
                assert server.paths[phase, request] == PATHS[kind] and fields["model"] == document["target"]["model"]
                assert (
                    set(fields) - {"model"}
                    >= ({"messages"}, {"input", "encoding_format"}, {"query", "documents"}, {"prompt"}, {"messages"})[
                        kind
                    ]
                )
                assert (fields.get("stream"), "max_tokens" in fields) == (
                    (None, False) if kind in SILENT else (kind != UNSTREAMED, True)
                )
            bodies.append(got)
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("collect", ["rows", "summary"])
def test_many_hosts_send_the_same_mix(tmp_path: Path, collect: str) -> None:
    """From two hosts, whose events stay there with `summary`: figures of tokens are of classes with tokens, E2E is of all
    and has bounds, and each class has its counts.
    """
    run = mix_from_two_hosts(tmp_path / "run", CLASSES, 2, collect, **ENGINE)
    rows, window, document = run.rows[run.rows["phase"] == MEASURE], window_of(run), run.document
    assert window is not None and set(rows["worker"]) == {0, 1} and (rows["status"] == OK).all()
    submitted, silent = window.holds(rows["t_submit"]), np.isin(rows["request_class"], SILENT)
    metrics = document.metrics or {}
    e2e = (rows["t_last"] - rows["t_submit"])[submitted] / 1e6
    assert metrics["e2e"].n == submitted.sum() and metrics["e2e"].p50 == pytest.approx(np.percentile(e2e, 50))
    low, high = metrics["e2e"].bounds["p50"]
    assert low <= metrics["e2e"].p50 <= high < low + 5.0
    assert metrics["ttft"].n == (submitted & ~silent).sum()
    gaps = rows["completion_tokens"][submitted & ~silent & (rows["request_class"] != UNSTREAMED)] - 1
    assert metrics["itl"].n == gaps.sum() and document.classes_with_tokens == ("chat", "text", "batch")
    assert {name: one.planned for name, one in (document.classes or {}).items()} == {
        name: (rows["request_class"] == number).sum() for number, name in enumerate(NAMES)
    }


def test_mixes_with_a_closed_class_are_compared_by_class(tmp_path: Path) -> None:
    """An engine 20 ms slower: each class has that, and the closed one sends fewer of its short requests, so that the mean of
    all requests together rises by 34 ms.
    """
    mix = ("--class", "chat rate=20 osl=60", "--class", "back concurrency=2 osl=4", "--isl", "16", "--duration", "4")
    for name, ttft_ms in (("a", 10.0), ("b", 30.0)):
        measured = measure(tmp_path / name, [*OPTIONS, *mix], pin=False, **ENGINE | {"ttft_ms": ttft_ms, "itl_ms": 2.0})
        assert measured.exit_code in (0, 3), measured.said
    sides = [read_side([str(tmp_path / name)]) for name in ("a", "b")]
    by_class = {row.figure.name: row for row in compare(*sides).rows}
    assert not {"p50_e2e_ms", "p99_ttft_ms", "success_rate"} & by_class.keys() and "req_s" in by_class
    for name in ("chat", "back"):
        assert by_class[f"{name}/p50_e2e_ms"].change.difference == pytest.approx(20, abs=2)
        assert by_class[f"{name}/success_rate"].base.value == 1
    [pooled] = compare(*sides, names=["mean_e2e_ms"]).rows
    assert pooled.base.value is not None and pooled.new.value is not None
    assert pooled.new.value - pooled.base.value > 26
    assert pooled.result == "not estimable" and "back (closed)" in str(pooled.change.why_not)


def test_requests_of_a_class_that_were_cut_off_bound_its_figures(tmp_path: Path) -> None:
    """A quarter of one class, and of its models, gets no answer within the time limit: its P99 is that at least, and its P50
    is of all its requests; the other class has its figures, and `compare` claims nothing of the tail.
    """
    faulty = SimulatorOptions(faults=("never:0.25",), seed=SEED, any_model=True, **ENGINE)
    with SimulatorProcess(SimulatorOptions(any_model=True, **ENGINE)) as engine, SimulatorProcess(faulty) as other:
        mix = ("--class", "good rate=30", "--class", f"bad rate=60 url={other.url} models=a=1,b=1", "--no-model-check")
        words = (*OPTIONS, *mix, "--isl", "16", "--osl", "4", "--duration", "3", "--timeout", "0.5", "--ui", "plain")
        done = command("--url", engine.url, *words, "-o", tmp_path / "run", "--preflight-timeout", "20")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    run, document = load(tmp_path / "run"), json.loads((tmp_path / "run" / "run.json").read_text())
    window, rows = window_of(run), run.rows
    assert window is not None
    mine = rows[(rows["phase"] == MEASURE) & (rows["request_class"] == 1) & window.holds(rows["t_submit"])]
    cut = mine["status"] != OK
    assert 0.1 < cut.mean() < 0.45
    bad, good = document["classes"]["bad"], document["classes"]["good"]
    waited = np.where(cut, mine["t_end"], mine["t_first"]) - mine["t_submit"]
    for metric in ("ttft", "e2e"):
        found = bad[metric]
        assert found["unfinished_bounds"]["p99"]["low"] >= 500 and found["unfinished_bounds"]["p99"]["high"] is None
        assert (found["with_unfinished"]["n"], found["with_unfinished"]["n_unfinished"]) == (len(mine), cut.sum())
        assert "unfinished_bounds" not in good[metric]
    assert bad["ttft"]["with_unfinished"]["at_least"]["mean"] == pytest.approx(waited.mean() / 1e6)
    assert sum(one["ttft"]["with_unfinished"]["n_unfinished"] for one in bad["models"]) == cut.sum()
    line = next(line for line in said.splitlines() if line.startswith("bad ") and " ok, " in line)
    assert "p99 >=" in line and "failed" in line
    side = read_side([str(tmp_path / "run")])
    [row] = compare(side, side, names=["bad/p99_ttft_ms"]).rows
    assert row.change.interval is None and row.change.why_not is not None and row.change.p is None
