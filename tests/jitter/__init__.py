"""A pytest plugin that makes threads and processes late on purpose: tests that depend on their speed fail.

    HEADRACE_JITTER=7 python -m pytest -p tests.jitter tests/core

A busy machine delays everything alike, so that the order of things mostly stays. Here one thread is late and not
another: in each test either all threads are late, or the main one, or all others, or some, as the number chooses.
``HEADRACE_JITTER=7:main`` chooses one of these for all tests. Programs that tests start are late as well.

A test that fails depends on how fast a thread gets the processor, or what it tests does. Run it alone with the same
number several times; the report says who was late.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jitter import late

_setting = late.read_setting()


def pytest_report_header() -> str:
    return f"jitter: {_setting or 'none; HEADRACE_JITTER=7 sets it'}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Make programs late. Not earlier: the processes of pytest-xdist are none."""
    if _setting is not None:
        site = str(Path(__file__).with_name("site"))
        sys.path.append(site)
        os.environ[late.VARIABLE] = os.environ.pop("HEADRACE_JITTER", "") or os.environ[late.VARIABLE]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
        os.register_at_fork(after_in_child=late.begin_process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if _setting is None:
        return (yield)
    seed, mode = _setting
    lateness = late.Lateness(zlib.crc32(f"{seed} {item.nodeid}".encode()), mode)
    item.add_report_section("call", "jitter", repr(lateness))
    lateness.begin()
    try:
        return (yield)
    finally:
        lateness.end()
