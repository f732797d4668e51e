"""Problems of a target are reported in one sentence before the run, by the right exception and without the API key."""

import contextlib
import errno
import json
import socket
import ssl
import struct
import threading
from dataclasses import replace

import pytest
from certificates import certificate, needs_openssl
from refusals import code_of, raises_code, says
from support.canned_server import canned

from fastllmload.engine.document import target_facts
from fastllmload.engine.preflight import client, other_types, probe
from fastllmload.engine.preflight import client as progress
from fastllmload.engine.preflight.check import Preflight, preflight
from fastllmload.engine.preflight.probe import ServerProbe
from fastllmload.engine.preflight.routing import of_identity
from fastllmload.engine.recording.telemetry import TelemetryDiscovery
from fastllmload.engine.run_plans import ResolvedSettings
from fastllmload.errors import InputError, TargetError
from fastllmload.redact import Redactor
from fastllmload.settings import (
    Client,
    Load,
    RunSettings,
    Secret,
    SessionIdentity,
    Target,
    Telemetry,
    TrafficClass,
    Workload,
)

pytestmark = pytest.mark.slow

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
KEY = "sk-very-secret"


def models(*names):
    return 200, "application/json", json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()


def stream(*events):
    return 200, "text/event-stream", b"".join(b"data: " + event + b"\n\n" for event in events)


TOKEN = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}'
WHOLE = (
    b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},'
    b'"finish_reason":"stop"}]}'
)
USAGE = b'{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}'
GOOD = {MODELS: models("m"), CHAT: stream(TOKEN, USAGE, b"[DONE]")}


def check(urls, key=KEY, endpoint="openai-chat", workload=None, client=None, **target):
    asked = Target(urls=tuple(urls), endpoint_type=endpoint, **target)
    settings = RunSettings(target=asked, workload=workload or Workload(), client=client or Client())
    return preflight(settings, urls, None if key is None else Secret(key), Redactor([KEY]))


def refused(kind, answers, **asked):
    with canned(answers) as server, pytest.raises(kind) as caught:
        check([server.url], **asked)
    text = str(caught.value)
    assert KEY not in text and "\n" not in text and server.url in text
    return text


def test_a_good_target_gives_model_usage_and_address():
    with canned(GOOD) as server:
        found = check([server.url])
    assert (found.model, found.usage_reported, found.notes) == ("m", True, [])
    target = found.targets[0]
    assert (target.family, target.address, target.port) == ("inet", "127.0.0.1", server.server.server_port)
    assert len(found.connect_ms) == 20 and found.answer_s > 0
    assert f"Authorization: Bearer {KEY}\r\n" in target.head_prefix
    sent = json.loads(server.asked[-1][3])
    assert sent["model"] == "m" and sent["max_tokens"] == 4 and sent["stream"] is True


def test_round_trips_are_also_measured_after_a_run():
    behind = []
    with canned(GOOD) as server:
        first = check([server.url]).first
        first.round_trips(behind)
    assert len(behind) == 20 and min(behind) > 0
    with raises_code("target-unreachable", first.base.public_url, "no longer accepts", "connection refused"):
        first.round_trips(behind)
    assert len(behind) == 20


@pytest.mark.parametrize(("ports", "more"), [(28_232, 20), (1_000, 20), (400, 8), (21, 4)])
def test_few_connects_where_local_ports_are_few(monkeypatch, ports, more):
    """One connect per fifty ports, at least four: each port stays in TIME_WAIT for a minute."""
    monkeypatch.setattr(client, "port_capacity", lambda sources: ports)
    with canned(GOOD) as server:
        first = check([server.url]).first
        connects = []
        first.round_trips(connects)
    assert len(connects) == more


def test_connects_to_a_distant_target_are_limited_in_time(monkeypatch):
    """Each connect takes 0.2 s of the test's clock, so the limit of one second is reached after five."""
    now = iter(range(0, 100_000, 200))
    with canned(GOOD) as server:
        first = check([server.url]).first
        monkeypatch.setattr(client.time, "perf_counter", lambda: next(now) / 1e3)
        behind = []
        first.round_trips(behind)
    assert behind == pytest.approx([200.0] * 5)


def test_every_url_is_probed_with_its_own_host_header():
    with canned(GOOD) as one, canned(GOOD) as other:
        found = check([one.url, other.url])
        assert one.asked and other.asked
    assert [target.url for target in found.targets] == [one.url, other.url]


def with_classes(urls, *classes, model=None):
    several = tuple(TrafficClass(name=name, load=Load(rate=1.0), workload=Workload(), **own) for name, own in classes)
    settings = RunSettings(target=Target(urls=tuple(urls), model=model), classes=several)
    return preflight(settings, urls, Secret(KEY), Redactor([KEY]))


TEXT = b'{"object":"text_completion","choices":[{"index":0,"text":"hello","finish_reason":null}]}'
OLLAMA = (
    b'{"model":"o","message":{"role":"assistant","content":"hi"},"done":false}\n'
    b'{"model":"o","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":1}\n'
)


