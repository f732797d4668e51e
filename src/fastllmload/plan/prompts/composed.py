"""Prompts composed of parts: conversation and code completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload import settings as asked
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.plan.prompts.content import Endpoint, Kinds, described, exactness, sharing
from fastllmload.plan.prompts.dataset_bodies import DatasetEncoder
from fastllmload.plan.prompts.files import dataset_of
from fastllmload.workload.completion import Completion, Samples
from fastllmload.workload.conversation import Conversation
from fastllmload.workload.dataset import DatasetRequest
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.prompt_parts import PromptSource
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.trace import Trace


class ComposedPrompts:
    """Prompts of conversation and code completion, each encoded separately."""

    trace: Trace | None = None

    def __init__(self, workload: asked.Workload, seed: int | str, prefix_seed: str) -> None:
        self.workload = workload
        self._seed, self._prefix_seed = seed, prefix_seed
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        path = None if workload.dataset_path is None else Path(workload.dataset_path)
        chat = workload.name == "conversation"
        self._dataset = None if path is None or not chat else dataset_of("sharegpt", path, workload.tokenizer)
        self._samples = None if path is None or chat else Samples.read(path)
        self._source: PromptSource = self._make_source(chat=True)
        self._checked = self._exact = self._repeated = 0
        self._sharing: dict[str, Any] = {}

    def _make_source(self, chat: bool) -> PromptSource:
        if self.workload.name == "conversation":
            return Conversation(
                self._tokenizer, self._seed, self._prefix_seed, chat=chat, dataset=self._dataset, osl=self._osl
            )
        return Completion(self._tokenizer, self._seed, self._prefix_seed, samples=self._samples, osl=self._osl)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        self._source = self._make_source(chat="chat" in endpoint.name)
        encoder = DatasetEncoder(endpoint, model, self.workload)
        requests = (one for batch in self._source.batches() for one in batch)
        used: set[int] = set()  # shared parts of earlier requests
        with BodyFile(path) as file:
            while not quota.met(file.requests, file.output_tokens, file.input_tokens):
                one = next(requests)
                answer = max(one.output_tokens, self.workload.least_output)
                body = encoder.encode(DatasetRequest(self.workload.name, one.content), answer)
                file.add(body, one.input_tokens, answer, shared=one.shared)
                self._exact += one.input_tokens == one.target
                self._repeated += one.shared if one.part in used else 0
                used |= {one.part} if one.shared else set()
            self._checked = file.requests
        bodies = file.bodies()
        self._sharing = sharing(bodies, self._repeated)
        return bodies, bodies.kinds

    def describe(self) -> dict[str, Any]:
        name = self.workload.name
        osl = name if self.workload.osl is None else self.workload.osl
        facts = described(self.workload, self._tokenizer, name, osl, "composed")
        checked = 0 if self._tokenizer is None else self._checked
        return {
            **facts,
            **self._source.describe(self._checked),
            "deviations": [*self._source.deviations(), *facts["deviations"]],
            **self._sharing,
            "exact": exactness(checked, min(checked, self._exact), self._checked),
        }
