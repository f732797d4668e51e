"""The simulated engine as a process of its own: started, waited for, stopped, never left running."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

from fastllmload.errors import HostLimitError, InputError, InternalError
from fastllmload.settings import KEY_VARIABLES
from fastllmload.simulator.profile import REPEATED, SimulatorOptions, resolve

READY_TIMEOUT_S = 30.0
NOT_READY = "not ready within"
STOP_TIMEOUT_S = 20.0
KILLED = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)  # these come from outside


class SimulatorProcess:
    """A context manager. The child gets SIGTERM when the thread that started it ends; the key is in its environment."""

    def __init__(self, options: SimulatorOptions | None = None) -> None:
        self.options = SimulatorOptions() if options is None else options
        self.url = ""
        self.crashed = False  # it ended by a fault of its own; known after `ending()`
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def port(self) -> int:
        """0 on a Unix socket."""
        return 0 if self.url.startswith("unix:") else int(self.url.rsplit(":", 1)[1])

    @property
    def truth_path(self) -> str | None:
        return self.options.truth

    def start(self) -> Self:
        """Starts the process and waits for its ready line. InputError: the options cannot be served, and why."""
        resolve(self.options)
        environment = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        if self.options.api_key is not None:
            environment["FASTLLMLOAD_SIMULATOR_KEY"] = self.options.api_key
        command = [sys.executable, "-m", "fastllmload.simulator", *arguments(self.options)]
        command += ["--die-with-parent", str(os.getpid())]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            process_group=0,  # Ctrl-C in the terminal is for the parent: it drains before it stops the engine
        )  # fmt: skip
        line = self._first_line(self._child)
        if not line.startswith("ready "):
            raise self._failure(line)
        self.url = line.split(" ", 1)[1].strip()
        return self

    def _first_line(self, child: subprocess.Popen[str]) -> str:
        assert child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            if not selector.select(READY_TIMEOUT_S):
                return f"{NOT_READY} {READY_TIMEOUT_S:g} s"
        return child.stdout.readline()

    def _failure(self, line: str) -> Exception:
        child, self._child = self._running(), None
        if line:  # it said something else, or is not ready in time
            child.kill()
        said = (line + child.communicate()[1]).strip() or "nothing on stderr"
        if line.startswith(NOT_READY):
            return HostLimitError(
                "simulator-stalled", f"the simulated engine was {line}: something holds it up or the host is too busy"
            )
        if -child.returncode in KILLED and not line:
            how = f"killed by signal {-child.returncode} while it started"
            return HostLimitError(
                "simulator-killed", f"the simulated engine was {how}: nothing was measured; start the run again"
            )
        text = f"the simulated engine did not start: {said.removeprefix('fastllmload: ')}"
        if child.returncode == InputError.exit_code:
            return InputError("simulator-not-started", text)
        return InternalError("internal-error", text)

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            raise InternalError("internal-error", "the simulated engine is not running")
        return self._child

    def ending(self) -> str | None:
        """How it ended, other than by `stop`, as the end of a sentence; None while it runs."""
        child = self._child
        if child is None or child.poll() is None:
            return None
        self._child = None
        said = child.communicate()[1].strip().splitlines()
        self.crashed = child.returncode not in (0, *(-number for number in KILLED))
        if child.returncode < 0:
            return f"was killed by signal {-child.returncode}"
        if child.returncode == 0:
            return "was ended by another process"
        return f"ended with exit code {child.returncode}: {said[-1] if said else 'nothing on stderr'}"

    def stop(self) -> int:
        """Ends it and returns its exit code; the truth log is complete afterwards. Does nothing the second time."""
        child = self._child
        if child is None:
            return 0
        self._child = None
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            _, said = child.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise InternalError(
                "internal-error", f"the simulated engine did not stop within {STOP_TIMEOUT_S:g} s"
            ) from None
        if child.returncode not in (0, -signal.SIGTERM):
            raise InternalError(
                "internal-error", f"the simulated engine ended with exit code {child.returncode}: {said.strip()}"
            )
        return child.returncode


def arguments(options: SimulatorOptions) -> list[str]:
    """The command line that gives *options* again; the API key is left out."""
    out: list[str] = []
    defaults = SimulatorOptions()
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if (
            value == getattr(defaults, name)
            or name in ("api_key", "die_with_parent")
            or (name == "model" and options.more_models)
        ):
            continue
        flag = "--" + name.replace("_", "-")
        if name in REPEATED.values():
            option = next(option for option, field in REPEATED.items() if field == name).replace("_", "-")
            out += [part for each in value for part in (f"--{option}", each)]
        elif name == "more_models":
            out += [part for model in (options.model, *value) for part in ("--model", model)]
        elif name == "overrides":
            out += [part for field, text in value for part in ("--set", f"{field}={text}")]
        elif value is True:
            out.append(flag)
        else:
            out += [flag, str(value)]
    return out
