"""Load generator and measuring instrument for LLM serving; every report certifies the load generator itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastllmload.api import load as load
    from fastllmload.api import run as run

__all__ = ["__version__", "load", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import `run` and `load` on first use, so that `--help` does not import numpy."""
    if name not in ("load", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fastllmload import api

    return getattr(api, name)
