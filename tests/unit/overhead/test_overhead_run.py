"""What a gateway adds, through the lab: alternating runs, one table, started again without repeating anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code
from slot_runs import Killed, SlotTarget
from slot_server import SlotServer

from fastllmload.compare.gate import parse_gate
from fastllmload.compare.side import RunRecord
from fastllmload.engine.preflight.check import Preflight
from fastllmload.experiment import experiment
from fastllmload.experiment.console import Console
from fastllmload.experiment.level.settings import changed
from fastllmload.overhead import run as overhead_run
from fastllmload.overhead.figures import LATENCIES, VALUES, check_names
from fastllmload.overhead.run import DIRECT, THROUGH, OverheadTerms, WayOptions, order, run_overhead
from fastllmload.procedure.reshow import saved_report
from fastllmload.settings import Load, Output, RunSettings, TrafficClass, Workload

pytestmark = pytest.mark.slow

ENGINE, GATEWAY = "http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"
BASE = RunSettings(load=Load(rate=20.0, duration=10.0))
ADDED_S = 0.03


class TwoWays(SlotTarget):
    """Every request takes ADDED_S longer through the gateway."""

    def execute(self, settings: RunSettings, secret: object, ui: Any, engine: object) -> int:
        through = settings.target.urls == (GATEWAY,)
        self.server = SlotServer(64, 0.1 + ADDED_S * through, fixed=True)
        return super().execute(settings, secret, ui, engine)


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead_run, "preflight", lambda *_: Preflight(model="m", way="on"))
    monkeypatch.setattr(experiment.Experiment, "is_unreachable", lambda self: False)


def measure(
    monkeypatch: pytest.MonkeyPatch, target: SlotTarget, folder: Path, settings: RunSettings = BASE, **more: Any
) -> int:
    monkeypatch.setattr(experiment, "execute", target.execute)
    gates = tuple(map(parse_gate, more.pop("gates", ())))
    through, own = more.pop("through", GATEWAY), more.pop("through_own", WayOptions())
    terms = OverheadTerms(folder, settle_s=0, gates=gates, through=own, **{"pairs": 4, **more})
    return run_overhead(settings, [ENGINE], [through], None, terms, Console(str, quiet=True))


def runs_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("levels/*/run.json"))]


def test_pairs_alternate_and_share_their_plan_but_no_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Direct, through, through, direct; one repetition a pair; a salt of its own and one model in every run."""
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o") == 0
    configs = [run["config"] for run in runs_of(tmp_path / "o")]
    urls = [config["target"]["urls"][0] for config in configs]
    assert urls == [ENGINE, GATEWAY, GATEWAY, ENGINE] * 2
    assert [config["load"]["repetition"] for config in configs] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(config["workload"]["salt"] for config in configs) == list(range(8))
    assert {config["target"]["model"] for config in configs} == {"m"}
    assert {config["workload"]["continuous_usage"] for config in configs} == {"on"}
    assert [config["load"]["warmup_requests"] for config in configs] == [None, None, *[0] * 6]
    assert [order(pair)[0] for pair in range(4)] == [DIRECT, THROUGH, DIRECT, THROUGH]


@pytest.mark.parametrize(("start", "warmups"), [("fresh", [None, 0]), ("stationary", [None, None])])
def test_runs_that_begin_within_sessions_all_have_the_warm_up(start: str, warmups: list[int | None]) -> None:
    """It sends what these sessions have in the cache: without it the first pair would be another measurement."""
    settings = changed(BASE, workload={"name": "graph", "session_start": start})
    unused: Any = None
    ways = dict.fromkeys((DIRECT, THROUGH), settings)
    overhead = overhead_run.Overhead(unused, unused, ways, {}, OverheadTerms(Path()), repeats=False)
    assert [overhead.settings_of(pair, DIRECT).load.warmup_requests for pair in (0, 1)] == warmups


def test_what_is_added_has_its_interval_and_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The known 30 ms in the end-to-end latency, and nothing in the first token, which comes at once."""
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o") == 0
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    added = document["added"]
    e2e = added["mean_e2e_ms"]
    assert e2e["added"] == pytest.approx(1e3 * ADDED_S, abs=0.01)
    assert e2e["interval"][0] <= 1e3 * ADDED_S <= e2e["interval"][1]
    assert len(e2e["by_pair"]) == 4 and e2e["result"] == "worse"
    assert abs(added["p50_ttft_ms"]["added"]) < 0.01 and added["p50_ttft_ms"]["result"] == "not shown"
    assert document["parameters"]["through"] == [GATEWAY] and document["verdicts"][THROUGH] == ["valid"] * 4
    text = (tmp_path / "o/overhead.md").read_text()
    assert "mean_e2e_ms" in text and "+30.0" in text
    assert (tmp_path / "o/overhead.html").read_text().count("<svg") >= 3
    assert "mean_e2e_ms" in (saved_report(tmp_path / "o", "terminal") or "")


def test_clocks_widen_the_interval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """*interval* is that of chance with the client's bounds on both ends."""
    measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o")
    added = json.loads((tmp_path / "o/overhead.json").read_text())["added"]
    one = added["mean_ttft_ms"]
    assert one["clocks"] is not None and min(one["clocks"]) > 0
    assert one["by_chance"][0] - one["interval"][0] == pytest.approx(one["clocks"][0])
    assert one["interval"][1] - one["by_chance"][1] == pytest.approx(one["clocks"][1])
    assert added["req_s"]["clocks"] is None


