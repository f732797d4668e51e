"""Statements of the draft on the ten tests (IETF 5)."""

from __future__ import annotations

from fastllmload.compliance.checks import load, stamps, tests, warmup, workload
from fastllmload.compliance.checks.declared import declared, declared_as
from fastllmload.compliance.statement import all_of, item, must, must_not, recommended, required, should, under

# 5.1 Time to first token
TTFT = under("test ttft",
    must("IETF-5.1.2-a", "All setup parameters of 5.1.2.1-5.1.2.3 are defined.",
        all_of(
            "IETF-5.1.2.1-a IETF-5.1.2.1-b IETF-5.1.2.2-a IETF-5.1.2.2-b IETF-5.1.2.2-c IETF-5.1.2.2-e "
            "IETF-5.1.2.3-a IETF-5.1.2.3-b IETF-5.1.2.3-c IETF-5.1.2.3-d"
        )),
    item("IETF-5.1.2.1-a", "Workload is a standard workload or a fully specified custom one.", workload.workload_named),
    item("IETF-5.1.2.1-b", "Total number of requests to execute is defined.", tests.request_count_defined),
    must("IETF-5.1.2.1-c", "Request count at least 1000 for P99 measurement.", tests.samples("ttft", "p99"),
        applies="percentile p99"),
    must("IETF-5.1.2.1-d", "Request count at least 10000 for P99.9 measurement.", tests.samples("ttft", "p999"),
        applies="percentile p999"),
    item("IETF-5.1.2.2-a", "Load model is defined: open-loop or closed-loop.", load.loop_is("open", "closed")),
    item("IETF-5.1.2.2-b", "Open-loop: arrival rate in requests per second is defined.", load.rate_given,
        applies="load open"),
    required("IETF-5.1.2.2-c", "Open-loop: Poisson arrival distribution.", load.poisson_arrivals, applies="load open"),
    item("IETF-5.1.2.2-e", "Closed-loop: number of concurrent requests maintained is defined.", load.concurrency_given,
        applies="load closed"),
    item("IETF-5.1.2.3-a", "SUT configuration (boundary) is defined.", declared("sut.boundary")),
    item("IETF-5.1.2.3-b", "Model identifier: name, version and quantization if applicable.",
        declared("sut.model.name", "sut.model.version", "sut.model.quantization")),
    item("IETF-5.1.2.3-c", "Hardware: accelerator type, count and memory.",
        declared("sut.hardware.accelerator", "sut.hardware.count", "sut.hardware.memory_gib")),
    item("IETF-5.1.2.3-d", "Prefix caching: enabled or disabled.",
        declared_as("prefix_cache.enabled", "yes", "no", remedy="find out whether the engine's prefix cache is on")),
    must("IETF-5.1.3.1-e", "If non-content tokens precede content the report notes it.", tests.leading_noted,
        applies="leading"),
    must("IETF-5.1.3.1-f",
        "In that case the report specifies whether TTFT is to any token or to the first content token.",
        tests.first_token_defined, applies="leading"),
    must("IETF-5.1.4.1-a", "Report TTFT P50, P90, P95, P99 and P99.9 - all of them.",
        tests.figures("ttft", "p50", "p90", "p95", "p99", "p999")),
    recommended("IETF-5.1.4.2-b",
        "Classes of prompt length begin at 0, 256, 512, 1024, 2048 and 4096 tokens and are closed on the left.",
        tests.length_classes),
    must("IETF-5.1.4.3-c", "State the sample count.", tests.figures("ttft", "n")),
    must("IETF-5.1.5-a",
        "The TTFT test report includes the items of 5.1.5.1-5.1.5.4 (the results table and the plot as SHOULD, the "
        "per-length table if applicable).",
        all_of(
            "IETF-5.1.5.1-a IETF-5.1.5.1-b IETF-5.1.5.1-c IETF-5.1.5.1-d IETF-5.1.5.1-e IETF-5.1.5.1-f "
            "IETF-5.1.5.1-g IETF-5.1.5.1-h"
        )),
    item("IETF-5.1.5.1-a", "Include SUT configuration and boundary.", declared("sut.boundary")),
    item("IETF-5.1.5.1-b", "Include model identifier and hardware.", all_of("IETF-5.1.2.3-b IETF-5.1.2.3-c")),
    item("IETF-5.1.5.1-c", "Include workload name or full specification.", workload.workload_named),
    item("IETF-5.1.5.1-d", "Include load model and parameters.", load.loop_is("open", "closed")),
    item("IETF-5.1.5.1-e", "Include request count and test duration.", tests.count_and_duration),
    item("IETF-5.1.5.1-f", "Include the warm-up procedure followed.", warmup.warmup_reported),
    item("IETF-5.1.5.1-g", "Include prefix caching state.", declared("prefix_cache.enabled")),
    item("IETF-5.1.5.1-h", "Include guardrail configuration.", all_of("IETF-4.8.1-a IETF-4.8.1-b IETF-4.8.1-c")),
    should("IETF-5.1.5.2-a", "TTFT results in tabular format.", tests.ttft_table),
    should("IETF-5.1.5.4-a", "A plot shows how TTFT is distributed: a CDF or a histogram.", tests.ttft_plot),
)  # fmt: skip

