"""Encode planned requests one by one: texts, token ids or messages, each with body fields of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec

from fastllmload.endpoint import BodyPieces, Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.settings import Workload
from fastllmload.workload.content.image import Images
from fastllmload.workload.request import DatasetRequest
from fastllmload.workload.synthetic import Quota

PIECES_MOST = 1024  # kept for the next request: where each has a system prompt of its own, none is used again


@dataclass(frozen=True)
class PlannedRequest:
    """One request with its lengths in tokens; *kind*: number of its class; *shared*: tokens that other prompts have too."""

    request: DatasetRequest
    input_tokens: int
    output_tokens: int
    kind: int = 0
    shared: int = 0


class RequestEncoder:
    """Bodies for one model and protocol. Requests with the same fields of their own share their pieces."""

    def __init__(self, endpoint: Endpoint, model: str, workload: Workload, images: Images | None = None) -> None:
        self._endpoint, self._model, self._workload = endpoint, model, workload
        self._images = images
        self._pieces: dict[tuple[str, bytes], BodyPieces] = {}

    def encode(self, one: DatasetRequest, tokens: int) -> bytes:
        """InputError names the line, for content that the protocol cannot carry."""
        return self.pieces(one).encode(one.content, tokens)

    def in_form(self, one: DatasetRequest) -> DatasetRequest:
        """*one* with its images, and its messages in the protocol's form. InputError names the line."""
        if kind_of(one) != "messages":
            return one
        messages = cast("list[dict[str, Any]]", one.content)
        if self._images is not None:
            messages = self._images.with_images(messages)
        if self._endpoint.messages is None or not self._endpoint.takes("messages"):
            return replace(one, content=messages)
        try:
            messages, fields = self._endpoint.messages(messages)
            twice = next((name for name in fields if name in one.extra), None)
            if twice is not None:
                raise InputError("extra-body-reserved", f"body sets {twice!r}, and so do the messages; leave one out")
        except InputError as problem:
            raise InputError(problem.code, f"{one.where}: {problem.message}") from None
        return replace(one, content=messages, extra={**one.extra, **fields})

    def pieces(self, one: DatasetRequest) -> BodyPieces:
        if one.protocol not in (None, self._endpoint.name):
            raise InputError(
                "protocol-unsupported",
                f"{one.where} is a request of {one.protocol}, but the run uses {self._endpoint.name}; choose entries with "
                "--dataset-class, or the protocol with --endpoint-type",
            )
        kind, extra = kind_of(one), msgspec.json.encode(one.extra)
        pieces = self._pieces.get((kind, extra))
        if pieces is None:
            if len(self._pieces) == PIECES_MOST:
                self._pieces.clear()
            try:
                pieces = self._pieces[kind, extra] = self._cut(kind, one.extra)
            except InputError as problem:
                raise InputError(problem.code, f"{one.where}: {problem.message}") from None
        return pieces

    def _cut(self, kind: str, extra: dict[str, Any]) -> BodyPieces:
        """A request's own fields override those of --extra-body."""
        workload = self._workload
        if extra:
            common = {} if workload.extra_body is None else msgspec.json.decode(workload.extra_body)
            workload = msgspec.structs.replace(workload, extra_body=msgspec.json.encode({**common, **extra}).decode())
        if kind == "messages":
            return self._endpoint.messages_pieces(self._model, workload)
        form = "ids" if kind == "ids" else "words"
        return self._endpoint.body_pieces(self._model, msgspec.structs.replace(workload, prompt_form=form))


def kind_of(one: DatasetRequest) -> str:
    return "text" if isinstance(one.content, str) else "ids" if isinstance(one.content[0], int) else "messages"


def write_requests(
    path: Path, requests: Iterable[PlannedRequest], encoder: RequestEncoder, quota: Quota | None = None
) -> Bodies:
    """Write the bodies of *requests*: all, or those until *quota* is met."""
    with BodyFile(path) as file:
        following: Iterator[PlannedRequest] = iter(requests)
        while quota is None or not quota.met(file.requests, file.output_tokens, file.input_tokens):
            one = next(following, None)
            if one is None:
                break
            body = encoder.encode(encoder.in_form(one.request), one.output_tokens)
            file.add(body, one.input_tokens, one.output_tokens, one.kind, one.shared)
    return file.bodies()
