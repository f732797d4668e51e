"""`fastllmload procedure NAME --runs N`: runs a test N times, each as a complete procedure (spec/procedures 0.13).

Every run has its own folder, warm-up and arrival instants; all runs send the same requests. Finished runs are not measured
again, so the same command continues after a stop, and a larger N adds runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastllmload.documents.procedure import ProcedureDocument, RunsDocument
from fastllmload.engine.simulated_target import needs_engine
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import manifest_of
from fastllmload.experiment.ending import conclude_when_stopped, ignore_signals
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.settings import changed
from fastllmload.procedure import runs_report
from fastllmload.procedure.procedure_test import ProcedureTest
from fastllmload.procedure.run import ProcedureTerms, complete_declarations, duration, journal_of, run_procedure
from fastllmload.settings import RunSettings, Secret

RESTART = "restart"  # the hook that gives every run a fresh system


def run_repeatedly(
    test: ProcedureTest,
    settings: RunSettings,
    secret: Secret | None,
    parameters: Any,
    terms: ProcedureTerms,
    console: Console,
    runs: int,
) -> int:
    """The largest exit code of the runs. An error that stops a run is raised after the report over all runs is written."""
    asked_of = parameters.quick() if terms.quick else parameters
    book = journal_of(RunsDocument, test, settings, secret, asked_of, terms, runs_report.JSON)
    declared = complete_declarations(test, settings, asked_of, terms, book.declared)
    seconds = test.expected_s(asked_of, settings)
    console.say(f"{runs} runs of IETF {test.section} {test.title}, in {terms.folder}")
    if seconds is not None:
        console.say(f"takes about {duration(runs * seconds)} in all, warm-ups not counted")
    with book:
        book.put(
            quick=terms.quick, manifest=manifest_of(settings, declared), section=test.section, title=test.title,
            runs_asked=runs,
        )  # fmt: skip
        fresh = needs_engine(settings.target) or RESTART in terms.commands
        if not fresh and declared.get("prefix_cache.enabled", "").lower() not in ("no", "false", "off"):
            book.warn(
                "prefix-cache-warm",
                "all runs send the same requests: an enabled prefix cache answers a later run from the requests of an "
                f"earlier one; --hook {RESTART}=COMMAND starts each run with an empty cache",
            )
        codes = [0]

        def ended(status: str) -> None:
            with ignore_signals():
                save_runs(book, terms.folder, runs)
                runs_report.REPORT.conclude(book, console, status, " ...")

        for number in range(runs):
            console.say(f"run {number + 1} of {runs}")
            with conclude_when_stopped(book, f"test in run {number + 1}", ended):
                codes.append(one_run(test, settings, secret, parameters, terms, console, number, declared))
                save_runs(book, terms.folder, runs)
        ended(journal.DONE)
        return max(codes)


def one_run(
    test: ProcedureTest, settings: RunSettings, secret: Secret | None, parameters: Any, terms: ProcedureTerms,
    console: Console, number: int, declared: Mapping[str, str],
) -> int:  # fmt: skip
    """Run *number*: the same requests at other instants, with the declarations *declared* of all runs. Its exit code."""
    own = changed(settings, load={"repetition": settings.load.repetition + number})
    before = (RESTART,) if RESTART in terms.commands else ()
    own_terms = dataclasses.replace(terms, folder=terms.folder / run_name(number), before=before, declared=declared)
    return run_procedure(test, own, secret, parameters, own_terms, console)


def save_runs(book: Journal[RunsDocument], folder: Path, runs: int) -> None:
    """Write the findings of the runs so far to runs.json."""
    folders = [folder / run_name(number) for number in range(runs)]
    begun = [each for each in folders if (each / journal.FILE).exists()]
    book.put(**runs_report.entries({each.name: journal.read(each, ProcedureDocument) for each in begun}))


def run_name(number: int) -> str:
    return f"run-{number + 1}"
