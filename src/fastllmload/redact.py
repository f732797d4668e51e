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


class Redactor:
    """Call it with text that is about to be shown; every known secret in it becomes `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """From now on *secret* is blanked, also without the white space around it, which no header carries; an empty
        one is no secret.
        """
        if secret.strip() == "":
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
    return {form for form in forms | encoded | {text.rstrip("=") for text in encoded} if form != ""}


def header_secrets(name: str, value: str) -> list[str]:
    """What of a request header must not be shown: for `Authorization: Bearer K` both the value and K."""
    if name.strip().lower() not in SECRET_HEADERS:
        return []
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    return [value, rest.strip()] if rest.strip() != "" and scheme.isalpha() else [value]


def url_secrets(url: str) -> list[str]:
    """The password of `https://user:password@host`, if there is one."""
    try:
        password = urlsplit(url).password
    except ValueError:  # not a URL at all; whoever reads it will say so
        return []
    return [] if password is None or password == "" else [password]


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
                name, _, content = str(text).partition(":")
                found += header_secrets(name, content)
    return found
