"""FlowLog: the times of every message in a file that the analysis tools of the Holoscan SDK read.

Each group begins with its number, one group for each compute of a sink. Each line of it is a way on which the
compute's messages came: for each operator its name, when it received and when it emitted, in microseconds since the
epoch. The last operator emits when its work is complete on the device.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.observe.events.records import Flows, RunInfo


class FlowLog:
    """Writes a log file; any thread may close it, and what comes afterwards is not written.

    Parameters
    ----------
    filename
        The file; it is created anew.
    buffered
        The number of groups that are written at once.
    """

    def __init__(self, filename: str | os.PathLike[str], buffered: int) -> None:
        self._file = Path(filename).open("w", encoding="utf-8")  # noqa: SIM115 (open until `close`)
        self._buffered = max(buffered, 1)
        self._epoch = 0
        self._count = 0
        self._waiting: list[str] = []
        # The lines of each compute of a sink, by the time of its end.
        self._groups: dict[tuple[int, int, int], list[str]] = {}
        self._lock = threading.RLock()

    def begin(self, run: RunInfo) -> None:
        """Begin with a run."""
        self._epoch = run.epoch

    def add(self, flows: list[Flows], is_limited: bool) -> None:
        """Add messages that reached the end of their paths."""
        with self._lock:
            for each in flows:
                self._add(each, is_limited)

    def _add(self, flows: Flows, is_limited: bool) -> None:
        operators = flows.path.operators
        places = [0, len(operators) - 1] if is_limited and len(operators) > 2 else range(len(operators))
        times = (flows.times + self._epoch) // 1000
        for compute, done, row in zip(
            flows.compute.tolist(), flows.done.tolist(), times.tolist(), strict=True
        ):
            entries = [f"({operators[at].name},{row[2 * at]},{row[2 * at + 1]})" for at in places]
            key = (done, operators[-1].index, compute)
            self._groups.setdefault(key, []).append(" -> ".join(entries) + " \n")

    def write(self) -> None:
        """Write the groups that are complete; all messages of the last round were added."""
        with self._lock:
            for key in sorted(self._groups):
                self._count += 1
                self._waiting.append(f"{self._count}:\n{''.join(self._groups[key])}\n")
            self._groups.clear()
            if len(self._waiting) >= self._buffered:
                self.flush()

    def flush(self) -> None:
        """Write everything to the file."""
        with self._lock:
            if not self._file.closed:
                self._file.writelines(self._waiting)
                self._file.flush()
            self._waiting.clear()

    def close(self) -> None:
        """Write everything, and close the file."""
        with self._lock:
            self.write()
            self.flush()
            self._file.close()
