"""Before the clock: is the target there, does it know the model, does it answer with tokens? A clear refusal now is
better than a mess during the run. Blocking sockets, one request at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastllmload._ext.delta import Classifier
from fastllmload._ext.ndjson import NdjsonParser
from fastllmload._ext.sse import SseParser
from fastllmload.endpoint import ENDPOINTS, Endpoint
from fastllmload.engine.deadline import Deadline
from fastllmload.engine.offers import context_limit, listing, offered_models, shown_list
from fastllmload.engine.places import reachable_from, refuse_sources
from fastllmload.engine.resolve import Base, addresses, parse_base, request_head, target_spec
from fastllmload.engine.waiting import ANSWER_S, LIST_S, Say, shown, silent
from fastllmload.engine.workspec import TargetSpec
from fastllmload.errors import InputError, TargetError
from fastllmload.plan.classes import class_settings
from fastllmload.plan.settings import RunSettings, Secret, TrafficClass
from fastllmload.report.outlet import Redact

CONNECT_TIMEOUT_S = 5.0
LARGEST_ANSWER = 4 << 20
RTT_CONNECTS = 5
PROBE_TOKENS = 4
STREAMS = ("text/event-stream", "application/x-ndjson")
PROBE_IDS = (1, 2, 3, 4)  # every vocabulary has them
OTHER_NAME, OUT_OF_DATE = (62, 63, 64), (9, 10)  # X509_V_ERR: host, email, address; not yet valid, expired
ERROR_KIND = 9
CONTENT_KINDS = (2, 3, 4, 5, 6)  # delta.EventKind: whitespace, content, reasoning, tool call, refusal


@dataclass
class Preflight:
    """What the checks found. *usage_reported* None: not known; *connect_ms*: TCP connect times of the first target."""

    targets: list[TargetSpec] = field(default_factory=list)
    model: str = ""
    usage_reported: bool | None = None
    connect_ms: list[float] = field(default_factory=list)
    context_limit: int | None = None  # tokens of prompt and answer, the least that a server reports as max_model_len
    answer_s: float | None = None  # the probe of the first target, of PROBE_TOKENS tokens, whole
    class_heads: list[list[str]] = field(default_factory=list)  # per class, per target; empty without classes
    class_targets: list[tuple[int, int]] = field(default_factory=list)  # per class: its first target, and how many
    class_models: list[str] = field(default_factory=list)  # per class
    class_urls: list[str] = field(default_factory=list)  # of targets that only classes have, behind the run's
    notes: list[str] = field(default_factory=list)


def preflight(
    settings: RunSettings,
    urls: Sequence[str],
    endpoint: Endpoint,
    secret: Secret | None,
    redact: Redact,
    say: Say = silent,
) -> Preflight:
    """Check every URL of the run and of its classes. InputError (exit 2) or TargetError (exit 3), one sentence each;
    *redact* blanks secrets in what a server said; *say* hears what is waited for.
    """
    key = None if secret is None else secret.reveal()
    refuse_sources(settings.target.source_addresses)
    found = Preflight()
    general = most_general(settings)
    spoken = endpoint if general is settings else ENDPOINTS[general.target.endpoint_type]
    probes = []
    for url in urls:
        probe = Probe(general, parse_base(url, settings.target.unix_socket), spoken, key, redact, say)
        found.model = look_at(probe, found, found.model or general.target.model)
        probes.append(probe)
    places = {settings.target.urls: (0, len(probes)), (): (0, len(probes))}
    for one in settings.classes:
        each = class_settings(settings, one)
        if one.urls not in places:
            places[one.urls] = len(probes), len(one.urls)
            with named(one):
                probes += look_away(each, one.urls, found, key, redact, say)
        found.class_targets.append(places[one.urls])
    probe_classes(settings, probes, found)
    return found


def look_at(probe: Probe, found: Preflight, wanted: str | None) -> str:
    """Whether the server of *probe* is there and answers, into *found*; the model that it serves."""
    address = probe.reach([] if found.targets else found.connect_ms)
    model = probe.model(wanted)
    if probe.context_limit is not None:
        found.context_limit = min(found.context_limit or probe.context_limit, probe.context_limit)
    begun = time.perf_counter()
    usage = probe.answer(model, found.notes)
    if usage is not None:
        found.answer_s = found.answer_s or time.perf_counter() - begun
        found.usage_reported = usage if found.usage_reported is None else found.usage_reported and usage
    target = probe.settings.target
    found.targets.append(target_spec(probe.base, address, probe.path, target.headers, probe.key, target.server_name))
    return model


def look_away(
    settings: RunSettings, urls: Sequence[str], found: Preflight, key: str | None, redact: Redact, say: Say
) -> list[Probe]:
    """The same for the URLs of a class of its own, whose *settings* these are."""
    probes, model = [], settings.target.model
    for url in urls:
        probe = Probe(settings, parse_base(url), ENDPOINTS[settings.target.endpoint_type], key, redact, say)
        probe.served = model = look_at(probe, found, model)
        probes.append(probe)
    found.class_urls += urls
    return probes


def at_home(settings: RunSettings, one: TrafficClass) -> bool:
    """Whether class *one* goes to the run's own targets."""
    return not one.urls or one.urls == settings.target.urls


