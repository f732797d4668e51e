"""Runs `fastllmload sweep`: one run for each combination of options, in one folder, with one table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
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

NOT_MET = 1
GRID, INTERLEAVED, SHUFFLED, ROUNDS = "grid", "interleaved", "shuffled", "interleaved and shuffled"


@dataclass(frozen=True)
class Combination:
    """One combination: *values* of the varied options as given, and the *settings* of its run."""

    values: tuple[tuple[str, str], ...]
    settings: RunSettings

    @property
    def label(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)


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
    or the target; *problem*: the first such error, raised if nothing could be measured.
    """

    experiment: Experiment
    book: Journal[SweepDocument]
    cells: Sequence[Combination]
    terms: SweepTerms
    measured: dict[int, list[Level]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    problem: FastLLMLoadError | None = None

    def run(self) -> None:
        for number, repetition in schedule(len(self.cells), self.terms, self.experiment.base.client.seed):
            if number not in self.refused:
                self._measure(number, repetition)
        if self.problem is not None and not self.measured:
            raise self.problem

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
        sweep = Sweep(experiment, book, cells, terms)
        with conclude_when_stopped(book, "sweep", sweep.finalize), experiment:
            sweep.run()
        valid = sweep.finalize(journal.DONE)
        return NOT_MET if terms.strict and not valid else 0
