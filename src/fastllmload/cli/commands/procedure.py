"""`fastllmload procedure NAME`: runs one of the ten tests, with its own options and those of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastllmload.cli.group import LazyCommand, LazyGroup, current_redactor
from fastllmload.cli.options.procedure import COMMON, TESTS
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError

if TYPE_CHECKING:
    from fastllmload.cli.options.sources import RawOptions
    from fastllmload.procedure.procedure_test import ProcedureTest
    from fastllmload.settings import RunSettings

ABOUT = {
    "ttft": "Time to first token: its distribution at one load (IETF 5.1).",
    "throughput": "The highest output token throughput (IETF 5.2).",
    "tradeoff": "Latency against throughput over levels of load (IETF 5.3).",
    "itl": "Inter-token latency: its distribution at shares of the capacity (IETF 5.4).",
    "capacity": "The highest concurrency that meets the criteria (IETF 5.5).",
    "fairness": "Whether short and long requests are served alike (IETF 5.6).",
    "prefix-cache": "What a prefix cache saves (IETF 5.7).",
    "memory-pressure": "What happens beyond the capacity (IETF 5.8).",
    "long-context": "How TTFT grows with the context (IETF 5.9).",
    "guardrail": "What guardrails cost (IETF 5.10).",
}


# Options that say what is sent, and those of them that a test with its own workload never sends.
WORKLOAD_OPTIONS = {"workload", "dataset_path", "prompt", "isl", "prefix_len", "turns", "plan", "classes"}
FOREIGN_WORKLOAD_OPTIONS = {"workload", "dataset_path", "prompt", "turns", "plan"}


def command(name: str) -> RunCommand:
    return RunCommand(
        name,
        lambda **parameters: start(name, parameters),
        help=ABOUT[name]
        + "\n\nOptions of a run set target and workload; without --url the target is the simulated engine. "
        "The same command with the same --output continues where it was stopped.",
        own={"This test": TESTS[name], "Any procedure": COMMON},
        refused=("class",),
    )


procedure = LazyGroup(
    "procedure",
    {name: LazyCommand(partial(command, name), about) for name, about in ABOUT.items()},
    help="Run one of the ten tests of the IETF draft on benchmarking LLM serving, from declarations to report.",
    noun="test",
)


def start(name: str, parameters: Mapping[str, object]) -> int:
    from fastllmload.cli.options.reading import read_settings
    from fastllmload.cli.options.rules import validate_traffic
    from fastllmload.cli.options.sources import given_options, read_own
    from fastllmload.experiment.console import Console
    from fastllmload.experiment.level.settings import changed
    from fastllmload.experiment.preparation.hooks import terminal
    from fastllmload.procedure.repeat import run_repeatedly
    from fastllmload.procedure.run import ProcedureTerms, run_procedure
    from fastllmload.procedure.tests import test_named

    redact = current_redactor()
    given = given_options(parameters, (*TESTS[name], *COMMON))
    fields, terms = read_own(given, TESTS[name]), read_own(given, COMMON)
    test = test_named(name)
    validate_workload_options(test, given)
    settings, secret = read_settings(given, os.environ, redact, complete=False)
    validate_control(test, settings)
    if test.workload is not None and not WORKLOAD_OPTIONS & given.keys():
        settings = changed(settings, workload={"name": test.workload})
    if test.sends is not None:
        validate_traffic(changed(settings, workload={"name": test.sends}), complete=False)
    for field, value in (
        ("duration_s", settings.load.duration),
        ("request_count", settings.load.num_requests),
        ("requests", settings.load.num_requests),
        ("output_tokens", fixed_length(settings.workload.osl, name)),
    ):
        if value is not None and field in test.parameters.__struct_fields__:
            fields.setdefault(field, value)
    commands = hook_commands(terms.get("hooks", ()))
    folder = settings.output.directory
    runs = terms.get("runs")
    conducted = run_procedure if runs is None else partial(run_repeatedly, runs=runs)
    return conducted(
        test,
        settings,
        secret,
        test.parameters(**fields),
        ProcedureTerms(
            folder=Path(folder) if folder is not None else Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}",
            quick=bool(terms.get("quick")),
            conforming=not terms.get("allow_nonconforming"),
            strict=settings.output.strict,
            commands=commands,
            settle_s=terms.get("settle_s"),
            ask=input if terminal() else None,
            **({"hook_s": terms["hook_s"]} if "hook_s" in terms else {}),
        ),
        Console(redact, quiet=settings.output.ui == "none"),
    )


def validate_workload_options(test: ProcedureTest, given: RawOptions) -> None:
    """InputError where options ask for other requests than those that the draft prescribes for *test*."""
    if test.sends is None:
        return
    for parameter in sorted(FOREIGN_WORKLOAD_OPTIONS & given.keys()):
        one = given[parameter]
        if parameter != "workload" or one.texts != (test.sends,):
            raise InputError(
                "option-prescribed",
                f"the test {test.name} sends the workload {test.sends} (IETF {test.section}): leave {one.where} out",
            )


def validate_control(test: ProcedureTest, settings: RunSettings) -> None:
    """InputError where --between would empty the cache that *test* fills."""
    emptying = [verb for verb in settings.control.between if verb in ("reset-cache", "flush", "sleep")]
    if emptying and test.name == "prefix-cache":
        raise InputError(
            "control-voids",
            f"--between {emptying[0]} would empty the cache that the test {test.name} fills before its levels; leave it out",
        )


def fixed_length(osl: str | None, name: str) -> int | None:
    """The output length of `--osl` as one number. InputError for a distribution where the test needs one number."""
    if osl is None:
        return None
    if not osl.isdigit() and name in ("capacity", "long-context"):
        raise InputError(
            "output-length-not-fixed",
            f"--osl {osl!r}: the test {name} has one fixed output length; write a number of tokens",
        )
    return int(osl) if osl.isdigit() else None


def hook_commands(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    from fastllmload.experiment.preparation.hooks import HOOKS

    for name, _ in pairs:
        if name not in HOOKS:
            raise InputError("hook-unknown", f"--hook {name}=... is not a hook; the hooks are {', '.join(HOOKS)}")
    return dict(pairs)
