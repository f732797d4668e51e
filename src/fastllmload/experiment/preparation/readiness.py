"""Whether a target answers: queried as a run queries it, with its TLS settings, addresses and headers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.probe import Probe
from fastllmload.engine.public_settings import redactor
from fastllmload.errors import TargetError
from fastllmload.settings import RunSettings, Secret

READY_S = 600.0  # for a server to come back after a hook
PATIENCE_S = 10.0  # for one answer
REPORT_EVERY_S = 30.0  # between two lines about a server or a hook that is not ready yet
NOT_YET = (502, 503, 504)  # from a gateway without its server, and from a server that loads the model


def unreachable_reason(
    settings: RunSettings, urls: Sequence[str], secret: Secret | None, refused: tuple[int, ...] = ()
) -> str | None:
    """Why one of *urls* does not answer the query for its models; None if all answer with any status not in *refused*."""
    key = None if secret is None else secret.reveal()
    endpoint = ENDPOINTS[settings.target.endpoint_type]
    for url in urls or ("http://localhost",):  # a Unix socket's
        try:
            base = parse_base(url, settings.target.unix_socket)
            status = Probe(settings, base, endpoint, key, redactor(settings, secret)).status(PATIENCE_S)
        except TargetError as problem:
            return str(problem)
        if status in refused:
            return f"{base.public_url} answers {status}"
    return None


def await_answer(ask: Callable[[], str | None], say: Callable[[str], None], most_s: float = READY_S) -> float:
    """Poll until *ask* returns None instead of a reason; seconds. TargetError with the last reason after *most_s*."""
    began = reported = time.monotonic()
    while (why := ask()) is not None:
        now = time.monotonic()
        if now - began > most_s:
            raise TargetError(f"the target was not ready within {most_s:g} s of the hook: {why}; the test stops here")
        if now - reported >= REPORT_EVERY_S:
            say(f"waiting for the target for {now - began:.0f} s: {why}")
            reported = now
        time.sleep(0.5)
    return time.monotonic() - began