def test_each_class_is_probed_at_its_own_url_in_its_own_protocol():
    """One model per class, found at its URL; request heads only for its own targets."""
    other = {MODELS: models("n"), "/v1/completions": stream(TEXT, USAGE, b"[DONE]")}
    tags = 200, "application/json", b'{"models":[{"name":"o:latest","model":"o:latest"}]}'
    third = {"/api/tags": tags, "/api/chat": (200, "application/x-ndjson", OLLAMA)}
    with canned(GOOD) as one, canned(other) as two, canned(third) as three:
        found = with_classes(
            [one.url],
            ("a", {}),
            ("b", {"endpoint_type": "openai-completions", "urls": (two.url,)}),
            ("c", {"endpoint_type": "ollama-chat", "urls": (three.url,), "model": "o"}),
        )
        assert [target.url for target in found.targets] == [one.url, two.url, three.url]
        assert found.class_targets == [(0, 1), (1, 1), (2, 1)] and found.class_urls == [two.url, three.url]
        assert (found.model, found.class_models) == ("m", ["m", "n", "o"])
        assert [head.split(" ")[1] if head else "" for heads in found.class_heads for head in heads] == [
            CHAT, "", "", "", "/v1/completions", "", "", "", "/api/chat",
        ]  # fmt: skip
        assert json.loads(two.asked[-1][3])["model"] == "n" and "prompt" in json.loads(two.asked[-1][3])


def test_a_class_without_a_model_has_that_of_its_server_and_not_of_another_class():
    """A class of completions does not send the adapter of a class of chat; several offered need a choice."""
    both = {**GOOD, "/v1/completions": stream(TEXT, USAGE, b"[DONE]")}
    classes = (("chat", {"model": "l1"}), ("text", {"endpoint_type": "openai-completions"}))
    with canned({**both, MODELS: models("m", "l1")}) as one:
        with raises_code("model-ambiguous", "class 'text'", "'m'", "'l1'"):
            with_classes([one.url], *classes)
        found = with_classes([one.url], *classes, model="m")
        assert found.class_models == ["l1", "m"] and json.loads(one.asked[-1][3])["model"] == "m"


EMBEDDED = (200, "application/json", b'{"object":"list","data":[{"object":"embedding"}],"usage":{"prompt_tokens":2}}')


@pytest.mark.parametrize("order", [("e", "a"), ("a", "e")])
def test_usage_is_that_of_classes_with_tokens(order):
    """Whichever is first: answers without tokens do not say whether the server counts them. Each class is asked."""
    kinds = {"a": {}, "e": {"endpoint_type": "openai-embeddings"}}
    with canned(GOOD | {"/v1/embeddings": EMBEDDED}) as one:
        found = with_classes([one.url], *((name, kinds[name]) for name in order))
        assert found.usage_reported is True
        asked = {each[1]: json.loads(each[3]) for each in one.asked if each[3]}
        assert set(asked) == {CHAT, "/v1/embeddings"} and "stream_options" not in asked["/v1/embeddings"]
    with canned({MODELS: GOOD[MODELS], "/v1/embeddings": EMBEDDED}) as one:
        found = with_classes([one.url], ("e", kinds["e"]))
        assert found.usage_reported is None and found.answer_s


def test_a_class_without_tokens_whose_endpoint_is_missing_is_named():
    with canned(GOOD) as one, raises_code("request-refused", "/v1/embeddings", "class 'e'"):
        with_classes([one.url], ("a", {}), ("e", {"endpoint_type": "openai-embeddings"}))


def test_classes_with_the_same_urls_share_targets():
    with canned(GOOD) as one, canned(GOOD) as two:
        own = {"urls": (two.url, one.url)}
        found = with_classes([one.url], ("a", {}), ("b", own), ("c", own), ("d", {"urls": (one.url,)}))
        assert found.class_targets == [(0, 1), (1, 2), (1, 2), (0, 1)] and len(found.targets) == 3


@pytest.mark.parametrize(
    ("own", "code", "said"),
    [
        ({}, "model-not-offered", "-m 'm'"),
        ({"model": "x"}, "model-not-offered", "-m 'x'"),
        ({"model": "n", "endpoint_type": "openai-completions"}, "request-refused", "POST /v1/completions with 404"),
    ],
)
def test_errors_at_the_url_of_a_class_name_the_class(own, code, said):
    there = {MODELS: models("n"), CHAT: stream(TOKEN, USAGE, b"[DONE]")}
    with canned(GOOD) as one, canned(there) as two, raises_code(code, "class 'b': ", said) as caught:
        with_classes([one.url], ("a", {}), ("b", {"urls": (two.url,), **own}), model="m")
    assert caught.value.message.startswith("class 'b': ") and two.url in caught.value.message


def test_a_stream_without_usage_is_reported():
    with canned({MODELS: models("m"), CHAT: stream(TOKEN, b"[DONE]")}) as server:
        assert check([server.url]).usage_reported is False


def test_several_models_require_a_choice():
    said = refused(InputError, {**GOOD, MODELS: models("a", "b")})
    assert says(said, "model-ambiguous", "'a', 'b'", "-m")


def test_a_model_that_is_not_offered_is_rejected_with_the_list():
    assert says(refused(InputError, GOOD, model="x"), "model-not-offered", "-m 'x'", "offers 'm'")


@pytest.mark.parametrize(
    "answer", [(404, "application/json", b"{}"), models(), (200, "text/html", b"<html>"), (200, "a/b", b"[" * 9999)]
)
def test_without_a_list_the_model_must_be_named(answer):
    assert says(refused(InputError, {**GOOD, MODELS: answer}), "model-missing", "-m")
    with canned({**GOOD, MODELS: answer}) as server:
        assert check([server.url], model="mine").model == "mine"


@pytest.mark.parametrize(("status", "path"), [(401, MODELS), (401, CHAT), (403, CHAT)])
def test_a_refused_key_is_reported_without_the_key(status, path):
    denied = (status, "application/json", json.dumps({"error": f"bad key {KEY}"}).encode())
    assert says(refused(TargetError, {**GOOD, path: denied}), "unauthorized", f"answers {status}: ", "--api-key")


