"""Endpoints are found by their own and by other tools' names, know their paths, and import fast."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from fastllmload._ext.events.delta import Classifier
from fastllmload.cli.options.table import ENDPOINT_TYPE
from fastllmload.endpoint import ALIASES, ENDPOINTS, claimed, resolve_endpoint
from fastllmload.errors import InputError
from fastllmload.records.layout import EVENT_CONTENT
from fastllmload.settings import Target, Workload


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai-chat", "openai-chat"), ("chat", "openai-chat"),
        ("openai-completions", "openai-completions"), ("completions", "openai-completions"),
        ("openai", "openai-completions"), ("vllm", "openai-completions"), ("sglang", "openai-completions"),
        ("llama.cpp", "openai-completions"),
    ],
)  # fmt: skip
def test_names_of_other_tools_are_accepted(name: str, expected: str) -> None:
    """vLLM's `openai` and `vllm` are the completions protocol there, so they are here."""
    assert resolve_endpoint(name) is ENDPOINTS[expected] and ENDPOINTS[expected].name == expected


@pytest.mark.parametrize("name", ["plaintext", "", "OpenAI-Chat"])
def test_an_unknown_name_lists_the_choices(name: str) -> None:
    with pytest.raises(InputError, match=f"--endpoint-type {name!r}.*openai-chat, openai-completions.*vllm"):
        resolve_endpoint(name)


def test_the_command_line_knows_the_same_aliases() -> None:
    assert {alias: ENDPOINT_TYPE(alias) for alias in ALIASES} == ALIASES
    assert set(ALIASES.values()) == set(ENDPOINTS) and not ALIASES.keys() & ENDPOINTS.keys()


@pytest.mark.parametrize(
    "changes", [{"aliases": ("mine",)}, {"name": "mine", "aliases": ("ollama",)}, {"name": "ollama"}]
)
def test_no_two_protocols_have_one_name(changes: dict[str, object]) -> None:
    """A name or alias that another has stops every start; the same endpoint in two files is one."""
    own = [*ENDPOINTS.values()]
    assert claimed([*own, own[0]]) == claimed(own)
    with pytest.raises(ValueError, match="is claimed by"):
        claimed([*own, replace(ENDPOINTS["openai-chat"], **changes)])


def test_the_default_comes_first_and_what_is_lacking_has_a_sentence() -> None:
    assert next(iter(ENDPOINTS)) == Target().endpoint_type
    for endpoint in ENDPOINTS.values():
        assert {"text", "ids"} - endpoint.prompts.keys() <= endpoint.without.keys()


def test_headers_of_its_own() -> None:
    endpoint = replace(ENDPOINTS["openai-chat"], headers={"X-Version": "1", "X-Api-Key": "{key}"})
    assert endpoint.own_headers("sk") == [("X-Version", "1"), ("X-Api-Key", "sk")]
    assert endpoint.own_headers(None) == [("X-Version", "1")]


@pytest.mark.parametrize("name", [name for name, endpoint in ENDPOINTS.items() if endpoint.takes("text")])
def test_a_prompt_of_text_is_a_users_turn(name: str) -> None:
    """So that the turns of a conversation can be made of single requests."""
    endpoint = ENDPOINTS[name]
    single = endpoint.body_pieces("m", Workload())
    pieces = endpoint.messages_pieces("m", Workload()) if endpoint.takes("messages") else single
    body = single.encode("hi", 7)
    assert body[pieces.skip : -pieces.closing(7)].decode() == endpoint.joint.user.replace("$text", "hi")


@pytest.mark.parametrize(
    ("base", "chat", "models"),
    [
        ("", "/v1/chat/completions", "/v1/models"),
        ("/", "/v1/chat/completions", "/v1/models"),
        ("/v1", "/v1/chat/completions", "/v1/models"),
        ("/v1/", "/v1/chat/completions", "/v1/models"),
        ("/openai/v1", "/openai/v1/chat/completions", "/openai/v1/models"),
        ("/api/v3", "/api/v3/chat/completions", "/api/v3/models"),
        ("/v1/chat/completions", "/v1/chat/completions", "/v1/models"),
    ],
)
def test_paths_join_with_the_base(base: str, chat: str, models: str) -> None:
    endpoint = ENDPOINTS["openai-chat"]
    assert (endpoint.path(base), endpoint.models_path(base)) == (chat, models)


def test_the_path_of_completions() -> None:
    endpoint = ENDPOINTS["openai-completions"]
    assert [endpoint.path(base) for base in ("", "/v1", "/x/v1/")] == [
        "/v1/completions",
        "/v1/completions",
        "/x/v1/completions",
    ]
    assert endpoint.path("/v1/completions") == "/v1/completions"


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("openai-chat", b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'),
        ("openai-completions", b'{"choices":[{"index":0,"text":"x"}]}'),
    ],
)
def test_the_dialect_is_that_of_the_classifier(name: str, event: bytes) -> None:
    """Its own events are content, and those of the other protocol are not."""
    for other in map(ENDPOINTS.__getitem__, ("openai-chat", "openai-completions", "ollama-chat", "ollama-generate")):
        is_content = Classifier(other.dialect).classify_bytes(event)["kind"] == EVENT_CONTENT
        assert is_content == (other.name == name)


def test_importing_endpoints_loads_nothing_heavy() -> None:
    """`--help` names the endpoints and must stay instant."""
    script = (
        "import sys, fastllmload.endpoint\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('numpy', 'quicktok', 'rich')"
        " or name.startswith('fastllmload._ext.') and name not in"
        " ('fastllmload._ext._shared', 'fastllmload._ext.events', 'fastllmload._ext.events.dialect',"
        " 'fastllmload._ext.bytes', 'fastllmload._ext.bytes.jsonscan', 'fastllmload._ext.bytes.schema')])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "form"), [("openai-chat", "ids"), ("openai-completions", "text")])
def test_a_protocol_says_why_it_takes_no_prompt_of_a_form(name: str, form: str) -> None:
    """The refusal of --prompt-form has nothing else to say."""
    prompts = {other: fields for other, fields in ENDPOINTS[name].prompts.items() if other != form}
    with pytest.raises(ValueError, match=form):
        replace(ENDPOINTS[name], prompts=prompts, without={})
