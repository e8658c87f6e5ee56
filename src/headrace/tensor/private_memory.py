"""Private memory: what operators allocate while they are captured belongs to the graph alone.

A graph uses the same addresses at every launch. The memory of a temporary array is returned when the array is
gone; from a library's usual pool it would be given to somebody else and overwritten by every launch. So each graph
has pools of its own, which nobody else allocates from.
"""

from __future__ import annotations

from contextlib import ExitStack

from headrace.gpu.allocation import Allocation, keeping_allocations
from headrace.tensor.libraries import private_memories


class PrivateMemory:
    """The pools of one graph, one for each library in use; entered while its work is captured.

    Parameters
    ----------
    device_id
        The device.
    runs_cuda
        Whether CUDA's libraries work on that device.
    """

    def __init__(self, device_id: int, runs_cuda: bool) -> None:
        self._allocations: list[Allocation] = []
        self._pools = private_memories(device_id, runs_cuda)
        self._open: list[ExitStack] = []

    def __enter__(self) -> PrivateMemory:
        with ExitStack() as stack:
            stack.enter_context(keeping_allocations(self._allocations))
            for use in self._pools:
                stack.enter_context(use())
            self._open.append(stack.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()
