"""PortRecorder: record the messages of ports to a file, or hand them to another carrier."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.errors import PortError
from headrace.core.run_files import numbered, path_of_start
from headrace.observe.events.records import OutputInfo
from headrace.observe.recordings.carriers import (
    Carrier,
    Port,
    PortWatcher,
    RecordedMessage,
    RecordedPort,
    RecordedRun,
    describe,
    matches,
    ports_of,
)
from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.payloads import PayloadError, check_leaf

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import RunInfo
    from headrace.observe.recordings.snapshots import Snapshot

_log = logging.getLogger("headrace.observe")


class PortRecorder(PortWatcher):
    """Records every message of some ports to a file, from which :func:`replay` plays it.

    A message is copied when it is emitted or received, on the device if it is there, and written by a thread of the
    recorder. When more waits to be written than `max_pending` bytes, the operators wait: nothing is lost. A process
    that is killed leaves every message readable that was written.

    A recorder may watch several runs. The file of the second is ``name-2.ext``, and so on.

    **The file** is an MCAP file. A port is a channel, whose topic is the name of the port: ``camera.out``, or
    ``merge.in:1`` for the second connection of an input for any number of them. A port that emits both images and
    other messages has two. `sequence` counts the messages of a port, and `log_time` is when a message was emitted
    or received, in nanoseconds since the epoch; if the run was in virtual time, in nanoseconds of that. Data is
    encoded as ROS 2 does (``cdr``, little-endian), and the schemas are in the file (``ros2msg``):

    - An image is a ``sensor_msgs/msg/Image``: a message with one array of the shape (height, width) or (height,
      width, 1, 3 or 4) of uint8, or (height, width) of uint16 or float32. Its ``header.frame_id`` is the tree of
      the message.
    - Everything else is a ``headrace/msg/Message`` with two fields: ``string tree`` and ``uint8[] data``.

    The tree is JSON: ``{"step": ..., "acq_timestamp": ..., "metadata": ..., "data": ...}``, where `step` is the
    number of the compute. None, bool, int, float, str, list and dict are what they are in JSON. Everything else is
    an object with one key. `at` is where its bytes begin in the data; arrays are stored without gaps, in row-major
    order (``C``) or in column-major order (``F``):

    ============  ======================  ==================================================================
    key           value                   what follows
    ============  ======================  ==================================================================
    ``$tuple``    tuple                   a list
    ``$dict``     dict with other keys    a list of pairs; also if a key begins with ``$``
    ``$float``    nan or infinity         its 8 bytes, little-endian, in hexadecimal
    ``$complex``  complex                 its real and its imaginary part
    ``$bytes``    bytes                   ``[at, size]``
    ``$array``    array of NumPy          ``[at, dtype, shape, order]``, the dtype as NumPy's text
    ``$scalar``   scalar of NumPy         ``[at, dtype]``
    ``$tensor``   tensor                  ``[at, [code, bits, lanes], shape, device type, library]``
    ``$tensors``  TensorMap               an object with a ``$tensor`` for each name
    ``$pickle``   any other object        ``[at, size, name of the type]``
    ============  ======================  ==================================================================

    The metadata record ``headrace`` has `run`, which is JSON with the application, the ports, the flows between
    them, and the time of the beginning. A channel's metadata has the number of its port in there.

    Parameters
    ----------
    target
        The file, which is replaced if it exists; or a :class:`Carrier`, which is handed the messages instead.
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

    def __init__(
        self,
        target: str | os.PathLike[str] | Carrier,
        ports: Iterable[str] | None = None,
        *,
        pickle: bool = False,
        max_pending: int = 1 << 28,
    ) -> None:
        super().__init__()
        if isinstance(target, Carrier):
            self._carrier_of: Callable[[int], Carrier] = lambda number: target
        else:
            from headrace.observe.recordings.recording_writer import RecordingWriter  # needs mcap

            self._carrier_of = lambda number: RecordingWriter(
                path_of_start(numbered(Path(target), number)), pickle
            )
        self._patterns = None if ports is None else [ports] if isinstance(ports, str) else list(ports)
        self._allow_pickle = pickle
        self._max_pending = max_pending
        self._runs = 0
        self._counts: dict[RecordedPort, int] = {}
        self._carrier: Carrier | None = None
        self._delivery: Delivery

    def begin(self, run: RunInfo) -> None:
        """Begin with a run: create the file."""
        shown = {port: describe(port) for port in self._find_ports(run)}
        self._runs += 1
        self._counts = dict.fromkeys(shown.values(), 0)
        carrier = self._carrier_of(self._runs)
        carrier.begin(_describe_run(run, shown))
        self._carrier = carrier
        self._delivery = Delivery(
            self._carry, "headrace record", check=lambda leaf: check_leaf(leaf, self._allow_pickle)
        )
        self._shown = shown

    def end(self, outcome: Outcome | None) -> None:
        """Write what is left and close the file."""
        carrier = self._carrier
        if carrier is None:
            return
        self._delivery.close()
        self._carrier = None
        error = self._delivery.error
        try:
            carrier.end(error is None)
        finally:
            self._shown = {}
            if error is not None:
                raise error
        _log.info("recorded %d messages", sum(self._counts.values()))

    def _show(self, port: Port, item: Any, time: int) -> None:
        delivery = self._delivery
        if delivery.error is not None:
            raise delivery.error
        recorded: RecordedPort = self._shown[port]
        try:
            snapshot = delivery.snapshots.take(port.operator, item, recorded.is_output)
        except PayloadError as error:
            raise _with_port(error, recorded) from None
        sequence = self._counts[recorded]
        self._counts[recorded] = sequence + 1
        delivery.put(snapshot, (recorded, sequence, port.operator.node.computes, time))
        if delivery.nbytes > self._max_pending:
            delivery.wait_until(lambda: delivery.nbytes <= self._max_pending)

    def _carry(self, snapshot: Snapshot, companion: tuple[RecordedPort, int, int, int]) -> None:
        assert self._carrier is not None
        message = RecordedMessage(*companion, snapshot.acq_timestamp, snapshot.metadata, snapshot.data)
        try:
            self._carrier.carry(message)
        except PayloadError as error:
            raise _with_port(error, message.port) from error

    def _find_ports(self, run: RunInfo) -> list[Port]:
        patterns = self._patterns
        ports = list(ports_of(run))
        if patterns is None:
            outputs = [port for port in ports if isinstance(port, OutputInfo)]
            return [output for output in outputs if output.queues and not output.is_inner]
        found = {
            one: [port for port in ports if matches(one, port.operator.name, port.port)] for one in patterns
        }
        wrong = [pattern for pattern, chosen in found.items() if not chosen]
        if wrong or not found:
            names = ", ".join(dict.fromkeys(port.name for port in ports))
            what = f"no port is named {wrong[0]!r}" if wrong else "no port was chosen to be recorded"
            raise PortError(f"{what}; {run.application!r} has {names}")
        return [port for port in ports if any(port in chosen for chosen in found.values())]


def _describe_run(run: RunInfo, shown: dict[Port, RecordedPort]) -> RecordedRun:
    targets = [
        (recorded, describe(queue))
        for port, recorded in shown.items()
        if isinstance(port, OutputInfo)
        for queue in port.queues
    ]
    flows = [(one.operator, one.port, other.operator, other.port, other.index) for one, other in targets]
    return RecordedRun(run.application, list(shown.values()), flows, run.started, run.epoch)


def _with_port(error: PayloadError, port: RecordedPort) -> PayloadError:
    kind = "output" if port.is_output else "input"
    return PayloadError(f"operator {port.operator!r}, {kind} {port.port!r}: {error}")
