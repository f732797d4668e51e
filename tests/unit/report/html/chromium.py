"""Drives a headless Chromium over its debugging pipe, for tests of pages as a browser renders them.

Nothing is installed or downloaded: `path()` is None without Chromium. FASTLLMLOAD_CHROMIUM names another executable.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
# The browser takes commands from descriptor 3 and answers to descriptor 4.
MOVE = """
import os, sys
commands, answers = (os.dup2(int(number), 60 + k) for k, number in enumerate(sys.argv[1:3]))
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_S = 120.0
TROUBLE = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


def path() -> str | None:
    """The browser's executable."""
    asked = os.environ.get("FASTLLMLOAD_CHROMIUM")
    return asked or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One process with one page. Close it."""

    def __init__(self, executable: str, profile: Path) -> None:
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()
        moved = [sys.executable, "-c", MOVE, str(commands_out), str(answers_in)]
        self._process = subprocess.Popen(
            [*moved, executable, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands_out, answers_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(answers_in)
        self._unread = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command; events that come before it are kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._answers, 1 << 20) if ready else b""
            assert part, "Chromium ended or does not answer"
            self._unread += part
        first, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def show(self, file: Path, width: int = 1280, dark: bool = False, media: str = "", script: bool = True) -> None:
        """Open *file* again in a window of *width*, and drop all earlier events."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def value(self, expression: str) -> Any:
        """What a piece of script gives in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, button: str = "none", clicks: int = 0) -> None:
        """kind: Moved, Pressed or Released."""
        self.ask("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button=button, clickCount=clicks)

    def screenshot(self, file: Path) -> Path:
        """The whole page as PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))
        return file

    def printed(self) -> bytes:
        """The page as PDF, on the paper that its style asks for."""
        pdf = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(pdf["data"])

    @property
    def trouble(self) -> list[str]:
        """Console output, log entries and exceptions since the page was opened."""
        return [json.dumps(event["params"])[:600] for event in self.events if event.get("method") in TROUBLE]

    @property
    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]

    def close(self) -> None:
        self._session = ""
        self.ask("Browser.close")
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._commands)
        os.close(self._answers)
