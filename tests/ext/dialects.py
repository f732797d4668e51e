"""The dialects of all endpoints, by the numbers that the tests of compiled modules give them."""

from __future__ import annotations

from fastllmload.endpoint import ENDPOINTS

CHAT, COMPLETIONS, OLLAMA_CHAT, OLLAMA_GENERATE = range(4)
DIALECTS = [ENDPOINTS[name].dialect for name in ("openai-chat", "openai-completions", "ollama-chat", "ollama-generate")]
