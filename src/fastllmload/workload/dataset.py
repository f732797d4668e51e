"""Data sets: requests from files, with their own prompts, output lengths, classes and body fields.

| name | file |
|---|---|
| sharegpt | JSON array of `{"conversations": [{"from": "human" or "gpt", "value": TEXT}, ...]}` (below) |
| custom | JSON lines, or one array: `prompt` (text or token ids) or `messages`; optional `output_tokens`, `class`, `body` |
| text | lines of text, or one prompt for all (`plain.py`) |
| aiperf | JSON lines of AIPerf (`plain.py`) |
| batch | JSON lines of the OpenAI batch format: `body` with `messages` or `prompt` |
| csv | columns `prompt` and optional `output_tokens`, `class` (`plain.py`) |
| hf | a data set of Hugging Face (`hugging_face.py`) |

Of a ShareGPT conversation the first human turn is the prompt, and the first answer gives the output length.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fastllmload.endpoint.protocols.openai import OPENAI_COMPLETIONS
from fastllmload.errors import InputError
from fastllmload.files import LARGEST_DATASET, read_bounded
from fastllmload.workload.content.image import image_size
from fastllmload.workload.plain import aiperf_entries, by_columns, csv_entries, text_entries
from fastllmload.workload.request import Content, DatasetRequest, field_error
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

DATASETS = ("sharegpt", "custom", "text", "aiperf", "batch", "csv", "hf")
MOST_TOKENS = 16_000_000
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
    b"BZh": "bzip2",
}


Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Dataset:
    """*requests* in the order of the file. *left_out*: number of entries without a request. *own_lengths*: those of entries
    go before --osl.
    """

    name: str
    sha256: str
    requests: Sequence[DatasetRequest]
    left_out: int = 0
    shuffled: bool = False
    own_lengths: bool = False

    def ordered(self, seed: int | str) -> Iterator[DatasetRequest]:
        return endless(self.requests, seed if self.shuffled else None)

    def has_own_length(self, one: DatasetRequest) -> bool:
        """Whether the output length of *one* goes before --osl."""
        return self.own_lengths and one.output_tokens is not None

    def of_class(self, name: str) -> Dataset:
        """The entries of class *name*; the others are left out. InputError when there are none."""
        mine = [one for one in self.requests if one.name == name]
        check_not_empty(mine, name, self.classes())
        return replace(self, requests=mine, left_out=self.left_out + len(self.requests) - len(mine))

    def classes(self) -> list[str]:
        """Names of the classes in the order in which they first appear; one nameless class when none is named."""
        return list(dict.fromkeys("" if one.name is None else one.name for one in self.requests))


def endless(entries: Sequence[Entry], seed: int | str | None) -> Iterator[Entry]:
    """*entries* again and again, in the order of the file, or (*seed*) drawn without replacement."""
    stream = random.Random(seed)
    while True:
        order = list(range(len(entries)))
        if seed is not None:
            stream.shuffle(order)
        for number in order:
            yield entries[number]


def check_not_empty(found: Sequence[object], name: str, classes: Sequence[str]) -> None:
    """InputError when *found*, the entries of class *name* in a data set with *classes*, is empty."""
    if not found:
        named = [one for one in classes if one]
        has = f"its classes are {', '.join(named[:20])}" if named else "none of its entries has a class"
        raise InputError("class-unknown", f"--dataset-class {name!r} matches no entry of the data set; {has}")


def read_dataset(
    name: str, path: Path, tokenizer: Tokenizer | None, columns: Sequence[tuple[str, str]] = ()
) -> Dataset:
    """The data set in *path*; *columns* are those of --dataset-column. InputError names file, line and cause."""
    raw = read_bytes(path)
    sha256 = hashlib.sha256(raw).hexdigest()
    left_out = 0
    if name == "sharegpt":
        requests, left_out = _sharegpt(path, raw, tokenizer)
    else:
        read = _batch if name == "batch" else parse_custom
        requests = [read(entry, where) for entry, where in entries_of(name, path, raw, columns)]
    if not requests:
        raise InputError("dataset-empty", f"--dataset-path {path} contains no request")
    return Dataset(name, sha256, requests, left_out, shuffled=name == "sharegpt", own_lengths=name == "aiperf")


def of_one_prompt(prompt: str) -> Dataset:
    """*prompt* in every request."""
    return Dataset("text", hashlib.sha256(prompt.encode()).hexdigest(), [DatasetRequest("--prompt", prompt)])


def entries_of(
    name: str, path: Path, raw: bytes, columns: Sequence[tuple[str, str]] = ()
) -> Iterator[tuple[dict[str, Any], str]]:
    """Entries of the data set *name* with the place of each: of `batch`, else of `custom`."""
    if name == "text":
        return text_entries(path, raw)
    if name == "csv":
        return csv_entries(path, raw, dict(columns))
    if name == "aiperf":
        return aiperf_entries(json_lines(path, raw))
    found = json_objects(path, raw) if name == "custom" else json_lines(path, raw)
    return by_columns(found, dict(columns)) if columns else found


def read_bytes(path: Path) -> bytes:
    try:
        raw = read_bounded(path, LARGEST_DATASET)
    except OSError as problem:
        raise InputError("file-unreadable", f"--dataset-path {path} cannot be read: {problem.strerror}") from None
    check_uncompressed(path, raw)
    return raw


def check_uncompressed(path: Path, raw: bytes) -> None:
    """InputError for a compressed or UTF-16 file."""
    for begins, form in COMPRESSED.items():
        if raw.startswith(begins):
            raise InputError("dataset-invalid", f"--dataset-path {path} is a {form} file; decompress it first")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("dataset-invalid", f"--dataset-path {path} is UTF-16; write it as UTF-8")


# -- JSON lines -------------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> tuple[bytes, Iterator[tuple[dict[str, Any], str]]]:
    """The bytes of *path*, and its JSON objects with the place of each. InputError names line and column."""
    raw = read_bytes(path)
    return raw, json_lines(path, raw)


def json_lines(path: Path, raw: bytes) -> Iterator[tuple[dict[str, Any], str]]:
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise InputError("dataset-invalid", f"{where}{column(line, problem)} is not JSON: {why(problem)}") from None
        if not isinstance(entry, dict):
            raise field_error(f"{where} is not a JSON object")
        yield entry, where


def json_objects(path: Path, raw: bytes) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of one array, or those of lines."""
    try:
        found = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # lines have the place of what is wrong
        return json_lines(path, raw)
    return ((entry, f"{path} entry {number}") for number, entry in enumerate(found))


