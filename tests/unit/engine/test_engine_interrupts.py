"""Signals: an error before anything is measured, a level afterwards; waits end at once."""

import io
import os
import signal
import time

import pytest
from refusals import raises_code

from fastllmload.engine import run
from fastllmload.engine.interrupts import DRAIN, NOTHING, STOP, Interrupts
from fastllmload.errors import Interrupted
from fastllmload.report.terminal.view import make_ui
from fastllmload.settings import Output, RunSettings


@pytest.fixture(autouse=True)
def in_a_terminal():
    """Tests may run with hang-ups ignored (`nohup`), which the run would respect."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_before_the_workers_start_a_signal_ends_the_run():
    with pytest.raises(Interrupted), Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.wait(10)


@pytest.mark.parametrize(
    ("sent", "level"),
    [
        ((), NOTHING),
        ((signal.SIGINT,), DRAIN),
        ((signal.SIGINT, signal.SIGINT), STOP),
        ((signal.SIGINT,) * 3, STOP),
        ((signal.SIGTERM,), STOP),
        ((signal.SIGHUP,), STOP),
    ],
)
def test_afterwards_signals_are_counted(sent, level):
    with Interrupts() as interrupts:
        interrupts.collect()
        for number in sent:
            os.kill(os.getpid(), number)
            interrupts.wait(10)
        assert interrupts.level == level


def test_a_wait_without_signal_lasts_and_handlers_are_restored():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        begun = time.monotonic()
        interrupts.wait(0.02)
        assert time.monotonic() - begun >= 0.02
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_an_ignored_hang_up_stays_ignored():
    """`nohup fastllmload ...` continues when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            interrupts.collect()
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.wait(0.02)
            assert interrupts.level == NOTHING
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_workload_is_read_leaves_no_folder(tmp_path, monkeypatch, number):
    monkeypatch.setattr(run, "resolve_settings", lambda *_: os.kill(os.getpid(), number))
    with raises_code("interrupted"):
        run.execute(RunSettings(output=Output(directory=str(tmp_path / "run"))), None, make_ui("none", io.StringIO()))
    assert not list(tmp_path.iterdir())
