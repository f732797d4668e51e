"""Sessions of a trace that are graphs of calls: each call is due some time after the replies that it waits for.

Prompts are made of the trace's blocks, in text that is shared exactly where blocks were shared; or they are the messages of
the file, after the conversation that a call continues. Sessions that are repeated have blocks of their own in each round.

Streams of origin O (seed and phase): O/openings and O/blocks (text), O/lengths (--osl), O/replies (a planned history).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import (
    ConversationsDescription,
    IdealHitRates,
    SessionFacts,
    TraceFacts,
    WaitFacts,
    WorkloadDescription,
)
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies, BodyFile, disk_errors
from fastllmload.plan.conversations.opening import ChosenCalls, Opening, arrivals_of, left_edges
from fastllmload.plan.conversations.scripted import ScriptedConversations
from fastllmload.plan.conversations.turns import MOST_TURNS, Filler, TurnPart, joined
from fastllmload.plan.plan import (
    BLOCKS,
    CALL,
    CALLS,
    EDGE,
    EDGE_CONTEXT,
    EDGE_START,
    EDGES,
    LAST_TURN,
    PIECES,
    REAL_REPLY,
    SCHEDULE,
    STITCHED,
    TURN,
)
from fastllmload.plan.prompts.encoder import RequestEncoder
from fastllmload.plan.prompts.segments import Segments, Written, write_segments
from fastllmload.plan.prompts.source import Origin, described
from fastllmload.workload.content.words import WordTable, id_table, text_table
from fastllmload.workload.dialogues import ScriptedTurn
from fastllmload.workload.graph import CallGraph, WaitKind, gathered
from fastllmload.workload.ideal import IdealHits, ideal_hits
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.paths import session_shapes
from fastllmload.workload.request import Content, DatasetRequest
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.underway import UnderWay

Numbers = npt.NDArray[np.int64]
COPIED = 1 << 22  # bytes of complete bodies that are written at once


class GraphSessions:
    """The sessions of *graph*, in its order, as often as they are needed; with an *opening* some of them are under way."""

    def __init__(
        self,
        workload: asked.Workload,
        origin: Origin,
        graph: CallGraph,
        *,
        warmup: bool,
        opening: Opening | None = None,
    ) -> None:
        self.workload, self._origin, self._graph, self._warmup = workload, origin, graph, warmup
        self._tokenizer = load_tokenizer(workload.tokenizer)
        self._continued = graph.messages is not None or bool((graph.context >= 0).any())
        self._sent = graph  # what is sent of it, once
        self._ideal: IdealHits | None = None
        self._under: UnderWay | None = None
        self._opening = opening
        self.instants, self._order = graph.start_ns, None
        if workload.trace_timing == "recorded" and not warmup:
            self._check_recorded()
            self._order = np.argsort(graph.start_recorded_ns, kind="stable")
            self.instants = graph.start_recorded_ns[self._order]
        if opening is not None:
            self._check_complete()
            sessions = opening.quota.requests if opening.by_starts else opening.slots + self._pool(opening.quota)
            self._under = opening.under_way(graph, sessions, workload.trace_speed)
            self._graph = self._sent = self._under.graph

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        output = self._outputs()
        if self._warmup and self._under is not None and len(self._under.latest):
            return self._write_seen(path, quota, output, endpoint, model)
        chosen = self._choose(quota, by_starts, output)
        answers = np.maximum(output[chosen.call], self.workload.least_output)
        sessions = len(chosen.first) - 1
        if self._order is None and not self._warmup and self._under is None and 0 < sessions < self._graph.sessions:
            self._sent = self._graph.part(0, sessions)
        self._ideal = None if self._warmup else ideal_hits(self._sent, order=self._order_sent())
        if self._order is not None:
            return self._alone(chosen, self._write_blocks(path, chosen, answers, endpoint, model))
        turns, edges = self._turns(chosen)
        if self._continued:
            bodies, turns = self._write_messages(path, chosen, answers, turns, edges, endpoint, model)
        else:
            bodies = self._write_blocks(path, chosen, answers, endpoint, model)
        arrays = {EDGES: edges, CALLS: self._calls(chosen), **self._blocks(chosen), **bodies.graph}
        if self._opening is not None and self._opening.at_ns is not None and not self._warmup:
            arrays[SCHEDULE] = arrivals_of(turns, chosen.first[:-1])
        return replace(bodies, turns=turns, graph=arrays, conversations=self._conversations(chosen, turns))

    def _alone(self, chosen: ChosenCalls, bodies: Bodies) -> Bodies:
        """The *bodies* of calls that wait for nothing."""
        alone, calls = np.zeros(len(chosen.call), TURN), self._calls(chosen)
        alone["session"], alone["flags"] = calls["session"], LAST_TURN
        arrays = {EDGES: np.empty(0, EDGE), CALLS: calls, **self._blocks(chosen), **bodies.graph}
        return replace(bodies, turns=alone, graph=arrays)

    # -- sessions that are under way ----------------------------------------------------------------------------------

    def _check_complete(self) -> None:
        """InputError where a call's prompt is made from replies, of which there are none before the run."""
        graph = self._graph
        if (graph.context >= 0).any():
            one = graph.call_id[int(np.argmax(graph.context >= 0))]
            raise InputError(
                "option-not-applicable",
                f"--session-start: call {one} of the trace continues a conversation, whose replies do not exist before the "
                "run; leave it out, or give calls their complete prompts",
            )

    def _write_seen(self, path: Path, quota: Quota, output: Numbers, endpoint: Endpoint, model: str) -> Bodies:
        """The warm-up: the last call before time zero of every agent, again and again until *quota* is met; so the server
        has seen the prompts that the measured phase continues.
        """
        assert self._under is not None
        latest, number, tokens, prompts = self._under.latest, 0, 0, 0
        many = len(latest)
        while number < many or not quota.met(number, tokens, prompts):
            one = latest[-1 - number % many]
            number, tokens, prompts = number + 1, tokens + int(output[one]), prompts + int(self._graph.input[one])
        place = np.arange(-number, 0) % many
        chosen = alone_calls(latest[place])
        answers = np.maximum(output[chosen.call], self.workload.least_output)
        if self._continued:
            none = np.empty(0, EDGE)
            bodies, _ = self._write_messages(path, chosen, answers, np.zeros(number, TURN), none, endpoint, model)
        else:
            bodies = self._write_blocks(path, chosen, answers, endpoint, model, place)
        return self._alone(chosen, bodies)

    def _left(self, under: UnderWay) -> ChosenCalls:
        """What is left of the sessions: the calls of each by when they are due, so that the first of them is so first."""
        session = under.graph.session_of()
        left = np.flatnonzero(under.due_ns >= 0)
        call = left[np.lexsort((left, under.due_ns[left], session[left]))]
        first = np.append(np.flatnonzero(np.diff(session[call], prepend=-1)), len(call))
        return ChosenCalls(call, np.zeros(len(call), np.int64), first)

    def _order_sent(self) -> Numbers | None:
        """The calls that fill a prefix cache, in their order; None: all, when they are due."""
        under = self._under
        if under is None:
            return None
        left = np.flatnonzero(under.due_ns >= 0)
        left = left[np.argsort(under.due_ns[left], kind="stable")]
        assert self._opening is not None
        return np.concatenate([under.latest, left]) if self._opening.primed else left

    # -- which calls, and when ----------------------------------------------------------------------------------------

    def _check_recorded(self) -> None:
        """InputError unless each call can be sent at its recorded instant, whatever the others do."""
        graph = self._graph
        if (graph.start_recorded_ns < 0).any():
            one = graph.call_id[int(np.argmax(graph.start_recorded_ns < 0))]
            raise InputError(
                "option-not-applicable",
                f"--trace-timing recorded: call {one} of the trace has no recorded instant; use --trace-timing dependent",
            )
        if self._continued:
            raise InputError(
                "option-not-applicable",
                "--trace-timing recorded: calls of the trace continue conversations, whose replies they must wait for; use "
                "--trace-timing dependent",
            )

    # -- which calls, and what they wait for --------------------------------------------------------------------------

    def _outputs(self) -> Numbers:
        """Output length of every call of the graph. InputError where neither the trace nor --osl says it."""
        output = self._graph.output
        if self.workload.osl is not None:
            lengths, stream = parse_lengths(self.workload.osl, "--osl"), Mersenne(f"{self._origin}/lengths")
            return np.array([lengths.draw(stream) for _ in range(len(output))], np.int64)
        if (output < 1).any():
            one = self._graph.call_id[int(np.argmax(output < 1))]
            raise InputError("output-length-missing", f"call {one} of the trace has no output length; add --osl")
        return output

    def _choose(self, quota: Quota, by_starts: bool, output: Numbers) -> ChosenCalls:
        """*quota* sessions if *by_starts*, or calls at their recorded instants; in a warm-up calls until it is met; else
        a pool of sessions.
        """
        if self._warmup:
            return self._until(quota, output)
        if self._under is not None:
            return self._left(self._under)
        if self._order is None:
            return self._sessions(quota.requests if by_starts else self._pool(quota))
        number, many = np.arange(quota.requests), len(self._order)
        return ChosenCalls(self._order[number % many], number // many, np.arange(quota.requests + 1))

    def _pool(self, quota: Quota) -> int:
        """Sessions of as many rounds of the trace as a pool of *quota* needs, one for each slot at least."""
        calls, tokens, rounds = len(self._graph), int(self._graph.input.sum()), 1
        while not quota.met(rounds * calls, 0, rounds * tokens):
            rounds += 1
        return max(rounds * self._graph.sessions, quota.at_least)

    def _until(self, quota: Quota, output: Numbers) -> ChosenCalls:
        """Calls in the order of the trace until *quota* is met; the last session may be incomplete."""
        graph, number, tokens, prompts = self._graph, 0, 0, 0
        while not quota.met(number, tokens, prompts):
            one = number % len(graph)
            number, tokens, prompts = number + 1, tokens + int(output[one]), prompts + int(graph.input[one])
        call, turned = np.arange(number) % len(graph), np.arange(number) // len(graph)
        session = graph.session_of()[call] + turned * graph.sessions
        return ChosenCalls(call, turned, np.append(np.flatnonzero(np.diff(session, prepend=-1)), number))

    def _sessions(self, count: int) -> ChosenCalls:
        graph, many = self._graph, self._graph.sessions
        sessions = np.arange(count, dtype=np.int64)
        call, first = gathered(graph.first_call, sessions % many)
        return ChosenCalls(call, np.repeat(sessions // many, np.diff(first)), first)

    def _turns(self, chosen: ChosenCalls) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        """TURN and EDGE items of the *chosen* calls; times of the trace are divided by its speed, and a warm-up has none."""
        graph, n = self._graph, len(chosen.call)
        factor = 0.0 if self._warmup else 1.0 / self.workload.trace_speed
        turns = np.zeros(n, TURN)
        session = np.repeat(np.arange(len(chosen.first) - 1), np.diff(chosen.first))
        turns["session"] = session
        turns["think_ns"] = np.round(graph.wait_ns[chosen.call] * factor)
        if self._under is None or self._warmup:
            edges = chosen_edges(graph, chosen, session, factor)
        else:
            edges = left_edges(self._under, chosen, session, turns["think_ns"], factor)
        np.add.at(turns["waits_for"], edges["target"], 1)
        turns["flags"] = np.where(np.bincount(edges["source"], minlength=n) == 0, LAST_TURN, 0)
        level = [0] * n
        for source, target in zip(edges["source"].tolist(), edges["target"].tolist(), strict=True):
            level[target] = max(level[target], level[source] + 1)
        if max(level, default=0) > MOST_TURNS:
            raise InputError(
                "plan-too-large", f"a session has more than {MOST_TURNS} calls one after the other, which is too long"
            )
        turns["turn"] = level
        return turns, edges

    def _calls(self, chosen: ChosenCalls) -> npt.NDArray[np.void]:
        graph, call = self._graph, chosen.call
        found = np.zeros(len(call), CALL)
        found["session"] = graph.session_of()[call] + chosen.round * graph.sessions
        found["chain"], found["parent"] = graph.chain[call], graph.parent_chain[call]
        found["turn"], found["depth"], found["kind"] = graph.turn[call], graph.depth[call], graph.wait_kind[call]
        found["background"] = graph.background[call]
        known = (graph.start_recorded_ns >= 0) & (graph.end_recorded_ns >= 0)
        seconds = np.where(known, (graph.end_recorded_ns - graph.start_recorded_ns) / 1e9, np.nan)
        found["service_s"] = seconds[call]
        found["ideal_tokens"] = -1 if self._ideal is None else self._ideal_of(chosen)
        found["blocks"] = 0 if graph.block is None or self._continued else np.diff(graph.first_block)[call]
        return found

    def _ideal_of(self, chosen: ChosenCalls) -> Numbers:
        """Tokens in full blocks that an endless cache finds of each call; rounds share nothing with each other."""
        assert self._ideal is not None
        known = self._ideal.whole_tokens  # of fewer sessions than the trace has, these are the first
        return np.where(chosen.call < len(known), known[np.minimum(chosen.call, len(known) - 1)], -1)

    def _blocks(self, chosen: ChosenCalls) -> dict[str, npt.NDArray[np.uint32]]:
        """BLOCKS of the *chosen* calls; none where prompts are not made of blocks."""
        graph = self._graph
        if graph.block is None or self._continued:
            return {}
        place, first = gathered(graph.first_block, chosen.call)
        block = graph.block[place] + np.repeat(chosen.round * (int(graph.block.max(initial=-1)) + 1), np.diff(first))
        if self._under is not None and self._opening is not None and self._opening.primed and not self._warmup:
            block = np.concatenate([block, np.unique(graph.block[gathered(graph.first_block, self._under.latest)[0]])])
        return {BLOCKS: block.astype(np.uint32)} if int(block.max(initial=0)) < 1 << 32 else {}

    def _conversations(self, chosen: ChosenCalls, turns: npt.NDArray[np.void]) -> ConversationsDescription:
        sessions, calls = len(chosen.first) - 1, len(chosen.call)
        later = calls - sessions
        think_ns = int(turns["think_ns"].sum() - turns["think_ns"][chosen.first[:-1]].sum())
        return ConversationsDescription(
            conversations=sessions,
            requests=calls,
            turns="trace",
            turns_mean=calls / sessions if sessions else None,
            turns_max=int(np.diff(chosen.first).max(initial=0)),
            think_time="trace",
            think_time_mean_s=think_ns / later / 1e9 if later else None,
            history=self.workload.history if self._continued else "planned",
        )

    # -- prompts of blocks --------------------------------------------------------------------------------------------

    def _write_blocks(
        self, path: Path, chosen: ChosenCalls, answers: Numbers, endpoint: Endpoint, model: str,
        seen: Numbers | None = None,
    ) -> Bodies:  # fmt: skip
        """*seen*: positions of the chosen calls among those that the server has seen of the sessions under way."""
        ids = endpoint.form(self.workload) == "ids"
        table = self._table(ids)
        form = "ids" if ids else "words"
        pieces = endpoint.body_pieces(model, msgspec.structs.replace(self.workload, prompt_form=form))
        sent, bodies, origin = chosen, None, self._origin
        if self._under is not None and self._opening is not None and (seen is not None or not self._warmup):
            # Both phases draw the same text in the same order: what the server has seen before what is left.
            latest, left = self._under.latest, self._left(self._under).call
            sent, origin = alone_calls(np.concatenate([latest, left])), self._opening.origin
            bodies = len(latest) + np.arange(len(left)) if seen is None else seen
        written = write_segments(path, segments_of(self._graph, sent), table, pieces, answers, str(origin), bodies)
        found = Bodies(
            self._graph.input[chosen.call].astype(np.int32), answers.astype(np.int32), written.first, written.sha256,
            np.zeros(len(chosen.call), np.uint16), graph={PIECES: written.pieces},
        )  # fmt: skip
        return found if endpoint.call is None else complete(path, found, written)

    def _table(self, ids: bool) -> WordTable:
        if ids:
            assert self._tokenizer is not None
            return id_table(self._tokenizer).salted(self.workload.salt)
        if self.workload.prompt_form != "words":
            raise InputError(
                "option-not-applicable",
                f"--prompt-form {self.workload.prompt_form}: the blocks of a trace are made of words or of token ids; use "
                "--prompt-form words or ids",
            )
        return text_table(self._tokenizer).salted(self.workload.salt)

    # -- prompts of messages ------------------------------------------------------------------------------------------

    def _write_messages(
        self, path: Path, chosen: ChosenCalls, answers: Numbers, turns: npt.NDArray[np.void], edges: npt.NDArray[np.void],
        endpoint: Endpoint, model: str,
    ) -> tuple[Bodies, npt.NDArray[np.void]]:  # fmt: skip
        graph, planned = self._graph, self.workload.history == "planned"
        if (graph.kept >= 0).any():
            one = graph.call_id[int(np.argmax(graph.kept >= 0))]
            raise InputError(
                "option-not-applicable",
                f"call {one} of the trace keeps a part of its conversation only, which messages cannot repeat yet; give it "
                "all of its messages and no context",
            )
        history: dict[int, tuple[bytes, int, bytes]] = {}
        replies = Filler(*self._words("replies"))
        parts = self._parts(chosen, answers, endpoint, model)
        continued = np.isin(chosen.call, graph.context[chosen.call])
        with BodyFile(path) as file:
            for number, (call, part) in enumerate(zip(chosen.call.tolist(), parts, strict=True)):
                body, tokens = part.body, 0
                if graph.context[call] >= 0:
                    context = number + int(graph.context[call]) - call  # calls of a session are consecutive in both
                    mark_context(edges, context, number, graph.call_id[call])
                    before, tokens, reply = history[context]
                    if planned:
                        body = joined(before, reply, part, endpoint.joint)
                    else:
                        turns["flags"][number] |= STITCHED | (REAL_REPLY if part.takes_reply else 0)
                file.add(body, tokens + part.own, part.output)
                turns["skip"][number], turns["tail"][number] = part.skip, part.tail
                turns["reply_at"][number] = part.reply_at
                if continued[number]:
                    kept = body[: len(body) - part.tail] if planned else b""
                    reply = replies.text(part.output) if planned else b""
                    history[number] = kept, tokens + part.own + part.output, reply
            return file.bodies(), turns

    def _parts(self, chosen: ChosenCalls, answers: Numbers, endpoint: Endpoint, model: str) -> Iterator[TurnPart]:
        encoder = RequestEncoder(endpoint, model, self.workload)
        maker = ScriptedConversations(self.workload, self._origin, warmup=True)
        own = self._contents(chosen)
        for call, content, output in zip(chosen.call.tolist(), own, answers.tolist(), strict=True):
            where = f"call {self._graph.call_id[call]} of the trace"
            extra = {} if self._graph.extra is None else self._graph.extra[call] or {}
            tools = None if self._graph.tools is None else self._graph.tools[call]
            extra = extra if tools is None else {**extra, "tools": tools}
            request = DatasetRequest(where, content, output, extra=extra, input_tokens=int(self._graph.input[call]))
            yield maker.part(encoder, endpoint, ScriptedTurn(request), int(self._graph.context[call] >= 0), 0)

    def _contents(self, chosen: ChosenCalls) -> Iterator[Content]:
        """Messages of the file, or as many words as a call adds."""
        words, seed = self._words("words")
        filler = Filler(words, seed)
        for call in chosen.call.tolist():
            messages = None if self._graph.messages is None else self._graph.messages[call]
            if messages is not None:
                yield messages
            else:
                yield filler.text(max(1, int(self._graph.input[call]))).decode().lstrip(" ")

    def _words(self, stream: str) -> tuple[list[bytes], str]:
        table = text_table(self._tokenizer).salted(self.workload.salt)
        return [table.word(number) for number in range(table.span)], f"{self._origin}/{stream}"

    def describe(self) -> WorkloadDescription:
        graph = self._graph
        osl = "trace" if self.workload.osl is None else self.workload.osl
        form = "messages" if self._continued else self.workload.prompt_form
        found = described(self.workload, self._tokenizer, "trace", osl, form)
        facts = TraceFacts(
            sha256=graph.sha256,
            rows=len(graph),
            left_out=sum(graph.left_out.values()),
            seconds=float(np.max(self._sent.end_recorded_ns, initial=0)) / 1e9,
        )
        sessions = session_facts(self._sent, self._ideal, self.workload, self._order_sent(), self._under)
        return msgspec.structs.replace(found, trace=facts, sessions=sessions)


def session_facts(
    graph: CallGraph, ideal: IdealHits | None, workload: asked.Workload, order: Numbers | None, under: UnderWay | None
) -> SessionFacts:
    """What plan.json says of the sessions of *graph*, which are sent; *ideal*: what a cache without end finds of them when
    calls come in *order* (None: as they are due).
    """
    shapes = session_shapes(graph)
    waits = {
        kind.name.lower(): WaitFacts(count=int(mine.sum()), mean_s=float(graph.wait_ns[mine].mean()) / 1e9)
        for kind in WaitKind
        if (mine := (graph.wait_kind == kind) & (graph.wait_ns > 0)).any()
    }
    return SessionFacts(
        timing=workload.trace_timing,
        sessions=graph.sessions,
        calls=len(graph) if under is None else int((under.due_ns >= 0).sum()),
        edges=len(graph.edge_from),
        joins=int((np.bincount(graph.edge_to, minlength=1) > 1).sum()),
        agents_max=int(shapes.agents.max()),
        fan_out_max=int(shapes.fan_out.max()),
        depth_max=int(shapes.depth.max()),
        makespan_mean_s=float(shapes.makespan_ns.mean()) / 1e9,
        waits=waits,
        ideal=None if ideal is None else ideal_rates(graph, ideal, workload.cache_blocks, order, under),
        notes=(*graph.notes, *(f"{count} entries left out: {reason}" for reason, count in graph.left_out.items())),
        start=None if under is None else workload.session_start,
        under_way=None if under is None else under.live,
        ending=None if under is None else under.ending or None,
        calls_before=None if under is None else int((under.due_ns < 0).sum()),
    )


def ideal_rates(
    graph: CallGraph, found: IdealHits, cache_blocks: int | None, order: Numbers | None, under: UnderWay | None
) -> IdealHitRates:
    bounded = None if cache_blocks is None else ideal_hits(graph, capacity=cache_blocks, order=order)
    if under is not None:
        sent = np.flatnonzero(under.due_ns >= 0)
        found, bounded = found.of(sent), None if bounded is None else bounded.of(sent)
    return IdealHitRates(
        token_share=found.token_rate(),
        whole_block_share=found.whole_rate(),
        block_share=found.block_rate(),
        scope=found.scope,
        block_tokens=graph.block_tokens or None,
        cache_blocks=cache_blocks,
        cache_token_share=None if bounded is None else bounded.token_rate(),
    )


def chosen_edges(graph: CallGraph, chosen: ChosenCalls, session: Numbers, factor: float) -> npt.NDArray[np.void]:
    """The edges between the *chosen* calls, each in its own copy of a session."""
    n_edges = np.bincount(graph.edge_to, minlength=len(graph))
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_edges)])
    by_target = np.argsort(graph.edge_to, kind="stable")
    target = np.repeat(np.arange(len(chosen.call)), n_edges[chosen.call])
    edge = by_target[gathered(first, chosen.call)[0]]
    shift = target - chosen.call[target]  # calls of a session are consecutive in both
    found = np.zeros(len(edge), EDGE)
    found["source"], found["target"] = graph.edge_from[edge] + shift, target
    found["wait_ns"] = np.round(graph.edge_wait_ns[edge] * factor)
    found["flags"] = np.where(graph.edge_from_start[edge], EDGE_START, 0)
    return found[np.lexsort((found["target"], found["source"]))]


