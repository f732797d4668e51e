"""Runs commands of fastllmload one after the other, the first in this process and each other one in a fork of it, which has
imported already what they need: reads lists of words from its input and prints [exit code, text of stderr] of each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable

from fastllmload.cli.main import main

LONGEST_S = 60


def run(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as left:
        return int(left.code or 0)


def forked(words: list[str]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST_S)
        code = run(words)
        sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ended(way: Callable[[list[str]], int], words: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as err:
        own = os.dup(2)
        os.dup2(err.fileno(), 2)
        code = way(words)
        sys.stderr.flush()
        os.dup2(own, 2)
        os.close(own)
        err.seek(0)
        return code, err.read().decode(errors="replace")


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # what a command prints is not the answer
    first, *others = json.load(sys.stdin)
    found = [ended(run, first), *(ended(forked, words) for words in others)]
    os.write(answer, json.dumps(found).encode())
