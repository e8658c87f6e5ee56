"""LogLines: the records that Python's logging makes during a run, for a page."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

__all__ = ["LogLines"]

_KEPT = 300
_LONGEST = 2000  # characters


class LogLines(logging.Handler):
    """Keeps the last records; other handlers see them as always.

    It takes what the program's own settings of levels let through, and changes none of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[tuple[int, list[Any]]] = deque(maxlen=_KEPT)
        self._last = 0
        self._numbering = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if len(text) > _LONGEST:
            text = text[:_LONGEST] + " …"
        with self._numbering:
            self._last += 1
            self._lines.append((self._last, [record.created, record.levelname, record.name, text]))

    def after(self, number: int) -> tuple[int, list[list[Any]]]:
        """Return the number of the newest record, and those after one: time, level, logger and text of each."""
        with self._numbering:
            return self._last, [line for at, line in self._lines if at > number]
