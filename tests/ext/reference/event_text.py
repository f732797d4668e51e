"""JSON texts of events in every spelling: hypothesis draws what is said, a seed how it is written down."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import strategies as st

Pairs = list[tuple[str, Any]]  # an object whose keys may repeat


class Number(str):
    """Written into the text as it stands."""


def spell_string(text: str, how: random.Random) -> str:
    escapes = how.random() < 0.4
    written = []
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        if escapes and how.random() < 0.5:
            units = character.encode("utf-16-be", "surrogatepass")
            plain = "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
        elif character == "/" and escapes:
            plain = "\\/"
        elif 0xD800 <= ord(character) < 0xE000:
            plain = f"\\u{ord(character):04x}"
        written.append(plain)
    return '"' + "".join(written) + '"'


def spell(value: Any, how: random.Random) -> str:
    """*value* as JSON; objects are `Pairs` or dicts."""

    def gap() -> str:
        return how.choice(["", "", "", " ", "\n", "\t \r"]) if loose else ""

    loose = how.random() < 0.3
    escaped_keys = how.random() < 0.03
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return spell_string(value, how)
    if isinstance(value, dict) or (isinstance(value, list) and value and all(type(item) is tuple for item in value)):
        pairs = list(value.items()) if isinstance(value, dict) else value
        inside = ",".join(
            f"{gap()}{spell_string(k, how) if escaped_keys else json.dumps(k)}{gap()}:{gap()}{spell(v, how)}"
            for k, v in pairs
        )
        return "{" + inside + gap() + "}"
    if isinstance(value, list):
        return "[" + gap() + ",".join(gap() + spell(item, how) + gap() for item in value) + "]"
    return json.dumps(value)


numbers = st.one_of(
    st.integers(-5, 2**40).map(str),
    st.sampled_from(["0", "-0", "1.5", "1e3", "1E-2", "0.0", "2147483647", "2147483648", "1e400", "7.0", "9" * 301]),
).map(Number)
texts = st.one_of(
    st.sampled_from(
        [
            "",
            "",
            " token",
            "a",
            " ",
            "\n\n",
            "\t",
            "\u2003",
            "\u00a0",
            "\u3000 ",
            "\u200b",
            "\u1680x",
            "é",
            "日本",
            "😀",
            "\x1c",
        ]
    ),
    st.text(max_size=8),
    st.text(st.sampled_from(' \n\\"/\x1f\x85\u2028\ud83d\ude00\udc00a'), max_size=6),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)


def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(scalars, st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2))


anything = nest(nest(scalars))


def weighted(*branches: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of the strategies, as often as its weight says; `one_of` would count all their branches alike."""
    return st.sampled_from([number for number, (weight, _) in enumerate(branches) for _ in range(weight)]).flatmap(
        lambda number: branches[number][1]
    )


def mostly(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """*strategy*, now and then null, seldom of another type."""
    return weighted((50, strategy), (6, st.none()), (1, anything))


def members(always: dict[str, Any], sometimes: dict[str, Any]) -> st.SearchStrategy[Pairs]:
    """Pairs in any order, with keys of no meaning between them and now and then a repeated key."""
    unknown = st.tuples(st.sampled_from(["x", "logprobs", "content_filter", "obfuscation", "é"]), anything)
    more = weighted((4, st.just([])), (1, st.tuples(unknown).map(list)))
    fixed = st.fixed_dictionaries(always, optional=sometimes).map(lambda drawn: list(drawn.items()))
    both = st.tuples(fixed, more).map(lambda parts: parts[0] + parts[1])
    repeated = both.flatmap(lambda pairs: weighted((60, st.just(pairs)), (1, st.just(pairs + pairs[:1]))))
    return weighted((1, repeated), (1, repeated.flatmap(st.permutations)))


arguments = weighted((8, texts), (1, st.sampled_from([{}, {"a": 1}])))
functions = members({}, {"name": mostly(texts), "arguments": mostly(arguments)})
calls = st.lists(mostly(members({}, {"index": numbers, "function": mostly(functions)})), max_size=2)
carriers = members(
    {},
    {
        "role": mostly(st.sampled_from(["assistant", ""])),
        "content": mostly(texts),
        "reasoning_content": mostly(texts),
        "reasoning": mostly(texts),
        "refusal": mostly(texts),
        "tool_calls": mostly(calls),
        "function_call": mostly(functions),
    },
)
reasons = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter", "eos_token", "MAX_TOKENS", "abort", "wandered", "", "st\u00f6p"]
)
indices = weighted(
    (30, st.just(Number("0"))),
    (3, st.sampled_from([Number("1"), Number("2"), Number("-1"), Number("0.0"), Number("9" * 12)])),
    (1, anything),
)
choices = members(
    {"delta": mostly(carriers), "text": mostly(texts), "message": mostly(carriers)},
    {
        "index": indices,
        "finish_reason": weighted((3, st.none()), (2, mostly(reasons))),
        "logprobs": weighted(
            (2, anything),
            (
                3,
                members(
                    {},
                    {
                        "content": mostly(st.lists(anything, max_size=3)),
                        "tokens": mostly(st.lists(anything, max_size=3)),
                    },
                ),
            ),
        ),
        "token_ids": weighted((1, anything), (4, st.lists(st.integers(0, 99999), max_size=4))),
    },
)
counts = weighted((20, st.integers(0, 99999)), (1, numbers))
usages = members(
    {},
    {
        "prompt_tokens": mostly(counts),
        "completion_tokens": mostly(counts),
        "total_tokens": mostly(counts),
        "prompt_tokens_details": mostly(members({}, {"cached_tokens": mostly(counts)})),
        "completion_tokens_details": mostly(members({}, {"reasoning_tokens": mostly(counts)})),
    },
)
events = members(
    {"choices": mostly(weighted((12, st.tuples(choices).map(list)), (1, st.lists(mostly(choices), max_size=2))))},
    {
        "id": texts,
        "object": weighted((30, st.just("chat.completion.chunk")), (1, st.just("error")), (1, anything)),
        "usage": mostly(usages),
        "created": numbers,
    },
)
failures = members(
    {"error": mostly(st.one_of(texts, st.just({"message": "no"}), numbers))},
    {"id": texts, "choices": anything},
)
spelled = st.tuples(weighted((16, events), (1, failures), (1, anything)), st.integers(0, 2**32)).map(
    lambda drawn: spell(drawn[0], random.Random(drawn[1])).encode("utf-8", "surrogatepass")
)
