"""Reference tokenizers: count tokens of prompts and answers, and supply words for prompts.

| name | comes from |
|---|---|
| `cl100k_base` (default), `o200k_base`, `o200k_harmony`, `llama3`, `qwen3` | quicktok, offline |
| a model's name, such as `gpt-4` | the encoding of that model, if it is one of these |
| a `tokenizer.json`, or a folder that holds one (Hugging Face) | extra `tokenizers` |
| any other tiktoken name | extra `tiktoken`, which may fetch the vocabulary once |
| `none` | nothing: only the server's own counts |

All count ordinary text: text that resembles a special token is text, and no BOS, EOS or chat template is added. Loading
takes 0.2 to 0.5 s, so nothing is imported or loaded before it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from fastllmload.documents.plan import TokenizerFacts
from fastllmload.errors import InputError
from fastllmload.workload.content.exact_length import Cut, Seams, cut_many
from fastllmload.workload.content.exact_length import Tokenizer as Tokenizer

ENCODINGS = ("cl100k_base", "o200k_base", "o200k_harmony", "llama3", "qwen3")
NORMALIZED = ("qwen3",)  # texts are normalized to NFC first, so the tokens' bytes may differ from the text's
NONE = "none"
SPECIAL_TOKENS = (
    "text that looks like a special token is counted as text; BOS, EOS and what a chat template adds are not counted; "
    "system prompts are counted with the prompt"
)


class Bundled(Tokenizer):
    """An encoding of quicktok."""

    def __init__(self, name: str) -> None:
        import quicktok  # type: ignore[import-untyped]

        self.name = name
        self._module, self._encoding = quicktok, quicktok.get_encoding(name)

    @cached_property
    def ordinary(self) -> int:  # type: ignore[override]
        """Those below the first special token. Between them quicktok may have no token; to list all takes 0.05 s."""
        encoding = self._encoding
        end: int = min(map(encoding.encode_single_token, encoding.special_tokens_set))
        while not self._is_token(end - 1):
            end -= 1
        return end

    def _is_token(self, number: int) -> bool:
        try:
            self._encoding.decode_single_token_bytes(number)
        except KeyError:
            return False
        return True

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        ids, ends = self._encoding.encode_batch(list(texts))
        return [ids[ends[k] : ends[k + 1]].tolist() for k in range(len(texts))]

    def count(self, text: str) -> int:
        return int(self._encoding.count(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        counts: list[int] = self._module.count_batch(self._encoding, list(texts)).tolist()
        return counts

    def cut_many(self, texts: Sequence[str], wanted: Sequence[int]) -> Cut:
        if self.name in NORMALIZED:
            return cut_many(self, texts, wanted)
        ids, ends = self._encoding.encode_batch(list(texts))
        return self._seams.cut_many(self, texts, wanted, ids, ends)

    @cached_property
    def _seams(self) -> Seams:
        return Seams(self.vocabulary())

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._encoding.decode(ids)
        return text

    def decode_many(self, many: Sequence[Sequence[int]]) -> list[str]:
        texts: list[str] = self._encoding.decode_batch(list(many))
        return texts

    def vocabulary(self) -> list[bytes]:
        token = self._encoding.decode_single_token_bytes
        return list(map(token, range(self.ordinary)))

    def facts(self) -> TokenizerFacts:
        return TokenizerFacts(
            name=self.name,
            source="quicktok",
            version=self._module.__version__,
            vocabulary=int(self._encoding.n_vocab),
        )


def load_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer *name*; None for `none`. InputError for an unknown name, or a file that is not a tokenizer."""
    if name == NONE:
        return None
    if name in ENCODINGS:
        return _bundled(name)
    if not name.strip():
        raise InputError(
            "tokenizer-unknown",
            f"--tokenizer {name!r} is not a name; give one such as {ENCODINGS[0]}, a tokenizer.json, or {NONE}",
        )
    path = Path(name)
    if path.exists() or path.suffix == ".json" or "/" in name:
        return _from_file(path)
    encoding = _of_model(name)
    if encoding is not None:
        return _bundled(encoding)
    from fastllmload.workload.tokenizers.tiktoken import load_tiktoken

    return load_tiktoken(name, (*ENCODINGS, NONE))


def _of_model(name: str) -> str | None:
    """The encoding of a model that quicktok knows: cl100k_base for gpt-4."""
    import quicktok

    found = quicktok.MODEL_TO_ENCODING.get(name)
    return found if found in ENCODINGS else None


@lru_cache(4)
def _bundled(name: str) -> Tokenizer:
    return Bundled(name)


def _from_file(path: Path) -> Tokenizer:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.exists():
        missing = f"{path} contains no tokenizer.json" if path.is_dir() else "it does not exist"
        raise InputError(
            "tokenizer-invalid", f"--tokenizer {path}: {missing}; give a tokenizer.json, a folder with one, or a name"
        )
    from fastllmload.workload.tokenizers.file import load_file

    return load_file(file, file.stat().st_mtime_ns)
