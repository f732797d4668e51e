"""Statements of the draft on every test: boundary, load generator, workloads, tokens, warm-up, clocks (IETF 1 to 4)."""

from __future__ import annotations

from fastllmload.compliance.checks import clocks, load, stamps, streaming, tests, tokens, warmup, workload
from fastllmload.compliance.checks.declared import (
    declared,
    declared_as,
    declared_before,
    disabled_noted,
    guardrails_stated,
)
from fastllmload.compliance.checks.runs import scaled
from fastllmload.compliance.statement import all_of, item, must, must_not, recommended, required, should

# Introduction
TERMINOLOGY = (
    should("IETF-Abstract-a", "Consult the companion terminology draft alongside this methodology.",
        declared("terminology")),
    should("IETF-1-a", "The terminology document is consulted before attempting to use the methodology.",
        declared("terminology")),
)  # fmt: skip

# 4.1 System under test boundary
BOUNDARY = (must("IETF-4.1-a", "The SUT boundary is declared before benchmarking.", declared_before("sut.boundary")),)

# 4.2 Load generator
LOAD_GENERATOR = (
    must("IETF-4.2-a", "The load generator satisfies all requirements of 4.2.1-4.2.6.",
        all_of(
            "IETF-4.2.1-a IETF-4.2.2-a IETF-4.2.2-b IETF-4.2.3-a IETF-4.2.3-b IETF-4.2.4-a "
            "IETF-4.2.5-a IETF-4.2.5-b IETF-4.2.6-a IETF-4.2.6-b IETF-4.2.6-c IETF-4.2.6-d "
            "IETF-4.2.6-e IETF-4.2.6-f IETF-4.2.6-g"
        )),
    must("IETF-4.2.1-a", "Time is measured with a resolution of 1 ms or better.", stamps.clock_resolution(1_000_000),
        design="time stamps are in nanoseconds"),
    recommended("IETF-4.2.1-b", "Microsecond resolution for ITL measurement.", stamps.clock_resolution(1_000),
        design="time stamps are in nanoseconds"),
    must("IETF-4.2.2-a", "At least one streaming response protocol is supported (SSE, WebSocket or gRPC streaming).",
        stamps.streamed, design="server-sent events and NDJSON are read as they arrive"),
    must("IETF-4.2.2-b",
        "Every token, or every chunk, has a time of arrival of its own; the complete answer's is not enough.",
        stamps.token_times),
    must("IETF-4.2.3-a",
        "Open-loop generation: arrival times follow a specified distribution independent of response times.",
        load.schedule_kept, design="an open loop has its schedule before the first request"),
    must("IETF-4.2.3-b", "Poisson arrivals are supported.", load.arrivals_redrawn("poisson"),
        design="--arrival poisson, the default"),
    recommended("IETF-4.2.3-c", "Uniform arrival pattern is supported.", load.arrivals_redrawn("constant", "uniform"),
        design="--arrival constant or uniform"),
    recommended("IETF-4.2.3-d", "Bursty arrival pattern is supported.",
        load.arrivals_redrawn("gamma", "bursty", "onoff"), design="--arrival gamma or bursty"),
    must("IETF-4.2.4-a", "Closed-loop generation with a fixed number of concurrent requests is supported.",
        load.concurrency_kept, design="--concurrency"),
    must_not("IETF-4.2.5-a", "Slow responses do not delay the submission of later requests in open-loop mode.",
        load.responses_do_not_delay, design="a request is sent when it is due, whatever is in flight"),
    required("IETF-4.2.5-b", "Asynchronous or multi-threaded implementation.", load.concurrent,
        design="one event loop per worker, with any number of connections"),
    must("IETF-4.2.6-a", "Record the request submission timestamp for each request.", stamps.submission_times),
    must("IETF-4.2.6-b", "Record the first token arrival timestamp for each request.", stamps.first_token_times),
    must("IETF-4.2.6-c", "Record each subsequent token arrival timestamp.", stamps.token_times),
    must("IETF-4.2.6-d", "Record the final token arrival timestamp.", stamps.last_token_times),
    must("IETF-4.2.6-e", "Record the total input token count.", stamps.input_counts),
    must("IETF-4.2.6-f", "Record the total output token count.", stamps.output_counts),
    must("IETF-4.2.6-g", "Record the request success/failure status.", stamps.statuses),
)  # fmt: skip

