"""Bodies of a data set's requests: encoded separately, hashed and written."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import numpy as np

from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, disk_errors
from fastllmload.plan.conversations.turn_template import TemplatePieces
from fastllmload.settings import Workload
from fastllmload.workload.content.image import Images
from fastllmload.workload.dataset import Dataset, DatasetRequest
from fastllmload.workload.lengths import Lengths, Stream
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

BUFFER = 1 << 20
SUBSETS = {"sharegpt": "conversations with a question and an answer to it: their first question"}  # of the file


class Endpoint(Protocol):
    """A wire protocol, as a data set uses it."""

    @property
    def name(self) -> str: ...

    def body_pieces(self, model: str, workload: Workload) -> TemplatePieces: ...

    def messages_pieces(self, model: str, workload: Workload) -> TemplatePieces:
        """As `body_pieces`, with an array of messages in place of the prompt."""


class DatasetEncoder:
    """Bodies of *dataset* for one model and protocol. Requests with the same own fields share their pieces."""

    def __init__(self, endpoint: Endpoint, model: str, workload: Workload, images: Images | None = None) -> None:
        self._endpoint, self._model, self._workload = endpoint, model, workload
        self._images = images
        self._pieces: dict[tuple[str, bytes], TemplatePieces] = {}

    def encode(self, one: DatasetRequest, tokens: int) -> bytes:
        """InputError names the line, for content that the protocol cannot carry."""
        pieces = self.pieces(one)
        if kind_of(one) == "messages" and self._images is not None:
            return pieces.encode(self._images.with_images(cast("list[dict[str, Any]]", one.content)), tokens)
        return pieces.encode(one.content, tokens)

    def pieces(self, one: DatasetRequest) -> TemplatePieces:
        """The fixed bytes of its body."""
        if one.protocol not in (None, self._endpoint.name):
            raise InputError(
                "protocol-unsupported",
                f"{one.where} is a request of {one.protocol}, but the run uses {self._endpoint.name}; choose entries with "
                "--dataset-class, or the protocol with --endpoint-type",
            )
        kind, extra = kind_of(one), msgspec.json.encode(one.extra)
        pieces = self._pieces.get((kind, extra))
        if pieces is None:
            try:
                pieces = self._pieces[kind, extra] = self._cut(kind, one.extra)
            except InputError as problem:
                raise InputError(problem.code, f"{one.where}: {problem.message}") from None
        return pieces

    def _cut(self, kind: str, extra: dict[str, Any]) -> TemplatePieces:
        """A request's own fields override those of --extra-body."""
        workload = self._workload
        if extra:
            common = {} if workload.extra_body is None else msgspec.json.decode(workload.extra_body)
            workload = msgspec.structs.replace(workload, extra_body=msgspec.json.encode({**common, **extra}).decode())
        if kind == "messages":
            return self._endpoint.messages_pieces(self._model, workload)
        form = "ids" if kind == "ids" else "words"
        return self._endpoint.body_pieces(self._model, msgspec.structs.replace(workload, prompt_form=form))


def kind_of(one: DatasetRequest) -> str:
    return "text" if isinstance(one.content, str) else "ids" if isinstance(one.content[0], int) else "messages"


def subset_facts(facts: dict[str, Any], workload: Workload) -> dict[str, Any]:
    """The *facts* of a data set, of which *workload* may use one class."""
    return (
        facts if workload.dataset_class is None else {**facts, "subset": f"entries of class {workload.dataset_class}"}
    )


class DatasetContent:
    """A data set's requests without end, and their description. *osl* supplies or replaces output lengths."""

    def __init__(
        self, dataset: Dataset, tokenizer: Tokenizer | None, osl: Lengths | None, lengths: Stream, seed: int | str,
        least: int = 0,
    ) -> None:  # fmt: skip
        self.dataset = dataset
        self.classes = dataset.classes()
        self._tokenizer, self._osl, self._lengths, self._seed = tokenizer, osl, lengths, seed
        self._least = least
        self._requests = 0
        self._by_class: Counter[str] = Counter()

    def _sequence(self) -> Iterator[tuple[DatasetRequest, int]]:
        for one in self.dataset.ordered(self._seed):
            tokens = one.output_tokens if self._osl is None else self._osl.draw(self._lengths)
            if tokens is None:
                raise InputError("output-length-missing", f"{one.where} has no output length; add --osl")
            yield one, max(tokens, self._least)

    def write(self, path: Path, quota: Quota, encoder: DatasetEncoder) -> tuple[Bodies, Any]:
        """Write bodies until *quota* is met; returns them and uint16 indices into `classes`."""
        number = {name: at for at, name in enumerate(self.classes)}
        inputs: list[int] = []
        outputs: list[int] = []
        classes: list[int] = []
        ends = [0]
        hasher, input_tokens, output_tokens = hashlib.sha256(), 0, 0
        counted: dict[int, int] = {}
        sequence = self._sequence()
        with disk_errors(path), open(path, "wb", buffering=BUFFER) as file:
            while not quota.met(len(inputs), output_tokens, input_tokens):
                one, tokens = next(sequence)
                body = encoder.encode(one, tokens)
                hasher.update(body)
                file.write(body)
                size = counted.get(id(one))
                if size is None:
                    size = counted[id(one)] = one.tokens(self._tokenizer)
                inputs.append(size)
                outputs.append(tokens)
                classes.append(number["" if one.name is None else one.name])
                ends.append(ends[-1] + len(body))
                input_tokens, output_tokens = input_tokens + size, output_tokens + tokens
        self._requests = len(inputs)
        bodies = Bodies(
            np.array(inputs, np.int32), np.array(outputs, np.int32), np.array(ends, np.uint64), hasher.hexdigest()
        )
        return bodies, np.array(classes, np.uint16)

    def describe(self) -> dict[str, Any]:
        """Facts of the file, and how often it was read through."""
        return {
            "sha256": self.dataset.sha256,
            "requests": len(self.dataset.requests),
            "left_out": self.dataset.left_out,
            "subset": SUBSETS.get(self.dataset.name, "every entry"),
            "used": min(self._requests, len(self.dataset.requests)),
            "order": "drawn without replacement by the seed" if self.dataset.shuffled else "as in the file",
            "rounds": self._requests / len(self.dataset.requests),
            "classes": self.classes,
        }
