"""Length specifications: meaning, draw conventions, and one clear sentence for an invalid one."""

import math
import random
from statistics import NormalDist, median

import pytest

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.errors import InputError
from fastllmload.workload.lengths import LONGEST, Fixed, LogNormal, Normal, Uniform, parse_lengths


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("256", Fixed(256)),
        (" 1 ", Fixed(1)),
        ("4k", Fixed(4000)),
        ("uniform:128,512", Uniform(128, 512)),
        ("uniform: 1k , 1.5k", Uniform(1000, 1500)),
        ("uniform:7,7", Uniform(7, 7)),
        ("normal:550,150", Normal(550.0, 150.0)),
        ("normal:550.5,0", Normal(550.5, 0.0)),
        ("lognormal:5.5,1.0,32,4096", LogNormal(5.5, 1.0, 32, 4096)),
    ],
)
def test_specs(spec, expected):
    """Every form is parsed, and its canonical text means the same."""
    parsed = parse_lengths(spec, "--isl")
    assert parsed == expected
    assert parse_lengths(str(parsed), "--isl") == expected


@pytest.mark.parametrize(
    "spec",
    [
        "", "0", "-5", "1.5", "many", "nan", "inf", "1e99", "k", str(LONGEST + 1), "uniform", "uniform:",
        "uniform:1",
        "uniform:1,2,3", "uniform:5,4", "uniform:0,4", "uniform:a,b", "normal:550", "normal:550,-1",
        "normal:0,1",
        "normal:nan,1", "lognormal:5,1", "lognormal:5,1,0,10", "lognormal:5,1,20,10", "lognormal:5,-1,1,10",
        "zipf:1,2", ":1,2", "128,512",
    ],
)  # fmt: skip
def test_refusals(spec):
    """One sentence that names the option, the value and the accepted forms."""
    with pytest.raises(InputError) as caught:
        parse_lengths(spec, "--osl")
    message = str(caught.value)
    assert message.startswith(f"--osl {spec!r} ")
    assert "lognormal:mu,sigma,min,max" in message
    assert "\n" not in message


@pytest.mark.parametrize("lengths", [Fixed(9), Uniform(128, 512), Normal(20.0, 15.0), LogNormal(5.5, 1.0, 32, 4096)])
def test_compiled_stream_gives_the_same_lengths(lengths):
    """Drawn from Mersenne or from random.Random: the same lengths, at least 1."""
    ours, python = Mersenne("9/x"), random.Random("9/x")
    drawn = [lengths.draw(ours) for _ in range(3000)]
    assert drawn == [lengths.draw(python) for _ in range(3000)]
    assert min(drawn) >= 1
    assert all(isinstance(length, int) for length in drawn)


def test_draw_conventions():
    """One u per length: uniform by randint, normal truncated to an int, log-normal rounded half up and
    clamped.
    """
    for seed in range(200):
        z = NormalDist().inv_cdf(random.Random(seed).random())
        assert Uniform(3, 90).draw(random.Random(seed)) == random.Random(seed).randint(3, 90)
        assert Normal(5.0, 4.0).draw(random.Random(seed)) == max(1, int(5.0 + 4.0 * z))
        expected = min(300, max(20, math.floor(math.exp(4.5 + z) + 0.5)))
        assert LogNormal(4.5, 1.0, 20, 300).draw(random.Random(seed)) == expected


def test_extreme_spreads_stay_within_bounds():
    """Neither a huge sigma nor a huge mu overflows."""
    stream = random.Random(3)
    assert {LogNormal(900.0, 1.0, 1, 50).draw(stream) for _ in range(20)} == {50}
    assert {LogNormal(-900.0, 1.0, 4, 50).draw(stream) for _ in range(20)} == {4}
    assert max(Normal(10.0, 1e30).draw(stream) for _ in range(50)) == LONGEST


def test_skewed_lengths_have_the_specified_moments():
    """IETF A.2 after clamping: median 245, mean 399.6, 2.2 % at the floor."""
    stream = Mersenne(1)
    drawn = [LogNormal(5.5, 1.0, 32, 4096).draw(stream) for _ in range(60_000)]
    assert median(drawn) == pytest.approx(245, rel=0.02)
    assert sum(drawn) / len(drawn) == pytest.approx(399.6, rel=0.02)
    assert drawn.count(32) / len(drawn) == pytest.approx(0.022, abs=0.004)


def test_mean_of_lognormal_draws_within_bounds():
    """Exact: sums of the draws' own probabilities; the clamped ends carry their tails. Against 40,000 draws."""
    lengths = LogNormal(4.5, 1.2, 16, 400)
    stream = random.Random(7)
    drawn = [lengths.draw(stream) for _ in range(40_000)]
    for low, high in ((16, 400), (32, 128), (100, 1_000), (1, 20)):
        inside = [k for k in drawn if low <= k <= high]
        assert lengths.mean_within(low, high) == pytest.approx(sum(inside) / len(inside), rel=0.02)
    with pytest.raises(ValueError, match="no lengths from 500"):
        lengths.mean_within(500, 600)
