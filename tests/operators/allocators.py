"""An allocator for tests of operators: it notes what it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import Tensor
from headrace.resources import UnboundedAllocator


class CountingAllocator(UnboundedAllocator):
    """Serves every kind of memory, and keeps shape, dtype, storage type and operator of each request."""

    def __init__(self, fragment: Any = None, *, name: str = "counting_allocator") -> None:
        super().__init__(fragment, name=name)
        self.requests: list[tuple[tuple[int, ...], str, int, str]] = []

    def allocate_tensor(
        self, shape: Any, dtype: Any, storage_type: Any = 1, *, stream: Any = None, operator: str = ""
    ) -> Tensor:
        self.requests.append((tuple(shape), np.dtype(dtype).name, int(storage_type), operator))
        return super().allocate_tensor(shape, dtype, storage_type, stream=stream, operator=operator)