# 5.2 Output token throughput
THROUGHPUT = under("test throughput",
    must("IETF-5.2.2-a", "All setup parameters of 5.2.2.1-5.2.2.2 are defined.",
        all_of(
            "IETF-5.2.2.1-a IETF-5.2.2.1-b IETF-5.2.2.2-a IETF-5.2.2.2-b IETF-5.2.2.2-c IETF-5.2.2.2-d IETF-5.2.2.2-e"
        )),
    item("IETF-5.2.2.1-a", "Workload: standard or fully specified custom.", workload.workload_named),
    item("IETF-5.2.2.1-b", "Test duration at least 60 seconds.", tests.lasted(60)),
    recommended("IETF-5.2.2.1-c", "Test duration 300 seconds for stable measurement.", tests.lasted(300)),
    item("IETF-5.2.2.2-a", "Load model: open-loop or closed-loop.", load.loop_is("open", "closed")),
    item("IETF-5.2.2.2-b", "Open-loop: minimum and maximum request rates to test.", tests.range_given("rate"),
        applies="load open"),
    item("IETF-5.2.2.2-c", "Open-loop: rate increment for the iterative search.", tests.step_given, applies="load open"),
    item("IETF-5.2.2.2-d", "Closed-loop: minimum and maximum concurrency to test.", tests.range_given("concurrency"),
        applies="load closed"),
    item("IETF-5.2.2.2-e", "Closed-loop: concurrency increment for the iterative search.", tests.step_given,
        applies="load closed"),
)  # fmt: skip

# 5.3 Throughput-latency tradeoff
TRADEOFF = under("test tradeoff",
    required("IETF-5.3.2-e", "Open-loop load model for this test.",
        load.loop_is("open", remedy="measure with --rate: the test has open loops only")),
)  # fmt: skip

# 5.4 Inter-token latency
ITL = under("test itl",
    recommended("IETF-5.4.2-a", "Synthetic-Uniform or Conversation workload.",
        workload.workload_is("synthetic-uniform", "conversation")),
    must("IETF-5.4.2-b", "Requests generate at least 50 output tokens.", tests.long_enough_outputs(50)),
    recommended("IETF-5.4.2-e", "Load levels 25%, 50%, 75%, 90% of saturation.", tests.fractions(0.25, 0.5, 0.75, 0.9)),
    must_not("IETF-5.4.3-h", "TTFT is not included in ITL calculation.", stamps.gaps_without_ttft),
)  # fmt: skip

# 5.5 Concurrent request capacity
CAPACITY = under(
    "test capacity",
    recommended("IETF-5.5.2-a", "Synthetic-Uniform workload.", workload.workload_is("synthetic-uniform")),
)

# 5.6 Scheduling fairness
FAIRNESS = under("test fairness",
    required("IETF-5.6.2-a", "Synthetic-Skewed workload.",
        workload.workload_is("synthetic-skewed", "fairness", "fairness-short", "fairness-long")),
    recommended("IETF-5.6.2-f", "Load level 70-90% of saturation throughput.", tests.mixed_load_within(0.7, 0.9)),
)  # fmt: skip

# 5.7 Prefix cache
PREFIX_CACHE = under("test prefix-cache",
    recommended("IETF-5.7.2-a", "Code Completion workload.", workload.workload_is("code-completion")),
    must("IETF-5.7.2-e",
        "The test has two configurations of the system: without the cache, which is the base, and with it.",
        tests.states("cache-off", "cache-on")),
)  # fmt: skip

# 5.8 Memory pressure
MEMORY_PRESSURE = under("test memory-pressure",
    recommended("IETF-5.8.2-a", "Long Context workload to create memory pressure.",
        workload.workload_is("long-context")),
)  # fmt: skip

# 5.9 Long context
LONG_CONTEXT = under(
    "test long-context", required("IETF-5.9.2-a", "Long Context workload.", workload.workload_is("long-context"))
)

# 5.10 Guardrail overhead
GUARDRAIL = under(
    "test guardrail", recommended("IETF-5.10.2-a", "Conversation workload.", workload.workload_is("conversation"))
)

STATEMENTS = (
    *TTFT, *THROUGHPUT, *TRADEOFF, *ITL, *CAPACITY, *FAIRNESS, *PREFIX_CACHE, *MEMORY_PRESSURE, *LONG_CONTEXT,
    *GUARDRAIL,
)  # fmt: skip
