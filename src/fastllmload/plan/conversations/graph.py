"""Sessions of a trace that are graphs of calls: each call is due some time after the replies that it waits for.

Prompts are made of the trace's blocks, in text that is shared exactly where blocks were shared; or they are the messages of
the file, after the conversation that a call continues. Sessions that are repeated have blocks of their own in each round.

Streams of origin O (seed and phase): O/openings and O/blocks (text), O/lengths (--osl).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload._ext.plan.mersenne import Mersenne
from fastllmload.documents.plan import ConversationsDescription, TraceFacts, WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.conversations.block_prompts import write_blocks
from fastllmload.plan.conversations.message_prompts import MessagePrompts
from fastllmload.plan.conversations.opening import ChosenCalls, Opening, alone_calls, arrivals_of, left_edges
from fastllmload.plan.conversations.session_facts import inexact, session_facts
from fastllmload.plan.conversations.turns import MOST_TURNS
from fastllmload.plan.plan import BLOCKS, CALL, CALLS, EDGE, EDGE_START, EDGES, LAST_TURN, NODE, NODES, SCHEDULE, TURN
from fastllmload.plan.prompts.source import Origin, described
from fastllmload.workload.graph import CallGraph, gathered
from fastllmload.workload.lengths import parse_lengths
from fastllmload.workload.sharing.histories import check_contexts, entire_histories
from fastllmload.workload.sharing.ideal import IdealHits, hit_order, ideal_hits
from fastllmload.workload.sharing.messages import PromptTree, message_hits, message_segments, prompt_tree
from fastllmload.workload.sharing.segments import Segments, segments_of
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.underway import UnderWay

Numbers = npt.NDArray[np.int64]


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
        continues = bool((graph.context >= 0).any())
        # Planned replies to prompts of blocks are segments too, so that these prompts are complete in the plan.
        self._continued = graph.messages is not None or (continues and workload.history != "planned")
        self._of_blocks = graph.block is not None and not continues and not self._continued
        self._ideal: IdealHits | None = None
        self._bounded: IdealHits | None = None  # of messages, with --cache-blocks
        self._rated: Numbers | None = None  # of these, the calls of which the rates are stated; None: all
        self._under: UnderWay | None = None
        self._opening = opening
        self._templated = False
        self._segments: Segments | None = None
        self._tree: PromptTree | None = None  # of messages that are complete in the plan
        self.instants, self._order = graph.start_ns, None
        if workload.trace_timing == "recorded" and not warmup:
            self._check_recorded()
            self._order = np.argsort(graph.start_recorded_ns, kind="stable")
            self.instants = graph.start_recorded_ns[self._order]
        if opening is not None:
            self._check_complete()
            sessions = opening.quota.requests if opening.by_starts else opening.slots + self._pool(opening.quota)
            self._under = opening.under_way(graph, sessions, workload.trace_speed)
            self._graph = self._under.graph
        self._sent = self._graph  # what is sent of it, once
        self._entire = self._graph  # with calls that continue all of a conversation or none

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        self._graph = replace(self._graph, output=np.maximum(self._outputs(), self.workload.least_output))
        self._sent = self._graph
        self._entire = entire_histories(self._graph)[0] if self._continued else self._graph
        self._templated = endpoint.takes("messages")
        if self._continued and self.workload.prompt_form == "ids":
            raise InputError(
                "option-not-applicable",
                "--prompt-form ids: calls of the trace have messages, or continue conversations with the server's replies, "
                "which are text; use words"
                + (
                    ""
                    if self._graph.messages is not None
                    else ", or --history planned, whose replies are token ids too"
                ),
            )
        if self._warmup and self._under is not None and len(self._under.latest):
            self._cut(len(self._graph))
            return self._write_seen(path, quota, endpoint, model)
        chosen = self._choose(quota, by_starts)
        sessions = len(chosen.first) - 1
        if self._order is None and not self._warmup and self._under is None and 0 < sessions < self._graph.sessions:
            self._sent = self._graph.part(0, sessions)
        in_order = self._order is None and self._under is None
        self._cut(int(chosen.call.max(initial=-1)) + 1 if in_order else len(self._graph))
        planned = self.workload.history == "planned"
        if not self._warmup and self._continued and self._graph.messages is not None:
            self._ideal, self._bounded = self._message_hits(chosen, planned)
            self._rated = None if by_starts or self._under is not None else np.flatnonzero(chosen.round == 0)
        elif not self._warmup:
            self._ideal = ideal_hits(self._sent, order=self._order_sent(), planned=planned, segments=self._segments)
        if self._order is not None:
            return self._alone(chosen, self._write_blocks(path, chosen, endpoint, model))
        turns, edges = self._turns(chosen)
        if self._continued:
            bodies = self._messages().write(path, chosen, turns, edges, endpoint, model)
        else:
            bodies = self._write_blocks(path, chosen, endpoint, model)
        arrays = {EDGES: edges, CALLS: self._calls(chosen), **self._blocks(chosen), **bodies.graph}
        if self._opening is not None and self._opening.at_ns is not None and not self._warmup:
            arrays[SCHEDULE] = arrivals_of(turns, chosen.first[:-1])
        return replace(bodies, turns=turns, graph=arrays, conversations=self._conversations(chosen, turns))

    def _cut(self, calls: int) -> None:
        """Set the segments of the first *calls* of the graph, where prompts are made of segments."""
        if not self._continued:
            check_contexts(self._graph)
            self._segments = segments_of(self._graph, calls)

    def _message_hits(self, chosen: ChosenCalls, planned: bool) -> tuple[IdealHits | None, IdealHits | None]:
        """Of the *chosen* calls, or of all where sessions are under way: with a cache without end, and a given one."""
        if self._tokenizer is None:
            return None, None
        call, order = np.arange(len(self._graph)), self._order_sent()
        if order is None:
            due = np.empty(len(self._graph), np.int64)
            due[hit_order(self._graph)] = call
            call = chosen.call
            order = np.lexsort((due[call], chosen.round))
        most = self.workload.cache_blocks
        if not planned and (self._graph.context >= 0).any():
            most = None  # how long a server keeps what it generated is not known
        segments = message_segments(self._entire, call, self._tokenizer)
        if planned or not (self._graph.context >= 0).any():
            self._tree = prompt_tree(segments)
        ideal = message_hits(self._entire, call, order, segments, planned)
        return ideal, None if most is None else message_hits(self._entire, call, order, segments, planned, most)

    def _messages(self) -> MessagePrompts:
        return MessagePrompts(self.workload, self._tokenizer, self._origin, self._entire)

    def _write_blocks(
        self, path: Path, chosen: ChosenCalls, endpoint: Endpoint, model: str, seen: Numbers | None = None
    ) -> Bodies:
        """*seen*: positions of the chosen calls among those that the server has seen of the sessions under way."""
        bodies, origin = None, self._origin
        if self._under is not None and self._opening is not None and (seen is not None or not self._warmup):
            # Both phases draw the same text in the same order: what the server has seen before what is left.
            latest, left = self._under.latest, self._left(self._under).call
            chosen, origin = alone_calls(np.concatenate([latest, left])), self._opening.origin
            bodies = len(latest) + np.arange(len(left)) if seen is None else seen
        assert self._segments is not None
        return write_blocks(
            path, self._graph, self._segments, chosen, bodies, self.workload, self._tokenizer, endpoint, model, origin
        )

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
        if self._continued and (graph.context >= 0).any():
            one = graph.call_id[int(np.argmax(graph.context >= 0))]
            remedy = (
                "leave it out, or give calls their complete prompts"
                if graph.messages is not None
                else "use --history planned"
            )
            raise InputError(
                "option-not-applicable",
                f"--session-start: call {one} of the trace continues a conversation, whose replies do not exist before the "
                f"run; {remedy}",
            )

    def _write_seen(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> Bodies:
        """The warm-up: the last call before time zero of every agent, again and again until *quota* is met; so the server
        has seen the prompts that the measured phase continues.
        """
        assert self._under is not None
        latest, number, tokens, prompts = self._under.latest, 0, 0, 0
        many = len(latest)
        while number < many or not quota.met(number, tokens, prompts):
            one = latest[-1 - number % many]
            number, tokens = number + 1, tokens + int(self._graph.output[one])
            prompts += int(self._graph.input[one])
        place = np.arange(-number, 0) % many
        chosen = alone_calls(latest[place])
        if self._continued:
            bodies = self._messages().write(path, chosen, np.zeros(number, TURN), np.empty(0, EDGE), endpoint, model)
        else:
            bodies = self._write_blocks(path, chosen, endpoint, model, place)
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
            origin = self._origin if self._opening is None else self._opening.origin  # of both phases
            lengths, stream = parse_lengths(self.workload.osl, "--osl"), Mersenne(f"{origin}/lengths")
            return np.array([lengths.draw(stream) for _ in range(len(output))], np.int64)
        if (output < 1).any():
            one = self._graph.call_id[int(np.argmax(output < 1))]
            raise InputError("output-length-missing", f"call {one} of the trace has no output length; add --osl")
        return output

    def _choose(self, quota: Quota, by_starts: bool) -> ChosenCalls:
        """*quota* sessions if *by_starts*, or calls at their recorded instants; in a warm-up calls until it is met; else
        a pool of sessions.
        """
        if self._warmup:
            return self._until(quota)
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

    def _until(self, quota: Quota) -> ChosenCalls:
        """Calls in the order of the trace until *quota* is met; the last session may be incomplete."""
        graph, number, tokens, prompts = self._graph, 0, 0, 0
        while not quota.met(number, tokens, prompts):
            one = number % len(graph)
            number, tokens, prompts = number + 1, tokens + int(graph.output[one]), prompts + int(graph.input[one])
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
        graph, n = self._entire, len(chosen.call)
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
        found["blocks"] = np.diff(graph.first_block)[call] if self._of_blocks else 0
        if self._tree is not None:
            found["blocks"] = np.diff(self._tree.first)[self._prompts(chosen)]
        return found

    def _of_rates(self, found: IdealHits | None) -> IdealHits | None:
        return found if found is None or self._rated is None else found.of(self._rated)

    def _ideal_of(self, chosen: ChosenCalls) -> Numbers:
        """Tokens in full blocks that an endless cache finds of each call; rounds share nothing with each other."""
        assert self._ideal is not None
        if self._graph.messages is not None and self._under is None:
            return self._ideal.whole_tokens  # of messages, of which each round has the same
        known = self._ideal.whole_tokens  # of fewer sessions than the trace has, these are the first
        return np.where(chosen.call < len(known), known[np.minimum(chosen.call, len(known) - 1)], -1)

    def _blocks(self, chosen: ChosenCalls) -> dict[str, npt.NDArray[Any]]:
        """BLOCKS of the *chosen* calls; none where prompts are not made of blocks."""
        graph = self._graph
        if self._tree is not None:
            return self._nodes(chosen, self._tree)
        if graph.block is None or not self._of_blocks:
            return {}
        place, first = gathered(graph.first_block, chosen.call)
        block = graph.block[place] + np.repeat(chosen.round * (int(graph.block.max(initial=-1)) + 1), np.diff(first))
        if self._under is not None and self._opening is not None and self._opening.primed and not self._warmup:
            block = np.concatenate([block, np.unique(graph.block[gathered(graph.first_block, self._under.latest)[0]])])
        return {BLOCKS: block.astype(np.uint32)} if int(block.max(initial=0)) < 1 << 32 else {}

    def _prompts(self, chosen: ChosenCalls) -> Numbers:
        """Where the *chosen* calls are among those of the tree."""
        return np.arange(len(chosen.call)) if self._under is None else chosen.call

    def _nodes(self, chosen: ChosenCalls, tree: PromptTree) -> dict[str, npt.NDArray[Any]]:
        """BLOCKS and NODES of the *chosen* calls, whose prompts are messages."""
        node = tree.taken(self._prompts(chosen))[0]
        if self._under is not None and self._opening is not None and self._opening.primed:
            node = np.concatenate([node, np.unique(tree.taken(self._under.latest)[0])])
        nodes = np.zeros(len(tree.tokens), NODE)
        nodes["tokens"], nodes["opens"] = tree.tokens, tree.opens
        return {BLOCKS: node.astype(np.uint32), NODES: nodes}

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
        ideal, bounded = self._of_rates(self._ideal), self._of_rates(self._bounded)
        sessions = session_facts(self._sent, ideal, bounded, self.workload, self._order_sent(), self._under)
        if self._ideal is not None or self._continued:
            missing = 0 if self._segments is None else self._segments.missing
            reasons = inexact(self._sent, self.workload, form, self._templated, missing)
            sessions = msgspec.structs.replace(sessions, inexact=reasons)
        return msgspec.structs.replace(found, trace=facts, sessions=sessions)


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
