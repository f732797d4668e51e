"""The figures of runs both ways, and what the way through adds to each. The pair of runs is the unit.

A pair is one run each way, of requests with the same lengths at the same instants. *added* is the mean of the pairs'
differences: for a mean of latencies the delay that the gateway adds to a request on average, for a percentile the
difference of that percentile of both ways (not the percentile of the delay). Where calls are part of sessions, latencies
are over the calls and sessions that both runs of a pair have (`common_calls`).

A closed loop sends fewer requests the longer they take. In a mix with one, its share of the requests differs between the
ways, and with it the latencies of all classes together, whatever the gateway adds: what it adds is known by class then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from fastllmload.compare.between import change_between, without_variation
from fastllmload.compare.change import Change, undecided
from fastllmload.compare.comparison import Comparison, Row, measured, only_bounded, with_holm
from fastllmload.compare.figure import (
    CLASS,
    LATENCIES_OF,
    OF_REASONING,
    OF_SESSIONS,
    OTHER_NAMES,
    PARTS,
    RATES_OF,
    STATISTICS,
    ComparedFigure,
    figure_of,
    gaps_of,
    has_gaps,
    known_names,
    mix_notes,
    parsed,
    slots_of_a_mix,
    weighed_otherwise,
)
from fastllmload.compare.side import Side
from fastllmload.documents.comparison import SideFigure
from fastllmload.documents.fields import known
from fastllmload.documents.overhead import AddedFigure
from fastllmload.documents.run import RunDocument
from fastllmload.errors import InputError
from fastllmload.overhead.common_calls import Values, has_sessions, over_common_calls

USUAL = (
    *(f"{statistic}_ttft_ms" for statistic in ("mean", "p50", "p90", "p99")),
    *(f"{statistic}_{metric}_ms" for metric in ("tpot", "itl", "e2e") for statistic in ("mean", "p50", "p99")),
    "output_tok_s",
    "req_s",
    "success_rate",
)
CONNECTIONS = (
    ComparedFigure("p50_connect_ms", "rtt_ms", "p50", "ms"),
    ComparedFigure("p50_handshake_ms", "handshake_ms", "p50", "ms"),
)
MEAN_MAKESPAN = "mean_session_makespan_ms"
FEWEST = 2  # pairs from which there is an interval
CACHE_APART = 0.02  # of the prompt tokens
LATENCIES = (
    "ttft", "ttft_sched", "ttft_any", "ttft_any_sched", "ttfb", "ttfb_sched", "tpot", "tpot_any", "itl", "e2e", "e2e_sched",
    "gen_duration", "jitter", "max_pause", "session_makespan", "session_stretch", "session_first_action",
    "session_model_time", "session_tool_time",
)  # fmt: skip
VALUES = (
    "output_tok_s", "req_s", "input_tok_s", "success_rate", "completion_rate", "fail_rate", "request_goodput", "sessions_s",
    "session_goodput",
)  # fmt: skip


def check_names(names: Sequence[str], classes: Sequence[str] = ()) -> None:
    """InputError for a figure that is not compared, of all requests or of one of *classes*; before anything is measured."""
    for name in names:
        of_class, slash, rest = name.rpartition("/")
        statistic, metric, _ = parsed(rest)
        if slash and of_class not in classes:
            has = f"its classes are {', '.join(classes)}" if classes else "it has no classes"
            raise InputError("figure-unknown", f"{name!r} is not a figure of this overhead: {has}")
        latencies, values = (LATENCIES_OF[CLASS], tuple(RATES_OF[CLASS])) if slash else (LATENCIES, VALUES)
        if OTHER_NAMES.get(rest, rest) not in values and (statistic is None or metric not in latencies):
            shown = f"a statistic of {', '.join(latencies)}, such as p95_ttft_ms; {', '.join(values)}"
            raise InputError("figure-unknown", f"{name!r} is not a figure of an overhead; write {shown}")


def overhead_of(direct: Side, through: Side, names: Sequence[str], also: Sequence[str]) -> Comparison:
    """Run k of *direct* and run k of *through* are a pair. *names*: see `check_names`."""
    documents = [*direct.documents, *through.documents]
    figures = [named(name, documents[0]) for name in names] or usual(documents)
    figures += [figure for name in also if (figure := named(name, documents[0])) not in figures]
    shared = over_common_calls(figures, direct, through) if has_sessions([direct, through]) else {}
    rows = [row_of(figure, direct, through, shared.get(figure)) for figure in figures]
    return Comparison(direct, through, "paired", with_holm(rows), [], {}, notes(direct, through))


def named(name: str, document: RunDocument) -> ComparedFigure:
    """The figure *name*; one without a value where the runs do not have it, as TTFT of embeddings."""
    try:
        return figure_of(name, document)
    except InputError:
        statistic, metric, unit = parsed(name)
        return ComparedFigure(name, metric or name, STATISTICS.get(statistic or ""), unit or "ms")


def usual(documents: Sequence[RunDocument]) -> list[ComparedFigure]:
    """The usual figures that every run has."""
    more = OF_REASONING if any(document.counts.reasoned for document in documents) else ()
    have = known_names(documents[0])
    figures = [figure_of(name, documents[0]) for name in (*USUAL, *more, MEAN_MAKESPAN, *OF_SESSIONS) if name in have]
    figures = [each for each in figures if weighed_otherwise(each, documents) is None]
    figures += [figure_of(name, documents[0]) for name in of_classes(documents[0])]
    return [each for each in (*figures, *CONNECTIONS) if all(each.value(one) is not None for one in documents)]


def of_classes(document: RunDocument) -> Iterator[str]:
    """TTFT and the mean end-to-end latency of each class of a mix; the latter's percentiles where answers are not tokens.
    With a closed class also the shares of successes.
    """
    mixed = [(name, one) for name, one in (document.classes or {}).items() if one.endpoint_type is not None]
    for name, one in mixed[:PARTS]:
        metric = "ttft" if one.ttft.n else "e2e"
        figures = dict.fromkeys([*(f"{each}_{metric}_ms" for each in ("mean", "p50", "p99")), "mean_e2e_ms"])
        more = ["success_rate"] if slots_of_a_mix([document]) else []
        yield from (f"{name}/{figure}" for figure in [*figures, *more])


def row_of(figure: ComparedFigure, direct: Side, through: Side, shared: tuple[Values, Values] | None = None) -> Row:
    """*shared*: the values over the calls that both runs of each pair have; None: those of run.json."""
    a, b = (measured(figure, *each) for each in zip((direct, through), shared or (None, None), strict=True))
    open_ended = only_bounded(figure, direct, through)
    if a.value is None or b.value is None:
        change = undecided(a.value, b.value, "a run has no such value")
    elif open_ended is not None:
        change = undecided(None, None, open_ended)
    elif (weighed := weighed_otherwise(figure, direct.documents)) is not None:
        change = undecided(None, None, weighed)
    elif len(a.runs) < FEWEST:
        change = undecided(a.value, b.value, "one pair does not show how the difference varies")
    elif (fixed := without_variation(figure, *(values_of(side) for side in (a, b)))) is not None:
        change = undecided(a.value, b.value, fixed)
    else:
        x, y = (values_of(side) for side in (a, b))
        change = within_clocks(figure, direct, through, change_between(x, y, "paired", range(len(x))))
    return Row(figure, a, b, change)


def values_of(side: SideFigure) -> list[float]:
    return [value for value in side.runs if value is not None]


def within_clocks(figure: ComparedFigure, direct: Side, through: Side, change: Change) -> Change:
    """*change*, widened by the mean bounds of the runs' times; unchanged where a run does not have them."""
    bounds = [
        [found for one in side.documents if (found := figure.clocks(one)) is not None] for side in (direct, through)
    ]
    value = figure.value(direct.first.document)
    if value is None or any(len(found) < len(direct.runs) for found in bounds):
        return change
    (below, above), (new_below, new_above) = ([fmean(ends) for ends in zip(*found, strict=True)] for found in bounds)
    return change.measured_within(new_below + above, new_above + below, value)


