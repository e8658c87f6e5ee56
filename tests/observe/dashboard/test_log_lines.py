"""The lines of the log that a page shows."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator

import pytest

from headrace.observe.dashboard.log_lines import LogLines


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    log = logging.getLogger("test.log_lines")
    log.propagate = False
    log.setLevel(logging.INFO)
    yield log
    log.handlers.clear()


@pytest.fixture
def lines(log: logging.Logger) -> LogLines:
    lines = LogLines()
    log.addHandler(lines)
    return lines


def texts(found: tuple[int, list[list[object]]]) -> list[object]:
    return [text for *_, text in found[1]]


def test_only_lines_after_a_number_are_told(log: logging.Logger, lines: LogLines) -> None:
    assert lines.after(0) == (0, [])
    log.info("first")
    newest, _ = lines.after(0)
    log.info("second")
    assert texts(lines.after(0)) == ["first", "second"]
    assert texts(lines.after(newest)) == ["second"]
    newest, _ = lines.after(newest)
    assert lines.after(newest) == (newest, [])


def test_the_last_lines_are_kept_and_long_ones_cut(log: logging.Logger, lines: LogLines) -> None:
    for number in range(301):
        log.info("%d %s", number, "x" * 3000)
    newest, found = lines.after(0)
    assert (newest, len(found)) == (301, 300)
    assert all(len(str(text)) == 2002 for *_, text in found)


@pytest.fixture
def collector() -> Iterator[None]:
    """A collector that looks at new objects only; those of other tests would take it seconds."""
    was = gc.get_threshold()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*was)
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("what", ["a line is added", "lines are told"])
def test_a_finalizer_may_log_at_any_moment(log: logging.Logger, lines: LogLines, what: str) -> None:
    action: Callable[[], object] = {
        "a line is added": lambda: log.info("line"),
        "lines are told": lambda: lines.after(0),
    }[what]

    class Loud:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            log.info("collected")

    def work() -> None:
        # Each threshold lets the collector run at another line.
        for allocations in range(1, 40):
            gc.disable()
            gc.collect()
            Loud()
            gc.set_threshold(allocations)
            gc.enable()
            action()

    work()
    while texts(lines.after(0)).count("collected") < 39:
        gc.collect()  # does nothing while another thread collects
