"""A limit for each test, and which of its variants run.

A test that hangs fails, with the stacks of all threads, and the suite goes on.

pytest-timeout interrupts the main thread at the limit. Where nothing can interrupt it, because it is inside a
library, its process ends a minute later; pytest-xdist reports the test and starts another process. The limit is far
above what a test takes on a machine that is busy with other work: no test is about speed. A test that computes for
long sets a higher one with ``pytest.mark.timeout``.

`make test` has no time for all variants of all tests. Schedulers take turns: a test runs under one of them, and
another test under another. ``pytest.mark.turns("name")`` has the values of other parameters take turns as well, and
``pytest.mark.turns()`` none. A test with ``pytest.mark.thorough`` shows in another way, and at a price, what other
tests show. A thorough run has all of these, and so has a run of tests that are asked for by name.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from tests.workers import TestsOfFile, put_long_files_first

# Whether to take more examples of properties, schedules and combinations than `make test` has time for.
THOROUGH = os.environ.get("HEADRACE_TESTS") == "thorough"
# The seconds that a test waits for what must happen, in another thread or process, before it fails. No test is
# about how long something takes: a machine may be busy with other work, and a thread may not run for seconds.
PATIENCE = 240.0
LIMIT = float(os.environ.get("HEADRACE_TEST_LIMIT", PATIENCE + 60))
LAST_LIMIT = float(os.environ.get("HEADRACE_TEST_LAST_LIMIT", LIMIT + 60))
_stderr = 2


def examples(number: int) -> int:
    """Return how many examples of a property to take: a quarter of a number, and all of them in a thorough run."""
    return number if THOROUGH else -(-number // 4)


def pairs(*parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return combinations in which any two values of two parameters meet, and all of them in a thorough run."""
    every = list(itertools.product(*parameters))
    if THOROUGH:
        return every

    def met(row: tuple[Any, ...]) -> set[tuple[tuple[int, Any], ...]]:
        return set(itertools.combinations(enumerate(row), 2))

    missing, chosen = set().union(*map(met, every)), []
    while missing:
        chosen.append(max(every, key=lambda row: len(met(row) & missing)))
        missing -= met(chosen[-1])
    return chosen


def pytest_configure(config: pytest.Config) -> None:
    global _stderr
    config.addinivalue_line("markers", "timeout: the limit of a test, for pytest-timeout")
    config.addinivalue_line("markers", "turns(*names): the parameters whose values take turns")
    config.addinivalue_line("markers", "thorough: a test for a thorough run")
    _stderr = os.dup(
        2
    )  # while a test runs, pytest has what is written there captured, and lost with the process
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # this is a process of pytest-xdist
            plugin.sendevent = partial(_send, plugin.sendevent)


def _send(send: Callable[..., None], name: str, **event: Any) -> None:
    """Send the process that reports what it shows of a test: no start or end, and no short phase that passed."""
    report = event.get("data", {})
    is_short = report.get("outcome") == "passed" and report["when"] != "call" and report["duration"] < 0.05
    if name not in ("logstart", "logfinish") and not is_short:
        send(name, **event)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not THOROUGH and not any("::" in argument for argument in config.args):
        chosen = set(_chosen(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    put_long_files_first(items)
    for item in items:
        if not isinstance(item, TestsOfFile) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


def _chosen(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests of an ordinary run: one of those that differ only in parameters that take turns."""
    groups: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough") is None:
            groups[_without_turns(item)].append(item)
    for group in groups.values():
        yield group[zlib.crc32(group[0].nodeid.encode()) % len(group)]


def _without_turns(item: pytest.Item) -> Any:
    """Return what a test has in common with those that differ from it only in parameters that take turns."""
    marker = item.get_closest_marker("turns")
    turns = {"scheduler"} if marker is None else set(marker.args)
    for combined in item.iter_markers("parametrize"):
        names = combined.args[0].split(",") if isinstance(combined.args[0], str) else combined.args[0]
        if len(names) > 1:  # such combinations are chosen already
            turns.difference_update(names)
    callspec = getattr(item, "callspec", None)
    if callspec is None or not turns & callspec.params.keys():
        return item.nodeid
    others = {name: id(value) for name, value in callspec.params.items() if name not in turns}
    return item.nodeid.partition("[")[0], *sorted(others.items())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    marker = item.get_closest_marker("timeout")
    _last_limit.begin(0.0 if marker is None else marker.args[0] - LIMIT)
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:  # the next file may have to be waited for
            _last_limit.end()


class _LastLimit:
    """Ends the process at the last limit of a test.

    Each start and end of that is a thread. So one that has been there for a short part of the limit stays for the
    following tests, which then have that much less.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._above = 0.0

    def begin(self, above: float) -> None:
        above = max(above, 0.0)
        now = time.monotonic()
        if above != self._above or now > self._until:
            faulthandler.dump_traceback_later(LAST_LIMIT + above, exit=True, file=_stderr)
            self._until, self._above = now + LAST_LIMIT / 20, above

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._until = 0.0


_last_limit = _LastLimit()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[dict[str, Any] | None]:
    """Send the process that reports nothing but the outcome of what passed: the keywords are most of a report."""
    sent: dict[str, Any] | None = yield
    if sent is not None and sent.get("outcome") == "passed" and "keywords" in sent:
        sent["keywords"] = {}
    return sent
