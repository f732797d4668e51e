"""Counting only after the last seam gives the same cut texts and counts as encoding them completely."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.workload.content.exact_length import cut_many
from fastllmload.workload.tokenizers.tokenizer import ENCODINGS, Tokenizer, load_tokenizer

pytestmark = pytest.mark.slow

PIECES = [
    " a",
    "b ",
    "1 ",
    " 1",
    "'s ",
    "'",
    "\n ",
    " \n",
    "\t",
    "  ",
    "é ",
    " ü",
    "\u3000",
    "日本",
    "😀 x",
    "e\u0301 y",
    "-",
    "/",
]


def cl100k() -> Tokenizer:
    return load_tokenizer("cl100k_base")


def same(tokenizer, texts, wanted):
    """Compare the fast cut, the general one, and the tokenizer's count of the result."""
    quick, whole = tokenizer.cut_many(texts, wanted), cut_many(tokenizer, texts, wanted)
    assert quick == whole
    assert quick.counts == tokenizer.count_many(quick.texts)
    return quick


@pytest.mark.parametrize("name", ENCODINGS)
def test_random_ids_of_every_bundled_encoding(name):
    """Random ids give the least regular texts; nearly all of them end with the requested count."""
    tokenizer, draw = load_tokenizer(name), np.random.default_rng(5)
    wanted = draw.integers(2, 120, 300).tolist()
    texts = tokenizer.decode_many([draw.integers(0, tokenizer.ordinary, size + 9).tolist() for size in wanted])
    cut = same(tokenizer, texts, wanted)
    assert all(before > want for before, want in zip(cut.before, wanted, strict=True))
    assert sum(have == want for have, want in zip(cut.counts, wanted, strict=True)) > 200


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=40).map("".join), st.integers(1, 30))
def test_white_space_marks_and_other_scripts(text, wanted):
    same(cl100k(), [text, text[::-1]], [wanted, wanted])


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=120), st.integers(1, 60))
def test_any_text(text, wanted):
    same(cl100k(), [text], [wanted])


def test_short_texts_are_not_changed():
    cut = same(cl100k(), ["a b c", "", "one two three four"], [9, 3, 2])
    assert cut.texts == ["a b c", "", "one two"]
    assert cut.before == [3, 0, 4]
