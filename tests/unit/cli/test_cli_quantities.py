"""Every option and file reads quantities alike: equal amounts in different units give equal values.

The commands of click and the fields of RunSettings are walked, so that a new option fails here until it is listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.curve import read_curve
from fastllmload.cli.commands import overhead, quick, search, sweep
from fastllmload.cli.main import fastllmload
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options import procedure
from fastllmload.cli.options.table import ENDPOINT_TYPE, OPTIONS, RunOption
from fastllmload.compare.gate import parse_gate
from fastllmload.engine.simulated_target import options_of
from fastllmload.search.objective_text import read_objective
from fastllmload.settings import RunSettings
from fastllmload.simulator import __main__ as simulator
from fastllmload.simulator.profile import load_profile
from fastllmload.workload import user_behavior as behavior
from fastllmload.workload.dataset import read_dataset
from fastllmload.workload.dialogues import read_dialogues
from fastllmload.workload.graph import read_longest_waits
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.trace import read_trace

Pairs = tuple[tuple[str, str], ...]
DURATIONS: Pairs = (
    ("1d", "24h"),
    ("24h", "1440m"),
    ("90", "1.5m"),
    ("90s", "1.5min"),
    ("2", "2000ms"),
    ("2s", "2e6us"),
)
COUNTS: Pairs = (("1k", "1000"), ("2K", "2e3"))
SHARES: Pairs = (("10%", "0.1"), ("5 %", ".05"))
# Parser: pairs of texts of the same amount. A parser that returns its text is followed by the reader of that text.
SAME: dict[Callable[[str], Any], Pairs] = {
    read.seconds: DURATIONS,
    read.interval: (("1h", "60m"), ("200ms", "0.2")),
    procedure.pause: (*DURATIONS, ("0", "none"), ("0ms", "0")),
    read.metric_percentiles: (("99,50", "50.0,99"), ("99.9", "99.90")),
    read.moment: (*DURATIONS, ("0", "0s")),
    read.milliseconds: (("1d", "24h"), ("50", "50ms"), ("0.05s", "50")),
    read.prefill_deadline: (("1k:50", "1000:0.05s"), ("100", "100ms")),
    read.pause: (*DURATIONS, ("uniform:1s,1d", "uniform:1000ms,24h"), ("exponential:1m", "exponential:60")),
    read.longest_waits: (*DURATIONS, ("user=1m,tool=90", "user=60s,tool=1.5m")),
    read.cancel_after: (("1d", "24h"), ("10ktok", "10000tok")),
    read.slow_readers: (("5%:20tok/s", "0.05:20tok/s"), ("0.05:2kB/s", "0.05:2000B/s"), ("5%:1KiB/s", "5%:1024B/s")),
    read.abandon: (("ttft:1d", "ttft:24h"), ("e2e:5", "e2e:5s")),
    read.warmup: (("1d", "24h"), ("1k", "1000"), ("1ktok,2m", "1000tok,120s")),
    read.objective: (("ttft:1m", "ttft:60s"), ("ttft:200", "ttft:0.2s"), ("fluidity:90%", "fluidity:0.9"),
                     ("reading:1k", "reading:1000tok/s")),
    read.rate: COUNTS,
    read.rate_or_curve: (*COUNTS, ("day:1,1k,1d", "day:1,1000,24h"), ("steps:1x1m", "steps:1x60"),
                         ("spikes:1,2,1m,1s", "spikes:1,2,60,1000ms"), ("ramp:1,2,1h", "ramp:1,2,3600")),
    read.arrival: (("onoff:1d,1s", "onoff:24h,1000ms"),),
    read.count: COUNTS,
    read.count_or_curve: COUNTS,
    read.count_from_zero: COUNTS,
    read.workers: COUNTS,
    read.positive: COUNTS,
    read.speed: COUNTS,
    read.temperature: (("1k", "1000"),),
    read.probability: (*SHARES, ("100%", "1")),
    read.range_ratio: (*SHARES, ('{"input": "10%", "output": 0}', '{"output": 0.0, "input": 0.1}')),
    read.top_k: COUNTS,
    read.exponent: (("1e0", "1"),),
    read.lengths: (*COUNTS, ("uniform:1k,2k", "uniform:1000,2000")),
    read.turns: (("1k", "1000"),),
    read.share: SHARES,
    read.factor: (*SHARES, ("110%", "1.1")),
    read.token_rate: (*COUNTS, ("20tok/s", "20"), ("1ktok/s", "1000 tokens/s")),
    read.part: (*SHARES, ("100%", "1")),
    procedure.count_of_runs: (("1e1", "10"),),
    procedure.factors: (("25%,110%", "0.25,1.1"),),
    procedure.counts: (("1k,2", "1000,2"),),
    search.width: (("5%", "5 %"), ("1k", "1000")),
    search.trial_count: (("3", "3e0"),),
    search.levels: (("12", "1.2e1"),),
    overhead.pair_count: (("12", "1.2e1"),),
    search.confidence: (("95%", "0.95"),),
}  # fmt: skip
SPECIFIC: dict[str, Pairs] = {"objective": (("attainment:90%", "attainment:0.9"),)}  # options of free text
READERS: dict[Callable[[str], Any], Callable[[str], Any]] = {
    read.pause: behavior.read_pause,
    read.cancel_after: behavior.read_cancel_after,
    read.slow_readers: behavior.read_slow_readers,
    read.abandon: behavior.read_abandon,
    read.rate_or_curve: lambda found: found if "load.rate" in found else read_curve(found["load.rate_curve"], 100.0),
    read.arrival: lambda text: choose_arrivals(text, 5.0),
    read.lengths: lambda text: parse_lengths(text, ""),
    read.longest_waits: read_longest_waits,
    read.turns: lambda text: parse_lengths(text, ""),
}
# Parsers of texts without quantities: names, paths, addresses, lists of numbers of CPUs, sides of images in pixels.
TEXTS = {
    read.axis, read.between, read.columns, read.cpus, read.gpus, read.header, read.hook, read.images, read.json_object,
    read.length_bounds, read.listen, read.matchers, read.metric, read.models, read.page, read.pair, read.path, read.penalty,
    read.percentile_metrics, read.port, read.prompt, read.rate_series, ENDPOINT_TYPE, read.ray_address, read.read_header,
    read.session_end, read.session_field, read.session_header, read.session_start, read.session_token, read.text,
    read.url, read.url_path,
}  # fmt: skip
# Options of click's own types that take a number which is not a quantity.
NUMBERS = {
    "--port",
    "--processes",
    "--coalesce",
    "--seed",
    "--cpu",
    "--die-with-parent",
    "--http2-streams",
    "--backends",
}
OWN_OPTIONS = (
    *search.OWN,
    *search.GENERAL,
    *sweep.OWN,
    *overhead.OWN,
    *quick.OWN,
    *procedure.COMMON,
    *sum(procedure.TESTS.values(), ()),
)
ALL = (*OPTIONS, *OWN_OPTIONS)
# Fields of RunSettings that no option sets with a text of its own.
DERIVED = {"load.warmup_requests", "load.warmup_tokens", "load.warmup_seconds", "load.rate", "load.rate_curve",
           "load.concurrency", "load.concurrency_curve",
           "workload.prompt", "workload.least_output", "workload.salt", "workload.stream", "workload.prefix_stream",
           "output.plan_urls"}  # fmt: skip


def choices(parser: Callable[[str], Any] | None) -> bool:
    """Whether *parser* accepts a fixed set of names."""
    return parser is None or getattr(parser, "__qualname__", "").startswith("one_of.")


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, (*path, name))
    else:
        yield path, group


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.flag)
def test_every_option_is_known_to_take_a_quantity_or_a_text(option: RunOption) -> None:
    assert choices(option.parse) or option.parse in SAME or option.parse in TEXTS


@pytest.mark.parametrize(
    ("option", "one", "other"),
    [
        (option, *pair)
        for option in ALL
        for pair in (*SAME.get(option.parse or read.text, ()), *SPECIFIC.get(option.name, ()))
    ],
    ids=lambda value: value.flag if isinstance(value, RunOption) else value,
)
def test_equal_amounts_give_equal_values(option: RunOption, one: str, other: str) -> None:
    parse = option.parse
    assert parse is not None
    reader = READERS.get(parse, lambda found: found)
    if option.name in SPECIFIC:
        reader = objective
    assert reader(parse(one)) == reader(parse(other))


def objective(text: str) -> str:
    """The sentence of a search's objective, which names its share."""
    return read_objective(text, (("ttft", 200.0),), float, closed=False).sentence


