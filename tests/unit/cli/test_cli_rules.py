"""Options that do not go together are refused by one table, whichever way they came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fastllmload.cli.main import fastllmload
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.rules import RULES
from fastllmload.cli.options.sources import RawOptions, from_table, given_options
from fastllmload.cli.options.table import BY_PARAMETER
from fastllmload.errors import InputError
from fastllmload.redact import Redactor

Source = Callable[[Mapping[str, object], Path], RawOptions]


def from_flags(options: Mapping[str, object], _: Path) -> RawOptions:
    words = [
        f"--{name.replace('_', '-')}={value}" if value is not True else f"--{name}" for name, value in options.items()
    ]
    command = fastllmload.table["run"].load()
    return given_options(command.make_context("run", words).params)


def from_file(options: Mapping[str, object], folder: Path) -> RawOptions:
    path = folder / "c.toml"
    values = {name: "true" if value is True else f'"{value}"' for name, value in options.items()}
    path.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    command = fastllmload.table["run"].load()
    return given_options(command.make_context("run", ["--config", str(path)]).params)


def from_python(options: Mapping[str, object], _: Path) -> RawOptions:
    return from_table(options, "", "")


@pytest.mark.parametrize("source", [from_flags, from_file, from_python])
@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({}, "load-missing", "--rate"),
        ({"rate": 5, "concurrency": 3}, "rate-and-concurrency", "--concurrency 3"),
        ({"concurrency": 3, "arrival": "constant"}, "option-not-applicable", "arrival"),
        ({"rate": "inf"}, "run-without-end", "--num-requests"),
        ({"rate": 5, "plan": "p"}, "option-prescribed", "rate"),
        ({"rate": 5, "think_time": "2s"}, "option-not-applicable", "--turns"),
        ({"rate": 5, "turns": 2, "workload": "batch"}, "option-not-applicable", "batch"),
        (
            {"rate": 5, "turns": 2, "tool_turns": 0.5, "endpoint_type": "vllm"},
            "protocol-unsupported",
            "openai-completions",
        ),
        ({"rate": 5, "cancel_share": 0.1}, "option-missing", "--cancel-after"),
        ({"rate": 5, "slow_readers": "5%:2kB/s", "transport": "asyncio"}, "option-not-applicable", "asyncio"),
        ({"rate": 5, "url": "http://a", "simulate": "model=b"}, "options-conflict", "url"),
        ({"rate": 5, "image": "8x8", "endpoint_type": "ollama"}, "protocol-unsupported", "--image"),
        ({"rate": 5, "workload": "csv"}, "option-missing", "csv"),
        ({"rate": 5, "num_prefixes": 3}, "option-missing", "--prefix-len"),
        ({"rate": 5, "power": "rapl", "power_command": "x"}, "option-not-applicable", "rapl"),
        ({"rate": 5, "goodput": "ttft:1 ttft:2"}, "option-repeated", "ttft"),
        ({"rate": 5, "insecure": True}, "option-not-applicable", "insecure"),
        ({"rate": "x"}, "rate-invalid", "x"),
    ],
)
def test_a_refusal_is_the_same_from_each_source(
    tmp_path: Path,
    source: Callable[[Mapping[str, object], Path], RawOptions],
    options: dict[str, object],
    code: str,
    value: str,
) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(source(options, tmp_path), {}, Redactor([]))
    assert caught.value.code == code and value in caught.value.message


def test_rules_name_options_of_a_run() -> None:
    assert {each for rule in RULES for each in rule.options} <= BY_PARAMETER.keys()
