"""Endpoints that a file describes: the body of a request with placeholders, and where its answers say what.

The text of such an endpoint is the name of the file and, as one line of JSON, what was read from it. Settings have it where
they have a protocol's name otherwise, so that workers, other hosts and later reports need no file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import NUMBER, PROMPT, with_extra
from fastllmload.endpoint.endpoint import MODEL, Endpoint, below
from fastllmload.endpoint.turns import TEXT
from fastllmload.errors import InputError, InvalidValue
from fastllmload.files import parse_json, parse_toml, read_text
from fastllmload.redact import body_secrets
from fastllmload.settings import Workload

FILES = (".toml", ".json")
PLACEHOLDERS = ("{prompt}", "{max_tokens}", MODEL, "{stream}", "{temperature}", "{ignore_eos}")
PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
STEP = re.compile(r"([^.\[\]]+)(\[0?\])?")
NAMED = re.compile(r"[^ ]+ \{")  # the start of a text


class Answers(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Paths into the JSON of an answer, as `choices[0].delta.content`; `[0]`: the first of a list, `[]`: all of them."""

    text: str
    reasoning: str | None = None
    finish: str | None = None
    prompt_tokens: str | None = None
    completion_tokens: str | None = None
    cached_tokens: str | None = None
    reasoning_tokens: str | None = None
    done: str | None = None  # true there: the stream ends
    error: str = "error"


