"""Tokenizers that count offline: the encodings that quicktok brings along, and `none`.

Loading takes 0.2 to 0.5 s, so nothing is imported or loaded before it is asked for, and nothing is kept on
disk.
"""

from __future__ import annotations

from typing import Any

from fastllmload.errors import InputError

ENCODINGS = ("cl100k_base", "o200k_base", "o200k_harmony", "llama3", "qwen3")
NONE = "none"


class Tokenizer:
    """One encoding: `encode`, `count`, `decode` of ordinary text, and the bytes of every ordinary token."""

    def __init__(self, name: str, encoding: Any) -> None:
        self.name = name
        self._encoding = encoding

    @property
    def ordinary(self) -> int:
        """Number of ordinary (not special) tokens; their ids are 0 to `ordinary` - 1."""
        return len(self._encoding.token_byte_values())

    def encode(self, text: str) -> list[int]:
        """Token ids; special-token text is encoded as ordinary text."""
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    def count(self, text: str) -> int:
        """Number of tokens."""
        return int(self._encoding.count(text))

    def decode(self, ids: list[int]) -> str:
        text: str = self._encoding.decode(ids)
        return text

    def vocabulary(self) -> list[bytes]:
        """The bytes of every ordinary token, by id."""
        token = self._encoding.decode_single_token_bytes
        return [token(number) for number in range(self.ordinary)]


def load_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer called *name*; None for `none`. InputError when there is no such encoding."""
    if name == NONE:
        return None
    if name not in ENCODINGS:
        raise InputError(
            f"--tokenizer {name!r} is not an encoding that can be counted offline;"
            f" choose one of {', '.join(ENCODINGS)} or {NONE}"
        )
    import quicktok  # type: ignore[import-untyped]

    return Tokenizer(name, quicktok.get_encoding(name))
