"""Random inputs near valid ones: seeds, a dictionary of bytes that mean something, and small damage."""

from __future__ import annotations

import random

SEEDS = {
    "sse": [
        b"\xef\xbb\xbfevent: e\r\ndata: one\r\ndata: two\r\n\r\n: ping\n\ndata: [DONE]\n\n",
        b"data\rdata:\r\rid: 1\n\n",
        b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n' * 3,
    ],
    "ndjson": [b'{"a":1}\r\n\n{"b":"\\n"}\n[]', b"\r\n\r\r\n1\n"],
    "head": [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (b"HTTP/1.0 429 Too Many\r\nRetry-After: 15\r\nConnection: keep-alive, close\r\nContent-Length: 42\r\n\r\n"),
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 204\n\n",
    ],
    "body": [
        b'3\r\nabc\r\n1A;a=b;c="\\"x;"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nt: v\r\nu:\r\n\r\nnext',
        b"00\r\n\r\n",
        b"fffffffffffffff\r\nx",
    ],
    "delta": [
        (
            b'{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
            b'{"content":" \\u00e9\\ud83d\\ude00\\n"},"finish_reason":null}]}'
        ),
        (b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":"stop"}]}'),
        (
            b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,'
            b'"total_tokens":8,"prompt_tokens_details":{"cached_tokens":1}}}'
        ),
        b'{"choices":[{"index":0,"text":"hello","finish_reason":"length"}]}',
        b'{"error":{"message":"no","code":500}}',
        b"[DONE]",
        (b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\\"a\\":"}}]}}]}'),
        b'{"model":"m","message":{"role":"assistant","content":" a","thinking":"b"},"done":false}',
        (
            b'{"model":"m","response":"","done":true,"done_reason":"stop","context":[1,2],"eval_count":5,'
            b'"total_duration":48835834581334875,"eval_duration":4535599000,"prompt_eval_duration":0}'
        ),
        (b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"prompt_eval_cached_count":7}'),
    ],
}
WORDS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\n\n",
    b":",
    b";",
    b",",
    b'"',
    b"\\",
    b"\\u",
    b"\\ud800",
    b" ",
    b"\t",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"0",
    b"10",
    b"1e999",
    b"-1",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[",
    b"null",
    b"true",
    b"data:",
    b"event:",
    b"chunked",
    b"Content-Length: 7\r\n",
    b'"content":',
    b'"text":"',
    b'"choices":[{',
    b'"finish_reason":"stop"',
    b'"usage":{',
    b"HTTP/1.1 ",
    b"A" * 300,
]


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    """One seed, or a splice of two, with one to eight damages."""
    data = bytearray(rng.choice(seeds))
    if rng.random() < 0.2:
        other = rng.choice(seeds)
        data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.randint(1, 8)):
        damage(rng, data)
    return bytes(data)


def damage(rng: random.Random, data: bytearray) -> None:
    """Change one place of *data*: replace, insert, cut out, repeat or end it there."""
    at = rng.randrange(len(data) + 1)
    stop = min(len(data), at + rng.randint(1, 16))
    kind = rng.randrange(6)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at:at] = rng.choice(WORDS)
    elif kind == 2:
        data[at:stop] = b""
    elif kind == 3:
        data[at:at] = data[at:stop] * rng.randint(1, 20)
    elif kind == 4 and rng.random() < 0.3:
        del data[at:]
    else:
        data[at:at] = rng.randbytes(rng.randint(1, 4))


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    """*data* as one to six reads, or one byte per read."""
    if rng.random() < 0.15:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