def test_a_list_that_is_forbidden_does_not_forbid_requests():
    forbidden = (403, "text/plain", b'{"error":"This API is restricted"}')
    with canned({**GOOD, MODELS: forbidden}) as server:
        assert check([server.url], model="mine").model == "mine"
    assert says(refused(TargetError, {**GOOD, MODELS: forbidden}), "unauthorized", "This API is restricted")


def test_a_missing_key_is_requested():
    assert "OPENAI_API_KEY" in refused(TargetError, {**GOOD, MODELS: (401, "a/b", b"")}, key=None)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((404, "application/json", b'{"detail":"Not Found"}'), "request-refused", "with 404"),
        (
            (400, "application/json", b'{"error":"unknown field ignore_eos"}'),
            "request-refused",
            "unknown field ignore_eos",
        ),
        ((400, "application/json", b"{}"), "request-refused", "with 400: {}; is the endpoint"),
        ((500, "text/plain", b"x" * 999), "server-error", "with 500"),
        ((503, "application/json", b"{}"), "server-error", "loading its model?"),
        ((307, "text/plain", b"moved"), "target-redirects", "with 307"),
        ((200, "text/html", b"<html>hello</html>"), "answer-not-understood", "a web page"),
        ((200, "text/event-stream", b""), "answer-not-understood", "no body"),
        (stream(b'{"error":{"message":"out of memory","code":500}}'), "error-in-answer", "out of memory"),
        ((200, "a/b", None), "answer-broken", "POST"),
    ],
)
def test_a_wrong_answer_is_described(answer, code, said):
    text = refused(TargetError, {**GOOD, CHAT: answer})
    assert said in text and code_of(text) == code


def test_a_key_in_an_error_text_is_redacted():
    refused(TargetError, {**GOOD, CHAT: (400, "application/json", f"you sent Bearer {KEY}".encode())})


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ((429, "application/json", b"{}"), "429"),
        ((200, "application/json", WHOLE), "not a stream"),
        (stream(b"[DONE]"), "without a token"),
    ],
)  # fmt: skip
def test_an_unusual_answer_adds_a_note(answer, note):
    with canned({**GOOD, CHAT: answer}) as server:
        assert any(note in line for line in check([server.url]).notes)


@pytest.mark.parametrize("form", ["ids", "native"])
def test_token_id_prompts_are_probed_as_such(form):
    completion = b'{"object":"text_completion","choices":[{"index":0,"text":"hi","finish_reason":null}]}'
    with canned({MODELS: models("m"), "/v1/completions": stream(completion, b"[DONE]")}) as server:
        check([server.url], endpoint="openai-completions", workload=Workload(prompt_form=form))
    assert json.loads(server.asked[-1][3])["prompt"] == [1, 2, 3, 4]


def test_an_answer_without_the_header_of_backends_is_noted() -> None:
    """With those that it has; the run continues."""
    with canned(GOOD) as server:
        found = check([server.url], backend_header="X-Served-By")
        assert not any("x-served-by" in note.lower() for note in check([server.url]).notes)
        assert not any("backend-header" in note for note in check([server.url], backend_header="content-TYPE").notes)
    (note,) = (note for note in found.notes if code_of(note) == "backend-header-absent")
    assert "X-Served-By" in note and "content-type" in note


@pytest.mark.parametrize(
    ("session", "noted"),
    [
        ({"affinity": "llm-d"}, "x-session-token"),
        ({"token": "X-T=X-U"}, "X-T"),
        ({"token": "Content-Type=X-U"}, None),
        ({"token": "body:object=X-U"}, None),
        ({"token": "body:of.conversation=X-U"}, "of.conversation"),
        ({"token": "body:choices.object=X-U"}, "choices.object"),
        ({"token": "body:usage.object=X-U"}, "usage.object"),
        ({"token": "body:usage.total_tokens=X-U"}, None),
        ({"token": "body:usage=X-U"}, "usage"),
        ({"affinity": "aibrix"}, None),
        ({}, None),
    ],
)
def test_an_answer_without_a_token_is_noted(session: dict[str, str], noted: str | None) -> None:
    """Each router that gives tokens answers the first request with one."""
    with canned(GOOD) as server:
        settings = RunSettings(target=Target(urls=(server.url,)), session=SessionIdentity(**session))
        notes = preflight(settings, [server.url], None, Redactor([])).notes
    found = [note for note in notes if code_of(note) == "session-token-absent"]
    assert len(found) == (noted is not None) and all(f" {noted}," in note for note in found)


IN_BODY = (("user", "{session}"),)


@pytest.mark.parametrize(
    ("session", "noted"),
    [
        (SessionIdentity(body=IN_BODY, headers=(("X-Request-Id", "{request}"),)), True),
        (SessionIdentity(body=IN_BODY, headers=(("x-request-id", "{request}"), ("X-User-ID", "{user}"))), False),
        (SessionIdentity(body=IN_BODY), False),
        (SessionIdentity(affinity="vllm", headers=(("X-Request-Id", "{request}"),)), False),
        (SessionIdentity(headers=(("X-Request-Id", "{request}"),)), False),
    ],
)  # fmt: skip
def test_an_id_that_ranks_above_the_sessions_is_noted(session: SessionIdentity, noted: bool) -> None:
    assert [code_of(note) for note in of_identity(RunSettings(session=session))] == ["session-outranked"] * noted


WORKERS_LISTED = json.dumps({"workers": [{"url": "http://a"}, {"url": "http://b"}], "total": 2}).encode()


