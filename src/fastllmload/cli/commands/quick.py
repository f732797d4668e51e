"""`fastllmload quick`: runs asiai's short benchmark, with the options of a run that do not change what is sent."""

from __future__ import annotations

import os
import sys

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options.parsers import count
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.rules import PLANNED
from fastllmload.cli.options.sources import given_options, read_own
from fastllmload.cli.options.table import value
from fastllmload.cli.run_command import RunCommand, click_option
from fastllmload.endpoint.body import SAMPLING
from fastllmload.errors import InputError

OWN = (value("--runs --repeats", "runs", count, "COUNT", "Measured requests of each prompt type. Default 3."),)
DECIDED = frozenset(PLANNED) - {"osl"} | {
    "class", "ignore_eos", "image", "max_concurrency", "max_prefill", "num_prefixes", "plan", "prefix_len", "prefix_share",
    "prefix_zipf", "prompt_form", "random_range_ratio", "save_plan", "temperature", "think_time", "turns", "warmup",
    "workers", *SAMPLING,
}  # fmt: skip


def start(**parameters: object) -> int:

    raw_options = given_options(parameters, OWN)
    own = read_own(raw_options, OWN)
    for parameter, given in raw_options.items():
        if parameter in DECIDED:
            raise InputError(
                "option-prescribed",
                f"{given.where} does not go with quick, whose protocol decides what is sent and when; leave it out, "
                "or use fastllmload run",
            )
    redact = current_redactor()
    settings, secret = read_settings(raw_options, os.environ, redact, complete=False)
    from fastllmload.quick.bench import RUNS, bench

    return bench(settings, secret, own.get("runs", RUNS), sys.stdout, redact)


quick = RunCommand(
    "quick",
    start,
    help="Run asiai's short benchmark: one warm-up request, a few requests of each prompt type, one at a time, at "
    "temperature 0; reports median tokens/s, then power. Several --url are measured one after another.",
    params=[click_option(option) for option in OWN],
    refused=DECIDED,
)
