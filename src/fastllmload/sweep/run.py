"""Runs `fastllmload sweep`: one run for each combination of options, in one folder, with one table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastllmload.documents.sweep import Cell as SweepCell
from fastllmload.documents.sweep import SweepDocument
from fastllmload.endpoint import resolve_endpoint
from fastllmload.engine.public_settings import redactor
from fastllmload.engine.simulated_target import check_engine_options
from fastllmload.engine.workers.assignment import protocols
from fastllmload.errors import FastLLMLoadError, InputError, TargetError
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import manifest_of
from fastllmload.experiment.ending import conclude_when_stopped, ignore_signals
from fastllmload.experiment.experiment import SETTLE_S, Experiment, recorded_settings
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import changed
from fastllmload.settings import RunSettings, Secret
from fastllmload.sweep import report
from fastllmload.sweep.spacing import ALL_AT_ONCE, ONE_AT_A_TIME, Spaced, rates_between

NOT_MET = 1
GRID, INTERLEAVED, SHUFFLED, ROUNDS = "grid", "interleaved", "shuffled", "interleaved and shuffled"


@dataclass(frozen=True)
class Combination:
    """One combination: *values* of the varied options as given, and the *settings* of its run. *spaced*: its place among
    spaced rates.
    """

    values: tuple[tuple[str, str], ...]
    settings: RunSettings
    spaced: Spaced | None = None

    @property
    def label(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)

    @property
    def others(self) -> tuple[tuple[str, str], ...]:
        """The values without that of the spaced rate."""
        return tuple(pair for pair in self.values if self.spaced is None or pair[0] != self.spaced.axis)

    def at(self, rate: float) -> Combination:
        """The same, with the *rate* that was found for its place."""
        known = tuple((name, f"{rate:g}" if (name, value) not in self.others else value) for name, value in self.values)
        return replace(self, values=known, settings=changed(self.settings, load={"rate": rate}), spaced=None)


@dataclass(frozen=True)
class SweepTerms:
    """*runs* of every cell, in the order "grid" (cell by cell), "interleaved" (round by round), "shuffled", or
    "interleaved and shuffled": round by round, each round in its own order.

    Every run has its own requests, so that a prefix cache finds nothing of one run in another; *same_requests*: all runs
    have the same, as far as the varied options allow.
    """

    folder: Path
    runs: int = 1
    order: str = GRID
    settle_s: float = SETTLE_S
    strict: bool = False
    same_requests: bool = False


@dataclass
class Sweep:
    """*measured*: cell number → its runs so far; *refused*: cell number → why it could not be measured, because of this host
    or the target; *problem*: the first such error, raised if nothing could be measured, or if rates could not be spaced.
    """

    experiment: Experiment
    book: Journal[SweepDocument]
    cells: list[Combination]
    terms: SweepTerms
    measured: dict[int, list[Level]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    problem: FastLLMLoadError | None = None

    def run(self) -> None:
        for number, repetition in schedule(len(self.cells), self.terms, self.experiment.base.client.seed):
            spaced = self.cells[number].spaced
            if number not in self.refused and spaced is not None and spaced.has_rate:
                self._space(self.cells[number].others)
            if number not in self.refused:
                self._measure(number, repetition)
        if self.cells[0].spaced is not None:  # a first run that was repeated leads to other rates
            self.experiment.quarantine_unused_levels()
        unspaced = any(one.spaced is not None and one.spaced.has_rate for one in self.cells)
        if self.problem is not None and (unspaced or not self.measured):
            raise self.problem

    def _space(self, others: tuple[tuple[str, str], ...]) -> None:
        """Give the combinations with the values *others* their rates, from the first runs of one at a time and all at once;
        refuse them if no rates lie between.
        """
        group = [number for number, one in enumerate(self.cells) if one.spaced is not None and one.others == others]
        runs = [self.measured.get(number, ()) for number in group[:2]]
        lowest, highest = (levels[0].figure("req_s") or 0.0 if levels else 0.0 for levels in runs)
        steps = rates_between(lowest, highest, len(group) - 2)
        if len({*steps}) == len(steps) and min(steps) > 0:
            for number, rate in zip(group[2:], steps[1:], strict=True):
                self.cells[number] = self.cells[number].at(rate)
            return
        where = "".join(f"{name} {value}: " for name, value in others)
        reason = (
            f"{where}no rates lie between {lowest:.4g} requests/s completed {ONE_AT_A_TIME} and {highest:.4g} "
            f"{ALL_AT_ONCE}; see what failed in these runs, or give rates as --vary rate=V1,V2"
        )
        problem = TargetError("rates-not-spaced", reason)
        self.refused |= dict.fromkeys(group[2:], reason)
        self.problem = self.problem or problem
        self.experiment.console.warn(problem.code, reason)

    def _measure(self, number: int, repetition: int) -> None:
        self.save_progress()
        cell = self.cells[number]
        settings = changed(cell.settings, load={"repetition": repetition})
        if not self.terms.same_requests and settings.output.plan is None:
            settings = changed(settings, workload={"stream": f"sweep/{number}/{repetition}"})
        name = cell.label + (f", run {repetition + 1}" if repetition else "")
        self.experiment.set_target(settings)
        try:
            level = self.experiment.level(name, settings)
        except (InputError, TargetError) as problem:
            if self.experiment.was_started(name) or (
                isinstance(problem, TargetError) and self.experiment.is_unreachable()
            ):
                raise  # the host or the target failed during the run
            self.refused[number] = str(problem)
            self.problem = self.problem or problem
            self.experiment.console.warn(problem.code, f"{cell.label}: not measured: {problem.message}")
            return
        self.measured.setdefault(number, []).append(level)
        self.experiment.record(level, cell=dict(cell.values), repetition=repetition)

    def save_progress(self) -> tuple[SweepCell, ...]:
        """Write the results so far to sweep.json; return its rows."""
        rows = tuple(
            report.cell_entry(cell.values, self.measured.get(number, ()), self.refused.get(number))
            for number, cell in enumerate(self.cells)
        )
        self.book.put(cells=rows)
        return rows

    def finalize(self, status: str) -> bool:
        """Write sweep.json and the reports and print the table; return whether every run's certificate is valid."""
        with ignore_signals():
            rows = self.save_progress()
            report.REPORT.conclude(self.book, self.experiment.console, status)
        return all(verdict == "valid" for row in rows for verdict in row.verdicts) and not self.refused


