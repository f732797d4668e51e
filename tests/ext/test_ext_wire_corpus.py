"""Streams of chat completions with their expected outcome, from the folder of corpora, fed to the protocol of a worker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from ext.dialects import CHAT, DIALECTS

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record.recorder import Recorder
from fastllmload.records.layout import ERROR_NAMES, STATUS_NAMES
from fastllmload.records.shared_memory import SharedWords

ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("FASTLLMLOAD_CORPORA", ROOT.parent / "shared" / "corpora")) / "wire"
STREAMS = sorted(CORPUS.glob("chat-*.http"))
ARRIVALS = (2, 3, 4, 5, 6)  # delta.EventKind: white space, content, reasoning, tool call, refusal
USAGE = {
    "input": "prompt_tokens",
    "output": "completion_tokens",
    "cached": "cached_tokens",
    "reasoning": "reasoning_tokens",
}

pytestmark = pytest.mark.skipif(not STREAMS, reason=f"there are no streams in {CORPUS}")


def fed(directory: Path, pieces: list[list[bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and events of one response per item of *pieces*, each on a connection of its own that then closes."""
    recorder = Recorder(directory)
    shared = SharedWords.create()
    protocol = Protocol(recorder, Classifier(DIALECTS[CHAT]), shared.words, 1 << 20, 4 << 20)
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
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_stream_has_the_expected_outcome(tmp_path: Path, path: Path, step: int) -> None:
    data, expected = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())
    rows, events = fed(tmp_path, [[data[at : at + step] for at in range(0, len(data), step)]])
    row, status = rows[0], STATUS_NAMES[rows[0]["status"]]
    assert (status if status in ("ok", "truncated") else "failed") == expected["status"]
    assert row["http_status"] == expected["http"]
    assert sum(kind in ARRIVALS for kind in events["kind"]) == len(expected["arrivals"])
    usage = expected["usage"] or {}
    assert {name: row[field] for name, field in USAGE.items()} == {
        name: -1 if usage.get(name) is None else usage[name] for name in USAGE
    }


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_cut_stream_is_ok_only_after_its_finish_reason(tmp_path: Path, path: Path) -> None:
    """Cut after every byte: ok is what had its last finish_reason, and says so unless [DONE] had come too."""
    data, expected = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())
    rows, _ = fed(tmp_path, [[data[:size]] for size in range(len(data))])
    ok = [size for size, row in enumerate(rows) if STATUS_NAMES[row["status"]] == "ok"]
    if expected["status"] != "ok":
        assert ok == []
        return
    finished = data.rindex(f'"finish_reason":"{expected["finish"]}"'.encode())
    assert ok and min(ok) > finished
    done = data.find(b"[DONE]")
    unsaid = [size for size in ok if ERROR_NAMES[rows[size]["error"]] != "cut_after_end"]
    assert all(size > done >= 0 for size in unsaid)
