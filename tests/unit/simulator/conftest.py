from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions


@pytest.fixture
def simulator() -> Iterator[Callable[..., SimulatorProcess]]:
    """Starts simulators of the given options; stops them at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(SimulatorProcess(SimulatorOptions(**options)))


@pytest.fixture(scope="module")
def quick() -> Iterator[int]:
    """Port of a simulator that is shared by a module: 2 ms between tokens, every model name."""
    options: dict[str, Any] = {"ttft_ms": 1.0, "itl_ms": 2.0, "any_model": True}
    with SimulatorProcess(SimulatorOptions(**options)) as process:
        yield process.port