def test_every_option_of_every_command_is_in_the_tables() -> None:
    """An option outside of them has a type of click: a choice, a file, a switch, a text or one of NUMBERS."""
    known = {flag for option in ALL for flag in (*option.flags, option.off_flag)}
    plain = (click.Choice, click.Path, click.types.StringParamType, click.types.BoolParamType)
    quantities = (simulator.Milliseconds, simulator.Bytes)
    strange = [
        f"{' '.join(path)} {parameter.opts[0]}"
        for path, command in commands(fastllmload)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not set(parameter.opts) <= known
        if not isinstance(parameter.type, (*plain, *quantities)) and parameter.opts[0] not in NUMBERS
    ]
    assert strange == []


def test_every_number_of_the_settings_is_set_by_an_option() -> None:
    """So that no field has a reader of its own apart from the tables."""
    fields = {option.field for option in OPTIONS if option.field is not None}
    numbers = {
        f"{group.name}.{field.name}"
        for group in msgspec.structs.fields(RunSettings)
        if isinstance(group.type, type) and issubclass(group.type, msgspec.Struct)
        for field in msgspec.structs.fields(group.type)
        if field.type is not bool
    }
    assert numbers - fields - DERIVED == set()


def test_a_config_file_and_the_command_line_use_the_same_parsers() -> None:
    """Texts and numbers of TOML reach the parser of the option as text."""
    from fastllmload.cli.options.sources import from_table

    table = {"duration": "1d", "rate": 5, "timeout": 1.5, "cancel-share": "10%"}
    given = from_table(table, "", "")
    assert [each.option.parse(each.texts[0]) for each in given.values()] == [86_400, {"load.rate": 5}, 1.5, 0.1]


