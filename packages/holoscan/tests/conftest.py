"""What a program of the SDK does to the log of its process ends with the test of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_holoscan import logger


@pytest.fixture(autouse=True)
def hidden_log() -> Iterator[None]:
    """Undo what a test had shown, by a data logger or by `alias`: other tests may read stderr."""
    yield
    logger.hide()
