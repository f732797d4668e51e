"""The commands in docs/guides/traffic.md are commands: each is read, and its plan is built."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from fastllmload.cli.commands.run import run
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_command_line, from_table, merge_config
from fastllmload.engine.run_plans import build
from fastllmload.redact import Redactor

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "traffic.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```console\n\$ fastllmload (--[^$]*?)```", PAGE, re.DOTALL)  # a command alone
TABLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_one_for_each_subject():
    assert len(COMMANDS) == 6 and len(TABLES) == 1


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_makes_a_plan(text, tmp_path):
    context = run.make_context("run", shlex.split(text.replace("\\\n", " ")))
    settings, _ = read_settings(merge_config(from_command_line(context.params)), {}, Redactor([]))
    plan = build(settings, "measure", "m", tmp_path)
    assert plan.requests > 100
    assert bool(settings.classes) + (plan.turns is not None) + (plan.client is not None) == 1


def test_the_table_is_read():
    settings, _ = read_settings(from_table(tomllib.loads(TABLES[0]), "", ""), {}, Redactor([]))
    assert [(one.name, one.load.rate) for one in settings.classes] == [("chat", 45.0), ("batch", 5.0)]
