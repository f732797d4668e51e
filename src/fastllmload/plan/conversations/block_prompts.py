"""Write prompts that are made of the segments of a graph: words or token ids, shared where the trace says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fastllmload import settings as asked
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, disk_errors
from fastllmload.plan.conversations.opening import ChosenCalls
from fastllmload.plan.plan import PIECES
from fastllmload.plan.prompts.segments import Written, write_segments
from fastllmload.plan.prompts.source import Origin
from fastllmload.workload.content.words import WordTable, id_table, text_table
from fastllmload.workload.graph import CallGraph, Numbers
from fastllmload.workload.sharing.segments import Segments
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

COPIED = 1 << 22  # bytes of complete bodies that are written at once


def write_blocks(
    path: Path, graph: CallGraph, segments: Segments, chosen: ChosenCalls, bodies: Numbers | None, workload: asked.Workload,
    tokenizer: Tokenizer | None, endpoint: Endpoint, model: str, origin: Origin,
) -> Bodies:  # fmt: skip
    """The prompts of the *chosen* calls of *graph*, whose calls have *segments*, drawn from *origin*. *bodies*: positions of
    those that have one; None: all.
    """
    ids = endpoint.form(workload) == "ids"
    table = table_of(workload, tokenizer, ids)
    pieces = endpoint.body_pieces(model, msgspec.structs.replace(workload, prompt_form="ids" if ids else "words"))
    segments = segments.of_rounds(chosen.call, chosen.round)
    tokens, answers = segments.tokens(), graph.output[chosen.call]
    if bodies is not None:
        tokens, answers = tokens[bodies], answers[bodies]
    written = write_segments(path, segments, table, pieces, answers, str(origin), bodies)
    found = Bodies(
        tokens.astype(np.int32), answers.astype(np.int32), written.first, written.sha256,
        np.zeros(len(tokens), np.uint16), graph={PIECES: written.pieces},
    )  # fmt: skip
    return found if endpoint.call is None else complete(path, found, written)


def table_of(workload: asked.Workload, tokenizer: Tokenizer | None, ids: bool) -> WordTable:
    if ids:
        assert tokenizer is not None
        return id_table(tokenizer).salted(workload.salt)
    if workload.prompt_form != "words":
        raise InputError(
            "option-not-applicable",
            f"--prompt-form {workload.prompt_form}: the blocks of a trace are made of words or of token ids; use "
            "--prompt-form words or ids",
        )
    return text_table(tokenizer).salted(workload.salt)


def complete(path: Path, bodies: Bodies, written: Written) -> Bodies:
    """The bodies in *path* in one piece each: for protocols whose messages are made from complete ones."""
    raw = np.fromfile(path, np.uint8)
    at, size = written.pieces["at"].astype(np.int64), written.pieces["size"].astype(np.int64)
    first = written.first.astype(np.int64)
    with disk_errors(path), open(path, "wb") as file:
        pending: list[bytes] = []
        pending_bytes = 0
        for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            pending += [raw[at[one] : at[one] + size[one]].tobytes() for one in range(begin, end)]
            pending_bytes += int(size[begin:end].sum())
            if pending_bytes > COPIED:
                file.write(b"".join(pending))
                pending, pending_bytes = [], 0
        file.write(b"".join(pending))
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    return replace(bodies, offsets=totals[first].astype(np.uint64), graph={}, sha256="")
