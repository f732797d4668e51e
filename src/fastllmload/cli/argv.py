"""Hides secrets in this process's argument list from `ps` and /proc/<pid>/cmdline.

The kernel serves /proc/<pid>/cmdline from the process's own memory between `arg_start` and `arg_end`. The bytes
there are overwritten in place, at equal length. Between `exec` and this call the key is visible; the environment
and `--api-key-file` have no such gap.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fastllmload.redact import BODY_OPTIONS, PLACEHOLDER, body_secrets, class_secrets, header_line_secrets, url_secrets

SECRETS: dict[str, Callable[[str], list[str]]] = {  # flag: the secrets in its value
    **dict.fromkeys(("--api-key", "--through-api-key"), lambda value: [value]),
    **dict.fromkeys(("-H", "--header", "--direct-header", "--through-header"), header_line_secrets),
    **dict.fromkeys(
        ("-u", "--url", "--base-url", "--target", "--telemetry-url", "--scrape", "--server-metrics", "--gpu-telemetry"),
        url_secrets,
    ),
    **dict.fromkeys(("--class", "--classes"), class_secrets),
    **dict.fromkeys((f"--{name}" for name in BODY_OPTIONS), body_secrets),
}
VARIED = "--vary"
ARG_START, ARG_END = 48 - 3, 49 - 3  # proc(5) fields of /proc/self/stat, counted after "pid (name) "


def secrets_of(arguments: Sequence[str]) -> list[str]:
    """Every secret that *arguments* carry: API keys, values of credential headers and fields, passwords in URLs."""
    found: list[str] = []
    for position, argument in enumerate(arguments):
        if argument.partition("=")[0] in (*SECRETS, VARIED) or argument[:2] in ("-H", "-u"):
            following = arguments[position + 1] if position + 1 < len(arguments) else ""
            found += _secrets_of_option(*_split(argument, following))
    return [secret for secret in found if secret != ""]


def _split(argument: str, following: str) -> tuple[str, str]:
    """(flag, value) of `--flag=value`, `--flag value`, `-Hvalue` or `-H value`."""
    if argument.startswith("--"):
        flag, equals, value = argument.partition("=")
        return flag, value if equals != "" else following
    if argument.startswith(("-H", "-u")) and len(argument) > 2:
        return argument[:2], argument[2:]
    return argument, following


def _secrets_of_option(flag: str, value: str) -> list[str]:
    if flag == VARIED:
        name, _, values = value.partition("=")
        return _secrets_of_option(f"--{name.removeprefix('--').replace('_', '-')}", values)
    return SECRETS[flag](value) if flag in SECRETS else []


def hide(secrets: Sequence[str]) -> bool:
    """Blank *secrets* in this process's argument area and in `sys.argv`; False if the system has no such area."""
    secrets = sorted(secrets, key=len, reverse=True)  # a secret may be part of a longer one, which goes first
    for arguments in (sys.argv, sys.orig_argv):
        arguments[:] = [_blanked(argument, secrets) for argument in arguments]
    area = _argument_area()
    if area is None:
        return False
    start, length = area
    content = ctypes.string_at(start, length)
    for secret in secrets:
        content = _overwrite(start, content, os.fsencode(secret))
    return True


def _blanked(argument: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        argument = argument.replace(secret, PLACEHOLDER)
    return argument


def _argument_area() -> tuple[int, int] | None:
    """(address, length) of the argument strings, or None where the kernel does not report it."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return None
    fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    return (start, end - start) if 0 < start < end else None


def _overwrite(start: int, content: bytes, secret: bytes) -> bytes:
    """Overwrite every *secret* in the area at *start* with stars and return the area's new content."""
    position = content.find(secret)
    while position >= 0:
        ctypes.memset(start + position, ord("*"), len(secret))
        position = content.find(secret, position + len(secret))
    return content.replace(secret, b"*" * len(secret))
