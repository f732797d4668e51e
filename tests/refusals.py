"""What a test asserts of an error: its code, and the values that its message contains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from fastllmload.errors import FastLLMLoadError, InvalidValue


@contextmanager
def raises_code(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[FastLLMLoadError | InvalidValue]]:
    """The block raises an error with *code* whose message contains each of *values*."""
    with pytest.raises((FastLLMLoadError, InvalidValue)) as caught:
        yield caught
    assert caught.value.code == code, caught.value
    assert [value for value in values if str(value) not in str(caught.value)] == [], caught.value


def code_of(text: str) -> str:
    """The code at the end of *text*."""
    return text.rpartition("[")[2].rstrip().removesuffix("]")


def codes(texts: Iterable[str]) -> list[str]:
    """The code of each of *texts*."""
    return [code_of(text) for text in texts]


def says(text: str, code: str, *values: object) -> bool:
    """Whether *text* has a message with *code*, and all of *values*."""
    return f"[{code}]" in text and all(str(value) in text for value in values)
