"""FewBuffers: whether the frames of a source come in few buffers, again and again.

Such a buffer need not be copied: a recording can read it where it is, one recording for each. It has to be the same
buffer and not only the same address, since a pool gives an address to others. So the owners of the memory are kept
while this is being found out, and compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.device_arrays import kind_of
from headrace._runtime.streams.owners import add_owners
from headrace.gpu.allocation import Allocation

if TYPE_CHECKING:
    from headrace._runtime.capture.structure import Leaves

__all__ = ["FewBuffers", "addresses_of", "are_same", "owners_of"]

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
        owners = owners_of(leaves)
        known = self._owners.get(key)
        if known is None and len(self._owners) < _MOST and not any(type(one) is Allocation for one in owners):
            self._owners[key] = owners
            self._counts[key] = 1
        elif known is not None and are_same(known, owners):
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


def owners_of(leaves: Leaves) -> list[Any]:
    """Return the owners of the memory of the arrays of a frame."""
    owners: list[Any] = []
    for leaf in leaves:
        add_owners(leaf, owners)
    return owners


def are_same(some: list[Any], others: list[Any]) -> bool:
    """Return whether two lists hold the same objects."""
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
