"""Lines of Ollama's chat and generate in every spelling, and what real servers write."""

from __future__ import annotations

import random

from ext.reference.event_text import Number, anything, calls, counts, members, mostly, numbers, spell, texts, weighted
from hypothesis import strategies as st

reasons = st.sampled_from(["stop", "length", "load", "unload", "", "aborted", "st\u00f6p"])
durations = weighted(
    (20, st.integers(0, 10**13).map(lambda n: Number(str(n)))),
    (1, st.sampled_from(["999999999999999999", "1000000000000000000", "-7", "-0", "1.5", "0"]).map(Number)),
    (1, numbers),
)
messages = members(
    {},
    {
        "role": mostly(st.sampled_from(["assistant", ""])),
        "content": mostly(texts),
        "thinking": mostly(texts),
        "images": anything,
        "tool_calls": mostly(calls),
    },
)
lines = members(
    {},
    {
        "model": texts,
        "created_at": texts,
        "message": mostly(messages),
        "response": mostly(texts),
        "thinking": mostly(texts),
        "done": mostly(st.booleans()),
        "done_reason": mostly(reasons),
        "context": anything,
        "total_duration": mostly(durations),
        "load_duration": mostly(durations),
        "prompt_eval_count": mostly(counts),
        "prompt_eval_cached_count": mostly(counts),
        "prompt_eval_duration": mostly(durations),
        "eval_count": mostly(counts),
        "eval_duration": mostly(durations),
        "logprobs": weighted((1, anything), (4, st.lists(st.just({"token": "a", "logprob": -1}), max_size=3))),
    },
)
failures = members({"error": mostly(st.one_of(texts, st.just({"message": "no"}), numbers))}, {"done": anything})
spelled = st.tuples(weighted((16, lines), (1, failures), (1, anything)), st.integers(0, 2**32)).map(
    lambda drawn: spell(drawn[0], random.Random(drawn[1])).encode("utf-8", "surrogatepass")
)

HEAD = '{"model":"llama3.2","created_at":"2025-03-04T19:22:45.499127Z",'
TIMES = (
    '"total_duration":4883583458,"load_duration":1334875,"prompt_eval_count":26,"prompt_eval_duration":342546000,'
    '"eval_count":282,"eval_duration":4535599000}'
)
NS = [4883583458, 1334875, 342546000, 4535599000]


def chat(message: str, rest: str = '"done":false}') -> str:
    return HEAD + '"message":{"role":"assistant",' + message + "}," + rest


CALL = '[{"function":{"index":0,"name":"weather","arguments":{"city":"Paris"}}}]'
STOP, LENGTH = (f'"done_reason":"{reason}","done":true,' + TIMES for reason in ("stop", "length"))
# (dialect, kind, finish, text, done, durations, line)
SEEN = [
    (2, "content", "none", " The", False, None, chat('"content":" The","images":null')),
    (2, "role", "none", None, False, None, chat('"content":""')),
    (2, "reasoning", "none", "Hm", False, None, chat('"content":"","thinking":"Hm"')),
    (2, "whitespace", "none", "\n", False, None, chat('"content":"\\n"')),
    (2, "tool", "none", "weather", False, None, chat('"content":"","tool_calls":' + CALL)),
    (2, "finish", "stop", None, True, NS, chat('"content":""', STOP)),
    (2, "finish", "length", None, True, NS, chat('"content":""', LENGTH)),
    (2, "content", "stop", "All", True, NS, chat('"content":"All"', STOP)),
    (2, "done", "none", None, True, NS, HEAD + '"done":true,' + TIMES),
    (2, "finish", "load", None, True, None, chat('"content":""', '"done_reason":"load","done":true}')),
    (2, "error", "none", None, False, None, '{"error":"llama runner process has terminated: exit status 2"}'),
    (2, "role", "none", None, False, None, chat('"content":""', '"done_reason":"stop","done":false}')),
    (3, "content", "none", "The", False, None, HEAD + '"response":"The","done":false}'),
    (3, "reasoning", "none", "Hm", False, None, HEAD + '"response":"","thinking":"Hm","done":false}'),
    (3, "empty", "none", None, False, None, HEAD + '"response":"","done":false}'),
    (3, "finish", "stop", None, True, NS, HEAD + '"response":"","context":[1,2,3],' + STOP),
    (3, "finish", "unload", None, True, None, HEAD + '"response":"","done":true,"done_reason":"unload"}'),
    (3, "error", "none", None, False, None, '{"error":"an error was encountered while running the model"}'),
    (3, "bad", "none", None, False, None, "[DONE]"),
    (3, "bad", "none", None, False, None, '{"status":"success"}'),
]
