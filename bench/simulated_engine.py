"""CPU of the simulated engine per event, each way that it serves against OpenAI's chat over HTTP/1.1 in clear text.

A way is a transport under OpenAI's chat (http2, tls, tls-http2) or the name of an endpoint type. Two loads with the same
requests and different numbers of tokens are subtracted, so connections, handshakes and requests are left out.
`--requests` subtracts different numbers of requests of one token: CPU per request. `--ways http2,vllm-grpc` measures these.
Target: at most 1.3 x, but for protocols that repeat the whole answer in each event.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from pair import arguments, finish, ours, server

from fastllmload.endpoint import ENDPOINTS
from fastllmload.simulator.process import SimulatorProcess

CHAT = "openai-chat"
TRANSPORTS = {
    "http2": ("--http-version", "2"),
    "tls": ("--insecure", "--http-version", "1.1"),
    "tls-http2": ("--insecure", "--http-version", "2"),
}
WAYS = [*TRANSPORTS, *(name for name, each in ENDPOINTS.items() if each.tokens and each.simulated and name != CHAT)]
# These repeat the whole answer in each event: what that costs grows with it.
CUMULATIVE = {name for name, each in ENDPOINTS.items() if any("$whole" in str(api.content) for api in each.simulated)}
TARGET = 1.3


def spent_ns(pid: int) -> int:
    """CPU time of a process, in its own code and in the kernel for it."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def load_ns(engine: SimulatorProcess, way: str, streams: int, requests: int, tokens: int) -> int:
    """What a load costs the engine."""
    endpoint = ENDPOINTS[CHAT if way in TRANSPORTS else way]
    form = () if endpoint.takes("text") else ("--prompt-form", "ids")
    before = spent_ns(engine.pid)
    cost = ours(
        engine.url, "--endpoint-type", endpoint.name, "-m", "simulated", "--no-telemetry", *form, *TRANSPORTS.get(way, ()),
        "-c", str(streams), "-n", str(requests), "--osl", str(tokens),
    )  # fmt: skip
    if cost.failures:
        raise SystemExit(f"{way}: {cost.failures} of {requests} requests failed")
    return spent_ns(engine.pid) - before


def main() -> None:
    asked = arguments(__doc__, streams=100, tokens=400, itl_ms=5.0, rounds=3, ways="", requests=False)
    ways = asked.ways.split(",") if asked.ways else WAYS
    options = {"itl_ms": asked.itl_ms, "ttft_ms": 2 * asked.itl_ms, "phase": "spread"}
    few, many = (
        ((asked.streams, 1), (20 * asked.streams, 1))
        if asked.requests
        else ((asked.streams, 20), (asked.streams, 20 + asked.tokens))
    )
    counted = many[0] - few[0] if asked.requests else asked.streams * asked.tokens
    found: dict[str, list[float]] = {way: [] for way in ways}
    with server(**options) as plain, server(tls=True, **options) as secured:

        def each_us(way: str) -> float:
            engine = secured if way.startswith("tls") else plain
            one, two = (load_ns(engine, way, asked.streams, *size) for size in (few, many))
            return (two - one) / counted / 1e3

        for _ in range(asked.rounds):
            for way in ways:
                chat, us = each_us(CHAT), each_us(way)
                found[way].append(us / chat)
                print(f"{way:22} {us:7.2f} us   {CHAT} {chat:7.2f} us   {us / chat:5.2f}", flush=True)
    ratios = {way: statistics.median(each) for way, each in found.items()}
    met = all(ratio <= TARGET for way, ratio in ratios.items() if way not in CUMULATIVE)
    finish("simulated_engine", {**vars(asked), **ratios, "target": TARGET}, met)


if __name__ == "__main__":
    main()
