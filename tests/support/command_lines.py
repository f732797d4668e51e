"""Settings of command lines, and the sentences that refuse them."""

from __future__ import annotations

import pytest

from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import given_options
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError
from fastllmload.redact import Redactor


def settings_of(*arguments, environment=None, redactor=None):
    """(RunSettings, Secret | None) of a command line, by way of click."""
    seen = {}
    command = RunCommand("run", lambda **parameters: seen.update(parameters) or 0, help="")
    with command.make_context("run", list(arguments)) as context:
        command.invoke(context)
    return read_settings(given_options(seen), environment or {}, redactor or Redactor())


def refused(*arguments, **options):
    with pytest.raises(InputError) as raised:
        settings_of(*arguments, **options)
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence
