"""Triton with a model that has the tensors of its vLLM backend: `python triton_server.py HTTP_PORT GRPC_PORT METRICS_PORT`.

It answers as many words as are asked for, one each 5 ms, and counts them. Runs in an environment with nvidia-pytriton.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

FLAGS = (
    "stream",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)


def text(value: str) -> np.ndarray:
    return np.array([value.encode()], dtype=object)


def number(value: int) -> np.ndarray:
    return np.array([value], dtype=np.uint32)


def answer(requests: list[Any]) -> Iterator[list[dict[str, np.ndarray]]]:
    (request,) = requests
    prompt = request["text_input"].item().decode()
    asked = json.loads(request["sampling_parameters"].item())["max_tokens"]
    for index in range(asked):
        time.sleep(0.005)
        yield [
            {
                "text_output": text(f" word{index}"),
                "finish_reason": text("length" if index == asked - 1 else ""),
                "num_input_tokens": number(len(prompt.split())),
                "num_output_tokens": number(1),
            }
        ]


def main(http: int, grpc: int, metrics: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with Triton(config=TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)) as triton:
        triton.bind(
            model_name="tiny",
            infer_func=answer,
            inputs=[
                *(Tensor(name=name, dtype=bytes, shape=(1,)) for name in ("text_input", "sampling_parameters")),
                *(Tensor(name=name, dtype=np.bool_, shape=(1,), optional=True) for name in FLAGS),
            ],
            outputs=[
                *(Tensor(name=name, dtype=bytes, shape=(1,)) for name in ("text_output", "finish_reason")),
                *(Tensor(name=name, dtype=np.uint32, shape=(1,)) for name in ("num_input_tokens", "num_output_tokens")),
            ],
            config=ModelConfig(batching=False, decoupled=True),
        )
        triton.run()
        print("ready", flush=True)
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
