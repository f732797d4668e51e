"""The dialects of all endpoints, by the numbers that the tests of compiled modules give them."""

from __future__ import annotations

from fastllmload.endpoint import ENDPOINTS

CHAT, COMPLETIONS, OLLAMA_CHAT, OLLAMA_GENERATE = range(4)
DIALECTS = [ENDPOINTS[name].dialect for name in ("openai-chat", "openai-completions", "ollama-chat", "ollama-generate")]

RESPONSES, MESSAGES, GENERATE, SGLANG, TGI, TRITON, TRITON_SO_FAR = range(7)
OTHERS = [
    ENDPOINTS[name].dialect
    for name in (
        "openai-responses", "anthropic-messages", "vllm-generate", "sglang-generate", "tgi", "triton-generate",
        "triton-tensorrtllm",
    )
]  # fmt: skip
OTHER_NAMES = ("responses", "messages", "generate", "sglang", "tgi", "triton", "triton_so_far")