@pytest.mark.parametrize(
    ("gate", "code", "outcome"),
    [
        ("p99_e2e_ms > +20ms", 1, "FAILED"),
        ("p99_e2e_ms > +40ms", 0, "passed"),
        ("p95_e2e_ms > +20%", 1, "FAILED"),
        ("success_rate < -1%", 0, "passed"),
    ],
)
def test_a_gate_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gate: str, code: int, outcome: str
) -> None:
    """Also of a figure that is not among the usual ones."""
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", gates=[gate]) == code
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert [each["outcome"] for each in document["gates"]] == [outcome]
    assert gate in (tmp_path / "o/overhead.md").read_text().replace("&gt;", ">").replace("&lt;", "<").replace("\\", "")


@pytest.mark.parametrize("kill_at", [0, 3, 7])
def test_a_killed_measurement_continues(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kill_at: int) -> None:
    """No finished run again, and the same figures in the end."""
    whole = TwoWays(SlotServer(8, 0.1))
    measure(monkeypatch, whole, tmp_path / "whole")
    cut, again = TwoWays(SlotServer(8, 0.1), kill_at=kill_at), TwoWays(SlotServer(8, 0.1))
    with pytest.raises(Killed):
        measure(monkeypatch, cut, tmp_path / "cut")
    measure(monkeypatch, again, tmp_path / "cut")
    assert cut.measured + again.measured == whole.measured
    found = [json.loads((tmp_path / name / "overhead.json").read_text())["added"] for name in ("whole", "cut")]
    assert found[0] == found[1]


def test_another_gate_needs_no_other_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o")
    again = TwoWays(SlotServer(8, 0.1))
    assert measure(monkeypatch, again, tmp_path / "o", gates=["p50_e2e_ms > +1ms"]) == 1
    assert again.measured == []


def test_the_same_way_twice_is_an_a_a_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Said as such; no difference is shown."""
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", through=ENGINE) == 0
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert any("[ways-equal]" in text for text in document["warnings"])
    assert {one["result"] for one in document["added"].values()} <= {"not shown", "not estimable"}


def test_prompts_that_repeat_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Texts of a data set cannot differ between runs, so a prefix cache is named; no salt is recorded."""
    base = RunSettings(load=BASE.load, workload=Workload(name="conversation"))
    measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", base)
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert any("[prefix-cache-warm]" in text for text in document["warnings"])
    assert {run["config"]["workload"]["salt"] for run in runs_of(tmp_path / "o")} == {0}


def test_a_class_with_its_own_way_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = TrafficClass(name="a", load=BASE.load, workload=BASE.workload, urls=(ENGINE,))
    with raises_code("option-not-applicable", "--class"):
        measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", RunSettings(load=BASE.load, classes=(one,)))
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "settings",
    [changed(BASE, output={"plan": "p"}), changed(BASE, target={"models": (("a", 1.0), ("b", 1.0))}),
     RunSettings(load=BASE.load, classes=(
         TrafficClass(name="c", load=BASE.load, workload=Workload(), model="x"),
     ))],
)  # fmt: skip
def test_one_model_of_the_gateway_replaces_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: RunSettings
) -> None:
    with raises_code("options-conflict", "--through-model g"):
        measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", settings, through_own=WayOptions("g"))
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["p99_nothing_ms", "ttft", "p42_ttft_ms", "tokens_in_flight"])
def test_an_unknown_figure_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    target = TwoWays(SlotServer(8, 0.1))
    with raises_code("figure-unknown", name):
        measure(monkeypatch, target, tmp_path / "o", figures=(name,))
    assert target.measured == [] and not (tmp_path / "o").exists()


def test_every_figure_that_is_accepted_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = (*(f"p90_{metric}_ms" for metric in LATENCIES), *VALUES)
    check_names(names)
    measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", figures=names)
    assert set(json.loads((tmp_path / "o/overhead.json").read_text())["added"]) == set(names)


@pytest.mark.parametrize("name", ["chat/p50_ttft_any_ms", "rank/p50_ttft_ms", "chat/request_goodput", "/p50_ttft_ms"])
def test_figures_of_a_class_are_checked_before_anything_is_measured(name: str) -> None:
    check_names(["chat/p95_ttft_ms", "chat/req_s", "mean_e2e_ms"], ["chat"])
    with raises_code("figure-unknown", name):
        check_names([name], ["chat"])


def test_a_gate_on_a_figure_without_a_value_is_undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of TTFT of embeddings, or goodput without objectives: it fails, and the other figures are reported."""
    target = TwoWays(SlotServer(8, 0.1))
    assert measure(monkeypatch, target, tmp_path / "o", gates=["p50_gen_duration_s > +1", "request_goodput < -1"]) == 1
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert [each["outcome"] for each in document["gates"]] == ["passed", "UNDECIDED"]
    assert document["added"]["mean_e2e_ms"]["result"] == "worse"


def test_a_plan_that_is_not_there_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(overhead_run, "preflight", lambda *_: pytest.fail("a server was asked"))
    base = RunSettings(load=BASE.load, output=Output(plan=str(tmp_path / "none.plan")))
    with raises_code("plan-file-invalid", "none.plan"):
        measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", base)
    assert not (tmp_path / "o").exists()


def test_strict_fails_a_run_that_is_not_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its verdict is in the warnings in any case."""

    def doubtful(self: RunRecord) -> str:
        return "suspect"

    monkeypatch.setattr(RunRecord, "verdict", property(doubtful))
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o") == 0
    assert measure(monkeypatch, TwoWays(SlotServer(8, 0.1)), tmp_path / "o", strict=True) == 1
    document = json.loads((tmp_path / "o/overhead.json").read_text())
    assert "suspect in 4 of 4 runs direct" in document["warnings"][0]
