"""Build the plan of one phase: schedule, lengths and encoded bodies, all before its time zero.

Random streams of seed S (independent, so that changing the load never changes the requests):

| phase | content and lengths | instants | shared prefixes |
|---|---|---|---|
| measure | S | S/arrivals | S/prefix |
| warmup | S/warmup | S/warmup/arrivals | S/warmup/prefix |

Repetition r > 0 takes its instants from S/arrivals/r; a workload's `stream` stands behind S in all of them.

So a warm-up shares no prompt and no prefix with what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastllmload._ext.mersenne import Mersenne
from fastllmload.arrivals.process import Recorded
from fastllmload.errors import InputError
from fastllmload.plan import settings as asked
from fastllmload.plan.bodies import Bodies, disk_errors, stitcher, write_bodies
from fastllmload.plan.digest import array_hash, digest_of
from fastllmload.plan.pace import Pace, measured_pace, recorded_pace, warmup_pace
from fastllmload.plan.plan import ARRAYS, BODIES, DOCUMENT, SCHEDULE, SCHEMA_VERSION, Plan, write_document
from fastllmload.plan.written import DataSetContent, Encoder
from fastllmload.workload.lengths import Lengths, parse_lengths
from fastllmload.workload.replay import Replay
from fastllmload.workload.synthetic import Prefixes, Quota, Synthetic
from fastllmload.workload.tokenizer import load_tokenizer
from fastllmload.workload.trace import TRACES, Trace, describe_trace, read_trace, rounds
from fastllmload.workload.words import WordTable, id_table, text_table
from fastllmload.workload.written import DATASETS, read_dataset

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

    def encode(self, prompt: Any, tokens: int) -> bytes: ...


class Endpoint(Protocol):
    """A wire protocol of fastllmload.endpoint, as far as a plan needs it."""

    @property
    def name(self) -> str: ...

    def body_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...

    def messages_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...


def build_plan(
    settings: asked.RunSettings, *, phase: str, endpoint: Endpoint, model: str, out_dir: Path, share: float = 1.0
) -> Plan:
    """Write the plan of *phase* (`measure` or `warmup`) to *out_dir* and open it; one kind of traffic.

    A warm-up that is switched off gives a plan without requests; *share* of the usual is enough of it. InputError for
    settings that make no plan, HostLimitError for a disk that is full.
    """
    origin = origin_of(settings, phase)
    content = content_of(settings.workload, origin, f"{origin}/prefix")
    if phase == "measure":
        pace = measured_pace_of(settings, content, arrivals_stream(settings))
    else:
        pace = warmup_pace(settings.load, f"{origin}/arrivals", recorded=content.trace is not None, share=share)
    clear(out_dir)
    bodies, classes = content.write(out_dir / BODIES, pace.quota, endpoint, model)
    description = {
        "phase": phase,
        "seed": settings.client.seed,
        "load": pace.describe(),
        "workload": content.describe(),
        "endpoint": settings.target.endpoint_type,
        "model": model,
        "streaming": settings.workload.streaming,
        "requests": len(bodies.input_tokens),
    }
    return finish(out_dir, description, bodies, classes, {SCHEDULE: pace.schedule(len(bodies.input_tokens))})


def origin_of(settings: asked.RunSettings, phase: str) -> int | str:
    """Seed of a phase's content. The measured one is that of the number itself (IETF A.1.4), which is not the stream of
    its decimal digits.
    """
    seed, stream = settings.client.seed, settings.workload.stream
    if phase not in ("measure", "warmup"):
        raise ValueError(f"phase {phase!r} is neither measure nor warmup")
    if phase == "measure":
        return f"{seed}/{stream}" if stream else seed
    return f"{seed}/warmup/{stream}" if stream else f"{seed}/warmup"


def arrivals_stream(settings: asked.RunSettings) -> str:
    """Stream of the measured phase's instants."""
    again = settings.load.repetition
    return f"{origin_of(settings, 'measure')}/arrivals" + (f"/{again}" if again else "")


def measured_pace_of(settings: asked.RunSettings, content: Content | FromFile, seed: str) -> Pace:
    """A trace brings its own instants, unless a rate or a concurrency is asked for."""
    load, workload = settings.load, settings.workload
    trace = content.trace
    if trace is None or load.rate is not None or load.concurrency is not None:
        return measured_pace(load, seed)
    speed = workload.trace_speed
    facts = {"speed": speed, "loop": workload.trace_loop}
    recorded = Recorded(lambda: rounds(trace, speed), facts)
    return recorded_pace(load, recorded, len(trace), workload.trace_loop, seed)


def content_of(workload: asked.Workload, seed: int | str, prefix_seed: str) -> Content | FromFile:
    """What *workload* names."""
    if workload.name in DATASETS:
        return FromFile(workload, seed)
    return Content(workload, seed, prefix_seed)


