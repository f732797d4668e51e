"""A server whose replies are odd in turn: `python odd_server.py` prints its port.

Chunks of several tokens, said, unsaid or only in the text; tool calls; reasoning, streamed or hidden; white space before
and inside the text; replies of one token and of none; refusals; streams that break; errors by status and inside a stream;
whole answers to who asked for a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

RNG = random.Random(7)
Events = Iterator[bytes]


def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"choices": [] if choice is None else [{"index": 0, **choice}], **more}).encode()
        + b"\n\n"
    )


def delta(finish: str | None = None, logprobs: int = 0, **content: Any) -> bytes:
    said = {"logprobs": {"content": [{"token": " w", "logprob": -1.0}] * logprobs}} if logprobs else {}
    return event({"delta": content, "finish_reason": finish, **said})


def words(n: int) -> Events:
    return (delta(content=f" w{k}") for k in range(n))


def ended(tokens: int, finish: str = "stop", **details: Any) -> Events:
    """Finish, usage, [DONE]."""
    yield delta(finish)
    yield event(None, usage={"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens, **details})
    yield b"data: [DONE]\n\n"


def reasoned(tokens: int) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


def plain(n: int) -> Events:
    yield from words(n)
    yield from ended(n, "length", prompt_tokens_details={"cached_tokens": 8})


def one(n: int) -> Events:
    yield from words(1)
    yield from ended(1)


def nothing(n: int) -> Events:
    yield delta(content=" \n")
    yield from ended(1)


def tool(n: int) -> Events:
    yield delta(tool_calls=[{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}])
    yield from (delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]) for _ in range(n))
    yield from ended(n + 1, "tool_calls")


def reasoning(n: int) -> Events:
    yield from (delta(reasoning_content=" hm") for _ in range(5))
    yield from words(n)
    yield from ended(n + 5, **reasoned(5))


def reasoning_unsaid(n: int) -> Events:
    yield from (delta(reasoning_content=" hm") for _ in range(5))
    yield from words(n)
    yield from ended(n + 5)


def hidden(n: int) -> Events:
    yield from words(n)
    yield from ended(n + 20, **reasoned(20))


def white(n: int) -> Events:
    yield delta(content="\n")
    yield delta(content=" ")
    yield from words(n)
    yield delta(content="\n")
    yield from words(2)
    yield from ended(n + 5)


def burst(n: int) -> Events:
    yield b"".join(words(n))
    yield from words(n)
    yield from ended(2 * n)


def several(n: int) -> Events:
    yield from (delta(content=" several words at once") for _ in range(n))
    yield from ended(4 * n)


def several_said(n: int) -> Events:
    yield from (delta(content=" w w w", logprobs=3) for _ in range(n))
    yield from ended(3 * n)


def huge(n: int) -> Events:
    yield delta(content=" w" * 500)
    yield from words(n)
    yield from ended(500 + 2 * n)


def unsaid(n: int) -> Events:
    yield from words(n)
    yield delta("stop")
    yield b"data: [DONE]\n\n"


def broken(n: int) -> Events:
    yield from words(n)


def failing(n: int) -> Events:
    yield from words(3)
    yield b'data: {"error":{"message":"boom","code":500}}\n\n'
    yield b"data: [DONE]\n\n"


def refusing(n: int) -> Events:
    yield from (delta(refusal=f" no{k}") for k in range(3))
    yield from ended(3)


WHOLE = 200
STREAMS: list[Callable[[int], Events] | int] = [
    plain, WHOLE, one, plain, nothing, tool, reasoning, 429, reasoning_unsaid, hidden, white, plain, burst, several, broken,
    several_said, huge, 500, unsaid, failing, refusing,
]  # fmt: skip


def head(status: int, kind: str, *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *more, "", ""]).encode()


def whole(status: int, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    return head(status, "application/json", f"Content-Length: {len(body)}") + body


class Talk:
    numbers = count()

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self.answer(reader, writer)
        writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = request.partition("content-length:")[2].partition("\r\n")[0]
        body = await reader.readexactly(int(size or 0))
        if request.startswith("get /v1/models"):
            writer.write(whole(200, {"object": "list", "data": [{"id": "odd", "object": "model"}]}))
        elif request.startswith("get"):
            writer.write(whole(404, {}))
        else:
            await self.generate(json.loads(body), writer)

    async def generate(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        tokens = asked.get("max_completion_tokens") or asked.get("max_tokens") or 8
        stream = STREAMS[next(self.numbers) % len(STREAMS)]
        await asyncio.sleep(RNG.expovariate(100))
        if isinstance(stream, int) and stream != WHOLE:
            writer.write(whole(stream, {"error": {"message": "no"}}))
        elif isinstance(stream, int) or not asked.get("stream"):
            text = {"message": {"content": " w" * tokens}, "finish_reason": "stop", "index": 0}
            usage = {"prompt_tokens": 16, "completion_tokens": tokens}
            writer.write(whole(200, {"choices": [text], "usage": usage}))
        else:
            writer.write(head(200, "text/event-stream", "Transfer-Encoding: chunked"))
            for each in (delta(role="assistant", content=""), *stream(tokens)):
                writer.write(f"{len(each):x}\r\n".encode() + each + b"\r\n")
                await writer.drain()
                await asyncio.sleep(RNG.gammavariate(4, 0.001))
            writer.write(b"0\r\n\r\n")


async def main() -> None:
    server = await asyncio.start_server(Talk().hold, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
