"""The process that writes the rows of all workers to the disk: `python -m fastllmload.engine.recording.row_writer`.

Workers write to memory and never wait for a disk. Every half second this process writes new rows to the disk. The
supervisor and every worker keep an end of a pipe open; when all of them have closed it or died, this process completes the
files and ends. So killing a worker or the supervisor loses nothing; killing all of them and this process loses what came
after the latest pass.

Imports little, because it starts at the same time as the workers, which need the CPUs.
"""

from __future__ import annotations

import json
import select
import signal
import sys

from fastllmload._ext.rowwriter import RowWriter

PASS_S = 0.5


def write(life: int, writers: list[RowWriter]) -> None:
    """Write new rows repeatedly until the pipe *life* is closed, then complete the files."""
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
        signal.signal(each, signal.SIG_IGN)  # these signals end the workers; this process ends after them
    life, memories = json.loads(sys.argv[1])
    write(life, [RowWriter(*memory) for memory in memories])
    return 0


if __name__ == "__main__":
    sys.exit(main())
