"""What a truth test may conclude: a tail only on a quiet host, a median always."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import truth_bench
from truth_bench import until_quiet, within


@pytest.mark.parametrize(
    ("p50", "p99", "hiccup_us", "judged"),
    [(5, 300, 20, True), (5, 300, 900, True), (5, 700, 20, False), (5, 700, 900, None), (31, 700, 900, False)],
)
def test_a_late_tail_says_nothing_where_a_sleeper_was_late(
    p50: float, p99: float, hiccup_us: float, judged: Any
) -> None:
    measured: Any = SimpleNamespace(document={"certificate": {"host": {"hiccup_p99_us": hiccup_us}}})
    assert within(measured, {"ttft": np.array([p50, p99])}, 30, 400) is judged


def test_only_tries_of_which_none_could_be_judged_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth_bench, "PAUSES_S", (0, 0, 0))
    for verdicts, ended in (
        ((None, False, True), None), ((None, None, None), pytest.skip.Exception), ((None, False, None), AssertionError)
    ):  # fmt: skip
        tries = iter(verdicts)
        if ended is None:
            until_quiet(Path("run"), lambda directory, tries=tries: (next(tries), "seen"))  # type: ignore[misc]
        else:
            with pytest.raises(ended, match=r"3 times: seen \| seen \| seen"):
                until_quiet(Path("run"), lambda directory, tries=tries: (next(tries), "seen"))  # type: ignore[misc]
