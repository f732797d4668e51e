"""Removes secrets from a run's settings and command line before they are stored or printed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.redact import (
    PLACEHOLDER,
    Redactor,
    body_secrets,
    header_secrets,
    public_body,
    request_secrets,
    secret_header,
    url_secrets,
)
from fastllmload.settings import RunSettings, Secret, Workload


def redactor(settings: RunSettings, secret: Secret | None) -> Redactor:
    """A redactor for every secret of the run: the key, secret headers, secret fields of bodies, passwords in URLs."""
    known = Redactor([] if secret is None else [secret.reveal()])
    for name, value in settings.target.headers:
        for text in header_secrets(name, value):
            known.add(text)
    for name, template in settings.session.headers:
        for text in header_secrets(name, template):
            known.add(text)
    for workload in (settings.workload, *(one.workload for one in settings.classes)):
        for text in body_secrets(workload.extra_body or ""):
            known.add(text)
    for request in settings.control.between:
        for text in request_secrets(request):
            known.add(text)
    for url in (*settings.target.urls, *settings.control.replicas):
        basic = parse_base(url).authorization
        for text in [*url_secrets(url), *([] if basic is None else header_secrets("Authorization", basic))]:
            known.add(text)
    return known


def public(settings: RunSettings, redact: Redactor, folder: Path) -> RunSettings:
    """The settings as they are stored: with the folder's actual name, without secrets."""
    output = msgspec.structs.replace(settings.output, directory=str(folder))
    found: RunSettings = msgspec.convert(
        public_values(msgspec.structs.replace(settings, output=output), redact), RunSettings
    )
    return found


def public_values(settings: RunSettings, redact: Redactor, left_out: Collection[str] = ()) -> dict[str, Any]:
    """*settings* as plain values without secrets, even very short ones. *left_out*: of the group `output`."""
    replace = msgspec.structs.replace
    headers = tuple((name, PLACEHOLDER if secret_header(name) else value) for name, value in settings.target.headers)
    templates = tuple((name, PLACEHOLDER if secret_header(name) else text) for name, text in settings.session.headers)
    settings = replace(
        settings,
        target=replace(settings.target, headers=headers),
        session=replace(settings.session, headers=templates),
        workload=without_credentials(settings.workload),
        classes=tuple(replace(one, workload=without_credentials(one.workload)) for one in settings.classes),
    )
    found: dict[str, Any] = blank(msgspec.to_builtins(settings), redact)
    for name in left_out:
        found["output"].pop(name)
    return found


def without_credentials(workload: Workload) -> Workload:
    extra = workload.extra_body
    return workload if extra is None else msgspec.structs.replace(workload, extra_body=public_body(extra))


def blank(value: Any, redact: Redactor) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (list, tuple)):
        return [blank(item, redact) for item in value]
    if isinstance(value, dict):
        return {name: blank(item, redact) for name, item in value.items()}
    return value
