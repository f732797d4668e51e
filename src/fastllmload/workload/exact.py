"""Texts of an exact number of tokens: cut or filled up, encoded again, until the count is right (procedures 1.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.workload.tokenizer import Tokenizer

ROUNDS = 20  # one is enough for nearly all; behind this a text keeps what it has
Filler = Callable[[int], str]  # text of about so many tokens to append


def words_more(tokens: int) -> str:
    """Words of one token each in every vocabulary that has English."""
    return " the" * tokens


def fit_many(
    tokenizer: Tokenizer, texts: Sequence[str], wanted: Sequence[int], filler: Filler = words_more
) -> tuple[list[str], list[int]]:
    """*texts* with *wanted* tokens each, as far as ROUNDS allow, and the tokens that each has."""
    fitted, counts = list(texts), [0] * len(texts)
    open_ones = list(range(len(texts)))
    for attempt in range(ROUNDS + 1):
        encoded = tokenizer.encode_many([fitted[at] for at in open_ones])
        left = []
        for at, ids in zip(open_ones, encoded, strict=True):
            counts[at] = len(ids)
            if len(ids) == wanted[at] or attempt == ROUNDS:
                continue
            left.append(at)
            more = wanted[at] - len(ids)
            fitted[at] = fitted[at] + filler(more) if more > 0 else tokenizer.decode(ids[: wanted[at]])
        if not left:
            break
        open_ones = left
    return fitted, counts


def fit(tokenizer: Tokenizer | None, text: str, tokens: int) -> str:
    """*text* with *tokens* tokens; with as many words where there is no tokenizer."""
    if tokenizer is None:
        words = text.split(" ")
        return " ".join(words[:tokens] + ["the"] * (tokens - len(words)))
    return fit_many(tokenizer, [text], [tokens])[0][0]
