"""Load a workload once: check its settings and read its file, before a target is contacted and for both phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastllmload.errors import InputError
from fastllmload.plan.conversations.graph import GraphSessions
from fastllmload.plan.conversations.opening import Opening
from fastllmload.plan.conversations.scripted import CONVERSATION, ScriptedConversations
from fastllmload.plan.conversations.synthetic import SyntheticConversations
from fastllmload.plan.prompts.composed import ComposedPrompts
from fastllmload.plan.prompts.dataset import DatasetPrompts, of_lengths
from fastllmload.plan.prompts.source import Origin, PromptSource
from fastllmload.plan.prompts.synthetic import SyntheticPrompts, check_drawn
from fastllmload.plan.standard import OWN_TEXT
from fastllmload.settings import RunSettings, Workload
from fastllmload.workload.completion import CodeSamples
from fastllmload.workload.dataset import DATASETS, Dataset, of_one_prompt, read_dataset
from fastllmload.workload.dialogues import Dialogues, read_dialogues
from fastllmload.workload.graph import CallGraph, read_longest_waits
from fastllmload.workload.hugging_face import local_file, read_hub
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.tokenizers.tokenizer import Tokenizer, load_tokenizer
from fastllmload.workload.trace import TRACES, Trace, read_trace
from fastllmload.workload.traces import mooncake
from fastllmload.workload.traces.formats import CALL_GRAPHS, read_call_graph
from fastllmload.workload.traces.trace_file import open_trace


@dataclass(frozen=True)
class LoadedWorkload:
    """What the file of a workload contains; all None for one without a file."""

    dataset: Dataset | None = None
    trace: Trace | None = None
    graph: CallGraph | None = None
    dialogues: Dialogues | None = None
    samples: CodeSamples | None = None

    def source(self, workload: Workload, origin: Origin, warmup: bool, opening: Opening | None = None) -> PromptSource:
        """The requests of a phase. *workload*: that which was loaded, with what the server has since reported. *opening*:
        how the measured phase begins, where not with first calls.
        """
        if self.graph is not None:
            return GraphSessions(workload, origin, self.graph, warmup=warmup, opening=opening)
        if workload.turns is not None:
            if workload.name in (*DATASETS, CONVERSATION):
                return ScriptedConversations(workload, origin, warmup=warmup, dialogues=self.dialogues, opening=opening)
            return SyntheticConversations(workload, origin, warmup=warmup)
        if self.dataset is not None and workload.name in DATASETS:
            return DatasetPrompts(workload, origin, self.dataset)
        prefixes = prefixes_stream(workload, origin)
        if workload.name in OWN_TEXT:
            return ComposedPrompts(workload, origin, prefixes, self.dataset, self.samples)
        return SyntheticPrompts(workload, origin, prefixes, self.trace)


def load_workloads(settings: RunSettings) -> tuple[LoadedWorkload, ...]:
    """The workload of each class, or that of the run. InputError for files and settings of which no plan can be made."""
    return tuple(load_workload(one) for one in [each.workload for each in settings.classes] or [settings.workload])


def load_workload(workload: Workload) -> LoadedWorkload:
    """Check the settings of *workload* and read its file, which the rules of the options require where one is needed."""
    tokenizer = load_tokenizer(workload.tokenizer)
    named = workload.dataset_path
    path = None if named is None else Path(named) if workload.name == "hf" else local_file(named)
    if workload.osl is not None:
        parse_lengths(workload.osl, "--osl")
    if workload.turns is not None:
        if workload.name not in (*DATASETS, CONVERSATION):
            check_drawn(workload)
            return LoadedWorkload()
        if workload.turns != "all":
            parse_lengths(workload.turns, "--turns")
        return LoadedWorkload(dialogues=None if path is None else _dialogues(workload, path))
    if workload.prompt is not None:
        return LoadedWorkload(of_one_prompt(workload.prompt))
    if workload.name in DATASETS:
        assert path is not None
        return LoadedWorkload(of_lengths(workload, _dataset(workload, path, tokenizer), tokenizer))
    if workload.name == CONVERSATION:
        return LoadedWorkload(None if path is None else read_dataset("sharegpt", path, tokenizer))
    if workload.name in OWN_TEXT:
        return LoadedWorkload(samples=None if path is None else CodeSamples.read(path))
    if path is not None and has_sessions(workload.name, path):
        graph = read_call_graph(workload.name, path, prompts=workload.trace_prompts)
        if workload.trace_max_wait is not None:
            graph = graph.with_waits_at_most(read_longest_waits(workload.trace_max_wait))
        return LoadedWorkload(graph=graph.between(workload.trace_from, workload.trace_to))
    check_drawn(workload)
    if workload.name not in TRACES:
        return LoadedWorkload()
    assert path is not None
    asked = [option for option, is_asked in OF_SESSIONS.items() if is_asked(workload)]
    if asked:
        raise InputError(
            "option-not-applicable",
            f"{', '.join(asked)}: the rows of {path} have no session_id, so each is a session of its own; leave it out",
        )
    return LoadedWorkload(trace=read_trace(workload.name, path).part(workload.trace_from, workload.trace_to))


OF_SESSIONS: dict[str, Callable[[Workload], bool]] = {
    "--cache-blocks": lambda workload: workload.cache_blocks is not None,
    "--session-start": lambda workload: workload.session_start != "fresh",
    "--trace-max-wait": lambda workload: workload.trace_max_wait is not None,
}


def has_sessions(name: str, path: Path) -> bool:
    """Whether the workload *name* is a trace of sessions; rows of Mooncake form them where one of them says which."""
    return name in CALL_GRAPHS and (name not in TRACES or mooncake.has_sessions(open_trace(path)))


def _dataset(workload: Workload, path: Path, tokenizer: Tokenizer | None) -> Dataset:
    if workload.name == "hf":
        return read_hub(workload).requests(tokenizer)
    found = read_dataset(workload.name, path, tokenizer, workload.dataset_columns)
    return found if workload.dataset_class is None else found.of_class(workload.dataset_class)


def _dialogues(workload: Workload, path: Path) -> Dialogues:
    if workload.name == "hf":
        return read_hub(workload).dialogues()
    found = read_dialogues("sharegpt" if workload.name == CONVERSATION else workload.name, path)
    return found if workload.dataset_class is None else found.of_class(workload.dataset_class)


def prefixes_stream(workload: Workload, origin: Origin) -> str:
    """Stream of the shared prefixes; with `prefix_stream` that of the requests of that stream."""
    if workload.prefix_stream is not None:
        seed = str(origin).removesuffix(f"/{workload.stream}") if workload.stream else str(origin)
        origin = f"{seed}/{workload.prefix_stream}" if workload.prefix_stream else seed
    return f"{origin}/prefix"
