"""What an endpoint is: the request side of one wire protocol, as plan, preflight and workers use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from fastllmload._ext.events.dialect import Dialect
from fastllmload.endpoint.body import BodyPieces, cut, extra_fields
from fastllmload.endpoint.call import GrpcCall
from fastllmload.endpoint.simulated import SimulatedApi
from fastllmload.endpoint.turns import TurnTemplate
from fastllmload.errors import InputError
from fastllmload.settings import KEY_VARIABLES, PROMPT_FORMS, Workload

MODEL = "{model}"  # in a path
MARK = "\x02"  # a model's name that is none; JSON escapes it


def named(path: str, model: str) -> str:
    """*path* with the name of the *model* where it has one."""
    return path.replace(MODEL, quote(model, safe=""))


def below(base_path: str, resource: str) -> str:
    """Path of a *resource* that is not below /v1. A base URL may end in /v1 or in the resource."""
    return f"{base_path.rstrip('/').removesuffix('/' + resource).removesuffix('/v1')}/{resource}"


@dataclass(frozen=True)
class Endpoint:
    """*name* and *aliases* are values of --endpoint-type; *dialect* is how its events are read, *framing* (sse, ndjson,
    websocket, grpc) how they are separated in a stream. *title* is its name in a sentence; *signs* are patterns of its
    answers, the surest first.

    *resource* is its path below the API's root, which may contain `{model}`; *unstreamed* that of answers that are not
    streamed, if it differs; *models* that of the list of models, if it has one. *root* joins them to the path of a base URL.
    *prompts*: the fields of a body that carry a prompt (`PROMPT`), for each form that it takes: text, ids, messages. *body*
    gives all fields of a body, from the model, these, and the fields of --extra-body.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    signs: tuple[bytes, ...]
    dialect: Dialect
    framing: str
    joint: TurnTemplate  # how the turns of a conversation are joined
    resource: str
    models: str | None
    root: Callable[[str, str], str]
    prompts: Mapping[str, dict[str, Any]]
    body: Callable[[str, dict[str, Any], Workload, dict[str, Any]], dict[str, Any]]
    # Messages of a data set (OpenAI's chat) in the protocol's form, and fields of the body in which it has some of them.
    messages: Callable[[list[Any]], tuple[list[Any], dict[str, Any]]] | None = None  # None: they are in its form
    unstreamed: str | None = None
    lists_by: str = "GET"  # method of *models*; POST has an empty object as its body
    image_message: Callable[[str, list[str]], dict[str, Any]] | None = None  # a user's text and URLs of images (data:)
    # Sentences on what it lacks: `text` or `ids` as a prompt, with what to use; `ignore_eos`, for the report.
    without: Mapping[str, str] = field(default_factory=dict)
    # Of every request, in addition to the usual ones; {key} is the API key, and without one such a header is left out.
    headers: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = KEY_VARIABLES[0]  # of the environment, which has the API key; without it, OPENAI_API_KEY has
    # The field of a body that asks for token counts in events, for each way of --continuous-usage that it has.
    counted_by: Mapping[str, str] = field(default_factory=dict)
    # Its fields for sampling options (`SAMPLING`), in the object *sampling_within* of a body, or (empty) in the body.
    sampling: Mapping[str, str] = field(default_factory=dict)
    sampling_within: str = ""
    tokens: bool = True  # its answers are tokens, which come one after the other
    summed: bool = False  # no answer says how many tokens it has; its events do
    engine: tuple[str, str] | None = None  # the one server that speaks it, and the path of the page with its version
    simulated: tuple[SimulatedApi, ...] = ()  # its paths of the simulated engine
    call: GrpcCall | None = None  # of gRPC: bodies are messages, over HTTP/2

    def __post_init__(self) -> None:
        """ValueError where a refusal would have nothing to say."""
        for form in ("text", "ids"):
            if not self.takes(form) and form not in self.without:
                raise ValueError(f"{self.name} takes no prompt of {form}; say in *without* why, and what to use")

    def takes(self, form: str) -> bool:
        """Whether its prompts can be `text`, `ids` or `messages`."""
        return form in self.prompts

    def form(self, workload: Workload) -> str:
        """`ids` for prompts of token ids, else `text`. `native` ones are ids where it takes them."""
        native_ids = workload.prompt_form == "native" and self.takes("ids")
        return "ids" if workload.prompt_form == "ids" or native_ids else "text"

    @property
    def prompt_fields(self) -> tuple[str, ...]:
        """Names of the fields of a body that carry a prompt, in any of its forms."""
        return tuple(dict.fromkeys(name for fields in self.prompts.values() for name in fields))

    def path(self, base_path: str, streaming: bool = True) -> str:
        """Path of a request, from the path of the base URL, which may end in it. `{model}` in it is left to `named`."""
        return self.root(base_path, self.resource if streaming or self.unstreamed is None else self.unstreamed)

    @property
    def id_tag(self) -> int:
        """gRPC: tag of the field with a request's id; else 0."""
        return 0 if self.call is None else self.call.id_tag

    def models_path(self, base_path: str) -> str | None:
        return None if self.models is None else self.page(base_path, self.models)

    @property
    def websocket(self) -> bool:
        """Its requests and events are messages on connections that were upgraded."""
        return self.framing == "websocket"

    @property
    def method(self) -> str:
        """Of what its connections, or its requests, begin with."""
        return "GET" if self.websocket else "POST"

    def own_headers(self, key: str | None) -> list[tuple[str, str]]:
        usable = [(name, text) for name, text in self.headers.items() if key is not None or "{key}" not in text]
        return [(name, text.replace("{key}", key or "")) for name, text in usable]

    def page(self, base_path: str, resource: str) -> str:
        """Path of *resource* of the same API."""
        return self.root(base_path.rstrip("/").removesuffix("/" + self.resource), resource)

    def before_model(self) -> bytes | None:
        """What all bodies have in front of the model's name; None where it is not in front of the prompt, or in the path."""
        if MODEL in self.resource:
            return None
        prompt = next(iter(self.prompts.values()))
        before, *after = cut(self.body(MARK, prompt, Workload(), {})).before.split(msgspec.json.encode(MARK))
        return before if len(after) == 1 else None

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """The bodies of a plan. InputError for a form of prompt that the protocol cannot carry, and a wrong --extra-body."""
        if workload.prompt_form not in PROMPT_FORMS:
            raise InputError(
                "choice-unknown", f"--prompt-form {workload.prompt_form!r} is unknown; choose {', '.join(PROMPT_FORMS)}"
            )
        form = self.form(workload)
        if not self.takes(form):
            raise InputError(
                "protocol-unsupported",
                f"--prompt-form {workload.prompt_form} is not supported by {self.name}: {self.without[form]}",
            )
        return self._pieces(model, form, workload)

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """As `body_pieces`, with an array of messages in place of the prompt. InputError if the protocol has no messages."""
        if not self.takes("messages"):
            raise InputError(
                "protocol-unsupported", f"{self.name} takes no messages; use a chat endpoint, or a data set of prompts"
            )
        return self._pieces(model, "messages", workload)

    def _pieces(self, model: str, form: str, workload: Workload) -> BodyPieces:
        extra = extra_fields(workload.extra_body, self.prompt_fields)
        pieces = cut(self.body(model, self.prompts[form], workload, extra))
        if self.call is not None:
            self.call.encoded(pieces.encode([0] if form == "ids" else "", 1), self.name)  # refuses fields that it lacks
        return pieces

    def encode_body(self, model: str, workload: Workload, prompt: Any, tokens: int) -> bytes:
        """One body, for a request outside a plan; the same bytes that the pieces give. A message of gRPC has no id yet."""
        body = self.body_pieces(model, workload).encode(prompt, tokens)
        return body if self.call is None else self.call.encoded(body, self.name)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        """Sentences for the report: options of the workload that the protocol cannot express."""
        return (self.without["ignore_eos"],) if workload.ignore_eos and "ignore_eos" in self.without else ()
