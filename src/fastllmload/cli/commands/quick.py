"""`fastllmload quick`: runs asiai's short benchmark, with the options of a run that do not change what is sent."""

from __future__ import annotations

import os
import sys

from fastllmload.cli.options.parsers import count
from fastllmload.cli.options.resolve import merge_config, resolve_merged
from fastllmload.cli.options.table import value
from fastllmload.cli.options.validation import PLANNED
from fastllmload.cli.run_command import RunCommand, click_option
from fastllmload.errors import InputError, value_code

OWN = (value("--runs --repeats", "runs", count, "COUNT", "Measured requests of each prompt type. Default 3."),)
DECIDED = frozenset(PLANNED) - {"osl"} | {
    "classes", "ignore_eos", "image", "max_concurrency", "num_prefixes", "plan", "prefix_len", "prefix_share",
    "prefix_zipf", "prompt_form", "save_plan", "temperature", "think_time", "turns", "warmup", "workers",
}  # fmt: skip


def start(**parameters: object) -> int:
    from fastllmload.cli.commands.run import current_redactor
    from fastllmload.cli.options.raw import from_command_line

    runs = read_runs(parameters.pop("runs"))
    raw_options = merge_config(from_command_line(parameters))
    for parameter, given in raw_options.items():
        if parameter in DECIDED:
            raise InputError(
                "option-prescribed",
                f"{given.where} does not go with quick, whose protocol decides what is sent and when; leave it out, "
                "or use fastllmload run",
            )
    redact = current_redactor()
    settings, secret = resolve_merged(raw_options, os.environ, redact, complete=False)
    from fastllmload.quick.bench import bench
    from fastllmload.quick.protocol import RUNS

    return bench(settings, secret, RUNS if runs is None else runs, sys.stdout, redact)


def read_runs(text: object) -> int | None:
    if text is None:
        return None
    try:
        return int(count(str(text)))
    except ValueError as problem:
        raise InputError(value_code(problem), f"--runs {text!r} {problem}") from None


quick = RunCommand(
    "quick",
    start,
    help="asiai's short benchmark: one warm-up request, a few requests of each prompt type, one at a time, at "
    "temperature 0; reports median tokens/s, then power. Several --url are measured one after another.",
    params=[click_option(option) for option in OWN],
)
