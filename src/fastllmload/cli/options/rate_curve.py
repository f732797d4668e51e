"""Converts the options for a rate that changes with time to the fields of a run."""

from __future__ import annotations

from fastllmload.cli.options.raw import RawOptions
from fastllmload.errors import InputError

Fields = dict[str, object]  # "load.rate" -> value


def spread_rate(raw_options: RawOptions, fields: Fields, default_seconds: float) -> None:
    """Set `load.rate` to the mean of a changing rate, for all uses that need one number."""
    _join_ramp(raw_options, fields)
    written = fields.get("load.rate_curve")
    if not isinstance(written, str):
        return
    for parameter in ("rate", "rate_series"):
        if parameter in raw_options and "load.rate" in fields:
            raise InputError(
                "options-conflict", f"{raw_options[parameter].where} and a rate that changes are both given; give one"
            )
    if "concurrency" in raw_options:
        raise InputError(
            "options-conflict", "--concurrency (closed loop) has no rate that could change; give one of the two"
        )
    from fastllmload.arrivals.curve import mean_rate
    from fastllmload.arrivals.curve_text import read_curve

    seconds = fields.get("load.duration")
    if seconds is None and "num_requests" not in raw_options:
        seconds = default_seconds
    curve = read_curve(written, seconds if isinstance(seconds, float) else None)
    fields["load.rate"] = mean_rate(curve, seconds if isinstance(seconds, float) else curve.seconds)
    if fields["load.rate"] == 0:
        raise InputError("schedule-empty", f"--rate {written} sends nothing within --duration {seconds:g} s")


def _join_ramp(raw_options: RawOptions, fields: Fields) -> None:
    """Convert vLLM's three ramp options to a rate curve."""
    strategy, start, end = (fields.pop(f"load.ramp_{name}", None) for name in ("strategy", "start", "end"))
    if fields.get("load.arrival") == "ramp":
        del fields["load.arrival"]
        given = ["arrival"]
    else:
        given = [name for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps") if name in raw_options]
    if not given:
        return
    if start is None or end is None:
        asked = "--arrival ramp" if given == ["arrival"] else raw_options[given[0]].where
        raise InputError("option-missing", f"{asked} needs both --ramp-up-start-rps and --ramp-up-end-rps")
    if "rate" in raw_options or "rate_series" in raw_options:
        raise InputError("options-conflict", "--rate and a ramp from --ramp-up-start-rps are both given; give one")
    fields["load.rate_curve"] = f"{'exponential' if strategy == 'exponential' else 'ramp'}:{start:g},{end:g}"
