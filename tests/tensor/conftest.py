from collections.abc import Iterator

import pytest

from penstock.gpu import sim


@pytest.fixture
def machine() -> Iterator[sim.Machine]:
    """An H200 in virtual time, its device current."""
    with sim.Machine("h200") as machine:
        sim.Device(0).set_current()
        yield machine
