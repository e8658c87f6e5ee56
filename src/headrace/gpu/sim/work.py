"""The kernels and copies of simulated devices, for who collects them, as CUPTI delivers those of real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel or a copy that has ended.

    Attributes
    ----------
    device, stream
        The number of the device, and the handle of the stream.
    started, ended
        The machine's time, in nanoseconds.
    ended_wall
        When it ended, by the host's monotonic clock.
    arguments
        What was launched.
    launcher
        What the launching thread was doing (`WorkReports.launcher`); of a graph, the thread that launched it.
    """

    name: str
    device: int
    stream: int
    started: int
    ended: int
    ended_wall: int
    arguments: dict[str, Any]
    launcher: object


class WorkReports(threading.local):
    """Where simulated devices report their work.

    Attributes
    ----------
    collectors
        Who is told of each kernel and copy that has ended; a timeline's lock is held then.
    launcher
        What the current thread is doing while it launches work.
    """

    collectors: ClassVar[list[Callable[[Work], None]]] = []
    launcher: object = None


REPORTS = WorkReports()