@pytest.mark.parametrize(
    ("page", "key", "headers", "noted"),
    [
        (WORKERS_LISTED, KEY, (), True),
        (WORKERS_LISTED, None, (), False),
        (WORKERS_LISTED, KEY, (("X-SMG-Routing-Key", "a"),), False),
        (b'{"workers": [{"url": "http://a"}]}', KEY, (), False),
        (b'{"workers": 2}', KEY, (), False),
        (b"<html>", KEY, (), False),
        (None, KEY, (), False),
    ],
)
def test_one_key_for_all_at_a_gateway_is_noted(page, key, headers, noted) -> None:
    """Where its page of workers shows that it is SGLang's."""
    answers = GOOD if page is None else {**GOOD, "/workers": (200, "application/json", page)}
    with canned(answers) as server:
        notes = check([server.url], key=key, headers=headers, backend_header="content-type").notes
        assert not any(code_of(note) == "key-routes" for note in check([server.url], key=key, headers=headers).notes)
    found = [note for note in notes if code_of(note) == "key-routes"]
    assert len(found) == noted and all("--affinity smg" in note and KEY not in note for note in found)


def test_a_closed_port_is_reported_with_address_and_reason():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with raises_code("target-unreachable", "127.0.0.1 (connection refused)"):
        check([url])


def test_an_unknown_host_is_named():
    with raises_code("host-unresolved", "'no-such-host.invalid'"):
        check(["http://no-such-host.invalid:8000"])


def test_https_to_a_port_without_tls():
    with canned(GOOD) as server, raises_code("tls-failed", server.url.partition(":")[2], "speak https"):
        check([server.url.replace("http:", "https:")])


@pytest.fixture
def tls_server(tmp_path):
    """A canned server with a self-signed certificate."""
    made, key = certificate(tmp_path, "localhost", ["DNS:localhost"])
    with canned(GOOD) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made, key)
        server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
        server.url = f"https://127.0.0.1:{server.server.server_port}"
        server.server.handle_error = lambda *_: None  # the client hangs up when it does not trust us
        yield server, str(made)


@needs_openssl
def test_an_untrusted_certificate_is_explained(tls_server):
    server, _ = tls_server
    with raises_code("tls-certificate-untrusted", "--cacert", "--insecure"):
        check([server.url])


@needs_openssl
def test_a_trusted_or_unchecked_certificate_is_accepted(tls_server):
    server, trusted = tls_server
    assert check([server.url], insecure=True).targets[0].tls
    assert check([server.url], cacert=trusted, server_name="localhost").targets[0].server_name == "localhost"


@pytest.mark.parametrize(
    "target",
    [{"cacert": "/no/such/file.pem"}, {"client_cert": "/no/such.pem", "client_key": "/no/such.key", "insecure": True}],
)
def test_an_unusable_certificate_file_is_an_input_error(target):
    with raises_code("tls-file-invalid", "/no/such"):
        check(["https://127.0.0.1:1"], **target)


@pytest.mark.parametrize(
    ("entries", "limit"),
    [
        ([{"id": "m", "max_model_len": 4096}], 4096),
        ([{"id": "m"}], None),
        ([{"id": "m", "max_model_len": "many"}], None),
        ([{"id": "m", "max_model_len": 0}], None),
    ],
)
def test_context_limit_from_the_list_of_models(entries, limit):
    """As vLLM reports it; a value that is not a number of tokens is ignored."""
    page = (200, "application/json", json.dumps({"object": "list", "data": entries}).encode())
    with canned({**GOOD, MODELS: page}) as server:
        assert check([server.url]).context_limit == limit


def test_the_smallest_context_limit_of_several_targets_is_used():
    def page(tokens):
        entry = {"id": "m", "max_model_len": tokens}
        return 200, "application/json", json.dumps({"object": "list", "data": [entry]}).encode()

    with canned({**GOOD, MODELS: page(8000)}) as one, canned({**GOOD, MODELS: page(2000)}) as other:
        assert check([one.url, other.url]).context_limit == 2000


@pytest.mark.parametrize("head", ["Content-Length: 100000", "X-Until: the end"])
def test_an_endless_slow_answer_times_out(head):
    """Each byte arrives within the socket's own time-out."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener, f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode(), ended))
        dripping.start()
        try:
            with raises_code("answer-timeout", "GET /v1/models within 0.3 s", "--preflight-timeout"):
                check([f"http://127.0.0.1:{listener.getsockname()[1]}/v1"], preflight_timeout=0.3)
        finally:
            ended.set()
            dripping.join()


@pytest.mark.parametrize(
    ("answered", "question", "limit"), [((), "GET /v1/models", 10), ((MODELS,), "POST /v1/chat/completions", 30)]
)
def test_a_long_wait_is_reported_while_it_lasts(monkeypatch, answered, question, limit):
    """With what is waited for and the time limit."""
    said = []
    heard = threading.Event()

    def report(line):
        said.append(line)
        if question in line:
            heard.set()

    class Slow(dict):
        def get(self, path, otherwise):
            if path not in answered:
                assert heard.wait(30)
            return GOOD.get(path, otherwise)

    monkeypatch.setattr(progress, "REPORT_AFTER_S", 0.2)
    settings = RunSettings(target=Target(model="m"))
    with canned(Slow()) as server:
        preflight(settings, [server.url], None, Redactor([]), report)
    assert f"waiting for {server.url} to answer {question}, at most {limit} s (--preflight-timeout)" in said


def test_a_server_that_never_answers_is_rejected_after_the_timeout():
    """It accepts connections, as a listen queue does, and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with raises_code("answer-timeout", url, "GET /v1/models", "0.3 s", "--preflight-timeout"):
            check([url], preflight_timeout=0.3)


