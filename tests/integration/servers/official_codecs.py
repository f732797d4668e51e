"""What official codecs of gRPC read of a server's answers: `python official_codecs.py ENDPOINT URL CASE` prints JSON."""

from __future__ import annotations

import json
import queue
import sys
from typing import Any
from urllib.parse import urlsplit

CASES = {"stream": [], "whole": [], "error": [("x-fault", "error_event:1")], "busy": [("x-fault", "status:429")]}


def engine(name: str, address: str, case: str) -> dict[str, Any]:
    """vLLM's and SGLang's service, by the stubs of smg-grpc-proto."""
    import grpc
    from smg_grpc_proto.generated import (
        sglang_scheduler_pb2,
        sglang_scheduler_pb2_grpc,
        vllm_engine_pb2,
        vllm_engine_pb2_grpc,
    )  # fmt: skip

    vllm = name == "vllm-grpc"
    types = vllm_engine_pb2 if vllm else sglang_scheduler_pb2
    sampling = {"ignore_eos": True, "n": 1, ("max_tokens" if vllm else "max_new_tokens"): 12}
    asked = types.GenerateRequest(
        request_id="one", tokenized=types.TokenizedInput(original_text="", input_ids=[7, 8, 300, 9, 10]),
        sampling_params=types.SamplingParams(**sampling), stream=case != "whole",
    )  # fmt: skip
    with grpc.insecure_channel(address) as channel:
        stub = (
            vllm_engine_pb2_grpc.VllmEngineStub(channel)
            if vllm
            else sglang_scheduler_pb2_grpc.SglangSchedulerStub(channel)
        )
        info = stub.GetModelInfo(types.GetModelInfoRequest())
        well = stub.HealthCheck(types.HealthCheckRequest())
        try:
            answers = list(stub.Generate(asked, metadata=CASES[case], timeout=60))
        except grpc.RpcError as problem:
            return {"error": [problem.code().name, problem.details()]}
    ids = [one for answer in answers for one in answer.chunk.token_ids]
    last = answers[-1].complete
    return {
        "ids": ids, "last": list(last.output_ids), "finish": last.finish_reason, "chunks": len(answers) - 1,
        "usage": [last.prompt_tokens, last.completion_tokens], "model": info.served_model_name,
        "context": info.max_context_length, "healthy": well.healthy,
    }  # fmt: skip


def kserve(name: str, address: str, case: str) -> dict[str, Any]:
    """Two requests on one stream of Triton's client."""
    import numpy as np
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(address)
    live = [client.is_server_live(), client.is_server_ready(), client.is_model_ready("simulated")]
    came: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)), headers=dict(CASES[case]))

    def tensor(name: str, datatype: str, value: Any) -> triton.InferInput:
        made = triton.InferInput(name, [1], datatype)
        made.set_data_from_numpy(np.array([value], np.object_ if datatype == "BYTES" else np.bool_))
        return made

    found = []
    for ident in ("one", "two"):
        inputs = [
            tensor("text_input", "BYTES", b"a b c d e"), tensor("stream", "BOOL", case != "whole"),
            tensor("sampling_parameters", "BYTES", json.dumps({"max_tokens": 12, "ignore_eos": True}).encode()),
        ]  # fmt: skip
        client.async_stream_infer("simulated", inputs, request_id=ident, enable_empty_final_response=True)
        texts, counts = [], []
        while True:
            result, error = came.get(timeout=60)
            if error is not None:
                return {"error": [str(error.status()), error.message()]}
            response = result.get_response()
            assert response.id == ident and response.model_name == "simulated"
            if response.parameters["triton_final_response"].bool_param:
                break
            texts.append(result.as_numpy("text_output")[0].decode())
            counts.append(int(result.as_numpy("num_output_tokens")[0]))
            finish = result.as_numpy("finish_reason")[0].decode()
            prompt = int(result.as_numpy("num_input_tokens")[0])
        found.append({"text": "".join(texts), "tokens": counts, "finish": finish, "prompt": prompt})
    client.stop_stream()
    return {"live": live, "answers": found}


if __name__ == "__main__":
    name, url, case = sys.argv[1:]
    print(json.dumps((kserve if name == "kserve-grpc" else engine)(name, urlsplit(url).netloc, case)))
