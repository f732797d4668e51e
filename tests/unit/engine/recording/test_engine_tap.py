"""When `--timestamps auto` uses the packet ring, and what happens when none is available."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from refusals import raises_code

from fastllmload.engine.recording import tap
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.settings import Client

PLAIN = TargetSpec(url="http://127.0.0.1:8000/v1", family="inet", address="127.0.0.1", port=8000, head_prefix="")
ENCRYPTED = msgspec.structs.replace(PLAIN, tls=True)
UNIX = msgspec.structs.replace(PLAIN, family="unix", address="/run/server.sock")


@pytest.mark.parametrize(
    ("client", "targets", "events_per_s", "workers", "cores", "used"),
    [
        ({}, [PLAIN], 1_000, 1, 4, False),  # the kernel's stamps are as good
        ({}, [PLAIN], 1_000, 4, 4, True),  # the workers use all cores
        ({}, [PLAIN], 1_000, 1, 1, True),
        ({"pin": (0, 1)}, [PLAIN], 1_000, 2, 2, False),  # the user gave them cores
        ({}, [PLAIN, ENCRYPTED], 1_000, 1, 4, False),  # the reactor reads both
        ({"pin": (0,)}, [ENCRYPTED], 1_000, 1, 1, False),
        ({"transport": "asyncio"}, [PLAIN], 1_000, 1, 4, True),
        ({}, [UNIX], 1_000, 4, 4, False),  # no packets
        ({"transport": "asyncio"}, [UNIX], 1_000, 1, 4, False),
        ({}, [ENCRYPTED], 200_001, 4, 4, False),
        ({}, [ENCRYPTED], math.inf, 4, 4, True),  # all at once
    ],
)
def test_the_rule_of_auto(
    client: dict[str, Any], targets: list[TargetSpec], events_per_s: float, workers: int, cores: int, used: bool
) -> None:
    assert tap.auto_uses_tap(Client(**client), targets, events_per_s, workers, cores) is used


def test_without_permission_auto_uses_no_tap_and_tap_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "permitted", lambda: False)
    assert Client().timestamps == "auto"
    assert tap.open_tap(Client(), [ENCRYPTED], 1_000.0, 1, 4) is None
    with raises_code("tap-unavailable", "--timestamps tap", "CAP_NET_RAW is missing", "setcap"):
        tap.open_tap(Client(timestamps="tap"), [PLAIN], 1_000.0, 1, 4)
