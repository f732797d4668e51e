"""The target in run.json: what was asked, what the preflight found there, what the server says of itself."""

from __future__ import annotations

from typing import Annotated

from fastllmload.documents.fields import Document, Model, Name, Names, Number, Reveals, Seconds, field


class EngineFacts(Document, frozen=True, kw_only=True):
    """What the server reports about itself."""

    name: str | None = None  # of the engine, by its metrics: vllm, sglang, tgi, llama.cpp ...
    version: str | None = None  # as the server says
    max_batch_size: Annotated[Number, field("", Reveals.ENGINE)] = None  # largest batch that it is configured for
    max_batch_source: str | None = None  # page and key of the server that say so
    server_header: Name = None  # the Server header of the metrics page


class ClassTarget(Document, frozen=True, kw_only=True):
    """Where the requests of a class of the run go."""

    name: str | None = None  # of the class
    endpoint_type: str | None = None
    urls: Names = ()
    model: Model = None  # that its requests name


class TargetFacts(Document, frozen=True, kw_only=True):
    """The target, and what the preflight found there."""

    urls: Names = ()  # of all targets, those of single classes last; rows number them
    addresses: Names = ()  # numeric addresses of *urls*, or paths of sockets
    endpoint_type: str | None = None
    classes: tuple[ClassTarget, ...] = ()
    model: Model = None  # that requests name
    simulated: bool | None = None  # the target was the simulated engine
    http_version: str | None = None  # that the requests use: 1.1 or 2
    usage_reported: bool | None = None  # the server reported token counts in the preflight; None: not known
    continuous_usage: bool | None = None  # every event reports its usage, as the run asks; None: not asked
    token_ids: bool | None = None  # every event has the ids of its tokens, as the run asks; None: not asked
    connect_ms: Annotated[tuple[float, ...], field("ms")] = ()  # up to 20 TCP connects before the run
    connect_after_ms: Annotated[tuple[float, ...], field("ms")] = ()  # and after it
    probe_s: Seconds = None  # how long the first target's answer took in the preflight
    notes: Names = ()  # what the preflight found worth knowing


class ServerPage(Document, frozen=True, kw_only=True):
    """A page on which a server says what it is (`/version`, `/server_info`); its content is in server-info.json."""

    url: Name = None  # of the server, without credentials
    page: str | None = None  # path
    digest: str | None = None  # SHA-256 of its content before the run, without what changes by itself
    read_after: bool = False  # it was there after the run, too
    changed: Names = ()  # what changed during the run, as `path: value -> value`
