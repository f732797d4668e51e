"""Conversation (IETF A.3): a question of a ShareGPT file, or filler; half have a system prompt of 200 more tokens."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from msgspec.structs import replace

from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import DatasetFacts, LengthQuantiles, SharedText, WorkloadDescription
from fastllmload.workload.content.exact_length import fit, fit_many
from fastllmload.workload.content.prose import Prose
from fastllmload.workload.dataset import Dataset
from fastllmload.workload.dialogues import ScriptedTurn
from fastllmload.workload.lengths import Lengths, RandomStream, standard_normal
from fastllmload.workload.request import BATCH, ComposedPrompt, Content, DatasetRequest
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

SYSTEM_TOKENS, SYSTEM_SHARE = 200, 0.5
STAND_IN = "conversation without ShareGPT: fitted lengths and filler text; --dataset-path FILE has the real ones"
Z95 = 1.644853627
REFERENCE = LengthQuantiles(input=(156, 892, 2134), output=(234, 789, 1567))  # P50, P95, P99 of IETF A.3.2
SYSTEM = (
    "You are a helpful assistant. Read the whole message before you answer, and answer the question that was asked."
    " Say so when you do not know something, and never make up names, numbers or sources. Keep answers short unless"
    " the user wants detail; put the most important point first. Use plain words and whole sentences. When you show"
    " code, write the language of the code, keep to the style of what the user sent, and explain what is not "
    "obvious. When you calculate, show the steps and check the result. When a request can mean two things, name "
    "both and answer the likelier one. Be polite, also when the user is not. Do not repeat the question, do not "
    "praise it, and do not end with an offer of more help. Answer in the language of the user. Dates are written "
    "with the name of the month, amounts of money with their currency, and measurements in metric units unless the "
    "user used others. Lists have at most seven entries. Stay calm."
)


@dataclass(frozen=True)
class Piecewise:
    """Log-normal with one spread up to P95 and another above: the fit that meets P50, P95 and P99 exactly."""

    mu: float
    below: float
    above: float
    p95: float
    low: int
    high: int

    def draw(self, stream: RandomStream) -> int:
        z = standard_normal(stream)
        exponent = self.mu + self.below * z if z <= Z95 else math.log(self.p95) + self.above * (z - Z95)
        length = math.exp(exponent)
        return min(self.high, max(self.low, int(length + 0.5)))

    def __str__(self) -> str:
        return f"piecewise log-normal, median {math.exp(self.mu):.0f}, P95 {self.p95:g}, {self.low} to {self.high}"


QUESTION = Piecewise(math.log(156), 1.060040, 1.279963, 892.0, 4, 8192)
ANSWER = Piecewise(math.log(234), 0.738938, 1.006835, 789.0, 1, 4096)


class SystemPrompt:
    """One fixed text of SYSTEM_TOKENS before SYSTEM_SHARE of the conversations, drawn from the prefix stream."""

    def __init__(self, tokenizer: Tokenizer | None, prefix_seed: str) -> None:
        self._stream = random.Random(prefix_seed)
        self.text = fit(tokenizer, SYSTEM, SYSTEM_TOKENS)

    def is_next(self) -> bool:
        """Draw whether the next conversation begins with it."""
        return self._stream.random() < SYSTEM_SHARE

    def prepend_to(self, text: str, *, chat: bool) -> Content:
        """System prompt and question *text*: as messages, or as one text."""
        if chat:
            return [{"role": "system", "content": self.text}, {"role": "user", "content": text}]
        return f"{self.text}\n\n{text}"


class Conversation:
    """Requests of *dataset*, or generated; *osl* replaces output lengths. *chat*: the system prompt is a message."""

    def __init__(
        self, tokenizer: Tokenizer | None, seed: int | str, prefix_seed: str, *,
        chat: bool, dataset: Dataset | None = None, osl: Lengths | None = None,
    ) -> None:  # fmt: skip
        self._tokenizer, self._seed, self._chat = tokenizer, seed, chat
        self._dataset, self._osl = dataset, osl
        self._system = SystemPrompt(tokenizer, prefix_seed)
        self._question_tokens: list[int] = []
        self._answer_tokens: list[int] = []

    def batches(self) -> Iterator[list[ComposedPrompt]]:
        questions = self.questions()
        while True:
            yield [self._compose(*one) for one in islice(questions, BATCH)]

    def questions(self) -> Iterator[tuple[str, int, int, int]]:
        """Without end: text, target and token count of each question, and its output length; no system prompts."""
        return self._generate() if self._dataset is None else self._read(self._dataset)

    def _compose(self, text: str, target: int, tokens: int, answer: int) -> ComposedPrompt:
        self._question_tokens.append(tokens)
        self._answer_tokens.append(answer)
        if not self._system.is_next():
            return ComposedPrompt(text, target, tokens, answer)
        shared = SYSTEM_TOKENS
        content = self._system.prepend_to(text, chat=self._chat)
        if not isinstance(content, str):
            return ComposedPrompt(content, target + shared, tokens + shared, answer, shared)
        wanted = target + shared
        if self._tokenizer is None:
            return ComposedPrompt(content, wanted, wanted, answer, shared)
        fitted, counts = fit_many(self._tokenizer, [content], [wanted])
        return ComposedPrompt(fitted[0], wanted, counts[0], answer, shared)

    def _generate(self) -> Iterator[tuple[str, int, int, int]]:
        """As `questions`, with filler of fitted lengths."""
        stream, prose = Mersenne(self._seed), Prose(f"{self._seed}/text")
        while True:
            lengths = [(QUESTION.draw(stream), (self._osl or ANSWER).draw(stream)) for _ in range(BATCH)]
            wanted = [size for size, _ in lengths]
            texts = [prose.text(size) for size in wanted]
            if self._tokenizer is None:
                texts, counts = [fit(None, text, size) for text, size in zip(texts, wanted, strict=True)], wanted
            else:
                texts, counts = fit_many(self._tokenizer, texts, wanted)
            for text, (size, answer), count in zip(texts, lengths, counts, strict=True):
                yield text, size, count, answer

    def _read(self, dataset: Dataset) -> Iterator[tuple[str, int, int, int]]:
        lengths = Mersenne(f"{self._seed}/lengths")
        ordered = dataset.ordered(self._seed)
        while True:
            part = list(islice(ordered, BATCH))
            texts = [str(one.content) for one in part]
            counts = [0] * len(part) if self._tokenizer is None else self._tokenizer.count_many(texts)
            for one, text, count in zip(part, texts, counts, strict=True):
                answer = self._osl.draw(lengths) if self._osl is not None else answer_tokens(one)
                yield text, count, count, answer

    def describe(self, found: WorkloadDescription, requests: int) -> WorkloadDescription:
        questions, answers = self._question_tokens[:requests], self._answer_tokens[:requests]
        found = replace(
            found,
            system_prompt=SharedText(tokens=SYSTEM_TOKENS, share=SYSTEM_SHARE),
            without_system_prompt=LengthQuantiles(input=quantiles(questions), output=quantiles(answers)),
            reference=REFERENCE,
            stand_in=self._dataset is None,
        )
        if self._dataset is None:
            return replace(found, independent="input and output lengths are drawn independently")
        dataset = DatasetFacts(
            sha256=self._dataset.sha256,
            requests=len(self._dataset.requests),
            left_out=self._dataset.left_out,
            subset="entries with a question and an answer to it",
            order="drawn without replacement by the seed" if self._dataset.shuffled else "as in the file",
            rounds=requests / len(self._dataset.requests),
        )
        return replace(found, dataset=dataset)

    def deviations(self) -> list[str]:
        if self._dataset is not None:
            return []
        return [STAND_IN]


def answer_tokens(one: DatasetRequest) -> int:
    """Tokens of the answer. InputError when they are not known: no tokenizer has counted them."""
    from fastllmload.errors import InputError

    if one.output_tokens is None:
        raise InputError(
            "output-length-missing", f"{one.where}: the output length is not known without a tokenizer; add --osl"
        )
    return one.output_tokens


def quantiles(values: list[int]) -> tuple[int, ...]:
    return tuple(round(one) for one in np.quantile(values, (0.5, 0.95, 0.99))) if values else ()


class Questions:
    """Conversations without end, of the single requests' questions. *answered*: with filler for a planned history."""

    def __init__(self, of: Conversation, tokenizer: Tokenizer | None, seed: int | str, answered: bool) -> None:
        self._questions: Iterator[tuple[str, int, int, int]] = of.questions()
        self._tokenizer = tokenizer
        self._replies = Prose(f"{seed}/replies") if answered else None

    def take(self, turns: int) -> tuple[ScriptedTurn, ...]:
        """The next conversation, of *turns* turns."""
        return tuple(self._turn(number) for number in range(1, turns + 1))

    def _turn(self, number: int) -> ScriptedTurn:
        text, _, tokens, answer = next(self._questions)
        reply = None if self._replies is None else fit(self._tokenizer, self._replies.text(answer), answer)
        return ScriptedTurn(
            DatasetRequest(f"turn {number} of a conversation", text, answer, input_tokens=tokens), None, reply
        )
