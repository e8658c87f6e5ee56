"""A limit for each test: one that hangs fails, with the stacks of all threads, and the suite goes on.

pytest-timeout interrupts the main thread at the limit. Where nothing can interrupt it, because it is inside a
library, its process ends a minute later; pytest-xdist reports the test and starts another process. The limit is far
above what a test takes on a machine that is busy with other work: no test is about speed. A test that computes for
long sets a higher one with ``pytest.mark.timeout``.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

from tests.harness.threads import PATIENCE

LIMIT = float(os.environ.get("HEADRACE_TEST_LIMIT", PATIENCE + 60))
LAST_LIMIT = float(os.environ.get("HEADRACE_TEST_LAST_LIMIT", LIMIT + 60))
_stderr = 2


def pytest_configure(config: pytest.Config) -> None:
    global _stderr
    config.addinivalue_line("markers", "timeout: the limit of a test, for pytest-timeout")
    _stderr = os.dup(
        2
    )  # while a test runs, pytest has what is written there captured, and lost with the process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("timeout")
    above = 0.0 if marker is None else marker.args[0] - LIMIT
    faulthandler.dump_traceback_later(LAST_LIMIT + max(above, 0.0), exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