def test_a_server_that_accepts_one_connection_only(monkeypatch):
    """One sentence, at whichever check the server stops accepting."""
    connect = ServerProbe._connect
    taken = []

    def first_only(probe, address):
        taken.append(address)
        if len(taken) > 1:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return connect(probe, address)

    monkeypatch.setattr(ServerProbe, "_connect", first_only)
    with (
        canned(GOOD) as server,
        raises_code("target-unreachable", "no longer accepts", "connection refused"),
    ):
        check([server.url])


def test_an_error_event_of_the_probes_answer_is_reported_whatever_its_data():
    page = 200, "text/event-stream", b"event: error\ndata: out of memory\n\n"
    assert says(
        refused(TargetError, {**GOOD, CHAT: page}), "error-in-answer", "a 200: event: error data: out of memory"
    )


def test_an_error_event_after_others_is_reported():
    """Not the start of the answer, which may be of any length."""
    page = stream(*[TOKEN] * 9, b'{"error":{"message":"out of memory"}}', b"[DONE]")
    assert says(
        refused(TargetError, {**GOOD, CHAT: page}), "error-in-answer", 'a 200: {"error":{"message":"out of memory"}}'
    )


def test_a_server_that_hangs_up_after_good_answers_is_not_probed_for_http2():
    assert "https" not in refused(TargetError, {**GOOD, CHAT: (200, "a/b", None)})


def drip(listener, head, ended):
    """Every connection gets *head*, then a byte each 20 ms."""
    listener.settimeout(0.02)
    connections = []
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.sendall(head)
            connections.append(connection)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
    for connection in connections:
        connection.close()


def test_a_server_that_stops_listening_after_the_first_check():
    def connect_and_close(listener):
        for _ in range(client.RTT_CONNECTS):
            listener.accept()[0].close()
        listener.close()

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    going = threading.Thread(target=connect_and_close, args=(listener,))
    going.start()
    with raises_code("target-unreachable"):
        check([f"http://127.0.0.1:{port}/v1"])
    going.join()


@contextlib.contextmanager
def spoken_by(raw, tls=None, reset=False):
    """URL of a server that answers every request with the bytes *raw* or raw(request) and closes, by RST if *reset*.

    Over TLS with the context *tls*.
    """

    def answer(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with (
                contextlib.suppress(ConnectionError),
                connection if tls is None else secured(connection, tls) as connection,
            ):
                asked = b""
                while b"\r\n\r\n" not in asked and (more := connection.recv(65536)):
                    asked += more
                if asked:
                    connection.sendall(raw(asked) if callable(raw) else raw)
                if asked and reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=answer, args=(listener,))
        answering.start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            answering.join()


@contextlib.contextmanager
def secured(connection, tls):
    """*connection* with TLS; ConnectionError when the client only tested whether the port is open."""
    with connection:
        try:
            wrapped = tls.wrap_socket(connection, server_side=True)
        except (ssl.SSLError, OSError):
            raise ConnectionError from None
        with wrapped:
            yield wrapped


def test_a_truncated_answer_is_reported():
    """The connection ends within a chunk of the body."""
    cut = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{"data"'
    with spoken_by(cut) as url, raises_code("answer-broken", "GET /v1/models", "within the body"):
        check([url])


FINISH = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    "ends", [[FINISH], [FINISH, b"[DONE]"], [b"[DONE]"], []], ids=["finish", "both", "done", "none"]
)
@pytest.mark.parametrize("framing", ["chunks", "length"])
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_an_answer_that_is_cut_after_its_end_is_complete(ends, framing, reset):
    """As in a run: an answer cut after its finish_reason is ok, one cut before it is truncated."""
    body = b"".join(b"data: " + event + b"\n\n" for event in (TOKEN, *ends))
    fields = b"Transfer-Encoding: chunked" if framing == "chunks" else b"Content-Length: %d" % (len(body) + 9)
    shown = b"%x\r\n%s\r\n" % (len(body), body) if framing == "chunks" else body
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + fields + b"\r\n\r\n"
    listed = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    with spoken_by(lambda asked: listed if asked.startswith(b"GET") else head + shown, reset=reset) as url:
        if ends:
            assert check([url], model="m").model == "m"
        else:
            with raises_code("answer-broken", "POST /v1/chat/completions", "within the body"):
                check([url], model="m")


def test_interim_responses_before_the_answer_are_skipped():
    interim = (
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    )
    listed = b'{"object":"list","data":[{"id":"m"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(listed)
    with spoken_by(interim + head + listed) as url:
        assert check([url]).model == "m"


def test_endless_interim_responses_are_an_error():
    endless = b"HTTP/1.1 102 Processing\r\n\r\n" * 200
    with spoken_by(endless) as url, raises_code("answer-broken", "100 interim responses"):
        check([url])


@pytest.mark.parametrize("raw", [b"SSH-2.0-\x1b[31mred\x07\r\n", b"\x00\x01\x12\x04\r\x1b]0;title\x85\n"])
def test_a_non_http_answer_is_printed_without_control_characters(raw):
    with (
        spoken_by(raw) as url,
        raises_code("answer-broken", "HTTP status line") as it,
    ):
        check([url])
    assert str(it.value).isprintable()


def test_a_key_in_a_non_http_answer_is_redacted():
    with spoken_by(b"x" * 190 + f" Bearer {KEY}\r\n".encode()) as url, pytest.raises(TargetError) as caught:
        check([url])
    assert "sk-" not in str(caught.value)


def test_an_error_body_is_printed_without_control_characters():
    said = refused(TargetError, {**GOOD, CHAT: (500, "text/plain", b"\x1b]0;title\x07oh no")})
    assert "oh no" in said and said.isprintable()


