"""The texts of failed responses as the server sent them (`_ext/record/errortexts.pxd`): `error_texts` of run.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from fastllmload.documents.fields import known
from fastllmload.documents.run_parts.backends import BackendNames
from fastllmload.documents.run_parts.counts import ErrorTextEntries, ErrorTextEntry, FinishWord
from fastllmload.errors import RunFolderError
from fastllmload.files import read_regular
from fastllmload.records import layout

NAME = "error_texts.json"
LONGEST = 1000  # characters that are kept of one text
TAGS = re.compile(r"<(style|script|title)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
ANSWERED = 200  # HTTP status of a response with a finish_reason
REASON = "finish_reason: "  # what errortexts.pyx writes before the word
MESSAGE_KEYS = ("message", "detail", "error", "msg", "reason")


class ErrorText(msgspec.Struct, frozen=True):
    """*requests* failed with the same text; *http_status* None before any head."""

    http_status: int | None
    error: str
    text: str
    requests: int


class ErrorTexts(msgspec.Struct, frozen=True):
    """*left_out*: number of failed requests with other texts than *texts*. *backends*: names in answers, by number."""

    texts: list[ErrorText]
    left_out: int
    backends: list[str] = []


def encode_texts(
    taken: Iterable[tuple[int, int, bytes, int]],
    left_out: int,
    redact: Callable[[str], str],
    backends: Sequence[str] = (),
) -> bytes:
    """Content of the file NAME. *taken*: (HTTP status, error class, bytes, requests). Secrets are removed before the cut.
    *backends*: names as `answered_text` gives them.
    """
    texts = [
        ErrorText(
            http_status or None,
            layout.ERROR_NAMES[error],
            printable(redact(text.decode(errors="replace")))[:LONGEST],
            requests,
        )
        for http_status, error, text, requests in taken
    ]
    return msgspec.json.encode(ErrorTexts(texts, left_out, list(backends)))


def answered_text(text: bytes, redact: Callable[[str], str]) -> str:
    return printable(redact(text.decode(errors="replace")))


def read_texts(directory: Path) -> ErrorTextEntries:
    """Of all workers of a run folder, the most frequent first, equal ones together. RunFolderError for a damaged file."""
    together: dict[tuple[int | None, str, str], int] = {}
    left_out = 0
    for _, found in texts_of_workers(directory):
        left_out += found.left_out
        for each in found.texts:
            key = (each.http_status, each.error, each.text)
            together[key] = together.get(key, 0) + each.requests
    texts = sorted(together.items(), key=lambda each: -each[1])
    return ErrorTextEntries(
        texts=tuple(
            ErrorTextEntry(http_status=http_status, error=error, text=text, requests=requests)
            for (http_status, error, text), requests in texts
            if error != layout.ERROR_NAMES[0]
        ),
        left_out=left_out,
        finish_reasons=tuple(
            FinishWord(word=text.removeprefix(REASON), requests=requests)
            for (_, error, text), requests in texts
            if error == layout.ERROR_NAMES[0]
        ),
    )


def texts_of_workers(directory: Path) -> list[tuple[str, ErrorTexts]]:
    """Name of the folder, and content, of each file NAME of a run folder. RunFolderError for a damaged one."""
    found = []
    for path in sorted((directory / "workers").glob(f"*/{NAME}")):
        try:
            found.append((path.parent.name, msgspec.json.decode(read_regular(path), type=ErrorTexts)))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise RunFolderError("run-file-damaged", f"{path} cannot be read: {problem}") from problem
    return found


def with_backends(directory: Path, known_names: Sequence[BackendNames]) -> tuple[BackendNames, ...]:
    """*known_names* with those of the workers whose files are in the folder. RunFolderError for a damaged file."""
    of_worker = {each.worker: each for each in known_names}
    for name, found in texts_of_workers(directory):
        if name.isdigit() and found.backends:
            of_worker[int(name)] = BackendNames(worker=int(name), names=tuple(found.backends))
    return tuple(of_worker[worker] for worker in sorted(of_worker))


def remaining_texts(directory: Path, merged: ErrorTextEntries) -> ErrorTexts:
    """Of the *merged* texts of a run those that are not of the workers whose files are there again. How many of a text were
    theirs when it was merged is not known: as many as they have now are taken away.
    """
    again = read_texts(directory)
    taken = {each[:3]: each[3] for each in counted(again)}
    left = [(*each[:3], each[3] - taken.get(each[:3], 0)) for each in counted(merged)]
    left_out = int((known(merged.left_out) or 0) - (known(again.left_out) or 0))
    return ErrorTexts([ErrorText(*each) for each in left if each[-1] > 0], max(0, left_out))


def counted(texts: ErrorTextEntries) -> list[tuple[int | None, str, str, int]]:
    """HTTP status, error, text and requests, as in a worker's file."""
    failed = [(one.http_status, str(one.error), str(one.text), int(known(one.requests) or 0)) for one in texts.texts]
    words = [
        (ANSWERED, layout.ERROR_NAMES[0], f"{REASON}{one.word}", int(known(one.requests) or 0))
        for one in texts.finish_reasons
    ]
    return failed + words


def printable(text: str) -> str:
    """*text* without control characters, which a terminal would execute; line ends are kept."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


def message_of(text: str) -> str:
    """One line for people: the message of a JSON error body, the text of an HTML page, else the text itself."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return " ".join((TAGS.sub(" ", text) if "<html" in text.lower() else text).split())
    for _ in range(4):
        if isinstance(found, dict):
            found = next((found[key] for key in MESSAGE_KEYS if found.get(key)), None)
        elif isinstance(found, list) and found:
            found = found[0]
    return " ".join(found.split()) if isinstance(found, str) else " ".join(text.split())
