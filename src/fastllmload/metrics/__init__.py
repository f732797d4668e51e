"""Numbers of a run, computed from its rows and events by pure functions. `metrics.public` names what is public."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastllmload.metrics.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Names of `metrics.public`, on first use: many packages import one module of this one and need none of the others."""
    public = import_module("fastllmload.metrics.public")
    if name != "__all__" and name not in public.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(public, name)
