"""What of a run's settings and command line may be shown: no secret is in what is stored or printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fastllmload.engine.resolve import parse_base
from fastllmload.plan.settings import RunSettings, Secret
from fastllmload.redact import PLACEHOLDER, Redactor, header_secrets, secret_header, url_secrets


def redactor(settings: RunSettings, secret: Secret | None) -> Redactor:
    """Knows every secret of the run: the key, secret headers, passwords in URLs."""
    known = Redactor([] if secret is None else [secret.reveal()])
    for name, value in settings.target.headers:
        for text in header_secrets(name, value):
            known.add(text)
    for url in settings.target.urls:
        basic = parse_base(url).authorization
        for text in [*url_secrets(url), *([] if basic is None else header_secrets("Authorization", basic))]:
            known.add(text)
    return known


def public(settings: RunSettings, redact: Redactor, folder: Path) -> RunSettings:
    """The settings as they are stored: the folder's real name, no secret."""
    output = msgspec.structs.replace(settings.output, directory=str(folder))
    headers = tuple((name, PLACEHOLDER if secret_header(name) else value) for name, value in settings.target.headers)
    target = msgspec.structs.replace(settings.target, headers=headers)
    built = msgspec.to_builtins(msgspec.structs.replace(settings, output=output, target=target))
    found: RunSettings = msgspec.convert(blank(built, redact), RunSettings)
    return found


def blank(value: Any, redact: Redactor) -> Any:
    """Every text in *value* without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (list, tuple)):
        return [blank(item, redact) for item in value]
    if isinstance(value, dict):
        return {name: blank(item, redact) for name, item in value.items()}
    return value
