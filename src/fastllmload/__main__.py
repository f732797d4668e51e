"""Entry point of `fastllmload`; a signal during the imports also ends it with one sentence (docs/running.md)."""

import gc
import os
import signal
import sys
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 4
FEWER_COLLECTIONS = 20_000  # objects between two: thousands of functions and classes are made, and none is garbage


def main() -> int:
    gc.set_threshold(FEWER_COLLECTIONS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's library starts one thread per core, which spins
    for number in ENDING:
        # `nohup` ignores signals on purpose; a shell that ignores SIGINT for background jobs does not (engine/interrupts.py)
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        from fastllmload.cli.main import main as command

        code = command()
    except KeyboardInterrupt:
        print("fastllmload: interrupted", file=sys.stderr)
        code = INTERRUPTED
    for number in ENDING:  # by default a signal would end Python while it closes, with another exit code
        signal.signal(number, signal.SIG_IGN)
    return code


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the command as Ctrl-C does; used for SIGINT, SIGTERM and SIGHUP unless another handler is installed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
