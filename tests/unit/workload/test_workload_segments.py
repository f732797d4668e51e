"""What prompts share, and conversations of which a part is kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.workload.calls import After, TracedCall, build_graph
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.sharing.histories import entire_histories
from fastllmload.workload.sharing.ideal import ideal_hits
from fastllmload.workload.sharing.messages import message_hits, message_segments
from fastllmload.workload.sharing.segments import Segments, common_tokens, segments_of
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

SIZE = 16


def call(name: str, tokens: int, *after: str, **values: Any) -> TracedCall:
    """A call of the agent that its first letter names; *after*: ids of calls."""
    blocks = values.pop("blocks", None)
    found = TracedCall(name, f"line {name}", name[0], tokens, 5, [After(one) for one in after], start_ns=0)
    found.blocks = None if blocks is None else np.array(blocks)
    for field, value in values.items():
        setattr(found, field, value)
    return found


def built(*calls: TracedCall) -> CallGraph:
    return build_graph("test", "0" * 64, calls, block_tokens=SIZE)


def texts(segments: Segments) -> list[list[tuple[int, int]]]:
    """Each prompt, token by token."""
    return [
        [
            (int(segments.number[place]), token)
            for place in range(low, high)
            for token in range(int(segments.used[place]))
        ]
        for low, high in pairwise(segments.first.tolist())
    ]


def alike(one: list[Any], other: list[Any]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(st.data())
def test_common_tokens_are_those_of_the_texts(data: st.DataObject) -> None:
    """Against the longest common beginning with any earlier prompt of the group, token by token."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    piece = st.integers(0, len(sizes) - 1).flatmap(lambda one: st.tuples(st.just(one), st.integers(1, sizes[one])))
    prompts = data.draw(st.lists(st.lists(piece, max_size=4), min_size=1, max_size=6))
    flat = np.array([one for prompt in prompts for one in prompt], np.int64).reshape(-1, 2)
    first = np.cumsum([0, *map(len, prompts)])
    segments = Segments(first, flat[:, 0], flat[:, 1], np.array(sizes))
    group = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(prompts), max_size=len(prompts))))
    order = np.array(data.draw(st.permutations(range(len(prompts)))))
    found = common_tokens(segments, group, order)
    written = [[part for part, tokens in enumerate_parts(prompt)] for prompt in prompts]
    for at, one in enumerate(order.tolist()):
        earlier = [other for other in order[:at].tolist() if group[other] == group[one]]
        expected = max((alike(written[one], written[other]) for other in earlier), default=0)
        assert found[one] == expected


def enumerate_parts(prompt: list[tuple[int, int]]) -> list[tuple[tuple[Any, ...], int]]:
    """A token is known by all before it: a part of a segment is followed by other text than more of it."""
    found = []
    for place, (number, used) in enumerate(prompt):
        found += [((tuple(prompt[:place]), number, token), used) for token in range(used)]
    return found


def test_a_first_prompt_shares_what_the_recording_had_cached() -> None:
    """With the latest of its parent, or the longest first prompt before it of the same model; a reply is new text."""
    graph = built(
        call("a0", 50, prefix_tokens=30, model="m"),
        call("a1", 90, "a0", prefix_tokens=60, model="m"),
        call("k0", 40, "a1", prefix_tokens=35, model="m", parent="a"),
        call("b0", 70, prefix_tokens=45, model="m", start_ns=1),
        call("c0", 70, prefix_tokens=45, model="other", start_ns=2),
        call("d0", 80, prefix_tokens=75, model="m", start_ns=3),
    )
    segments = segments_of(graph, len(graph))
    prompt = dict(zip(graph.call_id, texts(segments), strict=True))
    assert {name: len(one) for name, one in prompt.items()} == {
        "a0": 50, "a1": 90, "k0": 40, "b0": 70, "c0": 70, "d0": 80,
    }  # fmt: skip
    assert alike(prompt["a0"], prompt["a1"]) == 50 and alike(prompt["a1"], prompt["k0"]) == 35
    assert alike(prompt["a0"], prompt["b0"]) == 45 and alike(prompt["c0"], prompt["a0"]) == 0
    assert alike(prompt["d0"], prompt["b0"]) == 70
    assert segments.missing == 30 + 10 + 45 + 5
    hits = ideal_hits(graph)
    assert hits is not None
    by_call = dict(zip(graph.call_id, hits.hit_tokens.tolist(), strict=True))
    assert by_call == {"a0": 0, "a1": 50, "k0": 35, "b0": 45, "c0": 0, "d0": 70}
    assert ideal_hits(graph, capacity=10) is None
    alone = ideal_hits(graph, order=np.flatnonzero(np.array(graph.call_id) != "a0"))
    assert alone is not None and alone.hit_tokens[graph.call_id.index("a1")] == 0, "what is not sent is in no cache"


