"""Options that are other spellings of settings: --host and --port, vLLM's random lengths, sampling fields of a body."""

from __future__ import annotations

import json
import math
from typing import Any

from fastllmload.cli.options.parsers import RANDOM
from fastllmload.cli.options.sources import Fields, RawOptions
from fastllmload.endpoint import resolve_endpoint
from fastllmload.endpoint.body import with_sampling
from fastllmload.errors import InputError
from fastllmload.settings import DEFAULT_ENDPOINT, RunSettings

HOST, PORT = "127.0.0.1", 8000
RANDOM_LENGTHS = {"workload.isl": "1024", "workload.osl": "128"}  # vLLM's own
OF_NO_CLASS = RunSettings()
ROUNDING = 1e-9  # tokens; 100 * (1 + 0.1) is above 110
CHOOSING = ("top_p", "top_k", "min_p")  # among several tokens, which temperature 0 never does


def spell_out(fields: Fields, given: RawOptions, run: RunSettings = OF_NO_CLASS) -> None:
    """Put the settings that such options mean into *fields*. *run*: of the run whose class the options describe."""
    _address(fields, given)
    _lengths(fields, given)
    _sampling(fields, given, run)


def taken(fields: Fields, group: str) -> dict[str, Any]:
    names = [field for field in fields if field.startswith(f"{group}.")]
    return {field.partition(".")[2]: fields.pop(field) for field in names}


def _address(fields: Fields, given: RawOptions) -> None:
    address = taken(fields, "address")
    if not address:
        return
    where = given["host" if "host" in address else "port"].where
    if "url" in given:
        raise InputError("options-conflict", f"{where} and {given['url'].where} both name a server; give one")
    host = address.get("host", HOST)
    if "://" in host or "/" in host:
        raise InputError("url-invalid", f"{where} {host!r} is not a host; write it as --url {host}")
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    fields["target.urls"] = (f"http://{shown}:{address.get('port', PORT)}",)


def _lengths(fields: Fields, given: RawOptions) -> None:
    if fields.get("workload.name") == RANDOM:
        fields |= {**RANDOM_LENGTHS, **fields, "workload.name": "synthetic-uniform"}
    from fastllmload.workload.lengths import Fixed, parse_lengths

    ratios = fields.pop("lengths.range_ratio", None)
    if ratios is None:
        return
    for field, ratio in zip(RANDOM_LENGTHS, ratios, strict=True):
        flag, length = f"--{field.partition('.')[2]}", fields.get(field)
        fixed = length and parse_lengths(length, flag)
        if not isinstance(fixed, Fixed):
            raise InputError(
                "option-missing",
                f"{given['random_range_ratio'].where} spreads {flag}, which is {length or 'not given'}; give one length "
                f"such as {flag} {RANDOM_LENGTHS[field]}, or write the range as {flag} uniform:LOW,HIGH",
            )
        if ratio:
            spread = fixed.tokens * ratio
            low, high = math.floor(fixed.tokens - spread + ROUNDING), math.ceil(fixed.tokens + spread - ROUNDING)
            fields[field] = f"uniform:{max(1, low)},{high}"


def _sampling(fields: Fields, given: RawOptions, run: RunSettings) -> None:
    """Sampling options are fields of --extra-body, whose names and place the protocol decides."""
    sampling = taken(fields, "sampling")
    if not sampling:
        return
    if "plan" in given:
        raise InputError(
            "option-prescribed",
            f"{given[next(iter(sampling))].where} is part of the bodies of the plan that --plan replays; leave it out",
        )
    for name in CHOOSING:
        if name in sampling and fields.get("workload.temperature", run.workload.temperature) == 0:
            raise InputError(
                "option-not-applicable",
                f"{given[name].where} has no effect at temperature 0, which always takes the likeliest token; add "
                "--temperature 0.7, or --temperature none for the server's own",
            )
    endpoint = resolve_endpoint(fields.get("target.endpoint_type", run.target.endpoint_type or DEFAULT_ENDPOINT))
    extra = json.loads(fields.get("workload.extra_body", run.workload.extra_body) or "{}")
    joined = with_sampling(extra, sampling, endpoint.sampling, endpoint.sampling_within, endpoint.name)
    fields["workload.extra_body"] = json.dumps(joined)
