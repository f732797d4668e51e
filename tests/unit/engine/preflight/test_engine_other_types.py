"""--endpoint-type given wrongly: the refusal says which one the server seems to speak."""

import json

import pytest
from refusals import raises_code, says
from support.canned_server import canned

from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.endpoint import named
from fastllmload.engine.preflight import answers
from fastllmload.engine.preflight.check import preflight
from fastllmload.errors import TargetError
from fastllmload.redact import Redactor
from fastllmload.settings import Client, RunSettings, Target, Workload

pytestmark = pytest.mark.slow

OVER_HTTP = [one for one in ENDPOINTS.values() if one.call is None and not one.websocket]


def fastapi(field):
    return json.dumps({"detail": [{"type": "missing", "loc": ["body", field], "msg": "Field required", "input": {}}]})


class OneProtocol:
    """A server that has the path of one protocol, and refuses bodies without its prompt."""

    def __init__(self, endpoint):
        self.path = named(endpoint.path(""), "m")
        self.needed = next(iter(endpoint.prompt_fields))

    def answers_to(self, path, body):
        if path != self.path:
            return None
        return (422, "application/json", fastapi(self.needed).encode()) if body else (405, "application/json", b"{}")


def asked(url, name, **target):
    endpoint = ENDPOINTS[name]
    settings = RunSettings(
        client=Client(http_version="auto" if endpoint.call is None else "2"),
        workload=Workload(prompt_form="words" if endpoint.takes("text") else "ids"),
        target=Target(urls=(url,), endpoint_type=name, model="m", **target),
    )
    return preflight(settings, [url], None, Redactor([]))


@pytest.mark.parametrize("served", OVER_HTTP, ids=lambda one: one.name)
@pytest.mark.parametrize("default_path", [True, False])
def test_the_path_or_the_missing_field_names_the_type(served, default_path):
    """The path that another type has by default is not served; where the right path is given, the body is refused."""
    wrong = "openai-completions" if "messages" in served.prompt_fields else "openai-chat"
    server = OneProtocol(served)
    with canned(server) as up, raises_code("request-refused", "give --endpoint-type ") as caught:
        asked(up.url, wrong, endpoint_path=None if default_path else server.path)
    assert served.name in caught.value.message.partition("give --endpoint-type ")[2].split(" or ")


@pytest.mark.parametrize(
    ("refusal", "fields"),
    [
        (fastapi("input"), ["input"]),
        ('{"error":{"message":"[{\'type\': \'missing\', \'loc\': (\'body\', \'messages\'), \'msg\': \'Field required\'}]"}}',
         ["messages"]),
        ("Failed to deserialize the JSON body: missing field `inputs` at line 1 column 30", ["inputs"]),
        ('{"error":{"message":"Missing required parameter: \'messages\'."}}', ["messages"]),
        ('{"type":"error","error":{"type":"invalid_request_error","message":"messages: Field required"}}', ["messages"]),
        ('{"message":"1 validation error\\ntoken_ids\\n  Field required [type=missing]"}', ["token_ids"]),
        ('{"error":"\'prompt\' is required"}', ["prompt"]),
        ('{"error":"unknown field ignore_eos"}', []),
    ],
)  # fmt: skip
def test_a_missing_field_is_found_as_servers_say_it(refusal, fields):
    assert answers.missing_fields(refusal.encode()) == fields


def test_a_missing_field_that_the_type_has_is_not_about_the_type():
    """Another field of the request was wrong."""
    served = OneProtocol(ENDPOINTS["openai-chat"])
    with canned(served) as up, raises_code("request-refused", "does the server take these fields"):
        asked(up.url, "openai-chat")


def test_an_answer_that_the_wrong_type_can_read_is_refused_by_its_form():
    """Other protocols have text in fields of the same name."""
    event = b'{"type":"response.output_text.done","item_id":"m","text":"Two birds"}'
    stream = 200, "text/event-stream", b"data: " + event + b"\n\n"
    with canned({"/generate": stream}) as up, raises_code("answer-not-understood", "openai-responses"):
        asked(up.url, "sglang-generate")


def test_grpc_to_a_server_of_http_asks_for_its_port():
    with canned({}) as up, raises_code("http2-not-spoken", "vllm-grpc needs it", "an --endpoint-type over HTTP"):
        asked(up.url, "vllm-grpc")


@pytest.fixture
def grpc_port():
    """Starts servers of gRPC with the answers of the given methods."""
    pytest.importorskip("grpc", reason="needs grpcio")
    from contextlib import ExitStack

    from grpc_server import grpc_server

    with ExitStack() as opened:
        yield lambda replies: opened.enter_context(grpc_server(answers=replies))[0]


@pytest.mark.parametrize("name", ["openai-chat", "ollama-generate"])
def test_http_to_a_server_of_grpc_names_the_types_over_grpc(grpc_port, name):
    with raises_code("answer-broken", "kserve-grpc or kserve-grpc-ensemble or sglang-grpc or vllm-grpc"):
        asked(f"http://127.0.0.1:{grpc_port({})}", name)


def test_another_service_of_grpc_is_named(grpc_port):
    """The server has no method of vLLM's, but answers that of SGLang's health."""
    port = grpc_port({"/sglang.grpc.scheduler.SglangScheduler/HealthCheck": b"\x08\x01"})
    with pytest.raises(TargetError) as caught:
        asked(f"http://127.0.0.1:{port}", "vllm-grpc", endpoint_path="/vllm.grpc.engine.VllmEngine/Absent")
    assert says(str(caught.value), "request-refused", "give --endpoint-type sglang-grpc")


HEALTH = "/grpc.health.v1.Health/Check"
OWN = "/vllm.grpc.engine.VllmEngine/HealthCheck"


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ({HEALTH: b"\x08\x02"}, HEALTH[1:]),
        ({HEALTH: b""}, HEALTH[1:]),  # status UNKNOWN
        ({OWN: b"\x12\x07loading"}, "not serving (loading)"),
    ],
)
def test_a_server_that_does_not_serve_is_refused(grpc_port, replies, why):
    with raises_code("target-not-serving", why, "still loading"):
        asked(f"http://127.0.0.1:{grpc_port(replies)}", "vllm-grpc")


@pytest.mark.parametrize("replies", [{}, {HEALTH: b"\x08\x01", OWN: b""}, {OWN: b"\x08\x01\x12\x02ok"}])
def test_a_server_that_serves_or_has_no_health_check_is_taken(grpc_port, replies):
    """Its own health check is asked only where it has no other."""
    assert asked(f"http://127.0.0.1:{grpc_port(replies)}", "vllm-grpc").model == "m"
