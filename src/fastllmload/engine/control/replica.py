"""One engine that is controlled: its kind, its routes, what runs on it, what it has cached, what it says of itself."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from fastllmload.documents.run_parts.control import ControlCall
from fastllmload.endpoint.endpoint import named
from fastllmload.engine.control.kinds import Route, ServerKind, kinds, route_of
from fastllmload.engine.preflight.addresses import BaseUrl
from fastllmload.engine.preflight.client import ServerConnection, one_line
from fastllmload.engine.preflight.probe import PROBE_TOKENS, ServerProbe
from fastllmload.errors import InputError, TargetError
from fastllmload.redact import Redactor
from fastllmload.settings import DEFAULT_ENDPOINT, RunSettings
from fastllmload.telemetry.exposition import Exposition
from fastllmload.telemetry.servers import KNOWN, SOURCES, engine_of

PAGE_S = 5.0  # for a page
CALL_S = 120.0  # for a request that changes something
PROFILE_S = 600.0  # for the end of a profile, which is written then
ABSENT, REFUSED_METHOD = 404, 405
FORBIDDEN = (401, 403)
SETTLED_S = 1.0  # from an answer until the counters of the metrics page have it
SENTENCE = (
    "fastllmload checks here whether the prefix cache of this engine is empty, and sends this text more than once. "
)
SENTENCES = 40  # some 700 tokens: more than a block of any engine


class Replica:
    """*base*: its URL. *ours*: it belongs to the target, so that it gets the run's headers and *key*."""

    def __init__(
        self, settings: RunSettings, base: BaseUrl, key: str | None, redact: Redactor, ours: bool = True
    ) -> None:
        target = msgspec.structs.replace(
            settings.target, endpoint_type=DEFAULT_ENDPOINT, endpoint_path=None, urls=(),
            headers=settings.target.headers if ours else (),
        )  # fmt: skip
        self.base, self.redact = base, redact
        self.origin = ServerConnection(
            msgspec.structs.replace(settings, target=target), base, key if ours else None, redact
        )
        self.prefix = base.path.removesuffix("/v1")
        self.kind: ServerKind | None = None
        self._names = Exposition(SOURCES)

    @property
    def url(self) -> str:
        return self.base.public_url

    def reach(self) -> None:
        if self.origin.address is None:
            self.origin.reach([], connects=1)

    def page(self, target: str, most_s: float = PAGE_S) -> bytes | None:
        """The body of a GET; None without a 200."""
        try:
            self.reach()
            status, _, content = self.origin.exchange("GET", self.prefix + target, None, most_s)
        except TargetError:
            return None
        return content if status == 200 else None

    def find_kind(self, given: str | None) -> None:
        """Set the kind: *given*, or by the names on its metrics page."""
        if given is not None:
            self.kind = kinds()[given]
            return
        for target in ("/metrics", "/prometheus/metrics"):
            engine = engine_of(self.page(target) or b"")
            if engine is not None:
                self.kind = next((kind for kind in kinds().values() if engine.name in kind.engines), None)
                return

    def check(self, verb: str, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        """The routes of *verb* that this server has. InputError without one that is needed. Nothing is done there: a route
        that exists refuses the method OPTIONS.
        """
        found = []
        for route in routes:
            there = next(
                (each for each in (route, *route.others) if self._status("OPTIONS", each.target) != ABSENT), None
            )
            if there is not None:
                found.append(replace(there, optional=route.optional))
            elif not route.optional:
                raise InputError(
                    "control-unsupported", f"--between {verb}: {self.url} has no {route.text}{self._why(verb)}"
                )
        return tuple(found)

    def _why(self, verb: str) -> str:
        known = None if self.kind is None else self.kind.absent.get(verb)
        return f"; {known}" if known else "; is --server, or the URL, right?"

    def _status(self, method: str, target: str) -> int:
        self.reach()
        return self.origin.exchange(method, self.prefix + target, None, PAGE_S)[0]

    def call(self, verb: str, when: str, route: Route, most_s: float = CALL_S) -> ControlCall:
        """Send the request of *route*. A failure is part of what is returned."""
        began = time.monotonic_ns()
        status, said = None, ""
        try:
            self.reach()
            status, _, content = self.origin.exchange(
                route.method, self.prefix + route.target, route.body.encode(), most_s
            )
            said = one_line(self.redact(content.decode(errors="replace")))
            if status == ABSENT:
                said += self._why(verb)
            elif status in FORBIDDEN:
                said += "; --admin-key-file FILE has the key of such requests"
        except TargetError as problem:
            said = self.redact(problem.message)
        return ControlCall(
            verb=verb, when=when, url=self.url, request=self.redact(route.text), at_ns=began,
            seconds=(time.monotonic_ns() - began) / 1e9, http_status=status,
            done=status is not None and 200 <= status < 300, needed=not route.optional, said=said or None,
        )  # fmt: skip

    def figures(self) -> Mapping[str, float]:
        """Values of the metrics page by our names; empty without a page."""
        for target in ("/metrics", "/prometheus/metrics"):
            content = self.page(target)
            values = {} if content is None else self._names.read(content).values
            if values:
                break
        found = {}
        for known in KNOWN:
            source = next((each.name for each in known.sources if each.name in values), None)
            if source is not None and known.combine == "sum":
                found[known.name] = sum(value for _, value in values[source] if not math.isnan(value))
        return found

    def asleep(self) -> bool | None:
        """What the engine says; None: it does not."""
        target = None if self.kind is None else self.kind.sleeping
        said = self.json_page(target) if target is not None else None
        found = said.get("is_sleeping") if isinstance(said, dict) else None
        return found if isinstance(found, bool) else None

    def json_page(self, target: str) -> Any:
        content = self.page(target)
        try:
            return None if content is None else msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def info(self) -> dict[str, Any]:
        """What the server says about itself, by page."""
        found = {}
        for text in () if self.kind is None else self.kind.info:
            route = route_of(f"GET {text}".replace(" | ", " | GET "))
            for each in (route, *route.others):
                said = self.json_page(each.target)
                if said is not None:
                    found[each.target] = said
                    break
        return found


class CacheProbe:
    """Sends one fixed prompt to a replica and finds out how many of its tokens were cached."""

    def __init__(self, replica: Replica, like: ServerProbe, model: str, context_limit: int | None) -> None:
        """*like*: the probe of a target, whose protocol the replica speaks."""
        self.replica = replica
        self.probe = ServerProbe(like.settings, replica.base, like.key, replica.redact)
        self.probe.path = named(self.probe.path, model)
        self.model = model
        count = SENTENCES if context_limit is None else max(1, min(SENTENCES, context_limit // 60))
        text = self.probe.endpoint.takes("text")
        self.prompt: Any = SENTENCE * count if text else tuple(range(1, 16 * count))

    def cached(self) -> tuple[int | None, str]:
        """(tokens, where that is said: usage, or the name of a counter); None, and why it is not known."""
        if not self.probe.endpoint.tokens:
            return None, f"requests of {self.probe.endpoint.name} do not report cached tokens"
        before = self.replica.figures().get("prefix_cache_hits")
        try:
            if self.probe.address is None:
                self.probe.reach([], connects=1)
            said = self.probe.cached_tokens(self.model, self.prompt, PROBE_TOKENS)
        except TargetError as problem:
            return None, self.replica.redact(problem.message)
        if said is not None:
            return said, "usage"
        if before is None:
            return None, "the server does not report cached tokens"
        time.sleep(SETTLED_S)
        after = self.replica.figures().get("prefix_cache_hits")
        return (None, "its metrics page is gone") if after is None else (round(after - before), "prefix_cache_hits")