class Flaky(dict):
    """Answers; the first *failures* of each path are *bad*."""

    def __init__(self, answers, bad, failures):
        super().__init__(answers)
        self.bad, self.left = bad, dict.fromkeys(answers, failures)

    def get(self, path, default=None):
        if self.left.get(path, 0) > 0:
            self.left[path] -= 1
            return self.bad
        return super().get(path, default)


@pytest.mark.parametrize(
    ("bad", "seen"),
    [
        ((500, "application/json", b'{"error":{"message":"now and then"}}'), "with 500: "),
        ((200, "text/event-stream", None), "properly"),
        (stream(b'{"error":{"message":"engine stalled","type":"x","code":503}}'), "error inside a 200"),
    ],
)
def test_an_occasional_failure_is_retried_and_noted(monkeypatch, bad, seen):
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    answers = Flaky(GOOD, bad, 2)
    answers.left[MODELS] = 0
    with canned(answers) as server:
        found = check([server.url])
    (note,) = found.notes
    assert says(note, "probe-repeated", "2 times", seen)


def test_a_server_that_always_fails_is_rejected_after_five_tries(monkeypatch):
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    answers = {MODELS: GOOD[MODELS], CHAT: (503, "application/json", b"{}")}
    with canned(answers) as server, raises_code("server-error", "503"):
        check([server.url])
    assert [path for _, path, *_ in server.asked].count(CHAT) == 5


def test_permanent_failures_are_not_retried():
    answers = {MODELS: GOOD[MODELS], CHAT: (400, "application/json", b"{}")}
    with canned(answers) as server, raises_code("request-refused", "400"):
        check([server.url])
    assert [path for _, path, *_ in server.asked].count(
        CHAT
    ) == 3  # for usage in every event, for token ids, for neither


def test_no_model_check_sends_a_model_that_is_not_listed():
    assert "--no-model-check" in refused(InputError, GOOD, model="alias")
    with canned(GOOD) as server:
        found = check([server.url], model="alias", model_check=False)
    assert found.model == "alias" and "'alias'" in found.notes[0] and code_of(found.notes[0]) == "model-not-offered"
    assert json.loads(server.asked[-1][3])["model"] == "alias"


RESPONSES = b'{"type":"response.output_text.delta","delta":"hi","item_id":"i","output_index":0}'
MESSAGES = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}'


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (stream(RESPONSES), "give --endpoint-type openai-responses"),
        ((200, "application/json", b'{"object":"response","output":[{"type":"message","role":"assistant"}]}'),
         "--endpoint-type openai-responses"),
        (stream(MESSAGES), "give --endpoint-type anthropic-messages"),
        ((200, "application/json", b'{"type":"message","role":"assistant","stop_reason":"end_turn"}'), "anthropic-messages"),
        (stream(TEXT), "give --endpoint-type openai-completions"),
        ((200, "application/x-ndjson", OLLAMA), "give --endpoint-type ollama-chat"),
        ((200, "application/x-ndjson", b'{"model":"o","response":"hi","done":false}\n'), "--endpoint-type ollama-generate"),
        (stream(b'{"token":{"id":3,"text":"a","logprob":-1,"special":false},"generated_text":null}'), "TGI"),
        ((200, "application/json", b'[{"generated_text":"hi"}]'), "TGI"),
        (stream(b'{"choices":[{"index":0,"text":"hi","finish_reason":null}]}'), "--endpoint-type openai-completions"),
        (stream(b'{"request_id":"r","choices":[{"index":0,"token_ids":[5,6],"finish_reason":null}]}'), "vLLM's generate"),
        (stream(b'{"model_name":"m","model_version":"1","text_output":"hi"}'), "Triton's generate"),
        (stream(b'{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"hi"}}}}'), "Cohere"),
        (stream(b'{"content":"hi","stop":false,"id_slot":0}'), "llama.cpp's completion"),
        ((200, "application/json", b'{"data":[{"object":"embedding","embedding":[0.1]}]}'), "OpenAI embeddings"),
    ],
)  # fmt: skip
def test_an_answer_of_another_protocol_is_rejected_by_name(answer, words):
    said = refused(TargetError, {MODELS: GOOD[MODELS], CHAT: answer})
    assert says(said, "answer-not-understood", words, "not of openai-chat")


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"/generate_stream": 405}, "give --endpoint-type tgi"),
        ({"/v1/completions": 405, "/generate": 405}, "give --endpoint-type openai-completions or sglang-generate"),
        ({"/api/version": 200}, "give --endpoint-type ollama-chat"),
        ({"/generate_stream": 405, other_types.NO_PAGE: 405}, "does the server take these fields"),
    ],
)  # fmt: skip
def test_a_path_that_the_server_lacks_names_the_protocols_whose_paths_it_has(others, words):
    """A server that answers 405 everywhere says nothing."""
    answers = {path: (status, "application/json", b"{}") for path, status in others.items()}
    said = refused(TargetError, {MODELS: GOOD[MODELS], **answers})
    assert says(said, "request-refused", words)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Unexpected fields in the request: {'min_tokens', 'ignore_eos'}", ["--no-ignore-eos"]),
        ("Unrecognized request argument supplied: min_tokens; temperature has 1 as its only value",
         ["--no-ignore-eos", "--temperature none"]),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
         ["""--extra-body '{"max_completion_tokens": "{output_tokens}"}'"""]),
        ("stream_options: extra fields not permitted", ["""--extra-body '{"stream_options": null}'"""]),
        ("max_tokens: too many; top_k, ignored_eos: not permitted", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_that_names_fields_says_what_leaves_them_out(text, options, status):
    answer = (status, "application/json", json.dumps({"detail": text}).encode())
    said = refused(TargetError, {MODELS: GOOD[MODELS], CHAT: answer})
    unknown = "is the endpoint type right, and does the server take these fields?"
    advice = f"send requests without what it refuses: {' '.join(options)}" if options else unknown
    assert says(said, "request-refused", f"; {advice}")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, "application/octet-stream", b"\0\1"), "body of application/octet-stream"),
        ((200, "text/plain", b"Hello, I am a proxy"), "body of text/plain: Hello, I am a proxy"),
        ((200, "text/plain", WHOLE), "body of text/plain"),  # all of a run's answers would fail
        ((200, "text/plain", b" <!DOCTYPE html>\n<html>log in</html>"), "a web page"),
        ((200, "application/json", b'{"status":"ok"}'), "openai-chat has no"),
        (stream(b'{"status":"ok"}', b'{"status":"done"}'), "openai-chat has no"),
    ],
)  # fmt: skip
def test_an_answer_that_a_run_would_count_as_failed_is_rejected(monkeypatch, answer, words):
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    said = refused(TargetError, {MODELS: GOOD[MODELS], CHAT: answer})
    assert words in said and code_of(said) == "answer-not-understood"


