"""`fastllmload overhead`: the options of a run, less its target, and the two ways to the engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.procedure import pause
from fastllmload.cli.options.table import BY_PARAMETER, RunOption, several, value
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError, InvalidValue
from fastllmload.files import key_in, usable_key
from fastllmload.redact import Redactor, header_line_secrets
from fastllmload.settings import Secret

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
    value("--through-model", "through_model", read.text, "NAME",
          "Name of the model at the gateway, where it has another one than -m."),
    value("--through-api-key", "through_api_key", read.text, "KEY",
          "Bearer token for the gateway alone, never shown or stored; the run's goes to the server."),
    value("--through-api-key-file", "through_api_key_file", read.path, "FILE",
          "Reads the gateway's API key from the first line of FILE."),
    several("--direct-header", "direct_headers", read.header, "'NAME: VALUE'",
            "Header of direct requests only; repeatable. -H adds one to both ways."),
    several("--through-header", "through_headers", read.header, "'NAME: VALUE'",
            "Header of requests through the gateway only; repeatable."),
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
OWN_SECRETS: dict[str, Callable[[str], list[str]]] = {  # parameter: the secrets in its text
    "through_api_key": lambda text: [text],
    "direct_header": header_line_secrets,
    "through_header": header_line_secrets,
}


def gateway_key(own: Mapping[str, Any], redact: Redactor) -> Secret | None:
    """The gateway's own key; None: it gets the run's."""
    key, path = own.get("through_api_key"), own.get("through_api_key_file")
    if key is not None and path is not None:
        raise InputError("options-conflict", "--through-api-key and --through-api-key-file are both given; give one")
    if path is not None:
        key = key_in(path, "--through-api-key-file")
        redact.add(key)
    return None if key is None else Secret(usable_key(key.strip(), "--through-api-key"))


def start(**parameters: object) -> int:
    """Exit code: 0; 1 with a gate that fails, or with --strict and a run that is not valid."""
    from fastllmload.cli.options.reading import read_settings
    from fastllmload.cli.options.sources import RawOption, given_options, read_own
    from fastllmload.compare.gate import parse_gate
    from fastllmload.experiment.console import Console
    from fastllmload.overhead.run import OverheadTerms, WayOptions, run_overhead

    redact = current_redactor()
    given = given_options(parameters, OWN)
    ways = {way: given[way].texts if way in given else () for way in ("direct", "through")}
    # As the URLs of a run, so that what they contain is hidden and checked as there
    target = RawOption(BY_PARAMETER["url"], "--direct and --through", (*ways["direct"], *ways["through"]))
    for name, secrets_in in OWN_SECRETS.items():
        for text in given[name].texts if name in given else ():
            for found in secrets_in(text):
                redact.add(found)
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
        direct=WayOptions(headers=tuple(own.get("direct_headers", ()))),
        through=WayOptions(own.get("through_model"), tuple(own.get("through_headers", ())), gateway_key(own, redact)),
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
