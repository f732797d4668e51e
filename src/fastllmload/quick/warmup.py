"""Warm-up of asiai's protocol: one request that primes the caches; the model's card is read for declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fastllmload.endpoint import resolve_endpoint
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.probe import Probe
from fastllmload.quick.protocol import WARMUP_PROMPT, WARMUP_TOKENS
from fastllmload.report.terminal.outlet import Redact
from fastllmload.settings import RunSettings, Secret

CARD = {"sut.model.format": "format", "sut.model.quantization": "quantization_level"}  # declaration: Ollama's key


def warm_up(settings: RunSettings, url: str, secret: Secret | None, redact: Redact) -> RunSettings:
    """Send the request. Returns the settings with the model's name, and with format and quantization from the server's
    model card if the user has not declared them. TargetError if the server cannot be reached or does not answer.
    """
    endpoint = resolve_endpoint(settings.target.endpoint_type)
    key = None if secret is None else secret.reveal()
    probe = Probe(settings, parse_base(url, settings.target.unix_socket), endpoint, key, redact)
    probe.reach([])
    model = probe.model(settings.target.model)
    probe.send_once(model, WARMUP_PROMPT, WARMUP_TOKENS)
    target = msgspec.structs.replace(settings.target, model=model)
    declared = (*settings.output.declare, *from_card(probe.model_entry(model), dict(settings.output.declare)))
    output = msgspec.structs.replace(settings.output, declare=declared)
    return msgspec.structs.replace(settings, target=target, output=output)


def from_card(card: Mapping[str, Any], declared: Mapping[str, str]) -> list[tuple[str, str]]:
    """Declarations from the model's *card* that the user has not made."""
    details = card.get("details")
    if not isinstance(details, Mapping):
        return []
    found = {name: details.get(key) for name, key in CARD.items() if name not in declared}
    return [(name, value) for name, value in found.items() if isinstance(value, str) and value]
