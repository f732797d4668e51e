"""Replaces secrets in any text by their value: raw, base64, URL-quoted and escaped."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

PLACEHOLDER = "***"
SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "x-auth-token"}
)
SECRET_WORDS = frozenset((
    "auth", "apikey", "apikeys", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt",
    "key", "keys", "passphrase", "passwd", "password", "passwords", "secret", "secrets", "signature", "token",
))  # fmt: skip
MODELS_OWN = frozenset(  # together with one of these words, "token" in a field's name is a token of the vocabulary
    ("bos", "budget", "count", "eos", "id", "ids", "image", "limit", "logprobs", "mask", "max", "min", "pad", "per",
     "probs", "sep", "special", "stop", "unk")
)  # fmt: skip
PUBLIC_FIELDS = frozenset(("prompt_cache_key",))
BODY_OPTIONS = ("extra-body", "extra-request-body")
NAME_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z]+")  # also within camelCase
LEAST = 4  # characters: a shorter secret protects nothing, and replacing every "1" would make the text unreadable


class Redactor:
    """Call it with text that is about to be printed or stored; every known secret in it becomes `***`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Replace *secret* from now on, with and without surrounding white space. Less than LEAST characters are ignored."""
        if len(secret.strip()) < LEAST:
            return
        known = {*self._forms, *_forms(secret), *_forms(secret.strip())}
        # Longest first: replacing a part of a longer form first would leave the rest of it readable.
        self._forms = tuple(sorted(known, key=lambda form: (-len(form), form)))

    @property
    def known(self) -> tuple[str, ...]:
        """Every form that is replaced, for our other processes that write texts."""
        return self._forms

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, PLACEHOLDER)
        return text


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    forms = {secret, quote(raw, safe=""), quote(raw), quote_plus(raw), repr(secret)[1:-1], json.dumps(secret)[1:-1]}
    return {form for form in forms | encoded | {text.rstrip("=") for text in encoded} if len(form) >= LEAST}


def secret_header(name: str) -> bool:
    """Whether a header of this name carries a credential, by its name or by a word of it: `CF-Access-Client-Secret`."""
    name = name.strip()
    return name.lower() in SECRET_HEADERS or not SECRET_WORDS.isdisjoint(_words(name))


def secret_field(name: str) -> bool:
    """The same for a field of a request's body. Token numbers, such as `stop_token_ids`, are not secret."""
    words = _words(name)
    found = SECRET_WORDS & words
    if name in PUBLIC_FIELDS:
        return False
    return name.lower() in SECRET_HEADERS or (bool(found) and not (found == {"token"} and MODELS_OWN & words))


def _words(name: str) -> set[str]:
    return {word.lower() for word in [*NAME_PARTS.split(name), *re.split(r"[^A-Za-z]+", name)]}


def header_secrets(name: str, value: str) -> list[str]:
    """The secret parts of a request header: for `Authorization: Bearer K` both the value and K."""
    return _credentials(value) if secret_header(name) else []


def _credentials(value: str) -> list[str]:
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    return [value, rest.strip()] if rest.strip() != "" and scheme.isalpha() else [value]


def header_line_secrets(text: str) -> list[str]:
    """The same for `Name: value` as typed. Without a colon the name is unknown, so all of it is secret."""
    name, colon, content = text.partition(":")
    return header_secrets(name, content) if colon else [text, *text.split()[1:]]


def labelled(text: str) -> tuple[str | None, str]:
    """(label, URL) of `LABEL=URL`; a label has no colon and no slash, so that no URL begins like one."""
    match = re.fullmatch(r"([^:/?#=]*)=(.*)", text, re.DOTALL)
    return (None, text) if match is None else (match[1], match[2])