def test_copies_of_a_session_have_first_prompts_of_their_own() -> None:
    graph = built(
        call("a0", 50, prefix_tokens=0, model="m"), call("b0", 70, prefix_tokens=45, model="m", start_ns=1)
    ).copies(np.array([0, 1, 0, 1]))
    prompts = texts(segments_of(graph, 4))
    assert [alike(prompts[0], one) for one in prompts[1:]] == [45, 0, 0] and alike(prompts[2], prompts[3]) == 45


def additions(kept: int = -1) -> CallGraph:
    """a: blocks 1 2, then 5 and 8 tokens; then a2 keeps *kept* of these blocks and adds 6. b: block 1, then it adds 5."""
    return built(
        call("a0", 32, blocks=[1, 2]),
        call("a1", 24, "a0", blocks=[5], context="a0"),
        call("a2", 16, "a1", blocks=[6], context="a1", kept=kept),
        call("b0", 32, blocks=[1, 7], start_ns=1),
        call("b1", 16, "b0", blocks=[5], context="b0", start_ns=2),
    )


def test_additions_follow_the_planned_reply() -> None:
    graph = additions()
    prompt = dict(zip(graph.call_id, texts(segments_of(graph, 5)), strict=True))
    assert {name: len(one) for name, one in prompt.items()} == {"a0": 32, "a1": 61, "a2": 82, "b0": 32, "b1": 53}
    assert alike(prompt["a0"], prompt["a1"]) == 32 and alike(prompt["a1"], prompt["a2"]) == 61
    assert prompt["b1"][-SIZE:] == prompt["a1"][37 : 37 + SIZE], "an equal block is equal text, after other text too"
    hits = ideal_hits(graph, planned=True)
    assert hits is not None
    assert dict(zip(graph.call_id, hits.hit_tokens.tolist(), strict=True)) == {
        "a0": 0, "a1": 32, "a2": 61, "b0": 16, "b1": 32,
    }  # fmt: skip
    real = ideal_hits(graph)
    assert real is not None and real.hit_tokens.sum() == (32 + 5) + (32 + 5 + 24 + 5) + 16 + (32 + 5)


@pytest.mark.parametrize(
    ("kept", "continued", "blocks", "hit"),
    [(0, -1, [], 0), (1, -1, [1], 16), (2, -1, [1, 2], 32), (3, 0, [5], 32 + 5 + 16)],
)
def test_a_part_of_the_blocks_is_kept(kept: int, continued: int, blocks: list[int], hit: int) -> None:
    """After the third block are 8 more tokens and a reply: what is kept ends in front of them, or in front of the reply."""
    graph = additions(kept)
    found, moved = entire_histories(graph)
    at = graph.call_id.index("a2")
    assert found.context[at] == continued and moved[at] == SIZE * len(blocks)
    known = {1: 0, 2: 1, 5: 2, 6: 3, 7: 4}
    assert found.blocks_of(at).tolist() == [known[one] for one in [*blocks, 6]] and found.input[at] == 16 + moved[at]
    if continued >= 0:
        edges = zip(found.edge_from.tolist(), found.edge_to.tolist(), strict=True)
        assert (continued, at) in set(edges), "it waits for the reply that it continues"
    for planned in (False, True):
        hits = ideal_hits(graph, planned=planned)
        assert hits is not None and (hits.hit_tokens[at], hits.tokens[at]) == (hit, hit + 16)


def said(*texts_of: str, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for text in texts_of]


def conversation(kept: int, **values: Any) -> CallGraph:
    """The prompt of y has 5 messages: a system prompt and a question, the reply to x, and two more."""
    return built(
        call("x", 0, messages=[{"role": "system", "content": "s"}, *said("q1")]),
        call("y", 0, "x", messages=said("q2", "q3"), context="x"),
        call("z", 0, "y", messages=said("new"), context="y", kept=kept, **values),
    )


@pytest.mark.parametrize(
    ("kept", "continued", "contents"),
    [
        (0, -1, ["new"]), (1, -1, ["s", "new"]), (2, -1, ["s", "q1", "new"]), (3, 0, ["new"]), (4, 0, ["q2", "new"]),
        (5, 0, ["q2", "q3", "new"]), (6, 1, ["new"]),
    ],
)  # fmt: skip
def test_a_part_of_the_messages_is_kept(kept: int, continued: int, contents: list[str]) -> None:
    graph, _ = entire_histories(conversation(kept))
    assert graph.messages is not None and graph.context[2] == continued and (graph.kept == -1).all()
    assert [one["content"] for one in graph.messages[2] or ()] == contents
    assert ideal_hits(conversation(kept)) is None


