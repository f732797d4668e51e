"""A secret is blanked in every form that a program is likely to show it in."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.redact import Redactor, header_secrets, url_secrets


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60), st.text(max_size=20))
def test_no_form_of_a_secret_is_left(secret, around):
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
    assert Redactor(["abc", "abcdef"])("abcdef abc") == "*** ***"
    assert Redactor(["abcdef", "abc"])("abcdef abc") == "*** ***"


def test_an_empty_secret_is_none():
    assert Redactor([""])("text") == "text"


def test_other_text_stays():
    assert Redactor(["sk-1"])("sk-2 and 100 %") == "sk-2 and 100 %"


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("Authorization", "Bearer K", ["Bearer K", "K"]),
        ("x-api-key", " K ", ["K"]),
        ("COOKIE", "a=b; c=d", ["a=b; c=d"]),
        ("X-Tag", "K", []),
    ],
)
def test_header_secrets(name, value, secrets):
    assert header_secrets(name, value) == secrets


def test_url_secrets():
    assert url_secrets("http://u:p%40@h/v1") == ["p%40"]
    assert url_secrets("http://h/v1") == url_secrets("http://u@h") == url_secrets("http://[") == []


def test_the_white_space_around_a_secret_is_no_part_of_it():
    """A key from `$(cat file)` or a config may end with a line; what is sent, and echoed, does not."""
    redact = Redactor(["sk-abc12345\n", "   "])
    assert redact("a sk-abc12345 b") == "a *** b"
    assert redact("two   words") == "two   words"
