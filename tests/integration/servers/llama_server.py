"""llama.cpp's own HTTP server on a model file: `python llama_server.py MODEL.gguf PORT`. Prints `ready`, serves
until killed.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

import xllamacpp


def main(model: str, port: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: never outlive the tests
    asked = xllamacpp.CommonParams()
    asked.model.path = model
    asked.model_alias = {"tiny"}
    asked.hostnames = ["127.0.0.1"]
    asked.port = port
    asked.n_parallel = 8
    asked.n_ctx = 8 * 1024
    asked.cpuparams.n_threads = 1
    asked.cpuparams_batch.n_threads = 1
    asked.endpoint_metrics = True
    asked.warmup = False
    server = xllamacpp.Server(asked)
    print("ready", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
