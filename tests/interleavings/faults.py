"""Faults: what can be wrong with a run, and the report that says so."""

from __future__ import annotations

import enum
import linecache
import os
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .controller import Controller

__all__ = ["Fault", "Kind"]


class Kind(enum.Enum):
    """The kinds of faults."""

    LOST_WAKE_UP = "lost wake-up"
    MISSED_TIME = "missed time"
    SPIN = "spin"
    DOUBLE_WAKE_UP = "double wake-up"
    PREMATURE_END = "premature end"
    WRONG_RESULT = "wrong result"
    MISJUDGED = "misjudged"
    HANG = "hang"
    LEAK = "leak"
    LIVELOCK = "livelock"
    ERROR = "error"


class Fault(Exception):
    """Something wrong with a run: its kind, what it is, and where every thread was."""

    def __init__(self, kind: Kind, what: str, cause: BaseException | None = None) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.cause = cause
        self.threads = ""
        self.state = ""
        self.schedule = ""
        self.seed: int | None = None

    def note(self, control: Controller) -> None:
        """Keep where every thread is now."""
        lines = [f"threads, at {control.now / 1e6:g} ms, after {control.steps} steps:"]
        for task in control.tasks:
            mark = " (running)" if task is control.current else ""
            lines.append(f"  {task.name}: {task.describe(control.now)}{mark}")
            lines += [f"    {number:6d}  {_step(what, line)}" for number, what, line in task.steps]
        self.threads = "\n".join(lines)

    def report(self) -> str:
        """Return all there is to say."""
        parts = [f"{self.kind.value}: {self.what}"]
        if self.schedule:
            parts.append(f"replay: python -m tests.interleavings --replay '{self.schedule}'")
        if self.seed is not None:
            parts.append(f"seed: {self.seed}")
        if self.state:
            parts.append(self.state)
        if self.threads:
            parts.append(self.threads)
        if self.cause is not None:
            parts.append("".join(traceback.format_exception(self.cause)).rstrip())
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.report()


def _step(what: Any, line: int) -> str:
    if isinstance(what, str):
        return what
    place = f"{os.path.basename(what.co_filename)}:{line} {what.co_name}"
    return f"{place:32s} {linecache.getline(what.co_filename, line).strip()}"
