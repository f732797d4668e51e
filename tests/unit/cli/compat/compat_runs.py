"""Files that other tools' commands name, and the settings that a command becomes."""

from __future__ import annotations

import json

from fastllmload.cli.main import main
from fastllmload.settings import RunSettings

CONVERSATION = [
    {"from": "human", "value": "Why is the sky blue?"},
    {"from": "gpt", "value": "Light is scattered by air."},
]
FILES = {
    "ShareGPT_V3_unfiltered_cleaned_split.json": json.dumps(
        [{"id": str(n), "conversations": CONVERSATION} for n in range(9)]
    ),
    "data.jsonl": '{"prompt": "What is the capital of India?"}\n',
    "tokens.jsonl": '{"prompt": "Why?", "output_tokens": 9}\n{"prompt": "How?", "output_tokens": 7}\n',
    "open_qa.jsonl": '{"question": "Why?", "human_answers": ["So."]}\n{"question": "How?", "human_answers": []}\n'
    + json.dumps({"question": "Why? " * 40})
    + "\n",
    "prompts.txt": "Why?\nWhere to?\n",
    "prompts-10.csv": "prompt,output_tokens_count\nWhy?,20\nHow?,30\n",
    "prompts.json": '[{"prompt": "Why?"}, {"prompt": "How?"}]',
    "wildchat_guidellm.jsonl": '{"prompt": "Why?", "language": "English"}\n{"prompt": "How?", "language": "English"}\n',
    "sinusoidal.jsonl": "".join(
        json.dumps({"timestamp": 500 * n, "input_length": 600, "output_length": 20, "hash_ids": [0, n + 1]}) + "\n"
        for n in range(9)
    ),
    "random.yml": "load: {type: constant, stages: [{rate: 1, duration: 30}]}\napi: completion\n"
    "server: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data: {type: random, input_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}}\n"
    "metrics: {type: prometheus, prometheus: {url: 'http://localhost:9090', scrape_interval: 15}}\n",
    "sp.yml": "load: {type: constant, interval: 15, stages: [{rate: 1, duration: 30}, {rate: 2, duration: 30}]}\n"
    "api: {type: completion}\nserver: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data: {type: shared_prefix, shared_prefix: {num_unique_system_prompts: 10, num_users_per_system_prompt: 10,\n"
    "  system_prompt_len: 100, question_len: 50, output_len: 50}}\nstorage: {local_storage: {path: /workspace}}\n",
    "pd.yml": "load:\n  type: constant\n  stages:\n"
    "  - {rate: 45, duration: 120, num_requests: null, concurrency_level: null}\n"
    "  num_workers: 45\n  worker_max_concurrency: 100\napi: {type: completion, streaming: true}\n"
    "server: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000', ignore_eos: true}\n"
    "data:\n  type: random\n  input_distribution: {min: 5000, max: 5000, mean: 5000, std_dev: 0}\n"
    "  output_distribution: {min: 250, max: 250, mean: 250, std_dev: 0}\n",
    "prompts.jsonl": '{"text": "Why?"}\n{"text": "How?"}\n',
    "lengths.jsonl": '{"text": "Why?", "output_length": 5}\n{"text": "How?", "output_length": 7}\n',
    "texts.jsonl": '{"text_input": "Why?", "output_length": 5}\n{"text_input": "How?", "output_length": 7}\n',
    "chats.jsonl": '{"session_id": "a", "turns": [{"text": "Why?"}, {"text": "How?", "delay": 10}]}\n',
    "BurstGPT.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    + "".join(f"{n},GPT-4,{100 + n},{20 + n},{120 + 2 * n},Conversation log\n" for n in range(30)),
    "mooncake.jsonl": "".join(
        json.dumps({"timestamp": 500 * n, "input_length": 600, "output_length": 20, "hash_ids": [0, n + 1]}) + "\n"
        for n in range(9)
    ),
    "weka.jsonl": json.dumps(
        {
            "id": "a",
            "block_size": 64,
            "requests": [
                {"t": 0.0, "type": "s", "in": 128, "out": 5, "hash_ids": [1, 2], "api_time": 1.0},
                {"t": 2.0, "type": "s", "in": 192, "out": 5, "hash_ids": [1, 2, 3], "api_time": 1.0},
            ],
        }
    ),
    "config.yml": "load:\n  type: constant\n  stages:\n  - {rate: 1, duration: 30}\n  - {rate: 2, duration: 30}\n"
    "api: {type: completion, streaming: true}\nserver: {type: vllm, model_name: m, base_url: 'http://0.0.0.0:8000'}\n"
    "tokenizer: {pretrained_model_name_or_path: m}\n"
    "data:\n  type: random\n  input_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}\n"
    "  output_distribution: {min: 10, max: 100, mean: 50, std: 10, total_count: 100}\n"
    "report: {request_lifecycle: {summary: true, per_stage: true, per_request: true}}\n",
}
SGLANG = ("sglang", "--model", "m", "--dataset-name", "random", "--backend")
VLLM = ("vllm", "bench", "serve", "--model", "m", "--dataset-name", "random")


def settings_of(sent: list[RunSettings], *words: str) -> RunSettings:
    sent.clear()
    assert main(["compat", *words]) == 0
    return sent[0]
