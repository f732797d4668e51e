"""Settings of one level, derived from those that all levels share."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from fastllmload.engine.public_settings import public_values, redactor
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
    return changed(settings, load={"concurrency": None, "concurrency_curve": None, "rate": rate, **load})


def at_concurrency(settings: RunSettings, slots: int, **load: Any) -> RunSettings:
    """Closed loop of *slots*."""
    return changed(
        settings, load={"rate": None, "rate_curve": None, "concurrency": slots, "concurrency_curve": None, **load}
    )


def at_load(settings: RunSettings, value: float, closed: bool, **load: Any) -> RunSettings:
    """Either loop; *value* is requests/s or slots."""
    return at_concurrency(settings, round(value), **load) if closed else at_rate(settings, value, **load)


RERUN = 1_000  # step between the arrival sequences of a level; `--runs` and `--repetition` use the numbers below


def instants(settings: RunSettings, rerun: int) -> int:
    """Repetition number for the arrival instants of a level that is measured again within one run of a test. No other run
    of the test uses it (spec/procedures 0.13).
    """
    return settings.load.repetition + RERUN * rerun


def own_requests(settings: RunSettings, load: float, repetition: int = 0) -> RunSettings:
    """*settings* with requests from a seed stream of this load and repetition, so that prompts of an earlier level in a
    prefix cache do not help. The same load in another state of the system gets the same requests.
    """
    loop = "slots" if settings.load.concurrency is not None else "rate"
    stream = "/".join(filter(None, (settings.workload.stream, f"{loop}/{load:.9g}/{repetition}")))
    return changed(settings, workload={"stream": stream})


def digest(settings: RunSettings, state: tuple[str, ...] = ()) -> str:
    """Digest of what a level measures: all settings except credentials and output paths, and the prepared *state* of the
    system.
    """
    asked = public_values(settings, redactor(settings, None), NOT_THE_LEVELS_OWN)
    text = msgspec.json.encode([asked, state], order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]
