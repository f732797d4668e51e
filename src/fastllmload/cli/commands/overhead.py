"""`fastllmload overhead`: the options of a run, less its target, and the two ways to the engine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.procedure import pause
from fastllmload.cli.options.table import BY_PARAMETER, RunOption, several, value
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError, InvalidValue

SECONDS = 10.0  # of a run whose length is not given
FEWEST, MOST = 4, 100  # pairs
MODES = ("significant", "proven", "measured")  # of `compare --gate`


def pair_count(text: str) -> int:
    """An even number of pairs, so that each way is as often the first of its pair."""
    found = read.count_between(FEWEST, MOST)(text)
    if found % 2:
        raise InvalidValue(
            "value-out-of-range", f"is odd, so one way would be the first of its pair more often; write {found + 1}"
        )
    return found


OWN: tuple[RunOption, ...] = (
    several("--direct", "direct", read.url, "URL",
            "Server without the gateway; several are used round robin. Required."),
    several("--through", "through", read.url, "URL",
            "The gateway in front of the same server; several are used round robin. Required."),
    value("--pairs", "pairs", pair_count, "COUNT",
          "Pairs of runs, one each way, with the order reversed in every other pair. Even, 4 or more. Default 8."),
    several("--figure", "figures", read.text, "NAME",
            "Figure to report instead of the usual ones, such as p95_ttft_ms; repeatable."),
    several("--fail-if", "gates", read.text, "RULE",
            'Gate on what is added, such as "p99_ttft_ms > +2ms"; exit code 1 where it fails. Repeatable.'),
    value("--gate", "mode", read.one_of(*MODES), "MODE",
          "When a gate fails: significant (measured beyond the limit, and not by chance; default), proven (the whole "
          "interval is beyond it), measured."),
    value("--settle", "settle_s", pause, "TIME", "Pause between two runs. Default 1s."),
)  # fmt: skip
TARGETS = ("url", "host", "port", "unix_socket", "simulate")
NOT_OURS = (*TARGETS, "save_plan")


def start(**parameters: object) -> int:
    """Exit code: 0; 1 with a gate that fails, or with --strict and a run that is not valid."""
    from fastllmload.cli.options.reading import read_settings
    from fastllmload.cli.options.sources import RawOption, given_options, read_own
    from fastllmload.compare.gate import parse_gate
    from fastllmload.experiment.console import Console
    from fastllmload.overhead.run import OverheadTerms, run_overhead

    redact = current_redactor()
    given = given_options(parameters, OWN)
    ways = {way: given[way].texts if way in given else () for way in ("direct", "through")}
    # As the URLs of a run, so that what they contain is hidden and checked as there
    target = RawOption(BY_PARAMETER["url"], "--direct and --through", (*ways["direct"], *ways["through"]))
    own = read_own(given, OWN)
    for way, urls in ways.items():
        if not urls:
            raise InputError(
                "option-missing",
                f"--{way} is missing: give the server's URL with --direct and the gateway's with --through",
            )
    for parameter in NOT_OURS:
        if parameter in given:
            flag = BY_PARAMETER[parameter].flag
            instead = "give --direct and --through" if parameter in TARGETS else "use fastllmload plan"
            raise InputError("option-not-applicable", f"{flag} belongs to a run; {instead}")
    settings, secret = read_settings({**given, "url": target}, os.environ, redact)
    ended = {"duration", "num_requests", "plan"} & given.keys()
    if not ended and settings.load.duration is not None:
        from fastllmload.experiment.level.settings import changed

        settings = changed(settings, load={"duration": SECONDS})
    folder = settings.output.directory or f"runs/overhead-{time.strftime('%Y%m%d-%H%M%S')}"
    terms = OverheadTerms(
        Path(folder),
        strict=settings.output.strict,
        gates=tuple(parse_gate(text) for text in own.pop("gates", ())),
        **{name: own[name] for name in ("pairs", "figures", "mode", "settle_s") if name in own},
    )
    console = Console(redact, quiet=settings.output.ui == "none")
    return run_overhead(settings, own["direct"], own["through"], secret, terms, console)


overhead = RunCommand(
    "overhead",
    start,
    help="Measure what a gateway adds: the same plan sent directly and through it, in turn, with intervals.\n\n"
    "Example: fastllmload overhead --direct http://engine:8000 --through http://gateway:8080 --rate 20. Each run takes "
    "10 s unless --duration or -n says otherwise. The same command with the same --output continues where it was stopped.",
    own={"Overhead": OWN},
    refused=NOT_OURS,
)
