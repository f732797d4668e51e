"""Runs one search from its options to its report; partial results are kept however it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from fastllmload.documents.search import Answer, LevelDecision, SearchDocument
from fastllmload.engine.public_settings import redactor
from fastllmload.engine.simulated_target import check_engine_options
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import manifest_of
from fastllmload.experiment.ending import conclude_when_stopped, ignore_signals
from fastllmload.experiment.experiment import SETTLE_S, Experiment, recorded_settings
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.preparation.warmup import warm_up
from fastllmload.search import report
from fastllmload.search.driver import CHANGED
from fastllmload.search.interval_search import IntervalSearch
from fastllmload.search.objective_text import RequestedObjective, read_objective
from fastllmload.search.peak_search import PeakSearch
from fastllmload.search.trials import SearchParameters, TrialRunner, height_at
from fastllmload.settings import RunSettings, Secret
from fastllmload.statistics.sequential_tests import requests_needed

NOT_MET = 1


@dataclass(frozen=True)
class SearchTerms:
    """Output folder and pacing. *warm*: bring the system to its working state before the first level (IETF 4.5)."""

    folder: Path
    settle_s: float = SETTLE_S
    warm: bool = True
    strict: bool = False


def run_search(
    settings: RunSettings, secret: Secret | None, parameters: SearchParameters, terms: SearchTerms, console: Console
) -> int:
    """Run a search; return the exit code: 1 if no level holds, the system changed, or (*strict*) the answer is open at an
    end. An exception that interrupts the search is raised again after the report.
    """
    parameters.validate()
    check_engine_options(settings)
    requested = read_objective(parameters.objective, settings.output.goodput, parameters.width, parameters.closed)
    request = {"search": msgspec.to_builtins(parameters), "run": recorded_settings(settings)}
    book = Journal(terms.folder, SearchDocument, "search", request, report.JSON, redactor(settings, secret))
    with book:
        manifest = manifest_of(settings, dict(settings.output.declare))
        book.put(manifest=manifest, objective=requested.name, sentence=requested.sentence)
        if terms.warm:  # once, before the first level
            settings = changed(settings, load={"warmup_requests": 0})
        experiment = Experiment(terms.folder, settings, secret, book, console, settle_s=terms.settle_s)
        announce(console, book, requested, parameters)
        warning = too_few_requests(requested, parameters, settings.load.ramp_share)
        if warning is not None:
            book.warn("few-samples", warning)
            console.warn("few-samples", warning)
        found = Search(experiment, book, parameters, requested)
        with conclude_when_stopped(book, "search", found.finalize), experiment:
            if terms.warm:
                warm_up(experiment, settings)
            found.strategy.walk()
        answer = found.finalize(journal.DONE)
        complete = answer.low is not None and answer.high is not None
        known = answer.level is not None and answer.ended_by != CHANGED
        return 0 if known and (complete or not terms.strict) else NOT_MET


def announce(
    console: Console, book: Journal[SearchDocument], requested: RequestedObjective, parameters: SearchParameters
) -> None:
    what = "" if requested.objective is None else f"the highest {parameters.what} at which "
    console.announce(
        book,
        f"search in {book.path.parent}: {what}{requested.sentence}",
        f"at most {parameters.levels} levels of {lengths_text(parameters, requested)}",
    )


def lengths_text(parameters: SearchParameters, requested: RequestedObjective) -> str:
    """Lengths of the trials of a level: `15 s, where the answer is likely to be 60 s, 120 s and 240 s more`."""
    plan = requested.planned(parameters.plan)
    first, *others = (f"{parameters.level_s * plan.length(number):g} s" for number in range(plan.trials + plan.short))
    why = "the answer is likely to be" if plan.short else "noise asks for it"
    return f"{first}, where {why} {listed(others)} more" if others else first


def listed(texts: list[str]) -> str:
    """`60 s, 120 s and 240 s`."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def too_few_requests(requested: RequestedObjective, parameters: SearchParameters, ramp_share: float) -> str | None:
    """Warning if even a faultless lowest level could not pass, because it has too few requests to prove anything."""
    if requested.objective is None or parameters.closed:
        return None
    alpha = parameters.plan.alpha_per_trial / (len(requested.objective.shares) + 1)
    needed = max(requests_needed(limit.allowed, alpha) for limit in requested.objective.shares)
    windows = parameters.plan.longest * (1 - ramp_share)  # of all trials, in first trials
    expected = parameters.minimum * parameters.level_s * windows
    if expected >= needed:
        return None
    return (
        f"level {parameters.minimum:g} has about {expected:,.0f} requests in all its trials, and {needed:,} are "
        f"needed to prove anything about it: take --level-duration {math.ceil(needed / parameters.minimum / windows)}s "
        "or a higher --min"
    )


class Search:
    """Searches for a threshold or for a peak, depending on the objective."""

    def __init__(
        self, experiment: Experiment, book: Journal[SearchDocument], parameters: SearchParameters,
        requested: RequestedObjective,
    ) -> None:  # fmt: skip
        self.experiment = experiment
        self.book = book
        self.runner = TrialRunner(experiment, experiment.base, parameters, requested)
        lo, hi = parameters.minimum, parameters.maximum
        shuffle = experiment.base.client.seed if parameters.interleave else None
        plan, width = self.runner.plan, parameters.width
        self.strategy: PeakSearch | IntervalSearch = (
            PeakSearch(lo, hi, width, partial(height_at, self.runner), plan, shuffle)
            if requested.objective is None
            else IntervalSearch(lo, hi, width, self.runner, plan, shuffle)
        )
        self.runner.before_trial = self.save_progress

    def found(self) -> tuple[Answer, tuple[LevelDecision, ...]]:
        """The answer and the levels so far."""
        if isinstance(self.strategy, PeakSearch):
            peak = self.strategy.peak()
            return report.peak_answer(peak, self.runner), report.peak_rows(peak, self.runner)
        interval = self.strategy.interval()
        return report.interval_answer(interval, self.runner), report.interval_rows(interval, self.runner)

    def save_progress(self) -> Answer:
        """Write the result so far to search.json; return the answer."""
        answer, rows = self.found()
        if not rows:
            answer = msgspec.structs.replace(answer, ended_by="nothing")
        self.book.put(answer=answer, decisions=rows)
        return answer

    def finalize(self, status: str) -> Answer:
        """Write search.json and the reports, and print the result; return the answer."""
        with ignore_signals():
            if status == journal.DONE:
                self.experiment.quarantine_unused_levels()
            answer = self.save_progress()
            report.REPORT.conclude(self.book, self.experiment.console, status)
        return answer
