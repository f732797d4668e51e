"""Texts of an exact number of tokens, images of an exact size, and valid generated text."""

from __future__ import annotations

import ast
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.workload.content.exact_length import fit, fit_many
from fastllmload.workload.content.functions import LANGUAGES, FunctionGenerator
from fastllmload.workload.content.image import Images, image_size
from fastllmload.workload.content.prose import Prose
from fastllmload.workload.content.words import QUESTION, QUESTION_TOKENS
from fastllmload.workload.tokenizers.tokenizer import Tokenizer, load_tokenizer


def cl100k() -> Tokenizer:
    return load_tokenizer("cl100k_base")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=60), st.integers(1, 40)), min_size=1, max_size=5))
def test_any_text_is_cut_or_filled(cases):
    """For any text fit_many returns its true count; plain words get the requested count."""
    texts, counts = fit_many(cl100k(), [text for text, _ in cases], [tokens for _, tokens in cases])
    assert counts == [cl100k().count(text) for text in texts]


@pytest.mark.parametrize("tokens", [1, 2, 16, 17, 300])
def test_plain_words_are_exact(tokens):
    """English is cut and filled to the token."""
    prose = Prose("1")
    texts, counts = fit_many(cl100k(), [prose.text(words) for words in (1, 20, 400)], [tokens] * 3)
    assert counts == [tokens] * 3 == [cl100k().count(text) for text in texts]


def test_random_ids_are_repaired():
    """999 of 1,000 prompts of random ids get their length."""
    draw = np.random.default_rng(3)
    wanted_ = draw.integers(100, 300, 1000).tolist()
    texts = [cl100k().decode(draw.integers(0, 100_256, size).tolist()) for size in wanted_]
    _, counts = fit_many(cl100k(), texts, wanted_)
    assert sum(have == want for have, want in zip(counts, wanted_, strict=True)) >= 999


def test_without_a_tokenizer_words_are_counted():
    assert fit(None, "a b c d", 2) == "a b"
    assert fit(None, "a", 3) == "a the the"


def test_the_question_has_its_hundred_tokens():
    """Under the default tokenizer it ends with its last sentence."""
    assert cl100k().count("document" + QUESTION) == QUESTION_TOKENS + 1


def test_generated_python_parses():
    """Every language is generated, and the Python code parses."""
    code = FunctionGenerator("9")
    ast.parse(code.repository("python", 9000))
    assert len({code.function(language) for language in LANGUAGES * 40}) == 120


def decoded(png):
    """Width, height and rows of palette indices of a PNG as `Images` writes it."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size)[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + size
    width, height, depth, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (depth, colour, len(chunks[b"PLTE"])) == (4, 3, 48)
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = 1 + (width + 1) // 2
    assert len(raw) == stride * height
    lines, above = [], bytes(stride - 1)
    for y in range(height):
        line = raw[y * stride + 1 : (y + 1) * stride]
        kind = raw[y * stride]
        assert kind in (0, 2)
        above = line if kind == 0 else bytes((a + b) & 255 for a, b in zip(line, above, strict=True))
        lines.append(above)
    return width, height, lines


@pytest.mark.parametrize("size", [(1, 1), (17, 3), (512, 512), (301, 40)])
def test_images_are_png_of_the_size(size):
    """A PNG reader finds size, palette, checksums and all pixels."""
    width, height, lines = decoded(Images("1").png(*size))
    assert (width, height, len(lines)) == (*size, size[1])


def test_no_two_images_are_equal():
    images = Images("1")
    assert len({images.png(64, 64) for _ in range(500)}) == 500
    assert Images("2").png(8, 8) == Images("2").png(8, 8) != Images("3").png(8, 8)


def test_images_of_a_data_set():
    """A URL synthetic:WxH becomes an image, other URLs are kept, and an invalid size is refused."""
    small = {"type": "image_url", "image_url": {"url": "synthetic:20x10", "detail": "low"}}
    parts = [{"type": "text", "text": "t"}, small]
    remote = {"type": "image_url", "image_url": {"url": "https://h/x.png"}}
    asked = [{"role": "user", "content": [*parts, remote]}, {"role": "user", "content": "x"}]
    message, plain = Images("1").with_images(asked)
    image = message["content"][1]["image_url"]
    assert image["url"].startswith("data:image/png;base64,") and image["detail"] == "low"
    assert message["content"][2] == remote and plain == {"role": "user", "content": "x"}
    for url in ("synthetic:", "synthetic:0x5", "synthetic:5", "synthetic:5x99999"):
        with raises_code("image-invalid", repr(url)):
            image_size({"image_url": {"url": url}})
