"""Every code that a message can have is in `codes.toml`, every code there is used, and docs/codes.md lists them all."""

from __future__ import annotations

import ast
import functools
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastllmload import errors
from fastllmload.cli.commands.explain import explanations
from fastllmload.errors import InputError, InvalidValue, coded
from fastllmload.report.text.verdict import REMEDIES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fastllmload"
TAKE_A_CODE = re.compile(r"[A-Z]\w*(Error|Refused|Failed|Value)|NoAnswer|Interrupted|coded|incident|warn|note")
GIVE_A_CODE = re.compile(r"\w*_code")  # functions


@functools.cache
def catalogued() -> set[str]:
    sections = tomllib.loads((SOURCE / "codes.toml").read_text()).values()
    return {code for section in sections for code in section if code != "title"}


def strings(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


@functools.cache
def calls_and_functions() -> list[tuple[str, ast.Call | ast.FunctionDef]]:
    """Each function and each call with arguments of the source, with the name of its file."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Call) and node.args):
                found.append((path.name, node))
    return found


def name_of(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def used() -> dict[str, str]:
    """Code → the place that uses it: first arguments of errors and messages, and what functions named *_code return."""
    found: dict[str, str] = {}
    for file, node in calls_and_functions():
        codes: list[str] = []
        if isinstance(node, ast.FunctionDef):
            if GIVE_A_CODE.fullmatch(node.name):
                codes = [text for each in ast.walk(node) if isinstance(each, ast.Return) for text in strings(each)]
        elif name_of(node) == "OptionRule":
            codes = list(strings(node.args[0]))
        elif len(node.args) == 2 and isinstance(node.args[0], ast.Constant | ast.IfExp):
            codes = list(strings(node.args[0])) if TAKE_A_CODE.fullmatch(name_of(node).lstrip("_")) else []
        found.update(dict.fromkeys((code for code in codes if code), f"{file}:{node.lineno}"))
    return found


def test_every_code_in_use_is_catalogued_and_every_catalogued_code_is_in_use() -> None:
    found = used()
    assert {code: place for code, place in found.items() if code not in catalogued()} == {}
    assert catalogued() - found.keys() == set()


def test_a_code_has_one_exit_code() -> None:
    """So a test that asserts a code asserts the branch of the error."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "exit_code")]
    exits = {kind.__name__: kind.exit_code for kind in kinds}
    found: dict[str, set[int]] = {}
    for _, node in calls_and_functions():
        if isinstance(node, ast.Call) and (name := name_of(node)) in exits:
            for code in strings(node.args[0]) if isinstance(node.args[0], ast.Constant | ast.IfExp) else ():
                found.setdefault(code, set()).add(exits[name])
    assert {code for code, each in found.items() if len(each) > 1} == set()
    assert len(found) > 135


def test_codes_are_words_joined_by_hyphens_with_a_cause_and_a_remedy_of_one_sentence_each() -> None:
    for title, codes in explanations().items():
        for one in codes:
            assert re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)*", one.code), (title, one.code)
            assert one.cause.endswith("."), one.code
            assert one.remedy.endswith("."), one.code


def test_every_reason_of_a_certificate_is_listed() -> None:
    assert set(REMEDIES) == {one.code for one in explanations()["Reasons of the certificate"]}


def test_no_code_is_listed_twice() -> None:
    codes = [one.code for section in explanations().values() for one in section]
    assert len(codes) == len(set(codes))


def test_the_page_of_codes_is_current() -> None:
    """`tools/codes` writes it."""
    page = runpy.run_path(str(ROOT / "tools" / "codes"))["page"]
    assert (ROOT / "docs" / "codes.md").read_text() == page()


def test_an_error_shows_its_code_after_its_sentence() -> None:
    error = InputError("load-missing", "--rate is missing")
    assert (error.code, error.message, str(error)) == (
        "load-missing",
        "--rate is missing",
        "--rate is missing [load-missing]",
    )
    assert coded("disk-full", "no room") == "no room [disk-full]"
    assert str(InvalidValue("count-invalid", "is not a whole number")) == "is not a whole number"


def test_several_problems_keep_their_codes() -> None:
    one, two = InputError("load-missing", "a"), InputError("model-missing", "b")
    assert InputError.of_all([one]) is one
    assert InputError.of_all([one, two]).message == "a [load-missing]\nb [model-missing]"


@pytest.mark.parametrize("code", ["load-missing", "[load-missing]", "schedule_lag"])
def test_explain_prints_cause_and_remedy(code: str) -> None:
    from click.testing import CliRunner

    from fastllmload.cli.commands.explain import explain

    known = {one.code: one for section in explanations().values() for one in section}[code.strip("[]")]
    ended = CliRunner().invoke(explain, [code])
    assert ended.output.splitlines() == [known.cause, known.remedy]
