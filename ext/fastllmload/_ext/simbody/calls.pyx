# cython: cdivision=True
"""Replies that call tools. A streamed call is as vLLM writes it: id and name with the first token, then pieces of the
arguments. The pieces have what JSON inside a JSON string can hold: quotes, line ends, backslashes, characters of two bytes.
"""

import msgspec

from libc.stdint cimport uint64_t

from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simbody.form cimport FORM_OLLAMA_CHAT, WORD, WORDS, Piece

NAME = "lookup"
# After the words of the arguments' text, in turn; JSON inside of JSON.
SPICE = ("", '\\"', "\\n", "é", "\\\\", "\\u00fc", "/")
cdef bytes ENTRY = b'{"index":0,"delta":{"tool_calls":[%s]},"logprobs":null,"finish_reason":null}]}'
cdef bytes FINISH = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}'


cdef class ToolCalls:
    """Composes them."""

    def __cinit__(self):
        self.room = 512

    cdef uint8_t* token(self, Form form, uint8_t* out, Stamp* s, int64_t index, int64_t tokens, uint32_t calls) except NULL:
        cdef bytes text
        cdef Piece piece
        if form.kind == FORM_OLLAMA_CHAT:
            if index >= calls:
                piece = WORD[draw(s.id, <uint64_t>index, DRAW_WORD) % WORDS]
                return form.content(out, s, piece.at, piece.size)
            call = {"function": {"name": NAME, "arguments": msgspec.json.decode(arguments(s.id, index, 5))}}
            message = {"role": "assistant", "content": "", "tool_calls": [call]}
            text = b'"message":' + msgspec.json.encode(message) + b',"done":false}'
        else:
            text = ENTRY % msgspec.json.encode(fragment(s.id, index, tokens, min(<int64_t>calls, tokens)))
        piece.at = <const uint8_t*><const char*>text
        piece.size = <size_t>len(text)
        return form.with_piece(out, s, piece)

    cdef uint8_t* finish(self, Form form, uint8_t* out, Stamp* s) except NULL:
        cdef Piece piece
        piece.at = <const uint8_t*><const char*>FINISH
        piece.size = <size_t>len(FINISH)
        return form.with_piece(out, s, piece)

    cdef bytes document(self, Form form, Stamp* s, int64_t tokens, uint32_t calls, Usage* u):
        many = min(<int64_t>calls, tokens)
        if form.kind == FORM_OLLAMA_CHAT:
            asked = [{"function": {"name": NAME, "arguments": msgspec.json.decode(arguments(s.id, number, 5))}} for number in range(many)]
            said = {"model": form.model, "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop",
                    "message": {"role": "assistant", "content": "", "tool_calls": asked}, "total_duration": u.total_ns,
                    "prompt_eval_count": u.prompt, "eval_count": u.completion}
            return msgspec.json.encode(said)
        asked = []
        for number in range(many):
            first, behind = block(number, tokens, many)
            function = {"name": NAME, "arguments": arguments(s.id, number, behind - first)}
            asked.append({"id": ident(s.id, number), "type": "function", "function": function})
        message = {"role": "assistant", "content": None, "tool_calls": asked}
        counts = {"prompt_tokens": u.prompt, "completion_tokens": u.completion, "total_tokens": u.prompt + u.completion}
        return msgspec.json.encode({
            "id": "chatcmpl-%016x" % s.id, "object": "chat.completion", "created": s.created, "model": form.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}], "usage": counts})


def ident(reply: int, number: int) -> str:
    """The id of a reply's call."""
    return f"chatcmpl-tool-{reply:016x}{number:04x}"


def block(number: int, tokens: int, calls: int) -> tuple[int, int]:
    """The tokens that call *number* is made of, from and up to."""
    return -(-number * tokens // calls), -(-(number + 1) * tokens // calls)


def pieces(reply: int, number: int, count: int) -> list[str]:
    """*count* pieces that make a call's arguments; the first goes with its name and is empty if others follow."""
    if count < 3:
        return ["{}"] if count == 1 else ["", "{}"]
    texts = [word(reply, number * 65536 + i) + SPICE[i % len(SPICE)] for i in range(count - 2)]
    texts[0] = '{"text":"' + texts[0]
    return ["", *texts, '"}']


cdef str word(uint64_t reply, uint64_t place):
    cdef Piece piece = WORD[draw(reply, place, DRAW_WORD) % WORDS]
    return (<const char*>piece.at)[:piece.size].decode()


def arguments(reply: int, number: int, count: int) -> str:
    """A call's arguments of *count* tokens: JSON."""
    return "".join(pieces(reply, number, count))


def fragment(reply: int, index: int, tokens: int, calls: int) -> dict[str, object]:
    """What token *index* of *tokens* adds to one of *calls* calls, as an entry of tool_calls."""
    number = index * calls // tokens
    first, behind = block(number, tokens, calls)
    piece = pieces(reply, number, behind - first)[index - first]
    if index > first:
        return {"index": number, "function": {"arguments": piece}}
    return {"index": number, "id": ident(reply, number), "type": "function", "function": {"name": NAME, "arguments": piece}}
