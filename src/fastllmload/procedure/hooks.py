"""Tester steps (procedures.md 0.1): a command with an exit status, a prompt to the operator, or our own engine.

The simulated engine is started anew with other fields of its profile, so each test can be tried without a server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastllmload.errors import InputError

TIMEOUT_S = 900.0
TAIL = 200_000  # characters of a hook's output that are kept

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
class Done:
    """What a hook did: kept in procedure.json."""

    name: str
    how: str  # "command", "operator" or "simulated engine"
    seconds: float
    status: int
    output: str


class HookFailed(InputError):
    """A hook's command failed or the operator said no: the test stops."""


def run_hook(
    name: str, command: str, environment: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S
) -> Done:
    """Run *command* in a shell with FASTLLMLOAD_HOOK=*name*. HookFailed unless it ends with status 0 in time."""
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=timeout_s, env={**environment, "FASTLLMLOAD_HOOK": name}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HookFailed(f"--hook {name}={command!r} did not end within {timeout_s:g} s; the test stops here") from None
    tail = ended.stdout[-TAIL:]
    if ended.returncode != 0:
        said = tail.strip().splitlines()
        raise HookFailed(
            f"--hook {name}={command!r} ended with status {ended.returncode}"
            f"{': ' + said[-1] if said else ''}; the test stops here, start it again when the hook works"
        )
    return Done(name, "command", time.monotonic() - began, 0, tail)


def ask_operator(name: str, ask: Callable[[str], str] = input) -> Done:
    """The operator does it by hand and confirms. HookFailed when they do not."""
    began = time.monotonic()
    answer = ask(f"please {HOOKS[name]}, then type yes: ").strip().lower()
    if answer not in ("y", "yes"):
        raise HookFailed(f"hook {name}: the operator answered {answer!r}, not yes; the test stops here")
    return Done(name, "operator", time.monotonic() - began, 0, "")


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
