"""Reads request classes: `--class "chat rate=40 isl=512 goodput=ttft:200"`, and [[class]] in a config file.

A class is an open loop (`rate=`, `share=`, instants of a trace) or a closed one (`concurrency=`).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fastllmload import quantities
from fastllmload.cli.options.rules import validate_answers, validate_class, validate_user_behavior
from fastllmload.cli.options.sources import Fields, RawOption, RawOptions, from_table, parse_options, spread_rate
from fastllmload.cli.options.spellings import spell_out
from fastllmload.cli.options.table import SECTIONS, config_names
from fastllmload.endpoint import resolve_endpoint
from fastllmload.errors import InputError
from fastllmload.redact import secret_header
from fastllmload.settings import Load, RunSettings, TrafficClass, UserBehavior, Workload

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
MOST = 1000
SHARE_TOLERANCE = 1e-6  # of a sum of shares that are written with a few digits
EXAMPLE = '--class "chat rate=40 isl=512 goodput=ttft:200"'
OWN = (
    "rate", "rate_series", "arrival", "burstiness", "concurrency", "model", "models", "model_zipf", "model_order",
    "endpoint", "endpoint_type", "url", "header", "goodput",
)  # fmt: skip
RUN_WIDE = ("tokenizer", "counting", "context_limit")  # one run counts all answers alike
OF_OPEN_LOOPS = ("rate", "rate_series", "arrival", "burstiness")
REFUSED = {  # parameter: why a class cannot have its own, and what to do
    "max_concurrency": "one run has one cap on what is in flight; give --max-concurrency for the whole run",
    "max_prefill": "one run has one cap on what waits for a first token; give --max-prefill for the whole run",
    "unix_socket": "a class goes to the run's socket, or to a url=http://HOST:PORT of its own",
}
PLANS: tuple[tuple[str, type[Any]], ...] = (("load", Load), ("workload", Workload), ("behaviour", UserBehavior))


def allowed() -> set[str]:
    own = {option.parameter for name in ("Workload", "Users") for option in SECTIONS[name]
           if (option.field or "").partition(".")[2] not in RUN_WIDE}  # fmt: skip
    return own | set(OWN)


def class_tables(given: RawOption) -> list[Mapping[str, object]]:
    """One table per class, from `NAME key=value ...` or from TOML."""
    return [*(class_from_text(given.where, text) for text in given.texts), *given.tables]


def class_from_text(where: str, text: str) -> dict[str, object]:
    """Table of `chat rate=40 header='X-Priority: 1'`; a repeated key gets a list."""
    try:
        name, *words = shlex.split(text) or [""]
    except ValueError as problem:
        raise InputError(
            "class-invalid", f"{where} {text!r} cannot be read ({problem}); write for example {EXAMPLE}"
        ) from None
    table: dict[str, object] = {"name": name}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(
                "class-invalid", f"{where} {text!r} has {word!r} without a value; write for example {EXAMPLE}"
            )
        before = table.get(key)
        table[key] = (
            switch_value(key, value) if before is None else [*(before if isinstance(before, list) else [before]), value]
        )
    return table


def switch_value(key: str, value: str) -> object:
    """The value of a switch (`ignore-eos=false`) as a boolean, as in TOML; any other value unchanged."""
    option = config_names().get(key)
    if option is None or option[0].parse is not None:
        return value
    return {"true": True, "false": False}.get(value, value)


def with_classes(settings: RunSettings, raw_options: RawOptions, fields: Fields, seconds: float) -> RunSettings:
    """*settings* with the classes of *raw_options*; *fields* are those of the run."""
    if fields.get("load.concurrency") is not None:
        raise InputError(
            "class-load-invalid",
            "--concurrency does not go with --class, whose classes have loads of their own; give each class rate=RATE or "
            "concurrency=SLOTS",
        )
    tables = class_tables(raw_options["class"])
    if len(tables) > MOST:
        raise InputError("classes-too-many", f"--class is given {len(tables)} times; {MOST} classes are the most")
    found: list[TrafficClass] = []
    goodput = list(settings.output.goodput)
    for table in tables:
        one, objectives = one_class(table, settings, fields, seconds)
        if one.name in [other.name for other in found]:
            raise InputError("option-repeated", f"--class {one.name!r} is given twice; keep one")
        found.append(one)
        goodput += [(f"{one.name}/{name}", limit) for name, limit in objectives]
    _validate_shares(tables)
    if all(one.urls for one in found):
        for parameter in ("url", "unix_socket", "simulate"):
            if parameter in raw_options:
                raise InputError(
                    "url-unused",
                    f"every class has a URL of its own, so nothing goes to {raw_options[parameter].where}; leave it out",
                )
        settings = msgspec.structs.replace(
            settings, target=msgspec.structs.replace(settings.target, urls=found[0].urls)
        )
    slots = [one.load.concurrency for one in found if one.load.concurrency is not None]
    if slots and settings.load.max_concurrency is not None:
        raise InputError(
            "option-not-applicable",
            "--max-concurrency caps open loops, and a class with concurrency=SLOTS holds its own number in flight; leave "
            "--max-concurrency out",
        )
    rates = [one.load.rate for one in found]
    total = math.fsum(rate for rate in rates if rate is not None) or None
    closed = sum(slots) if len(slots) == len(found) else None  # where all are: then the run is a closed loop, too
    complete = msgspec.structs.replace(
        settings,
        classes=tuple(found),
        load=msgspec.structs.replace(settings.load, rate=total, rate_curve=None, concurrency=closed),
        output=msgspec.structs.replace(settings.output, goodput=tuple(goodput)),
    )
    validate_answers(raw_options, fields, complete)
    return complete


def replayed_urls(given: RawOption) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """URLs of the classes of a saved plan. The plan has everything else: InputError for any key but `url`."""
    found: dict[str, tuple[str, ...]] = {}
    for table in class_tables(given):
        rest = dict(table)
        name = rest.pop("name", None)
        mine = from_table(rest, f"--class {name}: ", f" of class {name}")
        other = [each for parameter, each in mine.items() if parameter != "url"]
        if other or "url" not in mine or not isinstance(name, str):
            what = f"{other[0].where} is" if other else "the rest of a class is"
            raise InputError(
                "option-prescribed",
                f"{what} part of the plan that --plan replays; write only the target: --class 'NAME url=URL'",
            )
        if name in found:
            raise InputError(
                "option-repeated", f"--class {name!r} is given twice; keep one, with several url= if need be"
            )
        found[name] = parse_options(mine)["target.urls"]
    return tuple(found.items())


def _validate_shares(tables: Sequence[Mapping[str, object]]) -> None:
    """InputError for shares that exceed 1, or that are all given and do not make 1: the run's rate would be another."""
    read = [quantities.share(str(table["share"])) for table in tables if "share" in table]
    shares = [share for share in read if share is not None]  # shared_rate() has refused what is not a share
    total = math.fsum(shares)
    if shares and (total > 1 + SHARE_TOLERANCE or (len(shares) == len(tables) and total < 1 - SHARE_TOLERANCE)):
        raise InputError(
            "class-share-invalid",
            f"the shares of the classes add up to {total:.6g} of the run's --rate; make them add up to 1",
        )


