"""Telemetry of a run: server metrics, power, GPUs and the host, sampled on the run's own clock into its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastllmload.telemetry.series import Telemetry, TelemetrySeries, load

__all__ = ["Telemetry", "TelemetrySeries", "load"]


def __getattr__(name: str) -> object:
    """Imports the reader, which needs numpy, only when it is used; sampling does not need it."""
    if name in __all__:
        from fastllmload.telemetry import series

        return getattr(series, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
