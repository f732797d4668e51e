"""Streams of HTTP protocols with their expected outcome, from the folder of corpora, fed to the protocol of a worker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.dialects import CHAT, DIALECTS, GENERATE, MESSAGES, OTHERS, RESPONSES, SGLANG, TGI, TRITON, TRITON_SO_FAR

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record.recorder import Recorder
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, STATUS_NAMES, TOKENS_NONE
from fastllmload.records.shared_memory import SharedWords

ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("FASTLLMLOAD_CORPORA", ROOT.parent / "shared" / "corpora")) / "wire"
FAMILIES: dict[str, tuple[Dialect, bytes]] = {  # and in front of what the last word of an answer stands
    "chat": (DIALECTS[CHAT], b'"finish_reason":"'),
    "responses": (OTHERS[RESPONSES], b'data: {"type":"response.'),
    "messages": (OTHERS[MESSAGES], b'"stop_reason":"'),
    "generate": (OTHERS[GENERATE], b'"finish_reason":"'),
    "sglang": (OTHERS[SGLANG], b'"finish_reason":{'),
    "tgi": (OTHERS[TGI], b'"generated_text":"'),
    "triton": (OTHERS[TRITON], b"0\r\n\r\n"),  # the end of the body
}
STREAMS = sorted(path for family in FAMILIES for path in CORPUS.glob(f"{family}-*.http"))
ARRIVALS = (2, 3, 4, 5, 6)  # delta.EventKind: white space, content, reasoning, tool call, refusal
WITHOUT_TEXT = 8  # EventRow.stamp
# A summary of reasoning has no kind of its own, and ids without text are content.
SHOWN = {"summary": "reasoning", "ids": "content"}
USAGE = {
    "input": "prompt_tokens",
    "output": "completion_tokens",
    "cached": "cached_tokens",
    "reasoning": "reasoning_tokens",
}

pytestmark = pytest.mark.skipif(not STREAMS, reason=f"there are no streams in {CORPUS}")


def read(path: Path) -> tuple[bytes, dict[str, Any], Dialect, bytes]:
    """A stream, what is expected of it, its dialect, and in front of what the last word stands."""
    expected = json.loads(path.with_suffix(".json").read_text())
    dialect, last = FAMILIES[path.stem.partition("-")[0]]
    if "settings" in expected:
        dialect = OTHERS[TRITON_SO_FAR]
    if dialect is OTHERS[TRITON] and expected["finish"]:
        last = b'"finish_reason":"'
    return path.read_bytes(), expected, dialect, last


def fed(
    directory: Path, pieces: list[list[bytes]], dialect: Dialect, strict: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and events of one response per item of *pieces*, each on a connection of its own that then closes."""
    recorder = Recorder(directory)
    shared = SharedWords.create()
    protocol = Protocol(recorder, Classifier(dialect, strict), shared.words, 1 << 20, 4 << 20)
    for number, reads in enumerate(pieces):
        conversation = Conversation(protocol)
        conversation.open(1000 * number + 1)
        for place, data in enumerate(reads):
            if conversation.feed(data, 1000 * number + 2 + place):
                break
        if not conversation.ended:
            conversation.eof(1000 * (number + 1))
    recorder.close()
    return np.load(directory / "requests.npy"), np.load(directory / "tokens.npy")


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("step", "strict"), [(1, False), (1 << 20, False), (1 << 20, True)])
def test_a_stream_has_the_expected_outcome(tmp_path: Path, path: Path, step: int, strict: bool) -> None:
    data, expected, dialect, _ = read(path)
    rows, events = fed(tmp_path, [[data[at : at + step] for at in range(0, len(data), step)]], dialect, strict)
    row, status = rows[0], STATUS_NAMES[rows[0]["status"]]
    if expected["arrivals"] and {each["kind"] for each in expected["arrivals"]} == {"refusal"}:
        assert (status, expected["status"]) == ("refused", "ok")
    else:
        assert (status if status in ("ok", "truncated") else "failed") == expected["status"]
    assert row["http_status"] == expected["http"]
    arrivals = [each for each in events if each["kind"] in ARRIVALS]
    assert len(arrivals) == len(expected["arrivals"])
    for found, arrival in zip(arrivals, expected["arrivals"], strict=True):
        kind = arrival["kind"]
        if kind == "hidden":
            assert found["stamp"] & WITHOUT_TEXT
        elif not path.stem.startswith("chat"):
            assert EVENT_NAMES[found["kind"]] == SHOWN.get(kind, kind)
        if arrival["tokens"] is not None:
            assert found["tokens"] == arrival["tokens"]
    said = {name: int(row[field]) for name, field in USAGE.items()}
    if said["output"] == -1:  # not said as a sum
        said["output"] = sum(int(each["tokens"]) for each in arrivals if each["tokens"] != TOKENS_NONE) or -1
    usage = expected["usage"] or {}
    assert said == {name: -1 if usage.get(name) is None else usage[name] for name in USAGE}


ALIKE = ["status", "error", "finish", "events", "content_events", "reasoning_events", "leading_events", "text_bytes",
         *USAGE.values()]  # fmt: skip


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_in_two_reads_has_one_outcome(tmp_path: Path, path: Path) -> None:
    """Split at every byte."""
    data, _, dialect, _ = read(path)
    rows, events = fed(tmp_path, [[data[:at], data[at:]] for at in range(1, len(data))], dialect)
    assert (rows[ALIKE] == rows[ALIKE][0]).all()
    kinds = events[["kind", "tokens"]].reshape(len(rows), -1)
    assert (kinds == kinds[0]).all()


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_cut_stream_is_ok_only_after_its_last_word(tmp_path: Path, path: Path) -> None:
    """Cut after every byte: ok is what had its last word; a finish_reason without [DONE] is said to have been cut."""
    data, expected, dialect, last = read(path)
    rows, _ = fed(tmp_path, [[data[:size]] for size in range(len(data))], dialect)
    ok = [size for size, row in enumerate(rows) if STATUS_NAMES[row["status"]] == "ok"]
    if expected["status"] != "ok" or expected["text"].keys() == {"refusal"}:
        assert ok == []
        return
    assert all(size > data.rindex(last) for size in ok)
    if path.stem.startswith("chat"):
        done = data.find(b"[DONE]")
        unsaid = [size for size in ok if ERROR_NAMES[rows[size]["error"]] != "cut_after_end"]
        assert ok and all(size > done >= 0 for size in unsaid)
