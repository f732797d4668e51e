"""A server of gRPC on grpcio, for tests: it notes what it was sent, and what it sends, and when.

Messages are read and written by hand here, with nothing of the package.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from ext.reference.grpc_reference import fields, ids_of, numbers, sized, whole

VLLM = "/vllm.grpc.engine.VllmEngine/"
SGLANG = "/sglang.grpc.scheduler.SglangScheduler/"
KSERVE = "/inference.GRPCInferenceService/"


@dataclass
class Asked:
    """A request as it came, and its answer as it was sent: times in ns of the monotonic clock."""

    ident: str
    prompt: list[int] | str
    tokens: int
    ignore_eos: bool
    stream: bool
    body: bytes
    metadata: dict[str, str]
    came: int = 0
    sent: list[int] = field(default_factory=list)  # before each message with a token was handed over
    status: int = -1


def asked_vllm(body: bytes, metadata: dict[str, str]) -> Asked:
    found = fields(body)
    sampling = fields(found[4][0])
    prompt = numbers(fields(found[2][0])[2][0]) if 2 in found else found[3][0].decode()
    return Asked(
        found[1][0].decode(), prompt, sampling[8][0], sampling.get(14) == [1], found.get(5) == [1], body, metadata
    )


def asked_sglang(body: bytes, metadata: dict[str, str]) -> Asked:
    found = fields(body)
    sampling = fields(found[4][0])
    assert sampling[2] == sampling[7] == [struct.pack("<f", 1)] and sampling[17] == [1]
    return Asked(
        found[1][0].decode(), numbers(fields(found[2][0])[2][0]), sampling[8][0], sampling.get(19) == [1],
        found.get(17) == [1], body, metadata,
    )  # fmt: skip


def asked_kserve(body: bytes, metadata: dict[str, str]) -> Asked:
    found = fields(body)
    inputs = {}
    for each in map(fields, found[5]):
        contents = fields(each[5][0])
        assert each[3] == [b"\x01"]
        inputs[each[1][0].decode()] = contents[8][0] if each[2] == [b"BYTES"] else contents[1][0] == b"\x01"
    parameter = fields(found[4][0])
    assert parameter[1] == [b"triton_enable_empty_final_response"] and fields(parameter[2][0]) == {1: [1]}
    assert found[1] == [b"model"]
    sampling = json.loads(inputs["sampling_parameters"])
    return Asked(
        found[3][0].decode(), inputs["text_input"].decode(), sampling["max_tokens"], sampling["ignore_eos"],
        inputs["stream"], body, metadata,
    )  # fmt: skip


def vllm(one: Asked) -> Iterator[tuple[int, bytes]]:
    """(tokens of the message, message) of an answer."""
    prompt = len(one.prompt)
    if not one.stream:
        ids = list(range(one.tokens))
        yield one.tokens, sized(2, ids_of(1, ids) + sized(2, b"length") + whole(3, prompt) + whole(4, one.tokens))
        return
    for place in range(one.tokens):
        yield 1, sized(1, ids_of(1, [place * 97]) + whole(2, prompt) + whole(3, 1) + whole(4, 2))
    yield 0, sized(2, ids_of(1, [place * 97]) + sized(2, b"length") + whole(3, prompt) + whole(4, 1) + whole(5, 2))


def sglang(one: Asked) -> Iterator[tuple[int, bytes]]:
    said = sized(1, one.ident.encode())
    for place in range(one.tokens):
        used = whole(2, len(one.prompt)) + whole(3, place + 1) + whole(4, 1)
        yield 1, said + sized(2, ids_of(1, [place * 97]) + used)
    ended = whole(3, len(one.prompt)) + whole(4, one.tokens) + whole(5, 1)
    yield 0, said + sized(3, ids_of(1, [place * 97]) + sized(2, b"length") + ended)


def tensors(final: bool, text: str | None = None, prompt: int = 0, finish: str = "None") -> bytes:
    message = sized(1, b"model") + sized(4, sized(1, b"triton_final_response") + sized(2, whole(1, final)))
    if text is not None:
        raw = [text.encode(), finish.encode()]
        for name, kind in (("text_output", b"BYTES"), ("finish_reason", b"BYTES"), ("num_input_tokens", b"UINT32"),
                           ("num_output_tokens", b"UINT32")):  # fmt: skip
            message += sized(5, sized(1, name.encode()) + sized(2, kind) + ids_of(3, [1]))
        for each in (
            *(struct.pack("<I", len(one)) + one for one in raw),
            struct.pack("<I", prompt),
            struct.pack("<I", 1),
        ):
            message += sized(6, each)
    return sized(2, message)


def kserve(one: Asked) -> Iterator[tuple[int, bytes]]:
    for place in range(one.tokens):
        last = place == one.tokens - 1
        yield 1, tensors(False, f' "ä{place}\n', len(one.prompt), "length" if last else "None")
    yield 0, tensors(True)


def listed(*models: tuple[bytes, bytes]) -> bytes:
    """Names and states, as Triton lists its models."""
    return b"".join(sized(1, sized(1, name) + sized(2, b"1") + sized(3, state)) for name, state in models)


READERS: dict[str, tuple[Callable[[bytes, dict[str, str]], Asked], Callable[[Asked], Iterator[tuple[int, bytes]]]]] = {
    VLLM + "Generate": (asked_vllm, vllm),
    SGLANG + "Generate": (asked_sglang, sglang),
    KSERVE + "ModelStreamInfer": (asked_kserve, kserve),
}
MODELS = {
    VLLM + "GetModelInfo": sized(6, b"model") + whole(3, 4096),
    SGLANG + "GetModelInfo": sized(6, b"model") + whole(7, 4096),
    KSERVE + "RepositoryIndex": listed((b"model", b"READY"), (b"other", b"UNAVAILABLE")),
}
Disturb = Callable[[Asked, int, grpc.ServicerContext], None]


class Engine(grpc.GenericRpcHandler):
    """*gap_s* before each token; *disturb* is called before each token, with its number; *answers*: of other methods."""

    def __init__(self, gap_s: float, disturb: Disturb | None, answers: dict[str, bytes]) -> None:
        self.gap_s, self.disturb, self.answers = gap_s, disturb, answers
        self.log: dict[str, Asked] = {}
        self.lock = threading.Lock()

    def service(self, call: Any) -> Any:
        path = call.method
        metadata = dict(call.invocation_metadata)
        if path in self.answers:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self.answers[path])
        if path not in READERS:
            return None
        read, answer = READERS[path]
        if path.startswith(KSERVE):
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: (
                    m for body in requests for m in self.serve(read(body, metadata), answer, context)
                )
            )
        return grpc.unary_stream_rpc_method_handler(
            lambda body, context: self.serve(read(body, metadata), answer, context)
        )

    def serve(
        self, one: Asked, answer: Callable[[Asked], Iterator[tuple[int, bytes]]], context: Any
    ) -> Iterator[bytes]:
        one.came = due = time.monotonic_ns()
        with self.lock:
            assert one.ident not in self.log
            self.log[one.ident] = one
        place = 0
        for tokens, message in answer(one):
            if tokens:
                due += int(self.gap_s * 1e9)
                time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
                if self.disturb is not None:
                    self.disturb(one, place, context)
                one.sent.append(time.monotonic_ns())
                place += 1
            yield message
        one.status = 0


@contextmanager
def grpc_server(
    gap_s: float = 0.005,
    disturb: Disturb | None = None,
    credentials: grpc.ServerCredentials | None = None,
    answers: dict[str, bytes] = MODELS,
) -> Iterator[tuple[int, Engine]]:
    """Yields its port and what it notes. *answers*: of other methods."""
    engine = Engine(gap_s, disturb, answers)
    server = grpc.server(ThreadPoolExecutor(64), handlers=[engine])
    address = "127.0.0.1:0"
    port = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    server.start()
    try:
        yield port, engine
    finally:
        server.stop(0).wait()
