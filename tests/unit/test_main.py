"""A signal that arrives while the command still imports its modules ends it normally; at its end one does nothing."""

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


def test_an_interrupt_ends_a_background_job_of_a_shell() -> None:
    """The shell makes it ignore SIGINT; the user did not ask for that."""
    done = loaded(signal.SIGINT, interrupt="SIG_IGN")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "fastllmload: interrupted\n")


def test_an_ignored_hang_up_stays_ignored() -> None:
    """`nohup fastllmload ...` continues without its terminal."""
    done = loaded(signal.SIGHUP, "SIG_IGN")
    assert done.returncode == 0 and done.stdout.startswith("fastllmload ")


def test_a_signal_at_the_end_does_not_change_the_exit_code() -> None:
    """As a second Ctrl-C while Python closes."""
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "from fastllmload.__main__ import main\n"
        "sys.argv = ['fastllmload', '--version']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
