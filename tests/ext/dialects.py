"""The dialects of all endpoints, by the numbers that the tests of compiled modules give them, and of protocols without one.

The protocols without an endpoint are here to show that their events can be described: Responses, Messages, and the generate
calls of vLLM, SGLang, Text Generation Inference (TGI) and Triton.
"""

from __future__ import annotations

from typing import Any

from fastllmload._ext.events.dialect import Dialect, FinishReason
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint import ENDPOINTS

CHAT, COMPLETIONS, OLLAMA_CHAT, OLLAMA_GENERATE = range(4)
DIALECTS = [ENDPOINTS[name].dialect for name in ("openai-chat", "openai-completions", "ollama-chat", "ollama-generate")]

# OpenAI's Responses. `type` says what `delta` is; vLLM writes it last. What comes again at the end (*.done, and `output` of
# the last event) is not read. A status counts where no reason is given.
RESPONSE = {
    "status": F.FINISH, "incomplete_details": (F.TABLE, {"reason": F.FINISH_DETAIL}),
    "usage": (F.TABLE, {
        "input_tokens": F.PROMPT_TOKENS, "output_tokens": F.COMPLETION_TOKENS, "total_tokens": F.COUNTER,
        "input_tokens_details": (F.TABLE, {"cached_tokens": F.CACHED_TOKENS}),
        "output_tokens_details": (F.TABLE, {"reasoning_tokens": F.REASONING_TOKENS}),
    }),
}  # fmt: skip
PIECE = {"item_id": F.CALL_KEY, "delta": F.ARGUMENTS}
END = (F.LAST, {"response": (F.OBJECT, RESPONSE)})
OUTPUT = {
    "message": {"content": (F.PARTS, {"type": (F.TYPE, {
        "output_text": {"text": F.CONTENT}, "refusal": {"refusal": F.REFUSAL}})})},
    "reasoning": {"content": (F.PARTS, {"text": F.REASONING})},
    "function_call": {"call_id": F.CALL_ID, "name": F.NAME, "arguments": F.ARGUMENTS},
}  # fmt: skip
RESPONSES_DIALECT = Dialect(
    {"error": F.ERROR, "sequence_number": F.COUNTER, "type": (F.TYPE, {
        "response.output_text.delta": {"delta": F.CONTENT},
        "response.reasoning_text.delta": {"delta": F.REASONING},
        "response.reasoning_summary_text.delta": {"delta": F.REASONING},
        "response.refusal.delta": {"delta": F.REFUSAL},
        "response.output_item.added": {"item": (F.TABLE, {"type": (F.TYPE, {
            "function_call": {"id": F.CALL_KEY, "call_id": F.CALL_ID, "name": F.NAME},
            "custom_tool_call": {"id": F.CALL_KEY, "call_id": F.CALL_ID, "name": F.NAME}})})},
        "response.function_call_arguments.delta": PIECE, "response.custom_tool_call_input.delta": PIECE,
        "response.completed": END, "response.incomplete": END, "response.failed": F.ERROR, "error": F.ERROR})},
    {"object": F.ANY, "error": F.ERROR, "output": (F.PARTS, {"type": (F.TYPE, OUTPUT)}), **RESPONSE},
    sentinel=b"[DONE]", repeats=True, fragments=True,
    words={"completed": FinishReason.FINISH_STOP, "max_output_tokens": FinishReason.FINISH_LENGTH,
           "steered": FinishReason.FINISH_STOP},
)  # fmt: skip

