"""Hosts that keep their events give the figures and the certificate of a run whose events were copied: counts, sums, figures
of requests and the certificates of hosts exactly, ranks of gaps to three digits.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kept_events import DIGITS, GAPS, SHAPES, differences
from made_hosts import MadeHost, MadeRun
from msgspec.structs import replace
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Shape, draw_requests

from fastllmload._ext.record import histogram
from fastllmload.certificate.judge import judged
from fastllmload.certificate.monitor import join_watches
from fastllmload.documents.write import encoded
from fastllmload.engine.finalize import planned_phases
from fastllmload.engine.hosts.kept.events import Questions, gather
from fastllmload.engine.hosts.kept.summarizer import HostFolder
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.run_plans import RunPhase
from fastllmload.metrics.objectives.report import slo_ok
from fastllmload.metrics.run.measure import measure
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.itl import pooled
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records import layout
from fastllmload.records.event_totals import summary_path
from fastllmload.records.hosts import read_clocks, with_clocks
from fastllmload.records.integrity import inventory
from fastllmload.records.run import Run, load, read_document

pytestmark = pytest.mark.slow

HOSTS = (
    MadeHost((0,)),
    MadeHost((1, 2), ahead_ns=-7_000_000_000_000, drift=50e-6),
    MadeHost((3,), ahead_ns=3_000_000_000, drift=-20e-6),
)
DRAWN = {
    "one token an event": Shape(requests=500, rate=100),
    "several tokens, stated": Shape(requests=300, rate=100, tokens_per_event=4, say_tokens=True),
    "several tokens, not stated": Shape(requests=300, rate=100, tokens_per_event=4),
    "no usage": Shape(requests=200, rate=100, usage=False),
}
UNSENT = 5  # planned requests that no worker sent
GOODPUT = {"ttft": 60.0, "itl": 80.0, "tbc": 80.0, "reading": 5.0, "fluidity": 0.8, "idle": 100.0}


def made(folder: Path, shape: Shape, option: str = "auto") -> MadeRun:
    """A run with classes, reasoning, failures and brackets of all sizes; its last requests were planned and never sent."""
    run = MadeRun(folder, HOSTS, seconds=shape.requests / shape.rate, rate=shape.rate)
    drawn = draw_requests(3, shape)
    run.requests, run.planned = drawn[:-UNSENT], [request.fields["t_sched"] for request in drawn]
    output = {"goodput": list(GOODPUT.items()), "itl_option": option}
    run.write(config={"load": {"rate": shape.rate, "arrival": "poisson"}, "output": output})
    rng = np.random.default_rng(4)
    for path in sorted((folder / "workers").glob("*/tokens.npy")):
        events = np.load(path)
        events["bracket_ns"] = rng.choice([0, 1_000, 40_000_000, 2**32 - 1], len(events), p=[0.6, 0.2, 0.15, 0.05])
        if shape.say_tokens:
            events["tokens"][(rng.random(len(events)) < 0.1) & (events["tokens"] > 0)] = layout.TOKENS_NONE
        np.save(path, events)
    return run


@dataclass
class Kept:
    """The folders of driver and hosts of *made_run*, whose events stay on the hosts. *silent*: hosts that do not answer."""

    made_run: MadeRun
    place: Path
    silent: Mapping[int, str]

    def __post_init__(self) -> None:
        self.driver = self.place / "driver"
        shutil.copytree(self.made_run.folder, self.driver)
        for path in (self.driver / "workers").glob("*/tokens.npy"):
            path.unlink()
        self.folders = []
        for number, host in enumerate(self.made_run.hosts):
            folder = self.place / str(number)
            for part in (*(f"workers/{worker}" for worker in host.workers), f"hosts/{number}"):
                shutil.copytree(self.made_run.folder / part, folder / part)
            shutil.copy(self.made_run.folder / "run.json", folder)
            self.folders.append(HostFolder(folder, number))

    def conclude(self) -> Run:
        document = read_document(self.driver)
        hosts = with_clocks(self.driver, document.hosts)
        join_watches(self.driver, hosts, read_clocks(self.driver, hosts))
        n = len(self.made_run.planned)
        plan = SimpleNamespace(
            t_sched=np.array(self.made_run.planned) - ORIGIN_NS, input_tokens=np.full(n, 8),
            output_tokens=np.full(n, 4), request_class=np.zeros(n), turns=None,
        )  # fmt: skip
        phases = [RunPhase("measure", layout.MEASURE, plan)]  # type: ignore[arg-type]
        entries = []
        for host, folder in zip(hosts, self.folders, strict=True):
            merged = folder.merge(phases)
            entries.append(replace(host, events=merged.events, last_event_ns=merged.last_event_ns))
            self.bring(host.host, "requests.npy")
        driver = Folder.open(self.driver)
        driver.update(hosts=tuple(entries))

        def ask(questions: Mapping[int, Questions]) -> Mapping[int, str]:
            for number, each in questions.items():
                if number not in self.silent:
                    (self.folders[number].folder / "run.json").write_bytes(encoded(driver.document))
                    self.folders[number].answer(each)
                    self.bring(number, "event_totals.npy", "event_summary.json")
            return self.silent

        gather(driver, planned_phases(document.phases, phases), False, ask)
        run = load(self.driver).with_document(replace(driver.document, files=inventory(self.driver)))
        driver.document = judged(run.with_document(measure(run)))
        driver.save()
        driver.clean()
        return load(self.driver)

    def bring(self, number: int, *names: str) -> None:
        for name in names:
            home = summary_path(self.driver, number, name)
            home.parent.mkdir(exist_ok=True)
            shutil.copy(summary_path(self.folders[number].folder, number, name), home)


def both(tmp_path: Path, shape: Shape, option: str = "auto") -> tuple[Run, Run, Kept]:
    """The run with all events at the driver, and the same with events on their hosts."""
    made_run = made(tmp_path / "full", shape, option)
    kept = Kept(made_run, tmp_path, {})
    return made_run.conclude(), kept.conclude(), kept


@pytest.mark.parametrize("option", ["auto", "B"])
@pytest.mark.parametrize("name", DRAWN)
def test_figures_and_certificates_are_those_of_all_events(tmp_path: Path, name: str, option: str) -> None:
    full, kept, _ = both(tmp_path, DRAWN[name], option)
    assert (full.rows == kept.rows).all() and not len(kept.events) and kept.event_count == len(full.events)
    assert not differences(full.manifest, kept.manifest)
    gap = next(each for each in (kept.document.metric(one) for one in GAPS) if each.n)
    assert gap.n > 1000 and gap.note is not None and "[merged-histograms]" in gap.note  # type: ignore[operator]
    flying = kept.document.metric("tokens_in_flight")
    assert flying.value and flying.max is None and "[events-elsewhere]" in str(flying.note)
    for shape in SHAPES:
        one, other = full.document.metric(shape), kept.document.metric(shape)
        assert (one.n, one.label) == (other.n, other.label)
        assert other.value == (None if one.value is None else pytest.approx(one.value, rel=0.02, abs=0.01))


def test_ranks_are_those_of_the_histogram_of_all_gaps(tmp_path: Path) -> None:
    full, kept, _ = both(tmp_path, DRAWN["one token an event"])
    chosen, tokens = populations(full, window_of(full)), count_tokens(full)
    gaps = pooled(full, chosen.latency, tokens, token_times(full, chosen.submitted, tokens))
    words = histogram.empty()
    histogram.record_many(words, gaps.gaps.ns)
    found = kept.document.metric(gaps.name)
    assert (found.n, found.max) == (len(gaps.gaps.ns), gaps.gaps.ns.max() / 1e6)
    assert found.mean == gaps.gaps.ns.mean() / 1e6
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found.statistic(name) == pytest.approx(histogram.percentile(words, q) / 1e6, rel=DIGITS)  # type: ignore[operator]


def test_a_host_that_does_not_answer_is_lost_with_all_its_requests(tmp_path: Path) -> None:
    """No figure counts a part of its requests."""
    made_run = made(tmp_path / "full", DRAWN["one token an event"])
    kept = Kept(made_run, tmp_path, {2: "it is gone"}).conclude()
    there = kept.rows["worker"] == 3
    assert (kept.rows["status"][there] == layout.HOST_LOST).all() and kept.verdict == "invalid"
    counts, metrics = kept.document.counts, kept.document.metric
    assert counts.host_lost == there.sum() and kept.document.hosts[2].status == "lost"
    assert not (populations(kept, window_of(kept)).submitted & there).any()
    assert metrics("itl").n and metrics("tokens_in_flight").value is None
    assert "[events-elsewhere]" in str(metrics("tokens_in_flight").note)
    failed = metrics("failed_output_tok_s")
    assert failed.value is None and "[events-elsewhere]" in str(failed.note)
    full = made_run.conclude()
    expected = [full.document.hosts[number].certificate for number in (0, 1)]
    assert [kept.document.hosts[number].certificate for number in (0, 1)] == expected


def test_the_folder_of_a_host_is_a_run_of_its_requests(tmp_path: Path) -> None:
    full, _, kept = both(tmp_path, DRAWN["one token an event"])
    run = load(kept.folders[1].folder)
    mine = np.isin(full.rows["worker"], (1, 2)) & (full.rows["status"] != layout.NOT_SENT)
    assert not run.damaged and not run.incomplete and run.document.excluded_hosts == (0, 2)
    names = [name for name in layout.REQUEST.names or () if name != "t_sched"]  # which its clock knows to the bound
    assert all((run.rows[name] == full.rows[name][mine]).all() for name in names)
    assert len(run.events) == kept.folders[1].run.event_count > 0  # type: ignore[union-attr]
    assert [each.worker for each in run.document.workers] == [1, 2]
    assert run.document.metric("itl").n == measure(run).metric("itl").n
    assert run.verdict is not None


def test_a_figure_that_needs_events_is_refused(tmp_path: Path) -> None:
    _, kept, _ = both(tmp_path, DRAWN["one token an event"])
    chosen = populations(kept, window_of(kept)).submitted
    assert slo_ok(kept, chosen, {"reading": 5.0}).any()
    with raises_code("events-elsewhere"):
        slo_ok(kept, chosen, {"reading": 7.0})
    assert "--collect summary" in str(kept.lost("tokens.npy"))
