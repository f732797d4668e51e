"""APIs that the simulated engine could serve, declared as a protocol's file would declare them. As a script: serves them."""

from __future__ import annotations

import sys

from fastllmload.endpoint import ENDPOINTS
from fastllmload.simulator.profile import SimulatorOptions

NAMES = (
    "anthropic-messages", "openai-responses", "sglang-generate", "tgi", "triton-generate", "triton-tensorrtllm",
    "triton-ensemble", "openai-embeddings",
)  # fmt: skip
APIS = tuple(api for name in NAMES for api in ENDPOINTS[name].simulated)

if __name__ == "__main__":
    from fastllmload.simulator.serve import serve

    sys.exit(
        serve(SimulatorOptions(ttft_ms=0.1, itl_ms=0.1, truth=sys.argv[1]), lambda url: print(url, flush=True), APIS)
    )
