"""How many requests ended how, and how many tokens they had, over the whole measure phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastllmload.metrics import success
from fastllmload.metrics.reasoning import reasoning_counts
from fastllmload.metrics.tpot import came_whole
from fastllmload.metrics.users import gave_up, left_by_plan
from fastllmload.metrics.window import Populations
from fastllmload.records.layout import CUT_AFTER_END, FINISH_OTHER, OK
from fastllmload.records.run import Run
from fastllmload.records.token_counts import SOURCES, TokenCounts


def counts_of(run: Run, chosen: Populations, tokens: TokenCounts) -> dict[str, Any]:
    """`counts` of run.json: requests by status, tokens of those that are ok, and where the token counts come from."""
    rows = run.rows[chosen.measured]
    statuses = success.by_status(rows)
    left = int((left_by_plan(rows) | gave_up(rows)).sum())
    ok = chosen.measured & (run.rows["status"] == OK)
    unsent = never_reached(run, len(rows))
    sources = np.bincount(tokens.source[ok], minlength=len(SOURCES))
    return {
        "planned": len(rows) + unsent,
        "dispatched": len(rows) - statuses["not_sent"],
        **statuses,
        "not_sent": statuses["not_sent"] + unsent,
        "cut_after_end": int((rows["error"] == CUT_AFTER_END).sum()),
        "unknown_finish": int(((rows["finish"] == FINISH_OTHER) & (rows["status"] == OK)).sum()),
        "failed": len(rows) - statuses["ok"] - statuses["not_sent"] - statuses["in_flight"] - left,
        "left": left,
        "explicit_errors": success.explicit_errors(rows),
        "submitted_in_window": int(chosen.submitted.sum()),
        "latency_population": int(chosen.latency.sum()),
        "came_whole": int((chosen.latency & came_whole(run)).sum()),
        "input_tokens": int(np.maximum(tokens.input[ok], 0).sum()),
        "output_tokens": int(np.maximum(tokens.output[ok], 0).sum()),
        "output_tokens_source": {name or "none": int(sources[n]) for n, name in enumerate(SOURCES)},
        **reasoning_counts(run, chosen, tokens),
        "events": len(run.events),
    }


def never_reached(run: Run, sent: int) -> int:
    """Requests of a closed loop's plan that no slot came to, because the run or a worker ended before: they were due at no
    instant, so they have no rows. 0 where the plan's length was no bound, and of conversations, whose next turns wait for
    replies.
    """
    plan = run.manifest.get("plan") or {}
    description = plan.get("description") or {}
    load = description.get("load") or {}
    bounded = load.get("loop") == "closed" and load.get("duration_s") is None and not load.get("cycles")
    if not bounded or description.get("conversations") or run.phase("measure") is None:
        return 0
    return max(0, int(plan.get("requests") or 0) - sent)
