"""Prompts composed of parts: conversation and code completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from fastllmload import settings as asked
from fastllmload.documents.plan import WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.prompts.encoder import PlannedRequest, RequestEncoder, write_requests
from fastllmload.plan.prompts.source import Origin, described, exactness, sharing
from fastllmload.workload.completion import CodeSamples, Completion
from fastllmload.workload.conversation import Conversation
from fastllmload.workload.dataset import Dataset
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.request import ComposedSource, DatasetRequest
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer


class ComposedPrompts:
    """Prompts of conversation and code completion, each encoded separately."""

    instants = None

    def __init__(
        self, workload: asked.Workload, origin: Origin, prefix_seed: str,
        dataset: Dataset | None = None, samples: CodeSamples | None = None,
    ) -> None:  # fmt: skip
        self.workload = workload
        self._origin, self._prefix_seed = origin, prefix_seed
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        self._dataset, self._samples = dataset, samples
        self._source: ComposedSource | None = None
        self._exact = self._repeated = self._written = 0
        self._shared_share: float | None = None
        self._hit_rate: float | None = None

    def _make_source(self, chat: bool) -> ComposedSource:
        if self.workload.name == "conversation":
            return Conversation(
                self._tokenizer, self._origin, self._prefix_seed, chat=chat, dataset=self._dataset, osl=self._osl
            )
        return Completion(self._tokenizer, self._origin, self._prefix_seed, samples=self._samples, osl=self._osl)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        self._source = self._make_source(chat=endpoint.takes("messages"))
        bodies = write_requests(
            path, self._requests(self._source), RequestEncoder(endpoint, model, self.workload), quota
        )
        self._written = len(bodies.input_tokens)
        self._shared_share, self._hit_rate = sharing(bodies, self._repeated)
        return bodies

    def _requests(self, source: ComposedSource) -> Iterator[PlannedRequest]:
        """Those of *source*, of which the exact and the repeated are counted."""
        used: set[int] = set()  # shared parts of earlier requests
        for batch in source.batches():
            for one in batch:
                self._exact += one.input_tokens == one.target
                self._repeated += one.shared if one.part in used else 0
                used |= {one.part} if one.shared else set()
                answer = max(one.output_tokens, self.workload.least_output)
                request = DatasetRequest(self.workload.name, one.content)
                yield PlannedRequest(request, one.input_tokens, answer, shared=one.shared)

    def describe(self) -> WorkloadDescription:
        name = self.workload.name
        osl = name if self.workload.osl is None else self.workload.osl
        found = described(self.workload, self._tokenizer, name, osl, "composed")
        assert self._source is not None  # a plan is described after it is written
        checked = 0 if self._tokenizer is None else self._written
        return replace(
            self._source.describe(found, self._written),
            deviations=(*self._source.deviations(), *found.deviations),
            shared_token_share=self._shared_share,
            prefix_hit_rate=self._hit_rate,
            exact=exactness(checked, min(checked, self._exact), self._written),
        )
