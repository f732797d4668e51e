"""What vendors' own SDKs read of a server's answers: `python official_sdks.py URL` prints it as JSON, for each line
`ENDPOINT CASE` of its input.
"""

from __future__ import annotations

import json
import sys
from functools import partial
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


def over_websocket(url: str, headers: dict[str, str]) -> dict[str, Any]:
    """Two requests on one connection; what the last event says of the first, and how many deltas the second has."""
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
    asked = {**ASKED, "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 12}
    answers = []
    with client.responses.connect(extra_headers=headers) as connection:
        for _ in range(2):
            connection.send({"type": "response.create", **asked})
            deltas = []
            for event in connection:
                if event.type == "error":
                    return {"error": event.error.message}
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
                if event.type in ("response.completed", "response.incomplete"):
                    answers.append((deltas, event.response))
                    break
    deltas, final = answers[0]
    return {
        "text": "".join(deltas),
        "final": final.output_text,
        "status": final.status,
        "usage": [final.usage.input_tokens, final.usage.output_tokens],
        "second": len(answers[1][0]),
    }


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


def chat(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0, default_headers=headers)
    asked = {**ASKED, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
    try:
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        whole = client.chat.completions.create(**asked)
    except openai.APIError as problem:
        return {"error": problem.message}
    said = [one.choices[0] for one in chunks if one.choices]
    return {
        "text": "".join(one.delta.content or "" for one in said),
        "thought": "".join(getattr(one.delta, "reasoning_content", None) or "" for one in said),
        "calls": sorted({call.index for one in said for call in one.delta.tool_calls or ()}),
        "finish": said[-1].finish_reason,
        "whole": [
            len((whole.choices[0].message.content or "").split()),
            len(whole.choices[0].message.tool_calls or ()),
        ],
        "usage": [[one.usage.prompt_tokens, one.usage.completion_tokens] for one in (chunks[-1], whole)],
    }


def completions(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0, default_headers=headers)
    asked = {**ASKED, "prompt": "hi", "max_tokens": 12}
    try:
        chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        whole = client.completions.create(**asked)
    except openai.APIError as problem:
        return {"error": problem.message}
    said = [one.choices[0] for one in chunks if one.choices]
    return {
        "text": "".join(one.text for one in said),
        "finish": said[-1].finish_reason,
        "whole": [len(whole.choices[0].text.split()), 0],
        "usage": [[one.usage.prompt_tokens, one.usage.completion_tokens] for one in (chunks[-1], whole)],
    }


def embeddings(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0, default_headers=headers)
    try:
        found = client.embeddings.create(model=ASKED["model"], input="hi", encoding_format="float")
    except openai.APIError as problem:
        return {"error": problem.message}
    return {"vector": found.data[0].embedding, "usage": [found.usage.prompt_tokens, found.usage.total_tokens]}


def tgi(url: str, headers: dict[str, str]) -> dict[str, Any]:
    import huggingface_hub

    streamed, unstreamed = (
        huggingface_hub.InferenceClient(model=url + path, headers=headers) for path in ("/generate_stream", "/generate")
    )
    try:
        events = list(streamed.text_generation("hi", details=True, stream=True, max_new_tokens=12))
        whole = unstreamed.text_generation("hi", details=True, max_new_tokens=12)
    except (huggingface_hub.errors.TextGenerationError, huggingface_hub.errors.HfHubHTTPError) as problem:
        return {"error": str(problem)}
    last = events[-1]
    return {
        "text": "".join(one.token.text for one in events),
        "final": last.generated_text,
        "finish": last.details.finish_reason,
        "whole": [len(whole.generated_text.split()), 0],
        "usage": [[None, last.details.generated_tokens], [None, whole.details.generated_tokens]],
    }


def ollama(url: str, headers: dict[str, str], kind: str) -> dict[str, Any]:
    import ollama as sdk

    client = sdk.Client(host=url, headers=headers)
    asked = {"messages": [{"role": "user", "content": "hi"}]} if kind == "chat" else {"prompt": "hi"}
    call = getattr(client, kind)
    try:
        events = list(call(model=ASKED["model"], options={"num_predict": 12}, stream=True, **asked))
        whole = call(model=ASKED["model"], options={"num_predict": 12}, **asked)
    except sdk.ResponseError as problem:
        return {"error": problem.error}
    said = [one.message.content if kind == "chat" else one.response for one in (*events, whole)]
    thought = [one.message.thinking if kind == "chat" else one.thinking for one in events]
    called = [len(one.message.tool_calls or ()) if kind == "chat" else 0 for one in (*events, whole)]
    return {
        "text": "".join(said[:-1]),
        "thought": "".join(each or "" for each in thought),
        "calls": list(range(sum(called[:-1]))),
        "finish": events[-1].done_reason,
        "whole": [len(said[-1].split()), called[-1]],
        "usage": [[one.prompt_eval_count, one.eval_count] for one in (events[-1], whole)],
    }


READERS = {
    "openai-responses": responses,
    "openai-responses-ws": over_websocket,
    "anthropic-messages": messages,
    "openai-chat": chat,
    "openai-completions": completions,
    "openai-embeddings": embeddings,
    "tgi": tgi,
    "ollama-chat": partial(ollama, kind="chat"),
    "ollama-generate": partial(ollama, kind="generate"),
}


def answer(url: str, name: str, case: str) -> dict[str, Any]:
    try:
        return READERS[name](url, {"X-Fault": FAULTS[case]} if FAULTS[case] else {})
    except ImportError as problem:
        return {"missing": problem.name}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(sys.argv[1], *line.split())), flush=True)