def alone_calls(call: Numbers) -> ChosenCalls:
    return ChosenCalls(call, np.zeros(len(call), np.int64), np.arange(len(call) + 1))


def mark_context(edges: npt.NDArray[np.void], source: int, target: int, call: str) -> None:
    """InputError when *target* continues a conversation whose reply it does not wait for."""
    low, high = np.searchsorted(edges["source"], [source, source + 1])
    mine = low + np.flatnonzero((edges["target"][low:high] == target) & (edges["flags"][low:high] & EDGE_START == 0))
    if not len(mine):
        raise InputError(
            "call-graph-invalid",
            f"call {call} of the trace continues a conversation whose last reply it does not wait for",
        )
    edges["flags"][mine] |= EDGE_CONTEXT


def segments_of(graph: CallGraph, chosen: ChosenCalls) -> Segments:
    """The prompts of the *chosen* calls: blocks of the trace, then what only this call has.

    Without blocks a prompt is what the previous prompt of its agent began with (*prefix_tokens*), and a rest of its own.
    """
    if graph.block is None and graph.prefix_tokens is not None:
        return grown_segments(graph, graph.prefix_tokens, chosen)
    call = chosen.call
    block = np.zeros(0, np.int64) if graph.block is None else graph.block
    first_block = np.zeros(len(graph) + 1, np.int64) if graph.block is None else graph.first_block
    many = first_block[call + 1] - first_block[call]
    covered = many * graph.block_tokens
    rest = np.maximum(graph.input[call] - covered, 0)
    own = rest > 0
    size = many + own
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    number = np.empty(int(first[-1]), np.int64)
    used = np.full(len(number), graph.block_tokens, np.int64)
    is_block = np.ones(len(number), np.bool_)
    is_block[first[1:][own] - 1] = False
    blocks = int(block.max()) + 1 if len(block) else 0
    number[is_block] = block[gathered(first_block, call)[0]] + blocks * np.repeat(chosen.round, many)
    shared = blocks * (int(chosen.round.max(initial=0)) + 1)
    number[~is_block] = shared + np.flatnonzero(own)
    used[~is_block] = rest[own]
    partly = (covered > graph.input[call]) & (many > 0)
    used[first[1:][partly] - 1] -= (covered - graph.input[call])[partly]
    return Segments(first, number, used, np.concatenate([np.full(shared, graph.block_tokens, np.int64), rest]))