def one_class(
    table: Mapping[str, object], settings: RunSettings, run: Fields, seconds: float
) -> tuple[TrafficClass, Sequence[tuple[str, float]]]:
    rest = dict(table)
    name = rest.pop("name", None)
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InputError(
            "class-invalid",
            f"--class {name!r} is not a name; write letters, digits, _ . - first, for example {EXAMPLE}",
        )
    share = rest.pop("share", None)
    mine = from_table(rest, f"--class {name}: ", f" of class {name}")
    for parameter, given in mine.items():
        if parameter in REFUSED:
            raise InputError("option-not-applicable", f"{given.where} is refused: {REFUSED[parameter]}")
        if parameter not in allowed():
            raise InputError(
                "option-not-applicable", f"{given.where} cannot differ between classes; give it for the whole run"
            )
    own = parse_options(mine)
    _validate_closed(name, mine, share is not None)
    spell_out(own, mine, settings)
    spread_rate(mine, own, seconds)
    validate_user_behavior(mine, {field: run[field] for field in run if field.startswith(("target.", "client."))} | own)
    if share is not None:
        own["load.rate"] = shared_rate(name, share, mine, run)
    load = load_of(name, settings, own)
    headers = headers_of(name, own)
    if not resolve_endpoint(own.get("target.endpoint_type") or settings.target.endpoint_type).tokens:
        own["workload.osl"] = "1"  # no field of a body has it
    values = {group: values_of(group, settings, own) for group, _ in PLANS if group != "load"}
    models = own if "target.model" in own or "target.models" in own else run  # those of the run, unless it has its own
    several = models.get("target.models", ())
    one = TrafficClass(
        name=name, load=load, workload=Workload(**values["workload"]), behaviour=UserBehavior(**values["behaviour"]),
        model=several[0][0] if several else own.get("target.model"), models=several,
        model_zipf=models.get("target.model_zipf") if several else None,
        model_order=models.get("target.model_order", "random") if several else "random",
        endpoint_path=own.get("target.endpoint_path"), headers=headers,
        endpoint_type=own.get("target.endpoint_type"), urls=own.get("target.urls", ()),
    )  # fmt: skip
    validate_class(one, settings)
    objectives = own.get("output.goodput", ())
    for objective, _ in objectives:
        if "/" in objective:
            raise InputError(
                "option-not-applicable",
                f"goodput of class {name} names {objective!r}; write it without a class, it applies to {name}",
            )
    return one, objectives


