"""Drawn prompts: synthetic requests and replayed traces, stitched from words or token ids, or encoded one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fastllmload import settings as asked
from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import ExactPrompts, SkippedLengths, WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, stitcher, write_bodies
from fastllmload.plan.prompts.encoder import PlannedRequest, RequestEncoder, write_requests
from fastllmload.plan.prompts.source import Origin, described, exactness, sharing
from fastllmload.plan.standard import LENGTHS, OWN_TEXT
from fastllmload.workload.content import words
from fastllmload.workload.content.exact_length import fit_many
from fastllmload.workload.content.image import Images
from fastllmload.workload.content.image_sets import read_images
from fastllmload.workload.dataset import DATASETS
from fastllmload.workload.fairness import MIXES, Classes
from fastllmload.workload.lengths import Lengths, Limited, parse_lengths
from fastllmload.workload.replay import Replay
from fastllmload.workload.request import DatasetRequest
from fastllmload.workload.synthetic import Batch, Independent, Prefixes, Quota, Shape, Synthetic, salted
from fastllmload.workload.tokenizers.tokenizer import Tokenizer, load_tokenizer
from fastllmload.workload.trace import TRACES, Trace, describe_trace

LONGEST_PREFIX = 1_000_000
CHECKED, CHECKED_TOKENS = 512, 400_000  # most prompts of a word table whose tokens are counted


def with_least_output(batches: Iterator[Batch], least: int) -> Iterator[Batch]:
    """*batches* with output lengths raised to at least *least* tokens."""
    if not least:
        return batches
    return (replace(batch, output=np.maximum(batch.output, np.int32(least))) for batch in batches)


class SyntheticPrompts:
    """Synthetic requests and replayed traces: drawn numbers, which become words or token ids."""

    def __init__(self, workload: asked.Workload, origin: Origin, prefix_seed: str, trace: Trace | None = None) -> None:
        self.workload = workload
        self._seed = origin
        self.trace = trace
        self.instants = None if trace is None else trace.t_ns
        self.tokenizer = load_tokenizer(workload.tokenizer)
        self.isl, self.osl = ("trace", "trace") if trace is not None else length_specs(workload)
        self._limited: Limited | None = None
        self._fixed = words.QUESTION_TOKENS if workload.name == "long-context" else 0
        self._shape: Shape | None = None
        if trace is None:
            isl, osl, self._limited = length_shapes(workload)
            mix = MIXES.get(workload.name)
            self._shape = Independent(isl, osl) if mix is None else Classes(isl, osl, mix, origin)
        self._prefixes = _prefixes(workload, _span(workload, self.tokenizer), prefix_seed)
        self._replay: Replay | None = None
        self._exact: ExactPrompts | None = None
        self._shared_share: float | None = None
        self._hit_rate: float | None = None
        self.form = workload.prompt_form

    def _batches(self, quota: Quota, span: int) -> Iterator[Batch]:
        if self.trace is not None:
            self._replay = Replay(self.trace, span, self._seed)
            drawn = self._replay.batches(quota)
        else:
            assert self._shape is not None
            drawn = Synthetic(self._shape, span, self._seed, self._prefixes, self._fixed).batches(quota)
        return with_least_output(salted(drawn, self.workload.salt, span), self.workload.least_output)

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        bodies = self._write(path, quota, endpoint, model)
        source = self._prefixes if self._replay is None else self._replay
        if source is not None and bodies.shared.any():
            self._shared_share, self._hit_rate = sharing(bodies, source.repeated)
        return bodies

    def _write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> Bodies:
        workload = self.workload
        ids = endpoint.form(workload) == "ids"
        if workload.prompt_form in ("text", "native") and not ids:
            assert self.tokenizer is not None
            texts = TokenTexts(self.tokenizer, f"{self._seed}/repair")
            batches = self._batches(quota, _span(workload, self.tokenizer))
            bodies = write_requests(path, texts.requests(batches), RequestEncoder(endpoint, model, workload))
            self._exact = exactness(len(bodies.input_tokens), texts.exact, len(bodies.input_tokens))
            self.form = "text"
            return bodies
        table = self._table(ids)
        self.form = table.form
        batches = self._batches(quota, table.span)
        if workload.image is not None:
            requests = with_images(batches, table, workload.image, f"{self._seed}/image", endpoint)
            return write_requests(path, requests, RequestEncoder(endpoint, model, workload))
        pieces = endpoint.body_pieces(model, msgspec.structs.replace(workload, prompt_form="ids" if ids else "words"))
        stitch = stitcher(table, pieces.before, [*pieces.middle, pieces.tail])
        return write_bodies(path, self._checked(batches, table, ids), stitch, table.suffix_tokens)

    def _table(self, ids: bool) -> words.WordTable:
        if ids:
            assert self.tokenizer is not None
            return words.id_table(self.tokenizer)
        table = words.text_table(self.tokenizer)
        return words.with_question(table, self.tokenizer) if self._fixed else table

    def _checked(self, batches: Iterator[Batch], table: words.WordTable, ids: bool) -> Iterator[Batch]:
        """*batches* unchanged, while the tokens of the first CHECKED prompts are counted."""
        checked = exact = prompts = tokens = 0
        for batch in batches:
            if checked < CHECKED and tokens < CHECKED_TOKENS and self.tokenizer is not None and not ids:
                few = batch.first(CHECKED - checked)
                tokens += int(few.prompt.sum())
                counts = self.tokenizer.count_many([text + table.suffix for text in table.texts(few)])
                checked += len(counts)
                exact += sum(
                    int(have == want + table.suffix_tokens) for have, want in zip(counts, few.prompt, strict=True)
                )
            prompts += len(batch.prompt)
            self._exact = exactness(checked, exact, prompts)
            yield batch
        if ids:
            self._exact = exactness(prompts, prompts, prompts)

    def describe(self) -> WorkloadDescription:
        workload, mix = self.workload, MIXES.get(self.workload.name)
        found = msgspec.structs.replace(
            described(workload, self.tokenizer, self.isl, self.osl, self.form),
            trace=None if self.trace is None else describe_trace(self.trace),
            exact=self._exact,
            shared_token_share=self._shared_share,
            prefix_hit_rate=self._hit_rate,
        )
        if workload.prefix_len:
            found = msgspec.structs.replace(found, prefix_share=workload.prefix_share, prefix_zipf=workload.prefix_zipf)
        if mix is not None:
            found = msgspec.structs.replace(
                found,
                classes=tuple(rectangle.name for rectangle, _ in mix),
                mix={str(rectangle): share for rectangle, share in mix},
            )
        if workload.image is not None:
            found = msgspec.structs.replace(found, image=str(read_images(workload.image)))
        return found if self._limited is None else self._with_limits(found, self._limited)

    def _with_limits(self, found: WorkloadDescription, limited: Limited) -> WorkloadDescription:
        left_out, most, deviations = limited.left_out, limited.most, found.deviations
        if left_out or limited.redrawn:
            what = ", ".join(map(str, left_out)) or f"{limited.redrawn} draws"
            takes = self.workload.context_limit
            sentence = f"lengths above {most} tokens are skipped ({what}): with the answer the model takes {takes}"
            deviations = (*deviations, sentence)
        skipped = SkippedLengths(most_input=most, lengths=tuple(left_out), redrawn=limited.redrawn)
        return msgspec.structs.replace(found, skipped=skipped, deviations=deviations)


class TokenTexts:
    """Token ids decoded, then repaired until the text has as many tokens; `exact`: the number for which that succeeded."""

    def __init__(self, tokenizer: Tokenizer, repair: str) -> None:
        self._tokenizer, self._repair = tokenizer, Mersenne(repair)
        self.exact = 0

    def requests(self, batches: Iterable[Batch]) -> Iterator[PlannedRequest]:
        for batch in batches:
            wanted = batch.prompt.tolist()
            texts = self._tokenizer.decode_many([numbers.tolist() for numbers in batch.prompts()])
            texts, counts = fit_many(self._tokenizer, texts, wanted, self._filler)
            self.exact += sum(have == want for have, want in zip(counts, wanted, strict=True))
            facts = zip(counts, batch.output.tolist(), *batch.marks(), strict=True)
            for text, (count, answer, kind, shared) in zip(texts, facts, strict=True):
                yield PlannedRequest(DatasetRequest("", text), count, answer, kind, shared)

    def _filler(self, tokens: int) -> str:
        ids = np.empty(tokens, np.uint32)
        self._repair.below(self._tokenizer.ordinary, ids, 0, tokens)
        return self._tokenizer.decode(ids.tolist())


def with_images(
    batches: Iterable[Batch], table: words.WordTable, image: str, seed: str, endpoint: Endpoint
) -> Iterator[PlannedRequest]:
    """One message per request: its words, then its images, whose tokens only the server knows."""
    if endpoint.image_message is None:
        raise InputError("protocol-unsupported", f"{endpoint.name} cannot carry images; leave --image out")
    images, sets = Images(seed), read_images(image).drawn(f"{seed}/sets")
    for batch in batches:
        facts = zip(batch.prompt.tolist(), batch.output.tolist(), *batch.marks(), strict=True)
        for text, (size, answer, kind, shared) in zip(table.texts(batch), facts, strict=True):
            message = endpoint.image_message(text + table.suffix, [images.url(*size) for size in next(sets)])
            request = DatasetRequest("", [message])
            yield PlannedRequest(request, size + table.suffix_tokens, answer, kind, shared)


def length_specs(workload: asked.Workload) -> tuple[str, str]:
    isl, osl = LENGTHS[workload.name]
    isl = isl if workload.isl is None else workload.isl
    osl = osl if workload.osl is None else workload.osl
    return str(parse_lengths(isl, "--isl")), str(parse_lengths(osl, "--osl"))


def length_shapes(workload: asked.Workload) -> tuple[Lengths, Lengths, Limited | None]:
    """Input and output lengths; those of long-context within the model's context."""
    isl_spec, osl_spec = length_specs(workload)
    isl, osl = parse_lengths(isl_spec, "--isl"), parse_lengths(osl_spec, "--osl")
    if workload.name != "long-context" or workload.context_limit is None:
        return isl, osl, None
    longest = getattr(osl, "tokens", 256)  # 256 if they are drawn
    limited = Limited(isl, workload.context_limit - longest)
    return limited, osl, limited


