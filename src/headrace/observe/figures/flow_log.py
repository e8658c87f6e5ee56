"""FlowLog: the times of every message in a file that the analysis tools of the Holoscan SDK read.

Each group begins with its number, one group for each compute of a sink. Each line of it is a way on which the
compute's messages came: for each operator its name, when it received and when it emitted, in microseconds since the
epoch. The last operator emits when its work is complete on the device.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.observe.events.records import Flows


class FlowLog:
    """Writes a log file; what comes after its end is not written. Not locked, so its user serializes the calls.

    Parameters
    ----------
    filename
        The file; it is created anew.
    buffered
        The number of groups that are written at once.
    is_limited
        Whether a line has the first and the last operator only.
    """

    def __init__(self, filename: str | os.PathLike[str], buffered: int, is_limited: bool = False) -> None:
        self._file = Path(filename).open("w", encoding="utf-8")  # noqa: SIM115 (open until `close`)
        self._buffered = max(buffered, 1)
        self._is_limited = is_limited
        self._count = 0
        self._waiting: list[str] = []
        # The lines of each compute of a sink, by the time of its end.
        self._groups: defaultdict[tuple[int, int, int], list[str]] = defaultdict(list)

    def add(self, flows: Flows, epoch: int) -> None:
        """Add messages that reached the end of their path; `epoch` is the time since the epoch at time 0."""
        operators = flows.path.operators
        places = [0, len(operators) - 1] if self._is_limited and len(operators) > 2 else range(len(operators))
        times = (flows.times + epoch) // 1000
        for compute, done, row in zip(
            flows.compute.tolist(), flows.done.tolist(), times.tolist(), strict=True
        ):
            entries = [f"({operators[at].name},{row[2 * at]},{row[2 * at + 1]})" for at in places]
            self._groups[done, operators[-1].index, compute].append(" -> ".join(entries) + " \n")

    def write(self, is_last: bool = False) -> None:
        """Write the groups, if there are many or they are the last ones; they are complete after a round."""
        for key in sorted(self._groups):
            self._count += 1
            self._waiting.append(f"{self._count}:\n{''.join(self._groups[key])}\n")
        self._groups.clear()
        if (is_last or len(self._waiting) >= self._buffered) and not self._file.closed:
            self._file.writelines(self._waiting)
            self._file.flush()
            self._waiting.clear()

    def close(self) -> None:
        """Write everything, and close the file."""
        self.write(is_last=True)
        self._file.close()
