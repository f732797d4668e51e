"""Code completion (IETF A.4): a repository context, then the function to complete.

Ten contexts of 512 to 1,024 tokens are fixed for a run. A request uses one of them with probability 0.8, context k in
proportion to k^-1.5; the others have a context of their own of the same lengths. A context is always the beginning of
the prompt, byte for byte, so that a prefix cache can hit.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import DatasetFacts, SharedText, WorkloadDescription
from fastllmload.errors import InputError
from fastllmload.workload.content.exact_length import fit, fit_many
from fastllmload.workload.content.functions import FunctionGenerator
from fastllmload.workload.lengths import Lengths, LogNormal
from fastllmload.workload.request import BATCH, ComposedPrompt, field_error
from fastllmload.workload.synthetic import draw_index, zipf
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

CONTEXTS, SHARE, EXPONENT = 10, 0.8, 1.5
CONTEXT_TOKENS = (512, 1024)
FUNCTION = LogNormal(5.0, 0.8, 16, 2048)  # the draft gives no lengths
OUTPUT = LogNormal(4.0, 1.5, 1, 4096)  # the draft gives no bounds
CHARACTERS = 5  # of code per token, at most: the length generated before cutting
FIELDS = ("content", "code", "text")


@dataclass(frozen=True)
class CodeSamples:
    """Functions of a file, in its order: JSON lines with `content` (The Stack), `code` or `text`."""

    sha256: str
    texts: list[str]

    @classmethod
    def read(cls, path: Path) -> CodeSamples:
        """InputError names the file, the line and the cause."""
        from fastllmload.workload.dataset import read_lines

        raw, entries = read_lines(path)
        texts = []
        for entry, where in entries:
            found = next((entry[name] for name in FIELDS if isinstance(entry.get(name), str)), None)
            if not found:
                raise field_error(f"{where} contains no code; it needs {', '.join(FIELDS[:-1])} or {FIELDS[-1]}")
            texts.append(found)
        if not texts:
            raise InputError("dataset-empty", f"--dataset-path {path} contains no code")
        return cls(hashlib.sha256(raw).hexdigest(), texts)


@dataclass
class CompletionParts:
    """The parts of one request, before it is cut to its length."""

    context: str
    context_tokens: int
    function: str
    function_tokens: int
    output_tokens: int
    shared: int | None = field(default=None)  # number of the context, None for one of its own

    def shared_part(self) -> tuple[int, int]:
        """Number of tokens shared with other requests, and the context they belong to."""
        return (0, 0) if self.shared is None else (self.context_tokens, self.shared)


class Completion:
    """Requests with functions of *samples* or, without them, generated ones; *osl* replaces the output lengths."""

    def __init__(
        self, tokenizer: Tokenizer | None, seed: int | str, prefix_seed: str, *,
        samples: CodeSamples | None = None, osl: Lengths | None = None,
    ) -> None:  # fmt: skip
        self._tokenizer, self._samples = tokenizer, samples
        self._stream, self._seed = Mersenne(seed), seed
        self._osl = OUTPUT if osl is None else osl
        self._prefix = random.Random(prefix_seed)
        self._own_contexts, self._functions = FunctionGenerator(f"{seed}/context"), FunctionGenerator(f"{seed}/text")
        self._cumulative = zipf(CONTEXTS, EXPONENT)
        self.lengths = [self._prefix.randint(*CONTEXT_TOKENS) for _ in range(CONTEXTS)]
        shared = FunctionGenerator(f"{prefix_seed}/text")
        self._contexts = [self._context(shared, length) for length in self.lengths]
        self._context_of: list[int] = []  # context of each request, CONTEXTS for one of its own

    def _context(self, code: FunctionGenerator, tokens: int) -> tuple[str, str]:
        """A context of *tokens* and its language. It ends with a newline: what follows starts a line."""
        language = code.language()
        text = fit(self._tokenizer, code.repository(language, tokens * CHARACTERS), tokens - 1)
        return text.rstrip("\n") + "\n", language

    def batches(self) -> Iterator[list[ComposedPrompt]]:
        order = self._order()
        while True:
            parts = [self._next(order) for _ in range(BATCH)]
            wanted = [one.context_tokens + one.function_tokens for one in parts]
            texts = [one.context + one.function for one in parts]
            counts = wanted
            if self._tokenizer is None:
                texts = [fit(None, text, size) for text, size in zip(texts, wanted, strict=True)]
            else:
                texts, counts = fit_many(self._tokenizer, texts, wanted)
            yield [
                ComposedPrompt(text, size, count, one.output_tokens, *one.shared_part())
                for text, size, count, one in zip(texts, wanted, counts, parts, strict=True)
            ]

    def _next(self, order: Iterator[str]) -> CompletionParts:
        """Draw the context from the prefix stream, then the lengths of function and answer, then the function."""
        number: int | None = None
        if self._prefix.random() < SHARE:
            number = draw_index(self._cumulative, self._prefix.random())
            (context, language), size = self._contexts[number], self.lengths[number]
            self._context_of.append(number)
        else:
            self._context_of.append(CONTEXTS)
            size = self._prefix.randint(*CONTEXT_TOKENS)
            context, language = self._context(self._own_contexts, size)
        tokens, answer = FUNCTION.draw(self._stream), self._osl.draw(self._stream)
        if self._samples is not None:
            function = next(order)
        else:
            function = self._functions.functions(language, tokens * CHARACTERS)
        return CompletionParts(context, size, function, tokens, answer, number)

    def _order(self) -> Iterator[str]:
        """The file's functions, drawn without replacement by the seed; drawn again once all were used."""
        texts = [] if self._samples is None else list(self._samples.texts)
        draw = random.Random(f"{self._seed}/order")
        while True:
            draw.shuffle(texts)
            yield from texts or [""]

    def describe(self, found: WorkloadDescription, requests: int) -> WorkloadDescription:
        used = self._context_of[:requests]
        counts = tuple(used.count(number) for number in range(CONTEXTS))
        facts = None
        if self._samples is not None:
            n = len(self._samples.texts)
            order = "drawn without replacement by the seed"
            subset = "every entry of the file, cut to the length that is drawn"
            facts = DatasetFacts(
                sha256=self._samples.sha256, requests=n, left_out=0, subset=subset, order=order, rounds=requests / n
            )
        return replace(
            found,
            contexts=SharedText(tokens=tuple(self.lengths), share=SHARE, exponent=EXPONENT, chosen=counts),
            function_tokens=str(FUNCTION),
            stand_in=self._samples is None,
            dataset=facts,
        )

    def deviations(self) -> list[str]:
        if self._samples is not None:
            return []
        return ["code-completion without The Stack: generated functions; --dataset-path FILE has real ones"]
