"""Tests run on the simulated device unless they ask for another."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from headrace.gpu import sim
from tests.harness import SCHEDULERS, MakeScheduler

os.environ.setdefault("HEADRACE_DEVICE", "sim")


def pytest_report_header() -> str:
    from headrace._runtime.compiled import is_compiled

    return f"headrace: {'compiled' if is_compiled() else 'pure Python'}"


@pytest.fixture
def machine() -> Iterator[sim.Machine]:
    """A simulated H200 in virtual time, its device current on this thread; pipelines take its clock."""
    with sim.Machine("h200") as machine:
        sim.Device(0).set_current()
        yield machine


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest) -> MakeScheduler:
    return request.param
