"""Descriptions: the numbers of a plan, and how many samples its percentiles will have."""

import pytest
from golden_file import same_as_golden
from support.plan_builder import asked, build

from fastllmload.plan.description.facts import LengthFigures, PercentileSamples, figures
from fastllmload.plan.description.text import describe_as_text

FIXED = {
    "load__arrival": "constant",
    "workload__isl": "12",
    "workload__osl": "3",
    "workload__tokenizer": "none",
}


def test_open_loop(tmp_path):
    """200 requests in 10 s, of which the first second is not part of the window."""
    plan = build(tmp_path, asked(**FIXED))
    found = figures(plan)
    expected = {"requests": 200, "pool": None, "duration_s": 10.0, "input_tokens": 2400, "output_tokens": 600}
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.input_length == LengthFigures(mean=12.0, min=12.0, max=12.0, p50=12.0, p95=12.0, p99=12.0)
    more_s = pytest.approx(45.6)  # of 912 requests, of which a tenth is ramp: 820 / 0.9, at 20/s
    assert found.samples["p99"] == PercentileSamples(180, 1000, more_requests=912, more_s=more_s)
    assert found.samples["p95"].enough and not found.samples["p99"].enough


@pytest.mark.parametrize(("count", "p99", "p999"), [(999, False, False), (1000, True, False), (10_000, True, True)])
def test_sufficiency(tmp_path, count, p99, p999):
    """P99 needs 1,000 samples and P99.9 10,000; a count-bounded phase has no ramp."""
    plan = build(tmp_path, asked(**FIXED, duration=None, load__num_requests=count))
    found = figures(plan)
    assert (found.samples["p99"].enough, found.samples["p999"].enough) == (p99, p999)
    assert found.samples["p50"].samples == count
    assert found.duration_s == pytest.approx((count - 1) / 20.0)


def test_quantiles_are_observed_lengths(tmp_path):
    """Nearest-rank quantiles of the lengths in the plan."""
    plan = build(tmp_path, asked(duration=None, load__num_requests=1000))
    ranked = sorted(plan.input_tokens.tolist())
    lengths = figures(plan).input_length
    assert (lengths.p50, lengths.p95, lengths.p99) == (ranked[499], ranked[949], ranked[989])


def test_counts_of_a_closed_loop_are_unknown(tmp_path):
    """If only time ends a closed loop, the target decides, and values are None."""
    found = figures(build(tmp_path, asked(rate=None, load__concurrency=4, workload__isl="2")))
    assert found.pool == 2000
    assert all(getattr(found, name) is None for name in ("requests", "input_tokens", "output_tokens", "samples"))


def test_text(tmp_path):
    """Every line of the plain form, digests aside."""
    plan = build(tmp_path, asked(**FIXED, workload__prefix_len=4, workload__num_prefixes=2))
    lines = describe_as_text(plan).splitlines()
    same_as_golden("plan/description.txt", "\n".join(lines[:-2]) + "\n")
    assert lines[-2:] == [f"schedule       {plan.schedule_hash}", f"digest         {plan.digest}"]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {"rate": None, "load__concurrency": 4},
            [
                "closed loop, 4 in flight",
                "a pool of 2,000 starts again",
                "decided by the target",
                "a freed slot",
            ],
        ),
        (
            {"rate": float("inf"), "duration": None, "load__num_requests": 3},
            ["inf, all at once", "to the last send"],
        ),
        ({"load__arrival": "onoff:2,8"}, ["onoff, 20/s, off_s 8, on_s 2"]),
        ({"load__arrival": "bursty"}, ["bursty, 20/s, burstiness 0.25"]),
    ],
)
def test_text_of_other_loads(tmp_path, change, lines):
    """Loads in words."""
    text = describe_as_text(build(tmp_path, asked(**change)))
    for line in lines:
        assert line in text


def test_text_of_no_warmup(tmp_path):
    """A plan without requests can be described too."""
    plan = build(tmp_path, asked(load__warmup_requests=0), phase="warmup")
    assert "input length   none" in describe_as_text(plan)