def most_general(settings: RunSettings) -> RunSettings:
    """The run itself, or the first class that goes to its targets where none of them asks as the run would: in its
    protocol, for a model that the run says or that is found.
    """
    home = [one for one in settings.classes if at_home(settings, one)]
    plain = [one for one in home if one.endpoint_type in (None, settings.target.endpoint_type)]
    if not home or (plain and (settings.target.model is not None or any(one.model is None for one in plain))):
        return settings
    return class_settings(settings, home[0])


def probe_classes(settings: RunSettings, probes: Sequence[Probe], found: Preflight) -> None:
    """Each class's model and answer at each of its targets, once for classes that ask the same; and its request heads."""
    asked: set[tuple[Any, ...]] = set()
    for one, (first, many) in zip(settings.classes, found.class_targets, strict=True):
        each = class_settings(settings, one)
        heads = [""] * len(probes)
        model = one.model or found.model
        for number in range(first, first + many):
            general = probes[number]
            probe = Probe(
                each, general.base, ENDPOINTS[each.target.endpoint_type], general.key, general.redact, general.tell
            )
            probe.address = general.address
            model = one.model or general.served or found.model
            question = (number, probe.path, model, each.target.headers, one.workload.extra_body, probe.endpoint.name)
            if question not in asked:
                asked.add(question)
                with named(one):
                    probe.answer(probe.model(model), found.notes)
            heads[number] = request_head(probe.base, probe.path, each.target.headers, probe.key)
        found.class_heads.append(heads)
        found.class_models.append(model)


@contextlib.contextmanager
def named(one: TrafficClass) -> Iterator[None]:
    """What is refused in here says of which class."""
    try:
        yield
    except (InputError, TargetError) as problem:
        raise type(problem)(f"class {one.name!r}: {problem}") from None


