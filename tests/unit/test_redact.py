"""A secret is blanked in every form that a program is likely to show it in."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.redact import Redactor, header_secrets, url_secrets, written_header


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
    assert Redactor(["abcd", "abcdef"])("abcdef abcd") == "*** ***"
    assert Redactor(["abcdef", "abcd"])("abcdef abcd") == "*** ***"


@pytest.mark.parametrize("secret", ["", "1", " x ", "abc"])
def test_what_is_too_short_to_be_a_secret_spoils_no_text(secret):
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
    assert written_header("X-Api-Key: K") == ["K"] and written_header("X-Tag: K") == []
    assert written_header("sk-1234") == ["sk-1234"]
    assert "sk-1234" in written_header("Authorization Bearer sk-1234")


def test_the_white_space_around_a_secret_is_no_part_of_it():
    """A key from `$(cat file)` or a config may end with a line; what is sent, and echoed, does not."""
    redact = Redactor(["sk-abc12345\n", "   "])
    assert redact("a sk-abc12345 b") == "a *** b"
    assert redact("two   words") == "two   words"
