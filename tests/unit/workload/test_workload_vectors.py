"""Published vectors, and the random streams of each standard workload."""

from __future__ import annotations

import random

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.documents.plan import WorkloadDescription
from fastllmload.workload.completion import CONTEXT_TOKENS, FUNCTION, OUTPUT, Completion
from fastllmload.workload.conversation import ANSWER, QUESTION, REFERENCE, SYSTEM_TOKENS, Conversation
from fastllmload.workload.fairness import LONG, MIXES, SHORT, Classes
from fastllmload.workload.lengths import Fixed, LogNormal, Uniform
from fastllmload.workload.synthetic import Independent, Prefixes, Quota, Synthetic, draw_index, zipf
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

SPAN = 100_256
ISL, OSL = LogNormal(5.5, 1.0, 32, 4096), LogNormal(4.5, 1.2, 16, 2048)


@pytest.fixture(scope="module")
def cl100k():
    return load_tokenizer("cl100k_base")


def taken(source, count):
    """The first *count* requests."""
    found = []
    for batch in source.batches():
        found += batch
        if len(found) >= count:
            return found[:count]
    raise AssertionError("a source is endless")


def test_first_and_last_ids():
    """All first ids of the published list for Synthetic-Uniform, and the last id of request 0."""
    (batch, *_) = Synthetic(Independent(Uniform(128, 512), Uniform(64, 256)), SPAN, 42).batches(Quota(5))
    firsts = [numbers[:3].tolist() for numbers in batch.prompts()]
    assert firsts == [
        [3278, 97196, 36048], [21178, 97154, 57912], [94381, 53271, 64038], [7816, 21747, 40319], [61537, 34737, 44375],
    ]  # fmt: skip
    assert next(batch.prompts())[-1] == 17146


def test_context_lengths_of_code_completion(cl100k):
    """Ten lengths of 512 to 1,024 from stream 42/prefix."""
    found = Completion(cl100k, 42, "42/prefix")
    assert found.lengths == [808, 514, 711, 713, 558, 935, 532, 562, 661, 889]


def test_zipf_of_the_contexts():
    """p_k = k^-1.5 / 1.9953365, to the six digits that are published."""
    published = [.501169, .177190, .096450, .062646, .044826, .034100, .027061, .022149, .018562, .015848]  # fmt: skip
    assert np.diff([0.0, *zipf(10, 1.5)]).round(6).tolist() == pytest.approx(published, abs=1.1e-6)
    cumulative = zipf(3, 0.0)
    assert [draw_index(cumulative, u) for u in (1e-9, 1 / 3, 0.34, 0.67, 1.0)] == [0, 0, 1, 2, 2]


def test_quantiles_of_the_fitted_conversation():
    """The inverse distribution function meets P50, P95 and P99 of IETF A.3.2, and our values at .25, .75, .9 and .999."""

    class Given:
        def __init__(self, u):
            self.u = u

        def random(self):
            return self.u

    for law, name in ((QUESTION, "input"), (ANSWER, "output")):
        assert [law.draw(Given(u)) for u in (0.5, 0.95, 0.99)] == list(getattr(REFERENCE, name))
    assert [QUESTION.draw(Given(u)) for u in (0.25, 0.75, 0.9, 0.999)] == [76, 319, 607, 5673]
    assert [ANSWER.draw(Given(u)) for u in (0.25, 0.75, 0.9, 0.999)] == [142, 385, 603, 3381]
    assert (QUESTION.draw(Given(1e-9)), QUESTION.draw(Given(1 - 1e-9))) == (4, 8192)


@pytest.mark.parametrize("chat", [True, False])
def test_conversation(cl100k, chat):
    """Half of the prompts begin with one system prompt of 200 tokens; every count is the target."""
    requests = taken(Conversation(cl100k, 42, "42/prefix", chat=chat), 600)
    assert all(one.input_tokens == one.target for one in requests)
    shared = [one for one in requests if one.shared]
    assert {one.shared for one in shared} == {SYSTEM_TOKENS}
    assert abs(len(shared) - 300) < 4 * np.sqrt(150)
    for one in requests[:60]:
        if isinstance(one.content, str):
            assert cl100k.count(one.content) == one.input_tokens
        else:
            assert [message["role"] for message in one.content] == ["system", "user"]
            assert cl100k.count(one.content[0]["content"]) == SYSTEM_TOKENS
            assert sum(cl100k.count(message["content"]) for message in one.content) == one.input_tokens
    assert chat is any(not isinstance(one.content, str) for one in requests)


def test_no_two_questions_share_a_cached_block(cl100k):
    """The first 16 tokens differ in all of 3,000 questions of at least 16 tokens."""
    texts = [one.content for one in taken(Conversation(cl100k, 1, "1/prefix", chat=True), 6000) if not one.shared]
    starts = [tuple(ids[:16]) for ids in cl100k.encode_many(texts) if len(ids) >= 16]
    assert len(starts) > 2500
    assert len(set(starts)) == len(starts)


