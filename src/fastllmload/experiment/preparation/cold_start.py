"""Cold start (IETF 4.5.3, spec/procedures 0.8): the server is restarted and measured without warm-up or probe.

Model load time lasts from the start of the restart hook to the first query that the server answers. Cold start latency is
the TTFT of the first request after that. Only the test of TTFT supports a cold start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fastllmload.compliance.applies import number
from fastllmload.documents.experiment import ColdStart, HookEntry
from fastllmload.errors import InputError
from fastllmload.experiment.level.result import Level
from fastllmload.metrics.run.cold_start import declared_cold

RESTART, TEST, LOAD_TIME = "restart", "ttft", "sut.load_time_s"


def refuse(test: str, declarations: Mapping[str, str], can_restart: bool) -> None:
    """InputError if a test other than that of TTFT is to start cold, or if the model load time cannot be known."""
    if not declared_cold(declarations):
        return
    if test != TEST:
        raise InputError(
            "option-not-applicable",
            f"--declare cold_start=yes: only the test {TEST} measures a cold start; the test {test} needs a warm system "
            "(IETF 4.5.1), leave the declaration out",
        )
    if not can_restart and LOAD_TIME not in declarations:
        raise InputError(
            "hook-missing",
            f"--declare cold_start=yes needs a restart of the server: --hook {RESTART}=COMMAND, which also measures how "
            f"long the model takes to load; or run it in a terminal and confirm; or, if you have just restarted it by hand, "
            f"--declare {LOAD_TIME}=SECONDS",
        )
    if LOAD_TIME in declarations and declared_seconds(declarations) is None:
        raise InputError(
            "declaration-invalid",
            f"--declare {LOAD_TIME}={declarations[LOAD_TIME]}: not a number of seconds; write it as {LOAD_TIME}=93",
        )


def declared_seconds(declarations: Mapping[str, str]) -> float | None:
    """The declared load time; None if its text does not begin with a number of seconds."""
    seconds = number(declarations[LOAD_TIME])
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def entry(declarations: Mapping[str, str], steps: Sequence[HookEntry], levels: Sequence[Level]) -> ColdStart:
    """procedure.json "cold_start": both metrics, null if unknown."""
    restarts = [step for step in steps if step.name == RESTART]
    loading: float | None = None
    if restarts:
        loading = (restarts[-1].seconds or 0.0) + (restarts[-1].ready_after_s or 0.0)
    elif LOAD_TIME in declarations:
        loading = declared_seconds(declarations)
    first = levels[0].figure("cold_start_latency") if levels else None
    return ColdStart(model_load_time_s=loading, cold_start_latency_ms=first)


def sentence(found: ColdStart) -> str:
    """`cold start: the model was loaded in 12.3 s, the first token came after 345 ms`."""
    loading, first = found.model_load_time_s, found.cold_start_latency_ms
    unknown = "how long the model took to load is not known"
    loaded = unknown if loading is None else f"the model was loaded in {loading:,.4g} s"
    came = "no first token came" if first is None else f"the first token came after {first:,.4g} ms"
    return f"cold start: {loaded}, {came}"
