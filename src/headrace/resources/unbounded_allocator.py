"""UnboundedAllocator: as much memory of any kind as the machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.resources.allocator import Allocator

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class UnboundedAllocator(Allocator):
    """Memory of every kind, as much as is asked for.

    Memory that comes back is used again for requests of the same size, so frames of one size cost no calls of the
    driver after the first ones. No more is kept idle than was in use at once.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device.
    """

    _keep = None

    def __init__(
        self, fragment: Composition | None = None, *, dev_id: int = 0, name: str = "unbounded_allocator"
    ) -> None:
        super().__init__(fragment, dev_id=dev_id, name=name)
