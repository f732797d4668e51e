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
    fitted = list(texts)
    encoded = tokenizer.encode_many(fitted)
    counts = [len(ids) for ids in encoded]
    wrong = [at for at, count in enumerate(counts) if count != wanted[at]]
    for _ in range(ROUNDS):
        if not wrong:
            break
        for at in wrong:
            more = wanted[at] - counts[at]
            fitted[at] = fitted[at] + filler(more) if more > 0 else tokenizer.decode(encoded[at][: wanted[at]])
        changed = [fitted[at] for at in wrong]
        for at, count in zip(wrong, tokenizer.count_many(changed), strict=True):
            counts[at] = count
        wrong = [at for at in wrong if counts[at] != wanted[at]]
        for at, ids in zip(wrong, tokenizer.encode_many([fitted[at] for at in wrong]), strict=True):
            encoded[at] = ids
    return fitted, counts


def fit(tokenizer: Tokenizer | None, text: str, tokens: int) -> str:
    """*text* with *tokens* tokens; with as many words where there is no tokenizer."""
    if tokenizer is None:
        words = text.split(" ")
        return " ".join(words[:tokens] + ["the"] * (tokens - len(words)))
    return fit_many(tokenizer, [text], [tokens])[0][0]
