"""Blanks secrets out of any text by value: raw, base64, URL-quoted and escaped, wherever they turn up."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, urlsplit

PLACEHOLDER = "***"
SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "cookie",
        "x-auth-token",
    }
)
SECRET_WORDS = frozenset(
    {
        "auth",
        "apikey",
        "authorization",
        "cookie",
        "credential",
        "credentials",
        "jwt",
        "key",
        "passwd",
        "password",
        "secret",
        "signature",
        "token",
    }
)
LEAST = 4  # characters: a shorter secret hides nothing, and blanking every "1" would spoil what is shown


class Redactor:
    """Call it with text that is about to be shown; every known secret in it becomes `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """From now on *secret* is blanked, also without the white space around it, which no header carries; one of
        fewer than LEAST characters is no secret.
        """
        if len(secret.strip()) < LEAST:
            return
        known = {*self._forms, *_forms(secret), *_forms(secret.strip())}
        # Longest first: a form that contains another must go before its part leaves a recognisable rest.
        self._forms = tuple(sorted(known, key=lambda form: (-len(form), form)))

    @property
    def known(self) -> tuple[str, ...]:
        """Every form that is blanked, for a process of our own that shows texts too."""
        return self._forms

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, PLACEHOLDER)
        return text


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    forms = {
        secret,
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
    }
    return {form for form in forms | encoded | {text.rstrip("=") for text in encoded} if len(form) >= LEAST}


def secret_header(name: str) -> bool:
    """Whether a header of this name carries a credential, by its name or by a word of it: `CF-Access-Client-Secret`."""
    name = name.strip().lower()
    return name in SECRET_HEADERS or not SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", name))


def header_secrets(name: str, value: str) -> list[str]:
    """What of a request header must not be shown: for `Authorization: Bearer K` both the value and K."""
    if not secret_header(name):
        return []
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    return [value, rest.strip()] if rest.strip() != "" and scheme.isalpha() else [value]


def written_header(text: str) -> list[str]:
    """The same of `Name: value` as a user wrote it. Without a colon nobody knows what is a name: all of it is secret."""
    name, colon, content = text.partition(":")
    return header_secrets(name, content) if colon else [text, *text.split()[1:]]


def url_secrets(url: str) -> list[str]:
    """The password of `https://user:password@host`, or the token of `https://token@host`; and what a query or fragment
    says, which no URL of ours may have: `?key=...` is a credential as often as not.
    """
    try:
        parts = urlsplit(url)
        found = [parts.password or parts.username or "", parts.fragment]
    except ValueError:  # not a URL at all; whoever reads it will say so
        return []
    found += [pair.partition("=")[2] for pair in parts.query.split("&")]
    return [secret for secret in found if secret != ""]


def class_secrets(text: str) -> list[str]:
    """Of a class in words, `NAME url=https://user:password@host header='Cookie: a'`, whether or not it can be read: such a
    class is refused, and the sentence about it must not show them.
    """
    try:
        words = shlex.split(text)
    except ValueError:  # a quote without its end
        words = [word.replace("'", "").replace('"', "") for word in re.split(r"\s(?=['\"]?[\w-]+=)", text)]
    return [secret for word in words for secret in table_secrets({word.partition("=")[0]: word.partition("=")[2]})]


def table_secrets(table: Mapping[str, object]) -> list[str]:
    """The same of a class that is a table: its URLs and headers, each a text or a list of them."""
    found: list[str] = []
    for key, entry in table.items():
        for text in entry if isinstance(entry, list | tuple) else [entry]:
            if key == "url":
                found += url_secrets(str(text))
            elif key == "header":
                found += written_header(str(text))
    return found
