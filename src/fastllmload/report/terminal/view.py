"""The output of a run while it runs and at its end: live on a terminal, plain lines elsewhere, or only the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastllmload.documents.run import RunDocument
from fastllmload.report.render.terminal import can_move_cursor
from fastllmload.report.terminal.outlet import Outlet, Redact, Writable, one_screen_line
from fastllmload.report.terminal.snapshot import Snapshot
from fastllmload.report.terminal.summary import run_folder


class Ui(Protocol):
    """Methods are called in this order, one at a time; `close` is called once at the end, also after an error."""

    def banner(self, lines: Sequence[str]) -> None:
        """Before anything is sent: load and target."""

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        """A phase begins: its requests and its length in seconds, None where not known."""

    def due(self, t: float) -> bool:
        """Whether an update at *t* seconds of the phase would be drawn; a snapshot costs a millisecond of CPU time."""

    def update(self, snapshot: Snapshot) -> None:
        """Draw *snapshot*; called a few times a second when an update is due."""

    def message(self, text: str) -> None:
        """Print one important sentence."""

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        """Print the closing summary of run.json, which is in *folder*."""

    def close(self) -> None:
        """Release the terminal."""


def make_ui(mode: str, stream: Writable, redact: Redact = str) -> Ui:
    """The view for *mode* `auto`, `live`, `plain` or `none`; *redact* removes secrets from all output.

    `auto` is `live` on a terminal that can move its cursor, else `plain`.
    """
    outlet = Outlet(stream, redact)
    clean = lambda text: one_screen_line(redact(text))  # noqa: E731 - for texts before they have colours
    if mode == "auto":
        mode = "live" if can_move_cursor(stream) else "plain"
    if mode == "live":
        from fastllmload.report.terminal.live import LiveView

        return LiveView(outlet, clean)
    if mode == "plain":
        from fastllmload.report.terminal.plain import PlainView

        return PlainView(outlet, clean)
    if mode == "none":
        return NoView(outlet)
    raise ValueError(f"mode {mode!r} is not one of auto, live, plain, none")


class NoView:
    """Prints only the path of the run folder, at the end."""

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

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        self._outlet.write(f"{one_screen_line(run_folder(document, folder))}\n")
        self._outlet.flush()

    def close(self) -> None:
        pass
