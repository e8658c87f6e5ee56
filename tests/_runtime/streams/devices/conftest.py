"""Every test here has a machine with two devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.gpu import sim


@pytest.fixture(autouse=True)
def machine() -> Iterator[sim.Machine]:
    """Two H200s in virtual time."""
    with sim.Machine("h200", devices=2) as machine:
        yield machine
