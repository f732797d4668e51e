"""Hooks: a command with an exit status, an operator, or a sentence that names all that are missing."""

from __future__ import annotations

import pytest

from fastllmload.errors import InputError
from fastllmload.procedure.hooks import HOOKS, SIMULATED, ask_operator, refuse_missing, run_hook


def test_a_command_knows_its_hook_and_its_output_is_kept() -> None:
    done = run_hook("restart", "echo $FASTLLMLOAD_HOOK; echo on stderr >&2")
    assert (done.how, done.status) == ("command", 0)
    assert done.output.split() == ["restart", "on", "stderr"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no such pod; exit 3", "status 3: no such pod"),
        ("exit 1", "status 1;"),
        ("sleep 60", "did not end within"),
    ],
)
def test_a_command_that_fails_stops_the_test(command: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run_hook("cache-off", command, timeout_s=0.3)


@pytest.mark.parametrize("answer", ["yes", "Y", " y "])
def test_an_operator_confirms(answer: str) -> None:
    asked: list[str] = []
    done = ask_operator("cache-on", lambda text: asked.append(text) or answer)
    assert done.how == "operator" and HOOKS["cache-on"] in asked[0]


@pytest.mark.parametrize("answer", ["", "no", "later"])
def test_anything_else_stops_the_test(answer: str) -> None:
    with pytest.raises(InputError, match="not yes"):
        ask_operator("cache-on", lambda text: answer)


def test_all_missing_hooks_are_named_at_once() -> None:
    with pytest.raises(InputError) as refused:
        refuse_missing(("cache-off", "cache-on", "restart"), {"restart": "x"}, simulated=False, operator=False)
    assert "--hook cache-off=COMMAND" in str(refused.value) and "--hook cache-on=COMMAND" in str(refused.value)
    assert "restart" not in str(refused.value)


@pytest.mark.parametrize(("simulated", "operator"), [(True, False), (False, True)])
def test_nobody_is_missing_where_the_engine_or_an_operator_can_do_it(simulated: bool, operator: bool) -> None:
    refuse_missing(("cache-off",), {}, simulated, operator)


def test_the_simulated_engine_knows_every_hook_that_changes_a_server() -> None:
    assert set(SIMULATED) == set(HOOKS) - {"server-log"}
