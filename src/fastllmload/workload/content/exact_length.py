"""Texts of an exact number of tokens: cut or filled up, encoded again, until the count is right (procedures 1.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastllmload.workload.tokenizers.tokenizer import Tokenizer

ROUNDS = 20  # one is enough for nearly all; behind this a text keeps what it has
Filler = Callable[[int], str]  # text of about so many tokens to append


def words_more(tokens: int) -> str:
    """Words of one token each in every vocabulary that has English."""
    return " the" * tokens


def fit_many(
    tokenizer: Tokenizer, texts: Sequence[str], wanted: Sequence[int], filler: Filler = words_more
) -> tuple[list[str], list[int]]:
    """*texts* with *wanted* tokens each, as far as ROUNDS allow, and the tokens that each has."""
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
    """*text* with *tokens* tokens; with as many words where there is no tokenizer."""
    if tokenizer is None:
        words = text.split(" ")
        return " ".join(words[:tokens] + ["the"] * (tokens - len(words)))
    return fit_many(tokenizer, [text], [tokens])[0][0]
