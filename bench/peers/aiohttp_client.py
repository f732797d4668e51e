"""A plain aiohttp client: streamed chat requests, each line parsed with json, each token stamped in Python.

Written the way that most load scripts are, with nothing held back: uvloop, one session, no connection limit, raw lines.
Prints one line of JSON with the same figures as limitclient.
"""

import argparse
import asyncio
import json
import resource
import time
from typing import Any

import aiohttp
import uvloop


async def stream(session: aiohttp.ClientSession, url: str, body: dict[str, Any], stamps: list[int]) -> int:
    """One request; returns how many tokens it brought."""
    tokens = 0
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                break
            choices = json.loads(data)["choices"]
            if choices and choices[0]["delta"].get("content"):
                stamps.append(time.perf_counter_ns())
                tokens += 1
    return tokens


async def load(port: int, streams: int, tokens: int) -> dict[str, Any]:
    body = {
        "model": "simulated",
        "messages": [{"role": "user", "content": "Count up from one until you are told to stop."}],  # prose: allow
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    stamps: list[list[int]] = [[] for _ in range(streams)]
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        counts = await asyncio.gather(*(stream(session, url, body, mine) for mine in stamps), return_exceptions=True)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    events = sum(len(mine) for mine in stamps)
    return {
        "events": events,
        "requests": streams,
        "failures": sum(count != tokens for count in counts),
        "cpu_user_s": cpu[0],
        "cpu_system_s": cpu[1],
        "wall_s": wall,
        "us_per_event": sum(cpu) / events * 1e6 if events else None,
        "rss_kib": after.ru_maxrss,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("port", "streams", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(load(asked.port, asked.streams, asked.tokens))))


if __name__ == "__main__":
    main()