# 4.3 Workloads
WORKLOADS = (
    must("IETF-4.3-c", "Custom workloads are fully specified.", workload.workload_named, applies="kind custom"),
    item("IETF-4.3.1-a", "Workload specifies the input length distribution type (fixed, uniform, normal, empirical).",
        workload.workload_field("isl")),
    item("IETF-4.3.1-b", "Workload specifies the input length parameters (mean, std, min, max, or histogram).",
        workload.workload_field("isl")),
    item("IETF-4.3.1-c", "Workload specifies the input length unit: tokens under a specified tokenizer.",
        workload.workload_field("tokenizer")),
    item("IETF-4.3.1-d", "Workload specifies the output length distribution type.", workload.workload_field("osl")),
    item("IETF-4.3.1-e", "Workload specifies the output length parameters.", workload.workload_field("osl")),
    item("IETF-4.3.1-f", "Workload specifies the output length control method (max_tokens, stop sequence, or both).",
        workload.output_control),
    item("IETF-4.3.1-g", "Workload specifies the output length unit: tokens under a specified tokenizer.",
        workload.workload_field("tokenizer")),
    item("IETF-4.3.1-h", "Workload specifies the content domain (general, code, conversation, instruction).",
        workload.workload_field("domain")),
    item("IETF-4.3.1-i", "Workload specifies the content language (English, multilingual, code languages).",
        workload.workload_field("language")),
    item("IETF-4.3.1-j", "Workload specifies system prompt presence and typical length.",
        workload.workload_field("system_prompt")),
    item("IETF-4.3.1-k", "Workload specifies the fraction of requests sharing a common prefix.",
        workload.workload_field("prefix_share")),
    item("IETF-4.3.1-l", "Workload specifies the shared prefix length distribution.",
        workload.workload_field("prefix_length")),
    required("IETF-4.3.2.1-f", "Synthetic-Uniform is required for Model Engine benchmarking.", workload.uniform_used,
        applies="boundary model_engine"),
    recommended("IETF-4.3.2.3-f", "Conversation workload for Application Gateway benchmarking.",
        workload.unless_own(workload.workload_is("conversation")), applies="boundary application_gateway"),
    required("IETF-4.3.2.5-f", "Scaling with the context is measured with the Long Context workload and no other.",
        workload.workload_is("long-context"), applies="test long-context"),
    must("IETF-4.3.3-a", "Workload generation uses deterministic random seeds.", workload.sequence_kept),
    must("IETF-4.3.3-b", "The seed is reported.", workload.seed_reported),
    should("IETF-4.3.3-c", "Publish the exact request sequences, or generation code with fixed seeds.",
        workload.sequence_published),
    must("IETF-4.3.3-d", "Dataset-derived workloads state the dataset version.", workload.dataset_field("version"),
        applies="kind dataset"),
    must("IETF-4.3.3-e", "Dataset-derived workloads state the subset selection method.",
        workload.dataset_field("subset"), applies="kind dataset"),
    must("IETF-4.3.3-f", "Dataset-derived workloads state any preprocessing.", workload.dataset_field("preprocessing"),
        applies="kind dataset"),
)  # fmt: skip

# 4.4 Token counting
TOKEN_COUNTING = (
    must("IETF-4.4.1-a", "Report the tokenizer name and version.", tokens.tokenizer_known("name")),
    must("IETF-4.4.1-b", "Report the tokenizer's vocabulary size.", tokens.tokenizer_known("vocabulary")),
    must("IETF-4.4.1-c", "Report the tokenizer source (Hugging Face id, tiktoken name, or custom).",
        tokens.tokenizer_known("source")),
    must("IETF-4.4.2-c", "Declare which counting option is used.", tokens.counting_stated),
    recommended("IETF-4.4.2-d", "Option B with cl100k_base as reference for cross-system comparison.",
        tokens.reference_tokenizer, applies="comparison"),
    must("IETF-4.4.3-a", "Specify whether BOS/EOS tokens are included in counts.", tokens.special_tokens),
    must("IETF-4.4.3-b", "Specify whether system prompt tokens are counted separately or included.",
        tokens.system_prompt_counted),
    must("IETF-4.4.3-c", "Specify handling of tool/function call formatting tokens.", tokens.tools_counted),
)  # fmt: skip

