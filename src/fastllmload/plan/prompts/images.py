"""Bodies with drawn words and synthetic images as the prompt, each encoded separately."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.settings import Workload
from fastllmload.workload.content.image import Images
from fastllmload.workload.content.words import WordTable
from fastllmload.workload.synthetic import Batch


class Pieces(Protocol):
    def encode(self, prompt: Any, tokens: int) -> bytes: ...


class Endpoint(Protocol):
    def messages_pieces(self, model: str, workload: Workload) -> Pieces: ...


def write_image_prompts(
    path: Path,
    batches: Iterable[Batch],
    table: WordTable,
    endpoint: Endpoint,
    model: str,
    workload: Workload,
    seed: str,
) -> Bodies:
    """One message per request: its words, then its images. Input tokens are those of the words; only the server
    knows the tokens of an image.
    """
    assert workload.image is not None
    width, height, count = workload.image
    images, pieces = Images(seed), endpoint.messages_pieces(model, workload)
    with BodyFile(path) as file:
        for batch in batches:
            facts = zip(batch.prompt.tolist(), batch.output.tolist(), *batch.marks(), strict=True)
            for text, (size, answer, kind, shared) in zip(table.texts(batch), facts, strict=True):
                parts = [{"type": "text", "text": text + table.suffix}]
                parts += [images.part(width, height) for _ in range(count)]
                body = pieces.encode([{"role": "user", "content": parts}], answer)
                file.add(body, size + table.suffix_tokens, answer, kind, shared)
    return file.bodies()
