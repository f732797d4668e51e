"""One procedure from its declarations to its report: validate, prepare, run the test, write what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.compliance.evidence import read
from fastllmload.compliance.facts import counted
from fastllmload.compliance.verdict import NOT, compliance_of
from fastllmload.engine.public_settings import redactor
from fastllmload.engine.simulated_target import refuse_engine
from fastllmload.errors import InputError
from fastllmload.experiment import declarations as manifest
from fastllmload.experiment import journal
from fastllmload.experiment.console import Console
from fastllmload.experiment.ending import kept, unbroken
from fastllmload.experiment.experiment import SETTLE_S, Experiment, told
from fastllmload.experiment.incomplete import QUICK, SIMULATED
from fastllmload.experiment.journal import Journal
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.settings import changed
from fastllmload.experiment.level.warnings import level_warnings
from fastllmload.experiment.preparation import cold_start, hooks
from fastllmload.experiment.report.findings import Findings
from fastllmload.experiment.report.output import write
from fastllmload.experiment.report.text import show
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.settings import RunSettings, Secret

QUICK_SETTLE_S = 0.5
NOT_MET = 1


@dataclass(frozen=True)
class ProcedureTest:
    """One of the ten. *parameters*: its struct, which may have `quick()`. *hooks*: which ones it needs.

    *run* fills the findings; *expected_s* foretells how long it takes, None where nobody can know.
    """

    name: str
    section: str
    title: str
    parameters: type[msgspec.Struct]
    run: Callable[[Experiment, Any, Findings], None]
    hooks: Callable[[Any], tuple[str, ...]] = lambda parameters: ()
    refuse: Callable[[Any, RunSettings], None] = lambda parameters, settings: None
    expected_s: Callable[[Any, RunSettings], float | None] = lambda parameters, settings: None
    workload: str | None = None  # the test's own, where the tester names none
    sends: str | None = None  # the workload that it sends whatever the tester names
    may: tuple[str, ...] = ()  # hooks that it does when they are given


@dataclass(frozen=True)
class ProcedureTerms:
    """How a procedure is conducted, whichever it is."""

    folder: Path
    quick: bool = False
    conforming: bool = True  # missing declarations stop it
    strict: bool = False  # anything less than compliance is exit code 1
    commands: dict[str, str] = field(default_factory=dict)
    hook_s: float = hooks.TIMEOUT_S  # that a command may take
    settle_s: float | None = None
    ask: Callable[[str], str] | None = None  # the operator's answers; None: nobody can be asked
    before: tuple[str, ...] = ()  # hooks before the first level, whatever the test itself needs
    declared: Mapping[str, str] | None = None  # the manifest, where it was complete (or asked for) before


def conduct(
    test: ProcedureTest,
    settings: RunSettings,
    secret: Secret | None,
    parameters: Any,
    terms: ProcedureTerms,
    console: Console,
) -> int:
    """Exit code. What is refused before anything is sent raises; a procedure cut short keeps what it has and raises."""
    if terms.quick:
        parameters = parameters.quick()
    simulated = not settings.target.urls and settings.target.unix_socket is None
    asked = {"test": msgspec.to_builtins(parameters), "quick": terms.quick, "run": told(settings)}
    book = Journal(terms.folder, test.name, asked, redact=redactor(settings, secret))
    declarations = terms.declared
    if declarations is None:
        declarations = complete(test, settings, parameters, terms, simulated, book.declared)
    settings = as_sent(test, settings)  # behind what was asked, by which an earlier start is known
    with book:
        book.put(
            quick=terms.quick, manifest=manifest.entry(settings, declarations, simulated), section=test.section,
            title=test.title,
        )  # fmt: skip
        announce(test, settings, parameters, terms, book, console, simulated)
        settings = with_declarations(settings, declarations)
        settle_s = terms.settle_s if terms.settle_s is not None else QUICK_SETTLE_S if terms.quick else SETTLE_S
        found = Findings()
        asked_none = settings.load.warmup_requests == 0 and not (
            settings.load.warmup_tokens or settings.load.warmup_seconds
        )
        is_cold = declared_cold(declarations)
        if settings.load.warmup_requests or settings.load.warmup_tokens or settings.load.warmup_seconds:
            console.warn(
                "--warmup has no effect here but 0, which leaves it out: a test warms up with 100 requests and 10,000 "
                "output tokens at the least (IETF 4.5.1)"
            )
        for text in without_effect(test, settings, parameters):
            console.warn(text)
        before = terms.before
        if (
            is_cold
            and cold_start.RESTART not in before
            and (simulated or terms.ask or cold_start.RESTART in terms.commands)
        ):
            before = (*before, cold_start.RESTART)
        for name in sorted(terms.commands.keys() - {*test.hooks(parameters), *test.may, *before}):
            console.warn(f"--hook {name} is not used by the test {test.name}: it has nothing to do there")
        experiment = Experiment(
            terms.folder, settings, secret, book, console, terms.commands, terms.ask is not None, settle_s,
            warm=not asked_none and not is_cold, cold=is_cold, hook_s=terms.hook_s,
        )  # fmt: skip
        with kept(book, "procedure", lambda status: conclude(test, experiment, found, status, console)), experiment:
            for name in before:
                experiment.switch(f"before {name}", name)
            test.run(experiment, parameters, found)
        compliant = conclude(test, experiment, found, journal.DONE, console)
        return NOT_MET if terms.strict and not compliant else 0


def complete(
    test: ProcedureTest,
    settings: RunSettings,
    parameters: Any,
    terms: ProcedureTerms,
    simulated: bool,
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """The declarations. InputError with everything that the test still needs: parameters, hooks and declarations at once;
    nobody is asked for the latter before the former are there. *earlier*: what an earlier start was told.
    """
    lacking: list[str] = []
    found: dict[str, str] = {}
    must = terms.conforming and not terms.quick

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except InputError as problem:
            lacking.append(str(problem))

    attempt(lambda: test.refuse(parameters, settings))
    attempt(lambda: refuse_engine(settings))
    said = {**earlier, **manifest.declared(settings, simulated)}
    can_restart = simulated or terms.ask is not None or cold_start.RESTART in terms.commands
    attempt(lambda: cold_start.refuse(test.name, said, can_restart))
    attempt(lambda: hooks.refuse_missing(test.hooks(parameters), terms.commands, simulated, terms.ask is not None))
    ask = None if lacking or terms.quick else terms.ask
    attempt(lambda: found.update(manifest.complete(as_sent(test, settings), test.name, simulated, must, ask, earlier)))
    if lacking:
        raise InputError("\n".join(lacking))
    return found


def as_sent(test: ProcedureTest, settings: RunSettings) -> RunSettings:
    """*settings* with the workload that *test* really sends: it is what the manifest declares (IETF 4.1)."""
    return settings if test.sends is None else changed(settings, workload={"name": test.sends})


def without_effect(test: ProcedureTest, settings: RunSettings, parameters: Any) -> Iterator[str]:
    """A sentence for each end of a run (a number of requests, a duration) that was asked for and that *test* has no use
    for.
    """
    has = set(getattr(parameters, "__struct_fields__", ()))
    if settings.load.num_requests is not None and not has & {"request_count", "requests"}:
        yield f"--num-requests has no effect on the test {test.name}: its levels last as long as --duration says"
    if settings.load.duration is not None and "duration_s" not in has:
        yield f"--duration has no effect on the test {test.name}: its levels last until --num-requests were sent"


def announce(
    test: ProcedureTest,
    settings: RunSettings,
    parameters: Any,
    terms: ProcedureTerms,
    book: Journal,
    console: Console,
    simulated: bool,
) -> None:
    if simulated:
        console.say("SIMULATED ENGINE: the target is fastllmload's own simulator, not a server")
    console.say(f"IETF {test.section} {test.title}, in {terms.folder}")
    if book.resumed:
        console.say("started again: finished levels are taken from the folder")
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


def with_declarations(settings: RunSettings, declarations: Mapping[str, str]) -> RunSettings:
    """Every level's run.json carries them too."""
    output = msgspec.structs.replace(settings.output, declare=tuple(declarations.items()))
    return msgspec.structs.replace(settings, output=output)


