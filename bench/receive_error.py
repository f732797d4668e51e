"""Receive error: 512 streams in lock-step every 20 ms, our stamps against the server's truth log.

Target with kernel stamps: p99 of (our time - the instant before the server's send) <= 20 us, and at least 99.9 % of the
events kernel-stamped or bounded. --timestamps user shows what stamping in the process would have given.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pair import arguments, finish, ours, percentile_us, server, show

from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.simulator import truth

TEXT_KINDS = (layout.EVENT_WHITESPACE, layout.EVENT_CONTENT, layout.EVENT_REASONING)
TARGET_US, TARGET_SHARE = 20.0, 0.999


def events_of(run: Run) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(request, t_ns, stamp class) of every text event, by request and time."""
    request = np.repeat(run.rows["request"], np.diff(run.first_event))
    text = np.isin(run.event_kind, TEXT_KINDS)
    return request[text], run.event_t[text], run.event_stamp[text] & layout.STAMP_CLASS_MASK


def against(known: truth.Truth, request: np.ndarray[Any, Any], t_ns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Our time less the server's, event by event; both sides by request, then in order."""
    written = known.content()
    written = written[written["key"] != truth.NO_KEY]  # the preflight's own request
    written = written[np.argsort(written["key"], kind="stable")]
    order = np.argsort(request, kind="stable")
    if not np.array_equal(written["key"], request[order]):
        raise SystemExit("the server wrote other events than we saw")
    error = np.empty(len(t_ns), np.int64)
    error[order] = t_ns[order] - written["t_ns"]
    return error


def main() -> None:
    asked = arguments(__doc__, streams=512, tokens=300, itl_ms=20.0, timestamps="kernel")
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "truth")
        seen: list[tuple[np.ndarray[Any, Any], ...]] = []

        def keep(run: Run) -> dict[str, Any]:
            seen.append(events_of(run))
            return {}

        load = ("-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens))
        with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="lockstep", truth=log) as engine:
            mine = ours(engine.url, *load, "--timestamps", asked.timestamps, keep=keep)
        show(mine)
        request, t_ns, stamp = seen[0]
        error = against(truth.load(log), request, t_ns)
    exact = error[stamp != layout.STAMP_NAMES.index("coalesced")]
    bounded = float(np.mean(stamp != layout.STAMP_NAMES.index("user")))
    found = {f"error_p{q:g}_us": percentile_us(exact, q) for q in (1, 50, 99, 99.9)}
    figures = {"events": len(error), "coalesced": len(error) - len(exact), "bounded_share": bounded, **found}
    met = found["error_p99_us"] <= TARGET_US and bounded >= TARGET_SHARE and mine.failures == 0
    finish("receive_error", {**vars(asked), **figures, "hiccup_p99_us": mine.more["hiccup_p99_us"]}, met)


if __name__ == "__main__":
    main()
