"""Concurrent request capacity (IETF 5.5): the highest concurrency at which requests complete in time without errors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from fastllmload.documents.experiment import FindingPlot, FindingSeries
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import CapacityFindings
from fastllmload.errors import InputError
from fastllmload.experiment.experiment import Experiment
from fastllmload.experiment.level.limits import combined, decision_of, judge_limit
from fastllmload.experiment.level.margins import late_of
from fastllmload.experiment.level.result import Level, LevelFinding
from fastllmload.experiment.level.settings import at_concurrency, instants, own_requests
from fastllmload.experiment.level.tables import Column, figure, success, tabulate
from fastllmload.experiment.report.findings import Findings
from fastllmload.metrics.run.success import failed_here
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.procedure.procedure_test import Conditions, ProcedureTest, shorter
from fastllmload.records import layout
from fastllmload.search.bisection import Bisection, PermanentFailure
from fastllmload.search.driver import Interval, measure_until
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision

COMPLETION = 0.99
PER_SLOT = 100  # completions per slot that a level must have
TRIES = 4  # of a level that ends with too few completions
INITIAL = 8
RESOLUTION = 16  # the answer is found to within 1/16
SERVER_LOG = "server-log"
LARGEST_LOG = 1 << 28  # bytes at its end that are searched
OOM = "out of memory|CUDA OOM|OutOfMemory"
PASSES = {Decision.PASS: True, Decision.FAIL: False}  # a key of a level


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """*slo_ttft_p99_ms* is required. A level lasts at least *duration_s* and *per_slot* completions per slot. *initial* 0:
    8, or *maximum* if that is less.
    """

    initial: int = 0
    maximum: int = 512
    output_tokens: int | None = 256
    duration_s: float = 60.0
    per_slot: int = PER_SLOT
    slo_ttft_p99_ms: float | None = None
    oom_pattern: str = OOM

    def __post_init__(self) -> None:
        if not self.initial:
            msgspec.structs.force_setattr(self, "initial", min(INITIAL, self.maximum))

    def quick(self) -> Parameters:
        return msgspec.structs.replace(self, duration_s=shorter(self.duration_s, 20, 3.0), per_slot=4)


@dataclass(frozen=True)
class CapacityLevel(LevelFinding):
    """A level with its decision and the number of its out-of-memory errors. *run*: number of its run, from 0."""

    decision: Decision
    oom: int
    run: int


COLUMNS: tuple[Column[CapacityLevel], ...] = (
    Column("Concurrency", lambda one: f"{one.level.load:g}" + (f" (run {one.run + 1})" if one.run else "")),
    success("Completion"),
    figure("ttft", "p99"),
    figure("tpot", "p99"),
    Column("Errors", lambda one: one.level.failed),
    Column("Status", lambda one: f"{one.decision}, {one.oom} out of memory" if one.oom else str(one.decision)),
)


@dataclass
class Levels:
    """The levels of a concurrency search, judged by the criteria of IETF 5.5.2."""

    experiment: Experiment
    settings: RunSettings
    parameters: Parameters
    found: Findings
    prefix: str = ""
    done: list[CapacityLevel] = field(default_factory=list)
    _counted: set[str] = field(default_factory=set)  # keys of the levels that this start measures
    _lines: int | None = None  # out-of-memory lines in the server's log after the last measured level

    def judge(self, load: float, repetition: int) -> Decision | PermanentFailure:
        """Measure the level and decide it. No repetition outvotes that memory ran out or that most requests failed."""
        key = f"{self.prefix}{load:g} slots, run {repetition + 1}"
        level, errors = self._measured(round(load), repetition, key)
        errors += self.oom_lines(key)
        failure = permanent_failure(level, errors)
        decision = Decision.FAIL if failure else judge(level, self.parameters)
        self.done.append(CapacityLevel(level, decision, errors, sum(one.level.load == level.load for one in self.done)))
        self.experiment.record(level, passes=PASSES.get(decision), oom=errors)
        tabulate(self.found, f"{self.prefix}capacity", "Concurrent Request Capacity", COLUMNS, self.ascending)
        return failure or decision

    def _measured(self, slots: int, repetition: int, key: str) -> tuple[Level, int]:
        """The level, and how many of its requests failed with an out-of-memory error. A level that ends with too few
        completions is repeated with a longer duration, unless memory ran out.
        """

        def once(seconds: float, attempt: int) -> tuple[Level, int]:
            name = f"{self.prefix}{slots} slots" + (f", run {repetition + 1}" if repetition else "")
            name += f", try {attempt + 1}" if attempt else ""
            settings = at_concurrency(
                self.settings, slots, duration=seconds, num_requests=None, warmup_requests=0, ramp_share=0.0,
                repetition=instants(self.settings, repetition),
            )  # fmt: skip
            own = own_requests(settings, slots, repetition * 4 + attempt)
            level = self.experiment.level(name, own, before=lambda: self.count_lines_before(key))
            return level, count_matching(level, self.parameters.oom_pattern)

        def longer(measured: tuple[Level, int], seconds: float) -> float | None:
            level, errors = measured
            ended, wanted = level.completed + level.failed, self.parameters.per_slot * slots
            if ended >= wanted or level.cascading or not ended or errors:
                return None
            return math.ceil(seconds * min(20.0, 1.1 * wanted / ended))

        return measure_until(once, longer, self.parameters.duration_s, TRIES)

    @property
    def ascending(self) -> list[CapacityLevel]:
        return sorted(self.done, key=lambda one: (one.level.load, one.level.number))

    def oom_lines(self, key: str) -> int:
        """Out-of-memory lines that were added to the server's log during the level *key*, if a hook prints that log.

        The lines are counted before and after the level, and the counts are recorded for later starts, which find the
        level finished.
        """
        log = self.experiment.journal.document.server_log
        before, after = log.get(key, (0, 0))
        if after is None and SERVER_LOG not in self.experiment.commands:
            return 0
        if after is None:
            after = self._lines = self.lines()
            self.experiment.journal.put(server_log={**log, key: (before, after)})
        return int(after - before if after >= before else after)  # a shorter log was rotated

    def count_lines_before(self, key: str) -> None:
        """Count the lines of the log before a level is measured. If an earlier start began the level, its count is kept:
        the level may have stopped that start. A level that was finished and is measured again is counted again.
        """
        if SERVER_LOG not in self.experiment.commands or key in self._counted:
            return
        self._counted.add(key)
        log = self.experiment.journal.document.server_log
        if key not in log or log[key][1] is not None:
            before = self.lines()
            self.experiment.journal.put(server_log={**log, key: (before, None)})
            late = 0 if self._lines is None else before - self._lines
            if late > 0:
                self.found.warn(
                    "memory-lines-unassigned",
                    f"{late} out-of-memory line{'s' * (late > 1)} appeared in the server's log before {key}, when nothing "
                    "was measured: no level counts them, though the level before may have caused them",
                )

    def lines(self) -> int:
        wanted = re.compile(self.parameters.oom_pattern, re.IGNORECASE)
        log = self.experiment.command(SERVER_LOG, kept=LARGEST_LOG).output or ""
        return sum(wanted.search(line) is not None for line in log.splitlines())


def count_matching(level: Level, pattern: str) -> int:
    """Failed requests whose text matches *pattern*, whatever its case."""
    wanted = re.compile(pattern, re.IGNORECASE)
    texts = level.document.error_texts.texts
    return sum(int(known(each.requests) or 0) for each in texts if wanted.search(each.text or ""))


def judge(level: Level, parameters: Parameters) -> Decision:
    """PASS if enough requests completed and P99 TTFT is in time. Lateness or a stall of the client may leave it open."""
    limit = parameters.slo_ttft_p99_ms
    in_time = Decision.PASS if limit is None else judge_limit(level, "ttft", limit, level.generator_limited)
    return combined((decision_of(complete(level)), in_time))


def complete(level: Level) -> bool | None:
    """Whether enough of the submitted requests completed, of which those are that the end of the level cancelled; None if
    the client may decide it. Of the incomplete requests, the client may have caused its own errors, and as many cancelled
    ones as complete in the time that it was late.
    """
    share = level.success_rate
    if share is not None and share >= COMPLETION:
        return True
    if not level.generator_limited:
        return False
    window = None if share is None else window_of(level.run)
    if window is None:
        return None
    rows, late = level.run.rows[populations(level.run, window).submitted], late_of(level.run, window)
    ok, cut = (int(np.count_nonzero(rows["status"] == status)) for status in (layout.OK, layout.CANCELLED))
    own = int(failed_here(rows).sum())
    best = ok + own + min(cut, math.ceil(ok / window.seconds * late.seconds))
    return None if best >= COMPLETION * len(rows) else False


def permanent_failure(level: Level, oom: int) -> PermanentFailure | None:
    """An event on the level that no other run of it outvotes; None without one."""
    if oom:
        return PermanentFailure("an out-of-memory error" if oom == 1 else f"{oom} out-of-memory errors")
    if level.cascading and not level.generator_limited:
        return PermanentFailure("most requests failed")
    return None


def find_capacity(levels: Levels) -> Interval:
    """Search (spec/procedures 0.10) to within 1/16."""
    lo, hi = float(levels.parameters.initial), float(levels.parameters.maximum)
    return Bisection(lo, hi, lambda slots: max(1.0, math.ceil(slots / RESOLUTION)), levels.judge, least=1.0).run()


def shared(parameters: Parameters) -> dict[str, dict[str, Any]]:
    length = {} if parameters.output_tokens is None else {"osl": str(parameters.output_tokens)}
    return {"workload": {"ignore_eos": True, **length}}


def levels(given: Conditions[Parameters]) -> Iterator[tuple[Levels, Interval]]:
    search = Levels(given.experiment, given.settings, given.parameters, given.found)
    yield search, find_capacity(search)


def analyze(measured: tuple[Levels, Interval], given: Conditions[Parameters]) -> None:
    (levels, answer), found = measured, given.found
    passed = [one.level for one in levels.done if one.level.load == answer.best and one.decision is Decision.PASS]
    best = passed[-1] if passed else None
    why, flight = limited_by(levels, answer.above), None if best is None else best.figure("tokens_in_flight")
    found.values = CapacityFindings(
        max_concurrency=None if answer.best is None else int(answer.best),
        bracket=(answer.best, answer.above),
        ended_by=answer.ended_by,
        levels=len(levels.done),
        slo_ttft_p99_ms=levels.parameters.slo_ttft_p99_ms,
        limited_by=why,
        output_tok_s=None if best is None else best.output_tok_s,
        tokens_in_flight_mean=flight,
        tokens_in_flight_max=None if best is None else best.figure("tokens_in_flight", "max"),
    )
    number = "none" if answer.best is None else f"{int(answer.best)}"
    found.say(f"Maximum concurrent requests meeting criteria: {number}")
    if why is not None:
        found.say(f"at {answer.above:g} slots: {why}")
    if best is not None:
        text = "" if flight is None else f", {flight:,.0f} tokens in flight on average"
        found.say(f"at {number}: {best.output_tok_s:,.4g} output tok/s{text}")
    for note in answer.notes:
        found.say(note)
    limit = levels.parameters.slo_ttft_p99_ms
    found.say(f"criteria: completion at least {COMPLETION:.0%}, no out-of-memory error, P99 TTFT at most {limit:g} ms")
    if SERVER_LOG in levels.experiment.commands:
        found.say(f"out-of-memory errors: the server's log was watched (--hook {SERVER_LOG})")
    else:
        found.say(f"out-of-memory errors: detected only in responses to failed requests; --hook {SERVER_LOG}=COMMAND "
                  "watches the server's log")  # fmt: skip
    x = tuple(one.level.load for one in levels.ascending)
    series = FindingSeries("TTFT P99", tuple(one.figure("ttft", "p99") for one in levels.ascending), x)
    axes = ("concurrency", "slots", None), ("TTFT", "ms", True)
    found.plot(FindingPlot("ttft", "P99 TTFT over concurrency", "line", (series,), *axes))


def limited_by(levels: Levels, load: float | None) -> str | None:
    """Criterion, value and limit that ended the search at *load*, from the last run there that does not pass."""
    there = [one for one in levels.done if one.level.load == load and one.decision is not Decision.PASS]
    if not there:
        return None
    level, oom = there[-1].level, there[-1].oom
    share, ttft, limit = level.success_rate, level.figure("ttft", "p99"), levels.parameters.slo_ttft_p99_ms
    found = [f"{oom} out-of-memory errors" if oom > 1 else "an out-of-memory error"] if oom else []
    if share is None or share < COMPLETION:
        found.append(f"completion {0 if share is None else share:.1%}, below {COMPLETION:.0%}")
    if limit is not None and ttft is not None and ttft > limit:
        found.append(f"P99 TTFT {ttft:,.4g} ms is above {limit:,.4g} ms")
    if there[-1].decision is Decision.CLIENT:
        found.append("the client was the limit")
    return "; ".join(found) or None


def refuse_range(parameters: Parameters) -> None:
    """InputError if the search would begin above its maximum."""
    first, most = parameters.initial, parameters.maximum
    if first > most:
        raise InputError(
            "range-empty",
            f"--initial {first} and --max {most} leave no level between them; give --initial {most} or less",
        )


def validate(parameters: Parameters, settings: RunSettings) -> None:
    refuse_range(parameters)
    if parameters.slo_ttft_p99_ms is None:
        raise InputError("objective-missing", "the test capacity needs an objective: --slo-ttft-p99 MS (IETF 5.5.2)")
    try:
        re.compile(parameters.oom_pattern)
    except re.error as problem:
        raise InputError(
            "pattern-invalid", f"--oom-pattern {parameters.oom_pattern!r} is not a regular expression: {problem}"
        ) from None


def expected_s(parameters: Parameters, settings: RunSettings) -> float | None:
    return parameters.duration_s * (math.log2(max(2, parameters.maximum / max(1, parameters.initial))) + 6)


TEST = ProcedureTest(
    "capacity", "5.5", "Concurrent Request Capacity", Parameters, levels, analyze, shared=shared,
    warm_up_settings=lambda settings, parameters: at_concurrency(settings, parameters.initial),
    load="searches the concurrency itself: leave --rate and --concurrency out",
    validate=validate, expected_s=expected_s, may=(SERVER_LOG,),
)  # fmt: skip
