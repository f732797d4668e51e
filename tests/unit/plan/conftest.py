"""Fixtures of the plan's tests."""

from pathlib import Path

import pytest


@pytest.fixture
def full_device():
    """A file on which every write fails with a full disk."""
    return Path("/dev/full")
