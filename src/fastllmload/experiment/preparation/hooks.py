"""Hooks (spec/procedures 0.1): a command with an exit status, a prompt to the operator, or a step of the simulated engine.

The simulated engine is restarted with other fields of its profile, so each test can be tried without a server.
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
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from fastllmload.documents.experiment import HookEntry
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.probe import ServerProbe
from fastllmload.engine.public_settings import redactor
from fastllmload.errors import InputError, TargetError
from fastllmload.settings import RunSettings, Secret

READY_S = 600.0  # for a server to come back after a hook
PATIENCE_S = 10.0  # for one answer
REPORT_EVERY_S = 30.0  # between two lines about a server or a hook that is not ready yet
NOT_YET = (502, 503, 504)  # from a gateway without its server, and from a server that loads the model


def unreachable_reason(
    settings: RunSettings, urls: Sequence[str], secret: Secret | None, refused: tuple[int, ...] = ()
) -> str | None:
    """Why one of *urls* does not answer the query for its models; None if all answer with any status not in *refused*."""
    key = None if secret is None else secret.reveal()
    for url in urls or ("http://localhost",):  # a Unix socket's
        try:
            base = parse_base(url, settings.target.unix_socket)
            status = ServerProbe(settings, base, key, redactor(settings, secret)).status(PATIENCE_S)
        except TargetError as problem:
            return problem.message
        if status in refused:
            return f"{base.public_url} answers {status}"
    return None


def await_answer(ask: Callable[[], str | None], say: Callable[[str], None], most_s: float = READY_S) -> float:
    """Poll until *ask* returns None instead of a reason; seconds. TargetError with the last reason after *most_s*."""
    began = reported = time.monotonic()
    while (why := ask()) is not None:
        now = time.monotonic()
        if now - began > most_s:
            raise TargetError(
                "target-not-ready",
                f"the target was not ready within {most_s:g} s of the hook: {why}; the test stops here",
            )
        if now - reported >= REPORT_EVERY_S:
            say(f"waiting for the target for {now - began:.0f} s: {why}")
            reported = now
        time.sleep(0.5)
    return time.monotonic() - began


TIMEOUT_S = 900.0
YES, NO = ("y", "yes"), ("n", "no")
TAIL = 200_000  # bytes at the end of a hook's output that are kept

HOOKS = {
    "restart": "start the server again, with nothing loaded or cached",
    "cache-off": "switch the prefix cache off",
    "cache-on": "switch the prefix cache on, empty",
    "guardrail-baseline": "switch all guardrails off",
    "guardrail-input": "switch on input filtering only",
    "guardrail-output": "switch on output filtering only",
    "guardrail-full": "switch on input and output filtering",
    "recover": "bring the server back after an overload",
    "server-log": "print the server's log, which is searched for out-of-memory errors",
}
SIMULATED: dict[str, dict[str, str]] = {  # fields of the profile; the others stay as they are
    "restart": {},
    "cache-off": {"prefix_cache": "false"},
    "cache-on": {"prefix_cache": "true"},
    "guardrail-baseline": {"guard_in_ms": "0", "guard_out_ms": "0"},
    "guardrail-input": {"guard_out_ms": "0"},
    "guardrail-output": {"guard_in_ms": "0"},
    "guardrail-full": {},
    "recover": {},
}


class HookFailed(InputError):
    """A hook's command failed or the operator said no: the test stops."""


def run_hook(
    name: str,
    command: str,
    environment: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
    kept: int = TAIL,
    say: Callable[[str], None] = lambda line: None,
) -> HookEntry:
    """Run *command* in a shell with FASTLLMLOAD_HOOK=*name*. HookFailed unless it ends with status 0 in time.

    The hook ends when its shell does: a server that it leaves running in the background is not waited for, though it
    still holds the output. A hook that is interrupted or too slow is killed with everything that it started. The last
    *kept* bytes of its output are kept. *say* is called every REPORT_EVERY_S with a line that it still runs.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        shell = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**environment, "FASTLLMLOAD_HOOK": name}, start_new_session=True,
        )  # fmt: skip
        try:
            status = wait_for_shell(shell, timeout_s, lambda so_far: say(still_running(name, so_far, timeout_s)))
        except BaseException as problem:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            if not isinstance(problem, subprocess.TimeoutExpired):
                raise
            raise HookFailed(
                "hook-failed",
                f"--hook {name}={command!r} did not end within {timeout_s:g} s{last_line(read_tail(output, kept))}; the "
                "test stops here, start it again when the hook works, or give it longer with --hook-timeout",
            ) from None
        tail = read_tail(output, kept)
    if status != 0:
        raise HookFailed(
            "hook-failed",
            f"--hook {name}={command!r} ended with status {status}{last_line(tail)}; the test stops here, start it "
            "again when the hook works",
        )
    return HookEntry(name=name, how="command", seconds=time.monotonic() - began, status=0, output=tail)


def wait_for_shell(shell: subprocess.Popen[bytes], most_s: float, report: Callable[[float], None]) -> int:
    """Exit status of *shell*. *report* gets the seconds so far, every REPORT_EVERY_S. TimeoutExpired after *most_s*."""
    began = time.monotonic()
    while True:
        remaining = began + most_s - time.monotonic()
        try:
            return shell.wait(max(0.0, min(remaining, REPORT_EVERY_S)))
        except subprocess.TimeoutExpired:
            if remaining <= REPORT_EVERY_S:
                raise
            report(time.monotonic() - began)


def still_running(name: str, seconds: float, most_s: float) -> str:
    return f"hook {name} has been running for {seconds:.0f} s; it is stopped after {most_s:g} s (--hook-timeout)"


def read_tail(output: IO[bytes], most: int) -> str:
    """The last *most* bytes of the file."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - most))
    return output.read(most).decode(errors="replace")


def last_line(output: str) -> str:
    """`: ` and the last line of *output*; empty if there is none."""
    lines = output.strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def ask_operator(name: str, ask: Callable[[str], str] = input) -> HookEntry:
    """Ask the operator to do it by hand and to confirm. Input typed before the question is discarded. HookFailed after a
    no or the end of the input; after any other answer, also an empty one, the question is repeated.
    """
    began = time.monotonic()
    if terminal():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    question = f"please {HOOKS[name]}, then type yes: "
    while (answer := read_answer(ask, question)) not in YES:
        if answer is None or answer in NO:
            ended = "the input ended before the operator answered yes"
            why = ended if answer is None else f"the operator answered {answer!r}, not yes"
            raise HookFailed("hook-failed", f"hook {name}: {why}; the test stops here")
        question = f"  {answer!r} is neither yes nor no; type yes when it is done, or no to stop the test: "
    return HookEntry(name=name, how="operator", seconds=time.monotonic() - began, status=0, output="")


def read_answer(ask: Callable[[str], str], question: str) -> str | None:
    """The answer in lower case; None at the end of the input."""
    try:
        return ask(question).strip().lower()
    except EOFError:
        return None


def refuse_missing(names: tuple[str, ...], given: Mapping[str, str], simulated: bool, operator: bool) -> None:
    """InputError that lists all hooks that a test needs and that neither a command nor an operator can do."""
    missing = [name for name in names if name not in given and not simulated and not operator]
    if missing:
        listed = "; ".join(f"--hook {name}=COMMAND ({HOOKS[name]})" for name in missing)
        raise InputError(
            "hook-missing",
            f"this test changes the server between its phases and needs: {listed}; or run it in a terminal and confirm",
        )


def terminal() -> bool:
    """Whether an operator can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
