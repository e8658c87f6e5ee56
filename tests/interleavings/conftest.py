"""The compiled modules have no lines to switch at."""

from __future__ import annotations

import pytest

from headrace._runtime.compiled import is_compiled


@pytest.fixture(autouse=True)
def _lines() -> None:
    if is_compiled():
        pytest.skip("compiled modules have no lines")
