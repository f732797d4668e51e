#!/usr/bin/env bash
# A harness of llm-d-benchmark: copy this file and fastllmload-analyze_results.sh to where its harnesses are, and profiles such
# as profile.toml to $LLMDBENCH_RUN_WORKSPACE_DIR/profiles/fastllmload. The image needs fastllmload.
#
# llm-d-benchmark sets: LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR, LLMDBENCH_RUN_WORKSPACE_DIR and
# LLMDBENCH_RUN_EXPERIMENT_HARNESS_WORKLOAD_NAME (the profile: a file of fastllmload's options), and may set
# LLMDBENCH_HARNESS_STACK_ENDPOINT_URL and LLMDBENCH_DEPLOY_CURRENT_MODEL, which override url and model of the profile.
set -uo pipefail
results=$LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR
profile=$LLMDBENCH_RUN_EXPERIMENT_HARNESS_WORKLOAD_NAME
mkdir -p "$results"
cp -f "$LLMDBENCH_RUN_WORKSPACE_DIR/profiles/fastllmload/$profile" "$results/$profile"

arguments=(--config "$results/$profile" --ui none -o "$results/run")
[ -n "${LLMDBENCH_HARNESS_STACK_ENDPOINT_URL:-}" ] && arguments+=(--url "$LLMDBENCH_HARNESS_STACK_ENDPOINT_URL")
[ -n "${LLMDBENCH_DEPLOY_CURRENT_MODEL:-}" ] && arguments+=(--model "$LLMDBENCH_DEPLOY_CURRENT_MODEL")

begin=$(date +%s.%N)
fastllmload "${arguments[@]}" > >(tee -a "$results/stdout.log") 2> >(tee -a "$results/stderr.log" >&2)
code=$?
end=$(date +%s.%N)

export LLMDBENCH_RUN_EXPERIMENT_HARNESS_RC=$code
export LLMDBENCH_HARNESS_ARGS="${arguments[*]}"
LLMDBENCH_HARNESS_START=$(date -d "@$begin" --iso-8601=seconds)
LLMDBENCH_HARNESS_STOP=$(date -d "@$end" --iso-8601=seconds)
LLMDBENCH_HARNESS_DELTA=PT$(awk "BEGIN { printf \"%.3f\", $end - $begin }")S
LLMDBENCH_HARNESS_VERSION=$(fastllmload --version)
export LLMDBENCH_HARNESS_START LLMDBENCH_HARNESS_STOP LLMDBENCH_HARNESS_DELTA LLMDBENCH_HARNESS_VERSION

if [ "$code" -ne 0 ]; then
    echo "fastllmload ended with exit code $code" >&2
    exit "$code"
fi
"$(dirname "$0")/fastllmload-analyze_results.sh"
