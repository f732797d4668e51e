"""The process that uses Ray for a run: `python -m fastllmload.engine.hosts.placement.ray_process SOCKET`.

It answers `cluster.Request`s, and ends without ending the agents when the driver's end of the socket is closed: they must
close their folders.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from fastllmload import __version__
from fastllmload.engine.hosts.placement.cluster import (
    AUTO,
    LOCAL,
    AgentEnded,
    AgentsStarted,
    Answer,
    Call,
    Close,
    Find,
    Found,
    KillAgent,
    Messages,
    Refusal,
    Request,
    Results,
    StartAgents,
)
from fastllmload.engine.hosts.placement.host_actor import MESSAGE_CHARACTERS, HostActor
from fastllmload.errors import InputError
from fastllmload.settings import Hosts

POLL_S = 0.2
CONNECT_S = 5.0  # to an address, which shows that something listens there
CONNECTED_S = 60.0  # to Ray, which itself would try for many minutes
KILLED_S = 10.0
SHARE_OF_RESOURCE = 0.001  # of the resource of --ray-resource: it picks hosts, and is not used up
STORE_BYTES = 80 << 20  # the smallest object store that Ray accepts: no data goes through it
Node = dict[str, Any]  # as `ray.nodes` describes it


class RayClient:
    """A connection to Ray, and the actors that this process has started there."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._actors: dict[str, Any] = {}  # by node, in the order in which hosts were found
        self._addresses: dict[str, str] = {}
        self._endings: dict[Any, str] = {}  # reference to the end of an agent: its node
        self._killing: list[Any] = []  # Ray forgets a call whose reference is dropped

    @classmethod
    def connect(cls, address: str) -> RayClient:
        """Connect to the cluster, or start a Ray of one node. InputError."""
        ray = import_module("ray")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
        refused = getattr(ray.exceptions, "AuthenticationError", ())  # a Ray that knows no tokens has none
        wrong_token = InputError(
            "ray-token-refused",
            f"--ray {address}: the token of this host is missing or is not that of the cluster; copy ~/.ray/auth_token "
            "of its head, or set RAY_AUTH_TOKEN",
        )
        if address != LOCAL and lacks_token(os.environ):
            raise wrong_token
        try:
            refuse_silent_address(address)
            ask_head(ray, address)
            ray.init(address=address, **options)
        except refused as problem:
            raise wrong_token from problem
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as problem:
            raise InputError(
                "ray-unreachable", f"--ray {address}: no connection to Ray ({first_line(problem)})"
            ) from problem
        return cls(ray)

    def find(self, asked: Find) -> Found:
        wanted = asked.wanted
        nodes = self._nodes(wanted)
        facts = {self._begin(node, asked): node for node in nodes}
        enough = min(wanted.hosts or len(nodes), len(nodes))
        ready, _ = self._ray.wait(list(facts), num_returns=enough, timeout=asked.patience_s)
        hosts = tuple(self._results({facts[one]["NodeID"]: one for one in ready}).values())
        used = {host.node for host in hosts}
        without = sorted(self._addresses[node["NodeID"]] for node in nodes if node["NodeID"] not in used)
        for node in [node for node in self._actors if node not in used]:
            self._ray.kill(self._actors.pop(node))
        if len(hosts) < (wanted.hosts or 1):
            busy = f"; Ray uses CPUs of {', '.join(without)} for something else" if without else ""
            raise InputError(
                "hosts-missing",
                f"the run needs {wanted.hosts or 1} hosts and Ray has {len(hosts)} with room{busy}; add nodes, free them, "
                "or give a smaller --hosts",
            )
        own = self._ray.get_runtime_context().get_node_id()
        driver = next(node["NodeManagerAddress"] for node in self._ray.nodes() if node["NodeID"] == own)
        return Found(hosts, tuple(without), driver)

    def call(self, asked: Call) -> Results:
        begun = {node: actor.call.remote(asked.function, asked.arguments) for node, actor in self._actors.items()}
        return Results({node: msgspec.Raw(result) for node, result in self._results(begun).items()})

    def start(self, asked: StartAgents) -> AgentsStarted:
        begun = {node: self._actors[node].start.remote(config.encode()) for node, config in asked.configs.items()}
        self._results(begun)  # methods run in threads: `ended` must not come before
        self._endings = {self._actors[node].ended.remote(): node for node in asked.configs}
        return AgentsStarted()

    def kill(self, nodes: Iterable[str]) -> None:
        self._killing += [self._actors[node].kill.remote() for node in nodes]

    def ends(self) -> list[AgentEnded]:
        """The agents whose end this call detected."""
        if not self._endings:
            return []
        ready, _ = self._ray.wait(list(self._endings), num_returns=len(self._endings), timeout=0)
        nodes = [self._endings.pop(one) for one in ready]
        return [AgentEnded(node, self._how(one, node)) for one, node in zip(ready, nodes, strict=True)]

    def close(self, patience_s: float) -> None:
        """End agents that still run after *patience_s*, and leave Ray. Agents that it does not reach end by themselves."""
        self._join(patience_s)
        self.kill(self._endings.values())
        self._join(KILLED_S)
        self._ray.shutdown()

    def _join(self, seconds: float) -> None:
        """Wait until all agents have ended, or for *seconds*."""
        if self._endings:
            self._ray.wait(list(self._endings), num_returns=len(self._endings), timeout=seconds)
            self.ends()

    def _how(self, ending: Any, node: str) -> str:
        try:
            return str(self._ray.get(ending))
        except self._ray.exceptions.RayActorError:
            alive = any(each["NodeID"] == node and each["Alive"] for each in self._ray.nodes())
            return "Ray's actor died, but not its node" if alive else "Ray's node died"

    def _nodes(self, wanted: Hosts) -> list[Node]:
        """Live nodes that lend CPUs, with the wanted resource."""
        lending = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        nodes = [node for node in lending if wanted.resource is None or wanted.resource in node["Resources"]]
        if not nodes:
            known = sorted({name for node in lending for name in node["Resources"] if ":" not in name})
            which = "" if wanted.resource is None else f" with the resource {wanted.resource!r} ({', '.join(known)})"
            raise InputError("hosts-missing", f"Ray at {wanted.address} has no live node with a CPU{which}; start one")
        return nodes

    def _begin(self, node: Node, asked: Find) -> Any:
        """Start the actor of *node* and ask it for its facts; returns the reference to them."""
        wanted = asked.wanted
        pinned = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        options: dict[str, Any] = {"num_cpus": node["Resources"]["CPU"] if asked.reserve else 0, "num_gpus": 0}
        if wanted.resource is not None:
            options["resources"] = {wanted.resource: SHARE_OF_RESOURCE}
        actor = self._ray.remote(HostActor).options(
            max_restarts=0, max_task_retries=0, max_concurrency=4,
            scheduling_strategy=pinned(node_id=node["NodeID"], soft=False), **options,
        ).remote(asked.program)  # fmt: skip
        self._actors[node["NodeID"]] = actor
        self._addresses[node["NodeID"]] = node["NodeManagerAddress"]
        return actor.facts.remote(node["NodeID"], node["NodeManagerAddress"])

    def _results(self, begun: dict[str, Any]) -> dict[str, Any]:
        """The results of calls, by node. InputError for a host that cannot do it."""
        found = {}
        for node, reference in begun.items():
            try:
                found[node] = self._ray.get(reference)
            except self._ray.exceptions.RayError as problem:
                lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
                raise InputError(
                    "host-unusable",
                    f"host {self._addresses[node]} cannot be used: {lines[-1][:MESSAGE_CHARACTERS]}; install fastllmload "
                    f"{__version__} there, for the Python that Ray uses",
                ) from problem
        return found


