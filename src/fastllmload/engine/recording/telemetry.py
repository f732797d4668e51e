"""Controls telemetry: finds metrics pages and sensors before the run, and starts the process that samples them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fastllmload.documents.run_parts.target import EngineFacts
from fastllmload.endpoint import resolve_endpoint
from fastllmload.engine.preflight.addresses import BaseUrl, addresses, parse_base, request_head
from fastllmload.engine.preflight.check import Preflight
from fastllmload.errors import InputError, TargetError, coded
from fastllmload.host.probe import is_own
from fastllmload.redact import Redactor, labelled
from fastllmload.settings import KEY_VARIABLES, Secret, Target, Telemetry
from fastllmload.telemetry.exposition import looks_like_metrics
from fastllmload.telemetry.http_page import HttpAnswer, HttpPage, PageSpec
from fastllmload.telemetry.sensors.prometheus import Scraped, scraped_targets, wanted
from fastllmload.telemetry.sensors.sensor import Absent, SensorError
from fastllmload.telemetry.servers import GPU, NODE, SERVER, Engine, engine_of
from fastllmload.telemetry.spec import SamplerSpec, open_power

PROBE_S = 2.0
LONGEST_READ_S = 5.0
ENDING_S = 8.0  # for the last reads
USUAL = ("/metrics", "/prometheus/metrics")  # the second is TensorRT-LLM's
PROMETHEUS = "prometheus+"  # in front of the URL of a Prometheus server
QUERY = "/api/v1/query"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
OWN_STORE = b"\nprometheus_tsdb_head_"  # on the page of a Prometheus server itself
STORE_S = 10.0
MOST_SCRAPED = 256
TEXT = ("Accept", "text/plain;version=0.0.4, */*;q=0.1")
SIOCGIFADDR = 0x8915
PROCESS = (sys.executable, "-m", "fastllmload.telemetry")


@dataclass
class TelemetryTargets:
    """What can be sampled. *engine*: what the first server reports about itself; *notes*: for the user."""

    pages: list[PageSpec] = field(default_factory=list)
    power: tuple[str, ...] = ()
    interface: str | None = None
    engine: EngineFacts | None = None
    notes: list[str] = field(default_factory=list)


class TelemetryDiscovery:
    """Finds metrics pages and sensors before the run, with one short request each. A page given by an option must exist."""

    def __init__(
        self, target: Target, options: Telemetry, found: Preflight, secret: Secret | None, redact: Redactor
    ) -> None:
        self._target = target
        self._options = options
        self._targets = found.targets
        self._key = None if secret is None else secret.reveal()
        self._redact = redact
        self._bases = [parse_base(url) for url in target.urls]

    def find(self, urls: Sequence[str], class_urls: Sequence[str] = ()) -> TelemetryTargets:
        """*class_urls*: targets that only classes have. InputError for a requested sensor or page that is not available."""
        found = TelemetryTargets()
        if not self._options.enabled:
            return found
        self._bases = [parse_base(url, self._target.unix_socket) for url in urls]
        self._bases += [parse_base(url) for url in class_urls]
        for url in self._options.urls:
            self._asked(url, found)
        if all(page.role in (GPU, NODE) for page in found.pages):  # none that takes the place of the targets' own
            for base, target in zip(self._bases, self._targets, strict=True):
                self._own(base, (target.family, target.address, target.port), found)
        found.power = self._power()
        first = self._targets[0]
        found.interface = interface_to(first.family, first.address)
        return found

    def _asked(self, text: str, found: TelemetryTargets) -> None:
        """A page given by --telemetry-url. The API key is sent only if its host is also a target's."""
        label, url = labelled(text)
        if url.startswith(PROMETHEUS):
            self._prometheus(url.removeprefix(PROMETHEUS), label, found)
            return
        base = parse_base(url)
        same = self._targeted(base)
        paths = (base.path,) if base.path not in ("", "/metrics") else USUAL
        why = ""
        try:
            for address, path in ((address, path) for address in addresses(base) for path in paths):
                spec = self._spec(base, address, path, same)
                answer, problem = ask(spec, read_timeout_s(self._options))
                if (
                    answer is not None and OWN_STORE in b"\n" + answer.body
                ):  # its own page; what it has scraped is meant
                    self._prometheus(url.removesuffix("/metrics"), label, found)
                    return
                if answer is not None and looks_like_metrics(answer.body):
                    self._keep(msgspec.structs.replace(spec, label=label), base, answer, found)
                    return
                why = why or problem or "it answers, but not with metrics in Prometheus text"
        except TargetError:
            why = f"the host name {base.host!r} cannot be resolved"
        raise InputError(
            "telemetry-unavailable",
            f"--telemetry-url {base.public_url} cannot be used: {self._redact(why)}; correct or leave it out",
        )

    def _prometheus(self, url: str, label: str | None, found: TelemetryTargets) -> None:
        """All targets that the Prometheus server at *url* scrapes and that have known names."""
        base = parse_base(url)
        extra, matchers = self._options.metrics, self._options.matchers or ""
        why = ""
        try:
            for address in addresses(base):
                spec = self._spec(base, address, base.path + QUERY, self._targeted(base), FORM)
                page = HttpPage(spec, STORE_S)
                try:
                    scraped = scraped_targets(page, extra, matchers)
                except (SensorError, OSError) as problem:
                    why = why or str(problem)
                    continue
                finally:
                    page.close()
                self._scraped(spec, base, scraped, label, found)
                return
        except TargetError:
            why = f"the host name {base.host!r} cannot be resolved"
        raise InputError(
            "telemetry-unavailable",
            f"--telemetry-url {PROMETHEUS}{base.public_url} cannot be used: {self._redact(why)}; correct or leave it out",
        )

    def _scraped(
        self, spec: PageSpec, base: BaseUrl, scraped: Sequence[Scraped], label: str | None, found: TelemetryTargets
    ) -> None:
        if not 0 < len(scraped) <= MOST_SCRAPED:
            raise InputError(
                "telemetry-unavailable",
                f"--telemetry-url {PROMETHEUS}{base.public_url} has {len(scraped):,} targets with known metrics, and "
                f"1 to {MOST_SCRAPED} can be read; choose them with --telemetry-match 'namespace=\"NAME\"'",
            )
        for one in scraped:
            engine = engine_of("".join(f"{name} 1\n" for name in one.names).encode())
            self._add(
                msgspec.structs.replace(
                    spec,
                    origin=f"http://{one.labels.get('instance', '')} of {base.public_url}: {one.shown}",
                    selector=wanted(self._options.metrics, one.labels, self._options.matchers or ""),
                    label=label,
                    role=SERVER if engine is None else engine.role,
                    exporter=None if engine is None else engine.name,
                ),
                found,
            )
            if found.engine is None and engine is not None and engine.role == SERVER:
                found.engine = EngineFacts(name=engine.name)
        every = [one.every_s for one in scraped if one.every_s is not None]
        how_often = f"every {min(every):.3g} to {max(every):.3g} s" if every else "at an unknown interval"
        text = f"{len(scraped)} targets are read from {base.public_url}, which scrapes them {how_often}"
        found.notes.append(coded("telemetry-from-store", f"{text}; figures over the window are between scrapes"))

    def _add(self, spec: PageSpec, found: TelemetryTargets) -> None:
        """A page that is given twice is read once, since its figures are added to those of others."""
        same = next((one for one in found.pages if one.origin == spec.origin), None)
        if same is None:
            found.pages.append(spec)
        elif spec.label not in (None, same.label):
            before = "without a label" if same.label is None else f"with the label {same.label}"
            raise InputError(
                "options-conflict",
                f"--telemetry-url {spec.label}={spec.origin} is also given {before}; a page is of one pool, so give it once",
            )

    def _targeted(self, base: BaseUrl) -> bool:
        """Whether the host of *base* is also a target's, which the API key is sent to."""
        return any(base.host == other.host for other in self._bases)

    def _own(self, base: BaseUrl, address: tuple[str, str, int], found: TelemetryTargets) -> None:
        """The usual metrics page of a target; it is not an error if there is none."""
        paths = dict.fromkeys((base.path.removesuffix("/v1") + "/metrics", *USUAL))
        for path in paths:
            spec = self._spec(base, address, path, True)
            answer, _ = ask(spec)
            if answer is not None and looks_like_metrics(answer.body):
                self._keep(spec, base, answer, found)
                return
        without = f"{base.public_url} has no metrics page: server-only figures are not measured"
        found.notes.append(coded("metrics-page-missing", without))
        if found.engine is None:
            found.engine = self._only_engine(base, address)

    def _only_engine(self, base: BaseUrl, address: tuple[str, str, int]) -> EngineFacts | None:
        """The engine of a target whose protocol only one engine speaks, which has a page for its version."""
        endpoint = resolve_endpoint(self._target.endpoint_type)
        if endpoint.engine is None:
            return None
        name, resource = endpoint.engine
        page = json_object_of(self._spec(base, address, endpoint.page(base.path, resource), True)) or {}
        version = page.get("version")
        return EngineFacts(name=name, version=self._redacted(version if isinstance(version, str) else None))

    def _keep(self, spec: PageSpec, base: BaseUrl, answer: HttpAnswer, found: TelemetryTargets) -> None:
        engine = engine_of(answer.body)
        if engine is not None:
            spec = msgspec.structs.replace(spec, role=engine.role, exporter=engine.name)
        self._add(spec, found)
        if found.engine is None and spec.role == SERVER:
            found.engine = self._engine(spec, base, answer, engine)

    def _engine(self, spec: PageSpec, base: BaseUrl, answer: HttpAnswer, engine: Engine | None) -> EngineFacts:
        """Name, version and batch limit, with their source. Only pages that this engine has are requested."""
        facts = EngineFacts(server_header=self._redacted(answer.headers.get("server")))
        if engine is None:
            return facts
        facts = msgspec.structs.replace(facts, name=engine.name)
        path = "" if spec.family == "unix" else urlsplit(spec.origin).path
        prefix = path.removesuffix("/metrics").removesuffix("/prometheus")
        for page in engine.pages:
            content = json_object_of(self._again(spec, base, prefix + page))
            if content is not None:
                return self._described(facts, engine, content, page)
        return facts

    def _described(self, facts: EngineFacts, engine: Engine, content: dict[str, Any], page: str) -> EngineFacts:
        limit = content.get(engine.batch_key) if engine.batch_key is not None else None
        known = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
        version = content.get(engine.version_key)
        return msgspec.structs.replace(
            facts,
            version=self._redacted(version if isinstance(version, str) else None),
            max_batch_size=limit if known else None,
            max_batch_source=f"{page} {engine.batch_key}" if known else None,
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._redact(text)[:200]

    def _again(self, spec: PageSpec, base: BaseUrl, path: str) -> PageSpec:
        same = self._targeted(base)
        return self._spec(base, (spec.family, spec.address, spec.port), path, same)

    def _spec(
        self,
        base: BaseUrl,
        address: tuple[str, str, int],
        path: str,
        with_secrets: bool,
        form: tuple[str, str] | None = None,
    ) -> PageSpec:
        """*form*: the type of a body that is sent; None: GET."""
        target = self._target
        headers = [*(target.headers if with_secrets else ()), TEXT if form is None else form]
        method = "GET" if form is None else "POST"
        return PageSpec(
            origin=replace(base, path="").public_url + path,
            family=address[0],
            address=address[1],
            port=address[2],
            head=request_head(base, path, headers, self._key if with_secrets else None, method=method),
            tls=base.tls,
            server_name=target.server_name or base.host,
            insecure=target.insecure,
            cacert=target.cacert,
            client_cert=target.client_cert,
            client_key=target.client_key,
        )

    def _power(self) -> tuple[str, ...]:
        """Sensors to open. `auto` uses this host's sensors only if the target runs on it."""
        asked = self._options
        if asked.power == "none":
            return ()
        if asked.power == "auto":
            local = all(target.family == "unix" or is_own(target.address) for target in self._targets)
            return ("nvml", "rapl") if local else ()
        sensor = open_power(asked.power, asked.power_command, asked.gpus, asked.interval)
        if isinstance(sensor, Absent):
            raise InputError("power-sensor-unavailable", f"--power {asked.power}: {sensor.why}")
        with contextlib.suppress(SensorError):
            sensor.close()
        return (asked.power,)


def read_timeout_s(asked: Telemetry) -> float:
    """Of a read, and of the request that finds a page: one that is found can be read."""
    return max(PROBE_S, min(LONGEST_READ_S, 5 * asked.interval))


def ask(spec: PageSpec, timeout_s: float = PROBE_S) -> tuple[HttpAnswer | None, str]:
    """(the answer, "") for a 200, else (None, why)."""
    page = HttpPage(spec, timeout_s)
    try:
        answer = page.get()
    except (SensorError, OSError) as problem:
        return None, str(problem)
    finally:
        page.close()
    return (answer, "") if answer.status == 200 else (None, f"it answers with HTTP status {answer.status}")


def json_object_of(spec: PageSpec) -> dict[str, Any] | None:
    answer, _ = ask(spec)
    if answer is None:
        return None
    try:
        content = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def interface_to(family: str, address: str) -> str | None:
    """Name of the network device on the route to *address*; None for a Unix socket, or when it is not known."""
    if family == "unix":
        return None
    try:
        with socket.socket(socket.AF_INET6 if family == "inet6" else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
        return owner_of(own) if family == "inet" else owner_of_6(own)
    except OSError:
        return None


def owner_of(own: str) -> str | None:
    if own.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # a device without an address
                found = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return None


def owner_of_6(own: str) -> str | None:
    wanted = socket.inet_pton(socket.AF_INET6, own.partition("%")[0]).hex()
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        fields = line.split()
        if fields[0] == wanted:
            return fields[5]
    return None


class TelemetryProcess:
    """The sampling process of a run: started before the workers and ended after them. It ends if the supervisor dies."""

    def __init__(self, asked: Telemetry, found: TelemetryTargets, folder: Path, work: Path, redact: Redactor) -> None:
        self._stderr = work / "telemetry.txt"
        self._child: subprocess.Popen[bytes] | None = None
        self._spec = SamplerSpec(
            folder=str(folder),
            interval_s=asked.interval,
            timeout_s=read_timeout_s(asked),
            pages=tuple(found.pages),
            metrics=asked.metrics,
            power=found.power,
            power_command=asked.power_command,
            gpus=asked.gpus,
            interface=found.interface,
            secrets=redact.known,
        )
        self._redact = redact

    def start(self) -> None:
        """Start it in its own process group, since the supervisor handles SIGINT. The API key is passed on stdin."""
        environment = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        with open(self._stderr, "wb") as errors:
            self._child = subprocess.Popen(
                PROCESS, stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0, env=environment
            )
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: stop() says so
            self._child.stdin.write(msgspec.json.encode(self._spec) + b"\n")
            self._child.stdin.flush()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def stop(self) -> str | None:
        """Let it take a last sample and end. Returns a sentence when it had ended early or did not end in time."""
        child, self._child = self._child, None
        if child is None:
            return None
        early = child.poll()
        with contextlib.suppress(BrokenPipeError):
            assert child.stdin is not None
            child.stdin.close()
        try:
            code = child.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return f"the telemetry process did not end within {ENDING_S:g} s; its last values are missing"
        if early is None and code == 0:
            return None
        last = (self._stderr.read_text(errors="replace").strip().splitlines() or ["nothing on stderr"])[-1]
        return f"the telemetry process ended early with exit code {code}: {self._redact(last)[:200]}"
