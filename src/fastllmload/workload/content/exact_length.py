"""Texts of an exact number of tokens: cut or filled up and encoded again until the count is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.workload.tokenizers.tokenizer import Tokenizer

ROUNDS = 20  # one is enough for nearly all texts; after this many a text keeps its length
Filler = Callable[[int], str]  # text of about that many tokens to append


def filler_words(tokens: int) -> str:
    """*tokens* words that are one token each in every vocabulary with English."""
    return " the" * tokens


def fit_many(
    tokenizer: Tokenizer, texts: Sequence[str], wanted: Sequence[int], filler: Filler = filler_words
) -> tuple[list[str], list[int]]:
    """*texts* with *wanted* tokens each, as far as ROUNDS suffice, and the count of each."""
    cut = tokenizer.cut_many(texts, wanted)
    fitted, counts = cut.texts, cut.counts
    short = [at for at, before in enumerate(cut.before) if before < wanted[at]]
    _fill(tokenizer, fitted, counts, wanted, short, filler)
    for _ in range(ROUNDS - 1):
        wrong = [at for at, count in enumerate(counts) if count != wanted[at]]
        if not wrong:
            break
        encoded = tokenizer.encode_many([fitted[at] for at in wrong])
        for at, ids in zip(wrong, encoded, strict=True):
            if len(ids) > wanted[at]:
                fitted[at] = tokenizer.decode(ids[: wanted[at]])
            else:
                fitted[at] += filler(wanted[at] - len(ids))
        for at, count in zip(wrong, tokenizer.count_many([fitted[at] for at in wrong]), strict=True):
            counts[at] = count
    return fitted, counts


def _fill(
    tokenizer: Tokenizer, texts: list[str], counts: list[int], wanted: Sequence[int], short: list[int], filler: Filler
) -> None:
    for at in short:
        texts[at] += filler(wanted[at] - counts[at])
    for at, count in zip(short, tokenizer.count_many([texts[at] for at in short]), strict=True):
        counts[at] = count


def fit(tokenizer: Tokenizer | None, text: str, tokens: int) -> str:
    """*text* with *tokens* tokens; with that many words if *tokenizer* is None."""
    if tokenizer is None:
        words = text.split(" ")
        return " ".join(words[:tokens] + ["the"] * (tokens - len(words)))
    return fit_many(tokenizer, [text], [tokens])[0][0]
