"""check_recording: a recording as a test of one operator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headrace.core.errors import GraphError, choices
from headrace.core.operator import Operator
from headrace.core.ports import IOSpec
from headrace.observe import PortRecorder, RecordedMessage, Recording, watch
from headrace.observe.recordings.replaying import Entry, Playback, Player
from headrace.testing.differences import difference
from headrace.testing.single_operator import SingleOperator


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
        app = _PlayedOperator(operator, Recording(path, pickle=pickle), name, parameters)
        emitted = Path(folder) / "emitted"
        watch(app, PortRecorder(emitted, [port.name for port in outputs], pickle=pickle))
        app.run_in_virtual_time()
        count = 0
        with Recording(emitted, pickle=pickle) as again:
            for port in outputs:
                expected = recording.messages(port.name, is_output=True)
                found = again.messages(port.name, is_output=True)
                for number, (one, other) in enumerate(zip_longest(expected, found)):
                    _compare(f"message {number} of {port.name!r}", one, other, rtol, atol)
                    count += 1
        return count


class _PlayedOperator(SingleOperator):
    """An operator with players of its inputs."""

    def __init__(
        self, make: Callable[..., Any], recording: Recording, name: str, parameters: dict[str, Any]
    ) -> None:
        super().__init__("check_recording", make, parameters)
        self._recording = recording
        self._name = name

    def _make_operator(self) -> Operator:
        operator = super()._make_operator()
        operator.name = self._name
        return operator

    def connect(self, operator: Operator) -> None:
        """Connect a player to each connection of the inputs."""
        playback = Playback(self._recording, is_paced=True)
        for name in operator.spec.every_input:
            for index, ports in enumerate(self._connections(name)):
                entries = [
                    Entry(time, "out", number)
                    for number, (port, time) in enumerate(self._recording.outline())
                    if port in ports
                ]
                outputs = {"out": IOSpec("out", IOSpec.IOType.OUTPUT)}
                player = Player(self, outputs, playback, entries, name=f"player of {name}:{index}")
                self.add_flow(player, operator, {("out", name)})

    def _connections(self, name: str) -> list[set[Any]]:
        """Return the recorded ports of each connection of an input."""
        recording = self._recording
        received = [
            port
            for port in recording.ports
            if not port.is_output and (port.operator, port.port) == (self._name, name)
        ]
        if received:
            return [{port} for port in sorted(received, key=lambda one: one.index or 0)]
        sources: dict[int, set[Any]] = {}
        for source, output, target, input_, index in recording.run.flows:
            if (target, input_) == (self._name, name):
                sources.setdefault(index or 0, set()).update(
                    port
                    for port in recording.ports
                    if port.is_output and (port.operator, port.port) == (source, output)
                )
        if not sources:
            raise GraphError(
                f"recording {str(recording.path)!r} has no messages of input {name!r} of {self._name!r}; record "
                f"'{self._name}.{name}', or the outputs that are connected to it"
            )
        return [sources[index] for index in sorted(sources)]


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