class Probe:
    """The checks of one URL."""

    def __init__(
        self,
        settings: RunSettings,
        base: Base,
        endpoint: Endpoint,
        key: str | None,
        redact: Redact,
        say: Say = silent,
    ) -> None:
        self.settings = settings
        self.base = base
        self.endpoint = endpoint
        self.key = key
        self.redact = redact
        self.tell = say
        target = settings.target
        self.asked_s = target.preflight_timeout
        self.path = target.endpoint_path or endpoint.path(base.path)
        request_head(base, self.path, target.headers, key)  # wrong headers are told before anything is sent
        self.address: tuple[str, str, int] | None = None
        self.context_limit: int | None = None
        self.served: str | None = None  # a class's own server: the model that it is asked for
        self.context = tls_context(settings) if base.tls else None

    # -- sockets ------------------------------------------------------------------------------------------------------

    def reach(self, connect_ms: list[float]) -> tuple[str, str, int]:
        """The first address that accepts a connection (and, with TLS, whose certificate holds)."""
        with shown(self.tell, f"{self.base.shown} to take a connection", self._patience_s(CONNECT_TIMEOUT_S)):
            return self._reach(connect_ms)

    def _reach(self, connect_ms: list[float]) -> tuple[str, str, int]:
        failures: list[str] = []
        sources = self.settings.target.source_addresses
        for address in reachable_from(addresses(self.base), sources, self.base.shown):
            try:
                started = time.perf_counter()
                connection = self._connect(address)
                connect_ms.append((time.perf_counter() - started) * 1e3)
                connection.close()
            except OSError as problem:
                failures.append(f"{address[1]} ({reason(problem)})")
                continue
            self.address = address
            if self.context is not None:
                self._secure(self._connection()).close()
            for _ in range(RTT_CONNECTS - 1):
                started = time.perf_counter()
                self._connection().close()
                connect_ms.append((time.perf_counter() - started) * 1e3)
            return address
        raise TargetError(
            f"{self.base.shown} cannot be reached at {', '.join(failures)}; is the server up and --url right?"
        )

    def _patience_s(self, usual_s: float) -> float:
        return min(usual_s, self.settings.load.timeout) if self.asked_s is None else self.asked_s

    def _connection(self) -> socket.socket:
        """Another one to the address that took the first."""
        assert self.address is not None
        try:
            return self._connect(self.address)
        except OSError as problem:
            raise TargetError(f"{self.base.shown} does not take connections any more: {reason(problem)}") from None

    def _connect(self, address: tuple[str, str, int]) -> socket.socket:
        family, numeric, port = address
        kinds = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}
        connection = socket.socket(kinds[family], socket.SOCK_STREAM)
        connection.settimeout(min(CONNECT_TIMEOUT_S, self._patience_s(CONNECT_TIMEOUT_S)))
        try:
            if family != "unix" and self.settings.target.source_addresses:
                connection.bind((self.settings.target.source_addresses[0], 0))
            connection.connect(numeric if family == "unix" else (numeric, port))
        except OSError:
            connection.close()
            raise
        return connection

    def _secure(self, connection: socket.socket) -> socket.socket:
        assert self.context is not None
        try:
            return self.context.wrap_socket(
                connection, server_hostname=self.settings.target.server_name or self.base.host
            )
        except ssl.SSLCertVerificationError as problem:
            connection.close()
            raise TargetError(
                f"the certificate of {self.base.shown} is not trusted: {problem.verify_message.rstrip('.')}; "
                f"{trust_advice(problem.verify_code)}, or --insecure to go without verification"
            ) from None
        except (ssl.SSLError, OSError) as problem:
            connection.close()
            raise TargetError(
                f"TLS with {self.base.shown} failed: {reason(problem)}; does this port speak https?"
            ) from None

    def _exchange(
        self, method: str, path: str, body: bytes | None, most_s: float | None = None
    ) -> tuple[int, str, bytes]:
        """(status, content type, body) of one request on a connection of its own, within *most_s*."""
        patience_s = self._patience_s(LIST_S if body is None else ANSWER_S) if most_s is None else most_s
        with shown(self.tell, f"{self.base.shown} to answer {method} {path}", patience_s):
            return self._asked(method, path, body, patience_s)

    def _asked(self, method: str, path: str, body: bytes | None, patience_s: float) -> tuple[int, str, bytes]:
        connection = self._connection()
        if self.context is not None:
            connection = self._secure(connection)
        connection.settimeout(patience_s)
        end = Deadline(connection, patience_s)
        head = request_head(self.base, path, self.settings.target.headers, self.key, method=method)
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        try:
            end.start()
            connection.sendall((head + length + "Connection: close\r\n\r\n").encode("latin-1") + (body or b""))
            with contextlib.closing(http.client.HTTPResponse(connection, method=method)) as response:
                response.begin()
                content = response.read(LARGEST_ANSWER)
                if end.passed:  # of a body that ends with the connection
                    raise TimeoutError
                return response.status, response.headers.get("Content-Type", ""), content
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if end.passed or isinstance(problem, TimeoutError):
                raise TargetError(
                    f"{self.base.shown} took a connection but did not answer {method} {path} within {patience_s:g} s; "
                    "is it well? --preflight-timeout gives it longer"
                ) from None
            raise TargetError(f"{self.base.shown} did not answer {method} {path} properly: {reason(problem)}") from None
        finally:
            end.cancel()
            connection.close()

    # -- questions ----------------------------------------------------------------------------------------------------

    def model(self, wanted: str | None) -> str:
        """The model to name: *wanted* if the server offers it or offers no list, the only one offered if none is
        wanted.
        """
        path = self.endpoint.models_path(self.base.path)
        status, _, body = self._exchange("GET", path, None)
        self._refuse_unauthorised(status)
        offered = offered_models(body) if status == 200 else None
        self.context_limit = None if offered is None else context_limit(body, wanted or offered[0])
        if offered is None:
            if wanted is None:
                raise InputError(f"{self.base.shown} does not list its models (GET {path}: {status}); name one with -m")
            return wanted
        if wanted is None:
            if len(offered) == 1:
                return offered[0]
            raise InputError(f"{self.base.shown} offers {shown_list(offered)}; choose one with -m")
        if wanted not in offered and f"{wanted}:latest" not in offered:  # Ollama's tag may be left out
            raise InputError(f"-m {wanted!r} is not offered by {self.base.shown}; it offers {shown_list(offered)}")
        return wanted

    def status(self, most_s: float) -> int:
        """What HTTP status the model list has. TargetError when nobody answers within *most_s*."""
        self.reach([])
        return self._exchange("GET", self.endpoint.models_path(self.base.path), None, most_s)[0]

    def card(self, model: str) -> dict[str, Any]:
        """What the server's list says of *model*; empty when it has no list, or not that model."""
        status, _, body = self._exchange("GET", self.endpoint.models_path(self.base.path), None)
        listed = listing(body) if status == 200 else None
        names = (model, f"{model}:latest")
        return next((one for one in listed[1] if one.get(listed[0]) in names), {}) if listed is not None else {}

    def say(self, model: str, prompt: str, tokens: int) -> None:
        """One request outside of any run. TargetError when it is refused."""
        body = self.endpoint.encode_body(model, self.settings.workload, prompt, tokens)
        status, _, content = self._exchange("POST", self.path, body)
        self._refuse_unauthorised(status)
        if status != 200:
            said = excerpt(content, self.redact)
            raise TargetError(f"{self.base.shown} answers POST {self.path} with {status}: {said}")

    def _refuse_unauthorised(self, status: int) -> None:
        if status in (401, 403):
            wrong = "the API key was refused; give another in OPENAI_API_KEY or with --api-key"
            given = wrong if self.key is not None else "it asks for an API key; set OPENAI_API_KEY"
            raise TargetError(f"{self.base.shown} answers {status}: {given}")

    def answer(self, model: str, notes: list[str]) -> bool | None:
        """Send one short real request. True when usage came with it; remarks go to *notes*."""
        workload = self.settings.workload
        ids = workload.prompt_form in ("ids", "native") and self.endpoint.name == "openai-completions"
        prompt = PROBE_IDS if ids else "Say hello."
        body = self.endpoint.encode_body(model, workload, prompt, PROBE_TOKENS)
        status, content_type, content = self._exchange("POST", self.path, body)
        self._refuse_unauthorised(status)
        if status == 429:
            notes.append(f"{self.base.shown} answered the probe with 429: it may refuse some of the load")
            return None
        if status != 200:
            raise TargetError(
                f"{self.base.shown} answers POST {self.path} with {status}: {excerpt(content, self.redact)}; "
                "is the endpoint type right, and does the server take these fields?"
            )
        kinds, usage = meanings(content, content_type, self.endpoint.dialect)
        if "text/html" in content_type or not content:
            raise TargetError(
                f"{self.base.shown} answers POST {self.path} with 200 but {'no body' if not content else 'a web page'}: "
                f"does this URL speak {self.endpoint.name}?"
            )
        if ERROR_KIND in kinds:
            raise TargetError(f"{self.base.shown} answers with an error inside a 200: {excerpt(content, self.redact)}")
        notes += [remark for remark in self.endpoint.remarks(workload) if remark not in notes]
        if workload.streaming and not any(stream in content_type for stream in STREAMS):
            notes.append(
                f"{self.base.shown} answers a streaming request with {content_type or 'no content type'}, not a stream"
            )
        if not any(kind in CONTENT_KINDS for kind in kinds):
            notes.append(f"the probe of {self.base.shown} got an answer without a token")
        return usage