# Anthropic's Messages. `input_tokens` leaves out what a cache held; a later event may correct any one of the counts.
COUNTS = (F.TABLE, {
    "input_tokens": F.UNCACHED_TOKENS, "cache_read_input_tokens": F.CACHED_TOKENS,
    "cache_creation_input_tokens": F.CACHE_WRITTEN_TOKENS, "output_tokens": F.COMPLETION_TOKENS,
    "output_tokens_details": (F.TABLE, {"thinking_tokens": F.REASONING_TOKENS}),
})  # fmt: skip
TOOL = {"id": F.CALL_ID, "name": F.NAME}
MESSAGES_DIALECT = Dialect(
    {"error": F.ERROR, "type": (F.TYPE, {
        "content_block_delta": {"index": F.CALL_INDEX, "delta": (F.OBJECT, {"type": (F.TYPE, {
            "text_delta": {"text": F.CONTENT}, "thinking_delta": {"thinking": F.REASONING},
            "input_json_delta": {"partial_json": F.ARGUMENTS}})})},
        "content_block_start": {
            "index": F.CALL_INDEX, "content_block": (F.OBJECT, {"type": (F.TYPE, {"tool_use": TOOL})})},
        "message_start": {"message": (F.OBJECT, {"usage": COUNTS})},
        "message_delta": {"delta": (F.OBJECT, {"stop_reason": F.FINISH}), "usage": COUNTS},
        "message_stop": F.LAST, "error": F.ERROR})},
    {"error": F.ERROR, "type": (F.TYPE, {"error": F.ERROR, "message": {
        "content": (F.PARTS, {"type": (F.TYPE, {
            "text": {"text": F.CONTENT}, "thinking": {"thinking": F.REASONING},
            "tool_use": {**TOOL, "input": F.ARGUMENTS}})}),
        "stop_reason": F.FINISH, "usage": COUNTS}})},
    sentinel=b"[DONE]", repeats=True, fragments=True,
)  # fmt: skip

# vLLM's tokens in, tokens out: ids without text, or (output_mode text) both.
GENERATE_KEYS: dict[str, Any] = {
    "request_id": F.ANY, "error": F.ERROR, "prompt_token_ids": F.PROMPT_IDS,
    "choices": (F.CHOICES, {
        "index": F.INDEX, "text": F.CONTENT, "token_ids": F.ANSWER_IDS, "finish_reason": F.FINISH}),
    "usage": (F.TABLE, {
        "prompt_tokens": F.PROMPT_TOKENS, "completion_tokens": F.COMPLETION_TOKENS,
        "prompt_tokens_details": (F.TABLE, {"cached_tokens": F.CACHED_TOKENS})}),
}  # fmt: skip
GENERATE_DIALECT = Dialect(GENERATE_KEYS, GENERATE_KEYS, sentinel=b"[DONE]")

# SGLang's generate: each event has all of the text, or (--incremental-streaming-output) what is new of it.
SGLANG_KEYS: dict[str, Any] = {
    "text": F.CONTENT_SO_FAR, "output_ids": F.TOKEN_IDS, "error": F.ERROR,
    "meta_info": (F.OBJECT, {
        "finish_reason": (F.TABLE, {"type": F.FINISH}), "prompt_tokens": F.PROMPT_TOKENS,
        "completion_tokens": F.COMPLETION_TOKENS, "cached_tokens": F.CACHED_TOKENS,
        "reasoning_tokens": F.REASONING_TOKENS}),
}  # fmt: skip
SGLANG_DIALECT = Dialect(SGLANG_KEYS, SGLANG_KEYS, sentinel=b"[DONE]")

# TGI's generate_stream: a token an event; the last one says the whole text again.
DETAILS = (F.TABLE, {
    "finish_reason": F.FINISH, "generated_tokens": F.COMPLETION_TOKENS, "input_length": F.PROMPT_TOKENS})  # fmt: skip
TGI_DIALECT = Dialect(
    {"token": (F.OBJECT, {"id": F.TOKEN_ID, "text": F.CONTENT, "special": F.SPECIAL}), "generated_text": F.LAST,
     "details": DETAILS, "error": F.ERROR},
    {"generated_text": F.CONTENT, "details": DETAILS, "error": F.ERROR},
)  # fmt: skip


def triton(text: F) -> Dialect:
    """Of Triton's generate_stream, whose *text* is new (vLLM's backend) or all of it (TensorRT-LLM): users know which."""
    keys = {
        "model_name": F.ANY, "text_output": text, "finish_reason": F.FINISH, "error": F.ERROR,
        "num_input_tokens": F.PROMPT_TOKENS, "num_output_tokens": F.EVENT_TOKENS,
    }  # fmt: skip
    return Dialect(keys, keys, ends_with_body=True, words={"None": FinishReason.FINISH_NONE})


RESPONSES, MESSAGES, GENERATE, SGLANG, TGI, TRITON, TRITON_SO_FAR = range(7)
OTHERS = [
    RESPONSES_DIALECT, MESSAGES_DIALECT, GENERATE_DIALECT, SGLANG_DIALECT, TGI_DIALECT, triton(F.CONTENT),
    triton(F.CONTENT_SO_FAR),
]  # fmt: skip
OTHER_NAMES = ("responses", "messages", "generate", "sglang", "tgi", "triton", "triton_so_far")
