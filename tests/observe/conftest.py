"""What these tests see does not depend on whether an earlier test of the process has used a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.harness.libraries import fresh_registry


@pytest.fixture(scope="module", autouse=True)
def _module_begins_without_device() -> Iterator[None]:
    """No device is used when a module begins, or a run that its tests share."""
    with pytest.MonkeyPatch.context() as patch:
        fresh_registry(patch)
        patch.setattr(sys.modules["headrace.gpu.backend"], "_active", None)
        yield
