"""Removes credentials from what a server says about itself: environments, command lines and settings."""

from __future__ import annotations

import re
from typing import Any

from fastllmload.redact import PLACEHOLDER, Redactor, secret_field, without_secrets

# `--name value`, `NAME=value`, `'name': 'value'`
OPTION = re.compile(r"(?P<name>--[\w-]+)(?P<between>[ =]+)(?P<value>(?!--)\S+)")
ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<between>['\"]?\s*[=:]\s*['\"]?)(?P<value>[^\s,;'\"]+)")


def without_credentials(content: Any, redact: Redactor) -> Any:
    """*content* with `***` for secret fields by name, also in environments and command lines, and for known secrets."""
    return in_texts(without_secrets(content), redact)


def in_texts(value: Any, redact: Redactor) -> Any:
    if isinstance(value, dict):
        return {redact(name): in_texts(inner, redact) for name, inner in value.items()}
    if isinstance(value, list):
        words = [in_texts(each, redact) for each in value]
        return [
            PLACEHOLDER if isinstance(word, str) and is_secret_option(before) else word
            for before, word in zip([None, *value], words, strict=False)
        ]
    return ASSIGNED.sub(blanked, OPTION.sub(blanked, redact(value))) if isinstance(value, str) else value


def is_secret_option(word: object) -> bool:
    """Whether the next word is its secret value: `--api-key`."""
    return isinstance(word, str) and word.startswith("--") and "=" not in word and secret_field(word)


def blanked(match: re.Match[str]) -> str:
    shown = PLACEHOLDER if secret_field(match["name"]) else match["value"]
    return f"{match['name']}{match['between']}{shown}"
