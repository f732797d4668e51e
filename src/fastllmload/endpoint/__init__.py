"""Wire protocols, one value of `Endpoint` each: paths and request bodies; their events are parsed by compiled code.

`protocols/` has one file per API. Every `Endpoint` in such a file is a value of --endpoint-type.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module

from fastllmload.endpoint import protocols, template
from fastllmload.endpoint.body import BodyPieces
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.settings import DEFAULT_ENDPOINT, TrafficClass

__all__ = [
    "ALIASES",
    "ENDPOINTS",
    "BodyPieces",
    "Endpoint",
    "resolve_endpoint",
    "shown",
    "silent_classes",
    "told_apart",
]

shown, told_apart = template.shown, template.told_apart


def declared() -> list[Endpoint]:
    """The endpoints in the files of `protocols`, by file name; the file of the default is first."""
    files = [import_module(f"{protocols.__name__}.{file.name}") for file in pkgutil.iter_modules(protocols.__path__)]
    found = [[value for value in vars(file).values() if isinstance(value, Endpoint)] for file in files]
    found.sort(key=lambda endpoints: DEFAULT_ENDPOINT not in [endpoint.name for endpoint in endpoints])
    return [endpoint for endpoints in found for endpoint in endpoints]


def claimed(endpoints: Iterable[Endpoint]) -> dict[str, Endpoint]:
    """*endpoints* by name and alias. ValueError for one that two of them have."""
    found: dict[str, Endpoint] = {}
    for endpoint in endpoints:
        for name in (endpoint.name, *endpoint.aliases):
            if found.setdefault(name, endpoint) is not endpoint:
                raise ValueError(f"--endpoint-type {name} is claimed by {found[name].name} and by {endpoint.name}")
    return found


NAMES = claimed(declared())
ENDPOINTS: dict[str, Endpoint] = {endpoint.name: endpoint for endpoint in NAMES.values()}
ALIASES: dict[str, str] = {name: endpoint.name for name, endpoint in NAMES.items() if name != endpoint.name}


def resolve_endpoint(name: str) -> Endpoint:
    """The endpoint with *name* or alias *name*, or that of a template's text. InputError for another name."""
    if template.is_text(name):
        return template.of_text(name)
    endpoint = NAMES.get(name)
    if endpoint is None:
        raise InputError(
            "choice-unknown",
            f"--endpoint-type {name!r} is not a supported wire protocol; choose one of "
            f"{', '.join(ENDPOINTS)} (aliases: {', '.join(sorted(ALIASES))})",
        )
    return endpoint


def silent_classes(protocol: str, classes: Sequence[TrafficClass]) -> dict[str, str]:
    """By name, the protocol of each of *classes* whose answers are not tokens; *protocol*: that of the run."""
    spoken = {one.name: one.endpoint_type or protocol for one in classes}
    return {name: found for name, found in spoken.items() if not resolve_endpoint(found).tokens}
