"""What a phase sends: the requests that a workload names, written as bodies until there are enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.mersenne import Mersenne
from fastllmload.errors import InputError
from fastllmload.plan import settings as asked
from fastllmload.plan.bodies import Bodies, BodyFile, stitcher, write_bodies
from fastllmload.plan.files import dataset_of, trace_of
from fastllmload.plan.joint import Joint
from fastllmload.plan.pictured import write_pictured
from fastllmload.plan.spelled import Spelled
from fastllmload.plan.standard import LENGTHS, OWN_TEXT, QUESTION_TOKENS, deviations
from fastllmload.plan.written import DataSetContent, Encoder
from fastllmload.workload.completion import Completion, Samples
from fastllmload.workload.composed import Source
from fastllmload.workload.conversation import Conversation
from fastllmload.workload.document import with_question
from fastllmload.workload.fairness import MIXES, Classes
from fastllmload.workload.image import Images
from fastllmload.workload.lengths import Lengths, Limited, parse_lengths
from fastllmload.workload.replay import Replay
from fastllmload.workload.synthetic import Batch, Independent, Prefixes, Quota, Shape, Synthetic
from fastllmload.workload.tokenizer import SPECIAL_TOKENS, Tokenizer, load_tokenizer
from fastllmload.workload.trace import TRACES, Trace, describe_trace
from fastllmload.workload.words import IETF_SPAN, WordTable, id_table, text_table
from fastllmload.workload.written import DATASETS, Written

LONGEST_PREFIX = 1_000_000
CHECKED, CHECKED_TOKENS = 512, 400_000  # prompts of a word table that are counted by the tokenizer itself, at most
Kinds = npt.NDArray[np.uint16]


class BodyPieces(Protocol):
    """body = before + prompt as JSON + middle[0] + N + middle[1] + N … + tail, N = output tokens."""

    @property
    def before(self) -> bytes: ...

    @property
    def middle(self) -> Sequence[bytes]: ...

    @property
    def tail(self) -> bytes: ...

    def encode(self, prompt: Any, tokens: int) -> bytes: ...


class Endpoint(Protocol):
    """A wire protocol of fastllmload.endpoint, as far as a plan needs it."""

    @property
    def name(self) -> str: ...

    @property
    def joint(self) -> Joint: ...

    def body_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...

    def messages_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...


class Content(Protocol):
    """The requests of one workload."""

    @property
    def trace(self) -> Trace | None:
        """The trace whose instants they have; None for a workload that has none."""

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        """Bodies until *quota* is met, and the class of each."""

    def describe(self) -> dict[str, Any]:
        """What plan.json says of the workload; `deviations` lists where it is not the standard one."""


def content_of(workload: asked.Workload, seed: int | str, prefix_seed: str) -> Content:
    """What *workload* names. InputError for settings and files that name nothing; nothing is drawn yet."""
    if workload.name in DATASETS:
        return FromFile(workload, seed)
    if workload.name in OWN_TEXT:
        return FromSource(workload, seed, prefix_seed)
    return Drawn(workload, seed, prefix_seed)


def described(workload: asked.Workload, tokenizer: Tokenizer | None, isl: str, osl: str, prompt: str) -> dict[str, Any]:
    """What all contents say of themselves."""
    return {
        "name": workload.name,
        "isl": isl,
        "osl": osl,
        "tokenizer": workload.tokenizer,
        "tokenizer_facts": None if tokenizer is None else facts_of(tokenizer),
        "special_tokens": SPECIAL_TOKENS,
        "counting": workload.counting,
        "prompt": prompt,
        "prompt_form": workload.prompt_form,
        "prefix_len": workload.prefix_len,
        "num_prefixes": workload.num_prefixes,
        "deviations": deviations(workload),
    }


def facts_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Its facts without the library's version: the same prompts have the same digest under the next one."""
    return {name: fact for name, fact in tokenizer.facts().items() if name != "version"}


