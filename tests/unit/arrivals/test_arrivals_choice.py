"""Arrival processes are selected by their command-line names."""

import math
import re

import pytest

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.documents.plan import ArrivalFacts
from fastllmload.errors import InputError


@pytest.mark.parametrize(
    ("arrival", "burstiness", "name", "parameters"),
    [
        ("poisson", 1.0, "poisson", {}),
        ("poisson", 0.5, "gamma", {"burstiness": 0.5}),
        ("constant", 1.0, "constant", {}),
        ("uniform", 1.0, "uniform", {}),
        ("gamma", 1.0, "gamma", {"burstiness": 1.0}),
        ("gamma", 4.0, "gamma", {"burstiness": 4.0}),
        ("bursty", 1.0, "bursty", {"burstiness": 0.25}),
        ("bursty", 0.1, "bursty", {"burstiness": 0.1}),
        ("onoff", 1.0, "onoff", {"on_s": 1.0, "off_s": 1.0}),
        ("onoff:2,8", 1.0, "onoff", {"on_s": 2.0, "off_s": 8.0}),
    ],
)
def test_names(arrival, burstiness, name, parameters):
    """Every name gives its process, with the parameters that a report states."""
    process = choose_arrivals(arrival, 5.0, burstiness)
    assert (process.name, process.parameters()) == (name, ArrivalFacts(**parameters))


def test_infinite_rate():
    """`inf` sends all at once with any process."""
    assert choose_arrivals("poisson", math.inf).name == "inf"


@pytest.mark.parametrize(
    ("arrival", "rate", "burstiness", "words"),
    [
        ("poison", 5.0, 1.0, ["--arrival", "poison", "poisson"]),
        ("poisson:3", 5.0, 1.0, ["--arrival", "poisson:3"]),
        ("poisson", 0.0, 1.0, ["--rate", "0"]),
        ("poisson", -1.0, 1.0, ["--rate", "-1"]),
        ("poisson", -math.inf, 1.0, ["--rate", "-inf"]),
        ("poisson", math.nan, 1.0, ["--rate", "nan"]),
        ("poisson", 1e9, 1.0, ["--rate", "1e\\+09"]),
        ("gamma", 5.0, 0.0, ["--burstiness", "0"]),
        ("gamma", 5.0, math.inf, ["--burstiness", "inf"]),
        ("onoff:1", 5.0, 1.0, ["onoff:1", "onoff:2s,8s"]),
        ("onoff:0,1", 5.0, 1.0, ["onoff:0,1"]),
        ("onoff:a,b", 5.0, 1.0, ["onoff:a,b"]),
        ("onoff:1,inf", 5.0, 1.0, ["onoff:1,inf"]),
    ],
)
def test_refusals(arrival, rate, burstiness, words):
    """One sentence that names the option and the value."""
    with pytest.raises(InputError) as caught:
        choose_arrivals(arrival, rate, burstiness)
    for word in words:
        assert re.search(word, str(caught.value))
    assert "\n" not in str(caught.value)
