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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastllmload.compare.comparison import Comparison
from fastllmload.compare.gate import FAILED, UNDECIDED, Gate, GateResult, judge_gates
from fastllmload.compare.side import RunRecord, Side
from fastllmload.documents.comparison import GateLimit
from fastllmload.documents.overhead import OverheadDocument
from fastllmload.engine.preflight.check import preflight
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
class WayOptions:
    """What only requests of one way have; *model* and *secret* None: the run's. *headers* come on top of the run's."""

    model: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    secret: Secret | None = None


@dataclass(frozen=True)
class OverheadTerms:
    """*pairs* of runs. *figures*: names, empty for the usual ones. *mode*: when a gate fails (`compare.gate`). *direct*,
    *through*: what only one way has.
    """

    folder: Path
    pairs: int = 8
    figures: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    mode: str = "significant"
    settle_s: float = SETTLE_S
    strict: bool = False
    direct: WayOptions = WayOptions()
    through: WayOptions = WayOptions()

    def own(self, way: str) -> WayOptions:
        return self.direct if way == DIRECT else self.through


@dataclass
class Overhead:
    """*ways*: settings by way, DIRECT and THROUGH. *secrets*: API keys by way. *runs*: those measured so far."""

    experiment: Experiment
    book: Journal[OverheadDocument]
    ways: dict[str, RunSettings]
    secrets: dict[str, Secret | None]
    terms: OverheadTerms
    repeats: bool
    runs: dict[str, list[RunRecord]] = field(default_factory=lambda: {DIRECT: [], THROUGH: []})

    def run(self) -> None:
        for pair in range(self.terms.pairs):
            for way in order(pair):
                settings = self.settings_of(pair, way)
                self.experiment.set_target(settings)
                self.experiment.secret = self.secrets[way]
                level = self.experiment.level(f"pair {pair + 1} {way}", settings)
                self.runs[way].append(RunRecord(level.folder, level.document))
                self.experiment.record(level, cell={"way": way}, repetition=pair)

    def settings_of(self, pair: int, way: str) -> RunSettings:
        settings = self.ways[way]
        salt = 0 if self.repeats else 2 * pair + order(pair).index(way)
        settings = changed(settings, load={"repetition": settings.load.repetition + pair}, workload={"salt": salt})
        if pair == 0 or not settings.load.default_warmup or begins_under_way(settings):
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


def begins_under_way(settings: RunSettings) -> bool:
    """Whether the warm-up of each run sends what its sessions have in the server's cache when they begin."""
    workloads = [settings.workload, *(each.workload for each in settings.classes)]
    return any(one.session_start != "fresh" for one in workloads)


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


def of_way(settings: RunSettings, own: WayOptions) -> RunSettings:
    """*settings* with the model and the headers of one way."""
    target = {"headers": (*settings.target.headers, *own.headers)} if own.headers else {}
    return changed(settings, target=target | ({} if own.model is None else {"model": own.model}))


def checked_ways(
    ways: dict[str, RunSettings], secrets: Mapping[str, Secret | None], redact: Redactor
) -> dict[str, RunSettings]:
    """The settings of both *ways*, once all URLs answer; the model (unless a way has its own), its context and how tokens
    are counted in events are then the same in all runs. InputError, TargetError.
    """
    direct, through = ways[DIRECT], ways[THROUGH]
    found = preflight(direct, direct.target.urls, secrets[DIRECT], redact)
    if through.target.model is None:
        through = changed(through, target={"model": found.model})
    other = preflight(through, through.target.urls, secrets[THROUGH], redact)
    if direct.output.plan is not None:  # whose bodies have all that
        return ways
    usage = found.way if found.way == other.way else None
    limits = [each.context_limit for each in (found, other) if each.context_limit is not None]
    return {
        DIRECT: with_found(direct, found.model, usage, min(limits, default=None)),
        THROUGH: with_found(through, other.model, usage, min(limits, default=None)),
    }


def with_found(settings: RunSettings, model: str, way: str | None, context_limit: int | None) -> RunSettings:
    usage, limit = settings.workload.continuous_usage, settings.workload.context_limit
    return changed(
        settings,
        target={"model": model},
        workload={
            "continuous_usage": (way or "off") if usage == "auto" else usage,
            "context_limit": context_limit if limit is None else limit,
        },
    )


def check_own_model(settings: RunSettings, own: WayOptions) -> None:
    """InputError for a model of one way where requests do not all name the run's."""
    named = [one.name for one in settings.classes if one.model is not None or one.models]
    if own.model is None:
        return
    if settings.output.plan is not None or settings.target.models or named:
        what = "--plan" if settings.output.plan else "--models" if settings.target.models else f"class {named[0]!r}"
        raise InputError(
            "options-conflict",
            f"--through-model {own.model} replaces the model of -m, but {what} names models of its own; give one of the two",
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
    check_own_model(settings, terms.through)
    check_names([*terms.figures, *(gate.figure for gate in terms.gates)], [one.name for one in settings.classes])
    urls = {DIRECT: tuple(direct), THROUGH: tuple(through)}
    ways = {way: changed(of_way(settings, terms.own(way)), target={"urls": each}) for way, each in urls.items()}
    secrets = {way: terms.own(way).secret or secret for way in ways}
    redact = redactor(settings, secret)
    for way, each in ways.items():
        for text in redactor(each, secrets[way]).known:
            redact.add(text)
    repeats = repeats_prompts(settings)
    asked: dict[str, Any] = {
        "pairs": terms.pairs,
        "direct": [Redactor(url_secrets(url))(url) for url in direct],
        "through": [Redactor(url_secrets(url))(url) for url in through],
        "through_model": terms.through.model,
        "run": recorded_settings(settings),
    }
    book = Journal(terms.folder, OverheadDocument, "overhead", asked, report.JSON, redact)
    ways = checked_ways(ways, secrets, redact)
    base = ways[DIRECT]
    with book:
        book.put(manifest=manifest_of(settings, dict(settings.output.declare)))
        experiment = Experiment(terms.folder, base, secrets[DIRECT], book, console, settle_s=terms.settle_s)
        many = f"{terms.pairs} pairs of runs, one directly and one through the gateway"
        console.announce(book, f"overhead in {terms.folder}: {many}", finished="runs")
        if set(direct) == set(through) and terms.direct == terms.through:
            book.warn("ways-equal", "both ways are the same URLs: an A/A check, which should show no difference")
        if repeats and not settings.control.empties_caches:
            book.warn(
                "prefix-cache-warm",
                "the prompts of this workload are the same in every run, so a prefix cache of the server answers all but "
                "the first; empty it with --between reset-cache, or disable it",
            )
        overhead = Overhead(experiment, book, ways, secrets, terms, repeats)
        with conclude_when_stopped(book, "measurement", overhead.finalize), experiment:
            overhead.run()
        return 0 if overhead.finalize(journal.DONE) else NOT_MET
