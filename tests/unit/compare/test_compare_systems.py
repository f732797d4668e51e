"""Comparison of systems: refusals, the checklist, normalisation, and claims only where a test carries them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import config, document, plan, write_run
from refusals import raises_code, says

from fastllmload.cli.main import main
from fastllmload.compare.checklist import DECLARED, NO, NOT_DECLARED, YES, checklist
from fastllmload.compare.report.systems import for_terminal
from fastllmload.compare.side import RunRecord, Side
from fastllmload.compare.systems import compare_systems
from fastllmload.report.render import text

pytestmark = pytest.mark.slow

DECLARED_ALL = {
    "sut.boundary": "model_engine",
    "sut.hardware.accelerator": "H100",
    "sut.hardware.count": "4",
    "sut.hardware.memory_gib": "80",
    "comparison.shared_resources": "no",
    "comparison.production_representative": "yes",
}


def system(name: str, p99: list[float], tok_s: float = 1000.0, gpus: int | None = None, **parts: Any) -> Side:
    """Runs of a system with these P99 of TTFT; *gpus* normalise."""
    made = []
    for k, value in enumerate(p99):
        asked = {"config": config(output__gpus=gpus), "plan": plan(f"{name}{k}", name), "declarations": DECLARED_ALL}
        target = {"urls": [f"http://{name}"], "model": name, "simulated": False}
        per_gpu = None if gpus is None else (tok_s + k) / gpus
        metrics = {"tok_per_gpu_s": {"unit": "tokens/s/GPU", "value": per_gpu, "ci95": None}}
        found = document(value, tok_s + k, metrics, **{**asked, "target": target, **parts})
        made.append(RunRecord(Path(f"{name}/{k}"), found))
    return Side(name, tuple(made))


FAST, SLOW = [100.0, 101.0, 99.0], [150.0, 152.0, 149.0]


def test_a_claim_rests_on_its_test_and_says_so() -> None:
    found = compare_systems([system("a", FAST), system("b", SLOW)], ["p99_ttft_ms"])
    assert len(found.claims()) == 1
    claim = found.claims()[0]
    assert claim.startswith("a is better") and "b in p99_ttft_ms: mean 100 against 150.3 ms; b less a +" in claim
    assert "welch, p " in claim and "after Holm, 3 and 3 runs" in claim


def test_systems_that_do_not_differ_are_not_said_to() -> None:
    assert compare_systems([system("a", FAST), system("b", [100.5, 99.5, 101.0])], ["p99_ttft_ms"]).claims() == []


def paired(name: str, p99: list[float], tok_s: list[float]) -> Side:
    """Runs of a system whose arrivals the other system had too."""
    made = []
    for k, (value, rate) in enumerate(zip(p99, tok_s, strict=True)):
        target = {"urls": [f"http://{name}"], "model": name, "simulated": False}
        parts = {"plan": plan(f"{k}", "m", schedule=f"{k}" * 64), "declarations": DECLARED_ALL, "target": target}
        made.append(RunRecord(Path(f"{name}/{k}"), document(value, rate, config=config(), **parts)))
    return Side(name, tuple(made))


def test_the_test_that_judged_a_figure_is_named() -> None:
    """Pairs that all differ by one amount are judged by Welch's t (docs/decisions/11-comparisons.md), and the head of the
    table says which.
    """
    one = paired("a", FAST, [1000.0, 1001.0, 1003.0])
    alike = compare_systems([one, paired("b", SLOW, [1000.5, 1001.5, 1003.5])], ["p99_ttft_ms", "output_tok_s"])
    head = next(line for line in text.lines(for_terminal(alike), 100) if line.startswith("b against a"))
    assert "Welch's t" in head and head.endswith(": output_tok_s):")
    other = compare_systems([one, paired("b", SLOW, [1000.5, 1001.0, 1003.5])], ["p99_ttft_ms", "output_tok_s"])
    assert "Welch" not in "\n".join(text.lines(for_terminal(other), 100))


def test_two_runs_carry_no_claim_however_far_apart() -> None:
    found = compare_systems([system("a", FAST[:2]), system("b", SLOW[:2])], ["p99_ttft_ms"])
    assert found.claims() == []
    assert any("3 independent" in note and "a has 2, b has 2" in note for note in found.notes)


def test_three_systems_are_compared_in_pairs_and_holm_covers_all() -> None:
    found = compare_systems([system("a", FAST), system("b", SLOW), system("c", [100.2, 99.0, 102.0])], ["p99_ttft_ms"])
    assert [(pair.base.name, pair.new.name) for pair in found.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    worst = max(found.pairs, key=lambda pair: pair.rows[0].change.p or 0).rows[0].change
    best = min(found.pairs, key=lambda pair: pair.rows[0].change.p or 1).rows[0].change
    assert worst.p_holm is not None and worst.p_holm >= (worst.p or 0)
    assert best.p_holm == pytest.approx(3 * (best.p or 0))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"plan": plan("z" * 64, "b", seed=9, schedule="t" * 64)}, ("methods-differ", "seed: 42 in a", "9 in b")),
        (
            {"declarations": {**DECLARED_ALL, "sut.boundary": "compound_system"}},
            ("methods-differ", "sut.boundary: model_engine for"),
        ),
        (
            {"declarations": {**DECLARED_ALL, "sut.hardware.count": "8"}},
            ("methods-differ", "hardware: it differs"),
        ),
    ],
)
def test_unequal_set_ups_are_refused(parts: dict[str, Any], said: tuple[str, ...]) -> None:
    with raises_code("methods-differ") as refused:
        compare_systems([system("a", FAST), system("b", SLOW, **parts)])
    assert says(str(refused.value), *said)


ENGINE = {"urls": ["http://127.0.0.1:1"], "model": "b", "simulated": True}
SILENT = {key: value for key, value in DECLARED_ALL.items() if key != "sut.boundary"}
GATEWAY = {**DECLARED_ALL, "sut.boundary": "application_gateway"}


def test_the_boundary_of_the_simulated_engine_is_known() -> None:
    """As `compliance` has it: the tool declares it of its own engine."""
    embedded = system("b", SLOW, declarations=SILENT, target=ENGINE)
    states = {item.name: item for item in checklist([system("a", FAST), embedded])}
    assert states["boundary of the system"].evidence == "a: model_engine, b: model_engine"
    with raises_code("methods-differ", "sut.boundary: application_gateway for a", "model_engine for b"):
        compare_systems([system("a", FAST, declarations=GATEWAY), embedded])


def test_a_boundary_declared_on_one_side_only_is_not_equal() -> None:
    with raises_code("methods-differ", "declared for b", "--declare sut.boundary="):
        compare_systems([system("a", FAST), system("b", SLOW, declarations=SILENT)])
    silent = compare_systems([system("a", FAST, declarations=SILENT), system("b", SLOW, declarations=SILENT)])
    assert {item.name: item.state for item in silent.checklist}["boundary of the system"] == NOT_DECLARED


def test_unequal_hardware_is_normalised_by_gpus() -> None:
    found = compare_systems([system("a", FAST, 1000.0, 4), system("b", FAST, 1500.0, 8)])
    assert [figure.name for figure in found.normalised] == ["tok_per_gpu_s"] and not found.same_hardware
    values = {figure.name: found.measured(figure) for figure in found.figures}["tok_per_gpu_s"]
    assert [each.value for each in values] == pytest.approx([1001 / 4, 1501 / 8])
    assert any("in tok_per_gpu_s" in claim and claim.startswith("a is better") for claim in found.claims())
    assert any("in output_tok_s" in claim and claim.startswith("b is better") for claim in found.claims())


def test_the_checklist_is_computed_or_declared() -> None:
    states = {item.name: item.state for item in checklist([system("a", FAST), system("b", SLOW)])}
    assert states["same workload"] == states["same warm-up"] == states["comparable hardware"] == YES
    assert states["same time"] == states["production-representative"] == states["boundary of the system"] == DECLARED
    silent = {item.name: item.state for item in checklist([system("a", FAST), system("b", SLOW, declarations={})])}
    assert silent["production-representative"] == silent["same time"] == NOT_DECLARED
    late = system(
        "b",
        SLOW,
        environment={"time_utc": "2026-01-01T09:00:00Z"},
        declarations={**DECLARED_ALL, "comparison.shared_resources": "yes"},
    )
    early = system(
        "a",
        FAST,
        environment={"time_utc": "2026-01-01T00:00:00Z"},
        declarations={**DECLARED_ALL, "comparison.shared_resources": "yes"},
    )
    apart = {item.name: item for item in checklist([early, late])}["same time"]
    assert apart.state == NO and "540 minutes" in apart.evidence
    soon = {item.name: item for item in checklist([system("a", FAST), system("b", SLOW)])}["same time"]
    assert soon.evidence.endswith("within a minute")
    unlike = {
        item.name: item.state
        for item in checklist([system("a", FAST), system("b", SLOW, config=config(load__warmup_requests=5))])
    }
    assert unlike["same warm-up"] == unlike["same workload"] == NO


def test_tokens_of_unlike_tokenizers_are_labelled() -> None:
    found = compare_systems([system("a", FAST), system("b", SLOW)], ["p99_ttft_ms"])
    assert any("different unit" in note for note in found.notes)


def test_the_command_prints_and_writes_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, factor in (("x", 1.0), ("y", 1.5)):
        for k in range(3):
            target = {"urls": [f"http://{name}"], "model": name, "simulated": False}
            parts = {"plan": plan(name * 64, name), "declarations": DECLARED_ALL, "target": target}
            write_run(tmp_path / name / str(k), ord(name) + 10 * k, 150, factor, **parts)
    files = ["--json", str(tmp_path / "s.json"), "--markdown", str(tmp_path / "s.md")]
    sides = [f"x={tmp_path / 'x'}", "--systems", "--against", f"y={tmp_path / 'y'}"]
    assert main(["compare", *sides, *files]) == 0
    shown = capsys.readouterr().out
    assert "(IETF 6.4)" in shown and "x is better" in shown and "in p50_ttft_ms" in shown
    found = json.loads((tmp_path / "s.json").read_text())
    assert [each["name"] for each in found["systems"]] == ["x", "y"] and len(found["claims"]) >= 1
    assert found["systems"][0]["figures"]["p50_ttft_ms"]["ci95"] is not None
    page = (tmp_path / "s.md").read_text()
    assert "### Checklist (IETF 6.4)" in page and "### Differences in configuration" in page
    assert main(["compare", *sides, "--fail-if", "p99_ttft_ms > +5%"]) == 2
    assert says(capsys.readouterr().err, "options-conflict", "--fail-if", "--systems")


def at_arrivals(name: str, p99: list[float], digests: list[str], process: str = "poisson") -> Side:
    """Runs whose arrivals are those of *digests*."""
    made = []
    for k, (value, digest) in enumerate(zip(p99, digests, strict=True)):
        planned = plan(digest, name, schedule=digest)
        planned["description"]["load"]["arrivals"] = {"name": process, "rate": 50.0, "stream": "s"}
        made.append(replace(system(name, [value], plan=planned).first, folder=Path(f"{name}/{k}")))
    return Side(name, tuple(made))


@pytest.mark.parametrize(
    ("digests", "process", "claims"),
    [(["1", "2", "3"], "poisson", 1), (["1", "1", "1"], "poisson", 0), (["1", "1", "2"], "poisson", 0),
     (["1", "1", "1"], "constant", 1)],
)  # fmt: skip
def test_runs_at_the_same_arrivals_are_not_independent(digests: list[str], process: str, claims: int) -> None:
    """Three runs with one seed say nothing of other arrivals (IETF 6.3); constant arrivals have no seed."""
    found = compare_systems(
        [at_arrivals(name, p99, digests, process) for name, p99 in (("a", FAST), ("b", SLOW))], ["p99_ttft_ms"]
    )
    assert len(found.claims()) == claims
    limits = [note for note in found.notes if "does not cover other arrivals" in note]
    assert len(limits) == (0 if claims else 2)
    last = list(text.lines(for_terminal(found), 200))[-1]
    assert last.startswith("- claim: a is") if claims else "too few" in last
