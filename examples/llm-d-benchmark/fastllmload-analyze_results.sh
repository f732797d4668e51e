#!/usr/bin/env bash
# Benchmark reports 0.2 and a summary of every run in LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR. A run whose certificate is not
# valid measured its client and not the server: the summary says so.
set -uo pipefail
results=$LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR
mkdir -p "$results/analysis"
code=0
: > "$results/analysis/summary.txt"
for document in "$results"/run.json "$results"/*/run.json; do
    [ -f "$document" ] || continue
    run=$(dirname "$document")
    fastllmload export "$run" --format br0.2 -o "$results/benchmark_report_v0.2,_$(basename "$run").yaml" || code=$?
    fastllmload report "$run" >> "$results/analysis/summary.txt" || code=$?
done
export LLMDBENCH_RUN_EXPERIMENT_CONVERT_RC=$code
exit "$code"