def check_drawn(workload: asked.Workload) -> None:
    """InputError for a workload whose prompts cannot be drawn; nothing is drawn yet."""
    if workload.name not in (*LENGTHS, *TRACES):
        known = ", ".join((*LENGTHS, *OWN_TEXT, *TRACES, *DATASETS))
        raise InputError("choice-unknown", f"--workload {workload.name!r} is unknown; choose one of {known}")
    _check_form(workload, load_tokenizer(workload.tokenizer))
    if workload.name in LENGTHS:
        length_shapes(workload)
    if not 0 <= workload.prefix_len <= LONGEST_PREFIX:
        raise InputError(
            "value-out-of-range", f"--prefix-len {workload.prefix_len} must be 0 to {LONGEST_PREFIX} tokens"
        )
    if not 1 <= workload.num_prefixes <= LONGEST_PREFIX:
        raise InputError("value-out-of-range", f"--num-prefixes {workload.num_prefixes} must be 1 to {LONGEST_PREFIX}")
    if not 0 <= workload.prefix_share <= 1 or not 0 <= workload.prefix_zipf <= 10:
        raise InputError("value-out-of-range", "--prefix-share must be 0 to 1, and --prefix-zipf 0 to 10")


def _check_form(workload: asked.Workload, tokenizer: Tokenizer | None) -> None:
    if workload.prompt_form not in asked.PROMPT_FORMS:
        raise InputError(
            "choice-unknown",
            f"--prompt-form {workload.prompt_form!r} is unknown; choose one of {', '.join(asked.PROMPT_FORMS)}",
        )
    if workload.prompt_form == "text" and tokenizer is not None and tokenizer.name != "cl100k_base":
        raise InputError(
            "option-not-applicable",
            f"--prompt-form text draws the ids of cl100k_base (IETF A.1.4), not of {tokenizer.name}; "
            "use --prompt-form native for the ids of its own range",
        )


def _span(workload: asked.Workload, tokenizer: Tokenizer | None) -> int:
    """Span of the drawn numbers: the ids of the tokenizer, or for words that of the draft."""
    if workload.prompt_form == "words" or tokenizer is None:
        return words.IETF_SPAN
    return tokenizer.ordinary


def _prefixes(workload: asked.Workload, span: int, seed: str) -> Prefixes | None:
    if workload.prefix_len == 0:
        return None
    return Prefixes(workload.prefix_len, workload.num_prefixes, span, seed, workload.prefix_share, workload.prefix_zipf)
