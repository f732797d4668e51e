"""Tokenizers from files and other packages: the same words, counts and facts, and a sentence for an invalid one."""

from __future__ import annotations

import json
import sys
import types

import pytest
from refusals import raises_code, says

from fastllmload.documents.plan import TokenizerFacts
from fastllmload.errors import InputError
from fastllmload.workload.content.words import id_table, text_table
from fastllmload.workload.lengths import Uniform
from fastllmload.workload.synthetic import Independent, Quota, Synthetic
from fastllmload.workload.tokenizers import tiktoken as tokenizer_tiktoken
from fastllmload.workload.tokenizers.tokenizer import ENCODINGS, load_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def file_of(tmp_path, mark="Ġ"):
    """A tokenizer.json of complete words: 300 of them, with and without a leading space."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'tokenizers' is not installed")
    words = [f"{a}{b}{c}" for a in LETTERS[:10] for b in "aeiou" for c in "nrstlm"]
    entries = ["<unk>", *words, *(mark + word for word in words), "the"]
    vocabulary = {word: number for number, word in enumerate(entries)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement=mark, prepend_scheme="never")
    made.decoder = tokenizers.decoders.Metaspace(replacement=mark, prepend_scheme="never")
    made.add_special_tokens(["<s>"])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.mark.parametrize("folder", [True, False])
def test_a_tokenizer_json(tmp_path, folder):
    """By its own path or its folder's; words are one token each, and special tokens are not ordinary."""
    path = file_of(tmp_path, mark="▁")
    found = load_tokenizer(str(tmp_path if folder else path))
    assert found.count("ban dos") == 2 == len(found.encode("ban dos"))
    assert found.count_many(["ban", "ban dos"]) == [1, 2]
    facts = found.facts()
    assert facts.source == "tokenizer.json" and facts.vocabulary == 603 and len(facts.sha256) == 64
    assert found.ordinary == 602
    table = text_table(found)
    for batch in Synthetic(Independent(Uniform(1, 30), Uniform(1, 2)), table.span, 1).batches(Quota(50)):
        counts = found.count_many(table.texts(batch))
        assert counts == batch.prompt.tolist()


def test_a_vocabulary_without_words(tmp_path):
    """Too few words for prompts: a sentence that names another form."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'tokenizers' is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    made.save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(str(tmp_path))
    with raises_code("tokenizer-unsuitable", "too few", "use --prompt-form native"):
        text_table(found)
    assert id_table(found).span == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", ("tokenizer-invalid", "tokenizer.json")),
        ("{", ("tokenizer-invalid", "tokenizer.json")),
        ("[]", ("tokenizer-invalid", "no model")),
        ('{"model": 5}', ("tokenizer-invalid", "no model")),
        ("\x00\x01", ("tokenizer-invalid", "tokenizer.json")),
    ],
)
def test_a_file_that_is_not_a_tokenizer_is_refused(tmp_path, content, sentence):
    """Reported without importing the package that would read it."""
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_tokenizer(str(path))
    assert says(str(caught.value), *sentence) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_the_package_cannot_read_is_refused(tmp_path):
    pytest.importorskip("tokenizers", reason="the extra 'tokenizers' is not installed")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "Novel"}}))
    with raises_code("tokenizer-invalid", "tokenizer.json"):
        load_tokenizer(str(path))


def test_missing_packages_are_named(tmp_path, monkeypatch):
    """The message names the extra to install."""
    for name in ("tokenizers", "tiktoken"):
        monkeypatch.setitem(sys.modules, name, None)
    tokenizer_tiktoken.load_tiktoken.cache_clear()
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with raises_code("package-missing", "'fastllmload[tokenizers]'"):
        load_tokenizer(str(tmp_path))
    with raises_code("package-missing", "'fastllmload[tiktoken]'"):
        load_tokenizer("p50k_base")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("{}/none.json", ("tokenizer-invalid", "none.json", "not exist")),
        ("{}", ("tokenizer-invalid", "no tokenizer.json")),
    ],
)
def test_a_missing_file_is_named(tmp_path, path, sentence):
    with raises_code(*sentence):
        load_tokenizer(path.format(tmp_path))


class Encoding:
    """The part of a tiktoken encoding that is used: every byte is a token."""

    name, n_vocab = "bytes", 300

    def token_byte_values(self):
        return [bytes([k]) for k in range(256)]

    def decode_single_token_bytes(self, number):
        return bytes([number])

    def encode_ordinary(self, text):
        return list(text.encode())

    def encode_ordinary_batch(self, texts):
        return [self.encode_ordinary(text) for text in texts]

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


@pytest.fixture
def tiktoken(monkeypatch):
    """A fake tiktoken with one encoding and one that cannot be fetched."""
    module = types.ModuleType("tiktoken")
    module.__version__ = "9"
    module.list_encoding_names = lambda: ["bytes", "far"]

    def get_encoding(name):
        if name == "far":
            raise ConnectionError("no route")
        return Encoding()

    def encoding_for_model(name):
        raise KeyError(name)

    module.get_encoding, module.encoding_for_model = get_encoding, encoding_for_model
    monkeypatch.setitem(sys.modules, "tiktoken", module)
    tokenizer_tiktoken.load_tiktoken.cache_clear()
    yield
    tokenizer_tiktoken.load_tiktoken.cache_clear()


def test_an_encoding_of_tiktoken(tiktoken):
    found = load_tokenizer("bytes")
    assert (found.count("äb"), found.count_many(["a", "bc"]), found.ordinary) == (3, [1, 2], 256)
    assert found.facts() == TokenizerFacts(name="bytes", source="tiktoken", version="9", vocabulary=300)
    assert found.vocabulary()[65] == b"A" and found.decode([65]) == "A"


def test_an_encoding_that_cannot_be_fetched(tiktoken):
    with raises_code("tokenizer-invalid", "far", "not fetch its"):
        load_tokenizer("far")
    with raises_code("tokenizer-unknown", "near", "encodings are bytes, far"):
        load_tokenizer("near")


@pytest.mark.parametrize(("model", "encoding"), [("gpt-4", "cl100k_base"), ("gpt-4o", "o200k_base")])
def test_a_models_encoding_is_known_offline(model, encoding):
    assert load_tokenizer(model).name == encoding


def test_facts_of_the_default():
    """IETF 4.4.1: name, source, version, and the complete vocabulary."""
    facts = load_tokenizer("cl100k_base").facts()
    assert (facts.name, facts.source, facts.vocabulary) == ("cl100k_base", "quicktok", 100_277)
    assert load_tokenizer("cl100k_base").ordinary == 100_256


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_ordinary_tokens_of_an_encoding_are_all_that_it_lists(name):
    import quicktok

    listed = quicktok.get_encoding(name).token_byte_values()
    found = load_tokenizer(name)
    assert found.ordinary == len(listed)
    assert sorted(found.vocabulary()) == sorted(listed)