def test_a_kept_reply_stays_in_its_place() -> None:
    """A message of the assistant without content is in place of the reply; one with content is sent instead of it."""

    def kept(opening: dict[str, Any], number: int) -> tuple[int, list[Any]]:
        graph = built(
            call("x", 0, messages=said("q1")),
            call("y", 0, "x", messages=[opening, *said("a")], context="x"),
            call("z", 0, "y", messages=said("new"), context="y", kept=number),
        )
        found, _ = entire_histories(graph)
        assert found.messages is not None
        return int(found.context[2]), [one["content"] for one in found.messages[2] or ()]

    open_reply = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}
    assert kept(open_reply, 2) == (0, [None, "new"]) and kept(open_reply, 3) == (0, [None, "a", "new"])
    assert kept({"role": "assistant", "content": "own"}, 2) == (-1, ["q1", "own", "new"])


def test_what_cannot_be_kept_is_refused() -> None:
    with raises_code("call-graph-invalid", "call z", "7 messages", "call y", "6"):
        entire_histories(conversation(7))
    with raises_code("call-graph-invalid", "call a2", "4 blocks", "call a1", "3"):
        entire_histories(additions(4))
    with raises_code("call-graph-invalid", "call y", "call x"):
        entire_histories(built(call("x", 0, messages=said("q")), call("y", 0, messages=said("q"), context="x")))
    short = built(
        call("x", 20, blocks=[1, 2]), call("y", 16, "x", blocks=[3], context="x"),
        call("z", 16, "y", blocks=[4], context="y", kept=2),
    )  # fmt: skip
    with raises_code("option-not-applicable", "call z", "--history planned"):
        entire_histories(short)
    assert segments_of(short, 3).tokens().tolist() == [20, 41, 36]
    mixed = conversation(2)
    assert mixed.messages is not None
    mixed.messages[0] = None
    with raises_code("option-not-applicable", "call x"):
        entire_histories(mixed)


def test_messages_are_shared_up_to_the_first_token_that_differs() -> None:
    """y begins as x and has another last word; z is a shorter x, after which nothing is shared; v has other tools."""
    tokenizer = load_tokenizer("cl100k_base")
    assert tokenizer is not None

    def of(*contents: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": one} for one in contents]

    graph = built(
        call("x", 0, messages=of("one two three", "four")),
        call("y", 1, messages=of("one two five", "four")),
        call("z", 2, messages=of("one two", "four")),
        call("v", 3, messages=of("one two"), tools=[{"type": "function"}]),
        call("w", 4, messages=of("one two three", "four five")),
    )
    found = message_hits(
        graph, np.arange(5), np.arange(5), message_segments(graph, np.arange(5), tokenizer), planned=True
    )
    assert found.tokens.tolist() == [4, 4, 3, 2, 5]
    assert found.hit_tokens.tolist() == [0, 2, 2, 0, 4]
    bounded = [
        message_hits(
            graph, np.arange(5), np.arange(5), message_segments(graph, np.arange(5), tokenizer), True, most
        ).hit_tokens
        for most in (4, 100)
    ]
    assert [one.tolist() for one in bounded] == [[0, 2, 2, 0, 2], found.hit_tokens.tolist()]


def test_the_server_s_own_replies_count_as_cached() -> None:
    tokenizer = load_tokenizer("cl100k_base")
    assert tokenizer is not None
    said = [{"role": "user", "content": "one two"}]
    own = [{"role": "assistant", "content": "six"}, *said]
    graph = built(
        call("x", 0, output=9, messages=said),
        call("y", 0, "x", messages=said, context="x"),
        call("z", 0, "x", messages=own, context="x"),
    )
    planned, real = (
        message_hits(graph, np.arange(3), np.arange(3), message_segments(graph, np.arange(3), tokenizer), one)
        for one in (True, False)
    )
    assert planned.tokens.tolist() == real.tokens.tolist() == [2, 13, 5]
    assert planned.hit_tokens.tolist() == [0, 2, 2] and real.hit_tokens.tolist() == [0, 11, 2]
    again = message_hits(
        graph,
        np.tile(np.arange(3), 2),
        np.arange(6),
        message_segments(graph, np.tile(np.arange(3), 2), tokenizer),
        planned=True,
    )
    assert again.whole_tokens.tolist() == [0, 2, 2, 1, 2, 4], "a round has replies of its own"
