"""TraceWriter: writes a run as a trace that Perfetto opens (https://ui.perfetto.dev).

Every compute is a slice on the track of its thread, and its work on the device a slice on the track of its stream.
Arrows lead from the compute that emitted a message to the one that received it, and from a compute to its work on
the device. Every message that reached the end of its path is a slice from its origin to its end, with where its
time went (`critical_path`). Counters show how many messages wait in each queue and how many each operator has in
use.

The file is written as the run goes on, and opens even if the process is killed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope
from headrace.observe.events.records import QueueInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.traces.run_trace import RunTrace
from headrace.observe.traces.trace_file import TraceFile, json_text

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.records import Computes, Flows, OutputInfo, RunInfo


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
        self.wants_kernels = kernels
        self._runs = 0
        self._trace: RunTrace | None = None

    def begin(self, run: RunInfo) -> None:
        """Open the file, and name what is known of the run."""
        self._runs += 1
        self._trace = RunTrace(TraceFile(numbered(self.path, self._runs)), run)

    def ran(self, kernels: list[Activity]) -> None:
        """Write kernels and copies."""
        if self._trace is not None and self.wants_kernels:
            self._trace.add_kernels(kernels)

    def computed(self, computes: Computes) -> None:
        """Write computes, their work on the device, and the arrows between them."""
        if self._trace is not None:
            self._trace.add_computes(computes)

    def flowed(self, flows: list[Flows]) -> None:
        """Write messages that reached the end of a path."""
        if self._trace is not None:
            for some in flows:
                self._trace.add_flows(some)

    def resolved(self) -> None:
        """Write counters, and everything that waits."""
        if self._trace is not None:
            self._trace.write()

    def end(self, outcome: Outcome | None) -> None:
        """Write the rest and close the file."""
        if self._trace is not None:
            self._trace.close(outcome)
            self._trace = None

    def watches(self, port: OutputInfo | QueueInfo) -> bool:
        """Return whether the metadata of a port is shown: that of received messages is."""
        return isinstance(port, QueueInfo)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Keep the metadata of a message until the compute that received it is written."""
        if self._trace is not None:
            metadata = item.metadata if type(item) is Envelope else None
            self._trace.metadata[queue].append(_described(metadata) if metadata else "")


def numbered(path: Path, number: int) -> Path:
    """Return the file of a run: the first has the name that was asked for, the second has ``-2`` in its name."""
    stem, dot, rest = path.name.partition(".")
    return path if number == 1 else path.with_name(f"{stem}-{number}{dot}{rest}")


def _described(metadata: dict[str, Any]) -> str:
    """Return metadata as JSON, with a limited number of entries and of characters for each."""
    shown = {}
    for key, value in list(metadata.items())[:_MOST_ENTRIES]:
        is_plain = value is None or isinstance(value, (bool, int, float, str))
        try:
            text = json.dumps(value, allow_nan=False) if is_plain else None
        except ValueError:
            text = None
        shown[str(key)[:_MOST_CHARACTERS]] = (
            value if text is not None and len(text) <= _MOST_CHARACTERS else _short(value)
        )
    return json_text(shown)


def _short(value: Any) -> str:
    # An array might describe all its elements, or wait for the device.
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    try:
        if isinstance(value, (int, float)):
            return repr(value)[:_MOST_CHARACTERS]
    except ValueError:  # Python limits the digits of an int
        pass
    return f"<{type(value).__name__}>"


_MOST_ENTRIES = 32
_MOST_CHARACTERS = 200