def notes(direct: Side, through: Side) -> list[str]:
    """Caveats: the client's verdicts, caches that were not alike, gaps that are not comparable, closed classes of a mix."""
    found = list(mix_notes(direct.documents))
    for side in (direct, through):
        doubtful = [run.verdict for run in side.runs if run.verdict != "valid"]
        if doubtful:
            each = " and ".join(f"{verdict} in {doubtful.count(verdict)}" for verdict in dict.fromkeys(doubtful))
            found.append(f"the client's certificate is {each} of {len(side.runs)} runs {side.name}")
    found += unlike_caches(direct, through)
    kinds = [sorted({gaps_of(one) for one in side.documents if has_gaps(one)}) for side in (direct, through)]
    if kinds[0] != kinds[1] and all(kinds):
        found.append(
            f"tokens come otherwise through the gateway: gaps are {', '.join(kinds[0])} directly and "
            f"{', '.join(kinds[1])} through it (spec/metrics 3.4), so the values of itl are not comparable"
        )
    return found


def unlike_caches(direct: Side, through: Side) -> Iterator[str]:
    """The pair whose runs found the most unlike shares of their prompts in the server's cache, if by CACHE_APART: a cache
    that the run before has filled, or a gateway that sends sessions elsewhere, is part of what is added then.
    """
    ways = ([known(one.metric("cached_prompt_share").value) for one in side.documents] for side in (direct, through))
    pairs = [(k, a, b) for k, (a, b) in enumerate(zip(*ways, strict=True), 1) if a is not None and b is not None]
    apart = sorted(((abs(b - a), k, a, b) for k, a, b in pairs if abs(b - a) >= CACHE_APART), reverse=True)
    for _, k, a, b in apart[:1]:
        yield (
            f"the server found {100 * a:.3g} % of the prompt tokens in its cache directly and {100 * b:.3g} % through the "
            f"gateway in pair {k}, and {len(apart)} of {len(direct.runs)} pairs differ so: that is part of what is added"
        )


def added_figures(comparison: Comparison) -> dict[str, AddedFigure]:
    return {row.figure.name: added(row) for row in comparison.rows}


def added(row: Row) -> AddedFigure:
    change, clocks = row.change, row.change.clocks or (0.0, 0.0)
    pairs = zip(row.base.runs, row.new.runs, strict=True)
    ends = change.interval
    return AddedFigure(
        unit=row.figure.unit,
        higher_is_better=row.figure.higher_is_better,
        direct=row.base.value,
        through=row.new.value,
        added=change.difference,
        interval=ends,
        by_chance=None if ends is None else (ends[0] + clocks[0], ends[1] - clocks[1]),
        clocks=change.clocks,
        by_pair=tuple(new - base for base, new in pairs if base is not None and new is not None),
        p_holm=change.p_holm,
        result=row.result,
        why_not=change.why_not,
    )