_BYTE = re.compile(r" \(byte (\d+)\)")


def column(line: bytes, problem: Exception) -> str:
    """` column N`: the character, counted from 1, at which *line* stops being JSON; empty if *problem* has no position."""
    found = _BYTE.search(str(problem))
    if isinstance(problem, UnicodeDecodeError):  # its position is relative to a string within the line
        return f" column {_first_invalid(line) + 1}"
    if found is not None:
        return f" column {len(line[: int(found[1])].decode(errors='replace')) + 1}"
    if "truncated" in str(problem):
        return f" column {len(line.decode(errors='replace').rstrip()) + 1}"
    return ""


def _first_invalid(line: bytes) -> int:
    """Number of characters before the first byte of *line* that is not UTF-8."""
    try:
        return len(line.decode())
    except UnicodeDecodeError as problem:
        return len(line[: problem.start].decode())


def why(problem: Exception) -> str:
    """The decoder's message without its byte offset."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    text = _BYTE.sub("", str(problem)).removeprefix("JSON is malformed: ")
    return "it ends too early" if "truncated" in text else text


OF_CONVERSATIONS = ("session", "delay", "reply")
KNOWN = ("prompt", "messages", "input_tokens", "output_tokens", "class", "timestamp", "target", "body")
DECIDED = ("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens")


def parse_custom(entry: dict[str, Any], where: str) -> DatasetRequest:
    unknown = [name for name in entry if name not in KNOWN]
    if unknown and unknown[0] in OF_CONVERSATIONS:
        raise InputError(
            "option-not-applicable",
            f"{where}: {unknown[0]!r} belongs to conversations; add --turns all to send conversations",
        )
    if unknown:
        raise field_error(f"{where}: {unknown[0]!r} is not a field; the fields are {', '.join(KNOWN)}")
    extra = entry.get("body", {})
    if not isinstance(extra, dict):
        raise field_error(f"{where}: body is {format_value(extra)}, not a JSON object")
    reserved = [name for name in extra if name in DECIDED and extra[name] != "{output_tokens}"]
    if reserved:
        raise InputError(
            "extra-body-reserved", f"{where}: body sets {reserved[0]!r}, which the run decides; leave it out"
        )
    _check_single_reply(extra, where)
    name = entry.get("class")
    if name is not None and not isinstance(name, str):
        raise field_error(f"{where}: class is {format_value(name)}, not a text")
    tokens = _length(entry.get("input_tokens"), where, "input")
    output = _length(entry.get("output_tokens"), where)
    return DatasetRequest(
        where, _content(entry, where), output, name, extra, tokens, _protocol(entry.get("target"), where)
    )


def _protocol(target: object, where: str) -> str | None:
    """The protocol of `target`, the destination of the request for other tools."""
    if target is None:
        return None
    if not isinstance(target, dict):
        raise field_error(f"{where}: target is {format_value(target)}, not a JSON object")
    protocol = target.get("endpoint_type")
    if protocol is not None and not isinstance(protocol, str):
        raise field_error(f"{where}: endpoint_type of target is {format_value(protocol)}, not the name of a protocol")
    return protocol


def _batch(entry: dict[str, Any], where: str) -> DatasetRequest:
    body = entry.get("body")
    if not isinstance(body, dict):
        raise field_error(f"{where}: body is missing; a line of a batch file has custom_id, method, url and body")
    length = body.get("max_completion_tokens", body.get("max_tokens"))
    extra = {name: value for name, value in body.items() if name not in DECIDED}
    _check_single_reply(extra, where)
    completion = "prompt" in body and str(entry.get("url", "")).endswith(OPENAI_COMPLETIONS.path(""))
    protocol = OPENAI_COMPLETIONS.name if completion else None  # not to be sent as chat
    return DatasetRequest(where, _content(body, where), _length(length, where), None, extra, protocol=protocol)


def _check_single_reply(extra: dict[str, Any], where: str) -> None:
    """InputError for several replies to a request: only the first is timed."""
    if extra.get("n") not in (None, 1):
        raise InputError(
            "extra-body-reserved",
            f"{where}: n is {format_value(extra['n'])}, but only one reply to a request can be timed; leave it out",
        )


def _content(entry: dict[str, Any], where: str) -> Content:
    prompt, messages = entry.get("prompt"), entry.get("messages")
    if (prompt is None) == (messages is None):
        raise field_error(f"{where}: give either prompt or messages")
    if messages is not None:
        if not (isinstance(messages, list) and messages and all(_is_message(one) for one in messages)):
            raise field_error(f"{where}: messages must be an array of objects with role and content")
        _check_images(messages, where)
        return messages
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(one) is int and 0 <= one < 1 << 31 for one in prompt):
        return prompt
    raise field_error(f"{where}: prompt is {format_value(prompt)}, neither text nor token ids")


def _check_images(messages: list[Any], where: str) -> None:
    for message in messages:
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else ():
            try:
                image_size(part)
            except InputError as problem:
                raise InputError(problem.code, f"{where}: {problem.message}") from None


def _is_message(one: object) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("role"), str):
        return isinstance(one, dict) and isinstance(one.get("type"), str)  # an item of OpenAI's Responses
    return "content" in one or "tool_calls" in one


def _length(value: object, where: str, which: str = "output") -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MOST_TOKENS:
        raise field_error(
            f"{where}: its {which} length {format_value(value)} is not a number of tokens from 1 to {MOST_TOKENS}"
        )
    return value


def format_value(value: object) -> str:
    """*value* for a message, at most 43 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."


