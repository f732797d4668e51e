"""What `--between` asks of servers between the warm-up and the measurement, with proof; and what they say of themselves.

Every replica gets the requests, when nothing is in flight any more: a router would forward them to one. A prefix cache
that was reset is proved to be empty: a prompt that was cached is sent twice, and none of its tokens, then some, must have
been cached. After that it is reset once more.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from fastllmload.documents.run_parts.control import CacheProof, ControlCall, ControlFacts, Drained
from fastllmload.engine.control.credentials import without_credentials
from fastllmload.engine.control.kinds import EMPTYING, END, Route, ServerKind, kinds
from fastllmload.engine.control.replica import CALL_S, PROFILE_S, CacheProbe, Replica
from fastllmload.engine.interrupts import Interrupts
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.check import Preflight
from fastllmload.errors import InputError, TargetError, coded
from fastllmload.files import key_in
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.server_info import ServerInfo
from fastllmload.redact import Redactor
from fastllmload.settings import CONTROL_VERBS, RunSettings, Secret

AT_ONCE = 16  # replicas
SHOWN = 3  # servers in a line about answers that are missing
WAKE_S = 1.0  # longest wait for answers at a time; an answer and a signal end it
DRAIN_S = 60.0  # for requests that a server still has
POLL_S = 0.1
NOTICE_S = 5.0  # until it is said which answers are missing, and from then on as often
AGAIN_S = 10.0  # for an engine that refuses because it has just been in use
NOT_NOW = (400, 409, 429, 500, 503)
BEFORE, AFTER = "before", "after"
Result = TypeVar("Result")


class Abandoned(Exception):
    """A signal came while servers were asked."""


class ControlFailed(TargetError):
    """A server did not do what it was asked for: the measurement does not begin."""


@dataclass
class ServerController:
    """*urls*: of all targets; *say*: prints a line."""

    settings: RunSettings
    urls: Sequence[str]
    secret: Secret | None
    redact: Redactor
    interrupts: Interrupts
    say: Callable[[str], None]
    facts: ControlFacts = field(default_factory=ControlFacts)
    replicas: list[Replica] = field(default_factory=list)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)  # pages about the servers, by URL
    probes: list[CacheProbe] = field(default_factory=list)
    profiling: list[tuple[Replica, Route]] = field(default_factory=list)  # what ends it
    routes: dict[tuple[str, str], tuple[Route, ...]] = field(default_factory=dict)  # by URL and verb

    def __post_init__(self) -> None:
        """InputError for what the kind of server that --server names cannot do, and before a cold start."""
        asked = self.settings.control
        if declared_cold(dict(self.settings.output.declare)) and set(asked.between) - {"profile"}:
            raise InputError(
                "option-not-applicable",
                "--between sends requests before the measurement, and --declare cold_start=yes measures the first one; "
                "leave one out",
            )
        if asked.server is not None:
            refuse_unsupported(kinds()[asked.server], asked.between)
        self.key = None if self.secret is None else self.secret.reveal()
        self.control_key = self.key
        if asked.admin_key_file is not None:
            self.control_key = key_in(asked.admin_key_file, "--admin-key-file")
            self.redact.add(self.control_key)

    @property
    def asked(self) -> bool:
        return self.settings.control.between != ()

    @property
    def profiles(self) -> bool:
        return "profile" in self.settings.control.between

    # -- before the load ----------------------------------------------------------------------------------------------

    def find(self, found: Preflight) -> None:
        """Find out which servers there are, and that they have the routes. InputError where one has not."""
        asked = self.settings.control
        socket = None if asked.replicas else self.settings.target.unix_socket
        urls = asked.replicas or (*self.urls, *found.class_urls)
        self.replicas = [self._replica(url, socket) for url in dict.fromkeys(urls)]
        self._each(self.replicas, lambda one: one.find_kind(asked.server))
        for verb in asked.between:
            if verb in CONTROL_VERBS:
                for one in self.replicas:
                    self._find_routes(one, verb)
        if set(EMPTYING) & set(asked.between) and found.first is not None:
            first = found.first
            self.probes = [CacheProbe(one, first, found.model, found.context_limit) for one in self.replicas]
        self.facts = ControlFacts(kinds={one.url: one.kind.title for one in self.replicas if one.kind is not None})
        self.before = self._info()

    def _replica(self, url: str, socket: str | None, ours: bool = True) -> Replica:
        return Replica(self.settings, parse_base(url, socket), self.control_key, self.redact, ours)

    def _find_routes(self, one: Replica, verb: str) -> None:
        if one.kind is None:
            raise InputError(
                "control-unsupported",
                f"--between {verb}: the metrics page of {one.url} does not say what kind of server it is; add --server "
                f"{' or '.join(kinds())}",
            )
        for each in (verb, verb + END):
            if each == verb or each in one.kind.verbs:
                self.routes[one.url, each] = one.check(verb, one.kind.routes(each))

    def _each(
        self, items: Sequence[Any], do: Callable[[Any], Result], what: str = "", most_s: float = CALL_S
    ) -> list[Result]:
        """*do* of each, at most AT_ONCE at a time. Abandoned as soon as a signal comes; answers are not waited for then.

        Every NOTICE_S a line says whose answer is missing to *what* (a verb; empty: a question), which has at most *most_s*.
        """
        level, waiting = self.interrupts.level, deque(enumerate(items))
        results: dict[int, Result] = {}
        problems: list[BaseException] = []
        done: queue.SimpleQueue[None] = queue.SimpleQueue()

        def follow() -> None:
            while waiting and not problems:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    number, item = waiting.popleft()
                    try:
                        results[number] = do(item)
                    except BaseException as problem:  # noqa: BLE001 - raised again by the caller
                        problems.append(problem)
            done.put(None)
            self.interrupts.wake()

        began = noticed = time.monotonic()
        threads = min(AT_ONCE, len(items))
        for _ in range(threads):
            threading.Thread(target=follow, daemon=True).start()
        while done.qsize() < threads:
            self.interrupts.wait(WAKE_S)
            if self.interrupts.level > level:
                raise Abandoned
            now = time.monotonic()
            if now - noticed >= NOTICE_S and not problems:
                noticed = now
                missing = [url_of(item) for number, item in enumerate(items) if number not in results]
                self.say(still_waiting(what, list(dict.fromkeys(missing)), now - began, most_s))
        if problems:
            raise problems[0]
        return [results[number] for number in range(len(items))]

    # -- between warm-up and measurement -------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Do what --between asks, in its order, on every replica, or until a signal comes. ControlFailed."""
        try:
            self._prepare()
        except Abandoned:
            self.say("control: interrupted; a request that was sent may still be carried out")

    def _prepare(self) -> None:
        self._each(self.probes, CacheProbe.cached)  # so that a reset has something to remove
        self._drain()
        for verb in sorted(self.settings.control.between, key="profile".__eq__):  # profile comes last
            if self.interrupts.level:
                return
            self.say(f"control: {verb} on {', '.join(dict.fromkeys(one.url for one in self.replicas))}")
            if verb not in CONTROL_VERBS:
                self._hook(verb)
                continue
            self._do(verb)
            if verb in EMPTYING:
                self._prove(verb)
            elif verb != "profile":
                self._check_sleep(verb)

    def _drain(self) -> None:
        """Wait until no server has a request. ControlFailed after DRAIN_S: a cache in use is not reset."""
        began = time.monotonic()
        while True:
            figures = self._each(self.replicas, lambda one: one.figures())
            left = [found.get("running", 0) + found.get("waiting", 0) for found in figures]
            passed = time.monotonic() - began
            if not any(left) or passed > DRAIN_S or self.interrupts.level:
                break
            self.interrupts.wait(POLL_S)
        drained = tuple(
            Drained(url=one.url, seconds=passed, running=found.get("running"), waiting=found.get("waiting"))
            for one, found in zip(self.replicas, figures, strict=True)
        )
        self.facts = msgspec.structs.replace(self.facts, drained=drained)
        for one, many in zip(self.replicas, left, strict=True):
            if many and not self.interrupts.level:
                raise ControlFailed(
                    "control-failed",
                    f"{one.url} still has {many:g} requests {DRAIN_S:g} s after our last one ended; does something else use "
                    "it?",
                )

    def _do(self, verb: str) -> None:
        if verb == "profile":  # which is ended even if its begin has no answer
            for one in self.replicas:
                self.profiling += [(one, route) for route in self.routes[one.url, verb + END]]
            self.facts = msgspec.structs.replace(self.facts, profiled=True)
        calls = self._each(self.replicas, lambda one: [*self._calls(one, verb)], verb)
        self._note([call for of_one in calls for call in of_one])

    def _calls(self, one: Replica, verb: str) -> Iterator[ControlCall]:
        for route in self.routes[one.url, verb]:
            until = time.monotonic() + AGAIN_S
            call = one.call(verb, BEFORE, route)
            while (
                call.needed and call.http_status in NOT_NOW and time.monotonic() < until and not self.interrupts.level
            ):
                time.sleep(POLL_S)
                call = one.call(verb, BEFORE, route)
            yield call

    def _note(self, calls: Sequence[ControlCall]) -> None:
        """Add *calls* to what is recorded. ControlFailed if one failed."""
        self.facts = msgspec.structs.replace(self.facts, calls=(*self.facts.calls, *calls))
        for call in calls:
            if call.needed and not call.done:
                how = "no answer" if call.http_status is None else f"{call.http_status}"
                raise ControlFailed(
                    "control-failed",
                    f"{call.verb}: {call.url} answers {call.request} with {how}: {call.said or 'no text'}",
                )

    def _hook(self, text: str) -> None:
        """A request of the user's own: to each replica, or to its own URL, which gets keys only if it is one of ours."""
        method, _, url = text.partition(" ")
        if url.startswith("/"):
            self._note(self._each(self.replicas, lambda one: one.call("hook", BEFORE, Route(method, url)), text))
            return
        parts = urlsplit(url)
        base = parse_base(f"{parts.scheme}://{parts.netloc}")
        ours = any((base.host, base.port) == (one.base.host, one.base.port) for one in self.replicas)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        one = self._replica(f"{parts.scheme}://{parts.netloc}", None, ours)
        self._note(self._each([one], lambda one: one.call("hook", BEFORE, Route(method, target), CALL_S), text))

    def _prove(self, verb: str) -> None:
        """Prove that the caches are empty, and empty them again. ControlFailed where one was not."""
        proofs = self._each(self.probes, self._proof)
        self.facts = msgspec.structs.replace(self.facts, proofs=(*self.facts.proofs, *proofs))
        for proof in proofs:
            if proof.proved is False:
                raise ControlFailed(
                    "control-failed",
                    f"{verb}: {proof.url} still had {proof.first} tokens of a prompt that it had before: nothing was reset",
                )
            if proof.proved is None:
                why = f"that the cache of {proof.url} is empty is not proved: {proof.why}"
                self.say(f"warning: {coded('reset-not-proved', why)}")
        self._drain()
        self._do(verb)

    def _proof(self, probe: CacheProbe) -> CacheProof:
        (first, source), (second, _) = probe.cached(), probe.cached()
        url = probe.replica.url
        if first is None or second is None:
            return CacheProof(
                url=url, why=source if first is None else "the server does not always report cached tokens"
            )
        found = CacheProof(url=url, first=first, second=second, source=source)
        if first == second == 0:
            return msgspec.structs.replace(found, why="a prompt that was sent twice was not cached")
        return msgspec.structs.replace(found, proved=first == 0)

    def _check_sleep(self, verb: str) -> None:
        for one in self.replicas:
            asleep = one.asleep()
            if asleep is not None and asleep != (verb == "sleep"):
                state = "asleep" if asleep else "awake"
                raise ControlFailed("control-failed", f"{verb}: {one.url} says that it is {state} after it")

    # -- after the measurement -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """End what was begun, however the block ends."""
        try:
            yield
        finally:
            profiling, self.profiling, calls = self.profiling, [], list[ControlCall]()
            try:
                calls = self._each(
                    profiling,
                    lambda each: each[0].call("profile", AFTER, each[1], PROFILE_S),
                    "profile (its end)",
                    PROFILE_S,
                )
            except Abandoned:
                why = f"the end of the profile of {', '.join(one.url for one, _ in profiling)} was not waited for"
                self.say(f"warning: {coded('profile-not-ended', why)}")
            self.facts = msgspec.structs.replace(self.facts, calls=(*self.facts.calls, *calls))
            for call in calls:
                if not call.done:
                    why = f"{call.url} did not end its profile: {call.said or call.http_status}"
                    self.say(f"warning: {coded('profile-not-ended', why)}")

    def info(self) -> ServerInfo | None:
        """What the servers said before and after the run; None: nothing."""
        if not any(self.before.values()):
            return None
        volatile = {one.url: list(one.kind.volatile) for one in self.replicas if one.kind is not None}
        return ServerInfo(before=self.before, after=self._info(), volatile=volatile)

    def _info(self) -> dict[str, dict[str, Any]]:
        try:
            said = self._each(self.replicas, lambda one: without_credentials(one.info(), self.redact))
        except Abandoned:
            return {}
        return {one.url: pages for one, pages in zip(self.replicas, said, strict=True) if pages}


def url_of(item: Replica | CacheProbe | tuple[Replica, Route]) -> str:
    """Of the server that an item of `ServerController._each` asks."""
    if isinstance(item, tuple):
        return item[0].url
    return item.replica.url if isinstance(item, CacheProbe) else item.url


def still_waiting(what: str, urls: Sequence[str], seconds: float, most_s: float) -> str:
    named = ", ".join(urls[:SHOWN]) + (f" and {len(urls) - SHOWN} more" if len(urls) > SHOWN else "")
    bound = f"; {what} is given up after {most_s:g} s" if what else ""
    return f"control: {named} did not answer for {seconds:.0f} s{bound}"


def refuse_unsupported(kind: ServerKind, verbs: Sequence[str]) -> None:
    """InputError for a verb that no server of this kind has."""
    for verb in verbs:
        if verb in CONTROL_VERBS:
            kind.routes(verb)
