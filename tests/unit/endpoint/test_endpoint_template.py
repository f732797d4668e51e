"""A file that describes an endpoint: its bodies, its dialect, the text that settings have, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code

from fastllmload._ext.events.delta import Classifier
from fastllmload.cli.options.table import ENDPOINT_TYPE
from fastllmload.endpoint import resolve_endpoint, shown
from fastllmload.records.layout import EVENT_NAMES
from fastllmload.settings import Workload

BODY = {
    "input": {"text": "{prompt}"},
    "limits": [{"most": "{max_tokens}"}],
    "engine": "x/{model}",
    "stream": "{stream}",
}
LEAST: dict[str, Any] = {"path": "/go", "text": "out.piece", "body": BODY}


def written(folder: Path, name: str = "acme.json", **changes: Any) -> str:
    (folder / name).write_text(json.dumps(LEAST | changes))
    return str(folder / name)


def body_of(name: str, **settings: Any) -> dict[str, Any]:
    found = resolve_endpoint(name).encode_body("m", Workload(**settings), "hello", 7)
    return dict(json.loads(found))


def test_the_text_needs_no_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = ENDPOINT_TYPE(path)
    Path(path).unlink()
    assert shown(text) == "acme.json" and resolve_endpoint(text) is resolve_endpoint(text)
    assert body_of(text) == {
        "input": {"text": "hello"}, "limits": [{"most": 7}], "engine": "x/m", "stream": True,
    }  # fmt: skip
    assert resolve_endpoint(text).path("/v1") == "/go"


def test_toml_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(
        'path = "/go"\ntext = "out.piece"\n[body]\ninput = { text = "{prompt}" }\nlimits = [{ most = "{max_tokens}" }]\n'
        'engine = "x/{model}"\nstream = "{stream}"\n'
    )
    assert body_of(ENDPOINT_TYPE(str(path))) == body_of(ENDPOINT_TYPE(written(tmp_path)))


def test_placeholders_take_what_the_options_say(tmp_path: Path) -> None:
    """A temperature that is not sent leaves its field out; --extra-body replaces and removes fields."""
    text = ENDPOINT_TYPE(written(tmp_path, body={**BODY, "t": "{temperature}", "all": "{ignore_eos}", "keep": None}))
    assert body_of(text, temperature=0.5, ignore_eos=False) == body_of(text) | {"t": 0.5, "all": False}
    assert "t" not in body_of(text, temperature=None) and body_of(text)["keep"] is None
    assert body_of(text, extra_body='{"engine":null,"top_k":3}') == {
        name: value for name, value in (body_of(text) | {"top_k": 3}).items() if name != "engine"
    }


def test_events_are_read_by_its_paths(tmp_path: Path) -> None:
    endpoint = resolve_endpoint(ENDPOINT_TYPE(written(
        tmp_path, text="list[0].piece", finish="list[0].why", completion_tokens="counts.out", end="END", error="problem"
    )))  # fmt: skip
    reader = Classifier(endpoint.dialect)
    found = reader.classify_bytes(b'{"list":[{"piece":"a"}],"counts":{"out":3}}')
    assert (EVENT_NAMES[found["kind"]], found["completion_tokens"]) == ("content", 3)
    for data, kind in ((b"END", "done"), (b'{"problem":"no"}', "error")):
        assert EVENT_NAMES[reader.classify_bytes(data)["kind"]] == kind


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"texts": "a"}, ["texts"]),
        ({"text": 5}, ["text"]),
        ({"path": "go"}, ["'go'"]),
        ({"text": "a..b"}, ["text", "'a..b'"]),
        ({"text": "a[1]"}, ["text", "'a[1]'"]),
        ({"text": "a[]"}, ["text", "'a[]'"]),
        ({"finish": "out.piece"}, ["finish", "'out.piece'"]),
        ({"finish": "out"}, ["finish", "'out'"]),
        ({"finish": "out[0].why"}, ["finish", "'out[0].why'"]),
        ({"finish": "out.piece.why"}, ["finish", "'out.piece.why'"]),
        ({"prompt_tokens": "list[0].n"}, ["PROMPT_TOKENS"]),
        ({"end": "x" * 17}, ["17"]),
        ({"body": {"a": "{prompt}"}}, ["{max_tokens}"]),
        ({"body": {"a": "{max_tokens}"}}, ["{prompt}"]),
        ({"body": {"a": ["{prompt}", "{prompt}"], "b": "{max_tokens}"}}, ["{prompt}", 2]),
        ({"body": {"a": "say {prompt}", "b": "{max_tokens}"}}, ["{prompt}"]),
        ({"body": {**BODY, "c": "{promt}"}}, ["{promt}"]),
        ({"whole": {"text": "a[1]"}}, ["'a[1]'"]),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, changes: dict[str, Any], values: list[str]) -> None:
    with raises_code("template-invalid", *values):
        ENDPOINT_TYPE(written(tmp_path, **changes))


def test_a_credential_is_refused_without_showing_it(tmp_path: Path) -> None:
    with raises_code("credential-exposed") as caught:
        ENDPOINT_TYPE(written(tmp_path, body={**BODY, "api_key": "sk-hidden"}))
    assert "sk-hidden" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("path = ")
    (tmp_path / "broken.json").write_text("[")
    with raises_code("file-unreadable"):
        ENDPOINT_TYPE(str(tmp_path / "none.toml"))
    for name in ("broken.toml", "broken.json"):
        with raises_code("template-invalid"):
            ENDPOINT_TYPE(str(tmp_path / name))
    with raises_code("template-invalid", "acme.toml"):
        resolve_endpoint('acme.toml {"path":"/go"}')


@pytest.mark.parametrize(
    ("settings", "code", "value"),
    [
        ({"prompt_form": "ids"}, "protocol-unsupported", "acme.json"),
        ({"temperature": 0.5}, "protocol-unsupported", "{temperature}"),
        ({"extra_body": '{"limits":[]}'}, "extra-body-reserved", "limits"),
        ({"extra_body": '{"input":"x"}'}, "extra-body-reserved", "input"),
    ],
)
def test_what_it_has_no_place_for_is_refused(tmp_path: Path, settings: dict[str, Any], code: str, value: str) -> None:
    with raises_code(code, value):
        body_of(ENDPOINT_TYPE(written(tmp_path)), **settings)


def test_answers_that_are_not_streamed_need_a_place_for_that(tmp_path: Path) -> None:
    body = {name: value for name, value in BODY.items() if name != "stream"}
    with raises_code("protocol-unsupported", "{stream}"):
        body_of(ENDPOINT_TYPE(written(tmp_path, body=body)), streaming=False)
    assert "stream" not in body_of(ENDPOINT_TYPE(written(tmp_path, body=body, whole={"text": "all"})), streaming=False)


def test_messages_are_refused_and_ignore_eos_is_a_remark(tmp_path: Path) -> None:
    endpoint = resolve_endpoint(ENDPOINT_TYPE(written(tmp_path)))
    with raises_code("protocol-unsupported", "acme.json"):
        endpoint.messages_pieces("m", Workload())
    assert "acme.json" in endpoint.remarks(Workload())[0] and not endpoint.remarks(Workload(ignore_eos=False))