class Template(Answers, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a file says. *whole*: the paths of answers that are not streamed; None: they are the same."""

    path: str  # of the server, below --url
    body: dict[str, Any]
    end: str = ""  # data of the event that says nothing but the end
    cumulative: bool = False  # each event has all of the text so far
    models: str | None = None  # path of an OpenAI list of models
    whole: Answers | None = None


FIELDS = {
    "text": F.CONTENT, "reasoning": F.REASONING, "finish": F.FINISH, "prompt_tokens": F.PROMPT_TOKENS,
    "completion_tokens": F.COMPLETION_TOKENS, "cached_tokens": F.CACHED_TOKENS, "reasoning_tokens": F.REASONING_TOKENS,
    "done": F.DONE, "error": F.ERROR,
}  # fmt: skip


def is_file(name: str) -> bool:
    """Whether the value *name* of --endpoint-type is a file."""
    return name.endswith(FILES)


def is_text(name: str) -> bool:
    """Whether *name* is the text of an endpoint that a file describes."""
    return NAMED.match(name) is not None


def shown(name: str) -> str:
    """The name of a protocol, or that of the file in a text."""
    return name.partition(" ")[0]


def told_apart(value: Any) -> Any:
    """*value*, in which each text of a protocol is as `shown`, with its digest."""
    if isinstance(value, Mapping):
        return {name: told_apart(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [told_apart(inner) for inner in value]
    if isinstance(value, str) and is_text(value):
        return f"{shown(value)} ({hashlib.sha256(value.encode()).hexdigest()[:12]})"
    return value


def read(path: str) -> str:
    """The text of the endpoint that the file *path* describes. InvalidValue when it is not one."""
    try:
        content = read_text(path)
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidValue(
            "file-unreadable", f"cannot be read: {getattr(problem, 'strerror', None) or problem}"
        ) from None
    try:
        found = parse_json(content) if path.endswith(".json") else parse_toml(content)
    except ValueError as problem:
        kind = "JSON" if path.endswith(".json") else "TOML"
        raise InvalidValue("template-invalid", f"is not {kind}: {problem}") from None
    template = checked(found)
    name = re.sub(r"\s", "-", PurePath(path).name)
    endpoint(name, template)
    return f"{name} {msgspec.json.encode(template).decode()}"


@lru_cache
def of_text(text: str) -> Endpoint:
    """The endpoint that *text* describes. InputError for a text that nothing here has written."""
    name, _, described = text.partition(" ")
    try:
        return endpoint(name, checked(parse_json(described)))
    except ValueError as problem:
        raise InputError("template-invalid", f"the endpoint type {name} {problem}") from None


def checked(found: Any) -> Template:
    """*found* as a template. InvalidValue for a key or a value that is wrong."""
    try:
        template = msgspec.convert(found, Template)
    except msgspec.ValidationError as problem:
        raise wrong(f"is not a template: {problem}; see docs/guides/endpoints.md for its keys") from None
    if not re.fullmatch(r"/[^\s?#]*", template.path):
        raise wrong(f"has the path {template.path!r}; write the server's path, as /generate")
    for text in placeholders(template.body):
        if text not in PLACEHOLDERS:
            raise wrong(f"has {text!r} in its body, which is not a placeholder; write one of {', '.join(PLACEHOLDERS)}")
    prompts = list(placeholders(template.body)).count("{prompt}")
    if prompts != 1:
        raise wrong(f'has "{{prompt}}" {prompts} times as a value in its body; write it once')
    if "{max_tokens}" not in placeholders(template.body):
        raise wrong('has no "{max_tokens}" as a value in its body; write it in the field of the output length')
    if body_secrets(msgspec.json.encode(template.body).decode()):
        raise InvalidValue(
            "credential-exposed",
            "has a credential in its body, which would be stored; leave it out there, and send it with -H or --extra-body",
        )
    return template


def wrong(problem: str) -> InvalidValue:
    return InvalidValue("template-invalid", problem)


def placeholders(value: Any) -> Iterator[str]:
    """Every text in *value* that looks like a placeholder."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from placeholders(inner)
    elif isinstance(value, str) and PLACEHOLDER.fullmatch(value):
        yield value


def filled(value: Any, values: dict[str, Any]) -> Any:
    """*value* with *values* in place of placeholders. A field of None is left out; {model} may be part of a text."""
    if isinstance(value, dict):
        found = {name: filled(inner, values) for name, inner in value.items()}
        return {name: inner for name, inner in found.items() if inner is not None or value[name] is None}
    if isinstance(value, list):
        return [filled(inner, values) for inner in value]
    if isinstance(value, str):
        return values[value] if value in values else value.replace(MODEL, values[MODEL])
    return value


def tree(answers: Answers, cumulative: bool) -> dict[str, Any]:
    """The keys of an event or a whole answer, for a Dialect. InvalidValue for paths that cannot be followed together."""
    found: dict[str, Any] = {}
    for name, field in FIELDS.items():
        path = getattr(answers, name)
        if not path:
            continue
        steps = [step.groups() for each in path.split(".") if (step := STEP.fullmatch(each)) is not None]
        if len(steps) <= path.count(".") or path.endswith("]"):
            raise wrong(
                f"has {name} = {path!r}, which cannot be a path; write keys with dots, as choices[0].delta.content"
            )
        keys = found
        for key, listed in steps[:-1]:
            kind = {None: F.TABLE, "[0]": F.CHOICES, "[]": F.PARTS}[listed]
            held, keys = keys.setdefault(key, (kind, {})) if isinstance(keys.get(key, ()), tuple) else (None, {})
            if held != kind:
                raise wrong(
                    f"has {name} = {path!r}, and another path in which {key!r} is something else; make them agree"
                )
        if steps[-1][0] in keys:
            raise wrong(f"has {name} = {path!r}, and another path that ends there or is longer; make them differ")
        keys[steps[-1][0]] = F.CONTENT_SO_FAR if cumulative and field == F.CONTENT else field
    return found


def endpoint(name: str, template: Template) -> Endpoint:
    event, whole = tree(template, template.cumulative), tree(template.whole or template, False)
    try:
        dialect = Dialect(
            event, whole, sentinel=template.end.encode(),
            ends_with_body=not (template.end or template.finish or template.done),
        )  # fmt: skip
    except (ValueError, OverflowError) as problem:
        raise wrong(f"has paths that cannot be read together: {problem}") from None
    used = set(placeholders(template.body))
    prompt_field, length_field = (
        next(key for key, value in template.body.items() if one in placeholders([value])) for one in PLACEHOLDERS[:2]
    )

    def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
        if not workload.streaming and "{stream}" not in used and template.whole is None:
            raise InputError("protocol-unsupported", f'{name} has no "{{stream}}" in its body; leave --no-stream out')
        if workload.temperature and "{temperature}" not in used:
            raise InputError(
                "protocol-unsupported",
                f'{name} has no "{{temperature}}" in its body; write it there, or leave --temperature out',
            )
        if length_field in extra:
            raise InputError(
                "extra-body-reserved",
                f"--extra-body sets {length_field!r}, in which {name} has the output length; write it there",
            )
        values = {
            "{prompt}": PROMPT, "{max_tokens}": NUMBER, MODEL: model, "{stream}": workload.streaming,
            "{temperature}": workload.temperature, "{ignore_eos}": workload.ignore_eos,
        }  # fmt: skip
        return with_extra(filled(template.body, values), extra)

    without = {"ids": f"{name} describes requests of text; use --prompt-form words or text"}
    if "{ignore_eos}" not in used:
        without["ignore_eos"] = f"{name} has no {{ignore_eos}} in its body: a model may stop before the output length"
    return Endpoint(
        name=name,
        aliases=(),
        title=name,
        signs=(),
        dialect=dialect,
        framing="sse",
        joint=TEXT,
        resource=template.path.removeprefix("/"),
        models=template.models and template.models.removeprefix("/"),
        root=below,
        prompts={"text": {prompt_field: PROMPT if template.body[prompt_field] == PLACEHOLDERS[0] else [PROMPT]}},
        body=body,
        without=without,
    )
