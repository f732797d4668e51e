"""Redacts a document for publication (IETF 7.1): capacity limits, knees and memory thresholds, and names of hosts, URLs
and paths, and commands and output of hooks.

A redacted value is `withheld`, in contrast to `n/a`: it was measured. Latencies are kept, and so is the throughput at a
declared rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from fastllmload.documents.redaction import HIDDEN, redacted, redacted_procedure

URL = re.compile(r"\b[a-z][a-z0-9+]*://[^\s\"'<>)\],;]+", re.IGNORECASE)
PATH = re.compile(r"(?<![\w.:/])(?:~|\.{1,2})?/(?:[\w.@+%=-]+/)*[\w.@+%=-]+")
HOOK = re.compile(r"(--hook[ =][\w-]+=)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")  # in a sentence, quoted by repr
EMPTIED = ("headers", "source_addresses", "server_name", "texts")
PATH_KEYS = frozenset(
    ("directory", "save_plan", "plan", "dataset_path", "cacert", "client_cert", "client_key", "unix_socket", "folder")
)


def withheld(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json or procedure.json that may be published; its entry `withheld` lists what is missing. *limit*: the
    load of the run belongs to a search.
    """
    return redacted_procedure(document) if "procedure" in document else redacted(document, limit)


def without_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with numbered targets, and without hosts, URLs and paths in any text."""
    known = dict(_names(document))
    patterns = [(re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), known[name]) for name in _longest_first(known)]

    def clean(text: str) -> str:
        text = HOOK.sub(rf"\1{HIDDEN}", text)
        for pattern, placeholder in patterns:
            text = pattern.sub(placeholder, text)
        return PATH.sub("[path]", URL.sub("[url]", text))

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return known.get(value, "[path]") if key in PATH_KEYS and value else clean(value)
        if isinstance(value, Mapping):
            return {clean(str(name)): walk(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [] if key in EMPTIED else [walk(inner, key) for inner in value]
        return value

    found: dict[str, Any] = walk({**document, **_without_hooks(document)})
    return found


def _without_hooks(document: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that hold commands of hooks or their output, without these."""
    found: dict[str, Any] = {}
    if isinstance(document.get("command"), (list, tuple)):
        words = [str(word) for word in document["command"]]
        found["command"] = [
            _hook_name(word)
            if before == "--hook"
            else f"--hook={_hook_name(word[7:])}"
            if word[:7] == "--hook="
            else word
            for before, word in zip(["", *words], words, strict=False)
        ]
    if isinstance(document.get("steps"), (list, tuple)):
        found["steps"] = [{**step, "output": HIDDEN if step.get("output") else ""} for step in document["steps"]]
    return found


def _hook_name(word: str) -> str:
    """`restart=withheld` of `restart=COMMAND`."""
    return f"{word.partition('=')[0]}={HIDDEN}"


def _longest_first(known: Mapping[str, str]) -> list[str]:
    return sorted(known, key=lambda name: (-len(name), name))


def _names(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(text, replacement) of each known name."""
    target, asked = _mapping(document.get("target")), _mapping(_mapping(document.get("config")).get("target"))
    manifest = _mapping(document.get("manifest"))
    for urls in (asked.get("urls"), target.get("urls"), manifest.get("urls")):  # in one order; classes' own come last
        for number, url in enumerate(urls or ()):
            yield str(url), f"target-{number}"
            yield from ((part, f"target-{number}") for part in _host_parts(str(url)))
    for number, address in enumerate(target.get("addresses") or ()):
        yield str(address), f"target-{number}"
    host = _mapping(document.get("environment")).get("host")
    if host:
        yield str(host), "client"
    for entry in document.get("hosts") or ():
        yield from ((str(text), f"host-{entry['host']}") for text in (entry.get("name"), entry.get("address")) if text)
    for address in asked.get("source_addresses") or ():
        yield str(address), "client"
    if asked.get("server_name"):
        yield str(asked["server_name"]), "target-0"


def _host_parts(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL; the complete text is replaced
        return
    for part in (parts.netloc, parts.hostname):
        if part:
            yield part


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
