"""The declared token estimate and the block hashes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.sim.prompt import count
from fastllmload.workload.content.words import text_table
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ([1, 2, 3, 40000], 4),
        ([[5, 6, 7]], 3),
        ("hello", 1),
        ("hello there world", 3),
        ("incomprehensibilities", 2),  # 21 letters: two started runs of 18
        ("a, b...", 5),
        ("year 2024!", 5),  # year, the space, 202, 4, !
        ("line\nline\n\nline", 5),
        ("über", 2),
        ('say "x"', 5),
    ],
)
def test_estimates(prompt: object, tokens: int) -> None:
    assert count(json.dumps(prompt, ensure_ascii=False).encode())[0] == tokens


def test_synthetic_prompts_are_counted_exactly() -> None:
    """Each word of a synthetic prompt is one token of cl100k_base, and one to us."""
    tokenizer = load_tokenizer("cl100k_base")
    assert tokenizer is not None
    table = text_table(tokenizer)
    prompt = b"".join(table.word(number, first=number == 0) for number in range(0, table.span, 7))
    assert count(b'"' + prompt.strip() + b'"')[0] == len(range(0, table.span, 7))


def test_a_chat_message_adds_three_tokens_and_keys_add_none() -> None:
    messages = [{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "good day"}]
    assert count(json.dumps(messages).encode())[0] == (3 + 1 + 2) + (3 + 1 + 2)


def test_equal_beginnings_share_their_blocks() -> None:
    words = [f"word{'abcdefghij'[i % 10]}" for i in range(200)]
    first, hashes = count(json.dumps(" ".join(words)).encode(), 16)
    assert first == 200 and len(hashes) == 12
    longer, more = count(json.dumps(" ".join([*words, "tail"] * 2)).encode(), 16)
    assert longer == 402 and more[:12] == hashes
    words[100] = "other"
    assert (
        count(json.dumps(" ".join(words)).encode(), 16)[1][:7]
        == hashes[:6] + count(json.dumps(" ".join(words)).encode(), 16)[1][6:7]
    )
    assert count(json.dumps(" ".join(words)).encode(), 16)[1][6] != hashes[6]


def test_token_ids_hash_exactly() -> None:
    ids = list(range(100))
    _, hashes = count(json.dumps(ids).encode(), 16)
    assert len(hashes) == 6 and len(set(hashes)) == 6
    assert count(json.dumps(ids, separators=(",", ":")).encode(), 16)[1] == hashes
    ids[50] = 7
    changed = count(json.dumps(ids).encode(), 16)[1]
    assert changed[:3] == hashes[:3] and changed[3] != hashes[3]


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_is_counted_and_hashes_follow_the_count(text: str, block: int) -> None:
    tokens, hashes = count(json.dumps(text).encode(), block)
    assert tokens >= 1
    assert len(hashes) == (tokens // block if text else 0)


@given(st.binary(max_size=200))
def test_bytes_other_than_json_are_harmless(raw: bytes) -> None:
    assert count(raw, 4)[0] >= 1
