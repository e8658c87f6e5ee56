"""Ports of a run: chosen by patterns, such as ``camera.out``, ``camera.*`` or ``camera``, and watched."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.observe.events.records import OutputInfo, QueueInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.recordings.carriers import RecordedPort

if TYPE_CHECKING:
    from headrace.observe.events.records import RunInfo

Port: TypeAlias = OutputInfo | QueueInfo


class PortWatcher(Watcher):
    """A watcher of the messages of some ports, which `begin` chooses."""

    wants_data = True
    wants_gpu_times = False
    period = 1.0

    def __init__(self) -> None:
        self._shown: dict[Port, Any] = {}
        """The ports, with what `_show` needs to know of them."""

    def watches(self, port: Port) -> bool:
        """Return whether the messages of a port are shown."""
        return port in self._shown

    def emitted(self, output: OutputInfo, item: Any, time: int) -> None:
        """Show a message of an output."""
        if output in self._shown:
            self._show(output, item, time)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Show a message of an input."""
        if queue in self._shown:
            self._show(queue, item, time)

    def _show(self, port: Port, item: Any, time: int) -> None:
        raise NotImplementedError


def matches(pattern: str, operator: str, port: str) -> bool:
    """Return whether a pattern names a port: ``operator.port``, or ``operator`` for all its ports.

    ``*`` stands for any text, ``?`` for any character and ``[...]`` for one of several, or for itself: parts of
    replicated operators have names such as ``work[results]``.
    """
    literal = pattern.replace("[", "[[]")
    return any(
        fnmatchcase(name, one) for name in (f"{operator}.{port}", operator) for one in (literal, pattern)
    )


def parse_patterns(text: str) -> list[str]:
    """Return the patterns of a text, which commas separate."""
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]


def ports_of(run: RunInfo) -> Iterator[Port]:
    """Yield the ports of a run: the outputs and then the queues of the inputs of each operator of the program."""
    for operator in run.operators:
        if operator.node.beyond is None:
            yield from operator.outputs
            yield from operator.inputs


def describe(port: Port) -> RecordedPort:
    """Return the description of a port, with its position at an input for any number of connections."""
    operator, name = port.operator, port.port
    if isinstance(port, OutputInfo):
        return RecordedPort(operator.name, name)
    index = None
    if operator.node.operator.spec.every_input[name].is_receivers:
        index = [other for other in operator.inputs if other.port == name].index(port)
    return RecordedPort(operator.name, name, False, index)