def first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0][:MESSAGE_CHARACTERS]


def refuse_silent_address(address: str) -> None:
    """OSError where nothing listens at *address*; Ray itself would try for a long time."""
    if address not in (AUTO, LOCAL):
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()


def lacks_token(environment: Mapping[str, str]) -> bool:
    """Whether tokens are on and this host has none: Ray's client of the head would end this process."""
    files = (environment.get("RAY_AUTH_TOKEN_PATH"), Path.home() / ".ray" / "auth_token")
    given = environment.get("RAY_AUTH_TOKEN") or any(path is not None and Path(path).is_file() for path in files)
    return environment.get("RAY_AUTH_MODE", "").lower() == "token" and not given


def ask_head(ray: Any, address: str) -> None:
    """AuthenticationError of Ray where the head at *address* refuses the token. `ray.init` would try again for half a
    minute and not say why; this part of Ray is not public, so a version without it does that.
    """
    client = getattr(getattr(ray, "_raylet", None), "GcsClient", None)
    if client is not None and address not in (AUTO, LOCAL):
        client(address=address)


@contextlib.contextmanager
def ending_after(seconds: float, messages: Messages, address: str) -> Iterator[None]:
    """End the process, with a refusal, when the block takes longer: a call of Ray cannot be interrupted."""
    over = threading.Event()

    def wait() -> None:
        if not over.wait(seconds):
            sentence = f"--ray {address}: Ray did not answer within {seconds:g} s; has its head ended?"
            with contextlib.suppress(OSError):  # the driver died
                messages.send(Refusal("ray-unreachable", sentence))
            os._exit(1)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def serve(messages: Messages) -> None:
    """Answer requests until the driver asks to close, or is gone."""
    client: RayClient | None = None
    while True:
        try:
            request = messages.receive(POLL_S)
        except (EOFError, ConnectionResetError):  # the driver died
            return
        if isinstance(request, Close):
            if client is not None:
                client.close(request.patience_s)
            return
        try:
            if isinstance(request, Find):
                with ending_after(CONNECTED_S, messages, str(request.wanted.address)):
                    client = RayClient.connect(str(request.wanted.address))
                messages.send(client.find(request))
            elif client is not None:
                for message in answers(client, request):
                    messages.send(message)
        except InputError as refused:
            messages.send(Refusal(refused.code, refused.message))
        except BrokenPipeError:  # the driver died
            return


def answers(client: RayClient, request: Request | None) -> list[Answer]:
    """The answer to *request*, and what has ended."""
    found: list[Answer] = []
    if isinstance(request, Call):
        found.append(client.call(request))
    elif isinstance(request, StartAgents):
        found.append(client.start(request))
    elif isinstance(request, KillAgent):
        client.kill([request.node])
    return [*found, *client.ends()]


if __name__ == "__main__":
    serve(Messages(socket.socket(fileno=int(sys.argv[1])), Request))
