"""One search from its options to its report; what was found so far is kept, however it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.engine.public_settings import redactor
from fastllmload.engine.simulated_target import refuse_engine
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import entry
from fastllmload.experiment.ending import kept, unbroken
from fastllmload.experiment.experiment import SETTLE_S, Experiment, told
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.preparation.warmup import warm_up
from fastllmload.search import report
from fastllmload.search.interval_search import CHANGED, IntervalSearch
from fastllmload.search.objective_text import RequestedObjective, read_goal
from fastllmload.search.peak_search import PeakSearch
from fastllmload.search.trials import PeakTrialRunner, SearchParameters, TrialRunner
from fastllmload.settings import RunSettings, Secret
from fastllmload.statistics.sequential_tests import requests_needed

NOT_MET = 1


@dataclass(frozen=True)
class SearchTerms:
    """Where, and how gently. *warm*: bring the system to its working state before the first level (IETF 4.5)."""

    folder: Path
    settle_s: float = SETTLE_S
    warm: bool = True
    strict: bool = False


def conduct_search(
    settings: RunSettings, secret: Secret | None, parameters: SearchParameters, terms: SearchTerms, console: Console
) -> int:
    """Exit code: 1 when no level holds, the system changed meanwhile or (*strict*) the answer has no two ends. What cuts
    it short is raised again.
    """
    parameters.refuse()
    refuse_engine(settings)
    asked = read_goal(parameters.objective, settings.output.goodput, parameters.width, parameters.closed)
    simulated = not settings.target.urls and settings.target.unix_socket is None
    request = {"search": msgspec.to_builtins(parameters), "run": told(settings)}
    book = Journal(terms.folder, "search", request, report.JSON, redactor(settings, secret))
    with book:
        book.put(manifest=entry(settings, dict(settings.output.declare), simulated), objective=asked.name,
                 sentence=asked.sentence)  # fmt: skip
        if terms.warm:  # once, before the first level
            settings = changed(settings, load={"warmup_requests": 0})
        experiment = Experiment(terms.folder, settings, secret, book, console, settle_s=terms.settle_s)
        announce(console, book, asked, parameters, simulated)
        too_little = too_few_requests(asked, parameters, settings.load.ramp_share)
        if too_little is not None:
            book.note("warnings", too_little)
            console.warn(too_little)
        found = Search(experiment, parameters, asked)
        with kept(book, "search", found.conclude), experiment:
            if terms.warm:
                warm_up(experiment, settings)
            found.run()
        answer = found.conclude(journal.DONE)
        complete = answer["low"] is not None and answer["high"] is not None
        known = answer["level"] is not None and answer["ended_by"] != CHANGED
        return 0 if known and (complete or not terms.strict) else NOT_MET


def announce(
    console: Console, book: Journal, asked: RequestedObjective, parameters: SearchParameters, simulated: bool
) -> None:
    if simulated:
        console.say("SIMULATED ENGINE: the target is fastllmload's own simulator, not a server")
    aim = asked.sentence if asked.goal is None else f"the highest {parameters.what} at which {asked.sentence}"
    console.say(f"search in {book.path.parent}: {aim}")
    console.say(f"at most {parameters.levels} levels of {lengths_words(parameters, asked)}")
    if book.resumed:
        console.say("started again: finished levels are taken from the folder")


def lengths_words(parameters: SearchParameters, asked: RequestedObjective) -> str:
    """How long the looks at a level are: `15 s, where the answer is likely to be 60 s, 120 s and 240 s more`."""
    plan = replace(parameters.plan, short=0) if asked.goal is None else asked.goal.planned(parameters.plan)
    first, *others = (f"{parameters.level_s * plan.length(number):g} s" for number in range(plan.looks + plan.short))
    why = "the answer is likely to be" if plan.short else "noise asks for it"
    return f"{first}, where {why} {listed(others)} more" if others else first


def listed(texts: list[str]) -> str:
    """`60 s, 120 s and 240 s`."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def too_few_requests(asked: RequestedObjective, parameters: SearchParameters, ramp_share: float) -> str | None:
    """Where even a faultless lowest level could not pass: not enough requests for what is to be proven."""
    if asked.goal is None or parameters.closed:
        return None
    alpha = parameters.plan.alpha_per_look / (len(asked.goal.shares) + 1)
    needed = max(requests_needed(limit.allowed, alpha) for limit in asked.goal.shares)
    looks = parameters.plan.longest * (1 - ramp_share)
    coming = parameters.minimum * parameters.level_s * looks
    if coming >= needed:
        return None
    return (
        f"level {parameters.minimum:g} has about {coming:,.0f} requests in all its looks, and {needed:,} are "
        f"needed to prove anything of it: take --level-duration {math.ceil(needed / parameters.minimum / looks)}s "
        "or a higher --min"
    )


class Search:
    """The search for a threshold or a peak, whichever was asked for."""

    def __init__(self, experiment: Experiment, parameters: SearchParameters, asked: RequestedObjective) -> None:
        self.experiment = experiment
        self.bench = TrialRunner(experiment, experiment.base, parameters, asked)
        lo, hi = parameters.minimum, parameters.maximum
        shuffle = experiment.base.client.seed if parameters.interleave else None
        plan, width = self.bench.plan, parameters.width
        self.peak = (
            PeakSearch(lo, hi, width, PeakTrialRunner(self.bench), plan, shuffle) if asked.goal is None else None
        )
        self.threshold = IntervalSearch(lo, hi, width, self.bench, plan, shuffle)
        self.bench.before = self.keep

    def run(self) -> None:
        if self.peak is not None:
            self.peak.run()
        else:
            self.threshold.run()

    def found(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Answer and levels, as far as they are known."""
        if self.peak is not None:
            peak = self.peak.peak()
            return report.peak_answer(peak, self.bench), report.peak_rows(peak, self.bench)
        interval = self.threshold.interval()
        return report.interval_answer(interval, self.bench), report.interval_rows(interval, self.bench)

    def keep(self) -> dict[str, Any]:
        """Put into search.json what is known by now; the answer."""
        answer, rows = self.found()
        if not rows:
            answer["ended_by"] = "nothing"
        self.experiment.journal.put(answer=answer, decisions=rows)
        return answer

    def conclude(self, status: str) -> dict[str, Any]:
        """Write search.json and the reports, and say what was found."""
        with unbroken():
            if status == journal.DONE:
                self.experiment.quarantine_unused_levels()
            self.experiment.journal.put(status=status, ended_utc=journal.utc())
            answer = self.keep()
            names = report.write(self.experiment.folder, self.experiment.journal.document)
        for line in report.lines(self.experiment.journal.document):
            self.experiment.console.say(line)
        self.experiment.console.say(f"files      {self.experiment.folder}/{report.JSON}, {', '.join(names)}, levels/")
        return answer
