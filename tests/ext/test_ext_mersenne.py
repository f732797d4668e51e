"""Mersenne draws what random.Random draws, call for call."""

import random

import numpy as np
import pytest

from fastllmload._ext.plan.mersenne import Mersenne


@pytest.mark.parametrize("seed", [0, 42, -7, 2**80, "42/arrivals", "42/warmup", ""])
def test_mixed_calls_equal_python(seed):
    """Any order of random, randint and below gives Python's numbers, across several renewals of the state."""
    ours, python, order = Mersenne(seed), random.Random(seed), random.Random(1)
    for _ in range(3000):
        kind = order.randrange(3)
        if kind == 0:
            assert ours.random() == python.random()
        elif kind == 1:
            low, width = order.randrange(-1000, 1000), 1 << order.randrange(31)
            assert ours.randint(low, low + width) == python.randint(low, low + width)
        else:
            out = np.zeros(7, dtype=np.uint32)
            ours.below(100_256, out, 2, 6)
            assert out.tolist() == [0, 0, *(python.randint(0, 100_255) for _ in range(4)), 0]


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 2**31, 2**32 - 1])
def test_below_for_every_bit_length(n):
    """Powers of two and their neighbours take as many bits as Python takes."""
    out = np.empty(2000, dtype=np.uint32)
    Mersenne(5).below(n, out, 0, 2000)
    python = random.Random(5)
    assert out.tolist() == [python.randrange(n) for _ in range(2000)]


def test_bad_calls_are_refused():
    """An empty range, a slice outside of the array and a seed of another type raise and draw nothing."""
    stream, out = Mersenne(1), np.zeros(4, dtype=np.uint32)
    with pytest.raises(ValueError, match="at least 1"):
        stream.below(0, out, 0, 4)
    for start, stop in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(IndexError):
            stream.below(10, out, start, stop)
    for low, high in ((5, 4), (0, 2**32)):
        with pytest.raises(ValueError, match="randint"):
            stream.randint(low, high)
    with pytest.raises(TypeError):
        Mersenne(1.5)
    assert stream.random() == random.Random(1).random()
    assert out.tolist() == [0, 0, 0, 0]
