"""The declarations of a procedure: written before the first request, missing ones asked for at once (IETF 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastllmload.declarations import Declaration, complaints, facts_of, missing, of_simulated_engine
from fastllmload.errors import InputError
from fastllmload.redact import Redactor, url_secrets
from fastllmload.settings import RunSettings


def declared(settings: RunSettings, simulated: bool) -> dict[str, str]:
    """What is declared: by options, by `--declare`, and by us of our own simulated engine."""
    found = dict(of_simulated_engine()) if simulated else {}
    if settings.output.gpus is not None:
        found["sut.hardware.count"] = str(settings.output.gpus)
    return found | dict(settings.output.declare)


def facts(settings: RunSettings) -> dict[str, str]:
    """What the run shows by itself and conditions of declarations are read from."""
    return facts_of(settings)


def complete(
    settings: RunSettings,
    test: str,
    simulated: bool,
    conforming: bool,
    ask: Callable[[str], str] | None,
    earlier: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The manifest of *test*.

    What was answered at an *earlier* start need not be said again. What is missing then is asked of the operator through
    *ask*, or all listed in one InputError; a procedure that need not be *conforming* goes on without.
    """
    found = declared(settings, simulated)
    wrong = complaints(found)
    if wrong:
        raise InputError("; ".join(wrong))
    found = {**(earlier or {}), **found}
    lacking = missing({**facts(settings), **found}, test)
    if lacking and ask is not None:
        asked_of_operator(lacking, ask, found)
        lacking = missing({**facts(settings), **found}, test)
    if lacking and conforming:
        raise InputError(refusal(test, lacking))
    return found


def asked_of_operator(lacking: list[Declaration], ask: Callable[[str], str], found: dict[str, str]) -> None:
    """One question each, into *found*. An empty answer leaves it undeclared, the end of the input leaves all that follow;
    an answer that is none of the words allowed is asked for again.
    """
    for each in lacking:
        question = f"{each.key}: {each.explanation}\n  {choice(each)}: "
        try:
            while wrong := complaints({each.key: answer} if (answer := ask(question).strip()) else {}):
                question = f"  {wrong[0].removeprefix('--declare ')}; once more: "
        except EOFError:
            return
        if answer:
            found[each.key] = answer


def choice(each: Declaration) -> str:
    """What may be answered: `model_engine, application_gateway or compound_system`; `for example fp8`."""
    return f"{', '.join(each.values[:-1])} or {each.values[-1]}" if each.values else f"for example {each.example}"


def refusal(test: str, lacking: list[Declaration]) -> str:
    """All of them in one go, each with the option that sets it."""
    lines = "".join(f"\n  {each.remedy}\n      {each.explanation}" for each in lacking)
    return (
        f"the test {test!r} needs {len(lacking)} more declaration{'s' if len(lacking) > 1 else ''} before its first "
        f"request (or --allow-nonconforming):{lines}"
    )


def entry(settings: RunSettings, declarations: Mapping[str, str], simulated: bool) -> dict[str, Any]:
    """procedure.json "manifest"."""
    return {
        "declarations": dict(declarations),
        "simulated": simulated,
        "workload": settings.workload.name,
        "seed": settings.client.seed,
        "tokenizer": settings.workload.tokenizer,
        "streaming": settings.workload.streaming,
        "endpoint_type": settings.target.endpoint_type,
        "urls": [Redactor(url_secrets(url))(url) for url in settings.target.urls],
        "goodput": [list(pair) for pair in settings.output.goodput],
    }
