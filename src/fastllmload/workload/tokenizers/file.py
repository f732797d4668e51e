"""Tokenizer from a Hugging Face `tokenizer.json`, through the package `tokenizers` (extra `tokenizers`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.documents.plan import TokenizerFacts
from fastllmload.errors import InputError
from fastllmload.files import LARGEST_DATASET, read_bounded
from fastllmload.workload.content.exact_length import Tokenizer

INSTEAD = "give the file of a Hugging Face model, or a name such as cl100k_base"


class FileTokenizer(Tokenizer):
    """One tokenizer.json. `ordinary`: one more than the highest id that is not a special token."""

    def __init__(self, path: Path, library: Any, tokenizer: Any, sha256: str) -> None:
        self.name = str(path)
        self._library, self._tokenizer, self._sha256 = library, tokenizer, sha256
        special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._special = special
        self.ordinary = 1 + max((number for number in range(size) if number not in special), default=-1)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def vocabulary(self) -> list[bytes]:
        """Each token as decoded after a word: the mark of a leading space becomes a space."""
        texts = self._tokenizer.decode_batch([[number] for number in range(self.ordinary)], skip_special_tokens=True)
        marks = [self._tokenizer.id_to_token(number) or "" for number in range(self.ordinary)]
        return [
            b"" if number in self._special else _spaced(mark, text).encode()
            for number, (mark, text) in enumerate(zip(marks, texts, strict=True))
        ]

    def facts(self) -> TokenizerFacts:
        return TokenizerFacts(
            name=self.name,
            source="tokenizer.json",
            version=f"tokenizers {self._library.__version__}",
            vocabulary=self._tokenizer.get_vocab_size(with_added_tokens=True),
            sha256=self._sha256,
        )


SPACES = ("Ġ", "▁")  # how byte-level and SentencePiece vocabularies write a leading space


def _spaced(mark: str, text: str) -> str:
    return text if not mark.startswith(SPACES) or text.startswith(" ") else f" {text}"


@lru_cache(2)
def load_file(path: Path, modified_ns: int) -> FileTokenizer:
    """The tokenizer in *path* (*modified_ns*: so that a changed file is read again). InputError when it is not one."""
    raw = _read(path)
    try:
        import tokenizers  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise InputError(
            "package-missing",
            f"--tokenizer {path} needs the package tokenizers; install it with pip install 'fastllmload[tokenizers]'",
        ) from None
    try:
        found = tokenizers.Tokenizer.from_str(raw.decode())
    except Exception as problem:  # noqa: BLE001 - the library raises Exception itself for every file it does not know
        raise InputError(
            "tokenizer-invalid", f"--tokenizer {path} is not a tokenizer.json: {_short(problem)}"
        ) from None
    return FileTokenizer(path, tokenizers, found, hashlib.sha256(raw).hexdigest())


def _read(path: Path) -> bytes:
    """The bytes of *path*, a JSON object with a model; checked before the package is needed."""
    try:
        raw = read_bounded(path, LARGEST_DATASET)
        found = msgspec.json.decode(raw)
    except OSError as problem:
        raise InputError("file-unreadable", f"--tokenizer {path} cannot be read: {problem.strerror}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InputError(
            "tokenizer-invalid", f"--tokenizer {path} is not a tokenizer.json: {_short(problem)}; {INSTEAD}"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise InputError("tokenizer-invalid", f"--tokenizer {path} is not a tokenizer.json: it has no model; {INSTEAD}")
    return raw


def _short(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return text if len(text) <= 120 else text[:120] + "..."
