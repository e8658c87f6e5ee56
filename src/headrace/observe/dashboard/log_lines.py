"""LogLines: the records that Python's logging makes during a run, for a page.

It has no lock of its own. Python may run a finalizer at any line, also one that logs. With a lock that is not
reentrant, the finalizer would wait for its own thread, and every other thread that logs would wait with it.
`logging` calls `emit` with the reentrant lock of the handler, and a deque is appended to and copied at once.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from typing import Any

from headrace.core.log import formattable

_KEPT = 300
_LONGEST = 2000  # characters


class LogLines(logging.Handler):
    """Keeps the last records; other handlers see them as always.

    It takes what the program's own settings of levels let through, and changes none of them.
    """

    is_of_headrace = True  # not a handler of the program

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[tuple[int, list[Any]]] = deque(maxlen=_KEPT)
        self._numbers = itertools.count(1)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        try:
            text = self.format(formattable(record))
        except Exception:
            self.handleError(record)
            return
        if len(text) > _LONGEST:
            text = text[:_LONGEST] + " …"
        line = [record.created, record.levelname, record.name, text]
        self._lines.append((next(self._numbers), line))

    def after(self, number: int) -> tuple[int, list[list[Any]]]:
        """Return the number of the newest record, and those after one: time, level, logger and text of each."""
        lines = list(self._lines)
        newest = max((at for at, _ in lines), default=0)
        return newest, [line for at, line in lines if at > number]
