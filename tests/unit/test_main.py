"""The command's first moments: a signal that comes while it still loads is an end like any other."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

LOADING = """
import os, signal, sys

class Signal:
    def find_spec(self, name, *_):
        if name == "fastllmload.cli.main":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Signal())
signal.signal(signal.SIGHUP, signal.{hangup})
signal.signal(signal.SIGINT, signal.{interrupt})
from fastllmload.__main__ import main
sys.argv = ["fastllmload", "--version"]
sys.exit(main())
"""


def loaded(
    number: int, hangup: str = "SIG_DFL", interrupt: str = "default_int_handler"
) -> subprocess.CompletedProcess[str]:
    code = LOADING.format(number=number, hangup=hangup, interrupt=interrupt)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_program_loads(number: int) -> None:
    done = loaded(number)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "fastllmload: interrupted\n")


def test_an_interrupt_ends_what_a_shell_runs_in_the_background() -> None:
    """The shell has it ignore SIGINT, which nobody wished."""
    done = loaded(signal.SIGINT, interrupt="SIG_IGN")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "fastllmload: interrupted\n")


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """`nohup fastllmload ...` outlives its terminal."""
    done = loaded(signal.SIGHUP, "SIG_IGN")
    assert done.returncode == 0 and done.stdout.startswith("fastllmload ")