def schedule(cells: int, terms: SweepTerms, seed: int) -> list[tuple[int, int]]:
    """(cell, repetition) in the order of the runs; the same for the same seed, so that a sweep can resume."""
    if terms.order == GRID:
        return [(cell, repetition) for cell in range(cells) for repetition in range(terms.runs)]
    rng = random.Random(f"{seed}/sweep")
    if terms.order == ROUNDS:
        return [(cell, repetition) for repetition in range(terms.runs) for cell in rng.sample(range(cells), k=cells)]
    rounds = [(cell, repetition) for repetition in range(terms.runs) for cell in range(cells)]
    if terms.order == SHUFFLED:
        rng.shuffle(rounds)
        drawn = [cell for cell, _ in rounds]
        return [(cell, drawn[:position].count(cell)) for position, cell in enumerate(drawn)]
    return rounds


def run_sweep(cells: Sequence[Combination], secret: Secret | None, terms: SweepTerms, console: Console) -> int:
    """Run a sweep; return the exit code: 1 with *strict* and a run that is not valid. An exception that interrupts the
    sweep is raised again after the report.
    """
    if len({cell.values for cell in cells}) < len(cells):
        raise InputError("value-repeated", "--vary names the same value twice; every combination is measured once")
    for cell in cells:
        check_engine_options(cell.settings)
        names = protocols(cell.settings.target.endpoint_type, cell.settings.classes)
        spoken = [resolve_endpoint(name) for name in names]
        if not any(one.tokens for one in spoken):
            raise InputError(
                "protocol-unsupported",
                f"sweeps compare figures of tokens, and answers of {spoken[0].name} are not tokens; use fastllmload run",
            )
    base = cells[0].settings
    asked: dict[str, Any] = {
        "runs": terms.runs,
        "order": terms.order,
        "same_requests": terms.same_requests,
        "cells": [dict(cell.values) for cell in cells],
        "run": recorded_settings(base),
    }
    redact = redactor(base, secret)
    for cell in cells:
        for known in redactor(cell.settings, None).known:
            redact.add(known)
    book = Journal(terms.folder, SweepDocument, "sweep", asked, report.JSON, redact)
    with book:
        book.put(manifest=manifest_of(base, dict(base.output.declare)))
        experiment = Experiment(terms.folder, base, secret, book, console, settle_s=terms.settle_s)
        many = f"{len(cells)} combinations, {len(cells) * terms.runs} runs, {terms.order} order"
        console.announce(book, f"sweep in {terms.folder}: {many}", finished="runs")
        sweep = Sweep(experiment, book, list(cells), terms)
        with conclude_when_stopped(book, "sweep", sweep.finalize), experiment:
            sweep.run()
        valid = sweep.finalize(journal.DONE)
        return NOT_MET if terms.strict and not valid else 0
