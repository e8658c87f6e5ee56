"""Logging as a program finds it: pytest's own handlers would count as handlers of the program."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _WithoutPytest(list[logging.Handler]):
    """The handlers of a logger, without those that pytest adds for the duration of a test."""

    def append(self, handler: logging.Handler) -> None:
        if not type(handler).__module__.startswith("_pytest"):
            super().append(handler)


@contextmanager
def logging_of_a_program() -> Iterator[None]:
    """Use logging without any configuration, and restore what was there."""
    logger, root = logging.getLogger("headrace"), logging.root
    handlers, level, others = list(logger.handlers), logger.level, root.handlers
    root.handlers = _WithoutPytest()
    try:
        yield
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        root.handlers = others
