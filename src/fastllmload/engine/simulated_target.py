"""The simulated engine that a run without a target starts by itself, and its options: `--simulate NAME=VALUE`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from fastllmload.errors import InputError
from fastllmload.settings import RunSettings, Target, TrafficClass
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import REPEATED, SimulatorOptions, numbered, resolve

OWN = {
    "host",
    "port",
    "unix_socket",
    "api_key",
    "die_with_parent",
    "faults",
    "overrides",
    "logged",
    "routed_by",
    "more_models",
}  # not for the user to set
FIELDS = sorted(set(SimulatorOptions.__struct_fields__) - OWN)


def needs_engine(target: Target) -> bool:
    return not target.urls and target.unix_socket is None


@contextlib.contextmanager
def simulated_target(
    target: Target, running: SimulatorProcess | None = None, classes: Sequence[TrafficClass] = ()
) -> Iterator[tuple[tuple[str, ...], SimulatorProcess | None]]:
    """The run's URLs; without any, that of the *running* simulated engine, or of one that lives as long as the run."""
    if not needs_engine(target):
        yield target.urls or ("http://localhost",), None
        return
    if running is not None:
        yield (running.url,), running
        return
    with SimulatorProcess(engine_options(target, classes)) as simulator:
        try:
            yield (simulator.url,), simulator
        finally:
            simulator.ending()  # if it ended early, the run has reported that already; this is not a further failure


def check_engine_options(settings: RunSettings) -> None:
    """InputError when the run would start a simulated engine with invalid options; raised before anything is written."""
    if needs_engine(settings.target):
        resolve(engine_options(settings.target, settings.classes))


def engine_options(target: Target, classes: Sequence[TrafficClass] = ()) -> SimulatorOptions:
    """Those of `--simulate`; the engine also serves the models of `-m`, of `--models` and of *classes* without own URLs."""
    options = options_of(target.simulate)
    own = [one for one in classes if not one.urls]
    named = [*(name for name, _ in target.models), *(name for one in own for name, _ in one.models)]
    named += [name for name in (target.model, *(one.model for one in own)) if name is not None]
    more = tuple(name for name in dict.fromkeys(named) if name != options.model)
    return msgspec.structs.replace(options, more_models=more) if more else options


def options_of(pairs: Sequence[tuple[str, str]]) -> SimulatorOptions:
    """Options parsed from texts; names as of `simulate`, or `set.FIELD`. InputError for an unknown or wrong one."""
    values: dict[str, object] = {}
    repeated: dict[str, list[str]] = {}
    overrides: list[tuple[str, str]] = []
    for name, text in pairs:
        field = name.replace("-", "_")
        if field in REPEATED:
            repeated.setdefault(REPEATED[field], []).append(text)
        elif name.startswith("set."):
            overrides.append((name.removeprefix("set."), text))
        elif field in FIELDS:
            values[field] = text if text not in ("true", "false") else text == "true"
        else:
            raise InputError(
                "simulator-option-unknown",
                f"--simulate {name}={text}: the simulated engine has no option {name!r}; it has {', '.join(FIELDS)}, "
                "fault, log, route-by, and set.FIELD for a field of its profile",
            )
    values |= {field: tuple(texts) for field, texts in repeated.items()}
    if overrides:
        values["overrides"] = tuple(overrides)
    try:
        return msgspec.convert(numbered(values, SimulatorOptions), SimulatorOptions, strict=False)
    except msgspec.ValidationError as problem:
        raise InputError("simulator-option-invalid", f"--simulate: {problem}") from None