def meanings(content: bytes, content_type: str, dialect: int) -> tuple[list[int], bool]:
    """Kinds of the events of an answer, and whether usage was among them."""
    classifier = Classifier(dialect)
    if "text/event-stream" in content_type:
        events = SseParser(limit=LARGEST_ANSWER).feed(content)
        found = [classifier.classify_bytes(data) for _, data, _, _ in events]
        for meaning, (name, _, _, _) in zip(found, events, strict=True):
            if name == b"error":
                meaning["kind"] = ERROR_KIND
    elif "application/x-ndjson" in content_type:
        lines = NdjsonParser(limit=LARGEST_ANSWER)
        found = [classifier.classify_bytes(data) for _, data, _, _ in lines.feed(content) + lines.eof()]
    else:
        found = [classifier.classify_body_bytes(content)]
    return [int(meaning["kind"]) for meaning in found], any(meaning["has_usage"] for meaning in found)


def excerpt(content: bytes, redact: Redact, size: int = 200) -> str:
    """One line of what a server said; redacted before it is cut, so that no part of a secret is left at the cut."""
    text = " ".join(redact(content.decode(errors="replace")).split())
    return text[:size] + ("…" if len(text) > size else "") if text else "an empty body"


def reason(problem: BaseException) -> str:
    if isinstance(problem, TimeoutError):
        return "it timed out"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror.lower()
    if isinstance(problem, http.client.IncompleteRead):
        return "the connection ended within the body"
    return str(problem) or type(problem).__name__


def trust_advice(verify_code: int) -> str:
    """What to do about OpenSSL's X509_V_ERR_*."""
    if verify_code in OTHER_NAME:
        return "use the name that it is for in --url, give it with --server-name"
    if verify_code in OUT_OF_DATE:
        return "renew it, set this host's clock"
    return "give its issuer with --cacert"


def tls_context(settings: RunSettings) -> ssl.SSLContext:
    """The run's TLS settings as the workers will use them. InputError names the file that cannot be used."""
    target = settings.target
    try:
        context = ssl.create_default_context(cafile=target.cacert)
    except (OSError, ssl.SSLError) as problem:
        raise InputError(f"--cacert {target.cacert!r} cannot be used: {reason(problem)}") from None
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.client_cert is not None:
        try:
            context.load_cert_chain(target.client_cert, target.client_key)
        except (OSError, ssl.SSLError) as problem:
            raise InputError(
                f"--cert {target.client_cert!r} with --key {target.client_key!r} cannot be used: {reason(problem)}"
            ) from None
    return context