class FromFile:
    """What is sent: the requests of a data set."""

    trace: Trace | None = None

    def __init__(self, workload: asked.Workload, seed: int | str) -> None:
        self.workload = workload
        if workload.dataset_path is None:
            raise InputError(f"--workload {workload.name} is read from a file; add --dataset-path FILE")
        tokenizer = load_tokenizer(workload.tokenizer)
        dataset = read_dataset(workload.name, Path(workload.dataset_path), tokenizer)
        osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        self._requests = DataSetContent(dataset, tokenizer, osl, Mersenne(f"{seed}/lengths"), seed)

    def write(
        self, path: Path, quota: Quota, endpoint: Endpoint, model: str
    ) -> tuple[Bodies, npt.NDArray[np.uint16]]:
        """Bodies until *quota* is met, and the class of each."""
        return self._requests.write(path, quota, Encoder(endpoint, model, self.workload))

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.workload.name,
            "isl": "data set",
            "osl": "data set" if self.workload.osl is None else self.workload.osl,
            "tokenizer": self.workload.tokenizer,
            "prompt": "data set",
            "prefix_len": 0,
            "num_prefixes": 1,
            "dataset": self._requests.describe(),
        }


class Content:
    """What is sent: the word table and the endless sequence of requests that *workload* names."""

    def __init__(self, workload: asked.Workload, seed: int | str, prefix_seed: str) -> None:
        self.workload = workload
        self.table = _table(workload)
        self.trace = _trace(workload)
        self.requests: Synthetic | Replay
        if self.trace is not None:
            self.requests = Replay(self.trace, self.table.span, seed)
            self.isl, self.osl = "trace", "trace"
            return
        isl, osl = _lengths(workload)
        prefixes = _prefixes(workload, self.table.span, prefix_seed)
        self.requests = Synthetic(isl, osl, self.table.span, seed, prefixes)
        self.isl, self.osl = str(isl), str(osl)

    def write(
        self, path: Path, quota: Quota, endpoint: Endpoint, model: str
    ) -> tuple[Bodies, npt.NDArray[np.uint16]]:
        """Bodies until *quota* is met, and the class of each, which is one."""
        pieces = endpoint.body_pieces(model, self.workload)
        stitch = stitcher(self.table, pieces.before, [*pieces.middle, pieces.tail])
        bodies = write_bodies(path, self.requests.batches(quota), stitch)
        return bodies, np.zeros(len(bodies.input_tokens), dtype=np.uint16)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.workload.name,
            "isl": self.isl,
            "osl": self.osl,
            "tokenizer": self.workload.tokenizer,
            "prompt": self.table.form,
            "prefix_len": self.workload.prefix_len,
            "num_prefixes": self.workload.num_prefixes,
            **({} if self.trace is None else {"trace": describe_trace(self.trace)}),
        }


def finish(
    directory: Path,
    description: dict[str, Any],
    bodies: Bodies,
    classes: npt.NDArray[np.uint16],
    optional: Mapping[str, npt.NDArray[Any] | None],
) -> Plan:
    """Arrays and document of a plan whose bodies are written; *optional* are those that not every plan has."""
    arrays: dict[str, Any] = {
        "input_tokens.npy": bodies.input_tokens,
        "output_tokens.npy": bodies.output_tokens,
        "request_class.npy": classes,
        "body_offset.npy": bodies.offsets,
        **optional,
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


def clear(directory: Path) -> None:
    """An empty folder as far as plans go: nothing of an earlier one stays."""
    with disk_errors(directory / DOCUMENT):
        directory.mkdir(parents=True, exist_ok=True)
        for name in (DOCUMENT, BODIES, *ARRAYS):
            (directory / name).unlink(missing_ok=True)


def _trace(workload: asked.Workload) -> Trace | None:
    """The part of the trace that was asked for; None for a workload that is none."""
    if workload.name not in TRACES:
        return None
    if workload.dataset_path is None:
        raise InputError(f"--workload {workload.name} is read from a file; add --dataset-path FILE")
    trace = read_trace(workload.name, Path(workload.dataset_path))
    return trace.part(workload.trace_from, workload.trace_to)


def _lengths(workload: asked.Workload) -> tuple[Lengths, Lengths]:
    if workload.name not in LENGTHS:
        known = ", ".join((*LENGTHS, *TRACES, *DATASETS))
        raise InputError(f"--workload {workload.name!r} is not known; choose one of {known}")
    isl, osl = LENGTHS[workload.name]
    return (
        parse_lengths(isl if workload.isl is None else workload.isl, "--isl"),
        parse_lengths(osl if workload.osl is None else workload.osl, "--osl"),
    )


def _table(workload: asked.Workload) -> WordTable:
    if workload.prompt_form not in ("words", "ids"):
        raise InputError(f"--prompt-form {workload.prompt_form!r} is not known; choose words or ids")
    tokenizer = load_tokenizer(workload.tokenizer)
    if workload.prompt_form == "words":
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
