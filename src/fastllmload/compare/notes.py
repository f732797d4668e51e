"""Notes on a comparison: what a reader has to know of the runs, their servers and their sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fastllmload.compare.between import LEAST_RUNS
from fastllmload.compare.change import SIGNIFICANT
from fastllmload.compare.figure import gaps_of, has_gaps, mix_notes
from fastllmload.compare.paired import BETWEEN_RUNS, PAIRED
from fastllmload.compare.side import Side, manifest_diff
from fastllmload.compare.within import WITHIN
from fastllmload.documents.fields import known
from fastllmload.errors import coded
from fastllmload.records.integrity import find_damage
from fastllmload.report.text.control import changed_texts
from fastllmload.report.text.doubts import doubt_texts
from fastllmload.report.text.tokens import alone_text, legend, reasoned
from fastllmload.report.text.verdict import special_states

SHOWN = 5  # keys of pages of servers in a note
UNLIKE_SESSIONS = 0.02  # difference of the shares of sessions that failed from which completed ones are not alike


def notes_on(base: Side, new: Side, test: str) -> list[str]:
    """All notes on the comparison of *base* with *new* by the kind of *test*, each once, in the order of the report."""
    runs = (*base.runs, *new.runs)
    own = [run for run in runs if run.foreign is None]
    notes = [text for run in own for text in find_damage(run.folder, run.document, contents=False).values()]
    notes += foreign_notes(base, new)
    notes += [f"{run.folder} is incomplete ({run.document.status})" for run in runs if not run.complete]
    doubtful: dict[str, list[str]] = {}
    for run in own:
        if run.verdict != "valid":
            doubtful.setdefault(run.verdict, []).append(str(run.folder))
    notes += [
        f"the client's certificate is {verdict}: {', '.join(dict.fromkeys(names))}"
        for verdict, names in doubtful.items()
    ]
    kinds = [sorted({gaps_of(run.document) for run in side.runs if has_gaps(run.document)}) for side in (base, new)]
    if kinds[0] != kinds[1] and all(kinds) and len(own) == len(runs):
        both = " and ".join(f"{', '.join(kind)} of {side.name}" for kind, side in zip(kinds, (base, new), strict=True))
        notes.append(f"gaps of different kinds: {both} (spec/metrics 3.4), so the values of itl are not comparable")
    fewest = min(len(base.runs), len(new.runs))
    if test in (WITHIN, PAIRED):
        allowed = f" ({100 * BETWEEN_RUNS:g} % standard error is allowed for it)" if test == PAIRED else ""
        notes.append(
            f"one run a side: the variation between runs is not known{allowed}; give 3 or more a side to measure it"
        )
    elif fewest < LEAST_RUNS:
        notes.append(f"{fewest} runs on a side: the variation between runs is uncertain; give at least {LEAST_RUNS}")
    notes += [f"{run.folder}: {text}" for run in own for text in doubt_texts(run.document)]
    notes += server_notes(base, new)
    notes += mix_notes([run.document for run in own])
    notes += session_notes(base, new)
    notes += reasoning_notes(base, new)
    notes += repeated_arrivals([base, new])
    shared = [str(run.folder) for run in base.runs if any(run.same_as(each) for each in new.runs)]
    if shared:
        notes.append(f"the same run is on both sides: {', '.join(shared)}")
    n, m = len(base.runs), len(new.runs)
    if test == "mann-whitney" and (p := 2 / math.comb(n + m, n)) >= SIGNIFICANT:
        notes.append(
            f"Mann-Whitney of {n} against {m} runs gives p = {p:.2g} at least: no difference can be significant"
        )
    return list(dict.fromkeys(notes))


def session_notes(base: Side, new: Side) -> Iterator[str]:
    """That another share of the sessions has a makespan on each side: a session of many calls fails more often."""
    shares = [without_end(side) for side in (base, new)]
    if None in shares or abs(float(shares[0] or 0) - float(shares[1] or 0)) < UNLIKE_SESSIONS:
        return
    each = " and ".join(f"{share:.1%} of {side.name}" for side, share in zip((base, new), shares, strict=True))
    yield coded(
        "sessions-unlike",
        f"of the sessions that began, {each} failed: figures of sessions are of those that were completed, which are the "
        "shorter ones where calls fail alike",
    )


def without_end(side: Side) -> float | None:
    """Share of the sessions in the window of which a call failed; None without sessions."""
    figures = [run.document.sessions for run in side.runs if run.foreign is None]
    begun = [known(one.begun) for one in figures if one is not None]
    failed = [known(one.failed) for one in figures if one is not None]
    total = sum(each or 0 for each in begun)
    return sum(each or 0 for each in failed) / total if total else None


def foreign_notes(base: Side, new: Side) -> Iterator[str]:
    """What a result file of another tool cannot show."""
    found = [run for side in (base, new) for run in side.runs if run.foreign is not None]
    for run in found:
        assert run.foreign is not None
        yield from run.foreign.notes
    tools = ", ".join(sorted({run.foreign.tool for run in found if run.foreign is not None}))
    if found:
        yield (
            f"foreign: {', '.join(str(run.folder) for run in found)} of {tools}: whether its client was the bottleneck, and "
            "whether both sides were sent the same requests, is not known"
        )
    if found and len(found) < len(base.runs) + len(new.runs):
        yield f"{tools} counts all requests of its measurement; ours are those submitted in the window"


def server_notes(base: Side, new: Side) -> list[str]:
    """Notes on servers that say other things of themselves on both sides, changed during a run, or were profiled."""
    runs = [run for run in (*base.runs, *new.runs) if run.foreign is None]
    differing = [key for key in manifest_diff([base, new]) if key.startswith("server/")]
    notes = [f"{run.folder}: {headline}" for run in runs for headline in special_states(run.document)]
    notes += [f"{run.folder}: {text}" for run in runs for text in changed_texts(run.document)]
    if differing:
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        listed = ", ".join(differing[:SHOWN])
        sentence = f"the servers of both sides say different things of themselves: {listed}{more}"
        notes.append(coded("server-differs", sentence))
    return notes


def reasoning_notes(base: Side, new: Side) -> list[str]:
    """Notes on figures that include reasoning, and on answers that are all reasoning; empty without reasoning."""
    thinking = [side for side in (base, new) if any(reasoned(run.document) for run in side.runs)]
    other = [side for side in (base, new) if side not in thinking]
    runs = (*base.runs, *new.runs)
    notes = [text for run in runs if (text := legend(run.document)) is not None]
    if thinking and other:
        notes.append(
            f"answers of {thinking[0].name} have reasoning, those of {other[0].name} do not: ttft includes the reasoning "
            "on one side only; ttft_any is comparable"
        )
    return notes + [f"{run.folder}: {text}" for run in runs if (text := alone_text(run.document)) is not None]


def repeated_arrivals(sides: Sequence[Side]) -> list[str]:
    """A note for each side with several runs at the same random arrivals."""
    return [
        f"{side.name}: {len(side.runs)} runs at {count} arrival sequence{'s' * (count > 1)}: the result does not cover "
        "other arrivals; repeat with --repetition 1, 2 ..."
        for side in sides
        if (count := side.independent) < len(side.runs)
    ]
