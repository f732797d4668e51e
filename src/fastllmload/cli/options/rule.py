"""One rule for combining options, and what it is judged by: the options that were given, and the fields parsed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastllmload.cli.options.parsers import DATASETS, STANDARD, TRACES
from fastllmload.cli.options.sources import Fields, RawOptions
from fastllmload.endpoint import Endpoint, resolve_endpoint
from fastllmload.errors import InputError
from fastllmload.settings import DEFAULT_ENDPOINT

WITH_CONVERSATIONS = ("sharegpt", "custom", "aiperf", "hf")  # data sets that can have conversations
WITH_TURNS = STANDARD[:2]  # drawn workloads that can have conversations
OWN_PROMPTS = STANDARD[2:4]  # conversation, code-completion: with a file or without


@dataclass(frozen=True)
class Chosen:
    """Given options, and the fields parsed from them. Not *complete*: a procedure or a search decides the load."""

    given: RawOptions
    fields: Fields
    complete: bool = True
    of_class: str = ""  # name of the class that they describe

    def has(self, *parameters: str) -> bool:
        return any(each in self.given for each in parameters)

    def where(self, parameter: str) -> str:
        return self.given[parameter].where

    def get(self, field: str, default: object = None) -> Any:
        return self.fields.get(field, default)

    @property
    def workload(self) -> str:
        return str(self.get("workload.name", "synthetic-uniform"))

    @property
    def protocol(self) -> str:
        return self.endpoint.name

    @property
    def endpoint(self) -> Endpoint:
        return resolve_endpoint(str(self.get("target.endpoint_type", DEFAULT_ENDPOINT)))

    @property
    def arrival(self) -> str:
        return str(self.get("load.arrival")).partition(":")[0]

    @property
    def bounded(self) -> bool:
        return any(self.get(each) is not None for each in ("load.duration", "load.num_requests", "run.num_requests"))

    @property
    def recorded_instants(self) -> bool:
        return self.workload in TRACES and self.get("load.rate") is None and self.get("load.concurrency") is None

    @property
    def synthetic_turns(self) -> bool:
        """Whether there are conversations that are drawn, not read or composed."""
        return self.get("workload.turns") is not None and self.workload not in (*DATASETS, "conversation")

    @property
    def drawn_ids(self) -> bool:
        drawn = self.workload not in (*DATASETS, *OWN_PROMPTS)
        return drawn and self.get("workload.prompt_form") != "words"

    @property
    def recorded_turns(self) -> bool:
        from_file = self.workload == "conversation" and self.get("workload.dataset_path") is not None
        return from_file or self.workload in WITH_CONVERSATIONS


@dataclass(frozen=True)
class OptionRule:
    """Refuses each of *options* that is given, or the combination if there are none, where *when* holds. *text* may contain
    `{where}` for the option, `{workload}`, `{protocol}`, `{of_class}`, and `{…}` for the names of its *values*.
    """

    code: str
    when: Callable[[Chosen], object]
    text: str
    options: tuple[str, ...] = ()
    values: Callable[[Chosen], dict[str, object]] = lambda _: {}

    def check(self, chosen: Chosen) -> None:
        refused = [each for each in self.options if each in chosen.given]
        if (self.options and not refused) or not self.when(chosen):
            return
        where = chosen.where(refused[0]) if refused else ""
        known = {"where": where, "workload": chosen.workload, "protocol": chosen.protocol, "of_class": chosen.of_class}
        raise InputError(self.code, self.text.format(**known, **self.values(chosen)))


def form(chosen: Chosen) -> dict[str, object]:
    return {"form": chosen.get("workload.prompt_form")}


def named(names: tuple[str, ...]) -> str:
    return " or ".join(names)
