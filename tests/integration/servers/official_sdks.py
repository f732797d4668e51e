"""What a vendor's own SDK reads of a server's answers: `python official_sdks.py ENDPOINT URL CASE` prints it as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

ASKED = {"model": "simulated"}
FAULTS = {"text": "", "thought": "reasoning:3", "calls": "tool_calls:2", "error": "error_event:1", "busy": "status:529"}


def responses(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0, default_headers=headers)
    asked = {**ASKED, "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 12}
    try:
        with client.responses.stream(**asked) as stream:
            deltas = {"response.output_text.delta": "", "response.reasoning_text.delta": ""}
            for event in stream:
                if event.type in deltas:
                    deltas[event.type] += event.delta
                if event.type == "error":
                    return {"error": event.message}
            final = stream.get_final_response()
        whole = client.responses.create(**asked)
    except openai.APIError as problem:
        return {"error": problem.message}
    thought = [part.text for one in final.output if one.type == "reasoning" for part in one.content]
    called = [[one for one in answer.output if one.type == "function_call"] for answer in (final, whole)]
    return {
        "text": list(deltas.values()),
        "final": [final.output_text, "".join(thought)],
        "status": [final.status, final.incomplete_details and final.incomplete_details.reason],
        "calls": [json.loads(one.arguments) for one in called[0]],
        "whole": [len(whole.output_text.split()), len(called[1])],
        "usage": [[one.usage.input_tokens, one.usage.output_tokens] for one in (final, whole)],
        "reasoning": final.usage.output_tokens_details.reasoning_tokens,
    }  # fmt: skip


def messages(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, default_headers=headers)
    asked = {**ASKED, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
    try:
        with client.messages.stream(**asked) as stream:
            deltas = {"text_delta": "", "thinking_delta": ""}
            for event in stream:
                if event.type == "content_block_delta" and event.delta.type in deltas:
                    deltas[event.delta.type] += getattr(event.delta, event.delta.type.removesuffix("_delta"))
            final = stream.get_final_message()
        whole = client.messages.create(**asked)
    except anthropic.APIError as problem:
        return {"error": str(problem)}
    called = [[one for one in answer.content if one.type == "tool_use"] for answer in (final, whole)]
    return {
        "text": list(deltas.values()),
        "final": ["".join(getattr(one, kind, "") for one in final.content) for kind in ("text", "thinking")],
        "status": [final.stop_reason],
        "calls": [one.input for one in called[0]],
        "whole": [len(" ".join(one.text for one in whole.content if one.type == "text").split()), len(called[1])],
        "usage": [[one.usage.input_tokens, one.usage.output_tokens] for one in (final, whole)],
        "reasoning": final.usage.output_tokens_details.thinking_tokens,
    }


READERS = {"openai-responses": responses, "anthropic-messages": messages}

if __name__ == "__main__":
    name, address, case = sys.argv[1:]
    print(json.dumps(READERS[name](address, {"X-Fault": FAULTS[case]} if FAULTS[case] else {})))
