"""Resolves URLs to addresses and builds request heads; DNS is queried once, before the run."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from fastllmload import __version__
from fastllmload.endpoint.identity import OWN_HEADERS
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.errors import InputError, TargetError

TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True)
class BaseUrl:
    """The parts of a base URL. *path* has no trailing slash; *socket_path* is set for Unix sockets."""

    url: str
    tls: bool
    host: str
    port: int
    path: str
    socket_path: str | None = None
    authorization: str | None = None  # from user:password@ in the URL

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"

    @property
    def public_url(self) -> str:
        """The URL without credentials."""
        where = (
            f"unix:{self.socket_path}"
            if self.socket_path
            else f"{'https' if self.tls else 'http'}://{self.host_header}"
        )
        return where + self.path


def parse_base(url: str, socket_path: str | None = None) -> BaseUrl:
    """Split *url*; `unix:/path` names a socket. InputError for anything but an http(s) URL."""
    if url.startswith("unix:"):
        return BaseUrl(url, False, "localhost", 80, "", url.removeprefix("unix:"))
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise InputError(
            "url-invalid", f"--url {url!r} cannot be read: {problem}; write it like http://HOST:8000/v1"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("url-invalid", f"--url {url!r} is not an http or https URL; write it like http://HOST:8000/v1")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    tls = parts.scheme == "https"
    return BaseUrl(
        url, tls, parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"), socket_path, authorization
    )


def addresses(base: BaseUrl) -> list[tuple[str, str, int]]:
    """(family, numeric address, port) of every address of the host, in the resolver's order. TargetError without any."""
    if base.socket_path is not None:
        return [("unix", base.socket_path, 0)]
    try:
        found = socket.getaddrinfo(base.host, base.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as problem:
        raise TargetError(
            "host-unresolved",
            f"the host name {base.host!r} of {base.public_url} cannot be resolved ({problem}); check --url",
        ) from None
    families = {socket.AF_INET: "inet", socket.AF_INET6: "inet6"}
    unique: dict[tuple[str, str, int], None] = {}
    for family, _, _, _, address in found:
        if family in families:
            unique[families[family], str(address[0]), base.port] = None
    return list(unique)


def request_head(
    base: BaseUrl, path: str, headers: Sequence[tuple[str, str]], api_key: str | None, *, method: str = "POST"
) -> str:
    """Request line and fixed headers, each ended by CRLF; without the request's own headers and the empty line."""
    fixed: dict[str, tuple[str, str]] = {}

    def put(name: str, value: str) -> None:
        fixed[name.lower()] = (name, value)

    put("Host", base.host_header)
    put("User-Agent", f"fastllmload/{__version__}")
    put("Accept", "text/event-stream, application/json")
    put("Accept-Encoding", "identity")
    if method == "POST":
        put("Content-Type", "application/json")
    if base.authorization is not None:
        put("Authorization", base.authorization)
    if api_key is not None:
        put("Authorization", f"Bearer {api_key}")
    for name, value in headers:
        if not TOKEN.fullmatch(name) or any(character in value for character in "\r\n\0"):
            raise InputError("header-invalid", f"-H {name!r} is not a valid header; write it like -H 'X-Name: value'")
        if name.lower() in OWN_HEADERS:
            raise InputError("header-reserved", f"-H {name} is set by fastllmload for every request; leave it out")
        put(name, value)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fixed.values())]
    try:
        return "".join(line + "\r\n" for line in lines).encode("latin-1").decode("latin-1")
    except UnicodeEncodeError:
        raise InputError("header-invalid", "a header has characters outside latin-1; HTTP cannot carry them") from None


def target_spec(
    base: BaseUrl,
    address: tuple[str, str, int],
    path: str,
    headers: Sequence[tuple[str, str]],
    api_key: str | None,
    server_name: str | None,
    *,
    method: str = "POST",
) -> TargetSpec:
    family, numeric, port = address
    return TargetSpec(
        url=base.public_url,
        family=family,
        address=numeric,
        port=port,
        head_prefix=request_head(base, path, headers, api_key, method=method),
        tls=base.tls,
        server_name=server_name or base.host,
    )
