"""asiai's benchmark protocol as a run: few requests of each prompt type, one at a time, at temperature 0.

It does not measure load; the methodology's tests are `fastllmload procedure`. Prompts repeat, as asiai specifies: if the
engine caches prefixes, the TTFT of later runs is that of a cached prompt.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fastllmload.experiment.level.settings import changed
from fastllmload.settings import Load, RunSettings
from fastllmload.workload.dataset import read_dataset

PROMPTS = Path(__file__).with_name("prompts.jsonl")
RUNS = 3
WARMUP_PROMPT, WARMUP_TOKENS = "Hello", 1


def prompt_types() -> list[str]:
    """The classes of the prompts, in the order in which they are sent."""
    return read_dataset("custom", PROMPTS, None).classes()


def as_run(asked: RunSettings, runs: int) -> RunSettings:
    """Settings of one engine's run: every prompt type in turn, *runs* times. Target, client and output are as *asked*."""
    load = Load(
        concurrency=1,
        num_requests=runs * len(prompt_types()),
        warmup_requests=0,  # `warmup` sends the protocol's own before
        timeout=asked.load.timeout,
        grace=asked.load.grace,
    )
    labels = (("profile", "quick"), *(pair for pair in asked.output.metadata if pair[0] != "profile"))
    workload = {"name": "custom", "dataset_path": str(PROMPTS), "temperature": 0.0, "ignore_eos": False}
    kept = changed(asked, workload=workload, client={"workers": 1}, output={"metadata": labels})
    return msgspec.structs.replace(kept, load=load)


def engines(asked: RunSettings) -> list[RunSettings]:
    """Settings of one run per URL, each with its own folder; without URL, of one run of the simulated engine."""
    urls = asked.target.urls
    if len(urls) < 2:
        return [asked]
    return [
        changed(asked, target={"urls": (url,)}, output={"directory": folder_of(asked.output.directory, number)})
        for number, url in enumerate(urls, 1)
    ]


def folder_of(directory: str | None, number: int) -> str | None:
    return None if directory is None else str(Path(directory) / f"engine-{number}")