def test_code_completion(cl100k):
    """80 % begin with one of ten contexts byte for byte, chosen by Zipf; the others with one of their own."""
    source = Completion(cl100k, 42, "42/prefix")
    requests = taken(source, 768)
    contexts = [text for text, _ in source._contexts]
    assert all(one.input_tokens == one.target for one in requests)
    begun = [next((k for k, text in enumerate(contexts) if one.content.startswith(text)), None) for one in requests]
    assert [k is not None for k in begun] == [bool(one.shared) for one in requests]
    sharing = [k for k in begun if k is not None]
    assert abs(len(sharing) - 0.8 * 768) < 4 * np.sqrt(768 * 0.16)
    assert source.describe(WorkloadDescription(), 768).contexts.chosen == tuple(np.bincount(sharing, minlength=10))
    assert abs(sharing.count(0) / len(sharing) - 0.501) < 0.09
    for (text, _), tokens in zip(source._contexts, source.lengths, strict=True):
        assert abs(cl100k.count(text) - tokens) <= 1
    own = [one.content[:400] for one, k in zip(requests, begun, strict=True) if k is None]
    assert len(set(own)) == len(own)


def test_lengths_of_code_completion_are_drawn_as_specified(cl100k):
    """Contexts from the prefix stream, functions and answers from the workload's stream, in plain Python."""
    requests = taken(Completion(cl100k, 42, "42/prefix"), 40)
    prefix, own = random.Random("42/prefix"), random.Random(42)
    lengths = [prefix.randint(*CONTEXT_TOKENS) for _ in range(10)]
    for one in requests:
        if prefix.random() < 0.8:
            context = lengths[draw_index(zipf(10, 1.5), prefix.random())]
        else:
            context = prefix.randint(*CONTEXT_TOKENS)
        assert (one.target - context, one.output_tokens) == (FUNCTION.draw(own), OUTPUT.draw(own))


def drawn(mix, count, seed=42):
    shape, found = Classes(ISL, OSL, mix, seed), []
    stream = random.Random(seed)
    while len(found) < count:
        found.append(shape.draw(stream))
    return found


def test_fairness_classes():
    """Both rectangles are kept, the mix is 80 to 20, and the means are those of the conditional distributions."""
    found = drawn(MIXES["fairness"], 4000)
    short, long = [one for one in found if one[2] == 0], [one for one in found if one[2] == 1]
    assert all(SHORT.holds(size, answer) for size, answer, _ in short)
    assert all(LONG.holds(size, answer) for size, answer, _ in long)
    assert abs(len(short) - 3200) < 4 * np.sqrt(640)
    assert np.mean([size for size, _, _ in short]) == pytest.approx(150.9, rel=0.03)
    assert np.mean([answer for _, answer, _ in short]) == pytest.approx(71.3, rel=0.03)
    assert np.mean([size for size, _, _ in long]) == pytest.approx(1710.9, rel=0.05)
    assert np.mean([answer for _, answer, _ in long]) == pytest.approx(460.0, rel=0.05)


@pytest.mark.parametrize(("name", "rectangle"), [("fairness-short", SHORT), ("fairness-long", LONG)])
def test_fairness_of_one_class(name, rectangle):
    """A single class has number 0."""
    found = drawn(MIXES[name], 100)
    assert {kind for _, _, kind in found} == {0}
    assert all(rectangle.holds(size, answer) for size, answer, _ in found)


def test_lengths_outside_every_class_are_refused():
    """Answers of one token lie in no class: an error, not an endless search."""
    shape = Classes(ISL, Fixed(1), MIXES["fairness"], 1)
    with raises_code("length-invalid", "--isl lognormal:", "--osl 1"):
        shape.draw(random.Random(1))


def test_prefix_share_and_zipf():
    """80 % take one of five prefixes, the first most often; the others have as many tokens of their own."""
    prefixes = Prefixes(30, 5, SPAN, "42/prefix", share=0.8, exponent=1.5)
    starts = [tuple(prefixes.next()[0].tolist()) for _ in range(4000)]
    counts = sorted((starts.count(one) for one in set(starts)), reverse=True)
    assert abs(sum(counts[:5]) - 3200) < 4 * np.sqrt(640)
    assert counts[5:] == [1] * (4000 - sum(counts[:5]))
    expected = np.diff([0.0, *zipf(5, 1.5)]) * sum(counts[:5])
    assert np.abs(np.array(counts[:5]) - expected).max() < 4 * np.sqrt(expected.max())
    assert all(len(one) == 30 for one in starts)


def test_unshared_prefixes_all_differ():
    """With a share of 0 all prompts have prefixes, and all differ."""
    prefixes = Prefixes(8, 3, SPAN, "p", share=0.0)
    assert len({tuple(prefixes.next()[0].tolist()) for _ in range(500)}) == 500