def exactness(checked: int, exact: int, prompts: int) -> dict[str, Any]:
    """`share` of the *checked* prompts that have as many tokens as they should; None where there is no tokenizer."""
    return {"prompts": prompts, "checked": checked, "exact": exact, "share": exact / checked if checked else None}


class FromFile:
    """The requests of a data set."""

    trace: Trace | None = None

    def __init__(self, workload: asked.Workload, seed: int | str) -> None:
        self.workload, self._seed = workload, seed
        self._tokenizer = load_tokenizer(workload.tokenizer)
        dataset = dataset_of(workload.name, _file(workload), workload.tokenizer)
        osl = None if workload.osl is None else parse_lengths(workload.osl, "--osl")
        lengths = Mersenne(f"{seed}/lengths")
        self._requests = DataSetContent(dataset, self._tokenizer, osl, lengths, seed, workload.least_output)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        encoder = Encoder(endpoint, model, self.workload, Images(f"{self._seed}/image"))
        return self._requests.write(path, quota, encoder)

    def describe(self) -> dict[str, Any]:
        osl = "data set" if self.workload.osl is None else self.workload.osl
        facts = described(self.workload, self._tokenizer, "data set", osl, "data set")
        return {**facts, "dataset": self._requests.describe()}


class FromSource:
    """Conversation and code completion: prompts that are composed of parts, each encoded by itself."""

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
        self._source: Source = self._sourced(chat=True)
        self._checked = self._exact = self._shared = self._input = 0

    def _sourced(self, chat: bool) -> Source:
        if self.workload.name == "conversation":
            return Conversation(
                self._tokenizer, self._seed, self._prefix_seed, chat=chat, dataset=self._dataset, osl=self._osl
            )
        return Completion(self._tokenizer, self._seed, self._prefix_seed, samples=self._samples, osl=self._osl)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        self._source = self._sourced(chat="chat" in endpoint.name)
        encoder = Encoder(endpoint, model, self.workload)
        requests = (one for batch in self._source.batches() for one in batch)
        with BodyFile(path) as file:
            while not quota.met(file.requests, file.output_tokens, file.input_tokens):
                one = next(requests)
                answer = max(one.output_tokens, self.workload.least_output)
                body = encoder.encode(Written(self.workload.name, one.content), answer)
                file.add(body, one.input_tokens, answer, shared=one.shared)
                self._exact += one.input_tokens == one.target
                self._shared += one.shared
            self._checked, self._input = file.requests, file.input_tokens
        bodies = file.bodies()
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
            "shared_token_share": self._shared / self._input if self._input else 0.0,
            "exact": exactness(checked, min(checked, self._exact), self._checked),
        }


def raised(batches: Iterator[Batch], least: int) -> Iterator[Batch]:
    """*batches* whose answers have *least* tokens or more."""
    if not least:
        return batches
    return (replace(batch, output=np.maximum(batch.output, np.int32(least))) for batch in batches)


