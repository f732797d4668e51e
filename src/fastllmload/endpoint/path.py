"""Paths of an OpenAI-compatible server's resources, from the path of the base URL."""

from __future__ import annotations


def resource_path(base_path: str, resource: str) -> str:
    """Path of *resource* (`chat/completions`, `models`).

    A base URL without a path means /v1; one with a path means that path, as in the OpenAI SDK. A base that
    already ends in the resource is used unchanged.
    """
    path = base_path.rstrip("/")
    if path.endswith("/" + resource):
        return path
    return f"{path or '/v1'}/{resource}"


def base_of(base_path: str, resource: str) -> str:
    """*base_path* without a trailing *resource*."""
    return base_path.rstrip("/").removesuffix("/" + resource)
