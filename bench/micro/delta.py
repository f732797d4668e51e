"""Nanoseconds per event of the three ways to an event's meaning, on the same events in one process.

Run it as ``python bench/micro/delta.py``. Each figure is the best of several rounds; what counts is the ratio
within one run. *template*: one stream whose frames are equal. *scan*: every event's frame differs at its end,
so the template is compared, missed and learned again each time. *msgspec*: what ``--decode strict`` does.
*json*: ``json.loads`` alone, to compare with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from fastllmload._ext.events.delta import Classifier
from fastllmload.endpoint.protocols.openai import OPENAI_CHAT

ROUNDS = 15
EVENTS = 2000
EVENT = (
    '{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"meta/llama-3",'
    '"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}],"x":"%04d"}'
)
WORDS = {
    "word": " token",
    "sentence": " the quick brown fox jumps over the lazy dog" * 4,
    "Chinese": "\u6a21\u578b",
    "escapes": "\\n\\u00e9",
}


def best_ns(work: Callable[[], object]) -> float:
    """Least time per event over ROUNDS, ns."""
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        work()
        least = min(least, (time.perf_counter_ns() - start) / EVENTS)
    return least


def paths(text: str) -> tuple[int, float, float, float, float]:
    """Bytes of an event, then ns by template, scan, msgspec and json.loads."""
    same = [(EVENT % (text, 0)).encode() for _ in range(EVENTS)]
    other = [(EVENT % (text, number)).encode() for number in range(EVENTS)]
    stream, frames, strict = (
        Classifier(OPENAI_CHAT.dialect),
        Classifier(OPENAI_CHAT.dialect),
        Classifier(OPENAI_CHAT.dialect, strict=True),
    )
    times = (
        best_ns(lambda: stream.tally(same)),
        best_ns(lambda: frames.tally(other)),
        best_ns(lambda: strict.tally(same)),
        best_ns(lambda: [json.loads(event) for event in same]),
    )
    assert stream.by_scan == 1 and frames.by_scan == ROUNDS * EVENTS and strict.by_msgspec == ROUNDS * EVENTS
    return (len(same[0]), *times)


def main() -> None:
    heads = ("bytes", "template ns", "scan ns", "msgspec ns", "json ns", "scan:msgspec", "template:msgspec")
    print(f"{'text':10}" + "".join(f"{head:>18}" for head in heads))
    for name, text in WORDS.items():
        size, template, scan, msgspec, plain = paths(text)
        figures = (template, scan, msgspec, plain, scan / msgspec, template / msgspec)
        print(f"{name:10}{size:18}" + "".join(f"{figure:18.3f}" for figure in figures))


if __name__ == "__main__":
    main()
