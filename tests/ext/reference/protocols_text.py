"""Events of the protocols that tests/ext/dialects.py describes, in every spelling."""

from __future__ import annotations

import random
from typing import Any

from ext.reference.event_text import anything, counts, members, mostly, numbers, spell, texts, weighted
from hypothesis import strategies as st

ids = weighted((8, st.lists(st.integers(0, 99999), max_size=4)), (1, anything))
reasons = st.sampled_from(["stop", "length", "abort", "tool_use", "completed", "max_output_tokens", "None", "", "x"])
arguments = weighted((8, texts), (1, st.sampled_from([{}, {"a": 1}])))
failures = members({"error": mostly(st.one_of(texts, st.just({"message": "no"}), numbers))}, {"type": texts})


def some(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of the *values*, each mostly as it should be."""
    return members({}, {name: mostly(value) for name, value in values.items()})


def event(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with all of the *values*, each mostly as it should be, or with some of them."""
    always = members({name: mostly(value) for name, value in values.items()}, {})
    return weighted((4, always), (1, some(**values)))


def typed(*words: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An event whose type is one of the *words*."""
    return event(type=weighted((12, st.sampled_from(words)), (1, mostly(texts))), **values)


response = event(
    status=reasons, incomplete_details=some(reason=reasons), id=texts,
    usage=some(
        input_tokens=counts, output_tokens=counts, total_tokens=counts,
        input_tokens_details=some(cached_tokens=counts), output_tokens_details=some(reasoning_tokens=counts),
    ),
)  # fmt: skip
item = typed("function_call", "function_call", "message", id=texts, call_id=texts, name=texts, arguments=texts)
DELTAS = [
    f"response.{name}.delta"
    for name in ("output_text", "output_text", "reasoning_text", "refusal", "function_call_arguments")
]
responses = weighted(
    (6, typed(*DELTAS, delta=texts, item_id=texts, sequence_number=numbers)),
    (2, typed("response.output_item.added", "response.output_item.done", item=item, output_index=numbers)),
    (3, typed("response.completed", "response.incomplete", "response.failed", response=response)),
    (
        1,
        typed("response.created", "error", "response.output_text.done", "x", delta=texts, response=response, item=item),
    ),
)

usage = some(
    input_tokens=counts, cache_read_input_tokens=counts, cache_creation_input_tokens=counts, output_tokens=counts,
    output_tokens_details=some(thinking_tokens=counts),
)  # fmt: skip
block = weighted(
    (2, typed("text", text=texts)),
    (1, typed("thinking", thinking=texts)),
    (2, typed("tool_use", id=texts, name=texts, input=arguments)),
)
delta = weighted(
    (3, typed("text_delta", text=texts)),
    (1, typed("thinking_delta", thinking=texts)),
    (1, typed("input_json_delta", partial_json=texts)),
    (1, typed("signature_delta", text=texts)),
)
messages = weighted(
    (6, typed("content_block_delta", index=numbers, delta=delta)),
    (2, typed("content_block_start", index=numbers, content_block=block)),
    (1, typed("message_start", message=some(usage=usage))),
    (2, typed("message_delta", delta=some(stop_reason=reasons), usage=usage)),
    (1, typed("message_stop", "ping", "error", "content_block_stop", delta=delta, usage=usage)),
)

choice = event(index=st.sampled_from([0, 0, 0, 1]), text=texts, token_ids=ids, finish_reason=reasons)
generate = event(
    request_id=texts, prompt_token_ids=ids,
    choices=weighted((8, st.tuples(choice).map(list)), (1, st.lists(choice, max_size=2))),
    usage=some(prompt_tokens=counts, completion_tokens=counts, prompt_tokens_details=some(cached_tokens=counts)),
)  # fmt: skip
few = st.integers(0, 4)
sglang = event(
    text=texts, output_ids=ids,
    meta_info=event(
        finish_reason=some(type=reasons), prompt_tokens=counts, completion_tokens=few, cached_tokens=counts,
        reasoning_tokens=counts,
    ),
)  # fmt: skip
tgi = event(
    index=numbers, token=event(id=numbers, text=texts, logprob=numbers, special=st.booleans()),
    generated_text=st.one_of(st.none(), texts),
    details=some(finish_reason=reasons, generated_tokens=counts, input_length=counts),
)  # fmt: skip
triton = event(
    model_name=texts, text_output=texts, finish_reason=reasons, num_input_tokens=counts, num_output_tokens=counts,
)  # fmt: skip

part = weighted((3, typed("output_text", text=texts)), (1, typed("refusal", refusal=texts)))
output = weighted(
    (3, typed("message", content=st.lists(part, max_size=3))),
    (1, typed("reasoning", content=st.lists(part, max_size=2))),
    (2, typed("function_call", call_id=texts, name=texts, arguments=arguments)),
)
response_body = event(
    object=texts, output=st.lists(output, max_size=3), status=reasons, incomplete_details=some(reason=reasons),
    usage=some(input_tokens=counts, output_tokens=counts),
)  # fmt: skip
message_body = typed(
    "message", "message", "message", "error", content=st.lists(block, max_size=3), stop_reason=reasons, usage=usage
)


def written(drawn: tuple[Any, int]) -> bytes:
    return spell(drawn[0], random.Random(drawn[1])).encode("utf-8", "surrogatepass")


def spelled(events: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.tuples(weighted((30, events), (1, failures), (1, anything)), st.integers(0, 2**32)).map(written)


EVENTS = [spelled(events) for events in (responses, messages, generate, sglang, tgi, triton, triton)]
BODIES = [spelled(response_body), spelled(message_body)]