def grown_segments(graph: CallGraph, prefix_tokens: Numbers, chosen: ChosenCalls) -> Segments:
    """Prompts that begin as the one before them in their chain did, for *prefix_tokens*."""
    session = graph.session_of()[chosen.call] + chosen.round * graph.sessions
    latest: dict[tuple[int, int], list[tuple[int, int]]] = {}
    number, used, first = [], [], [0]
    size = np.zeros(len(chosen.call), np.int64)
    for place, call in enumerate(chosen.call.tolist()):
        chain = int(session[place]), int(graph.chain[call])
        wanted = int(graph.input[call])
        left = min(int(prefix_tokens[call]), wanted)
        prompt = []
        for one, tokens in latest.get(chain, []):
            if left:
                prompt.append((one, min(left, tokens)))
                left -= prompt[-1][1]
        size[place] = wanted - sum(tokens for _, tokens in prompt)
        if size[place]:
            prompt.append((place, int(size[place])))
        latest[chain] = prompt
        number += [one for one, _ in prompt]
        used += [tokens for _, tokens in prompt]
        first.append(len(number))
    return Segments(np.array(first, np.int64), np.array(number, np.int64), np.array(used, np.int64), size)


def complete(path: Path, bodies: Bodies, written: Written) -> Bodies:
    """The bodies in *path* in one piece each: for protocols whose messages are made from complete ones."""
    raw = np.fromfile(path, np.uint8)
    at, size = written.pieces["at"].astype(np.int64), written.pieces["size"].astype(np.int64)
    first = written.first.astype(np.int64)
    with disk_errors(path), open(path, "wb") as file:
        pending: list[bytes] = []
        pending_bytes = 0
        for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            pending += [raw[at[one] : at[one] + size[one]].tobytes() for one in range(begin, end)]
            pending_bytes += int(size[begin:end].sum())
            if pending_bytes > COPIED:
                file.write(b"".join(pending))
                pending, pending_bytes = [], 0
        file.write(b"".join(pending))
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    return replace(bodies, offsets=totals[first].astype(np.uint64), graph={}, sha256="")
