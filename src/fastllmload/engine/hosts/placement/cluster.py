"""Finds the hosts of a run in a Ray cluster and starts an agent on each.

    placement = RayPlacement(settings.hosts)    # Ray begins to look for hosts, which takes seconds
    placement.find()              # waits until it has them
    placement.hosts()             # a HostFacts of each
    placement.start(configs)      # an AgentHandle of each, in the same order: poll(), kill(), node
    placement.close()             # ends agents that still run, and leaves the cluster

Ray places and starts the agents, and reports that a node died; agents and driver communicate over a link of their own. A
process of its own uses Ray (`ray_process.py`): Ray registers the command line of the process that connects, replaces signal
handlers, gives its environment to processes that it starts, and ends it when its head is gone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec

from fastllmload.engine.hosts.placement.host_actor import MESSAGE_CHARACTERS, HostFacts, facts_here
from fastllmload.errors import InputError, coded
from fastllmload.settings import KEY_VARIABLES, Hosts

AGENT = ("-m", "fastllmload.engine.hosts.agent")  # arguments of the host's own Python
RAY_PROCESS = (sys.executable, "-m", "fastllmload.engine.hosts.placement.ray_process")
AUTO, LOCAL = "auto", "local"
FOUND_S = 30.0  # for Ray to start a process on each host that has room
ENDING_S, CLOSED_S, TERMINATED_S = 10.0, 30.0, 5.0
Value = TypeVar("Value")


class Find(msgspec.Struct, frozen=True, tag="find"):
    """Start an actor on each host that *wanted* describes, and reserve its CPUs. Answered by Found or Refusal.

    *program*: the agent, which each actor starts; it waits for its config.
    """

    wanted: Hosts
    reserve: bool
    patience_s: float
    program: tuple[str, ...] | None


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call a function, `module:function`, on each host. Answered by Results or Refusal."""

    function: str
    arguments: tuple[str | None, ...]


class StartAgents(msgspec.Struct, frozen=True, tag="start-agents"):
    """Give the agents their configs. Answered by AgentsStarted or Refusal; an AgentEnded of each follows at some time."""

    configs: dict[str, str]  # by node


class KillAgent(msgspec.Struct, frozen=True, tag="kill-agent"):
    node: str


class Close(msgspec.Struct, frozen=True, tag="close"):
    """End the process, and agents that still run after *patience_s*."""

    patience_s: float


class Found(msgspec.Struct, frozen=True, tag="found"):
    hosts: tuple[HostFacts, ...]
    without: tuple[str, ...]  # addresses of hosts without room
    driver: str  # address of this process's host


class Results(msgspec.Struct, frozen=True, tag="results"):
    of_hosts: dict[str, msgspec.Raw]  # by node


class AgentsStarted(msgspec.Struct, frozen=True, tag="agents-started"):
    pass


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    code: str
    message: str


class AgentEnded(msgspec.Struct, frozen=True, tag="agent-ended"):
    node: str
    how: str


Request = Find | Call | StartAgents | KillAgent | Close
Answer = Found | Results | AgentsStarted | Refusal | AgentEnded


class Messages:
    """Messages as lines of JSON over a socket."""

    def __init__(self, end: socket.socket, kind: Any) -> None:
        self._socket = end
        self._decoder = msgspec.json.Decoder(kind)
        self._received = b""

    def send(self, message: Request | Answer) -> None:
        self._socket.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self, seconds: float | None = None) -> Any:
        """The next message; None when there is none for so long. EOFError when the other end is gone."""
        while b"\n" not in self._received:
            if not select.select([self._socket], [], [], seconds)[0]:
                return None
            part = self._socket.recv(1 << 16)
            if part == b"":
                raise EOFError
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return self._decoder.decode(line)

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class AgentHandle:
    """The agent of one host."""

    node: HostFacts
    placement: RayPlacement

    def poll(self) -> str | None:
        """None while the agent runs; then a clause that says how it ended, or that Ray has lost its node."""
        return self.placement.ends().get(self.node.node)

    def kill(self) -> None:
        """Let the agent and everything that it started be killed; `poll` says when that has happened."""
        self.placement.send(KillAgent(self.node.node))


