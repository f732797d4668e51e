"""Long context (IETF A.5): a document of drawn words, unique from its first token on, and one question after it."""

from __future__ import annotations

from fastllmload.workload.content.exact_length import fit
from fastllmload.workload.content.words import WordTable
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

QUESTION_TOKENS = 100
QUESTION = (
    "\n\nThe text above is a document. Read it from its beginning to its end and answer the following question about "
    "it. Which five words of the document seem the most important to you, and in which part of the document, the "
    "beginning, the middle or the end, does each of them "
    "stand for the first time? Quote each word exactly as it is"  # prose: allow, part of a prompt
    " written, say in one sentence why you chose it, and add how often you think that it occurs. Words in other "
    "languages count as words."
)


def with_question(table: WordTable, tokenizer: Tokenizer | None) -> WordTable:
    """*table* with the question after every document, cut to QUESTION_TOKENS tokens."""
    before = "the" if tokenizer is None else "document"  # one token, since the question follows a word
    text = fit(tokenizer, before + QUESTION, 1 + QUESTION_TOKENS)
    return table.with_suffix(text.removeprefix(before), QUESTION_TOKENS)
