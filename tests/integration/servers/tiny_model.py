"""Make a llama model of 7 MB with random weights, for llama.cpp's server: `python tiny_model.py OUT.gguf`.

The vocabulary is a byte-level BPE trained on the standard library, so that prompts of code and prose tokenise like real
ones. Runs in the environment that tools/integration-setup makes (gguf, tokenizers, numpy).
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY, WIDTH, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 4096, 128, 4, 4, 384, 4096
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tokenizer() -> dict[str, Any]:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(str(path) for path in library.glob("[a-m]*.py"))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train(files, trainer)
    return json.loads(made.to_str())["model"]


def write_vocabulary(writer: gguf.GGUFWriter, model: dict[str, Any]) -> int:
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def write_weights(writer: gguf.GGUFWriter, words: int) -> None:
    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.05).astype(np.float32))

    def ones(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    add("token_embd.weight", words, WIDTH)
    add("output.weight", words, WIDTH)
    ones("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight", WIDTH)
        ones(block + "ffn_norm.weight", WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{part}.weight", WIDTH, WIDTH)
        add(block + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(block + "ffn_up.weight", FEED_FORWARD, WIDTH)
        add(block + "ffn_down.weight", WIDTH, FEED_FORWARD)


def main(path: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    words = write_vocabulary(writer, tokenizer())
    writer.add_name("tiny")
    writer.add_vocab_size(words)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    write_weights(writer, words)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
