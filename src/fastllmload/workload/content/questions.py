"""Conversations of the workload `conversation` without a ShareGPT file: generated questions and lengths, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.workload.content.exact_length import fit
from fastllmload.workload.content.prose import Prose
from fastllmload.workload.conversation import Conversation
from fastllmload.workload.dataset import DatasetRequest
from fastllmload.workload.dialogues import Message
from fastllmload.workload.tokenizers.tokenizer import Tokenizer


class Questions:
    """Conversations without end. Questions and lengths of *seed* are those of the workload's single requests, in order.
    *answered*: every turn has filler of its answer's length, for a planned history.
    """

    def __init__(self, of: Conversation, tokenizer: Tokenizer | None, seed: int | str, answered: bool) -> None:
        self._questions: Iterator[tuple[str, int, int, int]] = of.questions()
        self._tokenizer = tokenizer
        self._replies = Prose(f"{seed}/replies") if answered else None

    def take(self, turns: int) -> tuple[Message, ...]:
        """The next conversation, of *turns* turns."""
        return tuple(self._turn(number) for number in range(1, turns + 1))

    def _turn(self, number: int) -> Message:
        text, _, tokens, answer = next(self._questions)
        reply = None if self._replies is None else fit(self._tokenizer, self._replies.text(answer), answer)
        return Message(
            DatasetRequest(f"turn {number} of a conversation", text, answer, input_tokens=tokens), None, reply
        )
