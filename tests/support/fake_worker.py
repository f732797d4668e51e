"""A worker without load that follows the protocol of counters.pxd. FAKE_WORKER selects how it misbehaves."""

import ctypes
import os
import signal
import sys
import time

import msgspec

from fastllmload._ext.record import counters as k
from fastllmload.engine.workers.spec import WorkerSpec
from fastllmload.records.shared_memory import SharedWords

NO_SUPERVISOR = 1  # in the specs of tests that do not start an agent


def wait(condition):
    while not condition():
        time.sleep(0.001)


def run(spec, words, how):
    for phase in spec.phases:
        wait(lambda number=phase.number: words[k.W_PHASE] >= number)
        if how == "never ready":
            wait(lambda: words[k.W_COMMAND] == k.ABORT)
            return
        words[k.W_STATE] = k.READY
        wait(lambda: words[k.W_START_NS] or words[k.W_COMMAND] == k.ABORT)
        if not words[k.W_START_NS]:
            return
        words[k.W_STATE] = k.RUNNING
        words[k.W_RELEASED] += 10
        if how == "dies" and spec.worker == 0:
            sys.exit("Error: Bearer sk-secret was refused")
        if how == "disk full":
            words[k.W_DISK_FULL] = 1
        if how in ("waits", "disk full"):
            wait(lambda: words[k.W_COMMAND] != k.RUN)
        if how == "fails slowly":
            words[k.W_STATE] = k.FAILED
            time.sleep(0.3)
            sys.exit("OSError: no more of that")
        words[k.W_STATE] = k.DRAINING
        if how in ("drains for ever", "waits"):
            wait(lambda: words[k.W_COMMAND] == k.ABORT)
        if how == "ignores everything":
            time.sleep(60)
        words[k.W_OK] += 10
        words[k.W_PHASE_DONE] = phase.number + 1
        words[k.W_STATE] = k.PHASE_ENDED


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # as a worker: it ends with its parent
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSpec)
    if spec.supervisor_pid not in (NO_SUPERVISOR, os.getppid()):
        return  # its parent was killed before the request for a signal
    how = os.environ.get("FAKE_WORKER", "")
    if how == "dies at once":
        print("ModuleNotFoundError: no such thing", file=sys.stderr)
        sys.exit(1)
    words = SharedWords(spec.words_memory).words
    run(spec, words, how)
    words[k.W_STATE] = k.FINISHED


main()
