"""The rules for options of targets, connections, sessions and models, and for answers that are not tokens."""

from __future__ import annotations

from fastllmload.cli.options.parsers import DATASETS
from fastllmload.cli.options.rule import Chosen, OptionRule, form, named
from fastllmload.cli.options.sources import Fields
from fastllmload.endpoint import ENDPOINTS, resolve_endpoint
from fastllmload.endpoint.identity import body_path, named_sessions, resolved, token_of
from fastllmload.settings import DEFAULT_ENDPOINT, SessionIdentity

WITH_IDS = named(tuple(each.name for each in ENDPOINTS.values() if each.takes("ids")))
WITH_IMAGES = named(tuple(each.name for each in ENDPOINTS.values() if each.image_message is not None))
HTTP2 = (
    OptionRule("option-not-applicable", lambda o: o.endpoint.call is not None and o.get("client.http_version") == "1.1",
         "{protocol} is gRPC, which needs HTTP/2; leave --http-version out"),
    OptionRule("option-not-applicable", lambda o: o.has("streams_per_connection") and not over_http2(o),
         "--streams-per-connection belongs to HTTP/2; leave it out or add --http-version 2"),
    OptionRule("option-not-applicable", lambda o: over_http2(o) and o.get("client.transport") == "asyncio",
         "--http-version 2 needs the reactor's own sockets, not --transport asyncio; leave one out"),
    OptionRule("option-not-applicable", lambda o: over_http2(o) and o.get("client.timestamps") == "tap",
         "--timestamps tap finds no events of several streams on a connection; leave it out with --http-version 2"),
)  # fmt: skip
WEBSOCKET = (
    OptionRule("option-not-applicable", lambda o: o.endpoint.websocket and over_http2(o),
         "{protocol} asks HTTP/1.1 for WebSocket; leave --http-version out"),
    OptionRule("option-not-applicable", lambda o: o.endpoint.websocket and o.get("client.transport") == "asyncio",
         "{protocol} needs the reactor's own sockets, not --transport asyncio; leave one out"),
    OptionRule("option-not-applicable", lambda o: o.endpoint.websocket and o.get("client.timestamps") == "tap",
         "--timestamps tap finds no responses in messages of WebSocket; leave it out with {protocol}"),
    OptionRule("option-not-applicable", lambda o: o.endpoint.websocket and o.get("workload.streaming") is False,
         "answers of {protocol} are events; leave --no-stream out"),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.websocket,
         "{where} names a header of each answer, and {protocol} has one head for all answers of a connection; leave it out",
         ("backend_header",)),
)  # fmt: skip
SESSION = (
    OptionRule("protocol-unsupported", lambda o: o.endpoint.websocket,
         "{where} names the session of each request, and {protocol} has one head for all requests of a connection; leave it "
         "out", ("affinity", "session_header", "session_body", "session_token", "session_end")),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.call is not None and identity(o).body,
         "--session-body (or --affinity openai) adds fields of JSON, and requests of {protocol} are messages of gRPC; use "
         "--session-header, which becomes metadata"),
    OptionRule("option-not-applicable", lambda o: o.workload == "batch" and identity(o).body,
         "--session-body (or --affinity openai) does not go with --workload batch, whose bodies are the file's own"),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.call is not None and token_in_body(o, "answered", "sent"),
         "{where} names a field of JSON, and {protocol} has messages of gRPC; name a header, which becomes metadata",
         ("session_token",)),
    OptionRule("option-not-applicable", lambda o: o.workload == "batch" and token_in_body(o, "sent"),
         "{where} adds a field to bodies, and those of --workload batch are the file's own; send a header, as NAME=OTHER",
         ("session_token",)),
    OptionRule("options-conflict", lambda o: repeated_header(o),
         "--session-header and -H both set {name}; give one", values=lambda o: {"name": repeated_header(o)}),
    OptionRule("option-missing", lambda o: named_sessions(identity(o)) is None,
         "{where} belongs to requests that name their session; add --affinity ROUTER or --session-header 'NAME: TEMPLATE'",
         ("session_children",)),
    OptionRule("option-not-applicable", lambda o: on_other_hosts(o) and identity(o).end is not None,
         "{where} tells the server from this host, and --ray sends from others; leave one out", ("session_end", "affinity")),
)  # fmt: skip
# These also hold for each class.
MODELS = (
    OptionRule("options-conflict", lambda o: o.has("models"), "{where} and --models both name models; give one", ("model",)),
    OptionRule("protocol-unsupported", lambda o: o.endpoint.before_model() is None,
         "{where} needs requests whose body names the model in front of the prompt, and those of {protocol} do not; use -m",
         ("models",)),
    OptionRule("option-missing", lambda o: not o.has("models"),
         "{where} is about several models; add --models A,B,C", ("model_zipf", "model_order")),
    OptionRule("options-conflict", lambda o: len({weight for _, weight in o.get("target.models", ())}) > 1,
         "{where} gives weights by place in the list, and --models has weights of its own; give one", ("model_zipf",)),
    OptionRule("options-conflict", lambda o: o.get("target.model_order") == "round-robin"
         and (o.has("model_zipf") or len({weight for _, weight in o.get("target.models", ())}) > 1),
         "{where} gives each model as many sessions, and weights or --model-zipf do not; give one", ("model_order",)),
)  # fmt: skip
TARGET = (
    OptionRule("options-conflict", lambda o: o.has("simulate"),
         "--simulate sets up the simulated engine, but {where} names a target; give one", ("url", "unix_socket")),
    OptionRule("option-not-applicable", lambda o: o.has("unix_socket"),
         "{where} has no effect with --unix-socket, which has no ports; leave it out", ("source_address",)),
    *MODELS,
    OptionRule("option-missing", lambda o: o.has("cert") and not o.has("key"),
         "--cert is given without --key; a client certificate needs both"),
    OptionRule("option-missing", lambda o: o.has("key") and not o.has("cert"),
         "--key is given without --cert; a client certificate needs both"),
    OptionRule("options-conflict", lambda o: o.has("cacert") and o.get("target.insecure") is True,
         "--insecure trusts every certificate and --cacert only some; give one"),
    OptionRule("protocol-unsupported",
         lambda o: o.get("workload.prompt_form") == "ids" and not o.endpoint.takes("ids"),
         f"--prompt-form ids needs --endpoint-type {WITH_IDS}: {{reason}}",
         values=lambda o: {"reason": o.endpoint.without["ids"].partition(";")[0]}),
    OptionRule("protocol-unsupported",
         lambda o: not o.endpoint.takes("text") and o.workload not in DATASETS
         and not o.has("plan") and o.get("workload.prompt_form", "words") not in ("ids", "native"),
         "--prompt-form {form} is not supported by {protocol}: {reason}",
         values=lambda o: {"form": o.get("workload.prompt_form", "words"), "reason": o.endpoint.without["text"]}),
    OptionRule("protocol-unsupported", lambda o: not o.endpoint.tokens and not o.complete,
         "searches, sweeps and procedures measure tokens, and answers of {protocol} are not tokens; use fastllmload run"),
    OptionRule("protocol-unsupported", lambda o: o.has("image") and o.endpoint.image_message is None,
         f"--image needs --endpoint-type {WITH_IMAGES}: only its messages can contain images"),
    OptionRule("option-not-applicable", lambda o: o.has("image") and o.get("workload.prompt_form", "words") != "words",
         "--image goes with --prompt-form words, not {form}", values=form),
    OptionRule("options-conflict",
         lambda o: o.get("workload.counting") == "B" and o.get("workload.tokenizer") == "none",
         "--counting B needs a reference tokenizer, and --tokenizer none leaves it out; give one of the two"),
    OptionRule("options-conflict", lambda o: pinned(o) is not None and o.get("client.workers") not in (None, pinned(o)),
         "--workers {workers} and --pin with {cpus} CPUs contradict each other; name one CPU each",
         values=lambda o: {"workers": o.get("client.workers"), "cpus": pinned(o)}),
)  # fmt: skip
# For a run, or a class, whose answers are not tokens; for a run with classes where those of no class are.
WITHOUT_TOKENS = (
    OptionRule("protocol-unsupported", lambda o: not o.endpoint.tokens,
         "{where} is about tokens, and answers of {protocol} are not tokens; leave it out",
         ("osl", "turns", "itl_option", "cancel_after", "cancel_share", "slow_readers", "continuous_usage", "record_text")),
    OptionRule("protocol-unsupported", lambda o: not o.endpoint.tokens and other_objectives(o),
         "--goodput {name} is about tokens, and answers of {protocol} are not tokens; give e2el or e2el_sched",
         values=lambda o: {"name": other_objectives(o)[0]}),
)  # fmt: skip


