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
from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload.documents.experiment import Probe, WarmUpEntry
from fastllmload.documents.fields import known
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.settings import at_concurrency, changed
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.settings import RunSettings

LEAST, QUICK_LEAST = (100, 10_000), (16, 400)  # requests, tokens
SLOTS = 8  # closed loop of the warm-up, or the level's concurrency if that is lower
PAIRS, VARIATION = 3, 0.10
BATCH, MOST_PROBES, ROUNDS = 5, 20, 3
PROBE_TOKENS = 64
PROBE_WORDS = (
    "Write one plain paragraph that explains to a new colleague how a queue forms in front of a busy counter, what "
    "makes it grow, what makes it shrink again, and why the people at its end wait so much longer than those at its "
    "head."
)


NO_BOUNDS: dict[str, Any] = {  # load fields that a preparation run does not take from its level
    "duration": None, "repetition": 0, "max_concurrency": None, "max_prefill": None, "arrival": "poisson", "burstiness": 1.0,
}  # fmt: skip
NOT_VERIFIED = f"the warm-up was not verified: probes still varied by {VARIATION:.0%} or more (IETF 4.5.2)"


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
    found = replace(run_rounds(experiment, settings, quick), before_level=experiment.next_level)
    if found.verified is False:
        experiment.console.warn("warmup-not-verified", NOT_VERIFIED)
    failed = earlier is not None and earlier.verified is False  # finished levels were measured after it
    shown = replace(found, before_level=None, folders=(), verified=False if failed else found.verified)
    experiment.journal.put(warmup=shown, warmups=(*experiment.journal.document.warmups, found))
    note_unverified(experiment)


def note_unverified(experiment: Experiment) -> None:
    """Warn of an unverified warm-up, also if an earlier start did it."""
    done = experiment.journal.document.warmup
    if done is not None and done.verified is False:
        experiment.journal.warn("warmup-not-verified", NOT_VERIFIED, public=True)


def run_rounds(experiment: Experiment, settings: RunSettings, quick: bool) -> WarmUpEntry:
    """Rounds of workload and probes until the probes are stable."""
    before = next(iter(probes(experiment, settings, 1)), None)
    requests = tokens = 0
    folders: list[str] = []
    for number in range(1, 1 + (1 if quick else ROUNDS)):
        ok, received, runs = run_workload(experiment, settings, number, *(QUICK_LEAST if quick else LEAST))
        requests, tokens, folders = requests + ok, tokens + received, folders + runs
        sent, verified = verify(experiment, settings, BATCH if quick else MOST_PROBES)
        if verified:
            break
    return WarmUpEntry(
        requests=requests, tokens=tokens, rounds=number, probe_before=before, probes=tuple(sent), verified=verified,
        folders=tuple(folders),
    )  # fmt: skip


def run_workload(
    experiment: Experiment, settings: RunSettings, number: int, least: int, least_tokens: int
) -> tuple[int, int, list[str]]:
    """Run the workload until *least* requests are complete and *least_tokens* received; each run sends new requests.
    *number*: of the round. Returns requests, tokens, and the runs' folders.
    """
    ok, tokens, folders = 0, 0, []
    while ok < least or tokens < least_tokens:
        missing = least - ok if ok < least else max(10, -(-(least_tokens - tokens) * ok // max(1, tokens)))
        slots = min(SLOTS, settings.load.concurrency or SLOTS)
        asked = changed(
            at_concurrency(settings, slots, **NO_BOUNDS, num_requests=missing, warmup_requests=0),
            workload={"stream": f"warmup/{number}/{ok}"},
        )
        document = experiment.preparation("warm-up", asked)
        folders.append(experiment.last_preparation.name)
        done, received = int(known(document.completed) or 0), int(known(document.total_output_tokens) or 0)
        ok, tokens = ok + done, tokens + received
        if not done or document.counts.cancelled == missing:
            break  # no answers: the level itself will report what is wrong
    return ok, tokens, folders


def verify(experiment: Experiment, settings: RunSettings, most: int) -> tuple[list[Probe], bool]:
    """Send probes in batches until the last pairs are stable or *most* were sent. Returns them, and whether they are."""
    sent: list[Probe] = []
    while len(sent) < most:
        batch = probes(experiment, settings, BATCH)
        sent += batch
        if not batch or stable(sent):
            return sent, bool(batch)
    return sent, False


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
        at_concurrency(settings, 1, **NO_BOUNDS, num_requests=count, warmup_requests=0),
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
