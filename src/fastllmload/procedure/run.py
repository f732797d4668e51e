"""Runs one procedure: validate, complete declarations, prepare, run the test, write its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fastllmload.compliance.evidence import read
from fastllmload.compliance.verdict import NOT, compliance_of
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.engine.public_settings import redactor
from fastllmload.engine.simulated_target import check_engine_options, needs_engine
from fastllmload.errors import InputError
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.declarations import complete, declared, manifest_of
from fastllmload.experiment.ending import conclude_when_stopped, ignore_signals
from fastllmload.experiment.experiment import SETTLE_S, Experiment, recorded_settings
from fastllmload.experiment.incomplete import QUICK, SIMULATED
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.result import Level, level_warnings
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.preparation import cold_start, hooks
from fastllmload.experiment.report.findings import Findings
from fastllmload.experiment.report.procedure import show, write
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.procedure.procedure_test import ProcedureTest
from fastllmload.settings import Load, RunSettings, Secret

QUICK_SETTLE_S = 0.5
D = TypeVar("D", bound=ProcedureDocument)
NOT_MET = 1


@dataclass(frozen=True)
class ProcedureTerms:
    """Options that all procedures share."""

    folder: Path
    quick: bool = False
    conforming: bool = True  # missing declarations are an error
    strict: bool = False  # a report that is not compliant gives exit code 1
    commands: dict[str, str] = field(default_factory=dict)
    hook_s: float = hooks.TIMEOUT_S  # limit of a hook's command
    settle_s: float | None = None
    ask: Callable[[str], str] | None = None  # asks the operator; None without a terminal
    before: tuple[str, ...] = ()  # hooks before the first level, in addition to the test's own
    declared: Mapping[str, str] | None = None  # the manifest, if it was completed before


def run_procedure(
    test: ProcedureTest,
    settings: RunSettings,
    secret: Secret | None,
    parameters: Any,
    terms: ProcedureTerms,
    console: Console,
) -> int:
    """Run *test* and return the exit code. Invalid input raises before anything is sent. A procedure that is interrupted
    or fails writes its findings and raises.
    """
    if terms.quick:
        parameters = parameters.quick()
    book = journal_of(ProcedureDocument, test, settings, secret, parameters, terms)
    declarations = terms.declared
    if declarations is None:
        declarations = complete_declarations(test, settings, parameters, terms, book.declared)
    settings = as_sent(test, settings)  # not in the parameters, with which an earlier start is compared
    with book:
        book.put(
            quick=terms.quick, manifest=manifest_of(settings, declarations), section=test.section, title=test.title
        )
        announce(test, settings, parameters, terms, book, console)
        settings = changed(
            settings, output={"declare": tuple(declarations.items())}
        )  # also for run.json of every level
        is_cold = declared_cold(declarations)
        before = terms.before
        if is_cold and cold_start.RESTART not in before and can_restart(terms, settings):
            before = (*before, cold_start.RESTART)
        warn_of_unused_options(test, settings, parameters, {*terms.commands} - {*before}, console)
        settle_s = terms.settle_s if terms.settle_s is not None else QUICK_SETTLE_S if terms.quick else SETTLE_S
        is_warm = not is_cold and (settings.load.warmup_requests != 0 or asks_for_warm_up(settings.load))
        experiment = Experiment(
            terms.folder, settings, secret, book, console, terms.commands, terms.ask is not None, settle_s,
            warm=is_warm, cold=is_cold, hook_s=terms.hook_s,
        )  # fmt: skip
        found = Findings()
        with (
            conclude_when_stopped(book, "procedure", lambda status: conclude(experiment, book, found, status, console)),
            experiment,
        ):
            for name in before:
                experiment.switch(f"before {name}", name)
            test.run(experiment, parameters, found)
        compliant = conclude(experiment, book, found, journal.DONE, console)
        return NOT_MET if terms.strict and not compliant else 0


def journal_of(
    kind: type[D], test: ProcedureTest, settings: RunSettings, secret: Secret | None, parameters: Any,
    terms: ProcedureTerms, file: str = journal.FILE,
) -> Journal[D]:  # fmt: skip
    asked = {"test": msgspec.to_builtins(parameters), "quick": terms.quick, "run": recorded_settings(settings)}
    return Journal(terms.folder, kind, test.name, asked, file, redactor(settings, secret))


def can_restart(terms: ProcedureTerms, settings: RunSettings) -> bool:
    return needs_engine(settings.target) or terms.ask is not None or cold_start.RESTART in terms.commands


def complete_declarations(
    test: ProcedureTest, settings: RunSettings, parameters: Any, terms: ProcedureTerms, earlier: Mapping[str, str]
) -> dict[str, str]:
    """The complete declarations. InputError lists everything that the test still needs: parameters, hooks, declarations.
    The operator is only asked for declarations once nothing else is missing. *earlier*: declarations of an earlier start.
    """
    problems: list[InputError] = []
    found: dict[str, str] = {}
    must = terms.conforming and not terms.quick

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except InputError as problem:
            problems.append(problem)

    attempt(lambda: test.refuse(parameters, settings))
    attempt(lambda: check_engine_options(settings))
    known = {**earlier, **declared(settings)}
    attempt(lambda: cold_start.refuse(test.name, known, can_restart(terms, settings)))
    needed, simulated = test.hooks(parameters), needs_engine(settings.target)
    attempt(lambda: hooks.refuse_missing(needed, terms.commands, simulated, terms.ask is not None))
    ask = None if problems or terms.quick else terms.ask
    attempt(lambda: found.update(complete(as_sent(test, settings), test.name, must, ask, earlier)))
    if problems:
        raise InputError.of_all(problems)
    return found


def as_sent(test: ProcedureTest, settings: RunSettings) -> RunSettings:
    """*settings* with the workload that *test* really sends, which the manifest declares (IETF 4.1)."""
    return settings if test.sends is None else changed(settings, workload={"name": test.sends})


def asks_for_warm_up(load: Load) -> bool:
    return bool(load.warmup_requests or load.warmup_tokens or load.warmup_seconds)


def warn_of_unused_options(
    test: ProcedureTest, settings: RunSettings, parameters: Any, hooks_given: set[str], console: Console
) -> None:
    """Warn of options that were given and that *test* does not use."""
    if asks_for_warm_up(settings.load):
        console.warn(
            "option-not-applicable",
            "--warmup has no effect here except 0, which leaves the warm-up out: a test warms up with at least 100 "
            "requests and 10,000 output tokens (IETF 4.5.1)",
        )
    for text in without_effect(test, settings, parameters):
        console.warn("option-not-applicable", text)
    for name in sorted(hooks_given - {*test.hooks(parameters), *test.may}):
        console.warn("option-not-applicable", f"--hook {name} is not used by the test {test.name}")


def without_effect(test: ProcedureTest, settings: RunSettings, parameters: Any) -> Iterator[str]:
    """A warning for each of --num-requests and --duration that was given and that *test* does not use."""
    has = set(getattr(parameters, "__struct_fields__", ()))
    if settings.load.num_requests is not None and not has & {"request_count", "requests"}:
        yield f"--num-requests has no effect on the test {test.name}: --duration sets the length of its levels"
    if settings.load.duration is not None and "duration_s" not in has:
        yield f"--duration has no effect on the test {test.name}: --num-requests ends its levels"


def announce(
    test: ProcedureTest, settings: RunSettings, parameters: Any, terms: ProcedureTerms, book: Journal[ProcedureDocument],
    console: Console,
) -> None:  # fmt: skip
    console.announce(book, f"IETF {test.section} {test.title}, in {terms.folder}")
    seconds = test.expected_s(parameters, settings)
    if seconds is not None:
        console.say(f"takes about {duration(seconds)}, warm-up not counted")
    if terms.quick:
        console.say("--quick: durations and counts are scaled down; the result does not conform to the draft")


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def client_limited_text(levels: Sequence[Level]) -> str:
    """The warning for levels on which the client was the limit."""
    numbers = ", ".join(str(level.number) for level in levels)
    one = len(levels) == 1
    return (
        f"level{'s' * (not one)} {numbers}{f' ({levels[0].name})' if one else ''}: the client was the limit; "
        f"{'it decides' if one else 'they decide'} nothing about the system (fastllmload doctor)"
    )


def conclude(
    experiment: Experiment, book: Journal[ProcedureDocument], found: Findings, status: str, console: Console
) -> bool:
    """Write procedure.json and the reports and print them. Returns whether the draft was followed."""
    with ignore_signals():
        add_remarks(experiment, found, status)
        book.put(status=status, ended_utc=journal.utc(), **found.entries(book.document))
        compliance = compliance_of(read(experiment.folder))
        book.put(compliance=compliance)
        write(experiment.folder, book.document)
    show(book.document, experiment.folder, console)
    return compliance.verdict != NOT


def add_remarks(experiment: Experiment, found: Findings, status: str) -> None:
    """What a report says of the levels, of a cold start, and of a test that does not conform."""
    book, document = experiment.journal, experiment.journal.document
    if status == journal.DONE:
        experiment.quarantine_unused_levels()
    limited = [level for level in experiment.levels if level.generator_limited and not experiment.entry(level).counts]
    if limited:
        found.warn("client-limited", client_limited_text(limited))
    for code, text in level_warnings(book.document.levels):
        found.warn(code, text)
    if experiment.cold and experiment.levels:
        cold = cold_start.entry(document.manifest.declarations, document.steps, experiment.levels)
        book.put(cold_start=cold)
        found.say(cold_start.sentence(cold), public=True)
    if experiment.quick:
        found.deviate(QUICK, public=True)
    if experiment.simulated:
        found.deviate(SIMULATED, public=True)
