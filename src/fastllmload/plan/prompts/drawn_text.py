"""Drawn numbers as prompts that cannot be stitched: texts of random token ids, and words with images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fastllmload._ext.mersenne import Mersenne
from fastllmload.plan.prompts.encoder import PlannedRequest
from fastllmload.workload.content.exact_length import fit_many
from fastllmload.workload.content.image import Images
from fastllmload.workload.content.words import WordTable
from fastllmload.workload.dataset import DatasetRequest
from fastllmload.workload.synthetic import Batch
from fastllmload.workload.tokenizers.tokenizer import Tokenizer


class TokenTexts:
    """Token ids decoded, then repaired until the text has as many tokens as were drawn.

    `exact`: prompts with the drawn number of tokens. *repair*: random stream of the filler.
    """

    def __init__(self, tokenizer: Tokenizer, repair: str) -> None:
        self._tokenizer, self._repair = tokenizer, Mersenne(repair)
        self.exact = 0

    def requests(self, batches: Iterable[Batch]) -> Iterator[PlannedRequest]:
        for batch in batches:
            wanted = batch.prompt.tolist()
            texts = self._tokenizer.decode_many([numbers.tolist() for numbers in batch.prompts()])
            texts, counts = fit_many(self._tokenizer, texts, wanted, self._filler)
            self.exact += sum(have == want for have, want in zip(counts, wanted, strict=True))
            facts = zip(counts, batch.output.tolist(), *batch.marks(), strict=True)
            for text, (count, answer, kind, shared) in zip(texts, facts, strict=True):
                yield PlannedRequest(DatasetRequest("", text), count, answer, kind, shared)

    def _filler(self, tokens: int) -> str:
        ids = np.empty(tokens, np.uint32)
        self._repair.below(self._tokenizer.ordinary, ids, 0, tokens)
        return self._tokenizer.decode(ids.tolist())


def with_images(
    batches: Iterable[Batch], table: WordTable, image: tuple[int, int, int], seed: str
) -> Iterator[PlannedRequest]:
    """One message per request: its words, then its images. Input tokens are those of the words; only the server
    knows the tokens of an image.
    """
    width, height, count = image
    images = Images(seed)
    for batch in batches:
        facts = zip(batch.prompt.tolist(), batch.output.tolist(), *batch.marks(), strict=True)
        for text, (size, answer, kind, shared) in zip(table.texts(batch), facts, strict=True):
            parts = [{"type": "text", "text": text + table.suffix}]
            parts += [images.part(width, height) for _ in range(count)]
            request = DatasetRequest("", [{"role": "user", "content": parts}])
            yield PlannedRequest(request, size + table.suffix_tokens, answer, kind, shared)
