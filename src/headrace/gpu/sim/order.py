"""Order: tells why a kernel on arrays read or wrote memory at the wrong moment.

Streams run side by side, so a kernel that nothing orders after another finds whatever is in its memory when it
runs. A GPU says nothing about it, and a test sees it only where the times happen to be bad. The simulation knows
the order in which the program submitted the work, and the order in which it took effect. Where the two differ for
the same bytes, a value is wrong, and the kernel that finds it says so, in an `UnorderedAccessWarning`. With
``HEADRACE_CHECK=streams`` it is an error of the device, which the next call raises.

Nothing is reported that went well, so whoever wants to know whether an order holds in any case changes the times of
the kernels. The kernels of arrays and their copies are seen, not those that a program launches itself, and not the
work of recorded graphs, which runs again and again in an order of its own.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from headrace.gpu.sim.objects import UnorderedAccessWarning

if TYPE_CHECKING:
    from headrace.gpu.sim.stream import Stream

_MOST = 64  # the writes to one block of memory that are remembered
_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class _Write:
    """A piece of work that writes some bytes."""

    name: str
    stream: int
    number: int  # in the order of submission
    begin: int
    end: int
    is_done: bool = False


@dataclass(slots=True)
class _Memory:
    """The writes to a block of memory, as far as they may still matter."""

    writes: list[_Write] = field(default_factory=list)

    def overlapping(self, begin: int, end: int) -> list[_Write]:
        return [write for write in self.writes if write.begin < end and begin < write.end]

    def add(self, write: _Write) -> None:
        self.writes = [old for old in self.writes if not old.is_done or not _covers(write, old)]
        self.writes = [*self.writes[-_MOST:], write]


def _covers(write: _Write, old: _Write) -> bool:
    return write.begin <= old.begin and old.end <= write.end


_known: dict[int, tuple[ref[Any], _Memory]] = {}  # by the id of the memory


def _memory_of(view: np.ndarray[Any, Any]) -> tuple[_Memory, int, int]:
    """Return what is known of the memory of a view, and the addresses that it spans."""
    whole = view
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    key = id(whole)
    if key not in _known:
        _known[key] = (ref(whole, lambda _: _known.pop(key, None)), _Memory())
    begin, end = np.lib.array_utils.byte_bounds(view)
    return _known[key][1], begin, end


class Order:
    """One piece of work, from its submission to its effect.

    Parameters
    ----------
    name
        What it is, for the report.
    stream
        The stream that it is submitted to.
    reads, writes
        The arrays that it reads and writes.
    """

    __slots__ = ("_fail", "_is_recorded", "_name", "_number", "_reads", "_stream", "_writes")

    def __init__(
        self,
        name: str,
        stream: Stream,
        reads: Sequence[np.ndarray[Any, Any]],
        writes: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        self._name, self._number, self._stream = name, next(_numbers), stream.handle
        self._fail = stream._queue.context.device.machine.fail
        self._is_recorded = stream._queue.capture is not None
        # What it reads, and the writes that the program submitted before: those it means to read.
        self._reads: list[tuple[_Memory, int, int, list[_Write]]] = []
        self._writes: list[tuple[_Memory, _Write]] = []
        if self._is_recorded:
            return
        for view in reads:
            memory, begin, end = _memory_of(view)
            meant = [write for write in memory.overlapping(begin, end) if not write.is_done]
            self._reads.append((memory, begin, end, meant))
        for view in writes:
            memory, begin, end = _memory_of(view)
            write = _Write(name, self._stream, self._number, begin, end)
            memory.add(write)
            self._writes.append((memory, write))

    def around(self, effect: Callable[[], object]) -> Callable[[], object]:
        """Return an effect with its check."""
        if self._is_recorded:
            return effect

        def checked() -> None:
            try:
                self._check()
            except UnorderedAccessWarning as error:
                self._fail(f"the check of {self._name!r}", error)
            try:
                effect()
            finally:
                for _, write in self._writes:
                    write.is_done = True

        return checked

    def _check(self) -> None:
        for memory, begin, end, meant in self._reads:
            for write in meant:
                if not write.is_done:
                    self._report("read an array before", write, "had written it")
            for write in memory.overlapping(begin, end):
                if write.is_done and write.number > self._number:
                    self._report("read an array after", write, "had overwritten it")
        for memory, mine in self._writes:
            for write in memory.overlapping(mine.begin, mine.end):
                if write.is_done and write.number > self._number:
                    self._report("overwrote an array after", write, "had written it")

    def _report(self, did: str, other: _Write, what: str) -> None:
        when = "later" if other.number > self._number else "earlier"
        text = (
            f"{self._name!r} on stream {self._stream:#x} {did} {other.name!r}, which the program submitted "
            f"{when} on stream {other.stream:#x}, {what}: nothing orders the two streams there. Let the stream "
            "of the later one wait for an event that is recorded after the earlier one, and keep an array until "
            "its readers are done; in a pipeline, receive and emit do both"
        )
        if "streams" in os.environ.get("HEADRACE_CHECK", "").split(","):
            raise UnorderedAccessWarning(text)
        warnings.warn(text, UnorderedAccessWarning, stacklevel=2)
