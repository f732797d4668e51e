"""What a run shows while it goes on and at its end: live on a terminal, lines elsewhere, or nothing but the
folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastllmload.report.terminal.outlet import Outlet, Redact, Writable, one_screen_line
from fastllmload.report.terminal.screen import can_move_cursor
from fastllmload.report.terminal.snapshot import Snapshot
from fastllmload.report.terminal.summary import run_folder


class Ui(Protocol):
    """Calls come in this order, one at a time; `close` is called once at the end, whatever happened."""

    def banner(self, lines: Sequence[str]) -> None:
        """Before anything is sent: what will be done, to whom."""

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        """A phase begins: its requests and its length, None where not known."""

    def due(self, t: float) -> bool:
        """Whether an update at *t* seconds of the phase would be shown: a snapshot takes a millisecond of a processor."""

    def update(self, snapshot: Snapshot) -> None:
        """A few times a second, where it is due."""

    def message(self, text: str) -> None:
        """One sentence that must not be missed."""

    def finish(self, document: Mapping[str, Any], folder: str | None = None) -> None:
        """The closing summary of run.json, which lies in *folder*."""

    def close(self) -> None:
        """Give the terminal back."""


def make_ui(mode: str, stream: Writable, redact: Redact = str) -> Ui:
    """The view for *mode* `auto`, `live`, `plain` or `none`; *redact* blanks secrets in all that is written.

    `auto` is live on a terminal that can move its cursor, else plain.
    """
    outlet = Outlet(stream, redact)
    shown = lambda text: one_screen_line(redact(text))  # noqa: E731 - for texts before they have colours
    if mode == "auto":
        mode = "live" if can_move_cursor(stream) else "plain"
    if mode == "live":
        from fastllmload.report.terminal.live import LiveView

        return LiveView(outlet, shown)
    if mode == "plain":
        from fastllmload.report.terminal.plain import PlainView

        return PlainView(outlet, shown)
    if mode == "none":
        return NoView(outlet)
    raise ValueError(f"mode {mode!r} is none of auto, live, plain, none")


class NoView:
    """Says nothing until the end, then only where the run is."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def banner(self, lines: Sequence[str]) -> None:
        pass

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        pass

    def due(self, t: float) -> bool:
        return False

    def update(self, snapshot: Snapshot) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def finish(self, document: Mapping[str, Any], folder: str | None = None) -> None:
        self._outlet.write(f"{one_screen_line(run_folder(document, folder))}\n")
        self._outlet.flush()

    def close(self) -> None:
        pass
