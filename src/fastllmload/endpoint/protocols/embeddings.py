"""Endpoints whose answers are not tokens: embeddings, pooling, scores and reranking, as vLLM serves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.dialect import Field as F
from fastllmload.endpoint.body import PROMPT
from fastllmload.endpoint.endpoint import Endpoint, below
from fastllmload.endpoint.protocols.openai import api_path
from fastllmload.endpoint.simulated import RequestKeys, SimulatedApi
from fastllmload.endpoint.turns import TEXT
from fastllmload.settings import Workload

Body = Callable[[str, dict[str, Any], Workload, dict[str, Any]], dict[str, Any]]
QUERY = "What is this text about?"


def body_with(**usual: Any) -> Body:
    """Bodies with the fields *usual*, which --extra-body replaces; null removes one."""

    def body(model: str, prompt: dict[str, Any], workload: Workload, extra: dict[str, Any]) -> dict[str, Any]:
        fields = {"model": model, **usual, **prompt, **extra}
        return {name: value for name, value in fields.items() if value is not None}

    return body


def without_tokens(
    name: str, aliases: tuple[str, ...], title: str, sign: bytes, resource: str, key: str, item: str, prompt: str,
    root: Callable[[str, str], str], body: Body, ids: bool,
) -> Endpoint:  # fmt: skip
    """An endpoint whose answers have a list *key*, of which the simulated engine sends one *item*."""
    keys: dict[str, Any] = {
        "object": F.ANY, key: F.LAST, "usage": (F.TABLE, {"prompt_tokens": F.PROMPT_TOKENS}), "error": F.ERROR
    }  # fmt: skip
    form = {prompt: [PROMPT]} if prompt == "documents" else {prompt: PROMPT}
    prompts = {"text": form, "ids": form} if ids else {"text": form}
    simulated = SimulatedApi(
        path=root("", resource),
        keys=RequestKeys(prompt=prompt),
        output_tokens=1,
        content="",
        words=("", "", ""),
        document='{"object":"list","model":"$model","' + key + '":[' + item + "],"
        '"usage":{"prompt_tokens":$prompt,"total_tokens":$prompt}}',
        error='{"error":{"message":"$message","type":"$type","code":$code}}',
    )
    return Endpoint(
        name=name,
        aliases=aliases,
        title=title,
        signs=(sign,),
        dialect=Dialect(keys, keys),
        framing="sse",
        joint=TEXT,
        resource=resource,
        models="models" if root is api_path else "v1/models",
        root=root,
        prompts=prompts,
        body=body,
        without={"ids": f"{title} takes text only; use --prompt-form words or text"},
        tokens=False,
        simulated=(simulated,),
    )


EMBEDDINGS = without_tokens(
    "openai-embeddings", ("embeddings",), "OpenAI embeddings", rb'"object"\s*:\s*"embedding"', "embeddings", "data",
    '{"object":"embedding","index":0,"embedding":[0.25,-0.5]}', "input", api_path,
    body_with(encoding_format="base64"), ids=True,
)  # fmt: skip
POOLING = without_tokens(
    "pooling", ("vllm-pooling",), "vLLM's pooling", rb'"object"\s*:\s*"pooling"', "pooling", "data",
    '{"object":"pooling","index":0,"data":[0.25,-0.5]}', "input", below, body_with(), ids=True,
)  # fmt: skip
SCORE = without_tokens(
    "score", ("vllm-score",), "vLLM's score", rb'"object"\s*:\s*"score"', "score", "data",
    '{"object":"score","index":0,"score":0.5}', "text_2", below, body_with(text_1=QUERY), ids=False,
)  # fmt: skip
RERANK = without_tokens(
    "rerank", ("vllm-rerank", "cohere_rankings"), "rerank", rb'"relevance_score"', "rerank", "results",
    '{"index":0,"document":{"text":""},"relevance_score":0.5}', "documents", below, body_with(query=QUERY), ids=False,
)  # fmt: skip
