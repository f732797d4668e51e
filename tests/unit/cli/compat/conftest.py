"""What the commands of other tools would send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compat_runs import FILES

from fastllmload.engine import run as engine_run
from fastllmload.settings import RunSettings
from fastllmload.sweep import run as sweep_run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RunSettings]:
    """Settings of what would be sent, in a folder with the files that commands name."""
    found: list[RunSettings] = []

    def execute(settings: RunSettings, *_: Any, **__: Any) -> int:
        found.append(settings)
        return 0

    def run_sweep(cells: list[Any], *_: Any) -> int:
        found.extend(cell.settings for cell in cells)
        return 0

    monkeypatch.setattr(engine_run, "execute", execute)
    monkeypatch.setattr(sweep_run, "run_sweep", run_sweep)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the extra `hf`: nothing is fetched."""
    monkeypatch.setattr("fastllmload.cli.compat.fetched.find_spec", lambda _: None)
