"""Inlet: an input port as `receive` uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.core.ports import IOSpec
from penstock.runtime.batch import Batch

if TYPE_CHECKING:
    from penstock.runtime.queue import Queue

__all__ = ["NOTHING", "Inlet"]

NOTHING = object()
"""What is noted at an input where nothing was received."""


class Inlet:
    """What takes the next message from an input, and what this compute took, where that is noted.

    Attributes
    ----------
    take
        Gives the next message, or raises IndexError when there is none.
    item
        What was received in this compute, or `NOTHING`.
    serves_others
        Whether any of its producers is run by other workers than its consumer is.
    """

    __slots__ = ("item", "name", "queues", "serves_others", "take")

    def __init__(self, port: IOSpec, queues: tuple[Queue, ...]) -> None:
        self.name = port.name
        self.queues = queues
        self.take: Callable[[], Any]
        if port.is_receivers:
            self.take = _each(queues)
        elif port.gives_tuple:
            self.take = _all(queues[0])
        else:
            self.take = _taking(queues[0])
        self.item: Any = NOTHING
        self.serves_others = False

    def note(self, item: Any) -> None:
        """Take note of what was received, beside what was before."""
        earlier = self.item
        if earlier is not NOTHING:
            item = Batch([*(earlier if type(earlier) is Batch else [earlier]), item])
        self.item = item


def _taking(queue: Queue) -> Callable[[], Any]:
    """Return what takes one message from a queue: popleft itself, unless a producer may pop as well."""
    return queue.popleft if queue.policy is not IOSpec.QueuePolicy.POP else queue.take


def _each(queues: tuple[Queue, ...]) -> Callable[[], Batch]:
    takes = [(queue, _taking(queue)) for queue in queues]

    def take() -> Batch:
        return Batch([take_one() for queue, take_one in takes if queue])

    return take


def _all(queue: Queue) -> Callable[[], Batch]:
    def take() -> Batch:
        if not queue:
            raise IndexError
        return Batch(queue.take_all())

    return take