def spoilt_words(levels: Sequence[Level]) -> str:
    """Of levels on which the client was the limit, named by their numbers."""
    numbers = ", ".join(str(level.number) for level in levels)
    one = len(levels) == 1
    return (
        f"level{'s' * (not one)} {numbers}{f' ({levels[0].name})' if one else ''}: the client was the limit; "
        f"{'it decides' if one else 'they decide'} nothing about the system (fastllmload doctor)"
    )


def conclude(test: ProcedureTest, experiment: Experiment, found: Findings, status: str, console: Console) -> bool:
    """Write procedure.json and the reports, whatever happened, and show them; whether the draft was followed."""
    with unbroken():
        compliant = written(test, experiment, found, status)
    show(experiment.journal.document, experiment.folder, console)
    return compliant


def written(test: ProcedureTest, experiment: Experiment, found: Findings, status: str) -> bool:
    """Write procedure.json and the reports; whether the draft was followed."""
    if status == journal.DONE:
        experiment.put_leftovers_aside()
    spoilt = [level for level in experiment.levels if level.generator_limited and not counted(experiment.entry(level))]
    if spoilt:
        found.warn(spoilt_words(spoilt))
    for text in level_warnings(experiment.journal.document["levels"]):
        found.warn(text)
    if experiment.cold and experiment.levels:
        document = experiment.journal.document
        experiment.journal.put(
            cold_start=cold_start.entry(document["manifest"]["declarations"], document["steps"], experiment.levels)
        )
        found.say(cold_start.sentence(experiment.journal.document["cold_start"]))
    if experiment.journal.document["quick"]:
        found.deviate(QUICK)
    if experiment.simulated:
        found.deviate(SIMULATED)
    entries = found.entries()
    for kind in ("warnings", "deviations"):
        entries[kind] = [*dict.fromkeys([*experiment.journal.document[kind], *entries[kind]])]
    experiment.journal.put(status=status, ended_utc=journal.utc(), **entries)
    compliance = compliance_of(read(experiment.folder))
    experiment.journal.put(compliance=compliance)
    write(experiment.folder, experiment.journal.document)
    return bool(compliance["verdict"] != NOT)
