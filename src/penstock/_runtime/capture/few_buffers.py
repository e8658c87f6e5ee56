"""FewBuffers: whether the frames of a source come in few buffers, again and again.

Such a buffer need not be copied: a recording can read it where it is, one recording for each. It has to be the same
buffer and not only the same address, since a pool gives an address to others. So the owners of the memory are kept
while this is being found out, and compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime.capture.device_arrays import Extent, kind_of, overlap
from penstock._runtime.streams.owners import add_owners
from penstock.gpu.allocation import Allocation

if TYPE_CHECKING:
    from penstock._runtime.capture.structure import Leaves

__all__ = ["FewBuffers", "Shared", "addresses_of", "extents_of", "shared_memory"]

_MOST = 4
_FRAMES = 16


class FewBuffers:
    """The buffers of the first frames."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, ...], list[Any]] = {}
        self._counts: dict[tuple[int, ...], int] = {}
        self._are_many = False
        self._left = _FRAMES

    @property
    def is_decided(self) -> bool:
        """Whether enough frames were seen."""
        return self._are_many or self._left <= 0

    def note(self, leaves: Leaves) -> None:
        """Note the buffers of a frame."""
        self._left -= 1
        if self._are_many or not leaves:
            return
        key = addresses_of(leaves)
        owners: list[Any] = []
        for leaf in leaves:
            add_owners(leaf, owners)
        known = self._owners.get(key)
        if known is None and len(self._owners) < _MOST and not any(type(one) is Allocation for one in owners):
            self._owners[key] = owners
            self._counts[key] = 1
        elif known is not None and len(known) == len(owners) and all(map(_is, known, owners)):
            self._counts[key] += 1
        else:
            self._are_many = True
            self._owners.clear()
            self._counts.clear()

    def found(self) -> list[tuple[int, ...]]:
        """Return the addresses of the buffers if all of them came again; none otherwise."""
        if not self._counts or min(self._counts.values()) < 2:
            return []
        return list(self._counts)


def addresses_of(leaves: Leaves) -> tuple[int, ...]:
    """Return the addresses of the arrays of a frame."""
    found = []
    for leaf in leaves:
        kind = kind_of(leaf)
        assert kind is not None
        found.append(kind.address(leaf))
    return tuple(found)


class Shared(tuple[int, ...]):
    """Which arrays of a frame share memory: for each of them, the first that has bytes in common with it."""

    __slots__ = ()


def extents_of(leaves: Leaves) -> list[Extent]:
    """Return where the bytes of the arrays of a frame are, seen from their addresses."""
    found = []
    for leaf in leaves:
        kind = kind_of(leaf)
        assert kind is not None
        found.append(kind.extent(kind.layout(leaf)))
    return found


def shared_memory(leaves: Leaves, extents: list[Extent]) -> Shared | None:
    """Return which arrays of a frame share their memory; None if none do.

    A recording has memory for each. If an operator changes one of two that are the same, it matters.
    """
    spans = [
        (address - before, address - before + size)
        for address, (before, size) in zip(addresses_of(leaves), extents, strict=True)
    ]
    end = 0
    for first, last in sorted(spans):
        if first < end and first < last:
            break
        end = max(end, last)
    else:
        return None
    return Shared(
        [next(i for i, two in enumerate(spans) if one is two or overlap(one, two)) for one in spans]
    )


def _is(one: Any, other: Any) -> bool:
    return one is other