@pytest.mark.parametrize(
    ("head", "code", "words"),
    [
        (
            b"200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip",
            "answer-compressed",
            "Content-Encoding gzip",
        ),
        (
            b"302 Found\r\nLocation: https://login.example/?next=%2Fv1",
            "target-redirects",
            "--url (https://login.example/?next=%2Fv1)",
        ),
        (b"302 Found\r\nLocation: https://\x1b[31mx/", "target-redirects", "--url (https://\ufffd[31mx/)"),
        (
            b"200 OK\r\nContent-Type: application/json\r\nContent-Length: 2",
            "answer-head-refused",
            "(bad_head): Duplicate Content-Length",
        ),
        (b"101 Switching Protocols\r\nUpgrade: websocket", "request-refused", "speak websocket"),
    ],
)
def test_problems_in_the_head_are_reported(monkeypatch, head, code, words):
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    answer = b"HTTP/1.1 " + head + b"\r\nContent-Length: 2\r\n\r\n{}"
    with spoken_by(answer) as url, raises_code(code, words):
        check([url], model="m")


@needs_openssl
def test_a_port_that_speaks_only_http2_over_tls_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "localhost", ["DNS:localhost"]))
    with (
        spoken_by(SETTINGS_FRAME, context) as url,
        raises_code("http2-only", "HTTP/2", "HTTP/1.1"),
    ):
        check([url], insecure=True, client=Client(http_version="1.1"))


def test_a_fixed_length_below_the_need_of_the_extra_body_is_probed():
    """The server would refuse every request of such a run; the probe requests no more tokens than those do."""
    with canned(GOOD) as server:
        check([server.url], workload=Workload(extra_body='{"min_tokens":64}', osl="16"))
    assert json.loads(server.asked[-1][3])["max_tokens"] == 16


@pytest.mark.parametrize(
    ("extra", "tokens"),
    [
        ('{"min_tokens":8}', 8),
        ('{"min_tokens":2}', 4),
        ('{"nvext":{"min_new_tokens":16}}', 16),
        ('{"thinking":{"type":"enabled","budget_tokens":64}}', 68),
        ('{"min_p":1}', 4),
    ],
)
def test_the_probe_requests_the_tokens_that_the_extra_body_needs(extra, tokens):
    with canned(GOOD) as server:
        check([server.url], workload=Workload(extra_body=extra))
    assert json.loads(server.asked[-1][3])["max_tokens"] == tokens


SETTINGS_FRAME = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("silent", [False, True])
def test_a_port_that_speaks_only_h2c_is_named(silent):
    """It answers HTTP/1.1 with a frame, or closes; it answers the HTTP/2 preface with SETTINGS."""

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                data = connection.recv(4096)
                if data and (not silent or data.startswith(b"PRI * HTTP/2.0")):
                    connection.sendall(SETTINGS_FRAME)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        with raises_code("http2-only", "HTTP/2 without TLS (h2c)"):
            check([f"http://127.0.0.1:{listener.getsockname()[1]}"], client=Client(http_version="1.1"))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


COUNTING = stream(
    b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":3,"completion_tokens":0}}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}',
    b'{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}',
    b"[DONE]",
)


class Refusing(dict):
    """Answers requests with one of *fields* with *status*, as OpenAI does for unknown fields, requests for token ids with
    *listing*, and all others with its items.
    """

    def __init__(self, answers, fields, status=400, listing=None):
        super().__init__(answers)
        self.fields, self.status, self.listing = fields, status, listing

    def answers_to(self, path, body):
        if path == CHAT and any(field in body for field in self.fields):
            return self.status, "application/json", b'{"error":{"message":"Unknown parameter"}}'
        if self.listing is not None and path == CHAT and b"return_token_ids" in body:
            return self.listing
        return self.get(path)


USAGE, IDS = b"continuous_usage_stats", b"return_token_ids"
LISTING = stream(TOKEN.replace(b'"index":0', b'"index":0,"token_ids":[7,8]'), b"[DONE]")
LOGPROBS = stream(TOKEN.replace(b'"index":0', b'"index":0,"logprobs":{"content":[{"token":"h"}]}'), b"[DONE]")


