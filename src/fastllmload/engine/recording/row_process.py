"""Controls the row writer from the supervisor: memory for each worker, the process, and the count of rows not written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fastllmload._ext.record import rowmemory
from fastllmload._ext.record.recorder import make_files
from fastllmload.engine.recording.row_writer import new_texts_memory
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.errors import HostLimitError

ROW_WRITER = (sys.executable, "-m", "fastllmload.engine.recording.row_writer")


class RowProcess:
    """*memories*, *texts*: a descriptor per worker; *life*: one that every worker keeps open until its end."""

    def __init__(self, specs: Sequence[WorkerSpec], environment: dict[str, str]) -> None:
        self._environment = environment
        self.memories = [new_memory(rowmemory.create) for _ in specs]
        self.texts = [new_memory(new_texts_memory) for _ in specs]
        self._folders = [(spec.rows_dir, spec.record_text) for spec in specs]
        self._reading, self.life = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self.write_failed = False  # set by `finish`

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Create the workers' files and start the process that fills them."""
        for folder, text in self._folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            make_files(folder, text)
        self._launch()

    def _launch(self) -> None:
        workers = zip(self.memories, self._folders, self.texts, strict=True)
        arguments = [self._reading, [(rows, *folder, texts) for rows, folder, texts in workers]]
        # In its own process group: only the supervisor handles the terminal's SIGINT, and this process ends last.
        self._process = subprocess.Popen(
            (*ROW_WRITER, json.dumps(arguments)),
            stdin=subprocess.DEVNULL, pass_fds=(self._reading, *self.memories, *self.texts), process_group=0,
            env=self._environment,
        )  # fmt: skip

    def restarted(self) -> str | None:
        """Start a new process if it has ended, and return how it ended; None while it runs."""
        if self.life < 0 or self._process is None or self._process.poll() is None:
            return None
        code = self._process.returncode
        self._launch()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def finish(self) -> dict[str, int]:
        """Wait until all is written, after the workers' end. Returns what is not on the disk; {} if called again."""
        if self.life < 0:
            return {}
        self.restarted()
        life, self.life = self.life, -1
        os.close(life)
        os.close(self._reading)
        if self._process is not None:
            self._process.wait()
        missing = {"rows": 0, "events": 0, "texts": 0}
        for descriptor in self.memories:
            memory = rowmemory.RowMemory(descriptor)
            self.write_failed |= memory.error_number != 0
            for name, count in memory.missing.items():
                missing[name] += count
            os.close(descriptor)
        for descriptor in self.texts:
            os.close(descriptor)
        return missing


def new_memory(create: Callable[[], int]) -> int:
    try:
        return create()
    except OSError as problem:
        raise HostLimitError(
            "memory-unavailable",
            f"the system gives no memory for the rows of a worker: {problem.strerror}; check ulimit -f and ulimit -n",
        ) from problem
