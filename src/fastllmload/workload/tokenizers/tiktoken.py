"""Encodings of the package tiktoken (extra `tiktoken`), by the name of an encoding or of a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fastllmload.documents.plan import TokenizerFacts
from fastllmload.errors import InputError
from fastllmload.workload.content.exact_length import Tokenizer


class TiktokenTokenizer(Tokenizer):
    def __init__(self, library: Any, encoding: Any) -> None:
        self.name = str(encoding.name)
        self._library, self._encoding = library, encoding
        self.ordinary = len(encoding.token_byte_values())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._encoding.encode_ordinary_batch(list(texts))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._encoding.decode(list(ids))
        return text

    def vocabulary(self) -> list[bytes]:
        tokens: list[bytes] = self._encoding.token_byte_values()
        return [self._encoding.decode_single_token_bytes(number) for number in range(len(tokens))]

    def facts(self) -> TokenizerFacts:
        return TokenizerFacts(
            name=self.name,
            source="tiktoken",
            version=self._library.__version__,
            vocabulary=int(self._encoding.n_vocab),
        )


@lru_cache(2)
def load_tiktoken(name: str, offline: tuple[str, ...]) -> TiktokenTokenizer:
    """The encoding *name*, or that of the model. InputError. *offline*: names that do not need tiktoken."""
    try:
        import tiktoken  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise InputError(
            "package-missing",
            f"--tokenizer {name!r} is not one of the bundled encodings ({', '.join(offline)}); for "
            "other tiktoken names pip install 'fastllmload[tiktoken]', or give a tokenizer.json",
        ) from None
    try:
        if name in tiktoken.list_encoding_names():
            return TiktokenTokenizer(tiktoken, tiktoken.get_encoding(name))
        return TiktokenTokenizer(tiktoken, tiktoken.encoding_for_model(name))
    except KeyError:
        known = ", ".join(tiktoken.list_encoding_names())
        raise InputError(
            "tokenizer-unknown",
            f"--tokenizer {name!r} is neither an encoding nor a model of tiktoken; encodings are {known}",
        ) from None
    except (OSError, ValueError) as problem:  # requests' errors are OSErrors; a wrong hash is a ValueError
        raise InputError(
            "tokenizer-invalid",
            f"--tokenizer {name!r}: tiktoken could not fetch its vocabulary ({type(problem).__name__}); set "
            "TIKTOKEN_CACHE_DIR to a folder that holds it",
        ) from None