# 4.5 Warm-up
WARM_UP = (
    must("IETF-4.5.1-a", "Model fully loaded into accelerator memory before measurement.", warmup.loaded,
        applies="start warm"),
    must("IETF-4.5.1-b", "The warm-up has 100 requests and 10,000 generated tokens at the least; both must be reached.",
        scaled(warmup.enough), applies="start warm"),
    must("IETF-4.5.1-c", "Wait for the request queue to drain completely before measuring.", warmup.drained,
        applies="start warm"),
    must("IETF-4.5.1-d",
        "If prefix caching is enabled and under test, populate the cache with representative prefixes.",
        warmup.prefixes_cached, applies="cache warm"),
    should("IETF-4.5.2-a", "A probe is timed before the warm-up and after it.", warmup.probed, applies="start warm"),
    should("IETF-4.5.2-b", "Probes that follow each other differ by under 10% once the system is warm.", warmup.stable,
        applies="start warm"),
    must("IETF-4.5.3-a", "Warm-up is skipped when cold start performance is measured.", warmup.skipped,
        applies="start cold"),
    must("IETF-4.5.3-b", "Cold start measurement is clearly indicated.", warmup.cold_marked, applies="start cold"),
)  # fmt: skip

# 4.6 Streaming
STREAMING = (
    recommended("IETF-4.6.1-b", "SSE for Application Gateway testing.", streaming.protocol_is("sse"),
        applies="boundary application_gateway"),
    recommended("IETF-4.6.1-e", "gRPC streaming for Model Engine testing.", streaming.protocol_is("grpc"),
        applies="boundary model_engine"),
    must("IETF-4.6.2-a", "Report the protocol used.", streaming.protocol_reported),
    must("IETF-4.6.2-b", "Report whether each chunk holds exactly one token or potentially several.",
        streaming.chunks_reported),
    must("IETF-4.6.2-c", "Say what is done about chunks of several tokens where gaps are computed.",
        streaming.option_declared),
    must("IETF-4.6.3-f", "Declare which ITL option is used.", streaming.option_declared),
    recommended("IETF-4.6.3-g", "Option C when available.", streaming.server_stamps_used, applies="stamps server"),
)  # fmt: skip

# 4.7 Clocks and network
CLOCKS = (
    recommended("IETF-4.7.1-b", "Single-machine configuration for Model Engine testing.",
        clocks.topology_is("single-machine"), applies="boundary model_engine"),
    must("IETF-4.7.2-a", "With different machines, NTP synchronisation achieves 10 ms accuracy or better.",
        clocks.synchronised, applies="topology distributed"),
    should("IETF-4.7.2-b", "PTP is used when sub-millisecond accuracy is required.", clocks.precise_enough,
        applies="topology distributed, accuracy sub-ms"),
    must("IETF-4.7.2-c", "State the synchronisation method.", clocks.synchronisation_stated("clock.method"),
        applies="topology distributed"),
    must("IETF-4.7.2-d", "State the estimated synchronisation accuracy.",
        clocks.synchronisation_stated("clock.accuracy_ms"), applies="topology distributed"),
    should("IETF-4.7.3-a", "For gateway tests, network RTT is measured and reported separately.", clocks.rtt_reported,
        applies="boundary application_gateway"),
    must("IETF-4.7.3-c", "Any latency adjustment is documented.", clocks.adjustment_documented, applies="adjusted"),
    must("IETF-4.7.4-a", "All timestamps are recorded with at least millisecond precision.",
        stamps.clock_resolution(1_000_000), design="time stamps are in nanoseconds"),
    recommended("IETF-4.7.4-b", "Wall-clock instants carry milliseconds: as ISO 8601 in UTC, or as a Unix time.",
        clocks.iso_times),
)  # fmt: skip

# 4.8 Safety systems
SAFETY_SYSTEMS = (
    must("IETF-4.8-a", "Benchmarking accounts for production safety systems.", guardrails_stated),
    must("IETF-4.8.1-a", "Disclose whether input content filtering is enabled.",
        declared_before("guardrails.input_filter")),
    must("IETF-4.8.1-b", "Disclose whether output content filtering is enabled.",
        declared_before("guardrails.output_filter")),
    must("IETF-4.8.1-c", "Disclose names of safety systems if known.", declared("guardrails.names")),
    must("IETF-4.8.1-d", "Disclose whether any requests were refused during testing.", tests.refusals_counted),
    should("IETF-4.8.2-a",
        "Safety systems are enabled in their default configuration for production-representative gateway tests.",
        declared_as("guardrails.configuration", "default"), applies="boundary application_gateway"),
    must("IETF-4.8.2-b", "Note if safety systems are disabled.", disabled_noted, applies="boundary application_gateway"),
    should("IETF-4.8.2-c", "What safety costs is measured by a comparison of runs with it on and off.",
        declared("guardrails.overhead_result"), applies="boundary application_gateway"),
)  # fmt: skip

STATEMENTS = (
    *TERMINOLOGY, *BOUNDARY, *LOAD_GENERATOR, *WORKLOADS, *TOKEN_COUNTING, *WARM_UP, *STREAMING, *CLOCKS,
    *SAFETY_SYSTEMS,
)  # fmt: skip
