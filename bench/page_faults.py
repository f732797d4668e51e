"""Page faults of a worker while its clock runs, from the first 100 ms of the measured phase on, under loads that each ask
for memory in another way. Target: none. (A host that is short of memory may take back pages that it can read again.)
"""

from typing import Any

from pair import arguments, finish, ours, server, show

from fastllmload.records.run import Run

LOADS: dict[str, str] = {
    "open": "-r 500 -d {s}s --osl 4",
    "long_prompts": "-r 100 -d {s}s --osl 4 --isl 6000",
    "streams": "-c 2000 -n 4000 --osl 100",
    "turns": "-r 100 -d {s}s --osl 16 --turns 4",
    "text": "-r 300 -d {s}s --osl 16 --record-text on",
    "asyncio": "-r 300 -d {s}s --osl 4 --transport asyncio",
    "failures": "-r 300 -d {s}s --osl 16",
}
FAULTS = ("status:0.1", "html:0.1", "reset:0.1", "close:0.1", "error_event:0.1", "bad_json:0.1", "huge_event:0.005")


def faults(run: Run) -> dict[str, Any]:
    certificate = run.document.certificate
    assert certificate is not None
    return {"page_faults": certificate.workers[0].page_faults}


def main() -> None:
    asked = arguments(__doc__, seconds=6.0, only="")
    found = {}
    for name, load in LOADS.items():
        if asked.only and name not in asked.only.split(","):
            continue
        itl_ms = 20.0 if name == "streams" else 1.0
        wrong = FAULTS if name == "failures" else ()
        with server(itl_ms=itl_ms, ttft_ms=2 * itl_ms, phase="spread", faults=wrong) as engine:
            cost = ours(engine.url, *load.format(s=asked.seconds).split(), keep=faults)
        show(cost)
        found[name] = cost.more["page_faults"]
        print(f"{name}: {found[name]} page faults", flush=True)
    finish("page_faults", {"seconds": asked.seconds, **found}, not any(found.values()))


if __name__ == "__main__":
    main()
