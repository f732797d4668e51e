"""The synthetic sequence: the IETF's vectors, quotas, prefixes, and content that no prefix cache can hit."""

import hashlib
import json
import random

import numpy as np
import pytest

from fastllmload.workload.lengths import Fixed, LogNormal, Uniform
from fastllmload.workload.synthetic import BATCH_TOKENS, Independent, Prefixes, Quota, Synthetic, salted

SPAN = 100_256
UNIFORM = Uniform(128, 512), Uniform(64, 256)


def requests(synthetic, quota):
    """(numbers, output tokens) per request."""
    for batch in synthetic.batches(quota):
        assert batch.prompt.sum() == len(batch.drawn)
        at = 0
        for size, output in zip(batch.prompt.tolist(), batch.output.tolist(), strict=True):
            yield batch.drawn[at : at + size].tolist(), output
            at += size


def test_ietf_uniform_vectors():
    """Seed 42 gives IETF A.1.4's sequence: lengths, first ids, sums, and the hash of 1,000 requests."""
    drawn = list(requests(Synthetic(Independent(*UNIFORM), SPAN, 42), Quota(1000)))
    lengths = [(len(ids), output) for ids, output in drawn]
    assert lengths[:5] == [(455, 92), (454, 131), (171, 125), (200, 82), (207, 83)]
    assert lengths[5:10] == [(147, 141), (461, 205), (141, 170), (297, 133), (174, 164)]
    assert [ids[:3] for ids, _ in drawn[:2]] == [[3278, 97196, 36048], [21178, 97154, 57912]]
    assert drawn[0][0][-1] == 17146
    assert (sum(a for a, _ in lengths), sum(b for _, b in lengths)) == (315_346, 160_203)
    digest = hashlib.sha256()
    for ids, output in drawn:
        line = {"input_tokens": ids, "max_tokens": output, "temperature": 0.0}
        digest.update((json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n").encode())
    assert digest.hexdigest() == "34180eba7194d423789fc0e49c248e7d784f39c2c595ef9208c8b59021118649"


def test_ietf_skewed_vectors():
    """Seed 42 gives the specified lengths and first ids of Synthetic-Skewed, and those of plain Python."""
    synthetic = Synthetic(Independent(LogNormal(5.5, 1.0, 32, 4096), LogNormal(4.5, 1.2, 16, 2048)), SPAN, 42)
    drawn = list(requests(synthetic, Quota(5)))
    assert [(len(ids), output) for ids, output in drawn] == [
        (350, 16),
        (231, 484),
        (143, 23),
        (32, 57),
        (62, 73),
    ]
    assert [ids[0] for ids, _ in drawn[:4]] == [36048, 69615, 55108, 98759]
    # The field's list gives 6590 for request 4; that is the third id which its own definition draws there.
    assert drawn[4][0][:3] == [60515, 23819, 6590]


def test_skewed_equals_plain_python():
    """Lengths through the normal distribution and ids interleave as random.Random draws them."""
    stream, lengths = random.Random(42), (LogNormal(5.5, 1.0, 32, 4096), LogNormal(4.5, 1.2, 16, 2048))
    for ids, output in requests(Synthetic(Independent(*lengths), SPAN, 42), Quota(300)):
        size, expected = (length.draw(stream) for length in lengths)
        assert (len(ids), output) == (size, expected)
        assert ids == [stream.randint(0, SPAN - 1) for _ in range(size)]


def test_equals_plain_python():
    """Over several batches, the sequence is that of random.Random, number for number."""
    stream = random.Random("5/x")
    total = 0
    for ids, output in requests(Synthetic(Independent(Uniform(1, 9000), Fixed(3)), 777, "5/x"), Quota(80)):
        size = stream.randint(1, 9000)
        assert output == 3
        assert ids == [stream.randint(0, 776) for _ in range(size)]
        total += size
    assert total > 2 * BATCH_TOKENS


def test_prompt_larger_than_a_batch():
    """A single prompt may be longer than a batch."""
    drawn = list(requests(Synthetic(Independent(Fixed(BATCH_TOKENS + 5), Fixed(1)), 10, 1), Quota(2)))
    assert [len(ids) for ids, _ in drawn] == [BATCH_TOKENS + 5] * 2


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (Quota(0), 0),
        (Quota(7), 7),
        (Quota(7, output_tokens=10), 7),
        (Quota(7, output_tokens=101), 11),
        (Quota(0, output_tokens=100), 10),
        (Quota(1000, input_tokens=95), 5),
        (Quota(1000, input_tokens=95, at_least=20), 20),
        (Quota(3, input_tokens=95, at_least=20), 3),
    ],
)
def test_quotas(quota, expected):
    """Prompts of 20 and answers of 10 tokens: a quota ends at the first request that meets it."""
    assert len(list(requests(Synthetic(Independent(Fixed(20), Fixed(10)), 100, 1), quota))) == expected


def test_contents_share_no_prefix():
    """No two of 20,000 prompts agree in their first four numbers, nor with those of the warm-up's stream."""
    starts = set()
    for seed in (42, "42/warmup"):
        starts |= {
            tuple(ids[:4]) for ids, _ in requests(Synthetic(Independent(Fixed(8), Fixed(1)), SPAN, seed), Quota(20_000))
        }
    assert len(starts) == 40_000


def test_shared_prefixes():
    """Every prompt starts with one of the prefixes, all are used about equally, and the own part stays what
    it was.
    """
    prefixes = Prefixes(30, 5, SPAN, "42/prefix")
    plain = list(requests(Synthetic(Independent(*UNIFORM), SPAN, 42), Quota(2000)))
    shared = list(requests(Synthetic(Independent(*UNIFORM), SPAN, 42, prefixes), Quota(2000)))
    assert [(ids[30:], output) for ids, output in shared] == plain
    _, counts = np.unique([ids[:30] for ids, _ in shared], axis=0, return_counts=True)
    assert len(counts) == 5
    assert counts.min() > 300
    again = list(requests(Synthetic(Independent(*UNIFORM), SPAN, 42, Prefixes(30, 5, SPAN, "42/prefix")), Quota(2000)))
    assert shared == again


@pytest.mark.parametrize("span", [SPAN, 200])
def test_salts_change_every_word_and_no_length(span):
    """Shared prefixes stay shared within a salt; the number of any place differs between two salts."""
    made = []
    for salt in range(40):
        drawn = Synthetic(Independent(*UNIFORM), span, 42, Prefixes(16, 2, span, "p"))
        made.append(list(salted(drawn.batches(Quota(20)), salt, span)))
    for one in made[1:]:
        for mine, first in zip(one, made[0], strict=True):
            assert (mine.prompt == first.prompt).all() and (mine.output == first.output).all()
            assert mine.drawn.max() < span and (mine.drawn != first.drawn).all()
    firsts = np.array([[batch.drawn[0] for batch in one] for one in made])
    assert len(np.unique(firsts[:, 0])) == 40
