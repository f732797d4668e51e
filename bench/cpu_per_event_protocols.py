"""CPU per token of each wire protocol that streams tokens, over that of OpenAI's chat in the same round: 500 streams at
50 tokens/s, of the simulated engine, every event its own segment.

Target: each at most 1.3 x. --only NAMES: those, with a comma between them.
"""

import statistics

from pair import Cost, arguments, finish, ours, server, show

from fastllmload.endpoint import ENDPOINTS

BASE = "openai-chat"


def words(name: str) -> list[str]:
    endpoint = ENDPOINTS[name]
    return ["--endpoint-type", name, *(() if endpoint.takes("text") else ("--prompt-form", "ids"))]


def main() -> None:
    asked = arguments(__doc__, streams=500, tokens=200, itl_ms=20.0, rounds=5, only="")
    streaming = [each.name for each in ENDPOINTS.values() if each.tokens]
    names = [BASE, *(name for name in streaming if name != BASE and (not asked.only or name in asked.only.split(",")))]
    load = ("-m", "simulated", "-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens))
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread") as engine:
        for number in range(asked.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                url = f"http://127.0.0.1:{engine.port}" if ENDPOINTS[name].call is not None else engine.url
                cost = ours(url, *load, *words(name))
                cost.client = name
                costs[name].append(cost)
                show(cost)
    ratios = {
        name: statistics.median(
            one.us_per_token / base.us_per_token for one, base in zip(costs[name], costs[BASE], strict=True)
        )
        for name in names
    }
    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        print(f"{ratio:5.2f} of {BASE}   {name}")
    failures = sum(cost.failures for each in costs.values() for cost in each)
    figures = {"most": max(ratios.values()), "target": 1.3, "failures": failures}
    finish("cpu_per_event_protocols", {**vars(asked), **figures}, max(ratios.values()) <= 1.3 and failures == 0)


if __name__ == "__main__":
    main()
