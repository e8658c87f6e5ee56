"""Progress on stderr: a bar on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

LINES = 4  # of each task, where there is no terminal


class Progress:
    """Shows how far the tasks of a program are.

    It draws only when a task advances, and at most fifty times a task: a thread that draws by itself would take
    the interpreter from operators with deadlines.
    """

    def __enter__(self) -> Progress:
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), auto_refresh=False)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def task(self, name: str, total: int) -> Task:
        """Begin a task of so many steps."""
        return Task(name, total, self._bar)


class Task:
    """A task, and how many of its steps are done."""

    def __init__(self, name: str, total: int, bar: Any) -> None:
        self._name, self._total, self._bar = name, total, bar
        self._done = 0
        self._every = max(total // (LINES if bar is None else 50), 1)
        self._number = None if bar is None else bar.add_task(name, total=total)

    def advance(self) -> None:
        """Count a step."""
        self._done += 1
        if self._done % self._every and self._done != self._total:
            return
        if self._bar is None:
            print(f"{self._name}: {self._done} of {self._total}", file=sys.stderr, flush=True)
        else:
            self._bar.update(self._number, completed=self._done, refresh=True)