def _validate_closed(name: str, mine: RawOptions, shares: bool) -> None:
    """InputError for a closed class that has something of an open one."""
    if "concurrency" not in mine:
        return
    given = [*("share" for _ in range(shares)), *(each.replace("_", "-") for each in OF_OPEN_LOOPS if each in mine)]
    if given:
        raise InputError(
            "class-load-invalid",
            f"class {name!r} has concurrency, which makes it a closed loop, and {given[0]}, which belongs to an open one; "
            "give one of the two",
        )


def values_of(group: str, settings: RunSettings, own: Fields) -> dict[str, Any]:
    """The run's settings of *group*, overridden by those of the class."""
    found: dict[str, Any] = msgspec.structs.asdict(getattr(settings, group))
    for field, value in own.items():
        if field.startswith(f"{group}."):
            found[field.removeprefix(f"{group}.")] = value
    return found


def load_of(name: str, settings: RunSettings, own: Fields) -> Load:
    """The run's load with the class's rate, arrival process and count, or its slots; the duration is the run's."""
    from fastllmload.cli.options.parsers import TRACES

    unset: Fields = {"load.rate": None, "load.rate_curve": None, "load.num_requests": None}
    load = Load(**values_of("load", settings, unset | own))
    workload = own.get("workload.name", settings.workload.name)
    if load.concurrency is not None:
        _validate_end(name, settings)
        return load
    if load.rate is None and workload not in TRACES:
        raise InputError(
            "load-missing",
            f"class {name!r} has no load; add rate=RATE, share=SHARE of the run's --rate, or concurrency=SLOTS",
        )
    if load.rate == math.inf:
        raise InputError("class-load-invalid", f"class {name!r} cannot send all at once; give it a rate")
    return load


def _validate_end(name: str, settings: RunSettings) -> None:
    """InputError where closed class *name* would not end with the run's --duration."""
    if settings.load.num_requests is not None:
        raise InputError(
            "class-load-invalid",
            f"--num-requests counts the arrivals of all classes together, and class {name!r} has slots instead of "
            "arrivals; give --duration",
        )
    if settings.load.duration is None:
        raise InputError(
            "run-without-end", f"class {name!r} sends again whenever a slot is free, without end; give --duration"
        )


def shared_rate(name: str, share: object, mine: RawOptions, run: Fields) -> float:
    """The class's part of the run's --rate. Independent Poisson processes add up to one of the summed rate."""
    rate = run.get("load.rate")
    part = quantities.share(str(share))
    if part is None or not 0 < part <= 1:
        raise InputError(
            "class-share-invalid",
            f"share of class {name} is {share!r}; write a part of the run's rate, such as 0.3 or 30%",
        )
    if "rate" in mine or "rate_series" in mine:
        raise InputError("class-share-invalid", f"class {name!r} has a rate and a share of the run's; give one")
    if not isinstance(rate, float) or math.isinf(rate) or run.get("load.rate_curve") is not None:
        raise InputError(
            "class-share-invalid",
            f"share of class {name} is a part of the run's --rate; give a --rate that does not change",
        )
    return part * rate


def headers_of(name: str, own: Fields) -> tuple[tuple[str, str], ...]:
    """The class's headers. InputError for a credential, since a plan stores the headers of its classes."""
    headers: tuple[tuple[str, str], ...] = own.get("target.headers", ())
    for header, _ in headers:
        if secret_header(header):
            raise InputError(
                "credential-exposed",
                f"header {header} of class {name} is a credential; give it to the whole run with -H",
            )
    return headers