# -- ShareGPT ---------------------------------------------------------------------------------------------------------


class Turn(msgspec.Struct):
    speaker: str = msgspec.field(name="from")
    value: str


class DatasetConversation(msgspec.Struct):
    """One entry of the ShareGPT file; other fields are ignored."""

    conversations: list[Turn]


def sharegpt_entries(path: Path, raw: bytes) -> list[DatasetConversation]:
    """All entries of a ShareGPT file. InputError when it is not one."""
    try:
        return msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=list[DatasetConversation])
    except (msgspec.DecodeError, UnicodeError) as problem:
        raise InputError(
            "dataset-invalid",
            f"{path}{_place(raw, problem)} is not a ShareGPT file, a JSON array of conversations: {why(problem)}",
        ) from None


def _sharegpt(path: Path, raw: bytes, tokenizer: Tokenizer | None) -> tuple[list[DatasetRequest], int]:
    """First question and answer of each conversation that has both, and the number of entries left out."""
    entries = sharegpt_entries(path, raw)
    found = []
    for number, entry in enumerate(entries):
        turns = entry.conversations
        start = next((at for at, turn in enumerate(turns) if turn.speaker in ("human", "user")), len(turns))
        if (
            start + 1 >= len(turns)
            or not turns[start].value.strip()
            or turns[start + 1].speaker not in ("gpt", "assistant")
        ):
            continue
        answer = turns[start + 1].value
        if not answer.strip():
            continue
        length = None if tokenizer is None else max(1, tokenizer.count(answer))
        found.append(DatasetRequest(f"{path} entry {number}", turns[start].value, length))
    return found, len(entries) - len(found)


def _place(raw: bytes, problem: Exception) -> str:
    """` line N column M` of a JSON error; empty for JSON of another shape."""
    found = _BYTE.search(str(problem))
    if found is None:
        return ""
    before = raw[: int(found[1])]
    start = before.rfind(b"\n") + 1
    return f" line {before.count(bytes([10])) + 1} column {len(before[start:].decode(errors='replace')) + 1}"
