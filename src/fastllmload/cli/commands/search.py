"""`fastllmload search`: the options of a run, less its load, and those of the search."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastllmload import quantities
from fastllmload.cli.group import current_redactor
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.procedure import pause
from fastllmload.cli.options.table import OPTIONS, RunOption, switch, value
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError, InvalidValue

if TYPE_CHECKING:
    from fastllmload.cli.options.sources import RawOptions
    from fastllmload.redact import Redactor
    from fastllmload.search.run import SearchTerms
    from fastllmload.search.trials import SearchParameters
    from fastllmload.settings import RunSettings, Secret


def width(text: str) -> tuple[float, bool]:
    """`5%` of the level, or an absolute number: (step, whether it is a share)."""
    step = text.strip()
    share = step.endswith("%")
    found = (quantities.share(step) or -1.0) if share else read.positive(step)
    if share and not 0 < found < 1:
        raise InvalidValue("share-invalid", "is not a share below 100%; write for example 5% or 0.5")
    return found, share


trial_count = read.count_between(1, 6, "each trial lasts twice as long as the one before, so ")
levels = read.count_between(2, 100)
confidence = read.bounded(
    quantities.share, "share-invalid", "is out of range; write a share from 0.5 to below 1, such as 0.95 or 95%",
    lambda value: 0.5 <= value < 1,
)  # fmt: skip
OWN: tuple[RunOption, ...] = (
    value("--objective", "objective", read.text, "NAME",
          "What must hold: sustained (the queue does not grow; default), p99 (or another percentile, of each --goodput "
          "limit; default when there are limits), attainment[:0.9] of all limits together, fluid[:0.99], or the peak "
          "of smooth-goodput."),
    value("--what", "what", read.one_of("rate", "concurrency"), "NAME",
          "What is searched: rate (requests/s, open loop; default) or concurrency (slots, closed loop)."),
    value("--min", "minimum", read.positive, "LEVEL", "Lowest level. Default 1."),
    value("--max", "maximum", read.positive, "LEVEL", "Highest level. Default 1024."),
    value("--step", "step", width, "STEP", "Resolution of the answer: a number, or a share of the level. Default 5%."),
    value("--level-duration", "level_s", read.seconds, "TIME", "Length of the first trial of a level. Default 60s."),
    value("--runs", "looks", trial_count, "COUNT",  # prose: allow, the field of SearchParameters
          "Most trials of a level that noise leaves undecided, each twice as long as the one before. Default 3."),
    value("--max-levels", "levels", levels, "COUNT", "Most levels to measure. Default 12."),
    value("--confidence", "confidence", confidence, "SHARE", "Confidence of the interval. Default 0.95."),
    switch("--interleave", "interleave",
           "Measures the ends of the bracket again between two trials of a level, in random order."),
    value("--preset", "preset", read.text, "NAME", "Parameters of smooth goodput: sg-default or sg-fig6."),
)  # fmt: skip
GENERAL: tuple[RunOption, ...] = (
    value("--settle", "settle_s", pause, "TIME", "Pause between two levels. Default 5s."),
)
NOT_IN_A_SEARCH = (
    "rate", "concurrency", "num_requests", "rate_series", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps",
    "class", "plan", "save_plan", "repetition", "trace_speed", "trace_from", "trace_to", "trace_loop",
)  # fmt: skip

OPEN_LOOP = ("arrival", "burstiness", "max_concurrency")


def start(**parameters: object) -> int:
    """Exit code: 0 found; 1 no level passes, or --strict and the answer is open at an end."""
    from fastllmload.cli.options.sources import given_options
    from fastllmload.experiment.console import Console
    from fastllmload.search.run import run_search

    redact = current_redactor()
    found = read_search(given_options(parameters, (*OWN, *GENERAL)), redact)
    console = Console(redact, quiet=found.settings.output.ui == "none")
    return run_search(found.settings, found.secret, found.parameters, found.terms, console)


@dataclass(frozen=True)
class SearchOptions:
    settings: RunSettings
    secret: Secret | None
    parameters: SearchParameters
    terms: SearchTerms


def read_search(given: RawOptions, redact: Redactor) -> SearchOptions:
    from fastllmload.cli.options.reading import read_settings
    from fastllmload.cli.options.sources import read_own
    from fastllmload.search.run import SearchTerms
    from fastllmload.search.trials import SearchParameters

    own, around = read_own(given, OWN), read_own(given, GENERAL)
    validate_load_options(given, own.get("what") == "concurrency")
    settings, secret = read_settings(given, os.environ, redact, complete=False)
    if "step" in own:
        own["step"], own["step_share"] = own["step"]
    if settings.load.duration is not None:
        own.setdefault("level_s", settings.load.duration)
    folder = settings.output.directory or f"runs/search-{time.strftime('%Y%m%d-%H%M%S')}"
    warm = settings.load.warmup_requests is None and "warmup" not in given
    terms = SearchTerms(Path(folder), warm=warm, strict=settings.output.strict, **around)
    return SearchOptions(settings, secret, SearchParameters(**own), terms)


def validate_load_options(given: Mapping[str, object], closed: bool) -> None:
    """InputError for options that set the load of a run: a search sets the load of each level."""
    for parameter in OPEN_LOOP if closed else ():
        if parameter in given:
            flag = f"--{parameter.replace('_', '-')}"
            raise InputError(
                "option-not-applicable", f"{flag} belongs to an open loop; leave it out, or use --what rate"
            )
    for parameter in NOT_IN_A_SEARCH:
        if parameter in given:
            flag = next(option.flag for option in OPTIONS if option.parameter == parameter)
            raise InputError(
                "option-prescribed",
                f"{flag} sets the load of a run, but a search finds it; leave it out and give --min and --max",
            )


search = RunCommand(
    "search",
    start,
    help="Find the highest rate or concurrency at which objectives hold, as an interval.\n\n"
    "Each level is measured for --level-duration, and again, longer, while noise leaves it undecided. The best level is "
    "measured again at the end. A level at which the load generator was the limit never counts against the system. The "
    "same command with the same --output continues where it was stopped.",
    own={"Search": (*OWN, *GENERAL)},
    refused=NOT_IN_A_SEARCH,
)
