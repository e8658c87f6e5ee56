"""check_recording: a recording as a test of one operator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headrace.application import Application
from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator
from headrace.core.ports import IOSpec
from headrace.gpu.backend import active
from headrace.observe import PortRecorder, RecordedMessage, Recording, watch
from headrace.observe.recordings.player import Entry, Playback, Player
from headrace.resources.machine_clock import machine_clock
from headrace.resources.program_clocks import ManualClock
from headrace.schedulers.greedy import GreedyScheduler
from headrace.testing.differences import difference


def check_recording(
    operator: Callable[..., Any],
    /,
    path: str | os.PathLike[str],
    *,
    name: str,
    rtol: float | None = None,
    atol: float | None = None,
    pickle: bool = False,
    **parameters: Any,
) -> int:
    """Run an operator on the recorded messages of its inputs, and compare what it emits with the recorded messages.

    The operator runs in virtual time, and each message reaches it at its recorded time. The messages of an input
    are those that were recorded there or, if the input was not recorded, at the outputs that are connected to it.

    Parameters
    ----------
    operator
        An operator class, a function with ``@op``, or any function that takes an application and creates an
        operator.
    path
        The recording, which must have the messages of its inputs and of at least one output.
    name
        The name that the operator has in the recording.
    rtol, atol
        The relative and absolute tolerance for elements of arrays and for floats, as in ``numpy.allclose``. Without
        either, everything must be the same bit for bit.
    pickle
        Whether pickled objects in the file are loaded; the file must be trusted.
    **parameters
        The operator's parameters.

    Returns
    -------
    int
        The number of messages that were compared.

    Raises
    ------
    AssertionError
        At the first message that differs, with the output, its number, and where and by how much the values differ.
    """
    with Recording(path, pickle=pickle) as recording, tempfile.TemporaryDirectory() as folder:
        outputs = [port for port in recording.ports if port.operator == name and port.is_output]
        if not outputs:
            known = choices(sorted({port.operator for port in recording.ports if port.is_output}), name)
            raise GraphError(f"recording {str(path)!r} has no outputs of {name!r}; it has those of {known}")
        app = _Single(operator, Recording(path, pickle=pickle), name, parameters)
        emitted = Path(folder) / "emitted"
        watch(app, PortRecorder(emitted, [port.name for port in outputs], pickle=pickle))
        with active().in_virtual_time():
            app.run()
        count = 0
        with Recording(emitted, pickle=pickle) as again:
            for port in outputs:
                expected = recording.messages(port.name, is_output=True)
                found = again.messages(port.name, is_output=True)
                for number, (one, other) in enumerate(zip_longest(expected, found)):
                    _compare(f"message {number} of {port.name!r}", one, other, rtol, atol)
                    count += 1
        return count


class _Single(Application):
    """An application of one operator and players of its inputs."""

    def __init__(
        self, make: Callable[..., Any], recording: Recording, name: str, parameters: dict[str, Any]
    ) -> None:
        super().__init__([], name="check_recording")
        self._make = make
        self._recording = recording
        self._name = name
        self._parameters = parameters

    def compose(self) -> None:
        """Create the operator, and connect a player to each connection of its inputs."""
        self.scheduler(GreedyScheduler(self, clock=machine_clock(self) or ManualClock(self)))
        operator = self._make(self, **self._parameters)
        if not isinstance(operator, Operator):
            raise TypeError(f"check_recording takes an operator class or a function, not {self._make!r}")
        operator.name = self._name
        self.add_operator(operator)
        playback = Playback(self._recording, is_paced=True)
        for name in operator.spec.inputs:
            for index, entries in self._connections(name):
                outputs = {"out": IOSpec("out", IOSpec.IOType.OUTPUT)}
                player = Player(self, outputs, playback, entries, name=f"player of {name}:{index}")
                self.add_flow(player, operator, {("out", name)})

    def _connections(self, name: str) -> list[tuple[int, list[Entry]]]:
        """Return what each connection of an input received."""
        recording = self._recording
        received = [
            port
            for port in recording.ports
            if not port.is_output and (port.operator, port.port) == (self._name, name)
        ]
        sources: list[set[Any]] = [{port} for port in sorted(received, key=lambda one: one.index or 0)]
        if not sources:
            flows = [flow for flow in recording.run.flows if flow[2:4] == (self._name, name)]
            by_index: dict[int, set[Any]] = {}
            for source, output, _, _, index in flows:
                found = {
                    port
                    for port in recording.ports
                    if port.is_output and (port.operator, port.port) == (source, output)
                }
                by_index.setdefault(index or 0, set()).update(found)
            sources = [by_index[index] for index in sorted(by_index)]
        if not sources:
            raise GraphError(
                f"recording {str(recording.path)!r} has no messages of input {name!r} of {self._name!r}; record "
                f"'{self._name}.{name}', or the outputs that are connected to it"
            )
        return [
            (
                index,
                [
                    Entry(time, "out", number)
                    for number, (port, time) in enumerate(recording.outline())
                    if port in ports
                ],
            )
            for index, ports in enumerate(sources)
        ]


def _compare(
    where: str,
    one: RecordedMessage | None,
    other: RecordedMessage | None,
    rtol: float | None,
    atol: float | None,
) -> None:
    if one is None or other is None:
        what = "was emitted and not recorded" if one is None else "was recorded and not emitted"
        raise AssertionError(f"{where} {what}")
    for what in ("acq_timestamp", "metadata", "data"):
        text = difference(what, getattr(one, what), getattr(other, what), rtol, atol)
        if text is not None:
            raise AssertionError(f"{where}: {text}")
