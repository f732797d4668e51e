"""`fastllmload sweep`: the options of a run, and which of them take several values."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastllmload.cli.group import current_redactor
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.procedure import count_of_runs, pause
from fastllmload.cli.options.sources import RawOptions, from_table
from fastllmload.cli.options.table import RunOption, config_names, several, switch, value
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError
from fastllmload.sweep import spacing
from fastllmload.sweep.spacing import Spaced

MOST_COMBINATIONS = 1_000
NOT_VARIED = ("output", "ui", "disable_tqdm", "strict", "save_plan", "api_key", "api_key_file", "repetition", "config")
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


OWN: tuple[RunOption, ...] = (
    several("--vary", "vary", read.axis, "NAME=V1,V2,...",
            "Option of a run and its values; repeatable, for a grid. Values that contain a comma are separated by ';': "
            "isl='uniform:128,512;256'. rate=spaced:N makes N runs: one request at a time, all at once (--max-concurrency, "
            "512 by default), and N - 2 rates in equal steps from what the first completed to what the second did."),
    value("--runs", "runs", count_of_runs, "COUNT", "Runs of each combination, at other instants. Default 1."),
    switch("--interleave", "interleave", "Runs all combinations once before any is run again."),
    switch("--shuffle", "shuffle", "Runs in a random order from --seed; with --interleave, within each round."),
    switch("--same-requests", "same_requests",
           "Sends the same requests in every run; by default each run has its own, so that prefix caches do not help."),
    value("--settle", "settle_s", pause, "TIME", "Pause between two runs. Default 5s."),
)  # fmt: skip


def values_of(name: str, text: str) -> list[str]:
    found = [part.strip() for part in (text.removesuffix(";").split(";") if ";" in text else text.split(","))]
    if "" in found or len(found) < 1:
        raise InputError("option-value-missing", f"--vary {name}={text} holds an empty value; write NAME=V1,V2")
    return found


def axes_of(pairs: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Option name → values. InputError for a name that is not an option, cannot be varied, or is given twice."""
    names, axes, seen = config_names(), {}, set[str]()
    for name, text in pairs:
        key = name.removeprefix("--")
        option = names[key][0] if key in names else None
        if option is not None and option.parameter in NOT_VARIED:
            raise InputError(
                "option-not-varied", f"--vary {name}=... cannot be varied: it does not change what is measured"
            )
        if option is not None and option.parameter in seen:
            raise InputError("option-repeated", f"--vary names {option.name!r} twice; give all its values in one list")
        seen.add(key if option is None else option.parameter)
        spaced = option is not None and option.parameter == "rate" and text.startswith(spacing.PREFIX)
        axes[key] = spacing.names_of(text) if spaced else values_of(name, text)
    if not axes:
        raise InputError(
            "option-missing", "--vary is missing: say which option takes which values, for example --vary rate=10,20,40"
        )
    count = math.prod(map(len, axes.values()))
    if count > MOST_COMBINATIONS:
        raise InputError(
            "sweep-too-large",
            f"--vary makes {count:,} combinations, at most {MOST_COMBINATIONS:,} are taken; vary less",
        )
    return axes


def cell_options(base: RawOptions, values: Mapping[str, str]) -> RawOptions:
    """*base* with the values of one combination. InputError for a varied option that *base* also has."""
    names = config_names()
    typed: dict[str, object] = {
        key: TRUTH.get(text.lower(), text) if key in names and names[key][0].parse is None else text
        for key, text in values.items()
    }
    varied = from_table(typed, "--vary ", " of --vary")
    for parameter, given in varied.items():
        if parameter in base:
            raise InputError(
                "options-conflict",
                f"{base[parameter].where} and --vary {given.option.name} contradict each other; give one",
            )
    return {**base, **varied}


def spaced_in(axes: Mapping[str, Sequence[str]], values: Mapping[str, str]) -> Spaced | None:
    """The place of the combination *values* among spaced rates; None where no rate is spaced."""
    for name, texts in axes.items():
        if texts[0] == spacing.ONE_AT_A_TIME:
            return Spaced(name, texts.index(values[name]))
    return None


def spaced_options(base: RawOptions, values: Mapping[str, str], spaced: Spaced) -> RawOptions:
    """Options of a run of spaced rates: a closed loop of one or of all at once, or an open loop whose rate is not known yet
    and 1 until then. InputError where *base* says how fast to send.
    """
    for parameter in ("rate", "concurrency"):
        if parameter in base:
            raise InputError(
                "options-conflict",
                f"{base[parameter].where} and --vary {spaced.axis}=spaced contradict each other; give one",
            )
    others = {name: text for name, text in values.items() if name != spaced.axis}
    options = cell_options(base, {**others, spaced.axis: "1"})
    if spaced.has_rate:
        return options
    most = options["max_concurrency"].texts[0] if "max_concurrency" in options else str(spacing.MOST_AT_ONCE)
    left = {name: given for name, given in options.items() if name not in ("rate", *spacing.OF_OPEN_LOOPS)}
    return cell_options(left, {"concurrency": most if spaced.place else "1"})


def order_of(shuffle: bool, interleave: bool) -> str:
    """Order of the runs. With both switches, each round is shuffled again."""
    from fastllmload.sweep.run import GRID, INTERLEAVED, ROUNDS, SHUFFLED

    if interleave:
        return ROUNDS if shuffle else INTERLEAVED
    return SHUFFLED if shuffle else GRID


def start(**parameters: object) -> int:
    """Exit code: 0; 1 with --strict and a run that is not valid."""
    from fastllmload.cli.options.reading import read_settings
    from fastllmload.cli.options.sources import given_options, read_own
    from fastllmload.experiment.console import Console
    from fastllmload.sweep.run import Combination, SweepTerms, run_sweep

    redact = current_redactor()
    base = given_options(parameters, OWN)
    own = read_own(base, OWN)
    axes = axes_of(own.get("vary", ()))
    cells, secret = [], None
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        spaced = spaced_in(axes, values)
        options = cell_options(base, values) if spaced is None else spaced_options(base, values, spaced)
        settings, secret = read_settings(options, os.environ, redact)
        cells.append(Combination(tuple(values.items()), settings, spaced))
    if own.get("shuffle") and cells[0].spaced is not None:
        raise InputError(
            "options-conflict",
            "--shuffle and spaced rates contradict each other, as the first two runs decide the rates; leave --shuffle out",
        )
    first = cells[0].settings.output
    terms = SweepTerms(
        Path(first.directory or f"runs/sweep-{time.strftime('%Y%m%d-%H%M%S')}"),
        runs=own.get("runs", 1),
        order=order_of(shuffle=bool(own.get("shuffle")), interleave=bool(own.get("interleave"))),
        strict=first.strict,
        same_requests=bool(own.get("same_requests")),
        **({"settle_s": own["settle_s"]} if "settle_s" in own else {}),
    )
    return run_sweep(cells, secret, terms, Console(redact, quiet=first.ui == "none"))


sweep = RunCommand(
    "sweep",
    start,
    help="Run every combination of the varied options, with one table and one page for all runs.\n\n"
    "Example: fastllmload sweep --vary rate=10,20,40 --vary osl=128,512 --duration 60. The same command with the same "
    "--output continues where it was stopped.",
    own={"Sweep": OWN},
)
