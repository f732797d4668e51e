"""The command `fastllmload`, and `python -m fastllmload`: a signal that comes while the program still loads ends it in
one sentence too (docs/decisions/006-exit-codes.md).
"""

import signal
import sys
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 4


def main() -> int:
    """The exit code of the command line of this process."""
    for number in ENDING:
        # `nohup` means it; a shell that ignores SIGINT for what it runs in the background does not (engine/interrupts.py)
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        from fastllmload.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("fastllmload: interrupted", file=sys.stderr)
        return INTERRUPTED


def interrupt(number: int, frame: FrameType | None) -> None:
    """SIGINT, SIGTERM and SIGHUP end a command as Ctrl-C does, wherever nobody has other plans for them."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
