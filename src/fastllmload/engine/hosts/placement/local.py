"""Placements: where agents run and how they are started. The one here starts them on this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.hosts.placement.host_actor import kill_session
from fastllmload.engine.workers.fleet import environment

AGENT = (sys.executable, "-m", "fastllmload.engine.hosts.agent")
ENDING_S = 15.0  # for an agent whose link was closed
LAST_BYTES = 4096  # of its stderr


class Handle(Protocol):
    """An agent that was started."""

    def poll(self) -> str | None:
        """A clause that says how the agent ended, or that its host did; None while it runs, as far as is known."""

    def kill(self) -> None:
        """End it at once, if it still runs."""


class PlacedHost(Protocol):
    """A host. *name* differs from those of the others."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...


class Placement(Protocol):
    """Hosts that a run may use, until `close`."""

    @property
    def driver_address(self) -> str:
        """Address of this machine, at which agents reach the driver."""

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences about the hosts, each with its code."""

    def find(self) -> None:
        """Wait until the hosts are known; the rest of this is so only then. InputError, and it is closed."""

    def interrupt(self) -> None:
        """Let `find` and `start` of another thread end soon."""

    def hosts(self) -> Sequence[PlacedHost]: ...

    def start(self, configs: Sequence[AgentConfig]) -> Sequence[Handle]:
        """Start an agent on each of `hosts`, with its config in that order. The key in it must not reach any log."""

    def close(self) -> None:
        """End agents that still run, and give the hosts back."""


@dataclass(frozen=True)
class LocalHost:
    name: str
    address: str


class LocalHandle:
    def __init__(self, config: AgentConfig, program: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the agent
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stderr=self._errors, start_new_session=True, env=environment()
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: poll() reports that
            self.process.stdin.write(msgspec.json.encode(config) + b"\n")
            self.process.stdin.close()

    def poll(self) -> str | None:
        code = self.process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = os.pread(self._errors.fileno(), LAST_BYTES, 0).decode(errors="replace").strip().splitlines()
        return f"the agent {how}" + (f": {lines[-1]}" if lines else "")

    def kill(self) -> None:
        if self.process.poll() is None:
            kill_session(self.process.pid)

    def close(self) -> None:
        """Wait for its end, and kill it if it does not come."""
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self._errors.close()


@dataclass
class LocalPlacement:
    """*count* agents as processes of this machine: for tests, and to try many hosts on one. *places*: their hosts."""

    count: int
    places: Sequence[LocalHost] = ()
    handles: list[LocalHandle] = field(default_factory=list)
    driver_address: str = "127.0.0.1"
    warnings: Sequence[str] = ()

    def find(self) -> None:
        """They are known."""

    def interrupt(self) -> None:
        """Neither takes long."""

    def hosts(self) -> Sequence[LocalHost]:
        return self.places or [
            LocalHost(f"{platform.node()}-{number}", self.driver_address) for number in range(self.count)
        ]

    def start(self, configs: Sequence[AgentConfig]) -> list[LocalHandle]:
        for config in configs:
            self.handles.append(LocalHandle(config, AGENT))
        return self.handles

    def close(self) -> None:
        for handle in self.handles:
            handle.close()
        self.handles.clear()
