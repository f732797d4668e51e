"""Warm-up and its verification (IETF 4.5, spec/procedures 0.7).

The workload runs until 100 requests are complete and 10,000 tokens were received. Then probes are sent to the idle system,
one at a time, until three pairs in a row differ by less than 10 %. All requests come from streams of the seed that no
measured request uses. Probes repeat one prompt: with prefix caching they measure a cached prefill.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from fastllmload.documents.experiment import Probe, WarmUpEntry
from fastllmload.documents.fields import known
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import at_concurrency, changed
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.settings import RunSettings

REQUESTS, TOKENS = 100, 10_000
QUICK_REQUESTS, QUICK_TOKENS = 16, 400
SLOTS = 8  # closed loop of the warm-up, or the level's concurrency if that is lower
PAIRS, VARIATION = 3, 0.10
BATCH, MOST_PROBES, ROUNDS = 5, 20, 3
PROBE_TOKENS = 64
PROBE_WORDS = (
    "Write one plain paragraph that explains to a new colleague how a queue forms in front of a busy counter, what "
    "makes it grow, what makes it shrink again, and why the people at its end wait so much longer than those at its "
    "head."
)


NOT_VERIFIED = f"the warm-up was not verified: probes still varied by {VARIATION:.0%} or more (IETF 4.5.2)"


@dataclass
class WarmUp:
    """Result of a warm-up, for procedure.json. *verified*: None if no probe was sent; the entry `warmup` is False if any
    warm-up was. *folders*: those of its runs, in `preparation/`.
    """

    requests: int = 0
    tokens: int = 0
    rounds: int = 0
    probe_before: Probe | None = None
    probes: list[Probe] = field(default_factory=list)
    verified: bool | None = None
    folders: list[str] = field(default_factory=list)

    def entry(self) -> WarmUpEntry:
        return WarmUpEntry(
            requests=self.requests, tokens=self.tokens, rounds=self.rounds, probe_before=self.probe_before,
            probes=tuple(self.probes), verified=self.verified,
        )  # fmt: skip


def warm_up(experiment: Experiment, settings: RunSettings, quick: bool = False) -> None:
    """Warm the system up with the workload of *settings* before the next level that is measured.

    `--warmup 0` leaves it out, which is noted as a deviation; a cold start has none.
    """
    if not experiment.warm:
        if not experiment.cold:
            experiment.journal.deviate("the warm-up was left out (IETF 4.5.1)", public=True)
        return
    note_unverified(experiment)
    experiment.prepare("warmup", f"warm-up with {settings.workload.name}", lambda: run(experiment, settings, quick))


def run(experiment: Experiment, settings: RunSettings, quick: bool) -> None:
    """Warm up and record it in procedure.json, with a warning if it was not verified."""
    earlier = experiment.journal.document.warmup
    found = run_rounds(experiment, settings, quick)
    one = msgspec.structs.replace(found.entry(), before_level=experiment.next_level, folders=tuple(found.folders))
    if found.verified is False:
        experiment.console.warn("warmup-not-verified", NOT_VERIFIED)
    if earlier is not None and earlier.verified is False:
        found.verified = False  # finished levels were measured after it
    experiment.journal.put(warmup=found.entry(), warmups=(*experiment.journal.document.warmups, one))
    note_unverified(experiment)


def note_unverified(experiment: Experiment) -> None:
    """Warn of an unverified warm-up, also if an earlier start did it."""
    done = experiment.journal.document.warmup
    if done is not None and done.verified is False:
        experiment.journal.warn("warmup-not-verified", NOT_VERIFIED, public=True)


def run_rounds(experiment: Experiment, settings: RunSettings, quick: bool) -> WarmUp:
    """Rounds of workload and probes until the probes are stable."""
    found = WarmUp()
    found.probe_before = next(iter(probes(experiment, settings, 1)), None)
    for _ in range(1 if quick else ROUNDS):
        found.rounds += 1
        run_workload(experiment, settings, found, *((QUICK_REQUESTS, QUICK_TOKENS) if quick else (REQUESTS, TOKENS)))
        verify(experiment, settings, found, quick)
        if found.verified:
            break
    return found


def run_workload(experiment: Experiment, settings: RunSettings, found: WarmUp, least: int, least_tokens: int) -> None:
    """Run the workload until *least* requests are complete and *least_tokens* received; each run sends new requests."""
    ok = tokens = 0
    while ok < least or tokens < least_tokens:
        missing = least - ok if ok < least else max(10, -(-(least_tokens - tokens) * ok // max(1, tokens)))
        stream = f"warmup/{found.rounds}/{ok}"
        slots = min(SLOTS, settings.load.concurrency or SLOTS)
        asked = changed(
            at_concurrency(settings, slots, **no_bounds(), num_requests=missing, warmup_requests=0),
            workload={"stream": stream},
        )
        document = experiment.preparation("warm-up", asked)
        found.folders.append(experiment.last_preparation.name)
        done, received = int(known(document.completed) or 0), int(known(document.total_output_tokens) or 0)
        ok, tokens = ok + done, tokens + received
        if not done or document.counts.cancelled == missing:
            break  # no answers: the level itself will report what is wrong
    found.requests += ok
    found.tokens += tokens


def no_bounds() -> dict[str, Any]:
    """Load fields that a preparation run does not take from its level."""
    return {"duration": None, "repetition": 0, "max_concurrency": None, "arrival": "poisson", "burstiness": 1.0}


def verify(experiment: Experiment, settings: RunSettings, found: WarmUp, quick: bool) -> None:
    """Send probes in batches until the last pairs are stable or enough were sent."""
    found.probes = []
    while len(found.probes) < (BATCH if quick else MOST_PROBES):
        batch = probes(experiment, settings, BATCH)
        if not batch:
            found.verified = False
            return
        found.probes += batch
        found.verified = stable(found.probes)
        if found.verified:
            return


def stable(series: Sequence[Probe]) -> bool:
    """Whether PAIRS consecutive pairs anywhere in the series vary by less than VARIATION, in TTFT and in e2e."""
    good = [
        all(abs(after - before) < VARIATION * before for before, after in zip(times(a), times(b), strict=True))
        for a, b in itertools.pairwise(series)
    ]
    return any(all(good[k : k + PAIRS]) for k in range(len(good) - PAIRS + 1))


def times(probe: Probe) -> tuple[float, float]:
    """TTFT and e2e in ms; NaN, which nothing is near to, if unknown."""
    return math.nan if probe.ttft_ms is None else probe.ttft_ms, math.nan if probe.e2e_ms is None else probe.e2e_ms


def probes(experiment: Experiment, settings: RunSettings, count: int) -> list[Probe]:
    """TTFT and e2e of *count* equal requests, sent one at a time into the idle system."""
    path = experiment.folder / "probe.jsonl"
    line = json.dumps({"prompt": PROBE_WORDS, "output_tokens": PROBE_TOKENS})
    path.write_text(f"{line}\n" * BATCH)
    asked = changed(
        at_concurrency(settings, 1, **no_bounds(), num_requests=count, warmup_requests=0),
        workload={
            "name": "custom", "dataset_path": str(path), "stream": "probe", "isl": None, "osl": None, "prefix_len": 0,
            "num_prefixes": 1, "prompt_form": "text",
        },
    )  # fmt: skip
    experiment.preparation("probe", asked)
    rows = load(experiment.last_preparation).rows
    ok = rows[(rows["phase"] == layout.MEASURE) & (rows["status"] == layout.OK)]
    ok = ok[np.argsort(ok["t_submit"], kind="stable")]
    return [probe_of(row) for row in ok]


def probe_of(row: Any) -> Probe:
    """TTFT and e2e of one request; if the answer is all reasoning, TTFT is to its first reasoning token."""
    first = row["t_first"] or row["t_any"]
    return Probe(ttft_ms=float(first - row["t_submit"]) / 1e6, e2e_ms=float(row["t_end"] - row["t_submit"]) / 1e6)
