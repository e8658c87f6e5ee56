"""Generators are tested under more schedulers than other operators, since their steps may change threads."""

from __future__ import annotations

from typing import Any

import pytest

from tests._runtime.scheduling.generators.schedulers import WITH_MORE_WORKERS


@pytest.fixture(params=WITH_MORE_WORKERS)
def scheduler(request: pytest.FixtureRequest) -> Any:
    return request.param
