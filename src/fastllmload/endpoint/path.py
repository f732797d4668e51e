"""Where an OpenAI-compatible server serves a resource, from the base URL that people write."""

from __future__ import annotations


def under(base_path: str, resource: str) -> str:
    """Path of *resource* (`chat/completions`, `models`).

    A base URL without a path means the usual /v1; one with a path means that path, as in the OpenAI SDK.
    A base that already ends in the resource is taken as it is.
    """
    path = base_path.rstrip("/")
    if path.endswith("/" + resource):
        return path
    return f"{path or '/v1'}/{resource}"


def root(base_path: str, resource: str) -> str:
    """The base path without *resource* at its end."""
    return base_path.rstrip("/").removesuffix("/" + resource)
