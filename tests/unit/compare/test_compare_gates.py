"""Gates: how they are written, when they fail, and the command's exit codes and files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_runs import RATE, config, document, manifest, plan, side, slower, write_run
from msgspec.structs import replace
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_workers
from typed_documents import typed_metric

from fastllmload.cli.main import main
from fastllmload.compare.comparison import compare
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.gate import (
    FAILED,
    MODES,
    PASSED,
    UNDECIDED,
    GateResult,
    judge_gates,
    parse_gate,
    validate_unit,
)
from fastllmload.compare.side import RunRecord, Side, read_run
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import plain
from fastllmload.metrics.public import measure
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.records.run import load

pytestmark = pytest.mark.slow

QUIET, NOISY = [100.0, 101.0, 99.0, 100.0], [70.0, 130.0, 95.0, 105.0]


def judged(rule: str, base: Side, new: Side, mode: str = "significant") -> GateResult:
    gate = parse_gate(rule)
    return judge_gates([gate], compare(base, new, [gate.figure]), mode)[0]


def raised(values: list[float], by: float) -> list[float]:
    return [value * by for value in values]


def test_gates_are_read() -> None:
    relative = parse_gate("p99_ttft_ms > +5%")
    assert (relative.figure, relative.above, relative.limit, relative.about) == ("p99_ttft_ms", True, 0.05, "relative")
    drop = parse_gate("output_tok_s<-3 %")
    assert (drop.above, drop.limit, drop.about) == (False, -0.03, "relative")
    assert parse_gate("p99_ttft_ms > +20ms").limit == 20.0
    assert parse_gate("p99_e2e_ms > +1.5 s").limit == 1500.0
    assert parse_gate("success_rate < -1 points").limit == pytest.approx(-0.01)
    level = parse_gate("p99_ttft_ms >= 200")
    assert (level.limit, level.about) == (200.0, "value")


@pytest.mark.parametrize("text", ["", "p99_ttft_ms", "p99_ttft_ms > fast", "p99_ttft_ms = 5", "> 5%", "a > +5% b"])
def test_other_texts_than_gates_are_refused_with_an_example(text: str) -> None:
    with raises_code("gate-invalid", "such as"):
        parse_gate(text)


def test_a_level_in_percent_is_refused() -> None:
    with raises_code("gate-invalid", "write > +5%"):
        parse_gate("p99_ttft_ms > 5%")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("p99_ttft_ms > 200tokens/s", ("gate-invalid", "is in ms", "not in tokens/s", "ms or s")),
        ("p99_ttft_ms > +3points", ("gate-invalid", "is in ms", "not in points")),
        ("output_tok_s < 100ms", ("gate-invalid", "is in tokens/s", "not in ms", "write tokens/s")),
        ("success_rate < +5ms", ("gate-invalid", "a share", "not in ms", "points or %")),
        ("tail_ratio > 3ms", ("gate-invalid", "is in ratio", "not in ms", "the number alone")),
    ],
)
def test_a_limit_of_another_unit_is_refused(rule: str, said: tuple[str, ...]) -> None:
    """It compared the bare numbers, and so passed whatever the server did."""
    gate = parse_gate(rule)
    unit = {"p99_ttft_ms": "ms", "output_tok_s": "tokens/s", "success_rate": "share", "tail_ratio": "ratio"}[
        gate.figure
    ]
    with raises_code(*said):
        validate_unit(gate, ComparedFigure(gate.figure, gate.figure, None, unit))


@pytest.mark.parametrize("rule", ["p99_ttft_ms > 200tokens/s", "p99_ttft_ms > 20points"])
def test_it_is_refused_before_anything_is_judged(rule: str) -> None:
    with raises_code("gate-invalid", rule, "is in ms"):
        judged(rule, side("a", QUIET), side("b", QUIET))


def test_the_level_of_a_share_may_be_in_percent() -> None:
    gate = parse_gate("success_rate < 99%")
    assert (gate.about, gate.limit) == ("value", pytest.approx(0.99))
    validate_unit(gate, ComparedFigure("success_rate", "success_rate", None, "share"))


def test_a_clear_rise_fails_in_every_mode() -> None:
    for mode in MODES:
        found = judged("p99_ttft_ms > +5%", side("a", QUIET), side("b", raised(QUIET, 1.3)), mode)
        assert found.outcome == FAILED and "+30.0 %" in found.why


def test_a_rise_below_the_limit_passes_in_every_mode() -> None:
    for mode in MODES:
        assert judged("p99_ttft_ms > +5%", side("a", QUIET), side("b", raised(QUIET, 1.03)), mode).outcome == PASSED


def test_a_noisy_rise_fails_only_when_asked_to_take_it_as_measured() -> None:
    outcomes = {
        mode: judged("p99_ttft_ms > +5%", side("a", NOISY), side("b", raised(NOISY, 1.1)), mode).outcome
        for mode in MODES
    }
    assert outcomes == {"significant": PASSED, "proven": PASSED, "measured": FAILED}


def test_a_rise_that_is_real_but_may_be_within_the_limit() -> None:
    """6 % for certain above 0, but perhaps only 4.5 %: significant fails, proven does not."""
    base, new = side("a", QUIET), side("b", raised(QUIET, 1.06))
    assert judged("p99_ttft_ms > +5%", base, new, "significant").outcome == FAILED
    assert judged("p99_ttft_ms > +5%", base, new, "proven").outcome == PASSED


def test_a_fall_of_throughput_fails() -> None:
    base, new = (
        Side(name, tuple(RunRecord(Path(f"{name}/{k}"), document(100.0, v)) for k, v in enumerate(values)))
        for name, values in (("a", (1000.0, 1001.0, 1002.0)), ("b", (800.0, 805.0, 795.0)))
    )
    assert judged("output_tok_s < -3%", base, new).outcome == FAILED
    assert judged("output_tok_s > +3%", base, new).outcome == PASSED


def test_a_level_is_that_of_the_new_side() -> None:
    assert judged("p99_ttft_ms > 90", side("a", [50.0, 51.0, 52.0]), side("b", QUIET)).outcome == FAILED
    assert judged("p99_ttft_ms > 99.9", side("a", QUIET), side("b", QUIET)).outcome == PASSED
    assert judged("p99_ttft_ms > 99.9", side("a", QUIET), side("b", QUIET), "measured").outcome == FAILED


def test_gates_that_cannot_be_judged_are_undecided() -> None:
    found = judged("p99_ttft_ms > +5%", side("a", [100.0, 101.0]), side("b", [150.0]))
    assert found.outcome == UNDECIDED and "at least 3 runs" in found.why


def unfinished(found: RunDocument, low: float) -> RunDocument:
    """*found* with requests that did not end, with which P99 of TTFT is *low* or more."""
    assert found.metrics is not None
    ttft = typed_metric({**plain(found.metric("ttft")), "unfinished_bounds": {"p99": {"low": low, "high": None}}})
    return replace(found, metrics={**found.metrics, "ttft": ttft})


@pytest.mark.parametrize("mode", MODES)
def test_a_gate_does_not_pass_on_the_requests_that_ended(mode: str) -> None:
    """P99 of those that ended is 100 ms, that of all is 110 ms or more: a limit of 105 ms fails, one of 120 ms is open, and
    so is any change.
    """
    base, ended = side("a", [100.0, 100.0, 101.0]), side("b", [100.0, 99.0, 101.0])
    new = Side("b", tuple(RunRecord(run.folder, unfinished(run.document, 110.0)) for run in ended.runs))
    rules = ("p99_ttft_ms > 105", "p99_ttft_ms > 120", "p99_ttft_ms < 50", "p99_ttft_ms > +5%", "p99_ttft_ms > +5ms")
    found = [judged(rule, base, new, mode) for rule in rules]
    assert [each.outcome for each in found] == [FAILED, *([UNDECIDED] * 4)]
    assert all("110" in each.why and "did not end" in each.why for each in found)
    (row,) = compare(base, new, ["p99_ttft_ms"]).rows
    assert (row.new.at_least, row.change.difference, row.result) == (110.0, None, "not estimable")


def test_alarms_of_several_gates_are_allowed_for() -> None:
    """p of 0.03 alone fails; among five gates, Holm makes it 0.15."""
    base, new = side("a", [100.0, 102.0, 98.0]), side("b", [106.0, 108.5, 104.0])
    rules = [parse_gate("p99_ttft_ms > +2%"), parse_gate("output_tok_s < -3%")]
    p = compare(base, new, ["p99_ttft_ms"]).rows[0].change.p
    assert p is not None and 0.01 < p < 0.05
    assert judge_gates(rules[:1], compare(base, new, ["p99_ttft_ms"]), "significant")[0].outcome == FAILED
    many = [
        parse_gate(f"{name} > +2%")
        for name in ("p99_ttft_ms", "p50_ttft_ms", "mean_ttft_ms", "p99_ttft_ms", "p50_ttft_ms")
    ]
    found = judge_gates(many, compare(base, new, ["p99_ttft_ms", "p50_ttft_ms", "mean_ttft_ms"]), "significant")
    assert {each.outcome for each in found} == {PASSED}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("runs")
    write_run(base / "a", 1)
    write_run(base / "b", 2)
    write_run(base / "slow", 3, factor=1.5)
    write_run(
        base / "other", 4, n=100, plan=plan("e" * 64, seed=9, schedule="t" * 64), config=config(load__timeout=5.0)
    )
    for k in range(3):
        write_run(base / "old" / str(k), 10 + k, n=150)
        write_run(base / "new" / str(k), 20 + k, n=150, factor=1.4)
    return base


def test_the_command_compares_two_folders(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "a"), str(runs / "b")]) == 0
    shown = capsys.readouterr().out
    assert "DIFFERENT" not in shown and "the same on" in shown and "No difference is" in shown
    assert max(len(line) for line in shown.splitlines() if not line.startswith(("base", "new"))) <= 80


def test_a_gate_decides_the_exit_code(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(runs / "a"), str(runs / "slow"), "--fail-if"]
    assert main([*arguments, "p50_ttft_ms > +5%"]) == 1
    assert "gate FAILED: p50_ttft_ms > +5%" in capsys.readouterr().out
    assert main([*arguments, "p50_ttft_ms > +80%"]) == 0
    assert main([*arguments, "p999_ttft_ms > +5%"]) == 1
    assert main([*arguments, "p999_ttft_ms > +5%", "--undecided", "pass"]) == 0


def test_several_runs_a_side_and_folders_of_runs_are_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = [[str(runs / name / str(k)) for k in range(3)] for name in ("old", "new")]
    assert main(["compare", *old, "--against", *new, "--fail-if", "mean_ttft_ms > +5%"]) == 1
    one = capsys.readouterr().out.split("\n\n")[1]
    assert (
        main(["compare", f"was={runs / 'old'}", "--fail-if", "mean_ttft_ms > +5%", "--against", f"is={runs / 'new'}"])
        == 1
    )
    other = capsys.readouterr().out
    assert one in other and "was: 3 runs" in other


def test_files_are_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md"), "--fail-if", "p50_ttft_ms > +5%"]
    assert main(["compare", str(runs / "a"), str(runs / "slow"), *files]) == 1
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["schema_version"] == 1 and found["same_workload"] is True
    assert found["figures"]["p50_ttft_ms"]["result"] == "worse"
    assert found["gates"][0]["outcome"] == FAILED
    page = (tmp_path / "c.md").read_text()
    assert "<" not in page.replace("&lt;", "")
    assert "**Gates: 1 failed, 0 undecided, 0 passed.**" in page and "| p50_ttft_ms |" in page


def test_unequal_workloads_are_refused_unless_allowed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(runs / "a"), str(runs / "other")]
    assert main(arguments) == 2
    assert "load.timeout: 600.0 in a, 5.0 in other" in capsys.readouterr().err
    assert main([*arguments, "--different-workload"]) == 0
    assert "DIFFERENT WORKLOADS" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["a"], ["a", "b", "slow"], ["a", "--against"]])
def test_two_sides_are_needed(runs: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [argument if argument.startswith("-") else str(runs / argument) for argument in arguments]
    assert main(["compare", *given]) == 2
    assert "two sides" in capsys.readouterr().err


def test_strict_asks_for_certificates(runs: Path, tmp_path: Path) -> None:
    doubtful = write_run(tmp_path / "d", 5, n=100, certificate={"verdict": "suspect", "reasons": []})
    arguments = ["compare", str(runs / "a"), str(doubtful)]
    assert main(arguments) == 0
    assert main([*arguments, "--strict"]) == 1


def test_a_file_that_cannot_be_written(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "a"), str(runs / "b"), "--json", "/nowhere/x.json"]) == 2
    assert "--json /nowhere/x.json cannot be written" in capsys.readouterr().err


KINDS = {"target": {"urls": ["http://a"], "model": "m", "classes": [
    {"name": name, "endpoint_type": "openai-chat", "model": "m", "urls": ["http://a"]} for name in "abc"
]}}  # fmt: skip


def test_a_figure_of_a_class_is_of_its_requests_alone(tmp_path: Path) -> None:
    """Each class is among the usual figures; a gate may name another figure of it; unknown ones are refused."""
    parts = {**KINDS, "plan": plan() | {"classes": list("abc")}}
    base, new = (Side(name, (read_run(write_run(tmp_path / name, 1, n=2000, factor=factor, **parts)),))
                 for name, factor in (("base", 1.0), ("new", 1.5)))  # fmt: skip
    found = {row.figure.name: row for row in compare(base, new).rows}
    assert [name for name in found if "/" in name] == [f"{name}/{q}_ttft_ms" for name in "abc" for q in ("p50", "p99")]
    run = load(tmp_path / "base")
    rows = run.rows[populations(run, window_of(run)).latency]
    for number, name in enumerate("abc"):
        mine = rows[(rows["request_class"] == number) & (rows["t_first"] > 0)]
        row = found[f"{name}/p50_ttft_ms"]
        assert row.base.value == pytest.approx(np.percentile((mine["t_first"] - mine["t_submit"]) / 1e6, 50))
        assert 100 < row.change.pairs <= len(mine) < found["p50_ttft_ms"].change.pairs
        assert row.change.interval is not None and row.change.interval[0] > 0
    for rule, outcome in (
        ("b/p50_ttft_ms > +20%", FAILED),
        ("b/p50_ttft_ms > +300%", PASSED),
        ("c/req_s < -90%", PASSED),
    ):
        assert judged(rule, base, new).outcome == outcome
    for wrong in ("z/p50_ttft_ms", "a/p50_jitter_ms", "a/ttft"):
        with raises_code("figure-unknown", wrong):
            compare(base, new, [wrong])


SERVERS = ["one:80", "two/b"]
ROUTED = {"config": config(target__backend_header="x-backend"), "backend_names": [{"worker": 0, "names": SERVERS}]}


def run_of_backends(folder: Path, factor: float) -> Path:
    """Four requests in turn by each of two servers; the second answers *factor* times as slowly."""
    folder.mkdir()
    requests = draw_requests(1, Shape(requests=2000, rate=RATE))
    for one in requests:
        one.fields["backend"] = 1 + one.fields["request"] // 4 % 2
    slower([one for one in requests if one.fields["backend"] == 2], factor)
    write_workers(folder, requests)
    document = manifest(phases=[duration_phase(ORIGIN_NS, len(requests) / RATE)], **ROUTED)
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "run.json").write_text(json.dumps(measure(load(folder))))
    return folder


def test_a_figure_of_a_backend_is_of_its_requests_alone(tmp_path: Path) -> None:
    """The second server alone is slower: its figures show it, those of the first do not. Both are among the usual ones."""
    sides = [Side(name, (read_run(run_of_backends(tmp_path / name, factor)),))
             for name, factor in (("base", 1.0), ("new", 1.5))]  # fmt: skip
    base, new = sides
    found = {row.figure.name: row for row in compare(base, new, also=[
        f"backend:{name}/{figure}" for name in SERVERS for figure in ("p50_itl_ms", "p50_tpot_ms", "req_s", "success_rate")
    ]).rows}  # fmt: skip
    usual = [f"backend:{name}/{q}_ttft_ms" for name in SERVERS for q in ("p50", "p99")]
    assert [name for name in found if "/" in name][:4] == usual
    rows = load(tmp_path / "new").rows
    latency = populations(load(tmp_path / "new"), window_of(load(tmp_path / "new"))).latency
    for number, name in enumerate(SERVERS, 1):
        mine = rows[latency & (rows["backend"] == number) & (rows["t_first"] > 0)]
        row = found[f"backend:{name}/p50_ttft_ms"]
        assert row.new.value == pytest.approx(np.percentile((mine["t_first"] - mine["t_submit"]) / 1e6, 50))
        assert 100 < row.change.pairs <= len(mine) < found["p50_ttft_ms"].change.pairs
        for figure in ("p50_ttft_ms", "p50_itl_ms", "p50_tpot_ms"):
            interval = found[f"backend:{name}/{figure}"].change.relative_interval
            assert interval is not None and interval[0] <= (0.5 if number == 2 else 0.0) <= interval[1] + 1e-9
        assert found[f"backend:{name}/req_s"].change.interval is not None
        assert found[f"backend:{name}/success_rate"].result == "not shown"
    assert judged("backend:two/b/p50_ttft_ms > +20%", base, new).outcome == FAILED
    assert judged("backend:one:80/p50_ttft_ms > +20%", base, new).outcome == PASSED
    for wrong in ("backend:three/p50_ttft_ms", "model:m/p50_ttft_ms", "backend:one:80/p50_jitter_ms", "one:80/req_s"):
        with raises_code("figure-unknown", wrong):
            compare(base, new, [wrong])
