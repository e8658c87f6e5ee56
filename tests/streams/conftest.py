from collections.abc import Iterator

import pytest

from penstock.gpu import sim
from tests.streams.frames import SCHEDULERS


@pytest.fixture(autouse=True)
def machine() -> Iterator[sim.Machine]:
    """An H200 in virtual time; pipelines take its clock."""
    with sim.Machine("h200") as machine:
        yield machine


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest) -> str:
    return request.param