class Drawn:
    """Synthetic requests and replayed traces: drawn numbers, which stand for words or token ids."""

    def __init__(self, workload: asked.Workload, seed: int | str, prefix_seed: str) -> None:
        self.workload = workload
        self._seed = seed
        self.trace = _trace(workload)
        if self.trace is None and workload.name not in LENGTHS:
            known = ", ".join((*LENGTHS, *OWN_TEXT, *TRACES, *DATASETS))
            raise InputError(f"--workload {workload.name!r} is not known; choose one of {known}")
        self.tokenizer = load_tokenizer(workload.tokenizer)
        _refuse_form(workload, self.tokenizer)
        self.isl, self.osl = ("trace", "trace") if self.trace is not None else _specs(workload)
        self._limited: Limited | None = None
        self._kept = QUESTION_TOKENS if workload.name == "long-context" else 0
        self._shape = None if self.trace is not None else self._shaped()
        self._prefixes = _prefixes(workload, _span(workload, self.tokenizer), prefix_seed)
        self._facts: dict[str, Any] = {}
        self.form = workload.prompt_form

    def _shaped(self) -> Shape:
        isl, osl = parse_lengths(self.isl, "--isl"), parse_lengths(self.osl, "--osl")
        limit = self.workload.context_limit
        if self.workload.name == "long-context" and limit is not None:
            isl = self._limited = Limited(isl, limit - _longest(osl))
        mix = MIXES.get(self.workload.name)
        return Independent(isl, osl) if mix is None else Classes(isl, osl, mix, self._seed)

    def _batches(self, quota: Quota, span: int) -> Iterator[Batch]:
        if self.trace is not None:
            return raised(Replay(self.trace, span, self._seed).batches(quota), self.workload.least_output)
        assert self._shape is not None
        drawn = Synthetic(self._shape, span, self._seed, self._prefixes, self._kept)
        return raised(drawn.batches(quota), self.workload.least_output)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        workload = self.workload
        form = workload.prompt_form
        ids = form == "ids" or (form == "native" and endpoint.name == "openai-completions")
        if form in ("text", "native") and not ids:
            assert self.tokenizer is not None
            spelled = Spelled(self.tokenizer, endpoint, model, workload, f"{self._seed}/repair")
            bodies = spelled.write(path, self._batches(quota, _span(workload, self.tokenizer)))
            self._facts = {"exact": exactness(len(bodies.input_tokens), spelled.exact, len(bodies.input_tokens))}
            self.form = "text"
            return bodies, bodies.kinds
        table = self._table(ids)
        self.form = table.form
        batches = self._batches(quota, table.span)
        if workload.image is not None:
            bodies = write_pictured(path, batches, table, endpoint, model, workload, f"{self._seed}/image")
        else:
            pieces = endpoint.body_pieces(model, _replaced(workload, "ids" if ids else "words"))
            stitch = stitcher(table, pieces.before, [*pieces.middle, pieces.tail])
            bodies = write_bodies(path, self._checked(batches, table, ids), stitch, table.after)
        return bodies, bodies.kinds

    def _table(self, ids: bool) -> WordTable:
        if ids:
            assert self.tokenizer is not None
            return id_table(self.tokenizer)
        table = text_table(self.tokenizer)
        return with_question(table, self.tokenizer) if self._kept else table

    def _checked(self, batches: Iterator[Batch], table: WordTable, ids: bool) -> Iterator[Batch]:
        """*batches* as they are; the first CHECKED prompts are counted on the way."""
        checked = exact = prompts = tokens = 0
        for batch in batches:
            if checked < CHECKED and tokens < CHECKED_TOKENS and self.tokenizer is not None and not ids:
                few = batch.first(CHECKED - checked)
                tokens += int(few.prompt.sum())
                counts = self.tokenizer.count_many([text + table.ending for text in table.texts(few)])
                checked += len(counts)
                exact += sum(int(have == want + table.after) for have, want in zip(counts, few.prompt, strict=True))
            prompts += len(batch.prompt)
            self._facts = {"exact": exactness(checked, exact, prompts)}
            yield batch
        if ids:
            self._facts = {"exact": exactness(prompts, prompts, prompts)}

    def describe(self) -> dict[str, Any]:
        facts = described(self.workload, self.tokenizer, self.isl, self.osl, self.form)
        if self.workload.prefix_len:
            facts |= {"prefix_share": self.workload.prefix_share, "prefix_zipf": self.workload.prefix_zipf}
        if self.workload.name in MIXES:
            mix = MIXES[self.workload.name]
            facts["classes"] = [rectangle.name for rectangle, _ in mix]
            facts["mix"] = {str(rectangle): share for rectangle, share in mix}
        if self._limited is not None:
            facts |= self._limits(self._limited, facts)
        if self.workload.image is not None:
            facts["image"] = "x".join(map(str, self.workload.image[:2])) + f":{self.workload.image[2]}"
        if self.trace is not None:
            facts["trace"] = describe_trace(self.trace)
        return {**facts, **self._facts}

    def _limits(self, limited: Limited, facts: dict[str, Any]) -> dict[str, Any]:
        left_out, most = list(limited.left_out), limited.most
        skipped = {"most_input": most, "lengths": left_out, "redrawn": limited.redrawn}
        if not left_out and not limited.redrawn:
            return {"skipped": skipped}
        what = ", ".join(map(str, left_out)) or f"{limited.redrawn} draws"
        takes = self.workload.context_limit
        sentence = f"lengths above {most} tokens are skipped ({what}): with the answer the model takes {takes}"
        return {"skipped": skipped, "deviations": [*facts["deviations"], sentence]}