def other_objectives(chosen: Chosen) -> list[str]:
    """Objectives that need tokens."""
    names = [name for name, _ in chosen.get("output.goodput", ())]
    return [name for name in names if name.rpartition("/")[2] not in ("e2el", "e2el_sched")]


def token_in_body(chosen: Chosen, *places: str) -> bool:
    """Whether the token of sessions is in a body: *places* are attributes of `Token`, answered or sent."""
    token = identity(chosen).token
    return token is not None and any(body_path(getattr(token_of(token), one)) for one in places)


def identity(chosen: Chosen) -> SessionIdentity:
    given = {name.partition(".")[2]: value for name, value in chosen.fields.items() if name.startswith("session.")}
    return resolved(SessionIdentity(**given))


def repeated_header(chosen: Chosen) -> str | None:
    """A header that has a template and a fixed value."""
    fixed = {name.lower() for name, _ in chosen.get("target.headers", ())}
    return next((name for name, _ in identity(chosen).headers if name.lower() in fixed), None)


def over_http2(chosen: Chosen) -> bool:
    return bool(chosen.get("client.http_version") == "2")


def choose_http_version(fields: Fields) -> None:
    """gRPC is spoken over HTTP/2 alone."""
    endpoint = resolve_endpoint(fields.get("target.endpoint_type", DEFAULT_ENDPOINT))
    if endpoint.call is not None and fields.get("client.http_version", "auto") == "auto":
        fields["client.http_version"] = "2"


def on_other_hosts(chosen: Chosen) -> bool:
    return chosen.get("hosts.address") not in (None, "local")


def pinned(chosen: Chosen) -> int | None:
    """Number of the pinned CPUs; None: no number of workers is given, or nothing is pinned."""
    pin = chosen.get("client.pin", ())
    return len(pin) if pin and chosen.get("client.workers") is not None else None