class RayPlacement:
    """Hosts that Ray has given to this run, until `close`. *warnings*: sentences about them, each with its code.

    *reserve*: reserve all their CPUs, and refuse hosts that have other software than this one. *program*: arguments of a
    host's Python that make it the agent; None: there are no agents.
    """

    def __init__(
        self,
        wanted: Hosts,
        reserve: bool = True,
        patience_s: float = FOUND_S,
        program: Sequence[str] | None = AGENT,
    ) -> None:
        require_ray()
        self.warnings: list[str] = []
        self.driver_address = ""  # of this process's host, at which the others reach it
        self._wanted, self._reserve = wanted, reserve
        self._facts: list[HostFacts] = []
        self._ends: dict[str, str] = {}  # by node
        self._gone = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (*RAY_PROCESS, str(theirs.fileno())),
                stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors, process_group=0,
                env=environment(wanted.address), pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        self._messages = Messages(ours, Answer)
        self.send(Find(wanted, reserve, patience_s, None if program is None else tuple(program)))

    def find(self) -> None:
        """Wait until the hosts are found. InputError, and this is closed."""
        try:
            self._know(self._answer(Found))
        except BaseException:
            self.abandon()
            raise

    def interrupt(self) -> None:
        """Let `find` and `start` of another thread end soon."""
        self._process.terminate()

    def _know(self, found: Found) -> None:
        self._facts, self.driver_address = distinct(found.hosts), found.driver
        if self._reserve:
            refuse_differences(facts_here("", ""), self._facts)
        if found.without and self._wanted.hosts is None:
            what = f"Ray uses CPUs of {', '.join(found.without)} for something else: these hosts send nothing"
            self.warnings.append(coded("hosts-busy", what))
        slow = [facts.title for facts in self._facts if facts.priority > 0]
        if slow:
            what = f"agents have a low priority on {', '.join(slow)}; start Ray there with RAY_worker_niceness=0"
            self.warnings.append(coded("agent-priority-low", what))

    def hosts(self) -> list[HostFacts]:
        return list(self._facts)

    def use(self, hosts: Sequence[HostFacts]) -> None:
        """Start agents on these of the hosts only, in this order."""
        self._facts = list(hosts)

    def start(self, configs: Sequence[msgspec.Struct]) -> list[AgentHandle]:
        """Let the agent of each host begin, with its config in the order of `hosts`."""
        lines = [msgspec.json.encode(config).decode() + "\n" for config in configs]
        nodes = [facts.node for facts in self._facts]
        self.send(StartAgents(dict(zip(nodes, lines, strict=True))))
        self._answer(AgentsStarted)
        return [AgentHandle(facts, self) for facts in self._facts]

    def everywhere(self, function: Callable[[str | None], Value], argument: str | None, kind: Any) -> list[Value]:
        """What *function* of a module of this package returns on each host: a value of *kind*, in the order of `hosts`."""
        name = f"{function.__module__}:{function.__qualname__}"
        self.send(Call(name, (argument,)))
        results = self._answer(Results).of_hosts
        return [msgspec.json.decode(results[facts.node], type=kind) for facts in self._facts]

    def ends(self) -> dict[str, str]:
        """How agents have ended so far, by node."""
        while not self._gone and (message := self._receive(0.0)) is not None:
            assert isinstance(message, AgentEnded)  # everything else is the answer to a request
            self._ends[message.node] = message.how
        return self._ends

    def lost(self) -> str | None:
        """A clause if Ray reports nothing any more, as when its head is gone. Agents do not depend on it."""
        self.ends()
        return f"the connection to Ray has ended: {self._last_line()}" if self._gone else None

    def send(self, request: Request) -> None:
        with contextlib.suppress(BrokenPipeError):  # `lost` says so
            self._messages.send(request)

    def close(self, patience_s: float = ENDING_S) -> None:
        """End agents that still run after *patience_s*, give the hosts back to Ray, and disconnect."""
        self.send(Close(patience_s))
        self._end(patience_s + CLOSED_S)

    def abandon(self) -> None:
        """Disconnect at once, whatever Ray is doing for this run. No agent has been started."""
        self.interrupt()
        self._end(TERMINATED_S)

    def _end(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._messages.close()
        self._errors.close()

    def _answer(self, kind: type[Value]) -> Value:
        """The answer of *kind* to the last request. InputError for a refusal."""
        while True:
            answer = None if self._gone else self._receive(None)
            if isinstance(answer, kind):
                return answer
            if isinstance(answer, AgentEnded):
                self._ends[answer.node] = answer.how
            elif isinstance(answer, Refusal):
                raise InputError(answer.code, answer.message)
            else:
                why = self._last_line()
                raise InputError(
                    "ray-unreachable", f"--ray {self._wanted.address}: the connection to Ray ended ({why})"
                )

    def _receive(self, seconds: float | None) -> Any:
        try:
            return self._messages.receive(seconds)
        except (EOFError, ConnectionResetError):
            self._gone = True
            return None

    def _last_line(self) -> str:
        """Of what Ray wrote."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["it wrote nothing"]
        return lines[-1].strip()[:MESSAGE_CHARACTERS]


def require_ray() -> None:
    """InputError where Ray is not installed."""
    if find_spec("ray") is None:
        raise InputError(
            "ray-missing", "--ray needs the package ray; install fastllmload with the extra `ray` on all hosts"
        )


def environment(address: str | None) -> dict[str, str]:
    """For the process that uses Ray, and a Ray that it starts: without the API key, with usage statistics off, and, for that
    Ray, with a token that keeps other users of this host out.
    """
    found = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
    found["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == LOCAL:
        found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return found


def distinct(hosts: Sequence[HostFacts]) -> list[HostFacts]:
    """*hosts* by name and address; those that share a name are called by their address."""
    count = Counter(host.name for host in hosts)
    named = [host if count[host.name] == 1 else msgspec.structs.replace(host, name=host.address) for host in hosts]
    return sorted(named, key=lambda host: (host.name, host.address))


def inspect(wanted: Hosts, program: Sequence[str] | None = None) -> RayPlacement:
    """The hosts that *wanted* describes, also those that Ray uses for something else, whatever version they run."""
    placement = RayPlacement(wanted, reserve=False, program=program)
    placement.find()
    return placement


def refuse_differences(own: HostFacts, hosts: Sequence[HostFacts]) -> None:
    """InputError where a host has other software than *own*, the driver's, so that its rows could mean something else."""
    problems = [text for host in hosts for text in differences(own, host)]
    if problems:
        raise InputError(
            "hosts-differ",
            f"all hosts must have the same software: {'; '.join(problems)}; install the same wheel on all",
        )


def differences(own: HostFacts, host: HostFacts) -> list[str]:
    """What *host* has in another version than *own*. Compiled modules of two architectures are not comparable."""
    software = (("fastllmload", host.fastllmload, own.fastllmload), ("Python", host.python, own.python))
    found = [
        f"{host.title} has {name} {theirs}, the driver {ours}" for name, theirs, ours in software if theirs != ours
    ]
    if not found and host.machine == own.machine and host.compiled != own.compiled:
        found.append(f"{host.title} has other compiled modules ({host.compiled}) than the driver ({own.compiled})")
    return found