def _replaced(workload: asked.Workload, form: str) -> asked.Workload:
    return msgspec.structs.replace(workload, prompt_form=form)


def _longest(osl: Lengths) -> int:
    """Tokens that the answer of long-context may take; 256 where that is drawn."""
    return getattr(osl, "tokens", 256)


def _file(workload: asked.Workload) -> Path:
    if workload.dataset_path is None:
        raise InputError(f"--workload {workload.name} is read from a file; add --dataset-path FILE")
    return Path(workload.dataset_path)


def _trace(workload: asked.Workload) -> Trace | None:
    """The part of the trace that was asked for; None for a workload that is none."""
    if workload.name not in TRACES:
        return None
    trace = trace_of(workload.name, _file(workload))
    return trace.part(workload.trace_from, workload.trace_to)


def _specs(workload: asked.Workload) -> tuple[str, str]:
    isl, osl = LENGTHS[workload.name]
    isl = isl if workload.isl is None else workload.isl
    osl = osl if workload.osl is None else workload.osl
    return str(parse_lengths(isl, "--isl")), str(parse_lengths(osl, "--osl"))


def _refuse_form(workload: asked.Workload, tokenizer: Tokenizer | None) -> None:
    form = workload.prompt_form
    if form not in asked.PROMPT_FORMS:
        raise InputError(f"--prompt-form {form!r} is not known; choose one of {', '.join(asked.PROMPT_FORMS)}")
    if form == "words":
        return
    if workload.name == "long-context":
        raise InputError(f"--prompt-form {form} does not go with long-context: its documents are words and a question")
    if tokenizer is None:
        raise InputError(f"--prompt-form {form} needs a tokenizer whose ids are drawn; --tokenizer none has no ids")
    if form == "text" and tokenizer.name != "cl100k_base":
        raise InputError(
            f"--prompt-form text draws the ids of cl100k_base (IETF A.1.4), not of {tokenizer.name}; "
            "use --prompt-form native for the ids of its own range"
        )


def _span(workload: asked.Workload, tokenizer: Tokenizer | None) -> int:
    """Numbers that are drawn: the ids of the tokenizer, or as many as cl100k_base has for words."""
    if workload.prompt_form == "words" or tokenizer is None:
        return IETF_SPAN
    return tokenizer.ordinary


def _prefixes(workload: asked.Workload, span: int, seed: str) -> Prefixes | None:
    if not 0 <= workload.prefix_len <= LONGEST_PREFIX:
        raise InputError(f"--prefix-len {workload.prefix_len} must be 0 to {LONGEST_PREFIX} tokens")
    if not 1 <= workload.num_prefixes <= LONGEST_PREFIX:
        raise InputError(f"--num-prefixes {workload.num_prefixes} must be 1 to {LONGEST_PREFIX}")
    if not 0 <= workload.prefix_share <= 1 or not 0 <= workload.prefix_zipf <= 10:
        raise InputError("--prefix-share must be 0 to 1, and --prefix-zipf 0 to 10")
    if workload.prefix_len == 0:
        return None
    return Prefixes(workload.prefix_len, workload.num_prefixes, span, seed, workload.prefix_share, workload.prefix_zipf)
