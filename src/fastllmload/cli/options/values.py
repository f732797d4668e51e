"""Parses the texts of the given options to fields of the settings, and derives the fields that follow from others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastllmload.cli.options.sources import RawOption, RawOptions
from fastllmload.cli.options.table import RunOption
from fastllmload.errors import InputError, value_code

Fields = dict[str, object]  # "load.rate" -> value


def parse_options(raw_options: RawOptions) -> Fields:
    """The fields of the settings that *raw_options* set. InputError names the option and its value."""
    fields: Fields = {}
    setter: dict[str, RawOption] = {}
    for parameter, given in raw_options.items():
        if parameter in ("config", "api_key", "api_key_file", "class"):
            continue
        for field, found in _parse_option(given).items():
            if field in fields and fields[field] != found:
                where = setter[field].where
                raise InputError("options-conflict", f"{where} and {given.where} contradict each other; give one")
            fields[field], setter[field] = found, given
    return fields


def _parse_option(given: RawOption) -> Fields:
    option = given.option
    if option.parse is None:
        value = option.on if given.state is True else option.off
        return {} if option.field is None or value is None else {option.field: value}
    texts = _split_words(given) if option.words else given.texts
    values = tuple(_parse_text(given, text) for text in texts)
    if option.field is None:
        (value,) = values
        assert isinstance(value, dict)  # a parser without a field returns fields
        return value
    return {option.field: values if option.multiple else values[0]}


def _split_words(given: RawOption) -> tuple[str, ...]:
    """`"ttft:200 tpot:50"` and `ttft:200,tpot:50` are several objectives; labels may contain blanks and commas."""
    if given.option.name != "goodput":
        return given.texts
    return tuple(word for text in given.texts for word in text.replace(",", " ").split()) or ("",)


def _parse_text(given: RawOption, text: str) -> object:
    assert given.option.parse is not None
    try:
        return given.option.parse(text)
    except ValueError as error:
        raise InputError(value_code(error), f"{given.where} {text!r} {error}") from None


def read_own(raw_options: RawOptions, own: Sequence[RunOption]) -> dict[str, Any]:
    """The fields of a command's *own* options, which are taken out of *raw_options*."""
    given = {option.parameter: raw_options.pop(option.parameter) for option in own if option.parameter in raw_options}
    return dict(parse_options(given))


def choose_sensor(raw_options: RawOptions, fields: Fields) -> None:
    """The power sensor that an option of one sensor implies."""
    if "power_command" in raw_options:
        fields.setdefault("telemetry.power", "command")
    if "gpu_index" in raw_options and fields.get("telemetry.power", "auto") == "auto":
        fields["telemetry.power"] = "nvml"


def spread_rate(raw_options: RawOptions, fields: Fields, default_seconds: float) -> None:
    """Set `load.rate` to the mean of a changing rate, for all uses that need one number."""
    _join_ramp(raw_options, fields)
    written = fields.get("load.rate_curve")
    if not isinstance(written, str):
        return
    for parameter in ("rate", "rate_series"):
        if parameter in raw_options and "load.rate" in fields:
            where = raw_options[parameter].where
            raise InputError("options-conflict", f"{where} and a rate that changes are both given; give one")
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