def questions_to(server):
    """The token counts that each probe requested."""
    asked = [json.loads(body) for _, path, _, body in server.asked if path == CHAT]
    return [
        "on" if (body.get("stream_options") or {}).get("continuous_usage_stats")
        else "token-ids" if body.get("return_token_ids") else "off"
        for body in asked
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "way", "questions"),
    [
        ({MODELS: models("m"), CHAT: COUNTING}, "on", ["on"]),
        (GOOD, "off", ["on", "token-ids"]),
        ({MODELS: models("m"), CHAT: LOGPROBS}, "off", ["on"]),
        (Refusing(GOOD, (USAGE,), 422), "off", ["on", "token-ids"]),
        (Refusing(GOOD, (USAGE,), 422, LISTING), "token-ids", ["on", "token-ids"]),
        (Refusing(GOOD, (), 400, LISTING), "token-ids", ["on", "token-ids"]),
        (Refusing(GOOD, (IDS,)), "off", ["on", "token-ids"]),
        (Refusing(GOOD, (USAGE, IDS)), "off", ["on", "token-ids", "off"]),
        (Refusing(GOOD, (USAGE, IDS), 500), "off", ["on"] * 4 + ["off"]),
        ({MODELS: models("m"), CHAT: (429, "application/json", b"{}")}, None, ["on"]),
    ],
    ids=[
        "usage", "neither", "lists unasked", "usage refused", "ids instead", "ids too", "ids refused", "both refused",
        "error 500", "429",
    ],
)  # fmt: skip
def test_token_counts_are_requested_in_a_way_that_the_server_supports(answers, way, questions, monkeypatch):
    """By usage, else by token ids; with neither supported, nothing is requested."""
    monkeypatch.setattr(probe, "PAUSE_S", 0.0)
    with canned(answers) as server:
        found = check([server.url])
    assert (found.way, questions_to(server)) == (way, questions)
    assert len(found.notes) == len(set(found.notes))
    for asked, settled in (("auto", way or "off"), ("on", "on"), ("token-ids", "token-ids"), ("off", "off")):
        settings = RunSettings(workload=Workload(continuous_usage=asked))
        assert (
            ResolvedSettings(settings).with_findings(Preflight(way=way)).settings.workload.continuous_usage == settled
        )


@pytest.mark.parametrize(
    ("workload", "way", "questions"),
    [
        (Workload(continuous_usage="off"), None, ["off"]),
        (Workload(streaming=False), None, ["off"]),
        (Workload(extra_body='{"stream_options":{"include_usage":true}}'), "token-ids", ["token-ids"]),
        (Workload(extra_body='{"return_token_ids":false}'), "off", ["on"]),
        (Workload(continuous_usage="token-ids"), "token-ids", ["token-ids"]),
    ],
)
def test_token_counts_are_not_requested_when_impossible_or_disabled(workload, way, questions):
    with canned(Refusing(GOOD, (), 400, LISTING if "false" not in str(workload.extra_body) else None)) as server:
        found = check([server.url], workload=workload)
    assert (found.way, questions_to(server)) == (way, questions)


@pytest.mark.parametrize(
    ("answers", "workload", "kind", "said"),
    [
        (GOOD, Workload(continuous_usage="on"), TargetError, ("continuous-usage-unsupported", "their usage")),
        (
            GOOD,
            Workload(continuous_usage="token-ids"),
            TargetError,
            ("continuous-usage-unsupported", "their token ids"),
        ),
        (
            Refusing(GOOD, (USAGE,)),
            Workload(continuous_usage="on"),
            TargetError,
            ("request-refused", "Unknown parameter"),
        ),
        (
            GOOD,
            Workload(continuous_usage="on", streaming=False),
            InputError,
            ("continuous-usage-unsupported", "not streamed"),
        ),
        (
            GOOD,
            Workload(continuous_usage="on", extra_body='{"stream_options":{}}'),
            InputError,
            ("continuous-usage-unsupported", "sets stream_options"),
        ),
    ],
)
def test_token_counts_that_the_user_requires_and_events_lack_are_an_error(answers, workload, kind, said):
    with canned(answers) as server, raises_code(*said) as caught:
        check([server.url], workload=workload)
    assert isinstance(caught.value, kind)


def test_one_url_without_token_counts_disables_the_request_for_them():
    """The second URL is tried only in the way of the first, because all targets get the same bodies."""
    with canned({MODELS: models("m"), CHAT: COUNTING}) as one, canned(Refusing(GOOD, (), 400, LISTING)) as other:
        found = check([one.url, other.url, one.url])
        assert (questions_to(one), questions_to(other)) == (["on", "off"], ["on"])
    assert found.way == "off"
    for way, reported in (("off", (False, False)), ("on", (True, None)), (None, (None, None))):
        facts = target_facts("openai-chat", (), replace(found, way=way), False)
        assert (facts.continuous_usage, facts.token_ids) == reported


@pytest.mark.parametrize(
    ("base", "version"), [("", "0.9.1"), ("/api", "0.9.1"), ("/api/chat", "0.9.1"), ("/other", None)]
)
def test_an_ollama_server_has_a_page_for_its_version(base, version):
    """It has no metrics page with the version; without a version page the engine is known only by its protocol."""
    line = (
        b'{"model":"m","message":{"role":"assistant","content":"hi"},"done":true,"done_reason":"stop","eval_count":1}\n'
    )
    answers = {"/api/version": (200, "application/json", b'{"version":"0.9.1"}')}
    for place in ("", "/other"):
        answers |= {place + "/api/tags": (200, "application/json", b'{"models":[{"name":"m"}]}')}
        answers |= {place + "/api/chat": (200, "application/x-ndjson", line)}
    with canned(answers) as server:
        url = server.url + base
        target = Target(urls=(url,), endpoint_type="ollama-chat")
        found = preflight(RunSettings(target=target), [url], None, Redactor([]))
        engine = TelemetryDiscovery(target, Telemetry(), found, None, Redactor([])).find([url]).engine
    assert (engine.name, engine.version) == ("ollama", version)
