"""gRPC of the simulated engine, as grpcio reads it; messages are written and read by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from ext.reference.grpc_reference import fields, ids_of, numbers, sized, whole
from http2_client import Http2Client

from fastllmload._ext.simserver.writer import status_fields
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

KSERVE = "/inference.GRPCInferenceService/"
VLLM = "/vllm.grpc.engine.VllmEngine/"
SGLANG = "/sglang.grpc.scheduler.SglangScheduler/"
Call = Callable[..., list[bytes]]


@pytest.mark.parametrize(
    ("message", "said"),
    [("a b", "a b"), ("50%ä", "50%25%C3%A4"), ("a" * 300, "a" * 250), ("ä" * 300, "%C3%A4" * 41), ("", None)],
)
def test_a_long_message_is_cut_between_characters(message: str, said: str | None) -> None:
    assert status_fields(3, message).get("grpc-message") == said


@pytest.fixture(scope="module")
def call() -> Iterator[Call]:
    """Messages that answer a method, of a server of the model `simulated`."""
    options = SimulatorOptions(ttft_ms=1.0, itl_ms=1.0)
    with SimulatorProcess(options) as process, grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:

        def ask(method: str, message: bytes = b"", fault: str = "") -> list[bytes]:
            metadata = (("x-fault", fault),) if fault else ()
            return list(channel.unary_stream(method)(message, metadata=metadata, timeout=60))

        yield ask


def post(path: str, content_type: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\r\n".encode()


def infer(model: str, tokens: int = 4) -> bytes:
    """A request of KServe."""
    sampling = b'{"max_tokens":%d}' % tokens
    contents = {
        b"text_input": (b"BYTES", sized(8, b"a b")),
        b"sampling_parameters": (b"BYTES", sized(8, sampling)),
        b"stream": (b"BOOL", sized(1, b"\x01")),
    }
    inputs = b"".join(
        sized(5, sized(1, name) + sized(2, kind) + sized(5, each)) for name, (kind, each) in contents.items()
    )
    return sized(1, model.encode()) + sized(3, b"one") + inputs


def test_what_is_refused_is_said_in_whole_characters(call: Call) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(KSERVE + "ModelStreamInfer", infer("ä" * 300))
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == "Request for unknown model: '" + "ä" * 37


@pytest.mark.parametrize("method", [VLLM + "Embed", KSERVE + "Other", "/unknown.Service/Method"])
def test_an_unknown_method_is_unimplemented(call: Call, method: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(method)
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.UNIMPLEMENTED,
        f"there is no {method} here",
    )


def test_an_unknown_method_is_answered_by_one_block_of_fields() -> None:
    """With HTTP's 200, and it ends the stream; what is not gRPC gets a page with 404."""
    with SimulatorProcess(SimulatorOptions()) as process, Http2Client(process.port) as client:
        found = client.ask(post("/unknown.Service/Method", "application/grpc+proto"))
        assert (found.status, found.body, found.ended) == (200, b"", True)
        assert found.headers["grpc-status"] == "12" and found.headers["content-type"] == "application/grpc"
        assert client.ask(post("/unknown.Service/Method", "application/json")).status == 404


def test_only_the_model_that_is_served_is_ready(call: Call) -> None:
    answers = [fields(*call(KSERVE + "ModelReady", sized(1, name))) for name in (b"simulated", b"other", b"")]
    assert [one.get(1) == [1] for one in answers] == [True, False, False]
    options = SimulatorOptions(any_model=True)
    with SimulatorProcess(options) as process, grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
        assert channel.unary_unary(KSERVE + "ModelReady")(sized(1, b"other"), timeout=60) == whole(1, 1)


@pytest.mark.parametrize(("service", "context"), [(VLLM, 3), (SGLANG, 7)])
def test_engines_tell_their_model_and_health(call: Call, service: str, context: int) -> None:
    (answers,) = map(fields, call(service + "GetModelInfo"))
    assert answers[1] == answers[6] == [b"simulated"] and answers[context] == [131072]
    assert [fields(one) for one in call(service + "HealthCheck")] == [{1: [1], 2: [b"Healthy"]}]
    assert call("/grpc.health.v1.Health/Check") == [whole(1, 1)]


def generate(service: str, tokens: int, stream: bool) -> bytes:
    prompt = sized(2, ids_of(2, [5, 6, 7]))
    if service == VLLM:
        return sized(1, b"one") + prompt + sized(4, whole(8, tokens) + whole(14, 1)) + whole(5, stream)
    return sized(1, b"one") + prompt + sized(4, whole(8, tokens) + whole(19, 1)) + whole(17, stream)


@pytest.mark.parametrize("service", [VLLM, SGLANG])
@pytest.mark.parametrize(("fault", "sizes"), [("", [1] * 7), ("multi_token:3", [3, 3, 1]), ("multi_token:7", [7])])
def test_the_last_message_repeats_the_ids_of_the_one_before(
    call: Call, service: str, fault: str, sizes: list[int]
) -> None:
    """With their number in vLLM's, with that of all tokens in SGLang's; without a stream it has all ids."""
    place = 0 if service == VLLM else 1
    *chunks, last = (fields(one) for one in call(service + "Generate", generate(service, 7, True), fault))
    said = [fields(one[1 + place][0]) for one in chunks]
    complete = fields(last[2 + place][0])
    ids = [numbers(one[1][0]) for one in said]
    counts = sizes if service == VLLM else [sum(sizes[: n + 1]) for n in range(len(sizes))]
    assert [len(one) for one in ids] == sizes and [one[3] for one in said] == [[n] for n in counts]
    assert numbers(complete[1][0]) == ids[-1] and complete[4] == [counts[-1]] and complete[2] == [b"length"]
    (document,) = (fields(one) for one in call(service + "Generate", generate(service, 7, False), fault))
    whole_answer = fields(document[2 + place][0])
    assert len(numbers(whole_answer[1][0])) == 7 and whole_answer[4] == [7] and whole_answer[3] == [3]