@pytest.mark.parametrize(("one", "other"), DURATIONS)
def test_a_rate_series_and_a_trace_take_the_same_times(tmp_path: Path, one: str, other: str) -> None:
    files = [tmp_path / "one.csv", tmp_path / "other.csv"]
    for path, text in zip(files, (one, other), strict=True):
        path.write_text(f"0,1\n{text},5\n")
    assert read_curve(f"series:{files[0]}", 1.0) == read_curve(f"series:{files[1]}", 1.0)
    for path, text in zip(files, (one, other), strict=True):
        path.write_text(f"timestamp,input,output\n0,5,5\n{text},5,5\n")
    first, second = (read_trace("trace", path) for path in files)
    assert list(first.t_ns) == list(second.t_ns) and first.t_ns[1] > 0


@pytest.mark.parametrize(("one", "other"), DURATIONS)
def test_the_delays_of_a_data_set_take_the_same_times(tmp_path: Path, one: str, other: str) -> None:
    path = tmp_path / "conversations.jsonl"
    delays = [0, one, other]
    lines = [
        {"session": 1, "prompt": "p", "output_tokens": 3, **({"delay": each} if n else {})}
        for n, each in enumerate(delays)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (turns,) = read_dialogues("custom", path).entries
    assert turns[1].delay_s == turns[2].delay_s != 0


def test_the_lengths_of_a_csv_data_set_take_the_same_counts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.csv"
    path.write_text("prompt,output_tokens\na,1k\nb,1000\n")
    first, second = read_dataset("csv", path, None).requests
    assert first.output_tokens == second.output_tokens == 1000


def test_the_simulated_engine_takes_the_same_quantities(tmp_path: Path) -> None:
    def profile(**texts: str) -> Any:
        return load_profile("default", tuple(texts.items()))

    assert profile(step_ms="0.02s") == profile(step_ms="20") == profile(step_ms="20ms")
    assert profile(per_sequence_us="1ms") == profile(per_sequence_us="1000")
    assert profile(max_running="1k", jitter="10%") == profile(max_running="1000", jitter="0.1")
    options = [
        options_of([("ttft-ms", text), ("chunk-bytes", size)]) for text, size in (("0.1s", "1kB"), ("100", "1000"))
    ]
    assert options[0] == options[1]
    file = tmp_path / "own.toml"
    file.write_text('step_ms = "0.02s"\n')
    assert load_profile(str(file)).step_ms == 20


@pytest.mark.parametrize(("kind", "text", "value"), [
    (simulator.Milliseconds(), "1s", 1000), (simulator.Milliseconds(), "5", 5), (simulator.Bytes(0, 16384), "1KiB", 1024),
])  # fmt: skip
def test_the_options_of_simulate_take_the_same_quantities(kind: click.ParamType, text: str, value: float) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(("one", "other"), [
    ("reset:5%", "reset:0.05"), ("stall:0.1:0.5s", "stall:0.1:500"), ("huge_event:1:1MiB", "huge_event:1:1048576"),
    ("endless_head:1:2kB", "endless_head:1:2000"), ("coalesce:1:1k", "coalesce:1:1000"),
])  # fmt: skip
def test_faults_take_the_same_quantities(one: str, other: str) -> None:
    from fastllmload._ext.sim.fault import parse_chance

    assert parse_chance(one) == parse_chance(other)


@pytest.mark.parametrize("text", ["status:1:503s", "coalesce:1:8ms", "stall:1:1kB", "huge_event:1:1s"])
def test_a_fault_refuses_the_unit_of_another_kind(text: str) -> None:
    from fastllmload._ext.sim.fault import parse_chance

    with pytest.raises(ValueError, match="argument of fault"):
        parse_chance(text)


@pytest.mark.parametrize(("one", "other"), [
    ("p99_ttft_ms > 0.5s", "p99_ttft_ms > 500"), ("p99_ttft_ms > +500us", "p99_ttft_ms > +0.5ms"),
    ("output_tok_s < 1k", "output_tok_s < 1000 tok/s"), ("success_rate < 99%", "success_rate < 0.99"),
])  # fmt: skip
def test_gates_take_the_same_quantities(one: str, other: str) -> None:
    gates = [parse_gate(text) for text in (one, other)]
    assert gates[0].limit == gates[1].limit and gates[0].about == gates[1].about
