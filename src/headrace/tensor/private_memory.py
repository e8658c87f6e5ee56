"""Private memory: what operators allocate while they are recorded belongs to the recording alone.

A recorded graph uses the same addresses in every replay. The memory of a temporary array is returned when the array
is gone; from a library's usual pool it would be given to somebody else and overwritten by every replay. So each
recording has pools of its own, which nobody else allocates from.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

from headrace.gpu.allocation import Allocation, keeping_allocations

__all__ = ["PrivateMemory"]


class PrivateMemory:
    """The pools of one recording, one for each library that has been imported.

    Parameters
    ----------
    device_id
        The device.
    is_simulated
        Whether that device is simulated, and libraries have nothing to do with it.
    """

    def __init__(self, device_id: int, is_simulated: bool) -> None:
        self._device_id = device_id
        self._allocations: list[Allocation] = []
        self._cupy: Any = None
        self._torch: Any = None
        self._open: list[ExitStack] = []
        if is_simulated:
            return
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if cupy is not None:
            self._cupy = cupy.cuda.MemoryPool()
        if torch is not None and torch.cuda.is_available():
            self._torch = torch.cuda.MemPool()

    def __enter__(self) -> PrivateMemory:
        stack = ExitStack()
        try:
            stack.enter_context(keeping_allocations(self._allocations))
            if self._cupy is not None:
                stack.enter_context(sys.modules["cupy"].cuda.using_allocator(self._cupy.malloc))
            if self._torch is not None:
                torch = sys.modules["torch"]
                stack.enter_context(torch.cuda.use_mem_pool(self._torch, self._device_id))
        except BaseException:
            stack.close()
            raise
        self._open.append(stack)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()
