"""Hooks: a command with an exit status, an operator, or a sentence that names all that are missing."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.errors import InputError
from fastllmload.experiment.preparation import hooks
from fastllmload.experiment.preparation.hooks import HOOKS, SIMULATED, ask_operator, refuse_missing, run_hook

pytestmark = pytest.mark.slow


def test_a_command_knows_its_hook_and_its_output_is_kept() -> None:
    done = run_hook("restart", "echo $FASTLLMLOAD_HOOK; echo on stderr >&2")
    assert (done.how, done.status) == ("command", 0)
    assert done.output.split() == ["restart", "on", "stderr"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no such pod; exit 3", ("hook-failed", "status 3: no such pod")),
        ("exit 1", ("hook-failed", "status 1;")),
        ("sleep 60", ("hook-failed", "within 0.3 s")),
    ],
)
def test_a_command_that_fails_stops_the_test(command: str, said: tuple[str, ...]) -> None:
    with raises_code(*said):
        run_hook("cache-off", command, timeout_s=0.3)


@pytest.mark.parametrize("answer", ["yes", "Y", " y "])
def test_an_operator_confirms(answer: str) -> None:
    asked: list[str] = []
    done = ask_operator("cache-on", lambda text: asked.append(text) or answer)
    assert done.how == "operator" and HOOKS["cache-on"] in asked[0]


@pytest.mark.parametrize("answer", ["no", " N "])
def test_a_no_stops_the_test(answer: str) -> None:
    with raises_code("hook-failed", "cache-on", "not yes"):
        ask_operator("cache-on", lambda text: answer)


def test_an_answer_that_is_neither_is_asked_for_again() -> None:
    """Enter, or a word: a test of hours does not end for a key too many."""
    asked: list[str] = []
    answers = ["", "done", "yes"]
    assert ask_operator("cache-on", lambda text: asked.append(text) or answers[len(asked) - 1]).how == "operator"
    assert "type yes" in asked[1] and "'done' is neither" in asked[2]


def test_all_missing_hooks_are_named_at_once() -> None:
    with pytest.raises(InputError) as refused:
        refuse_missing(("cache-off", "cache-on", "restart"), {"restart": "x"}, simulated=False, operator=False)
    assert "--hook cache-off=COMMAND" in str(refused.value) and "--hook cache-on=COMMAND" in str(refused.value)
    assert "restart" not in str(refused.value)


@pytest.mark.parametrize(("simulated", "operator"), [(True, False), (False, True)])
def test_no_hook_is_missing_where_the_engine_or_an_operator_acts(simulated: bool, operator: bool) -> None:
    refuse_missing(("cache-off",), {}, simulated, operator)


def test_the_simulated_engine_knows_every_hook_that_changes_a_server() -> None:
    assert set(SIMULATED) == set(HOOKS) - {"server-log"}


def test_a_server_left_in_the_background_is_not_waited_for() -> None:
    """It holds the hook's output for as long as it runs; the hook has ended all the same."""
    done = run_hook("restart", "sleep 30 & echo started; echo $!", timeout_s=20)
    said = done.output.split()
    assert said[0] == "started" and done.seconds < 20
    os.kill(int(said[1]), signal.SIGKILL)  # it does run: ProcessLookupError if it did not


def test_what_a_hung_hook_started_does_not_outlive_it(tmp_path: Path) -> None:
    with raises_code("hook-failed", "within 0.3 s: connecting"):
        run_hook("restart", f"(sleep 2; touch {tmp_path}/late) & echo connecting; wait", timeout_s=0.3)
    time.sleep(2.5)
    assert not (tmp_path / "late").exists()


def test_a_hook_that_takes_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then, with the time after which it is stopped and the option that sets it."""
    monkeypatch.setattr(hooks, "REPORT_EVERY_S", 0.1)
    reported: list[str] = []
    run_hook("restart", "sleep 1", timeout_s=60, say=reported.append)
    assert 1 <= len(reported) <= 10
    assert all(("60 s (--hook-timeout)" in text) for text in reported)


def test_of_a_long_output_the_end_is_kept() -> None:
    assert run_hook("server-log", "seq 1 5000", kept=10).output.split()[-1] == "5000"


def test_an_operator_who_ends_the_input_stops_the_test() -> None:
    def ended(text: str) -> str:
        raise EOFError

    with raises_code("hook-failed", "cache-on", "the input ended"):
        ask_operator("cache-on", ended)


def test_what_was_typed_ahead_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A yes from before the question was meant for another, or for nothing."""
    keyboard, screen = os.openpty()
    with open(screen, "r+b", buffering=0) as device:
        typed_ahead, typed_after = b"yes\n", b"no\n"
        monkeypatch.setattr(sys, "stdin", device)
        monkeypatch.setattr(sys, "stdout", device)
        os.write(keyboard, typed_ahead)

        def asked(text: str) -> str:
            os.write(keyboard, typed_after)
            return device.readline().decode()

        with raises_code("hook-failed", "answered 'no'"):
            ask_operator("cache-on", asked)
    os.close(keyboard)
