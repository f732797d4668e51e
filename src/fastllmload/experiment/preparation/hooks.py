"""Tester steps (procedures.md 0.1): a command with an exit status, a prompt to the operator, or our own engine.

The simulated engine is started anew with other fields of its profile, so each test can be tried without a server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from fastllmload.errors import InputError
from fastllmload.experiment.preparation.readiness import TELL_S

TIMEOUT_S = 900.0
YES, NO = ("y", "yes"), ("n", "no")
TAIL = 200_000  # bytes of a hook's output that are kept

HOOKS = {
    "restart": "start the server again, with nothing loaded or cached",
    "cache-off": "switch the prefix cache off",
    "cache-on": "switch the prefix cache on, empty",
    "guardrail-baseline": "switch all guardrails off",
    "guardrail-input": "switch on input filtering only",
    "guardrail-output": "switch on output filtering only",
    "guardrail-full": "switch on input and output filtering",
    "recover": "bring the server back after an overload",
    "server-log": "print the server's log, where out-of-memory errors are looked for",
}
SIMULATED: dict[str, dict[str, str]] = {  # fields of the profile; those not named are the profile's own
    "restart": {},
    "cache-off": {"prefix_cache": "false"},
    "cache-on": {"prefix_cache": "true"},
    "guardrail-baseline": {"guard_in_ms": "0", "guard_out_ms": "0"},
    "guardrail-input": {"guard_out_ms": "0"},
    "guardrail-output": {"guard_in_ms": "0"},
    "guardrail-full": {},
    "recover": {},
}


@dataclass(frozen=True)
class HookResult:
    """What a hook did: kept in procedure.json."""

    name: str
    how: str  # "command", "operator" or "simulated engine"
    seconds: float
    status: int
    output: str


class HookFailed(InputError):
    """A hook's command failed or the operator said no: the test stops."""


def run_hook(
    name: str,
    command: str,
    environment: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
    kept: int = TAIL,
    say: Callable[[str], None] = lambda line: None,
) -> HookResult:
    """Run *command* in a shell with FASTLLMLOAD_HOOK=*name*. HookFailed unless it ends with status 0 in time.

    The hook ends when its shell does: a server that it leaves running in the background is not waited for, though it
    still holds the output. A hook that is cut short is killed with everything that it started. Of what it said the
    last *kept* bytes are kept. *say* is told now and then that it still runs.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        shell = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            env={**environment, "FASTLLMLOAD_HOOK": name}, start_new_session=True,
        )  # fmt: skip
        try:
            status = end_of_shell(shell, timeout_s, lambda so_far: say(still_running(name, so_far, timeout_s)))
        except BaseException as problem:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            if not isinstance(problem, subprocess.TimeoutExpired):
                raise
            raise HookFailed(
                f"--hook {name}={command!r} did not end within {timeout_s:g} s{last_words(end_of(said, kept))}; the test "
                "stops here, start it again when the hook works, or give it longer with --hook-timeout"
            ) from None
        tail = end_of(said, kept)
    if status != 0:
        raise HookFailed(
            f"--hook {name}={command!r} ended with status {status}{last_words(tail)}; the test stops here, start it "
            "again when the hook works"
        )
    return HookResult(name, "command", time.monotonic() - began, 0, tail)


def end_of_shell(shell: subprocess.Popen[bytes], most_s: float, tell: Callable[[float], None]) -> int:
    """Its exit status; *tell* is given the seconds so far, every TELL_S. TimeoutExpired after *most_s*."""
    began = time.monotonic()
    while True:
        left = began + most_s - time.monotonic()
        try:
            return shell.wait(max(0.0, min(left, TELL_S)))
        except subprocess.TimeoutExpired:
            if left <= TELL_S:
                raise
            tell(time.monotonic() - began)


def still_running(name: str, seconds: float, most_s: float) -> str:
    return f"hook {name} has been running for {seconds:.0f} s; it is stopped after {most_s:g} s (--hook-timeout)"


def end_of(said: IO[bytes], most: int) -> str:
    """The last *most* bytes of what was written into the file."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - most))
    return said.read(most).decode(errors="replace")


def last_words(output: str) -> str:
    """`: ` and the last line of *output*; empty where nothing was said."""
    lines = output.strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def ask_operator(name: str, ask: Callable[[str], str] = input) -> HookResult:
    """The operator does it by hand and confirms, behind the question: what was typed ahead of it confirms nothing.
    HookFailed when they say no or end the input; any other answer, an empty one too, is asked for again.
    """
    began = time.monotonic()
    if terminal():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    question = f"please {HOOKS[name]}, then type yes: "
    while (answer := answered(ask, question)) not in YES:
        if answer is None:
            raise HookFailed(f"hook {name}: the input ended before the operator answered yes; the test stops here")
        if answer in NO:
            raise HookFailed(f"hook {name}: the operator answered {answer!r}, not yes; the test stops here")
        question = f"  {answer!r} is neither yes nor no; type yes when it is done, or no to stop the test: "
    return HookResult(name, "operator", time.monotonic() - began, 0, "")


def answered(ask: Callable[[str], str], question: str) -> str | None:
    """In small letters; None at the end of the input."""
    try:
        return ask(question).strip().lower()
    except EOFError:
        return None


def refuse_missing(names: tuple[str, ...], given: Mapping[str, str], simulated: bool, operator: bool) -> None:
    """All hooks that a test needs and nobody can do, in one sentence, before anything is sent."""
    if simulated or operator:
        return
    missing = [name for name in names if name not in given]
    if missing:
        listed = "; ".join(f"--hook {name}=COMMAND ({HOOKS[name]})" for name in missing)
        raise InputError(
            f"this test changes the server between its phases and needs: {listed}; or run it in a terminal and confirm"
        )


def terminal() -> bool:
    """Whether an operator can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
