"""Messages of data sets, which have the form of OpenAI's chat, for protocols with another form.

What is in a protocol's own form already is left as it is: the sequence of a plan is written so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from fastllmload.errors import InputError

Part = dict[str, Any]
MEDIA = ("image_url", "input_audio", "audio_url", "video_url", "file", "refusal")  # types of parts that chat alone has
READ = {"role", "content", "tool_calls", "tool_call_id", "tool_name", "name"}


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: str


def refuse(what: str) -> NoReturn:
    raise InputError("protocol-unsupported", what)


def check_fields(message: dict[str, Any], protocol: str) -> None:
    """InputError for a field of a chat message that would be lost; `name` of a tool's answer is only the tool."""
    lost = [name for name, value in message.items() if name not in READ and value is not None]
    if message.get("name") is not None and message["role"] != "tool":
        lost.append("name")
    if lost:
        refuse(f"a message of role {message['role']} has {lost[0]!r}, which {protocol} cannot carry; leave it out")


def calls_of(message: dict[str, Any]) -> list[ToolCall]:
    """Tool calls of an assistant's message. InputError for another form."""
    found = message.get("tool_calls") or []
    try:
        calls = [ToolCall(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in found]
    except (KeyError, TypeError):
        calls = [ToolCall("", "", "")]
    if not all(isinstance(text, str) and text for call in calls for text in call):
        refuse("tool_calls must be objects with an id and a function of name and arguments, which are JSON in a text")
    return calls


def answered_call(message: dict[str, Any]) -> str:
    ident = message.get("tool_call_id")
    if not isinstance(ident, str) or not ident:
        refuse("a message of role tool has no tool_call_id, so the call that it answers is not known")
    return ident


def parts_of(content: Any, text: str, image: Callable[[Part], Part], protocol: str) -> Any:
    """*content* of a message: a text as it is, of a list the parts: *text* is the type of one with text."""
    if not isinstance(content, list):
        return content
    return [_part(one, text, image, protocol) for one in content]


def _part(part: Any, text: str, image: Callable[[Part], Part], protocol: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {**part, "type": text}
    if kind == "image_url":
        where = part.get("image_url")
        where = where if isinstance(where, dict) else {"url": where}
        return image(where) if isinstance(where.get("url"), str) else refuse("a part of type image_url has no URL")
    if kind in MEDIA:
        refuse(f"a message has a part of type {kind}, which {protocol} cannot carry; leave it out")
    return part
