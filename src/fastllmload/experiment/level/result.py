"""One finished level: its run, and the figures that procedures use for decisions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastllmload.records.run import Run, load
from fastllmload.settings import RunSettings

PERCENTILES = ("p50", "p75", "p90", "p95", "p99", "p999", "mean", "min", "max", "std")


@dataclass(frozen=True)
class Level:
    """A finished level. *resumed*: it was found in the folder and not measured again."""

    number: int
    name: str
    settings: RunSettings
    folder: Path
    document: dict[str, Any]  # its run.json
    resumed: bool = False

    @cached_property
    def run(self) -> Run:
        """Rows and events, mapped."""
        return load(self.folder)

    def figure(self, name: str, statistic: str = "value") -> float | None:
        """`metrics.<name>.<statistic>`; None if it is null or was not measured."""
        found = (self.document.get("metrics") or {}).get(name) or {}
        value = found.get(statistic)
        return None if value is None else float(value)

    @property
    def load(self) -> float:
        """Requests/s of an open loop, slots of a closed one."""
        settings = self.settings.load
        return float(settings.concurrency) if settings.concurrency is not None else float(settings.rate or 0.0)

    @property
    def output_tok_s(self) -> float:
        """Output tokens of the window over its length."""
        return self.figure("output_tok_s") or 0.0

    @property
    def req_s(self) -> float:
        return self.figure("req_s") or 0.0

    @property
    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("counts") or {}
        return found

    @property
    def success_rate(self) -> float | None:
        return self.figure("success_rate")

    @property
    def cascading(self) -> bool:
        """Sending was stopped because most of the last requests failed (IETF 7.4)."""
        return any(phase.get("cascading_failure") for phase in self.document.get("phases", ()))

    @property
    def generator_limited(self) -> bool:
        """The client was, or may have been, the limit."""
        return bool((self.document.get("certificate") or {}).get("generator_limited"))

    @property
    def folder_name(self) -> str:
        """Relative to the procedure's folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"
