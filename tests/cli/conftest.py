"""Each test of the command has a folder of its own, and logging as a program finds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.logs import logging_of_a_program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, the current one; modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    with logging_of_a_program():
        yield tmp_path
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]
