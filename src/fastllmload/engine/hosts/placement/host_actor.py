"""What Ray runs on a host of a run: it starts the agent in a session of its own, and waits for its end.

The agent starts with its actor and imports what it needs while Ray asks the other hosts; it ends without a word when its
standard input is closed before it has a config.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from fastllmload import __version__
from fastllmload.host import probe
from fastllmload.settings import KEY_VARIABLES

# Ray kills the children of an actor that ends, as when the driver dies. The agent is a child of this shell, and remains.
KEEPER = ("/bin/sh", "-c", '"$@"; exit $?', "agent")
LAST_BYTES = 4096  # of an agent's stderr
MESSAGE_CHARACTERS = 300


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One host: where it is, and the software that it would run."""

    name: str
    address: str
    node: str  # Ray's id of it
    cpus: int  # that an agent may use
    priority: int  # nice value of an agent; Ray lowers the priority of what it starts
    fastllmload: str
    python: str
    machine: str  # architecture
    compiled: str  # digest of the compiled modules

    @property
    def title(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


def facts_here(node: str, address: str) -> HostFacts:
    return HostFacts(
        name=socket.gethostname(), address=address, node=node, cpus=max(1, int(probe.cores())),
        priority=normal_priority(), fastllmload=__version__, python=platform.python_version(),
        machine=platform.machine(), compiled=probe.compiled_digest(),
    )  # fmt: skip


def normal_priority() -> int:
    """Give this thread, and what it starts, the normal priority if that is permitted. Returns the nice value it has."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


class HostActor:
    """An actor of Ray, whose methods run in threads. Arguments of methods are in no file, log, table or process list."""

    def __init__(self, program: Sequence[str] | None) -> None:
        """*program*: arguments of this Python, which make it the agent; None where the run needs none."""
        self._agent: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the agent
        if program is not None:
            normal_priority()
            self._agent = subprocess.Popen(
                (*KEEPER, sys.executable, *program),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, env=agent_environment(),
                start_new_session=True,
            )  # fmt: skip

    def facts(self, node: str, address: str) -> HostFacts:
        return facts_here(node, address)

    def call(self, name: str, arguments: Sequence[str | None]) -> bytes:
        """The result of the function *name* (`module:function`), as JSON."""
        module, _, function = name.partition(":")
        return msgspec.json.encode(getattr(import_module(module), function)(*arguments))

    def start(self, config: bytes) -> None:
        """Let the agent begin: *config* is what it reads from its stdin."""
        assert self._agent is not None and self._agent.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: `ended` says how
            self._agent.stdin.write(config)
            self._agent.stdin.close()

    def ended(self) -> str:
        """Wait for the end of the agent and return a clause that says how it was."""
        assert self._agent is not None
        return described(self._agent.wait(), self._errors.fileno())

    def kill(self) -> None:
        """End the agent and all processes of its session at once."""
        if self._agent is not None:
            kill_session(self._agent.pid)


def agent_environment() -> dict[str, str]:
    """This environment without keys: an agent gets those of the target over its link, and that of Ray it does not need."""
    return {
        name: text for name, text in os.environ.items() if name not in KEY_VARIABLES and not name.startswith("RAY_AUTH")
    }


def described(code: int, errors: int) -> str:
    """How a process ended, with its last line in the file *errors*. *code* of a shell: 128 and the number of a signal."""
    if code == 0:
        return "the agent ended"
    number = -code if code < 0 else code - 128
    how = f"was killed by signal {number}" if number > 0 else f"ended with exit code {code}"
    size = os.fstat(errors).st_size
    lines = os.pread(errors, LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the agent {how}" + (f": {last[:MESSAGE_CHARACTERS]}" if last else "")


def kill_session(leader: int) -> None:
    """End all processes of the session of *leader* at once."""
    while members := session_members(leader):  # one may start another before it dies
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def session_members(leader: int) -> list[int]:
    """The processes of the session of *leader*, without those that have ended and wait for their parent."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it ended meanwhile
            continue
        state, _, _, session = stat.rpartition(")")[2].split()[:4]
        if int(session) == leader and state not in "ZX":
            found.append(int(folder.name))
    return found
