"""Build the plan of one phase: schedule, lengths and encoded bodies, all before its time zero.

Random streams of seed S (independent, so that changing the load never changes the requests):

| phase | content and lengths | instants | shared prefixes |
|---|---|---|---|
| measure | S | S/arrivals | S/prefix |
| warmup | S/warmup | S/warmup/arrivals | S/warmup/prefix |

So a warm-up shares no prompt and no prefix with what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastllmload.errors import InputError
from fastllmload.plan import settings as asked
from fastllmload.plan.bodies import Bodies, disk_errors, stitcher, write_bodies
from fastllmload.plan.digest import array_hash, digest_of
from fastllmload.plan.pace import Pace, measured_pace, warmup_pace
from fastllmload.plan.plan import ARRAYS, BODIES, DOCUMENT, SCHEDULE, SCHEMA_VERSION, Plan, write_document
from fastllmload.workload.lengths import Lengths, parse_lengths
from fastllmload.workload.synthetic import Prefixes, Synthetic
from fastllmload.workload.tokenizer import load_tokenizer
from fastllmload.workload.words import WordTable, id_table, text_table

LENGTHS = {  # workload: (input, output), IETF A.1 and A.2
    "synthetic-uniform": ("uniform:128,512", "uniform:64,256"),
    "synthetic-skewed": ("lognormal:5.5,1.0,32,4096", "lognormal:4.5,1.2,16,2048"),
}
LONGEST_PREFIX = 1_000_000


class BodyPieces(Protocol):
    """body = before + prompt as JSON + middle[0] + N + middle[1] + N … + tail, N = output tokens."""

    @property
    def before(self) -> bytes: ...

    @property
    def middle(self) -> Sequence[bytes]: ...

    @property
    def tail(self) -> bytes: ...


class Endpoint(Protocol):
    """A wire protocol of fastllmload.endpoint, as far as a plan needs it."""

    def body_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...


def build_plan(
    settings: asked.RunSettings, *, phase: str, endpoint: Endpoint, model: str, out_dir: Path
) -> Plan:
    """Write the plan of *phase* (`measure` or `warmup`) to *out_dir* and open it.

    A warm-up that is switched off gives a plan without requests. InputError for settings that make no plan,
    HostLimitError for a disk that is full.
    """
    seed = settings.client.seed
    if phase == "measure":
        # The stream of the number itself (IETF A.1.4), which is not the stream of its decimal digits.
        root, content = str(seed), Content(settings.workload, seed, f"{seed}/prefix")
        pace = measured_pace(settings.load, f"{root}/arrivals")
    elif phase == "warmup":
        root = f"{seed}/warmup"
        content = Content(settings.workload, root, f"{root}/prefix")
        pace = warmup_pace(settings.load, f"{root}/arrivals")
    else:
        raise ValueError(f"phase {phase!r} is neither measure nor warmup")
    pieces = endpoint.body_pieces(model, settings.workload)
    stitch = stitcher(content.table, pieces.before, [*pieces.middle, pieces.tail])
    _clear(out_dir)
    bodies = write_bodies(out_dir / BODIES, content.requests.batches(pace.quota), stitch)
    description = {
        "phase": phase,
        "seed": seed,
        "load": pace.describe(),
        "workload": content.describe(),
        "endpoint": settings.target.endpoint_type,
        "model": model,
        "streaming": settings.workload.streaming,
        "requests": len(bodies.input_tokens),
    }
    return _finish(out_dir, description, bodies, pace)


class Content:
    """What is sent: the word table and the endless sequence of requests that *workload* names."""

    def __init__(self, workload: asked.Workload, seed: int | str, prefix_seed: str) -> None:
        self.workload = workload
        self.isl, self.osl = _lengths(workload)
        self.table = _table(workload)
        prefixes = _prefixes(workload, self.table.span, prefix_seed)
        self.requests = Synthetic(self.isl, self.osl, self.table.span, seed, prefixes)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.workload.name,
            "isl": str(self.isl),
            "osl": str(self.osl),
            "tokenizer": self.workload.tokenizer,
            "prompt": self.table.form,
            "prefix_len": self.workload.prefix_len,
            "num_prefixes": self.workload.num_prefixes,
        }


def _finish(directory: Path, description: dict[str, Any], bodies: Bodies, pace: Pace) -> Plan:
    """Arrays and document of a plan whose bodies are written."""
    arrays: dict[str, Any] = {
        SCHEDULE: pace.schedule(len(bodies.input_tokens)),
        "input_tokens.npy": bodies.input_tokens,
        "output_tokens.npy": bodies.output_tokens,
        "request_class.npy": np.zeros(len(bodies.input_tokens), dtype=np.uint16),
        "body_offset.npy": bodies.offsets,
    }
    members = {BODIES: bodies.sha256}
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "description": description,
        "members": members,
    }
    with disk_errors(directory / DOCUMENT):
        for name, array in arrays.items():
            if array is not None:
                np.save(directory / name, array)
                members[name] = array_hash(array)
        document["digest"] = digest_of(document)
        write_document(directory, document)
    return Plan.open(directory)


def _clear(directory: Path) -> None:
    """An empty folder as far as plans go: nothing of an earlier one stays."""
    with disk_errors(directory / DOCUMENT):
        directory.mkdir(parents=True, exist_ok=True)
        for name in (DOCUMENT, BODIES, *ARRAYS):
            (directory / name).unlink(missing_ok=True)


def _lengths(workload: asked.Workload) -> tuple[Lengths, Lengths]:
    if workload.name not in LENGTHS:
        raise InputError(f"--workload {workload.name!r} is not known; choose one of {', '.join(LENGTHS)}")
    isl, osl = LENGTHS[workload.name]
    return (
        parse_lengths(isl if workload.isl is None else workload.isl, "--isl"),
        parse_lengths(osl if workload.osl is None else workload.osl, "--osl"),
    )


def _table(workload: asked.Workload) -> WordTable:
    if workload.prompt_form not in ("text", "ids"):
        raise InputError(f"--prompt-form {workload.prompt_form!r} is neither text nor ids")
    tokenizer = load_tokenizer(workload.tokenizer)
    if workload.prompt_form == "text":
        return text_table(tokenizer)
    if tokenizer is None:
        raise InputError(
            "--prompt-form ids needs a tokenizer whose ids the server reads; --tokenizer none has no ids"
        )
    return id_table(tokenizer)


def _prefixes(workload: asked.Workload, span: int, seed: str) -> Prefixes | None:
    if not 0 <= workload.prefix_len <= LONGEST_PREFIX:
        raise InputError(f"--prefix-len {workload.prefix_len} must be 0 to {LONGEST_PREFIX} tokens")
    if not 1 <= workload.num_prefixes <= LONGEST_PREFIX:
        raise InputError(f"--num-prefixes {workload.num_prefixes} must be 1 to {LONGEST_PREFIX}")
    if workload.prefix_len == 0:
        return None
    return Prefixes(workload.prefix_len, workload.num_prefixes, span, seed)
