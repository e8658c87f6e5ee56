"""TraceWriter: writes a run as a trace that Perfetto opens (https://ui.perfetto.dev).

Every compute is a slice on the track of its thread, and its work on the device a slice on the track of its stream.
Arrows lead from the compute that emitted a message to the one that received it, and from a compute to its work on
the device. Every message that reached the end of its path is a slice from its origin to its end, with where its
time went (`critical_path`). Counters show how many messages wait in each queue and how many each operator has in
use.

The file is written as the run goes on, and opens even if the process is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope
from headrace.observe.events.records import QueueInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.traces.cupti_activity import CuptiActivity
from headrace.observe.traces.run_trace import RunTrace
from headrace.observe.traces.trace_file import TraceFile, json_text

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Computes, Flows, OperatorInfo, OutputInfo, RunInfo


class TraceWriter(Watcher):
    """Writes every run that it watches to a trace file.

    Parameters
    ----------
    path
        The file; compressed if its name ends with ``.gz``. If several runs are watched, the second one is written
        to ``out-2.json`` beside ``out.json``, and so on.
    metadata
        Whether the metadata of received messages is shown with each compute; this slows down every message.
    kernels
        Whether each kernel and copy on a GPU is shown, if the package ``cupti-python`` is installed.
    """

    wants_threads = True
    wants_every_gpu_time = True
    wants_emissions = True

    def __init__(self, path: str | os.PathLike[str], *, metadata: bool = False, kernels: bool = True) -> None:
        self.path = Path(path)
        self.wants_data = metadata
        self._kernels = kernels
        self._runs = 0
        self._trace: RunTrace

    def begin(self, run: RunInfo) -> None:
        """Open the file, and name what is known of the run."""
        self._runs += 1
        activity = CuptiActivity() if self._kernels and not run.is_virtual else None
        self._trace = RunTrace(TraceFile(numbered(self.path, self._runs)), run, activity)

    def around(self, operator: OperatorInfo, compute: Callable[..., None]) -> Callable[..., None]:
        """Note which kernels a compute launches, if kernels are shown."""
        activity = self._trace.activity
        return compute if activity is None else activity.around(operator.index, compute)

    def computed(self, computes: Computes) -> None:
        """Write computes, their work on the device, and the arrows between them."""
        self._trace.add_computes(computes)

    def flowed(self, flows: list[Flows]) -> None:
        """Write messages that reached the end of a path."""
        for some in flows:
            self._trace.add_flows(some)

    def resolved(self) -> None:
        """Write counters, and everything that waits."""
        self._trace.write()

    def end(self, outcome: Outcome | None) -> None:
        """Write the rest and close the file."""
        self._trace.close(outcome)

    def watches(self, port: OutputInfo | QueueInfo) -> bool:
        """Return whether the metadata of a port is shown: that of received messages is."""
        return isinstance(port, QueueInfo)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Keep the metadata of a message until the compute that received it is written."""
        metadata = item.metadata if type(item) is Envelope else None
        # A limited number of entries, and of characters for each.
        shown = {str(key)[:_LONGEST]: _short(value) for key, value in islice((metadata or {}).items(), _MOST)}
        self._trace.metadata[queue].append(json_text(shown) if shown else "")


def numbered(path: Path, number: int) -> Path:
    """Return the file of a run: the first has the name that was asked for, the second has ``-2`` in its name."""
    stem, dot, rest = path.name.partition(".")
    return path if number == 1 else path.with_name(f"{stem}-{number}{dot}{rest}")


def _short(value: Any) -> Any:
    """Return a value of the metadata as JSON can have it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:_LONGEST]
    try:
        if isinstance(value, (int, float)):
            text = repr(value)
            return value if len(text) <= _LONGEST and isfinite(value) else text[:_LONGEST]
    except ValueError:  # Python limits the digits of an int
        pass
    return f"<{type(value).__name__}>"  # an array might describe all its elements, or wait for the device


_MOST = 32  # entries of the metadata
_LONGEST = 200  # characters
