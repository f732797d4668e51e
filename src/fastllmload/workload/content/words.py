"""Word tables: the bytes that each drawn number becomes in a prompt.

Numbers are drawn from 0 to `span` - 1. As text, a number becomes one of the tokenizer's words: a space and three or more
lower-case ASCII letters that are one token. Each such word is one pre-token and one vocabulary entry, so a prompt of n
words encodes to exactly n tokens, without repair. The first word of a prompt is a single token without its space too, so
a chat template that trims the message does not change the count.

As ids, a number is the token id itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError
from fastllmload.workload.content.exact_length import fit
from fastllmload.workload.synthetic import SALT_STRIDE, Batch
from fastllmload.workload.tokenizers.tokenizer import ENCODINGS, Bundled, Tokenizer

IETF_SPAN = 100_256  # the ids of IETF A.1.4: randint(0, 100255), the ordinary ids of cl100k_base
SPARE = 64  # bytes after the last word that the compiled copy may read
FEWEST_WORDS = 64  # of one token each: fewer would repeat too soon
QUESTION_TOKENS = 100  # after every document of long-context (IETF A.5): drawn words, unique from the first token on
QUESTION = (
    "\n\nThe text above is a document. Read it from its beginning to its end and answer the following question about "
    "it. Which five words of the document seem the most important to you, and in which part of the document, the "
    "beginning, the middle or the end, does each of them "
    "stand for the first time? Quote each word exactly as it is"  # prose: allow, part of a prompt
    " written, say in one sentence why you chose it, and add how often you think that it occurs. Words in other "
    "languages count as words."
)
WORD = re.compile(rb" [a-z]{3,40}")
_SYLLABLES = [c + v for c, v in product("bdfgklmnprstvz", "aeiou")]


@dataclass(frozen=True)
class WordTable:
    """*blob* uint8 with spare bytes; *words*, *first* uint32 of shape (span,): `offset << 8 | length`.

    *form* names the prompt form in the plan's description; *opening*, *closing* enclose a prompt in JSON.
    """

    form: str
    blob: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint32]
    opening: bytes
    closing: bytes

    suffix: str = ""  # a fixed text after every prompt; part of *closing*
    suffix_tokens: int = 0

    @property
    def span(self) -> int:
        return len(self.words)

    def texts(self, batch: Batch) -> list[str]:
        """The prompts of *batch* without `suffix`."""
        found = []
        for numbers in batch.prompts():
            first, *others = numbers.tolist()
            found.append((self.word(first, first=True) + b"".join([self.word(one) for one in others])).decode())
        return found

    def with_suffix(self, text: str, tokens: int) -> WordTable:
        """A copy with *text*, which has *tokens* tokens, after every prompt."""
        return replace(
            self, closing=json.dumps(text, ensure_ascii=False).encode()[1:], suffix=text, suffix_tokens=tokens
        )

    def salted(self, salt: int) -> WordTable:
        """The table for prompts of another *salt* (`workload.synthetic.salted`)."""
        shift = salt * SALT_STRIDE % self.span
        return replace(self, words=np.roll(self.words, -shift), first=np.roll(self.first, -shift)) if salt else self

    def word(self, number: int, *, first: bool = False) -> bytes:
        entry = int((self.first if first else self.words)[number])
        return self.blob[entry >> 8 : (entry >> 8) + (entry & 0xFF)].tobytes()


def text_table(tokenizer: Tokenizer | None) -> WordTable:
    """Words of *tokenizer*; without one, three-syllable words that make no claim about tokens."""
    return _bundled_table(tokenizer) if isinstance(tokenizer, Bundled) else _text_table(tokenizer)


@lru_cache(len(ENCODINGS))
def _bundled_table(tokenizer: Bundled) -> WordTable:
    """Cached, 1 MB each: both phases of every load level use it, and making it takes 0.07 s of a core."""
    return _text_table(tokenizer)


def _text_table(tokenizer: Tokenizer | None) -> WordTable:
    if tokenizer is None:
        ends = ("n", "r", "s", "lo")
        words = bare = [f" {a}{b}{c}".encode() for a, b in product(_SYLLABLES, repeat=2) for c in ends]
    else:
        words, bare = _token_words(tokenizer)
    entries, blob = _pack(words)
    by_word = dict(zip(words, entries.tolist(), strict=True))
    first = np.array([by_word[word] for word in bare], dtype=np.uint32)
    if tokenizer is not None and tokenizer.count(bare[0].decode()) != 1:
        first += np.uint32((1 << 8) - 1)  # without its space: this tokenizer adds a leading space itself
    form = "words" if tokenizer is not None else "syllables"
    return WordTable(form, blob, _stretch(entries), _stretch(first), b'"', b'"')


def with_question(table: WordTable, tokenizer: Tokenizer | None) -> WordTable:
    """*table* with the question of long-context after every document, cut to QUESTION_TOKENS tokens."""
    before = "the" if tokenizer is None else "document"  # one token, since the question follows a word
    text = fit(tokenizer, before + QUESTION, 1 + QUESTION_TOKENS)
    return table.with_suffix(text.removeprefix(before), QUESTION_TOKENS)


def id_table(tokenizer: Tokenizer) -> WordTable:
    """All ordinary token ids as decimal numbers, separated by commas."""
    entries, blob = _pack([b",%d" % number for number in range(tokenizer.ordinary)])
    return WordTable("ids", blob, entries, entries + np.uint32((1 << 8) - 1), b"[", b"]")


def _token_words(tokenizer: Tokenizer) -> tuple[list[bytes], list[bytes]]:
    """All words, and those of them that are one token without their space too. InputError when there are too few."""
    vocabulary = tokenizer.vocabulary()
    known = set(vocabulary)
    words = list(dict.fromkeys(filter(WORD.fullmatch, vocabulary)))
    bare = [word for word in words if word[1:] in known]
    if not isinstance(tokenizer, Bundled):
        words, bare = _verified(tokenizer, words)
    if len(bare) < FEWEST_WORDS:
        raise InputError(
            "tokenizer-unsuitable",
            f"--tokenizer {tokenizer.name} has {len(bare)} words that are one token each, too few to make prompts of; "
            "use --prompt-form native",
        )
    return words, bare


def _verified(tokenizer: Tokenizer, words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The words that the tokenizer encodes to one token after another word and, for the second list, alone."""
    alone = tokenizer.count("the")
    following = tokenizer.count_many(["the" + word.decode() for word in words])
    words = [word for word, count in zip(words, following, strict=True) if count == alone + 1]
    counts = tokenizer.count_many([word[1:].decode() for word in words])
    return words, [word for word, count in zip(words, counts, strict=True) if count == 1]


def _pack(words: Sequence[bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    sizes = np.array([len(word) for word in words], dtype=np.uint32)
    offsets = np.cumsum(sizes, dtype=np.uint32) - sizes
    blob = np.frombuffer(b"".join(words) + bytes(SPARE), dtype=np.uint8)
    return (offsets << np.uint32(8)) | sizes, blob


def _stretch(entries: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """One entry per number of the IETF's span: words get 4 or 5 of the 100,256 numbers under cl100k_base."""
    numbers: npt.NDArray[Any] = np.arange(IETF_SPAN, dtype=np.uint64)
    return np.ascontiguousarray(entries[numbers * np.uint64(len(entries)) // np.uint64(IETF_SPAN)])
