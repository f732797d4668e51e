"""Calls of gRPC with their expected outcome, from the folder of corpora, fed to the protocol of a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ext.test_ext_wire_corpus import ALIKE, ARRIVALS, CORPUS, SHOWN, USAGE

from fastllmload._ext.events.delta import Classifier, expand_text
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.receive.protocol import Conversation, Protocol
from fastllmload._ext.record.recorder import Recorder
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, FINISH_NAMES, STATUS_NAMES, TOKENS_NONE
from fastllmload.records.shared_memory import SharedWords

CALLS = sorted(CORPUS.glob("grpc_*.h2"))
TYPES = {
    "grpc_vllm": "vllm-grpc",
    "grpc_gateway": "vllm-grpc",
    "grpc_sglang": "sglang-grpc",
    "grpc_kserve": "kserve-grpc",
}
WHY = {  # what a row says where the server sent no words
    "connection closed inside a message": "closed_in_body",
    "END_STREAM without grpc-status": "no_grpc_status",
    "RST_STREAM CANCEL before trailers": "stream_reset",
}

pytestmark = pytest.mark.skipif(not CALLS, reason=f"there are no calls in {CORPUS}")


def read(path: Path) -> tuple[bytes, dict[str, Any], Dialect]:
    dialect = ENDPOINTS[TYPES[path.stem.partition("-")[0]]].dialect
    return path.read_bytes(), json.loads(path.with_suffix(".json").read_text()), dialect


def fed(
    directory: Path, pieces: list[list[bytes]], dialect: Dialect
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int, bytes, int]], str]:
    """Rows, events, texts of errors and the last answer's text: a call per item of *pieces*, each on a connection that
    then closes.
    """
    recorder = Recorder(directory)
    shared = SharedWords.create()
    protocol = Protocol(recorder, Classifier(dialect), shared.words, 1 << 20, 4 << 20)
    said = b""
    for number, reads in enumerate(pieces):
        call = Conversation(protocol, http2=True)
        call.open(1000 * number + 1, keep=True)
        for place, data in enumerate(reads):
            if call.feed(data, 1000 * number + 2 + place):
                break
        if not call.ended:
            call.eof(1000 * (number + 1))
        said, _ = call.kept()
    recorder.close()
    return (
        np.load(directory / "requests.npy"),
        np.load(directory / "tokens.npy"),
        protocol.error_texts.taken(),
        expand_text(said),
    )


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_call_has_the_expected_outcome(tmp_path: Path, path: Path, step: int) -> None:
    data, expected, dialect = read(path)
    rows, events, texts, text = fed(tmp_path, [[data[at : at + step] for at in range(0, len(data), step)]], dialect)
    row, status = rows[0], STATUS_NAMES[rows[0]["status"]]
    assert (status if status in ("ok", "truncated") else "failed") == expected["status"]
    assert row["http_status"] == expected["http"]
    if expected["why"] in WHY:
        assert ERROR_NAMES[row["error"]] == WHY[expected["why"]]
    elif expected["why"] is not None:
        assert [expected["why"].encode() in text for _, _, text, _ in texts] == [True]
    if (expected["end"] or "").startswith("grpc-status"):
        assert row["error_number"] == int(expected["end"].split()[1])
    arrivals = [each for each in events if each["kind"] in ARRIVALS]
    assert [EVENT_NAMES[each["kind"]] for each in arrivals] == [
        SHOWN.get(each["kind"], each["kind"]) for each in expected["arrivals"]
    ]
    for found, arrival in zip(arrivals, expected["arrivals"], strict=True):
        assert arrival["tokens"] in (None, found["tokens"])
    assert FINISH_NAMES[row["finish"]] == (expected["finish"] or "none")
    said = {name: int(row[field]) for name, field in USAGE.items()}
    if said["output"] == -1:  # not said as a sum
        said["output"] = sum(int(each["tokens"]) for each in arrivals if each["tokens"] != TOKENS_NONE) or -1
    assert said == {name: -1 if expected["usage"][name] is None else expected["usage"][name] for name in USAGE}
    assert text == expected["text"].get("content", "")


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_a_call_in_two_reads_has_one_outcome(tmp_path: Path, path: Path) -> None:
    """Split at every byte."""
    data, _, dialect = read(path)
    rows, events, _, _ = fed(tmp_path, [[data[:at], data[at:]] for at in range(1, len(data))], dialect)
    assert (rows[ALIKE] == rows[ALIKE][0]).all()
    kinds = events[["kind", "tokens"]].reshape(len(rows), -1)
    assert (kinds == kinds[0]).all()


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_a_cut_call_is_never_ok(tmp_path: Path, path: Path) -> None:
    """Cut after every byte: a call is ok when its trailers have come, which are the last bytes."""
    data, _, dialect = read(path)
    rows, _, _, _ = fed(tmp_path, [[data[:size]] for size in range(len(data))], dialect)
    assert "ok" not in {STATUS_NAMES[status] for status in rows["status"]}
