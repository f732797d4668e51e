"""The process that writes the rows of all workers to the disk: `python -m fastllmload.engine.recording.row_writer`.

Workers write to memory and never wait for a disk. A pass every half second writes out what is new; the last one comes when
nobody is left who could record anything: the supervisor and every worker hold an end of a pipe, and when all of them are
closed, by whatever end, this process finishes the files and ends. So a kill of a worker or of the supervisor loses nothing;
a kill of all of them, this one included, loses what came since the latest pass.

Imports little: it begins with the workers, on a host that they are to have for themselves.
"""

from __future__ import annotations

import json
import select
import signal
import sys

from fastllmload._ext.rowwriter import RowWriter

PASS_S = 0.5


def write(life: int, writers: list[RowWriter]) -> None:
    """Passes until the pipe *life* ends, and a last one."""
    ended = select.poll()
    ended.register(life, select.POLLIN)
    while not ended.poll(PASS_S * 1e3):
        for writer in writers:
            writer.write_out()
    for writer in writers:
        writer.finish()


def main() -> int:
    """argv[1]: JSON of the descriptor of the pipe, and descriptor, folder and "with text" of each worker's memory."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # those end the workers; this process goes after them
    life, memories = json.loads(sys.argv[1])
    write(life, [RowWriter(*memory) for memory in memories])
    return 0


if __name__ == "__main__":
    sys.exit(main())
