"""The declarations of a procedure: complete before the first request, or listed as missing in one error (IETF 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastllmload.declarations import Declaration, declaration_problems, facts_of, missing, simulated_declarations
from fastllmload.documents.experiment import Manifest
from fastllmload.endpoint import shown
from fastllmload.engine.simulated_target import needs_engine
from fastllmload.errors import InputError
from fastllmload.redact import Redactor, url_secrets
from fastllmload.settings import RunSettings


def declared(settings: RunSettings) -> dict[str, str]:
    """Declarations made by options, by `--declare`, and by fastllmload for its simulated engine."""
    found = dict(simulated_declarations()) if needs_engine(settings.target) else {}
    if settings.output.gpus is not None:
        found["sut.hardware.count"] = str(settings.output.gpus)
    return found | dict(settings.output.declare)


def complete(
    settings: RunSettings,
    test: str,
    conforming: bool,
    ask: Callable[[str], str] | None,
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """The manifest of *test*.

    Answers given at an *earlier* start are kept. The operator is asked for missing declarations through *ask*. Those that
    are still missing are listed in one InputError if the procedure must be *conforming*, else left out.
    """
    found = declared(settings)
    wrong = declaration_problems(found)
    if wrong:
        raise InputError("declaration-invalid", "; ".join(wrong))
    found = {**earlier, **found}
    open_ones = missing({**facts_of(settings), **found}, test)
    if open_ones and ask is not None:
        ask_operator(open_ones, ask, found)
        open_ones = missing({**facts_of(settings), **found}, test)
    if open_ones and conforming:
        raise InputError("declaration-missing", missing_text(test, open_ones))
    return found


def ask_operator(open_ones: list[Declaration], ask: Callable[[str], str], found: dict[str, str]) -> None:
    """Ask for each declaration and store the answer in *found*. An empty answer leaves it undeclared, the end of the input
    leaves all that follow undeclared; a value that is not allowed is asked for again.
    """
    for each in open_ones:
        question = f"{each.key}: {each.explanation}\n  {allowed_answers(each)}: "
        try:
            while wrong := declaration_problems({each.key: answer} if (answer := ask(question).strip()) else {}):
                question = f"  {wrong[0].removeprefix('--declare ')}; try again: "
        except EOFError:
            return
        if answer:
            found[each.key] = answer


def allowed_answers(each: Declaration) -> str:
    """`model_engine, application_gateway or compound_system`; `for example fp8`."""
    return f"{', '.join(each.values[:-1])} or {each.values[-1]}" if each.values else f"for example {each.example}"


def missing_text(test: str, open_ones: list[Declaration]) -> str:
    """The error message: every missing declaration with the option that sets it."""
    lines = "".join(f"\n  {each.remedy}\n      {each.explanation}" for each in open_ones)
    return (
        f"the test {test!r} needs {len(open_ones)} more declaration{'s' if len(open_ones) > 1 else ''} before its first "
        f"request (or --allow-nonconforming):{lines}"
    )


def manifest_of(settings: RunSettings, declarations: Mapping[str, str]) -> Manifest:
    """procedure.json "manifest"."""
    return Manifest(
        declarations=dict(declarations),
        simulated=needs_engine(settings.target),
        workload=settings.workload.name,
        seed=settings.client.seed,
        tokenizer=settings.workload.tokenizer,
        streaming=settings.workload.streaming,
        endpoint_type=shown(settings.target.endpoint_type),
        urls=tuple(Redactor(url_secrets(url))(url) for url in settings.target.urls),
        goodput=settings.output.goodput,
    )
