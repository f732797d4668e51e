"""Prompts of a data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from fastllmload import settings as asked
from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import DatasetFacts, WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.prompts.encoder import PlannedRequest, RequestEncoder, write_requests
from fastllmload.plan.prompts.source import Origin, described
from fastllmload.workload.content.image import Images
from fastllmload.workload.dataset import Dataset
from fastllmload.workload.lengths import Fixed, parse_lengths
from fastllmload.workload.request import DatasetRequest
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import Tokenizer, load_tokenizer

SUBSETS = {  # of the file
    "sharegpt": "conversations with a question and an answer to it: their first question",
    "hf": "rows with a prompt, and with an answer where other rows have one: their first question",
}


class DatasetPrompts:
    """The requests of *dataset* without end; --osl supplies or replaces their output lengths."""

    instants = None

    def __init__(self, workload: asked.Workload, origin: Origin, dataset: Dataset) -> None:
        self.workload, self._origin, self._dataset = workload, origin, dataset
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._classes = dataset.classes()
        self._written = 0

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        encoder = RequestEncoder(endpoint, model, self.workload, Images(f"{self._origin}/image"))
        bodies = write_requests(path, self._requests(), encoder, quota)
        self._written = len(bodies.input_tokens)
        return bodies

    def _requests(self) -> Iterator[PlannedRequest]:
        osl = None if self.workload.osl is None else parse_lengths(self.workload.osl, "--osl")
        lengths, counted = Mersenne(f"{self._origin}/lengths"), dict[int, int]()
        number = {name: at for at, name in enumerate(self._classes)}
        for one in self._dataset.ordered(self._origin):
            own = osl is None or self._dataset.has_own_length(one)
            tokens = one.output_tokens if osl is None or own else osl.draw(lengths)
            if tokens is None:
                raise InputError("output-length-missing", f"{one.where} has no output length; add --osl")
            size = counted.get(id(one))
            if size is None:
                size = counted[id(one)] = one.tokens(self._tokenizer)
            yield PlannedRequest(one, size, max(tokens, self.workload.least_output), number[one.name or ""])

    def describe(self) -> WorkloadDescription:
        osl = "data set" if self.workload.osl is None else self.workload.osl
        dataset = self._dataset
        facts = DatasetFacts(
            sha256=dataset.sha256,
            requests=len(dataset.requests),
            left_out=dataset.left_out,
            subset=SUBSETS.get(dataset.name, "every entry"),
            used=min(self._written, len(dataset.requests)),
            order="drawn without replacement by the seed" if dataset.shuffled else "as in the file",
            rounds=self._written / len(dataset.requests),
            classes=tuple(self._classes),
        )
        common = described(self.workload, self._tokenizer, "data set", osl, "data set")
        return replace(common, dataset=subset_facts(facts, self.workload))


def subset_facts(facts: DatasetFacts, workload: asked.Workload) -> DatasetFacts:
    """The *facts* of a data set, of which *workload* may use one class, and entries of some lengths."""
    subset = facts.subset if workload.dataset_class is None else f"entries of class {workload.dataset_class}"
    if workload.dataset_lengths:
        subset = f"{subset}; of these those within {bounds_text(workload)} tokens"
    return replace(facts, subset=subset)


def bounds_text(workload: asked.Workload) -> str:
    """As typed: `min-input=4,max-total=2048`."""
    return ",".join(f"{bound}={tokens}" for bound, tokens in workload.dataset_lengths)


def of_lengths(workload: asked.Workload, dataset: Dataset, tokenizer: Tokenizer | None) -> Dataset:
    """The entries of *dataset* whose tokens are within --dataset-lengths, inclusively; the others are left out. InputError
    when none is left, or an output that has a bound is not known.
    """
    if not workload.dataset_lengths:
        return dataset
    osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
    if not isinstance(osl, Fixed | None) and not all(bound.endswith("-input") for bound, _ in workload.dataset_lengths):
        raise InputError(
            "option-not-applicable",
            f"--dataset-lengths bounds the output of entries, which --osl {workload.osl} draws for each request; give --osl "
            "one length, or bound the input alone",
        )

    def within(one: DatasetRequest) -> bool:
        size = {"input": one.tokens(tokenizer)}
        output = osl.tokens if isinstance(osl, Fixed) and not dataset.has_own_length(one) else one.output_tokens
        if output is not None:
            size |= {"output": output, "total": size["input"] + output}
        for bound, limit in workload.dataset_lengths:
            side, _, of = bound.partition("-")
            if of not in size:
                raise InputError(
                    "output-length-missing", f"{one.where} has no output length, which {bound} bounds; add --osl"
                )
            if size[of] < limit if side == "min" else size[of] > limit:
                return False
        return True

    found = [one for one in dataset.requests if within(one)]
    if not found:
        raise InputError(
            "dataset-empty",
            f"--dataset-lengths {bounds_text(workload)} leaves out all {len(dataset.requests)} entries of "
            f"{workload.dataset_path}; widen the bounds",
        )
    return dataclasses.replace(dataset, requests=found, left_out=dataset.left_out + len(dataset.requests) - len(found))
