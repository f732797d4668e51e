"""asiai's protocol: rates without the wait for the first token, median first, spread within prompt types only."""

from __future__ import annotations

import numpy as np
import pytest

from fastllmload.metrics.levels.asiai import Generation, MiddleAndMean, from_rows, protocol
from fastllmload.records import layout

MS = 1_000_000


def generation(tok_s: float, ttft_ms: int = 100, tokens: int = 100) -> Generation:
    return Generation(ttft_ms * MS, ttft_ms * MS + round(tokens / tok_s * 1e9), tokens)


def test_the_block_of_two_prompt_types() -> None:
    """Spread is that of ASIAI-M8: variances 1 and 8/3, whatever lies between the types."""
    runs = {"short": [generation(10), generation(12)], "long": [generation(20), generation(22), generation(24)]}
    block = protocol(runs, power_w=5.0)
    rate = block.gen_tok_s
    assert rate.median == pytest.approx(20) and rate.mean == pytest.approx(17.6)
    assert rate.pooled_std == pytest.approx((11 / 6) ** 0.5, rel=1e-6) and rate.stability == "variable"
    assert block.tok_s_per_w == pytest.approx(4.0)
    assert block.by_prompt_type["short"].gen_tok_s.median == pytest.approx(11)
    assert block.ttft_ms == MiddleAndMean(100, 100) and block.tokens == 500
    assert (block.n_runs, block.n_failed, block.throttled) == (5, 0, None)


def test_failed_and_degenerate_runs_are_counted_and_kept_out_of_averages() -> None:
    block = protocol({"short": [generation(40), None, Generation(50 * MS, 59 * MS, 3)]})
    assert block.n_failed == 1 and block.n_degenerate == 1
    assert block.gen_tok_s.mean == pytest.approx(40) and block.gen_tok_s.pooled_std is None
    assert block.by_prompt_type["short"].runs_tok_s == (pytest.approx(40), None, 0.0)


def test_nothing_measured_is_none_never_0() -> None:
    block = protocol({"short": [None, None]})
    assert block.gen_tok_s.median is block.gen_tok_s.mean is block.gen_tok_s.stability is None
    assert block.ttft_ms.median is block.power_w is block.tok_s_per_w is None and block.n_failed == 2


def test_server_figures_keep_their_own_duration() -> None:
    """Ollama's eval_duration is the generation time, even where total holds loading the model."""
    block = protocol({"code": [Generation(200 * MS, 9000 * MS, 50, gen_ns=1000 * MS)]})
    assert block.gen_tok_s.median == 50


def test_runs_from_rows() -> None:
    rows = np.zeros(3, layout.REQUEST)
    rows["status"] = [layout.OK, layout.TRUNCATED, layout.OK]
    rows["t_submit"], rows["t_first"], rows["t_last"], rows["t_end"] = 10, 10 + 3 * MS, 10 + 13 * MS, 10 + 23 * MS
    rows["t_any"] = rows["t_first"]
    rows["t_any"][2] = rows["t_first"][2] = 0
    runs = from_rows(rows, np.array([8, 8, 8]))
    assert runs == [Generation(3 * MS, 23 * MS, 8, 20 * MS), None, None]
    assert runs[0] is not None and runs[0].gen_tok_s == 400
