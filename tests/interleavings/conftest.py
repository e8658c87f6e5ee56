"""The compiled modules have no lines to switch at; and the same schedule takes the same steps in every process."""

from __future__ import annotations

import pytest

from headrace._runtime.scheduling.engine import is_compiled


@pytest.fixture(autouse=True)
def _lines(no_device_yet: None) -> None:
    if is_compiled():
        pytest.skip("compiled modules have no lines")