def url_secrets(url: str) -> list[str]:
    """The password of `https://user:password@host`, or the token of `https://token@host`; also the values of a query and
    the fragment: options allow neither in a URL, and `?key=...` is often a credential.
    """
    try:
        parts = urlsplit(labelled(url)[1].removeprefix("prometheus+"))
        found = [parts.password or parts.username or "", parts.fragment]
    except ValueError:  # not a URL; the code that uses it reports that
        return []
    found += [pair.partition("=")[2] for pair in parts.query.split("&")]
    return [secret for secret in found if secret != ""]


def request_secrets(text: str) -> list[str]:
    """The password in `METHOD URL`, and the values of secret fields in its query."""
    parts = urlsplit(text.rpartition(" ")[2])
    fields = (pair.partition("=")[::2] for pair in parts.query.split("&"))
    return [
        found for found in (parts.password or "", *(value for name, value in fields if secret_field(name))) if found
    ]


def class_secrets(text: str) -> list[str]:
    """Secrets of a class given as text, also when it cannot be parsed: the message that rejects it must not contain them."""
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quote
        words = [word.replace("'", "").replace('"', "") for word in re.split(r"\s(?=['\"]?[\w-]+=)", text)]
    return [secret for word in words for secret in table_secrets({word.partition("=")[0]: word.partition("=")[2]})]


def table_secrets(table: Mapping[str, object]) -> list[str]:
    """The same for a class given as a table: secrets in its URLs, headers and body fields, each a text or a list."""
    found: list[str] = []
    for key, entry in table.items():
        for text in entry if isinstance(entry, list | tuple) else [entry]:
            if key == "url":
                found += url_secrets(str(text))
            elif key.replace("_", "-") in BODY_OPTIONS:
                found += body_secrets(str(text))
            elif key == "header":
                found += header_line_secrets(str(text))
    return found


def body_secrets(text: str) -> list[str]:
    """All strings in fields of the JSON object *text* whose name denotes a credential; all of *text* when they are not
    literally in it: it is not JSON, a string is escaped, or a credential is a number.
    """
    try:
        body = _parsed(text)
        blanked, found = without_secrets(body), list(_texts_below(body))
    except (ValueError, RecursionError):
        return [text] if _names_secret(text) else []
    secrets = [part for each in found for part in _credentials(each)]
    if blanked == without_secrets(body, numbers=False) and all(each in text for each in found):
        return secrets
    return [*secrets, text]


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object. ValueError when it is not one, or repeats a field: only one of the two values would be parsed."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("a field is repeated")
        return found

    found = json.loads(text, object_pairs_hook=once)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def public_body(text: str) -> str:
    """*text* for display: the values of such fields are `***`."""
    try:
        body = _parsed(text)
        blanked = without_secrets(body)
    except (ValueError, RecursionError):
        return PLACEHOLDER if _names_secret(text) else text
    return text if blanked == body else json.dumps(blanked, ensure_ascii=False)


def without_secrets(value: Any, secret: bool = False, numbers: bool = True, of: str = "") -> Any:
    """*value* with `***` for strings, and for *numbers*, in secret fields. *of*: the name of the field that holds it."""
    if isinstance(value, dict):
        return {
            name: without_secrets(inner, secret or _is_secret(name, inner, of), numbers, name)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner, secret, numbers) for inner in value]
    hidden = isinstance(value, str) or (numbers and isinstance(value, int | float) and not isinstance(value, bool))
    return PLACEHOLDER if secret and hidden else value


def _texts_below(value: Any, secret: bool = False, of: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts_below(inner, secret or _is_secret(name, inner, of), name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_below(inner, secret)
    elif secret and isinstance(value, str) and value:
        yield value


def _is_secret(name: str, value: Any, of: str) -> bool:
    """Whether field *name* is a credential. An object in `properties` is the schema of a tool's parameter, so it is not."""
    return secret_field(name) and not (of == "properties" and isinstance(value, dict))


def _names_secret(text: str) -> bool:
    return any(secret_field(word) for word in re.findall(r"[\w-]+", text))
