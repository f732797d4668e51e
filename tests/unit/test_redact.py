"""A secret is replaced in every form in which a program is likely to print it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.redact import (
    Redactor,
    body_secrets,
    header_line_secrets,
    header_secrets,
    public_body,
    table_secrets,
    url_secrets,
)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60), st.text(max_size=20))
def test_every_form_of_a_secret_is_replaced(secret, around):
    raw = secret.encode()
    redact = Redactor([secret])
    for form in (
        secret,
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        quote(secret, safe=""),
        quote_plus(secret),
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
    ):
        assert form not in redact(f"<{form}>").replace("***", "")
        assert redact(f"<{form}>") == "<***>"


def test_a_secret_within_another_leaves_no_rest():
    assert Redactor(["abcd", "abcdef"])("abcdef abcd") == "*** ***"
    assert Redactor(["abcdef", "abcd"])("abcdef abcd") == "*** ***"


@pytest.mark.parametrize("secret", ["", "1", " x ", "abc"])
def test_a_secret_that_is_too_short_is_not_replaced(secret):
    assert Redactor([secret])("http://127.0.0.1:8000/v1 abc text") == "http://127.0.0.1:8000/v1 abc text"


def test_other_text_stays():
    assert Redactor(["sk-1"])("sk-2 and 100 %") == "sk-2 and 100 %"


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("Authorization", "Bearer K", ["Bearer K", "K"]),
        ("x-api-key", " K ", ["K"]),
        ("COOKIE", "a=b; c=d", ["a=b; c=d"]),
        ("X-Tag", "K", []),
        ("CF-Access-Client-Secret", "K", ["K"]),
        ("Ocp-Apim-Subscription-Key", "K", ["K"]),
        ("X-Keyboard", "K", []),
        ("X-AuthToken", "K", ["K"]),
        ("apiKey", "K", ["K"]),
    ],
)
def test_header_secrets(name, value, secrets):
    assert header_secrets(name, value) == secrets


def test_url_secrets():
    assert url_secrets("http://u:p%40@h/v1") == ["p%40"]
    assert url_secrets("http://token@h/v1") == ["token"]
    assert url_secrets("http://h/v1?key=K&v=2#f") == ["f", "K", "2"]
    assert url_secrets("http://h/v1") == url_secrets("http://[") == []


def test_a_header_without_a_colon_may_be_all_secret():
    assert header_line_secrets("X-Api-Key: K") == ["K"] and header_line_secrets("X-Tag: K") == []
    assert header_line_secrets("sk-1234") == ["sk-1234"]
    assert "sk-1234" in header_line_secrets("Authorization Bearer sk-1234")


def test_white_space_around_a_secret_is_ignored():
    """A key from `$(cat file)` or a config file may end with a line break; what is sent and echoed does not."""
    redact = Redactor(["sk-abc12345\n", "   "])
    assert redact("a sk-abc12345 b") == "a *** b"
    assert redact("two   words") == "two   words"


@pytest.mark.parametrize(
    ("body", "public", "secrets"),
    [
        ('{"api_key": "sk-1", "top_k": 5}', '{"api_key": "***", "top_k": 5}', ["sk-1"]),
        ('{"a":[{"b":{"clientSecret":"sk-1"}}]}', '{"a": [{"b": {"clientSecret": "***"}}]}', ["sk-1"]),
        ('{"credentials":{"user":"me","more":["x",null,true]}}',
         '{"credentials": {"user": "***", "more": ["***", null, true]}}', ["me", "x"]),
        ('{"authorization":"Bearer K"}', '{"authorization": "***"}', ["Bearer K", "K"]),
    ],
)  # fmt: skip
def test_secrets_of_a_body_are_in_fields_with_secret_names(body, public, secrets):
    assert public_body(body) == public
    assert body_secrets(body) == secrets
    assert table_secrets({"extra_body": body}) == table_secrets({"extra-request-body": body}) == secrets


@pytest.mark.parametrize(
    "body",
    ['{"stop_token_ids": [128001], "eos_token": "</s>", "max_tokens": 7, "prompt_cache_key": "user-7"}',
     '{"tools":[{"parameters":{"properties":{"token":{"type":"string"},"api_key":{"type":"string"}}}}]}',
     '{"top_k": 5,}', '[' * 5000, "{}", '{"key": true, "token": null}'],
)  # fmt: skip
def test_fields_that_are_not_secret_are_kept(body):
    assert public_body(body) == body and body_secrets(body) == []


@pytest.mark.parametrize(
    "body",
    ['{"password": 12345678}', r'{"api_key": "sk-\u00312"}', '{"api_key": "sk-1", "api_key": "sk-2"}',
     "{'api_key': 'sk-1'}", '{"api_key": "sk-1",}', "api_key=sk-1", '["api_key", "sk-1"]'],
)  # fmt: skip
def test_the_complete_body_is_secret_where_a_value_cannot_be_found_in_it(body):
    """A number, a string with escapes, a repeated field, text that is not JSON."""
    assert body in body_secrets(body)
    shown = public_body(body)
    assert shown.count("***") == 1 and "sk-" not in shown and "1234" not in shown
