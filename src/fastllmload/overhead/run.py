"""Runs `fastllmload overhead`: pairs of runs, one directly and one through a gateway, in one folder, and what is added.

What could pass for overhead, and what removes it:

* drift of the engine or the host: runs alternate, and the order within a pair does too (ABBA), so that a linear drift and
  any effect of being second cancel over an even number of pairs;
* load: both runs of a pair have the same lengths at the same instants, and the engine has no other of our requests;
* arrivals: each pair has its own instants;
* prefix caches: drawn words differ in every run (`workload.salt`), so no run finds a prompt of another;
* the first connections and requests of a system: both runs of the first pair have the complete warm-up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastllmload.compare.comparison import Comparison
from fastllmload.compare.gate import FAILED, UNDECIDED, Gate, GateResult, judge_gates
from fastllmload.compare.side import RunRecord, Side
from fastllmload.documents.comparison import GateLimit
from fastllmload.documents.overhead import OverheadDocument
from fastllmload.engine.preflight.check import Preflight, preflight
from fastllmload.engine.public_settings import redactor
from fastllmload.engine.run_plans import resolve_settings
from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import manifest_of
from fastllmload.experiment.ending import conclude_when_stopped, ignore_signals
from fastllmload.experiment.experiment import Experiment, recorded_settings
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.settings import changed
from fastllmload.overhead import report
from fastllmload.overhead.figures import added_figures, check_names, overhead_of
from fastllmload.plan.standard import OWN_TEXT
from fastllmload.redact import Redactor, url_secrets
from fastllmload.settings import RunSettings, Secret
from fastllmload.workload.dataset import DATASETS

DIRECT, THROUGH = "direct", "through"
SETTLE_S = 1.0  # between two runs; each waits for the ends of its requests
NOT_MET = 1


@dataclass(frozen=True)
class OverheadTerms:
    """*pairs* of runs. *figures*: names, empty for the usual ones. *mode*: when a gate fails (`compare.gate`)."""

    folder: Path
    pairs: int = 8
    figures: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    mode: str = "significant"
    settle_s: float = SETTLE_S
    strict: bool = False


@dataclass
class Overhead:
    """*ways*: settings by way, DIRECT and THROUGH. *runs*: those measured so far."""

    experiment: Experiment
    book: Journal[OverheadDocument]
    ways: dict[str, RunSettings]
    terms: OverheadTerms
    repeats: bool
    runs: dict[str, list[RunRecord]] = field(default_factory=lambda: {DIRECT: [], THROUGH: []})

    def run(self) -> None:
        for pair in range(self.terms.pairs):
            for way in order(pair):
                settings = self._settings(pair, way)
                self.experiment.set_target(settings)
                level = self.experiment.level(f"pair {pair + 1} {way}", settings)
                self.runs[way].append(RunRecord(level.folder, level.document))
                self.experiment.record(level, cell={"way": way}, repetition=pair)

    def _settings(self, pair: int, way: str) -> RunSettings:
        settings = self.ways[way]
        salt = 0 if self.repeats else 2 * pair + order(pair).index(way)
        settings = changed(settings, load={"repetition": settings.load.repetition + pair}, workload={"salt": salt})
        if pair == 0 or not settings.load.default_warmup:
            return settings
        return changed(settings, load={"warmup_requests": 0})  # the run before has warmed both ways up

    def judged(self) -> tuple[Comparison, list[GateResult]] | None:
        """What complete pairs add, and the outcome of each gate; None without a pair."""
        pairs = min(map(len, self.runs.values()))
        if pairs == 0:
            return None
        direct, through = (Side(way, tuple(self.runs[way][:pairs])) for way in (DIRECT, THROUGH))
        gates = self.terms.gates
        found = overhead_of(direct, through, self.terms.figures, [gate.figure for gate in gates])
        return found, judge_gates(gates, found, self.terms.mode)

    def finalize(self, status: str) -> bool:
        """Write overhead.json and the reports and print the table; whether no gate failed and, with --strict, all runs are
        valid.
        """
        with ignore_signals():
            judged, outcomes = self.judged(), set[str]()
            if judged is not None:
                comparison, gates = judged
                for note in comparison.notes:
                    self.book.warn("ways-differ", note)
                outcomes = {each.outcome for each in gates}
                self.book.put(
                    added=added_figures(comparison),
                    gates=tuple(GateLimit(**asdict(each.gate), outcome=each.outcome, why=each.why) for each in gates),
                    verdicts={way: tuple(run.verdict for run in runs) for way, runs in self.runs.items()},
                )
            report.REPORT.conclude(self.book, self.experiment.console, status)
        doubtful = any(run.verdict != "valid" for runs in self.runs.values() for run in runs)
        return not outcomes & {FAILED, UNDECIDED} and not (self.terms.strict and doubtful)


def order(pair: int) -> tuple[str, str]:
    """Which way goes first: direct, through, through, direct, and so on."""
    return (THROUGH, DIRECT) if pair % 2 else (DIRECT, THROUGH)


def repeats_prompts(settings: RunSettings) -> bool:
    """Whether some prompts are texts of a file or composed, which are the same in every run. InputError for a workload or a
    saved plan of which no run can be made.
    """
    with tempfile.TemporaryDirectory() as work:
        loaded = resolve_settings(settings, Path(work)).loaded
    workloads = [each.workload for each in settings.classes] or [settings.workload]
    return (
        settings.output.plan is not None
        or any(one.name in (*DATASETS, *OWN_TEXT) for one in workloads)
        or any(one.graph is not None and one.graph.messages is not None for one in loaded)
    )


def checked_ways(
    settings: RunSettings, direct: Sequence[str], through: Sequence[str], secret: Secret | None, redact: Redactor
) -> dict[str, RunSettings]:
    """The settings of both ways, once all URLs answer with the same model; the model, its context and how tokens are counted
    in events are then the same in all runs. InputError, TargetError.
    """
    found = preflight(settings, [*direct, *through], secret, redact)
    if settings.output.plan is None:  # whose bodies have all that
        settings = with_found(settings, found)
    return {
        way: changed(settings, target={"urls": tuple(urls)}) for way, urls in ((DIRECT, direct), (THROUGH, through))
    }


def with_found(settings: RunSettings, found: Preflight) -> RunSettings:
    usage, limit = settings.workload.continuous_usage, settings.workload.context_limit
    return changed(
        settings,
        target={"model": found.model},
        workload={
            "continuous_usage": (found.way or "off") if usage == "auto" else usage,
            "context_limit": found.context_limit if limit is None else limit,
        },
    )


def run_overhead(
    settings: RunSettings,
    direct: Sequence[str],
    through: Sequence[str],
    secret: Secret | None,
    terms: OverheadTerms,
    console: Console,
) -> int:
    """Measure; return the exit code: 1 where a gate failed, or with *strict* a run is not valid. An exception that
    interrupts it is raised again after the report.
    """
    if any(one.urls for one in settings.classes) or settings.output.plan_urls:
        raise InputError(
            "option-not-applicable", "--class with a url: all requests take the way of --direct or --through"
        )
    check_names([*terms.figures, *(gate.figure for gate in terms.gates)])
    redact = redactor(settings, secret)
    repeats = repeats_prompts(settings)
    asked: dict[str, Any] = {
        "pairs": terms.pairs,
        "direct": [Redactor(url_secrets(url))(url) for url in direct],
        "through": [Redactor(url_secrets(url))(url) for url in through],
        "run": recorded_settings(settings),
    }
    book = Journal(terms.folder, OverheadDocument, "overhead", asked, report.JSON, redact)
    ways = checked_ways(settings, direct, through, secret, redact)
    base = ways[DIRECT]
    with book:
        book.put(manifest=manifest_of(settings, dict(settings.output.declare)))
        experiment = Experiment(terms.folder, base, secret, book, console, settle_s=terms.settle_s)
        many = f"{terms.pairs} pairs of runs, one directly and one through the gateway"
        console.announce(book, f"overhead in {terms.folder}: {many}", finished="runs")
        if set(direct) == set(through):
            book.warn("ways-equal", "both ways are the same URLs: an A/A check, which should show no difference")
        if repeats and not settings.control.empties_caches:
            book.warn(
                "prefix-cache-warm",
                "the prompts of this workload are the same in every run, so a prefix cache of the server answers all but "
                "the first; empty it with --between reset-cache, or disable it",
            )
        overhead = Overhead(experiment, book, ways, terms, repeats)
        with conclude_when_stopped(book, "measurement", overhead.finalize), experiment:
            overhead.run()
        return 0 if overhead.finalize(journal.DONE) else NOT_MET
