"""Profiles and options: what is bundled, what is refused, and in which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.errors import InputError
from fastllmload.simulator.process import arguments
from fastllmload.simulator.profile import Profile, SimulatorOptions, load_profile, profile_names, resolve


def test_every_bundled_profile_loads_and_says_what_it_is() -> None:
    assert {"default", "constant", "small-gpu", "h100-8b", "memory-pressure"} <= set(profile_names())
    assert all(load_profile(name).description for name in profile_names())


def test_the_default_profile_carries_the_default_run() -> None:
    """500 requests/s x 160 tokens: what runs at once, by Little's law, fits its places and its blocks."""
    profile = load_profile("default")
    step = profile.step_ms / 1e3 + 1700 * profile.per_sequence_us / 1e6 + 10 * 320 * profile.per_prefill_token_us / 1e6
    running = 500 * 161 * step
    assert 1000 < running < 2000 < profile.max_running
    assert running * (320 + 160) / profile.block_size < profile.kv_blocks
    assert 500 * step * 320 < profile.step_tokens


def test_fields_can_be_replaced_by_texts() -> None:
    profile = load_profile("small-gpu", (("max_running", "7"), ("step_ms", "2.5"), ("prefix_cache", "false")))
    assert (profile.max_running, profile.step_ms, profile.prefix_cache) == (7, 2.5, False)


def test_a_file_is_a_profile_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("step_ms = 3.0\nscheduler = 'priority'\n")
    assert load_profile(str(path)) == Profile(step_ms=3.0, scheduler="priority")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("step_ms = -1", "step_ms=-1"),
        ("step_ms = 'fast'", "step_ms"),
        ("stepms = 1", "step_ms?"),
        ("zzz = 1", "description, cadence"),
        ("max_running = 0", "max_running=0"),
        ("jitter = 1.0", "jitter=1"),
        ("cadence = 'sometimes'", "cadence='sometimes'"),
        ("scheduler = 'lottery'", "scheduler='lottery'"),
        ("kv_blocks = 10", "max_model_len=131072"),
        ("= nothing", "cannot be read"),
    ],
)
def test_wrong_profiles_are_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="mine.toml") as error:
        load_profile(str(path))
    assert word in str(error.value)


def test_an_unknown_profile_is_named_with_the_known_ones() -> None:
    with raises_code("profile-unknown", "'nope'", ".toml file", "default"):
        load_profile("nope")


@pytest.mark.parametrize(
    ("options", "cadence", "ttft", "itl"),
    [
        (SimulatorOptions(), "batching", 20, 20),
        (SimulatorOptions(null=True), "flood", 20, 20),
        (SimulatorOptions(itl_ms=5.0), "spread", 20, 5),
        (SimulatorOptions(ttft_ms=0.0), "spread", 0, 20),
        (SimulatorOptions(phase="lockstep", ttft_ms=7.0), "lockstep", 7, 20),
        (SimulatorOptions(profile="constant"), "spread", 20, 20),
    ],
)
def test_options_choose_the_cadence(options: SimulatorOptions, cadence: str, ttft: float, itl: float) -> None:
    profile = resolve(options)
    assert (profile.cadence, profile.ttft_ms, profile.itl_ms) == (cadence, ttft, itl)


def test_options_become_a_command_line_without_the_key() -> None:
    options = SimulatorOptions(
        port=80,
        null=True,
        faults=("reset:0.5", "stall:0.1:20"),
        overrides=(("step_ms", "3"),),
        api_key="secret",
        seed=0,
    )
    assert arguments(options) == [
        "--port", "80", "--set", "step_ms=3", "--null", "--fault", "reset:0.5", "--fault", "stall:0.1:20", "--seed", "0",
    ]  # fmt: skip


def test_options_and_profiles_need_no_heavy_import() -> None:
    code = (
        "import sys, fastllmload.simulator.process; "
        "print([m for m in sys.modules if m in ('numpy', 'uvloop') or '._ext.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
