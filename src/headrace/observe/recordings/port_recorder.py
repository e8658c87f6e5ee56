"""PortRecorder: record the messages of ports to a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.errors import PortError
from headrace.observe.events.records import OutputInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.payloads import PayloadError, encode, prepare
from headrace.observe.recordings.port_patterns import index_of, matches, ports_of, unmatched
from headrace.observe.recordings.recording_writer import RecordingWriter
from headrace.observe.recordings.snapshots import Snapshot, Snapshots

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import QueueInfo, RunInfo

__all__ = ["PortRecorder", "recording_of_run"]

_log = logging.getLogger("headrace.observe")


class PortRecorder(Watcher):
    """Records every message of some ports to a file, from which :func:`replay` plays it.

    A message is copied when it is emitted or received, on the device if it is there, and written by a thread of the
    recorder. When more waits to be written than `max_pending` bytes, the operators wait: nothing is lost. What ends
    the process leaves every complete message readable.

    A recorder may watch several runs. The file of the second is ``name-2.ext``, and so on.

    Parameters
    ----------
    path
        The file, which is replaced if it exists.
    ports
        Patterns of ports, such as ``"camera.out"``, ``"camera.*"`` or ``"camera"``; unless given, all connected
        outputs, except those inside captured segments. An output is recorded when it emits, an input when it
        receives.
    pickle
        Whether objects other than numbers, text, bytes, arrays, tensors and tuples, lists and dicts of these are
        recorded by pickle. Otherwise they are an error.
    max_pending
        How many bytes may wait to be written.

    Raises
    ------
    PayloadError
        In the run, for an object that cannot be recorded.
    PortError
        At the beginning of the run, if a pattern names no port.
    """

    wants_data = True
    wants_gpu_times = False
    period = 1.0

    def __init__(
        self,
        path: str | os.PathLike[str],
        ports: Iterable[str] | None = None,
        *,
        pickle: bool = False,
        max_pending: int = 1 << 28,
    ) -> None:
        self.path = Path(path)
        self._patterns = None if ports is None else [ports] if isinstance(ports, str) else list(ports)
        self._allow_pickle = pickle
        self._max_pending = max_pending
        self._runs = 0
        self._positions: dict[OutputInfo | QueueInfo, int] = {}
        self._counts: list[int] = []
        self._snapshots = Snapshots()
        self._writer: RecordingWriter | None = None
        self._delivery: Delivery

    def begin(self, run: RunInfo) -> None:
        """Create the file."""
        ports = self._find_ports(run)
        self._runs += 1
        path = recording_of_run(self.path, self._runs)
        self._positions = {port: position for position, port in enumerate(ports)}
        self._counts = [0] * len(ports)
        self._snapshots = Snapshots()
        self._writer = RecordingWriter(path, _header(run, ports), run.started, run.epoch)
        self._delivery = Delivery(self._write, "headrace record")

    def watches(self, port: OutputInfo | QueueInfo) -> bool:
        """Return whether a port is recorded."""
        return port in self._positions

    def emitted(self, output: OutputInfo, item: Any, time: int) -> None:
        """Record a message of an output."""
        position = self._positions.get(output)
        if position is not None:
            self._record(position, output, item, time)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Record a message of an input."""
        position = self._positions.get(queue)
        if position is not None:
            self._record(position, queue, item, time)

    def end(self, outcome: Outcome | None) -> None:
        """Write what is left and close the file."""
        writer = self._writer
        if writer is None:
            return
        self._delivery.close()
        self._writer = None
        error = self._delivery.error
        try:
            writer.close(is_complete=error is None)
        finally:
            self._positions = {}
            self._snapshots.close()
        if error is not None:
            raise error
        _log.info("recorded %d messages to %s", writer.messages, writer.path)

    def _record(self, position: int, port: OutputInfo | QueueInfo, item: Any, time: int) -> None:
        delivery = self._delivery
        if delivery.error is not None:
            raise delivery.error
        operator = port.operator
        is_output = isinstance(port, OutputInfo)
        snapshot = self._snapshots.take(operator, item, is_output)
        try:
            message = prepare((snapshot.acq_timestamp, snapshot.metadata, snapshot.data), self._allow_pickle)
        except PayloadError as error:
            kind = "output" if is_output else "input"
            raise PayloadError(f"operator {operator.name!r}, {kind} {port.port!r}: {error}") from None
        sequence = self._counts[position]
        self._counts[position] = sequence + 1
        delivery.put(snapshot, (position, sequence, operator.node.computes, time, message))
        if delivery.nbytes > self._max_pending:
            delivery.make_room(self._max_pending)

    def _write(self, snapshot: Snapshot, companion: tuple[int, int, int, int, Any]) -> None:
        if snapshot.error is not None:
            raise snapshot.error
        position, sequence, step, time, message = companion
        assert self._writer is not None
        self._writer.add(position, sequence, step, time, encode(message))

    def _find_ports(self, run: RunInfo) -> list[OutputInfo | QueueInfo]:
        patterns = self._patterns
        if patterns is None:
            outputs = [port for port in ports_of(run) if isinstance(port, OutputInfo) and port.queues]
            return [output for output in outputs if not output.is_inner]
        wrong = unmatched(patterns, run)
        if wrong or not patterns:
            names = ", ".join(dict.fromkeys(port.name for port in ports_of(run)))
            what = f"no port is named {wrong[0]!r}" if wrong else "no port was chosen to be recorded"
            raise PortError(f"{what}; {run.application!r} has {names}")
        return [
            port
            for port in ports_of(run)
            if any(matches(pattern, port.operator.name, port.port) for pattern in patterns)
        ]


def recording_of_run(path: Path, number: int) -> Path:
    """Return the file of a run: the first has the name that was asked for, the second has ``-2`` in its name."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _header(run: RunInfo, ports: list[OutputInfo | QueueInfo]) -> dict[str, Any]:
    return {
        "application": run.application,
        "ports": [
            {
                "operator": port.operator.name,
                "port": port.port,
                "is_output": isinstance(port, OutputInfo),
                "index": None if isinstance(port, OutputInfo) else index_of(port),
            }
            for port in ports
        ],
        "flows": [
            [port.operator.name, port.port, queue.operator.name, queue.port, index_of(queue)]
            for port in ports
            if isinstance(port, OutputInfo)
            for queue in port.queues
        ],
    }
