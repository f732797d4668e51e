"""Tokens of chunks: what the server says of each event makes every gap between tokens its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from truth_bench import MEASURE, Measured, measure, until_quiet

from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.times import token_times

pytestmark = pytest.mark.clock

LOAD = ["--rate", "20", "--duration", "3", "--isl", "32", "--osl", "41", "--warmup", "5"]
SLACK = 0.005  # of a mean


def true_gaps_ms(measured: Measured) -> np.ndarray:
    """Gaps between consecutive tokens of the requests in the latency population, as the server sent them."""
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == MEASURE)
    content = measured.truth.content()
    content = content[content["phase"] == number]
    window = measured.document["window"]
    rows = measured.run.rows
    inside = (rows["t_submit"] >= window["w0_ns"]) & (rows["t_submit"] < window["w1_ns"]) & (rows["phase"] == 1)
    gaps = [np.diff(content["t_ns"][content["key"] == key]) for key in rows["request"][inside]]
    return np.concatenate(gaps) / 1e6


def close(stated: float, true: float) -> bool:
    return abs(stated - true) <= SLACK * true


@pytest.mark.parametrize(
    ("fault", "option", "name"), [("multi_token:1:3", "B", "itl_b"), ("empty_text:1:20", "auto", "itl")]
)
def test_gaps_between_tokens_are_the_servers_own(tmp_path: Path, fault: str, option: str, name: str) -> None:
    """Three tokens in an event, or every twentieth one in an event without text, whose words come with the next."""

    def check(directory: Path) -> tuple[bool, str]:
        measured = measure(
            directory, [*LOAD, "--itl-option", option], ttft_ms=20.0, itl_ms=6.0, phase="spread", faults=(fault,)
        )
        assert measured.exit_code == 0, measured.said
        assert measured.document["target"]["continuous_usage"] is True
        ours, theirs = measured.joined()
        run = measured.run
        times = token_times(run, run.rows["phase"] == 1, count_tokens(run))
        assert (times.count == 41).all() and list(ours["completion_tokens"]) == list(theirs["output_tokens"])
        metrics, true = measured.document["metrics"], true_gaps_ms(measured)
        assert metrics[name]["n"] == len(true)
        found = metrics[name]["mean"], metrics["tpot"]["mean"], float(true.mean())
        return close(found[0], found[2]) and close(found[1], found[2]), f"{name}, tpot, truth in ms: {found}"

    until_quiet(tmp_path, check)


@pytest.mark.parametrize(
    ("extra", "asked"),
    [
        ('{"stream_options":{"include_usage":true}}', True),
        ('{"stream_options":{"include_usage":true},"return_token_ids":false,"logprobs":true}', None),
    ],
    ids=["token ids", "logprobs"],
)
def test_gaps_are_the_servers_own_where_events_list_their_tokens(
    tmp_path: Path, extra: str, asked: bool | None
) -> None:
    """Without usage in every event the probe asks for token ids; logprobs are read where the user asks for them."""

    def check(directory: Path) -> tuple[bool, str]:
        measured = measure(
            directory, [*LOAD, "--extra-body", extra], ttft_ms=20.0, itl_ms=6.0, phase="spread",
            faults=("empty_text:1:20",),
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        target = measured.document["target"]
        assert (target["continuous_usage"], target["token_ids"]) == (False if asked else None, asked)
        metrics, true = measured.document["metrics"], true_gaps_ms(measured)
        assert metrics["itl"]["n"] == len(true)
        found = metrics["itl"]["mean"], metrics["tpot"]["mean"], float(true.mean())
        return close(found[0], found[2]) and close(found[1], found[2]), f"itl, tpot, truth in ms: {found}"

    until_quiet(tmp_path, check)


def test_unknown_token_counts_are_bounded(tmp_path: Path) -> None:
    """Without usage in every event the gaps are too long by the chunks without text, and the bound has the truth."""

    def check(directory: Path) -> tuple[bool, str]:
        measured = measure(
            directory, [*LOAD, "--continuous-usage", "off"], ttft_ms=20.0, itl_ms=6.0, phase="spread",
            faults=("empty_text:1:20",),
        )  # fmt: skip
        assert measured.exit_code == 0, measured.said
        metrics, true = measured.document["metrics"], float(true_gaps_ms(measured).mean())
        empty, stated = metrics["empty_chunks"], metrics["itl"]["mean"]
        assert empty["value"] == pytest.approx(2 / 41) and stated > 1.04 * true
        assert "had no text" in measured.said
        return close(empty["itl_mean_least"], true), f"least {empty['itl_mean_least']}, stated {stated}, truth {true}"

    until_quiet(tmp_path, check)
