"""Conversations and users' behaviour: options that belong together, and those that contradict each other."""

from __future__ import annotations

from fastllmload.cli.given import Givens
from fastllmload.cli.readings import TRACES
from fastllmload.errors import InputError

Fields = dict[str, object]
WITH_TURNS = ("think_time", "history", "tool_turns")
CONVERSING = ("sharegpt", "custom")  # data sets that can have conversations


def refuse_manners(givens: Givens, fields: Fields) -> None:
    """InputError for options of the run, or of one class of it, that mean nothing together."""
    _refuse_conversations(givens, fields)
    share, after = fields.get("behaviour.cancel_share", 0.0), fields.get("behaviour.cancel_after")
    if share and after is None:
        raise InputError("--cancel-share needs --cancel-after, for example 20tok or 2s")
    if after is not None and not share:
        raise InputError("--cancel-after needs --cancel-share, for example 0.1")
    if fields.get("behaviour.slow_readers") is not None:
        if fields.get("client.transport") == "asyncio":
            raise InputError("--slow-readers needs sockets that are read by ourselves, not --transport asyncio")
        urls = fields.get("target.urls", ())
        assert isinstance(urls, tuple)
        if any(url.startswith("https:") for url in urls):
            raise InputError("--slow-readers reads plain connections only, and --url is https")


def _refuse_conversations(givens: Givens, fields: Fields) -> None:
    name = fields.get("workload.name", "synthetic-uniform")
    if fields.get("workload.turns") is None:
        for parameter in WITH_TURNS:
            if parameter in givens:
                raise InputError(f"{givens[parameter].where} belongs to conversations; add --turns COUNT")
        return
    if name in TRACES or name in ("batch", "csv"):
        raise InputError(f"--turns does not go with --workload {name}, whose requests stand alone")
    if fields.get("workload.prompt_form") in ("ids", "native"):
        raise InputError("--turns needs prompts of text: no reply can be put behind token ids; leave --prompt-form out")
    told = name in CONVERSING or (name == "conversation" and fields.get("workload.dataset_path") is not None)
    if fields["workload.turns"] == "all" and not told:
        known = " or ".join(CONVERSING)
        raise InputError(f"--turns all takes what a data set has; add --workload {known}, or give a number")
    if fields.get("workload.tool_turns") and (told or name == "conversation"):
        raise InputError("--tool-turns makes synthetic ones, of synthetic-uniform and synthetic-skewed; leave it out")
    completions = str(fields.get("target.endpoint_type", "openai-chat"))
    if fields.get("workload.tool_turns") and completions in ("openai-completions", "ollama-generate"):
        raise InputError(f"--tool-turns needs messages, which {completions} does not have; use a chat endpoint")
