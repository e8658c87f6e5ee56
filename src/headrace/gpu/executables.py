"""Executables: a recorded graph that is launched for frames at changing addresses.

A recorded graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ
from frame to frame. To change the addresses in an executable graph costs the host about as much for each
copy as the launch of the graph. So the copies have no addresses of their own. The host
writes those of each launch to a row of a table in its own memory. The first node of the graph takes the row of its
launch, and the copies find their addresses there.

The table has as many rows as launches may be ahead of the device. Before the host writes to one half of it again,
the device has taken the rows that were there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace import gpu
from headrace.gpu.capture import check_copy, instantiate_with_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ROWS: Final = 256
_HALF: Final = 128


class AddressTable:
    """The addresses of the copies of a graph, for the launches that the device may not have begun yet.

    Parameters
    ----------
    stream
        The stream of the launches, which does not capture.

    Attributes
    ----------
    rows
        What takes the rows; it counts the launches.
    words, size
        The table, a word for each address, and the size of a row.
    """

    __slots__ = ("_passed", "rows", "size", "words")

    def __init__(self, stream: gpu.StreamHandle) -> None:
        self.rows: Any = stream.backend.record_addresses(stream)
        self.size = 0
        self.words: Any = None
        # For each half, an event after the launches that took its rows.
        self._passed: list[Any] = []

    def begin(self, stream: gpu.StreamHandle) -> None:
        """Record the node that takes the addresses of its launch; all copies come after it."""
        self.rows.begin(stream)

    def copy(self, stream: gpu.StreamHandle, inside: int, size: int, *, enters: bool) -> None:
        """Record a copy between a fixed address and one outside: from there if it enters the graph."""
        check_copy(stream, size)
        self.rows.copy(stream, self.size, inside, size, enters)
        self.size += 1

    def open(self, stream: gpu.StreamHandle) -> None:
        """Make the table, when all copies are recorded."""
        memory = self.rows.open(self.size, _ROWS, stream)
        self.words = memory.cast("Q") if self.size else memory

    def close(self) -> None:
        """Free the memory; the device has finished."""
        self.rows.close()

    def turn(self, number: int, stream: gpu.StreamHandle) -> None:
        """Begin with a half, as soon as the device has taken all earlier rows there."""
        if not number:
            return
        if not self._passed:
            self._passed = [stream.device.create_event() for _ in range(2)]
        half = number // _HALF % 2
        stream.stream.record(self._passed[1 - half])
        if number >= _ROWS:
            self._passed[half].sync()


class Executables:
    """An executable graph, whose copies at its boundary find their addresses in a table.

    Parameters
    ----------
    definition
        The recorded graph.
    table
        Takes the addresses; it is open.
    executable
        An executable of the graph beside another one, which closes the table; without it, one is made.
    """

    def __init__(self, definition: Any, table: AddressTable, executable: Any = None) -> None:
        self._definition = definition
        self._table = table
        self._rows, self._words, self._size = table.rows, table.words, table.size
        self._is_first = executable is None
        self._executable: Any = executable or definition.instantiate()

    def launch(self, addresses: list[int], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        rows, words = self._rows, self._words
        number: int = rows.number
        if number % _HALF == 0:
            self._table.turn(number, stream)
        place = number % _ROWS * self._size
        for address in addresses:
            words[place] = address
            place += 1
        self._executable.launch(stream.stream)
        rows.number = number + 1  # unless the launch has failed

    def with_records(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> Executables:
        """Return another executable, which also records events, each after some of the nodes."""
        other = instantiate_with_records(self._definition, records)
        return Executables(self._definition, self._table, other)

    def close(self) -> None:
        """Close the executable, and the table with the first one; the device has finished."""
        self._executable.close()
        if self._is_first:
            self._table.close()
