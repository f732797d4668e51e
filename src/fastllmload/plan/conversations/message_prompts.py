"""Write the calls of graphs that are conversations: messages of the file, or words for blocks and lengths, after what was
said in the call that each continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload.endpoint import Endpoint
from fastllmload.plan.bodies import Bodies, BodyFile
from fastllmload.plan.conversations.opening import ChosenCalls
from fastllmload.plan.conversations.scripted import ScriptedConversations
from fastllmload.plan.conversations.turns import Filler, TurnPart, joined
from fastllmload.plan.plan import EDGE_CONTEXT, EDGE_START, REAL_REPLY, STITCHED
from fastllmload.plan.prompts.encoder import RequestEncoder
from fastllmload.plan.prompts.source import Origin
from fastllmload.workload.content.words import text_table
from fastllmload.workload.dialogues import ScriptedTurn
from fastllmload.workload.graph import CallGraph
from fastllmload.workload.request import Content, DatasetRequest
from fastllmload.workload.sharing.segments import block_count
from fastllmload.workload.tokenizers.tokenizer import Tokenizer


class MessagePrompts:
    """Of the calls of *graph*, which continue all of a conversation or none (`entire_histories`).

    Streams of origin O: O/blocks (text of blocks), O/words (other text of calls without messages), O/replies.
    """

    def __init__(self, workload: asked.Workload, tokenizer: Tokenizer | None, origin: Origin, graph: CallGraph) -> None:
        self._workload, self._origin, self._graph = workload, origin, graph
        table = text_table(tokenizer).salted(workload.salt)
        self._words = [table.word(number) for number in range(table.span)]

    def write(
        self, path: Path, chosen: ChosenCalls, turns: npt.NDArray[np.void], edges: npt.NDArray[np.void], endpoint: Endpoint,
        model: str,
    ) -> Bodies:  # fmt: skip
        """The bodies of the *chosen* calls; completes their *turns* and *edges*."""
        graph, planned = self._graph, self._workload.history == "planned"
        history: dict[int, tuple[bytes, int, int, bytes]] = {}
        replies = self._filler("replies")
        parts = self._parts(chosen, endpoint, model)
        continued = np.isin(chosen.call, graph.context[chosen.call])
        with BodyFile(path) as file:
            for number, (call, part) in enumerate(zip(chosen.call.tolist(), parts, strict=True)):
                body, tokens = part.body, 0
                if graph.context[call] >= 0:
                    context = number + int(graph.context[call]) - call  # calls of a session are consecutive in both
                    mark_context(edges, context, number)
                    before, tokens, replied, reply = history[context]
                    tokens += replied if part.takes_reply else 0
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
                    history[number] = kept, tokens + part.own, part.output, reply
            return file.bodies()

    def _parts(self, chosen: ChosenCalls, endpoint: Endpoint, model: str) -> Iterator[TurnPart]:
        graph = self._graph
        encoder = RequestEncoder(endpoint, model, self._workload)
        maker = ScriptedConversations(self._workload, self._origin, warmup=True)
        for call, content in zip(chosen.call.tolist(), self._contents(chosen), strict=True):
            where = f"call {graph.call_id[call]} of the trace"
            extra = {} if graph.extra is None else graph.extra[call] or {}
            tools = None if graph.tools is None else graph.tools[call]
            extra = extra if tools is None else {**extra, "tools": tools}
            output, tokens = int(graph.output[call]), int(graph.input[call])
            request = DatasetRequest(where, content, output, extra=extra, input_tokens=tokens)
            yield maker.part(encoder, endpoint, ScriptedTurn(request), int(graph.context[call] >= 0), False)

    def _contents(self, chosen: ChosenCalls) -> Iterator[Content]:
        """Messages of the file; or text of the blocks that a call adds, the same for equal blocks of one round, and as many
        words as it adds without a block.
        """
        graph, many = self._graph, block_count(self._graph)
        others, blocks = self._filler("words"), self._filler("blocks")
        known: dict[int, bytes] = {}
        for call, turned in zip(chosen.call.tolist(), chosen.round.tolist(), strict=True):
            messages = None if graph.messages is None else graph.messages[call]
            if messages is not None:
                yield messages
                continue
            left, text = max(1, int(graph.input[call])), b""
            for block in graph.blocks_of(call).tolist():
                number, tokens = block + turned * many, min(graph.block_tokens, left)
                if number not in known:
                    known[number] = blocks.text(tokens)
                text, left = text + known[number], left - tokens
            yield (text + others.text(left)).decode().lstrip(" ")

    def _filler(self, stream: str) -> Filler:
        return Filler(self._words, f"{self._origin}/{stream}")


def mark_context(edges: npt.NDArray[np.void], source: int, target: int) -> None:
    """The edge by which *target* continues the conversation of *source*, for whose reply it waits."""
    low, high = np.searchsorted(edges["source"], [source, source + 1])
    mine = low + np.flatnonzero((edges["target"][low:high] == target) & (edges["flags"][low:high] & EDGE_START == 0))
    edges["flags"][mine] |= EDGE_CONTEXT
