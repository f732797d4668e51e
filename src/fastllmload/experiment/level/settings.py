"""Settings of one level, made from those that all levels share."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from fastllmload.engine.public_settings import redactor, told
from fastllmload.settings import RunSettings

NOT_THE_LEVELS_OWN = ("directory", "ui", "strict", "metadata", "save_plan")  # of the output group


def changed(settings: RunSettings, **groups: dict[str, Any]) -> RunSettings:
    """*settings* with fields replaced: `changed(s, load={"rate": 5.0}, workload={"osl": "256"})`."""
    replaced = {
        group: msgspec.structs.replace(getattr(settings, group), **fields) for group, fields in groups.items() if fields
    }
    return msgspec.structs.replace(settings, **replaced)


def at_rate(settings: RunSettings, rate: float, **load: Any) -> RunSettings:
    """Open loop at *rate* requests/s."""
    return changed(settings, load={"concurrency": None, "rate": rate, **load})


def at_concurrency(settings: RunSettings, slots: int, **load: Any) -> RunSettings:
    """Closed loop of *slots*."""
    return changed(settings, load={"rate": None, "rate_curve": None, "concurrency": slots, **load})


def at_load(settings: RunSettings, value: float, closed: bool, **load: Any) -> RunSettings:
    """Either loop; *value* is requests/s or slots."""
    return at_concurrency(settings, round(value), **load) if closed else at_rate(settings, value, **load)


RERUN = 1_000  # from one arrival sequence of a level to the next: below it, `--runs` and `--repetition` count


def instants(settings: RunSettings, rerun: int) -> int:
    """The repetition that gives a level its arrival instants when it is measured again inside one run of a test:
    none that another run of the test has (procedures.md 0.13).
    """
    return settings.load.repetition + RERUN * rerun


def own_requests(settings: RunSettings, load: float, repetition: int = 0) -> RunSettings:
    """Requests from a stream of the seed that only this load and repetition have: a prefix cache that saw the prompts
    of an earlier level cannot answer these. The same load in another state of the system gets the same requests.
    """
    loop = "slots" if settings.load.concurrency is not None else "rate"
    stream = "/".join(filter(None, (settings.workload.stream, f"{loop}/{load:.9g}/{repetition}")))
    return changed(settings, workload={"stream": stream})


def digest(settings: RunSettings, state: tuple[str, ...] = ()) -> str:
    """Of what a level measures: all settings but credentials and where its files go, and the *state* that the system was
    put in.
    """
    asked = told(settings, redactor(settings, None))
    for name in NOT_THE_LEVELS_OWN:
        asked["output"].pop(name)
    text = msgspec.json.encode([asked, state], order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]
