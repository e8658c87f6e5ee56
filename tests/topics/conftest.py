from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import PATIENCE


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder of topics of its own."""
    monkeypatch.setenv("HEADRACE_TOPICS", str(tmp_path / "topics"))
    monkeypatch.delenv("HEADRACE_TOPICS_ADDRESS", raising=False)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a publisher that is listed have the time that it needs to say what it is."""
    monkeypatch.setattr("headrace.topics.folder.PATIENCE", PATIENCE)
    monkeypatch.setattr("headrace.topics.discovery.PATIENCE", PATIENCE)
