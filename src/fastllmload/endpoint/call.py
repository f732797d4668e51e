"""gRPC: a request is a call with one message in protobuf, which is made of JSON with the names of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastllmload._ext.bytes.schema import Kind, Schema, text_field, with_prefix
from fastllmload.endpoint.simulated import SimulatedPage
from fastllmload.errors import InputError

HEADERS = {"Content-Type": "application/grpc", "TE": "trailers", "grpc-accept-encoding": "identity"}
MODEL_NAME = 6  # number of the field of GetModelInfo's answer, in vLLM's and SGLang's service
PREFIX = 5  # bytes before a message
# grpc.health.v1: SERVING
HEALTH = SimulatedPage("/grpc.health.v1.Health/Check", '{"status":1}', message=Schema({"status": (1, Kind.INTEGER)}))
WITHOUT_TURNS = (
    "its answers are token ids, which a text cannot carry on; use an endpoint type over HTTP for conversations"
)


def call_path(base_path: str, resource: str) -> str:
    """Path of a method. A base URL has none, or that of a proxy before it."""
    return f"{base_path.rstrip('/').removesuffix('/' + resource).removesuffix('/v1')}/{resource}"


def engine_pages(service: str, model_info: Schema) -> tuple[SimulatedPage, ...]:
    """What vLLM's and SGLang's service tell of themselves."""
    model = (
        '{"model_path":"$model","is_generation":true,"served_model_name":"$model","max_context_length":$max_model_len}'
    )
    healthy = Schema({"healthy": (1, Kind.BOOL), "message": (2, Kind.TEXT)})
    return (
        SimulatedPage(f"/{service}/GetModelInfo", model, message=model_info),
        SimulatedPage(f"/{service}/HealthCheck", '{"healthy":true,"message":"Healthy"}', message=healthy),
        HEALTH,
    )


@dataclass(frozen=True)
class GrpcCall:
    """*message*: that of a request; *id_field*: the number of the field with its id, which differs from request to request.
    *health_method*: the service's own, whose answer has 1 in field 1 where it serves.
    *model_method*: what tells the name of the one model, in field MODEL_NAME, and its context in tokens, in *context_field*.
    *list_method*: what lists models, in field 1: each has its name in field 1 and its state in field 3.
    """

    message: Schema
    id_field: int
    health_method: str
    model_method: str | None = None
    context_field: int = 0
    list_method: str | None = None

    @property
    def id_tag(self) -> int:
        return self.id_field << 3 | 2

    def encoded(self, json: bytes, name: str) -> bytes:
        """The message that *json* says, without its id. InputError for a field that protocol *name* lacks."""
        try:
            return self.message.encode(json)
        except ValueError as problem:
            raise field_refused(str(problem), name) from None

    def framed(self, message: bytes, ident: bytes) -> bytes:
        return with_prefix(text_field(self.id_field, ident) + message)


def scalars(message: bytes) -> dict[int, int | bytes]:
    """Numbers and bytes of the fields of a *message*, the last of each. ValueError where it is none."""
    return {number: values[-1] for number, values in fields(message).items()}


def fields(message: bytes) -> dict[int, list[Any]]:
    """The same, all of each."""
    found: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at == len(message) or shift > 63:
                raise ValueError("a message that is cut off")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(number())
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or (number() if tag & 7 == 2 else len(message) + 1)
        if at + size > len(message):
            raise ValueError("a message that is cut off")
        found.setdefault(tag >> 3, []).append(message[at : at + size])
        at += size
    return found


def field_refused(field: str, name: str) -> InputError:
    return InputError(
        "protocol-unsupported",
        f"--extra-body sets {field!r}, which the message of {name} does not have, or with another type; leave it out",
    )
