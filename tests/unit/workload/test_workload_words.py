"""Word tables and tokenizers: a prompt of n words is n tokens, checked by the tokenizer itself."""

import random
import re

import pytest
from refusals import raises_code

from fastllmload.workload.content.words import IETF_SPAN, id_table, text_table
from fastllmload.workload.tokenizers.tokenizer import ENCODINGS, load_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cl100k():
    return load_tokenizer("cl100k_base")


def prompt(table, numbers):
    return b"".join(table.word(number, first=i == 0) for i, number in enumerate(numbers)).decode()


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_word_is_one_token(name):
    """All words are a space and three or more lower-case letters, one token each; first words are so without
    the space.
    """
    tokenizer = load_tokenizer(name)
    table = text_table(tokenizer)
    words = {table.word(number) for number in range(table.span)}
    first = {table.word(number, first=True) for number in range(table.span)}
    assert first < words
    assert len(first) > 5000
    for word in words:
        assert re.fullmatch(rb" [a-z]{3,}", word)
        assert tokenizer.count(word.decode()) == 1
    for word in first:
        assert tokenizer.count(word[1:].decode()) == 1


@pytest.mark.parametrize("name", ENCODINGS)
def test_random_prompts_have_the_exact_length(name):
    """Drawn prompts of 1 to 200 words encode to exactly that many tokens, trimmed or not."""
    tokenizer, rng = load_tokenizer(name), random.Random(4)
    table = text_table(tokenizer)
    for _ in range(400):
        numbers = [rng.randrange(table.span) for _ in range(rng.randint(1, 200))]
        text = prompt(table, numbers)
        assert tokenizer.count(text) == len(numbers)
        assert tokenizer.count(text.strip()) == len(numbers)
        assert tokenizer.count("<x>\nuser\n" + text) == tokenizer.count("<x>\nuser\n") + len(numbers)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_count_needs_no_tokenizer_to_be_checked(cl100k):
    """Without a tokenizer: the pre-tokenizer splits before every space, so tokens are the spaces, each word a
    known token.
    """
    known = set(cl100k.vocabulary())
    table, rng = text_table(cl100k), random.Random(8)
    for _ in range(2000):
        numbers = [rng.randrange(table.span) for _ in range(rng.randint(1, 100))]
        pieces = re.findall(rb" ?[a-z]+", prompt(table, numbers).encode())
        assert len(pieces) == len(numbers)
        assert known.issuperset(pieces)


def test_all_words_are_reachable(cl100k):
    """The table covers all words of cl100k_base, each by 4 or 5 numbers."""
    table = text_table(cl100k)
    assert table.span == IETF_SPAN
    counts = {}
    for number in range(table.span):
        counts[table.word(number)] = counts.get(table.word(number), 0) + 1
    assert len(counts) == 24_047
    assert set(counts.values()) == {4, 5}


def test_ids_are_token_ids(cl100k):
    """As ids a number is the token id; commas separate them."""
    table = id_table(cl100k)
    assert table.span == cl100k.ordinary == 100_256
    assert prompt(table, [3278, 0, 100_255]) == "3278,0,100255"
    assert (table.opening, table.closing) == (b"[", b"]")


def test_without_a_tokenizer():
    """`none` has words of letters, no encoding, and states that they are not tokens."""
    assert load_tokenizer("none") is None
    table = text_table(None)
    assert table.form == "syllables"
    assert len({table.word(number) for number in range(table.span)}) > 10_000
    assert all(re.fullmatch(rb" [a-z]+", table.word(number)) for number in range(0, table.span, 97))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "tokenizer-unknown"),
        ("cl100k", "package-missing"),
        ("/etc/passwd", "tokenizer-invalid"),
        ("None", "package-missing"),
    ],
)
def test_unknown_tokenizer(name, code):
    """One sentence that names the value and the known encodings."""
    with raises_code(code, name, "cl100k_base"):
        load_tokenizer(name)


def test_known_ids(cl100k):
    """Ids of cl100k_base as they are published."""
    assert cl100k.encode("hello world") == [15339, 1917]
    assert cl100k.decode([15339, 1917]) == "hello world"
    assert cl100k.count("<|endoftext|>") > 1


def test_the_vocabulary_of_a_bundled_tokenizer_is_scanned_once():
    """Every level of a search has two plans; scanning the vocabulary takes longer than writing most of them."""
    one = text_table(load_tokenizer("cl100k_base"))
    assert text_table(load_tokenizer("cl100k_base")) is one
    assert text_table(load_tokenizer("o200k_base")) is not one
