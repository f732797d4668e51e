"""Random token ids as text: decoded, then repaired until the text has as many tokens as drawn ids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from fastllmload._ext.mersenne import Mersenne
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.settings import Workload
from fastllmload.workload.content.exact_length import fit_many
from fastllmload.workload.synthetic import Batch
from fastllmload.workload.tokenizers.tokenizer import Tokenizer


class Pieces(Protocol):
    def encode(self, prompt: Any, tokens: int) -> bytes: ...


class Endpoint(Protocol):
    def body_pieces(self, model: str, workload: Workload) -> Pieces: ...


class TokenTextEncoder:
    """Bodies of one phase. `exact`: prompts with the drawn number of tokens. *repair*: random stream of the filler."""

    def __init__(self, tokenizer: Tokenizer, endpoint: Endpoint, model: str, workload: Workload, repair: str) -> None:
        self._tokenizer = tokenizer
        self._pieces = endpoint.body_pieces(model, msgspec.structs.replace(workload, prompt_form="words"))
        self._repair = Mersenne(repair)
        self.exact = 0

    def write(self, path: Path, batches: Iterable[Batch]) -> Bodies:
        with BodyFile(path) as file:
            for batch in batches:
                wanted = batch.prompt.tolist()
                texts = self._tokenizer.decode_many([numbers.tolist() for numbers in batch.prompts()])
                texts, counts = fit_many(self._tokenizer, texts, wanted, self._filler)
                self.exact += sum(have == want for have, want in zip(counts, wanted, strict=True))
                facts = zip(counts, batch.output.tolist(), *batch.marks(), strict=True)
                for text, (count, answer, kind, shared) in zip(texts, facts, strict=True):
                    file.add(self._pieces.encode(text, answer), count, answer, kind, shared)
        return file.bodies()

    def _filler(self, tokens: int) -> str:
        ids = np.empty(tokens, np.uint32)
        self._repair.below(self._tokenizer.ordinary, ids, 0, tokens)
        return self._tokenizer.decode(ids.tolist())
