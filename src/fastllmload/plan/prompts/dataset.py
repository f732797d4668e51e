"""Prompts of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastllmload import settings as asked
from fastllmload._ext.mersenne import Mersenne
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.prompts.content import Endpoint, Kinds, described, file_of
from fastllmload.plan.prompts.dataset_bodies import DatasetContent, DatasetEncoder, subset_facts
from fastllmload.plan.prompts.files import dataset_of
from fastllmload.workload.content.image import Images
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.trace import Trace


class DatasetPrompts:
    """The requests of a data set."""

    trace: Trace | None = None

    def __init__(self, workload: asked.Workload, seed: int | str) -> None:
        self.workload, self._seed = workload, seed
        self._tokenizer = load_tokenizer(workload.tokenizer)
        dataset = dataset_of(workload.name, file_of(workload), workload.tokenizer)
        if workload.dataset_class is not None:
            dataset = dataset.of_class(workload.dataset_class)
        osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        lengths = Mersenne(f"{seed}/lengths")
        self._requests = DatasetContent(dataset, self._tokenizer, osl, lengths, seed, workload.least_output)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        encoder = DatasetEncoder(endpoint, model, self.workload, Images(f"{self._seed}/image"))
        return self._requests.write(path, quota, encoder)

    def describe(self) -> dict[str, Any]:
        osl = "data set" if self.workload.osl is None else self.workload.osl
        facts = described(self.workload, self._tokenizer, "data set", osl, "data set")
        return {**facts, "dataset": subset_facts(self._requests.describe(), self.workload)}
