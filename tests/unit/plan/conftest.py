"""Fixtures of the plan's tests."""

from pathlib import Path

import pytest


@pytest.fixture
def full_device():
    """A file that takes no byte: every write says that the disk is full."""
    return Path("/dev/full")
