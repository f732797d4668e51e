"""The options that procedures add to those of a run: of each test, and (`COMMON`) of all."""

from __future__ import annotations

from fastllmload import quantities
from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.table import RunOption, several, switch, value

count_of_runs = read.count_between(1, 100)
LOOP = read.one_of("open", "closed")
SLO = (
    value("--slo-ttft-p99", "slo_ttft_p99_ms", read.milliseconds, "MS", "Objective: P99 of TTFT at most this."),
    value("--slo-tpot-p99", "slo_tpot_p99_ms", read.milliseconds, "MS", "Objective: P99 of TPOT at most this."),
)
RANGE = (
    value("--loop", "loop", LOOP, "LOOP", "open: levels are requests/s (default); closed: levels are slots."),
    value("--min", "minimum", read.positive, "LEVEL", "Lowest level tried."),
    value("--max", "maximum", read.positive, "LEVEL", "Highest level tried."),
    value("--step", "step", read.positive, "LEVEL", "Resolution of the answer."),
)
CAPACITY = value("--capacity", "capacity", read.positive, "LOAD",
                 "Capacity of the system, if known; measured first when it is not given.")  # fmt: skip
CAPACITY_SOURCE = value(
    "--capacity-source", "capacity_source", read.text, "TEXT", "Source of that capacity, for the report."
)


def pause(text: str) -> float:
    return 0.0 if text.strip() == "none" or quantities.duration(text) == 0 else read.seconds(text)


def factors(text: str) -> tuple[float, ...]:
    return tuple(read.factor(part) for part in text.split(",") if part.strip())


def counts(text: str) -> tuple[int, ...]:
    return tuple(read.count(part) for part in text.split(",") if part.strip())


def levels(what: str, default: str) -> RunOption:
    return value("--levels", "levels", factors, "LIST", f"{what} Default {default}.")


TESTS: dict[str, tuple[RunOption, ...]] = {
    "ttft": (),
    "throughput": (*RANGE, *SLO),
    "tradeoff": (
        CAPACITY, CAPACITY_SOURCE, levels("Shares of the capacity.", "0.1,0.2 ... 1.2"), *SLO,
    ),
    "itl": (
        CAPACITY, CAPACITY_SOURCE, levels("Shares of the capacity.", "0.25,0.5,0.75,0.9"),
    ),
    "capacity": (
        value("--initial", "initial", read.count, "COUNT", "Concurrency tried first. Default 8, or --max if less."),
        value("--max", "maximum", read.count, "COUNT", "Highest concurrency tried. Default 512."),
        value("--slo-ttft-p99", "slo_ttft_p99_ms", read.milliseconds, "MS", "Objective: P99 of TTFT at most this."),
        value("--oom-pattern", "oom_pattern", read.text, "REGEX", "What an out-of-memory error looks like."),
    ),
    "fairness": (
        CAPACITY, CAPACITY_SOURCE,
        value("--load", "share_of_capacity", read.factor, "SHARE", "Load as a share of the capacity. Default 0.8."),
        value("--baseline", "baseline", read.one_of("same_tokens", "same_rate", "own_rate"), "NAME",
              "Load of each class when it runs alone: same_tokens (default), same_rate, own_rate."),
    ),
    "prefix-cache": (
        value("--throughput", "throughput", read.one_of("none", "closed", "search"), "HOW",
              "Throughput with and without cache: closed loop at equal concurrency (default), search, none."),
        value("--slots", "slots", read.count, "COUNT", "Slots of that closed loop. Default 32."),
    ),
    "memory-pressure": (
        CAPACITY, CAPACITY_SOURCE, levels("Multiples of the capacity.", "1,1.1,1.25,1.5"),
        value("--slo-ttft-p99", "slo_ttft_p99_ms", read.milliseconds, "MS",
              "Objective by which the capacity is measured when it is not given."),
        value("--initial", "initial", read.count, "COUNT", "Concurrency tried first for the capacity. Default 8."),
        switch("--isolated", "isolated", "Confirms that no other load uses the system and that it can be recovered."),
    ),
    "long-context": (
        value("--lengths", "lengths", counts, "LIST", "Context lengths in tokens. Default 1024,2048 ... 131072."),
        value("--slots", "slots", read.count, "COUNT", "Concurrency, 1 to 4. Default 1."),
    ),
    "guardrail": (
        CAPACITY, CAPACITY_SOURCE, levels("Shares of the baseline's capacity.", "0.25,0.5,0.75"),
        several("--configuration", "configurations", read.one_of("baseline", "input", "output", "full"), "NAME",
                "Configuration to measure, repeatable: baseline, input, output, full. Default: all."),
        switch("--no-throughput", "throughput", "Leaves out the search of the highest throughput.", on=False, off=True),
    ),
}  # fmt: skip

COMMON = (
    switch("--quick", "quick",
           "Scales durations and counts down, to try the test out; the result does not conform to the draft."),
    several("--hook", "hooks", read.hook, "NAME=COMMAND",
            "Shell command that changes the server between phases: restart=COMMAND."),
    value("--hook-timeout", "hook_s", read.seconds, "TIME", "Limit of a hook's command. Default 15m."),
    value("--runs", "runs", count_of_runs, "COUNT",
          "Repeats the test COUNT times, each with its own arrival instants: median, mean and interval over runs."),
    value("--settle", "settle_s", pause, "TIME", "Pause between two levels. Default 5s."),
    switch("--allow-nonconforming", "allow_nonconforming", "Runs although declarations that the draft demands are missing."),
)  # fmt: skip
