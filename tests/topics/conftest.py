from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder of topics of its own."""
    monkeypatch.setenv("HEADRACE_TOPICS", str(tmp_path / "topics"))
    monkeypatch.delenv("HEADRACE_TOPICS_ADDRESS", raising=False)
