"""Request bodies: the bytes that all bodies of a plan share, the fields of --extra-body, and how turns are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fastllmload.errors import InputError
from fastllmload.redact import public_body

OUTPUT_TOKENS = "{output_tokens}"  # in --extra-body: the request's own output length
LENGTHS = ("max_tokens", "max_completion_tokens")
DECIDED = {"model": "--model", "stream": "--stream", "messages": "--workload", "prompt": "--workload"}
SAMPLING = ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
SAMPLING_ENDINGS = (*SAMPLING, "repeat_penalty")  # of their names in a body
ALL_SAMPLING = dict(zip(SAMPLING, SAMPLING, strict=True))
# Placeholders for each body's own bytes. JSON text contains no control characters, so they cannot occur elsewhere.
PROMPT = msgspec.Raw(b"\x00")
NUMBER = msgspec.Raw(b"\x01")
CHAT_PROMPTS: dict[str, dict[str, Any]] = {
    "text": {"messages": [{"role": "user", "content": PROMPT}]},
    "messages": {"messages": PROMPT},
}


@dataclass(frozen=True)
class BodyPieces:
    """body = before + prompt as JSON + middle[0] + N + middle[1] + N … + tail. N: the request's output tokens."""

    before: bytes
    middle: tuple[bytes, ...]
    tail: bytes

    @property
    def skip(self) -> int:
        """Bytes before the first message, or before the text: up to its opening bracket or quote."""
        return len(self.before) + 1

    def closing(self, tokens: int) -> int:
        """Bytes after the last message, or after the text: its closing bracket or quote, and the fields that follow."""
        fixed = sum(len(piece) for piece in self.middle) + len(self.tail)
        return 1 + fixed + len(self.middle) * len(str(tokens))

    def encode(self, prompt: Any, tokens: int) -> bytes:
        """One body of *prompt*: a text, token ids or messages."""
        return self.before + msgspec.json.encode(prompt) + (b"%d" % tokens).join((*self.middle, self.tail))


def cut(fields: dict[str, Any]) -> BodyPieces:
    """The pieces of a body with `PROMPT` once and any number of `NUMBER`. InputError when it is not Unicode."""
    try:
        body = msgspec.json.encode(fields)
    except UnicodeEncodeError as problem:
        raise InputError(
            "body-not-encodable", f"the request body cannot be encoded: {problem.object!r} is not UTF-8 text"
        ) from None
    before, after = body.split(bytes(PROMPT))
    *middle, tail = after.split(bytes(NUMBER))
    return BodyPieces(before, tuple(middle), tail)


def extra_fields(text: str | None, prompt_fields: Iterable[str] = ()) -> dict[str, Any]:
    """--extra-body with `NUMBER` for "{output_tokens}". InputError when it is not an object or contradicts the plan."""
    if text is None:
        return {}
    try:
        extra = msgspec.json.decode(text)
        numbered = _with_numbers(extra)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InputError(
            "extra-body-invalid", f"--extra-body {_quoted(text)} is not JSON that can be sent: {problem}"
        ) from None
    if not isinstance(extra, dict):
        raise InputError(
            "extra-body-invalid", f'--extra-body {_quoted(text)} is not a JSON object; write {{"field": value}}'
        )
    for name, option in (DECIDED | dict.fromkeys(prompt_fields, "--workload")).items():
        if name in extra:
            raise InputError(
                "extra-body-reserved", f"--extra-body sets {name!r}, which {option} decides; use that option"
            )
    if extra.get("n") not in (None, 1):
        raise InputError(
            "extra-body-reserved",
            f"--extra-body asks for n={extra['n']} replies per request, of which only the first could be timed; "
            "leave it out and send more requests",
        )
    for name in LENGTHS:
        if numbered.get(name) not in (None, NUMBER):
            raise InputError(
                "extra-body-reserved",
                f"--extra-body sets {name!r}, which --osl decides for each request; "
                f'use --osl, or the value "{OUTPUT_TOKENS}" for the length that it draws',
            )
    return dict(numbered)


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """*fields* with those of --extra-body, which replace ours; null removes one of ours."""
    removed = [name for name, value in extra.items() if value is None and name in fields]
    return {name: value for name, value in (fields | extra).items() if name not in removed}


def with_sampling(
    extra: dict[str, Any], given: Mapping[str, float], names: Mapping[str, str], within: str, protocol: str
) -> dict[str, Any]:
    """*extra*, of --extra-body, with the sampling options *given*. *names*: their fields in *protocol*, of its object
    *within* or (empty) of the body itself. InputError for one that it lacks, or that --extra-body sets differently.
    """
    place = {**(extra.get(within) or {})} if within else {**extra}
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in names:
            other = " and ".join(f"--{each.replace('_', '-')}" for each in names)
            raise InputError(
                "protocol-unsupported",
                f"{flag} has no field in requests of {protocol}"
                + (f", which has {other}" if names else "")
                + "; leave "
                "it out, or name the server's own field in --extra-body",
            )
        if place.setdefault(names[name], value) != value:
            raise InputError(
                "options-conflict",
                f"{flag} {value:g} and --extra-body, which sets {names[name]} to {place[names[name]]!r}, contradict "
                "each other; give one",
            )
    return {**extra, within: place} if within else place


def sampling_fields(extra: dict[str, Any]) -> dict[str, Any]:
    """The sampling options among the fields of --extra-body, under the names that they have there."""
    places = [extra, *(place for place in extra.values() if isinstance(place, dict))]
    return {name: value for place in places for name, value in place.items() if name.endswith(SAMPLING_ENDINGS)}


def settings_object(name: str, length: str, ours: dict[str, Any], extra: dict[str, Any], server: str) -> dict[str, Any]:
    """*ours*, with the output length, as the object *name* of a body. Taken out of --extra-body are fields that replace
    ours; null removes one. InputError for another type, and for an output length: *length* carries it.
    """
    asked = extra.pop(name, None)
    if asked is not None and not isinstance(asked, dict):
        raise InputError("extra-body-invalid", f"--extra-body sets {name!r} to {asked!r}; {server} expects an object")
    asked = asked or {}
    if length in extra:
        check_lengths({length: extra[length]}, f"{name}.{length}", server)
    check_lengths(extra | asked, length, server)
    return with_extra(ours, asked)


def check_lengths(extra: dict[str, Any], own: str, protocol: str, *, required: bool = True) -> None:
    """InputError when --extra-body sets the output length, which the field *own* carries; null leaves it out where the
    protocol has it not *required*.
    """
    for name in LENGTHS:
        if name in extra and name != own:
            raise InputError(
                "protocol-unsupported",
                f"--extra-body sets {name!r}, which {protocol} does not support; --osl becomes {own}",
            )
    length = extra.get(own, NUMBER)
    if length is not NUMBER and (required or length is not None):
        raise InputError(
            "extra-body-reserved", f"--extra-body sets {own!r}, which --osl decides for each request; use --osl"
        )


def _with_numbers(value: Any) -> Any:
    """*value* with `NUMBER` in place of every text "{output_tokens}"."""
    if isinstance(value, dict):
        return {name: _with_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inner) for inner in value]
    return NUMBER if value == OUTPUT_TOKENS else value


def _quoted(text: str) -> str:
    """*text* quoted, without credentials, and short enough for a message."""
    text = public_body(text)
    return repr(text if len(text) <= 60 else text[:60] + "…")
